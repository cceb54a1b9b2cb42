"""What an abstract class of the notebook has once answered stays its answer, on every replica."""

from __future__ import annotations

import pytest

from tests.support.notebook import moved, pair

HOOKED = (
    "from abc import ABC\nfrom typing import Protocol, runtime_checkable\n"
    "class Hooked(ABC):\n  @classmethod\n  def __subclasshook__(cls, c):\n"
    "    asked.append(c.__name__)\n    return True if hasattr(c, 'f') else NotImplemented\n"
    "@runtime_checkable\nclass Proto(Protocol):\n  def f(self): ...\n"
    "class Plain: pass\nclass Has:\n  def f(self): ...\nclass Below(Hooked): pass\nasked = []\n"
)


@pytest.mark.parametrize("of", ["Hooked", "Proto"])
def test_an_answer_stays_when_methods_come_and_go(of: str) -> None:
    space = moved(
        f"{HOOKED}first = [issubclass(c, {of}) for c in (Plain, Has, Below)]; asked.clear()",
        "Plain.f = len; del Has.f",
        f"later = [issubclass(c, {of}) for c in (Plain, Has)]",
    )
    assert space["first"] == [False, True, of == "Hooked"]
    assert space["later"] == [False, True]
    assert space["asked"] == []
    assert eval(f"[issubclass(c, {of}) for c in (Plain, Has)], '__subclasshook__' in vars({of})", space) == (
        [False, True],
        True,
    )


def test_a_registration_has_it_ask_again() -> None:
    space = moved(
        f"{HOOKED}issubclass(Plain, Hooked)",
        "Plain.f = len; Hooked.register(type('Other', (), {}))",
        "later = issubclass(Plain, Hooked)",
    )
    assert space["later"] is True


def test_a_class_that_is_gone_is_not_kept_by_what_was_answered() -> None:
    space = moved(
        f"{HOOKED}import gc, weakref\nissubclass(Plain, Hooked)",
        "r = weakref.ref(Plain); del Plain; gc.collect()",
        "gc.collect(); gone = r() is None",
        "again = 1",
    )
    assert space["gone"] is True


def test_a_class_that_is_registered_no_more_is_so_on_every_replica() -> None:
    executor, standby = pair()
    source = "import _abc, abc\nclass Base(abc.ABC): pass\nclass Other: pass"
    standby.take(executor.run(f"{source}\nBase.register(Other)", 1))
    assert issubclass(standby["Other"], standby["Base"])
    assert standby.take(executor.run("_abc._reset_registry(Base); Base.n = 1", 2)).failed == ()
    assert not issubclass(standby["Other"], standby["Base"])


def test_classes_of_one_name_are_registered_on_every_replica() -> None:
    executor, standby = pair()
    source = "import abc\nclass Base(abc.ABC): pass\n@Base.register\nclass Other: pass\nkept = [Other]"
    standby.take(executor.run(source, 1))
    for number in range(2, 10):
        source = f"@Base.register\nclass Other: n = {number}\nkept.append(Other); Base.n = 1"
        assert standby.take(executor.run(source, number)).failed == ()
    assert all(issubclass(cls, standby["Base"]) for cls in standby["kept"])
