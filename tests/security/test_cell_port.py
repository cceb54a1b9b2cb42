"""Somebody at the port of a cell on several hosts: without its user's key nobody is heard, whatever he says.

He may even know the address, which has the key of the port.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.ranks.words import Ended, Result, Stop, Wrote
from tests.support.rank_cell import Launcher, running


def test_who_has_no_proof_is_not_heard_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with running(monkeypatch, tmp_path, ("x",)) as cell:
        stranger = cell.launcher()
        for key in (b"", b"k" * 32):
            for host in ("a", "b", "a"):
                stranger.come(cell.channel.gang, host, key=key)
        stranger.come("another", "a")
        _lie(stranger)
        a, b = cell.begin()
        late = cell.launcher()
        late.come(cell.channel.gang, "a", key=b"k" * 32)
        _lie(late)
        for nonsense in (b"", b"\xc1", b"\x00" * 1_000_000):
            late.socket.send(nonsense)
        second = cell.launcher()
        second.come(cell.channel.gang, "a")
        assert isinstance(second.hear(), Stop), "nobody takes a host's place while it is there"
        a.send(Result(b"true"))
        a.send(Ended(0, 0))
        b.send(Ended(1, 0))
        assert cell.over.result(10) == b"true"
        assert "false" not in cell.out.getvalue()
        for each in (stranger, late):
            assert not each.socket.poll(0), "it is told nothing of the cell"


def _lie(launcher: Launcher) -> None:
    for message in (Wrote(0, "stdout", "false\n"), Result(b"false"), Ended(0, 0), Ended(1, 1, "false")):
        launcher.send(message)
