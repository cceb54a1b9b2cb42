"""The changes of a kernel's Raft group that its leader makes for the router: one replica in another's place.

Law: one change at a time, and only where the group's leader is; whoever leaves is out before another comes
in; asked again, what is done already stays done. A member that is alone cannot commit that another comes
in, for the two of them are a majority only together: that one is started once the change is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from replkernel.agent.core.bundle import bundle
from replkernel.agent.io.keeper_driver import KeeperDriver
from replkernel.protocol.agent_to_router import AgentToRouter, MembersChanged
from replkernel.protocol.router_to_agent import ChangeMembers
from replkernel.records import KernelId, ReplicaId
from replkernel.replication.consensus import (
    PROPOSAL_TIMEOUT_S,
    Consensus,
    Done,
    ProposalCommitted,
    ProposalOutcome,
    ProposalUnknown,
)
from replkernel.replication.entries import encode_entry, replica_left

SNAPSHOT_LIMIT_S = 5.0
"""So long the leader's snapshot may take that a new member is to start from."""
SNAPSHOT_LOOK_S = 0.02
LOG_LOOK_S = 0.01
NO_QUORUM = "The group's leader has no majority behind it."
HANDS_OVER = "The replica that is to leave leads the group, and hands over first."

log = logging.getLogger(__name__)


class Membership:
    """The changes made on this host. `drivers`: the kernel's replicas here; `say` reaches its router."""

    def __init__(
        self,
        kernel_id: KernelId,
        drivers: Mapping[ReplicaId, KeeperDriver],
        say: Callable[[AgentToRouter], None],
    ) -> None:
        self._kernel_id = kernel_id
        self._drivers = drivers
        self._say = say
        self._task: asyncio.Task[None] | None = None

    def change(self, wish: ChangeMembers) -> None:
        """Make a change if the leader is here, and tell what came of it; nothing while another is made.

        Where a group started from a checkpoint every member puts its log aside, for whoever leads next.
        """
        if self._task is not None and not self._task.done():
            return
        makes = None
        for driver in self._drivers.values():
            member = driver.group.member
            if member is None:
                continue
            if driver.core.member.checkpoint:
                member.compact()
            # The other of a pair that never ran leaves this one without a majority, so that nobody leads.
            if member.status().role == "leader" or is_pair(member, wish.address):
                makes = driver, member
        if makes is not None:
            self._task = asyncio.get_running_loop().create_task(self._change(*makes, wish))

    async def _change(self, driver: KeeperDriver, member: Consensus, wish: ChangeMembers) -> None:
        leaves = driver.core.member.peers.get(wish.leaves, "") or wish.leaves_at
        if driver.core.member.checkpoint:
            await _appears(driver)
        why = await asyncio.to_thread(change_members, member, wish, leaves)
        log.info("%s for %s of kernel %s: %s", wish.replica, wish.leaves, self._kernel_id, why or "done")
        if why:
            self._say(MembersChanged(self._kernel_id, wish.replica, why=why))
            return
        # Who leads since a moment ago has by now applied every change before this one.
        core = driver.core
        after = {name: address for name, address in core.member.peers.items() if name != wish.leaves}
        self._say(
            MembersChanged(
                self._kernel_id,
                wish.replica,
                {**after, wish.replica: wish.address} if wish.address else after,
                core.member.secret,
                core.member.checkpoint,
                core.member.checkpoint_digest,
                core.member.generation,
            )
        )

    def close(self) -> None:
        """Make no more changes."""
        if self._task is not None:
            self._task.cancel()


async def _appears(driver: KeeperDriver) -> None:
    """Wait until the leader has a snapshot, without which a new member would lack the group's beginning."""
    deadline = time.monotonic() + SNAPSHOT_LIMIT_S
    while not driver.folder.snapshot.exists() and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(SNAPSHOT_LOOK_S)


def change_members(member: Consensus, wish: ChangeMembers, leaves: str) -> str:
    """Take `wish.address` into the group, once `leaves` (an address, or empty) is out of it; blocks.

    Return an empty string, or why not.
    """
    if is_pair(member, wish.address):
        return ""
    status = member.status()
    if not status.quorum:
        return NO_QUORUM
    if leaves and leaves == member.address:
        others = [address for address in status.members if address != leaves]
        any(member.transfer_leadership(address) for address in others)
        return HANDS_OVER
    if leaves:
        why = _outcome(partial(member.remove_member, leaves))
        if why:
            return why
    if wish.leaves:
        for entry in bundle([encode_entry(replica_left(wish.leaves))]):
            why = _outcome(partial(member.propose, entry))
            if why:
                return why
    if not wish.address:
        return ""
    if member.status().members == (member.address,):
        return _outcome(partial(member.add_member, wish.address), partial(is_pair, member, wish.address))
    return _outcome(partial(member.add_member, wish.address))


def is_pair(member: Consensus, address: str) -> bool:
    """Tell whether, by its log, the group is this member and the one at `address`, and nobody else."""
    return bool(address) and set(member.status().members) == {member.address, address} != {address}


def _outcome(propose: Callable[[Done], None], suffices: Callable[[], bool] | None = None) -> str:
    """Make a proposal and wait for its outcome, or until `suffices`; return why nobody knows it, or ""."""
    ended = threading.Event()
    outcomes: list[ProposalOutcome] = []

    def done(outcome: ProposalOutcome) -> None:
        outcomes.append(outcome)
        ended.set()

    propose(done)
    deadline = time.monotonic() + 2 * PROPOSAL_TIMEOUT_S
    while not ended.wait(deadline - time.monotonic() if suffices is None else LOG_LOOK_S):
        if suffices is not None and suffices():
            return ""
        if time.monotonic() >= deadline:
            break
    match outcomes:
        case [ProposalCommitted()]:
            return ""
        case [ProposalUnknown(why=why)]:
            return f"A change of the group has {why}."
    return "A change of the group has no outcome."
