"""Parsed documents of Beautiful Soup: the tree as it is, shared with its tags.

The library copies a document as its markup, parsed anew: its tags in variables would be of another tree.
Law: imported only when bs4 is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_document(context: ReducerContext, document: object) -> object:
    """Reduce a document to its attributes; a builder that cannot be copied to its class."""
    if any(vars(base).get("__slots__") for base in type(document).__mro__[:-1]):
        raise CannotTravel("Its class keeps attributes in slots.")
    context.module_needed("bs4")
    attributes = dict(vars(document))
    builder = attributes.get("builder")
    if builder is not None and not builder.picklable:
        attributes["builder"] = None
        return make_document, (type(document),), (attributes, type(builder)), None, None, fill_document
    return make_document, (type(document),), (attributes, None), None, None, fill_document


@loader("bs4:make_document")
def make_document(cls: type[BeautifulSoup]) -> object:
    """Return a document without a tree (called by payloads)."""
    return object.__new__(cls)


@loader("bs4:fill_document")
def fill_document(document: BeautifulSoup, state: tuple[dict[str, Any], Any]) -> None:
    """Give a document its tree, and a builder of the class that it had (called by payloads)."""
    attributes, builder = state
    vars(document).update(attributes)
    if builder is not None:
        document.builder = builder()


FAMILIES = [(BeautifulSoup, reduce_document)]
