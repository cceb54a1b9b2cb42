"""A notebook's door for front ends that start the kernel's command themselves, with another key each time."""
