"""sqlite3: connections, cursors, and what the module does not tell of them."""
