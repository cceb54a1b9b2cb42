"""What changed in the namespace: every variable dumped, compared with the last look, and shipped."""
