"""`setup_replkernel` where Zero to JupyterHub has set the Hub up: its file's assignments, in its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from replkernel_server.hub import setup_replkernel
from traitlets import Any as AnyTrait
from traitlets.config import Config, Configurable

TOKEN = "s" * 32
URL = "REPLKERNEL_SCHEDULER_URL"
ADDRESS = "http://replkernel:8797"
REACHED = f"{ADDRESS}/services/replkernel"
SPAWNER = SimpleNamespace(hub=SimpleNamespace(base_url="/hub/"))


class Spawner(Configurable):
    """As JupyterHub's, so far as configuration is concerned."""

    environment = AnyTrait({}).tag(config=True)
    server_token_scopes = AnyTrait([]).tag(config=True)
    pre_spawn_hook = AnyTrait(None).tag(config=True)
    cmd, default_url, consecutive_failure_limit = (AnyTrait().tag(config=True) for _ in range(3))


class KubeSpawner(Spawner):
    """The kind whose section z2jh fills."""

    common_labels, namespace, image, volumes = (AnyTrait().tag(config=True) for _ in range(4))
    node_affinity_preferred, init_containers = (AnyTrait([]).tag(config=True) for _ in range(2))


def z2jh(extra_env: dict[str, Any] | None = None) -> Config:
    """Return what its jupyterhub_config.py has assigned when `hub.extraConfig` runs, by default."""
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.db_url = "sqlite:///jupyterhub.sqlite"
    c.JupyterHub.hub_bind_url = "http://:8081"
    c.JupyterHub.hub_connect_url = "http://hub:8081"
    labels = c.KubeSpawner.common_labels = {}
    labels["app"] = "jupyterhub"
    c.KubeSpawner.namespace = "default"
    c.Spawner.consecutive_failure_limit = 5
    c.KubeSpawner.environment = {} if extra_env is None else extra_env
    c.KubeSpawner.image = "quay.io/jupyterhub/k8s-singleuser-sample:1"
    c.KubeSpawner.node_affinity_preferred.append({"weight": 100})
    c.KubeSpawner.volumes = {"home": {"name": "home"}}
    c.JupyterHub.services = []
    c.JupyterHub.load_roles = []
    c.JupyterHub.load_roles.append({"name": "jupyterhub-idle-culler", "scopes": ["list:users"]})
    c.JupyterHub.services.append({"name": "jupyterhub-idle-culler", "command": ["cull"]})
    c.Spawner.cmd = None
    c.Spawner.default_url = "/lab"
    c.KubeSpawner.init_containers.append({"name": "block-cloud-metadata"})
    c["JupyterHub"].update({"admin_access": True, "authenticator_class": "dummy"})
    return c


def set_up(c: Config) -> None:
    setup_replkernel(c, service_token=TOKEN, address=ADDRESS, plain_http=True)


def environment_of(c: Config) -> dict[str, Any]:
    """Return what a user's server is started with."""
    there = KubeSpawner(config=c).environment
    there = there(SPAWNER) if callable(there) else there
    return {name: value(SPAWNER) if callable(value) else value for name, value in there.items()}


def test_with_its_own_values_servers_find_the_scheduler_and_may_lease() -> None:
    c = z2jh()
    set_up(c)
    assert environment_of(c) == {URL: REACHED}
    spawner = KubeSpawner(config=c)
    assert "custom:replkernel:lease" in spawner.server_token_scopes
    assert [one["name"] for one in c.JupyterHub.services] == ["jupyterhub-idle-culler", "replkernel"]
    assert c.JupyterHub.services[1] == {
        "name": "replkernel",
        "url": ADDRESS,
        "api_token": TOKEN,
        "display": False,
    }


SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def test_an_administrators_own_variables_stay() -> None:
    c = z2jh({"A": "1", "B": SECRET})
    set_up(c)
    assert environment_of(c) == {"A": "1", "B": SECRET, URL: REACHED}


def test_environment_added_before_and_after_the_setup_counts_too() -> None:
    c = z2jh()
    c.KubeSpawner.environment.setdefault("DASK", "yes")
    set_up(c)
    c.KubeSpawner.environment.setdefault("LATER", "yes")
    assert environment_of(c) == {"DASK": "yes", "LATER": "yes", URL: REACHED}


def test_a_function_is_asked_and_added_to_and_called_again_nothing_changes() -> None:
    c = z2jh()
    c.KubeSpawner.environment = lambda spawner: {"BASE": spawner.hub.base_url}
    set_up(c)
    there = c.KubeSpawner.environment
    set_up(c)
    assert c.KubeSpawner.environment is there
    assert environment_of(c) == {"BASE": "/hub/", URL: REACHED}


def test_environment_added_to_a_kind_of_spawner_does_not_lose_ours() -> None:
    c = Config()
    c.Spawner.environment = {"ALL": "1"}
    c.KubeSpawner.environment.update({"KUBE": "1"})
    set_up(c)
    assert environment_of(c) == {"ALL": "1", "KUBE": "1", URL: REACHED}


@pytest.mark.parametrize("kind", ["KubeSpawner", "SystemdSpawner", "MySpawner"])
def test_any_kind_of_spawner_is_added_to(kind: str) -> None:
    c = Config()
    c[kind].environment = {"A": "1"}
    c[kind].server_token_scopes = ["shares!user"]
    set_up(c)
    assert c[kind].environment["A"] == "1" and c[kind].environment[URL](SPAWNER) == REACHED
    assert c[kind].server_token_scopes[0] == "shares!user"
    assert "custom:replkernel:lease" in c[kind].server_token_scopes


async def test_a_hook_of_a_kind_of_spawner_runs_before_the_agents() -> None:
    c = z2jh()
    ran: list[str] = []
    c.KubeSpawner.pre_spawn_hook = lambda spawner: ran.append(spawner.user.name)
    setup_replkernel(c, agents_on=["gpu1"], agents_command=["true", "{user}", "{host}"])
    await c.KubeSpawner.pre_spawn_hook(SimpleNamespace(user=SimpleNamespace(name="alice")))
    assert ran == ["alice"]
