"""`python -m replkernel.agent --name NAME [--fake-gpus N]`: the host agent.

Law: the first zygote is spawned before anything heavy is imported, so that both start up side by side.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


def main(arguments: list[str]) -> NoReturn:
    """Spawn the first zygote, then become the agent."""
    from replkernel.agent.io.early import be_nobodys_child, name_places_absolutely, parse, spawn_first

    options = parse(arguments)
    if options.ready_fd is not None:  # Whoever starts an agent in the foreground keeps it as a child.
        be_nobodys_child()
    name_places_absolutely(os.environ)
    first = spawn_first(options, os.environ)
    gc.disable()  # Imports make next to no garbage.
    from replkernel.agent.io.app import run_agent

    gc.freeze()
    gc.enable()
    run_agent(options, os.environ, first)


if __name__ == "__main__":
    main(sys.argv[1:])
