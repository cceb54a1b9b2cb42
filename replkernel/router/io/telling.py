"""What the journal tells a front end that asks: executions with their outputs as a notebook holds them.

Law: an answer names executions in the order of their last change, so that whoever asks on from the last one
misses none; nothing here waits for a replica.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.router.core.contents import ExecuteFault, read
from replkernel.router.core.journal import Journal
from replkernel.router.core.kept import Kept
from replkernel.router.core.outputs_fold import KINDS, Output, OutputsFold
from replkernel.router.core.wire import pack, unpack
from replkernel.router.io.journal_disk import JournalDisk

REPLY_BYTES_MAX = 8 * 1024 * 1024
"""An answer ends before the execution that would make it longer, unless that is its first."""
FAULT_MAX = 2_000
"""So many characters of an error's name and words are told beside the outputs."""
FOLDS_MAX = 4
"""How many running executions' outputs are held in memory, so that only what is new is read."""

SAVED = "replkernel_outputs_saved"
"""The request by which a front end says which executions a saved notebook holds."""


class Question(msgspec.Struct, frozen=True):
    """The content of a replkernel_outputs_request: all executions, or some, that changed since a version.

    Without `outputs` only how they stand is told.
    """

    since: int = 0
    msg_ids: list[str] | None = None
    outputs: bool = True


class Saved(msgspec.Struct, frozen=True):
    """The content of a replkernel_outputs_saved."""

    msg_ids: list[str]


class _Reading:
    """The outputs of an execution up to a place in its messages."""

    def __init__(self, left_out: int) -> None:
        self.fold = OutputsFold()
        self.left_out = left_out
        self.told = not left_out
        """Whether the outputs say that something was left out, if it was."""
        self.part = self.at = 0


class Telling:
    """Answers front ends from one journal."""

    def __init__(self, journal: Journal, disk: JournalDisk) -> None:
        self._journal = journal
        self._disk = disk
        self._readings: OrderedDict[int, _Reading] = OrderedDict()

    def answer(self, msg_type: str, content: bytes) -> bytes:
        """Return the content of the reply to a front end's request."""
        self._disk.write(self._journal)
        try:
            if msg_type == SAVED:
                self._journal.saved(msgspec.json.decode(content, type=Saved).msg_ids)
                return pack({"status": "ok"})
            return self._tell(msgspec.json.decode(content, type=Question))
        except UNREADABLE as error:
            evalue = f"the content of the {msg_type} does not fit: {error}"
            return pack({"status": "error", "ename": "ValueError", "evalue": evalue, "traceback": []})

    def _tell(self, question: Question) -> bytes:
        wanted = None if question.msg_ids is None else set(question.msg_ids)
        changed = [
            kept
            for kept in self._journal.executions()
            if kept.version > question.since and (wanted is None or kept.msg_id in wanted)
        ]
        told: list[bytes] = []
        size = 0
        for kept in sorted(changed, key=lambda kept: kept.version):
            text = pack(self._describe(kept, outputs=question.outputs))
            size += len(text)
            if told and size > REPLY_BYTES_MAX:
                break
            told.append(text)
        more = b"true" if len(told) < len(changed) else b"false"
        return b'{"status":"ok","executions":[%b],"more":%b}' % (b",".join(told), more)

    def _describe(self, kept: Kept, *, outputs: bool) -> dict[str, object]:
        return {
            "msg_id": kept.msg_id,
            "cell_id": kept.cell_id,
            "code_digest": kept.code_digest,
            "execution_count": kept.execution_count,
            "state": kept.state if kept.over else "running",
            "started": kept.started,
            "ended": kept.ended,
            "version": kept.version,
            "fault": _fault(kept),
            "outputs": self._outputs(kept) if outputs else [],
        }

    def _outputs(self, kept: Kept) -> list[Output]:
        """Return an execution's outputs, reading on from where its last reading ended."""
        reading = self._readings.pop(kept.number, None)
        if reading is None or reading.left_out != kept.left_out:
            reading = _Reading(kept.left_out)
        for part, end, message in self._disk.messages(kept, reading.part, reading.at):
            if part > reading.part + 1:
                self._tell_of_gap(reading)
            reading.part, reading.at = part, end
            if message.kind in KINDS:
                reading.fold.take(message.kind, unpack(message.content))
        self._tell_of_gap(reading)
        if not kept.over:
            self._readings[kept.number] = reading
            if len(self._readings) > FOLDS_MAX:
                self._readings.popitem(last=False)
        return reading.fold.outputs()

    def _tell_of_gap(self, reading: _Reading) -> None:
        """Put a sentence where something was left out, once."""
        if not reading.told:
            reading.told = True
            size = reading.left_out / 1024 / 1024
            text = f"\n[{size:.1f} MiB of this cell's output were left out here: too much to keep]\n"
            reading.fold.take("stream", {"name": "stderr", "text": text})


def _fault(kept: Kept) -> dict[str, str]:
    """Return what the reply says of why an execution failed: the status, and the error's name and words."""
    said = read(ExecuteFault, b"" if kept.answer is None else kept.answer[0])
    if said.status == "ok":
        return {}
    return {"status": said.status, "ename": said.ename[:FAULT_MAX], "evalue": said.evalue[:FAULT_MAX]}
