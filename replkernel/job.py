"""What a training program says to whoever runs it as a job, and hears: `from replkernel import job`.

    for epoch in range(first, 90):
        loss = train_one_epoch(model)
        job.progress(epoch + 1, loss)
        if job.should_checkpoint():
            torch.save(..., job.checkpoint_path)

Run by hand, a program works the same: nobody hears, and nobody asks. Law: standard library and small files
only; nothing here ever fails a training.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import time
from pathlib import Path

__all__ = ["checkpoint_path", "cpus", "gpus", "hosts", "progress", "should_checkpoint"]

_PLACE = os.environ.get("REPLKERNEL_JOB_DIR", "")
_given = os.environ.get("REPLKERNEL_JOB_CHECKPOINT", "")

checkpoint_path = Path(_given or "checkpoint")
"""Where to save to, and to load from if it is there; its directory exists. Save beside it, then rename."""

gpus = int(os.environ.get("REPLKERNEL_JOB_GPUS", "") or 0)
"""How many GPUs this start of the job has on each host; 0: it runs on cores alone, or not as a job."""

hosts = int(os.environ.get("REPLKERNEL_JOB_HOSTS", "") or 1)
"""On how many hosts it runs."""

cpus = int(os.environ.get("REPLKERNEL_JOB_CPUS", "") or 0)
"""How many cores it has, where it runs without GPUs; else 0."""

_EVERY_S = 1.0
"""Progress is written no more often; what was told meanwhile is written later."""

_saving = 0
_listens = False
_told = ""
"""Progress that is not written yet, by the process `_teller`."""
_teller = 0
_written_at = float("-inf")


def progress(epoch: float, loss: float | None = None) -> None:
    """Tell that `epoch` epochs are done, and the loss; of several processes the first one's word counts."""
    _has_saved()
    if not _PLACE or not _is_first():
        return
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        done, lost = float(epoch), None if loss is None else float(loss)
        if math.isfinite(done):
            said = {"epoch": done, "loss": lost if lost is not None and math.isfinite(lost) else None}
            _tell(json.dumps(said))


def should_checkpoint() -> bool:
    """Tell whether to save now: the job's GPUs are wanted, or it changes its shape. True once each time.

    The next call of `progress` or of this tells that it is saved, so save before; then it may end any time.
    """
    global _saving, _listens
    _has_saved()
    if not _PLACE:
        return False
    if not _listens:
        _listens = True
        _write("listens", "1")
    asked = _read("asked")
    if asked <= _saving:
        return False
    _tell_now()
    _saving = asked
    return True


def _tell(said: str) -> None:
    """Have progress written, at most once a second."""
    global _told, _teller
    if not _teller:
        atexit.register(_tell_now)
    _told, _teller = said, os.getpid()
    if time.monotonic() - _written_at >= _EVERY_S:
        _tell_now()


def _tell_now() -> None:
    """Write progress that is not written yet; a child that was forked leaves it to its parent."""
    global _told, _written_at
    if _told and _teller == os.getpid():
        _write("progress.json", _told)
        _wake()
        _told, _written_at = "", time.monotonic()


def _has_saved() -> None:
    """Tell that what was asked for is saved."""
    if _saving and _PLACE and _is_first() and _read("saved") < _saving:
        _write("saved", str(_saving))
        _wake()


def _is_first() -> bool:
    return os.environ.get("RANK", "0") in ("", "0")


def _read(name: str) -> int:
    try:
        with open(os.path.join(_PLACE, name), "rb") as file:
            text = file.read(32).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return 0
    return int(text) if text.isdecimal() else 0


def _write(name: str, text: str) -> None:
    fresh = os.path.join(_PLACE, f".{name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(fresh, os.path.join(_PLACE, name))


def _wake() -> None:
    """Wake the supervisor, and the agent behind it."""
    for fifo in (os.path.join(_PLACE, "wake"), os.path.join(os.path.dirname(_PLACE), "wake")):
        with contextlib.suppress(OSError):
            handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(handle, b".")
            finally:
                os.close(handle)
