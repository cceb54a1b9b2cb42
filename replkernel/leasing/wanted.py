"""What a new kernel asks for before any of its cells has: its notebook's own metadata, else the setting.

Law: it only counts for where the kernel begins and what it subscribes to; what cannot be understood is one
sentence, and counts as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from replkernel.errors import SettingError
from replkernel.leasing.request import (
    GPUS_DEFAULT_MAX,
    BadGpuRequest,
    GpuRequest,
    kernels_request,
    parse_request,
)

REQUEST = "REPLKERNEL_REQUEST"
NOTEBOOK = "JPY_SESSION_NAME"
"""Where Jupyter Server names the notebook that a kernel is for."""
NOTEBOOK_BYTES_MAX = 64 * 1024 * 1024


def wanted_by(env: Mapping[str, str]) -> tuple[GpuRequest | None, str]:
    """Return the kernel's request, and what there is to tell of it (or nothing)."""
    try:
        asked = _of_notebook(env.get(NOTEBOOK, ""))
    except BadGpuRequest as error:
        return _of_setting(env), f"{error} Until then the kernel begins without that request."
    return (_of_setting(env) if asked is None else asked), ""


def check_request(text: str) -> str:
    """Return the setting if it can be understood; raises SettingError."""
    try:
        if text:
            parse_request(text, GPUS_DEFAULT_MAX, kernels=True)
    except BadGpuRequest as error:
        problem = str(error).partition(": ")[2].partition(";")[0] or str(error).rstrip(".")
        raise SettingError(REQUEST, text[:80], problem, f"set {REQUEST}='1 --cpu 4 --memory 32'") from error
    return text


def _of_setting(env: Mapping[str, str]) -> GpuRequest | None:
    text = check_request(env.get(REQUEST, "").strip())
    return parse_request(text, GPUS_DEFAULT_MAX, kernels=True) if text else None


def _of_notebook(name: str) -> GpuRequest | None:
    """Return what a notebook's file asks for, if it is one that can be read."""
    if not name.endswith(".ipynb"):
        return None
    try:
        with Path(name).open("rb") as file:
            document = file.read(NOTEBOOK_BYTES_MAX + 1)
    except (OSError, ValueError):
        return None  # It is not written yet, or lies elsewhere.
    asked = kernels_request(document) if len(document) <= NOTEBOOK_BYTES_MAX else None
    if asked is not None and asked.gpus > GPUS_DEFAULT_MAX:
        raise BadGpuRequest(
            f"The notebook's metadata ask for {asked.gpus} GPUs, and one kernel is placed for "
            f"{GPUS_DEFAULT_MAX} at most: write a smaller number there."
        )
    return asked
