"""What the repository promises in several places is said the same in all of them."""

from __future__ import annotations

import json
import os
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from replkernel_server.scheduling.settings import SETTING_DOCS as SERVICE_DOCS
from replkernel_server.scheduling.settings import ServiceSettings, read_service_settings

from replkernel import __version__
from replkernel.launch.unknown_settings import KNOWN
from replkernel.settings import SETTING_DOCS, Settings, read_settings

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = json.loads((ROOT / "package.json").read_text())
MODULES = {"pyzmq": "zmq"}
"""Packages whose module has another name."""
LOOKED_UP = {"dill"}
"""Packages that are used once the notebook has imported them, and not before."""


def test_python_and_lab_extension_have_one_version() -> None:
    assert PACKAGE["version"] == __version__


def test_the_lab_extension_has_one_name() -> None:
    named = (ROOT / "server_ext/replkernel_server/__init__.py").read_text()
    assert f'"{PACKAGE["name"]}"' in named
    assert json.loads((ROOT / "install.json").read_text())["packageName"] == PROJECT["project"]["name"]


def test_the_kernelspec_names_the_provisioner_that_is_registered_and_works_by_argv() -> None:
    spec = json.loads((ROOT / "replkernel/kernelspec/kernel.json").read_text())
    points = PROJECT["project"]["entry-points"]["jupyter_client.kernel_provisioners"]
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] in points
    assert spec["argv"] == ["python", "-P", "-m", "replkernel.router", "-f", "{connection_file}"]
    assert spec["display_name"] == "Python 3 (replicated)"
    assert spec["interrupt_mode"] == "message"


def test_the_object_stores_are_registered_as_the_code_knows_them() -> None:
    from replkernel.objects.store import BUILT_IN, ENTRY_POINTS

    assert PROJECT["project"]["entry-points"][ENTRY_POINTS] == BUILT_IN


def test_nothing_installs_torch_by_default_and_ci_installs_one_release() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    torches = {name: [need for need in needs if need.startswith("torch")] for name, needs in extras.items()}
    assert not [need for need in PROJECT["project"]["dependencies"] if "torch" in need]
    assert torches["dev"] == ["torch==2.13.0"]
    assert [name for name, needs in torches.items() if needs] == ["gpu", "dev"]


def test_the_settings_page_lists_every_setting_as_the_code_has_it() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    service = (ROOT / "server_ext" / "README.md").read_text()
    for doc in SERVICE_DOCS:
        assert f"| `{doc.variable}` | {doc.default} | {doc.help} |" in service, (
            "run python docs/settings_table.py"
        )
        assert doc.variable in KNOWN, "it is told from a misspelt one"
    for doc in SETTING_DOCS:
        assert f"| `{doc.variable}` | {doc.default} | {doc.help} |" in page, (
            "run python docs/settings_table.py"
        )


def test_every_setting_is_documented_and_read_from_its_variable() -> None:
    assert [doc.field for doc in SETTING_DOCS] == list(Settings.__struct_fields__)
    assert [doc.field for doc in SERVICE_DOCS] == list(ServiceSettings.__struct_fields__)
    assert read_service_settings({}) == read_service_settings({doc.variable: "" for doc in SERVICE_DOCS})
    assert read_settings({}) == read_settings({doc.variable: "" for doc in SETTING_DOCS})


@pytest.mark.parametrize("command", ["make run", "make test", "pip install replkernel"])
def test_the_first_screen_of_the_readme_says_how_to_begin(command: str) -> None:
    first_screen = (ROOT / "README.md").read_text().splitlines()[:32]
    assert any(command in line for line in first_screen)
    assert any("docs/architecture.svg" in line for line in first_screen)


def test_every_verb_of_the_makefile_is_listed_by_its_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert declared is not None
    for verb in declared.group(1).split():
        assert re.search(rf"^{verb}:.*## ", makefile, re.MULTILINE), verb


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__} – " in (ROOT / "CHANGELOG.md").read_text()


def test_the_chart_is_of_this_version_and_has_the_board_that_the_site_shows() -> None:
    chart = ROOT / "deploy/helm/replkernel"
    assert f"\nversion: {__version__}\n" in (chart / "Chart.yaml").read_text()
    board = (ROOT / "docs/deployments/monitoring/grafana.json").read_text()
    assert (chart / "files/grafana.json").read_text() == board


def test_workflows_call_verbs_of_the_makefile() -> None:
    verbs = set(re.findall(r"^([a-z0-9]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        text = workflow.read_text()
        called = re.findall(r"run: make ([a-z0-9]+)$", text, re.MULTILINE)
        listed = re.findall(r"verb: \[(.*)\]", text)
        called += [verb for verbs_of_one in listed for verb in verbs_of_one.split(", ")]
        assert called and set(called) <= verbs, workflow.name


def test_the_base_install_has_no_package_that_no_module_imports() -> None:
    packages = ("replkernel", "scheduler/replkernel_scheduler", "server_ext/replkernel_server")
    sources = [path.read_text() for package in packages for path in (ROOT / package).rglob("*.py")]
    imported = {
        name.lower()
        for source in sources
        for name in re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE)
    }
    needs = {re.split(r"[<>=\[]", need)[0].lower() for need in PROJECT["project"]["dependencies"]}
    modules = {MODULES.get(need, need.replace("-", "_")) for need in needs}
    assert modules - imported <= LOOKED_UP


def test_a_compiled_wheel_is_built_with_what_pip_installs_for_that_and_from_no_other_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy/replkernel_scheduler").mkdir(parents=True)
    (tmp_path / "pips").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "copy"), str(tmp_path / "pips")]))
    apart = runpy.run_path(str(ROOT / "scheduler/compiled.py"))["_apart"]
    assert apart()["PYTHONPATH"] == str(tmp_path / "pips")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "copy"))
    assert "PYTHONPATH" not in apart()
