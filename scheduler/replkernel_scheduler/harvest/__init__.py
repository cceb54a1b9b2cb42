"""Training jobs in the GPUs that idle notebooks leave: a pure core around the scheduler's.

Law: as the other cores: events and the time come in, effects go out; it knows of no clock and no simulation.
"""
