"""`replkernel mcp` offers nothing where something is missing, and says what."""

from __future__ import annotations

import sys

import pytest
from replkernel_server.mcp.__main__ import build_parser, main
from replkernel_server.mcp.access import TOKEN, URL


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (URL, TOKEN, "JUPYTER_TOKEN", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_token_nothing_is_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "http://127.0.0.1:1/"]) == 1
    assert capsys.readouterr().err.startswith("There is no token, so nothing is offered")


def test_a_missing_sdk_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    monkeypatch.delitem(sys.modules, "replkernel_server.mcp.tools", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["--url", "http://127.0.0.1:1/"]) == 1
    said = capsys.readouterr()
    assert "`pip install 'replkernel[mcp]'`" in said.err and not said.out


def test_its_help_teaches_and_takes_no_token() -> None:
    told = build_parser().format_help()
    assert all(word in told for word in (URL, TOKEN, "mcpServers", "--check"))
    with pytest.raises(SystemExit):
        build_parser().parse_args(["--token", "secret"])
