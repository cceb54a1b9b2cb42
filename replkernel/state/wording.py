"""What is captured beside variables, in words: users read of it, and no variable of theirs has its name.

Pure. Law: a variable's name is returned as it is.
"""

from __future__ import annotations

from replkernel.state.component_table import PROCESS_PREFIX
from replkernel.state.hooks import HOOKS_ROOT, REGISTRATIONS
from replkernel.state.patches.places import PREFIX as LIBRARY_PREFIX
from replkernel.state.python.class_registry import ROOT_PREFIX

CELLS = "@cells/"
"""The ids of what has the sources of cells begin with it."""

PARTS = {
    "@colours": "names of colours",
    "@counters": "counters of libraries",
    "@cwd": "working directory",
    "@decimal": "decimal context",
    "@environ": "environment variables",
    "@figure_formats": "formats of figures",
    "@hints": "transient and kept variables",
    "@history": "history",
    "@inline_backend": "settings of figures",
    "@interpreter": "settings of Python",
    "@ipython_config": "settings of IPython",
    "@ipython_extensions": "extensions of IPython",
    "@ipython_hooks": "callbacks of IPython",
    "@ipython_magics": "magics",
    "@ipython_traits": "completer and formatters",
    "@locale": "locale",
    "@logging": "loggers",
    "@matplotlib": "settings of matplotlib",
    "@modules": "imported modules",
    "@nest_asyncio": "nested event loops",
    "@numpy_options": "settings of numpy",
    "@numpy_random": "random numbers of numpy",
    "@odd_names": "keys of globals()",
    "@own_modules": "sources of modules",
    "@pandas_options": "settings of pandas",
    "@patches": "changes in libraries",
    "@random": "random numbers",
    "@same": "equal values that are one",
    "@seaborn": "settings of seaborn",
    "@seldom": "open files and rare settings",
    "@signals": "signal handlers and alarms",
    "@sklearn_ids": "displays of scikit-learn",
    "@sklearn_options": "settings of scikit-learn",
    "@streams": "standard output and error",
    "@sys_path": "module search path",
    "@torch_cuda_random": "random numbers of torch on GPUs",
    "@torch_options": "settings of torch",
    "@torch_random": "random numbers of torch",
    "@warned_once": "warnings of torch that were shown",
    "@warnings": "filters of warnings",
    "@warnings_shown": "warnings that were shown",
}
"""The parts of the process's state by their ids."""


def part_in_words(cid: str) -> str:
    """Return what a part of the process's state is."""
    if cid.startswith(CELLS):
        return "sources of cells"
    return f"process: {PARTS.get(cid, cid.removeprefix(PROCESS_PREFIX).replace('_', ' '))}"


def root_in_words(root: str) -> str:
    """Return what a component binds under a name, if that is no variable's."""
    if root.startswith(ROOT_PREFIX):
        return f"class {root.removeprefix(ROOT_PREFIX).partition('@')[0]}"
    if root.startswith(LIBRARY_PREFIX):
        return root.removeprefix(LIBRARY_PREFIX).replace(":", ".")
    return REGISTRATIONS if root == HOOKS_ROOT else root
