"""Which scheduler this user's agents and routers talk to, and with which token.

Order: the setting REPLKERNEL_SCHEDULER_URL, else the scheduler of this user that runs here and says so in
`scheduler/address.json`, else none. Law: a token goes to nobody but the scheduler that it is for, the Hub's
only to a service of the Hub; a file whose process is gone, or that others could have written, is no answer,
nor is the address of this user's own scheduler once another user listens there; what no header can carry is
no token (whoever tries to send it would show it).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from replkernel.agent.io.death import start_time
from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.hosts.socket_owner import NOBODY, listener_of
from replkernel.settings import data_dir

log = logging.getLogger(__name__)

URL = "REPLKERNEL_SCHEDULER_URL"
DEFAULT_URL = "http://127.0.0.1:8797"
"""Where `replkernel scheduler` serves unless told otherwise."""
TOKEN = "REPLKERNEL_SCHEDULER_TOKEN"  # noqa: S105 - the variable's name
HUB_TOKEN = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - likewise
HUB_SERVICES = "/services/"
"""A Hub's proxy serves each of its services below this path, behind the Hub's own prefix."""
FILE_BYTES_MAX = 4096


class Address(msgspec.Struct, frozen=True):
    """Where a scheduler serves, and the process that does: a pid with its start time is never used again.

    One that has ended leaves its URL behind, without a process.
    """

    url: str
    token: str = ""
    pid: int = 0
    started: int = 0


def scheduler_place(env: Mapping[str, str]) -> Path:
    """Return the directory of the user's own scheduler: its token, its journal, its address."""
    return data_dir(env) / "scheduler"


def find_scheduler(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the scheduler's URL and the token to present to it; two empty strings when there is none.

    A URL with an empty token means that one is set and no token for it is known: the scheduler will refuse.
    """
    url, token = _found(env)
    return url, token if token.isascii() and token.isprintable() and " " not in token else ""


def token_for(url: str, env: Mapping[str, str]) -> str:
    """Return the token that a scheduler at `url` is presented with; empty if none is known."""
    found, token = find_scheduler(env)
    if found == url.rstrip("/"):
        return token
    return "" if stranger_at(url, env) else find_scheduler({**env, URL: url})[1]


def stranger_at(url: str, env: Mapping[str, str]) -> str:
    """Return in one sentence which other user listens where this user's own scheduler was; or nothing.

    Only root may, besides. Where a URL is set, who set it answers for it: a Hub's proxy is another user's.
    """
    if env.get(URL, "").strip():
        return ""
    try:
        parts = urlsplit(url)
        ip, port = parts.hostname or "", parts.port or 0
        uid = listener_of(ip, port) if ip_address(ip).is_loopback else None
    except ValueError:
        return ""
    if uid in (None, NOBODY, 0, os.geteuid()):
        return ""
    return (
        f"Another user of this machine (uid {uid}) listens at {url}, where this user's own scheduler was: "
        "it gets no token. Start `replkernel scheduler` at another port."
    )


def _found(env: Mapping[str, str]) -> tuple[str, str]:
    here = read_address(env)
    url = env.get(URL, "").strip().rstrip("/")
    if not url:
        if here is None:
            return "", ""
        if stranger := stranger_at(here.url, env):
            log.warning("%s", stranger)
            return "", ""
        return here.url, here.token
    if token := env.get(TOKEN, "").strip():
        return url, token
    if is_hub_service(url):
        return url, _read(_hub_file(env)).token or env.get(HUB_TOKEN, "").strip()
    if here is not None and here.url == url:
        return url, here.token
    try:
        return url, read_own(scheduler_place(env) / "token", FILE_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError):
        return url, ""


def is_hub_service(url: str) -> bool:
    """Return whether the URL is that of a service behind a Hub's proxy."""
    try:
        return HUB_SERVICES in f"{urlsplit(url).path}/"
    except ValueError:
        return False


def read_address(env: Mapping[str, str]) -> Address | None:
    """Return where this user's own scheduler serves now, None if none does."""
    found = _read(_file(env))
    alive = found.pid > 1 and found.started > 0 and start_time(found.pid) == found.started
    return found if alive and found.url else None


def last_url(env: Mapping[str, str]) -> str:
    """Return where this user's scheduler serves or last did: the next one is looked for there; or nothing."""
    return _read(_file(env)).url


def tell_address(env: Mapping[str, str], url: str, token: str) -> None:
    """Say that this process serves at `url` from now on, to this user alone; raises OSError."""
    _write(_file(env), Address(url.rstrip("/"), token, os.getpid(), start_time(os.getpid())))


def forget_address(env: Mapping[str, str]) -> None:
    """Say that this process does not serve any more; what another one has said stays."""
    found = read_address(env)
    if found is not None and found.pid == os.getpid():
        with contextlib.suppress(OSError):
            _write(_file(env), Address(found.url))


def tell_hub_token(env: Mapping[str, str]) -> None:
    """Let the kernels of this user's server know its token; raises OSError.

    They outlive the server, and the Hub gives the next one another token. Each named server has its own.
    """
    token = env.get(HUB_TOKEN, "").strip()
    url = env.get(URL, "").strip().rstrip("/")
    if token and is_hub_service(url):
        _write(_hub_file(env), Address(url, token))


def _read(file: Path) -> Address:
    try:
        return msgspec.json.decode(read_own(file, FILE_BYTES_MAX), type=Address)
    except (OSError, *UNREADABLE):
        return Address("")


def _write(file: Path, address: Address) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_own(file, msgspec.json.encode(address))


def _hub_file(env: Mapping[str, str]) -> Path:
    """Return where the token of the user's server lies that this process belongs to."""
    server = f"{env.get(URL, '').strip().rstrip('/')} {env.get('JUPYTERHUB_SERVICE_PREFIX', '')}"
    return scheduler_place(env) / f"hub-{sha256(server.encode()).hexdigest()[:16]}.json"


def _file(env: Mapping[str, str]) -> Path:
    return scheduler_place(env) / "address.json"
