"""An agent is let to one server, by a token that nobody else sees; without one nothing is offered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from replkernel_server.mcp.access import KERNELS, TOKEN, URL, NoAccess, find_access

HOME = "http://127.0.0.1:8888"
WITH_TOKEN = {URL: HOME, TOKEN: "secret"}


def test_address_and_token_come_from_the_environment() -> None:
    access = find_access(WITH_TOKEN, "", "", "replkernel")
    assert (access.url, access.token, access.kernels_max) == (f"{HOME}/", "secret", 16)
    assert (
        find_access(WITH_TOKEN, "https://hub.example/user/me", "", "x").url == "https://hub.example/user/me/"
    )
    hub = {URL: HOME, "JUPYTERHUB_API_TOKEN": "hubs", KERNELS: "3"}
    assert find_access(hub, "", "", "x").token == "hubs"
    assert find_access(hub, "", "", "x").kernels_max == 3


@pytest.mark.parametrize(
    ("env", "url", "why"),
    [
        ({URL: HOME}, "", "There is no token, so nothing is offered"),
        ({TOKEN: "secret"}, "", "No Jupyter Server is named"),
        (WITH_TOKEN, "file:///etc", "No Jupyter Server is named"),
        (WITH_TOKEN, f"{HOME}/?token=secret", "may only say where the server is"),
        (WITH_TOKEN, "http://me:secret@127.0.0.1/", "may only say where the server is"),
        (WITH_TOKEN, "http://example.org/", "in the clear"),
        ({URL: HOME, TOKEN: "a\nb: c"}, "", "This is not a token"),
        ({**WITH_TOKEN, KERNELS: "many"}, "", "is not a number from 1"),
    ],
)
def test_an_incomplete_or_unsafe_access_is_refused(env: dict[str, str], url: str, why: str) -> None:
    with pytest.raises(NoAccess, match=re.escape(why)) as refused:
        find_access(env, url, "", "replkernel")
    assert "secret" not in str(refused.value)


def test_a_token_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    file.chmod(0o600)
    assert find_access({URL: HOME}, "", str(file), "x").token == "secret"
    file.chmod(0o640)
    with pytest.raises(NoAccess, match="Others can read the token"):
        find_access({URL: HOME}, "", str(file), "x")
    with pytest.raises(NoAccess, match="cannot be read"):
        find_access(WITH_TOKEN, "", str(tmp_path / "none"), "x")
