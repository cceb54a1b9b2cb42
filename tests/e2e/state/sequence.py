"""What a sequence is: a name, its cells, what the test must know of it. The modules of `sequences` add them.

Law: nothing that a cell prints may depend on addresses, process ids, hash seeds or timings, and running the
last cell again prints the same.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path

import msgspec

REPEATS = 2
"""So often the last cell is run again, each time on another replica."""

FOLDER = Path(__file__).parent / "sequences"


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    """One notebook. `area` is the module that adds it.

    `needs` are packages, without which it is skipped. `pinned` says that it may bind the notebook to one
    replica for a while; as a text, it is in ``%replkernel pins`` at the end. With `refuses` the replica
    is killed before the last cell, which must show that text. With `preload` the packages of `needs` are
    imported before both kernels start, which saves time where they do not look for a notebook when they are
    imported. Without `again` the last cell runs once. `always` is for a fault that was found: `make test`
    plays it wherever it stands, and of others the first and each 25th of an area.
    """

    name: str
    cells: tuple[str, ...]
    area: str = ""
    needs: tuple[str, ...] = ()
    pinned: bool | str = False
    refuses: str = ""
    preload: bool = True
    again: bool = True
    always: bool = False

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the cells as they are run: the last one again on the other replicas."""
        return (*self.cells, *[self.cells[-1]] * (REPEATS if self.again else 0))

    def missing(self) -> str:
        """Return a package that is needed and not installed, or an empty text."""
        return next((name for name in self.needs if not _is_installed(name.partition(".")[0])), "")


@functools.cache
def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


_found: dict[str, Sequence] = {}


def sequence(
    name: str,
    *cells: str,
    needs: tuple[str, ...] | str = (),
    pinned: bool | str = False,
    refuses: str = "",
    preload: bool = True,
    always: bool = False,
) -> None:
    """Add a sequence."""
    assert name not in _found, f"there are two sequences {name!r}"
    assert len(cells) > 1, f"the sequence {name!r} moves nothing"
    packages = (needs,) if isinstance(needs, str) else needs
    _found[name] = Sequence(
        name=name,
        cells=cells,
        needs=packages,
        pinned=pinned,
        refuses=refuses,
        preload=preload,
        always=always,
    )


def collect() -> list[Sequence]:
    """Return all sequences, area by area."""
    for path in sorted(FOLDER.glob("[!_]*.py")):
        before = set(_found)
        importlib.import_module(f"tests.e2e.state.sequences.{path.stem}")
        for name in _found.keys() - before:
            _found[name] = msgspec.structs.replace(_found[name], area=path.stem)
    return list(_found.values())
