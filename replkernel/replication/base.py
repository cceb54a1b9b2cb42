"""The base of a group: the state that all members of a new group start from, made of an older one's snapshot.

Pure. Laws: the same snapshot gives the same bytes; the state is that of the newest whole point; numbers and
fences go on, so nothing of the older group can pass for news; what belonged to that group alone (members,
elections, open executions) is not taken over.
"""

from __future__ import annotations

import msgspec

from replkernel.records import Delta, ReplicaId
from replkernel.replication.entries import split_delta
from replkernel.replication.executions import Execution, LedgerState
from replkernel.replication.machine import KernelMachine
from replkernel.replication.snapshot import MachineState, decode_state, encode_state

STOPPED = "the replicas were stopped before it was committed"


def base_of(snapshot: bytes) -> bytes:
    """Return what a new group starts from; raises SnapshotUnreadable.

    The table stays, but for pins of processes, which are gone. Open executions are closed as failed.
    """
    machine = KernelMachine()
    machine.restore(snapshot)
    machine.fall_back()
    state = decode_state(machine.snapshot())
    table = state.table
    table.pins = ()
    return encode_state(MachineState(table=table, ledger=_closed(state.ledger)))


def _closed(ledger: LedgerState) -> LedgerState:
    ended = {seq: _ended(execution) for seq, execution in ledger.executions.items()}
    return LedgerState(
        executions=ended,
        fence=ledger.fence,
        holder=ReplicaId(""),
        executor=ledger.executor,
        last_seq=ledger.last_seq,
        floor=ledger.floor,
        last_audit=ledger.last_audit,
    )


def _ended(execution: Execution) -> Execution:
    if execution.state != "open":
        return execution
    return msgspec.structs.replace(execution, state="failed", why=STOPPED)


def with_deltas(snapshot: bytes, deltas: list[Delta]) -> bytes:
    """Return `snapshot` with deltas that its group could not commit any more, as far as they still fit.

    For the last member of a group that has lost its majority for good: what it holds founds a new group.
    """
    machine = KernelMachine()
    machine.restore(snapshot)
    index = machine.index
    for delta in deltas:
        for entry in split_delta(delta):
            index += 1
            machine.apply(index, entry)
    return machine.snapshot()
