"""Policies are found by name; one of your own is a small class."""

from __future__ import annotations

import importlib
import importlib.metadata
import random
import tomllib
from pathlib import Path

import msgspec
import pytest
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.demand import Demand
from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.policies import installed
from replkernel_scheduler.policies.built_in import JOBS, KINDS, notebook
from replkernel_scheduler.policies.limit_demand_busy import DemandBusy
from replkernel_scheduler.policies.protocol import PoolLoad, Rank, Subscription
from replkernel_scheduler.settings import Policies

from tests.unit.scheduler.cluster import Cluster, granted

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.fixture
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the entry points be those of this checkout, installed or not."""
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][installed.GROUP]
    points = [importlib.metadata.EntryPoint(name, value, installed.GROUP) for name, value in declared.items()]

    def entry_points(*, group: str, name: str | None = None) -> list[importlib.metadata.EntryPoint]:
        assert group == installed.GROUP
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


@pytest.mark.usefixtures("_ours")
def test_every_built_in_policy_is_an_entry_point_and_every_entry_point_can_be_made() -> None:
    made = {(kind, name) for kind in KINDS for name in installed.names(kind)}
    assert {name for kind, name in made if kind == "placement"} == {
        "bin-pack",
        "least-loaded",
        "spread",
        "static",
    }
    for kind, name in made:
        assert installed.make(kind, name) is not None
    folder = PYPROJECT.parent / "scheduler" / "replkernel_scheduler" / "policies"
    files = {path.stem for path in folder.glob("*_*.py")} - {"__init__", "built_in"}
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][installed.GROUP].values()
    made_of = {
        f"{kind}.{name}": f"{policy.__module__}:{policy.__name__}"  # type: ignore[attr-defined]
        for (kind, name), policy in JOBS.items()
    }
    all_declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][installed.GROUP]
    assert made_of.items() <= all_declared.items()
    assert files <= {value.partition(":")[0].rpartition(".")[2] for value in declared}


@pytest.mark.usefixtures("_ours")
def test_a_set_with_other_policies_of_some_kinds_runs() -> None:
    chosen = installed.policies("notebook", placement="bin-pack", order="fifo")
    assert isinstance(chosen, Policies)
    cluster = Cluster(chosen)
    cluster.host("a", 4)
    cluster.host("b", 1)
    assert granted(cluster.ask("one")).host == "b"
    assert installed.make("limit", "static", ratio=2.5).ratio == 2.5


@pytest.mark.usefixtures("_ours")
def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(
        PolicyUnknown, match="no placement policy 'best'; installed are bin-pack, least-loaded"
    ):
        installed.make("placement", "best")
    with pytest.raises(PolicyUnknown, match="no kind of policy 'colour'"):
        installed.policies(colour="red")


def test_a_policy_of_ones_own_is_a_class_with_one_method() -> None:
    class LargestFirst:
        def rank(self, load: PoolLoad) -> Rank:
            return (-load.gpus,)

    cluster = Cluster(msgspec.structs.replace(notebook(), placement=LargestFirst()))
    cluster.host("a", 2)
    cluster.host("b", 8)
    cluster.ask("busy", 6)
    assert granted(cluster.ask("one")).host == "b"


def test_the_demand_busy_limit_is_the_mean_of_the_last_five_samples() -> None:
    """Spec 1.3: D/B each second, 7 while nothing computes, never below 1."""
    demand = Demand()
    limit = DemandBusy().limit
    demand.advance(0.0)
    assert limit(Subscription(0, 0, demand), 3) == 7.0
    demand.requested, demand.committed = 6, 2
    demand.advance(2.0)
    assert demand.samples == [3.0, 3.0]
    demand.committed = 12
    demand.advance(3.5)
    assert limit(Subscription(0, 0, demand), 3) == pytest.approx(7 / 3)
    demand.advance(1000.0)
    assert demand.samples == [1.0] * 5
    assert demand.next_at == 1001.0


def test_a_core_needs_dice_and_policies_only() -> None:
    core = SchedulerCore(random.Random(1), notebook())
    assert core.deadline() is None
    assert core.view().hosts == ()
