"""IPython: what a notebook changed in its shell."""
