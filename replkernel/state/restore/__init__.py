"""What was captured, back into the namespace of another process."""
