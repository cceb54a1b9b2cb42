"""The documents lead to each other, and the README stays one that somebody reads."""

from __future__ import annotations

import argparse
import os
import re
from functools import cache
from pathlib import Path

import pytest

from replkernel.cli import build_parser

ROOT = Path(__file__).parents[3]
NOT_OURS = {"node_modules", "build", "dist"}
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("[!.]*/**/*.md")]
    if not NOT_OURS & set(path.relative_to(ROOT).parts)
)
FENCED = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
README_WORDS_MAX = 1000
SENTENCE_WORDS_MAX = 30
PICTURE_BYTES_MAX, FILM_BYTES_MAX = 200_000, 1_500_000
FILE = re.compile(r"`([\w./-]+\.(?:py|tsx?|c|toml|svg))`")
TABLE_OF_FILES = re.compile(r"^\| file \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", re.MULTILINE)
INVENTED = re.compile(r"/?[A-Z]+\b|jupyter_\w+_config")
"""In names of files that stand for what the reader has: `libraries/NAME.py`."""
PAGES = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")]


@cache
def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as code hosts and the site make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?)\s*$", FENCED.sub("", document.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if not n else f"{name}-{n}" for name, most in found.items() for n in range(most + 1)}


def test_pictures_in_the_documents_are_there_and_are_small() -> None:
    shown = set()
    for document in DOCUMENTS:
        for place in re.findall(r'(?:src|srcset)="([^"]+)"', FENCED.sub("", document.read_text())):
            shown.add((document.parent / place).resolve())
    taken = set((ROOT / "docs" / "pictures").iterdir())
    assert shown == taken, "run `make pictures`, or delete what is shown nowhere"
    for picture in taken:
        assert picture.stat().st_size <= (PICTURE_BYTES_MAX if picture.suffix == ".png" else FILM_BYTES_MAX)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(FENCED.sub("", document.read_text())):
        target, _, anchor = link.partition("#")
        if ":" in target:
            continue
        place = document.parent / target if target else document
        assert place.exists(), f"links to {target}"
        if anchor:
            assert anchor in anchors(place.resolve()), f"{link}: no heading has this anchor"


@cache
def files_below(folder: Path) -> set[str]:
    """Return how the files below a folder can be named: by their path, or the end of it."""
    found = set()
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in NOT_OURS and not name.startswith(".")]
        for name in names:
            parts = Path(place, name).relative_to(folder).parts
            found |= {"/".join(parts[start:]) for start in range(len(parts))}
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_document_names_are_there(document: Path) -> None:
    if document.name == "CHANGELOG.md":
        return  # It tells of files that are gone.
    text = FENCED.sub("", document.read_text())
    for name in FILE.findall(text):
        assert INVENTED.search(name) or name.lstrip("./") in files_below(ROOT), f"there is no {name}"


@pytest.mark.parametrize("readme", sorted((ROOT / "replkernel").glob("*/README.md")), ids=str)
def test_a_folder_has_the_files_of_its_table(readme: Path) -> None:
    for rows in TABLE_OF_FILES.findall(readme.read_text()):
        for row in rows.splitlines():
            for name in FILE.findall(row.split("|")[1]):
                below = name in files_below(readme.parent) or (readme.parent / name).exists()
                assert below, f"there is no {name} here"


@pytest.mark.parametrize(
    "folder",
    [
        *("replkernel/agent", "replkernel/kernel", "replkernel/router"),
        *("tests/security", "tests/soak", "tests/e2e/faults"),
    ],
)
def test_every_file_of_a_folder_is_in_its_table(folder: str) -> None:
    place = ROOT / folder
    named = {name.rpartition("/")[2] for name in FILE.findall((place / "README.md").read_text())}
    assert {path.name for path in place.rglob("*.py")} - {"__init__.py"} <= named


def test_the_readme_is_read_in_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS_MAX


@pytest.mark.parametrize("document", ["README.md", *sorted(str(path) for path in PAGES)])
def test_no_sentence_is_longer_than_a_breath(document: str) -> None:
    prose = re.sub(r"\]\([^)]*\)", "]", FENCED.sub("", (ROOT / document).read_text()))
    for block in re.split(r"\n\s*\n|\n(?=- |\d\. |[|#>])", prose):
        if not block.lstrip().startswith(("|", "#", "!", ">")):
            for sentence in re.split(r"(?<=[.?!:;])\s+", block.replace("\n", " ")):
                assert len(sentence.split()) <= SENTENCE_WORDS_MAX, sentence


def test_the_commands_page_names_every_command() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text()
    verbs = next(
        action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    for verb in verbs.choices:
        assert f"`replkernel {verb}" in page, verb
