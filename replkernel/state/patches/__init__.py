"""What a notebook changed in libraries: attributes, entries, registrations."""
