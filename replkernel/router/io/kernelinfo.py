"""What the kernel says of itself before any replica is up: the content of a stock kernel's kernel_info_reply.

Reads IPython's release facts from its files; importing IPython would cost more than the whole start.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from replkernel.router.core.wire import pack

KERNEL_PROTOCOL_VERSION = "5.3"

_HELP_LINKS = (
    ("Python Reference", "https://docs.python.org/{0}.{1}"),
    ("IPython Reference", "https://ipython.readthedocs.io/en/stable/"),
    ("NumPy Reference", "https://docs.scipy.org/doc/numpy/reference/"),
    ("SciPy Reference", "https://docs.scipy.org/doc/scipy/reference/"),
    ("Matplotlib Reference", "https://matplotlib.org/contents.html"),
    ("SymPy Reference", "http://docs.sympy.org/latest/index.html"),
    ("pandas Reference", "https://pandas.pydata.org/pandas-docs/stable/"),
)


def kernel_info() -> bytes:
    """Return the content of a kernel_info_reply for this Python and the IPython installed with it."""
    version = _ipython_version()
    features = ["kernel subshells"]
    if importlib.util.find_spec("debugpy") is not None:
        features.append("debugger")
    content = {
        "status": "ok",
        "protocol_version": KERNEL_PROTOCOL_VERSION,
        "implementation": "ipython",
        "implementation_version": version,
        "language_info": _language_info(),
        "banner": _banner(version),
        "help_links": [{"text": text, "url": url.format(*sys.version_info[:2])} for text, url in _HELP_LINKS],
        "supported_features": features,
    }
    return pack(content)


def _language_info() -> dict[str, Any]:
    return {
        "name": "python",
        "version": sys.version.split()[0],
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }


def _banner(version: str) -> str:
    lines = [
        f"Python {sys.version.splitlines()[0]}",
        "Type 'copyright', 'credits' or 'license' for more information",
        f"IPython {version} -- An enhanced Interactive Python. Type '?' for help.",
    ]
    tips = _ipython_module("tips")
    with contextlib.suppress(Exception):
        if tips is not None:
            lines.append(f"Tip: {tips.pick_tip()}")
    return "".join(f"{line}\n" for line in lines)


def _ipython_version() -> str:
    release = _ipython_module("release")
    return str(getattr(release, "version", ""))


def _ipython_module(name: str) -> ModuleType | None:
    """Load one of IPython's self-contained data modules from its file, without the package around it."""
    package = importlib.util.find_spec("IPython")
    for directory in (package.submodule_search_locations or []) if package else []:
        path = Path(directory) / "core" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"_replkernel_ipython_{name}", path)
        if not path.exists() or spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception:
            return None
        return module
    return None
