"""bokeh's lists and dictionaries, which tell their owners of each change: they are filled past that.

Law: imported only when bokeh's are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bokeh.core.property.descriptors import PropertyDescriptor
from bokeh.core.property.wrappers import PropertyValueContainer

from replkernel.loaders import loader
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_container(pickler: UnitContext, container: object) -> object:
    """Reduce a container to what it holds and who owns it."""
    pickler.module_needed("bokeh")
    reducer = instances.plan(type(container))
    return NotImplemented if reducer is None else reducer(pickler, container)


def reduce_descriptor(pickler: UnitContext, descriptor: object) -> object:
    """Reduce a property of a class of bokeh's to its name there."""
    owner, name = vars(descriptor).get("owner"), vars(descriptor).get("name")
    if owner is None or owner.__dict__.get(name) is not descriptor:
        return NotImplemented
    pickler.unlinked.add(id(descriptor))
    return take_descriptor, (owner, name)


@loader("bokeh:take_descriptor")
def take_descriptor(owner: object, name: str) -> object:
    """Return a property of a class (called by payloads)."""
    return owner.__dict__[name]


FAMILIES = [(PropertyValueContainer, reduce_container), (PropertyDescriptor, reduce_descriptor)]
