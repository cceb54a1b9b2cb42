"""replkernel_server: the Jupyter Server extension, and the scheduler's service."""

from __future__ import annotations

from typing import Any

from replkernel import __version__ as __version__


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from replkernel_server.extension import ReplkernelExtension

    return [{"module": "replkernel_server", "app": ReplkernelExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "@replkernel/labextension"}]
