"""Raft members of one process that find one another at their ports alone, as those of different hosts do."""

from __future__ import annotations

import pytest

from replkernel.replication.raft_thread import MemberPoller


@pytest.fixture
def by_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no member know that another one is on its thread."""
    monkeypatch.setattr(MemberPoller, "near", property(lambda _: {}))
