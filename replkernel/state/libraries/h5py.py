"""Files of HDF5 that h5py has closed, and what was in them: what a ``with`` statement leaves in variables.

Law: imported only when h5py is; an open one stays where it is, for its lock would keep a cell elsewhere from
writing to the file after it has closed its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import key_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_KINDS = frozenset({h5py.File, h5py.Group, h5py.Dataset})


def reduce_handle(context: ReducerContext, handle: object) -> object:
    """Reduce a file, a group or a dataset that is closed."""
    context.module_needed("h5py")
    kind = type(handle)
    if key_of(kind) not in _KINDS:
        return NotImplemented
    if handle:
        raise CannotTravel("A file of HDF5 is open in this process, which keeps a lock on it.")
    return make_closed, (kind,)


@loader("h5py:make_closed")
def make_closed(kind: object) -> object:
    """Return a file that is closed, or what was in one (called by payloads)."""
    file = h5py.File("closed", "w", driver="core", backing_store=False)
    handles = {h5py.File: file, h5py.Group: file["/"]}
    handle = handles[kind] if kind in handles else file.create_dataset("x", data=0)
    file.close()
    return handle


FAMILIES = [(h5py.HLObject, reduce_handle)]
