"""The kernel process of a replica: an IPython kernel that is stock to its client and replicated behind it."""
