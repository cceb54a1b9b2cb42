"""Nested tensors with rows of different lengths: their values and where each row begins, which others share.

Two such tensors fit each other when they have the same object for where their rows begin: torch gives that a
number, which is a part of their shapes. Law: the number goes along, and no other object gets it.
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader
from replkernel.state.python.kinds import module_of

HOME = "torch.nested._internal.nested_tensor"
COUNTER = "_tensor_id_counter"
_MADE = ("_dynamo_propagated_dynamic_indices", "_size", "_strides", "_sym_")
"""How what torch makes and keeps of such a tensor by itself begins."""
_number: Any = torch.SymInt
_PARTS = ("_values", "_offsets", "_lengths", "_ragged_idx", "_metadata_cache")


def is_jagged(cls: type) -> bool:
    """Tell whether a class is that of torch's jagged tensors."""
    return module_of(cls) == HOME and cls.__name__ == "NestedTensor"


def reduce_jagged(tensor: torch.Tensor, state: Any, fill: object) -> object:
    """Reduce such a tensor; `state` is what `fill` gives back to it."""
    held = vars(tensor)
    values, offsets, lengths, at, cache = (held[name] for name in _PARTS)
    number = held["_size"][at].node.nested_int()
    attributes = {name: value for name, value in held.items() if not name.startswith((*_PARTS, *_MADE))}
    kept = (*state[:2], attributes or None, *state[3:])
    made = (values, offsets, lengths, at, cache, number, tensor.requires_grad)
    return make_jagged, made, kept, None, None, fill


@loader("torch:make_jagged")
def make_jagged(
    values: object, offsets: object, lengths: object, at: int, cache: object, number: int, requires_grad: bool
) -> object:
    """Return a jagged tensor over its values (called by payloads)."""
    __import__(HOME)
    tables = vars(sys.modules[HOME])
    numbered, source = tables["_tensor_symint_registry"], offsets if lengths is None else lengths
    if numbered.get(source) is None:
        numbered[source] = _number(tables["NestedIntNode"](number, 1))
        tables[COUNTER] = max(tables[COUNTER], number + 1)
    made = tables["NestedTensor"](
        values, offsets, lengths=lengths, _ragged_idx=at, requires_grad=requires_grad
    )
    vars(made)["_metadata_cache"] = cache
    return made
