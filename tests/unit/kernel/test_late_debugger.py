"""The debugger comes when it is asked for, and is ipykernel's own then."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import ModuleType

import ipykernel
import ipykernel.debugger
import pytest

from replkernel.kernel import late_debugger
from replkernel.kernel.late_debugger import LateDebugger

OWN = ipykernel.debugger


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Put the debugger off, as in a process that has not imported it."""
    monkeypatch.setitem(sys.modules, late_debugger.NAME, OWN)
    monkeypatch.setattr(ipykernel, "debugger", OWN)
    del sys.modules[late_debugger.NAME]
    late_debugger.put_off()
    return sys.modules[late_debugger.NAME]


def is_put_off() -> bool:
    return isinstance(sys.modules[late_debugger.NAME], late_debugger._StandIn)


def test_that_there_is_a_debugger_is_known_without_it(stand_in: ModuleType) -> None:
    from ipykernel.debugger import _is_debugpy_available

    assert _is_debugpy_available
    assert not hasattr(stand_in, "__file__")
    assert is_put_off()


def test_who_looks_through_all_modules_does_not_bring_it(stand_in: ModuleType) -> None:
    """A function that says of no module that it is from there is looked for in each of them."""
    import pickle

    made = eval("lambda: 1", {})
    made.__module__ = None
    assert pickle.whichmodule(made, "_lambdifygenerated") == "__main__"
    assert is_put_off()


def test_its_import_writes_nothing_and_leaves_the_environment() -> None:
    """In a process of its own, whose modules are frozen."""
    program = (
        "import os, sys; from replkernel.kernel import late_debugger; late_debugger.put_off(); "
        "before = dict(os.environ); late_debugger.load(); assert dict(os.environ) == before; "
        "assert 'debugpy' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_debugger_names_all_packages_only_where_a_log_takes_them() -> None:
    """That takes a second, and comes before the first variables; a process has one log."""
    program = (
        "from replkernel.kernel import late_debugger; late_debugger.put_off(); late_debugger.load()\n"
        "from debugpy.common import log\n"
        "from debugpy.server import api\n"
        "described = []\n"
        "log.get_environment_description = lambda header: described.append(header) or ''\n"
        "api.ensure_logging(); assert not described\n"
        "log.stderr.levels |= {'info'}; api.ensure_logging.ensured = False\n"
        "api.ensure_logging(); assert described == ['Initial environment:'], described\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_whoever_imports_more_gets_ipykernels_own(stand_in: ModuleType) -> None:
    from ipykernel.debugger import Debugger

    assert Debugger.__module__ == "ipykernel.debugger"
    assert sys.modules["ipykernel.debugger"].Debugger is Debugger is ipykernel.debugger.Debugger
    assert not is_put_off()
    assert stand_in.Debugger is Debugger, "who holds the stand-in is served as well"


def test_a_setting_of_the_stand_in_holds_in_the_debugger_module(stand_in: ModuleType) -> None:
    def get_tmp_directory() -> str:
        return "/cells"

    ipykernel.debugger.get_tmp_directory = get_tmp_directory  # type: ignore[attr-defined]
    assert late_debugger.load().get_tmp_directory is get_tmp_directory


def test_one_that_is_imported_already_is_left_alone() -> None:
    late_debugger.put_off()
    assert sys.modules[late_debugger.NAME] is OWN
    assert late_debugger.load() is OWN


def test_a_debugger_is_made_once_by_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, ...]] = []

    class Debugger:
        is_started = False

        def __init__(self, *arguments: object) -> None:
            made.append(arguments)

        async def process_request(self, message: dict[str, str]) -> str:
            return f"answer to {message['command']}"

        async def handle_stopped_event(self) -> None:
            """Tell that a thread has stopped."""

    monkeypatch.setattr(OWN, "Debugger", Debugger)

    async def play() -> list[object]:
        late = LateDebugger("log", ["own module"])
        waiting = asyncio.create_task(late.handle_stopped_event())
        await asyncio.sleep(0)
        early = (waiting.done(), list(made))
        answers = [await late.process_request({"command": name}) for name in "ab"]
        await waiting
        return [early, *answers, late.is_started]

    assert asyncio.run(play()) == [(False, []), "answer to a", "answer to b", False]
    assert made == [("log", ["own module"])]


def test_one_that_was_never_on_is_switched_off_with_an_answer() -> None:
    """JupyterLab has it switched off in the next process after a lost one, and waits for the answer."""
    asked = {"type": "request", "command": "disconnect", "seq": 7, "arguments": {}}
    answer = asyncio.run(LateDebugger().process_request(asked))
    assert answer["success"] and (answer["command"], answer["request_seq"]) == ("disconnect", 7)
