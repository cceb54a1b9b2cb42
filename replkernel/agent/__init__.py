"""The host agent: one per user and host; it keeps replicas, their Raft members and their kernel processes."""
