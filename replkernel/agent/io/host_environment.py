"""What a kernel's processes find on this host, and what a cell of another host wants installed here too.

Law: the kernel's own interpreter is asked, never the agent's; nothing is run in a shell; one installation at
a time, and each is bounded in time and in what is told of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from replkernel.agent.io.spawning_place import import_environment, interpreter_environment
from replkernel.launch.module_command import module_command
from replkernel.protocol.agent_to_router import GroundDescribed, InstallEnded
from replkernel.protocol.host_environment import PACKAGES_MAX
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import DescribeGround, InstallHere

log = logging.getLogger(__name__)

DESCRIBE_LIMIT_S = 30.0
INSTALL_LIMIT_S = 600.0
TOLD_CHARACTERS_MAX = 2_000
KEPT_MAX = 16
PYTHON = "REPLKERNEL_PYTHON"
LOOK = """\
import importlib.metadata, json, platform, sys
found = {}
for one in importlib.metadata.distributions():
    text = one.read_text("METADATA") or one.read_text("PKG-INFO") or one.read_text("") or ""
    told = {}
    for line in text.partition("\\n\\n")[0].split("\\n"):
        if line[:8].lower().startswith(("name:", "version:")):
            key, _, value = line.partition(":")
            told.setdefault(key.lower(), value.strip())
    if told.get("name"):
        found.setdefault(told["name"].lower().replace("_", "-"), told.get("version", ""))
print(json.dumps({"python": platform.python_version(), "packages": found, "path": sys.path}))
"""
"""It reads two lines of each package's metadata: to parse all of them takes thrice as long."""


Key = tuple[str, tuple[tuple[str, str], ...]]
Stamps = tuple[tuple[str, int], ...]


class Look(msgspec.Struct, frozen=True):
    """What an interpreter says of itself."""

    python: str
    packages: dict[str, str]
    path: tuple[str, ...]


def at_home(spec: KernelSpec, env: Mapping[str, str], *, far: bool) -> KernelSpec:
    """Return what the kernel is made from on this host: with the Python that it has here.

    That is the setting's; else the launcher's own path; else, where nothing is there and the launcher is on
    another machine (`far`), the agent's. On one machine a Python that is gone is a mistake that is told.
    """
    python = env.get(PYTHON) or (sys.executable if far and not shutil.which(spec.python) else spec.python)
    return spec if python == spec.python else msgspec.structs.replace(spec, python=python)


class HostEnvironments:
    """Looks at interpreters; what has been seen is kept until a directory of packages changes."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[Stamps, Look]] = {}
        self._installing = asyncio.Lock()

    async def describe(self, asked: DescribeGround) -> GroundDescribed:
        """Answer what a kernel's processes would find."""
        spec = asked.spec
        no_directory = await asyncio.to_thread(directory_trouble, spec.cwd)
        try:
            look = await asyncio.to_thread(self._look, spec)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = f"{spec.python} cannot be asked what it has: {error}"
            return GroundDescribed(spec.kernel_id, asked.request, no_directory=no_directory, why=why)
        packages = dict(sorted(look.packages.items())[:PACKAGES_MAX])
        return GroundDescribed(spec.kernel_id, asked.request, look.python, packages, no_directory)

    def _look(self, spec: KernelSpec) -> Look:
        key = (spec.python, import_environment(spec.env))
        known = self._seen.get(key)
        if known is not None and known[0] == _stamps(known[1].path):
            return known[1]
        done = subprocess.run(
            [spec.python, "-c", LOOK],
            env=interpreter_environment(spec.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DESCRIBE_LIMIT_S,
            cwd="/",
            check=True,
        )
        look = msgspec.convert(json.loads(done.stdout), Look)
        while len(self._seen) >= KEPT_MAX:
            self._seen.pop(next(iter(self._seen)), None)
        self._seen[key] = (_stamps(look.path), look)
        return look

    async def install(self, wish: InstallHere) -> InstallEnded:
        """Repeat an installation, and tell how it ended."""
        async with self._installing:
            well, said = await asyncio.to_thread(_install, wish)
        log.info("repeated %s %s: %s", wish.tool, " ".join(wish.arguments), "well" if well else "failed")
        return InstallEnded(wish.kernel_id, wish.request, well, said)


def directory_trouble(path: str) -> str:
    """Say why a directory cannot be the working directory; nothing if it can."""
    try:
        if not Path(path).is_dir():
            return f"the directory {path} is not there"
    except OSError as error:
        return f"the directory {path} cannot be looked at ({error.strerror})"
    return "" if os.access(path, os.X_OK) else f"the directory {path} may not be entered"


def _stamps(path: tuple[str, ...]) -> Stamps:
    """Return when the directories of packages were last changed: installing adds to them, or takes away."""
    found = []
    for directory in path:
        try:
            found.append((directory, os.stat(directory).st_mtime_ns))
        except OSError:
            continue
    return tuple(found)


def _install(wish: InstallHere) -> tuple[bool, str]:
    spec = wish.spec
    command = module_command("pip", *wish.arguments, python=spec.python)
    if wish.tool == "conda":
        conda = spec.env.get("CONDA_EXE") or shutil.which("conda", path=spec.env.get("PATH")) or "conda"
        prefix = str(Path(spec.python).resolve().parent.parent)
        command = [conda, *wish.arguments[:1], "--yes", "--prefix", prefix, *wish.arguments[1:]]
    try:
        done = subprocess.run(
            command,
            env=interpreter_environment(spec.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=INSTALL_LIMIT_S,
            cwd=spec.cwd if not directory_trouble(spec.cwd) else "/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, str(error)[:TOLD_CHARACTERS_MAX]
    return done.returncode == 0, done.stdout.decode(errors="replace").strip()[-TOLD_CHARACTERS_MAX:]
