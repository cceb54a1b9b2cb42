"""The launcher of a Slurm cluster: agents as jobs, one on a node, with the GPUs that Slurm gives them.

It runs Slurm's own commands (`sbatch`, `squeue`, `scancel`) as its own user. Law: it decides nothing
(`slurm_hosts.py` does); settings and secrets go to jobs by a file of mode 0600, on all nodes' file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Mapping

import msgspec

from replkernel.agent.io.lookup import find_agent
from replkernel.hosts.own_file import replace_own
from replkernel.leasing.finding import TOKEN, URL, find_scheduler
from replkernel.settings import data_dir
from replkernel_server.errors import ServerError
from replkernel_server.launchers.protocol import Capabilities, LauncherFailed, Tell, Word
from replkernel_server.launchers.slurm_agent import AgentSettings
from replkernel_server.launchers.slurm_hosts import SlurmHosts
from replkernel_server.launchers.slurm_jobs import (
    SlurmAnswerError,
    SlurmOptions,
    ask_for_jobs,
    batch_script,
    cancel,
    end_kernels,
    jobs_told,
    read_options,
    submit,
    submitted,
)

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""How often Slurm is asked for our jobs while nothing is awaited: its controller serves everybody."""
LOOK_SOON_S = 1.0
COMMAND_S_MAX = 60.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
STARTS_S_MAX = 120.0
ENDS_S_MAX = 60.0
KERNELS_END_S_MAX = 15.0
LOGS_MAX = 100
_PREFIXES = ("REPLKERNEL_", "AWS_")
_NAMES = ("JUPYTER_DATA_DIR", "JUPYTER_PATH", "PYTHONPATH", "SSL_CERT_FILE", "XDG_DATA_HOME")
_NOT = (
    "REPLKERNEL_ADVERTISE",
    "REPLKERNEL_AGENT_PORT",
    "REPLKERNEL_BIND",
    "REPLKERNEL_FAKE_GPUS",
    "REPLKERNEL_HOST_NAME",
    "REPLKERNEL_HOSTS",
)


def make(options: Mapping[str, str]) -> SlurmLauncher:
    """Make it from options as sbatch takes them; raise ServiceSettingError for one that cannot be used."""
    return SlurmLauncher(read_options(options))


def carried(env: Mapping[str, str]) -> dict[str, str]:
    """Return what of an environment an agent elsewhere needs; what belongs to this machine stays here."""
    found = {
        name: value
        for name, value in env.items()
        if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _NOT
    }
    url, token = find_scheduler(env)
    return found | ({URL: url, TOKEN: token} if url else {})


class SlurmLauncher:
    """The jobs of one data directory, which its nodes share."""

    def __init__(self, options: SlurmOptions, env: Mapping[str, str] | None = None) -> None:
        """Make it; nothing is asked of Slurm before `open`."""
        self.capabilities = Capabilities(
            scales=True, host_gpus=options.gpus, hosts_max=options.most, host_prefix=options.host_prefix
        )
        self._options, self._env = options, dict(os.environ if env is None else env)
        self._place = data_dir(self._env) / "launchers" / "slurm"
        self._mark = f"replkernel:{hashlib.sha256(os.fsencode(self._place)).hexdigest()[:16]}"
        self._hosts = SlurmHosts(options)
        self._tell: Tell | None = None
        self._task: asyncio.Task[None] | None = None
        self._poke = asyncio.Event()
        self._turn = asyncio.Lock()
        self._awaits = True
        self._said = ""

    async def open(self, tell: Tell) -> None:
        """Find the jobs that are there, and ask for those that are to be."""
        for name in ("sbatch", "squeue", "scancel"):
            if shutil.which(name, path=self._env.get("PATH")) is None:
                raise LauncherFailed(
                    f"Slurm's command {name} is not found: install Slurm's client, or set PATH."
                )
        self._prepare()
        self._tell, self._hosts = tell, SlurmHosts(self._options)
        await self._look()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop asking; jobs stay."""
        self._tell = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def start_agent(self, host: str) -> None:
        """Wait for the agent of a job that runs; ask for a job on the same node where that one is over."""
        if self._hosts.job_of(host) is None:
            await self._start_again(host)
        deadline = asyncio.get_running_loop().time() + STARTS_S_MAX
        while await asyncio.to_thread(find_agent, host, self._env) is None:
            job = self._hosts.job_of(host)
            if asyncio.get_running_loop().time() > deadline:
                which = "" if job is None else f" See {self._place}/{job.job}.log."
                raise LauncherFailed(f"The agent of {host} does not come up in its job.{which}")
            self._poke.set()
            await asyncio.sleep(LOOK_SOON_S / 4)

    async def stop_agent(self, host: str) -> None:
        """Have the agent end its kernels, and with it the job; one that does not listen yet has none.

        Slurm drops a signal for a job whose script has not begun, without a word, but cancels it.
        """
        job = self._hosts.job_of(host)
        if job is None:
            return
        listens = await asyncio.to_thread(find_agent, host, self._env) is not None
        if listens:
            await self._ask(end_kernels(job.job))
        if not listens or not await self._gone(job.job, KERNELS_END_S_MAX):
            await self._ask(cancel(job.job))
            await self._gone(job.job)
        self._say(self._hosts.give_back(host))

    async def ask_hosts(self, more: int) -> None:
        """Have so many more jobs wait for nodes, or none."""
        if more > self._hosts.room():
            most = len(self._hosts.hosts()) + more
            raise LauncherFailed(
                f"Slurm is asked for {self._options.most} hosts at most: write --launcher-option most={most}."
            )
        self._hosts.want(more)
        try:
            await self._look()
        except LauncherFailed:
            self._hosts.want(0)  # Whoever awaited them is told that they do not come.
            raise

    async def give_back(self, host: str) -> None:
        """Cancel the job; its agent goes in order."""
        async with self._turn:  # Jobs that were listed in between would show one that ended by itself.
            job = self._hosts.job_of(host)
            if job is None:
                return
            await self._ask(cancel(job.job))
            self._say(self._hosts.give_back(host))
        await self._gone(job.job)

    async def take_gpu(self, host: str, gpu: str) -> str | None:
        """Return the same: Slurm counts a host's GPUs as its job's."""
        return gpu

    async def leave_gpu(self, host: str, gpu: str) -> None:
        """Do nothing."""

    # -- turn by turn -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SOON_S if self._awaits else LOOK_S):
                    await self._poke.wait()
            self._poke.clear()
            await asyncio.sleep(LOOK_SOON_S / 4)
            try:
                await self._look()
            except ServerError as error:
                self._log(str(error))
            except Exception:  # The next turn must come: nobody else would tell what becomes of hosts.
                log.exception("The launcher of Slurm failed in one turn.")

    async def _look(self) -> None:
        """Ask Slurm what is, tell what is new, ask for what is to be."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            jobs = jobs_told(await self._ask(ask_for_jobs(self._options, str(os.geteuid()))))
            self._say(self._hosts.told([job for job in jobs if job.mark == self._mark], now))
            todo = self._hosts.todo(now)
            for job in todo.cancel:
                await self._ask(cancel(job))
            for _ in range(todo.submit):
                await self._submit(todo.not_on)
            self._awaits = bool(todo.cancel or todo.submit or self._hosts.awaits)
            self._log(self._hosts.trouble)

    async def _submit(self, not_on: tuple[str, ...], node: str = "") -> str:
        command = submit(self._options, self._mark, str(self._place), not_on, node)
        self._prepare()
        path = self._env.get("PYTHONPATH", "")
        script = batch_script(self._options.python or sys.executable, str(self._place / "agent.json"), path)
        job = submitted(await self._ask(command, script))
        log.info("job %s is to be a host", job)
        self._poke.set()
        return job

    async def _start_again(self, host: str) -> None:
        node = self._hosts.node_of(host)
        if not host.startswith(self._options.host_prefix) or host not in self._hosts.ever:
            raise LauncherFailed(f"The launcher slurm has no host {host}: it has {self._hosts.hosts()}.")
        async with self._turn:
            self._hosts.again()
            await self._submit((), node)

    async def _gone(self, number: str, within_s: float = ENDS_S_MAX) -> bool:
        """Wait until a job is over; tell whether it is."""
        deadline = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < deadline:
            jobs = jobs_told(await self._ask(ask_for_jobs(self._options, str(os.geteuid()))))
            if not any(job.job == number and job.phase in ("up", "ending") for job in jobs):
                return True
            await asyncio.sleep(LOOK_SOON_S / 4)
        return False

    async def _ask(self, command: list[str], told: str = "") -> str:
        """Run one of Slurm's commands; return what it printed."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._env,
            )
        except OSError as error:
            raise LauncherFailed(f"Slurm's command {command[0]} cannot be run: {error}.") from error
        try:
            async with asyncio.timeout(COMMAND_S_MAX):
                said, complained = await process.communicate(told.encode())
        except TimeoutError:
            raise LauncherFailed(
                f"Slurm's command {command[0]} has not ended within {COMMAND_S_MAX:g} s."
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            why = " ".join(complained.decode(errors="replace").split())[:400]
            raise LauncherFailed(f"Slurm refuses: {why or f'{command[0]} ended with {process.returncode}'}.")
        if len(said) > ANSWER_BYTES_MAX:
            raise SlurmAnswerError(
                f"Slurm's command {command[0]} answered more than {ANSWER_BYTES_MAX} bytes."
            )
        return said.decode(errors="replace")

    def _prepare(self) -> None:
        """Write what a job reads, and drop old output."""
        try:
            self._write_settings()
            self._tidy()
        except OSError as error:
            raise LauncherFailed(f"The directory {self._place} cannot be written ({error}).") from error

    def _write_settings(self) -> None:
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place.chmod(0o700)
        options = self._options
        settings = AgentSettings(carried(self._env), options.host_prefix, options.bind, options.pretend)
        replace_own(self._place / "agent.json", msgspec.json.encode(settings))

    def _tidy(self) -> None:
        """Keep the last jobs' output alone."""
        logs = sorted(self._place.glob("*.log"), key=lambda log: log.stat().st_mtime, reverse=True)
        for old in logs[LOGS_MAX:]:
            old.unlink(missing_ok=True)

    def _say(self, words: list[Word]) -> None:
        for word in words:
            log.info("%s", word)
            if self._tell is not None:
                self._tell(word)

    def _log(self, what: str) -> None:
        if what and what != self._said:
            log.warning("%s", what)
        self._said = what
