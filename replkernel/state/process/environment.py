"""``@environ``: what the user changed in ``os.environ`` since the process was born, removals as well.

What belongs to one process or one host (our own variables, Jupyter's, the leased GPUs, the session) stays.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path, PosixPath, PurePath
from typing import Any, cast

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart, Part
from replkernel.state.process.plain import decode_plain, encode_plain

OWN_PREFIXES = ("REPLKERNEL_", "JPY_", "JUPYTERHUB_", "PYDEVD_", "__KMP_", "SLURM_", "_PYDEV")
OWN_NAMES = frozenset({
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PYTORCH_NVML_BASED_CUDA_CHECK", "PWD", "OLDPWD",
    "SHLVL", "_", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "WINDOWID", "XDG_RUNTIME_DIR",
    "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLBACKEND",
})  # fmt: skip


def is_own(name: str) -> bool:
    """Tell whether a variable belongs to one process or host rather than to the notebook."""
    return name in OWN_NAMES or name.startswith(OWN_PREFIXES)


ZONE = OWN_PREFIXES[0] + "TZ="
"""The zone by which the process reckons stands beside the variables, under a name that none can have and that
releases which do not know it leave alone."""
WINTER_S, SUMMER_S = 1_736_899_200, 1_752_537_600
"""Two moments of 2025 by which zones are told from each other."""


class _ZoneInForce:
    """The TZ that counts: until `time.tzset`, or `time.mktime`, which calls it in C, TZ is only a variable.

    That it has come into force is seen by what that changes. A zone that reckons as before changes nothing:
    it counts as soon as it is named.
    """

    def __init__(self) -> None:
        self._shown = self._show()
        self._value = self._named = os.environ.get("TZ")
        self._of_host = self._shown if self._value is None else None

    def look(self) -> str | None:
        """Return the TZ that is in force; None: that of the host."""
        shown, named = self._show(), os.environ.get("TZ")
        if shown != self._shown or (named != self._named and self._is_alike(named, shown)):
            self._value = named
        self._shown, self._named = shown, named
        return self._value

    def put(self, value: str | None) -> None:
        """Reckon by a zone, whatever the variable says."""
        named = os.environ.get("TZ")
        _set_zone(value)
        time.tzset()
        _set_zone(named)
        self._shown, self._value, self._named = self._show(), value, named

    def _is_alike(self, named: str | None, shown: tuple[object, ...]) -> bool:
        return shown == self._of_host if named is None else _reckons_as(named, shown)

    @staticmethod
    def _show() -> tuple[object, ...]:
        now = [(there.tm_zone, there.tm_gmtoff) for there in map(time.localtime, (WINTER_S, SUMMER_S))]
        return now, time.tzname, time.timezone, time.altzone


def _reckons_as(named: str, shown: tuple[object, ...]) -> bool:
    """Tell whether a zone is like the one in force; one that no table has is not known to be."""
    from zoneinfo import ZoneInfo  # Late: most kernels never ask, and it takes them milliseconds.

    try:
        zone = ZoneInfo(named.removeprefix(":") or "UTC")
    except (LookupError, ValueError, OSError):  # A rule of its own, as `EST5EDT4`, or no zone at all.
        return False
    there = [datetime.fromtimestamp(moment, zone) for moment in (WINTER_S, SUMMER_S)]
    return shown[0] == [(each.tzname(), (each.utcoffset() or timedelta()).total_seconds()) for each in there]


def _set_zone(value: str | None) -> None:
    if value is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = value


class EnvironPart(OptionsPart):
    """The environment's difference from its birth, and the time zone that is in force."""

    cid = ComponentId("@environ")

    def __init__(self) -> None:
        self._zone = _ZoneInForce()
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return a copy of the environment as the system spells it (bytes by bytes on Unix), and the zone."""
        return {**_raw_environ(), ZONE: self._zone.look()}

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the variables that the notebook owns, as text by bytes; with TZ the zone in force."""
        named = _notebooks(seen)
        if "TZ" in self._told or named.get("TZ") != self.reference().get("TZ"):
            self._told.add(ZONE)
        return super().pack(named)

    def reference(self) -> Mapping[str, Any]:
        """Return the environment at birth, by text names."""
        return _notebooks(self._birth)

    def to_plain(self, name: str, value: Any) -> Any:
        """Return the value as bytes, so that any spelling survives."""
        return None if value is None else os.fsencode(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set and remove variables. A TZ that comes without the zone in force, as of old, takes effect."""
        for name, value in changed.items():
            if not is_own(name):
                os.environ[name] = os.fsdecode(value)
        for name in removed:
            if not is_own(name):
                os.environ.pop(name, None)
        if ZONE in changed:
            zone = changed[ZONE]
            self._zone.put(None if zone is None else os.fsdecode(zone))
        elif "TZ" in changed or "TZ" in removed:
            time.tzset()


def _notebooks(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the variables that the notebook owns, by text names."""
    named = {os.fsdecode(name): value for name, value in raw.items()}
    return {name: value for name, value in named.items() if name == ZONE or not is_own(name)}


def _raw_environ() -> Mapping[Any, Any]:
    """Return the mapping under ``os.environ``: comparing it costs no decoding."""
    raw = getattr(os.environ, "_data", None)
    return raw if isinstance(raw, dict) else dict(os.environ)


# ``@cwd``: the working directory, once the notebook left the one it was born in.


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


# ``@sys_path``: what the notebook did to ``sys.path``, told relative to the path at birth.
#
# Law: an entry that was there at birth is told by its place, so that other hosts keep theirs.

Entry = str | PurePath
"""What imports look into, and what notebooks add that imports pass over in silence."""


class SysPathPart(Part[list[Entry]]):
    """The import path."""

    cid = ComponentId("@sys_path")

    def __init__(self) -> None:
        super().__init__()
        self._birth = _entries()

    def look(self) -> list[Entry]:
        """Return the path's texts and paths; anything else stays behind."""
        return _entries()

    def pack(self, seen: list[Entry]) -> bytes:
        """Write how long the path was at birth, then each entry: place at birth, text, or path in a list."""
        places = {entry: place for place, entry in reversed(list(enumerate(self._birth)))}
        told = [[str(entry)] if isinstance(entry, PurePath) else places.get(entry, entry) for entry in seen]
        return encode_plain((len(self._birth), told))

    def apply(self, data: bytes) -> None:
        """Rebuild the path from this process's own entries of birth and the told ones."""
        length, told = decode_plain(data)
        path: list[Entry] = []
        for entry in told:
            if isinstance(entry, str):
                path.append(entry)
            elif isinstance(entry, list):
                path.append(Path(*entry))
            elif entry < len(self._birth):
                path.append(self._birth[entry])
        path.extend(self._birth[length:])
        if path != _entries():
            cast("list[Entry]", sys.path)[:] = path


def _entries() -> list[Entry]:
    return [entry for entry in cast("list[Entry]", sys.path) if type(entry) in (str, PosixPath)]
