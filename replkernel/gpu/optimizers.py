"""torch optimizers, with everything that schedulers hang on them, and random generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replkernel.gpu.storages import needs, present_device
from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_optimizer(pickler: UnitContext, optimizer: object) -> object:
    """Reduce an optimizer with all its attributes: schedulers hang on to more than its state."""
    return make_optimizer, (type(optimizer),), dict(vars(optimizer)), None, None, fill_optimizer


@loader("torch:make_optimizer")
def make_optimizer(cls: type[torch.optim.Optimizer]) -> object:
    """Return an optimizer without attributes; its class calls hooks from here on (called by payloads)."""
    made = cls.__new__(cls)
    made._patch_step_function()
    vars(made).clear()
    return made


@loader("torch:fill_optimizer")
def fill_optimizer(optimizer: object, state: dict[str, Any]) -> None:
    """Give an optimizer its attributes (called by payloads)."""
    vars(optimizer).update(state)


def reduce_scaler(pickler: UnitContext, scaler: object) -> object:
    """Reduce a scaler of gradients with all that it counts."""
    state = dict(vars(scaler))
    if state.get("_per_optimizer_states"):
        raise CannotTravel("A GradScaler in the middle of a step belongs to its process.")
    return make_scaler, (type(scaler),), state, None, None, fill_scaler


@loader("torch:make_scaler")
def make_scaler(cls: type[Any]) -> object:
    """Return a scaler without attributes (called by payloads)."""
    return object.__new__(cls)


@loader("torch:fill_scaler")
def fill_scaler(scaler: object, state: dict[str, Any]) -> None:
    """Give a scaler its attributes (called by payloads)."""
    vars(scaler).update(state)


def reduce_generator(pickler: UnitContext, generator: torch.Generator) -> object:
    """Reduce a random generator; a default one by its device."""
    device = str(generator.device)
    if generator is torch.default_generator:
        pickler.unlinked.add(id(generator))
        return default_generator, ()
    needs(pickler, device)
    return make_generator, (device, generator.get_state().numpy().tobytes())


@loader("torch:default_generator")
def default_generator() -> Any:
    """Return the CPU's default generator (called by payloads)."""
    return torch.default_generator


@loader("torch:make_generator")
def make_generator(device: str, state: bytes) -> object:
    """Return a random generator (called by payloads)."""
    generator = torch.Generator(present_device(device))
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


EXACT: dict[type, Any] = {torch.Generator: reduce_generator}
FAMILIES = [(torch.optim.Optimizer, reduce_optimizer), (torch.amp.GradScaler, reduce_scaler)]
