"""Arrow's data sets that have a filter or are in memory, which do not say how they are copied.

Law: imported only when Arrow's data sets are; no file is read to tell of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow
from pyarrow import dataset

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

PROTOCOL = 5
_FILTER = "filter"


def reduce_data_set(context: ReducerContext, data: dataset.Dataset) -> Any:
    """Reduce a data set to the one without a filter, and the filter."""
    context.module_needed("pyarrow.dataset")
    options = dict(data._scan_options)
    chosen = options.pop(_FILTER, None)
    if options:
        raise CannotTravel("How this data set of Arrow is to be read cannot be told.")
    whole = data if chosen is None else _without_filter(data)
    told = _told_in_memory(whole) if type(data) is dataset.InMemoryDataset else whole.__reduce_ex__(PROTOCOL)
    return told if chosen is None else (filtered, (*told[:2], chosen))


def _without_filter(data: dataset.Dataset) -> Any:
    whole = data.replace_schema(data.schema)
    whole._scan_options = {}
    return whole


def _told_in_memory(data: dataset.Dataset) -> Any:
    return in_memory, (list(data.to_batches()), data.schema)


@loader("pyarrow-dataset:filtered")
def filtered(make: Callable[..., Any], arguments: tuple[Any, ...], chosen: object) -> Any:
    """Return a data set with a filter (called by payloads)."""
    return make(*arguments).filter(chosen)


@loader("pyarrow-dataset:in_memory")
def in_memory(batches: list[Any], schema: object) -> object:
    """Return a data set in memory (called by payloads)."""
    return dataset.InMemoryDataset(pyarrow.Table.from_batches(batches, schema))


FAMILIES = [(dataset.Dataset, reduce_data_set)]
