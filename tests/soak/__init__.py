"""A day of a notebook in minutes: `make soak`."""
