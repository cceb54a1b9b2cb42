"""The launcher of Ray clusters: agents on its nodes, leases in its accounting.

`ray` is imported by `process.py` alone, which runs in a process of its own.
"""
