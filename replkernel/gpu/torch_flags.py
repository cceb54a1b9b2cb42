"""torch's plain switches, and what they are at first: attention, threads of `backward`, tiny numbers.

Law: reading all of them takes a few microseconds; a release of torch without one of them leaves that out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_SWITCHES = {
    "attention_cudnn": ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    "attention_efficient": ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    "attention_flash": ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    "attention_math": ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    "backward_threads": ("_is_multithreading_enabled", "_set_multithreading_enabled"),
    "deterministic_fill": (
        "_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory",
    ),
}  # fmt: skip
"""By what functions of `torch._C` each is read and set; all are on at first."""

FLUSH, FAST = "flush_denormal", "attention_fast_path"
_TINIEST = 5e-324


def _compiled() -> Mapping[str, Any]:
    return vars(sys.modules["torch._C"])


def flags() -> dict[str, bool]:
    """Return the switches as they are."""
    functions = _compiled()
    found = {name: functions[read]() for name, (read, _) in _SWITCHES.items() if read in functions}
    found[FAST] = vars(sys.modules.get("torch.backends.mha", object)).get("_is_fastpath_enabled", True)
    found[FLUSH] = _flushes()
    return found


def first_flags() -> dict[str, bool]:
    """Return what they are at first."""
    return {**dict.fromkeys((*_SWITCHES, FAST), True), FLUSH: False}


def _flushes() -> bool:
    """Tell whether this thread's processor takes numbers for zero that are smaller than normal ones."""
    return _TINIEST * 1.0 == 0


def set_flags(changed: Mapping[str, Any], names: Iterable[str]) -> None:
    """Set the switches of these names."""
    torch, functions = sys.modules["torch"], _compiled()
    setters: dict[str, Callable[[bool], Any]] = {
        name: functions[put] for name, (_, put) in _SWITCHES.items() if put in functions
    }
    setters[FLUSH] = vars(torch)["set_flush_denormal"]
    if "torch.backends.mha" in sys.modules:
        setters[FAST] = vars(sys.modules["torch.backends.mha"])["set_fastpath_enabled"]
    for name in names:
        if name in setters:
            setters[name](changed[name])
