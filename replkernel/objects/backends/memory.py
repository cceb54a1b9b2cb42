"""``memory://prefix``: objects in the memory of the process that opens the store, which is the agent.

For trying things out and for tests: what the agent holds is gone when it ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.objects.backend import StoreFault
from replkernel.objects.backends.tree import TreeBackend
from replkernel.objects.url import prefix_of

WARNING = (
    "REPLKERNEL_STORE is memory://, so variables above the inline size live in the memory of this host's "
    "agent alone and are lost when it ends; set file:///directory to keep them."
)


def open_backend(url: str, env: Mapping[str, str]) -> TreeBackend:
    """Open this process's memory; stores of the same URL share it."""
    from fsspec.implementations.memory import MemoryFileSystem

    root = "/replkernel-store/" + prefix_of(url, url[len("memory://") :])
    files = MemoryFileSystem(skip_instance_cache=True)
    return TreeBackend(files, root, _fault, staged=False, warning=WARNING)


def _fault(error: Exception) -> StoreFault:
    return StoreFault(f"failed ({type(error).__name__}: {error})", "restart the agent")
