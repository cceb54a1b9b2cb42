"""The contents of databases in memory, as buffers of payloads.

Law: a database is serialized only when its bytes are written; whether it changed is told by its counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.sqlite3 import layout as sqlite_layout
from replkernel.state.python.sqlite3 import library as sqlite
from replkernel.state.python.sqlite3.settings import quoted
from replkernel.state.python.sqlite3.watch import Notes, quiet
from replkernel.state.restore.loading import take_buffer

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_COUNT_BYTES = 8


class Image:
    """A database in memory as a buffer of a payload: its bytes are made only when they are written."""

    def __init__(self, connection: object, notes: Notes, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._generation = notes.generation
        self._serial = notes.serial
        db = sqlite_layout.handle(connection)
        self._version = sqlite.data_version(db, schema)
        prefix = f"PRAGMA {quoted(schema)}."
        (pages,), (page_bytes,) = (sqlite.run(db, prefix + what)[0] for what in ("page_count", "page_size"))
        self._size = int(pages or 0) * int(page_bytes or 0)

    def __len__(self) -> int:
        return self._size

    def digest(self) -> bytes:
        """Return what tells this state of this database from all others in this process."""
        counts = (self._generation, self._version, self._size)
        return b"".join(
            [self._serial, self._schema.encode(), *(n.to_bytes(_COUNT_BYTES, "little") for n in counts)]
        )

    def host(self) -> memoryview:
        """Return the bytes of the database."""
        with quiet(self._connection):
            return memoryview(sqlite.serialize(sqlite_layout.handle(self._connection), self._schema))


def reduce_image(context: ReducerContext, image: Image) -> object:
    """Reduce the contents of a database in memory."""
    return take_image, (context.emit(image, None),)


@loader("sqlite:take_image")
def take_image(data: bytes | int) -> object:
    """Return the bytes of a database (called by payloads)."""
    return take_buffer(data)


EXACT: dict[type, Any] = {Image: reduce_image}
