"""The NaNs of libraries travel by name; everybody else's keep their bits and no more."""

from __future__ import annotations

import math
import types
from typing import Any

import pytest

from replkernel.records import ReplicaId
from replkernel.state.capture.pickling import CapturePickler
from replkernel.state.format.nans import NAN
from replkernel.state.restore import loading
from replkernel.state.restore.unpickling import unpickle
from replkernel.state.world import World

numpy = pytest.importorskip("numpy")


def _moved(value: Any) -> Any:
    world = World(vars(types.ModuleType("__main__")), ReplicaId("r1"))
    dump = CapturePickler(world).dump_unit({"x": value})
    with loading.active(loading.Load(world.seeds, world.classes, [], lambda class_id: None)):
        return unpickle(world.seeds, dump.head(), memoryview(b"".join(dump.parts)), [], late=False)


@pytest.mark.parametrize("nan", [math.nan, numpy.nan])
def test_a_librarys_nan_comes_back_as_itself(nan: float) -> None:
    assert _moved(nan) is nan
    moved = _moved([nan, (nan, 1.0), {"a": nan, nan: 1}, {nan}, frozenset({nan})])
    assert moved[0] is moved[1][0] is moved[2]["a"] is nan
    assert nan in moved[2]
    assert nan in moved[3]
    assert nan in moved[4]


def test_nans_of_several_libraries_are_told_apart() -> None:
    own = float("nan")
    moved = _moved({"l": [numpy.nan, 1, math.nan, own], numpy.nan: (math.nan, [numpy.nan])})
    assert moved["l"][0] is numpy.nan
    assert moved["l"][2] is math.nan
    assert moved["l"][3] not in (numpy.nan, math.nan)
    assert moved[numpy.nan][0] is math.nan
    assert moved[numpy.nan][1][0] is numpy.nan


def test_other_nans_are_nobody_elses() -> None:
    own = float("nan")
    moved = _moved([own, numpy.nan])
    assert moved[0] is not numpy.nan
    assert moved[1] is numpy.nan
    assert all(item != item for item in moved)
    assert math.nan not in _moved([own])


def test_bytes_that_look_like_a_nan_stay_bytes() -> None:
    assert _moved([NAN, math.nan])[0] == NAN
    assert _moved(NAN) == NAN
