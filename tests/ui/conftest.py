"""Browser tests run real kernels too, so they need what end-to-end tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import _kernel_in_reach as _kernel_in_reach
from tests.ui.driven import Browser, Lab
from tests.ui.office import Office


@pytest.fixture(scope="session")
def office(_children_find_the_sources: None) -> Iterator[Office]:
    """Return the JupyterLab and the browser of all tests that need none of their own."""
    office = Office()
    yield office
    office.close()


@pytest.fixture
def desk(office: Office, request: pytest.FixtureRequest) -> Iterator[tuple[Lab, Browser]]:
    """Return a JupyterLab with two pretended GPUs and a browser, as if nobody had used them before."""
    failed_before = request.session.testsfailed
    with office.in_reach() as desk:
        yield desk
        if request.session.testsfailed > failed_before:
            office.close()
        else:
            office.tidy()
