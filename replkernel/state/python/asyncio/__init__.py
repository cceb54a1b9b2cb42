"""asyncio: what has ended, what nobody waits for, and what binds a notebook to its loop."""
