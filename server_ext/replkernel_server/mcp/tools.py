"""The tools that an agent has. Their docstrings are what it reads of them.

Law: nothing is remembered between two calls, so an agent, this process and the server may end at any time;
every tool answers with a document that has a `status`. The SDK is imported here alone.
"""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Literal
from urllib.parse import quote, urlencode

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import Field

from replkernel import __version__
from replkernel.leasing.request import GPUS_ASKED_MAX
from replkernel.protocol.points import WORD_CHARS_MAX
from replkernel.protocol.sent_cells import (
    CELL_ID,
    CHARS,
    CHARS_MAX,
    CODE_CHARS_MAX,
    IMAGE_BYTES,
    IMAGE_BYTES_MAX,
)
from replkernel_server.mcp import words
from replkernel_server.mcp.access import Access
from replkernel_server.mcp.jupyter import Jupyter, Unreachable

WAIT_S, WAIT_S_MAX = 30.0, 50.0
"""Clients give a tool a minute or so."""
INSTRUCTIONS = """\
Run Python in notebooks whose variables survive crashes and restarts. open_notebook once; then send_cell,
which answers at once with the cell's id, and wait_cell until `over` is true. Ids hold whatever restarts:
after `unreachable`, ask again by the same notebook and cell, or send again by the same cell id, which runs it
once. `lost` means that it, or what it changed, is gone: `reason` says why and what to do. Variables are kept
between cells; go_back undoes what cells did to them without running anything again."""

Notebook = Annotated[
    str, Field(max_length=words.NAME_CHARS_MAX, description="Its path, or any name of yours.")
]
Cell = Annotated[str, Field(pattern=f"^{CELL_ID}$", description="The cell's id.")]
Word = Annotated[str, Field(max_length=WORD_CHARS_MAX)]
Chars = Annotated[int, Field(ge=0, le=CHARS_MAX, description="Characters of text at most.")]
ImageBytes = Annotated[int, Field(ge=0, le=IMAGE_BYTES_MAX, description="Bytes of images at most.")]
Seconds = Annotated[float, Field(ge=0, le=WAIT_S_MAX)]

_LOOKS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(destructive_hint=True, idempotent_hint=False, open_world_hint=True)
_ADDS = ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(destructive_hint=True, idempotent_hint=False, open_world_hint=False)


class Tools:
    """All tools, on one Jupyter Server."""

    def __init__(self, access: Access) -> None:
        """Talk to nobody yet."""
        self._access = access
        self._jupyter = Jupyter(access)

    async def list_notebooks(self) -> CallToolResult:
        """List the notebooks that are open on the server with a replicated kernel, yours and others'."""
        try:
            answer = await self._jupyter.call("GET", "api/sessions")
        except Unreachable as error:
            return _result(words.unreachable(str(error)))
        if answer.status != 200:
            return _result(words.document(answer))
        return _result(words.notebooks(answer.body, self._access.kernel))

    async def open_notebook(self, notebook: Notebook) -> CallToolResult:
        """Attach to the notebook of this path or name, or start it if it is not open.

        `new` tells whether it was started now, which means that it has no variables yet.
        """
        try:
            return _result(words.bad_name(notebook) or await self._open(notebook))
        except Unreachable as error:
            return _result(words.unreachable(str(error)))

    async def end_notebook(self, notebook: Notebook) -> CallToolResult:
        """End a notebook's kernel for good: its variables, cells and history are deleted.

        Only what you have started yourself: others may work in a notebook that you found open.
        """
        try:
            answer = await self._jupyter.call("GET", "api/sessions")
            session = words.session_of(answer.body, notebook)
            if answer.status != 200 or session is None:
                return _result(
                    words.document(answer) if answer.status != 200 else words.lost(words.NO_NOTEBOOK)
                )
            way = f"api/sessions/{quote(str(session['id']), safe='')}"
            return _result(words.document(await self._jupyter.call("DELETE", way), notebook=notebook))
        except Unreachable as error:
            return _result(words.unreachable(str(error)))

    async def send_cell(
        self,
        notebook: Notebook,
        code: Annotated[str, Field(max_length=CODE_CHARS_MAX)],
        cell: Annotated[str, Field(pattern=f"^({CELL_ID})?$", description="An id of yours; or none.")] = "",
        gpus: Annotated[float | None, Field(ge=0, le=GPUS_ASKED_MAX)] = None,
        vram_gb: Annotated[float | None, Field(ge=0)] = None,
        gpu_model: Annotated[str, Field(max_length=64)] = "",
    ) -> CallToolResult:
        """Have a cell run after those before it, and answer at once with its id; wait_cell waits for it.

        Sent again by the same id it does not run again. With `gpus` it waits for so many GPUs of one host,
        each with `vram_gb` GiB at least and of `gpu_model`; 0.5 is half of one, shared with others.
        """
        asked = {"gpus": gpus, "vram_gb": vram_gb, "gpu_model": gpu_model or None}
        cell = cell or uuid.uuid4().hex[:16]
        body = {"code": code, "cell": cell} | {
            name: value for name, value in asked.items() if value is not None
        }
        return await self._ask(notebook, "POST", "cells", body, cell=cell)

    async def wait_cell(
        self,
        notebook: Notebook,
        cell: Cell,
        seconds: Seconds = WAIT_S,
        chars: Chars = CHARS,
        image_bytes: ImageBytes = IMAGE_BYTES,
    ) -> CallToolResult:
        """Wait for a cell's end; tell how it stands and what it has put out. Call again unless it is `over`.

        `status` is `queued`, `waiting` (for GPUs), `running`, `ok`, `error` or `lost`. Of text that is longer
        than `chars` beginning and end are told; `safety` `durable` means that what it changed survives.
        """
        query = urlencode({"wait_s": seconds, "chars": chars, "image_bytes": image_bytes})
        return await self._ask(notebook, "GET", f"cells/{cell}?{query}", cell=cell)

    async def read_cell(
        self, notebook: Notebook, cell: Cell, chars: Chars = CHARS, image_bytes: ImageBytes = IMAGE_BYTES
    ) -> CallToolResult:
        """Tell how a cell stands and what it has put out so far, as wait_cell does, without waiting."""
        return await self.wait_cell(notebook, cell, 0, chars, image_bytes)

    async def interrupt_cell(self, notebook: Notebook, cell: Cell) -> CallToolResult:
        """Interrupt a cell that runs, as Ctrl-C does; one that is over is left alone."""
        return await self._ask(notebook, "POST", f"cells/{cell}/interrupt", cell=cell)

    async def list_cells(self, notebook: Notebook) -> CallToolResult:
        """List the last 100 cells of the notebook and how they stand, whoever sent them."""
        return await self._ask(notebook, "GET", "cells")

    async def list_variables(self, notebook: Notebook) -> CallToolResult:
        """List the variables with their types, shapes and lengths, also while a cell runs."""
        return await self._ask(notebook, "GET", "variables")

    async def list_history(self, notebook: Notebook) -> CallToolResult:
        """List the newest 50 points that the variables can go back to; `here` is where they are."""
        return await self._ask(notebook, "GET", "history")

    async def go_back(
        self,
        notebook: Notebook,
        how: Literal["undo", "redo", "goto", "switch"],
        to: Word = "",
        steps: Annotated[int, Field(ge=1, le=10_000)] = 1,
        since: Word = "",
        confirm: bool = False,
    ) -> CallToolResult:
        """Take variables back (`undo`) or forward (`redo`) by steps, `goto` a point, or `switch` branches.

        Nothing runs again. With `since`, the `here` that you have seen, nothing is done if somebody has
        changed something after it. `cannot_come_back` names what would be lost: `confirm` goes without it.
        """
        body = {"to": to, "steps": steps, "since": since, "confirm": confirm}
        return await self._ask(notebook, "POST", f"history/{how}", body)

    async def mark_point(self, notebook: Notebook, name: Word, point: Word = "") -> CallToolResult:
        """Give a point a name by which go_back finds it, and which keeps it. Without `point`: that of now."""
        return await self._ask(notebook, "PUT", f"history/marks/{quote(name, safe='')}", {"point": point})

    # -- asking -----------------------------------------------------------------------------------------

    async def _open(self, notebook: str) -> words.Document:
        answer = await self._jupyter.call("GET", "api/sessions")
        if answer.status != 200:
            return words.document(answer)
        session = words.session_of(answer.body, notebook)
        if session is not None:
            return {"status": "ok", "notebook": notebook, "kernel": words.kernel_of(session), "new": False}
        kernel = self._access.kernel
        if (refusal := words.too_many(answer.body, kernel, self._access.kernels_max)) is not None:
            return refusal
        made = await self._jupyter.call("POST", "api/sessions", words.session_wanted(notebook, kernel))
        if made.status != 201:
            return words.document(made)
        return {"status": "ok", "notebook": notebook, "kernel": words.kernel_of(made.body), "new": True}

    async def _ask(
        self, notebook: str, method: str, way: str, body: object = None, **more: object
    ) -> CallToolResult:
        """Return what a notebook's kernel answers; one that hibernates is resumed first."""
        told = more | {"notebook": notebook}
        try:
            found = await self._jupyter.call("GET", "api/sessions")
            session = words.session_of(found.body, notebook)
            if found.status != 200:
                return _result(words.document(found, **told))
            if session is None:
                return _result(words.lost(words.NO_NOTEBOOK) | told)
            kernel = f"replkernel/api/kernels/{words.kernel_of(session)}"
            answer = await self._jupyter.call(method, f"{kernel}/{way}", body)
            if words.hibernates(answer):
                await self._jupyter.call("POST", kernel)
                answer = await self._jupyter.call(method, f"{kernel}/{way}", body)
            return _result(words.shortened(words.document(answer, **told)))
        except Unreachable as error:
            return _result(words.unreachable(str(error)) | told)


def make_server(access: Access) -> MCPServer:
    """Return the MCP server with all tools; it talks to nobody before it runs."""
    tools = Tools(access)
    server = MCPServer("replkernel", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool, hints in (
        (tools.list_notebooks, _LOOKS),
        (tools.open_notebook, _ADDS),
        (tools.end_notebook, _CHANGES),
        (tools.send_cell, _RUNS),
        (tools.wait_cell, _LOOKS),
        (tools.read_cell, _LOOKS),
        (tools.interrupt_cell, _CHANGES),
        (tools.list_cells, _LOOKS),
        (tools.list_variables, _LOOKS),
        (tools.list_history, _LOOKS),
        (tools.go_back, _CHANGES),
        (tools.mark_point, _ADDS),
    ):
        server.add_tool(tool, annotations=hints)
    return server


def _result(told: words.Document) -> CallToolResult:
    document, pictures = words.parted(told)
    text = TextContent(type="text", text=json.dumps(document, ensure_ascii=False))
    images = [ImageContent(type="image", data=each.data, mime_type=each.type) for each in pictures]
    return CallToolResult(content=[text, *images], structured_content=document)
