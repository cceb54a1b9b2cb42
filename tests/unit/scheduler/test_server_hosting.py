"""A Jupyter Server that hosts the scheduler ends as without it, whatever is wrong with the scheduler."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest
from replkernel_server.errors import JournalAway
from replkernel_server.scheduling import server_hosting
from replkernel_server.scheduling.server_hosting import ServerHosting


async def test_a_scheduler_that_cannot_be_imported_is_told_and_does_not_keep_its_server_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "replkernel_server.service", None)
    hosting = ServerHosting({}, logging.getLogger("server"))
    hosting.start()
    await hosting.close()
    assert caplog.text.count("No GPU scheduler is hosted here.") == 1


async def test_a_journal_that_cannot_be_used_for_a_while_is_tried_again_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosting, hosted = ServerHosting({}, logging.getLogger("server")), asyncio.Event()
    failures = 3

    async def host() -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise JournalAway("The journal cannot be used (disk I/O error).")
        hosted.set()

    monkeypatch.setattr(server_hosting, "AGAIN_S", 0.0)
    monkeypatch.setattr(hosting, "_host", host)
    hosting.start()
    await asyncio.wait_for(hosted.wait(), 30)
    await hosting.close()
    assert caplog.text.count("disk I/O error") == 1
