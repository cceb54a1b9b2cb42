"""Jobs that share processors: a second pure core, for clusters whose nodes take more processes than cores.

Law: as the core of leases, it imports neither clock, event loop nor I/O, and knows of no simulation: events
and the time come in, starts go out. Same events and times: same starts.
"""
