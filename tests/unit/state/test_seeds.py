"""The shell travels by reference, whatever the notebook has in the place of `get_ipython`."""

from __future__ import annotations

import types

import pytest
from IPython.core.interactiveshell import InteractiveShell

from replkernel.state.seeds import Seeds


class Shell:
    """As much of a shell as is asked."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self.user_ns = namespace
        self._trait_values: dict[str, object] = {}

    def get_ipython(self) -> Shell:
        return self

    def trait_names(self) -> list[str]:
        return []


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell(vars(types.ModuleType("__main__")))
    monkeypatch.setattr(InteractiveShell, "_instance", shell)
    return shell


def test_an_imported_get_ipython_leaves_the_shell_where_it_is(shell: Shell) -> None:
    shell.user_ns["get_ipython"] = shell.get_ipython
    assert Seeds(shell.user_ns).object_of("shell") is shell
    exec("from IPython import get_ipython", shell.user_ns)
    assert Seeds(shell.user_ns).object_of("shell") is shell
    del shell.user_ns["get_ipython"]
    assert Seeds(shell.user_ns).object_of("shell") is shell


def test_another_namespaces_shell_is_not_this_ones(shell: Shell) -> None:
    with pytest.raises(LookupError):
        Seeds(vars(types.ModuleType("__main__"))).object_of("shell")
