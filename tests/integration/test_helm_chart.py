"""The Helm chart: what Helm makes of it is valid for each Kubernetes, and grants no more than it says.

Without helm the first tests read the chart's own files alone; the others are skipped by name.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from replkernel import __version__
from tests.support.breadth import each_nth
from tests.support.helm import MISSING, ROOT, find_helm

CHART = ROOT / "deploy/helm/replkernel"
HELM = pytest.mark.skipif(find_helm() is None, reason=MISSING)
KUBERNETES = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35")
SETS: dict[str, tuple[str, ...]] = {
    "default": (),
    "gpus": ("launcher.enabled=true", "launcher.gpus=4", "store.url=s3://b/p", "store.credentialsSecret=s3"),
    "dra": ("launcher.enabled=true", "launcher.claimTemplate=all-gpus", "launcher.queue=gpu"),
    "all": (
        "launcher.enabled=true",
        "serviceMonitor.enabled=true",
        "serviceMonitor.labels.release=prometheus",
        "dashboard.enabled=true",
        "store.volume.enabled=true",
        "store.volume.storageClassName=nfs",
        "journal.databaseSecret.name=pg",
        "existingSecret=mine",
        "scheduler.policies=notebook",
        "scheduler.extraEnv.REPLKERNEL_SCHEDULER_AWAY_S=120",
        "image.pullSecrets[0].name=pull",
        "hub.baseUrl=/at/",
    ),
    "open": ("networkPolicy.enabled=false", "podDisruptionBudget.enabled=false", "launcher.enabled=true"),
}


def named(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> list[str]:
    """Return the values that the schema does not know, and those of it that have no default."""
    if "properties" not in schema:
        return []
    wrong = [f"{at}.{name}" for name in values.keys() ^ (schema["properties"].keys() - {"global"})]
    for name, value in values.items():
        if isinstance(value, dict) and name in schema["properties"]:
            wrong += named(value, schema["properties"][name], f"{at}.{name}")
    return wrong


def test_schema_and_defaults_name_the_same_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert named(values, json.loads((CHART / "values.schema.json").read_text())) == []


def test_templates_use_values_that_there_are() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values((?:\.\w+)+)", template.read_text()):
            there: Any = values
            for name in path.strip(".").split("."):
                assert name in there, f"{template.name}: {path}"
                there = there[name]


def test_the_chart_has_no_role_for_a_whole_cluster_and_no_secret_in_it() -> None:
    text = "".join(template.read_text() for template in (CHART / "templates").iterdir())
    assert "ClusterRole" not in text and "privileged" not in text and "hostPath" not in text
    assert "resources: [pods]\n    verbs: [list, create, delete]" in text


@cache
def made(name: str, version: str = "1.35") -> list[dict[str, Any]]:
    """Return the objects that Helm makes with a set of values."""
    helm = find_helm()
    assert helm is not None
    sets = [f"--set={one}" for one in SETS[name]]
    command = [helm, "template", "rk", str(CHART), f"--kube-version={version}.0", "--namespace=jhub", *sets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def one(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [it for it in objects if it["kind"] == kind and name in ("", it["metadata"]["name"])]
    return found


@HELM
@pytest.mark.parametrize("name", SETS)
def test_helm_finds_nothing_to_complain_of(name: str) -> None:
    sets = [f"--set={value}" for value in SETS[name]]
    command = [str(find_helm()), "lint", "--strict", str(CHART), *sets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@HELM
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("version", each_nth(KUBERNETES, 5))
def test_each_object_is_valid_for_each_kubernetes(name: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for it in made(name, version):
        if it["kind"] != "ServiceMonitor":  # Its schema is the Prometheus operator's.
            validate.validate(it, version, strict=True)


@HELM
def test_a_value_that_is_misspelt_is_refused() -> None:
    command = [str(find_helm()), "template", "rk", str(CHART), "--set=launcher.hots=3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "hots" in done.stderr


@HELM
def test_the_scheduler_is_one_with_a_journal_that_outlives_it() -> None:
    objects = made("default")
    deployment = one(objects, "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    pod = deployment["template"]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "rk-journal"
    assert one(objects, "PersistentVolumeClaim")["metadata"]["name"] == "rk-journal"
    assert pod["containers"][0]["image"].endswith(f":{__version__}")
    assert pod["automountServiceAccountToken"] is False, "without a launcher it asks Kubernetes nothing"
    assert "Role" not in {it["kind"] for it in objects}


@HELM
def test_with_a_database_of_its_own_there_is_no_volume() -> None:
    objects = made("all")
    environment = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    (database,) = [it for it in environment if it["name"] == "REPLKERNEL_SCHEDULER_DB"]
    assert database["valueFrom"]["secretKeyRef"] == {"name": "pg", "key": "url"}
    assert one(objects, "PersistentVolumeClaim")["metadata"]["name"] == "rk-store"
    assert "Secret" not in {it["kind"] for it in objects}, "an administrator's own is used"


@HELM
def test_a_budget_lets_one_host_of_three_go() -> None:
    assert one(made("gpus"), "PodDisruptionBudget")["spec"]["minAvailable"] == 2


@HELM
def test_users_are_let_to_agents_and_scheduler_and_to_nothing_else() -> None:
    policy = one(made("gpus"), "NetworkPolicy", "rk-users")["spec"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "singleuser-server"
    reached = [rule["to"][0]["podSelector"]["matchLabels"] for rule in policy["egress"]]
    assert [it["app.kubernetes.io/component"] for it in reached] == ["agent", "scheduler"]
    assert all(rule["ports"] for rule in policy["egress"])


@HELM
def test_the_launcher_is_told_what_the_values_say() -> None:
    told = json.loads(one(made("gpus"), "ConfigMap")["data"]["launcher.json"])
    assert (told["hosts"], told["gpus"], told["namespace"], told["store"]) == (3, 4, "jhub", "s3://b/p")
    assert told["scheduler_url"] == "http://rk.jhub:8797/services/replkernel"
    assert "token" not in json.dumps(told).lower()


def test_the_chart_is_in_what_is_published() -> None:
    import tomllib

    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
        "sdist"
    ]
    assert "only-include" not in excluded and "include" not in excluded
    assert not any("deploy" in pattern for pattern in excluded["exclude"])
    assert (Path(CHART) / "Chart.yaml").is_file()
