"""A real JupyterHub whose users share GPUs: the scheduler is its service, set up by the one line.

Law: users, groups and quotas are those below; everything ends with the test.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import hub as running
from tests.support.server_life import free_port

AGENTS_TOKEN = "a-token-of-the-agents-of-the-tests"
USING = ("access:services!service=replkernel", "custom:replkernel:lease")
ADMIN = "root-of-hub"
START_S = 60.0
_CONFIG = """
c.JupyterHub.load_groups = {{
    "gpu-users": {{"users": ["alice", "bob"], "properties": {{"gpu_quota": 12}}}},
    "small": {{"users": ["carol"], "properties": {{"gpu_quota": 4, "priority": 1}}}},
}}
c.Authenticator.admin_users = {{{admin!r}}}
from replkernel_server.hub import setup_replkernel
setup_replkernel(
    c,
    groups=["gpu-users", "small"],
    agents_token={agents_token!r},
    address="http://127.0.0.1:{port}",
    environment={{"JUPYTER_DATA_DIR": {data!r}}},
)
"""


class SharedHub:
    """A hub and the scheduler behind its proxy."""

    def __init__(self, found: running.Hub, data: Path) -> None:
        self.running = found
        self.journal = data / "replkernel" / "scheduler" / "journal.sqlite"
        self.url = f"{found.url}services/replkernel"
        self._tokens: dict[str, str] = {}

    def token(self, user: str) -> str:
        """Return a token like that of the user's server."""
        if user not in self._tokens:
            scopes = USING[:1] if user == ADMIN else USING
            self._tokens[user] = self.running.make_token(user, *scopes)[0]
        return self._tokens[user]

    def ask(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return what the scheduler's REST answers, through the proxy."""
        return self.running.call(method, f"services/replkernel/api/v1/{path}", body, token)


@contextlib.contextmanager
def shared_hub(directory: Path, more: str = "") -> Iterator[SharedHub]:
    """Run it in `directory`, and wait until the scheduler answers."""
    data = directory / "scheduler"
    config = _CONFIG.format(admin=ADMIN, agents_token=AGENTS_TOKEN, port=free_port(), data=str(data))
    with running.hub(directory, config + more) as found:
        shared = SharedHub(found, data)
        deadline = time.monotonic() + START_S
        while shared.ask(AGENTS_TOKEN, "GET", "status")[0] != 200:
            assert time.monotonic() < deadline, found.log.read_text()[-5000:]
            time.sleep(0.2)
        yield shared
