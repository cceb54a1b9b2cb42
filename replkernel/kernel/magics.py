"""`%replkernel`: what the notebook can ask about its own replication. `migrate` and `hibernate` change it.

Every answer is text for people on stdout; a question that cannot be answered is one sentence on stderr.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.kernel import history_magics
from replkernel.kernel.asking import NO_ROUTER
from replkernel.kernel.birth import Birth
from replkernel.kernel.magic_help import DETAILS, HELP, align
from replkernel.kernel.own_names import SHELL_NAMES
from replkernel.kernel.pin_rows import Doubt, pin_rows, pins_now
from replkernel.kernel.replica import Replica
from replkernel.leasing.notebook import GpuQuestion
from replkernel.records import Pin, ReplicaId
from replkernel.state import hints
from replkernel.state.tombstone import losses

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from replkernel.kernel.link import AgentLink
    from replkernel.protocol.status import StatusDocument

OPTIONS = {"status": {"--json"}, "state": {"--all"}}
"""The options of the questions that have any."""

SAID_FOR = {
    "save": "sync",
    "checkpoint": "sync",
    "flush": "sync",
    "rest": "hibernate",
    "sleep": "hibernate",
    "move": "migrate",
    "pin": "pins",
}
"""What may be meant by words that the magic does not have."""

ROWS_MAX = 30
"""`%replkernel state` shows so many rows unless it is asked for all."""
NAMES_MAX = 8
"""A row of it names so many variables."""
HOST_WORDS = 2
"""`%replkernel migrate HOST`."""
HOST_CHARS_MAX = 64
_COMMS = "The page talks to this process about them: cells run here while it lives, or until they are closed."


@magics_class
class ReplkernelMagics(Magics):
    """The line magic of one kernel process; `replica` is set before the first cell runs."""

    replica: Replica

    def __init__(self, shell: InteractiveShell, birth: Birth) -> None:
        super().__init__(shell=shell)
        self._birth = birth
        self._verbs: dict[str, Callable[[set[str]], None]] = {
            "status": self._status,
            "where": self._where,
            "state": self._state,
            "pins": self._pins,
            "sync": self._sync,
            "hibernate": self._hibernate,
            "forget-missing": self._forget_missing,
            "fresh": self._fresh,
        }

    @line_magic
    def replkernel(self, line: str) -> None:
        """Show the replication of this notebook; ``%replkernel --help`` lists what can be asked."""
        words = words_of(line)
        options = {word for word in words if word.startswith("-")}
        verbs = [word for word in words if not word.startswith("-")]
        if not verbs or verbs[0] == "help" or options & {"-h", "--help"}:
            asked = [verb for verb in verbs if verb in DETAILS]
            print(DETAILS[asked[0]] if asked else HELP)
            return
        if verbs[0] in history_magics.VERBS:
            history_magics.answer(self.replica, verbs, options)
            return
        if verbs[0] == "migrate" and not options:
            if len(verbs) != HOST_WORDS:
                raise UsageError("%replkernel migrate takes one host: `%replkernel migrate HOST`.")
            self._migrate(verbs[1])
            return
        verb = self._verbs.get(verbs[0])
        if verb is None or len(verbs) > 1 or options - OPTIONS.get(verbs[0], set()):
            told = f"%replkernel {line.strip()}: unknown; `%replkernel --help` lists what can be asked."
            meant = SAID_FOR.get(verbs[0]) or (verbs[0] if verb is not None else "")
            raise UsageError(f"{told} `%replkernel {meant} --help` says how." if meant else told)
        verb(options)

    def _migrate(self, host: str) -> None:
        """Have a replica moved to a host, while or after this cell runs."""
        if len(host) > HOST_CHARS_MAX:
            raise UsageError(f"A host's name has {HOST_CHARS_MAX} characters at most.")
        shell: Any = self.shell
        answer = shell.kernel.ask_router(GpuQuestion("migrate", host=host))
        if answer.error:
            raise UsageError(answer.error)
        print(answer.text)

    def _status(self, options: set[str]) -> None:
        from replkernel.cli.status import describe_narrow
        from replkernel.protocol.status import to_json

        link = self.replica.link
        try:
            if link is None:
                raise ReplkernelError("This kernel process has no host agent.")
            document = self._document(link)
        except (ReplkernelError, *UNREADABLE) as error:
            self.replica.tell(f"The status cannot be shown: {error}")
            return
        document = self._with_names_of_now(document)
        if "--json" in options:
            print(to_json(self._with_this_cell(document, "busy")).decode())
            return
        print("\n".join(describe_narrow(self._with_this_cell(document, "busy (this cell)"))))
        if kept := self.replica.kept_back():
            print(kept)
        for sentence in self.replica.unstored():
            print(sentence)
        if link.trouble:
            print(f"not durable for now: {link.trouble}")

    def _with_this_cell(self, document: StatusDocument, state: str) -> StatusDocument:
        """Say of this kernel that it runs the cell that asks, of which agents hear a moment later."""
        kernel: Any = getattr(self.shell, "kernel", None)
        parent = {} if kernel is None else kernel.get_parent()
        if parent and parent["header"]["msg_type"] != "execute_request":
            return document
        kernels = [
            msgspec.structs.replace(one, state=state)
            if one.kernel_id == self._birth.spec.kernel_id and one.state in ("idle", "busy")
            else one
            for one in document.kernels
        ]
        return msgspec.structs.replace(document, kernels=tuple(kernels))

    def _pins_now(self) -> list[Pin]:
        """Return what binds the notebook by the variables of now."""
        held, awaits = self.replica.held_pins(), self.replica.state.awaits
        return pins_now(held, self._birth.replica, self._variables(), losses(), awaits)

    def _with_names_of_now(self, document: StatusDocument) -> StatusDocument:
        """Name what binds this kernel as `pins` does: agents know the names that it had when it was lost."""
        from replkernel.protocol.status import PinnedSection

        pinned: dict[str, list[PinnedSection]] = {}
        for pin in self._pins_now():
            pinned.setdefault(pin.replica, []).append(PinnedSection(pin.name, pin.type_name, pin.reason))
        kernels = [
            msgspec.structs.replace(
                kernel,
                replicas=tuple(
                    msgspec.structs.replace(replica, pinned=tuple(pinned.get(replica.replica, ())))
                    for replica in kernel.replicas
                ),
            )
            if kernel.kernel_id == self._birth.spec.kernel_id
            else kernel
            for kernel in document.kernels
        ]
        return msgspec.structs.replace(document, kernels=tuple(kernels))

    def _variables(self) -> dict[str, Any]:
        """Return what the namespace has, without what is the shell's."""
        held: dict[str, Any] = {} if self.shell is None else self.shell.user_ns
        return {name: held[name] for name in held if name == "Out" or name not in SHELL_NAMES}

    def _document(self, link: AgentLink) -> StatusDocument:
        """Return how this kernel stands on all of its hosts."""
        from replkernel.protocol.status import of_all, read_document

        shell: Any = self.shell
        others, why = ((), NO_ROUTER) if shell is None else shell.kernel.ask_elsewhere()
        if why and why != NO_ROUTER:
            self.replica.tell(f"Of this host alone: {why}")
        return of_all(read_document(link.notebook_status()), others)

    def _where(self, options: set[str]) -> None:
        birth, link = self._birth, self.replica.link
        agent = "connected" if link is not None and link.connected() else "away"
        print(
            f"replica {birth.replica} on host {birth.host}, process {os.getpid()}, "
            f"kernel {birth.spec.kernel_id}, agent {agent}"
        )

    def _state(self, options: set[str]) -> None:
        rows = sorted(self.replica.state.table(), key=lambda row: -row.state_bytes)
        shown = rows if "--all" in options else rows[:ROWS_MAX]
        table = [("VARIABLES", "BYTES", "CHECK", "DURABLE", "TYPE"), *map(self._state_row, shown)]
        print("\n".join(align(table)))
        if len(shown) < len(rows):
            print(f"… and {len(rows) - len(shown)} smaller ones; `%replkernel state --all` shows them.")
        state = self.replica.state
        waiting = f", {state.pending_bytes:,} bytes not rebuilt here yet" if state.pending_bytes else ""
        print(f"{state.components} components, {state.state_bytes:,} bytes in all{waiting}")
        if hints.transient:
            print(f"not copied, for they are transient: {', '.join(hints.transient)}")
        for sentence in (*self.replica.new_and_unchecked(), *self.replica.lost_lately()):
            print(sentence)

    def _state_row(self, row: Any) -> tuple[str, ...]:
        """Return the columns of one component."""
        names = ", ".join(row.names[:NAMES_MAX]) or row.cid
        if len(row.names) > NAMES_MAX:
            names += f" and {len(row.names) - NAMES_MAX} more"
        took = f"{row.seconds * 1000:.1f} ms" if row.seconds else ""
        return names, f"{row.state_bytes:,}", took, self.replica.durability(row), row.kind

    def _pins(self, options: set[str]) -> None:
        held, here = self.replica.held_pins(), self._birth.replica
        awaits, variables = self.replica.state.awaits, self._variables()
        rows: list[tuple[str, ...]] = [*pin_rows(held, self._doubts(), here, variables, losses(), awaits)]
        comms = self._comms()
        if comms:
            rows.append(("widgets", f"{comms} comms", str(here), "", _COMMS))
        table = align([("VARIABLE", "TYPE", "REPLICA", "CELL", "WHY"), *rows])
        print("\n".join(table) if rows else "Nothing binds this notebook to one replica.")
        for sentence in self.replica.new_and_unchecked():
            print(sentence)

    def _comms(self) -> int:
        """Return how many comms are open between the page and this process."""
        manager = getattr(getattr(self.shell, "kernel", None), "comm_manager", None)
        return 0 if manager is None else len(manager.comms)

    def _doubts(self) -> list[Doubt]:
        """Return what replicas rebuilt otherwise: this one, and others as far as their agents know."""
        link, here = self.replica.link, self._birth.replica
        try:
            document = self._document(link) if link is not None else None
        except (ReplkernelError, *UNREADABLE):
            document = None
        return [Doubt(here, pin) for pin in self.replica.unfaithful()] + [
            Doubt(ReplicaId(replica.replica), lost.pin())
            for kernel in (document.kernels if document is not None else ())
            for replica in kernel.replicas
            for lost in replica.unfaithful
            if replica.replica != here
        ]

    def _sync(self, options: set[str]) -> None:
        """Have all that cells changed be checked and committed once this cell's code has ended."""
        link = self.replica.link
        if link is None or not link.connected():
            self.replica.tell("Nothing can be made durable now: this process has no host agent.")
            return
        self.replica.syncs = True

    def _hibernate(self, options: set[str]) -> None:
        """Have the router hibernate the kernel once this cell has ended."""
        link = self.replica.link
        if link is None or not link.connected():
            self.replica.tell("This kernel cannot hibernate now: its process has no host agent.")
            return
        link.want_hibernation()
        print(
            "This kernel hibernates once this cell is durable; the next cell resumes it with all variables."
        )

    def _fresh(self, options: set[str]) -> None:
        """Have the notebook begin empty when it is opened the next time."""
        from replkernel.launch.notebook_link import PATH_VARIABLE, link_file

        path = str(self._variables().get(PATH_VARIABLE) or "")
        if not path:
            print("Restart the kernel: this notebook begins empty then.")
            return
        link_file(path, os.environ).unlink(missing_ok=True)
        print("Restart the kernel, or close the notebook: it begins empty then. `%reset -f` empties it now.")

    def _forget_missing(self, options: set[str]) -> None:
        """Tell what was given up: the kernel did so before this cell ran."""
        lost = self.replica.lost
        if not lost:
            print("Nothing was missing.")
            return
        print("\n".join(align([("LOST", "WHY"), *lost.items()])))


def words_of(line: str) -> list[str]:
    """Return the words of a line, quoted ones whole, without a comment at its end."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # A quote that nobody closes: no word of ours has one.
        return line.split()
