"""What an agent measures of its host: CPU time of kernels with all that they start, and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from replkernel.agent.io.death import start_time
from replkernel.agent.io.measuring import cpu_times, used_memory

GIB = 1 << 30
SPINS = """
import subprocess, sys, time
spin = "import time\\nwhile time.process_time() < 0.25: pass\\nprint('up', flush=True)\\ntime.sleep(600)"
subprocess.run([sys.executable, "-c", spin.replace("time.sleep(600)", "")])
subprocess.Popen([sys.executable, "-c", spin], start_new_session=True)
time.sleep(600)
"""


def test_a_kernel_has_the_time_of_all_that_it_has_started_also_of_what_is_over() -> None:
    kernel = subprocess.Popen([sys.executable, "-c", SPINS], stdout=subprocess.PIPE)
    try:
        assert kernel.stdout is not None
        assert [kernel.stdout.readline() for _ in range(2)] == [b"up\n", b"up\n"]
        ((named, (whose, cpu_s)),) = cpu_times({kernel.pid: "k", 2**22 + 1: "gone"}).items()
        assert (named.pid, named.started, whose) == (kernel.pid, start_time(kernel.pid), "k")
        assert cpu_s >= 0.4
        ((_, (_, mine_s)),) = cpu_times({os.getpid(): "me"}).items()
        assert mine_s >= cpu_s
        apart = {
            named.pid: cpu_s for named, (_, cpu_s) in cpu_times({os.getpid(): "me", kernel.pid: "k"}).items()
        }
        assert apart[kernel.pid] >= cpu_s, "it is the nearest kernel's"
    finally:
        for pid in (
            int(pid) for pid in Path(f"/proc/{kernel.pid}/task/{kernel.pid}/children").read_text().split()
        ):
            os.kill(pid, 9)
        kernel.kill()
        kernel.communicate()


def test_memory_that_cannot_be_had_is_used_also_where_a_cgroup_is_the_limit(tmp_path: Path) -> None:
    proc, root = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (root / "pod").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 33554432 kB\nMemFree: 1 kB\nMemAvailable: 25165824 kB\n")
    (proc / "self" / "cgroup").write_text("0::/pod\n")
    assert used_memory(proc, root) == (8 * GIB, 0)
    (root / "pod" / "memory.max").write_text(f"{4 * GIB}\n")
    (root / "pod" / "memory.current").write_text(f"{3 * GIB}\n")
    (root / "pod" / "memory.stat").write_text(f"anon {GIB}\ninactive_file {GIB}\n")
    assert used_memory(proc, root) == (2 * GIB, 4 * GIB)
    (root / "pod" / "memory.max").write_text("max\n")
    assert used_memory(proc, root) == (8 * GIB, 0)
    assert used_memory(tmp_path / "none", root) == (0, 0)
