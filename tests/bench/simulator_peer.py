"""Jobs a second beside AccaSim, on the same files of the Standard Workload Format under EASY, in one run.

KTH-SP2 on its 100 nodes, UniLu-Gaia on 150 nodes of 12 cores, the first jobs of RICC on its 1,024 nodes of 8
(its log is wanted as `pwa/RICC-2010-2.swf.gz` among the traces, else it is left out), and the first jobs of
Philly on 512 GPUs, where many wait. Both play one after the other on one core; AccaSim has an environment of
its own, made at the first run. A core that `make compiled` has built is played beside the Python one.
The core that also runs live is played under EASY as well, on one host of as many processors, for its leases
are of one host; AccaSim is given the same. And first come, first served, beside AccaSim's FIFO, on two hosts
of 64 (jobs wider than 64 are refused; AccaSim spreads them).

What is alike: the rows of the file (AccaSim keeps eight of KTH-SP2 that have no run time, which we count as
empty), the nodes and cores, the times asked for, reading included (both parse while they play or before),
no file written, one process and one thread of work, processor time. AccaSim's is its own EASYBackfilling with
its own FirstFit, which is what its authors measure; its log is at warnings, and what it writes is off.
What is not: we also keep percentiles, slowdowns, GPU-hours over time and money, quotas, fences, accounts and
timers of leases, and tell each that waits where it stands. AccaSim lists waits and slowdowns; it keeps the
first reservation that it made for a job until its time has come, where we look ahead at each event, so both
backfill otherwise and the waits differ. One node is its best case, and ours: nothing is searched.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile

from tests.bench.report import BUILD, Result
from tests.paper.traces import NoTrace, trace

HERE = Path(__file__).parent
ACCASIM, VERSION = BUILD.parent / "accasim", "accasim==1.1.3"
PHILLY_JOBS, RICC_JOBS = 2000, 10_000
COMPILED = BUILD.parent / "compiled"
RICC = "pwa/RICC-2010-2.swf.gz"
CASES = (
    ("KTH-SP2", "pwa/KTH-SP2-1996-2.1-cln.swf.xz", "100x1", "easy", "sq,m=1"),
    ("UniLu-Gaia", "unilu_gaia/UniLu-Gaia-2014-1.swf.xz", "150x12", "easy", "sq,m=1"),
    ("RICC", RICC, "1024x8", "easy", "sq,m=1"),
    ("Philly", "philly/philly_rfold_111k.csv", "64x8", "easy", "sq,m=1"),
    ("KTH-SP2, live core", "pwa/KTH-SP2-1996-2.1-cln.swf.xz", "1x100", "easy", "easy-batch"),
    ("UniLu-Gaia, live core", "unilu_gaia/UniLu-Gaia-2014-1.swf.xz", "1x1800", "easy", "easy-batch"),
    ("RICC, live core", RICC, "2x4096", "easy", "easy-batch"),
    ("Philly, live core", "philly/philly_rfold_111k.csv", "1x512", "easy", "easy-batch"),
    ("KTH-SP2, live core, in turn", "pwa/KTH-SP2-1996-2.1-cln.swf.xz", "2x64", "fifo", "fcfs-batch"),
)
TIMEOUT_S = 1800.0


def ours(file: str, cluster: str, policy: str) -> dict[str, float]:
    """Play a file, and return what that took."""
    hosts, cores = (int(number) for number in cluster.split("x"))
    began = time.process_time()
    with Spool(forms.read(TraceFile(Path(file)))) as spool:
        run = play(spool, any_way_named(policy), Plan(hosts=hosts, gpus_per_host=cores))
    took = time.process_time() - began
    assert run.jobs.wait_s is not None
    return {"jobs": run.jobs.served, "cpu_s": took, "mean_wait_s": run.jobs.wait_s.mean}


def measure() -> Result:
    """Play all cases with both; the headline is KTH-SP2 under EASY."""
    python = _accasim()
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, path, cluster, discipline, policy in CASES:
            try:
                file = _swf(trace(path), Path(directory))
            except NoTrace as error:
                print(f"{name}: left out, {error}")
                continue
            mine_command = [sys.executable, "-m", "tests.bench.simulator_peer", str(file), cluster, policy]
            mine = _run(mine_command)
            peer = [str(python), str(HERE / "peer_accasim.py"), str(file), cluster, discipline, directory]
            theirs = _run(peer)
            compiled = None
            if "live core" in name and (COMPILED / "replkernel_scheduler").exists():
                compiled = _run(mine_command, PYTHONPATH=str(COMPILED))
            for run in (mine, theirs, *([compiled] if compiled else [])):
                run["jobs_a_s"] = run["jobs"] / run["cpu_s"]
            ratio = mine["jobs_a_s"] / theirs["jobs_a_s"]
            found[name] = {"ours": mine, "accasim": theirs, "ratio": ratio, "cluster": cluster}
            found[name] |= {} if compiled is None else {"compiled": compiled}
            each = [
                f"{run['jobs_a_s']:,.0f} jobs/s (wait {run['mean_wait_s']:,.0f} s)" for run in (mine, theirs)
            ]
            faster = "" if compiled is None else f"; compiled {compiled['jobs_a_s'] / theirs['jobs_a_s']:.1f}"
            print(f"{name}: ours {each[0]}, AccaSim {each[1]}: {ratio:.1f} times{faster}")
    first = found[CASES[0][0]]
    goal = "10 times AccaSim's jobs/s"
    samples = [first["ours"]["jobs_a_s"]], [first["accasim"]["jobs_a_s"]]
    return Result("simulator_peer", "jobs/s", *samples, goal, {"cases": found, "peer": VERSION})


def _accasim() -> Path:
    """Return the Python of an environment that has AccaSim, and make it at the first use."""
    python = ACCASIM / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", VERSION, "setuptools"]
    if not (ACCASIM / "installed").exists():
        for command in ([sys.executable, "-m", "venv", "--clear", str(ACCASIM)], install):
            subprocess.run(command, check=True, timeout=TIMEOUT_S)
        (ACCASIM / "installed").touch()
    return python


def _swf(path: Path, directory: Path) -> Path:
    """Return an unpacked file of the form; Philly's is made of its first jobs, in whole seconds."""
    made = directory / path.name.removesuffix(".xz").removesuffix(".gz").replace(".csv", ".swf")
    if made.exists():
        return made
    if path.suffix == ".gz":
        with gzip.open(path, "rt") as packed:
            made.write_text("".join(islice((line for line in packed if line[0] != ";"), RICC_JOBS)))
        return made
    if path.suffix == ".xz":
        made.write_bytes(lzma.decompress(path.read_bytes()))
        return made
    jobs = sorted(forms.read(TraceFile(path)), key=lambda job: job.at)
    with made.open("w") as file:
        for number, job in enumerate(islice(jobs, PHILLY_JOBS), 1):
            run_s, width = max(1, round(job.duration_s)), job.width  # type: ignore[union-attr]
            at = round(job.at - jobs[0].at)
            file.write(f"{number} {at} -1 {run_s} {width} -1 -1 {width} {run_s} -1 1 1 1 1 1 1 -1 -1\n")
    return made


def _run(command: list[str], **more: str) -> dict[str, Any]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env={**os.environ, **more}
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(ours(*sys.argv[1:])))
