"""The kernel's own threads are never taken for the notebook's, which keep GPUs and bind it to a process."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import replkernel
from replkernel.kernel import practice
from replkernel.state.process.own_threads import is_own

STARTS = re.compile(r"(?<!\w)(?:threading\.)?(?:Thread|Timer)\(")
ELSEWHERE = ("kernel/restorer.py", "kernel/kernel.py", "hosts/far_sockets.py")
"""The kernel marks the thread of the last one. The others have timers: one marks it, one ends the process."""
FOLDERS = ("kernel", "state", "gpu", "objects", "ranks", "hosts")


def test_a_standby_that_practises_has_no_thread_of_the_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    practised: list[threading.Thread] = []
    done = threading.Event()

    def practise() -> None:
        practised.append(threading.current_thread())
        done.set()

    monkeypatch.setattr(practice, "practise", practise)
    monkeypatch.setattr(practice, "_done", False)
    practice.Practice().begin()
    assert done.wait(10)
    assert is_own(practised[0])


def test_a_thread_of_the_notebooks_is_known_as_one() -> None:
    assert not is_own(threading.Thread(name="Agent link"))


def test_the_kernel_starts_all_its_threads_by_one_function() -> None:
    root = Path(replkernel.__file__).parent
    starts = {
        str(path.relative_to(root))
        for folder in FOLDERS
        for path in (root / folder).rglob("*.py")
        if STARTS.search(path.read_text())
    }
    assert starts <= {"state/process/own_threads.py", *ELSEWHERE}
