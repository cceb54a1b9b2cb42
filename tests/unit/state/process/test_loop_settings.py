"""Settings of the running event loop: switches travel once a cell named them, its functions are places."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replkernel.state.patches import given
from replkernel.state.patches.places import GIVEN, Absent, Place, put, read, remove
from replkernel.state.process.seldom_settings import SeldomPart
from replkernel.state.tombstone import Tombstone

SOURCE = "loop.set_debug(True); loop.slow_callback_duration = 7.5"


def _moved(loop: asyncio.AbstractEventLoop, source: str = SOURCE) -> bytes | None:
    part = SeldomPart({})
    part.expect(source)
    exec(source, {"loop": loop})
    data = part.dump()
    loop.set_debug(False)
    loop.slow_callback_duration = 0.1
    return data


async def test_the_switches_reach_the_loop_of_the_other_process() -> None:
    loop = asyncio.get_running_loop()
    data = _moved(loop)
    assert data is not None
    there = SeldomPart({})
    there.load(data)
    assert not loop.get_debug()
    there.settle()
    assert (loop.get_debug(), loop.slow_callback_duration) == (True, 7.5)
    loop.set_debug(False)
    assert there.dump() not in (data, None)


async def test_a_loop_whose_switches_nobody_has_set_is_left_alone() -> None:
    loop = asyncio.get_running_loop()
    assert _moved(loop, "print(loop.get_debug(), loop.slow_callback_duration)") is None
    loop.set_debug(True)
    part = SeldomPart({})
    part.expect("x = 1")
    assert part.dump() is None
    there = SeldomPart({})
    there.settle()
    assert loop.get_debug()


def test_without_a_running_loop_nothing_is_said() -> None:
    part = SeldomPart({})
    part.expect(SOURCE)
    assert part.dump() is None
    assert [name for module, _, name in given.changed_entries() if module == "asyncio"] == []


def _found() -> list[tuple[str, str, str]]:
    return [entry for entry in given.changed_entries() if entry[0] == "asyncio"]


@pytest.mark.parametrize("name", ["exception handler", "task factory"])
async def test_a_setting_that_the_notebook_gives_its_loop_is_a_place(name: str) -> None:
    def handler(*args: Any, **options: Any) -> Any:
        return asyncio.Task(args[1], loop=args[0], **options)

    loop = asyncio.get_running_loop()
    assert _found() == []
    verb = name.replace(" ", "_")
    getattr(loop, f"set_{verb}")(handler)
    (entry,) = _found()
    place = Place(GIVEN, *entry)
    assert read(place) is handler
    remove(place)
    assert _found() == []
    assert read(place) is Absent
    put(place, handler)
    assert getattr(loop, f"get_{verb}")() is handler
    remove(place)


async def test_settings_that_libraries_gave_the_loop_are_theirs_and_not_called() -> None:
    class Loud:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __call__(self, *args: Any) -> None:
            """Do nothing."""

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(asyncio.AbstractEventLoop.call_exception_handler)
    assert _found() == []
    loop.set_exception_handler(Loud())
    assert len(_found()) == 1
    loop.set_exception_handler(None)


async def test_a_lost_task_factory_makes_no_tasks() -> None:
    place = Place(GIVEN, "asyncio", given.LOOP_GIVEN_TO["task factory"], "task factory")
    with pytest.raises(LookupError, match="task factory was lost"):
        put(place, object.__new__(Tombstone))
    assert asyncio.get_running_loop().get_task_factory() is None
