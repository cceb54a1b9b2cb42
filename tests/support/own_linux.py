"""Tests in a Linux of their own, with cgroup v2 alone: `python -m tests.support.own_linux TEST…`.

Most machines that build this hand out cgroup v1, or none. User-mode Linux (Debian's `user-mode-linux`) is a
kernel that runs as a process, needs no rights, and sees this machine's files; the tests' outcome is its own.
It is slow, so only what needs it belongs here.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = "linux.uml"
MEMORY = "2G"
DONE = "own_linux: pytest ended with "
INIT = """#!/bin/sh
export PATH={path} HOME=/root PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
cd {root}
{python} -m pytest -q -rs -p no:cacheprovider -o timeout=0 {tests}
echo "{done}$?"
halt -f
"""


def run(tests: list[str]) -> int:
    """Run these tests there; return pytest's exit code, 1 where Linux did not come so far."""
    linux = shutil.which(KERNEL)
    if linux is None:
        print(f"There is no {KERNEL}: `apt-get install user-mode-linux` brings it.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as directory:
        init = Path(directory) / "init"
        words = {"path": os.environ["PATH"], "root": shlex.quote(str(ROOT)), "python": sys.executable}
        init.write_text(INIT.format(**words, tests=shlex.join(tests), done=DONE))
        init.chmod(0o700)
        console = ["con=null", "con0=null,fd:1", "quiet"]
        drive = ["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", f"mem={MEMORY}", f"init={init}"]
        with subprocess.Popen(
            [linux, *drive, *console], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        ) as guest:
            code = 1
            assert guest.stdout is not None
            for line in guest.stdout:
                print(line, end="", flush=True)
                if line.startswith(DONE):
                    code = int(line.removeprefix(DONE))
    return code


if __name__ == "__main__":
    (ROOT / "build").mkdir(exist_ok=True)
    sys.exit(run(sys.argv[1:] or ["tests/integration/test_cell_limits.py"]))
