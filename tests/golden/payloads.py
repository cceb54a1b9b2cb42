"""Golden payloads: the deltas of small notebooks, as a release wrote them, with what the last cell prints.

One file for each format and each Python (code objects are that Python's own). Law: a file is never written
anew for a format that was released: what it holds must be read for ever.
"""

from __future__ import annotations

import importlib.metadata
import lzma
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from tests.support.move import Answer, Ask, Mover

FOLDER = Path(__file__).parent / "payloads"
INLINE_BYTES_MAX = 1 << 20
"""No bytes leave the deltas, so that a file is whole by itself."""


class Golden(msgspec.Struct, frozen=True):
    """One notebook: its deltas but for the last cell's, that cell, what it prints, what the deltas name.

    `needs` are the packages, with the versions that wrote it.
    """

    name: str
    deltas: tuple[bytes, ...]
    last: str
    output: str
    named: tuple[str, ...]
    needs: dict[str, str] = {}


def files() -> list[Path]:
    """Return the files that this Python can read, oldest first."""
    return sorted(FOLDER.glob(f"*-python{sys.version_info.major}.{sys.version_info.minor}.xz"))


def version_here(package: str) -> str:
    """Return the version of a package by the name it is imported by, which need not be its distribution's.

    Raises: `importlib.metadata.PackageNotFoundError`, if it is not installed.
    """
    top = package.partition(".")[0]
    return importlib.metadata.version(_distributions().get(top, [package])[0])


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return which distributions bring each package: it reads what all of them have installed."""
    return importlib.metadata.packages_distributions()


def load(path: Path) -> list[Golden]:
    """Return what a file holds."""
    return msgspec.msgpack.decode(lzma.decompress(path.read_bytes()), type=list[Golden])


def save(path: Path, golden: Sequence[Golden]) -> None:
    """Write a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(golden), preset=9))


def read(mover: Mover, deltas: Sequence[bytes], last: str) -> Answer:
    """Have a process take the deltas and run the last cell; return its answer, and all that was named."""
    mover.ask(Ask("reset", "r9", mover.cache, inline=INLINE_BYTES_MAX))
    named: set[str] = set()
    for delta in deltas:
        named.update(mover.ask(Ask("receive", delta=delta)).named)
    rebuilt = mover.ask(Ask("materialise", source=last))
    named.update(rebuilt.named)
    answer = mover.ask(Ask("run", source=last, seq=99))
    answer.failed = rebuilt.failed
    answer.named = tuple(sorted(named))
    return answer
