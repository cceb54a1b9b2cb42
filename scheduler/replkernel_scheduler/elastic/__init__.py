"""Training jobs whose number of GPUs changes while they run: a pure core that reshapes them.

Law: as the other cores: events and the time come in, effects go out; it knows of no clock and no simulation.
"""
