"""One run: hosts, a kernel, clients and what goes wrong, from the first cell to what is left after shutdown.

Law: faults are over before the final state is read; whatever the run itself could not do is a finding too.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_client import KernelManager

from replkernel.agent.io.lookup import stop_agent
from replkernel.errors import AgentUnavailable
from tests.e2e.faults.cells import first_cell
from tests.e2e.faults.clients import Client
from tests.e2e.faults.final import audit, left_behind
from tests.e2e.faults.history import History, Operation
from tests.e2e.faults.hosts import Host, kill, lives
from tests.e2e.faults.places import Places
from tests.e2e.faults.schedule import HOSTS, Fault, Plan, Step
from tests.e2e.faults.wire import Links, Wire
from tests.support.stock import OURS

RUN_LIMIT_S = 240.0
SETTLE_S = 1.0
ADDRESSES = {host: f"10.77.0.{index}" for index, host in enumerate(HOSTS, 1)}


class Rig:
    """Everything of one run."""

    def __init__(self, plan: Plan, root: Path, *, networks: bool, mounts: bool) -> None:
        self.plan = plan
        self.notes: list[str] = []
        self._broken: list[str] = []
        self._kills: list[float] = []
        self._operations: list[Operation] = []
        self._lock = threading.Lock()
        self._router_lock = threading.Lock()
        self._returns = (0, 0.0)
        clock = any(fault.kind == "clock" for fault in plan.faults)
        self.places = Places(root, mounts=mounts, clock=clock)
        self.hosts = {name: Host(name, self.places.host_env(name)) for name in HOSTS}
        for host in self.hosts.values():
            self.places.make_disk(host.directory)
        self.links = Links(random.Random(plan.seed))
        self.wire = Wire(self.links) if networks else None
        self.manager = KernelManager(kernel_name=OURS)

    # -- beginning and end -----------------------------------------------------------------------------

    def play(self) -> History:
        """Play the whole plan; return what was seen."""
        os.environ.update(self.places.env)
        clients: list[Client] = []
        audited = large = None
        try:
            self._start()
            clients = [self._client(name, steps) for name, steps in self.plan.clients.items()]
            self._first(clients[0])
            self._run(clients)
            self._heal()
            audited, large = audit(self, self._client("audit", ()))
        except Exception as error:
            self._broken.append(f"the run broke: {type(error).__name__}: {error}")
        finally:
            for client in clients:
                client.close()
            left = self._end()
        return History(
            tuple(sorted(self._operations, key=lambda operation: operation.began)),
            self.places.begun(),
            audited or {},
            large or {},
            tuple(self._kills),
            self.plan.durable == "async",
            tuple(left),
            tuple(self._broken),
        )

    def close(self) -> None:
        """Let go of everything."""
        self.places.close()

    def _start(self) -> None:
        if self.wire is not None:
            for host in self.hosts.values():
                host.hold()
                host.join(self.wire, ADDRESSES[host.name])
            self.wire.start()
        for host in self.hosts.values():
            host.start()
        settings = {
            "REPLKERNEL_HOSTS": ",".join(HOSTS),
            "REPLKERNEL_EXECUTOR": self.plan.executor,
            "REPLKERNEL_DURABLE": self.plan.durable,
            "REPLKERNEL_STANDBY_IDLE_S": str(self.plan.standby_idle_s),
        }
        self.manager.start_kernel(env=self.places.env | settings, cwd=str(self.places.root))

    def _client(self, name: str, steps: tuple[Step, ...]) -> Client:
        client = Client(
            name, self.manager.connection_file, steps, lambda: self._returns, self._note_operation
        )
        client.connect()
        return client

    def _first(self, client: Client) -> None:
        made = client.perform(Step("first", "read", 0.0), first_cell(self.places.witness))
        assert made.outcome == "done", made.said
        client.ask("%replkernel sync")  # What all cells need is never lost with what is not yet durable.

    def _run(self, clients: list[Client]) -> None:
        began = time.monotonic()
        faults = [
            threading.Thread(target=self._inflict, args=(fault, began), daemon=True)
            for fault in self.plan.faults
        ]
        for thread in (*clients, *faults):
            thread.start()
        for thread in (*clients, *faults):
            thread.join(max(1.0, began + RUN_LIMIT_S - time.monotonic()))
        self._broken += [client.failed for client in clients if client.failed]
        self._broken += [f"{thread.name} did not end" for thread in (*clients, *faults) if thread.is_alive()]

    def _end(self) -> list[str]:
        for host in self.hosts.values():
            host.keep_logs()
        try:
            if self.manager.has_kernel:
                self.manager.shutdown_kernel(now=False)
        except Exception as error:
            self._broken.append(f"the kernel was not shut down: {type(error).__name__}: {error}")
        time.sleep(SETTLE_S)
        left = left_behind([host.directory for host in self.hosts.values()])
        for host in self.hosts.values():
            try:
                stop_agent(host.name, host.env)
            except AgentUnavailable as error:
                self._broken.append(str(error))
            host.close()
        if self.wire is not None:
            self.wire.close()
        self.manager.context.destroy(linger=0)
        return left

    def _heal(self) -> None:
        """End whatever has not ended by itself, and bring everything up."""
        if self.wire is not None:
            with self.wire.lock:
                self.links.heal()
        self.places.heal([host.directory for host in self.hosts.values()])
        for host in self.hosts.values():
            for pid in [*host.kernel_pids(), *([host.pid()] if host.pid() else [])]:
                kill(pid or 0, signal.SIGCONT)
            host.start()
        self._see_to_router()

    # -- what happens ----------------------------------------------------------------------------------

    def _note_operation(self, operation: Operation) -> None:
        with self._lock:
            self._operations.append(operation)

    def note_broken(self, text: str) -> None:
        """Take note of what kept the run from going its way."""
        with self._lock:
            self._broken.append(text)

    def _note(self, text: str) -> None:
        with self._lock:
            self.notes.append(f"{time.monotonic():.2f} {text}")

    def _executor_host(self) -> Host:
        with self._lock:
            ran = [operation.replica for operation in self._operations if operation.replica]
        index = int(ran[-1][1:]) - 1 if ran else 0
        return self.hosts[HOSTS[index % len(HOSTS)]]

    def _inflict(self, fault: Fault, began: float) -> None:
        """Do one fault from its beginning to its end."""
        time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
        self._note(str(fault))
        try:
            end = self._begin(fault)
            time.sleep(fault.for_s)
            if end is not None:
                end()
        except Exception as error:
            with self._lock:
                self._broken.append(f"{fault}: {type(error).__name__}: {error}")

    def _begin(self, fault: Fault) -> Callable[[], object] | None:
        """Begin a fault; return what ends it."""
        host = self.hosts[fault.host]
        match fault.kind:
            case "kill executor":
                self.kill_kernels(self._executor_host())
            case "kill kernel":
                self.kill_kernels(host)
            case "kill agent":
                host.kill_agent()
                return host.start
            case "kill host":
                host.kill_agent()
                self.kill_kernels(host)
                return host.start
            case "kill router":
                return self._kill_router()
            case "stop kernel" | "stop agent" | "stop router":
                return self._stop(fault)
            case "slow store":
                self.places.slow_store(fault.amount)
                return lambda: self.places.slow_store(0.0)
            case "failing store":
                self.places.take_store_away()
                return self.places.bring_store_back
            case "full store":
                self.places.fill_store()
                return lambda: self.places.heal([])
            case "full disk":
                self.places.fill(host.directory)
                return lambda: self.places.free(host.directory)
            case "clock":
                self.places.move_clock(host.name, fault.amount)
            case _:
                return self._disturb(fault)
        return None

    def kill_kernels(self, host: Host) -> list[int]:
        """Kill the kernel processes of a host outright; return when they are dead."""
        pids = [pid for pid in host.kernel_pids() if kill(pid, signal.SIGKILL)]
        for pid in pids:
            while lives(pid):
                time.sleep(0.001)
            self._kills.append(time.monotonic())
        return pids

    def _router_pid(self) -> int | None:
        provisioner = self.manager.provisioner
        return getattr(provisioner, "pid", None) if provisioner is not None else None

    def _kill_router(self) -> Callable[[], object]:
        pid = self._router_pid()
        if pid is not None:
            kill(pid, signal.SIGKILL)
            while self._router_lives():
                time.sleep(0.001)
        return self._see_to_router

    def _router_lives(self) -> bool:
        """Tell whether the router's process is not over, as Jupyter's restarter asks."""
        process = getattr(self.manager.provisioner, "process", None)
        return process is not None and process.poll() is None

    def _see_to_router(self) -> None:
        """Start the router again if it is dead, as Jupyter's restarter does."""
        with self._router_lock:
            if self._router_lives():
                return
            self.manager.restart_kernel(now=True)
            self._returns = (self._returns[0] + 1, time.monotonic())

    def _stop(self, fault: Fault) -> Callable[[], object]:
        host = self.hosts[fault.host]
        pids = {
            "stop kernel": host.kernel_pids,
            "stop agent": lambda: [host.pid()],
            "stop router": lambda: [self._router_pid()],
        }[fault.kind]()
        stopped = [pid for pid in pids if pid is not None and kill(pid, signal.SIGSTOP)]
        return lambda: [kill(pid, signal.SIGCONT) for pid in stopped]

    def _disturb(self, fault: Fault) -> Callable[[], object]:
        """Change the directions that a fault of the network is about; return what changes them back."""
        if self.wire is None:
            return lambda: None
        others = [fault.other] if fault.other else [name for name in HOSTS if name != fault.host]
        directions = [(fault.host, other) for other in others]
        if fault.kind != "one-way":
            directions += [(other, fault.host) for other in others]
        self._change(directions, fault, begins=True)
        return lambda: self._change(directions, fault, begins=False)

    def _change(self, directions: list[tuple[str, str]], fault: Fault, *, begins: bool) -> None:
        assert self.wire is not None
        with self.wire.lock:
            for source, target in directions:
                link = self.links.link(source, target)
                if fault.kind == "delay":
                    link.delay_s = fault.amount if begins else 0.0
                elif fault.kind == "loss":
                    link.loss = fault.amount if begins else 0.0
                else:
                    link.cuts = max(0, link.cuts + (1 if begins else -1))
