"""A notebook on a host whose agent opens GPUs by an administrator's program: what its user sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live import eventually, kernel
from tests.support.scheduler_service import serving

pytestmark = [pytest.mark.timeout(200), pytest.mark.one_machine]
HOST = "guarded"
HOOK = """#!/bin/sh
if test -e {place}/stuck; then echo 'the door is stuck' >&2; exit 1; fi
cat >> {place}/asked; echo >> {place}/asked
"""


def test_a_cell_runs_once_its_gpu_is_open_and_says_why_where_it_is_not(
    tmp_path: Path, short_dir: Path
) -> None:
    hook = short_dir / "hook"
    hook.write_text(HOOK.format(place=short_dir))
    hook.chmod(0o755)
    command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", HOST, "--fake-gpus", "1"]

    def asked() -> list[dict[str, object]]:
        file = short_dir / "asked"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    with serving() as service:
        own = {"REPLKERNEL_SCHEDULER_URL": service.url, "REPLKERNEL_DEVICE_HOOK": str(hook)}
        agent = subprocess.Popen(command, env=os.environ | own, stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: HOST in str(service.rest.get("status")[1]), "the host's GPUs", 60)
            settings = {"REPLKERNEL_SCHEDULER_URL": service.url, "REPLKERNEL_HOSTS": HOST}
            with kernel(tmp_path, REPLKERNEL_REPLICAS="1", **settings) as live:
                assert live.run("import os", 60).error == "", "its process is there before it gets a GPU"
                ran = live.run("%%gpu 1\nx = os.getpid(); print(x)", 60)
                assert (ran.error, ran.said["gpus"]) == ("", [f"GPU-fake-{HOST}-0"])
                [call] = asked()
                assert call["action"] == "bind" and call["gpus"] == ran.said["gpus"]
                assert call["pids"] == [int(ran.out)], "the hook was not told of the kernel's process"
                assert live.run("%gpu release", 60).error == ""
                eventually(lambda: len(asked()) == 2, "the release")
                assert asked()[1]["action"] == "release" and asked()[1]["owner_gpus"] == []
                (short_dir / "stuck").touch()
                ran = live.run("%%gpu 1\nx = 0", 60)
                assert f"host {HOST} has not opened its GPUs for it" in ran.error
                assert "the door is stuck" in ran.error
                (short_dir / "stuck").unlink()
                ran = live.run("%%gpu 1\nprint(x == os.getpid())", 60)
                assert (ran.error, ran.out.strip()) == ("", "True"), "the cell that was refused has run"
        finally:
            agent.terminate()
            agent.wait(60)
