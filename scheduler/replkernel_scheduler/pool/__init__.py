"""Jobs on one pool of GPUs that may be stopped for others: a pure core, and predictions of when to wait.

Law: as the other cores: events and the time come in, effects go out; it knows of no clock and no simulation.
"""
