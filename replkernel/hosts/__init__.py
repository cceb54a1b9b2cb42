"""This machine and others: where things lie, what only we may touch, and sockets that others may reach."""
