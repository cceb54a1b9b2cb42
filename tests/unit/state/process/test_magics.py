"""Magics of the notebook: what one of IPython's is again once the notebook's of its name is gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replkernel.state.libraries.ipython.magics import MagicsPart
from replkernel.state.process.plain import encode_plain

NOTHING = encode_plain(({}, [], [], []))


def pycat(line: str) -> str:
    """Stand for IPython's."""
    return "IPython's"


def shell() -> Any:
    """Return as much of a shell as the part sees, with a function of the notebook's."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def mine(line): return 'mine'", namespace)
    magics: dict[str, dict[str, Any]] = {"line": {"pycat": pycat}, "cell": {}}

    def register(function: Any, magic_kind: str, magic_name: str) -> None:
        magics[magic_kind][magic_name] = function

    return SimpleNamespace(
        user_ns=namespace,
        alias_manager=None,
        magics_manager=SimpleNamespace(magics=magics, registry={}),
        register_magic_function=register,
    )


def test_a_magic_that_had_the_name_of_ipythons_leaves_that_behind_when_it_is_taken_back() -> None:
    here, there = shell(), shell()
    part, others = MagicsPart(here), MagicsPart(there)
    here.register_magic_function(here.user_ns["mine"], "line", "pycat")
    data = part.dump()
    assert data is not None
    others.load(data)
    assert there.magics_manager.magics["line"]["pycat"]("") == "mine"
    part.revert()
    others.load(NOTHING)
    assert here.magics_manager.magics["line"] == there.magics_manager.magics["line"] == {"pycat": pycat}
