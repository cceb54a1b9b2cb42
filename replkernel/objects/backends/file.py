"""``file:///directory``: objects are files of this machine (or of a shared file system).

A chunk of the blob cache on the same file system is stored by a hard link, no byte is copied.
Objects appear by rename, in directories that only their owner can enter.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from replkernel.errors import NO_ROOM
from replkernel.hosts.disk_path import DiskPath
from replkernel.objects.backend import OBJECT_BYTES_MAX, NoSuchObject, StoreFault, UnfitObject, full
from replkernel.objects.url import setting_error

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
SCRAP = ".part-"
SCRAP_AGE_MAX_S = 3600.0
"""A half-written file this old was left by a process that died."""

Make = Callable[[str], None]

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_SPECIAL = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV})
"""How the system refuses to open a link, a socket, and a device that is not there."""
_NO_LINK = frozenset({errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES})


def open_backend(url: str, env: Mapping[str, str]) -> FileBackend:
    """Open the directory that `url` names, and make it when it is not there."""
    path = url[len("file://") :]
    path = path.removeprefix("localhost")
    if path.startswith("~/"):
        raise setting_error(
            url, "~ is not expanded in a URL", f"write file://{env.get('HOME', '/home/you')}{path[1:]}"
        )
    if not path.startswith("/"):
        raise setting_error(url, "a file URL takes an absolute path", f"write file:///{path or 'path'}")
    return FileBackend(DiskPath(path))


class FileBackend:
    """Objects as files below `root`."""

    warning = ""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unsettled: set[str] = set()
        self._lock = threading.Lock()
        self._settling = threading.Lock()
        """Held by who settles: nobody may return before the directories that another one took are synced."""
        with self._told():
            os.makedirs(root, mode=DIRECTORY_MODE, exist_ok=True)
            if not os.access(root, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def put(self, key: str, data: bytes) -> None:
        """Write the object, bring it to the disk, and put it in its place."""
        with self._told():
            self._place(key, lambda scratch: _write(scratch, data))

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        """Link the file into the store; copy it where the file system cannot link."""
        with self._told():
            try:
                self._place(key, lambda scratch: _link(path, scratch))
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                self._place(key, lambda scratch: _write(scratch, data))

    def make_file(self, key: str, path: Path, data: bytes) -> bool:
        """Link or write the file into the store unless it is there, in which case it becomes young."""
        target = self._root / key
        scratch = target.with_name(SCRAP + secrets.token_hex(8))
        with self._told():
            if _refresh(target):
                return False
            os.makedirs(target.parent, mode=DIRECTORY_MODE, exist_ok=True)
            try:
                try:
                    _link(path, str(scratch))
                except OSError as error:
                    if error.errno not in _NO_LINK:
                        raise
                    scratch.unlink(missing_ok=True)
                    _write(str(scratch), data)
                made = self._make(scratch, target)
            finally:
                scratch.unlink(missing_ok=True)
        with self._lock:
            self._unsettled.add(str(target.parent))
        return made

    @staticmethod
    def _make(scratch: Path, target: Path) -> bool:
        """Put the scratch file in its place, if that is free; where there are no links, nobody made it."""
        try:
            os.link(scratch, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            os.rename(scratch, target)
            return False
        return True

    def hide(self, key: str) -> str | None:
        """Rename the file to a scratch name."""
        path = self._root / key
        scratch = path.with_name(SCRAP + secrets.token_hex(8))
        with self._told():
            try:
                os.rename(path, scratch)
            except FileNotFoundError:
                return None
        return str(scratch)

    def show(self, key: str, token: str) -> bool:
        """Link the file to its own name again, unless that is taken."""
        with self._told():
            try:
                os.link(token, self._root / key)
                back = True
            except FileExistsError:
                back = False
            os.unlink(token)
        return back

    def drop(self, token: str) -> None:
        """Unlink the scratch file."""
        with self._told():
            DiskPath(token).unlink(missing_ok=True)

    def settle(self) -> None:
        """Bring the directories that changed to the disk; the files are there already."""
        with self._settling:
            with self._lock:
                changed, self._unsettled = self._unsettled, set()
            try:
                with self._told():
                    for directory in changed:
                        _sync(directory)
            except StoreFault:
                with self._lock:
                    self._unsettled |= changed
                raise

    def get(self, key: str) -> bytes:
        """Return the file's bytes."""
        with self._told():
            try:
                return _read(self._root / key)
            except FileNotFoundError:
                raise NoSuchObject(key) from None

    def file_of(self, key: str) -> Path:
        """Return where the object lies."""
        return self._root / key

    def age_s(self, key: str) -> float | None:
        """Return the seconds since the file was put, or None."""
        with self._told():
            try:
                return max(0.0, time.time() - os.stat(self._root / key).st_mtime)
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        """Unlink the file."""
        with self._told():
            (self._root / key).unlink(missing_ok=True)

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        """Yield the files below ``root/under``; remove what dead processes left half written."""
        now = time.time()
        with self._told():
            for directory, _, names in os.walk(self._root / under):
                for name in names:
                    path = os.path.join(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        age_s = now - os.stat(path).st_mtime
                        if not name.startswith(SCRAP):
                            yield os.path.relpath(path, self._root), max(0.0, age_s)
                        elif age_s > SCRAP_AGE_MAX_S:
                            os.unlink(path)

    def sizes(self, under: str) -> Iterator[tuple[str, int]]:
        """Yield what the files below ``root/under`` take on the disk."""
        with self._told():
            for directory, _, names in os.walk(self._root / under):
                for name in names:
                    path = os.path.join(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        yield os.path.relpath(path, self._root), os.stat(path).st_blocks * 512

    def free_bytes(self) -> int:
        """Return what is free on the disk for this user."""
        with self._told():
            disk = os.statvfs(self._root)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        """Nothing is held open."""

    def _place(self, key: str, make: Make) -> None:
        """Have `make` fill a scratch file beside the object and rename it into place."""
        path = self._root / key
        scratch = path.with_name(SCRAP + secrets.token_hex(8))
        try:
            try:
                make(str(scratch))
            except FileNotFoundError:
                os.makedirs(path.parent, mode=DIRECTORY_MODE, exist_ok=True)
                make(str(scratch))
            os.rename(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)
        with self._lock:
            self._unsettled.add(str(path.parent))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            if error.errno in NO_ROOM:
                raise full(reason) from error
            where = error.filename if isinstance(error.filename, str) else str(self._root)
            if error.errno in _DENIED:
                fix = "make the directory writable for this user or name another one"
                raise StoreFault(f"cannot be written ({where}: {reason})", fix, refused=True) from error
            fix = "name a directory that can be made and written"
            raise StoreFault(f"cannot be used ({where}: {reason})", fix) from error


def _write(scratch: str, data: bytes) -> None:
    file = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                written += os.write(file, view[written:])
        os.fdatasync(file)
    finally:
        os.close(file)


def _read(path: Path) -> bytes:
    """Return a file's bytes; what somebody else may have put there neither keeps us waiting nor fills memory.

    Raises OSError, and UnfitObject for a link, a pipe, a device and a file that is too long.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _SPECIAL:
            raise
        raise UnfitObject("it is no regular file") from None
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnfitObject("it is no regular file")
        if status.st_size > OBJECT_BYTES_MAX:
            raise UnfitObject(f"it is larger than {OBJECT_BYTES_MAX >> 20} MiB")
        data = opened.read(OBJECT_BYTES_MAX + 1)
    if len(data) > OBJECT_BYTES_MAX:
        raise UnfitObject(f"it is larger than {OBJECT_BYTES_MAX >> 20} MiB")
    return data


def _link(path: Path, scratch: str) -> None:
    """Link `path`, bring its bytes to the disk, and make it young."""
    os.link(path, scratch)
    os.utime(scratch)
    _sync(scratch)


def _refresh(path: Path) -> bool:
    """Make a file young; tell whether it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
