"""`replkernel accounting`: the scheduler's accounts as a table, CSV or JSON.

Law: it only asks; the token is never shown.
"""

from __future__ import annotations

import os
import sys
import urllib.parse
from typing import Any

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained, pieces
from replkernel.leasing.finding import DEFAULT_URL, URL, find_scheduler, token_for

TABLE = Bounds(60.0, 120.0, 64 * 1024 * 1024)
EXPORT = Bounds(60.0, 3600.0, 64 * 1024**3)
WIDTH_MAX = 36
COLUMNS = {
    "cell": ("ended", "user", "kernel_id", "host", "gpus", "queued_s", "busy_s", "gpu_hours"),
    "kernel": ("kernel_id", "user", "cells", "queued_s", "busy_s", "gpu_hours", "saved_gpu_hours"),
    "user": ("user", "cells", "queued_s", "busy_s", "gpu_hours", "saved_gpu_hours", "job_gpu_hours"),
    "job": ("job", "user", "state", "host", "starts", "cpu_hours", "gpu_hours"),
    "cluster": ("currency", "cost", "charged", "margin"),
}


LISTS = {"cell": "cells", "kernel": "sums", "user": "sums", "job": "jobs", "cluster": "cluster"}


def run_accounting(form: str, by: str | None, since: str) -> int:
    """Print the accounts in `form` (table, csv or json); return the exit code."""
    about = by or ("user" if form == "table" and not since else "cell")
    query = {"format": "csv" if form == "csv" else "json", "by": about} | ({"since": since} if since else {})
    url = find_scheduler(os.environ)[0] or DEFAULT_URL
    token = token_for(url, os.environ)
    path = f"/api/v1/accounting?{urllib.parse.urlencode(query)}"
    try:
        if form != "table":
            for piece in pieces(url, token, path, EXPORT):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return 0
        rows = _rows(ask(url, token, path, TABLE), LISTS[about], COLUMNS[about])
    except NoAnswer as error:
        told = error.said if error.code != 401 else ""
        raise ReplkernelError(told or explained(url, os.environ, error)) from error
    if about == "cluster" and not rows:
        print("The scheduler has no prices: set REPLKERNEL_SCHEDULER_PRICES where it runs.")
        return 0
    priced = about != "cluster" and any(row.get("cost") is not None for row in rows)
    print("\n".join(describe((*COLUMNS[about], *(("cost",) if priced else ())), rows, since)))
    return 0


def _rows(answer: bytes, key: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the rows of an answer; raises ReplkernelError for what is no scheduler's."""
    try:
        rows = msgspec.json.decode(answer, type=dict[str, Any])[key]
        if all(name in row for row in rows for name in columns):
            return list(rows)
    except (*UNREADABLE, KeyError, TypeError):
        pass
    raise ReplkernelError(
        "The answer is not understood: it is no scheduler's, or one of another version; correct the setting "
        f"{URL}, or install one version of replkernel everywhere."
    )


def describe(columns: tuple[str, ...], rows: list[dict[str, Any]], since: str = "") -> list[str]:
    """Return rows as lines with columns one below the other."""
    if not rows:
        return [f"Nothing has been leased since {since}." if since else "Nothing has been leased yet."]
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[n]) for line in [columns, *cells]) for n in range(len(columns))]
    lines = [[name.upper() for name in columns], *cells]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    text = "".join(mark if mark.isprintable() else "�" for mark in str(value)) or "-"
    return text if len(text) <= WIDTH_MAX else text[: WIDTH_MAX - 1] + "…"
