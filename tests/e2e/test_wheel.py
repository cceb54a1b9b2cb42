"""Wheel and sdist in empty environments without node: the kernel and both extensions are there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
BUNDLE = ROOT / "server_ext" / "replkernel_server" / "labextension" / "package.json"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not BUNDLE.is_file() and shutil.which("node") is None,
        reason="node is needed to build the lab extension",
    ),
]


class Installation:
    """An environment that holds the wheel and JupyterLab, whose programs see no node."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.env = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JUPYTER_PATH")
        }
        self.env["PATH"] = str(self.bin)

    def run(self, *command: str) -> str:
        """Run one of the environment's programs; return all that it says, and fail if it fails."""
        program = [str(self.bin / command[0]), *command[1:]]
        done = subprocess.run(program, env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def distribution(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, or the sdist, from the sources."""
    out = tmp_path_factory.mktemp("dist")
    how = [f"--{request.param}", "--no-isolation", "--outdir", str(out), str(ROOT)]
    build = [sys.executable, "-m", "build", *how]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("replkernel-*")
    return found


@pytest.fixture(scope="module")
def directory(distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it and JupyterLab into an empty environment, where pip finds no node to build with either."""
    made = tmp_path_factory.mktemp("installed")
    venv.create(made, with_pip=True)
    needs = [str(distribution), "jupyterlab>=4.6,<5", "nbclient"]
    pip = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet", "--quiet", *needs]
    places = [place for place in os.environ["PATH"].split(os.pathsep) if not shutil.which("node", path=place)]
    subprocess.run(pip, check=True, timeout=400, env=os.environ | {"PATH": os.pathsep.join(places)})
    return made


@pytest.fixture
def installed(directory: Path) -> Installation:
    return Installation(directory)


def test_the_sdist_has_the_pages_and_no_leftovers(distribution: Path) -> None:
    if distribution.suffix == ".whl":
        pytest.skip("pages are in the sdist")
    with tarfile.open(distribution) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"docs/use/tutorial.md", "examples/demo.ipynb", "LICENSE"} <= names
    assert not [
        name for name in names if name.endswith(".orig") or name.startswith(("build/", "node_modules/"))
    ]


def test_the_packages_description_links_to_the_repository(installed: Installation, directory: Path) -> None:
    (about,) = directory.glob("lib/python*/site-packages/replkernel-*.dist-info/METADATA")
    links = re.findall(r"\]\(([^)]*)\)|src(?:set)?=\"([^\"]*)\"", about.read_text())
    targets = [link or picture for link, picture in links]
    assert len(targets) > 40
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_jupyter_lists_kernel_server_extension_and_lab_extension(installed: Installation) -> None:
    assert shutil.which("node", path=installed.env["PATH"]) is None
    assert "replkernel " in installed.run("jupyter", "kernelspec", "list")
    assert "replkernel-provisioner" in installed.run("jupyter", "kernelspec", "provisioners")
    assert "replkernel_server" in installed.run("jupyter", "server", "extension", "list")
    lab = [
        line
        for line in installed.run("jupyter", "labextension", "list").splitlines()
        if "@replkernel" in line
    ]
    assert len(lab) == 1
    assert "enabled" in lab[0]
    assert "OK" in lab[0]


def test_nothing_leaks_into_site_packages_and_torch_stays_out(
    installed: Installation, directory: Path
) -> None:
    (site,) = directory.glob("lib/python*/site-packages")
    names = {path.name for path in site.iterdir()}
    assert {"replkernel", "replkernel_scheduler", "replkernel_server"} <= names
    assert not names & {"tests", "scheduler", "server_ext", "labextension", "docs", "torch", "numpy"}


def test_the_doctor_finds_nothing_wrong(installed: Installation) -> None:
    assert "All is well." in installed.run("replkernel", "doctor")


def test_a_notebook_runs_by_the_provisioner(installed: Installation, tmp_path: Path) -> None:
    path = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")]), path)
    installed.run("jupyter", "execute", "--kernel_name=replkernel", "--inplace", str(path))
    assert nbformat.read(path, as_version=4).cells[0].outputs[0].text == "42\n"
    installed.run("replkernel", "agent", "stop")
