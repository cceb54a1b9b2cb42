"""Which Jupyter Server an agent is let to, and with whose token.

Law: without a token nothing is offered; it comes from the environment or from a file that nobody else can
read, never from the command line, and goes to no other machine in the clear.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from replkernel.hosts.own_file import read_own
from replkernel_server.errors import ServerError

URL, TOKEN, KERNELS = "REPLKERNEL_MCP_URL", "REPLKERNEL_MCP_TOKEN", "REPLKERNEL_MCP_KERNELS"
OTHER_TOKENS = ("JUPYTER_TOKEN", "JUPYTERHUB_API_TOKEN")
TOKEN_BYTES_MAX = 4096
KERNELS_DEFAULT, KERNELS_MAX = 16, 1000
NO_SDK = "The MCP server needs a package that is not installed ({name}): run `pip install 'replkernel[mcp]'`."


class NoAccess(ServerError):
    """There is no address, no token, or one that must not be used like that."""


class Access(msgspec.Struct, frozen=True):
    """The server's address, which ends with a slash, its token, and what may be started there."""

    url: str
    token: str
    kernel: str
    kernels_max: int


def find_access(env: Mapping[str, str], url: str, token_file: str, kernel: str) -> Access:
    """Return the access that options and environment give; raises NoAccess."""
    return Access(_address(url or env.get(URL, "")), _token(env, token_file), kernel, _kernels(env))


def _address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoAccess(
            f"No Jupyter Server is named: set {URL} to one like http://127.0.0.1:8888/ "
            "(`jupyter server list` shows yours)."
        )
    if parts.query or parts.username or parts.password:
        raise NoAccess(f"The address may only say where the server is: put its token into {TOKEN} alone.")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise NoAccess(f"The token would go to {parts.hostname} in the clear: use its https address.")
    path = parts.path if parts.path.endswith("/") else f"{parts.path}/"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(env: Mapping[str, str], token_file: str) -> str:
    if token_file:
        token = _from_file(Path(token_file))
    else:
        token = next((env[name] for name in (TOKEN, *OTHER_TOKENS) if env.get(name)), "").strip()
    if not token:
        raise NoAccess(
            f"There is no token, so nothing is offered: set {TOKEN} to one of Jupyter or the Hub, or name a "
            "file of mode 0600 with --token-file."
        )
    if not (token.isascii() and token.isprintable()):
        raise NoAccess(f"This is not a token: it has characters that no token in {TOKEN} can have.")
    return token


def _from_file(path: Path) -> str:
    try:
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            raise NoAccess(
                f"Others can read the token in {path}: run `chmod 600 {path}`, and make a new one."
            )
        return read_own(path, TOKEN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoAccess(f"The token in {path} cannot be read ({error}): name another file.") from error


def _kernels(env: Mapping[str, str]) -> int:
    text = env.get(KERNELS, "").strip() or str(KERNELS_DEFAULT)
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= KERNELS_MAX):
        raise NoAccess(
            f"REPLKERNEL_MCP_KERNELS={text[:40]!r} is not a number from 1 to {KERNELS_MAX}: set it to one."
        )
    return int(text)
