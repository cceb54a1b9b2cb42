"""Tensors into a safetensors file, storage by storage from wherever they lie.

Written here because the library's own writer first makes a copy of everything in host memory, and refuses
tensors that share it. Law: the file is there whole or not at all; what shares its bytes is written once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

from replkernel.errors import ReplkernelError
from replkernel.gpu.torch_library import torch
from replkernel.hosts.disk_path import DiskPath

PIECE_BYTES = 64 * 2**20
"""So much at most is in host memory at a time, for a tensor whose bytes follow each other."""
ALIGNED = 8
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
}


class ExportError(ReplkernelError):
    """Something cannot be written as safetensors."""


def export(values: object, path: str | os.PathLike[str]) -> None:
    """Write a module's parameters and buffers, or a mapping of names to tensors, as a safetensors file.

    A tensor that is another one (tied weights) is written once; the file's metadata say under which name, as
    `safetensors.torch.load_model` expects. Raises ExportError for what is no tensor, or of no type that the
    format has.
    """
    tensors = _tensors_of(values)
    kept, same = _without_doubles(tensors)
    header = _header(kept, same)
    target = DiskPath(path)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file, torch.no_grad():
            file.write(len(header).to_bytes(8, "little") + header)
            for tensor in kept.values():
                _write(file, tensor)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _tensors_of(values: object) -> dict[str, Any]:
    if isinstance(values, torch.nn.Module):
        values = values.state_dict()
    if not isinstance(values, Mapping):
        raise ExportError(
            f"A module or a mapping of names to tensors can be exported, not a {type(values).__name__}."
        )
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise ExportError(
                f"{name!r} is a {type(value).__name__}; safetensors files hold tensors by name."
            )
        if value.dtype not in NAMES or value.layout is not torch.strided or value.is_quantized:
            raise ExportError(
                f"{name!r} is a {value.dtype} tensor ({value.layout}), which safetensors cannot hold."
            )
    return {name: value.detach() for name, value in values.items()}


def _without_doubles(tensors: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tensors, each once, and which names stand for which others."""
    kept: dict[str, Any] = {}
    same: dict[str, str] = {}
    known: dict[Any, str] = {}
    for name, tensor in tensors.items():
        place = (
            tensor.untyped_storage()._cdata,
            tensor.storage_offset(),
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
        )
        if place in known:
            same[name] = known[place]
        else:
            known[place], kept[name] = name, tensor
    return kept, same


def _header(tensors: dict[str, Any], same: dict[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt", **same}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % ALIGNED)


def _write(file: IO[bytes], tensor: torch.Tensor) -> None:
    """Write a tensor's elements in order, a piece at a time."""
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    for start in range(0, flat.numel(), PIECE_BYTES):
        file.write(flat[start : start + PIECE_BYTES].cpu().numpy().data)
