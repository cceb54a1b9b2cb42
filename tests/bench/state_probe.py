"""Runs inside a measured kernel: notes when cells are captured, proposed and committed, and what leaves.

Notes go to a file, one JSON object a line, in seconds of the clock that all processes share.
Law: nothing of it is bound in the user's namespace; it looks on from outside and changes no value.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSTALL = "__import__('tests.bench.state_probe', fromlist=['_']).install({path!r})"
RESET_PEAK = "__import__('tests.bench.state_probe', fromlist=['_']).reset_peak()"
PRINT_PEAK = "print(__import__('tests.bench.state_probe', fromlist=['_']).peak_json())"
"""Cells: begin to take notes; forget the largest RSS so far; print RSS then, now, and the largest since."""

_rss_at_reset = 0


def install(path: str) -> None:
    """Take notes of this kernel process from now on."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    replica = shell.kernel.replica
    notes = open(path, "a", buffering=1)  # noqa: SIM115 (as long as the process lives)
    seen: set[str] = set()

    def note(what: str, seq: int, began: float, **more: float) -> None:
        row = {"what": what, "seq": seq, "began": began, "ended": time.monotonic(), **more}
        notes.write(json.dumps(row) + "\n")

    def timed(what: str, work: Callable[..., Any], seq_of: Callable[..., int]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            began = time.monotonic()
            try:
                return work(*args, **named)
            finally:
                note(what, seq_of(*args), began, owing=named.get("owing", False))

        return run

    def propose(delta: Any, *rest: Any, **named: Any) -> Any:
        note("propose", delta.seq, time.monotonic(), **_weigh(delta, seen))
        return hand_over(delta, *rest, **named)

    hand_over = replica.link.propose
    replica.link.propose = propose
    replica.state.capture = timed("capture", replica.state.capture, lambda seq, *_: int(seq))
    replica.delta_committed = timed("committed", replica.delta_committed, int)


def _weigh(delta: Any, seen: set[str]) -> dict[str, int]:
    """Return what a delta ships: bytes on the wire, of them those of variables, and chunks not met before."""
    import msgspec

    inline, chunks, chunk_bytes = 0, 0, 0
    for record in delta.components:
        if not record.cid.startswith("@"):
            inline += len(record.payload.head or b"")
            inline += sum(len(item) for item in record.payload.buffers if isinstance(item, bytes))
    for blob in delta.blobs():
        for chunk in blob.chunks:
            if chunk.digest not in seen:
                seen.add(chunk.digest)
                chunks += 1
                chunk_bytes += chunk.size
    return {
        "wire_bytes": len(msgspec.msgpack.encode(delta)),
        "inline_bytes": inline,
        "chunks": chunks,
        "chunk_bytes": chunk_bytes,
    }


def reset_peak() -> None:
    """Have the system count this process's largest RSS anew."""
    global _rss_at_reset
    Path("/proc/self/clear_refs").write_text("5")
    _rss_at_reset = _status("VmRSS")


def peak_json() -> str:
    """Return RSS at the reset, RSS now, and the largest since the reset, in bytes, as JSON."""
    now, largest = _status("VmRSS"), _status("VmHWM")
    return json.dumps({"pid": os.getpid(), "before": _rss_at_reset, "now": now, "largest": largest})


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0
