"""The files of docs/deployments: what can be looked at on one machine is, by who reads them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs" / "deployments"
HUB = pytest.mark.skipif(
    importlib.util.find_spec("jupyterhub") is None,
    reason="JupyterHub is not installed: pip install -e .[dev]",
)
LOADS = """
import json, sys
from jupyterhub.app import JupyterHub

hub = JupyterHub()
hub.load_config_file(sys.argv[1])
unknown = [
    f"c.{section}.{name}"
    for section, cls in [
        ("JupyterHub", JupyterHub), ("Spawner", hub.spawner_class), ("Authenticator", hub.authenticator_class)
    ]
    for name in hub.config[section]
    if not cls.class_traits(config=True).get(name)
]
services = [{"name": one["name"], "command": one.get("command", [])} for one in hub.services]
print(json.dumps({"unknown": unknown, "services": services, "groups": hub.load_groups,
                  "environment": sorted(hub.config.Spawner.environment)}))
"""


def loaded(file: str, tmp_path: Path) -> dict[str, Any]:
    """Have a real JupyterHub read a configuration; return what it makes of it."""
    env = os.environ | {"REPLKERNEL_AGENTS_TOKEN": "a" * 32}
    done = subprocess.run(
        [sys.executable, "-c", LOADS, str(PLACE / file)],
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stderr, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@HUB
def test_the_hub_with_ray_is_a_configuration_that_jupyterhub_knows(tmp_path: Path) -> None:
    found = loaded("hub-ray/jupyterhub_config.py", tmp_path)
    assert found["unknown"] == []
    (service,) = [one for one in found["services"] if one["name"] == "replkernel"]
    assert service["command"][-3:] == ["--launcher", "ray", "--launcher-option=address=auto"]
    assert {"REPLKERNEL_HOSTS", "REPLKERNEL_SCHEDULER_URL"} <= set(found["environment"])
    assert found["groups"]["gpu-users"]["properties"]["gpu_quota"] == 4


@HUB
def test_the_file_of_the_littlest_hub_is_one_too(tmp_path: Path) -> None:
    found = loaded("tljh/replkernel.py", tmp_path)
    assert found["unknown"] == []
    assert [one["name"] for one in found["services"]] == ["replkernel", "replkernel-agents"]


def yaml(file: str) -> dict[str, Any]:
    import yaml as library

    return dict(library.safe_load((PLACE / file).read_text()))


@HUB
def test_the_values_for_kubernetes_can_be_read_and_their_python_runs(tmp_path: Path) -> None:
    values = yaml("kubernetes/jupyterhub.yaml")
    config = tmp_path / "jupyterhub_config.py"
    config.write_text("c = get_config()\n" + values["hub"]["extraConfig"]["90-replkernel"])
    assert "replkernel" in {one["name"] for one in loaded(str(config), tmp_path)["services"]}
    cluster = yaml("kubernetes/raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    spec = workers["template"]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for one in spec["containers"] for mount in one["volumeMounts"]} <= volumes


def test_the_trial_of_three_hosts_names_what_it_has() -> None:
    trial = yaml("compose/compose.yaml")
    services = trial["services"]
    assert set(services) == {"scheduler", "h1", "h2", "h3", "lab"}
    for name, service in services.items():
        assert service["hostname"] == name
        assert set(service["networks"]) <= set(trial["networks"])
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(trial["volumes"])
        assert set(service.get("depends_on", ())) <= set(services)
    assert services["lab"]["environment"]["REPLKERNEL_HOSTS"].split(",") == ["h1", "h2", "h3"]
    assert services["h2"]["command"] == services["h1"]["command"]
    assert (PLACE / "compose" / "Dockerfile").read_text().startswith("FROM python:3")


def test_the_batch_script_is_one_that_a_shell_can_read() -> None:
    done = subprocess.run(
        ["sh", "-n", str(PLACE / "slurm" / "agents.sbatch")], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
