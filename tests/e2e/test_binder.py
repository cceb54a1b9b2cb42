"""`binder/` builds the environment that its files describe, in a clean directory, and the tour runs in it.

The packages are pip's here, under their conda names: where there is conda, Binder does the same with it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import tarfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
DEMO = "examples/demo.ipynb"
NOT_PIPS = {"python", "nodejs", "pip"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(shutil.which("npm") is None, reason="node builds the lab extension: install node 20"),
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="a clean copy is made by git: no repository is here"
    ),
]


def checkout(directory: Path) -> Path:
    """Return a clean copy of what is committed, as Binder's builder has it."""
    archive = directory / "sources.tar"
    subprocess.run(["git", "-C", str(ROOT), "archive", "-o", str(archive), "HEAD"], check=True, timeout=60)
    place = directory / "sources"
    with tarfile.open(archive) as sources:
        sources.extractall(place, filter="data")
    return place


def packages(place: Path) -> list[str]:
    """Return pip's words for what environment.yml names."""
    named = yaml.safe_load((place / "binder" / "environment.yml").read_text())["dependencies"]
    words = [re.fullmatch(r"([a-z-]+)(?:=(?!=)(.+)|(.*))", one) for one in named]
    return [
        f"{word[1]}=={word[2]}.*" if word[2] else word[0]
        for word in words
        if word is not None and word[1] not in NOT_PIPS
    ]


@contextlib.contextmanager
def built(place: Path, directory: Path) -> Iterator[dict[str, str]]:
    """Build the environment in `directory`; yield what its programs run with."""
    venv.create(directory, with_pip=True)
    dropped = ("PYTHONPATH", "JUPYTER_PATH", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["JUPYTER_CONFIG_DIR"] = str(directory / "config")  # The image has nobody's own settings.
    env["PATH"] = os.pathsep.join((str(directory / "bin"), env["PATH"]))
    python = str(directory / "bin" / "python")
    try:
        run([python, "-m", "pip", "install", "--quiet", *packages(place)], place, env)
        run(["bash", "binder/postBuild"], place, env)
        yield env
    finally:
        subprocess.run(
            [directory / "bin" / "replkernel", "agent", "stop"], env=env, capture_output=True, check=False
        )


def run(command: list[str], place: Path, env: dict[str, str]) -> str:
    """Run a command to its end; return what it says, and fail if it fails."""
    done = subprocess.run(
        command, cwd=place, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def first_page(place: Path, env: dict[str, str]) -> str:
    """Start JupyterLab as Binder does; return where it sends who opens it."""
    port = free_port()
    options = [f"--port={port}", "--no-browser", "--IdentityProvider.token=", "--allow-root"]
    command = ["bash", "binder/start", "jupyter", "lab", *options]
    lab = subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                with contextlib.closing(connection):
                    connection.request("GET", "/", headers={"Connection": "close"})
                    with connection.getresponse() as answer:
                        return answer.getheader("Location", "").rstrip("?")
            time.sleep(0.2)
        return ""
    finally:
        lab.terminate()
        lab.wait(60)


def test_binder_builds_its_environment_and_the_tour_runs_in_it(tmp_path: Path) -> None:
    place = checkout(tmp_path)
    with built(place, tmp_path / "environment") as env:
        assert not (place / "node_modules").exists(), "the image is not to carry what only its build needs"
        assert "replkernel " in run(["jupyter", "kernelspec", "list"], place, env)
        said = run(["jupyter", "labextension", "list"], place, env)
        assert "OK" in next(line for line in said.splitlines() if "@replkernel/labextension" in line)
        run(["bash", "binder/start", "jupyter", "execute", "--kernel_name=replkernel", DEMO], place, env)
        assert first_page(place, env) == f"/lab/tree/{DEMO}"
