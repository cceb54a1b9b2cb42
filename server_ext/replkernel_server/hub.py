"""JupyterHub with replkernel: one line in `jupyterhub_config.py` lets the users of a Hub share its GPUs.

    from replkernel_server.hub import setup_replkernel
    setup_replkernel(c)

It belongs at the end of the file, behind whatever assigns the same settings. Law: it adds to the
configuration and takes nothing away; called again it changes nothing; what contradicts it is refused with
the setting's name and the fix. The Hub imports this, so it imports little itself.
"""

from __future__ import annotations

import copy
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from replkernel.launch.module_command import module_command
from replkernel_server.errors import ServerError
from replkernel_server.hub_agents import LOCAL, UserAgents
from replkernel_server.scheduling.access import ADMIN_SCOPE, HOST_SCOPE, LEASE_SCOPE, SEE_SCOPE

SERVICE = "replkernel"
AGENTS = "replkernel-agents"
OVERSEERS = "replkernel-overseers"
SCOPES = {
    LEASE_SCOPE: {"description": "Lease GPUs from the replkernel scheduler for the cells of one's notebooks"},
    HOST_SCOPE: {"description": "Offer the GPUs of a host to the replkernel scheduler"},
    ADMIN_SCOPE: {"description": "Administer the replkernel scheduler: see and change what is anybody's"},
    SEE_SCOPE: {"description": "See in the replkernel scheduler what is anybody's, and change nothing of it"},
}
SERVER_SCOPES = ("users:activity!user", "access:servers!server")
"""What JupyterHub gives to the token of a user's server by itself."""
USER_SCOPES = ("self",)
"""What JupyterHub gives to every user by itself."""
ADDRESS = "http://127.0.0.1:8797"
URL = "REPLKERNEL_SCHEDULER_URL"
PLAIN_HTTP = "REPLKERNEL_HUB_PLAIN_HTTP"
"""`yes`: an administrator says that nobody reads along between the Hub's proxy and the service."""
DATABASE = "REPLKERNEL_SCHEDULER_DB"
JOURNAL = "replkernel-scheduler.sqlite"
"""The Hub's own scheduler's journal, in the directory of the Hub's database."""
HANDED_ON = (
    "JUPYTER_DATA_DIR",
    "PYTHONPATH",
    DATABASE,
    "REPLKERNEL_SCHEDULER_GRACE_S",
    "REPLKERNEL_SCHEDULER_AWAY_S",
    "REPLKERNEL_SCHEDULER_HOST_AWAY_S",
    "REPLKERNEL_SCHEDULER_POLICIES",
    "REPLKERNEL_SCHEDULER_PRICES",
    "REPLKERNEL_SCHEDULER_JOBS",
    "REPLKERNEL_SCHEDULER_GPU_SHARING",
    "REPLKERNEL_SCHEDULER_IDLE_GPUS",
    "REPLKERNEL_SCHEDULER_PREEMPT",
    "REPLKERNEL_SCHEDULER_USER_REQUESTS",
    "REPLKERNEL_SCHEDULER_USER_LEASES",
    "REPLKERNEL_SCHEDULER_USER_CONNECTIONS",
    "REPLKERNEL_SCHEDULER_USER_CALLS_PER_S",
    "REPLKERNEL_SCHEDULER_USER_MESSAGES_PER_S",
)
"""What the service gets of the Hub's own environment: all settings of the scheduler, and no token."""
TOKEN_CHARS_MIN = 16


class HubConfigError(ServerError):
    """The Hub's configuration contradicts what replkernel needs."""


def setup_replkernel(
    c: Config,
    *,
    groups: Sequence[str] | None = None,
    overseers: Sequence[str] = (),
    agents_token: str = "",
    users_offer_hosts: bool = False,
    url: str = "",
    address: str = ADDRESS,
    environment: Mapping[str, str] | None = None,
    launcher: str = "",
    launcher_options: Mapping[str, str] | None = None,
    plain_http: bool = False,
    agents_on: Sequence[str] = (),
    agents_command: Sequence[str] = LOCAL,
    agents_user: str = "{username}",
    service_token: str = "",
) -> None:
    """Register the scheduler as a service of the Hub, with its scopes, its roles and the users' environment.

    `groups`: who may lease GPUs (none given: every user). `overseers`: groups whose members see in `status`
    and JupyterLab's panel who holds what, everybody's; they change nothing by that. `agents_token`: the token
    of the agents that offer GPUs; `users_offer_hosts`: the agents of users may do so as well, which is for
    users who trust each other.
    `url`: the Hub's proxy as users' servers reach it (not given: the Hub's own `bind_url`). `address`: where
    the service listens, behind the proxy. `environment`: settings of the scheduler (REPLKERNEL_SCHEDULER_DB,
    …); those in the Hub's own environment count too. Unless one of them says where, the journal lies beside
    the Hub's database, of which `c.JupyterHub.db_url` must have been set before. `launcher`,
    `launcher_options`: the engine whose hosts have agents (`ray`, `{"address": "auto"}`), as for `replkernel
    scheduler`. `plain_http`: let the service listen without TLS beyond loopback, where nobody else is in the
    network between it and the Hub's proxy.
    `agents_on`: hosts on which each user's own agent is started before his server, by `agents_command` with
    `{user}` and `{host}` in it (as `["ssh", "root@{host}", "replkernel", "agent", "--as", "{user}"]`);
    `agents_user`: the Unix user of a `{username}`, where the names differ (`jupyter-{username}`).
    `service_token`: the scheduler runs elsewhere, at `address`, with this token, and the Hub does not start
    it (the Helm chart does); users' servers then ask it at `address`, unless `url` names the Hub's proxy.

    Raises HubConfigError.
    """
    for name, token in (("agents_token", agents_token), ("service_token", service_token)):
        if token and len(token) < TOKEN_CHARS_MIN:
            raise HubConfigError(
                f"{name} has fewer than {TOKEN_CHARS_MIN} characters: make one with `openssl rand -hex 32`."
            )
    access = f"access:services!service={SERVICE}"
    using = [access, LEASE_SCOPE, *([HOST_SCOPE] if users_offer_hosts else [])]
    journal = {DATABASE: f"sqlite:///{_beside_database(c) / JOURNAL}"} if DATABASE not in os.environ else {}
    own = {**journal, **(environment or {}), **({PLAIN_HTTP: "yes"} if plain_http else {})}
    if service_token:
        if environment or launcher or launcher_options:
            raise HubConfigError(
                "environment, launcher and launcher_options are of no use with service_token: say them where "
                "the scheduler is started, in the values of its chart."
            )
        services = [_service_elsewhere(address, service_token, plain_http=plain_http)]
        url = url or address
    else:
        services = [_service(address, own, _launching(launcher, launcher_options or {}))]
    roles = [{"name": SERVICE, "services": [SERVICE], "scopes": ["read:groups"]}]
    if agents_token:
        services.append({"name": AGENTS, "api_token": agents_token, "display": False})
        roles.append({"name": AGENTS, "services": [AGENTS], "scopes": [access, HOST_SCOPE]})
    if overseers:
        roles.append({"name": OVERSEERS, "groups": list(overseers), "scopes": [access, SEE_SCOPE]})
    if groups is not None:
        roles.append({"name": f"{SERVICE}-users", "groups": list(groups), "scopes": using})
    plan = {
        "services": _with(c.JupyterHub, "services", services),
        "custom_scopes": SCOPES | _value(c.JupyterHub, "custom_scopes", {}),
        "load_roles": _with(c.JupyterHub, "load_roles", roles),
    }
    if groups is None:
        plan["load_roles"] = _extended(plan["load_roles"], "user", using, USER_SCOPES)
    scopes = [*using, *([SEE_SCOPE] if overseers else [])]
    agents = UserAgents(agents_on, agents_command, agents_user) if agents_on else None
    settings = {kind: _spawner_settings(c, kind, url, address, scopes, agents) for kind in _spawners(c)}
    c.JupyterHub.update(plan)
    for kind, ours in settings.items():
        c[kind].update(ours)


def scheduler_url(spawner: Any, *, proxy: str, address: str) -> str:
    """Return where a user's server reaches the scheduler: through the Hub's proxy."""
    prefix = f"{spawner.hub.base_url.removesuffix('hub/')}services/{SERVICE}"
    if proxy:
        return proxy.rstrip("/") + prefix
    from jupyterhub.app import JupyterHub

    own = urlsplit(JupyterHub.instance().bind_url)
    if own.scheme != "http":  # Its certificate is for its name, which only `url` can say.
        return address.rstrip("/") + prefix
    host = own.hostname or ""
    host = "127.0.0.1" if host in ("", "*", "0.0.0.0", "::") else host  # noqa: S104 - it is not bound here
    return f"http://{f'[{host}]' if ':' in host else host}:{own.port or 80}{prefix}"


def why_not_plain(address: str) -> str:
    """Say why the service may not speak plain HTTP at this address; nothing where it is loopback."""
    host = urlsplit(address).hostname or ""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if loopback:
        return ""
    return (
        f"{address} is not a loopback address, and tokens would go there as plain HTTP: use "
        f"address={ADDRESS!r}, an https address with a certificate, or, where nobody else is in that "
        "network, setup_replkernel(c, plain_http=True)."
    )


def _launching(launcher: str, options: Mapping[str, str]) -> list[str]:
    """Return the arguments that name a launcher to the service."""
    if options and not launcher:
        raise HubConfigError("launcher_options is of no use without a launcher: write launcher='ray'.")
    words = [f"{name}={value}" for name, value in options.items()]
    return ["--launcher", launcher, *(f"--launcher-option={word}" for word in words)] if launcher else []


def _service(address: str, environment: Mapping[str, str], arguments: list[str]) -> dict[str, Any]:
    _check_address(address, plain_http=environment.get(PLAIN_HTTP) == "yes")
    inherited = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    return {
        "name": SERVICE,
        "url": address,
        "command": module_command("replkernel_server.hub_service", *arguments),
        "environment": inherited | dict(environment),
        "display": False,
    }


def _service_elsewhere(address: str, token: str, *, plain_http: bool) -> dict[str, Any]:
    """Return a service that somebody else starts; the Hub only knows its address and token."""
    _check_address(address, plain_http=plain_http)
    return {"name": SERVICE, "url": address, "api_token": token, "display": False}


def _check_address(address: str, *, plain_http: bool) -> None:
    """Refuse what nobody can listen at, and what tokens must not go to."""
    try:
        parts = urlsplit(address)
        usable = (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and bool(parts.port)
            and not parts.path.strip("/")
        )
    except ValueError:
        usable = False
    if not usable:
        raise HubConfigError(
            f"address={address!r} is not an address to listen at: write address={ADDRESS!r}."
        )
    why = why_not_plain(address) if parts.scheme == "http" and not plain_http else ""
    if why:
        raise HubConfigError(why)


def _beside_database(c: Config) -> Path:
    """Return the directory of the Hub's database; of one that is no file, where the Hub runs."""
    address = str(_value(c.JupyterHub, "db_url", "") or "")
    file = address.removeprefix("sqlite:///") if address.startswith("sqlite:///") else ""
    plain = file.partition("?")[0]
    return Path(plain).absolute().parent if plain not in ("", ":memory:") else Path.cwd()


def _value(section: Any, name: str, empty: object) -> Any:
    """Return what a setting is so far; one that was only added to is what was added.

    A copy is asked: a lazy value keeps what it was once given to begin with.
    """
    value = section.get(name, empty)
    return copy.deepcopy(value).get_value(empty) if isinstance(value, LazyConfigValue) else value


def _with(section: object, name: str, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a list of named things with ours; one of a name of ours that is another thing is refused."""
    there = list(_value(section, name, []))
    for ours in wanted:
        same = [one for one in there if one.get("name") == ours["name"]]
        if any(one != ours for one in same):
            raise HubConfigError(
                f"c.JupyterHub.{name} has another {ours['name']!r} already: rename that one, or call "
                "setup_replkernel(c, …) once only."
            )
        url = ours.get("url")
        for one in there:
            if url and one.get("url") == url and one.get("name") != ours["name"]:
                raise HubConfigError(
                    f"The service {one.get('name')!r} listens at {url} already: give another address, as in "
                    "setup_replkernel(c, address='http://127.0.0.1:8798')."
                )
        there += [] if same else [ours]
    return there


def _extended(
    roles: list[dict[str, Any]], name: str, scopes: Sequence[str], built_in: Sequence[str]
) -> list[dict[str, Any]]:
    """Return roles with `scopes` added to the one of this name, which JupyterHub has by itself."""
    others = [role for role in roles if role.get("name") != name]
    known = next((role for role in roles if role.get("name") == name), {"name": name, "scopes": built_in})
    return [*others, {**known, "scopes": list(dict.fromkeys([*known.get("scopes", ()), *scopes]))}]


def _spawners(c: Config) -> list[str]:
    """Return the sections that say something of spawners: all spawners', and those of one kind."""
    own = {"environment", "server_token_scopes", "pre_spawn_hook"}
    kinds = [name for name in c if name.endswith("Spawner") and name != "Spawner" and own & set(c[name])]
    return ["Spawner", *sorted(kinds)]


def _spawner_settings(
    c: Config, kind: str, url: str, address: str, scopes: Sequence[str], agents: UserAgents | None
) -> dict[str, Any]:
    """Return what a section of spawners is to say; a kind of spawner gets only what would hide ours."""

    def hides(name: str) -> bool:
        return kind == "Spawner" or (name in c[kind] and not isinstance(c[kind][name], LazyConfigValue))

    found: dict[str, Any] = {}
    environment = _environment(c, kind, url, address)
    token_scopes = _server_scopes(c, kind, scopes)
    if hides("environment"):
        found["environment"] = environment
    if hides("server_token_scopes"):
        found["server_token_scopes"] = token_scopes
    if agents is not None and hides("pre_spawn_hook"):
        found["pre_spawn_hook"] = _user_agents(c, kind, agents)
    return found


class AddedEnvironment:
    """An environment that is asked of the configuration's own function, with the scheduler's URL added."""

    def __init__(self, there: Callable[[Any], Mapping[str, Any]], url: partial[str]) -> None:
        """Ask `there`, then add."""
        self.there, self.url = there, url

    def __call__(self, spawner: object) -> dict[str, Any]:
        """Return the environment of a user's server."""
        return {**self.there(spawner), URL: self.url(spawner)}


def _user_agents(c: Config, kind: str, wanted: UserAgents) -> UserAgents:
    """Return what starts users' agents, and then does what the configuration's own hook does."""
    there = c[kind].get("pre_spawn_hook")
    if isinstance(there, UserAgents):
        if not wanted.same(there):
            raise HubConfigError(
                "agents_on, agents_command and agents_user contradict an earlier setup_replkernel(c, …)."
            )
        return there
    return UserAgents(wanted.hosts, wanted.command, wanted.user, before=there)


def _environment(c: Config, kind: str, url: str, address: str) -> Any:
    there = _value(c[kind], "environment", {})
    wanted = partial(scheduler_url, proxy=url, address=address)
    if isinstance(there, AddedEnvironment):
        known = there.url
    else:
        known = wanted if callable(there) else there.get(URL, wanted)
    ours = isinstance(known, partial) and known.func is scheduler_url
    if not ours or known.keywords != wanted.keywords:
        raise HubConfigError(
            f"c.{kind}.environment has another {URL} already: remove it, or call setup_replkernel(c, …) "
            "once only."
        )
    if callable(there):
        return there if isinstance(there, AddedEnvironment) else AddedEnvironment(there, wanted)
    return {**there, URL: known}


def _server_scopes(c: Config, kind: str, scopes: Sequence[str]) -> list[str]:
    there = _value(c[kind], "server_token_scopes", [])
    if callable(there):
        raise HubConfigError(
            f"c.{kind}.server_token_scopes is a function, to which nothing can be added: let it return "
            f"{', '.join(scopes)} too, and set it after setup_replkernel(c)."
        )
    return list(dict.fromkeys([*(there or SERVER_SCOPES), *scopes]))
