"""Stands in, in tests' processes, for what an editable install imports at each start of Python.

The sources are on their path anyway, and an installed wheel has nothing like it. It costs each of thousands
of processes a third of its start.
"""

del __file__  # Nobody's file: the kernel would take a module outside all libraries for the user's.
