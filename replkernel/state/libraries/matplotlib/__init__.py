"""matplotlib."""
