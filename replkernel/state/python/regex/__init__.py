"""re: matches, and searches part-way."""
