"""How one of our programs is started: as a module of an interpreter, found where packages lie.

Law: never from the directory it is started in. That may be another user's, who may have laid a module of
our name there, and whoever starts it may be root. `PYTHONPATH` still counts.
"""

from __future__ import annotations

import sys


def module_command(module: str, *arguments: str, python: str = "") -> list[str]:
    """Return the command line that runs `module`, by `python` or else by this interpreter."""
    return [python or sys.executable, "-P", "-m", module, *arguments]


def kernel_command(module: str, *arguments: str, python: str) -> list[str]:
    """Return the command line of an interpreter that will run a notebook's code.

    Not by `-P`: the flag would stay, and IPython takes it for a wish that cells find no modules beside their
    notebook. Start it in a directory of our own, as the agent's is; the module takes it off the path.
    """
    return [python, "-m", module, *arguments]
