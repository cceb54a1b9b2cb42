"""What the router does: its sockets, journal, log and threads. No rule about cells stands here."""
