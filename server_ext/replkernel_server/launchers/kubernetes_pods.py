"""Pods as the launcher asks for them, and as Kubernetes tells of them.

Pure. Laws: no secret stands in a manifest, a label or an argument, only the name of a Secret; what a user's
agent gets of his server's pod never includes the server's own tokens.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from replkernel.agent.io.start import is_host_name
from replkernel.launch.module_command import module_command
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import refuse_unknown

Json: TypeAlias = dict[str, Any]
Phase: TypeAlias = Literal["coming", "up", "ending", "ended"]
"""coming: it has no node, or its image is on its way. up: it runs. ending: it was told to end."""

LAUNCHER, HOLDER, USER = "replkernel.io/launcher", "replkernel.io/holder", "replkernel.io/user"
QUEUE = "kueue.x-k8s.io/queue-name"
USERNAME = "hub.jupyter.org/username"
WHY_CHARS_MAX = 300
HOLDER_HOME = "/srv/agent"
"""An emptyDir. Not /tmp: kubelets let everybody write to one, and agents put no socket into such a place."""
IDLE_S = 600
"""A user's agent without kernels ends after so long."""
_NOT_HANDED_ON = re.compile(r"JUPYTERHUB_|JPY_|REPLKERNEL_(SCHEDULER_|HOSTS$)|(MEM|CPU)_(LIMIT|GUARANTEE)$")


class KubernetesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How pods are asked for; the Helm chart writes all of it into a file."""

    image: str = ""
    namespace: str = "default"
    release: str = "replkernel"
    pull_policy: str = "IfNotPresent"
    pull_secrets: list[Json] = []
    labels: dict[str, str] = {}
    users: bool = False
    users_selector: str = "component=singleuser-server"
    secret: str = ""
    scheduler_url: str = ""
    store: str = ""
    store_secret: str = ""
    hosts: int = 0
    most: int = 64
    gpus: int = 1
    resource: str = "nvidia.com/gpu"
    claim_template: str = ""
    runtime_class: str = ""
    queue: str = ""
    node_selector: dict[str, str] = {}
    tolerations: list[Json] = []
    resources: Json = {}
    grace_s: int = 90
    port_from: int = 7700
    port_to: int = 7999
    uid: int = 1000
    host_prefix: str = ""
    api: str = ""

    def __post_init__(self) -> None:
        """Refuse what could not run."""
        if not self.image:
            raise _refused("image", self.image, "name one with replkernel in it")
        if not 0 <= self.hosts <= self.most <= 1024 or not 0 <= self.gpus <= 64:
            raise _refused("hosts, most and gpus", (self.hosts, self.most, self.gpus), "take what there is")
        if self.host_prefix and not is_host_name(self.host_prefix):
            raise _refused("host_prefix", self.host_prefix, "take letters and digits, as in k8s-")
        if not 1024 <= self.port_from < self.port_to <= 65535:
            raise _refused("ports", (self.port_from, self.port_to), "take 7700 and 7999")

    @property
    def own(self) -> str:
        """Return the selector of the launcher's pods."""
        return f"{LAUNCHER}={self.release}"


def read_options(options: Mapping[str, str]) -> KubernetesOptions:
    """Return the options of `file=PATH` and those beside it; raise ServiceSettingError."""
    refuse_unknown("kubernetes", options, ("file", *KubernetesOptions.__struct_fields__))
    said: Json = {}
    try:
        if "file" in options:
            said = json.loads(Path(options["file"]).read_text(encoding="utf-8"))
        said |= {name: value for name, value in options.items() if name != "file"}
        return msgspec.convert(said, KubernetesOptions, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ServiceSettingError):
            raise error.__cause__ from None
        raise ServiceSettingError(f"The launcher kubernetes cannot use an option: {error}.") from error
    except (OSError, ValueError, TypeError) as error:
        raise ServiceSettingError(
            f"The launcher kubernetes cannot read {options.get('file')} ({error}): name its JSON by file=."
        ) from error


def _refused(name: str, said: object, fix: str) -> ServiceSettingError:
    return ServiceSettingError(f"The launcher kubernetes cannot use {said!r} as its {name}: {fix}.")


class Pod(msgspec.Struct, frozen=True):
    """One pod, so far as the launcher looks at it."""

    name: str
    node: str
    phase: Phase
    ready: bool
    why: str
    labels: dict[str, str]
    claims: tuple[str, ...] = ()
    """The ResourceClaims that were made for it."""
    ends_in_s: float = 0.0


def read_pod(told: Json, wall: float) -> Pod:
    """Return what an API server tells of a pod; what is not there is empty."""
    meta, spec, status = (told.get(part) or {} for part in ("metadata", "spec", "status"))
    deleted = meta.get("deletionTimestamp")
    phase: Phase = "coming"
    if status.get("phase") in ("Succeeded", "Failed"):
        phase = "ended"
    elif deleted:
        phase = "ending"
    elif status.get("phase") == "Running":
        phase = "up"
    ready = any(
        it.get("type") == "Ready" and it.get("status") == "True" for it in status.get("conditions") or ()
    )
    claims = (it.get("resourceClaimName") for it in status.get("resourceClaimStatuses") or ())
    return Pod(
        name=str(meta.get("name", "")),
        node=str(spec.get("nodeName") or ""),
        phase=phase,
        ready=ready and phase == "up",
        why=_why(status)[:WHY_CHARS_MAX],
        labels=meta.get("labels") or {},
        claims=tuple(str(claim) for claim in claims if claim),
        ends_in_s=_left_s(str(deleted), wall) if deleted else 0.0,
    )


def _why(status: Json) -> str:
    """Return in Kubernetes' words what a pod waits for, or why it ended."""
    found: list[str] = []
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            found.append(": ".join(filter(None, (str(waiting["reason"]), str(waiting.get("message") or "")))))
    for condition in status.get("conditions") or ():
        kind, true = condition.get("type"), condition.get("status") == "True"
        if (kind == "PodScheduled" and not true) or (kind == "DisruptionTarget" and true):
            said = (str(condition.get("reason") or ""), str(condition.get("message") or ""))
            found.append(": ".join(filter(None, said)))
    said_of_all = ": ".join(filter(None, (str(status.get("reason") or ""), str(status.get("message") or ""))))
    return "; ".join([*found, *([said_of_all] if said_of_all else [])])


def _left_s(timestamp: str, wall: float) -> float:
    try:
        until = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
    return max(0.0, until - wall)


# -- manifests -------------------------------------------------------------------------------------


def holder(options: KubernetesOptions, number: str, node: str = "") -> Json:
    """Return the pod that owns a node's GPUs and whose agent offers them; `node`: it must be that one."""
    labels = {**options.labels, LAUNCHER: options.release, HOLDER: "yes"}
    if options.queue:
        labels[QUEUE] = options.queue
    env = [_value("HOME", HOLDER_HOME), *_reached(options)]
    if options.scheduler_url:
        env.append(_value("REPLKERNEL_SCHEDULER_URL", options.scheduler_url))
    if options.secret:
        key = {"secretKeyRef": {"name": options.secret, "key": "agents-token"}}
        env.append({"name": "REPLKERNEL_SCHEDULER_TOKEN", "valueFrom": key})
    resources: Json = {name: dict(value) for name, value in options.resources.items()}
    if options.claim_template:
        resources["claims"] = [{"name": "gpus"}]
    elif options.gpus:
        resources.setdefault("limits", {})[options.resource] = str(options.gpus)
    container = {
        **_agent(options, stay=True),
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "env": env,
        **({"envFrom": [{"secretRef": {"name": options.store_secret}}]} if options.store_secret else {}),
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "home", "mountPath": HOLDER_HOME}],
    }
    apart = {"labelSelector": {"matchLabels": {LAUNCHER: options.release, HOLDER: "yes"}}}
    affinity: Json = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {**apart, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    if node:
        affinity |= _on(node)
    spec: Json = {
        **_common(options),
        "affinity": affinity,
        "nodeSelector": options.node_selector,
        "tolerations": options.tolerations,
        "imagePullSecrets": options.pull_secrets,
        "restartPolicy": "Always",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": options.uid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "home", "emptyDir": {}}],
    }
    if options.claim_template:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": options.claim_template}]
    return _pod(f"{options.release}-gpus-{number}", labels, spec)


def user_of(server: Json) -> str:
    """Return what tells a server's user from others; his named servers share an agent on a node."""
    meta = server.get("metadata") or {}
    said = (meta.get("labels") or {}).get(USERNAME) or meta.get("name", "")
    return hashlib.sha256(str(said).encode()).hexdigest()[:12]


def agent_name(options: KubernetesOptions, user: str, node: str) -> str:
    """Return the name of the pod of a user's agent on a node."""
    return f"{options.release}-user-{user}-{hashlib.sha256(node.encode()).hexdigest()[:10]}"


def user_agent(options: KubernetesOptions, server: Json, held: Pod) -> Json:
    """Return the pod of a user's agent beside a holder, made of the pod of his server."""
    there, user = server.get("spec") or {}, user_of(server)
    containers = there.get("containers") or [{}]
    own = next((it for it in containers if it.get("name") == "notebook"), containers[0])
    volumes = [
        it for it in there.get("volumes") or () if not str(it.get("name")).startswith("kube-api-access")
    ]
    known = {it.get("name") for it in volumes}
    env = [it for it in own.get("env") or () if not _NOT_HANDED_ON.match(str(it.get("name")))]
    resources: Json = {name: dict(value) for name, value in options.resources.items()}
    spec: Json = {
        **_common(options),
        "affinity": _on(held.node),
        "tolerations": [*options.tolerations, *(there.get("tolerations") or ())],
        "imagePullSecrets": there.get("imagePullSecrets") or [],
        "restartPolicy": "OnFailure",
        "securityContext": there.get("securityContext") or {},
        "volumes": volumes,
    }
    if held.claims:
        resources["claims"] = [{"name": "gpus"}]
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": held.claims[0]}]
    elif options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
        env = [*env, _value("NVIDIA_VISIBLE_DEVICES", "all")]
    mine = [*_reached(options), _value("REPLKERNEL_AGENT_IDLE_S", str(IDLE_S))]
    names = {it["name"] for it in mine}
    spec["containers"] = [
        {
            **_agent(options, stay=False),
            "image": own.get("image", ""),
            "env": [*(it for it in env if it.get("name") not in names), *mine],
            "resources": resources,
            "securityContext": own.get("securityContext") or {},
            "volumeMounts": [it for it in own.get("volumeMounts") or () if it.get("name") in known],
            **({"envFrom": own["envFrom"]} if own.get("envFrom") else {}),
            **({"workingDir": own["workingDir"]} if own.get("workingDir") else {}),
        }
    ]
    labels = {**options.labels, LAUNCHER: options.release, USER: user}
    return _pod(agent_name(options, user, held.node), labels, spec)


def _pod(name: str, labels: Mapping[str, str], spec: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
    }


def _common(options: KubernetesOptions) -> Json:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": options.grace_s,
    }


def _agent(options: KubernetesOptions, *, stay: bool) -> Json:
    """Return the container's command: the notice that it ends comes some time before its end."""
    name = ["--name", f"{options.host_prefix}$(NODE_NAME)"]
    waits = ["python", "-c", f"import time; time.sleep({max(1, options.grace_s - 10)})"]
    return {
        "name": "agent",
        "command": module_command("replkernel.agent", *name, *(["--stay"] if stay else []), python="python"),
        "lifecycle": {"preStop": {"exec": {"command": waits}}},
        "readinessProbe": {"tcpSocket": {"port": options.port_from}, "periodSeconds": 2},
    }


def _reached(options: KubernetesOptions) -> list[Json]:
    """Return how an agent is reached at its pod's own address, and where its state goes."""
    found = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        _value("REPLKERNEL_BIND", "$(POD_IP)"),
        _value("REPLKERNEL_PORTS", f"{options.port_from}-{options.port_to}"),
        _value("REPLKERNEL_AGENT_PORT", str(options.port_from)),
    ]
    return [*found, *([_value("REPLKERNEL_STORE", options.store)] if options.store else [])]


def _on(node: str) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _value(name: str, value: str) -> Json:
    return {"name": name, "value": value}


def running(servers: Iterable[Json]) -> list[Json]:
    """Return the servers that run, one a user, the oldest name first."""
    found: dict[str, Json] = {}
    for server in sorted(servers, key=lambda it: str((it.get("metadata") or {}).get("name"))):
        if (server.get("status") or {}).get("phase") == "Running":
            found.setdefault(user_of(server), server)
    return list(found.values())
