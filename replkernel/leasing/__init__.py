"""GPUs by lease, as the kernel sees them: requests, the channel to the scheduler, who waits for a grant."""
