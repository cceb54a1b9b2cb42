"""Launchers: who starts host agents, on machines that an engine has; one module or folder each."""
