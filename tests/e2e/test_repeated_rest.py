"""One kernel that rests again and again: it has no process then, and with the next message everything."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.cli import main
from replkernel.client.inquiry import ask_agents
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.resting import CHECK, CHECKED, VARIABLES, checkpoints, hibernate, replica_pids
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope=shared_scope)
def shared(place: Path) -> Iterator[Live]:
    with kernel(place) as running:
        yield running


@pytest.fixture
def live(shared: Live) -> Iterator[Live]:
    """Return the kernel that all tests share, awake and without variables."""
    yield shared
    tidy(shared)


def test_a_kernel_that_hibernates_has_no_process_and_all_its_variables(live: Live) -> None:
    count = live.run(VARIABLES).reply["content"]["execution_count"]
    had = hibernate(live)
    began = time.monotonic()
    ran = live.run(CHECK)
    assert ran.status == "ok", ran.error
    assert ran.out.strip() == CHECKED
    assert ran.err == ""
    assert ran.reply["content"]["execution_count"] == count + 2
    print(f"woken in {time.monotonic() - began:.2f} s")
    assert not replica_pids() & had
    assert live.value("many.append(1); print(len(alias))") == "201"


@pytest.mark.slow
def test_a_module_of_the_users_that_was_edited_since_is_after_a_rest_what_was_imported(
    live: Live, tmp_path: Path
) -> None:
    module = tmp_path / "edited_while_in_use.py"
    module.write_text("def version(): return 1\n")
    live.value(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import edited_while_in_use")
    live.value("from edited_while_in_use import version")
    module.write_text("def version(): return 'the second'\n")
    hibernate(live)
    is_it = "sys.modules['edited_while_in_use'] is edited_while_in_use"
    assert live.value(f"print(version(), edited_while_in_use.version(), {is_it})") == "1 1 True"
    reload = "import importlib; importlib.reload(edited_while_in_use)"
    assert live.value(f"{reload}; print(edited_while_in_use.version(), version())") == "the second 1"


@pytest.mark.slow
def test_the_first_question_after_a_rest_sees_the_variables(live: Live) -> None:
    live.value("import types; box = types.SimpleNamespace(remembered_value=41); remembered_name = 42")
    for wakes in ("complete", "inspect", "history"):
        hibernate(live)
        if wakes == "complete":
            asked = live.client.complete("remembered_")
        elif wakes == "inspect":
            asked = live.client.inspect("box")
        else:
            asked = live.client.history(hist_access_type="tail", n=9, session=0)
        content = live.reply(asked)["content"]
        assert "remembered_" in str(content), content


@pytest.mark.slow
def test_a_kernel_hibernates_again_and_again(live: Live) -> None:
    live.value("values = []")
    for number in range(3):
        live.value(f"values.append({number})")
        hibernate(live)
    assert live.value("print(values)") == "[0, 1, 2]"
    assert len(checkpoints()) <= 3


@pytest.mark.slow
def test_a_live_kernel_is_not_forgotten(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    live.value("x = 1")
    (kernel_id,) = (known.kernel_id for known in ask_agents(os.environ, AGENT_S).kernels)
    assert main(["forget", kernel_id]) == 1
    assert "is live" in capsys.readouterr().err
    assert live.value("print(x)") == "1"


def test_a_value_that_cannot_travel_keeps_a_kernel_awake_and_is_named(live: Live) -> None:
    live.value("import socket; line = socket.socket()")
    had = eventually(lambda: len(found := replica_pids()) == 3 and found, "three replicas")
    live.value("%replkernel hibernate")
    eventually(lambda: "does not hibernate" in live.terminal, "the refusal")
    assert replica_pids() == had
    ran = live.run("print(line.fileno() > 0)")
    assert ran.out.strip() == "True"
    assert "`line`" in ran.err
    live.value("line.close(); del line")


def test_the_history_is_there_after_a_rest(live: Live) -> None:
    live.run("import numpy; kept = numpy.zeros(200_000); kept_too = 'old'")
    live.run("kept[0] = 1; kept_too = 'new'")
    hibernate(live)
    live.value("%replkernel undo")
    assert live.value("print(kept[0], kept_too)") == "0.0 old"
