"""Rules of the Raft paper that PySyncObj simplifies, kept to the letter (§5.1, §5.3, §7).

PySyncObj's follower cuts its log behind `prevLogIdx` whenever a message overlaps it, and its leader steps
back on late acknowledgements: entries that were acknowledged, even applied, are gone until they are sent
again. Parts of a snapshot make it commit what it has beyond its leader. Law: a log is cut at a conflict only;
an acknowledgement says what was proven, in its own term, and nothing is committed but what was.
"""

from __future__ import annotations

from typing import Any

from pysyncobj import SyncObj


class PaperRules(SyncObj):  # type: ignore[misc]
    """A SyncObj whose follower and leader treat log messages as the paper has it."""

    _proven_to: int | None = None

    def greet(self) -> None:
        """Send the next heartbeat, if this member leads, with the next tick."""
        self._SyncObj__newAppendEntriesTime = 0.0

    def _SyncObj__onMessageReceived(self, node: object, message: dict[str, Any]) -> None:  # noqa: N802
        """Pass a peer's message on to PySyncObj, without what would make it forget or go back."""
        if message["type"] == "append_entries" and "prevLogIdx" in message:
            self._receive_entries(node, message)
        elif message["type"] == "append_entries":
            self._receive_part(node, message)
        elif message["type"] == "next_node_idx":
            self._receive_acknowledgement(node, message)
        else:
            super()._SyncObj__onMessageReceived(node, message)

    def _receive_entries(self, node: object, message: dict[str, Any]) -> None:
        if message["term"] < self.raftCurrentTerm or "transmission" in message:
            super()._SyncObj__onMessageReceived(node, message)
            return
        shorter, self._proven_to = self._without_known(message)
        try:
            super()._SyncObj__onMessageReceived(node, shorter)
        finally:
            self._proven_to = None

    def _receive_part(self, node: object, message: dict[str, Any]) -> None:
        """Take a part of a snapshot. Only the last one replaces this log; until then nothing says that the
        leader has what is in it, however far that one has committed (§5.3, §7).
        """
        before = self.raftCommitIndex
        super()._SyncObj__onMessageReceived(node, message)
        part = message.get("serialized")
        if (part is None or not part[2]) and self.raftCommitIndex > before:
            self._SyncObj__raftCommitIndex = before
            self._SyncObj__raftLog.setRaftCommitIndex(before)

    def _without_known(self, message: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
        """Return `message` without the entries that this log has, and how far it proves this log if that
        is less than the log's end (else None: PySyncObj's own answer is right).

        Two entries with the same index and term are the same, and so is all before them (§5.3).
        """
        entries = list(message["entries"])
        if not entries or self._term_at(message["prevLogIdx"]) != message["prevLogTerm"]:
            return message, None
        last, last_term = message["prevLogIdx"], message["prevLogTerm"]
        while entries and self._term_at(entries[0][1]) == entries[0][2]:
            _, last, last_term = entries.pop(0)
        shorter = {**message, "entries": entries, "prevLogIdx": last, "prevLogTerm": last_term}
        end = self._SyncObj__getCurrentLogIndex()
        if entries or last == end:
            return shorter, None
        # All known, and this log goes on: what follows is neither cut nor acknowledged nor committed by it.
        shorter["prevLogIdx"], shorter["prevLogTerm"] = end, self._term_at(end)
        shorter["commit_index"] = min(message["commit_index"], last)
        return shorter, last

    def _term_at(self, index: int) -> int | None:
        found = self._SyncObj__getEntries(index, 1)
        return int(found[0][2]) if found else None

    def _SyncObj__sendNextNodeIdx(  # noqa: N802 - PySyncObj's names, here and below
        self,
        node: object,
        reset: bool = False,
        nextNodeIdx: int | None = None,  # noqa: N803
        success: bool = False,
    ) -> None:
        """Answer a leader: how far this log agrees, and in which term that was found."""
        following = self._SyncObj__getCurrentLogIndex() + 1 if nextNodeIdx is None else nextNodeIdx
        if self._proven_to is not None:
            following = self._proven_to + 1
        answer = {"type": "next_node_idx", "next_node_idx": following, "reset": reset, "success": success}
        self._SyncObj__transport.send(node, {**answer, "term": self.raftCurrentTerm})

    def _receive_acknowledgement(self, node: object, message: dict[str, Any]) -> None:
        """Count an acknowledgement of this term; a late one does not move the next entry back."""
        if message.get("term") != self.raftCurrentTerm:
            return
        following = self._SyncObj__raftNextIndex
        before = following.get(node, 0)
        super()._SyncObj__onMessageReceived(node, message)
        if message["reset"]:
            # The follower is behind and says from where; PySyncObj would wait for the next heartbeat.
            self.greet()
        elif node in following:
            following[node] = max(before, following[node])
