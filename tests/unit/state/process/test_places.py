"""Environment, working directory, import path: what a notebook changed reaches another process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from replkernel.state.process.environment import ZONE, EnvironPart, SysPathPart, WorkingDirectoryPart, is_own
from replkernel.state.process.interpreter import InterpreterPart, LocalePart
from replkernel.state.process.plain import decode_plain


@pytest.mark.parametrize(
    "kind", [EnvironPart, WorkingDirectoryPart, SysPathPart, InterpreterPart, LocalePart]
)
def test_nothing_is_said_of_a_process_as_it_was_born(kind: type[EnvironPart]) -> None:
    assert kind().dump() is None


def test_a_variable_set_and_one_removed_reach_the_other_process() -> None:
    os.environ["NOTEBOOK_GONE"] = "1"
    here, there = EnvironPart(), EnvironPart()
    os.environ["NOTEBOOK_KEY"] = "zürich \udcff"
    del os.environ["NOTEBOOK_GONE"]
    data = here.dump()
    os.environ["NOTEBOOK_GONE"] = "1"
    del os.environ["NOTEBOOK_KEY"]
    assert data is not None
    there.load(data)
    assert os.environ["NOTEBOOK_KEY"] == "zürich \udcff"
    assert "NOTEBOOK_GONE" not in os.environ


def test_a_variable_put_back_to_its_first_value_is_put_back_elsewhere() -> None:
    os.environ["NOTEBOOK_KEY"] = "first"
    here, there = EnvironPart(), EnvironPart()
    os.environ["NOTEBOOK_KEY"] = "second"
    second = here.dump()
    os.environ["NOTEBOOK_KEY"] = "first"
    first = here.dump()
    assert second is not None
    assert first is not None
    there.load(second)
    assert os.environ["NOTEBOOK_KEY"] == "second"
    there.load(first)
    assert os.environ["NOTEBOOK_KEY"] == "first"


@pytest.mark.parametrize("name", ["REPLKERNEL_STORE", "JPY_PARENT_PID", "CUDA_VISIBLE_DEVICES", "PWD"])
def test_variables_of_one_process_or_host_stay_behind(name: str) -> None:
    here = EnvironPart()
    os.environ[name] = "changed"
    assert here.dump() is None


@pytest.mark.parametrize("name", ["COLUMNS", "TERM", "NVIDIA_TF32_OVERRIDE"])
def test_variables_with_which_a_notebook_sets_up_libraries_travel(name: str) -> None:
    here, there = EnvironPart(), EnvironPart()
    before = os.environ.get(name)
    os.environ[name] = "changed"
    data = here.dump()
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before
    assert data is not None
    there.load(data)
    assert os.environ[name] == "changed"


def test_a_loaded_environment_is_dumped_again_byte_for_byte() -> None:
    here, there = EnvironPart(), EnvironPart()
    os.environ["B_KEY"] = "1"
    os.environ["A_KEY"] = "2"
    data = here.dump()
    assert data is not None
    there.load(data)
    there.load(data)
    assert there.dump() == data
    os.environ["C_KEY"] = "3"
    changed, removed = decode_plain(there.dump() or b"")
    assert changed == {"A_KEY": b"2", "B_KEY": b"1", "C_KEY": b"3"}
    assert removed == []


def test_a_time_zone_is_in_force_elsewhere_once_it_is_here() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    here, there = EnvironPart(), EnvironPart()
    os.environ["TZ"] = "Asia/Tokyo"
    named = here.dump()
    time.tzset()
    in_force = here.dump()
    os.environ["TZ"] = "UTC"
    time.tzset()
    assert named is not None
    assert in_force is not None
    there.load(named)
    assert (os.environ["TZ"], time.tzname[0]) == ("Asia/Tokyo", "UTC")
    there.load(in_force)
    assert (os.environ["TZ"], time.tzname[0]) == ("Asia/Tokyo", "JST")
    assert there.dump() == in_force


def test_a_time_zone_comes_into_force_with_mktime_too() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    here, there = EnvironPart(), EnvironPart()
    os.environ["TZ"] = "Asia/Tokyo"
    time.mktime((2025, 1, 1, 0, 0, 0, 0, 0, 0))
    in_force = here.dump()
    os.environ["TZ"] = "UTC"
    time.tzset()
    assert in_force is not None
    there.load(in_force)
    assert time.localtime(0).tm_hour == 9


def test_a_time_zone_that_looks_like_the_one_before_is_in_force_elsewhere() -> None:
    os.environ["TZ"] = "Europe/Helsinki"
    time.tzset()
    here, there = EnvironPart(), EnvironPart()
    os.environ["TZ"] = "Europe/Kiev"
    time.tzset()
    data = here.dump()
    assert data is not None
    os.environ["TZ"] = "UTC"
    time.tzset()
    there.load(data)
    assert time.localtime(0).tm_hour == 3, "Helsinki had 2 o'clock then"


@pytest.mark.parametrize("zone", ["UTC", ":Etc/UTC", ""])
def test_a_host_that_reckons_by_utc_says_so_where_a_notebook_chose_it(zone: str) -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    del os.environ["TZ"]
    here = EnvironPart()
    os.environ["TZ"] = zone
    time.tzset()
    changed, _ = decode_plain(here.dump() or b"")
    assert changed[ZONE] == zone.encode(), "None is the zone of whichever host"
    del os.environ["TZ"]
    time.tzset()
    changed, _ = decode_plain(here.dump() or b"")
    assert changed[ZONE] is None


def test_an_earlier_release_takes_all_variables_beside_a_time_zone() -> None:
    here = EnvironPart()
    os.environ["TZ"] = "Asia/Tokyo"
    os.environ["Z_LAST"] = "1"
    changed, _ = decode_plain(here.dump() or b"")
    set_by_it = {name: value for name, value in changed.items() if not is_own(name)}
    assert set_by_it == {"TZ": b"Asia/Tokyo", "Z_LAST": b"1"}


def test_the_working_directory_is_followed() -> None:
    here, there = WorkingDirectoryPart(), WorkingDirectoryPart()
    before = os.getcwd()
    os.chdir("/")
    data = here.dump()
    os.chdir(before)
    assert data is not None
    there.load(data)
    assert os.getcwd() == "/"


def test_a_directory_that_this_host_lacks_is_named_and_still_told_to_the_next_host() -> None:
    part = WorkingDirectoryPart()
    part.load(b"/no/such/directory")
    assert "/no/such/directory cannot be entered on this host" in part.trouble
    assert part.dump() == b"/no/such/directory"
    os.chdir("/")
    assert part.dump() == b"/"


def test_import_path_entries_of_birth_stay_each_hosts_own() -> None:
    sys.path[:] = ["/host-a/lib", "/host-a/site"]
    here = SysPathPart()
    sys.path.insert(0, "/shared/src")
    sys.path.append("data")
    data = here.dump()
    sys.path[:] = ["/host-b/lib", "/host-b/site", "/host-b/extra"]
    there = SysPathPart()
    assert data is not None
    there.load(data)
    assert sys.path == ["/shared/src", "/host-b/lib", "/host-b/site", "data", "/host-b/extra"]


def test_a_path_object_that_a_notebook_adds_to_the_import_path_stays_one() -> None:
    sys.path[:] = ["/lib"]
    here, there = SysPathPart(), SysPathPart()
    sys.path.append(Path("/shared/src"))  # type: ignore[arg-type]
    data = here.dump()
    sys.path[:] = ["/lib"]
    assert data is not None
    there.load(data)
    assert sys.path == ["/lib", Path("/shared/src")]
    assert there.dump() == data


def test_limits_of_the_interpreter_are_followed() -> None:
    here, there = InterpreterPart(), InterpreterPart()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 17)
    sys.set_int_max_str_digits(9_999)
    data = here.dump()
    sys.setrecursionlimit(before)
    assert data is not None
    there.load(data)
    assert sys.getrecursionlimit() == before + 17
    assert sys.get_int_max_str_digits() == 9_999


def test_a_locale_that_is_not_installed_is_named() -> None:
    part = LocalePart()
    part.load(b"xx_YY.UTF-8")
    assert "xx_YY.UTF-8" in part.trouble
