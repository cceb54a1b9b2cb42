"""torch's process-wide state: generators, options, and whether a value lives on a GPU.

Law: torch is never imported from here and CUDA is never started; a process without torch answers "nothing".
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from replkernel.gpu.torch_flags import first_flags, flags, set_flags
from replkernel.state.python.kinds import kind_of

MODULES_MAX = 2_000
"""No more submodules of one model are looked at for a parameter on a GPU."""
AUTOCAST_DEVICES = ("cpu", "cuda")
_mro = vars(type)["__mro__"].__get__


def is_loaded() -> bool:
    """Tell whether torch is imported to its end."""
    torch = sys.modules.get("torch")
    return torch is not None and "compile" in vars(torch) and "default_generator" in vars(torch)


def _torch() -> Any:
    return sys.modules["torch"]


def _bytes_of(state: Any) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _state_of(data: bytes) -> Any:
    torch = _torch()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def cpu_random() -> bytes:
    """Return the state of torch's generator for the CPU."""
    return _bytes_of(_torch().default_generator.get_state())


def set_cpu_random(data: bytes) -> None:
    """Set torch's generator for the CPU."""
    _torch().default_generator.set_state(_state_of(data))


def _cuda_started() -> bool:
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and bool(vars(cuda).get("_initialized", False))


_held: list[tuple[bytes, ...]] = []
"""The generators' states while nobody may ask CUDA for them."""
_held_changed = [False]


def hold_cuda_random(states: tuple[bytes, ...]) -> None:
    """Have these be the GPUs' generators' states: the driver has the devices, and torch asks it about them.

    Until 2.6 at least, a generator looks whether CUDA records a graph before it tells or takes a state.
    """
    _held[:], _held_changed[0] = [states], False


def release_cuda_random() -> None:
    """Have the generators themselves tell their states again, with what was set meanwhile."""
    states, changed = (_held[0] if _held else ()), _held_changed[0]
    _held.clear()
    if changed:
        set_cuda_random(states)


def cuda_random() -> tuple[bytes, ...] | None:
    """Return the states of the GPUs' generators by device; None while CUDA is not in use."""
    if _held:
        return _held[0]
    if not _cuda_started():
        return None
    return tuple(
        _bytes_of(generator.get_state()) for generator in sys.modules["torch.cuda"].default_generators
    )


def set_cuda_random(states: tuple[bytes, ...]) -> None:
    """Set the GPUs' generators now, or when CUDA starts; states without a device are left over."""

    def put() -> None:
        generators = sys.modules["torch.cuda"].default_generators
        for generator, state in zip(generators, states, strict=False):
            generator.set_state(_state_of(state))

    if _held:
        _held[0], _held_changed[0] = (*states, *_held[0][len(states) :]), True
    elif _cuda_started():
        put()
    else:
        sys.modules["torch.cuda"]._lazy_call(put)


def options() -> dict[str, Any]:
    """Return the options that a notebook sets for the whole process, as plain values."""
    torch = _torch()
    device = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    printing = torch._tensor_str.PRINT_OPTS
    return {
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "default_device": "" if device is None else str(device.device),
        "grad_enabled": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "anomaly": torch.is_anomaly_enabled(),
        "anomaly_check_nan": torch.is_anomaly_check_nan_enabled(),
        "warn_always": torch.is_warn_always_enabled(),
        "cudnn_benchmark": torch._C._get_cudnn_benchmark(),
        "cudnn_deterministic": torch._C._get_cudnn_deterministic(),
        "num_threads": torch.get_num_threads(),
        "print": [
            printing.precision, printing.threshold, printing.edgeitems, printing.linewidth, printing.sci_mode,
        ],
        "autocast": _autocast(torch),
        "inference_mode": torch.inference_mode if torch.is_inference_mode_enabled() else None,
        **flags(),
    }  # fmt: skip


def _autocast(torch: ModuleType) -> list[Any]:
    """Return how deep autocast was entered, whether it caches, and whether and how it is on for devices."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    devices = [
        [
            device,
            torch.is_autocast_enabled(device),
            str(torch.get_autocast_dtype(device)).removeprefix("torch."),
        ]
        for device in AUTOCAST_DEVICES
    ]
    return [depth, torch.is_autocast_cache_enabled(), devices]


def _set_autocast(value: list[Any]) -> None:
    torch = _torch()
    depth, caches, devices = value
    present = _autocast(torch)[0]
    for _ in range(present, depth):
        torch.autocast_increment_nesting()
    for _ in range(depth, present):
        torch.autocast_decrement_nesting()
    torch.set_autocast_cache_enabled(caches)
    for device, enabled, dtype in devices:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, getattr(torch, dtype))


def default_options() -> dict[str, Any]:
    """Return what torch starts with; a number of threads that torch may have chosen counts as its default."""
    return {
        "default_dtype": "float32",
        "default_device": "",
        "grad_enabled": True,
        "deterministic": False,
        "deterministic_warn_only": False,
        "matmul_precision": "highest",
        "anomaly": False,
        "anomaly_check_nan": True,
        "warn_always": False,
        "cudnn_benchmark": False,
        "cudnn_deterministic": False,
        "num_threads": _default_threads(),
        "print": [4, 1000, 3, 80, None],
        "autocast": [0, True, [["cpu", False, "bfloat16"], ["cuda", False, "float16"]]],
        "inference_mode": None,
        **first_flags(),
    }


def _default_threads() -> int:
    """Return the present number of threads when torch surely chose it by itself on this host.

    That is what the environment says, and only where it says nothing the number of processors. Half of them
    may be torch's own choice (one thread a core) or the user's, and so it travels: between like hosts that
    changes nothing, and a choice of the user's is never lost.
    """
    present = int(_torch().get_num_threads())
    told = [os.environ.get(variable, "") for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")]
    chosen = {int(text) for text in told if text.isdigit()}
    if not chosen:
        processors = os.cpu_count() or 1
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processors
        chosen = {processors, usable}
    return present if present in chosen else -1


def set_options(changed: Mapping[str, Any]) -> None:
    """Set the options of `changed`, each only where it differs, so that nothing is started for it."""
    torch = _torch()
    present = options()
    differs = {name for name, value in changed.items() if name in present and present[name] != value}
    setters = {
        "default_dtype": lambda value: torch.set_default_dtype(getattr(torch, value)),
        "default_device": lambda value: torch.set_default_device(value or None),
        "grad_enabled": torch.set_grad_enabled,
        "matmul_precision": torch.set_float32_matmul_precision,
        "warn_always": torch.set_warn_always,
        "cudnn_benchmark": torch._C._set_cudnn_benchmark,
        "cudnn_deterministic": torch._C._set_cudnn_deterministic,
        "num_threads": torch.set_num_threads,
        "autocast": _set_autocast,
    }
    for name in sorted(differs & setters.keys()):
        setters[name](changed[name])
    if {"deterministic", "deterministic_warn_only"} & differs:
        enabled = changed.get("deterministic", present["deterministic"])
        warn_only = changed.get("deterministic_warn_only", present["deterministic_warn_only"])
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    if {"anomaly", "anomaly_check_nan"} & differs:
        enabled = changed.get("anomaly", present["anomaly"])
        torch.set_anomaly_enabled(enabled, changed.get("anomaly_check_nan", present["anomaly_check_nan"]))
    set_flags(changed, sorted(differs & first_flags().keys()))
    if "print" in differs:
        precision, threshold, edgeitems, linewidth, sci_mode = changed["print"]
        torch.set_printoptions(precision, threshold, edgeitems, linewidth, sci_mode=sci_mode)


def lives_on_gpu(value: object) -> bool:
    """Tell whether a tensor, or a parameter of a model, lies on a GPU, reading no property of a user's."""
    if not is_loaded():
        return False
    torch = _torch()
    kind = type(value)
    if kind is torch.device:
        return bool(value.type == "cuda")  # type: ignore[attr-defined]
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return _lies_on_gpu(value)
    module_class = torch.nn.Module
    if not any(base is module_class for base in _mro(kind)):
        return False
    waiting: list[object] = [value]
    for _ in range(MODULES_MAX):
        if not waiting:
            return False
        fields = object.__getattribute__(waiting.pop(), "__dict__")
        tensors = [*fields.get("_parameters", {}).values(), *fields.get("_buffers", {}).values()]
        if any(
            kind_of(each) in (torch.Tensor, torch.nn.Parameter) and _lies_on_gpu(each) for each in tensors
        ):
            return True
        waiting.extend(child for child in fields.get("_modules", {}).values() if child is not None)
    return False


def _lies_on_gpu(tensor: Any) -> bool:
    """Tell whether a tensor of torch's own classes lies on a GPU, or poses as one that does."""
    kind = _torch().Tensor
    if kind.is_cuda.__get__(tensor):
        return True
    fake = sys.modules.get("replkernel.gpu.fake")
    if fake is None or tensor.layout is not _torch().strided:
        return False
    return bool(fake.fake_backend().poses(kind.untyped_storage(tensor)))


MYPY = False
if MYPY:
    pass
