"""NVIDIA's driver libraries as stubs in C, for their real Python clients; built with the compiler at hand.

`stubs` is a pytest fixture; what a script may say is at the head of the files in `stubs/`. Law: nothing here
computes, and no figure comes from it; where there is no compiler, or no client, a test is skipped by name.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "stubs"
LIBRARIES = {"libcuda.c": "libcuda.so.1", "libnvml.c": "libnvidia-ml.so.1"}
GPU, OTHER = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "ab")
GB = 10**9
RUN_LIMIT_S = 120
PRELUDE = """
import os, pathlib
from replkernel.gpu import seen
seen.DEVICES = pathlib.Path(os.environ["STUB_DRIVERS"], "dev")
"""
"""The stubs' devices are files: nobody but root could make others."""
CLIENT = """
from cuda.bindings import driver as cu
def told(result):
    assert result[0] == 0, result
    return result[-1]
def start():
    told(cu.cuInit(0))
    told(cu.cuDevicePrimaryCtxRetain(0))
def take(count):
    told(cu.cuMemAlloc(count))
"""
"""A program that uses CUDA without torch, as JAX, CuPy or numba do."""


class Stubs:
    """One test's drivers: what they are told, what they were asked."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.folder = folder
        self._libraries = libraries
        self._always = [f"gpu {GPU} H100 {80 * GB}", f"gpu {OTHER} H100 {80 * GB}"]
        (folder / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            (folder / "dev" / name).touch()
        self.script()

    def script(self, *lines: str, machine: list[str] | None = None) -> None:
        """Have the drivers do as the lines say, from now on."""
        text = "\n".join([*(self._always if machine is None else machine), *lines, ""])
        fresh = self.folder / "script.new"
        fresh.write_text(text)
        fresh.replace(self.folder / "script")

    def calls(self, *names: str) -> list[str]:
        """Return what was called, in order, without who called: of these functions, or all."""
        path = self.folder / "calls"
        lines = [line.split(" ", 1)[1] for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if not names or line.split()[0] in names]

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process that is to meet these drivers."""
        return {**os.environ, **self.only}

    @property
    def only(self) -> dict[str, str]:
        """What of it is theirs."""
        found = [str(self._libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            "STUB_DRIVERS": str(self.folder),
            "LD_LIBRARY_PATH": ":".join(word for word in found if word),
            "CUDA_VISIBLE_DEVICES": GPU,
        }

    def run(self, source: str, *, client: str = CLIENT, **more: str) -> list[str]:
        """Run a program under the drivers; return the lines that it prints."""
        ran = subprocess.run(
            [sys.executable, "-c", PRELUDE + client + source],
            env={**self.env, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_LIMIT_S,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()


@functools.cache
def built(under: Path) -> Path | None:
    """Return the folder of the libraries, built once a session; None where there is no compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    folder = under / "stub-drivers"
    folder.mkdir()
    for source, name in LIBRARIES.items():
        command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
        command += [f"-Wl,-soname,{name}", "-o", str(folder / name), str(SOURCES / source)]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture
def stubs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """The stub drivers in a folder of the test's own."""
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    libraries = built(tmp_path_factory.getbasetemp())
    if libraries is None:
        pytest.skip("there is no C compiler: the stub drivers cannot be built")
    folder = tmp_path / "stubs"
    folder.mkdir()
    return Stubs(folder, libraries)
