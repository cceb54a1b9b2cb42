"""Puts a stand-in for kernel processes in place: interpreters with this directory on PYTHONPATH fork it.

Only the two modules that a zygote calls are replaced; the line to the agent is the real one.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_REPLACED = {
    "replkernel.kernel.preload": _HERE / "standin_preload.py",
    "replkernel.kernel.process": _HERE / "standin_process.py",
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        file = _REPLACED.get(fullname)
        return None if file is None else importlib.util.spec_from_file_location(fullname, file)


sys.meta_path.insert(0, _Finder())
