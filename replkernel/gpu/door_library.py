"""The library that stands before `cuInit` (`cuda_door.c`): built on its host at first use, and preloaded.

Built here and not into the wheel: the wheel stays one for all machines, and a host's compiler and C library
suit each other. Light, for the agent asks before it starts a zygote. Law: a library is used only from a
directory that is ours alone, and after a process has started with it; without one, Python's doors remain.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from replkernel.errors import ReplkernelError
from replkernel.hosts.own_dir import check_own_dir, make_own_dir
from replkernel.hosts.places import data_place

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("cuda_door.c")
NAME = "replkernel-cuda-door"
PRELOAD = "LD_PRELOAD"
BUILD_LIMIT_S = 60
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
"""Tail calls need `-O2`."""

_found: dict[str, str] = {}


def with_door(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an interpreter whose processes are stopped before CUDA starts.

    As it is where the library cannot be had: there is no compiler, for one.
    """
    path, found = library(data_place(env)), dict(env)
    if path:
        found[PRELOAD] = ":".join(word for word in (path, env.get(PRELOAD, "")) if word)
    return found


def carry(before: str, env: MutableMapping[str, str]) -> None:
    """Have what this process starts preload the library as well, if `before`, its own preloads, name it."""
    path = next((word for word in before.split(":") if NAME in word), "")
    others = [word for word in env.get(PRELOAD, "").split(":") if word and NAME not in word]
    if path:
        env[PRELOAD] = ":".join([path, *others])


def library(data: str) -> str:
    """Return the library's path, built once a machine and release; empty where there is none."""
    if data not in _found:
        try:
            _found[data] = _built(data)
        except (OSError, ReplkernelError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None)
            log.warning("No library stands before cuInit: %s", said.strip() if said else error)
            _found[data] = ""
    return _found[data]


def _built(data: str) -> str:
    os.makedirs(data, mode=0o700, exist_ok=True)
    folder = os.path.join(data, "native")
    make_own_dir(folder)
    path = os.path.join(folder, f"{NAME}-{_mark()}.so")
    if not os.path.exists(path):
        compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
        if compiler is None:
            log.info("There is no C compiler: cells are stopped at CUDA's first use by Python alone.")
            return ""
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            made = os.path.join(fresh, "door.so")
            _run([compiler, *FLAGS, "-o", made, str(SOURCE), "-ldl"], os.environ)
            said = _run([sys.executable, "-I", "-S", "-c", "import ctypes"], {**os.environ, PRELOAD: made})
            if said:
                raise OSError(f"it cannot be preloaded: {said}")
            os.replace(made, path)
    check_own_dir(folder)
    return path


def _mark() -> str:
    """Name what a library is built from and for: homes may be shared by machines."""
    for_whom = (os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or "")
    return hashlib.sha256(SOURCE.read_bytes() + repr(for_whom).encode()).hexdigest()[:16]


def _run(command: list[str], env: Mapping[str, str]) -> str:
    ran = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    return ran.stderr.strip()
