"""Where this user's things lie, as plain strings: known before anything is imported that takes a millisecond.

Law: the standard library's lightest modules only; `settings` offers the same as paths.
"""

from __future__ import annotations

import os

FAR = "curve://"
"""How the address of a listener on another machine begins."""

ANY_HOSTS = "auto"
"""What REPLKERNEL_HOSTS says where the scheduler is to choose the hosts."""

TYPE_CHECKING = False  # As typing's own, whose import takes as long as all that is done here.
if TYPE_CHECKING:
    from collections.abc import Mapping


def data_place(env: Mapping[str, str]) -> str:
    """Return the directory of everything that lasts: store, journals, blob cache."""
    base = env.get("JUPYTER_DATA_DIR")
    if base:
        return os.path.join(base, "replkernel")
    home = env.get("HOME") or os.path.expanduser("~")
    xdg = env.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    return os.path.join(xdg, "jupyter", "replkernel")


def own_host(env: Mapping[str, str]) -> str:
    """Return the name of the agent that serves this machine when none is named."""
    return env.get("REPLKERNEL_HOST_NAME") or os.uname().nodename.split(".")[0] or "localhost"


def named_hosts(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that REPLKERNEL_HOSTS names."""
    return tuple(name for name, _ in _host_entries(env))


def hosts_are_chosen(env: Mapping[str, str]) -> bool:
    """Tell whether REPLKERNEL_HOSTS leaves it to the scheduler on which hosts a kernel begins."""
    return env.get("REPLKERNEL_HOSTS", "").strip() == ANY_HOSTS


def given_address(host: str, env: Mapping[str, str]) -> str:
    """Return `ADDRESS:PORT` of a host's agent where REPLKERNEL_HOSTS gives it (`gpu1=10.0.0.5:7700`)."""
    return dict(_host_entries(env)).get(host, "")


def _host_entries(env: Mapping[str, str]) -> list[tuple[str, str]]:
    if hosts_are_chosen(env):
        return []
    parts = (part.strip().partition("=") for part in env.get("REPLKERNEL_HOSTS", "").split(","))
    return [(name.strip(), address.strip()) for name, _, address in parts if name.strip()]


def this_machine() -> str:
    """Return a mark that tells machines apart, containers with processes of their own too."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{boot.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return os.uname().nodename


def agent_place(host: str, env: Mapping[str, str]) -> str:
    """Return the directory of everything that the agent of `host` keeps on disk."""
    return os.path.join(data_place(env), "agents", host)
