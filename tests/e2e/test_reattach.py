"""A Jupyter Server that is stopped or killed finds its replicated kernels again: same ids, same variables.

All tests share an agent; one that kills everything has the next one in its place.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
from pathlib import Path

import nbformat
import psutil
import pytest

from tests.e2e.faults.hosts import lives
from tests.support.breadth import first_of
from tests.support.executed import run_notebook
from tests.support.group import replicas
from tests.support.live import eventually
from tests.support.server_life import ServerLife, living, record_path
from tests.support.shared_place import _kernel_in_reach, _no_kernel_left, _own_directories, place
from tests.support.stock import OURS

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        "replkernel-provisioner" not in PROVISIONERS.names,
        reason="the package is not installed: pip install -e .",
    ),
]
WHO = "import os; print(x, os.getpid())"


def router_pid(kernel_id: str) -> int:
    """Return the process that serves a kernel, as its record says once there is one."""
    eventually(record_path(kernel_id).exists, "a record of the kernel")
    return int(json.loads(record_path(kernel_id).read_text())["router_pid"])


def kept(life: ServerLife) -> str:
    """Return what the server has written down of its sessions."""
    server = Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "server"
    return "".join(path.read_text() for path in server.glob("*/sessions*.json"))


def remembered(life: ServerLife, session: str) -> None:
    """Wait until the server has written a session down."""
    eventually(lambda: session in kept(life), "the session's being written down", 10)


@pytest.mark.parametrize("how", first_of(signal.SIGKILL, signal.SIGTERM))
def test_kernel_session_variables_and_process_are_the_same_after_a_restart_of_the_server(
    tmp_path: Path, how: signal.Signals
) -> None:
    """And a kernel that its user had shut down before does not come back."""
    with living(tmp_path) as life:
        ended, model = life.open_notebook("ended.ipynb"), life.open_notebook("a.ipynb")
        session, kernel_id = model["id"], model["kernel"]["id"]
        with life.page(kernel_id) as page:
            before = page.run(f"x = 42; {WHO}")
            assert before.startswith("42 ")
            remembered(life, session)
            router = router_pid(ended["kernel"]["id"])
            began, end = tmp_path / "began", tmp_path / "end"
            page.send(
                f"import pathlib, time; pathlib.Path({str(began)!r}).touch()\n"
                f"while not pathlib.Path({str(end)!r}).exists(): time.sleep(0.05)\n"
                "y = 'ready'"
            )
            eventually(began.exists, "a cell that runs")
            assert life.server.call("DELETE", f"api/sessions/{ended['id']}")[0] == 204
            life.restart(how)
        assert life.sessions() == [(session, "a.ipynb", kernel_id)]
        assert not record_path(ended["kernel"]["id"]).parent.exists()
        assert not psutil.pid_exists(router)
        end.touch()
        with life.page(kernel_id) as page:
            assert page.run("print(y)") == "ready"
            assert page.run(WHO) == before
        assert record_path(kernel_id).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_kernel_found_again_is_an_ordinary_one(tmp_path: Path) -> None:
    """It is renamed, restarted, replaced after a crash of its router as any other, and shut down for good."""
    with living(tmp_path) as life:
        model = life.open_notebook("a.ipynb")
        session, kernel_id = model["id"], model["kernel"]["id"]
        renamed = {"path": "b.ipynb", "name": "b.ipynb"}
        assert life.server.call("PATCH", f"api/sessions/{session}", renamed)[0] == 200
        remembered(life, "b.ipynb")
        with life.page(kernel_id) as page:
            page.run("x = 1")
        life.restart(signal.SIGKILL)
        assert life.sessions() == [(session, "b.ipynb", kernel_id)]

        crashed = router_pid(kernel_id)
        os.kill(crashed, signal.SIGKILL)
        eventually(lambda: router_pid(kernel_id) != crashed, "another router")
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "1"
        ports = json.loads(record_path(kernel_id).read_text())["connection"]

        life.restart(signal.SIGKILL)
        assert life.server.call("POST", f"api/kernels/{kernel_id}/restart")[0] == 200
        with life.page(kernel_id) as page:
            assert page.run("print('x' in globals())") == "False"
        assert json.loads(record_path(kernel_id).read_text())["connection"] == ports

        assert life.server.call("DELETE", f"api/kernels/{kernel_id}")[0] == 204
        life.restart(signal.SIGTERM)
        assert life.sessions() == []


@pytest.mark.slow
def test_a_router_that_died_with_its_server_is_replaced(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        model = life.open_notebook("a.ipynb")
        kernel_id = model["kernel"]["id"]
        with life.page(kernel_id) as page:
            before = page.run(f"x = 5; {WHO}")
        remembered(life, model["id"])
        life.stop(signal.SIGKILL)
        os.kill(router_pid(kernel_id), signal.SIGKILL)
        life.start()
        with life.page(kernel_id) as page:
            assert page.run(WHO) == before


@pytest.mark.slow
def test_a_second_server_beside_the_first_takes_nothing_away(tmp_path: Path) -> None:
    with living(tmp_path) as first:
        model = first.open_notebook("a.ipynb")
        session, kernel_id = model["id"], model["kernel"]["id"]
        with first.page(kernel_id) as page:
            before = page.run(f"x = 3; {WHO}")
        remembered(first, session)
        with living(tmp_path) as second:
            assert second.sessions() == []
            other = second.open_notebook("b.ipynb")
            remembered(second, other["id"])
            first.restart(signal.SIGKILL)
            assert first.sessions() == [(session, "a.ipynb", kernel_id)]
            second.restart(signal.SIGTERM)
            assert second.sessions() == [(other["id"], "b.ipynb", other["kernel"]["id"])]
        with first.page(kernel_id) as page:
            assert page.run(WHO) == before


@pytest.mark.slow
def test_encrypted_kernels_are_found_again_as_well(tmp_path: Path) -> None:
    option = "--MappingKernelManager.transport_encryption=required"
    with living(tmp_path, option) as life:
        model = life.open_notebook("a.ipynb")
        kernel_id = model["kernel"]["id"]
        with life.page(kernel_id) as page:
            before = page.run(f"x = 6; {WHO}")
        assert "curve_secretkey" in json.loads(record_path(kernel_id).read_text())["connection"]
        remembered(life, model["id"])
        life.restart(signal.SIGKILL)
        with life.page(kernel_id) as page:
            assert page.run(WHO) == before


@pytest.mark.slow
def test_servers_that_keep_no_kernels_end_them_as_ever(tmp_path: Path) -> None:
    with living(tmp_path, "--ReplkernelExtension.keep_kernels=False") as life:
        model = life.open_notebook("a.ipynb")
        pid = router_pid(model["kernel"]["id"])
        life.restart(signal.SIGTERM)
        assert life.sessions() == []
        assert not psutil.pid_exists(pid)
        assert not record_path(model["kernel"]["id"]).exists()


def test_a_kernel_whose_server_stays_away_is_put_to_rest_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_LAUNCHER_GRACE_S", "1")
    with living(tmp_path) as life:
        model = life.open_notebook("a.ipynb")
        kernel_id = model["kernel"]["id"]
        with life.page(kernel_id) as page:
            pid = int(page.run("import os; x = 8; print(os.getpid())"))
        remembered(life, model["id"])
        life.stop(signal.SIGKILL)
        eventually(lambda: not psutil.pid_exists(pid), "the end of the kernel's process", 60)
        life.start()
        assert life.sessions() == [(model["id"], "a.ipynb", kernel_id)]
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "8"


@pytest.mark.slow
def test_a_batch_run_leaves_no_record(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")])
    nbformat.write(notebook, tmp_path / "batch.ipynb")
    run_notebook(tmp_path / "batch.ipynb", OURS, tmp_path)
    kernels = Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel" / "kernels"
    assert kernels.is_dir()
    assert list(kernels.iterdir()) == []


def test_after_a_crash_of_everything_all_that_was_durable_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_DURABLE", "before_reply")
    with living(tmp_path) as life:
        model = life.open_notebook("a.ipynb")
        session, kernel_id = model["id"], model["kernel"]["id"]
        with life.page(kernel_id) as page:
            page.run("x = 9")
        remembered(life, session)
        known = eventually(lambda: len(found := replicas()) == 3 and found, "three replicas").values()
        pids = {pid for replica in known for pid in (replica.kernel_pid, replica.agent_pid) if pid}
        life.stop(signal.SIGKILL)
        eventually(lambda: not _killed(os.environ["JUPYTER_DATA_DIR"]), "the end of all processes")
        assert pids and not any(map(lives, pids))
        life.start()
        assert life.sessions() == [(session, "a.ipynb", kernel_id)]
        with life.page(kernel_id) as page:
            assert page.run("print(x)") == "9"


def _killed(data_dir: str) -> int:
    """Kill every process of the test's own installation, as a power cut does; return how many there were."""
    found = 0
    for process in psutil.process_iter():
        try:
            if (
                process.pid != os.getpid()
                and process.environ().get("JUPYTER_DATA_DIR") == data_dir
                and any("replkernel" in part for part in process.cmdline())
            ):
                process.kill()
                found += 1
        except psutil.Error:
            continue
    return found
