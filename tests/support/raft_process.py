"""One process that holds some members of a Raft group, told what to do by lines on its standard input.

``python -m tests.support.raft_process CONFIG.json``: starts the members, then answers each line
``propose ADDRESS HEX`` with ``committed INDEX``/``unknown WHY``, ``log ADDRESS`` with the entries as JSON,
``bench ADDRESS COUNT BYTES`` with the milliseconds of each commit, ``pace 0|1``, ``cpu`` with seconds used.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from replkernel.replication.consensus import ProposalCommitted, ProposalOutcome
from replkernel.replication.raft import RaftMember
from tests.contracts.consensus import Recorder


def commit(member: RaftMember, entry: bytes) -> tuple[ProposalOutcome, float]:
    """Propose an entry and wait; return the outcome and the milliseconds until it was told."""
    told = threading.Event()
    outcome: list[tuple[ProposalOutcome, float]] = []

    def done(result: ProposalOutcome) -> None:
        outcome.append((result, time.perf_counter()))
        told.set()

    start = time.perf_counter()
    member.propose(entry, done)
    told.wait(60)
    return outcome[0][0], (outcome[0][1] - start) * 1000


def main() -> None:
    """Serve the lines of standard input until it ends."""
    config = json.loads(Path(sys.argv[1]).read_text())
    recorders: dict[str, Recorder] = {}
    members: dict[str, RaftMember] = {}
    for address in config["here"]:
        recorder = recorders[address] = Recorder()
        directory = Path(config["directory"]) / address.replace(":", "-")
        members[address] = RaftMember(
            address, config["group"], config["secret"], directory, recorder.callbacks()
        )
        members[address].start()
    print("started", flush=True)
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "propose":
            outcome, _ = commit(members[rest[0]], bytes.fromhex(rest[1]))
            committed = isinstance(outcome, ProposalCommitted)
            print(f"committed {outcome.index}" if committed else f"unknown {outcome.why}", flush=True)
        elif verb == "bench":
            payload = b"x" * int(rest[2])
            print(json.dumps([commit(members[rest[0]], payload)[1] for _ in range(int(rest[1]))]), flush=True)
        elif verb == "log":
            entries = [[index, entry.hex()] for index, entry in recorders[rest[0]].entries]
            print(json.dumps(entries), flush=True)
        elif verb == "leader":
            print(json.dumps([member.status().leader for member in members.values()]), flush=True)
        elif verb == "pace":
            for member in members.values():
                member.pace(rest[0] == "1")
            print("paced", flush=True)
        elif verb == "cpu":
            print(time.process_time(), flush=True)
    for member in members.values():
        member.close()


if __name__ == "__main__":
    main()
