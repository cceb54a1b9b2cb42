"""pydantic."""
