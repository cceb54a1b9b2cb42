"""Browser tests run real kernels too, so they need what end-to-end tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import _kernel_in_reach as _kernel_in_reach
from tests.ui.driven import BESIDE, Browser, Lab, lab_in_browser
from tests.ui.office import GPUS, Office


@pytest.fixture(scope="session")
def office(_children_find_the_sources: None) -> Iterator[Office]:
    """Return the JupyterLab and the browser of all tests that need none of their own."""
    office = Office()
    yield office
    office.close()


@pytest.fixture(scope="session")
def office_beside(_children_find_the_sources: None) -> Iterator[Office]:
    """Return a JupyterLab that has others' extensions as well, and its browser."""
    office = Office(BESIDE)
    yield office
    office.close()


@pytest.fixture
def desk(office: Office, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, Browser]]:
    """Return a JupyterLab with two pretended GPUs and a browser, as if nobody had used them before."""
    yield from _tidied(office, request)


@pytest.fixture
def desk_beside(office_beside: Office, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, Browser]]:
    """Return the same in a JupyterLab that has others' extensions as well."""
    yield from _tidied(office_beside, request)


def _tidied(office: Office, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, Browser]]:
    failed_before = request.session.testsfailed
    with office.in_reach() as desk:
        yield desk
        if request.session.testsfailed > failed_before:
            office.close()
        else:
            office.tidy()


@pytest.fixture
def own_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Lab, Browser]]:
    """Return a JupyterLab and a browser for a test that leaves traces: its scheduler remembers hosts."""
    monkeypatch.setenv("REPLKERNEL_FAKE_GPUS", GPUS)
    with lab_in_browser(tmp_path) as desk:
        yield desk
