"""No test starts a server at a port of its own choice: another process may have that port."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OWN_MACHINES = ("e2e/hosts/", "kubernetes/")
"""Folders whose tests have machines of their own, where every port is free."""
PLAYED = ("unit/", "fuzz/", "golden/", "paper/", "e2e/state/sequences/", "integration/test_fixed_ports.py")
"""Where a port is a number that nobody listens at."""
OPTION = re.compile(r"--[\w.-]*port[= ]\d{4,}\b")
NUMBER = re.compile(r"port\W+\d{4}")
"""What a module that names a fixed port has at least: only those are parsed."""
LEAST = 1024


def test_no_test_starts_a_server_at_a_fixed_port() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if not str(path.relative_to(TESTS)).startswith(OWN_MACHINES + PLAYED)
        and NUMBER.search(text := path.read_text())
        for line, what in _fixed_ports(ast.parse(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "run(port=8888)",
        "serve(hub_port=8081)",
        "run('--port', '8797')",
        "run('--ServerApp.port=8888')",
        "run(['--port', 1024])",
    ],
)
def test_a_fixed_port_is_found_in_a_call_and_on_a_command_line(code: str) -> None:
    assert len([*_fixed_ports(ast.parse(code))]) == 1
    assert not [*_fixed_ports(ast.parse(re.sub(r"\d+", "0", code)))]


def _fixed_ports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what names a number as a port in a call or on a command line, with its line."""
    for node in ast.walk(module):
        if isinstance(node, ast.keyword) and (node.arg or "").endswith("port") and _is_port(node.value):
            yield node.value.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and OPTION.search(node.value):
            yield node.lineno, node.value
        elif isinstance(node, ast.Call | ast.List | ast.Tuple):
            words = node.args if isinstance(node, ast.Call) else node.elts
            for word, number in itertools.pairwise(words):
                option = isinstance(word, ast.Constant) and str(word.value)
                if option and option.startswith("--") and option.endswith("port") and _is_port(number):
                    yield word.lineno, f"{option} {ast.unparse(number)}"


def _is_port(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).isdecimal() and int(node.value) >= LEAST
