"""A stranger's state file under `import --safe`: nothing in it runs, and it makes no more than it brings."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path

import msgspec
import pytest

from replkernel.carrying.container import BLOBS, MANIFEST, STATE, NotAState, StateFile
from replkernel.carrying.importing import only_safe, read_state
from replkernel.carrying.manifest import manifest_of
from replkernel.carrying.safe import check_payload
from replkernel.loaders import MODULE as LOADERS
from replkernel.records import ComponentId, ComponentRecord, Payload, Seq
from replkernel.replication.checkpoint import digest_of
from replkernel.replication.components import TableState
from replkernel.replication.snapshot import MachineState, encode_state
from replkernel.state.format.stream import FORMAT_VERSION, Head, join_head
from tests.unit.carrying.test_container import written


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()


def raw(value: bytes) -> bytes:
    return pickle.BINBYTES + struct.pack("<I", len(value)) + value


def number(value: int) -> bytes:
    return pickle.LONG1 + b"\x10" + value.to_bytes(16, "little", signed=True)


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


def called(module: str, name: str, *arguments: bytes) -> bytes:
    return named(module, name) + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def loaded(wire_id: str, *arguments: bytes) -> bytes:
    return called(LOADERS, wire_id, *arguments)


def sized(*parts: int) -> bytes:
    return pickle.MARK + b"".join(map(number, parts)) + pickle.TUPLE


NONE, YES = pickle.NONE, pickle.NEWTRUE
HUGE = 10**13
RANGE = called("builtins", "range", number(HUGE))
POPPED = pickle.MARK + pickle.POP
"""Takes a mark away; a reader that forgets that marks are on the stack takes what is below it."""
HIDDEN = (
    named("builtins", "range") * 2
    + named(LOADERS, "sentinels:attribute")
    + POPPED
    + text("os")
    + text("system")
    + pickle.TUPLE2
    + pickle.REDUCE
    + POPPED
    + text("touch it-ran")
    + pickle.TUPLE1
    + pickle.REDUCE
)
RUNS = {
    "a command": called("os", "system", text("touch it-ran")),
    "the same by its other name": called("posix", "system", text("touch it-ran")),
    "a process": called("subprocess", "Popen", text("touch it-ran")),
    "eval": called("builtins", "eval", text("open('it-ran', 'w')")),
    "getattr": called("builtins", "getattr", named("numpy", "dtype"), text("__class__")),
    "a name with dots": called("numpy", "f2py.os.system", text("touch it-ran")),
    "a call of what a call has made": called("builtins", "complex") + pickle.EMPTY_TUPLE + pickle.REDUCE,
    "a class with keywords": named("numpy", "dtype") + pickle.EMPTY_TUPLE + pickle.EMPTY_DICT + b"\x92",
    "a state for a class": named("pandas", "DataFrame") + pickle.EMPTY_DICT + pickle.BUILD,
    "a pickle inside": called("pickle", "loads", raw(b"cos\nsystem\n(S'touch it-ran'\ntR.")),
    "a file of numpy": called("numpy", "load", text("evil.npy")),
    "a loader's module": loaded("modules:import_module", text("evil")),
    "a loader's attribute": loaded("sentinels:attribute", text("os"), text("system")),
    "a loader's attribute of torch": loaded("sentinels:attribute", text("torch"), text("load")),
    "a loader's class": loaded("instances:make_plain", named("subprocess", "Popen")),
    "a loader of functions": loaded("functions:make_function", NONE),
    "a loader's array of pointers": loaded(
        "numpy:make_array", raw(b"A" * 8), text("O"), sized(1), NONE, YES, NONE
    ),
    "a loader that does not exist": loaded("no:such", NONE),
    "a call that is hidden behind a mark": HIDDEN,
    "a listed class in a setter": loaded("instances:fill_plain", named("pandas", "DataFrame"), NONE),
}
BOMBS = {
    "bytes": called("builtins", "bytearray", number(HUGE)),
    "a set": called("builtins", "set", RANGE),
    "a counter": called("collections", "Counter", RANGE),
    "a queue": called("collections", "deque", RANGE),
    "a fraction": called("fractions", "Fraction", text("1e999999999")),
    "an array of one byte": loaded("numpy:make_array", raw(b"x"), text("|u1"), sized(HUGE), NONE, YES, NONE),
    "an array of nothing": loaded("numpy:make_objects", sized(HUGE), NONE, text("O"), NONE),
    "a shape below zero": loaded("numpy:make_array", raw(b"x"), text("|u1"), sized(-1, -1), NONE, YES, NONE),
    "a very long number": pickle.LONG4 + struct.pack("<i", 2**31 - 1),
}


def record(name: str, stream: bytes, number: int) -> ComponentRecord:
    head = join_head(Head(FORMAT_VERSION, (name,)), [stream, pickle.STOP])
    return ComponentRecord(
        ComponentId(f"c{number}"), (name,), Seq(1), Payload(head=head), digest_of(head), len(head)
    )


def state_file(path: Path, streams: dict[str, bytes]) -> Path:
    records = [record(f"v{number}", stream, number) for number, stream in enumerate(streams.values())]
    components = {one.cid: one for one in records}
    base = encode_state(MachineState(table=TableState(components=components)))
    told = manifest_of(components, {}, digest_of(base), {}, 1, 0.0)
    return written(path, {MANIFEST: msgspec.json.encode(told), STATE: base})


@pytest.mark.parametrize("kind", ["runs", "bombs"])
def test_each_hostile_variable_is_left_out_by_name_and_nothing_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    streams = RUNS if kind == "runs" else BOMBS
    with StateFile(state_file(tmp_path / "evil.rkz", streams)) as file:
        _base, kept, left = only_safe(file, read_state(file)[1])
    taken = {one.name for one in left}
    assert [what for number, what in enumerate(streams) if f"v{number}" not in taken] == []
    for one in kept.table.components.values():
        assert b"lost:lost" in (one.payload.head or b"")
        check_payload(one.payload.head or b"", [])
    assert not (tmp_path / "it-ran").exists()


def test_components_that_are_no_variables_are_not_taken_at_all(tmp_path: Path) -> None:
    plain = pickle.EMPTY_TUPLE + pickle.EMPTY_LIST + pickle.EMPTY_DICT + pickle.TUPLE3
    names = {"@modules": (), "c1": ("__builtins__",), "c2": ("_replkernel_out_own",), "c3": ("a.b",)}
    components = {
        ComponentId(cid): msgspec.structs.replace(record("x", plain, 0), cid=ComponentId(cid), names=given)
        for cid, given in names.items()
    }
    base = encode_state(MachineState(table=TableState(components=components)))
    told = manifest_of(components, {}, digest_of(base), {}, 1, 0.0)
    path = written(tmp_path / "evil.rkz", {MANIFEST: msgspec.json.encode(told), STATE: base})
    with StateFile(path) as file:
        _base, kept, _left = only_safe(file, read_state(file)[1])
    for one in kept.table.components.values():
        assert b"lost:lost" in (one.payload.head or b""), one.names


@pytest.mark.parametrize("name", [STATE, MANIFEST, f"{BLOBS}{'0' * 64}"])
def test_a_file_that_unpacks_to_more_than_it_is_long_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bomb.rkz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr(name, b"\0" * 2**24)
    with pytest.raises(NotAState):
        StateFile(path)
