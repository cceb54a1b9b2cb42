"""Processes that ask for a GPU are heard also after the kernel had no descriptor left for one of them."""

from __future__ import annotations

import errno
import threading
from typing import Any

import pytest

from replkernel.kernel import cuda_asks
from replkernel.kernel.cuda_asks import CudaAsks


class Listener:
    """A socket at which one comes when there is no descriptor for it, then another one, and nobody more."""

    def __init__(self) -> None:
        self._comes: list[Any] = [
            OSError(errno.EMFILE, "Too many open files"),
            ("second", None),
            SystemExit(),
        ]

    def accept(self) -> Any:
        came = self._comes.pop(0)
        if isinstance(came, BaseException):
            raise came
        return came


def test_who_asks_after_the_descriptors_ran_out_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, told = [], threading.Event()
    asks: Any = CudaAsks.__new__(CudaAsks)

    def serve(link: Any) -> None:
        heard.append(link)
        told.set()

    monkeypatch.setattr(asks, "_serve", serve)
    monkeypatch.setattr(cuda_asks, "ACCEPT_AGAIN_S", 0.0)
    with pytest.raises(SystemExit):
        asks._accept(Listener())
    assert told.wait(30) and heard == ["second"]
