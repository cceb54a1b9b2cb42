"""A whole scheduler, asked what its own description says, and what it does not: `python -m tests.fuzz.rest`.

Each answer must be one that the description has; nothing may be an error of the server. Last the service is
killed, and must come back with the journal that it wrote.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.scheduler_service import Service

EXAMPLES = 10
"""Of one operation, before the next one has its turn."""
CHECKS = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
BEFORE = 5
"""So many questions are written down of which the last one is the finding."""
PATIENCE_S = 5.0
"""An answer that takes longer is a finding."""


class Asking:
    """Asks one service, and writes down what it should not have answered."""

    def __init__(self, service: Service, token: str, directory: Path) -> None:
        self._service, self._directory = service, directory
        self._session = requests.Session()
        self._headers = {"Authorization": f"token {token}"}
        self._known: set[str] = set()
        described = self._session.get(
            f"{service.url}/openapi.json", headers=self._headers, timeout=PATIENCE_S
        )
        document = described.json()
        del document["security"], document["components"]["securitySchemes"]  # We send the token, always.
        self._schema: Any = schemathesis.openapi.from_dict(document)
        self.asked = 0
        self._lately: deque[str] = deque(maxlen=BEFORE)
        self.answered: dict[str, int] = {}

    def for_seconds(self, seconds: float) -> None:
        """Ask all operations in turn until the time is over."""
        until = time.monotonic() + seconds
        operations = [found.ok() for found in self._schema.get_all_operations()]
        while time.monotonic() < until:
            for operation in operations:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    self._operation(operation, mode, until)

    def _operation(self, operation: Any, mode: GenerationMode, until: float) -> None:
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(mode))
        def ask(case: Any) -> None:
            if time.monotonic() < until:
                self._ask(case)

        try:
            ask()
        except Exception as error:  # There may be nothing that does not fit, as where nothing is taken.
            if "Unsatisfiable" not in type(error).__name__:
                raise

    def _ask(self, case: Any) -> None:
        self.asked += 1
        self._lately.append(case.as_curl_command({"Authorization": "token …"}))
        try:
            answer = case.call(
                base_url=self._service.url, session=self._session, headers=self._headers, timeout=PATIENCE_S
            )
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return
        except requests.exceptions.RequestException as error:
            self.note(case, f"no answer ({type(error).__name__})", str(error))
            return
        code = str(answer.status_code)
        self.answered[code] = self.answered.get(code, 0) + 1
        try:
            case.validate_response(answer, checks=CHECKS)
        except checks.FailureGroup as group:
            for failure in group.exceptions:
                self.note(case, f"{answer.status_code} {type(failure).__name__}", str(failure))

    def note(self, case: Any, what: str, says: str) -> None:
        """Write down an answer that should not be, once for each operation."""
        where = "service" if case is None else f"{case.method} {case.path}"
        if f"{where}: {what}" in self._known:
            return
        self._known.add(f"{where}: {what}")
        asked = "\n".join(self._lately)
        name = f"finding-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
        (self._directory / name).write_text(f"{asked}\n\n{says}\n")
        told = {"what": f"{where}: {what}", "says": says[:400], "input": name}
        with (self._directory / "findings.jsonl").open("a") as out:
            out.write(json.dumps(told) + "\n")


def _read_what_it_says(service: Service) -> None:
    """Take the service's log, a line for each refusal: a pipe that is full would stop it."""
    said = service.process.stderr
    assert said is not None
    threading.Thread(target=deque, args=(said, 0), daemon=True).start()


def main(seconds: int, directory: Path) -> None:
    """Ask a service of its own for so long."""
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        os.environ[variable] = tempfile.mkdtemp()
    token = Path(os.environ["JUPYTER_DATA_DIR"], "replkernel", "scheduler", "token")
    service = Service()
    _read_what_it_says(service)
    try:
        asking = Asking(service, token.read_text().strip(), directory)
        asking.for_seconds(seconds)
        if service.process.poll() is not None:
            asking.note(None, "it ended", str(service.process.returncode))
    finally:
        service.kill()
    try:
        again = Service()
        again.kill()
    except AssertionError as error:
        asking.note(None, "it does not come back with its journal", str(error))
    print(f"answered: {asking.answered}")
    print(f"stat::number_of_executed_units: {asking.asked}")
    print(f"stat::new_units_added: {len(asking.answered)}")


if __name__ == "__main__":
    main(int(sys.argv[2]), Path(sys.argv[3]))
