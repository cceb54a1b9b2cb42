"""A real router between real clients and stock ipykernel processes as its replicas."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import pytest
import zmq
from jupyter_client import BlockingKernelClient, KernelManager

from tests.support.live import reply_to

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "support" / "stock_replicas.py"
TIMEOUT_S = 30.0


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Run the stand-in for this host's agent, and put our kernelspec in reach."""
    monkeypatch.setenv("REPLKERNEL_HOST_NAME", "stock")
    monkeypatch.setenv("REPLKERNEL_REPLICAS", "2")
    spec = json.loads((ROOT / "replkernel" / "kernelspec" / "kernel.json").read_text())
    del spec["metadata"]["kernel_provisioner"]
    spec["argv"][0] = sys.executable
    kernel = tmp_path / "jupyter" / "kernels" / "routed"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    process = subprocess.Popen(
        [sys.executable, str(STAND_IN)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    yield
    process.terminate()
    process.wait(60)
    process.stdout.close()


@pytest.fixture
def start(agent: None) -> Iterator[Callable[..., tuple[KernelManager, BlockingKernelClient]]]:
    """Return a function that starts a routed kernel and a client; everything is ended afterwards."""
    started: list[tuple[KernelManager, BlockingKernelClient]] = []

    def begin(**traits: Any) -> tuple[KernelManager, BlockingKernelClient]:
        manager = KernelManager(kernel_name="routed", **traits)
        manager.start_kernel(stderr=subprocess.DEVNULL)
        client = manager.blocking_client()
        client.start_channels()
        started.append((manager, client))
        client.wait_for_ready(timeout=TIMEOUT_S)
        return manager, client

    yield begin
    for manager, client in started:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel()
        manager.context.destroy(linger=0)


def run(
    client: BlockingKernelClient, code: str, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a cell; return its reply and all that was published for it, up to idle."""
    return collect(client, client.execute(code, **options))


def collect(client: BlockingKernelClient, msg_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the reply to a request and all that was published for it, up to idle."""
    outputs: list[dict[str, Any]] = []
    while True:
        message = client.get_iopub_msg(timeout=TIMEOUT_S)
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        outputs.append(message)
        if message["content"].get("execution_state") == "idle":
            break
    return reply_to(client, msg_id), outputs


def text_of(outputs: list[dict[str, Any]]) -> str:
    """Return everything that was printed."""
    return "".join(message["content"]["text"] for message in outputs if message["msg_type"] == "stream")


Start = Callable[..., tuple[KernelManager, BlockingKernelClient]]


def test_cells_run_print_fail_and_read_input(start: Start) -> None:
    _, client = start()
    reply, outputs = run(client, "x = 2; print(x)")
    assert reply["content"]["status"] == "ok"
    kinds = [kind for kind, _ in groupby(message["msg_type"] for message in outputs)]
    assert kinds == ["status", "execute_input", "stream", "status"]
    assert run(client, "1/0")[0]["content"]["ename"] == "ZeroDivisionError"
    msg_id = client.execute("print(input('name? '))", allow_stdin=True)
    assert client.get_stdin_msg(timeout=TIMEOUT_S)["content"]["prompt"] == "name? "
    client.input("Ada")
    assert text_of(collect(client, msg_id)[1]) == "Ada\n"


def test_a_killed_executor_costs_its_cell_and_the_kernel_lives_on(start: Start) -> None:
    _, client = start()
    pid = int(text_of(run(client, "import os; print(os.getpid())")[1]))
    msg_id = client.execute("import time; print('begun', flush=True); time.sleep(60)")
    while client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "stream":
        pass
    os.kill(pid, signal.SIGKILL)
    reply, outputs = collect(client, msg_id)
    assert reply["content"]["ename"] == "ExecutorLost"
    assert reply["content"]["evalue"].startswith("killed by SIGKILL; the notebook is back at")
    assert [message["msg_type"] for message in outputs][-2:] == ["error", "status"]
    other = int(text_of(run(client, "import os; print(os.getpid())")[1]).split()[-1])
    assert other != pid


@pytest.mark.slow
def test_interrupt_by_message_and_by_signal(start: Start) -> None:
    manager, client = start()
    for interrupt in (manager.interrupt_kernel, lambda: manager.signal_kernel(signal.SIGINT)):
        # In short sleeps: Python learns of a SIGINT that comes right before a sleep only when that is over.
        cell = "import time; print('begun', flush=True); [time.sleep(0.1) for _ in range(600)]"
        msg_id = client.execute(cell)
        while client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "stream":
            pass
        interrupt()
        assert collect(client, msg_id)[0]["content"]["ename"] == "KeyboardInterrupt"


@pytest.mark.slow
def test_completion_does_not_wait_for_a_long_cell(start: Start) -> None:
    manager, client = start()
    run(client, "pass")
    busy = client.execute("import time; print('begun', flush=True); [time.sleep(0.1) for _ in range(6000)]")
    while client.get_iopub_msg(timeout=TIMEOUT_S)["msg_type"] != "stream":
        pass
    reply = client.complete("zi", reply=True, timeout=TIMEOUT_S)
    assert "zip" in reply["content"]["matches"]
    assert client.kernel_info(reply=True, timeout=TIMEOUT_S)["content"]["implementation"] == "ipython"
    manager.interrupt_kernel()
    assert collect(client, busy)[0]["content"]["ename"] == "KeyboardInterrupt"


@pytest.mark.slow
def test_a_restart_gives_a_fresh_namespace_on_the_same_ports(start: Start) -> None:
    manager, client = start()
    run(client, "x = 1")
    ports = manager.ports
    manager.restart_kernel()
    client.wait_for_ready(timeout=TIMEOUT_S)
    assert manager.ports == ports
    assert run(client, "x")[0]["content"]["ename"] == "NameError"


def test_shutdown_leaves_no_process_behind(start: Start) -> None:
    manager, client = start()
    pid = int(text_of(run(client, "import os; print(os.getpid())")[1]))
    router = manager.provisioner.process
    manager.request_shutdown()  # That alone: `shutdown_kernel` would kill it after some seconds.
    assert router.wait(TIMEOUT_S) == 0
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    "traits", [{"transport": "ipc"}, {"transport_encryption": "required"}], ids=["ipc", "curve"]
)
def test_a_cell_runs_over_ipc_and_with_encryption(
    start: Start, short_dir: Path, traits: dict[str, str]
) -> None:
    if traits.get("transport") == "ipc":
        traits = {**traits, "ip": str(short_dir / "k")}
    _, client = start(**traits)
    assert text_of(run(client, "print(7)")[1]) == "7\n"


def test_a_stranger_without_the_curve_key_is_not_heard(start: Start) -> None:
    manager, _ = start(transport_encryption="required")
    with zmq.Context() as context:
        for port in (manager.hb_port, manager.shell_port):
            socket = context.socket(zmq.DEALER)
            socket.linger = 0
            socket.connect(f"tcp://{manager.ip}:{port}")
            socket.send_multipart([b"", b"ping"])
            assert not socket.poll(300)
            socket.close()


def test_a_message_signed_with_another_key_is_not_executed(start: Start) -> None:
    manager, client = start()
    stranger = manager.blocking_client()
    stranger.session.key = b"another key"
    stranger.start_channels()
    stranger.execute("stranger_was_here = 1")
    with pytest.raises(Empty):
        stranger.get_shell_msg(timeout=0.5)
    stranger.stop_channels()
    assert run(client, "stranger_was_here")[0]["content"]["ename"] == "NameError"


@pytest.mark.slow
def test_the_same_message_again_is_answered_and_not_run_again(start: Start) -> None:
    _, client = start()
    run(client, "n = 0")
    message = client.session.msg("execute_request", {"code": "n += 1; print(n)", "silent": False})
    for _ in range(2):
        client.shell_channel.send(message)
        assert reply_to(client, message["header"]["msg_id"])["content"]["execution_count"] == 2
    assert text_of(run(client, "print(n)")[1]) == "1\n"


def test_the_heart_beats_while_a_cell_holds_the_interpreter(start: Start) -> None:
    manager, client = start()
    pid = int(text_of(run(client, "import os; print(os.getpid())")[1]))
    client.execute("sum(range(10**12))")
    with zmq.Context() as context:
        heart = context.socket(zmq.REQ)
        heart.linger = 0
        heart.connect(f"tcp://{manager.ip}:{manager.hb_port}")
        heart.send(b"ping")
        assert heart.poll(TIMEOUT_S * 1000)
        assert heart.recv() == b"ping"
        heart.close()
    os.kill(pid, signal.SIGKILL)  # It would not end by itself.
