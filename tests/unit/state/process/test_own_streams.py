"""The process's own two streams in each other's place: told by name, and never a pin."""

from __future__ import annotations

import io
import sys

import pytest

from replkernel.records import ReplicaId, Seq
from replkernel.state.process.own_streams import OwnStreamsPart
from replkernel.state.process.parts import Baseline, process_pins


@pytest.fixture(autouse=True)
def _two_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the two: what is bound in a test is put back."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())


class Wrapper(io.StringIO):
    """What a library puts in a stream's place, for colours or progress bars."""


def test_nothing_is_told_while_the_streams_are_where_they_were() -> None:
    assert OwnStreamsPart().dump() is None


@pytest.mark.parametrize(
    ("stdout", "stderr"), [("stdout", "stdout"), ("stderr", "stderr"), ("stderr", "stdout")]
)
def test_each_is_bound_elsewhere_as_it_is_here_and_back(stdout: str, stderr: str) -> None:
    own = {"stdout": sys.stdout, "stderr": sys.stderr}
    here, there = OwnStreamsPart(), OwnStreamsPart()
    sys.stdout, sys.stderr = own[stdout], own[stderr]
    changed = here.dump()
    sys.stdout, sys.stderr = own["stdout"], own["stderr"]
    back = here.dump()
    assert changed is not None
    assert back is not None

    there.load(changed)
    assert (sys.stdout, sys.stderr) == (own[stdout], own[stderr])
    assert there.dump() == changed
    there.load(back)
    assert (sys.stdout, sys.stderr) == (own["stdout"], own["stderr"])


def test_a_swap_is_no_pin() -> None:
    baseline = Baseline(None, ())
    sys.stderr = sys.stdout
    assert process_pins(Seq(1), ReplicaId("r1"), baseline) == ()
    sys.stdout = io.StringIO()
    (pin,) = process_pins(Seq(1), ReplicaId("r1"), baseline)
    assert pin.name == "sys.stdout"


def test_a_librarys_stream_stays_when_the_other_one_goes_back() -> None:
    err = sys.stderr
    part = OwnStreamsPart()
    sys.stderr = sys.stdout
    part.dump()
    wrapper = sys.stdout = Wrapper()
    sys.stderr = err
    back = part.dump()
    assert back is not None
    sys.stderr = part._own["stdout"]
    part.apply(back)
    assert sys.stdout is wrapper
    assert sys.stderr is err


def test_a_stream_of_the_notebooks_gives_way_when_it_goes_back() -> None:
    out, err = sys.stdout, sys.stderr
    part, there = OwnStreamsPart(), OwnStreamsPart()
    sys.stdout = io.StringIO()
    changed = part.dump()
    assert changed is not None
    part.revert()
    assert (sys.stdout, sys.stderr) == (out, err)
    there.load(changed)
    assert sys.stdout is out, "what cannot travel changes nothing elsewhere"


def test_a_stream_that_comes_back_during_a_cell_belongs_to_that_cell() -> None:
    class Stream(io.StringIO):
        parent_header = "an older cell"

    sys.stdout, sys.stderr = out, err = Stream(), Stream()
    part = OwnStreamsPart()
    sys.stderr = out
    part.dump()
    sys.stderr = err
    back = part.dump()
    assert back is not None
    sys.stderr = out
    out.parent_header = "this cell"
    part.apply(back)
    assert sys.stderr is err
    assert err.parent_header == "this cell"
