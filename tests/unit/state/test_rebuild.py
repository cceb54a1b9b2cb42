"""What happens to a component that cannot be rebuilt, to classes across components, and to process parts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from replkernel.errors import StateLostError
from replkernel.records import ComponentId
from replkernel.state.hooks import register, registered
from replkernel.state.patches.book import book
from replkernel.state.patches.places import ITEM, Absent, Place
from replkernel.state.restore import rebuild as rebuilding
from replkernel.state.tombstone import is_tombstone
from tests.support.notebook import Notebook, pair


def test_a_missing_blob_costs_its_component_and_no_other() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    delta = one.run("big='x'*200_000; small=[1]", 1)
    report = two.take(delta)
    assert [failure.names for failure in report.failed] == [("big",)]
    assert two["small"] == [1]
    with pytest.raises(StateLostError) as caught:
        len(two["big"])
    assert caught.value.name == "big"
    assert caught.value.replica == "r1"
    assert "could not be rebuilt on this replica" in caught.value.__notes__[0]


def test_a_failure_to_rebuild_here_is_not_shipped_as_a_change() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    two.take(one.run("big='x'*200_000; small=[1]", 1))
    assert two.run("pass", 2).components == ()
    assert [component.names for component in two.run("small.append(2)", 3).components] == [("small",)]


def test_fetch_is_asked_for_what_is_missing_and_no_more() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    two.state.receive(one.run("big='x'*200_000; small=[1]", 1))
    asked: list[Any] = []

    def fetch(refs: Any) -> None:
        asked.extend(refs)
        two.cache.chunks.update(one.cache.chunks)

    report = two.state.rebuild(everything=True, fetch=fetch)
    assert [ref.size for ref in asked] == [200_000]
    assert report.failed == ()
    assert len(two["big"]) == 200_000


def test_a_fetch_that_fails_says_why() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    two.state.receive(one.run("big='x'*200_000", 1))

    def fetch(refs: Any) -> None:
        raise OSError("the store is away")

    report = two.state.rebuild(everything=True, fetch=fetch)
    assert "the store is away" in report.failed[0].reason
    assert is_tombstone(two["big"])


def test_a_library_gets_back_what_was_taken_back_while_it_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = pair()
    sys.modules["put_there"] = [1]  # type: ignore[assignment]
    book.enter(Place(ITEM, "sys", "modules", '"put_there"'), Absent)
    two.state.receive(one.run("pass", 1))
    later = one.run("import sys; del sys.modules['put_there']", 2)
    really_bind = rebuilding.bind

    def bind(*arguments: Any) -> None:
        really_bind(*arguments)
        two.state.receive(later)

    monkeypatch.setattr(rebuilding, "bind", bind)
    two.state.rebuild(everything=True, fetch=lambda refs: None)
    assert "put_there" not in sys.modules


def test_an_object_that_refuses_to_be_rebuilt_is_reported() -> None:
    one, two = pair()
    delta = one.run(
        "class Picky:\n    def __init__(s, n): s.n=n\n"
        "    def __replkernel_dump__(s): return s.n\n    @classmethod\n"
        "    def __replkernel_load__(cls, n):\n"
        "        if n == 2: raise RuntimeError('not on this host')\n"
        "        return cls(n)\n"
        "good=Picky(1); bad=[Picky(2)]; other=5",
        1,
    )
    report = two.take(delta)
    assert [failure.names for failure in report.failed] == [("bad[0]",)]
    assert "not on this host" in report.failed[0].reason
    assert two["good"].n == 1
    assert two["other"] == 5
    with pytest.raises(StateLostError, match=r"bad\[0\]"):
        len(two["bad"][0])
    bound = [pin for component in two.state.unfaithful for pin in component.pins]
    assert [(pin.path, pin.type_name, pin.replica) for pin in bound] == [("bad[0]", "Picky", "r1")]
    assert "not on this host" in bound[0].reason
    two.take(one.run("bad = [1]", 2))
    assert two.state.unfaithful == ()


def test_a_package_that_is_not_installed_is_named() -> None:
    one, two = pair()
    sys.modules["made_here"] = type(sys)("made_here")
    sys.modules["made_here"].__spec__ = object()  # type: ignore[assignment]
    try:
        delta = one.run("import made_here\nx=[made_here, 1]", 1)
    finally:
        del sys.modules["made_here"]
    report = two.take(delta)
    assert any("made_here" in failure.reason for failure in report.failed)


def test_a_class_is_one_object_for_all_components() -> None:
    one, two = pair()
    two.take(one.run("class A: pass\na=A(); b=[A()]; k=A", 1))
    assert type(two["a"]) is type(two["b"][0]) is two["A"] is two["k"]
    two.take(one.run("c={'x': A()}", 2))
    assert type(two["c"]["x"]) is two["A"]


def test_old_instances_keep_the_old_class() -> None:
    one, two = pair()
    two.take(one.run("class A:\n    def who(s): return 'old'\na=A()", 1))
    one.take(two.run("class A:\n    def who(s): return 'new'\nb=A()", 2))
    for notebook in (one, two):
        assert (notebook["a"].who(), notebook["b"].who()) == ("old", "new")
        assert not isinstance(notebook["a"], notebook["A"])


def test_a_class_changes_in_place_for_all_its_instances() -> None:
    one, two = pair()
    two.take(one.run("class A: pass\na=A(); f=lambda: A", 1))
    before = two["A"]
    two.take(one.run("A.n=5; A.m=lambda s: s.n", 2))
    assert two["A"] is before is two["f"]()
    assert two["a"].m() == 5


def test_classes_that_need_each_other_in_any_order() -> None:
    one, two = pair()
    source = "class Z: pass\nclass A(Z):\n    z=Z()\nZ.a=A()\nclass B(A): other=A.z\nb=B()"
    two.take(one.run(source, 1))
    assert isinstance(two["b"], two["Z"])
    assert type(two["Z"].a) is two["A"]
    assert two["B"].other is two["A"].z
    assert two.capture(2).components == ()


def test_classes_of_pending_components_are_rebuilt_on_demand() -> None:
    one, two = pair()
    delta = one.run("class A:\n    text='x'*90_000\na=A()", 1)
    two.take(delta, everything=False)
    assert "a" not in two
    two.take()
    assert two["a"].text == "x" * 90_000


def test_registered_hooks_travel_and_serve_on_every_replica() -> None:
    one, two = pair()
    try:
        exec("class H:\n    def __init__(s, v): s.v=v; s.g=(i for i in v)\nh=H([1])", one.namespace)
        register(one["H"], lambda h: h.v, eval("lambda v: H(v)", one.namespace))
        delta = one.capture(1)
        assert all(not component.pins for component in delta.components)
        registered.clear()
        two.take(delta)
        assert two["h"].v == [1]
        assert [cls for cls, *_ in registered] == [two["H"]]
        assert two.run("h.v.append(2)", 2).components[0].pins == ()
    finally:
        registered.clear()


def test_user_code_of_a_rebuild_finds_the_names_it_needs() -> None:
    one, two = pair()
    source = (
        "class S:\n    def __replkernel_dump__(s): return {'n': 1}\n    @classmethod\n"
        "    def __replkernel_load__(cls, state):\n"
        "        s=cls(); s.big=len(table); s.n=helper(state['n']); return s\n"
        "s=S(); import math\ndef helper(n): return math.sqrt(scale)\n"
        "table=['x'*500 for i in range(90)]; scale=4.0"
    )
    report = two.take(one.run(source, 1))
    assert report.failed == ()
    assert (two["s"].big, two["s"].n) == (90, 2.0)


def test_register_refuses_nonsense() -> None:
    with pytest.raises(TypeError, match="a class, a dump function and a load function"):
        register(5, len, len)  # type: ignore[arg-type]
    for cls in (list, int, str, type(None)):
        with pytest.raises(TypeError, match=f"no `{cls.__name__}`: the kernel copies those itself"):
            register(cls, repr, eval)
    for cls in (object, type):
        with pytest.raises(TypeError, match=f"no `{cls.__name__}`: it would be asked for everything"):
            register(cls, repr, eval)


class Counter:
    """A process part that is a number."""

    def __init__(self, log: list[str], cid: str = "@counter") -> None:
        self.cid = ComponentId(cid)
        self.value = 0
        self.log = log

    def dump(self) -> bytes | None:
        return str(self.value).encode() if self.value else None

    def load(self, data: bytes) -> None:
        self.log.append(self.cid)
        self.value = int(data)


def test_process_parts_travel_when_they_change() -> None:
    log: list[str] = []
    here, there = [Counter(log, "@b"), Counter(log, "@a")], [Counter(log, "@b"), Counter(log, "@a")]
    one, two = Notebook("r1", parts=here), Notebook("r2", parts=there)
    assert one.run("x=1", 1).components[0].cid == "x"
    here[0].value = here[1].value = 5
    delta = one.run("pass", 2)
    assert [component.cid for component in delta.components] == ["@b", "@a"]
    two.take(delta)
    assert [part.value for part in there] == [5, 5]
    assert log == ["@b", "@a"]
    assert two.run("pass", 3).components == ()
    assert one.run("pass", 4).components == ()


class Family:
    """Parts that grow in number."""

    prefix = "@row/"

    def __init__(self) -> None:
        self.blocks: list[Counter] = []

    def block(self, cid: str) -> Counter:
        while len(self.blocks) <= int(cid.removeprefix(self.prefix)):
            self.blocks.append(Counter([], f"{self.prefix}{len(self.blocks)}"))
        return self.blocks[int(cid.removeprefix(self.prefix))]


def test_families_of_parts_grow_on_the_other_side() -> None:
    here, there = Family(), Family()
    one, two = Notebook("r1", parts=[here]), Notebook("r2", parts=[there])
    here.block("@row/1").value = 7
    two.take(one.run("pass", 1))
    assert there.blocks[1].value == 7


def test_state_from_nothing_is_one_synthetic_delta_away() -> None:
    one, two = pair()
    parts = [one.run("a=[1]; b=a", 1), one.run("a.append(2); c=5", 2), one.run("del c", 3)]
    records = {component.cid: component for delta in parts for component in delta.components}
    import msgspec

    whole = msgspec.structs.replace(
        parts[-1],
        components=tuple(r for r in records.values() if r.names != ("c",)),
        dropped=(),
        order=("a", "b"),
    )
    two.take(whole)
    assert two["b"] is two["a"]
    assert two["a"] == [1, 2]
    assert "c" not in two


def test_members_that_need_their_state_to_be_hashed() -> None:
    one, two = pair()
    two.take(
        one.run(
            "class K:\n    def __init__(s, n): s.n=n; s.o=[]\n    def __hash__(s): return hash(s.n)\n"
            "    def __eq__(s, o): return s.n == o.n\n"
            "k=K(1); d={k: 'v', 'plain': 1}; s={k, K(2)}; k.o += [k, s, d]",
            1,
        )
    )
    assert two["d"][two["K"](1)] == "v"
    assert list(two["d"]) == [two["k"], "plain"] or set(two["d"]) == {two["k"], "plain"}
    assert two["k"] in two["s"]
    assert two["K"](2) in two["s"]
    assert two["k"].o[0] is two["k"]
    assert two["k"].o[1] is two["s"]


def test_bytes_that_come_late_heal_what_was_lost() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    two.take(one.run("big='x'*200_000; small=[1]", 1))
    assert two.run("small.append(2)", 2).order is None
    two.cache.chunks.update(one.cache.chunks)
    assert two.take().failed == ()
    assert len(two["big"]) == 200_000
    assert two.run("pass", 3).components == ()


def test_a_name_that_was_never_rebuilt_can_be_bound_anew_or_deleted() -> None:
    one, two = Notebook("r1"), Notebook("r2")
    one.take(two.run("pass", 1))
    two.take(one.run("a='x'*200_000; b='y'*200_000", 2))
    delta = two.run("a=5; del b", 3)
    assert sorted(delta.dropped) == ["a", "b"]
    one.take(delta)
    assert one["a"] == 5
    assert "b" not in one
    assert two.take().failed == ()
    assert two["a"] == 5


@pytest.mark.parametrize(
    "made",
    [
        "iter([1])",
        "reversed([1])",
        "iter((1,))",
        "iter('a')",
        "iter('é')",
        "iter(b'a')",
        "iter(__import__('array').array('b', [1]))",
        "iter({1: 2})",
        "reversed({1: 2}.items())",
        "iter({1})",
        "reversed(__import__('collections').deque([1]))",
    ],
)
def test_an_iterator_that_is_over_is_over_elsewhere_and_of_its_type(made: str) -> None:
    one, two = pair()
    two.take(one.run(f"it = {made}; list(it); begun = {made}", 1))
    assert type(two["it"]) is type(one["it"])
    assert repr(two["it"].__reduce__()) == repr(one["it"].__reduce__())
    assert list(two["it"]) == []
    assert list(two["begun"]) == list(one["begun"])


@pytest.mark.parametrize("made", ["[1, 2, 3]", "bytearray(3)", "__import__('array').array('b', [1, 2, 3])"])
def test_an_iterator_behind_the_end_of_what_became_shorter_stays_there(made: str) -> None:
    one, two = pair()
    begun = (
        f"x = {made}; it, it2, back = iter(x), iter(x), reversed(x); next(it); next(it); next(it2); next(it2)"
    )
    assert two.take(one.run(f"{begun}; del x[:]; x.append(7)", 1)).failed == ()
    assert [list(two["it"]), list(two["back"])] == [[], []]
    two.run("x.extend([8, 9])", 2)
    assert list(two["it2"]) == [9]
