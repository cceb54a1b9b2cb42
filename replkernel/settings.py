"""Every setting of replkernel: its environment variable, type, default, unit and one full sentence.

Settings are read once, from the environment, into frozen structs; traitlets at the edges (provisioner,
extension, CLI) write the same environment. Limits that nobody should have to change are here too, named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from replkernel.errors import SettingError
from replkernel.hosts.places import (
    ANY_HOSTS,
    data_place,
    given_address,
    hosts_are_chosen,
    named_hosts,
    own_host,
)
from replkernel.hosts.reach import PORT_FIRST, PORT_LAST, Reach
from replkernel.records import Limits

EXECUTOR_POLICIES = ("sticky", "rotate", "random")
DURABILITIES = ("async", "before_reply")
UNLEASED_GPUS = ("auto", "none", "all")
CUDA_DOOR = ("auto", "on", "off")
VRAM = ("shown", "limited")
VERSIONS = ("warn", "refuse")
UNSIGNED_CHECKPOINTS = ("once", "accept", "refuse")

REPLICAS_MAX = 9
INLINE_BYTES_LIMIT = 64 * 1024
"""No setting makes an inline payload larger: log entries stay below 256 KiB."""


BIND = "REPLKERNEL_BIND"
CONFIG_FILE = "jupyter_replkernel_config"
CONFIG_FAULT = "REPLKERNEL_CONFIG_FAULT"
"""Carries from the provisioner to the router which configuration file cannot be read, and, a line below, why."""


class Settings(msgspec.Struct, frozen=True):
    """The settings of one kernel, as its router reads them from the environment."""

    replicas: int = 3
    executor: Literal["sticky", "rotate", "random"] = "sticky"
    store_url: str = ""
    scheduler_url: str = ""
    durable: Literal["async", "before_reply"] = "async"
    fake_gpus: int = 0
    inline_bytes_max: int = 16 * 1024
    hosts: tuple[str, ...] = ()
    request: str = ""
    place_wait_s: float = 40.0
    orphan_grace_s: float = 30.0
    agent_idle_s: float = 300.0
    preload: tuple[str, ...] = ()
    zygote_idle_s: float = 2.0
    launcher_grace_s: float = 43_200.0
    hibernate_idle_s: float = 0.0
    standby_idle_s: float = 600.0
    bind: str = "127.0.0.1"
    advertise: str = ""
    ports: tuple[int, int] = (PORT_FIRST, PORT_LAST)
    agent_port: int = 0
    host_lost_s: float = 30.0
    unleased_gpus: Literal["auto", "none", "all"] = "auto"
    cuda_door: Literal["auto", "on", "off"] = "auto"
    gpu_linger_s: float = math.inf
    gpu_linger_gb: float = math.inf
    gpu_host_gb: float = math.inf
    vram: Literal["shown", "limited"] = "shown"
    versions: Literal["warn", "refuse"] = "warn"
    python: str = ""
    cache_gib: int = 20
    ship_percent: int = 10
    disk_percent: int = 80
    history_points: int = 100
    history_hours: int = 168
    history_mib: int = 256

    def limits(self) -> Limits:
        """Return how much of the past is kept."""
        return Limits(self.history_points, self.history_hours * 3600.0, self.history_mib * 2**20)

    def reach(self) -> Reach:
        """Return how other machines reach this one."""
        return Reach(self.bind, self.advertise or self.bind, *self.ports)

    def hides_gpus(self) -> bool:
        """Tell whether a cell without a lease sees no GPU where there is a scheduler."""
        return self.unleased_gpus == "none" or (self.unleased_gpus == "auto" and bool(self.scheduler_url))


class SettingDoc(msgspec.Struct, frozen=True):
    """One row of the settings table: variable, the struct's field, default as text, one sentence."""

    variable: str
    field: str
    default: str
    help: str


SETTING_DOCS = (
    SettingDoc(
        "REPLKERNEL_REPLICAS",
        "replicas",
        "3",
        "How many replicas a kernel has (1 to 9; 1 turns replication off and keeps durability).",
    ),
    SettingDoc(
        "REPLKERNEL_EXECUTOR",
        "executor",
        "sticky",
        "Who runs the next cell: `sticky` the last executor, `rotate` another replica each cell, `random` any.",
    ),
    SettingDoc(
        "REPLKERNEL_STORE",
        "store_url",
        "file:// under the Jupyter data directory",
        "Where large state lives: `file://`, `memory://`, `s3://`, `redis://` or `hdfs://` URL.",
    ),
    SettingDoc(
        "REPLKERNEL_SCHEDULER_URL",
        "scheduler_url",
        "none",
        "The scheduler's address; without one it is this user's own on this machine, started when a cell asks for GPUs.",
    ),
    SettingDoc(
        "REPLKERNEL_DURABLE",
        "durable",
        "async",
        "`async` replies at once and commits behind it; `before_reply` makes each reply wait for the commit.",
    ),
    SettingDoc(
        "REPLKERNEL_FAKE_GPUS",
        "fake_gpus",
        "0",
        "How many simulated GPUs an agent offers, to try a cluster on a machine without any.",
    ),
    SettingDoc(
        "REPLKERNEL_INLINE_BYTES_MAX",
        "inline_bytes_max",
        "16384",
        "Captured variables up to this many bytes travel in the log itself; larger ones go to the store (0 to 65536).",
    ),
    SettingDoc(
        "REPLKERNEL_HOSTS",
        "hosts",
        "this machine's name",
        "Comma-separated names of the agents that hold a kernel's replicas, in order of preference; `NAME=ADDRESS:PORT` where hosts share no directory; `auto`: the scheduler chooses.",
    ),
    SettingDoc(
        "REPLKERNEL_REQUEST",
        "request",
        "none",
        "What a new kernel asks for where its notebook's metadata do not say it, as `1 --vram 20 --cpu 4 --memory 32` (GPUs, their GiB, cores, GiB). It counts where the scheduler chooses hosts; it leases no cell anything.",
    ),
    SettingDoc(
        "REPLKERNEL_PLACE_WAIT_S",
        "place_wait_s",
        "40",
        "Seconds that a new kernel waits for hosts that are on their way to it, before it begins on those there are (0 to 86400). Clients may wait no longer than a minute for a kernel to answer.",
    ),
    SettingDoc(
        "REPLKERNEL_ORPHAN_GRACE_S",
        "orphan_grace_s",
        "30",
        "Seconds that replicas outlive a router that vanished without a word.",
    ),
    SettingDoc(
        "REPLKERNEL_AGENT_IDLE_S",
        "agent_idle_s",
        "300",
        "Seconds after which a host agent that a kernel started ends itself, once no kernel and no router needs it.",
    ),
    SettingDoc(
        "REPLKERNEL_PRELOAD",
        "preload",
        "none",
        "Comma-separated packages that new kernel processes share from the zygote (`numpy,pandas,torch`); absent ones are skipped.",
    ),
    SettingDoc(
        "REPLKERNEL_ZYGOTE_IDLE_S",
        "zygote_idle_s",
        "2",
        "Seconds without a start after which a zygote imports what later kernel processes need, for a second of CPU (0: never).",
    ),
    SettingDoc(
        "REPLKERNEL_LAUNCHER_GRACE_S",
        "launcher_grace_s",
        "43200",
        "Seconds that a kernel started through its provisioner lives on without any client once the program that started it is gone.",
    ),
    SettingDoc(
        "REPLKERNEL_HIBERNATE_IDLE_S",
        "hibernate_idle_s",
        "0",
        "Seconds without a cell or a word of any client after which a kernel hibernates by itself (0: never).",
    ),
    SettingDoc(
        "REPLKERNEL_STANDBY_IDLE_S",
        "standby_idle_s",
        "600",
        "Seconds without a cell or a word of any client after which a kernel's standbys end their processes, to save memory, until the next cell (0: never).",
    ),
    SettingDoc(
        "REPLKERNEL_BIND",
        "bind",
        "127.0.0.1",
        "The IP address of its own machine at which a host agent, its Raft members and kernel processes listen for other hosts.",
    ),
    SettingDoc(
        "REPLKERNEL_ADVERTISE",
        "advertise",
        "what `REPLKERNEL_BIND` says",
        "The IP address under which other hosts reach this one, where it differs (`REPLKERNEL_BIND=0.0.0.0` needs it).",
    ),
    SettingDoc(
        "REPLKERNEL_PORTS",
        "ports",
        "20000-32700",
        "The TCP ports that a host may listen at for others: one for its agent, six for each replica, one for each cell or job on several hosts.",
    ),
    SettingDoc(
        "REPLKERNEL_AGENT_PORT",
        "agent_port",
        "0",
        "The TCP port at which a host's agent listens for other machines (0: any of `REPLKERNEL_PORTS`).",
    ),
    SettingDoc(
        "REPLKERNEL_HOST_LOST_S",
        "host_lost_s",
        "30",
        "Seconds without its agent after which a host counts as lost, and a spare one of `REPLKERNEL_HOSTS` takes its place (1 to 86400).",
    ),
    SettingDoc(
        "REPLKERNEL_UNLEASED_GPUS",
        "unleased_gpus",
        "auto",
        "Which GPUs a cell without a lease sees where there is a scheduler: `none`, `all`, or `auto`. `auto` is none if `REPLKERNEL_SCHEDULER_URL` names a scheduler that others use too, all if it is your own.",
    ),
    SettingDoc(
        "REPLKERNEL_CUDA_DOOR",
        "cuda_door",
        "auto",
        "Whether a C library that is preloaded stops processes before CUDA starts, so that they wait for a lease: `on`, `off`, or `auto`: where the host has NVIDIA's driver. It is built at first use and needs a C compiler there.",
    ),
    SettingDoc(
        "REPLKERNEL_GPU_LINGER_S",
        "gpu_linger_s",
        "none",
        "Seconds after a cell's end for which its state stays on its GPUs though nobody wants them (0 to 86400; none: until somebody does).",
    ),
    SettingDoc(
        "REPLKERNEL_GPU_LINGER_GB",
        "gpu_linger_gb",
        "none",
        "A notebook with more GiB than this on its GPUs leaves them as soon as its cell ends (none: no limit).",
    ),
    SettingDoc(
        "REPLKERNEL_GPU_HOST_GB",
        "gpu_host_gb",
        "none",
        "How many GiB of host memory a notebook's state may take while it is off its GPUs; what is more stays there, and is told (none: no limit).",
    ),
    SettingDoc(
        "REPLKERNEL_VRAM",
        "vram",
        "shown",
        "Whether a cell that takes more GPU memory than it asked for (`--vram`) is told so (`shown`) or cannot take it (`limited`, with torch).",
    ),
    SettingDoc(
        "REPLKERNEL_VERSIONS",
        "versions",
        "warn",
        "What follows where a host has another Python or other packages than the kernel's first host: `warn` names them, `refuse` makes no replica there.",
    ),
    SettingDoc(
        "REPLKERNEL_PYTHON",
        "python",
        "the launcher's",
        "The Python of an agent's kernel processes, where it lies at another path than on the machine that starts the kernels.",
    ),
    SettingDoc(
        "REPLKERNEL_CACHE_GIB",
        "cache_gib",
        "20",
        "How many GiB of an agent's disk its cache of large state may take, for all of its replicas together (1 to 100000). What the store does not have yet is kept beside that.",
    ),
    SettingDoc(
        "REPLKERNEL_SHIP_PERCENT",
        "ship_percent",
        "10",
        "How many percent of the time capturing and storing large state may take while cells that change it follow each other (1 to 100). A crash loses the cells since the last capture.",
    ),
    SettingDoc(
        "REPLKERNEL_DISK_PERCENT",
        "disk_percent",
        "80",
        "How many percent of the room on its disk, with what it takes already, large state of all kernels may take in store and cache (1 to 100). Beyond that, newer versions of large variables wait in their process, and you are told.",
    ),
    SettingDoc(
        "REPLKERNEL_HISTORY_POINTS",
        "history_points",
        "100",
        "How many earlier points of a notebook are kept to go back to, beside those with names (0 to 10000; 0 keeps none).",
    ),
    SettingDoc(
        "REPLKERNEL_HISTORY_HOURS",
        "history_hours",
        "168",
        "For how many hours an earlier point of a notebook is kept (1 to 100000), unless it has a name.",
    ),
    SettingDoc(
        "REPLKERNEL_HISTORY_MIB",
        "history_mib",
        "256",
        "How many MiB the earlier points of a notebook may take beyond what its variables take now (0 to 1000000).",
    ),
)


def _whole(env: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SettingError(name, text, f"not a whole number from {low} to {high}", f"set {name}={default}")
    return value


def _gigabytes(env: Mapping[str, str], name: str) -> float:
    text = env.get(name, "").strip()
    try:
        value = float(text) if text else math.inf
    except ValueError:
        value = -1.0
    if not value >= 0.0:
        raise SettingError(name, text, "not a number of GiB", f"set {name}=20, or unset it")
    return value


def _choice(env: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = env.get(name, "").strip()
    if not text:
        return choices[0]
    if text not in choices:
        known = ", ".join(choices)
        raise SettingError(name, text, f"unknown; known are {known}", f"set {name}={choices[0]}")
    return text


def _seconds(env: Mapping[str, str], name: str, default: float, low: float = 0.0) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= 86_400:
        problem = f"not a number of seconds from {low:g} to 86400"
        fix = f"set {name}={default:g}" if math.isfinite(default) else f"set {name}=600, or unset it"
        raise SettingError(name, text, problem, fix)
    return value


def _address(env: Mapping[str, str], name: str, default: str, *, any_too: bool = False) -> str:
    text = env.get(name, "").strip()
    if not text:
        return default
    from ipaddress import ip_address

    try:
        if any_too or not ip_address(text).is_unspecified:
            return str(ip_address(text))
        problem = "every address of the machine, of which other hosts cannot know which to use"
        fix = "set REPLKERNEL_ADVERTISE to the one that they reach" if name == BIND else f"unset {name}"
    except ValueError:
        problem, fix = "not an IP address", f"set {name}={default or '127.0.0.1'}"
    raise SettingError(name, text, problem, fix)


def _ports(env: Mapping[str, str], name: str) -> tuple[int, int]:
    text = env.get(name, "").strip()
    if not text:
        return PORT_FIRST, PORT_LAST
    first, _, last = text.partition("-")
    if first.strip().isdecimal() and last.strip().isdecimal() and len(text) < 20:
        low, high = int(first), int(last)
        if 1024 <= low < high <= 65_535:
            return low, high
    problem = "not a range of ports from 1024 to 65535"
    raise SettingError(name, text, problem, f"set {name}={PORT_FIRST}-{PORT_LAST}")


def _names(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in env.get(name, "").split(",") if part.strip())


def _hosts(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return host names; a name that is missing between two commas is likely to be missed."""
    text = env.get(name, "").strip()
    entries = _names(env, name)
    if text and len(entries) != text.count(",") + 1:
        fix = f"set {name}={','.join(entries)}" if entries else f"unset {name}"
        raise SettingError(name, text, "a name is missing beside a comma", fix)
    if ANY_HOSTS in entries and not hosts_are_chosen(env):
        fix = f"set {name}={ANY_HOSTS}, or leave it out"
        raise SettingError(name, text, f"{ANY_HOSTS!r} among names: it stands alone", fix)
    for entry in entries:
        host, given, address = entry.partition("=")
        place, _, port = address.rpartition(":")
        fits = place.strip() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65_536
        if given and not (host.strip() and fits):
            problem = f"{entry!r} is not a name with an address"
            raise SettingError(name, text, problem, f"write {host.strip() or 'NAME'}=ADDRESS:PORT")
    return named_hosts(env)


def read_settings(env: Mapping[str, str]) -> Settings:
    """Read the settings from `env`.

    Raises SettingError that names the variable, what is wrong with its value, and a value that works; or
    the configuration file in which the provisioner found something wrong.
    """
    if env.get(CONFIG_FAULT):
        path, _, problem = env[CONFIG_FAULT].partition("\n")
        raise SettingError(CONFIG_FILE, path, problem, "correct the file")
    apart = [host for host in named_hosts(env) if given_address(host, env)]
    if apart and not env.get("REPLKERNEL_STORE", "").strip():
        problem = f"{apart[0]} is named with its address, so the hosts share no directory to keep state in"
        raise SettingError("REPLKERNEL_STORE", "", problem, "set one that all reach, as s3://BUCKET/PREFIX")
    return Settings(
        replicas=_whole(env, "REPLKERNEL_REPLICAS", 3, 1, REPLICAS_MAX),
        executor=_choice(env, "REPLKERNEL_EXECUTOR", EXECUTOR_POLICIES),  # type: ignore[arg-type]
        store_url=env.get("REPLKERNEL_STORE", "").strip() or f"file://{data_dir(env) / 'store'}",
        scheduler_url=env.get("REPLKERNEL_SCHEDULER_URL", "").strip(),
        durable=_choice(env, "REPLKERNEL_DURABLE", DURABILITIES),  # type: ignore[arg-type]
        fake_gpus=_whole(env, "REPLKERNEL_FAKE_GPUS", 0, 0, 64),
        inline_bytes_max=_whole(env, "REPLKERNEL_INLINE_BYTES_MAX", 16 * 1024, 0, INLINE_BYTES_LIMIT),
        hosts=_hosts(env, "REPLKERNEL_HOSTS"),
        request=_request(env),
        place_wait_s=_seconds(env, "REPLKERNEL_PLACE_WAIT_S", 40.0),
        orphan_grace_s=_seconds(env, "REPLKERNEL_ORPHAN_GRACE_S", 30.0),
        agent_idle_s=_seconds(env, "REPLKERNEL_AGENT_IDLE_S", 300.0),
        preload=_names(env, "REPLKERNEL_PRELOAD"),
        zygote_idle_s=_seconds(env, "REPLKERNEL_ZYGOTE_IDLE_S", 2.0),
        launcher_grace_s=_seconds(env, "REPLKERNEL_LAUNCHER_GRACE_S", 43_200.0),
        hibernate_idle_s=_seconds(env, "REPLKERNEL_HIBERNATE_IDLE_S", 0.0),
        standby_idle_s=_seconds(env, "REPLKERNEL_STANDBY_IDLE_S", 600.0),
        bind=_address(env, BIND, "127.0.0.1", any_too=bool(env.get("REPLKERNEL_ADVERTISE", "").strip())),
        advertise=_address(env, "REPLKERNEL_ADVERTISE", ""),
        ports=_ports(env, "REPLKERNEL_PORTS"),
        agent_port=_whole(env, "REPLKERNEL_AGENT_PORT", 0, 0, 65_535),
        host_lost_s=_seconds(env, "REPLKERNEL_HOST_LOST_S", 30.0, 1.0),
        unleased_gpus=_choice(env, "REPLKERNEL_UNLEASED_GPUS", UNLEASED_GPUS),  # type: ignore[arg-type]
        cuda_door=_choice(env, "REPLKERNEL_CUDA_DOOR", CUDA_DOOR),  # type: ignore[arg-type]
        gpu_linger_s=_seconds(env, "REPLKERNEL_GPU_LINGER_S", math.inf),
        gpu_linger_gb=_gigabytes(env, "REPLKERNEL_GPU_LINGER_GB"),
        gpu_host_gb=_gigabytes(env, "REPLKERNEL_GPU_HOST_GB"),
        vram=_choice(env, "REPLKERNEL_VRAM", VRAM),  # type: ignore[arg-type]
        versions=_choice(env, "REPLKERNEL_VERSIONS", VERSIONS),  # type: ignore[arg-type]
        python=env.get("REPLKERNEL_PYTHON", "").strip(),
        cache_gib=_whole(env, "REPLKERNEL_CACHE_GIB", 20, 1, 100_000),
        ship_percent=_whole(env, "REPLKERNEL_SHIP_PERCENT", 10, 1, 100),
        disk_percent=_whole(env, "REPLKERNEL_DISK_PERCENT", 80, 1, 100),
        history_points=_whole(env, "REPLKERNEL_HISTORY_POINTS", 100, 0, 10_000),
        history_hours=_whole(env, "REPLKERNEL_HISTORY_HOURS", 168, 1, 100_000),
        history_mib=_whole(env, "REPLKERNEL_HISTORY_MIB", 256, 0, 1_000_000),
    )


def _request(env: Mapping[str, str]) -> str:
    text = env.get("REPLKERNEL_REQUEST", "").strip()
    if not text:
        return ""
    from replkernel.leasing.wanted import check_request  # Only who sets it pays for the parser.

    return check_request(text)


def reads_unsealed(env: Mapping[str, str], *, sealed: bool) -> bool:
    """Tell whether a kernel's checkpoints are read that bear no seal; `sealed`: its record knows of others.

    Raises SettingError.
    """
    chosen = _choice(env, "REPLKERNEL_UNSIGNED_CHECKPOINTS", UNSIGNED_CHECKPOINTS)
    return chosen == "accept" or (chosen == "once" and not sealed)


def data_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of everything that lasts: store, journals, blob cache (``JUPYTER_DATA_DIR`` or the platform's)."""
    return Path(data_place(env))


def host_name(env: Mapping[str, str]) -> str:
    """Return the name of the agent that serves this machine when none is named."""
    return own_host(env)
