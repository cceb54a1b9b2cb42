"""`make audit`: what is known to be wrong with the packages of the lock, and with those of the lab extension.

Law: who could not be asked has said nothing; no question that failed counts as an answer.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "dev.lock"
NONE, FOUND, NOT_ASKED = 0, 1, 4
LIMIT_S = 300
_ID = re.compile(r"^\| ((?:GHSA|CVE|PYSEC)-[A-Za-z0-9-]+) \|", re.MULTILINE)


class Answer(NamedTuple):
    """What one service has said: advisories as id and text, and why it was not asked about something."""

    who: str
    known: dict[str, str]
    not_asked: str


def listed(security: str) -> set[str]:
    """Return the advisories that `SECURITY.md` lists, each with a reason there."""
    return set(_ID.findall(security))


def of_pip_audit(said: str, complaint: str) -> Answer:
    """Return what pip-audit's JSON says; what it skipped it has not looked up."""
    try:
        packages: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Answer("pip-audit", {}, _last_line(complaint) or "it gave no answer")
    known = {
        wrong["id"]: f"{package['name']} {package['version']}, mended in {_versions(wrong['fix_versions'])}"
        for package in packages
        for wrong in package.get("vulns", ())
    }
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if not packages:
        return Answer("pip-audit", {}, "it was given no packages")
    what = f"{len(skipped)} of {len(packages)} packages are unknown to its service ({', '.join(skipped[:3])})"
    return Answer("pip-audit", known, what if skipped else "")


def of_npm(said: str, complaint: str) -> Answer:
    """Return what npm's JSON says."""
    try:
        report: dict[str, Any] = json.loads(said)
        packages: Mapping[str, Any] = report["vulnerabilities"]
    except (ValueError, KeyError, TypeError):
        return Answer("npm audit", {}, _message(said) or _last_line(complaint) or "it gave no answer")
    known = {
        str(wrong["url"]).rpartition("/")[2]: f"{name}: {wrong['title']}"
        for name, package in packages.items()
        for wrong in package["via"]
        if isinstance(wrong, dict)
    }
    return Answer("npm audit", known, "")


def told(answers: Iterable[Answer], accepted: set[str]) -> tuple[list[str], int]:
    """Return what to say, line by line, and the exit code."""
    lines, code = [], NONE
    for answer in answers:
        new = {name: what for name, what in answer.known.items() if name not in accepted}
        lines += [f"{answer.who}: {name}: {what}" for name, what in sorted(new.items())]
        if answer.not_asked:
            lines.append(f"{answer.who}: COULD NOT BE ASKED, so nothing is known: {answer.not_asked}")
            code = code or NOT_ASKED
        elif not new:
            lines.append(f"{answer.who}: nothing is known but what SECURITY.md lists")
        if new:
            code = FOUND
    return lines, code


def _ask(command: list[str]) -> tuple[str, str]:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"{command[0]}: {error}"
    return done.stdout, done.stderr


def _message(said: str) -> str:
    try:
        found: str = json.loads(said)["message"]
    except (ValueError, KeyError, TypeError):
        return ""
    return found.replace("\n", " ")[:200]


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


def _versions(versions: list[str]) -> str:
    return ", ".join(versions) or "no version yet"


def main() -> int:
    """Ask both services; return the exit code."""
    program = str(Path(sys.executable).with_name("pip-audit"))
    locked = ["--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--format", "json"]
    answers = [of_pip_audit(*_ask([program, *locked, "--progress-spinner", "off"]))]
    if shutil.which("npm"):
        answers.append(of_npm(*_ask(["npm", "audit", "--json", "--package-lock-only"])))
    else:
        answers.append(Answer("npm audit", {}, "node was not found"))
    lines, code = told(answers, listed((ROOT / "SECURITY.md").read_text()))
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
