"""Whatever sentence the product says to people is in a catalogue; troubleshooting is made of these."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.messages import CATALOGUES, PAGE, ROOT, catalogue, topics, with_messages

LAB = "labextension/src"
PACKAGES = tuple(package for package in CATALOGUES if package != LAB)
SENTENCE = re.compile(r"[A-Z…`].*[.]", re.DOTALL)
WORDS_MIN = 8
"""Shorter ones are parts of others, or explain themselves."""

NOT_FOR_PEOPLE = {
    "replkernel/state/": "parts of sentences that name what pins a notebook: its own page has them",
    "replkernel/cli/": "a command's own answer, read where it was typed",
    "replkernel/replication/": "refusals between the members of a group; people see what follows from them",
    "replkernel/agent/io/router_listener.py": "between agent and router",
    "replkernel/agent/core/bundle.py": "between agents",
    "replkernel/agent/io/membership.py": "tried again without anybody's help",
    "replkernel/gpu/": "parts of sentences that name what cannot leave a GPU",
    "replkernel/loaders.py": "between releases: a payload that a newer one wrote",
    "replkernel/provisioner.py": "help of traits",
    "replkernel/kernel/asking.py": "answers of magics, read where they were typed",
    "replkernel/kernel/magics.py": "answers of magics, read where they were typed",
    "replkernel/kernel/history_magics.py": "answers of magics, read where they were typed",
    "replkernel/kernel/gpu_magics.py": "answers of magics, read where they were typed",
    "replkernel/kernel/job_magics.py": "answers of magics, read where they were typed",
    "replkernel/jobs/submitting.py": "a command's own answer, read where it was typed",
    "replkernel/router/core/gpu_answers.py": "answers of magics, read where they were typed",
    "replkernel/router/io/kernelinfo.py": "the banner",
    "replkernel/router/core/mid_cell.py": "what a cell's own line says",
    "replkernel_server/handlers/": "answers of the REST API, each with its status",
    "replkernel_server/loadtest/": "a command's own answer",
    "replkernel_server/mcp/__main__.py": "a command's own answer",
    "replkernel_server/mcp/tools.py": "what an agent's model reads of the tools",
    "replkernel_server/scheduling/desk": "refusals of the scheduler's channel, which routers and agents read",
    "replkernel/ranks/cell.py": "answers of magics, read where they were typed",
    "replkernel/ranks/program.py": "answers of magics, read where they were typed",
    "replkernel_server/scheduling/job_desk": "refusals of the scheduler's channel, which agents read",
    "replkernel_server/scheduling/router_desk": "refusals of the scheduler's channel, which routers read",
    "replkernel_server/scheduling/metrics.py": "help of metrics",
    "replkernel_server/scheduling/openapi": "descriptions of the REST API",
    "replkernel_server/scheduling/prices.py": "SettingError, which names the setting and what to write",
    "replkernel_server/scheduling/settings.py": "SettingError, which names the setting and what to write",
    "replkernel/settings.py": "SettingError, which names the setting and what to write",
    "replkernel/launch/unknown_settings.py": "SettingError, which names the setting and what to write",
    "replkernel/gpu_request": "what a request must look like, with an example",
}
"""Places whose sentences need no entry, by the beginning or a part of their path, and why."""


def pattern(message: str) -> re.Pattern[str]:
    """Return what matches a message of a catalogue; an ellipsis stands for what varies."""
    return re.compile(".*".join(re.escape(part.strip()) for part in message.split("…")), re.DOTALL)


def patterns(package: str, names: Collection[str] | None = None) -> dict[str, re.Pattern[str]]:
    """Return the messages of a package's catalogue; `names`: of these topics."""
    topics = catalogue(package)
    return {says: pattern(says) for name in topics if names is None or name in names for says in topics[name]}


def said(path: Path) -> Iterator[str]:
    """Yield the sentences of a module that are no documentation, no help and no line of a log."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    silent: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr):
            silent.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in node.values}
        elif isinstance(node, ast.Assert) or _is_help(node) or _is_logged(node):
            silent |= {id(part) for part in ast.walk(node)}
    for node in nodes:
        if id(node) in silent:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = re.sub(r"{\w*}", "…", node.value)
        text = " ".join(text.split())
        if SENTENCE.fullmatch(text) and len(text.split()) >= WORDS_MIN:
            yield text


def _is_help(node: ast.AST) -> bool:
    return isinstance(node, ast.keyword) and node.arg in ("help", "description", "summary", "doc")


def _is_logged(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value
    return getattr(owner, "attr", getattr(owner, "id", "")).strip("_") in ("log", "logger")


@cache
def sentences(package: str) -> list[tuple[str, str]]:
    """Return where each sentence for people of a package stands, and the sentence."""
    if package == LAB:
        return [
            (path.name, " ".join(text.split()))
            for path in sorted((ROOT / package).rglob("*.ts*"))
            for text in shown(path)
        ]
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        if not any(part in place for part in NOT_FOR_PEOPLE):
            found += [(place, text) for text in said(path)]
    return found


def shown(path: Path) -> list[str]:
    """Return what a file of the lab extension has translated; what varies is an ellipsis."""
    return [re.sub(r"%\d", "…", text) for text in re.findall(r"trans\(\s*'([^'\n]+)'", path.read_text())]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_sentence_for_people_is_in_a_catalogue(package: str) -> None:
    known = [found for each in PACKAGES for found in patterns(each).values()]
    assert len(sentences(package)) > 50
    absent = [
        f"{place}: {text}" for place, text in sentences(package) if not any(one.search(text) for one in known)
    ]
    assert not absent, "\n".join(absent)


@pytest.mark.parametrize("notices", ["news.ts", "doubt.ts"])
def test_every_notice_of_the_lab_extension_is_in_its_catalogue(notices: str) -> None:
    known = patterns(LAB).values()
    told = [text for place, text in sentences(LAB) if place == notices and SENTENCE.fullmatch(text)]
    assert told
    assert [text for text in told if not any(one.search(text) for one in known)] == []


@pytest.mark.parametrize("package", CATALOGUES)
def test_no_catalogue_has_what_its_package_does_not_say(package: str) -> None:
    tables = topics(PAGE.read_text(), "messages")
    stale = [
        says
        for says, one in patterns(package, tables).items()
        if not any(one.search(text) for _, text in sentences(package))
    ]
    assert not stale


def test_the_page_of_messages_is_made_of_the_catalogues() -> None:
    page = PAGE.read_text()
    assert page == with_messages(page), "run python docs/messages.py"
    placed = topics(page, "messages") | topics(page, "explained")
    assert {name for package in CATALOGUES for name in catalogue(package)} == placed


def test_every_error_has_a_place_in_troubleshooting() -> None:
    page = PAGE.read_text()
    tree = ast.parse((ROOT / "replkernel/errors.py").read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} - {"ReplkernelError"}
    assert {name for name in names if f"`{name}" not in page} == set()
