"""The imports that every kernel process needs, and what they look up, once in the zygote for all its forks.

Law: starts no thread, opens no ZMQ context, makes no event loop, touches no file of the user's but jedi's.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable

_NEEDED = ("replkernel.kernel.process", "replkernel.kernel.app")

_AT_START = (
    "faulthandler",
    "ipykernel_launcher",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "pdb",
    "tornado.platform.asyncio",
)
"""What a stock kernel imports while it starts."""

_AT_FIRST_USE = (
    "IPython.core.guarded_eval",
    "IPython.core.latex_symbols",
    "IPython.core.magics.execution",
    "IPython.core.magics.namespace",
    "IPython.utils.timing",
    "jedi.inference.finder",
    "pexpect",
    "psutil",
    "pyfastcdc",
    "pygments.formatters.terminal256",
    "pygments.styles",
    "sqlite3",
    "stack_data",
)
"""What it imports at the first error, completion, magic, shell command or history entry."""


def preload() -> None:
    """Import what kernel processes need to start; raises ImportError when replkernel cannot be imported."""
    importlib.import_module("replkernel.kernel.own_builtins").install()
    importlib.import_module("replkernel.kernel.late_debugger").put_off()
    for name in _NEEDED:
        importlib.import_module(name)
    _import_present(_AT_START)
    look_ahead()


def preload_more() -> None:
    """Import what kernel processes need later: the zygote does it when it has a quiet moment.

    `inspect` looks up the file of every module when it writes a process's first traceback, for 100 ms.
    """
    _import_present(_AT_FIRST_USE)
    with contextlib.suppress(ImportError):
        importlib.import_module("replkernel.kernel.late_debugger").load()
    look_ahead()
    with contextlib.suppress(Exception):  # Modules of any kind are asked for their file.
        importlib.import_module("inspect").getmodule(compile("", "<cell>", "exec"))


def practise(wanted: Callable[[], bool]) -> bool:
    """Practise completing until somebody wants something; return whether it was done before that."""
    done: bool = importlib.import_module("replkernel.kernel.practice").practise_until(wanted)
    return done


def look_ahead() -> None:
    """Do once what every process would, with the libraries that are imported by now.

    Find where they are, and their records and reducers; compile patterns.
    """
    importlib.import_module("replkernel.state.libraries.index").look()
    importlib.import_module("replkernel.state.capture.reducer_table").take_optional()
    importlib.import_module("IPython.core.inputtransformer2").TransformerManager().transform_cell("pass\n")
    importlib.import_module("replkernel.state.patches.own_modules").own_modules()


def _import_present(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
