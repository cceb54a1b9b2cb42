"""What the doctor says of a release on Kubernetes: each fault by name, with what to do."""

from __future__ import annotations

from typing import Any

import pytest
from replkernel_server.launchers.kubernetes_findings import Seen, findings

Json = dict[str, Any]
OURS = {"app.kubernetes.io/instance": "rk"}
SCHEDULER = {**OURS, "app.kubernetes.io/component": "scheduler"}
HOLDER = {"replkernel.io/launcher": "rk", "replkernel.io/holder": "yes"}
USERS = {"app.kubernetes.io/component": "singleuser-server"}


def pod(name: str, labels: Json, why: str = "", restarts: int = 0) -> Json:
    status: Json = {
        "phase": "Pending" if why else "Running",
        "containerStatuses": [{"restartCount": restarts}],
    }
    if why.startswith("Unschedulable"):
        reason, message = why.split(": ", 1)
        status["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        ]
    elif why:
        status["containerStatuses"][0]["state"] = {"waiting": {"reason": why}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "n1"}, "status": status}


def policy(name: str, selects: Json, labels: Json) -> Json:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"podSelector": {"matchLabels": selects}}}


WELL = {
    "may": dict.fromkeys(("list", "create", "delete"), True),
    "pods": (pod("rk-1", SCHEDULER), pod("rk-gpus-1", HOLDER)),
    "claims": ({"metadata": {"name": "rk-journal", "labels": OURS}, "status": {"phase": "Bound"}},),
    "quotas": (),
    "policies": (policy("rk-users", USERS, OURS), policy("singleuser", USERS, {})),
    "nodes": ({"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}},),
}
QUOTA = {
    "metadata": {"name": "q"},
    "status": {"hard": {"requests.nvidia.com/gpu": "4"}, "used": {"requests.nvidia.com/gpu": "4"}},
}


def told(**seen: Any) -> dict[str, tuple[str, str]]:
    found = findings(Seen(release="rk", **{**WELL, **seen}))
    return {name: (finding.state, finding.text) for name, finding in found}


def test_nothing_is_wrong_where_all_is_well() -> None:
    assert {state for state, _ in told().values()} == {"ok"}


@pytest.mark.parametrize(
    ("part", "seen", "said"),
    [
        ("rights", {"may": {"list": True, "create": True}}, "may not delete pods: upgrade the release"),
        ("scheduler", {"pods": ()}, "is rk the release"),
        ("scheduler", {"pods": (pod("rk-1", SCHEDULER, "ImagePullBackOff"),)}, "correct image.name"),
        ("scheduler", {"pods": (pod("rk-1", SCHEDULER, restarts=9),)}, "begun 9 times anew"),
        ("scheduler", {"pods": (pod("rk-1", SCHEDULER, "CreateContainerConfigError"),)}, "make the Secret"),
        ("holders", {"pods": ()}, "launcher.enabled"),
        (
            "holders",
            {"pods": (pod("g", HOLDER, "Unschedulable: 0/3 nodes: Insufficient nvidia.com/gpu"),)},
            "Insufficient nvidia.com/gpu: make room",
        ),
        ("quotas", {"quotas": (QUOTA,)}, "q: requests.nvidia.com/gpu 4 of 4"),
        ("network", {"policies": (policy("singleuser", USERS, {}),)}, "singleuser shuts users' servers in"),
        ("GPU nodes", {"nodes": ({"metadata": {"name": "n1"}},)}, "install the device plugin"),
        (
            "volumes",
            {"claims": ({"metadata": {"name": "j", "labels": OURS}, "status": {"phase": "Pending"}},)},
            "name a StorageClass",
        ),
    ],
)
def test_a_fault_is_named_with_what_to_do(part: str, seen: Json, said: str) -> None:
    state, text = told(**seen)[part]
    assert state == "wrong" and said in text


def test_an_object_that_may_not_be_read_is_no_fault() -> None:
    found = told(**dict.fromkeys(WELL))
    assert {state for state, _ in found.values()} == {"note"}


def test_a_cordoned_node_and_open_network_are_noted() -> None:
    node = {**WELL["nodes"][0], "spec": {"unschedulable": True}}  # type: ignore[index]
    found = told(nodes=(node,), policies=())
    assert found["GPU nodes"] == ("note", "n1: 4; cordoned: n1")
    assert found["network"][0] == "note"
