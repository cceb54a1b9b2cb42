"""What a payload says, and how: its head, its graph, and what a pickle alone would not tell."""
