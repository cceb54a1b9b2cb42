"""How objects of Python and its standard library are reduced and made again."""
