"""The process that speaks to Ray: `python -m replkernel_server.launchers.ray.process`, of the launcher.

Ray ends a process whose node manager dies, and blocks whoever asks it; so it has a process of its own.
Laws: only this file imports ray; orders come by standard input, answers leave by standard output, a line of
JSON each; it ends with its input. It counts: what a lease has is a placement group of one GPU on the
lease's node.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

import msgspec

from replkernel_server.launchers.protocol import (
    WHY_CHARS_MAX,
    GpusElsewhere,
    GpusHeld,
    HostJoined,
    HostLost,
    LauncherFailed,
    refuse_kept,
)
from replkernel_server.launchers.ray.counts import Counts
from replkernel_server.launchers.ray.demand import Demand, Room, wishes
from replkernel_server.launchers.ray.keeper import HostKeeper, which_gpu
from replkernel_server.launchers.ray.names import Node, actor_name, hold_name, node_of, read_hold
from replkernel_server.launchers.ray.words import (
    Connected,
    Done,
    FromProcess,
    GiveBack,
    LeaveOne,
    Order,
    RayOptions,
    StartAgent,
    StopAgent,
    TakeOne,
    WantHosts,
)

LOOK_S = 0.5
TAKE_S = 2.0
"""A GPU that Ray has not given by then is used by somebody else."""
ASK_S = 60.0
THREADS = 16
NAMESPACE = "replkernel"


class RayProcess:
    """One cluster."""

    def __init__(self, options: RayOptions, out: int) -> None:
        """Connect; raises what Ray raises."""
        import ray

        self._ray: Any
        self._ray, self._options, self._out = ray, options, out
        ray.init(
            address=options.address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
        self._nodes: dict[str, Node] = {}
        self._given_back: set[str] = set()
        self._holds: dict[tuple[str, str], Any] = {}
        self._counts = Counts()
        self._demand = Demand()
        self._more = 0
        self._numbers = time.time_ns()
        self._lock = threading.Lock()
        self._which = ray.remote(num_cpus=0, num_gpus=1, max_calls=0, max_retries=0)(which_gpu)
        self._pool = ThreadPoolExecutor(THREADS, "ray")

    def say(self, word: FromProcess) -> None:
        """Tell the service."""
        with self._lock:
            os.write(self._out, msgspec.json.encode(word) + b"\n")

    # -- orders --------------------------------------------------------------------------------------

    def order(self, order: Order) -> None:
        """Have an order carried out, and answered."""
        if isinstance(order, TakeOne | LeaveOne):
            self._counts.stirred(order.host)
        self._pool.submit(self._carry_out, order)

    def _carry_out(self, order: Order) -> None:
        try:
            value = self._do(order)
        except LauncherFailed as error:
            self.say(Done(order.number, None, str(error)[:WHY_CHARS_MAX]))
        except Exception as error:  # whatever Ray makes of it: the one who ordered hears of it
            self.say(Done(order.number, None, f"Ray: {error}"[:WHY_CHARS_MAX] or repr(error)))
        else:
            self.say(Done(order.number, value))
        finally:
            if isinstance(order, TakeOne | LeaveOne):
                self._counts.calmed(order.host)

    def _do(self, order: Order) -> str | None:
        match order:
            case StartAgent(_, host):
                self._start(self._node(host))
            case StopAgent(_, host):
                self._stop(host)
            case WantHosts(_, more):
                self._more = more - self._revive(more)
                self._request()
            case GiveBack(_, host):
                self._stop(host, unless_kept=True)
                self._given_back.add(host)
                self._request()
            case TakeOne(_, host, gpu):
                return self._take(self._node(host), gpu)
            case LeaveOne(_, host, gpu):
                self._leave(host, gpu)
        return None

    def _node(self, host: str) -> Node:
        node = self._nodes.get(host)
        if node is None:
            raise RuntimeError(f"no node of the cluster is host {host}")
        return node

    def _start(self, node: Node) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        settings = dict(self._options.settings)
        if self._options.bind:
            settings["REPLKERNEL_BIND"] = node.address
        keeper = self._ray.remote(num_cpus=0, num_gpus=0, max_restarts=-1, max_task_retries=-1)(HostKeeper)
        made = keeper.options(
            name=actor_name(node),
            lifetime="detached",
            get_if_exists=True,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(node.host, f"ray-node {node.id}", settings, node.gpus if self._options.pretend else 0)
        until = time.monotonic() + ASK_S
        while not self._ray.get(made.listens.remote(), timeout=ASK_S):
            if time.monotonic() > until:
                raise RuntimeError(f"the agent of {node.host} does not listen after {ASK_S:.0f} s")
            time.sleep(LOOK_S / 2)
        # So that a process is there for the first lease.
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        self._which.options(num_gpus=0, scheduling_strategy=here).remote()

    def _stop(self, host: str, *, unless_kept: bool = False) -> None:
        node = self._nodes.get(host)
        if node is None:
            return
        try:
            keeper = self._ray.get_actor(actor_name(node))
        except ValueError:
            return
        if unless_kept:
            refuse_kept(host, self._ray.get(keeper.kept.remote(), timeout=ASK_S))
        self._ray.get(keeper.stop.remote(), timeout=ASK_S)
        self._ray.kill(keeper)
        until = time.monotonic() + ASK_S
        with contextlib.suppress(ValueError):  # Its name is free then, for the next one.
            while time.monotonic() < until:
                self._ray.get_actor(actor_name(node))
                time.sleep(LOOK_S / 10)

    def _revive(self, most: int) -> int:
        """Use nodes again that were given back and are still there; return how many."""
        again = [host for host in sorted(self._given_back) if host in self._nodes][:most]
        for host in again:
            del self._nodes[host]  # The next look finds it anew.
            self._given_back.discard(host)
        return len(again)

    def _request(self) -> None:
        """Want the nodes that have our agents, which Ray thinks idle, and so many more."""
        from ray.autoscaler.sdk import request_resources

        kept = [node for node in self._nodes.values() if node.host not in self._given_back]
        bundles = [{"GPU": node.gpus} if node.gpus else {"CPU": 1} for node in kept]
        bundles += [{"GPU": self._options.gpus} for _ in range(self._more)]
        labels = [self._options.labels for _ in bundles] if self._options.labels else None
        request_resources(bundles=bundles, bundle_label_selectors=labels)

    # -- GPUs ----------------------------------------------------------------------------------------

    def _take(self, node: Node, gpu: str) -> str | None:
        from ray.util.placement_group import placement_group, remove_placement_group

        self._numbers += 1
        group = placement_group(
            [{"GPU": 1}],
            name=hold_name(node.host, gpu, self._numbers),
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": node.id}],
        )
        try:
            if not group.wait(TAKE_S):
                remove_placement_group(group)
                self._counts.doubt(node.host)
                return None
            given = self._given(group)
        except BaseException:
            remove_placement_group(group)
            raise
        self._holds[node.host, gpu] = group
        return given

    def _given(self, group: object) -> str:
        """Return which GPU a placement group has."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(placement_group=group)
        return str(self._ray.get(self._which.options(scheduling_strategy=where).remote(), timeout=ASK_S))

    def _leave(self, host: str, gpu: str) -> None:
        from ray.util.placement_group import remove_placement_group

        group = self._holds.pop((host, gpu), None)
        if group is not None:
            remove_placement_group(group)

    def _groups(self) -> dict[str, dict[str, Any]]:
        """Return our placement groups that are not over, by id."""
        from ray.util.placement_group import placement_group_table

        table = placement_group_table()
        return {
            name: entry
            for name, entry in table.items()
            if read_hold(entry["name"]) is not None and entry["state"] != "REMOVED"
        }

    def _found(self, node: Node, groups: dict[str, dict[str, Any]]) -> GpusHeld:
        """Find what an earlier process took on a node; what was not given yet is left."""
        from ray.util.placement_group import get_placement_group, remove_placement_group

        given: dict[str, str] = {}
        for entry in groups.values():
            hold = read_hold(entry["name"])
            if hold is None or hold[0] != node.host or (node.host, hold[1]) in self._holds:
                continue
            group = get_placement_group(entry["name"])
            if entry["state"] != "CREATED" or hold[1] in given:
                remove_placement_group(group)
                continue
            given[hold[1]] = self._given(group)
            self._holds[node.host, hold[1]] = group
        return GpusHeld(node.host, given)

    # -- looking -------------------------------------------------------------------------------------

    def look(self) -> None:
        """Tell of nodes that came and went, and of GPUs that others use."""
        alive = [
            node
            for entry in self._ray.nodes()
            if entry["Alive"] and (node := node_of(entry, self._options.labels)) is not None
        ]
        here = {node.host: node for node in alive}
        for host in [host for host, node in self._nodes.items() if here.get(host) != node]:
            self._gone(host)
        new = [node for node in here.values() if node.host not in self._nodes]
        groups = self._groups()
        for node in new:
            self._nodes[node.host] = node
            self._given_back.discard(node.host)
            self.say(HostJoined(node.host, node.gpus))
            self.say(self._found(node, groups))
        if new and self._options.scale:
            self._more = max(0, self._more - len(new))
            self._request()
        self._tidy(groups)
        self._count(groups)
        self._see_who_waits()

    def _see_who_waits(self) -> None:
        """Tell which other jobs wait for GPUs of our hosts."""
        from ray._private import worker
        from ray.autoscaler.v2.sdk import get_cluster_resource_state
        from ray.util.placement_group import placement_group_table

        inner = worker
        state = get_cluster_resource_state(inner.global_worker.gcs_client)
        # After the state: a group of ours that it names is in the table by now.
        known = placement_group_table() if state.pending_gang_resource_requests else {}
        ours = [name for name, entry in known.items() if read_hold(entry["name"]) is not None]
        hosts = {node.id: host for host, node in self._nodes.items()}
        rooms = [
            Room(
                hosts[name], dict(entry.total_resources), dict(entry.available_resources), dict(entry.labels)
            )
            for entry in state.node_states
            if (name := entry.node_id.hex()) in hosts
        ]
        told = self._demand.read(wishes(state, ours, known), rooms)
        if told is not None:
            self.say(told)

    def _tidy(self, groups: dict[str, dict[str, Any]]) -> None:
        """Free what was taken on nodes that are no longer there."""
        from ray.util.placement_group import get_placement_group, remove_placement_group

        for entry in groups.values():
            hold = read_hold(entry["name"])
            if hold is not None and hold[0] not in self._nodes:
                with contextlib.suppress(ValueError):  # It is gone by now.
                    remove_placement_group(get_placement_group(entry["name"]))

    def _gone(self, host: str) -> None:
        del self._nodes[host]
        for place in [place for place in self._holds if place[0] == host]:
            with contextlib.suppress(Exception):  # Ray has lost the node with it.
                self._leave(*place)
        self._counts.forget(host)
        self.say(HostLost(host, "Ray has lost the node"))

    def _count(self, groups: dict[str, dict[str, Any]]) -> None:
        from ray._private import state

        table = state
        began = self._counts.begins()
        available = table.available_resources_per_node()
        ours: dict[str, int] = {}
        for entry in groups.values():
            for node_id in entry["bundles_to_node_id"].values():
                ours[node_id] = ours.get(node_id, 0) + (entry["state"] == "CREATED")
        for node in self._nodes.values():
            if node.id not in available:
                continue
            used = node.gpus - float(available[node.id].get("GPU", 0.0)) - ours.get(node.id, 0)
            told = self._counts.read(node.host, max(0, ceil(used - 1e-6)), began)
            if told is not None:
                self.say(GpusElsewhere(node.host, told))


def main() -> int:
    """Serve until the input ends."""
    out = os.dup(1)
    os.dup2(2, 1)  # What Ray prints is no answer.
    lines = sys.stdin.buffer
    options = msgspec.json.decode(lines.readline(), type=RayOptions)
    process = RayProcess(options, out)
    process.look()
    process.say(Connected())
    threading.Thread(target=_listen, args=(process, lines), daemon=True).start()
    while True:
        process.look()
        time.sleep(LOOK_S)


def _listen(process: RayProcess, lines: Iterable[str]) -> None:
    decoder = msgspec.json.Decoder(Order)
    for line in lines:
        process.order(decoder.decode(line))
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main())
