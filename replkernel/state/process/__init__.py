"""The parts of a process's own state that travel with a notebook: one noun a file.

A part looks at the process without changing it and says nothing until something differs from birth.
"""
