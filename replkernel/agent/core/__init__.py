"""What the agent decides. Pure: no sockets, clocks, threads or files."""
