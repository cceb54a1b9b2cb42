"""Two hosts with environments of their own: other versions are named; what a cell installs reaches both."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import find_agent
from tests.support.live import eventually, kernel

pytestmark = [pytest.mark.timeout(180)]
START_S = 60.0


def environment(directory: Path, *toys: tuple[str, str]) -> Path:
    """Make an environment that sees the packages of this one and has toys of its own; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    seen = [part for part in sys.path if part and Path(part).is_dir()]
    (packages / "seen.pth").write_text("\n".join(seen))
    for name, version in toys:
        told = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return directory / "bin" / "python"


def wheel(directory: Path, name: str) -> None:
    """Write a package that can be installed without a network."""
    stem = f"{name.replace('-', '_')}-1.0"
    files = {
        f"{name.replace('-', '_')}.py": "here = True\n",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{stem}.dist-info/RECORD"])
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{stem}.dist-info/RECORD": record}.items():
            archive.writestr(path, text)


@contextlib.contextmanager
def agents(**pythons: Path) -> Iterator[None]:
    """Run an agent for each host, with a Python for its kernels."""
    running = []
    path = os.pathsep.join(part for part in sys.path if part)
    try:
        for host, python in pythons.items():
            env = os.environ | {"REPLKERNEL_PYTHON": str(python), "PYTHONPATH": path}
            command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host]
            running.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
        for host in pythons:
            eventually(lambda host=host: find_agent(host, os.environ), f"the agent of {host}", START_S)
        yield
    finally:
        for process in running:
            process.terminate()
            process.wait(START_S)


def installed(python: Path) -> bool:
    return any(python.parents[1].glob("lib/*/site-packages/rk_new.py"))


def test_other_versions_are_named_and_what_a_cell_installs_reaches_the_other_host(tmp_path: Path) -> None:
    one = environment(tmp_path / "one", ("rk-toy", "2.0"), ("rk-only", "1.0"))
    two = environment(tmp_path / "two", ("rk-toy", "1.9"))
    wheel(tmp_path, "rk-new")
    with (
        agents(one=one, two=two),
        kernel(tmp_path, REPLKERNEL_HOSTS="one,two", REPLKERNEL_REPLICAS="2") as live,
    ):
        told = "Other than one, host two has no rk-only (1.0), rk-toy 1.9 (not 2.0)."
        eventually(lambda: told in live.terminal, "what differs is named", START_S)
        first = live.run("import sys; print(sys.prefix)")
        assert told in first.err
        assert first.out.strip() in (str(one.parents[1]), str(two.parents[1]))
        ran = live.run(f"%pip install --no-index --no-deps --find-links {tmp_path} rk-new")
        assert ran.status == "ok", ran.error
        other = "two" if str(one.parents[1]) == first.out.strip() else "one"
        assert f"Repeated on host {other}: Successfully installed rk-new-1.0" in ran.out
        assert installed(one) and installed(two)
        again = live.run(f"%pip install --no-index --no-deps --find-links {tmp_path} rk-none")
        assert "Repeated" not in again.out, "what failed here was repeated elsewhere"
        assert live.value("import rk_new; print(rk_new.here)") == "True"


@pytest.mark.slow
def test_where_the_hosts_share_an_environment_nothing_is_repeated(tmp_path: Path) -> None:
    shared = environment(tmp_path / "shared")
    wheel(tmp_path, "rk-new")
    with (
        agents(one=shared, two=shared),
        kernel(tmp_path, REPLKERNEL_HOSTS="one,two", REPLKERNEL_REPLICAS="2") as live,
    ):
        ran = live.run(f"%pip install --no-index --no-deps --find-links {tmp_path} rk-new")
        assert "Successfully installed" in ran.out and "epeated" not in ran.out
        assert "Other than" not in live.terminal


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_host_with_other_versions_gets_no_replica_and_a_spare_one_does(
    tmp_path: Path, replicas: int
) -> None:
    one = environment(tmp_path / "one", ("rk-toy", "2.0"))
    two = environment(tmp_path / "two", ("rk-toy", "1.9"))
    others = [f"spare{number}" for number in range(1, replicas)]
    settings = {
        "REPLKERNEL_HOSTS": ",".join(["one", "two", *others]),
        "REPLKERNEL_REPLICAS": str(replicas),
        "REPLKERNEL_HOST_LOST_S": "2",
    }
    with (
        agents(one=one, two=two, **dict.fromkeys(others, one)),
        kernel(tmp_path, REPLKERNEL_VERSIONS="refuse", **settings) as live,
    ):
        refused = "Host two gets no replica of this kernel: other than one it has rk-toy 1.9 (not 2.0)."
        eventually(lambda: refused in live.terminal, "the host is refused by name", START_S)
        assert live.value("kept = 41; print(kept + 1)") == "42"

        def stands() -> str:
            return str(live.run("%replkernel status").out)

        eventually(lambda: others[-1] in stands(), "a replica on the spare host", START_S)
        eventually(lambda: "not durable" not in stands(), "a state that is durable", START_S)
        assert " two " not in stands()
        assert live.value("print(kept)") == "41"
