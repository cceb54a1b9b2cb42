"""`replkernel book`: GPUs for later, for a group or for users; listed and cancelled.

Law: it only asks; what the scheduler refuses is told in its own words. Times are this machine's local ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import urllib.parse
from datetime import UTC, datetime, timedelta

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import DEFAULT_URL, find_scheduler, token_for
from replkernel.protocol.status import BookingStatus

BOUNDS = Bounds(10.0, 30.0, 1024 * 1024)
UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0}


class _Listed(msgspec.Struct, frozen=True):
    bookings: tuple[BookingStatus, ...]


def run_booking(options: argparse.Namespace, now: datetime | None = None) -> int:
    """Do what is wanted; return the exit code."""
    if options.act == "list":
        lines = describe(_decoded(_ask("/api/v1/bookings", "GET")).bookings, time.time())
        print("\n".join(lines) if lines else "Nothing is booked.")
        return 0
    if options.act == "cancel":
        if not options.booking:
            raise ReplkernelError("Name the booking as `replkernel book list` shows it.")
        _ask(f"/api/v1/bookings/{urllib.parse.quote(options.booking, safe='')}", "DELETE")
        print(f"{options.booking} is cancelled.")
        return 0
    if options.gpus < 1 or not options.at or not options.lasts or not (options.group or options.user):
        raise ReplkernelError(
            "Say how many GPUs, when, how long and for whom: "
            "`replkernel book --gpus 8 --at 10:00 --for 2h --group class`."
        )
    body = {
        "gpus": options.gpus,
        "in_s": seconds_until(options.at, now or datetime.now().astimezone()),
        "lasts_s": seconds_of(options.lasts),
        "group": options.group,
        "users": options.user,
        "gpu_model": options.model,
    }
    answer = _ask("/api/v1/bookings", "POST", json.dumps(body).encode())
    made = msgspec.json.decode(answer, type=BookingStatus)
    print("\n".join(describe((made,), time.time())))
    return 0


def seconds_until(text: str, now: datetime) -> float:
    """Return the seconds until a time of day (today, or else tomorrow), or until a date and time."""
    if re.fullmatch(r"\d{1,2}:\d\d", text):
        hour, minute = (int(part) for part in text.split(":"))
        if hour < 24 and minute < 60:
            at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return ((at if at >= now else at + timedelta(days=1)) - now).total_seconds()
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ReplkernelError(f"--at {text}: write a time such as 10:00 or '2026-12-01 09:30'.") from None
    left_s = (at.astimezone() - now.astimezone()).total_seconds()
    if left_s < 0:
        raise ReplkernelError(f"--at {text} is over: write a time to come.")
    return left_s


def seconds_of(text: str) -> float:
    """Return the seconds of `90m`, `2h` or `1d`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", text)
    if found is None:
        raise ReplkernelError(f"--for {text}: write minutes, hours or days, such as 90m, 2h or 1d.")
    return float(found[1]) * UNITS[found[2]]


def describe(bookings: tuple[BookingStatus, ...], wall: float) -> list[str]:
    """Return a line for each booking."""
    lines = []
    for one in bookings:
        begins, ends = _local(wall + one.begins_in_s), _local(wall + one.ends_in_s)
        model = f" {one.gpu_model}" if one.gpu_model else ""
        ready = "" if one.phase == "planned" else f"; {one.ready} ready"
        lines.append(
            f"{one.booking}: {one.gpus}{model} GPU{'' if one.gpus == 1 else 's'} for {one.whom}, "
            f"{begins:%d %b %H:%M} to {ends:%d %b %H:%M}{ready}"
        )
    return lines


def _local(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC).astimezone()


def _ask(path: str, method: str, body: bytes | None = None) -> bytes:
    url = find_scheduler(os.environ)[0] or DEFAULT_URL
    try:
        return ask(url, token_for(url, os.environ), path, BOUNDS, method, body)
    except NoAnswer as error:
        told = error.said if error.code != 401 else ""
        raise ReplkernelError(told or explained(url, os.environ, error)) from error


def _decoded(answer: bytes) -> _Listed:
    try:
        return msgspec.json.decode(answer, type=_Listed)
    except UNREADABLE as error:
        raise ReplkernelError("The scheduler's answer is not understood; is it of this version?") from error
