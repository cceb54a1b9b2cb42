"""The simulator: recorded work, played on the scheduler's core by a driver whose clock is a heap of events.

Law: it is a driver like the live one. The core and its policies do not know of it, and nothing here
decides.
"""
