"""What is said of environment variables that are nearly settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replkernel.launch.unknown_settings import KNOWN, misspelt, unknown_settings

SOURCES = Path(__file__).parents[3]
OF_TESTS = re.compile(r"REPLKERNEL_(TEST|BENCH)_")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("REPLKERNEL_EXECUTER", "REPLKERNEL_EXECUTOR"),
        ("REPLKERNEL_REPLICA", "REPLKERNEL_REPLICAS"),
        ("REPLKERNEL_STORE_URL", "REPLKERNEL_STORE"),
        ("REPLKERNEL_SCHEDULER", "REPLKERNEL_SCHEDULER_URL"),
        ("REPLKERNEL_DURABILE", "REPLKERNEL_DURABLE"),
        ("REPLKERNEL_HIBERNATE_IDLE", "REPLKERNEL_HIBERNATE_IDLE_S"),
    ],
)
def test_a_name_that_is_nearly_a_setting_is_told_with_the_one_that_is_meant(typed: str, meant: str) -> None:
    assert (
        misspelt(["PATH", "REPLKERNEL_STORE", typed])
        == f"{typed} is not a setting and does nothing: did you mean {meant}?"
    )


def test_nothing_is_said_of_settings_and_of_strangers() -> None:
    assert misspelt([*KNOWN, "REPLKERNELS", "REPLKERNEL_OUR_TEAM_PROXY", "EXECUTOR"]) == ""
    assert unknown_settings(["REPLKERNEL_OUR_TEAM_PROXY"]) == ["REPLKERNEL_OUR_TEAM_PROXY"]


GIVEN = {
    f"REPLKERNEL_{name}" for name in ("ACTION", "GPUS", "HOOK_", "HOST", "OWNER", "OWNER_GPUS", "PIDS", "UID")
}
"""What a device hook is told, and how the settings of its own begin: nobody of ours reads these."""


def test_every_variable_that_the_sources_read_is_known() -> None:
    """One that is new must be entered, or its users are told that it is a mistake."""
    read: set[str] = set()
    for package in ("replkernel", "server_ext", "scheduler"):
        for path in (SOURCES / package).rglob("*.py"):
            read.update(re.findall(r'"(REPLKERNEL_[A-Z0-9_]+)"', path.read_text()))
    assert read - KNOWN - GIVEN == set()
    assert not any(OF_TESTS.match(name) for name in KNOWN)
