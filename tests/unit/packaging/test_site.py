"""The site's pages can be made from the code, and what they say of it is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from replkernel_server.handlers.scheduler_routes import ADDRESSES

from docs.build_site import ROOT, places, turned
from docs.generated import pages
from replkernel.cli import build_parser

PRODUCT = ("replkernel", "scheduler/replkernel_scheduler", "server_ext/replkernel_server")
TROUBLES = re.findall(
    r"^### `(.+?)`", (ROOT / "docs/run/troubleshooting.md").read_text(), re.MULTILINE
)  # An ellipsis stands for what varies, and for where one text is put into another.


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """Return the pages that are made from the code."""
    return pages()


def test_the_command_line_has_the_help_of_every_command(generated: dict[str, str]) -> None:
    said = generated["reference/cli.md"]
    verbs = re.findall(r"^    (\w+)(?: |$)", build_parser().format_help(), re.MULTILINE)
    assert len(verbs) > 10
    for words in [
        *(f"replkernel {verb}" for verb in verbs),
        "replkernel agent stop",
        "replkernel store usage",
    ]:
        assert re.search(rf"^#+ `{words}`\n\n```text\nusage: {words}\b", said, re.MULTILINE), words


def test_the_rest_page_has_every_address_and_every_shape(generated: dict[str, str]) -> None:
    said = generated["reference/rest.md"]
    for address, handler in ADDRESSES.items():
        for method in handler.operations:
            assert f"### `{method.upper()} {address}`" in said
    shapes = set(re.findall(r"\]\(#(\w+)\)", said))
    assert shapes <= {name.lower() for name in re.findall(r"^### (\w+)$", said, re.MULTILINE)}


def test_the_policies_page_says_what_each_installed_one_does(generated: dict[str, str]) -> None:
    for point in entry_points(group="replkernel_scheduler.policies"):
        kind, _, name = point.name.partition(".")
        section = generated["reference/policies.md"].partition(f"## {kind}\n")[2].partition("\n## ")[0]
        assert re.search(rf"^\| `{name}` \| \S", section, re.MULTILINE), point.name


@pytest.mark.parametrize("file", ["run/monitoring.md", "deployments/monitoring/grafana.json"])
def test_metrics_that_documents_name_are_there(file: str, generated: dict[str, str]) -> None:
    there = set(re.findall(r"`(replkernel_scheduler_\w+)`", generated["reference/metrics.md"]))
    named = set(re.findall(r"replkernel_scheduler_\w+", (ROOT / "docs" / file).read_text()))
    assert named and {name.removesuffix("_bucket") for name in named} <= there


def test_every_page_stands_in_a_table_of_contents() -> None:
    listed = {"index.md"}
    for index in (ROOT / "docs").rglob("index.md"):
        for entries in re.findall(r"^```{toctree}\n(.*?)^```$", index.read_text(), re.MULTILINE | re.DOTALL):
            names = [line for line in entries.splitlines() if line and not line.startswith(":")]
            listed |= {str(Path(index.parent.relative_to(ROOT / "docs"), f"{name}.md")) for name in names}
    assert listed == {*places().values(), *pages()}


def test_a_link_is_turned_to_where_the_page_or_file_is_on_the_site() -> None:
    known = {"A.md": "understand/a.md", "docs/run/b.md": "run/b.md"}
    page, files = turned("[a](../../A.md#one) ![p](../architecture.svg)", "docs/run/b.md", known)
    assert page == "[a](../understand/a.md#one) ![p](../files/docs/architecture.svg)"
    assert files == {"docs/architecture.svg"}
    assert turned("[b](docs/run/b.md), [e](https://example.org), [f](docs)", "A.md", known) == (
        "[b](../run/b.md), [e](https://example.org), f",
        set(),
    )
    source = '<source media="(a: b)" srcset="LICENSE">'
    pictures = f'<picture>\n  {source}\n  <img src="SECURITY.md" alt="a p">\n</picture>'
    assert turned(pictures, "A.md", known) == (
        "![a p](../files/SECURITY.md){.only-light}\n![a p](../files/LICENSE){.only-dark}",
        {"LICENSE", "SECURITY.md"},
    )
    fenced = "```python\nx[0](A.md)\n```\n"
    assert turned(fenced, "A.md", known) == (fenced, set())


@cache
def spoken() -> list[str]:
    """Return every text of the product, with an ellipsis for what is put into it, and its classes' names."""
    found: list[str] = []
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    found.append(
                        "".join(
                            str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values
                        )
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(re.sub(r"{\w*}", "…", node.value))
                elif isinstance(node, ast.ClassDef):
                    found.append(f"{node.name}:")
    return found


@pytest.mark.parametrize("message", TROUBLES)
def test_a_message_that_troubleshooting_explains_is_one_of_the_product(message: str) -> None:
    for part in filter(None, map(str.strip, message.split("…"))):
        assert any(part in text for text in spoken()), part


def test_the_reasons_in_the_table_by_library_are_the_products() -> None:
    table = (ROOT / "docs/use/variables.md").read_text().partition("## By library")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 15
    for row in rows:
        assert any(row[2].strip("`") in text for text in spoken()), row[2]
