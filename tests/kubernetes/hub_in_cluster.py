"""A JupyterHub with KubeSpawner in a cluster, as z2jh makes one: its pod, its rights, its users' pods.

What it is told about replkernel is what the chart's notes print, word for word. Law: homes lie in one folder
of this machine, as ReadWriteMany volumes do; nothing else of it is written to.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import yaml
from replkernel_server.scheduling.access import ADMIN_SCOPE

from tests.kubernetes.cluster import Cluster, Json, eventually
from tests.kubernetes.real_nodes import HUB_IMAGE, UID, USERS_IMAGE
from tests.support.hub import Hub, find_proxy
from tests.support.server_life import EXTENSION

TOKEN = "the-token-of-the-tests-of-this-hub"
LABELS = {"app.kubernetes.io/name": "jupyterhub", "app.kubernetes.io/instance": "hub"}

_CONFIG = """
import os
c.JupyterHub.bind_url = "http://0.0.0.0:8000/"
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"
c.JupyterHub.hub_connect_url = "http://hub:8081"
c.JupyterHub.db_url = "sqlite:////srv/hub/hub.sqlite"
c.JupyterHub.cookie_secret_file = "/srv/hub/cookie_secret"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "/srv/hub/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.common_labels = {{"app": "jupyterhub"}}
c.KubeSpawner.extra_labels = {{**{labels!r}, "app.kubernetes.io/component": "singleuser-server"}}
c.KubeSpawner.namespace = {space!r}
c.KubeSpawner.image = {image!r}
c.KubeSpawner.cmd = ["python", "-P", "-m", "jupyterhub.singleuser"]
c.KubeSpawner.args = [{extension!r}]
c.KubeSpawner.uid = c.KubeSpawner.fs_gid = {uid}
c.KubeSpawner.volumes = [{{"name": "home", "hostPath": {{"path": {homes!r} + "/{{username}}"}}}}]
c.KubeSpawner.volume_mounts = [{{"name": "home", "mountPath": "/home/jovyan"}}]
c.KubeSpawner.working_dir = "/home/jovyan"
c.KubeSpawner.environment = {{"HOME": "/home/jovyan", "OPENBLAS_NUM_THREADS": "1"}} | {env!r}
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}
c.KubeSpawner.start_timeout = c.KubeSpawner.http_timeout = 120
c.JupyterHub.services = [{{"name": "test", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{
    "name": "test",
    "services": ["test"],
    "scopes": ["admin:users", "admin:servers", "access:servers", "access:services", "tokens", {admin!r}],
}}]
"""


def told_by(notes: str) -> Json:
    """Return the values for z2jh that the chart's notes print."""
    return dict(yaml.safe_load(notes[notes.index("\nhub:\n") :]))


def start_hub(cluster: Cluster, space: str, notes: str, homes: Path, node: str) -> Hub:
    """Make it, and wait until it answers; it and its users' servers run on one node."""
    values = told_by(notes)
    config = _CONFIG.format(
        proxy=find_proxy(),
        labels=LABELS,
        space=space,
        image=USERS_IMAGE,
        extension=EXTENSION,
        uid=UID,
        homes=str(homes),
        env=values["singleuser"]["extraEnv"],
        token=TOKEN,
        node=node,
        admin=ADMIN_SCOPE,
    )
    config += "".join(values["hub"]["extraConfig"].values())
    env = [
        {"name": name, **({"value": value} if isinstance(value, str) else value)}
        for name, value in values["hub"]["extraEnv"].items()
    ]
    for path, made in _objects(space, config, env, node):
        cluster.ask("POST", path, made)

    def answers() -> Hub | None:
        pod = cluster.ask("GET", f"/api/v1/namespaces/{space}/pods/hub")
        address = pod["status"].get("podIP")
        hub = Hub(0, TOKEN, Path(os.devnull))
        hub.url = f"http://{address}:8000/"
        return hub if address and hub.call("GET", "hub/api/users")[0] == 200 else None

    found: Hub = eventually(answers, 240.0)
    return found


def _objects(space: str, config: str, env: list[Any], node: str) -> list[tuple[str, Json]]:
    core, rbac = f"/api/v1/namespaces/{space}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}"
    resources = ["pods", "persistentvolumeclaims", "secrets", "services"]
    rules = [
        {"apiGroups": [""], "resources": resources, "verbs": ["get", "watch", "list", "create", "delete"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "watch", "list"]},
    ]
    labels = {**LABELS, "app.kubernetes.io/component": "hub"}
    container = {
        "name": "hub",
        "image": HUB_IMAGE,
        "command": [sys.executable, "-P", "-m", "jupyterhub", "-f", "/etc/hub/jupyterhub_config.py"],
        "workingDir": "/srv/hub",
        "env": [
            {"name": "HOME", "value": "/srv/hub"},
            {"name": "POD_NAMESPACE", "value": space},
            {"name": "CONFIGPROXY_AUTH_TOKEN", "value": TOKEN},
            *env,
        ],
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/hub"},
            {"name": "srv", "mountPath": "/srv/hub"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
        "readinessProbe": {"tcpSocket": {"port": 8081}, "periodSeconds": 1},
    }
    pod = {
        "serviceAccountName": "hub",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "securityContext": {"runAsUser": UID, "fsGroup": UID},
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": "hub"}},
            {"name": "srv", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    ports = [{"name": "hub", "port": 8081}]
    subject = {"kind": "ServiceAccount", "name": "hub", "namespace": space}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hub"}
    return [
        (f"{core}/serviceaccounts", {"metadata": {"name": "hub"}}),
        (f"{rbac}/roles", {"metadata": {"name": "hub"}, "rules": rules}),
        (f"{rbac}/rolebindings", {"metadata": {"name": "hub"}, "roleRef": role, "subjects": [subject]}),
        (
            f"{core}/configmaps",
            {"metadata": {"name": "hub"}, "data": {"jupyterhub_config.py": config}},
        ),
        (f"{core}/services", {"metadata": {"name": "hub"}, "spec": {"selector": labels, "ports": ports}}),
        (f"{core}/pods", {"metadata": {"name": "hub", "labels": labels}, "spec": pod}),
    ]
