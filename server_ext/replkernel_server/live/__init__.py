"""What pages are shown live: kernels, executions, leases, hosts, the queue."""
