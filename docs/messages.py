"""Writes messages into their page, from each package's catalogue; `--check` only compares.

A topic of a catalogue maps messages to what people can do. The page says where each topic stands: as a table
(`messages`), or as a section for each message (`explained`).
"""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "run" / "troubleshooting.md"
CATALOGUES = {
    "replkernel": ROOT / "replkernel" / "messages.toml",
    "server_ext/replkernel_server": ROOT / "server_ext" / "replkernel_server" / "messages.toml",
    "labextension/src": ROOT / "labextension" / "messages.toml",
}
"""Where a package's code is, and where its catalogue."""

TABLE = ("| message | what to do |", "| --- | --- |")
MARKS = re.compile(
    r"<!-- (messages|explained): ([a-z-]+) -->\n.*?<!-- end of messages -->", re.DOTALL | re.MULTILINE
)


@cache
def catalogue(package: str) -> dict[str, dict[str, str]]:
    """Return a package's topics: messages, with what to do."""
    return tomllib.loads(CATALOGUES[package].read_text())


def topic(name: str) -> dict[str, str]:
    """Return a topic's messages of all packages."""
    return {says: do for package in CATALOGUES for says, do in catalogue(package).get(name, {}).items()}


def topics(page: str, form: str) -> set[str]:
    """Return the topics that a page has in a form."""
    return {found[2] for found in MARKS.finditer(page) if found[1] == form}


def with_messages(page: str) -> str:
    """Return the page with what the catalogues say between its marks."""
    return MARKS.sub(_written, page)


def _written(found: re.Match[str]) -> str:
    form, name = found.groups()
    messages = topic(name)
    if form == "messages":
        body = "\n".join([*TABLE, *(f"| `{says}` | {do} |" for says, do in messages.items())])
    else:
        body = "\n\n".join(f"### `{says}`\n\n{do}" for says, do in messages.items())
    return f"<!-- {form}: {name} -->\n\n{body}\n\n<!-- end of messages -->"


def main() -> int:
    """Write the page, or check it; return the exit code."""
    page = PAGE.read_text()
    wanted = with_messages(page)
    if "--check" in sys.argv[1:]:
        print("The page of messages is current." if page == wanted else "Run python docs/messages.py.")
        return int(page != wanted)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
