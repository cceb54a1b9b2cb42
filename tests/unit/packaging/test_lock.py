"""The lock has all that developing needs, with digests; an audit says what was looked up, no more."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements import audit, lock

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = (ROOT / "requirements/dev.lock").read_text()
PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]+))?(?: \\)?\n((?:    --hash=.*\n?)*)", re.MULTILINE
)


def test_everything_that_developing_needs_is_locked_with_digests() -> None:
    locked = {canonicalize_name(pin[1]): pin for pin in PIN.finditer(LINES)}
    extras = [wanted for extra in lock.EXTRAS for wanted in PROJECT["optional-dependencies"][extra]]
    for text in [*PROJECT["dependencies"], *extras]:
        wanted = Requirement(text)
        if wanted.name in lock.NOT_LOCKED:
            assert canonicalize_name(wanted.name) not in locked
            continue
        pin = locked[canonicalize_name(wanted.name)]
        assert wanted.specifier.contains(pin[2], prereleases=True), f"run `make lock`: {text}, {pin[2]}"
    assert all("--hash=sha256:" in pin[4] for pin in locked.values())
    assert default_environment()["python_version"] >= lock.PYTHON


def test_the_lock_names_no_index_and_no_place() -> None:
    assert not re.search(r"https?:|file:|index-url|find-links", LINES)


def test_torchs_needs_are_said_of_the_version_that_is_pinned() -> None:
    said = tomllib.loads((ROOT / "requirements/uv.toml").read_text())["dependency-metadata"][0]
    assert f"torch=={said['version']}" in PROJECT["optional-dependencies"]["dev"]


def test_a_package_that_was_passed_over_was_not_looked_up() -> None:
    skipped = {"name": "requests", "skip_reason": "Dependency not found"}
    answer = audit.of_pip_audit(json.dumps({"dependencies": [skipped]}), "")
    lines, code = audit.told([answer], set())
    assert code == audit.NOT_ASKED
    assert "COULD NOT BE ASKED" in lines[0] and "requests" in lines[0]


@pytest.mark.parametrize("said", ["", "nonsense", "[]", '{"dependencies": []}', '{"message": "405 Method"}'])
def test_no_answer_is_not_an_answer(said: str) -> None:
    for answer in (audit.of_pip_audit(said, "no way\n"), audit.of_npm(said, "no way\n")):
        assert audit.told([answer], set())[1] == audit.NOT_ASKED


def test_a_known_vulnerability_is_told_unless_it_is_listed_with_a_reason() -> None:
    wrong = {"id": "PYSEC-2026-1", "fix_versions": ["2.0"]}
    packages = [
        {"name": "one", "version": "1.0", "vulns": [wrong]},
        {"name": "two", "version": "1", "vulns": []},
    ]
    python = audit.of_pip_audit(json.dumps({"dependencies": packages}), "")
    via = [{"url": "https://example.org/advisories/GHSA-aaaa-bbbb-cccc", "title": "bad"}, "another"]
    node = audit.of_npm(json.dumps({"vulnerabilities": {"three": {"via": via}}}), "")
    lines, code = audit.told([python, node], set())
    assert code == audit.FOUND
    assert [line.split(": ")[1] for line in lines] == ["PYSEC-2026-1", "GHSA-aaaa-bbbb-cccc"]
    accepted = audit.listed("| PYSEC-2026-1 | one | no |\n| GHSA-aaaa-bbbb-cccc | three | no |\n")
    assert audit.told([python, node], accepted)[1] == audit.NONE
    assert audit.told([python, audit.of_npm("", "")], set())[1] == audit.FOUND
