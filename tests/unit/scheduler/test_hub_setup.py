"""One line in the Hub's configuration: what it adds, that it takes nothing away, and what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from replkernel_server.hub import HubConfigError, scheduler_url, setup_replkernel
from replkernel_server.hub_service import own_journal
from replkernel_server.scheduling.settings import SETTING_DOCS
from traitlets.config import Config

LEASE, HOST, ADMIN, SEE, ACCESS = (
    "custom:replkernel:lease",
    "custom:replkernel:host",
    "custom:replkernel:admin",
    "custom:replkernel:see",
    "access:services!service=replkernel",
)
PROXY = "http://proxy.example:8000"


def role(c: Config, name: str) -> dict[str, Any]:
    found = [one for one in c.JupyterHub.load_roles if one["name"] == name]
    assert len(found) == 1, c.JupyterHub.load_roles
    return found[0]


def test_an_empty_configuration_gets_the_service_its_role_and_lets_every_user_lease() -> None:
    c = Config()
    setup_replkernel(c)
    (service,) = c.JupyterHub.services
    assert service["name"] == "replkernel" and service["command"][-1] == "replkernel_server.hub_service"
    assert role(c, "replkernel") == {
        "name": "replkernel",
        "services": ["replkernel"],
        "scopes": ["read:groups"],
    }
    assert role(c, "user")["scopes"] == ["self", ACCESS, LEASE]
    assert set(c.JupyterHub.custom_scopes) == {LEASE, HOST, ADMIN, SEE}
    assert c.Spawner.server_token_scopes == ["users:activity!user", "access:servers!server", ACCESS, LEASE]


def test_a_launcher_is_named_to_the_service() -> None:
    c = Config()
    setup_replkernel(c, launcher="ray", launcher_options={"address": "auto", "scale": "yes"})
    arguments = ["--launcher", "ray", "--launcher-option=address=auto", "--launcher-option=scale=yes"]
    assert c.JupyterHub.services[0]["command"][-4:] == arguments
    with pytest.raises(HubConfigError, match="launcher='ray'"):
        setup_replkernel(Config(), launcher_options={"address": "auto"})


def test_overseers_have_a_role_and_their_servers_tokens_have_what_it_gives() -> None:
    c = Config()
    setup_replkernel(c, overseers=["hub-admins"])
    assert role(c, "replkernel-overseers") == {
        "name": "replkernel-overseers",
        "groups": ["hub-admins"],
        "scopes": [ACCESS, SEE],
    }
    assert c.Spawner.server_token_scopes[-2:] == [LEASE, SEE]
    assert SEE not in role(c, "user")["scopes"]


def test_called_again_it_changes_nothing() -> None:
    c = Config()
    setup_replkernel(c, groups=["gpu-users"], agents_token="a" * 32, url=PROXY)
    before = copy.deepcopy(c)
    url = c.Spawner.environment["REPLKERNEL_SCHEDULER_URL"]
    setup_replkernel(c, groups=["gpu-users"], agents_token="a" * 32, url=PROXY)
    assert c.JupyterHub == before.JupyterHub
    assert c.Spawner.server_token_scopes == before.Spawner.server_token_scopes
    assert c.Spawner.environment["REPLKERNEL_SCHEDULER_URL"] is url


def test_settings_that_the_file_has_already_stay() -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "culler", "command": ["cull"]}]
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", "shares!user"]},
        {"name": "x", "scopes": []},
    ]
    c.JupyterHub.custom_scopes = {"custom:own": {"description": "own"}}
    c.Spawner.environment = {"OWN": "1"}
    c.Spawner.server_token_scopes = ["users:activity!user", "shares!user"]
    setup_replkernel(c)
    assert [one["name"] for one in c.JupyterHub.services] == ["culler", "replkernel"]
    assert role(c, "user")["scopes"] == ["self", "shares!user", ACCESS, LEASE]
    assert role(c, "x") == {"name": "x", "scopes": []}
    assert "custom:own" in c.JupyterHub.custom_scopes
    assert c.Spawner.environment["OWN"] == "1"
    assert c.Spawner.server_token_scopes == ["users:activity!user", "shares!user", ACCESS, LEASE]


def test_entries_only_added_to_settings_stay_too() -> None:
    c = Config()
    c.JupyterHub.services.append({"name": "culler", "command": ["cull"]})
    c.Spawner.environment.update({"OWN": "1"})
    setup_replkernel(c)
    assert [one["name"] for one in c.JupyterHub.services] == ["culler", "replkernel"]
    assert c.Spawner.environment["OWN"] == "1"


def test_with_groups_only_their_users_may_lease() -> None:
    c = Config()
    setup_replkernel(c, groups=["gpu-users"])
    assert role(c, "replkernel-users")["groups"] == ["gpu-users"]
    assert role(c, "replkernel-users")["scopes"] == [ACCESS, LEASE]
    assert all(one["name"] != "user" for one in c.JupyterHub.load_roles)


def test_agents_offer_hosts_with_a_token_of_their_own_and_users_only_where_that_is_wanted() -> None:
    c = Config()
    setup_replkernel(c, agents_token="a" * 32)
    assert c.JupyterHub.services[1] == {"name": "replkernel-agents", "api_token": "a" * 32, "display": False}
    assert role(c, "replkernel-agents")["scopes"] == [ACCESS, HOST]
    assert HOST not in role(c, "user")["scopes"] + c.Spawner.server_token_scopes
    trusting = Config()
    setup_replkernel(trusting, users_offer_hosts=True)
    assert HOST in role(trusting, "user")["scopes"] and HOST in trusting.Spawner.server_token_scopes


@pytest.mark.parametrize(
    ("db_url", "where"),
    [
        (None, ""),
        ("sqlite:///hub.sqlite", ""),
        ("sqlite:///{}/srv/hub.sqlite?timeout=20", "srv"),
        ("sqlite:///:memory:", ""),
        ("postgresql://hub@db/hub", ""),
    ],
)
def test_the_journal_lies_beside_the_hubs_database_and_not_with_who_runs_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, db_url: str | None, where: str
) -> None:
    monkeypatch.delenv("REPLKERNEL_SCHEDULER_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    c = Config()
    if db_url is not None:
        c.JupyterHub.db_url = db_url.format(tmp_path)
    setup_replkernel(c)
    setup_replkernel(c)
    file = tmp_path / where / "replkernel-scheduler.sqlite"
    assert c.JupyterHub.services[0]["environment"]["REPLKERNEL_SCHEDULER_DB"] == f"sqlite:///{file}"
    other = Config()
    setup_replkernel(other, environment={"REPLKERNEL_SCHEDULER_DB": "sqlite:////elsewhere"})
    assert other.JupyterHub.services[0]["environment"]["REPLKERNEL_SCHEDULER_DB"] == "sqlite:////elsewhere"


def test_a_service_that_somebody_registers_by_hand_keeps_its_journal_where_the_hub_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    there = f"sqlite:///{tmp_path}/replkernel-scheduler.sqlite"
    assert own_journal({"HOME": "/root"})["REPLKERNEL_SCHEDULER_DB"] == there
    said = {"REPLKERNEL_SCHEDULER_DB": "sqlite:////said"}
    assert own_journal(said) == said


def test_the_scheduler_gets_the_hubs_own_settings_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_DB", "sqlite:////hub.sqlite")
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", "secret")
    c = Config()
    setup_replkernel(c, environment={"REPLKERNEL_SCHEDULER_GRACE_S": "5"})
    environment = c.JupyterHub.services[0]["environment"]
    assert environment["REPLKERNEL_SCHEDULER_DB"] == "sqlite:////hub.sqlite"
    assert environment["REPLKERNEL_SCHEDULER_GRACE_S"] == "5"
    assert "secret" not in environment.values()


@pytest.mark.parametrize("name", [doc.variable for doc in SETTING_DOCS])
def test_each_setting_of_the_scheduler_counts_where_the_hub_has_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "as the Hub has it")
    c = Config()
    setup_replkernel(c)
    assert c.JupyterHub.services[0]["environment"][name] == "as the Hub has it"


@pytest.mark.parametrize(
    ("base", "proxy", "url"),
    [
        ("/hub/", PROXY, f"{PROXY}/services/replkernel"),
        ("/at/hub/", f"{PROXY}/", f"{PROXY}/at/services/replkernel"),
    ],
)
def test_servers_reach_the_scheduler_through_the_proxy(base: str, proxy: str, url: str) -> None:
    spawner = SimpleNamespace(hub=SimpleNamespace(base_url=base))
    assert scheduler_url(spawner, proxy=proxy, address="http://127.0.0.1:8797") == url


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("http://:8000/", "http://127.0.0.1:8000/services/replkernel"),
        ("http://0.0.0.0:81", "http://127.0.0.1:81/services/replkernel"),
        ("http://hub.example/", "http://hub.example:80/services/replkernel"),
        ("http://[::1]:8000/", "http://[::1]:8000/services/replkernel"),
        ("https://:443/", "http://127.0.0.1:8797/services/replkernel"),
    ],
)
def test_without_a_proxy_given_it_is_the_hubs_own(
    bind: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pytest.importorskip("jupyterhub.app", reason="JupyterHub is not installed")
    monkeypatch.setattr(app.JupyterHub, "instance", lambda: SimpleNamespace(bind_url=bind))
    spawner = SimpleNamespace(hub=SimpleNamespace(base_url="/hub/"))
    assert scheduler_url(spawner, proxy="", address="http://127.0.0.1:8797/") == url


def contradictions() -> list[tuple[str, Any, dict[str, Any]]]:
    def service(c: Config) -> None:
        c.JupyterHub.services = [{"name": "replkernel", "url": "http://127.0.0.1:1"}]

    def port(c: Config) -> None:
        c.JupyterHub.services = [{"name": "other", "url": "http://127.0.0.1:8797"}]

    def named(c: Config) -> None:
        c.JupyterHub.load_roles = [{"name": "replkernel", "scopes": ["self"]}]

    def variable(c: Config) -> None:
        c.Spawner.environment = {"REPLKERNEL_SCHEDULER_URL": "http://127.0.0.1:1"}

    def function(c: Config) -> None:
        c.Spawner.server_token_scopes = lambda spawner: []

    def of_a_kind(c: Config) -> None:
        c.KubeSpawner.environment = {"REPLKERNEL_SCHEDULER_URL": "http://127.0.0.1:1"}

    def twice(c: Config) -> None:
        setup_replkernel(c, url=PROXY)

    def nothing(c: Config) -> None:
        pass

    return [
        ("c.JupyterHub.services has another 'replkernel'", service, {}),
        ("service 'other' listens at .*address=", port, {}),
        ("c.JupyterHub.load_roles has another 'replkernel'", named, {}),
        ("c.Spawner.environment has another REPLKERNEL_SCHEDULER_URL", variable, {}),
        ("c.Spawner.server_token_scopes is a function", function, {}),
        ("c.KubeSpawner.environment has another REPLKERNEL_SCHEDULER_URL", of_a_kind, {}),
        ("c.Spawner.environment has another REPLKERNEL_SCHEDULER_URL", twice, {}),
        ("agents_token has fewer than 16", nothing, {"agents_token": "short"}),
        ("service_token has fewer than 16", nothing, {"service_token": "short"}),
        ("of no use with service_token", nothing, {"service_token": "s" * 32, "launcher": "ray"}),
        ("not a loopback address", nothing, {"service_token": "s" * 32, "address": "http://sched:8797"}),
        ("address='here'", nothing, {"address": "here"}),
        ("address='http://127.0.0.1:x'", nothing, {"address": "http://127.0.0.1:x"}),
    ]


@pytest.mark.parametrize(("said", "before", "options"), contradictions())
def test_a_contradiction_is_refused_by_name_and_changes_no_setting(
    said: str, before: Any, options: dict[str, Any]
) -> None:
    c = Config()
    before(c)
    was = {name: dict(section) for name, section in c.items()}
    with pytest.raises(HubConfigError, match=said):
        setup_replkernel(c, **options)
    assert {name: dict(section) for name, section in c.items() if section} == was
