"""The site for tests across machines; skipped, with the reason, where machines cannot be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.hosts.machine import why_no_machines
from tests.e2e.hosts.site import Site

WHY_NOT = why_no_machines()


@pytest.fixture
def make_site(
    _kernel_in_reach: None, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Site]]:
    """Return what makes a site of machines; they end with the test."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    made: list[Site] = []

    def make(*args: object, **options: object) -> Site:
        made.append(Site(tmp_path, *args, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for site in made:
        site.close()
        print(site.told())


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    """Return three hosts with agents and two machines where nothing runs yet; they share a directory."""
    made = make_site()
    made.start_agents()
    return made
