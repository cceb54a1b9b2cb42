"""Leases on several hosts at once, for one cell: all of them, or none."""
