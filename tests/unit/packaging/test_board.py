"""The Grafana board: each of its lines is PromQL, and asks for series and labels that there are."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.board import Query, board, figures, queries

NOT_SHOWN = {
    "replkernel_scheduler_core_info",  # It never changes.
    "replkernel_scheduler_decision_seconds_count",  # These two are in the quantiles.
    "replkernel_scheduler_decision_seconds_sum",
}
UNITS = {"short", "s", "ops", "percentunit", "gbytes"}
"""Those of Grafana's units that the board uses; `gbytes` are GiB."""


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """Return the labels of every series that a scheduler tells, but when it was created."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(figures().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return {name: labels for name, labels in found.items() if not name.endswith("_created")}


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.expression)
def test_a_line_is_promql_of_series_and_labels_that_there_are(
    query: Query, told: dict[str, set[str]]
) -> None:
    promql: Any = pytest.importorskip("promql_parser", reason="install the extra `dev` again")
    names: list[str] = []
    matched: set[str] = set()
    grouped: set[str] | None = None

    def visit(node: Any) -> bool:
        nonlocal grouped
        if isinstance(node, promql.VectorSelector):
            names.append(node.name)
            matched.update(matcher.name for matcher in node.matchers.matchers)
        if isinstance(node, promql.AggregateExpr) and grouped is None:
            grouped = set(node.modifier.labels) if node.modifier else set()
            matched.update(grouped)
        return True

    promql.walk(promql.parse(query.expression), visit)
    labels = set.intersection(*[told[name] for name in names])
    assert matched <= labels
    assert set(re.findall(r"{{(\w+)}}", query.legend)) <= (labels if grouped is None else grouped)


def test_every_series_is_on_the_board_or_is_said_not_to_be(told: dict[str, set[str]]) -> None:
    text = " ".join(query.expression for query in queries())
    assert {name for name in told if not re.search(rf"\b{name}\b", text)} == NOT_SHOWN


def test_the_board_has_what_grafana_needs_to_import_it() -> None:
    made = board()
    assert made["uid"] == "replkernel" and made["title"] and made["schemaVersion"] >= 39
    (source,) = made["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels), "no panel lies on another"
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": f"${{{source['name']}}}"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
