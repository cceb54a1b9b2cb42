"""The chart's holders on three real nodes, whose kubelets run them in containers with probes and restarts.

An agent is its container's first process: who kills it ends the container, and the kubelet begins another.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.kubernetes.cluster import Cluster, eventually
from tests.kubernetes.conftest import GPUS, NODES, SPACE, holders, install_with_journal
from tests.kubernetes.node import MISSING, can_run
from tests.kubernetes.real_nodes import RealNodes, processes, ready
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.one_machine,
    pytest.mark.skipif(not can_run(), reason=MISSING),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
]
WITHIN_S = 300.0


@pytest.fixture(scope="module")
def chart(real: RealNodes) -> Cluster:
    install_with_journal(real.cluster, real.place, {"launcher.hosts": "3"})
    return real.cluster


def test_the_charts_scheduler_makes_a_holder_on_each_node_whose_agent_listens(chart: Cluster) -> None:
    eventually(lambda: len([it for it in holders(chart) if ready(it)]) == len(NODES), WITHIN_S)
    assert {pod["spec"]["nodeName"] for pod in holders(chart)} == set(NODES)
    assert {node: chart.gpus_of(node) for node in NODES} == dict.fromkeys(NODES, GPUS)
    (scheduler,) = chart.pods(SPACE, "app.kubernetes.io/component=scheduler")
    assert ready(scheduler) and scheduler["status"]["containerStatuses"][0]["restartCount"] == 0


def test_an_agent_that_is_killed_comes_back_in_its_pod_and_its_gpus_stay_counted(chart: Cluster) -> None:
    eventually(lambda: len([it for it in holders(chart) if ready(it)]) == len(NODES), WITHIN_S)
    (pod,) = holders(chart, NODES[0])
    os.kill(processes(pod)[1], signal.SIGKILL)

    def again() -> bool:
        (now,) = holders(chart, NODES[0])
        assert now["metadata"]["uid"] == pod["metadata"]["uid"], "its pod is not another one"
        assert chart.gpus_of(NODES[0]) == GPUS
        return ready(now) and bool(now["status"]["containerStatuses"][0]["restartCount"] == 1)

    eventually(again, WITHIN_S)
