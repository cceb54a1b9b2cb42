"""A notebook's proxy, for front ends that start the kernel's command themselves, with a new key each time."""
