"""replkernel: a Jupyter kernel whose state is replicated and whose GPUs are leased cell by cell."""

__version__ = "0.1.0"
