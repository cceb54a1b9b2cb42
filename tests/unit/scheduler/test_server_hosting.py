"""A Jupyter Server that hosts the scheduler ends as without it, whatever is wrong with the scheduler."""

from __future__ import annotations

import logging
import sys

import pytest
from replkernel_server.scheduling.server_hosting import ServerHosting


async def test_a_scheduler_that_cannot_be_imported_is_told_and_does_not_keep_its_server_from_ending(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "replkernel_server.service", None)
    hosting = ServerHosting({}, logging.getLogger("server"))
    hosting.start()
    await hosting.close()
    assert caplog.text.count("No GPU scheduler is hosted here.") == 1
