"""What programs read from the scheduler's service: figures, its description, the accounts."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import urllib.request
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from replkernel_server.handlers.scheduler_base import SchedulerHandler
from replkernel_server.handlers.scheduler_routes import ADDRESSES
from replkernel_server.scheduling.documents import Ended, Granted, Queued, Status, Why
from replkernel_server.scheduling.identity import own_user

from tests.support.scheduler_service import Service, serving

METHODS = {"get", "head", "post", "put", "patch", "delete", "options"}


def ask(service: Service, request: str, **more: object) -> tuple[int, Any]:
    wish = {"request": request, "kernel_id": "k", "gpus": 1, "ttl_s": 60.0} | more
    return service.rest.call("POST", "leases", wish)


def host(service: Service) -> None:
    gpus = ["GPU-0", {"uuid": "GPU-1", "model": "H100", "memory_gb": 80}]
    assert service.rest.call("POST", "hosts", {"name": "a", "gpus": gpus})[0] == 200


def give_back(service: Service, lease: dict[str, Any]) -> None:
    assert service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")[0] == 200


def text(service: Service, path: str) -> tuple[str, str]:
    headers = {"Authorization": f"token {service.rest.token}"}
    with urllib.request.urlopen(
        urllib.request.Request(service.url + path, headers=headers), timeout=30
    ) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def figures(service: Service) -> dict[tuple[str, ...], float]:
    kind, body = text(service, "/metrics")
    assert kind.startswith("text/plain")
    return {
        (
            sample.name.removeprefix("replkernel_scheduler_"),
            *(sample.labels[name] for name in sorted(sample.labels)),
        ): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


def test_the_figures_follow_what_is_leased_waits_and_is_refused() -> None:
    with serving() as service:
        host(service)
        one = ask(service, "one", gpu_model="H100")[1]["lease"]
        assert ask(service, "two", gpu_model="H100")[0] == 202
        assert ask(service, "three", gpus=9)[0] == 409
        service.rest.call("POST", f"leases/{one['lease']}/renewal", {"fence": one["fence"]})
        found = figures(service)
        assert found["leases", "active"] == found["grants_total",] == found["refusals_total",] == 1
        assert found["gpus", "H100", "active"] == found["gpus", "", "idle"] == found["queue_length",] == 1
        assert found["queue_oldest_seconds",] >= 0
        # That the month has begun, a host, three requests, a renewal.
        assert found["decision_seconds_count",] == found["journal_events",] == 6
        assert found["journal_last_event",] == 6
        assert found["snapshot_event",] == found["snapshot_timestamp_seconds",] == 0
        assert found["subscription_ratio",] == 0
        lingering = f"leases/{one['lease']}/lingering"
        assert service.rest.call("DELETE", "requests/two")[0] == 200
        assert service.rest.call("POST", lingering, {"fence": one["fence"], "busy_s": 0.5})[0] == 200
        found = figures(service)
        assert found["leases", "lingering"] == found["gpus", "H100", "lingering"] == 1
        assert found["leases", "active"] == found["queue_length",] == 0
        give_back(service, one)
        assert figures(service)["lease_ends_total", "released"] == 1


def test_the_description_has_every_route_with_its_methods_and_nothing_else() -> None:
    with serving() as service:
        kind, body = text(service, "/openapi.json")
        assert kind == "application/json"
        document = json.loads(body)
        described = {
            (address, method) for address, methods in document["paths"].items() for method in methods
        }
        served = {
            (address, method)
            for address, handler in ADDRESSES.items()
            for method in METHODS
            if getattr(handler, method) is not getattr(SchedulerHandler, method)
        }
        assert described == served
        for address, method in served:
            path = address.replace("{", "").replace("}", "")
            status = service.rest._replace(url=service.url).call(method.upper(), path, token="wrong")[0]
            assert status == 401, (method, path)
            code, said = service.rest._replace(url=service.url).call(method.upper(), path)
            assert code != 405 and not (code == 404 and "at this address" in str(said)), (method, path)
        assert service.rest._replace(url=service.url).call("GET", "/elsewhere")[0] == 404
        assert service.rest._replace(url=service.url).call("GET", "/elsewhere", token="wrong")[0] == 401
        references = set(_references(document))
        assert references == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [value for name, value in part.items() if name == "$ref"]
        return own + [found for value in part.values() for found in _references(value)]
    return [found for value in part for found in _references(value)] if isinstance(part, list) else []


def test_answers_are_the_documents_that_are_described() -> None:
    with serving() as service:
        document = json.loads(text(service, "/openapi.json")[1])

        def fits(method: str, address: str, answer: tuple[int, Any], shape: type) -> None:
            status, body = answer
            content = document["paths"][address][method]["responses"][str(status)]["content"]
            name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
            assert name == shape.__name__
            assert json.loads(msgspec.json.encode(msgspec.convert(body, shape))) == body

        fits("post", "/api/v1/leases", ask(service, "one"), Why)
        host(service)
        granted = ask(service, "one", gpus=2)
        assert granted[0] == 409, "two models"
        granted = ask(service, "two")
        fits("post", "/api/v1/leases", granted, Granted)
        fits("post", "/api/v1/leases", ask(service, "three"), Granted)
        fits("post", "/api/v1/leases", ask(service, "four"), Queued)
        fits("get", "/api/v1/status", service.rest.get("status"), Status)
        lease = granted[1]["lease"]
        held = f"leases/{lease['lease']}"
        fits("delete", "/api/v1/leases/{lease}", service.rest.call("DELETE", f"{held}?fence=1"), Why)
        given = service.rest.call("DELETE", f"{held}?fence={lease['fence']}")
        fits("delete", "/api/v1/leases/{lease}", given, Ended)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("hosts", {"name": "a", "gpus": [f"GPU-{number}" for number in range(65)]}),
        ("hosts", {"name": "a" * 201, "gpus": []}),
        ("hosts", {"name": "a\x00", "gpus": []}),
        ("hosts", {"name": "a", "gpus": [{"uuid": "g", "memory_gb": -1}]}),
        ("leases", {"request": "r", "kernel_id": "k", "gpus": 10**30, "ttl_s": 1}),
        ("leases", {"request": "r", "kernel_id": "k", "gpus": -1, "ttl_s": 1}),
        ("leases", {"request": "r", "kernel_id": "k", "gpus": 1, "ttl_s": 0}),
        ("leases", {"request": "r", "kernel_id": "k", "gpus": 1, "ttl_s": 1, "hosts": ["h"] * 1001}),
        ("leases/x/renewal", {"fence": 2**63}),
        ("leases/x/lingering", {"fence": 1, "busy_s": -1}),
    ],
)
def test_a_number_that_is_too_large_or_no_size_is_refused_with_a_sentence(path: str, body: object) -> None:
    with serving() as service:
        status, said = service.rest.call("POST", path, body)
        assert status == 400 and said["why"].endswith(".")
        assert service.rest.get("status")[1]["hosts"] == []


def test_the_accounts_are_exported_and_survive_a_kill() -> None:
    with serving() as service:
        host(service)
        for number in range(3):
            give_back(service, ask(service, f"r{number}", kernel_id=f"k{number % 2}")[1]["lease"])
        before = text(service, "/api/v1/accounting?format=csv")
        service.kill()
    with serving() as service:
        assert text(service, "/api/v1/accounting?format=csv") == before
        assert before[0].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(before[1])))
        assert [(row["request"], row["kernel_id"], row["gpus"]) for row in rows] == [
            ("r0", "k0", "1"),
            ("r1", "k1", "1"),
            ("r2", "k0", "1"),
        ]
        cells = service.rest.get("accounting")[1]["cells"]
        assert [str(cell["gpu_hours"]) for cell in cells] == [row["gpu_hours"] for row in rows]
        since = rows[1]["ended"].replace("+00:00", "Z")
        assert [cell["request"] for cell in service.rest.get(f"accounting?since={since}")[1]["cells"]] == [
            "r1",
            "r2",
        ]
        assert service.rest.get("accounting?since=2999-01-01")[1] == {"cells": []}
        sums = service.rest.get("accounting?by=kernel")[1]["sums"]
        assert [(row["kernel_id"], row["cells"]) for row in sums] == [("k0", 2), ("k1", 1)]
        assert service.rest.get("accounting?by=user")[1]["sums"][0]["cells"] == 3
        for wrong in ("since=yesterday", "format=xml", "by=host", "by=user&since=2026-01-01"):
            assert service.rest.get(f"accounting?{wrong}")[0] == 400


def command(service: Service | None, *options: str) -> subprocess.CompletedProcess[str]:
    address = {} if service is None else {"REPLKERNEL_SCHEDULER_URL": service.url}
    return subprocess.run(
        [sys.executable, "-m", "replkernel.cli", "accounting", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **address},
    )


def test_the_command_prints_a_table_or_writes_csv_and_json() -> None:
    with serving() as service:
        assert command(service).stdout == "Nothing has been leased yet.\n"
        host(service)
        give_back(service, ask(service, "one")[1]["lease"])
        table = command(service, "--by", "kernel").stdout.splitlines()
        assert table[0].split()[:3] == ["KERNEL_ID", "USER", "CELLS"]
        assert table[1].split()[:3] == ["k", own_user(), "1"]
        assert command(service, "--csv").stdout == text(service, "/api/v1/accounting?format=csv")[1].replace(
            "\r\n", "\n"
        )
        assert json.loads(command(service, "--json").stdout)["cells"][0]["request"] == "one"
        wrong = command(service, "--since", "yesterday")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
        assert "since=2026-01-31" in wrong.stderr
    gone = command(service)
    assert gone.returncode == 1 and "Traceback" not in gone.stderr
    assert "REPLKERNEL_SCHEDULER_URL" in gone.stderr
    assert "saved" in command(None, "--help").stdout


def test_prices_are_charged_from_the_start_that_has_them_and_sums_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def accounts(service: Service, by: str) -> list[dict[str, Any]]:
        (rows,) = json.loads(text(service, f"/api/v1/accounting?by={by}")[1]).values()
        return list(rows)

    with serving() as service:
        host(service)
        give_back(service, ask(service, "free")[1]["lease"])
        assert [row["cost"] for row in accounts(service, "cell")] == [None]
        assert accounts(service, "cluster") == []
        assert service.end()[0] == 0
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_PRICES", "H100=1000000 host=1 currency=EUR")
    with serving() as service:
        give_back(service, ask(service, "paid", gpu_model="H100")[1]["lease"])
        cost = [row["cost"] for row in accounts(service, "cell")][-1]
        assert cost > 0
        assert [row["cost"] for row in accounts(service, "user") if row["user"]] == [pytest.approx(cost)]
        (cluster,) = accounts(service, "cluster")
        assert cluster["currency"] == "EUR" and cluster["charged"] == pytest.approx(cost)
        assert figures(service)["users_charged", "EUR"] == pytest.approx(cost)
        service.rest.call("PUT", f"quotas/{own_user()}", {"budget_month": cost / 2})
        code, told = ask(service, "more")
        assert code == 409 and f"The budget_month of {own_user()} is" in told["why"]
        service.kill()
    with serving() as service:
        assert [row["cost"] for row in accounts(service, "user") if row["user"]] == [pytest.approx(cost)]
