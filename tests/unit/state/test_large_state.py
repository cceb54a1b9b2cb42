"""Large state leaves in chunks, out of band: what did not change is neither written nor sent again."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

from typing import Any

import pytest

from replkernel.records import BlobRef
from replkernel.state.capture import changes, survey_order
from replkernel.state.capture.pickling import CapturePickler
from tests.support.notebook import CHUNK_BYTES, Notebook, changed, pair

np = pytest.importorskip("numpy")


def blobs(delta: object) -> list[BlobRef]:
    return delta.blobs()  # type: ignore[attr-defined, no-any-return]


def test_a_large_array_is_one_buffer_beside_a_small_head() -> None:
    one = Notebook("r1")
    delta = one.run("import numpy as np\na=np.zeros(500_000)", 1)
    record = next(component for component in delta.components if component.names == ("a",))
    assert record.payload.head is not None
    assert len(record.payload.head) < 500
    assert [blob.size for blob in blobs(delta)] == [4_000_000]


def test_one_changed_element_writes_one_chunk() -> None:
    one = Notebook("r1")
    one.run("import numpy as np\na=np.random.default_rng(0).random(1_000_000)", 1)
    one.cache.written.clear()
    delta = one.run("a[200_000] = 5", 2)
    assert one.cache.written == [CHUNK_BYTES]
    assert len(blobs(delta)[0].chunks) == -(-8_000_000 // CHUNK_BYTES)


def test_a_buffer_is_known_wherever_it_stands_in_its_component() -> None:
    one = Notebook("r1")
    one.run("import numpy as np\nv=[np.random.default_rng(i).random(300_000) for i in range(4)]", 1)
    one.cache.written.clear()
    one.run("v[0] = 1; v.append('more')", 2)
    assert one.cache.written == []


TEXT = "import random; r=random.Random(0); t=' '.join(r.choices(['%06d' % i for i in range(900)], k=2_000_000)); del r"


@pytest.mark.parametrize(
    "edit",
    [
        "v='x'*80+v",
        "v=v+'x'*80",
        "v=v[:7_000_000]+v[7_000_080:]",
        "b=b'x'*80+b",
        "b=b[:99]+b[100:]",
        "a[:0]=b'x'*80",
    ],
)
def test_an_edit_of_large_text_writes_few_of_its_chunks(edit: str) -> None:
    one, two = pair()
    first = one.run(f"{TEXT}; v=t; b=t.encode()[::-1]; a=bytearray(b.upper()); del t", 1)
    one.cache.written.clear()
    second = one.run(edit, 2)
    assert 0 < sum(one.cache.written) <= 8_000_000
    two.take(first, second)
    assert all(two[name] == one[name] for name in "vba")


def test_the_receiver_writes_few_chunks_of_text_as_well() -> None:
    one, two = pair()
    two.take(one.run(f"{TEXT}; v=[t, 1]; del t", 1))
    two.cache.written.clear()
    two.run("v[1] = 2", 2)
    assert two.cache.written == []
    two.run("v[0] += 'x'*80", 3)
    assert sum(two.cache.written) <= 8_000_000


def test_columns_of_text_are_cut_by_content() -> None:
    pa = pytest.importorskip("pyarrow")
    one, two = pair()
    one.run(f"{TEXT}; import pyarrow as pa; v=pa.array(t.split()); del t", 1)
    text = max(buffer.size for buffer in one["v"].buffers() if buffer is not None)
    one.cache.written.clear()
    delta = one.run("v=pa.concat_arrays([pa.array(['in front']), v])", 2)
    assert isinstance(one["v"], pa.Array)
    offsets = 4 * len(one["v"])
    assert sum(one.cache.written) < offsets + text / 2
    two.take(delta)


def test_a_buffer_that_changes_while_it_is_written_is_written_again() -> None:
    one, two = pair()
    first = one.run("import numpy as np\na=np.zeros(500_000)", 1)
    write, array = one.cache.write_chunks, one["a"]

    def change_meanwhile(*arguments: object, **named: object) -> object:
        array[0] += 1
        return write(*arguments, **named)  # type: ignore[arg-type]

    one.cache.write_chunks = change_meanwhile  # type: ignore[method-assign, assignment]
    torn = one.run("a[1] = 1", 2)
    one.cache.write_chunks = write  # type: ignore[method-assign]
    array[0] = 0
    whole = one.capture(3)
    assert changed(whole) == ["a"]
    assert one.capture(4).components == ()
    two.take(first, torn, whole)
    assert (two["a"] == array).all()


def test_the_receiver_knows_the_chunks_as_well() -> None:
    one, two = pair()
    two.take(one.run("import numpy as np\na=np.random.default_rng(0).random(1_000_000)", 1))
    two.cache.written.clear()
    two.run("a[0] = 5", 2)
    assert two.cache.written == [CHUNK_BYTES]


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "str", "unicode"])
def test_large_text_and_bytes_leave_the_stream(kind: str) -> None:
    source = {
        "bytes": "v=[bytes(range(256))*2000, 1]",
        "bytearray": "v=[bytearray(range(256))*2000, 1]",
        "str": "v=['abcd'*100_000, 1]",
        "unicode": "v=['äbc€'*100_000, 1]",
    }[kind]
    one, two = pair()
    delta = one.run(source, 1)
    assert len(blobs(delta)) == 1
    two.take(delta)
    assert two["v"] == one["v"]
    assert type(two["v"][0]) is type(one["v"][0])
    assert two.capture(2).components == ()


def test_many_large_pieces_keep_their_places() -> None:
    one, two = pair()
    two.take(
        one.run(
            "v=[bytes([i])*(70_000+i) for i in range(5)] + ['x'*i for i in range(5)] + [str(i)*90_000 for i in range(5)]; w={'k': v[2]}",
            1,
        )
    )
    assert two["v"] == one["v"]
    assert two["w"]["k"] is two["v"][2]


def test_lone_surrogates_travel() -> None:
    one, two = pair()
    two.take(one.run("v='\\ud800'*100_000; w='\\ud800'", 1))
    assert two["v"] == one["v"]
    assert two["w"] == "\ud800"


def test_a_large_head_is_a_blob() -> None:
    one, two = pair()
    delta = one.run("v=[{'k': i} for i in range(20_000)]", 1)
    assert delta.components[0].payload.head is None
    two.take(delta)
    assert two["v"] == one["v"]


def test_inline_bytes_are_bounded_by_the_setting() -> None:
    small = Notebook("r1", inline=100)
    delta = small.run("a='x'*50; b='x'*200", 1)
    by_name = {component.names[0]: component.payload for component in delta.components}
    assert by_name["a"].head is not None
    assert by_name["b"].head_blob is not None


def test_views_share_one_buffer() -> None:
    one, two = pair()
    delta = one.run("import numpy as np\na=np.zeros(100_000); v=a[10:]; w=a.reshape(100,-1).T; d={'v': v}", 1)
    assert len(blobs(delta)) == 1
    two.take(delta)
    two["v"][0] = 7
    assert two["a"][10] == 7
    assert two["w"][10, 0] == 7
    assert two["d"]["v"] is two["v"]
    assert two["a"].flags.owndata


def test_a_view_alone_brings_its_whole_base() -> None:
    one, two = pair()
    two.take(one.run("import numpy as np\nv=np.arange(10)[2:4]", 1))
    assert two["v"].tolist() == [2, 3]
    assert two["v"].base.tolist() == list(range(10))


def test_equal_arrays_are_not_one() -> None:
    one, two = pair()
    two.take(one.run("import numpy as np\na=np.zeros(5); b=np.zeros(5)", 1))
    two["a"][0] = 1
    assert two["b"][0] == 0


def test_a_large_component_is_compared_without_a_copy_of_its_memo() -> None:
    one, two = pair()
    first = one.run("rows=[{'i': [i]} for i in range(20_000)]; x=[1]", 1)
    assert one.run("pass", 2).components == ()
    joined = one.run("rows[77]['i'] = x; x[0] = 77", 3)
    assert [set(component.names) for component in joined.components] == [{"rows", "x"}]
    two.take(first, joined)
    assert two["rows"][77]["i"] is two["x"]


def test_two_large_components_that_come_to_share_are_joined() -> None:
    one = Notebook("r1")
    one.run("a=[[i] for i in range(12_000)]; b=[[i] for i in range(12_000)]", 1)
    assert one.run("pass", 2).components == ()
    assert len(one.run("b[5]=a[5]", 3).components) == 1


def test_what_many_names_hold_of_a_large_object_is_not_dumped_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dumped: list[tuple[str, ...]] = []
    dump_unit = CapturePickler.dump_unit

    def noting(pickler: CapturePickler, roots: dict[str, object], *rest: Any, **more: Any) -> Any:
        dumped.append(tuple(roots))
        return dump_unit(pickler, roots, *rest, **more)

    monkeypatch.setattr(CapturePickler, "dump_unit", noting)
    for module in (survey_order, changes):  # Else what is new is dumped first where the machine is slow.
        monkeypatch.setattr(module, "HEAVY_S", 60.0)
    one, two = pair()
    deltas = [one.run("whole=[[i] for i in range(12_000)]", 1)]
    names = tuple(f"part_{number}" for number in range(9))
    deltas.append(one.run(";".join(f"part_{number}=whole[{number}]" for number in range(9)), 2))
    dumped.clear()
    deltas.append(one.run("whole[7].append(1)", 3))
    assert set(dumped) == {("whole", *names), ("whole",)}
    dumped.clear()
    deltas.append(one.run("del whole[:5]; tail=whole[-1]; held=[part_8]", 4))
    alone = {roots for roots in dumped if len(roots) == 1}
    assert alone == {("whole",), ("held",), *((name,) for name in names[:5])}
    together = max((component.names for component in deltas[-1].components), key=len)
    assert set(together) == {"whole", "tail", "held", *names[5:]}
    two.take(*deltas)
    assert [two["part_5"], two["part_7"], two["part_2"]] == [[5], [7, 1], [2]]
    assert two["whole"][0] is two["part_5"] and two["held"][0] is two["part_8"]
    assert two["whole"][-1] is two["tail"]


def test_what_every_notebook_has_joins_no_large_object() -> None:
    one, _ = pair()
    delta = one.run(
        "import sys; x = [[i] for i in range(12_000)]; names = globals(); modules = sys.modules", 1
    )
    assert {component.names for component in delta.components} >= {("x",), ("names",), ("modules",)}
    assert changed(one.run("x[5].append(1)", 2)) == ["x"]


def test_a_nan_among_many_small_objects_is_told_the_same_way_each_time() -> None:
    one, two = pair()
    assert (
        two.take(one.run("n = float('nan'); q = [n, n, *([] for _ in range(12_000))]; del n", 1)).failed == ()
    )
    delta = one.run("z = 1", 2)
    assert changed(delta) == ["z"]
    assert two.take(delta).failed == ()
    assert two["q"][0] is two["q"][1]


def test_a_small_value_in_the_place_of_a_large_one_is_told_as_any_other() -> None:
    one, two = pair()
    two.take(
        one.run("import numpy as np; q = [[i] for i in range(12_000)]; w = [[i] for i in range(12_000)]", 1)
    )
    report = two.take(one.run("n = float('nan'); q = [n, n]; del n; w = v = np.int64(5)", 2))
    assert report.failed == ()
    assert two["q"][0] is two["q"][1] and two["w"] is two["v"]
    assert one.run("", 3).components == ()


def test_deep_structures_travel() -> None:
    one, two = pair()
    source = "d=()\nfor _ in range(30_000): d=(d,)\nclass N: pass\nhead=None\nfor i in range(30_000):\n    n=N(); n.next=head; head=n"
    two.take(one.run(source, 1))
    depth, node = 0, two["head"]
    while node is not None:
        depth, node = depth + 1, node.next
    assert depth == 30_000
    assert two.capture(2).components == ()


def test_a_part_of_a_text_column_takes_its_own_room_alone() -> None:
    pytest.importorskip("pyarrow")
    one = Notebook("r1")
    whole = "pd.Series([f'line {i}' for i in range(300_000)])"
    one.run(f"import pandas as pd\nfew = {whole}[:3].array\nend = {whole}[299_990:].array", 1)
    rows = {row.names: row.state_bytes for row in one.state.table()}
    assert rows["few",] < 100_000
    assert rows["end",] < 100_000
