"""Large state leaves in chunks, out of band: what did not change is neither written nor sent again."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from notebook import CHUNK_BYTES, Notebook, pair

from replkernel.records import BlobRef

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
    assert len(blobs(delta)[0].chunks) == 8


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


def test_deep_structures_travel() -> None:
    one, two = pair()
    source = "d=()\nfor _ in range(30_000): d=(d,)\nclass N: pass\nhead=None\nfor i in range(30_000):\n    n=N(); n.next=head; head=n"
    two.take(one.run(source, 1))
    depth, node = 0, two["head"]
    while node is not None:
        depth, node = depth + 1, node.next
    assert depth == 30_000
    assert two.capture(2).components == ()
