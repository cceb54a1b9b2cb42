"""Browser tests run real kernels too, so they need what end-to-end tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import _kernel_in_reach as _kernel_in_reach
from tests.ui.driven import SHOTS, Browser, Lab, lab_in_browser


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[tuple[Lab, Browser]]:
    """Return a JupyterLab of one's own and a browser."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    with lab_in_browser(tmp_path) as (lab, browser):
        yield lab, browser
