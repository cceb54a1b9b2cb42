"""The launcher of Kubernetes: manifests that Kubernetes takes, options that it refuses."""

from __future__ import annotations

import pytest
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.kubernetes_pods import (
    KubernetesOptions,
    Pod,
    holder,
    read_options,
    read_pod,
    user_agent,
)

OPTIONS = KubernetesOptions(image="i", secret="s", gpus=4, store_secret="t", queue="q", grace_s=60)
DRA = KubernetesOptions(image="i", claim_template="all-gpus")
SERVER = {
    "metadata": {"name": "jupyter-a"},
    "spec": {"containers": [{"name": "notebook", "image": "u", "envFrom": [{"secretRef": {"name": "x"}}]}]},
}
HELD = Pod("h", "node-1", "up", True, "", {}, claims=("h-gpus",))


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.35"])
def test_its_pods_are_valid(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    pods = [holder(OPTIONS, "1"), holder(OPTIONS, "2", "node-1")]
    if version != "1.30":  # There a claim was written otherwise.
        pods += [holder(DRA, "3"), user_agent(DRA, SERVER, HELD)]
    for pod in pods:
        validate.validate(pod, version, strict=True)


def test_gpus_are_asked_for_by_the_device_plugin_or_by_a_claim_and_a_user_shares_the_holders() -> None:
    limits = holder(OPTIONS, "1")["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "4"}
    spec = holder(DRA, "1")["spec"]
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "all-gpus"}]
    assert "limits" not in spec["containers"][0]["resources"]
    shared = user_agent(DRA, SERVER, HELD)["spec"]["resourceClaims"]
    assert shared == [{"name": "gpus", "resourceClaimName": "h-gpus"}]


def test_no_volume_that_everybody_may_write_to_lies_where_sockets_go() -> None:
    mounts = holder(OPTIONS, "1")["spec"]["containers"][0]["volumeMounts"]
    assert not any(it["mountPath"].startswith("/tmp") for it in mounts), "kubelets make an emptyDir 0777"
    home = next(it for it in holder(OPTIONS, "1")["spec"]["containers"][0]["env"] if it["name"] == "HOME")
    assert home["value"] in {it["mountPath"] for it in mounts}


def test_a_pod_tells_when_it_ends_and_why() -> None:
    told = {
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:01:00Z"},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
        },
    }
    pod = read_pod(told, wall=1767225600.0)
    assert (pod.phase, pod.ready, pod.ends_in_s, pod.why) == ("ending", False, 60.0, "EvictionByEvictionAPI")
    assert read_pod({}, 0.0).phase == "coming"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "image"),
        ({"image": "i", "hosts": "9", "most": "2"}, "hosts, most and gpus"),
        ({"image": "i", "what": "1"}, "has no option 'what'"),
        ({"image": "i", "port_from": "9", "port_to": "10"}, "ports"),
        ({"image": "i", "gpus": "many"}, "cannot use an option"),
        ({"file": "/nowhere.json"}, "cannot read /nowhere.json"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ServiceSettingError, match=said):
        read_options(options)
