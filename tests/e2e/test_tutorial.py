"""What the tutorial, the README and the how-tos have people type does what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import Live, kernel

ROOT = Path(__file__).parents[2]


def cells(page: str) -> list[str]:
    """Return the Python cells of a page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Return a notebook on a machine that pretends to have two GPUs."""
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", "2")
    with kernel(tmp_path, REPLKERNEL_FAKE_GPUS="2") as started:
        yield started


def result(live: Live, cell: str) -> str:
    """Run a cell that must succeed, and return what it shows as its result, or printed."""
    ran = live.run(cell)
    assert ran.status == "ok", ran.error
    shown = [content["data"]["text/plain"] for kind, content in ran.messages if kind == "execute_result"]
    return "".join(shown) or ran.out


def wait_for_the_mark(live: Live) -> None:
    """Wait until all is durable, as the pages ask for; who reads them sees a mark."""
    live.value("%replkernel sync")


def test_the_tutorial_can_be_followed(live: Live) -> None:
    state, kill, mean, status, one, two, rest, back = cells("docs/use/tutorial.md")
    known = result(live, state)
    wait_for_the_mark(live)
    assert live.run(kill).error.startswith("ExecutorLost")
    assert result(live, mean) == known
    assert len(re.findall(r"^  r\d+ \w+ on ", result(live, status), re.MULTILINE)) == 3
    assert len(result(live, one).strip("'").split(",")) == 1
    assert len(result(live, two).strip("'").split(",")) == 2
    assert "hibernates" in result(live, rest)
    assert result(live, back) == f"(100000, {known})"


def test_the_readme_shows_what_happens(live: Live) -> None:
    state, kill, gpu = cells("README.md")
    result(live, state)
    wait_for_the_mark(live)
    assert live.run(kill).error.startswith("ExecutorLost")
    assert result(live, "total") == str(sum(range(1_000_000)))
    assert result(live, gpu).strip("'")
