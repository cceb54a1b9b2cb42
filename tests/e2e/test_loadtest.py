"""`replkernel loadtest` as its user sees it: figures of a live server, and no kernel left behind."""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.lab import TOKEN
from tests.support.server_life import living

PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
]
TRACE = "session,start_s,duration_s,num_gpu\na,0,20,1\nb,0,20,1\na,30,20,0\nb,40,20,0\n"
"""The two cells that want the one GPU are due at once: one of them waits. What has not begun when the test is
over is not played, so it lasts longer than the four cells take.
"""
PATIENCE_S = 100.0


def loadtest(*options: str, **said: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(part for part in sys.path if part)
    return subprocess.Popen(
        [sys.executable, "-m", "replkernel.cli", "loadtest", *options],
        env=os.environ | {"PYTHONPATH": path} | said,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sessions_of_a_trace_are_played_on_a_live_server_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", "1")
    trace, out = tmp_path / "cells.csv", tmp_path / "out"
    trace.write_text(TRACE)
    with living(tmp_path) as life:
        options = ("--sessions", "2", "--trace", str(trace), "--minutes", "0.25", "--speed", "20")
        test = loadtest(life.server.url, *options, "--gpus", "1", "--out", str(out), JUPYTER_TOKEN=TOKEN)
        said, errors = test.communicate(timeout=PATIENCE_S)
        assert test.returncode == 0, said + errors
        assert life.sessions() == [], "its kernels were not ended"
        wrong = loadtest(f"{life.server.url}?token=wrong")
        assert "token" in wrong.communicate(timeout=PATIENCE_S)[1] and wrong.returncode == 1
    assert "interactivity delay" in said and "4 of 4 cells" in said and "4 durable" in said
    told = json.loads((out / "loadtest.json").read_text())
    assert (told["sessions"], told["cells"], told["troubles"]) == (2, 4, {})
    assert 1 <= told["replicas"] <= 3, "standbys may come after the last look of so short a test"
    for name in ("interactivity_delay", "task_completion", "commit_latency", "durability_lag"):
        assert told[name]["count"] == 4, name
    assert told["task_completion"]["p50"] >= 1.0, "its cells sleep for 20 s at 20 times the speed"
    assert told["leases_granted"] == 2 == told["lease_wait"]["count"]
    assert told["kernel_pss_mib"]["count"] in (1, 2) and told["kernel_pss_mib"]["p50"] > 10
    with (out / "cells.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["safety"] for row in rows] == ["durable"] * 4


@pytest.mark.slow
@pytest.mark.one_machine
@pytest.mark.parametrize("moment", ["cells done", "starting"])
def test_ctrl_c_ends_its_kernels_and_its_server_and_tells_what_there_is(tmp_path: Path, moment: str) -> None:
    place = tmp_path / "too-deep-for-Unix-sockets" / ("d" * 60)
    place.mkdir(parents=True)
    options = ("--start", "--replicas", "1", "--sessions", "3", "--minutes", "10", "--speed", "1000")
    test = loadtest(*options, "--starting", "1", TMPDIR=str(place))
    try:
        _until(test, moment)
        test.send_signal(signal.SIGINT)
        said, errors = test.communicate(timeout=PATIENCE_S)
    finally:
        if test.poll() is None:
            test.kill()
    assert test.returncode == 130, errors
    assert "stopped by Ctrl-C" in said and "cells: all well" in said
    assert "NOT ENDED" not in said
    assert list(place.iterdir()) == [], "its directory is still there"
    assert _processes_of(str(place)) == []


def _until(test: subprocess.Popen[str], moment: str) -> None:
    assert test.stderr is not None
    told = []
    for line in test.stderr:
        if moment in line and (moment == "starting" or ": 0 of" not in line):
            return
        told.append(line)
    said = test.communicate()[0]
    raise AssertionError(f"it ended with {test.returncode} before {moment!r}:\n{said}{''.join(told)}")


def _processes_of(directory: str) -> list[str]:
    """Return the commands of processes whose environment names the directory; they have a moment to go."""
    deadline = time.monotonic() + 30
    while True:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if directory.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)
