"""Directories of sockets: nobody else has made them, enters them, or can put others in their place.

Law: every part of a path is looked at before the path is used. Each belongs to root or to us, and nobody else
may rename what is in it; the last is ours, for us alone, and no link. What is wrong is said in one clause.
"""

from __future__ import annotations

import contextlib
import os
import stat

from replkernel.errors import ReplkernelError

LINKS_MAX = 40
"""No path goes through more links than this."""

_OTHERS = 0o077
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class DirectoryUnsafe(ReplkernelError):
    """A directory, or one above it, is not ours alone; the message is a clause, `fix` another.

    `foreign`: it is another user's.
    """

    def __init__(self, part: str, problem: str, fix: str, *, foreign: bool = False) -> None:
        super().__init__(f"{part} {problem}")
        self.fix, self.foreign = fix, foreign


def make_own_dir(path: str) -> None:
    """Make a directory for us alone unless it is there; raises OSError, and DirectoryUnsafe for a bad one."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    check_own_dir(path)


def check_own_dir(path: str) -> None:
    """Raise DirectoryUnsafe unless this is a directory for us alone, or OSError if there is none."""
    status = os.lstat(path)
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)
    if not stat.S_ISDIR(status.st_mode):
        raise DirectoryUnsafe(path, "is a link or a file", "remove it")
    if status.st_mode & _OTHERS:
        raise DirectoryUnsafe(
            path, f"is open to others (mode {stat.S_IMODE(status.st_mode):04o})", f"run `chmod 700 {path}`"
        )
    check_way(os.path.dirname(path))


def check_way(path: str) -> str:
    """Return where an absolute path leads: no part of what is returned is a link.

    Raises DirectoryUnsafe if others could put something else in its place, or in that of a part of it. A link
    leads on if root or we have made it. Raises OSError where there is nothing of that name.
    """
    at, ahead, links = "/", path.split("/")[::-1], 0
    _check_part(at, os.lstat(at))
    while ahead:
        name = ahead.pop()
        if name in ("", ".", ".."):
            at = os.path.dirname(at) if name == ".." else at
            continue
        part = os.path.join(at, name)
        status = os.lstat(part)
        _check_part(part, status)
        if not stat.S_ISLNK(status.st_mode):
            at = part
            continue
        links += 1
        if links > LINKS_MAX:
            raise DirectoryUnsafe(path, "leads through too many links", "name a directory without them")
        target = os.readlink(part)
        at = "/" if target.startswith("/") else at
        ahead += target.split("/")[::-1]
    return at


def _check_part(part: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()) and not _is_unmapped_root(status.st_uid):
        raise _foreign(part, status)
    if stat.S_ISLNK(status.st_mode):
        return
    others = status.st_mode & _OTHERS_WRITE
    if others == stat.S_IWGRP and status.st_gid == 0:
        return  # Root's own group.
    if others and not status.st_mode & stat.S_ISVTX:
        raise DirectoryUnsafe(
            part,
            f"can be written to by others (mode {stat.S_IMODE(status.st_mode):04o})",
            f"run `chmod go-w {part}`",
        )


def _foreign(part: str, status: os.stat_result) -> DirectoryUnsafe:
    return DirectoryUnsafe(part, f"belongs to user {status.st_uid}", "have it removed", foreign=True)


def _is_unmapped_root(uid: int) -> bool:
    """Tell whether this is how root's directories look in a container that knows no root."""
    try:
        # As bytes: a process that may not read Python's files any more could not import an encoding.
        with open("/proc/sys/fs/overflowuid", "rb") as overflow:
            if uid != int(overflow.read()):
                return False
        with open("/proc/self/uid_map", "rb") as known:
            return all(line.split()[0] != b"0" for line in known)
    except (OSError, ValueError, IndexError):
        return False
