"""Jinja's templates: made past their constructor, which would compile their source anew.

Law: imported only when Jinja's environments are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jinja2 import environment

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_template(context: ReducerContext, template: object) -> object:
    """Reduce a template to its attributes, its compiled functions among them."""
    context.module_needed("jinja2")
    return make_template, (type(template),), dict(vars(template)), None, None, fill_template


@loader("jinja2:make_template")
def make_template(cls: type[environment.Template]) -> object:
    """Return a template without its attributes (called by payloads)."""
    return object.__new__(cls)


@loader("jinja2:fill_template")
def fill_template(template: object, attributes: dict[str, Any]) -> None:
    """Give a template its attributes (called by payloads)."""
    vars(template).update(attributes)


FAMILIES = [(environment.Template, reduce_template)]
