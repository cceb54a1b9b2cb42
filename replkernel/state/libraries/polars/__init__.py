"""polars."""
