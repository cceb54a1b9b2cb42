"""Which end-to-end tests are run across machines."""

ACROSS = ("tests/e2e/test_notebooks.py", "tests/e2e/test_clients.py")
