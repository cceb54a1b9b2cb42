"""What whoever waits may expect: the lines are played forward over ends that leases are likely to have."""
