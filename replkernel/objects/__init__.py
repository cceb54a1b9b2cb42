"""Blobs: a host's cache of content-named chunks, the object stores that keep them, and what moves between."""
