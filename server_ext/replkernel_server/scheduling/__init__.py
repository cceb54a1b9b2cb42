"""What makes the live scheduler last: its settings, clock, journal, recovery, figures and accounts."""
