"""Another Unix user of the same machine, for tests that play an attacker: a forked child that has become one.

Law: the child does what it is given and ends; whatever it raises is shown by its parent.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

ATTACKER = 12345
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user to play one")


class Attack:
    """What another user does meanwhile; `result` waits for its end and returns what came of it."""

    def __init__(self, uid: int, deed: Callable[..., Any], *given: Any) -> None:
        self._read_end, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become_and_do(uid, write_end, deed, given)
        os.close(write_end)

    def result(self) -> Any:
        with os.fdopen(self._read_end, "rb") as said:
            outcome, value = pickle.loads(said.read() or pickle.dumps(("lost", "the child died")))
        os.waitpid(self._pid, 0)
        assert outcome == "done", value
        return value


def as_user(uid: int, deed: Callable[..., Any], *given: Any) -> Any:
    """Do something as another user and return what came of it."""
    return Attack(uid, deed, *given).result()


def _become_and_do(uid: int, write_end: int, deed: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.umask(0)
        said = ("done", deed(*given))
    except BaseException:
        said = ("failed", traceback.format_exc())
    os.write(write_end, pickle.dumps(said))
    os._exit(0)
