"""Callbacks of weak references: they travel, run once where the user's object dies, and nowhere else."""

from __future__ import annotations

import gc

import pytest

from replkernel.errors import StateLostError
from tests.support.notebook import pair

WATCHED = "import weakref\nlog = []\nclass A: pass\ndef said(r): log.append('gone')\na = A()\n"

REPLACED = {
    "the object bound first": "r = weakref.ref(a, said)",
    "the object in a list with it": "l = [weakref.ref(a, said), a]; l.append(l); del a; a = l",
    "a reference in its own object": "a.me = weakref.ref(a, said)",
    "a reference in what it holds": "b = A(); b.up = weakref.ref(a, said); a.down = [b]; del b",
    "a proxy": "r = weakref.proxy(a, said)",
}


@pytest.mark.parametrize("watch", REPLACED.values(), ids=REPLACED.keys())
def test_an_object_that_is_replaced_calls_nobody(watch: str) -> None:
    one, two = pair()
    two.take(one.run(WATCHED + watch, 1))
    two.take(one.run("(a[1] if type(a) is list else a).x = 1", 2))
    two.take(one.run("(a[1] if type(a) is list else a).x = 2", 3))
    gc.collect()
    assert two["log"] == []
    two.take(one.run("del a; l = None; import gc; gc.collect()", 4))
    gc.collect()
    assert two["log"] == one["log"]


@pytest.mark.parametrize("watch", REPLACED.values(), ids=REPLACED.keys())
def test_an_old_object_that_is_replaced_calls_nobody_when_young_ones_are_collected(watch: str) -> None:
    one, two = pair()
    two.take(one.run(WATCHED + watch, 1))
    gc.collect()  # From now on the objects are of the oldest generation.
    two.take(one.run("(a[1] if type(a) is list else a).x = 1", 2))
    gc.collect(0)
    assert two["log"] == []


CALLED = {
    "reference": "r = weakref.ref(a, said)",
    "proxy": "r = weakref.proxy(a, said)",
}


@pytest.mark.parametrize("watch", CALLED.values(), ids=CALLED.keys())
def test_a_callback_runs_where_the_object_dies(watch: str) -> None:
    one, two = pair()
    two.take(one.run(WATCHED + watch, 1))
    one.take(two.run("del a", 2))
    assert two["log"] == ["gone"]
    assert one["log"] == ["gone"]


def test_a_dead_reference_is_still_a_key() -> None:
    one, two = pair()
    two.take(one.run(WATCHED + "r = weakref.ref(a); seen = {r: 'was a'}; del a", 1))
    assert two["seen"][two["r"]] == "was a"
    one.take(two.run("seen[r] += '!'", 2))
    assert one["seen"][one["r"]] == "was a!"


def test_a_method_with_a_callback_stays_and_one_without_travels() -> None:
    one, two = pair()
    two.take(one.run(WATCHED + "A.go = lambda s: 1; r = weakref.WeakMethod(a.go, said); n = 1", 1))
    assert two["n"] == 1
    with pytest.raises(StateLostError, match="calls when its method dies"):
        two["r"]()
    two.take(one.run("r = weakref.WeakMethod(a.go)", 2))
    assert two["r"]()() == 1


OWN_KIND = (
    "class Ref(weakref.ref):\n"
    "  __slots__ = 'key', '__dict__'\n"
    "  def __new__(cls, o, key, call=None): made.append(key); return super().__new__(cls, o, call)\n"
    "  def __init__(self, o, key, call=None): super().__init__(o, call); self.key = key; self.more = [self]\n"
    "made = []\n"
)


def test_a_reference_of_its_own_kind_arrives_with_what_it_has() -> None:
    one, two = pair()
    two.take(
        one.run(
            WATCHED + OWN_KIND + "r = Ref(a, ['k'], said); b = A(); dead = Ref(b, 2); hash(dead); del b", 1
        )
    )
    one.take(two.run("r.key.append(r() is a)", 2))
    assert one["r"]() is one["a"]
    assert (one["r"].key, one["made"], one["log"]) == (["k", True], [["k", True], 2], [])
    assert one["r"].more[0] is one["r"]
    assert (one["dead"](), one["dead"].key, type(one["dead"])) == (None, 2, one["Ref"])
    assert hash(one["dead"]) == hash(two["dead"])
    two.take(one.run("del a; import gc; gc.collect()", 3))
    gc.collect()
    assert one["log"] == two["log"] == ["gone"]


CALLS = {
    "of a plain object": "class P: pass\np = P(); call(p)",
    "of one with slots": "class P: __slots__ = '__weakref__',\np = P(); call(p)",
    "of a dictionary of one's own": "class P(dict): pass\np = P(a=1); call(p)",
    "made where it is made": "class P:\n  def __init__(self): call(self)\np = P()",
    "that a variable holds": "class P: pass\np = P(); f = call(p)",
    "that a variable before it holds": "class P: pass\nf = 0; p = P(); f = call(p)",
    "that what it holds holds": "class P: pass\np = P(); p.x = [call(p)]",
}


@pytest.mark.parametrize("define", CALLS.values(), ids=CALLS.keys())
def test_a_finalizer_runs_once_where_its_object_dies(define: str) -> None:
    one, two = pair()
    call = "def call(o): return weakref.finalize(o, log.append, 'gone')\n"
    two.take(one.run("import weakref\nlog = []\n" + call + define, 1))
    one.take(two.run("log.append(1)", 2))
    two.take(one.run("log.append(2)", 3))
    gc.collect()
    assert one["log"] == two["log"] == [1, 2]
    one.take(two.run("del p; import gc; gc.collect()", 4))
    gc.collect()
    assert one["log"] == two["log"] == [1, 2, "gone"]


def test_several_finalizers_of_an_object_run_in_their_order_and_with_their_arguments() -> None:
    make = (
        "import weakref\nlog = []\nclass P: pass\np = P()\n"
        "for n in range(3): weakref.finalize(p, lambda *a, **k: log.append((a, k)), n, key=n).atexit = n > 1"
    )
    _, stayed = pair()
    stayed.run(make + "\ndel p", 1)
    one, two = pair()
    two.take(one.run(make, 1))
    mine = "[f.atexit for f in weakref.finalize._registry if (f.peek() or (0,))[0] is p]"
    two.run(f"exits = {mine}; del p", 2)
    assert two["log"] == stayed["log"]
    assert sorted(two["exits"]) == [False, False, True]


@pytest.mark.parametrize(
    "define",
    [
        "r = ref('r'); f = call('f')",
        "r = ref('r'); call('f'); call('g')",
        "f = call('f'); r = ref('r')",
        "f = call('f'); r = ref('r'); g = call('g'); s = ref('s'); call('h')",
        "n.r = ref('r'); n.f = call('f')",
        "n.f = call('f'); n.r = ref('r')",
        "n.f = call('f'); n.r = weakref.proxy(n, said('r')); g = call('g')",
        "call('f'); held = {'r': ref('r'), 'f': call('g')}",
        "m = n; n = S(); f = call('f'); r = ref('r'); g = call('g')",
        "m = n; n = P(); r = ref('r'); f = call('f')",
    ],
)
def test_finalizers_and_callbacks_of_an_object_run_in_their_order(define: str) -> None:
    make = (
        "import gc, types, weakref\nlog = []\nclass N: pass\nclass S: __slots__ = '__weakref__',\n"
        "class P(types.SimpleNamespace): pass\ndef said(what): return lambda r: log.append(what)\n"
        "def ref(what): return weakref.ref(n, said(what))\n"
        "def call(what): return weakref.finalize(n, log.append, what)\n"
        f"n = N(); {define}"
    )
    _, stayed = pair()
    stayed.run(make, 1)
    stayed.run("del n; gc.collect()", 2)
    one, two = pair()
    first = one.run(make, 1)
    assert two.take(first).failed == ()
    assert one.take(two.run("n = [n]", 2)).failed == ()
    one.run("del n; gc.collect()", 3)
    assert one["log"] == stayed["log"]


@pytest.mark.parametrize("held", ["deque([p])", "Slotted(p)"])
def test_an_object_that_is_replaced_within_another_is_not_finalized(held: str) -> None:
    one, two = pair()
    two.take(
        one.run(
            "import weakref\nfrom collections import deque\nlog = []\nclass P: pass\n"
            "class Slotted:\n  __slots__ = 'x',\n  def __init__(self, x): self.x = x\n"
            "def said(): log.append('gone')\n"
            f"p = P(); weakref.finalize(p, said); held = {held}; n = [held]; del p",
            1,
        )
    )
    two.take(one.run("n.append(1)", 2))
    gc.collect()
    assert two["log"] == []
