"""Fuzzing of everything that parses what somebody else wrote: `make fuzz`, and `README.md` beside this."""
