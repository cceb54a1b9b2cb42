"""What a cell shows while it waits for its GPUs: one line that is kept true and taken away in the end.

Pure. Law: a cell that is served at once shows nothing; a client sees one `busy` of it, whoever runs it later.
"""

from __future__ import annotations

from typing import Any

from replkernel.leasing.request import gpus_in_words, number_of, seconds_in_words
from replkernel.router.core import answers
from replkernel.router.core.events import ClientRequest, Effect, Publish
from replkernel.router.core.wire import pack
from replkernel.router.core.wishes import Wish

KEY = "replkernel"
PAUSED = "Paused for a shorter cell"
WHY_CHARS_MAX = 200


def line_of(wish: Wish, trouble: str, move: tuple[str, str] | None = None) -> str:
    """Return the line for a wish; an empty one while there is nothing to say. `trouble`: nobody listens.

    `move` is the host that the notebook's state moves to, and why that came to nothing.
    """
    if wish.paused is not None:
        return _paused(wish, trouble)
    what = f"Waiting for {gpus_in_words(number_of(wish.wanted), wish.wanted.model)}"
    if trouble:
        return f"{what}: {trouble}"
    if wish.place is None:
        return ""
    failed = f" It could not move to {move[0]}: {move[1]}." if move is not None and move[1] else ""
    if not wish.place.position:
        if move is not None and not failed:
            return f"{what}: moving this notebook's state to {move[0]} …"
        return f"{what}: their host is getting ready.{failed}"
    estimate_s = wish.place.estimate_s
    guess = "" if estimate_s is None else f", about {seconds_in_words(estimate_s)}"
    why = f"; {wish.place.why[:WHY_CHARS_MAX]}" if wish.place.why else ""
    return f"{what}: number {wish.place.position} in the queue{guess}{why}.{failed}"


def _paused(wish: Wish, trouble: str) -> str:
    """Return the line of a cell that has left its GPUs for a shorter one."""
    if trouble:
        return f"{PAUSED}: {trouble}"
    place = wish.place
    estimate_s = place.estimate_s if place is not None else wish.pause_s or None
    if estimate_s is None:
        return f"{PAUSED}."
    why = f"; {place.why[:WHY_CHARS_MAX]}" if place is not None and place.why else ""
    return f"{PAUSED}, goes on in about {seconds_in_words(estimate_s)}{why}."


def display_of(msg_id: str) -> str:
    """Return the id of the display that shows a cell to wait."""
    return f"replkernel-waits-{msg_id}"


class WaitingCell:
    """The line under one waiting cell."""

    def __init__(self) -> None:
        self._msg_id = ""
        self._shown = ""

    def shown_before(self, request: ClientRequest) -> None:
        """Know that the router before this one has shown a line."""
        self._msg_id, self._shown = request.header.msg_id, ""

    def show(
        self,
        request: ClientRequest,
        wish: Wish,
        trouble: str,
        move: tuple[str, str] | None = None,
        *,
        begun: bool,
    ) -> list[Effect]:
        """Bring the line up to date; `begun` tells that the client has seen `busy` before."""
        line = line_of(wish, trouble, move)
        known = self._msg_id == request.header.msg_id
        if not line or (known and line == self._shown):
            return []
        effects: list[Effect] = [] if begun else [answers.busy(request)]
        self._msg_id, self._shown = request.header.msg_id, line
        kind = "update_display_data" if known else "display_data"
        return [
            *effects,
            Publish(kind, request.header_frame, _display(request, wish, line, move), b"display_data"),
        ]

    def clear(self, request: ClientRequest) -> list[Effect]:
        """Take the line away: the cell begins, or it ends."""
        if not self._msg_id or self._msg_id != request.header.msg_id:
            return []
        self._msg_id = self._shown = ""
        return [Publish("clear_output", request.header_frame, pack({"wait": False}), b"clear_output")]

    def settle(self, request: ClientRequest, text: str) -> list[Effect]:
        """Have the line of a cell that runs say how its waiting ended: clearing would take output along."""
        if not self._msg_id or self._msg_id != request.header.msg_id:
            return []
        self._msg_id = self._shown = ""
        content = _content(request, text, {})
        return [Publish("update_display_data", request.header_frame, content, b"display_data")]


def _content(request: ClientRequest, line: str, own: dict[str, Any]) -> bytes:
    display = {"display_id": display_of(request.header.msg_id)}
    return pack({"data": {"text/plain": line}, "metadata": {KEY: own}, "transient": display})


def _display(request: ClientRequest, wish: Wish, line: str, move: tuple[str, str] | None) -> bytes:
    """Return the content of the display; its metadata say the same to a front end that shows it otherwise."""
    waiting: dict[str, Any] = {"gpus": number_of(wish.wanted)}
    if wish.paused is not None:
        waiting["paused"] = True
    if wish.place is not None:
        waiting |= {"position": wish.place.position, "estimate_s": wish.place.estimate_s}
        if wish.place.why:
            waiting["why"] = wish.place.why
        if move is not None and not move[1]:
            waiting["moving_to"] = move[0]
    return _content(request, line, {"waiting": waiting})
