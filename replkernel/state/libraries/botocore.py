"""Clients of AWS, and boto3's resources over them: refused at once, as nothing that they hold can be of use.

Law: imported only when botocore's clients are. Sessions, from which they are made again, travel, without the
descriptions of services that they have read from files.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from botocore.client import BaseClient  # type: ignore[import-untyped]
from botocore.loaders import Loader  # type: ignore[import-untyped]

from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_PROTOCOL = 5


def refuse_client(context: ReducerContext, client: object) -> object:
    """Refuse a client, alone, without a look at the descriptions of its service."""
    why = "A client of AWS belongs to its process; make it again, from its session."
    raise CannotTravel(why, alone=True)


def reduce_loader(context: ReducerContext, loader: Any) -> object:
    """Reduce what reads descriptions of services to where it reads them."""
    function, arguments, state, *rest = loader.__reduce_ex__(_PROTOCOL)
    return function, arguments, {**state, "_cache": {}}, *rest


def _is_resource(cls: type) -> bool:
    base = getattr(sys.modules.get("boto3.resources.base"), "ServiceResource", None)
    return isinstance(base, type) and issubclass(cls, base)


EXACT: dict[type, Any] = {Loader: reduce_loader}
FAMILIES: list[tuple[type, Any]] = [(BaseClient, refuse_client)]
TESTS = [(_is_resource, refuse_client)]
