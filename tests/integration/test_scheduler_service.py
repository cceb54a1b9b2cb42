"""The scheduler's REST service as a process: its token, its answers, and what it refuses to do."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.service import bind

from tests.support import scheduler_service
from tests.support.lab import Server

PROGRAM = [sys.executable, "-m", "replkernel.cli", "scheduler"]
WISH = {"request": "one", "kernel_id": "k", "gpus": 1, "ttl_s": 60.0}


@contextlib.contextmanager
def serving(data: Path) -> Iterator[Server]:
    """Start the service with its files below `data`; end it after."""
    environment = os.environ | {"JUPYTER_DATA_DIR": str(data)}
    program = [*PROGRAM, "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        name, _, url = said.partition("=")
        assert name == "REPLKERNEL_SCHEDULER_URL"
        token_file = data / "replkernel" / "scheduler" / "token"
        yield Server(f"{url}/api/v1/", token_file.read_text(), token_file)
        process.terminate()
        assert process.wait(10) == 0


@pytest.fixture
def service() -> Iterator[Server]:
    with scheduler_service.serving() as service:
        yield service.rest


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service in which no test changes anything."""
    with serving(tmp_path_factory.mktemp("asked")) as server:
        yield server


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *options], capture_output=True, text=True, timeout=30, check=False)


def test_every_address_wants_the_token(asked: Server) -> None:
    for method, path in [("GET", "status"), ("POST", "hosts"), ("POST", "leases"), ("DELETE", "hosts/a")]:
        assert asked.call(method, path, {} if method == "POST" else None, token="wrong")[0] == 401
        assert asked.call(method, path, {} if method == "POST" else None, token="")[0] == 401
    status, found = asked.get("status")
    assert (status, found["hosts"], found["leases"], found["queue"]) == (200, [], [], [])


def test_the_token_file_is_private_and_survives_a_restart(asked: Server) -> None:
    assert stat.S_IMODE(asked.log.stat().st_mode) == 0o600
    assert stat.S_IMODE(asked.log.parent.stat().st_mode) == 0o700


def test_a_lease_from_asking_to_giving_back(service: Server) -> None:
    assert service.call("POST", "leases", WISH)[0] == 409
    assert service.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})[0] == 200
    status, granted = service.call("POST", "leases", WISH)
    lease = granted["lease"]
    assert (status, lease["host"], lease["gpus"]) == (201, "a", ["GPU-0"])
    assert 50 < lease["left_s"] <= 60
    waits = {"position": 1, "estimate_s": None}
    assert service.call("POST", "leases", WISH | {"request": "two"}) == (202, waits)
    held = f"leases/{lease['lease']}"
    assert service.call("POST", f"{held}/renewal", {"fence": lease["fence"]})[0] == 201
    assert service.call("POST", f"{held}/renewal", {"fence": lease["fence"] - 1})[0] == 410
    assert service.call("DELETE", held)[0] == 400
    assert service.call("DELETE", f"{held}?fence={lease['fence']}") == (200, {"ended": "released"})
    _, document = service.get("status")
    assert [(entry["request"], entry["fence"] > lease["fence"]) for entry in document["leases"]] == [
        ("two", True)
    ]
    assert document["hosts"][0]["gpus"][0]["lease"] == document["leases"][0]["lease"]


def test_who_waits_is_told_how_long_and_what_for(service: Server) -> None:
    service.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
    for number in range(5):
        lease = service.call("POST", "leases", WISH | {"request": f"before-{number}"})[1]["lease"]
        service.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
    service.call("POST", "leases", WISH)
    service.call("POST", "leases", WISH | {"request": "two"})
    deadline = time.monotonic() + 20
    while ";" not in (queued := service.get("status")[1]["queue"][0])["why"]:
        assert time.monotonic() < deadline, queued
        time.sleep(0.05)
    assert queued["why"].endswith("; 1 cell computes on 1 GPU of the hosts that may serve it")
    assert queued["estimate_s"] > 0


def test_a_lease_runs_out_by_itself_and_the_next_request_is_served(service: Server) -> None:
    service.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
    service.call("POST", "leases", WISH | {"ttl_s": 0.2})
    service.call("POST", "leases", WISH | {"request": "two"})
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and service.get("status")[1]["queue"]:
        time.sleep(0.05)
    assert [entry["request"] for entry in service.get("status")[1]["leases"]] == ["two"]


def test_withdrawn_requests_and_hosts_that_leave(service: Server) -> None:
    service.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
    service.call("POST", "leases", WISH)
    service.call("POST", "leases", WISH | {"request": "two"})
    assert service.call("DELETE", "requests/two")[0] == 200
    assert service.get("status")[1]["queue"] == []
    assert service.call("DELETE", "hosts/a")[0] == 200
    status, found = service.get("status")
    assert (status, found["hosts"], found["leases"], found["queue"]) == (200, [], [], [])


@pytest.mark.parametrize(
    "body", [{}, WISH | {"gpus": "many"}, WISH | {"unknown": 1}, WISH | {"request": ""}, [1], "text"]
)
def test_a_body_that_does_not_fit_is_answered_with_a_sentence(asked: Server, body: object) -> None:
    status, said = asked.call("POST", "leases", body)
    assert status == 400
    assert said["why"].endswith(".")


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_does_not_exist_is_refused_and_none_is_bound_instead(port: str) -> None:
    done = run(f"--port={port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--port: '{port}' is not a whole number from 0 to 65535" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_service_refuses_an_address_that_others_can_reach() -> None:
    done = run("--ip", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "not a loopback address" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_service_refuses_a_token_file_that_others_can_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o644)
    done = run("--token-file", str(token), "--port", "0")
    assert done.returncode == 1
    assert f"chmod 600 {token}" in done.stderr


def test_a_port_in_use_is_named(asked: Server) -> None:
    port = asked.url.split(":")[2].partition("/")[0]
    done = run("--port", port)
    assert done.returncode == 1
    assert f"Port {port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_leaves_no_socket_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(ServiceSettingError, match="cannot be bound") as refused:
            bind("127.0.0.1", taken.getsockname()[1])
        assert len(os.listdir("/proc/self/fd")) == before, "while the error is looked at"
        del refused


def test_all_addresses_of_a_name_have_the_same_port() -> None:
    sockets = bind("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        assert not one.getblocking()
        one.close()


BOOKING = {"gpus": 1, "in_s": 0.0, "lasts_s": 3600.0, "users": ["ada"], "group": "class"}


def test_booked_gpus_are_kept_for_their_users_also_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as service:
        service.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0"]})
        status, booked = service.call("POST", "bookings", BOOKING)
        assert (status, booked["whom"], booked["ready"]) == (201, "group class, ada", 1)
        assert 3500 < booked["ends_in_s"] <= 3600
        assert service.call("POST", "leases", WISH)[0] == 202, "it is not ada who asks"
        refused = service.call("POST", "bookings", BOOKING)
        assert refused == (409, {"why": "0 GPUs can be booked for that time, not 1."})
        assert service.call("DELETE", "bookings/none")[0] == 404
        assert [one["booking"] for one in service.get("status")[1]["bookings"]] == [booked["booking"]]
    with serving(tmp_path / "data") as service:
        assert service.call("GET", "bookings")[1]["bookings"][0]["booking"] == booked["booking"]
        assert service.call("DELETE", f"bookings/{booked['booking']}")[0] == 200
        assert service.get("status")[1]["bookings"] == []
