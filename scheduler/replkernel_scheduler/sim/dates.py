"""Dates of traces as seconds; a trace's own time zone is kept out of it: only differences count."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_of(text: str, name: str) -> float:
    """Return the seconds of `2020-04-01 13:00:00`; raise ValueError that says what it is instead."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"{name} is {text[:40]!r}, which is no date like 2020-04-01 13:00:00") from None
