"""How a kernel is launched, found again, and ended: its command, configuration, record and ports."""
