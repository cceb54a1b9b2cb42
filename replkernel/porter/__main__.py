"""``python -m replkernel.porter -f CONNECTION_FILE``: what a front end starts that ends its descendants.

The process that it starts only waits; the proxy is another one, nobody's child. Each sees by a pipe that the
other has ended. Law: nothing heavy is imported before the processes are apart.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import NoReturn

LOG_BYTES_MAX = 1024 * 1024


def main(argv: list[str]) -> int:
    """Serve the connection file until told to end; return 0, or 1 when the kernel has ended by itself."""
    from replkernel.router.__main__ import read_arguments

    name, _ = read_arguments(argv)
    opener, began = os.getppid(), time.time()
    ours, theirs = os.pipe(), os.pipe()
    first = os.fork()
    if not first:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(ours[1])
        os.close(theirs[0])
        _serve(name, opener, began, ours[0])
    os.close(ours[0])
    os.close(theirs[1])
    os.waitpid(first, 0)
    return _wait(theirs[0])


def _wait(proxy: int) -> int:
    """Wait for a signal, or for the proxy's end."""
    told, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready, _, _ = select.select([proxy, told], [], [])
    if told in ready:
        return 0
    said = "the kernel has ended, or could not be started; the reason is in"
    sys.stderr.write(f"replkernel: {said} {_log_path()}.\n")
    return 1


def _log_path() -> str:
    from replkernel.hosts.places import data_place

    return os.path.join(data_place(os.environ), "logs", "proxies.log")


def _serve(name: str, opener: int, began: float, alive: int) -> NoReturn:
    """Be the proxy, away from the front end's terminal and pipes."""
    path = _log_path()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES_MAX:
        os.replace(path, f"{path}.1")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, number)
    code = 1
    try:
        import asyncio

        asyncio.run(_open(name, opener, began, alive))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


async def _open(name: str, opener: int, began: float, alive: int) -> None:
    import asyncio

    from replkernel.agent.io.death import start_time
    from replkernel.launch.notebook_link import Opener
    from replkernel.porter.proxy import Proxy
    from replkernel.router.io.connection import find_connection_file, read_connection_file

    file = read_connection_file(find_connection_file(name, os.environ))
    closed = asyncio.Event()
    asyncio.get_running_loop().add_reader(alive, closed.set)
    await Proxy(file, Opener(opener, start_time(opener)), began, dict(os.environ)).serve(closed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
