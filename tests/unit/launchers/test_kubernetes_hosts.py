"""Which holders are asked for again: those whose pods end because Kubernetes says so, no others."""

from __future__ import annotations

import msgspec
from replkernel_server.launchers.kubernetes_hosts import KubernetesHosts
from replkernel_server.launchers.kubernetes_pods import HOLDER, KubernetesOptions, Pod
from replkernel_server.launchers.protocol import HostEnding

PODS = [Pod(f"rk-gpus-{name}", name, "up", True, "", {HOLDER: "yes"}) for name in ("a", "b")]


def two_hosts() -> KubernetesHosts:
    made = KubernetesHosts(KubernetesOptions(image="i", hosts=2))
    made.told(PODS, now=0.0)
    assert made.todo([], 0.0).holders == 0
    return made


def test_a_holder_that_is_evicted_is_replaced_though_it_was_emptied_and_given_back() -> None:
    hosts = two_hosts()
    ending = msgspec.structs.replace(PODS[0], phase="ending", ends_in_s=90.0)
    (word,) = hosts.told([ending, PODS[1]], now=1.0)
    assert isinstance(word, HostEnding)
    assert hosts.todo([], 1.0).holders == 1
    hosts.give_back("a")
    assert hosts.todo([], 2.0).holders == 1
    hosts.told([PODS[1]], now=90.0)
    assert hosts.todo([], 90.0).holders == 1


def test_a_holder_that_nobody_wants_is_not() -> None:
    hosts = two_hosts()
    hosts.give_back("a")
    assert hosts.todo([], 1.0).holders == 0
    hosts.told([PODS[1]], now=2.0)
    assert hosts.todo([], 2.0).holders == 0
