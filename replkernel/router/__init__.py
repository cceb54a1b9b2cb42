"""The router: one process per kernel that owns the kernel's five Jupyter ports and its key.

Decisions are pure (`core` and the nouns it is made of); `driver` does the I/O. Nothing is imported here, so
that ``python -m replkernel.router`` starts as fast as the interpreter allows.
"""
