"""What the router decides. Pure: no sockets, clocks, threads or files."""
