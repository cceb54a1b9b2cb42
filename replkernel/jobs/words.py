"""What agent, supervisor and program tell each other of one job, and in which files of its directory.

Law: each file is replaced whole by one writer alone, is its user's (0600) and small; what is read is checked.
A FIFO wakes whoever waits, and says nothing: the files are the truth, so a lost wake-up costs a moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from replkernel.agent.io.start import is_locked
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.hosts.hosts_secret import read_secret
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.settings import data_dir

FILE_BYTES_MAX = 256 * 1024
COMMAND_BYTES_MAX = 64 * 1024
ARGUMENTS_MAX = 256
LOG_BYTES_MAX = 4 * 1024 * 1024
"""A log is put aside (as `job.log.1`) when it has grown beyond this."""
KEY_BYTES_MAX = 4096

JOBS = "replkernel-jobs"
PLACE, ORDER, RECORD, LOCK = "REPLKERNEL_JOB_DIR", "order.json", "record.json", "supervisor.lock"
LOG, WAKE, GONE = "job.log", "wake", "gone"
PROGRESS, ASKED, SAVED, LISTENS = "progress.json", "asked", "saved", "listens"
MEMORY, MEETING, MET = "memory", "meeting.json", "met"
JOB_AT = "REPLKERNEL_JOB_AT"
"""In the environment of what runs on a host that is not a job's first: which host, and which job."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]

State: TypeAlias = Literal["starting", "running", "stopping", "stopped", "done", "failed"]
FINAL: frozenset[State] = frozenset(("stopped", "done", "failed"))
Shape = TypeVar("Shape")


class OnHost(msgspec.Struct, frozen=True):
    """GPUs on another host of a job."""

    host: str
    gpus: tuple[str, ...]


class Order(msgspec.Struct, frozen=True):
    """What is wanted of a job, by its agent: `runs` with these GPUs, or not any more.

    `number` grows with each order. Not `runs`: its processes stop within `within_s`, saved first if `saves`.
    `cpus`: it has no GPUs but so many cores, and `memory_gb` GiB at most. `others`: it runs there, too.
    """

    number: int
    job: str
    attempt: int
    gpus: tuple[str, ...]
    command: tuple[str, ...]
    directory: str
    runs: bool = True
    within_s: float = 60.0
    saves: bool = True
    cpus: int = 0
    memory_gb: float = 0.0
    others: tuple[OnHost, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """How a job stands, by its supervisor, as of the order `number`; `log_base`: bytes of the log put aside.

    `pid` and `started` name the first process of the program (0: there is none), on the machine `boot`.
    It has stopped before it began for want of the host `without`. `elsewhere`: it has failed too often here.
    """

    number: int = 0
    attempt: int = 0
    state: State = "starting"
    said: str = ""
    pid: int = 0
    started: int = 0
    log_base: int = 0
    boot: str = ""
    without: str = ""
    elsewhere: bool = False


class Meeting(msgspec.Struct, frozen=True):
    """Where the launchers of a job's other hosts find its supervisor; `number` is one of chance.

    `name` is what they call it, and never comes twice.
    """

    number: int
    attempt: int
    name: str
    endpoint: str
    seal: str


class Progress(msgspec.Struct, frozen=True):
    """What the program said last."""

    epoch: _Finite
    loss: _Finite | None = None


class JobsUnsealed(ReplkernelError):
    """A job's command bears no seal of this user."""


def is_job_name(name: str) -> bool:
    """Tell whether `name` can name a job: it becomes a directory, beside the agent's FIFO."""
    return _NAME.match(name) is not None and name != WAKE


def checkpoint_of(directory: str, job: str) -> Path:
    """Return where a job keeps its checkpoint: below its working directory, which all of its hosts see."""
    return jobs_dir(directory) / job / "checkpoint"


def jobs_dir(directory: str) -> Path:
    """Return where this user's jobs keep their files in a directory, apart from other users'."""
    usual, own = Path(directory, JOBS), Path(directory, f"{JOBS}-{os.geteuid()}")
    if _is_own(own) or (os.path.lexists(usual) and not _is_own(usual)):
        return own
    return usual


def make_jobs_dir(directory: str) -> Path:
    """Return it once it is there; raises OSError, also where others could put something in its place."""
    for _ in range(2):  # Another user may make his just now.
        place = jobs_dir(directory)
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        if _is_own(place):
            return place
    raise PermissionError(
        f"{place} belongs to another user, or others can write to it: remove it, or run the job in a "
        "directory of your own."
    )


def _is_own(place: Path) -> bool:
    """Tell whether a directory is this user's; its group is not looked at, as in `read_own`."""
    try:
        status = place.lstat()
    except OSError:
        return False
    mode = status.st_mode
    return status.st_uid == os.geteuid() and stat.S_ISDIR(mode) and not mode & stat.S_IWOTH


def key_of(env: Mapping[str, str]) -> bytes:
    """Return the key by which this user seals commands: the hosts' secret, else the data directory's."""
    shared = read_secret(env)
    if shared is not None:
        return shared
    place = data_dir(env) / "jobs.key"
    with contextlib.suppress(FileNotFoundError):
        return read_own(place, KEY_BYTES_MAX)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = place.with_name(f".jobs.key.{secrets.token_hex(4)}")
    replace_own(fresh, secrets.token_hex(32).encode(), lasting=True)
    try:
        os.link(fresh, place)  # Of several that begin at once, one key wins.
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return read_own(place, KEY_BYTES_MAX)


def seal_of(key: bytes, job: str, command: tuple[str, ...], directory: str) -> str:
    """Return what shows that the key's owner wants this command run as this job."""
    return hmac.new(key, msgspec.msgpack.encode(("job", job, command, directory)), hashlib.sha256).hexdigest()


def check_seal(key: bytes, seal: str, job: str, command: tuple[str, ...], directory: str) -> None:
    """Raise JobsUnsealed unless the seal is the key's."""
    if not hmac.compare_digest(seal_of(key, job, command, directory).encode(), seal.encode()):
        raise JobsUnsealed(
            f"Job {job} bears no seal of this user, so it is not run: submit it where the data directory, or "
            "the hosts' secret, is this host's."
        )


class JobPlace:
    """The directory of one job on one host."""

    def __init__(self, directory: Path) -> None:
        """Name it; nothing is made."""
        self.directory = directory

    def make(self) -> None:
        """Make it with its FIFO, for this user alone."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # Some file systems have none.
            os.mkfifo(self.directory / WAKE, 0o600)

    def order(self) -> Order | None:
        """Return what is wanted; None: nothing was ever."""
        return self._read(ORDER, Order)

    def record(self) -> Record:
        """Return how it stands."""
        return self._read(RECORD, Record) or Record()

    def progress(self) -> Progress | None:
        """Return what the program said last."""
        return self._read(PROGRESS, Progress)

    def meeting(self) -> Meeting | None:
        """Return where the job's other hosts are to come to; None: all are there, or it has none."""
        return self._read(MEETING, Meeting)

    def write(self, document: Order | Record | Progress | Meeting) -> None:
        """Replace a document; raises OSError."""
        name = {Order: ORDER, Record: RECORD, Progress: PROGRESS, Meeting: MEETING}[type(document)]
        replace_own(self.directory / name, msgspec.json.encode(document), lasting=name in (ORDER, RECORD))

    def number(self, name: str) -> int:
        """Return the number in one of the small files, 0 where there is none."""
        try:
            text = read_own(self.directory / name, 32).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return 0
        return int(text) if text.isdecimal() else 0

    def set_number(self, name: str, number: int) -> None:
        """Write one of the small files."""
        replace_own(self.directory / name, str(number).encode())

    def is_gone(self) -> bool:
        """Tell whether the job is over for good."""
        return (self.directory / GONE).exists()

    def is_supervised(self) -> bool:
        """Tell whether a supervisor lives."""
        return is_locked(str(self.directory / LOCK))

    def wake(self) -> None:
        """Wake whoever waits at this directory's FIFO."""
        wake(self.directory / WAKE)

    def log_from(self, at: int, most: int) -> tuple[int, bytes]:
        """Return bytes of the log from position `at` on, and where they begin: whole characters only."""
        base = self.record().log_base
        begin = max(at, base)
        try:
            with (self.directory / LOG).open("rb") as file:
                file.seek(begin - base)
                data = file.read(most)
        except OSError:
            return begin, b""
        cut = _cut_before(data) if begin > at else 0
        return begin + cut, data[cut : _whole(data)]

    def _read(self, name: str, shape: type[Shape]) -> Shape | None:
        try:
            return msgspec.json.decode(read_own(self.directory / name, FILE_BYTES_MAX), type=shape)
        except (OSError, *UNREADABLE):
            return None


def _cut_before(data: bytes) -> int:
    """Return how many bytes belong to a character of UTF-8 that began before `data`."""
    return next((place for place, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0)


def _whole(data: bytes) -> int:
    """Return where the last character of UTF-8 begins that is not whole; the length if all are."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if length > back else len(data)
    return len(data)


def open_fifo(fifo: Path) -> int | None:
    """Return a descriptor that can be read when somebody wakes us; None: this file system has no FIFOs."""
    with contextlib.suppress(OSError):
        handle = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISFIFO(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
    return None


def wake(fifo: Path) -> None:
    """Wake whoever reads a FIFO; nobody does: nothing happens."""
    with contextlib.suppress(OSError):
        handle = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(handle, b".")
        finally:
            os.close(handle)
