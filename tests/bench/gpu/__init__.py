"""What the README of `replkernel/gpu` says of real GPUs, measured in one go: `python -m tests.bench.gpu`."""
