"""Which Ray nodes are hosts, and what our things are called in Ray. Pure.

Law: a name tells host, GPU and node, and nothing secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from replkernel.agent.io.start import is_host_name

PREFIX = "ray-"
NAME_LABEL = "replkernel.io/host"
"""A node's label that names its host; without it the node's id does."""
ID_CHARS = 12
HOLD = "replkernel lease"


class Node(msgspec.Struct, frozen=True):
    """A node of the cluster that is a host of ours."""

    id: str
    host: str
    address: str
    gpus: int


def node_of(entry: Mapping[str, Any], wanted: Mapping[str, str]) -> Node | None:
    """Return the host that an entry of Ray's node table is, None if its labels are not the wanted ones."""
    labels = entry.get("Labels") or {}
    if any(labels.get(name) != value for name, value in wanted.items()):
        return None
    node_id = str(entry["NodeID"])
    host = f"{PREFIX}{labels.get(NAME_LABEL) or node_id[:ID_CHARS]}"
    if not is_host_name(host):
        host = f"{PREFIX}{node_id[:ID_CHARS]}"
    return Node(node_id, host, str(entry["NodeManagerAddress"]), int(entry["Resources"].get("GPU", 0)))


def actor_name(node: Node) -> str:
    """Return the name of the actor that keeps a host's agent."""
    return f"agent of {node.host} on {node.id}"


def hold_name(host: str, gpu: str, number: int) -> str:
    """Return the name of the placement group that counts one leased GPU."""
    return f"{HOLD} {host} {gpu} {number}"


def read_hold(name: str) -> tuple[str, str] | None:
    """Return host and GPU of a placement group's name, None if it is not ours."""
    words = name.removeprefix(f"{HOLD} ").split(" ")
    return (words[0], words[1]) if name.startswith(f"{HOLD} ") and len(words) == 3 else None
