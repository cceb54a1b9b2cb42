"""Settings in configuration files reach the kernels of every client; what is wrong in them is a sentence."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import nbformat
import pytest
from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.provisioning import KernelProvisionerFactory

from replkernel.client.inquiry import ask_agents
from replkernel.provisioner import ReplkernelProvisioner
from tests.support.breadth import first_of
from tests.support.lab import running
from tests.support.live import AGENT_S, eventually, kernel
from tests.support.stock import OURS

pytestmark = pytest.mark.timeout(120)

NAME = "replkernel-provisioner"
CONFIG = "jupyter_replkernel_config"


@pytest.fixture(autouse=True)
def _provisioner_in_reach(
    _kernel_in_reach: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Have Jupyter find the provisioner as where the package is installed, here and in child processes."""
    package = tmp_path / "installed" / "replkernel-0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: replkernel-of-the-tests\nVersion: 0\n")
    group = "jupyter_client.kernel_provisioners"
    line = f"{NAME} = replkernel.provisioner:ReplkernelProvisioner"
    (package / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}{os.pathsep}{os.environ['PYTHONPATH']}")
    monkeypatch.syspath_prepend(str(package.parent))
    spec = Path(os.environ["JUPYTER_PATH"]) / "kernels" / OURS / "kernel.json"
    fields = json.loads(spec.read_text())
    fields["metadata"]["kernel_provisioner"] = {"provisioner_name": NAME}
    spec.write_text(json.dumps(fields))
    assert entry_points(group=group, name=NAME)
    KernelProvisionerFactory.clear_instance()
    yield
    KernelProvisionerFactory.clear_instance()


def write(text: str, name: str = f"{CONFIG}.py") -> Path:
    path = Path(os.environ["JUPYTER_CONFIG_DIR"]) / name
    path.write_text(text)
    return path


def provisioner(**given: object) -> ReplkernelProvisioner:
    return ReplkernelProvisioner(**given)


def test_a_client_without_configuration_of_its_own_reads_the_file(tmp_path: Path) -> None:
    write("c.ReplkernelProvisioner.replicas = 1\nc.ReplkernelProvisioner.durable = 'before_reply'\n")
    with kernel(tmp_path, KernelManager(kernel_name=OURS)) as live:
        ran = live.run("x = 1")
        assert ran.said["durable"] is True
        (known,) = ask_agents(os.environ, AGENT_S).kernels
        assert [replica.replica for replica in known.replicas] == ["r1"]


def test_jupyter_execute_reads_the_file(tmp_path: Path) -> None:
    import subprocess

    write("c.ReplkernelProvisioner.hosts = ['configured']\n")
    path = tmp_path / "small.ipynb"
    cell = nbformat.v4.new_code_cell("%replkernel status")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    command = [sys.executable, "-m", "jupyter", "execute", f"--kernel_name={OURS}", "--inplace", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert "host configured" in str(nbformat.read(path, as_version=4).cells[0].outputs)


@pytest.mark.slow
def test_jupyter_server_reads_the_file_and_its_own_option_wins(tmp_path: Path) -> None:
    write("c.ReplkernelProvisioner.replicas = 1\nc.ReplkernelProvisioner.hosts = ['from-the-file']\n")
    with running("server", tmp_path, "--ReplkernelProvisioner.replicas=2") as server:
        code, started = server.call("POST", "api/kernels", {"name": OURS})
        assert code == 201, started

        def whole() -> list[str] | None:
            kernels = ask_agents(os.environ, AGENT_S).kernels
            found = [f"{each.host}/{each.replica}" for known in kernels for each in known.replicas]
            return found if len(found) == 2 else None

        assert eventually(whole, "two replicas") == ["from-the-file/r1", "from-the-file/r2"]
        time.sleep(0.5)
        (known,) = ask_agents(os.environ, AGENT_S).kernels
        assert len(known.replicas) == 2
        assert server.call("DELETE", f"api/kernels/{started['id']}")[0] == 204


@pytest.mark.slow
def test_the_later_file_the_own_trait_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(tmp_path / "everybody"))
    (tmp_path / "everybody").mkdir()
    (tmp_path / "everybody" / f"{CONFIG}.py").write_text(
        "c.ReplkernelProvisioner.replicas = 5\nc.ReplkernelProvisioner.executor = 'random'\n"
    )
    write('{"ReplkernelProvisioner": {"replicas": 7, "preload": ["numpy", "pandas"]}}', f"{CONFIG}.json")
    chosen = provisioner().settings_env()
    assert chosen["REPLKERNEL_EXECUTOR"] == "random"
    assert chosen["REPLKERNEL_PRELOAD"] == "numpy,pandas"
    assert chosen["REPLKERNEL_REPLICAS"] == ("5" if _path_comes_first() else "7")
    assert provisioner(replicas=3).settings_env()["REPLKERNEL_REPLICAS"] == "3"


def _path_comes_first() -> bool:
    """Tell whether Jupyter puts JUPYTER_CONFIG_PATH before the user's own directory, as it says it does."""
    from jupyter_core.paths import jupyter_config_path

    found = jupyter_config_path()
    return found.index(os.environ["JUPYTER_CONFIG_PATH"]) < found.index(os.environ["JUPYTER_CONFIG_DIR"])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("c.ReplkernelProvisioner.replicas = 99", ("REPLKERNEL_REPLICAS='99'", "from 1 to 9")),
        pytest.param(
            "c.ReplkernelProvisioner.executor = 'fastest'",
            ("REPLKERNEL_EXECUTOR='fastest'", "rotate"),
            marks=pytest.mark.slow,
        ),
        ("c.ReplkernelProvisioner.replicas =", (CONFIG, "SyntaxError", "correct the file")),
        pytest.param(
            "import no_such_module_anywhere",
            (CONFIG, "no_such_module_anywhere", "correct the file"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_wrong_setting_in_the_file_is_the_answer_to_each_cell(
    tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    write(text)
    with kernel(tmp_path, KernelManager(kernel_name=OURS)) as live:
        ran = live.run("1")
        assert ran.status == "error"
        assert ran.error.startswith("SettingError: ")
        assert all(part in ran.error for part in parts), ran.error
        assert len(ran.error.splitlines()) == 1
        assert all(part in live.terminal for part in parts)
        assert "Traceback" not in live.terminal


def test_a_name_that_is_no_setting_is_told(caplog: pytest.LogCaptureFixture) -> None:
    write("c.ReplkernelProvisioner.replica = 1\n")
    made = provisioner()
    made.log.propagate = True
    assert "REPLKERNEL_REPLICAS" not in made.settings_env()
    assert "there is no setting 'replica'" in caplog.text


@pytest.mark.slow
def test_a_mended_file_counts_from_the_next_start_on(tmp_path: Path) -> None:
    write("c.ReplkernelProvisioner.replicas = 'many'\n")
    with kernel(tmp_path, KernelManager(kernel_name=OURS)) as live:
        client: BlockingKernelClient = live.client
        assert live.run("1").error.startswith("SettingError: REPLKERNEL_REPLICAS='many'")
        write("c.ReplkernelProvisioner.replicas = 1\n")
        live.manager.restart_kernel(now=False)
        client.wait_for_ready(timeout=60)
        assert live.run("1").replica == "r1"


INLINE = "matplotlib_inline.backend_inline"


@pytest.mark.parametrize("preloaded", first_of("matplotlib.pyplot", "sys", "matplotlib", INLINE))
def test_figures_are_shown_inline_whatever_is_preloaded(
    preloaded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    with kernel(tmp_path, KernelManager(kernel_name=OURS), REPLKERNEL_PRELOAD=preloaded) as live:
        assert live.value(f"import sys; print({preloaded!r} in sys.modules)") == "True"
        ran = live.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
        (shown,) = [content for kind, content in ran.messages if kind == "display_data"]
        assert "image/png" in shown["data"]
        assert live.value("print(plt.get_backend(), plt.get_fignums())") == f"module://{INLINE} []"


@pytest.mark.slow
def test_the_backend_that_the_user_sets_is_kept_when_matplotlib_is_preloaded(tmp_path: Path) -> None:
    chosen = {"REPLKERNEL_PRELOAD": "matplotlib.pyplot", "MPLBACKEND": "svg"}
    with kernel(tmp_path, KernelManager(kernel_name=OURS), **chosen) as live:
        ran = live.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint(plt.get_backend())")
        assert ran.out == "svg\n"
        assert "display_data" not in ran.kinds
