"""What an execution's messages leave under its cell: the outputs as a notebook holds them.

Pure. Law: the same as a client that saw every message, whatever it was shown in between: streams next to each
other are one, `clear_output` takes away what was before it, a display's updates reach it wherever it stands.
"""

from __future__ import annotations

from typing import Any

KINDS = frozenset(
    {"stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"}
)
"""The types of message that a cell's outputs are made of; all others leave nothing behind."""

Output = dict[str, Any]
"""One output as nbformat writes it."""


class OutputsFold:
    """The outputs of one execution, message by message."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._displays: dict[str, list[Output]] = {}
        self._clears = False
        """Whether the next output takes the place of all before it."""

    def take(self, kind: str, content: dict[str, Any]) -> None:
        """Take the next message of the execution."""
        if kind == "clear_output":
            if content.get("wait"):
                self._clears = True
            else:
                self._clear()
            return
        display_id = display_of(content)
        if display_id and kind != "stream":
            for output in self._displays.get(display_id, ()):
                output["data"], output["metadata"] = content.get("data", {}), content.get("metadata", {})
        output_ = _output(kind, content)
        if output_ is None:
            return
        if self._clears:
            self._clear()
        if display_id and "data" in output_:
            self._displays.setdefault(display_id, []).append(output_)
        self._append(output_)

    def outputs(self) -> list[Output]:
        """Return the outputs as they stand now."""
        return [
            {**output, "text": "".join(output["text"])} if output["output_type"] == "stream" else output
            for output in self._outputs
        ]

    def _append(self, output: Output) -> None:
        last = self._outputs[-1] if self._outputs else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] += output["text"]
        else:
            self._outputs.append(output)

    def _clear(self) -> None:
        self._clears = False
        self._outputs.clear()
        self._displays.clear()


def display_of(content: dict[str, Any]) -> str:
    """Return the id of the display that a message makes or updates, or an empty string."""
    transient = content.get("transient")
    found = transient.get("display_id") if isinstance(transient, dict) else None
    return found if isinstance(found, str) else ""


def _output(kind: str, content: dict[str, Any]) -> Output | None:
    """Return the output that a message adds; None when it adds none. A stream's text is a list of pieces."""
    match kind:
        case "stream":
            name = str(content.get("name") or "stdout")
            return {"output_type": kind, "name": name, "text": [str(content.get("text", ""))]}
        case "display_data" | "execute_result":
            output: Output = {
                "output_type": kind,
                "data": content.get("data", {}),
                "metadata": content.get("metadata", {}),
            }
            if kind == "execute_result":
                output["execution_count"] = content.get("execution_count")
            return output
        case "error":
            lines = content.get("traceback")
            return {
                "output_type": kind,
                "ename": str(content.get("ename", "")),
                "evalue": str(content.get("evalue", "")),
                "traceback": [str(line) for line in lines] if isinstance(lines, list) else [],
            }
    return None
