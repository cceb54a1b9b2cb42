"""torch modules whose class was made for them, compiled ones, hooks on all modules and optimizers, operators.

Law: a module with parametrizations gets a class of its own again; a compiled module cannot be copied.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_TABLES = (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"])
"""The modules of torch in which the hooks are kept that all modules and all optimizers have."""
RemovableHandle = torch.utils.hooks.RemovableHandle
_PARAMETRIZE = "torch.nn.utils.parametrize"


def is_parametrized_class(cls: type) -> bool:
    """Tell whether torch made this class for one module, to compute its weights."""
    return module_of(cls) == _PARAMETRIZE and cls.__name__.startswith("Parametrized")


def reduce_parametrized(context: ReducerContext, module: torch.nn.Module) -> object:
    """Reduce such a module to the class it had before and its attributes."""
    return make_module, (type(module).__mro__[1],), dict(vars(module)), None, None, fill_parametrized


@loader("torch:make_module")
def make_module(cls: type[torch.nn.Module]) -> object:
    """Return a module without attributes (called by payloads)."""
    return cls.__new__(cls)


@loader("torch:fill_parametrized")
def fill_parametrized(module: torch.nn.Module, state: dict[str, Any]) -> None:
    """Give a module its attributes and a class of its own (called by payloads)."""
    from torch.nn.utils import parametrize

    vars(module).update(state)
    parametrize._inject_new_class(module)
    for name in vars(module)["_modules"]["parametrizations"]:
        parametrize._inject_property(module, name)


def refuse_script(context: ReducerContext, compiled: object) -> object:
    """Refuse what TorchScript compiled: a copy would share nothing with the module it was made from."""
    raise CannotTravel("What TorchScript compiled is known to the process that compiled it only.")


def reduce_operator(context: ReducerContext, operator: Any) -> object:
    """Reduce an operator, or a set of overloads, to its name."""
    context.unlinked.add(id(operator))
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return find_operator, (*operator._qualified_op_name.split("::"), "")
    space, _, name = operator.name().partition("::")
    return find_operator, (space, name.partition(".")[0], operator._overloadname)


@loader("torch:find_operator")
def find_operator(space: str, name: str, overload: str) -> object:
    """Return an operator by its name (called by payloads)."""
    found = getattr(getattr(torch.ops, space), name)
    return getattr(found, overload) if overload else found


def reduce_handle(context: ReducerContext, handle: Any) -> object:
    """Reduce the handle of a hook on all modules or optimizers to the places of its hook."""
    names = {
        id(value): name
        for module in _TABLES
        for name, value in vars(module).items()
        if name.startswith("_global_")
    }
    tables = [handle.hooks_dict_ref(), *(held() for held in handle.extra_dict_ref)]
    found = [names.get(id(table)) for table in tables if table is not None]
    return (make_handle, (tuple(found), handle.id)) if found and all(found) else NotImplemented


@loader("torch:make_handle")
def make_handle(names: tuple[str, ...], number: int) -> object:
    """Return the handle of a hook on all modules or optimizers (called by payloads)."""
    tables = {name: value for module in _TABLES for name, value in vars(module).items()}
    first, *others = (tables[name] for name in names)
    handle = RemovableHandle(first, extra_dict=others or None)
    RemovableHandle.next_id = max(RemovableHandle.next_id, number + 1)
    handle.id = number
    return handle


def reduce_limits(context: ReducerContext, limits: torch.finfo | torch.iinfo) -> object:
    """Reduce the limits of a type of numbers."""
    return type(limits), (getattr(torch, limits.dtype),)


EXACT: dict[type, Any] = {
    torch.finfo: reduce_limits,
    torch.iinfo: reduce_limits,
    RemovableHandle: reduce_handle,
    torch._ops.OpOverload: reduce_operator,
    torch._ops.OpOverloadPacket: reduce_operator,
    torch.jit.ScriptFunction: refuse_script,
}
FAMILIES = [(torch.jit.ScriptModule, refuse_script)]
TESTS = [(is_parametrized_class, reduce_parametrized)]
