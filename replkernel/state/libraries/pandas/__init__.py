"""pandas."""

from __future__ import annotations

from replkernel.state.libraries.pandas.options import PandasOptionsPart
from replkernel.state.library import Library

LIBRARY = Library(
    name="pandas",
    reducers={
        "pandas": "replkernel.state.libraries.pandas.frames",
        "pandas.io.parsers.readers": "replkernel.state.libraries.pandas.readers",
        "pandas.io.pytables": "replkernel.state.libraries.pandas.writers",
    },
    loaders={
        "pandas": ("replkernel.state.libraries.pandas.frames",),
        "pandas-readers": ("replkernel.state.libraries.pandas.readers",),
    },
    parts=(PandasOptionsPart,),
)
