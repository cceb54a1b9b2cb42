"""A view that is made in slices is the one that is made at once, and stands what happens in between."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler import viewing
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.view import ClusterView

from tests.support.examples import examples
from tests.unit.scheduler.cluster import Cluster
from tests.unit.scheduler.stories import Step, World
from tests.unit.scheduler.test_stories import steps

encode = msgspec.msgpack.encode


def finished(making: viewing.Slices[ClusterView]) -> ClusterView:
    while True:
        try:
            next(making)
        except StopIteration as made:
            view: ClusterView = made.value
            return view


def names(view: ClusterView) -> dict[str, list[Any]]:
    return {
        "hosts": [host.name for host in view.hosts],
        "kernels": [kernel.kernel_id for kernel in view.kernels],
        "leases": [held.lease.fence for held in view.leases],
        "users": [user.user for user in view.users],
        "usage": [kernel.kernel_id for kernel in view.usage],
        "waiting": [waiting.request.request for waiting in view.waiting],
    }


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(story=steps, meanwhile=steps, size=st.integers(1, 5))
def test_a_view_made_in_slices_is_the_one_made_at_once_or_of_what_was_there_meanwhile(
    story: list[Step], meanwhile: list[Step], size: int
) -> None:
    world = World(built_in.notebook(), 7)
    for step in story:
        world.play(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(viewing, "SLICE", size)
        assert encode(finished(world.core.view_in_slices(viewing.TABLES))) == encode(world.core.view())
        before = names(world.core.view())
        making = world.core.view_in_slices(viewing.TABLES)
        for step in meanwhile:
            try:
                next(making)
            except StopIteration:
                break
            world.play(step)
        else:
            after = names(world.core.view())
            found = names(finished(making))
            for table in viewing.TABLES:
                assert len(found[table]) == len(set(found[table]))
                assert table == "waiting" or found[table] == sorted(found[table])
                if table in ("leases", "users", "usage"):  # These never come again under the same name.
                    assert set(found[table]) >= set(before[table]) & set(after[table])


def test_tables_that_nobody_asked_for_are_empty() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.kernel("k", replicas=1)
    cluster.ask("one", kernel="k")
    view = finished(cluster.core.view_in_slices(("leases",)))
    assert len(view.leases) == 1
    assert view.hosts == view.kernels == view.users == view.usage == ()
    assert view.now == cluster.core.view().now


def test_no_slice_looks_at_more_than_some_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewing, "SLICE", 2)
    cluster = Cluster()
    for number in range(40):
        cluster.host(f"h{number:02}", 1)
        cluster.ask(f"r{number}", kernel=f"k{number}", user=f"u{number}")
        cluster.ask(f"s{number}", kernel=f"k{number}", user=f"u{number}")
    view = cluster.core.view()
    records = {name: len(getattr(view, name)) for name in ("hosts", "leases", "users", "usage")}
    for table, count in records.items():
        making, slices = cluster.core.view_in_slices((table,)), 0  # type: ignore[arg-type]
        for _ in making:
            slices += 1
        assert slices >= count // 2 - 1 > 10, table
