"""The marks of GPU use in names and text constants."""

from __future__ import annotations

import re

GPU_NAMES = frozenset({
    "cuda", "cupy", "cudf", "cuml", "cugraph", "pycuda", "DataParallel", "DistributedDataParallel",
})  # fmt: skip
"""Attributes, modules and variables whose mention means that a GPU is wanted."""

_DEVICE_TEXT = re.compile(r"/?(?:device:)?(?:cuda|gpu)(?::\d+)?", re.IGNORECASE)
DEVICE_TEXT_MAX = 24


def is_gpu_text(text: str) -> bool:
    """Tell whether a text constant names a GPU: ``cuda``, ``cuda:1``, ``/GPU:0``, ``gpu``."""
    return len(text) <= DEVICE_TEXT_MAX and _DEVICE_TEXT.fullmatch(text) is not None
