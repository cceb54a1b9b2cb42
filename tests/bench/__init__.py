"""Measurements beside the stock kernel, in one run: `make bench`, or `python -m tests.bench NAME …`.

Nothing here fails because of a number: each measurement writes `build/bench/<name>.json`.
"""
