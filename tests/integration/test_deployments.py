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
import json, os, sys
from jupyterhub.app import JupyterHub

def load(file):
    hub = JupyterHub()
    hub.load_config_file(file)
    unknown = [
        f"c.{section}.{name}"
        for section, cls in [
            ("JupyterHub", JupyterHub), ("Spawner", hub.spawner_class),
            ("Authenticator", hub.authenticator_class),
        ]
        for name in hub.config[section]
        if not cls.class_traits(config=True).get(name)
    ]
    services = [{"name": one["name"], "command": one.get("command", [])} for one in hub.services]
    print(json.dumps({"unknown": unknown, "services": services, "groups": hub.load_groups,
                      "environment": sorted(hub.config.Spawner.environment)}), flush=True)

for file in sys.argv[1:]:  # Each is read by a process of its own, which has nothing of the others.
    if (child := os.fork()) == 0:
        load(file)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{file} could not be read")
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Have a real JupyterHub read each configuration; return what it makes of them, by name."""
    place = tmp_path_factory.mktemp("hub")
    kubernetes = place / "jupyterhub_config.py"
    python = yaml("kubernetes/jupyterhub.yaml")["hub"]["extraConfig"]["90-replkernel"]
    kubernetes.write_text("c = get_config()\n" + python)
    files = {
        "ray": PLACE / "hub-ray" / "jupyterhub_config.py",
        "users": PLACE / "users" / "jupyterhub_config.py",
        "littlest": PLACE / "tljh" / "replkernel.py",
        "kubernetes": kubernetes,
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADS, *map(str, files.values())],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"REPLKERNEL_AGENTS_TOKEN": "a" * 32, "REPLKERNEL_SERVICE_TOKEN": "b" * 32},
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    assert "rror" not in done.stderr, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(files, told, strict=True))


@HUB
def test_the_hub_with_unix_users_is_a_configuration_that_jupyterhub_knows(
    loaded: dict[str, dict[str, Any]],
) -> None:
    assert loaded["users"]["unknown"] == []
    assert [one["name"] for one in loaded["users"]["services"]] == ["replkernel", "replkernel-agents"]


@HUB
def test_the_hub_with_ray_is_a_configuration_that_jupyterhub_knows(loaded: dict[str, dict[str, Any]]) -> None:
    found = loaded["ray"]
    assert found["unknown"] == []
    (service,) = [one for one in found["services"] if one["name"] == "replkernel"]
    assert service["command"][-3:] == ["--launcher", "ray", "--launcher-option=address=auto"]
    assert {"REPLKERNEL_HOSTS", "REPLKERNEL_SCHEDULER_URL"} <= set(found["environment"])
    assert found["groups"]["gpu-users"]["properties"]["gpu_quota"] == 4


@HUB
def test_the_file_of_the_littlest_hub_is_one_too(loaded: dict[str, dict[str, Any]]) -> None:
    found = loaded["littlest"]
    assert found["unknown"] == []
    assert [one["name"] for one in found["services"]] == ["replkernel", "replkernel-agents"]


def yaml(file: str) -> dict[str, Any]:
    import yaml as library

    return dict(library.safe_load((PLACE / file).read_text()))


@HUB
def test_the_values_for_kubernetes_can_be_read_and_their_python_runs(
    loaded: dict[str, dict[str, Any]],
) -> None:
    assert "replkernel" in {one["name"] for one in loaded["kubernetes"]["services"]}
    cluster = yaml("kubernetes/raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    (workers,) = cluster["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    spec = workers["template"]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for one in spec["containers"] for mount in one["volumeMounts"]} <= volumes


@pytest.mark.parametrize("version", ["1.30", "1.35"])
def test_plain_pods_with_replicas_are_objects_that_kubernetes_knows(version: str) -> None:
    import yaml as library

    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = list(library.safe_load_all((PLACE / "kubernetes/replicas.yaml").read_text()))
    assert {it["kind"] for it in objects} == {"Service", "StatefulSet", "PodDisruptionBudget"}
    for it in objects:
        validate.validate(it, version, strict=True)


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
