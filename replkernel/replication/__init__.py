"""Replication: the log's entries, the state machine that they drive, and the consensus that orders them."""
