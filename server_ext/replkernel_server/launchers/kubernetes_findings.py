"""What is wrong with a release of the chart, as Kubernetes tells it: `replkernel doctor --kubernetes`.

Pure. Law: each finding that is wrong says what to do about it; what could not be read is said to be so, and
nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel.cli.doctor import Finding, note, ok, wrong
from replkernel_server.launchers.kubernetes_pods import HOLDER, LAUNCHER, Json, Pod, read_pod

VERBS = ("list", "create", "delete")
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
SERVER = {COMPONENT: "singleuser-server"}
SHOWN_MAX = 5
RESTARTS_MAX = 3


class Seen(msgspec.Struct, frozen=True):
    """What was read of one namespace; None: whoever asked may not read it."""

    release: str
    resource: str = "nvidia.com/gpu"
    may: dict[str, bool] | None = None
    """What the release's ServiceAccount may do with pods, by verb."""
    pods: tuple[Json, ...] | None = None
    claims: tuple[Json, ...] | None = None
    quotas: tuple[Json, ...] | None = None
    policies: tuple[Json, ...] | None = None
    nodes: tuple[Json, ...] | None = None


def findings(seen: Seen) -> list[tuple[str, Finding]]:
    """Return a finding for each part, by its name."""
    return [
        ("rights", _rights(seen)),
        ("scheduler", _scheduler(seen)),
        ("volumes", _volumes(seen)),
        ("GPU nodes", _nodes(seen)),
        ("holders", _holders(seen)),
        ("users' agents", _agents(seen)),
        ("quotas", _quotas(seen)),
        ("network", _network(seen)),
    ]


def _unread(what: str) -> Finding:
    return note(f"you may not list {what}: ask somebody who may, or nothing is known of them")


def _rights(seen: Seen) -> Finding:
    if seen.may is None:
        return _unread("what a ServiceAccount may do (subjectaccessreviews)")
    absent = [verb for verb in VERBS if not seen.may.get(verb)]
    if not absent:
        return ok(f"the ServiceAccount {seen.release} may list, create and delete pods")
    return wrong(
        f"the ServiceAccount {seen.release} may not {', '.join(absent)} pods: upgrade the release with "
        "launcher.enabled=true, and look at its Role and RoleBinding"
    )


def _scheduler(seen: Seen) -> Finding:
    if seen.pods is None:
        return _unread("pods")
    there = _own(seen.pods, {INSTANCE: seen.release, COMPONENT: "scheduler"})
    if not there:
        return wrong(
            f"there is no pod of it: is {seen.release} the release, and this its namespace? Else look at "
            f"`kubectl describe deployment {seen.release}`"
        )
    trouble = _troubles(there)
    return wrong(trouble) if trouble else ok(there[0]["metadata"]["name"])


def _holders(seen: Seen) -> Finding:
    if seen.pods is None:
        return _unread("pods")
    there = _own(seen.pods, {LAUNCHER: seen.release, HOLDER: "yes"})
    if not there:
        return wrong(
            "there is none: is launcher.enabled set, and launcher.hosts above 0? If so, the scheduler's log "
            "says why pods are refused"
        )
    trouble = _troubles(there)
    return wrong(trouble) if trouble else ok(f"on {', '.join(sorted(_node(pod) for pod in there))}")


def _agents(seen: Seen) -> Finding:
    if seen.pods is None:
        return _unread("pods")
    servers = [pod for pod in _own(seen.pods, SERVER) if _phase(pod) == "up"]
    there = [pod for pod in _own(seen.pods, {LAUNCHER: seen.release}) if HOLDER not in _labels(pod)]
    trouble = _troubles(there)
    if trouble:
        return wrong(trouble)
    if servers and not there:
        return note(f"none, beside {len(servers)} servers of users: launcher.users and hub.release say whose")
    return ok(f"{len(there)}, for {len(servers)} servers of users")


def _volumes(seen: Seen) -> Finding:
    if seen.claims is None:
        return _unread("persistentvolumeclaims")
    own = _own(seen.claims, {INSTANCE: seen.release})
    open_ = [
        it["metadata"]["name"] for it in own if (it.get("status") or {}).get("phase") not in ("Bound", None)
    ]
    if open_:
        return wrong(
            f"{', '.join(open_)} has no volume yet: name a StorageClass that this cluster has "
            "(kubectl get storageclass)"
        )
    return ok(f"{len(own)} bound")


def _nodes(seen: Seen) -> Finding:
    if seen.nodes is None:
        return _unread("nodes")
    offered = {it["metadata"]["name"]: _count(it, seen.resource) for it in seen.nodes}
    offered = {name: count for name, count in offered.items() if count}
    if not offered:
        return wrong(
            f"no node offers {seen.resource}: install the device plugin, or name what is offered in "
            "launcher.resource"
        )
    shut = [it["metadata"]["name"] for it in seen.nodes if (it.get("spec") or {}).get("unschedulable")]
    said = ", ".join(f"{name}: {count}" for name, count in sorted(offered.items())[:SHOWN_MAX])
    closed = sorted(set(shut) & set(offered))
    return note(f"{said}; cordoned: {', '.join(closed)}") if closed else ok(said)


def _quotas(seen: Seen) -> Finding:
    if seen.quotas is None:
        return _unread("resourcequotas")
    full = []
    for quota in seen.quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        for what, most in (status.get("hard") or {}).items():
            if what in ("pods", "count/pods", f"requests.{seen.resource}") and used.get(what) == most:
                full.append(f"{quota['metadata']['name']}: {what} {used[what]} of {most}")
    if full:
        return wrong(f"{'; '.join(full)}: no more pods come before it is raised")
    return ok(f"{len(seen.quotas)}, none of them full" if seen.quotas else "none")


def _network(seen: Seen) -> Finding:
    """Is there a policy that lets users' servers to the agents, where another one shuts them in?"""
    if seen.policies is None:
        return _unread("networkpolicies")
    users = [
        it
        for it in seen.policies
        if (it["spec"].get("podSelector") or {}).get("matchLabels", {}).get(COMPONENT) == SERVER[COMPONENT]
        or (it["spec"].get("podSelector") or {}).get("matchLabels", {}).get("component") == SERVER[COMPONENT]
    ]
    ours = [it for it in users if _labels(it).get(INSTANCE) == seen.release]
    if users and not ours:
        names = ", ".join(it["metadata"]["name"] for it in users)
        return wrong(
            f"{names} shuts users' servers in, and nothing lets them to agents and scheduler: set "
            "networkPolicy.enabled, and hub.release to the release of z2jh"
        )
    if not ours:
        return note("no policy shuts users' servers in; whoever is in the cluster may reach the scheduler")
    return ok(f"{ours[0]['metadata']['name']}; that the network enforces it is not seen from here")


# -- pods --------------------------------------------------------------------------------------------


def _troubles(pods: Iterable[Json]) -> str:
    """Return which pods do not run and why, in Kubernetes' words; empty where all do."""
    found = []
    for told in pods:
        pod = read_pod(told, 0.0)
        if pod.phase in ("coming", "ended") or _restarts(told) >= RESTARTS_MAX:
            found.append(f"{pod.name}: {_said(pod, _restarts(told))}")
    more = f"; and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return "; ".join(found[:SHOWN_MAX]) + more


def _said(pod: Pod, restarts: int) -> str:
    if "ImagePull" in pod.why or "ErrImage" in pod.why:
        return f"{pod.why}: correct image.name, image.tag or image.pullSecrets"
    if "Insufficient" in pod.why or "FailedScheduling" in pod.why or "Unschedulable" in pod.why:
        return f"{pod.why}: make room on a node, or lower launcher.gpus or launcher.resources"
    if "CreateContainerConfigError" in pod.why:
        return f"{pod.why}: make the Secret that the values name"
    if restarts >= RESTARTS_MAX:
        return f"it has begun {restarts} times anew: read `kubectl logs --previous {pod.name}`"
    return (
        f"{pod.why or 'it does not run, and Kubernetes says no more'}: read `kubectl describe pod {pod.name}`"
    )


def _restarts(told: Json) -> int:
    containers = (told.get("status") or {}).get("containerStatuses") or ()
    return max((int(it.get("restartCount") or 0) for it in containers), default=0)


def _own(objects: Iterable[Json], labels: dict[str, str]) -> list[Json]:
    return [it for it in objects if labels.items() <= _labels(it).items()]


def _labels(told: Json) -> dict[str, str]:
    return (told.get("metadata") or {}).get("labels") or {}


def _node(told: Json) -> str:
    return str((told.get("spec") or {}).get("nodeName") or "no node")


def _phase(told: Json) -> str:
    return read_pod(told, 0.0).phase


def _count(node: Json, resource: str) -> int:
    said = str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0"))
    return int(said) if said.isdigit() else 0
