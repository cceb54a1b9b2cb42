"""What is published says the same as the repository: npm package, conda recipe, versions, Pythons."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from release import npm, version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = json.loads((ROOT / "package.json").read_text())
RECIPE = (ROOT / "release/recipe.yaml").read_text()
CONDA = {"blake3": "python-blake3", "xxhash": "python-xxhash"}
"""Packages that have another name on conda-forge."""
PYTHONS = SpecifierSet(PROJECT["requires-python"])


def test_the_npm_package_is_public_and_has_what_a_front_end_needs() -> None:
    made = npm.published(PACKAGE)
    assert "private" not in made
    assert made["publishConfig"] == {"access": "public"}
    assert made["main"] == "lib/index.js"
    assert made["jupyterlab"] == {"extension": "lib/index.js", "schemaDir": "schema"}
    assert {"lib/**/*.{d.ts,js}", "schema/*.json"} <= set(made["files"])
    assert not {"scripts", "devDependencies", "overrides"} & set(made)
    assert npm.PREFIX not in json.dumps([made[name] for name in ("files", "style", "styleModule", "types")])


def test_the_repository_is_named_the_same_everywhere() -> None:
    source = PROJECT["urls"]["Source"]
    assert PACKAGE["repository"]["url"] == f"git+{source}.git"
    assert f"repository-code: {source}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"  repository: {source}\n" in RECIPE
    assert all(url.startswith(source) for url in PROJECT["urls"].values())


def test_the_recipe_has_the_dependencies_of_the_package() -> None:
    lines = set(re.findall(r"^    - (\S+(?: \S+)?)$", RECIPE.partition("  run:\n")[2], re.MULTILINE))
    for text in PROJECT["dependencies"]:
        need = Requirement(text)
        wanted = [one.strip() for one in text.removeprefix(need.name).split(",")]
        name = CONDA.get(need.name, need.name.lower())
        line = next(line for line in lines if line.partition(" ")[0] == name)
        assert sorted(line.partition(" ")[2].split(",")) == sorted(wanted), line
    for script, target in PROJECT["scripts"].items():
        assert f"- {script} = {target}\n" in RECIPE


def test_a_python_is_let_in_where_the_tests_run_on_it_and_no_further() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == [f"3.{minor}" for minor in range(30) if f"3.{minor}.0" in PYTHONS]
    least, beyond = named[0], f"3.{int(named[-1].partition('.')[2]) + 1}"
    assert f'python_min: "{least}"\n  python_max: "{beyond}"\n' in RECIPE
    makefile = (ROOT / "Makefile").read_text()
    assert f"(3, {least[2:]}) <= sys.version_info < (3, {beyond[2:]})" in makefile
    assert f"{least} to {named[-1]}" in (ROOT / "README.md").read_text()


def test_a_python_that_is_refused_is_explained_where_its_message_is_looked_up() -> None:
    page = (ROOT / "docs/run/troubleshooting.md").read_text()
    assert f"requires a different Python: 3.14.0 not in '{PYTHONS}'" in page


def test_each_place_has_one_version_and_takes_another() -> None:
    for place, line in version.PLACES.items():
        assert "9.8.7" in version.renewed((ROOT / place).read_text(), line, "9.8.7")
    lock = json.loads(version.lock_renewed((ROOT / version.LOCK).read_text(), "9.8.7"))
    assert lock["version"] == lock["packages"][""]["version"] == "9.8.7"
    assert lock["packages"]["node_modules/react"]["version"] != "9.8.7"
    with pytest.raises(ValueError, match="0 lines"):
        version.renewed("nothing", version.PLACES["CITATION.cff"], "9.8.7")


def test_unreleased_changes_become_the_entry_between_the_marks() -> None:
    old = f"{version.BEGIN}\n\n## 0.1.0\n\n- old\n\n{version.END}\n\n## 0.0.1\n\n- x\n"
    before = f"# C\n\n## Unreleased\n\n- new\n\n{old}"
    once = version.changelog_renewed(before, "0.2.0", "2026-01-02")
    marked = f"{version.BEGIN}\n\n## 0.2.0 – 2026-01-02\n\n- new\n\n{version.END}\n"
    assert once == f"# C\n\n## Unreleased\n\n{marked}\n## 0.1.0\n\n- old\n\n## 0.0.1\n\n- x\n"
    assert once.count(version.BEGIN) == once.count(version.END) == 1
    assert (
        version.changelog_renewed((ROOT / "CHANGELOG.md").read_text(), "9.8.7", "2026-01-02").count(
            "## 9.8.7 – "
        )
        == 1
    )
