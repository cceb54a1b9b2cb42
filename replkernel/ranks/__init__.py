"""A cell on several hosts: one process for each of its GPUs, all started, watched and ended together."""
