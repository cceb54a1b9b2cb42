"""A Ray cluster of one node without GPUs whose own autoscaler starts and ends more of them, on this machine.

Law: the nodes are Ray's invented ones (`fake_multinode`), its autoscaler and all that it decides are real;
whatever was started ends with the context.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support.ray_cluster import GPUS, LABEL, SETTINGS, STORE_BYTES

HEAD = "head"
IDLE_MINUTES = 0.1
START_S = 90.0
TRIES = 3


class Scaled:
    """The cluster, seen by a process of its own for each question."""

    def __init__(self, address: str, log: Path) -> None:
        self.address, self._log = address, log

    def hosts(self) -> list[str]:
        """Return the nodes that are alive, by label or id; none if Ray is not there."""
        program = (
            f"import json, ray; ray.init(address={self.address!r}, log_to_driver=False, logging_level=40); "
            "print(json.dumps([[n['NodeID'], n['Labels']] for n in ray.nodes() if n['Alive']]))"
        )
        with self._log.open("ab") as errors:
            asked = subprocess.run(
                [sys.executable, "-c", program],
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=60,
                check=False,
            )
        lines = asked.stdout.decode().strip().splitlines()
        nodes = json.loads(lines[-1]) if asked.returncode == 0 and lines else []
        return [labels.get(LABEL) or node[:12] for node, labels in nodes]


@contextlib.contextmanager
def scaling_cluster(directory: Path, more: int = 1) -> Iterator[Scaled]:
    """Start a cluster whose autoscaler may have `more` nodes of GPUS GPUs each."""
    with contextlib.ExitStack() as ends:
        for left in reversed(range(TRIES)):
            cluster = ends.enter_context(_head(directory, more))
            if _answers(cluster):
                break
            assert left, f"Ray's head did not start; see {directory / 'ray.log'}"
        yield cluster


def _answers(cluster: Scaled) -> bool:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if cluster.hosts():
            return True
        time.sleep(0.5)
    return False


@contextlib.contextmanager
def _head(directory: Path, more: int) -> Iterator[Scaled]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    address = f"127.0.0.1:{port}"
    config = directory / "autoscaler.json"
    config.write_text(json.dumps(_config(address, more)))
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=1", "--num-gpus=0"),
        *(f"--object-store-memory={STORE_BYTES}", "--include-dashboard=false"),
        *(f"--labels={LABEL}={HEAD}", f"--autoscaling-config={config}"),
    ]
    environment = os.environ | {
        "RAY_FAKE_CLUSTER": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        **SETTINGS,
    }
    log = directory / "ray.log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        yield Scaled(address, log)
    finally:
        _end(process)


def _config(address: str, more: int) -> dict[str, Any]:
    node = {"CPU": 1, "GPU": GPUS, "object_store_memory": STORE_BYTES}
    return {
        "cluster_name": "scaled",
        "max_workers": more,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": {"type": "fake_multinode", "gcs_address": address},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": node, "node_config": {}, "min_workers": 0, "max_workers": more},
        },
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "rsync_exclude": [],
        "rsync_filter": [],
        "upscaling_speed": 1.0,
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Ray's processes, the nodes that its autoscaler started among them."""
    try:
        started = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for each in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.kill()
    process.wait()
