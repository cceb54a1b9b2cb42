"""A real Prometheus reads the scheduler's figures, and has an answer to each line of the board."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.board import figures, queries
from tests.support.live import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no Prometheus: install it"),
]

CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: replkernel, static_configs: [{{targets: ["{target}"]}}]}}]
"""


class Figures(BaseHTTPRequestHandler):
    """Serves what the scheduler would tell, who decides now and then."""

    asked: ClassVar = count()

    def do_GET(self) -> None:
        """Answer each address alike."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(figures(next(self.asked)))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Start a Prometheus that scrapes; return its address."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), Figures)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(
        CONFIGURATION.format(target=f"127.0.0.1:{served.server_address[1]}")
    )
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        served.shutdown()
        served.server_close()


def test_prometheus_answers_every_line_of_the_board(address: str) -> None:
    asked = [query.expression for query in queries()]
    empty = set(asked)

    def all_answer() -> bool:
        for expression in sorted(empty):
            if _values(address, expression):
                empty.discard(expression)
        return not empty

    try:
        eventually(all_answer, "an answer to every line", 60.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {sorted(empty)}") from None


def _values(address: str, expression: str) -> list[Any]:
    """Return what Prometheus has for an expression; an error of the expression's own is raised."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{query}", timeout=5) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 400:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        return []
    except OSError:
        return []  # It begins only now.
    return [one for one in found if one["value"][1] != "NaN"]
