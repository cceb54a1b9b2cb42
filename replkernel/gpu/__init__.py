"""Everything that knows about GPUs. torch is touched here only, and never imported by force."""
