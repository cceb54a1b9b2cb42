"""A pytest plugin with the option and the marker that ipykernel's suite takes from plugins we do not need."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare coverage's option, which one test asks for by name."""
    parser.addoption("--cov", default=None, help="accepted and ignored")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of tests that may be tried again."""
    config.addinivalue_line("markers", "flaky(max_runs): its authors let this test run several times")
