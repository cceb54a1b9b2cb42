"""What an administrator writes into `jupyter_replkernel_config.py` reaches the kernels of the server."""

from __future__ import annotations

import importlib.metadata
import os
import time
from pathlib import Path

import pytest

from tests.support.lab import running
from tests.support.stock import OURS

CONFIG = "c.ReplkernelProvisioner.replicas = 2\nc.ReplkernelExtension.status_timeout_s = 9.0\n"
PROVISIONERS = importlib.metadata.entry_points(group="jupyter_client.kernel_provisioners")


@pytest.mark.timeout(120)
@pytest.mark.skipif(
    "replkernel-provisioner" not in PROVISIONERS.names,
    reason="the package is not installed: pip install -e .",
)
def test_the_provisioners_traits_are_read_from_our_own_file(tmp_path: Path) -> None:
    (Path(os.environ["JUPYTER_CONFIG_DIR"]) / "jupyter_replkernel_config.py").write_text(CONFIG)
    with running("server", tmp_path, "--ServerApp.jpserver_extensions=replkernel_server=True") as server:
        status, kernel = server.call("POST", "api/kernels", {"name": OURS})
        assert status == 201
        deadline = time.monotonic() + 60
        replicas: list[str] = []
        while time.monotonic() < deadline and len(replicas) < 2:
            _, document = server.get("replkernel/api/status")
            replicas = [one["replica"] for found in document["kernels"] for one in found["replicas"]]
            time.sleep(0.1)
        time.sleep(0.5)
        _, document = server.get("replkernel/api/status")
        assert [one["kernel_id"] for one in document["kernels"]] == [kernel["id"]]
        assert [one["replica"] for one in document["kernels"][0]["replicas"]] == ["r1", "r2"]
        assert server.call("DELETE", f"api/kernels/{kernel['id']}")[0] == 204
