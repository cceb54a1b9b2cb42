"""One file of a trace: opened whatever it is packed with, read line by line, and its rows counted.

Law: one line is in memory at a time, and none longer than LINE_MAX is taken. A row that cannot be is an
error that names file, line and reason, or, if the user wants that, left out and counted.
"""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar, cast

from replkernel_scheduler.sim.errors import BadRow, TraceUnreadable

LINE_MAX = 1024 * 1024
BAD_KEPT_MAX = 5
ZSTD_CHUNK = 4096
PACKED = (".gz", ".xz", ".zst")
NUMBER_MAX = 1e15
Made = TypeVar("Made")


class TraceFile:
    """A file and what was read of it: `rows` taken, `bad` ones that cannot be, `empty` ones without work."""

    def __init__(
        self, path: Path, *, skip_bad: bool = False, columns: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Read `path`; raise at the first bad row unless `skip_bad`.

        `columns` says of columns of a CSV file what they are called there.
        """
        self.path, self.skip_bad, self.columns = path, skip_bad, tuple(columns)
        self.line = self.rows = self.bad = self.empty = 0
        self.bad_rows: list[str] = []

    def lines(self) -> Iterator[str]:
        """Yield the lines that are not blank, without their ends; raise TraceUnreadable."""
        for line in self.pieces():
            if len(line) >= LINE_MAX:
                raise TraceUnreadable(f"{self.path}, line {self.line}: it is longer than {LINE_MAX} signs.")
            if line := line.rstrip():
                yield line

    def pieces(self) -> Iterator[str]:
        """Yield the lines as they are, long ones in pieces; raise TraceUnreadable."""
        self.line, ended = 0, True
        try:
            with _open(self.path) as packed, io.TextIOWrapper(packed, "utf-8-sig", "replace") as text:
                while piece := text.readline(LINE_MAX):
                    self.line += ended
                    ended = piece.endswith("\n")
                    yield piece
        except FileNotFoundError:
            raise TraceUnreadable(f"{self.path} is not there: check the path.") from None
        except IsADirectoryError:
            raise TraceUnreadable(f"{self.path} is a directory: name the files in it.") from None
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise TraceUnreadable(self._damaged(error)) from error

    def _damaged(self, error: Exception) -> str:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        if self.line:
            return f"{self.path} cannot be read after line {self.line}: {why}."
        if self.path.suffix not in PACKED or isinstance(error, PermissionError):
            return f"{self.path} cannot be read: {why}."
        return (
            f"{self.path} cannot be unpacked as its ending {self.path.suffix} says: {why}. Get it again, or "
            "give it another ending if it is not packed."
        )

    def first_line(self) -> str:
        """Return the first line that is not blank (or its beginning); "" of an empty file."""
        return next((text for piece in self.pieces() if (text := piece.strip())), "")

    def take(self, parse: Callable[[], Made | None]) -> Made | None:
        """Return what `parse` makes of the present row; None where it has no work or cannot be."""
        try:
            made = parse()
        except (ValueError, IndexError, KeyError, TypeError) as error:
            self.refuse(_reason(error))
            return None
        if made is None:
            self.empty += 1
        else:
            self.rows += 1
        return made

    def refuse(self, reason: str) -> None:
        """Count the present row as bad; raise BadRow unless such rows are left out."""
        if not self.skip_bad:
            raise BadRow(str(self.path), self.line, reason)
        self.bad += 1
        if len(self.bad_rows) < BAD_KEPT_MAX:
            self.bad_rows.append(f"line {self.line}: {reason}")


def number(text: str, name: str) -> float:
    """Return a number from 0; raise ValueError that says what it is instead."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text[:40]!r}, which is no number") from None
    if not 0 <= value < NUMBER_MAX:
        raise ValueError(f"{name} is {text[:40]}, which is not from 0 to below {NUMBER_MAX:g}")
    return value


def whole(text: str, name: str) -> int:
    """Return a whole number from 0; raise ValueError that says what it is instead."""
    value = number(text, name)
    if value != int(value):
        raise ValueError(f"{name} is {text[:40]}, which is no whole number")
    return int(value)


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "there are too few columns"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def packed(path: Path, ending: str) -> IO[bytes]:
    """Begin a file anew, packed as an ending says; the same content gives the same bytes."""
    match ending:
        case ".gz":
            return cast("IO[bytes]", gzip.GzipFile(path, "wb", mtime=0))
        case ".xz":
            return cast("IO[bytes]", lzma.open(path, "wb"))
        case ".zst":
            import zstandard

            return cast("IO[bytes]", zstandard.open(path, "wb"))
        case _:
            return path.open("wb")


MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


def _packing(path: Path) -> str:
    """Return the ending of what a file is packed with by its first bytes, or by its name."""
    with path.open("rb") as file:
        head = file.read(6)
    return next((ending for magic, ending in MAGIC.items() if head.startswith(magic)), path.suffix)


def _open(path: Path) -> IO[bytes]:
    match _packing(path):
        case ".gz":
            return cast("IO[bytes]", gzip.open(path, "rb"))
        case ".xz":
            return cast("IO[bytes]", lzma.open(path, "rb"))
        case ".zst":
            return io.BufferedReader(cast("io.RawIOBase", _Zstd(path)))
        case _:
            return path.open("rb")


class _Zstd(io.RawIOBase):
    """A zstd file as a raw stream: damage is an OSError, an end in the middle of a frame an EOFError.

    (The library's own stream takes a file that was cut off for a short one.)
    """

    def __init__(self, path: Path) -> None:
        import zstandard

        self._library = zstandard
        self._packed = path.open("rb")
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._left = self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._plain:
            data = self._left or self._packed.read(ZSTD_CHUNK)
            self._left = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            if self._frame is None:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            try:
                self._plain = self._frame.decompress(data)
            except self._library.ZstdError as error:
                raise OSError(str(error)) from error
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._plain))
        buffer[:count], self._plain = self._plain[:count], self._plain[count:]
        return count

    def close(self) -> None:
        self._packed.close()
        super().close()
