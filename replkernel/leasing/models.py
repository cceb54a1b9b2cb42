"""What GPU models are called: one short name for what drivers, sellers and people write in many ways. Pure.

Law: the host that offers a GPU and the cell that asks for one get the same name from the same model.
"""

from __future__ import annotations

import re

_BRANDS = frozenset({"NVIDIA", "TESLA", "QUADRO", "GEFORCE", "GRAPHICS", "DEVICE", "GPU"})
_BUILD = re.compile(r"\d+\s*GI?B|SXM\d*|PCIE|HBM\w*|NVL|MIG|\dG\.\d+GB")
"""Size, socket and memory: people ask for the size by itself."""


def model_name(name: str) -> str:
    """Return the short name: `H100` for `NVIDIA H100 80GB HBM3` and for `h100`."""
    words = name.upper().replace("-", " ").replace("_", " ").split()
    kept = [word for word in words if word not in _BRANDS and not _BUILD.fullmatch(word)]
    return " ".join(kept or words)
