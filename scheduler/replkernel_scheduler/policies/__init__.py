"""The built-in policies: one a file, named as in the entry points of pyproject.toml."""
