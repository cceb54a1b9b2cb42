"""The source of the cells that clients run, and what their replies mean.

Pure. Law: a cell's effect, what it prints and its name are one; a file outside of the kernel's state tells
that it began.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.faults.history import KEPT, UNSETTLED, Outcome
from tests.e2e.faults.schedule import Step

LARGE_BYTES = 150_000
MARKS = 150_000
"""So many objects take long to look at: captures after cells leave them for later."""

OWN_ERROR = "ValueError"

AUDIT = """
sums = {name: zlib.crc32(value) for name, value in sorted(large_values.items())}
print(json.dumps([seen_names, sums]))
"""


class Shown(NamedTuple):
    """What a cell printed: the list, the checksum of its large value, how long the list is by the marks."""

    seen: tuple[str, ...] | None = None
    large: int | None = None
    marked: int | None = None


def first_cell(witness: Path) -> str:
    """Return the cell that makes the state which all others work on."""
    return f"""
import json, os, time, zlib
seen_names, large_values = [], {{}}
slow_marks = [[0] for number in range({MARKS})]

def note_cell(name):
    seen_names.append(name)
    slow_marks[0][0] = len(seen_names)

def marked():
    return slow_marks[0][0]

def begin_cell(name):
    file = os.open({str(witness)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (name + "\\n").encode())
    os.close(file)
"""


def code_of(step: Step) -> str:
    """Return a step's source."""
    lines = [f"begin_cell({step.name!r})"]
    if step.kind == "append":
        lines.append(f"note_cell({step.name!r})")
    if step.large and step.kind == "append":
        lines.append(f"large_values[{step.name!r}] = os.urandom({LARGE_BYTES})")
    if step.takes_s:
        lines.append(f"time.sleep({step.takes_s})")
    lines.append(f"large = large_values.get({step.name!r})")
    lines.append("print(json.dumps([seen_names, None if large is None else zlib.crc32(large), marked()]))")
    if step.kind == "undo":
        lines.append("if seen_names: get_ipython().run_line_magic('replkernel', 'undo')")
    if step.fails:
        lines.append(f"raise {OWN_ERROR}({step.name!r})")
    return "\n".join(lines)


def shown(printed: str) -> Shown:
    """Read what a cell printed first; nothing when that is not whole."""
    try:
        names, large, marked = json.loads(printed.partition("\n")[0])
        return Shown(tuple(map(str, names)), large, marked)
    except (ValueError, TypeError):
        return Shown()


def outcome_of(content: dict[str, Any], told: dict[str, Any]) -> Outcome:
    """Return what a reply's content, and what the product told with it, say of its cell."""
    if content["status"] == "ok" or (told.get("ran") and content["status"] == "error"):
        return "done"
    if any(words in content.get("evalue", "") for words in (KEPT, UNSETTLED)):
        return "unknown"
    return "lost" if content.get("ename") == "ExecutorLost" else "not run"


def said_in(content: dict[str, Any], warned: str) -> str:
    """Return the error and the warnings of a cell as one text."""
    error = f"{content['ename']}: {content['evalue']}" if "ename" in content else content["status"]
    return " / ".join(part for part in (error if error != "ok" else "", warned.strip()) if part)
