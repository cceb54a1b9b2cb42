"""No test starts a server at a port of its own choice: another process may have that port."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OWN_MACHINES = ("e2e/hosts/", "e2e/faults/test_hosts.py", "kubernetes/")
"""Where tests have machines, or networks, of their own, in which every port is free."""
PLAYED = (
    *("unit/", "fuzz/", "golden/", "paper/", "e2e/state/sequences/"),
    *("integration/test_fixed_ports.py", "integration/test_kernel_process_state.py"),
)
"""Where a port is a number that nobody listens at."""
OPTION = re.compile(r"--[\w.-]*port[= ]\d{4,}\b")
ADDRESS = re.compile(r"tcp://.*:\d{4,5}$")
LISTENS = frozenset(
    {"bind", "listen", "serve", "serve_forever", "create_server", "start_server", "bind_sockets"}
)
"""Functions, of whatever object, to which a number or an address says where to listen."""
NUMBER = re.compile(r"\d{4}|\d_\d{3}")
NAME = re.compile(r"[pP][oO][rR][tT]\w*\W+\d|port=[A-Z]|\b(?:" + "|".join(LISTENS) + r")\(")
"""What a module that names a fixed port has at least, both of them: only those are parsed."""
LEAST, MOST = 1024, 65535


def test_no_test_starts_a_server_at_a_fixed_port() -> None:
    found = [
        f"tests/{path.relative_to(TESTS)}:{line}: {what}"
        for path in sorted(TESTS.rglob("*.py"))
        if not str(path.relative_to(TESTS)).startswith(OWN_MACHINES + PLAYED)
        and NUMBER.search(text := path.read_text())
        and NAME.search(text)
        for line, what in _fixed_ports(ast.parse(text))
    ]
    assert not found, "take port 0, or free_port of tests/support/ports.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "run(port=8888)",
        "serve(hub_port=8081)",
        "run('--port', '8797')",
        "run('--ServerApp.port=8888')",
        "run(['--port', 1024])",
        "PORT = 38765; run(port=PORT)",
        "AT: int = 38_765; run(port=AT)",
        "listener.bind(('127.0.0.1', 38761))",
        "listener.bind(('127.0.0.1', AT)); AT = 38761",
        "publisher.bind('tcp://127.0.0.1:38763')",
        "publisher.bind(f'tcp://{host}:38763')",
        "serve(38764)",
        "await asyncio.start_server(answer, '127.0.0.1', 38764)",
        "socket.create_server(address=('', 38764))",
        "run({'port': 38765})",
        "run(env={'HUB_PORT': '38765'})",
    ],
)
def test_a_fixed_port_is_found_in_a_call_in_settings_and_on_a_command_line(code: str) -> None:
    assert len([*_fixed_ports(ast.parse(code))]) == 1
    assert NUMBER.search(code)
    assert NAME.search(code)
    assert not [*_fixed_ports(ast.parse(re.sub(r"\b\d{4,}|\d_\d{3}", "0", code)))]


@pytest.mark.parametrize(
    "code",
    [
        "listener.listen(128)",
        "client.connect(('127.0.0.1', 38761))",
        "publisher.bind(f'tcp://{host}:{port}')",
        "publisher.bind('ipc:///tmp/agent-38761')",
        "SIZE = 38761; run(port=port, size=SIZE)",
        "listener.bind(('127.0.0.1', port))",
    ],
)
def test_other_numbers_are_no_ports(code: str) -> None:
    assert not [*_fixed_ports(ast.parse(code))]


def _fixed_ports(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what names a number as a port in a call, in settings or on a command line, with its line."""
    nodes = [*ast.walk(module)]
    named = _numbers_by_name(nodes)
    for node in nodes:
        if (
            isinstance(node, ast.keyword)
            and (node.arg or "").endswith("port")
            and _is_port(node.value, named)
        ):
            yield node.value.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and OPTION.search(node.value):
            yield node.lineno, node.value
        elif isinstance(node, ast.Call) and _name(node.func) in LISTENS and _listens_at_a_port(node, named):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call | ast.List | ast.Tuple):
            words = node.args if isinstance(node, ast.Call) else node.elts
            for word, number in itertools.pairwise(words):
                option = isinstance(word, ast.Constant) and str(word.value)
                if option and option.startswith("--") and option.endswith("port") and _is_port(number, named):
                    yield word.lineno, f"{option} {ast.unparse(number)}"
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and _text(key).lower().endswith("port") and _is_port(value, named):
                    yield key.lineno, f"{ast.unparse(key)}: {ast.unparse(value)}"


def _numbers_by_name(nodes: list[ast.AST]) -> dict[str, ast.Constant]:
    """Return the constants that are assigned to names, anywhere in a module."""
    found: dict[str, ast.Constant] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update({target.id: node.value for target in targets if isinstance(target, ast.Name)})
    return found


def _listens_at_a_port(call: ast.Call, named: dict[str, ast.Constant]) -> bool:
    words = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "address")]
    words += [part for word in words if isinstance(word, ast.Tuple) for part in word.elts]
    return any(_is_port(word, named) or ADDRESS.match(_text(word)) for word in words)


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _text(word: ast.expr) -> str:
    """Return a string as far as it is written out; what is put into it, as a brace."""
    if isinstance(word, ast.JoinedStr):
        return "".join(_text(part) for part in word.values)
    return word.value if isinstance(word, ast.Constant) and isinstance(word.value, str) else "{}"


def _is_port(node: ast.expr, named: dict[str, ast.Constant]) -> bool:
    if isinstance(node, ast.Name):
        node = named.get(node.id, node)
    return (
        isinstance(node, ast.Constant)
        and str(node.value).isdecimal()
        and LEAST <= int(str(node.value)) <= MOST
    )
