"""``python -m replkernel.router -f CONNECTION_FILE``: what a router does before it imports anything heavy.

Law: where no agent is, one is started first of all, so that both start up side by side; nothing is imported
from the directory that the kernel is started in.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # As typing's own, whose import takes as long as all that is done here.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from replkernel.agent.io.start import Start

_FILE_OPTIONS = ("-f", "--f", "--IPKernelApp.connection_file")
_VS_CODES = "kernel-v"
"""How the name of a connection file begins that VS Code's Jupyter extension writes: `kernel-v2-…` until
August 2024, `kernel-v3…` since. Jupyter writes `kernel-` and an id of hexadecimal digits."""


def read_arguments(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the connection file's name and the options that are meant for the kernel processes."""
    name = ""
    extra: list[str] = []
    pending = False
    for argument in argv:
        option, equals, value = argument.partition("=")
        if pending:
            name, pending = argument, False
        elif option in _FILE_OPTIONS:
            name, pending = (value, False) if equals else (name, True)
        else:
            extra.append(argument)
    return name, tuple(extra)


def is_of_vs_code(name: str) -> bool:
    """Tell whether VS Code has written a connection file: a new one each time, whatever the notebook."""
    base = os.path.basename(name)
    return base.startswith(_VS_CODES) and base[len(_VS_CODES) :][:1].isdigit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the router; return 0, or 1 or 2 when the connection file or a port cannot be used."""
    from replkernel.launch.configured import take_configured
    from replkernel.launch.given_ports import take_given
    from replkernel.launch.module_command import module_command
    from replkernel.router.io.parent import LAUNCHER_PID

    name, extra = read_arguments(sys.argv[1:] if argv is None else argv)
    given = take_given(os.environ)
    if LAUNCHER_PID not in os.environ:
        if is_of_vs_code(name):
            os.execv(sys.executable, module_command("replkernel.porter", "-f", name))
        take_configured(os.environ)
    begun = _begin_agent(name)
    gc.disable()  # Imports make next to no garbage.
    from replkernel.router.io.serve import serve

    gc.freeze()
    gc.enable()
    return serve(name, extra, begun, given)


def _begin_agent(name: str) -> Start | None:
    """Begin to start the first host's agent, if this looks like a kernel that is going to need it."""
    from replkernel.agent.io.start import begin_early
    from replkernel.hosts.places import hosts_are_chosen, named_hosts, own_host

    if not os.path.exists(name) or hosts_are_chosen(os.environ):
        return None
    hosts = named_hosts(os.environ) or (own_host(os.environ),)
    return begin_early(hosts[0], os.environ)


def _forget_start_directory() -> None:
    """Take the directory that ``-m`` put there off the search path: a notebook's folder may hold anything."""
    if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


if __name__ == "__main__":
    _forget_start_directory()
    sys.exit(main())
