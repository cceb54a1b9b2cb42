"""Writes the settings tables of the documents from the code; `--check` only compares."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from replkernel_server.scheduling.settings import SETTING_DOCS as SERVICE_DOCS

from replkernel.settings import SETTING_DOCS, SettingDoc

ROOT = Path(__file__).parents[1]
TABLES: dict[Path, Sequence[SettingDoc]] = {
    ROOT / "docs" / "reference" / "settings.md": SETTING_DOCS,
    ROOT / "server_ext" / "README.md": SERVICE_DOCS,
}
MARKS = re.compile(r"(<!-- settings: [^\n]*-->\n).*?(<!-- end of settings -->)", re.DOTALL)


def table(docs: Sequence[SettingDoc]) -> str:
    """Return the table as Markdown."""
    rows = [f"| `{doc.variable}` | {doc.default} | {doc.help} |" for doc in docs]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows, ""])


def with_table(text: str, docs: Sequence[SettingDoc]) -> str:
    """Return `text` with the table between its two marks."""
    return MARKS.sub(lambda match: match.group(1) + "\n" + table(docs) + "\n" + match.group(2), text)


def main() -> int:
    """Write the tables, or check them; return the exit code."""
    wanted = {path: with_table(path.read_text(), docs) for path, docs in TABLES.items()}
    if "--check" in sys.argv[1:]:
        current = all(path.read_text() == text for path, text in wanted.items())
        print("The settings tables are current." if current else "Run python docs/settings_table.py.")
        return int(not current)
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
