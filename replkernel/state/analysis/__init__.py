"""What a cell names: its text, the code that it reaches, and the sources that it is about to import."""
