"""Where Jupyter Server would cull an idle kernel, a replicated one is put to rest, and comes back whole."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support.live import eventually
from tests.support.server_life import living, record_path

PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
]
CULL = ("--MappingKernelManager.cull_idle_timeout=2", "--MappingKernelManager.cull_interval=1")


def state(kernel_id: str) -> str:
    """Return what the kernel's record says of it."""
    return str(json.loads(record_path(kernel_id).read_text()).get("state", "live"))


def test_an_idle_kernel_is_put_to_rest_stays_listed_and_comes_back_with_its_variables(tmp_path: Path) -> None:
    with living(tmp_path, *CULL) as life:
        model = life.open_notebook("a.ipynb")
        session, kernel_id = model["id"], model["kernel"]["id"]
        with life.page(kernel_id) as page:
            pid = int(page.run("import os; x = 42; print(os.getpid())"))
        eventually(lambda: state(kernel_id) == "hibernated", "the kernel's rest", 60)
        eventually(lambda: not psutil.pid_exists(pid), "the end of its process")
        assert life.sessions() == [(session, "a.ipynb", kernel_id)]

        life.restart(signal.SIGKILL)
        assert life.sessions() == [(session, "a.ipynb", kernel_id)]
        assert state(kernel_id) == "hibernated"
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "42"
            assert state(kernel_id) == "live"


@pytest.mark.slow
def test_a_kernel_that_cannot_rest_is_left_running(tmp_path: Path) -> None:
    with living(tmp_path, *CULL) as life:
        kernel_id = life.open_notebook("a.ipynb")["kernel"]["id"]
        with life.page(kernel_id) as page:
            pid = int(page.run("import os; g = (n for n in (1, 2)); next(g); print(os.getpid())"))
        eventually(
            lambda: f"Kernel {kernel_id} was not hibernated: " in life.log.read_text(), "the refusal", 60
        )
        assert psutil.pid_exists(pid)
        with life.page(kernel_id) as page:
            assert page.run("import os; print(os.getpid())") == str(pid)


@pytest.mark.slow
def test_other_kernels_are_culled_as_ever(tmp_path: Path) -> None:
    with living(tmp_path, *CULL) as life:
        status, model = life.server.call("POST", "api/kernels", {"name": "python3"})
        assert status == 201
        eventually(lambda: life.server.get("api/kernels") == (200, []), "the end of the stock kernel", 60)
        assert not (Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "kernels" / model["id"]).exists()
