"""What a state file says of itself: made from the components alone, checked against them when it is read.

Pure. Law: nothing of the kernel's secrets is in it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping

import msgspec

from replkernel import __version__
from replkernel.carrying.outline import Outline, outlines
from replkernel.records import ComponentId, ComponentRecord, Digest

FORMAT = 1
NAMES_MAX = 100_000
PACKAGES_MAX = 5_000


class Named(msgspec.Struct, frozen=True):
    """One variable: `bytes` are those of everything that hangs together with it (`component`)."""

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int
    component: str


class LeftOut(msgspec.Struct, frozen=True):
    """What could not be copied, and why."""

    path: str
    type: str
    why: str


class Manifest(msgspec.Struct, frozen=True):
    """The whole of it. `parts` are those of the process's state: environment, history, random numbers, …"""

    format: int
    created: float
    replkernel: str
    python: str
    implementation: str
    system: str
    machine: str
    execution_count: int
    state_bytes: int
    chunk_bytes: int
    chunks: int
    state_digest: Digest
    packages: dict[str, str]
    names: tuple[Named, ...]
    parts: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def named_in(components: Iterable[ComponentRecord], heads: Mapping[ComponentId, bytes]) -> tuple[Named, ...]:
    """Return what is to be said of each variable; `heads` are the payloads', as far as read."""
    found = []
    for record in components:
        told = outlines(heads.get(record.cid, b""))
        for name in record.names:
            if not name.isidentifier():
                continue
            outline = told.get(name, Outline())
            kind = record.making(name).type_name or outline.type
            found.append(Named(name, kind, outline.shape, record.state_bytes, record.cid))
    return tuple(sorted(found, key=lambda one: (-one.bytes, one.name))[:NAMES_MAX])


def packages_of(components: Iterable[ComponentRecord]) -> dict[str, str]:
    """Return the versions of the packages that rebuilding imports, as this Python has them."""
    from importlib.metadata import packages_distributions, version

    modules = {module for record in components for module in record.modules}
    distributions = packages_distributions()
    names = {name for module in modules for name in distributions.get(module, ())}
    return {name: version(name) for name in sorted(names)}


def manifest_of(
    components: Mapping[ComponentId, ComponentRecord],
    heads: Mapping[ComponentId, bytes],
    state_digest: Digest,
    chunks: Mapping[Digest, int],
    execution_count: int,
    created: float,
) -> Manifest:
    """Return the manifest of a state that is exported by this Python."""
    records = list(components.values())
    pins = [pin for record in records for pin in record.pins]
    return Manifest(
        format=FORMAT,
        created=created,
        replkernel=__version__,
        python=platform.python_version(),
        implementation=sys.implementation.name,
        system=sys.platform,
        machine=platform.machine(),
        execution_count=execution_count,
        state_bytes=sum(record.state_bytes for record in records),
        chunk_bytes=sum(chunks.values()),
        chunks=len(chunks),
        state_digest=state_digest,
        packages=packages_of(records),
        names=named_in(records, heads),
        parts=tuple(sorted(record.cid for record in records if record.cid.startswith("@"))),
        left_out=tuple(LeftOut(pin.path or pin.name, pin.type_name, pin.reason) for pin in pins),
    )


def differences(manifest: Manifest, here: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return what cannot work in this Python, and what is merely different, a sentence each."""
    hard, soft = [], []
    mine = platform.python_version()
    if manifest.implementation != sys.implementation.name or _minor(manifest.python) != _minor(mine):
        hard.append(
            f"It was exported by Python {manifest.python[:40]}, this is {mine}: functions cannot be rebuilt."
        )
    elif manifest.python != mine:
        soft.append(f"Python {manifest.python[:40]} there, {mine} here.")
    if manifest.machine != platform.machine() or manifest.system != sys.platform:
        soft.append(f"{manifest.system}/{manifest.machine} there, {sys.platform}/{platform.machine()} here.")
    for name, there in sorted(manifest.packages.items())[:PACKAGES_MAX]:
        if name not in here:
            soft.append(f"{name} {there} is not installed here.")
        elif here[name] != there:
            soft.append(f"{name} {there} there, {here[name]} here.")
    return hard, soft


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that this Python has."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except (PackageNotFoundError, ValueError):
            continue
    return found
