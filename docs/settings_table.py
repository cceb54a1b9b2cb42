"""Writes the settings table of README.md from `replkernel.settings`; `--check` only compares."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from replkernel.settings import SETTING_DOCS

README = Path(__file__).parents[1] / "README.md"
MARKS = re.compile(r"(<!-- settings: [^\n]*-->\n).*?(<!-- end of settings -->)", re.DOTALL)


def table() -> str:
    """Return the table as Markdown."""
    rows = [f"| `{doc.variable}` | {doc.default} | {doc.help} |" for doc in SETTING_DOCS]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows, ""])


def with_table(text: str) -> str:
    """Return `text` with the table between its two marks."""
    return MARKS.sub(lambda match: match.group(1) + "\n" + table() + "\n" + match.group(2), text)


def main() -> int:
    """Write the table, or check it; return the exit code."""
    text = README.read_text()
    wanted = with_table(text)
    if "--check" in sys.argv[1:]:
        print("The settings table is current." if text == wanted else "Run python docs/settings_table.py.")
        return int(text != wanted)
    README.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
