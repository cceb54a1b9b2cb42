"""A kernel's committed state taken elsewhere: into other kernels (fork), into a file, and back."""
