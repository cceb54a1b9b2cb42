"""What the agent does: its listeners, processes, stores and timers."""
