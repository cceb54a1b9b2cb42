"""``@environ``: what the user changed in ``os.environ`` since the process was born, removals as well.

What belongs to one process or one host (our own variables, Jupyter's, the leased GPUs, the terminal) stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart

OWN_PREFIXES = ("REPLKERNEL_", "JPY_", "JUPYTERHUB_", "PYDEVD_", "__KMP_", "SLURM_", "NVIDIA_", "_PYDEV")
OWN_NAMES = frozenset({
    "CUDA_VISIBLE_DEVICES", "PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "HOSTNAME", "TERM",
    "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "XDG_RUNTIME_DIR", "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR", "MPLBACKEND", "WINDOWID", "PYTORCH_NVML_BASED_CUDA_CHECK",
})  # fmt: skip


def is_own(name: str) -> bool:
    """Tell whether a variable belongs to one process or host rather than to the notebook."""
    return name in OWN_NAMES or name.startswith(OWN_PREFIXES)


class EnvironPart(OptionsPart):
    """The environment's difference from its birth."""

    cid = ComponentId("@environ")

    def look(self) -> dict[str, Any]:
        """Return a copy of the environment as the system spells it (bytes by bytes on Unix)."""
        return dict(_raw_environ())

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the variables that the notebook owns, as text by bytes."""
        return super().pack(_notebooks(seen))

    def reference(self) -> Mapping[str, Any]:
        """Return the environment at birth, by text names."""
        return _notebooks(self._birth)

    def to_plain(self, name: str, value: Any) -> Any:
        """Return the value as bytes, so that any spelling survives."""
        return os.fsencode(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set and remove variables; a changed time zone takes effect."""
        for name, value in changed.items():
            if not is_own(name):
                os.environ[name] = os.fsdecode(value)
        for name in removed:
            if not is_own(name):
                os.environ.pop(name, None)
        if "TZ" in changed or "TZ" in removed:
            time.tzset()


def _notebooks(raw: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the variables that the notebook owns, by text names."""
    named = {os.fsdecode(name): value for name, value in raw.items()}
    return {name: value for name, value in named.items() if not is_own(name)}


def _raw_environ() -> Mapping[Any, Any]:
    """Return the mapping under ``os.environ``: comparing it costs no decoding."""
    raw = getattr(os.environ, "_data", None)
    return raw if isinstance(raw, dict) else dict(os.environ)
