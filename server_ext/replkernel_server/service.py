"""The scheduler as a process of its own: `python -m replkernel_server.service`.

Without a certificate it speaks plain HTTP, at loopback addresses alone. Its token lies in a 0600 file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import secrets
import signal
import socket
import ssl
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

from tornado import httpserver, iostream, web

from replkernel.agent.io.start import JOB_ON_CORES
from replkernel.hosts.strangers import Strangers
from replkernel.leasing.finding import URL, forget_address, tell_address
from replkernel_server.errors import ServerError, ServiceSettingError
from replkernel_server.handlers.scheduler_base import PROVED
from replkernel_server.launchers.installed import make, read_options
from replkernel_server.launchers.protocol import Launcher
from replkernel_server.scheduling.collecting import keep_collections_aside
from replkernel_server.scheduling.hosting import Hosted
from replkernel_server.scheduling.identity import one_token
from replkernel_server.scheduling.settings import ServiceSettings, read_service_settings, scheduler_dir

log = logging.getLogger("replkernel.scheduler")
PORT = 8797
IDLE_LOOK_S = 5.0
PORT_MAX = 65535
IN_A_JOB = (
    "A job without GPUs cannot become a scheduler, which would have its low priority and its memory limit: "
    "start the scheduler outside the job."
)
BACKLOG = 128
"""So many connections wait to be taken."""
BODY_BYTES_MAX = 64 * 1024
HEADER_BYTES_MAX = 16 * 1024
BUFFER_BYTES_MAX = 2 * 1024 * 1024
"""What a connection may have sent that nobody has read; a channel's message is half as large at most."""
IDLE_S = 10.0
"""A connection has so long for a request's headers, and as long for its body; channels have pings."""
STRANGERS_MAX = 512
"""So many connections may wait that have not shown a token; then the oldest goes."""
TOKEN_CHARS_MIN = 16


def token_file(environment: dict[str, str]) -> Path:
    """Return where the scheduler's token lies."""
    return scheduler_dir(environment) / "token"


def read_token(path: Path) -> str:
    """Return the token in `path`, making one on first use; refuse a file that others can read."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(secrets.token_urlsafe(32))
        except FileExistsError:
            pass
        mode = path.stat().st_mode & 0o777
        token = path.read_text().strip()
    except OSError as error:
        raise ServiceSettingError(
            f"The token file {path} cannot be used ({error.strerror}): make its directory writable, "
            "or name another file with --token-file."
        ) from error
    if mode & 0o077:
        raise ServiceSettingError(f"The token file {path} can be read by others: run chmod 600 {path}.")
    if len(token) < TOKEN_CHARS_MIN:
        raise ServiceSettingError(
            f"The token in {path} is too short: delete the file to have a new one made."
        )
    return token


def check_loopback(ip: str) -> str:
    """Return `ip` if it is a loopback address, as it must be without a certificate."""
    try:
        loopback = ipaddress.ip_address(ip).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ServiceSettingError(
            f"--ip={ip} is not a loopback address, and without a certificate the scheduler speaks plain "
            "HTTP: name one with --certfile and --keyfile, or use 127.0.0.1."
        )
    return ip


def read_certificate(certfile: Path | None, keyfile: Path | None) -> ssl.SSLContext | None:
    """Return what a server needs that speaks TLS, None without a certificate."""
    if certfile is None and keyfile is None:
        return None
    if certfile is None or keyfile is None:
        raise ServiceSettingError("--certfile and --keyfile go together: name both.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        if keyfile.stat().st_mode & 0o077:
            raise ServiceSettingError(f"The key {keyfile} can be read by others: run chmod 600 {keyfile}.")
        context.load_cert_chain(certfile, keyfile)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or error
        raise ServiceSettingError(f"--certfile={certfile}, --keyfile={keyfile}: {why}.") from error
    return context


async def serve(
    ip: str,
    port: int,
    token: str,
    settings: ServiceSettings,
    *,
    new_journal: bool,
    idle_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
    launcher: Launcher | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or a failure of the journal; print the address once it listens.

    With `idle_s` it ends as well when no agent and no router has been connected for so long.
    """
    stop = stopped_by_signals()
    sockets = bind(ip, port)
    host = f"[{ip}]" if ":" in ip else ip
    url = f"http{'s' if tls is not None else ''}://{host}:{sockets[0].getsockname()[1]}"
    if tls is not None:
        os.environ.setdefault(URL, url)  # For agents that a launcher starts on other machines.
    try:
        hosted = await Hosted.open(settings, one_token(token), new_journal=new_journal, launcher=launcher)
    except ServerError:
        for each in sockets:
            each.close()
        raise
    server = answering(hosted, sockets, tls=tls)
    say_where(url, token)
    print(f"REPLKERNEL_SCHEDULER_URL={url}", flush=True)
    aside = keep_collections_aside(lambda: hosted.driver.number)
    ends = [stop.wait(), hosted.failed.wait(), aside]
    if idle_s:
        ends.append(nobody_left(hosted, idle_s))
    await first_of(*ends)
    forget_address(os.environ)
    await end(hosted, server)


def stopped_by_signals() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def answering(
    hosted: Hosted, sockets: list[socket.socket], prefix: str = "", tls: ssl.SSLContext | None = None
) -> httpserver.HTTPServer:
    """Return a server that answers for `hosted` at bound sockets, below `prefix`."""
    application = web.Application(hosted.routes(prefix))
    server = BoundedServer(
        application,
        max_header_size=HEADER_BYTES_MAX,
        max_body_size=BODY_BYTES_MAX,
        max_buffer_size=BUFFER_BYTES_MAX,
        idle_connection_timeout=IDLE_S,
        body_timeout=IDLE_S,
        ssl_options=tls,
    )
    application.settings[PROVED] = server.proved
    server.add_sockets(sockets)
    return server


class BoundedServer(httpserver.HTTPServer):
    """A server at which few may wait who have not shown a token, so that those who have one are served."""

    def initialize(self, *args: Any, **options: Any) -> None:
        """Begin with nobody."""
        super().initialize(*args, **options)
        self._strangers: Strangers[iostream.IOStream] = Strangers(
            in_all=STRANGERS_MAX, of_address=STRANGERS_MAX, limit_s=math.inf
        )

    def handle_stream(self, stream: iostream.IOStream, address: tuple[str, int]) -> None:
        """Take a connection, in the place of another one if there are too many."""
        now = asyncio.get_running_loop().time()
        for each in self._strangers.arrive(stream, address[0], expected=True, now=now):
            each.close()
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        """Forget a connection."""
        self._strangers.leave(server_conn.stream)
        super().on_close(server_conn)

    def proved(self, stream: iostream.IOStream) -> None:
        """Take note that a connection's request had a token that is valid here."""
        self._strangers.leave(stream)


async def first_of(*ends: Coroutine[Any, Any, Literal[True]]) -> None:
    """Return once one of `ends` has come, and wait for the others no more."""
    waits = [asyncio.create_task(end) for end in ends]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def end(hosted: Hosted, server: httpserver.HTTPServer) -> None:
    """Answer nobody any more and close the journal; raise the fault that ended the scheduler, if any."""
    server.stop()
    await hosted.close()
    await server.close_all_connections()
    if hosted.trouble is not None:
        raise hosted.trouble


async def nobody_left(hosted: Hosted, idle_s: float) -> Literal[True]:
    """Return once nobody has been connected for `idle_s`."""
    alone_s, look_s = 0.0, min(IDLE_LOOK_S, idle_s)
    while alone_s < idle_s:
        await asyncio.sleep(look_s)
        alone_s = 0.0 if hosted.channel.connections else alone_s + look_s
    return True


def say_where(url: str, token: str) -> None:
    """Let this user's agents and routers find it without a setting, if the data directory can be written."""
    try:
        tell_address(os.environ, url, token)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s): set REPLKERNEL_SCHEDULER_URL=%s for whoever uses this scheduler.",
            scheduler_dir(os.environ) / "address.json",
            error.strerror,
            url,
        )


ANOTHER_PORT = "choose another with --port (0: any)"


def bind(ip: str, port: int, fix: str = ANOTHER_PORT) -> list[socket.socket]:
    """Return sockets bound to the address; nobody is answered before a server has them.

    Raises ServiceSettingError, with the `fix` for whoever chose the port.
    """
    try:
        return _listening(ip, port)
    except OSError as error:
        raise ServiceSettingError(
            f"Port {port} of {ip} cannot be bound ({error.strerror}): {fix}."
        ) from error


def _listening(ip: str, port: int) -> list[socket.socket]:
    """Listen at each address of `ip`; unlike Tornado's `bind_sockets`, close all of them if one is taken."""
    with contextlib.ExitStack() as bound:
        sockets: list[socket.socket] = []
        found = socket.getaddrinfo(ip, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            number = port or (sockets[0].getsockname()[1] if sockets else 0)
            at = (str(address[0]), number)
            made = bound.enter_context(socket.create_server(at, family=family, backlog=BACKLOG))
            made.setblocking(False)
            sockets.append(made)
        bound.pop_all()
        return sockets


def launcher_of(name: str | None, words: Sequence[str]) -> Launcher | None:
    """Return the launcher that the command line names; None if it names none."""
    if name is None:
        if words:
            raise ServiceSettingError("--launcher-option is of no use without --launcher: name the launcher.")
        return None
    return make(name, read_options(words))


def read_port(text: str) -> int:
    """Return the port that `text` says; the system would take one above 65535 for another, without a word."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {PORT_MAX}")
    return int(text)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="replkernel scheduler", description=__doc__)
    parser.add_argument(
        "--ip",
        default="127.0.0.1",
        help="the address to bind (default %(default)s; others need a certificate)",
    )
    parser.add_argument("--certfile", type=Path, help="the TLS certificate of its name or address, as PEM")
    parser.add_argument("--keyfile", type=Path, help="the certificate's key, readable by you alone")
    parser.add_argument(
        "--port", type=read_port, default=PORT, help="the port, 0 for any (default %(default)s)"
    )
    parser.add_argument(
        "--token-file", type=Path, help="where the token lies (default in the data directory)"
    )
    parser.add_argument(
        "--new-journal",
        action="store_true",
        help="set the journal aside and begin a new one: hosts come back, leases are asked for anew",
    )
    parser.add_argument(
        "--idle",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="end after so long without any agent or router (default: never)",
    )
    parser.add_argument(
        "--launcher",
        metavar="NAME",
        help="start agents on an engine's hosts: local, ray, or an installed one (default: people do)",
    )
    parser.add_argument(
        "--launcher-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="say what the launcher needs to know (address=auto); may be given several times",
    )
    parser.add_argument("--verbose", action="store_true", help="log every decision to the terminal")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and serve; return the exit code."""
    options = _build_parser().parse_args(argv)
    if os.environ.get(JOB_ON_CORES):
        print(IN_A_JOB, file=sys.stderr)
        return 1
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, stream=sys.stderr)
    path = options.token_file or token_file(dict(os.environ))
    try:
        settings = read_service_settings(os.environ)
        launcher = launcher_of(options.launcher, options.launcher_option)
        tls = read_certificate(options.certfile, options.keyfile)
        work = serve(
            options.ip if tls is not None else check_loopback(options.ip),
            options.port,
            read_token(path),
            settings,
            new_journal=options.new_journal,
            idle_s=max(0.0, options.idle),
            tls=tls,
            launcher=launcher,
        )
        asyncio.run(work)
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
