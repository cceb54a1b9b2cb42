"""Which kernel a notebook's file has, for front ends that start another process under another key each time.

One file a notebook, below ``<data dir>/notebooks``, named by a digest of the notebook's path. Law: only ever
readable by its owner; what cannot be read tells of no kernel, and is no leave to end the one that it told of.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.hosts.places import data_place

PATH_VARIABLE = "__vsc_ipynb_file__"
"""VS Code's Jupyter extension sets it to the notebook's path, by code of its own before any cell."""
RESTART_S = 5.0
"""A front end that opens a notebook so soon after it has ended its process restarts the kernel."""
LINK_BYTES_MAX = 16 * 1024

_ASSIGNED = re.compile(rf"^{PATH_VARIABLE} = (\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')$", re.MULTILINE)

Start: TypeAlias = Literal["new", "again", "restart"]


class Opener(msgspec.Struct, frozen=True):
    """The process that started the proxy, named as no later one is (`started`: clock ticks since boot)."""

    pid: int
    started: int


class NotebookLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notebook's kernel. `closed`: the wall clock's time at which `opener` ended the proxy, 0 before."""

    path: str
    kernel_id: str
    opener: Opener
    closed: float = 0.0


def named_in(code: str) -> str:
    """Return the path of the notebook that a front end's own code names, or an empty string."""
    found = _ASSIGNED.search(code)
    return str(ast.literal_eval(found[1])) if found else ""


def how_it_starts(link: NotebookLink | None, opener: Opener, began: float) -> Start:
    """Tell whether a notebook begins new, goes on again, or is restarted: by the same opener, at once.

    `began` is the wall clock's time at which the opener started it, however long that took.
    """
    if link is None:
        return "new"
    restarted = link.closed and link.opener == opener and began - link.closed < RESTART_S
    return "restart" if restarted else "again"


def link_file(path: str, env: Mapping[str, str]) -> Path:
    """Return the file that says which kernel the notebook at `path` has."""
    name = hashlib.blake2b(os.path.realpath(path).encode(), digest_size=16).hexdigest()
    return Path(data_place(env)) / "notebooks" / f"{name}.json"


def read_link(file: Path) -> NotebookLink | None:
    """Return what the file says; None when there is none, or none that can be used."""
    try:
        return msgspec.json.decode(read_own(file, LINK_BYTES_MAX), type=NotebookLink)
    except (OSError, *UNREADABLE):
        return None


def is_removed(file: Path) -> bool:
    """Tell whether there is no link, which is more than that none can be read."""
    try:
        file.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def write_link(file: Path, link: NotebookLink) -> None:
    """Write the link in place of the one before; raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_own(file, msgspec.json.format(msgspec.json.encode(link)), lasting=True)
