"""Cells that an extension of the server sends to kernels (jupyter-server-nbmodel, jupyter-server-documents).

They send code and nothing else. So the cell is looked for in the shared document, and what JupyterLab would
send goes along: its id, and what it asks for. Law: the code is never touched; code whose cell is not known
for certain is sent alone.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_client.asynchronous.client import AsyncKernelClient

from replkernel.launch.attachment import client_classes

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp


log = logging.getLogger("replkernel.server")

DOCUMENTS = "jupyter_server_ydoc"
"""Where jupyter-collaboration and jupyter-server-documents give documents to other extensions."""
RUNNING = "running"
CELLS_MAX = 10_000
OWN = "replkernel"
"""The part of a cell's metadata that is for this kernel."""

_sending: ContextVar[Mapping[str, Any] | None] = ContextVar("replkernel_sending", default=None)
_apps: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class SharedCell(msgspec.Struct, frozen=True):
    """What is looked at of a code cell."""

    cell_id: str
    source: str
    running: bool
    wanted: Any = None


def metadata_of(code: str, cells: Sequence[SharedCell]) -> dict[str, Any] | None:
    """Return what goes with the cell that holds this code; None where none does, or nobody knows which.

    Whoever sends a cell has marked it as running before. Of several that run it is the first, for they are
    sent in the order of the notebook, and the mark goes when one has ended. If they ask for different things,
    nobody knows which.
    """
    holders = [cell for cell in cells if cell.source == code]
    running = [cell for cell in holders if cell.running]
    if running and all(cell.wanted == running[0].wanted for cell in running):
        found = running[0]
    elif len(holders) == 1:
        (found,) = holders
    else:
        return None
    return {"cellId": found.cell_id} | ({OWN: found.wanted} if found.wanted is not None else {})


class CellClient(AsyncKernelClient):
    """The client by which extensions of the server run cells on replicated kernels."""

    async def _async_execute_interactive(self, code: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        known = _sending.set(await self._metadata(code))
        try:
            return await super()._async_execute_interactive(code, *args, **kwargs)
        finally:
            _sending.reset(known)

    execute_interactive = _async_execute_interactive

    def execute(self, *args: Any, **kwargs: object) -> str:
        """Send the code with what goes along with its cell."""
        session, found = self.session, _sending.get()
        if not found:
            return str(super().execute(*args, **kwargs))
        before = session.metadata
        session.metadata = {**before, **found}  # For this one message: nothing is awaited meanwhile.
        try:
            return str(super().execute(*args, **kwargs))
        finally:
            session.metadata = before

    async def _metadata(self, code: str) -> dict[str, Any] | None:
        manager = self.parent
        app = _apps.get(getattr(manager, "parent", None))
        if app is None or manager is None:
            return None
        try:
            return metadata_of(code, await cells_of(app, str(manager.kernel_id)))
        except Exception as error:  # Other extensions' documents: a cell runs without its line.
            log.warning("The cell of code that the server sends was not found: %s", error)
            return None


def install(app: ServerApp) -> None:
    """Have extensions of this server run cells on replicated kernels by this client."""
    _apps[app.kernel_manager] = app
    client_classes[app.kernel_manager] = CellClient


async def cells_of(app: ServerApp, kernel_id: str) -> list[SharedCell]:
    """Return the code cells of the notebooks that have this kernel, as their documents are now."""
    documents = app.web_app.settings.get(DOCUMENTS)
    found: list[SharedCell] = []
    if documents is None:
        return found
    for model in await app.session_manager.list_sessions():
        if model["kernel"]["id"] == kernel_id and model["type"] == "notebook":
            document = await documents.get_document(
                path=str(model["path"]), content_type="notebook", file_format="json", copy=False
            )
            if document is not None:
                found += [_read(cell) for cell in list(document.ycells)[:CELLS_MAX] if _is_code(cell)]
    return found


def _is_code(cell: Any) -> bool:
    return bool(cell.get("cell_type") == "code")


def _read(cell: Any) -> SharedCell:
    metadata = cell.get("metadata")
    wanted: object = None if metadata is None else metadata.get(OWN)
    if hasattr(wanted, "to_py"):
        wanted = wanted.to_py()
    runs = cell.get("execution_state") == RUNNING
    return SharedCell(str(cell.get("id", "")), str(cell.get("source", "")), runs, with_whole_numbers(wanted))


def with_whole_numbers(value: object) -> object:
    """Return what JSON had: in shared documents 2 is 2.0."""
    if isinstance(value, dict):
        return {name: with_whole_numbers(each) for name, each in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
