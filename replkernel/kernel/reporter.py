"""What a replica tells: the agent what it holds and has changed, the user what went otherwise than expected.

Law: notices are for the next cell's stderr; without an agent nothing is told to it, and nothing fails.
"""

from __future__ import annotations

import sys

from replkernel.kernel.bindings import Bindings
from replkernel.kernel.execution import State
from replkernel.kernel.link import AgentLink
from replkernel.protocol.envelope import Envelope
from replkernel.protocol.process_to_agent import ClaimExecution, ReplicaApplied
from replkernel.records import Delta, Mark, Pin, Seq

UNFAITHFUL_TOLD_MAX = 100
"""No more variables are told to be unfaithful; that many bind the notebook as well."""


class Reporter:
    """One replica's voice; `link` is set before the first message is taken."""

    def __init__(self, state: State, bindings: Bindings) -> None:
        self.link: AgentLink | None = None
        self.notices: list[str] = []
        self.proposed = Mark(Seq(0))
        """The last execution, and which of its audits, of which changes were proposed here."""
        self._state = state
        self._bindings = bindings
        self._told: set[str] = set()
        self._unfaithful_told: tuple[Pin, ...] = ()

    @property
    def congested(self) -> bool:
        """Tell whether the agent has not taken what was proposed before."""
        return self.link is not None and self.link.congested()

    def claim(self, envelope: Envelope, *, afresh: bool = False) -> None:
        """Claim an execution for this replica; `afresh`: in the place of a lost process."""
        if self.link is not None:
            self.link.claim(ClaimExecution(envelope.seq, envelope.fence, afresh))

    def propose(self, delta: Delta, capture_s: float = 0.0) -> None:
        """Propose what an execution changed, and say in how many seconds that was found."""
        self.proposed = delta.mark
        if self.link is not None:
            self.link.propose(delta, capture_s)

    def applied(self) -> None:
        """Tell the agent what this process holds."""
        if self.link is not None:
            state = self._state
            before, self._unfaithful_told = self._unfaithful_told, self._bindings.unfaithful()
            self.link.tell(
                ReplicaApplied(
                    state.applied,
                    state.components,
                    state.state_bytes,
                    state.pending_bytes,
                    state.unproven,
                    self._unfaithful_told[:UNFAITHFUL_TOLD_MAX],
                ),
                at_once=before != self._unfaithful_told,
            )

    def captured(self) -> None:
        """Tell the agent after a capture, or a refusal, what is unfaithful here, when that has changed."""
        if self._bindings.unfaithful() != self._unfaithful_told:
            self.applied()

    def complain(self, sentence: str) -> None:
        """Tell the user now, or with the next cell when the agent does not listen."""
        if self.link is None or not self.link.connected() or self.link.congested():
            self.notices.append(sentence)
        else:
            self.link.complain(sentence)

    def notice_once(self, sentence: str) -> None:
        """Tell the user with the next cell, unless that was told before."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.notices.append(sentence)

    def show(self, sentence: str) -> None:
        """Print an answer on the current cell's stdout."""
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()

    def tell(self, sentence: str) -> None:
        """Print one sentence on the current cell's stderr."""
        sys.stderr.write(f"replkernel: {sentence}\n")
        sys.stderr.flush()
