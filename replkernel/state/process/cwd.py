"""``@cwd``: the working directory, once the notebook left the one it was born in."""

from __future__ import annotations

import os

from replkernel.records import ComponentId
from replkernel.state.process.part import Part

_getcwd, _chdir = os.getcwd, os.chdir
"""Taken here: a notebook may put a mock in their places, which would count our calls."""


class WorkingDirectoryPart(Part[str]):
    """The working directory; on a host that lacks it the process stays where it is and says so."""

    cid = ComponentId("@cwd")

    def look(self) -> str | None:
        """Return the working directory; the last one known when it has been removed under us."""
        try:
            return _getcwd()
        except FileNotFoundError:
            return getattr(self, "_seen", None)

    def pack(self, seen: str) -> bytes:
        """Write the path by its bytes."""
        return os.fsencode(seen)

    def apply(self, data: bytes) -> None:
        """Change into the directory."""
        try:
            _chdir(data)
        except OSError as error:
            path = os.fsdecode(data)
            self.trouble = (
                f"The working directory {path} cannot be entered on this host ({error.strerror}); "
                "put the notebook's files on a file system that every host shares, or use os.chdir()."
            )
