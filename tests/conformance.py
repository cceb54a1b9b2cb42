"""``make conformance``: the official Jupyter kernel test and ipykernel's own suite, run against this kernel.

Law: not one line of the foreign suites is changed; our kernelspec takes the place of ``python3``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from replkernel.agent.io.lookup import stop_agent
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable

ROOT = Path(__file__).resolve().parents[1]
IPYKERNEL = "7.4.0"
SUITE = ("kernel", "message_spec", "subshells", "subshell_wedge", "async", "debugger", "eventloop", "curve")
"""The parts of ipykernel's suite that start a kernel; the others test classes inside one process."""
PYTEST_OPTIONS = (
    "-q", "-o", "asyncio_default_fixture_loop_scope=function", "-o", "addopts=", "-p", "no:cacheprovider",
    "-p", "ipykernel_options", "--timeout", "200",
)  # fmt: skip


def fetch_suite(directory: Path) -> Path:
    """Download ipykernel's source release into `directory` and return its root."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "ipykernel"]
    subprocess.run([*pip, "--dest", str(directory), f"ipykernel=={IPYKERNEL}"], check=True)
    with tarfile.open(next(directory.glob("ipykernel-*.tar.gz"))) as archive:
        archive.extractall(directory, filter="data")
    return directory / f"ipykernel-{IPYKERNEL}"


def shadow_python3(directory: Path, *, provisioned: bool = False) -> Path:
    """Write our kernelspec under the name ``python3`` and return the directory for JUPYTER_PATH."""
    spec = json.loads((ROOT / "replkernel" / "kernelspec" / "kernel.json").read_text())
    spec["argv"][0] = sys.executable
    if not provisioned:
        del spec["metadata"]["kernel_provisioner"]
    kernel = directory / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec))
    return directory


def environment(directory: Path) -> dict[str, str]:
    """Return an environment whose Jupyter directories and sockets are private to one run."""
    names = ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "REPLKERNEL_SOCKET_DIR")
    private = {}
    for name in names:
        place = directory / name.lower().removeprefix("jupyter_").removesuffix("_dir")
        place.mkdir(mode=0o700)
        private[name] = str(place)
    path = os.pathsep.join(str(ROOT / part) for part in ("", "scheduler", "server_ext", "tests/support"))
    return {**os.environ, **private, "PYTHONPATH": path}


def stop_agents(env: Mapping[str, str]) -> None:
    """End the agents that the kernels of this run have started."""
    for name in agent_names(env):
        with contextlib.suppress(AgentUnavailable):
            stop_agent(name, env)


def main(argv: Sequence[str] | None = None) -> int:
    """Run both suites; further arguments go to pytest. Return 0 when everything passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suite", type=Path, help="an unpacked source release of ipykernel, instead of a download"
    )
    parser.add_argument(
        "--part", action="append", choices=SUITE, help="run only this part of ipykernel's suite"
    )
    options, extra = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory(prefix="rkc-", dir="/tmp") as name:
        scratch = Path(name)
        env = environment(scratch)
        env["JUPYTER_PATH"] = str(shadow_python3(scratch / "path"))
        python = [sys.executable, "-m", "pytest"]
        official = 0
        if not options.part:
            sample = ROOT / "tests" / "e2e" / "test_jupyter_kernel_test.py"
            official = subprocess.run(
                [*python, "-q", str(sample), *extra], cwd=ROOT, env=env, check=False
            ).returncode
        suite = options.suite or fetch_suite(scratch)
        files = [f"tests/test_{part}.py" for part in options.part or SUITE]
        own = subprocess.run(
            [*python, *PYTEST_OPTIONS, *files, *extra], cwd=suite, env=env, check=False
        ).returncode
        stop_agents(env)
    return official or own


if __name__ == "__main__":
    sys.exit(main())
