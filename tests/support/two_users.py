"""A machine with two Unix users and nobody else's processes, for what needs real accounts.

`apart(deed)` runs a function of a test in namespaces of its own: its /etc/passwd has alice and bob, its /tmp
is empty, and all that was started there ends with it. Law: the machine itself is left as it is.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.second_user import needs_root

ALICE, BOB = 12346, 12347
USERS = {"alice": ALICE, "bob": BOB}
HOMES = Path("/tmp/homes")
SEPARATE = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
]

needs_users = [
    needs_root,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare (util-linux) is not installed"),
]


def apart(deed: Callable[..., Any], *given: str, env: dict[str, str] | None = None) -> Any:
    """Run a function of a test module as root of that machine; return what it returns, by JSON."""
    command = [
        *SEPARATE,
        sys.executable,
        "-m",
        "tests.support.two_users",
        deed.__module__,
        deed.__name__,
        *given,
    ]
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JUPYTER_", "REPLKERNEL_", "IPYTHON"))
    }
    done = subprocess.run(
        command, env=own | (env or {}), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _settle() -> None:
    """Make the machine."""
    _show_interpreter()
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for file, line in (("passwd", "{name}:x:{uid}:{uid}::{home}:/bin/sh\n"), ("group", "{name}:x:{uid}:\n")):
        known = Path("/etc", file).read_text()
        more = "".join(line.format(name=name, uid=uid, home=HOMES / name) for name, uid in USERS.items())
        if file == "group":
            more += "gpu-people:x:12399:alice\n"
        fresh = Path("/tmp", file)
        fresh.write_text(known + more)
        _mount("--bind", str(fresh), f"/etc/{file}")
    HOMES.mkdir(mode=0o755)
    for name, uid in USERS.items():
        (HOMES / name).mkdir(mode=0o700)
        os.chown(HOMES / name, uid, uid)


def _show_interpreter() -> None:
    """Let everybody run the interpreter, where it lies in a directory of root's alone."""
    base = Path(os.path.realpath(sys.base_prefix))
    hidden = [part for part in reversed(base.parents) if not part.stat().st_mode & 0o001]
    if not hidden:
        return
    kept = Path("/mnt")
    _mount("-t", "tmpfs", "tmpfs", str(kept))
    (kept / "base").mkdir()
    _mount("--bind", str(base), str(kept / "base"))
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(hidden[0]))
    base.mkdir(parents=True)
    _mount("--bind", str(kept / "base"), str(base))


def as_login(name: str, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user with nothing but his own environment."""
    own = {"HOME": str(HOMES / name), "USER": name, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    return subprocess.run(
        command,
        env=own | env,
        user=USERS[name],
        group=USERS[name],
        extra_groups=[],
        cwd=HOMES / name,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


if __name__ == "__main__":
    _settle()
    module, name, *given = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(*given)))
