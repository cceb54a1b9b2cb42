"""pydantic."""

from __future__ import annotations

from replkernel.state.library import Library

LIBRARY = Library(
    name="pydantic",
    reducers={"pydantic._internal._validate_call": "replkernel.state.libraries.pydantic.validated_calls"},
    loaders={"pydantic": ("replkernel.state.libraries.pydantic.validated_calls",)},
)
