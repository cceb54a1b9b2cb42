"""Arrow."""
