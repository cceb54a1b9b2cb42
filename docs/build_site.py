"""Builds the site (`make docs`): gathers its pages in build/docs-source; Sphinx makes build/docs of them.

Pages are Markdown that reads well where the code is hosted, too. On the site they have other places, so links
are turned round. Law: what leads nowhere, or stands in no table of contents, fails the build.
"""

from __future__ import annotations

import os.path
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.generated import pages

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "docs-source"
SITE = ROOT / "build" / "docs"
FILES = "files"
"""Where files that are no pages lie on the site, to be downloaded."""

ELSEWHERE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "understand/architecture.md",
    "SECURITY.md": "understand/security.md",
    "scheduler/README.md": "understand/scheduler.md",
    "scheduler/replkernel_scheduler/sim/README.md": "understand/simulator.md",
    "server_ext/README.md": "understand/service.md",
    "labextension/README.md": "extend/lab-extension.md",
    "CONTRIBUTING.md": "extend/contributing.md",
    "requirements/README.md": "extend/requirements.md",
    "release/README.md": "extend/release.md",
    "tests/README.md": "extend/tests.md",
    "CHANGELOG.md": "reference/changelog.md",
    "docs/deployments/README.md": "run/deployments.md",
}
"""Documents that are pages at another place than below docs/; the front page stands for the README."""

FOLDERS = {"replkernel/*/README.md": "understand/{}.md", "tests/**/README.md": "extend/tests-{}.md"}
"""READMEs of folders, by pattern, and the places that they have by the folder's name."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]+)">\s*</picture>'
)
BY_THEME = r"![\3](\2){.only-light}\n![\3](\1){.only-dark}"
"""A picture in dark and light, as code hosts choose it; the site has a theme of its own, so it gets both."""

FENCED = re.compile(r"(^```+.*?^```+$)", re.MULTILINE | re.DOTALL)


def places() -> dict[str, str]:
    """Return where each document of the repository is on the site; both from their roots."""
    found = {
        str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs"))
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    for pattern, place in FOLDERS.items():
        for path in sorted(ROOT.glob(pattern)):
            found[str(path.relative_to(ROOT))] = place.format(path.parent.name)
    return found | ELSEWHERE


def turned(text: str, document: str, known: dict[str, str]) -> tuple[str, set[str]]:
    """Return a document as a page, and which files it leads to. `known` is what `places` returns."""
    files: set[str] = set()
    here = os.path.dirname(known[document])

    def link(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or ":" in target:
            return match[0]
        full = os.path.normpath(os.path.join(os.path.dirname(document), target))
        if full in known:
            return f"{picture}[{words}]({os.path.relpath(known[full], here or '.')}{anchor})"
        if not (ROOT / full).is_file():
            return words
        files.add(full)
        return f"{picture}[{words}]({os.path.relpath(f'{FILES}/{full}', here or '.')})"

    parts = FENCED.split(text)
    parts[::2] = [LINK.sub(link, PICTURE.sub(BY_THEME, part)) for part in parts[::2]]
    return "".join(parts), files


def gather(into: Path) -> None:
    """Write all pages, and the files that they lead to, below `into`."""
    known = places()
    texts = {
        place: turned((ROOT / document).read_text(), document, known)
        for document, place in known.items()
        if document != "README.md"
    }
    for place, text in pages().items():
        texts[place] = (text, set())
    for place, (text, files) in texts.items():
        (into / place).parent.mkdir(parents=True, exist_ok=True)
        (into / place).write_text(text)
        for file in files:
            (into / FILES / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, into / FILES / file)


def main() -> int:
    """Build the site and return Sphinx's exit code; with an argument, only gather its pages there."""
    if sys.argv[1:]:
        gather(Path(sys.argv[1]))
        return 0
    shutil.rmtree(SOURCE, ignore_errors=True)
    gather(SOURCE)
    command = ["-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-j", "auto", "-c", str(ROOT / "docs")]
    done = subprocess.run([sys.executable, *command, str(SOURCE), str(SITE)], check=False)
    if not done.returncode:
        print(f"The site is in {SITE.relative_to(ROOT)}: open index.html.")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
