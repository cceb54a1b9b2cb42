"""Cells that programs send and leave: how one stands, and what of its outputs is told.

Pure. Laws: the journal of the kernel's router has the last word; what nobody knows is `lost`, with the
reason; text is cut in the middle and images are left out as wholes, and either is said where it happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from replkernel.leasing.request import GPUS_ASKED_MAX
from replkernel.protocol.progress import Execution
from replkernel.router.core.contents import Content

ID_CHARS_MAX = 64
CODE_CHARS_MAX = 200_000
CHARS, CHARS_MAX = 20_000, 1_000_000
IMAGE_BYTES, IMAGE_BYTES_MAX = 1_048_576, 16_777_216
WAIT_S_MAX = 60.0
CELLS_TOLD_MAX = 100
UNFINISHED_MAX = 100
"""So many cells of a kernel may wait or run when another one is sent."""
REASON_CHARS_MAX = 2_000

CELL_ID = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_CHARS_MAX - 1}}}"
CellId = Annotated[str, msgspec.Meta(pattern=f"^{CELL_ID}$")]
Status = Literal["queued", "waiting", "running", "ok", "error", "lost"]
Safety = Literal["", "pending", "durable", "lost", "nothing"]

NOT_KNOWN = (
    "The kernel knows of no such cell: it never arrived, or 1,000 newer ones, 64 MiB of newer output or a "
    "restart of the kernel took its place."
)
CHANGES_LOST = "It ended well, but its process was lost before what it changed was safe: run it again."
NEVER_ANSWERED = (
    "Its process ended before it said how the cell came out: look at the variables, or run it again."
)
_LOSSES = frozenset({"ExecutorLost", "QuorumLost", "KernelTakenOver"})
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NewCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cell to run. Sent twice under one id it runs once; without an id it is given one.

    `gpus`, each with `vram_gb` GiB and of `gpu_model`, are asked for as a cell's metadata do; without them
    what the notebook asks for holds. Below 1, `gpus` is a part of one, with `vram_gb` GiB of it.
    """

    code: Annotated[str, msgspec.Meta(max_length=CODE_CHARS_MAX)]
    cell: CellId | None = None
    gpus: Annotated[float, msgspec.Meta(ge=0, le=GPUS_ASKED_MAX)] | None = None
    vram_gb: Annotated[float, msgspec.Meta(ge=0, le=100_000)] | None = None
    gpu_model: Annotated[str, msgspec.Meta(max_length=64)] | None = None

    def metadata(self, cell: str) -> dict[str, Any]:
        """Return the metadata of the execution."""
        gpus = self.gpus if self.gpus is None or self.gpus % 1 else int(self.gpus)  # As notebooks write it.
        asked = {"gpus": gpus, "vram_gb": self.vram_gb, "gpu_model": self.gpu_model}
        given = {name: value for name, value in asked.items() if value is not None}
        return {"cellId": cell} | ({"replkernel": given} if given else {})


class Bounds(msgspec.Struct, frozen=True):
    """How much of the outputs is told."""

    chars: Annotated[int, msgspec.Meta(ge=0, le=CHARS_MAX)] = CHARS
    image_bytes: Annotated[int, msgspec.Meta(ge=0, le=IMAGE_BYTES_MAX)] = IMAGE_BYTES


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output: `text`, or an image as base64 in `data`. `source`: stdout, stderr, display, result or
    error.
    """

    source: str
    type: str = "text/plain"
    text: str = ""
    data: str = ""


class SentCell(msgspec.Struct, frozen=True, kw_only=True):
    """How a cell stands, and what it has put out so far.

    `status` is `queued` (behind other cells), `waiting` (for GPUs), `running`, `ok`, `error` or `lost`.
    `safety` says whether what it changed is safe: `durable` survives the loss of hosts. Times are Unix times.
    `chars_left_out` and `images_left_out` are what the bounds took away.
    """

    cell: str
    status: Status
    reason: str = ""
    over: bool = False
    count: int | None = None
    started: float | None = None
    ended: float | None = None
    host: str = ""
    gpus: tuple[str, ...] = ()
    position: int | None = None
    estimate_s: float | None = None
    safety: Safety = ""
    outputs: tuple[Output, ...] = ()
    chars_left_out: int = 0
    images_left_out: int = 0


class SentCells(msgspec.Struct, frozen=True):
    """The last cells that a kernel knows of, the newest last, without outputs; `more` counts older ones."""

    cells: tuple[SentCell, ...]
    more: int = 0


class Fault(Content, frozen=True):
    """What an execution's reply says of why it failed; all empty where it did not."""

    status: str = ""
    ename: str = ""
    evalue: str = ""


class Row(Content, frozen=True):
    """One execution as the journal tells it."""

    msg_id: str = ""
    cell_id: str = ""
    code_digest: str = ""
    execution_count: int | None = None
    state: str = "running"
    started: float | None = None
    ended: float | None = None
    version: int = 0
    fault: Fault = Fault()
    outputs: tuple[dict[str, Any], ...] = ()

    @property
    def over(self) -> bool:
        """Tell whether it has been answered, or never will be."""
        return self.state in ("ok", "error", "lost")


def told(cell: str, row: Row | None, execution: Execution | None, bounds: Bounds) -> SentCell:
    """Return how a cell stands, from what the journal and the router's progress say of it."""
    if row is None:
        return SentCell(cell=cell, status="lost", reason=NOT_KNOWN, over=True)
    status, reason = _standing(row, execution)
    outputs, chars_left_out, images_left_out = bounded(row.outputs, bounds)
    seen = execution or Execution(msg_id=cell, cell_id=cell)
    return SentCell(
        cell=cell,
        status=status,
        reason=reason,
        over=row.over,
        count=row.execution_count,
        started=row.started,
        ended=row.ended,
        host=seen.host,
        gpus=seen.gpus,
        position=seen.position,
        estimate_s=seen.estimate_s,
        safety="" if execution is None else execution.safety,
        outputs=outputs,
        chars_left_out=chars_left_out,
        images_left_out=images_left_out,
    )


def _standing(row: Row, execution: Execution | None) -> tuple[Status, str]:
    fault = row.fault
    words = f"{fault.ename}: {fault.evalue}"[:REASON_CHARS_MAX] if fault.ename else ""
    if row.state == "lost":
        return "lost", words or NEVER_ANSWERED
    if row.state == "error":
        if fault.ename in _LOSSES:
            return "lost", words
        return "error", words or ("A cell before it failed." if fault.status == "aborted" else "")
    if row.state == "ok":
        if execution is not None and execution.safety == "lost":
            return "lost", CHANGES_LOST
        return "ok", ""
    if execution is not None and execution.state == "waiting":
        return "waiting", execution.trouble[:REASON_CHARS_MAX] or "It waits for GPUs."
    return ("queued", "") if row.started is None else ("running", "")


# -- outputs --------------------------------------------------------------------------------------------


def bounded(outputs: Iterable[Mapping[str, Any]], bounds: Bounds) -> tuple[tuple[Output, ...], int, int]:
    """Return the outputs within the bounds, and how many characters and images were left out.

    Of text the beginning and the end stay; of images the newest do.
    """
    whole = [found for output in outputs for found in _read(output)]
    images, left_images = _images_within(whole, bounds.image_bytes)
    pieces, left_chars = _text_within(images, bounds.chars)
    return tuple(pieces), left_chars, left_images


def _read(output: Mapping[str, Any]) -> list[Output]:
    match output.get("output_type"):
        case "stream":
            return [
                Output(str(output.get("name") or "stdout"), text=_ANSI.sub("", _joined(output.get("text"))))
            ]
        case "error":
            lines = _joined(output.get("traceback"), "\n") or f"{output.get('ename')}: {output.get('evalue')}"
            return [Output("error", text=_ANSI.sub("", lines) + "\n")]
        case "display_data" | "execute_result" as kind:
            data = output.get("data")
            return _shown(
                "result" if kind == "execute_result" else "display", data if isinstance(data, dict) else {}
            )
    return []


def _shown(source: str, data: Mapping[str, Any]) -> list[Output]:
    """Return a display as its picture, else as the plainest text there is of it."""
    for kind in _IMAGES:
        if isinstance(data.get(kind), (str, list)):
            return [Output(source, kind, data="".join(_joined(data[kind]).split()))]
    for kind in _TEXTS:
        if kind in data:
            value = data[kind]
            text = _joined(value) if isinstance(value, (str, list)) else msgspec.json.encode(value).decode()
            return [Output(source, kind, text=text)]
    return [Output(source, text=f"[{', '.join(map(str, data))[:200]}: not told as text]\n")] if data else []


def _joined(value: object, between: str = "") -> str:
    return (
        value if isinstance(value, str) else between.join(map(str, value)) if isinstance(value, list) else ""
    )


def _images_within(outputs: list[Output], bytes_max: int) -> tuple[list[Output], int]:
    kept: list[Output] = []
    left_out = 0
    for output in reversed(outputs):
        size = len(output.data) * 3 // 4
        if output.data and size > bytes_max:
            left_out += 1
            text = f"[{output.type} of {size:,} bytes left out here: ask for more image_bytes]\n"
            output = Output(output.source, text=text)
        else:
            bytes_max -= size
        kept.append(output)
    return kept[::-1], left_out


def _text_within(outputs: list[Output], chars_max: int) -> tuple[list[Output], int]:
    total = sum(len(output.text) for output in outputs)
    if total <= chars_max:
        return outputs, 0
    head, tail = chars_max - chars_max // 2, chars_max // 2
    left_out = total - chars_max
    kept: list[Output] = []
    at, said = 0, False
    for output in outputs:
        text, end = output.text, at + len(output.text)
        first = text[: max(0, head - at)]
        last = text[max(0, total - tail - at) :] if end > total - tail else ""
        if len(first) + len(last) >= len(text):
            first, last = text, ""
        elif not said:
            said = True
            first += f"\n[{left_out:,} characters left out here: ask for more chars]\n"
        if first or last or output.data:
            kept.append(msgspec.structs.replace(output, text=first + last))
        at = end
    return kept, left_out
