"""Whether what was rebuilt is what was captured, and what is done where it is not."""
