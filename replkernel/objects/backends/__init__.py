"""The kinds of object store, one a module; each imports its library, lazily, and nobody else does."""
