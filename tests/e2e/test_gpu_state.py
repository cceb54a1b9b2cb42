"""State on a GPU from lease to lease: it lingers, leaves when somebody else asks, and is back when needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from replkernel.gpu.fake_usage import read_usage
from replkernel.hosts.places import own_host
from tests.support.live import Live, eventually, kernel
from tests.support.needs import need
from tests.support.scheduler_service import Service, serving
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

GPU = f"GPU-fake-{own_host(os.environ)}-0"
SET = """%%gpu 1
import torch
from replkernel.gpu.fake import put
{name} = put(torch.arange(1000.0) * {factor})
row = {name}[10:20]
print({name}.sum().item())
"""


PRELOAD = {"REPLKERNEL_PRELOAD": "torch"}
"""Have kernel processes share what is imported once, where a test is not about the import."""


@contextmanager
def gpus_here(gpus: int = 1, preload: Mapping[str, str] = PRELOAD) -> Iterator[Service]:
    """Run a scheduler, and an agent with pretended GPUs whose kernel processes have torch from the start."""
    host = own_host(os.environ)
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", str(gpus)]
    with ExitStack() as stack:
        service = stack.enter_context(serving())
        agent = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | preload
        )
        stack.callback(agent.wait, 30)
        stack.callback(agent.terminate)
        eventually(lambda: service.rest.get("status")[1]["hosts"], "the agent")
        yield service


@contextmanager
def notebooks_there(
    directory: Path, preload: Mapping[str, str] = PRELOAD, **settings: str
) -> Iterator[tuple[Live, Live]]:
    """Two notebooks where an agent runs, the first with these settings."""
    first, second = (directory / "a"), (directory / "b")
    first.mkdir(), second.mkdir()
    alone = {"REPLKERNEL_REPLICAS": "1", **preload}
    with kernel(first, **(alone | settings)) as one, kernel(second, **alone) as two:
        yield one, two


@contextmanager
def two_notebooks(
    directory: Path,
    gpus: int = 1,
    services: list[Service] | None = None,
    preload: Mapping[str, str] = PRELOAD,
    **settings: str,
) -> Iterator[tuple[Live, Live]]:
    """Two notebooks, the first with these settings, a scheduler, and an agent with pretended GPUs.

    The scheduler is the last of `services`, for a test that kills it.
    """
    with gpus_here(gpus, preload) as service:
        if services is not None:
            services.append(service)
        with notebooks_there(directory, preload, **settings) as made:
            yield made


@pytest.fixture(scope=shared_scope)
def shared(place: Path) -> Iterator[tuple[Live, Live]]:
    with pytest.MonkeyPatch.context() as patch:
        # As in a user's kernel: where it is set, ipykernel starts no threads that read descriptors 1 and 2.
        patch.delenv("PYTEST_CURRENT_TEST")
        with two_notebooks(place) as made:
            yield made


@pytest.fixture
def notebooks(shared: tuple[Live, Live]) -> tuple[Live, Live]:
    for each in shared:
        tidy(each)
    return shared


def held() -> dict[int, int]:
    return read_usage(GPU, os.environ)


def pid_of(live: Live) -> int:
    return int(live.value("import os; print(os.getpid())"))


def test_two_notebooks_take_turns_on_one_gpu_with_their_state(notebooks: tuple[Live, Live]) -> None:
    one, two = notebooks
    first, second = pid_of(one), pid_of(two)
    assert one.value(SET.format(name="x", factor=1)) == "499500.0"
    assert held() == {first: 4000}
    assert one.value("print('no lease')") == "no lease"
    assert held() == {first: 4000}, "it lingers while nobody asks"
    assert two.value(SET.format(name="y", factor=2)) == "999000.0"
    assert held() == {second: 4000}
    ran = one.run("%%gpu 1\nx[10] = -1\nprint(row[0].item(), x.sum().item())")
    assert ran.status == "ok", ran.error
    assert ran.out.strip() == "-1.0 499489.0"
    assert ran.said["resumed_bytes"] == 4000
    texts = [c["data"]["text/plain"] for kind, c in ran.messages if kind.endswith("display_data")]
    shown = [text for text in texts if "Resum" in text]
    assert shown[0].startswith("Resuming: 3.91 KiB of the notebook's state go back")
    assert shown[-1].startswith("Resumed: 3.91 KiB")
    assert held() == {first: 4000}
    assert two.value("%%gpu 1\nprint(y.sum().item())") == "999000.0"
    assert held() == {second: 4000}


def test_a_cell_that_reaches_state_off_the_gpu_gets_a_lease_though_it_asks_for_none(
    notebooks: tuple[Live, Live],
) -> None:
    one, two = notebooks
    first = pid_of(one)
    one.value(SET.format(name="x", factor=1))
    two.value(SET.format(name="y", factor=2))
    assert first not in held()
    assert one.value("n = 5; print(n)") == "5"
    assert first not in held(), "a cell that does not reach it asks for nothing"
    ran = one.run("print(x.sum().item())")
    assert (ran.error, ran.out.strip()) == ("", "499500.0")
    assert ran.said["gpus"] == [GPU]
    assert held() == {first: 4000}


@pytest.mark.slow
def test_captures_while_the_state_is_off_the_gpu_change_nothing(notebooks: tuple[Live, Live]) -> None:
    one, two = notebooks
    one.value(SET.format(name="x", factor=1))
    before = one.run("pass").said["state_bytes"]
    two.value(SET.format(name="y", factor=2))
    ran = one.run("other = list(range(10))")
    assert ran.status == "ok"
    assert abs(ran.said["state_bytes"] - before) < 1000
    assert "replkernel:" not in one.terminal
    assert one.value("%%gpu 1\nprint(x.sum().item(), row[0].item())") == "499500.0 10.0"


@pytest.mark.slow
def test_state_that_is_looked_for_in_another_way_comes_back_in_the_middle_of_the_cell(
    notebooks: tuple[Live, Live],
) -> None:
    one, two = notebooks
    first = pid_of(one)
    one.value(SET.format(name="x", factor=1))
    two.value(SET.format(name="y", factor=2))
    ran = one.run("print(globals()['x'].sum().item(), row[0].item())")
    assert (ran.error, ran.out.strip()) == ("", "499500.0 10.0")
    assert ran.said["gpus"] == [GPU]
    assert ran.said["resumed_bytes"] == 4000
    assert held() == {first: 4000}
    assert two.value("%%gpu 1\nprint(y.sum().item())") == "999000.0", "it leaves again"


def test_state_that_cannot_leave_stays_and_its_owner_is_told(notebooks: tuple[Live, Live]) -> None:
    one, two = notebooks
    first = pid_of(one)
    one.value(
        SET.format(name="x", factor=1)
        + "import threading\nstop = threading.Event()\n"
        + "t = threading.Thread(target=stop.wait, name='mine')\nt.start()\n"
    )
    two.client.execute("%%gpu 1\nprint('got it')")
    eventually(lambda: "thread mine runs" in one.run("pass").err, "the word that it stays")
    assert held() == {first: 4000}
    assert one.value("stop.set(); t.join(); print(1)") == "1"
    assert one.value("%%gpu 1\nprint(x.sum().item())") == "499500.0"


@pytest.mark.slow
def test_cells_that_come_at_once_from_both_each_find_their_own_state(notebooks: tuple[Live, Live]) -> None:
    for live in notebooks:
        live.value(SET.format(name="x", factor=0))
    ids = {live: [] for live in notebooks}
    for _ in range(6):
        for live in notebooks:
            ids[live].append(live.client.execute("%%gpu 1\nx += 1"))
    for live in notebooks:
        assert {live.reply(msg_id)["content"]["status"] for msg_id in ids[live]} == {"ok"}
    for live in notebooks:
        assert live.value("%%gpu 1\nprint(x.sum().item(), row.sum().item())") == "6000.0 60.0"
    assert sum(held().values()) == 4000, "one notebook's state at a time"
