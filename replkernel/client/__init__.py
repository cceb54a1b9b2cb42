"""What is asked of a running kernel from outside: by programs, pages and the command line."""
