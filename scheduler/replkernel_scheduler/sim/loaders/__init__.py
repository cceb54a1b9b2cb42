"""Readers of recorded traces: one form a file, each a function `records(file)` that yields records."""
