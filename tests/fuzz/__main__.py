"""`make fuzz`: each target in turn for an equal share of the time; a table and `build/fuzz/*.json`.

0: nothing was found. 1: something was, and lies in `build/fuzz/<target>/`. 3: the fuzzer could not be run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.targets import NAMES

ROOT = Path(__file__).parents[2]
PATHS = {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in (".", "scheduler", "server_ext"))}
OUT = ROOT / "build" / "fuzz"
MINUTES = 10.0
SECONDS_MIN = 5
GRACE_S = 60
"""So much longer a target's process may take to begin and to end."""
NO_FUZZER = 3
REST = "rest_service"
_STAT = re.compile(r"stat::(\w+):\s+(\d+)")
_RUNS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)", re.MULTILINE)
_ARTIFACT = re.compile(r"Test unit written to (\S+)")


def main(argv: Sequence[str] | None = None) -> int:
    """Fuzz; return the exit code."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all targets together")
    parser.add_argument("targets", nargs="*", choices=[*NAMES, REST, []], help="these alone (default: all)")
    options = parser.parse_args(argv)
    missing = [name for name in ("atheris", "schemathesis") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Not installed: {', '.join(missing)}; run `make fuzz`, or pip install 'replkernel[fuzz]'.")
        return NO_FUZZER
    names = options.targets or [*NAMES, REST]
    share_s = max(SECONDS_MIN, int(options.minutes * 60 / len(names)))
    rows = []
    for name in names:
        rows.append(_fuzz(name, share_s))
        (OUT / f"{name}.json").write_text(json.dumps(rows[-1], indent=1) + "\n")
        print(_line(rows[-1]), flush=True)
    return _tell(rows)


def _fuzz(name: str, seconds: int) -> dict[str, Any]:
    """Run one target; return its row."""
    directory = OUT / name
    for left in ("findings.jsonl", "seeds"):
        path = directory / left
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    module = "tests.fuzz.rest" if name == REST else "tests.fuzz.worker"
    command = [sys.executable, "-m", module, name, str(seconds), str(directory)]
    began = time.monotonic()
    with (directory / "log").open("w") as log, tempfile.TemporaryDirectory(prefix="rk-fuzz-") as place:
        try:
            code = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, **PATHS, "TMPDIR": place, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
                stdout=log,
                stderr=log,
                timeout=seconds + GRACE_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -9
    said = (directory / "log").read_text(errors="replace")
    return _row(name, directory, said, code, time.monotonic() - began)


def _row(name: str, directory: Path, said: str, code: int, took_s: float) -> dict[str, Any]:
    stats = {key: int(value) for key, value in _STAT.findall(said)}
    seen = _RUNS.findall(said)
    path = directory / "findings.jsonl"
    findings = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    findings += [{"what": _end(said), "input": Path(found).name} for found in _ARTIFACT.findall(said)]
    if code and not findings:
        findings.append({"what": f"its process ended with {code}: see {directory.relative_to(ROOT)}/log"})
    return {
        "target": name,
        "seconds": round(took_s, 1),
        "executions": stats.get("number_of_executed_units", int(seen[-1][0]) if seen else 0),
        "new_paths": stats.get("new_units_added", 0),
        "coverage": int(seen[-1][1]) if seen else 0,
        "peak_mib": stats.get("peak_rss_mb", 0),
        "findings": findings,
    }


def _end(said: str) -> str:
    for word, what in (
        ("libFuzzer: timeout", "an input takes too long"),
        ("out-of-memory", "an input takes too much memory"),
    ):
        if word in said:
            return what
    return "an input ends the process"


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['target']:<18} {row['seconds']:>7} {row['executions']:>11,} {row['new_paths']:>9,} "
        f"{row['coverage']:>8,} {row['peak_mib']:>5} {len(row['findings']):>8}"
    )


def _tell(rows: list[dict[str, Any]]) -> int:
    """Print the table and what was found; return the exit code."""
    print()
    print("target             seconds  executions new paths coverage   MiB findings")
    for row in rows:
        print(_line(row))
    total = sum(row["executions"] for row in rows)
    found = [(row["target"], finding) for row in rows for finding in row["findings"]]
    print(f"{total:,} executions, {len(found)} findings")
    for name, finding in found:
        print(f"  {name}: {finding['what']} ({finding.get('says', '')[:100]}) {finding.get('input', '')}")
    whole = {"executions": total, "findings": len(found), "targets": rows}
    (OUT / "summary.json").write_text(json.dumps(whole, indent=1) + "\n")
    if found:
        print(f"Inputs lie in {OUT.relative_to(ROOT)}/<target>/; keep one in tests/fuzz/found/<target>/.")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
