"""`python -m release.version X.Y.Z`: write the version everywhere that has it; Jupyter Releaser calls it.

In the changelog what was unreleased becomes the new version's entry, between the marks that Jupyter Releaser
reads. Law: a place that does not have exactly one version is an error, and nothing is written.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
BEGIN, END = "<!-- <START NEW CHANGELOG ENTRY> -->", "<!-- <END NEW CHANGELOG ENTRY> -->"
UNRELEASED = "## Unreleased\n"
PLACES = {
    "replkernel/__init__.py": rf'^(__version__ = "){NUMBER}(")$',
    "package.json": rf'^(  "version": "){NUMBER}(",)$',
    "vscode/package.json": rf'^(  "version": "){NUMBER}(",)$',
    "CITATION.cff": rf"^(version: ){NUMBER}()$",
    "deploy/helm/replkernel/Chart.yaml": rf"^(version: ){NUMBER}()$",
    "release/recipe.yaml": rf'^(  version: "){NUMBER}(")$',
}
"""Where the version stands, and the line that has it."""
LOCK = "package-lock.json"


def renewed(text: str, pattern: str, version: str) -> str:
    """Return a file's text with the new version; raise ValueError unless it has exactly one."""
    made, count = re.subn(pattern, rf"\g<1>{version}\g<2>", text, flags=re.MULTILINE)
    if count != 1:
        raise ValueError(f"{count} lines have a version where one should: {pattern}")
    return made


def lock_renewed(text: str, version: str) -> str:
    """Return package-lock.json with the new version of our own package, which it has twice, at its head."""
    return re.sub(
        rf'^(\s+"version": "){NUMBER}(",)$', rf"\g<1>{version}\g<2>", text, count=2, flags=re.MULTILINE
    )


def changelog_renewed(text: str, version: str, day: str) -> str:
    """Return the changelog with what was unreleased as the entry of `version`, between the marks."""
    text = text.replace(f"{BEGIN}\n\n", "").replace(f"{END}\n\n", "")
    head, found, rest = text.partition(UNRELEASED)
    if not found:
        raise ValueError("CHANGELOG.md has no section Unreleased.")
    entry, older, before = rest.partition("\n## ")
    return f"{head}{UNRELEASED}\n{BEGIN}\n\n## {version} – {day}\n{entry}\n{END}\n{older}{before}"


def main() -> int:
    """Write the version that was asked for, or print the one that is there."""
    if not sys.argv[1:]:
        found = re.search(
            PLACES["replkernel/__init__.py"], (ROOT / "replkernel/__init__.py").read_text(), re.MULTILINE
        )
        print(found[0] if found else "")
        return 0
    version, day = sys.argv[1], datetime.now(UTC).date().isoformat()
    if not re.fullmatch(NUMBER, version):
        print(f"{version} is no version: write it out, as 0.3.0 or 0.3.0rc1.", file=sys.stderr)
        return 2
    made = {
        ROOT / place: renewed((ROOT / place).read_text(), line, version) for place, line in PLACES.items()
    }
    made[ROOT / LOCK] = lock_renewed((ROOT / LOCK).read_text(), version)
    made[ROOT / "CHANGELOG.md"] = changelog_renewed((ROOT / "CHANGELOG.md").read_text(), version, day)
    citation = ROOT / "CITATION.cff"
    made[citation] = re.sub(r"^(date-released: ).*$", rf"\g<1>{day}", made[citation], flags=re.MULTILINE)
    for path, text in made.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
