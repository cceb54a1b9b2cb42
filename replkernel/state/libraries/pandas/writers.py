"""What pandas and Arrow write tables with, as a ``with`` statement leaves it: closed. A workbook may be open.

Law: each reducer is taken only when its library is; what is open to a file of Arrow or HDF5 stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pandas.io.excel import ExcelWriter
from pandas.io.pytables import HDFStore

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_workbook(context: ReducerContext, writer: object) -> object:
    """Reduce what writes a workbook to its attributes: the book, and the file that it will be saved to."""
    context.module_needed("pandas")
    return instances.make_plain, (type(writer),), dict(vars(writer)), None, None, instances.fill_plain


def reduce_store(context: ReducerContext, store: object) -> object:
    """Reduce a store of HDF5 that is closed."""
    if vars(store)["_handle"] is not None:
        raise CannotTravel("A file of HDF5 is open in this process, which keeps a lock on it.")
    return reduce_workbook(context, store)


FAMILIES = [(ExcelWriter, reduce_workbook), (HDFStore, reduce_store)]
