"""The site's pages that nobody writes: each is made from the code that it describes.

Law: the same code gives the same pages; nothing is started, and nothing outside this process is asked.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from importlib.metadata import entry_points
from random import Random
from typing import Any
from unittest.mock import patch

from prometheus_client.parser import text_string_to_metric_families
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import Fence
from replkernel_server.handlers.kernel_routes import ADDRESSES as KERNELS
from replkernel_server.handlers.kernel_routes import EVERYWHERE as REFUSALS
from replkernel_server.handlers.kernel_routes import TITLE
from replkernel_server.handlers.scheduler_routes import ADDRESSES
from replkernel_server.scheduling.metrics import Clients, JournalFigures, Metrics
from replkernel_server.scheduling.openapi import EVERYWHERE, openapi

from replkernel.cli import build_parser
from replkernel.cli.programs import PROGRAMS

COLUMNS = "100"


def commands() -> str:
    """Return what `--help` says of each command, and of each word that follows one."""
    parts = [
        "# Command line",
        "Made from `--help` of each command. For a first look, see [Commands](commands.md).",
    ]
    with patch.dict(os.environ, {"COLUMNS": COLUMNS, "NO_COLOR": "1"}):
        for words, text in _helps(build_parser(), ("replkernel",)):
            parts += [f"{'#' * min(len(words) + 1, 3)} `{' '.join(words)}`", f"```text\n{text.rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _helps(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    verb = words[-1]
    yield words, (_said_by(PROGRAMS[verb].module) if verb in PROGRAMS else parser.format_help())
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _helps(below, (*words, name))


def _said_by(module: str) -> str:
    """Return the help of a command that another package of the wheel serves."""
    program = importlib.import_module(module)
    if not hasattr(program, "main"):
        program = importlib.import_module(f"{module}.__main__")
    with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
        program.main(["--help"])
    return said.getvalue()


OWN = "/replkernel/api/openapi.json"


def rest() -> str:
    """Return the REST APIs, as their OpenAPI documents have them."""
    return (
        "\n\n".join(
            [
                "# REST API",
                "Made from the OpenAPI documents that the scheduler and the Jupyter Server serve.",
                *_api("the scheduler", "/openapi.json", openapi(ADDRESSES), EVERYWHERE, "[`Why`](#why)"),
                *_api(
                    "a Jupyter Server", OWN, openapi(KERNELS, TITLE, REFUSALS), REFUSALS, "[`Fault`](#fault)"
                ),
            ]
        )
        + "\n"
    )


def _api(whose: str, at: str, document: dict[str, Any], everywhere: Mapping[int, Any], why: str) -> list[str]:
    parts = [
        f"## Addresses of {whose}",
        f"`GET {at}` has the document. Each wants the header `Authorization: token …`, and may answer "
        + ", ".join(f"{status}" for status in everywhere)
        + f" with {why} besides what is listed.",
    ]
    for address, methods in document["paths"].items():
        for method, said in methods.items():
            parts.append(_operation(f"{method.upper()} {address}", said, everywhere))
    parts.append(f"## Shapes of {whose}")
    return parts + [_shape(name, schema) for name, schema in document["components"]["schemas"].items()]


def _operation(title: str, said: Mapping[str, Any], everywhere: Mapping[int, Any]) -> str:
    rows = [
        f"| {one['name']} | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
        for one in said["parameters"]
    ]
    lines = [f"### `{title}`", "", said["summary"], ""]
    if rows:
        lines += ["| parameter | in | type | meaning |", "| --- | --- | --- | --- |", *rows, ""]
    if "requestBody" in said:
        lines += [f"Takes {_content(said['requestBody'])}.", ""]
    answers = [
        f"{status} {_content(answer)}".rstrip()
        for status, answer in said["responses"].items()
        if int(status) not in everywhere
    ]
    return "\n".join([*lines, f"Answers {', '.join(answers)}."])


def _content(said: Mapping[str, Any]) -> str:
    return " or ".join(
        _type(form["schema"]) + ("" if kind == "application/json" else f" as `{kind}`")
        for kind, form in said.get("content", {}).items()
    )


def _shape(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"### {name}", "", inspect.cleandoc(schema.get("description", "")), ""]
    fields = schema.get("properties", {})
    if fields:
        lines += ["| field | type | |", "| --- | --- | --- |"]
        lines += [
            f"| `{field}` | {_type(one)} | "
            + (
                "required"
                if field in schema.get("required", ())
                else f"default `{json.dumps(one.get('default'))}`"
            )
            + " |"
            for field, one in fields.items()
        ]
    return "\n".join(lines).rstrip()


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[`{name}`](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
    return str(schema.get("type", "anything"))


def policies() -> str:
    """Return the installed policies, by what they decide."""
    rows: dict[str, list[str]] = {}
    for point in sorted(entry_points(group="replkernel_scheduler.policies"), key=lambda point: point.name):
        kind, _, name = point.name.partition(".")
        said = (inspect.getdoc(point.load()) or "").partition("\n")[0]
        rows.setdefault(kind, []).append(f"| `{name}` | {_cell(said)} |")
    parts = [
        "# Policies",
        "Made from those that are installed. [Write a policy](../extend/policies.md) says how to add one.",
    ]
    for kind, lines in rows.items():
        parts.append("\n".join([f"## {kind}", "", "| name | what it does |", "| --- | --- |", *lines]))
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """Return the figures that `/metrics` of a scheduler writes; an idle one has them all."""
    view = SchedulerCore(Random(0), notebook(), CoreSettings(), Fence(1)).view()
    written = Metrics(view).write(view, JournalFigures(0, 0), Clients({}, {})).decode()
    lines = [
        "# Metrics",
        "",
        "Made from what `GET /metrics` of the scheduler writes. Totals begin at 0 when the service starts.",
        "",
        "| metric | type | meaning |",
        "| --- | --- | --- |",
    ]
    for family in text_string_to_metric_families(written):
        name = family.name + ("_total" if family.type == "counter" else "")
        if not family.name.endswith("_created"):
            lines.append(f"| `{name}` | {family.type} | {_cell(family.documentation)} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def pages() -> dict[str, str]:
    """Return every generated page by its place on the site."""
    return {name: make() for name, make in PAGES.items()}


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": commands,
    "reference/rest.md": rest,
    "reference/policies.md": policies,
    "reference/metrics.md": metrics,
}
