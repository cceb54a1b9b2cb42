#!/usr/bin/python3
"""A device hook for cgroup v2: opens and closes /dev/nvidiaN for the processes of one Unix user.

Run once at boot, as root, for the slices in which users' processes live; nothing there can open a GPU then:

    gpu_doors.py close /user.slice /system.slice/system-replkernel\\x2dagent.slice

After that it is a `REPLKERNEL_DEVICE_HOOK`: it reads one JSON document on standard input, and has the owner's
cgroups open the GPUs in `owner_gpus` and no others. Settings, in the environment of the agent:

    REPLKERNEL_HOOK_USER   the Unix user of an owner, where names differ: `jupyter-{owner}`
    REPLKERNEL_HOOK_LEFT   what follows where a process keeps a GPU open that is taken away: `tell` (default),
                           `refuse` (nobody else gets the GPU until that process ends), `end` (it is killed)
    REPLKERNEL_HOOK_PROC   where the driver lists its GPUs (/proc/driver/nvidia)

Laws: a cgroup that several users share is refused; so is one in which GPUs are open to everybody. It says in
one line on standard error what is wrong. Nothing but the standard library and Linux (4.15 or newer) is used.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pwd
import re
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NVIDIA_MAJOR, MINOR_MAX = 195, 253
"""The major number of /dev/nvidiaN; 254 and 255 are nvidia-modeset and nvidiactl, which are everybody's."""
CLOSED, OPENED = "gpus_closed", "gpus_{}"
"""The names of programs (15 letters at most): one that closes a slice, one that lets a user in."""
PROG_LOAD, PROG_ATTACH, PROG_DETACH, PROG_FD_BY_ID, OBJ_INFO, PROG_QUERY = 5, 8, 9, 13, 15, 16
CGROUP_DEVICE_PROGRAM, CGROUP_DEVICE = 15, 6
ALLOW_OVERRIDE, ALLOW_MULTI = 1, 2
PROGRAMS_MAX = 64
SYSCALL = {"x86_64": 321, "aarch64": 280}


class Refused(Exception):
    """What cannot be done, in one sentence."""


# -- the kernel's bpf() ---------------------------------------------------------------------------------


def bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Call bpf(); return its result and the attributes as the kernel leaves them. Raises OSError."""
    buffer = ctypes.create_string_buffer(attributes, 128)
    libc = ctypes.CDLL(None, use_errno=True)
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise Refused(f"this program does not know machines of the kind {platform.machine()}")
    result = libc.syscall(number, command, buffer, 128)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result, buffer.raw


def instruction(code: int, target: int = 0, source: int = 0, jump: int = 0, value: int = 0) -> bytes:
    """Return one instruction of a BPF program."""
    return struct.pack("<BBhi", code, target | source << 4, jump, value)


def program(minors: Iterable[int]) -> bytes:
    """Return a program that lets every device be opened but the GPUs that are not among `minors`."""
    load, jump_not, jump_above, jump_is, assign, leave = 0x61, 0x55, 0x25, 0x15, 0xB7, 0x95
    wanted = sorted(set(minors))
    to_allow = len(wanted) + 2
    code = [
        instruction(load, 2, 1, 0),  # what is done, and to which kind of device
        instruction(0x57, 2, value=0xFFFF),
        instruction(load, 3, 1, 4),  # the major number
        instruction(load, 4, 1, 8),  # the minor number
        instruction(jump_not, 2, jump=to_allow + 2, value=2),  # no character device
        instruction(jump_not, 3, jump=to_allow + 1, value=NVIDIA_MAJOR),
        instruction(jump_above, 4, jump=to_allow, value=MINOR_MAX),
        *(instruction(jump_is, 4, jump=to_allow - 1 - at, value=minor) for at, minor in enumerate(wanted)),
        instruction(assign, 0, value=0),
        instruction(leave),
        instruction(assign, 0, value=1),
        instruction(leave),
    ]
    return b"".join(code)


def loaded(minors: Iterable[int], name: str) -> int:
    """Load the program; return its descriptor."""
    code = program(minors)
    text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    places = ctypes.addressof(text), ctypes.addressof(licence)
    head = struct.pack("<IIQQIIQII", CGROUP_DEVICE_PROGRAM, len(code) // 8, *places, 0, 0, 0, 0, 0)
    return bpf(PROG_LOAD, head + struct.pack("16s", name[:15].encode()))[0]


@contextmanager
def directory(cgroup: Path) -> Iterator[int]:
    """Open a cgroup."""
    handle = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def attached(handle: int, name: str) -> list[int]:
    """Return descriptors of the programs of a name that are attached to a cgroup itself."""
    ids = (ctypes.c_uint32 * PROGRAMS_MAX)()
    question = struct.pack("<IIIIQI", handle, CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), PROGRAMS_MAX)
    _, said = bpf(PROG_QUERY, question)
    found = []
    for number in ids[: struct.unpack_from("<I", said, 24)[0]]:
        descriptor, _ = bpf(PROG_FD_BY_ID, struct.pack("<I", number))
        info = ctypes.create_string_buffer(80)
        bpf(OBJ_INFO, struct.pack("<IIQ", descriptor, 80, ctypes.addressof(info)))
        if info.raw[64:80].rstrip(b"\0") == name[:15].encode():
            found.append(descriptor)
        else:
            os.close(descriptor)
    return found


def put(cgroup: Path, minors: Iterable[int], name: str, flags: int) -> None:
    """Have a cgroup open these GPUs and no others; there is no moment at which it opens more."""
    with directory(cgroup) as handle:
        before = attached(handle, name)
        if flags == ALLOW_OVERRIDE and before:
            return
        fresh = loaded(minors, name)
        bpf(PROG_ATTACH, struct.pack("<IIII", handle, fresh, CGROUP_DEVICE, flags))
        for old in before:
            bpf(PROG_DETACH, struct.pack("<III", handle, old, CGROUP_DEVICE))
        for descriptor in (fresh, *before):
            os.close(descriptor)


def has(handle: int, name: str) -> bool:
    """Say whether a program of this name is attached to a cgroup itself."""
    found = attached(handle, name)
    for descriptor in found:
        os.close(descriptor)
    return bool(found)


def let_in(root: Path, uid: int) -> set[str]:
    """Return the cgroups in which a user was let in before, whether or not anybody is there now."""
    found = set()
    for place, _, _ in os.walk(root):
        with suppress(OSError), directory(Path(place)) as handle:
            if has(handle, OPENED.format(uid)):
                found.add("/" + str(Path(place).relative_to(root)))
    return found


# -- whose cgroups --------------------------------------------------------------------------------------


def root_of_cgroups() -> Path:
    """Return where cgroup v2 is mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split(" ")
        if kind == "cgroup2":
            return Path(place)
    raise Refused("cgroup v2 is not mounted on this machine")


def cgroup_of(pid: int) -> str | None:
    """Return the path of a process's cgroup; None where the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    return next((line[3:] for line in lines if line.startswith("0::")), None)


def outermost(path: str, uid: int) -> str:
    """Return the part of a cgroup's path that is the user's as a whole: he may move processes below it."""
    parts = path.strip("/").split("/")
    for end, part in enumerate(parts, 1):
        if part == f"user-{uid}.slice" or part.endswith((".service", ".scope")):
            return "/" + "/".join(parts[:end])
    return path


def check_alone(root: Path, path: str, uid: int) -> None:
    """Refuse a cgroup in which another user has processes, or in which GPUs are open to everybody."""
    for file in (root / path.strip("/")).rglob("cgroup.procs"):
        for pid in file.read_text().split():
            with suppress(OSError):
                owner = os.stat(f"/proc/{pid}").st_uid
                if owner not in (uid, 0):
                    raise Refused(
                        f"the cgroup {path} is shared with user {owner}: give each user one of his own"
                    )
    parts = path.strip("/").split("/")
    for end in range(len(parts)):
        above = root.joinpath(*parts[:end])
        with directory(above) as handle:
            closed = has(handle, CLOSED)
        if closed:
            return
    raise Refused(f"GPUs are open to everybody around {path}: run `gpu_doors.py close` for a slice above it")


def processes(uid: int) -> list[int]:
    """Return the processes of a user."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == uid:
                found.append(int(name))
    return found


# -- which devices --------------------------------------------------------------------------------------


def minor_of(gpu: str) -> int:
    """Return the number N of the /dev/nvidiaN of a GPU."""
    if gpu.startswith("MIG-"):
        raise Refused(f"{gpu} is a part of a GPU (MIG), which this program does not know")
    listed = Path(os.environ.get("REPLKERNEL_HOOK_PROC", "/proc/driver/nvidia")) / "gpus"
    for file in sorted(listed.glob("*/information")):
        text = file.read_text()
        uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if uuid and minor and uuid[1] == gpu:
            return int(minor[1])
    raise Refused(f"the driver lists no GPU {gpu} in {listed}")


def holders(pids: Iterable[int], minors: Iterable[int]) -> list[tuple[int, int]]:
    """Return which of these processes keep which of these GPUs open."""
    devices = {os.makedev(NVIDIA_MAJOR, minor): minor for minor in minors}
    found = []
    for pid in pids:
        with suppress(OSError):
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    minor = devices.get(os.stat(f"/proc/{pid}/fd/{entry}").st_rdev)
                    if minor is not None:
                        found.append((pid, minor))
    return sorted(set(found))


# -- what is asked --------------------------------------------------------------------------------------


def close(paths: list[str]) -> None:
    """Close all GPUs to whatever runs below these cgroups and has not been let in."""
    root = root_of_cgroups()
    for path in paths:
        if not (root / path.strip("/")).is_dir():
            raise Refused(f"there is no cgroup {path} in {root}: start its slice or its unit first")
        put(root / path.strip("/"), (), CLOSED, ALLOW_OVERRIDE)


def request(text: bytes) -> dict[str, object]:
    """Return what the agent asks."""
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("there is no request on standard input: it is no JSON document") from None
    why = why_no_request(asked)
    if why:
        raise Refused(f"there is no request on standard input: {why}")
    return dict(asked)


def why_no_request(asked: object) -> str:
    """Return what is wrong with a request, or nothing."""
    if not isinstance(asked, dict):
        return "it is no JSON object"
    if asked.get("action") not in ("bind", "release"):
        return "`action` is neither bind nor release"
    if not isinstance(asked.get("owner"), str) or not asked["owner"]:
        return "`owner` is no name"
    if not isinstance(asked.get("uid"), (int, type(None))):
        return "`uid` is no number"
    for name, kind, what in (("pids", int, "numbers"), ("gpus", str, "names"), ("owner_gpus", str, "names")):
        values = asked.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            return f"`{name}` is no list of {what}"
    return ""


def serve(asked: dict[str, object]) -> None:
    """Do what the agent asks."""
    uid, pids = whose(asked)
    root = root_of_cgroups()
    minors = [minor_of(str(gpu)) for gpu in list_of(asked, "owner_gpus")]
    taken = [minor_of(str(gpu)) for gpu in list_of(asked, "gpus")] if asked["action"] == "release" else []
    cgroups = {outermost(path, uid) for pid in pids if (path := cgroup_of(pid)) is not None}
    if not cgroups and asked["action"] == "bind":
        raise Refused(f"{asked['owner']} has no process on this host")
    for path in sorted(cgroups):
        if asked["action"] == "bind":
            check_alone(root, path, uid)
    for path in sorted(cgroups | let_in(root, uid)):
        put(root / path.strip("/"), minors, OPENED.format(uid), ALLOW_MULTI)
    left(holders(processes(uid), taken))


def whose(asked: dict[str, object]) -> tuple[int, list[int]]:
    """Return the owner's Unix user, and his processes."""
    name = os.environ.get("REPLKERNEL_HOOK_USER", "{owner}").replace("{owner}", str(asked["owner"]))
    try:
        uid = int(str(asked["uid"])) if name == asked["owner"] and asked["uid"] else pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        raise Refused(f"there is no Unix user {name}") from None
    if uid == 0:
        raise Refused("root can open every device: nothing is closed to it")
    given = [pid for pid in map(int, map(str, list_of(asked, "pids"))) if is_of(pid, uid)]
    return uid, given or processes(uid)


def is_of(pid: int, uid: int) -> bool:
    """Say whether a process is a user's."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == uid
    except OSError:
        return False


def list_of(asked: dict[str, object], name: str) -> list[object]:
    """Return a list of the request."""
    value = asked.get(name)
    return value if isinstance(value, list) else []


def left(found: list[tuple[int, int]]) -> None:
    """Deal with processes that keep a GPU open which is taken away: closing shuts nobody out who is in."""
    if not found:
        return
    what = os.environ.get("REPLKERNEL_HOOK_LEFT", "tell")
    said = ", ".join(f"process {pid} keeps /dev/nvidia{minor} open" for pid, minor in found)
    if what == "end":
        for pid, _ in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said += ", and was ended"
    if what == "refuse":
        raise Refused(said)
    print(said, file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Close slices at boot, or serve one request."""
    try:
        if arguments[:1] == ["close"] and arguments[1:]:
            close(arguments[1:])
        elif arguments:
            raise Refused("write `gpu_doors.py close CGROUP…`, or give a request on standard input")
        else:
            serve(request(sys.stdin.buffer.read()))
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    except OSError as error:
        what = error.filename or "the kernel's device programs"
        print(f"{what} cannot be used: {error.strerror or error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"what the kernel or the driver tells cannot be read: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
