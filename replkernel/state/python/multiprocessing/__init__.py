"""multiprocessing: contexts and shared memory."""
