"""`replkernel drain` and `undrain` as an administrator runs them, and what is left of it after a kill."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.scheduler_service import Service, serving


def command(*words: str, service: Service | None = None, **settings: str) -> tuple[int, str, str]:
    """Run it; return its exit code, and what it says."""
    address = {} if service is None else {"REPLKERNEL_SCHEDULER_URL": service.url}
    done = subprocess.run(
        [sys.executable, "-m", "replkernel.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **address, **settings},
    )
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1
    return done.returncode, done.stdout, done.stderr


def state(service: Service) -> str:
    return str(service.rest.get("status")[1]["hosts"][0]["state"])


def test_a_host_is_drained_and_used_again() -> None:
    with serving() as service:
        service.rest.call("POST", "hosts", {"name": "a/b c", "gpus": ["GPU-0"]})
        wish = {"kernel_id": "k", "gpus": 1, "ttl_s": 60.0, "hosts": ["a/b c"]}
        code, said, _ = command("drain", "a/b c", service=service)
        assert code == 0 and "a/b c" in said and "replkernel undrain" in said
        assert state(service) == "draining"
        assert service.rest.call("POST", "leases", wish | {"request": "r"})[0] != 201
        service.kill()
    with serving() as service:
        assert state(service) == "draining", "it is in the journal"
        code, said, _ = command("undrain", "a/b c", service=service)
        assert code == 0 and "a/b c" in said
        assert state(service) == "up"
        service.kill()
    with serving() as service:
        assert state(service) == "up"
        assert service.rest.call("POST", "leases", wish | {"request": "r"})[0] == 201


def test_the_kernels_that_a_drained_host_waits_for_are_told() -> None:
    with serving() as service:
        service.rest.call("POST", "hosts", {"name": "one", "gpus": ["GPU-0"]})
        wish = {"request": "r", "kernel_id": "k", "gpus": 1, "ttl_s": 60.0, "hosts": ["one"]}
        assert service.rest.call("POST", "leases", wish)[0] == 201
        assert "`replkernel status`" in command("drain", "one", service=service)[1]
        told = command("status", service=service)[1]
        assert "host one: draining (1 lease: until its GPUs are given back), 1 GPU" in told


@pytest.mark.parametrize("verb", ["drain", "undrain"])
def test_an_impossible_drain_is_told(verb: str) -> None:
    with serving() as service:
        code, _, said = command(verb, "nowhere", service=service)
        assert code == 1 and "No host nowhere is up" in said
        code, _, said = command(verb, "nowhere", service=service, REPLKERNEL_SCHEDULER_TOKEN="wrong")
        assert code == 1 and "token" in said
    code, _, said = command(verb, "nowhere", REPLKERNEL_SCHEDULER_URL="http://127.0.0.1:9")
    assert code == 1 and "REPLKERNEL_SCHEDULER_URL" in said
    assert command(verb, "")[0] != 0
