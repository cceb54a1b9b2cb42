"""Objects in a file system of fsspec: what the memory and HDFS backends share.

`staged` file systems show a file while it is written, so there an object is written aside and moved.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from replkernel.objects.backend import NoSuchObject, StoreFault

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem


SCRAP = ".part-"

Translate = Callable[[Exception], StoreFault]


class TreeBackend:
    """Objects as files below `root` of the fsspec file system `files`; `translate` words its errors."""

    def __init__(
        self, files: AbstractFileSystem, root: str, translate: Translate, *, staged: bool, warning: str = ""
    ) -> None:
        self.warning = warning
        self._files = files
        self._root = root.rstrip("/")
        self._translate = translate
        self._staged = staged

    def put(self, key: str, data: bytes) -> None:
        """Write the object, aside first where the file system shows what is half written."""
        path = self._path(key)
        with self._told():
            if not self._staged:
                self._files.pipe_file(path, data)
                return
            parent, _, _ = path.rpartition("/")
            scratch = f"{parent}/{SCRAP}{secrets.token_hex(8)}"
            self._files.makedirs(parent, exist_ok=True)
            try:
                self._files.pipe_file(scratch, data)
                self._files.mv(scratch, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._files.rm_file(scratch)
                raise

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        """Write the bytes; there is no cheaper way."""
        self.put(key, data)

    def settle(self) -> None:
        """Closing a file is all that these file systems offer."""

    def get(self, key: str) -> bytes:
        """Return the file's bytes."""
        with self._told():
            try:
                return bytes(self._files.cat_file(self._path(key)))
            except FileNotFoundError:
                raise NoSuchObject(key) from None

    def age_s(self, key: str) -> float | None:
        """Return the seconds since the file was written, or None."""
        with self._told():
            try:
                modified = self._files.modified(self._path(key))
                return None if modified is None else _age_s(modified)
            except FileNotFoundError:
                return None

    def delete(self, key: str) -> None:
        """Remove the file."""
        with self._told(), contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        """Yield the files below ``root/under``, half-written ones left out."""
        start = self._path(under)
        with self._told():
            found = self._files.find(start, detail=True) if self._files.exists(start) else {}
        for path, info in found.items():
            key = str(path)[str(path).find(start) + len(start) - len(under) :]
            if key.rpartition("/")[2].startswith(SCRAP):
                continue
            modified = info.get("mtime")
            if modified is not None:
                yield key, _age_s(modified)
            elif (age_s := self.age_s(key)) is not None:
                yield key, age_s

    def close(self) -> None:
        """The file system lives on with its library."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (NoSuchObject, StoreFault):
            raise
        except Exception as error:
            raise self._translate(error) from error


def is_full(error: Exception) -> bool:
    """Tell whether `error` speaks of a lack of room."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def _age_s(moment: dt.datetime) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, (dt.datetime.now(dt.UTC) - moment).total_seconds())
