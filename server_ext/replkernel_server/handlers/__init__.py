"""The HTTP handlers of the extension, one resource a file."""
