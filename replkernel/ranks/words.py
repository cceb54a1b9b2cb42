"""What a cell on several hosts and the launchers there say to each other, and how each knows the other.

Law: a launcher runs nothing whose endpoint bears no seal of its user, and the endpoint names the cell's key;
a cell hears nobody who has not shown the same user's proof. Every message is bounded.
"""

from __future__ import annotations

import hashlib
import hmac
import signal
from typing import Annotated, Literal, TypeAlias

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.protocol.message import Message

JOBS_GANG = "job."
"""A job's launchers are called so, and by its name, its attempt and chance."""
AT_ONCE = signal.SIGUSR2
"""By this a launcher is told to end at once, by SIGTERM so that a job may save first."""
LEAVE_S = 8.0
"""So long a job may save that is to leave a host whose agent ends."""
TEXT_CHARS_MAX = 64 * 1024
"""So much of what a process writes is told at once."""
DATA_BYTES_MAX = 48 * 1024 * 1024
"""What is sent to the processes of a cell, and what comes back, is no larger."""
ERROR_CHARS_MAX = 2_000

_Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=200)]
_Rank = Annotated[int, msgspec.Meta(ge=0, le=4096)]


class RanksUnsealed(ReplkernelError):
    """Somebody wants processes started who has shown no seal of this user."""


# -- a launcher to its cell --------------------------------------------------------------------------


class Here(Message, frozen=True):
    """A launcher has come: on which host, at which address others reach it, and a port that is free there."""

    gang: _Name
    host: _Name
    proof: _Name
    address: _Name
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Wrote(Message, frozen=True):
    """A process has written this: whole lines where they are not too long."""

    rank: _Rank
    stream: Literal["stdout", "stderr"]
    text: _Text


class Ended(Message, frozen=True):
    """A process is over; `code` below 0 is the signal that ended it, `error` what it raised, in a line."""

    rank: _Rank
    code: int
    error: Annotated[str, msgspec.Meta(max_length=ERROR_CHARS_MAX)] = ""


class Result(Message, frozen=True):
    """What rank 0 has to give back, pickled."""

    data: Annotated[bytes, msgspec.Meta(max_length=DATA_BYTES_MAX)]


class Emptied(Message, frozen=True):
    """No process of the cell is left on this host; the launcher says no more."""


class Leaves(Message, frozen=True):
    """The launcher of a job is told to end: the job may save within LEAVE_S."""


FromLauncher: TypeAlias = Here | Wrote | Ended | Result | Emptied | Leaves


# -- a cell to its launchers -------------------------------------------------------------------------


class Begin(Message, frozen=True):
    """Start `count` processes, the first of which is `rank` of `world`; `data` is what each of them runs.

    Those of a job run `command`, with `variables` in their environment.
    """

    rank: _Rank
    count: int
    world: int
    address: str
    port: int
    data: bytes = b""
    command: tuple[str, ...] = ()
    variables: dict[str, str] = msgspec.field(default_factory=dict)


class Stop(Message, frozen=True):
    """End all processes, and then yourself."""


ToLauncher: TypeAlias = Begin | Stop


class Orders(msgspec.Struct, frozen=True):
    """What an agent tells its launcher; `lock` is the descriptor of a lock that it holds while it lives."""

    gang: str
    host: str
    gpus: tuple[str, ...]
    directory: str
    endpoint: str
    place: str
    lock: int = -1


# -- what the processes are given ----------------------------------------------------------------------


class Program(msgspec.Struct, frozen=True):
    """A cell as its processes run it: the text, what it uses of the notebook, and what comes back.

    `names` are pickled values, `modules` the modules that the notebook has under a name. Modules are found in
    `path_first` before what Python has itself, in `path` behind that.
    """

    source: str
    names: dict[str, bytes]
    modules: dict[str, str]
    back: tuple[str, ...]
    path_first: tuple[str, ...]
    path: tuple[str, ...]


def job_of(gang: str) -> str:
    """Return by which name all launchers of a job are told to end; of a cell there is none."""
    return gang.rpartition(".")[0].rpartition(".")[0] if gang.startswith(JOBS_GANG) else ""


def seal_of(key: bytes, gang: str, directory: str, endpoint: str) -> str:
    """Return what shows that the key's owner wants a launcher that finds its cell there."""
    return _mac(key, "ranks", gang, directory, endpoint)


def check_seal(key: bytes, seal: str, gang: str, directory: str, endpoint: str) -> None:
    """Raise RanksUnsealed unless the seal is the key's."""
    if not hmac.compare_digest(seal_of(key, gang, directory, endpoint).encode(), seal.encode()):
        raise RanksUnsealed(
            "This cell bears no seal of this user, so nothing is run for it: the data directory, or the "
            "hosts' secret, must be the same on all of its hosts."
        )


def proof_of(key: bytes, gang: str, host: str) -> str:
    """Return what shows that a launcher on this host is the key owner's."""
    return _mac(key, "launcher", gang, host)


def is_proof(key: bytes, proof: str, gang: str, host: str) -> bool:
    """Tell whether a proof is the key's."""
    return hmac.compare_digest(proof_of(key, gang, host).encode(), proof.encode())


def _mac(key: bytes, *words: str) -> str:
    return hmac.new(key, msgspec.msgpack.encode(words), hashlib.sha256).hexdigest()
