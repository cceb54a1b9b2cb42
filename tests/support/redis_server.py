"""A real Redis server for tests: Debian's ``redis-server`` on a free loopback port, with a password.

It is started by the test on its own port and directory and ends with `stop`; `start` has it back on
that port, empty. No system service is touched.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.support.ports import free_port
from tests.support.s3_server import die_with_parent

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
PASSWORD = "s3cret-of-redis"


def find_redis() -> str | None:
    """Return the server's binary, or None when it is not installed."""
    return shutil.which("redis-server")


class RedisServer:
    """One running server; `url` reaches it with its password."""

    def __init__(self, directory: Path, *, bytes_max: int = 0) -> None:
        self._binary = find_redis()
        if self._binary is None:
            raise FileNotFoundError("redis-server is not installed: apt-get install redis-server")
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._config = directory / "redis.conf"
        self._config.write_text(
            f'port {self.port}\nbind 127.0.0.1\nrequirepass {PASSWORD}\ndir {directory}\nsave ""\n'
            f"maxmemory {bytes_max}\nmaxmemory-policy noeviction\ndaemonize no\n"
        )
        self._config.chmod(0o600)
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"redis://:{PASSWORD}@{self.address}/0"
        self.log = directory / "redis.log"
        self.start()

    def start(self) -> None:
        """Start the server, for the first time or after `stop`, and wait until it answers."""
        assert self._binary is not None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        try:
            self._await_answer()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1.0):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Redis did not start:\n{self.log.read_text()[-2000:]}") from None
            time.sleep(0.05)
