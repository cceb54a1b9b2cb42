"""The agent's process: its directories, its file, its log, its signals, its end.

SIGTERM and SIGINT: the agent goes, kernel processes stay for the next one. SIGUSR1: every kernel ends, then
the agent. Law: the agent's file is there only while it listens, readable by its user alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import resource
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from replkernel import __version__
from replkernel.agent.io.announcer import Announcer
from replkernel.agent.io.cell_limits import find_limits
from replkernel.agent.io.device_hook import VARIABLE, DeviceHook, read_hook
from replkernel.agent.io.early import First, Options
from replkernel.agent.io.gpu_guarding import GpuGuarding
from replkernel.agent.io.gpus import gpu_reader
from replkernel.agent.io.lookup import agent_dir
from replkernel.agent.io.measuring import Measuring
from replkernel.agent.io.pretended import forget_pretended, pretended_gpus
from replkernel.agent.io.server import AgentServer
from replkernel.agent.io.socket_places import make_places
from replkernel.agent.io.start import LOG_BYTES_MAX, READY, SETTLED, STOPPED
from replkernel.errors import ReplkernelError
from replkernel.hosts.far_sockets import new_keys
from replkernel.hosts.hosts_secret import agent_keys, agent_token, read_secret
from replkernel.hosts.own_file import replace_own
from replkernel.hosts.places import this_machine
from replkernel.jobs.keeping import JobKeeping
from replkernel.replication.addresses import check_bind
from replkernel.settings import data_dir, read_settings

log = logging.getLogger(__name__)

DESCRIPTORS_MAX = 65_536


class BoundedLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to standard error; when that is a file that has grown too large, it is put aside first."""

    def __init__(self, path: Path) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        with contextlib.suppress(OSError):
            if self._path.exists() and os.fstat(2).st_ino == self._path.stat().st_ino:
                self._bound()
        super().emit(record)

    def _bound(self) -> None:
        """Copy a full log aside and empty it; everybody writes at its end, so nobody needs to know."""
        if os.fstat(2).st_size > LOG_BYTES_MAX:
            self._path.with_suffix(".log.1").write_bytes(self._path.read_bytes())
            os.ftruncate(2, 0)


def run_agent(options: Options, env: Mapping[str, str], first: First) -> NoReturn:
    """Serve until it is time to go, then end the process."""
    directory = agent_dir(options.name, env)
    logging.basicConfig(level=logging.INFO, handlers=[BoundedLog(directory / "agent.log")])
    _raise_descriptor_limit()
    loop = asyncio.new_event_loop()
    code = 0
    try:
        loop.run_until_complete(_serve(options, env, first))
    except (ReplkernelError, OSError) as error:
        print(f"The agent of host {options.name} cannot run: {error}", file=sys.stderr)  # noqa: T201
        code = 1
    logging.shutdown()
    sys.stderr.flush()
    os._exit(code)  # A thread that still waits for a store must not keep the process.


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as this user may have: each kernel takes some of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(options: Options, env: Mapping[str, str], first: First) -> None:
    settings = read_settings(env)
    hook = read_hook(env)
    if hook and not options.stay:
        log.warning("%s is ignored: it counts for an agent that a person has started", VARIABLE)
        hook = ""
    check_bind(settings.bind)
    directory = agent_dir(options.name, env)
    for private in (data_dir(env), directory):
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    (directory / STOPPED).unlink(missing_ok=True)
    sockets = make_places(options.name, env)
    shared = read_secret(env)
    token = secrets.token_hex(32) if shared is None else agent_token(shared, options.name)
    keys = new_keys() if shared is None else agent_keys(shared, options.name)
    fake_gpus = pretended_gpus(directory, options, settings.fake_gpus)
    idle_s = math.inf if options.stay else settings.agent_idle_s
    server = AgentServer(options.name, token, directory, sockets, idle_s, settings.reach())
    guarding = None
    if hook:
        guarding = GpuGuarding(DeviceHook(hook, options.name, env), directory, server.kernels.pids_of)
    reader = gpu_reader(options.name, fake_gpus, env)
    announcer = Announcer(options.name, reader, env, server.take_gpus, guarding)
    server.on_kernel_left, server.on_gpus_left = announcer.kernel_left, announcer.look
    server.is_governed = announcer.is_up
    server.take_limits(find_limits(env))
    jobs = JobKeeping(options.name, directory, env, server.consider_idle)
    server.has_jobs, server.runs_jobs, server.stop_jobs = jobs.any, jobs.runs_any, jobs.stop_all
    measuring = Measuring(directory, server.kernels.whose, jobs.jobs_bytes, jobs.uses)
    server.consider_idle()
    if first.zygote is not None:
        server.spawner.take_over(*first.zygote)
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, server.finished.set)
    loop.add_signal_handler(signal.SIGUSR1, server.end_everything)
    far = server.listen_far(settings.agent_port, keys) if settings.reach().spans else ""
    _write_agent_file(directory, options.name, token, server.endpoint, far)
    _say_ready(options.ready_fd)
    log.info("the agent of host %s listens, process %d", options.name, os.getpid())
    try:
        server.restore()
        announcer.start()
        jobs.start()
        measuring.start()
        await server.finished.wait()
    finally:
        with contextlib.suppress(FileNotFoundError):
            (directory / "agent.json").unlink()
        leaves = not server.kernels.any() and not jobs.runs_any()
        if leaves:
            forget_pretended(directory)
        await asyncio.gather(measuring.close(), jobs.close(), announcer.close(leaves=leaves))
        if guarding is not None:
            await guarding.close()
        await server.close()
        log.info("the agent of host %s ends", options.name)


def _write_agent_file(directory: Path, name: str, token: str, endpoint: str, far: str) -> None:
    document = {
        "name": name,
        "pid": os.getpid(),
        "router_endpoint": endpoint,
        "token": token,
        "version": __version__,
        "machine": this_machine(),
        "far_endpoint": far,
    }
    if far:
        (directory / SETTLED).write_text(f"{os.uname().nodename}\n", encoding="utf-8")
    replace_own(directory / "agent.json", json.dumps(document).encode())


def _say_ready(ready_fd: int | None) -> None:
    if ready_fd is None:
        return
    with contextlib.suppress(OSError):  # Who started us may have gone since.
        os.write(ready_fd, READY)
    os.close(ready_fd)
