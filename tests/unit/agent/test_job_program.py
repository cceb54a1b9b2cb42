"""What a training program says through `replkernel.job`, and how often that is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from replkernel.jobs.words import ASKED, JobPlace

OFTEN = """
import os
from replkernel import job

written = set()
for step in range(20_000):
    job.progress(step, 1.0)
    written.add(os.stat(os.path.join(os.environ["REPLKERNEL_JOB_DIR"], "progress.json")).st_ino)
print(len(written))
"""
ASKED_FIRST = """
import os
from replkernel import job

job.progress(1)
job.progress(2)
assert job.should_checkpoint()
os._exit(0)
"""
FORKS = """
import os
from replkernel import job

job.progress(1)
job.progress(2)
if not os.fork():
    raise SystemExit(0)
os.wait()
job.progress(3)
"""


def ran(place: Path, program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "REPLKERNEL_JOB_DIR": str(place)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def told(place: Path) -> float | None:
    progress = JobPlace(place).progress()
    return None if progress is None else progress.epoch


def test_progress_of_each_step_is_written_now_and_then_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    assert int(ran(tmp_path, OFTEN)) < 2_000
    assert told(tmp_path) == 19_999


def test_who_is_asked_to_save_has_told_its_progress_by_then(tmp_path: Path) -> None:
    JobPlace(tmp_path).set_number(ASKED, 1)
    ran(tmp_path, ASKED_FIRST)
    assert told(tmp_path) == 2


def test_a_child_that_was_forked_tells_nothing_of_its_parent_s(tmp_path: Path) -> None:
    ran(tmp_path, FORKS)
    assert told(tmp_path) == 3
