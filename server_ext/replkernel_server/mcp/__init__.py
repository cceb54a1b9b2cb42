"""An MCP server: agents use notebooks' kernels through a Jupyter Server. Law: nothing is remembered here."""
