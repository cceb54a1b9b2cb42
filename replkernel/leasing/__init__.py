"""GPUs by lease, on the kernel's side: what a cell asks for, the channel to the scheduler, what waits for a grant."""
