"""`replkernel accounting`: the scheduler's accounts as a table, CSV or JSON.

Law: it only asks; the token is never shown.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException, HTTPResponse
from typing import Any

from replkernel.errors import ReplkernelError
from replkernel.leasing.finding import find_scheduler
from replkernel.scheduler_address import SETTING, scheduler_trouble

DEFAULT_URL = "http://127.0.0.1:8797"
TIMEOUT_S = 60.0
TABLE_BYTES_MAX = 64 * 1024 * 1024
WIDTH_MAX = 36
COLUMNS = {
    "cell": ("ended", "user", "kernel_id", "host", "gpus", "queued_s", "busy_s", "gpu_hours"),
    "kernel": ("kernel_id", "user", "cells", "queued_s", "busy_s", "gpu_hours", "saved_gpu_hours"),
    "user": ("user", "cells", "queued_s", "busy_s", "gpu_hours", "saved_gpu_hours"),
}


def run_accounting(form: str, by: str | None, since: str) -> int:
    """Print the accounts in `form` (table, csv or json); return the exit code."""
    about = by or ("user" if form == "table" and not since else "cell")
    query = {"format": "csv" if form == "csv" else "json", "by": about} | ({"since": since} if since else {})
    try:
        with _ask(f"/api/v1/accounting?{urllib.parse.urlencode(query)}") as answer:
            if form != "table":
                shutil.copyfileobj(answer, sys.stdout.buffer)
                sys.stdout.buffer.flush()
                return 0
            document = json.loads(answer.read(TABLE_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            print(_why(error), file=sys.stderr)
        return 1
    except (OSError, HTTPException, ValueError) as error:
        print(f"The scheduler's answer broke off ({error}): ask again, or use --csv.", file=sys.stderr)
        return 1
    print("\n".join(_table(COLUMNS[about], document["cells" if about == "cell" else "sums"])))
    return 0


def _ask(path: str) -> HTTPResponse:
    """Return the answer; raise ReplkernelError if no scheduler answers there."""
    url = find_scheduler(os.environ)[0] or DEFAULT_URL
    trouble = scheduler_trouble(url, os.environ)
    if trouble:
        raise ReplkernelError(trouble)
    token = find_scheduler({**os.environ, SETTING: url})[1]
    request = urllib.request.Request(url + path, headers={"Authorization": f"token {token}"})  # noqa: S310 - checked above
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310 - likewise
    return answer


def _why(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(64 * 1024))["why"])
    except (ValueError, KeyError, TypeError):
        return f"The scheduler answers {error.code}; is it of this version?"


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as lines with columns one below the other."""
    if not rows:
        return ["Nothing has been leased yet."]
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(len(line[n]) for line in [columns, *cells]) for n in range(len(columns))]
    lines = [[name.upper() for name in columns], *cells]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value) or "-"
    return text if len(text) <= WIDTH_MAX else text[: WIDTH_MAX - 1] + "…"
