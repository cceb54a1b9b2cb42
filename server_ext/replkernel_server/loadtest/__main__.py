"""`replkernel loadtest`: reads the words, plays, writes the report.

Law: exit code 0 when every cell went well, 1 when something went wrong, 2 for a command that makes no sense,
130 after Ctrl-C; no expected fault ends in a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.trace_file import TraceFile

from replkernel.errors import ReplkernelError
from replkernel_server.errors import ServerError
from replkernel_server.loadtest.errors import LoadTestError
from replkernel_server.loadtest.options import build_parser, manner, wanted
from replkernel_server.loadtest.own_server import own_server
from replkernel_server.loadtest.plan import LoadPlan, built_in, from_records
from replkernel_server.loadtest.playing import Playing
from replkernel_server.loadtest.processes import Processes
from replkernel_server.loadtest.reporting import figures_of, teller, went_well, write
from replkernel_server.loadtest.server import LabServer
from replkernel_server.loadtest.table import table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.start == bool(options.url):
        parser.error("give the URL of a running server, or --start")
    try:
        return asyncio.run(_run(options))
    except (ServerError, SchedulerError, ReplkernelError) as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # The reader (`| head`) has gone: what is left is for nobody.
        return 0
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("Left at once: kernels called replkernel-loadtest-… may still run.", file=sys.stderr)
        return 130


async def _run(options: argparse.Namespace) -> int:
    plan = _plan(options)
    if options.out is not None:
        _writable(options.out)
    async with contextlib.AsyncExitStack() as stack:
        if options.start:
            started = await stack.enter_async_context(own_server(options.replicas, options.fake_gpus))
            server, env, pid = LabServer(started.url, started.token), started.env, started.pid
        else:
            url, token = _with_token(options.url)
            server, env, pid = LabServer(url, token), dict(os.environ), None
        stack.callback(server.close)
        await server.call("GET", "api/kernels")
        playing = Playing(server, plan, manner(options), Processes(env, pid), teller(quiet=options.quiet))
        with _stopping(playing):
            await playing.play()
    return _report(options, plan, playing)


def _plan(options: argparse.Namespace) -> LoadPlan:
    if options.trace is None:
        return built_in(wanted(options))
    file = TraceFile(options.trace, skip_bad=options.skip_bad)
    return from_records(forms.read(file, options.form), wanted(options))


def _with_token(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise LoadTestError(
            f"{url!r} is no address of a Jupyter Server: write http://127.0.0.1:8888/?token=…"
        )
    token = parse_qs(parts.query).get("token", [os.environ.get("JUPYTER_TOKEN", "")])[0]
    path = parts.path.removesuffix("lab").removesuffix("tree")
    return urlunsplit((parts.scheme, parts.netloc, path or "/", "", "")), token


def _writable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoadTestError(f"{out} cannot be written: {error}.") from None


@contextlib.contextmanager
def _stopping(playing: Playing) -> Iterator[None]:
    """Have the first Ctrl-C (or SIGTERM) stop the test in an orderly way, and the second one end it."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def stop() -> None:
        if playing.stop.is_set() and task is not None:
            task.cancel()
        playing.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _report(options: argparse.Namespace, plan: LoadPlan, playing: Playing) -> int:
    of = figures_of(plan, wanted(options), manner(options), playing)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(table(of))
    if options.out is not None:
        write(options.out, of, playing.cells)
        print(f"Written to {options.out}: loadtest.json, cells.csv.")
    if playing.stop.is_set():
        return 130
    return 0 if went_well(of) else 1


if __name__ == "__main__":
    raise SystemExit(main())
