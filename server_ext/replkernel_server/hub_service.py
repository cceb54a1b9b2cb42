"""The scheduler as a service of JupyterHub: `python -m replkernel_server.hub_service`, started by the Hub.

`hub.py` registers it. It is reached through the Hub's proxy, below its prefix, and knows nobody but whom the
Hub knows. Laws: without a Hub's environment it does not start; without TLS it listens at loopback alone,
unless an administrator says that nobody reads along in the network.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from replkernel_server.errors import ServerError, ServiceSettingError
from replkernel_server.hub import JOURNAL, PLAIN_HTTP, why_not_plain
from replkernel_server.launchers.protocol import Launcher
from replkernel_server.scheduling.collecting import keep_collections_aside
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.settings import DATABASE, read_service_settings
from replkernel_server.service import (
    answering,
    bind,
    end,
    first_of,
    launcher_of,
    read_certificate,
    stopped_by_signals,
)

log = logging.getLogger("replkernel.scheduler")
ADDRESS = "JUPYTERHUB_SERVICE_URL"
PREFIX = "JUPYTERHUB_SERVICE_PREFIX"
CERTFILE, KEYFILE = "JUPYTERHUB_SSL_CERTFILE", "JUPYTERHUB_SSL_KEYFILE"
ANOTHER_ADDRESS = "name a free one with address= of setup_replkernel(c) in jupyterhub_config.py"
NEEDED = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL", ADDRESS, PREFIX)


class Place(NamedTuple):
    """Where to listen, and below which path."""

    ip: str
    port: int
    prefix: str
    tls: ssl.SSLContext | None = None


def read_place(env: Mapping[str, str]) -> Place:
    """Return where the Hub wants the service; raises ServiceSettingError."""
    missing = [name for name in NEEDED if not env.get(name)]
    if missing:
        raise ServiceSettingError(
            f"{', '.join(missing)} is not set: this service is started by JupyterHub, which "
            "setup_replkernel(c) in jupyterhub_config.py makes it do."
        )
    try:
        parts = urlsplit(env[ADDRESS])
        ip, port = parts.hostname or "", parts.port or 0
    except ValueError:
        ip, port = "", 0
    if not ip or not port or parts.scheme not in ("http", "https"):
        raise ServiceSettingError(
            f"{ADDRESS}={env[ADDRESS]!r} is not an address to listen at: call setup_replkernel(c) with "
            "address='http://127.0.0.1:8797'."
        )
    tls = _certificate(env) if parts.scheme == "https" else None
    why = "" if tls is not None or env.get(PLAIN_HTTP) == "yes" else why_not_plain(env[ADDRESS])
    if why:
        raise ServiceSettingError(why)
    return Place(ip, port, env[PREFIX].rstrip("/"), tls)


def _certificate(env: Mapping[str, str]) -> ssl.SSLContext:
    missing = [name for name in (CERTFILE, KEYFILE) if not env.get(name)]
    if missing:
        raise ServiceSettingError(
            f"{ADDRESS}={env[ADDRESS]!r} needs a certificate: set {' and '.join(missing)} in "
            "setup_replkernel(c, environment={...}), or c.JupyterHub.internal_ssl = True."
        )
    context = read_certificate(Path(env[CERTFILE]), Path(env[KEYFILE]))
    assert context is not None
    return context


def own_journal(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with a journal of the Hub's own, never that of whom the service runs as."""
    if env.get(DATABASE, "").strip():
        return env
    return {**env, DATABASE: f"sqlite:///{Path.cwd() / JOURNAL}"}


async def serve(env: Mapping[str, str], launcher: Launcher | None = None) -> None:
    """Serve until the Hub ends it, or the journal fails."""
    from replkernel_server.scheduling.hub_identity import HubIdentify

    stop = stopped_by_signals()
    place = read_place(env)
    sockets = bind(place.ip, place.port, ANOTHER_ADDRESS)
    settings = read_service_settings(own_journal(env))
    hosted = await Hosted.open(settings, HubIdentify(), launcher=launcher)
    log.warning("The journal of this Hub's scheduler is %s.", hosted.driver.journal.place.name)
    server = answering(hosted, sockets, place.prefix, place.tls)
    aside = keep_collections_aside(lambda: hosted.driver.number)
    await first_of(stop.wait(), hosted.failed.wait(), aside)
    await end(hosted, server)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve as the environment says; end with what is wrong."""
    parser = argparse.ArgumentParser(prog="replkernel_server.hub_service")
    parser.add_argument("--launcher", metavar="NAME")
    parser.add_argument("--launcher-option", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        asyncio.run(serve(os.environ, launcher_of(options.launcher, options.launcher_option)))
    except ServerError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
