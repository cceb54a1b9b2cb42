"""Why no cell can run: as the fault that waiting cells end with.

Pure. Law: nothing is given up that may yet come, before NO_REPLICA_LIMIT_S.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.records import HostName, ReplicaId
from replkernel.router.core.answers import Fault
from replkernel.router.core.hosts import Host
from replkernel.router.core.replica import Replica

NO_REPLICA_LIMIT_S = 60.0
"""How long cells wait for the first replica to become ready before they answer with an error."""


def why_unavailable(
    replicas: Mapping[ReplicaId, Replica], hosts: Mapping[HostName, Host], not_revived: str, *, late: bool
) -> Fault | None:
    """Return why, once that is certain or has lasted too long (`late`).

    `not_revived`: why no checkpoint is read.
    """
    troubles = [host.trouble for host in hosts.values() if host.trouble is not None]
    if len(troubles) == len(hosts) and troubles:
        return troubles[0]
    lost = [f"{name}: {replica.why_lost}" for name, replica in replicas.items() if replica.why_lost]
    whys = lost or [trouble.evalue for trouble in troubles]
    because = f" ({'; '.join(whys)})" if whys else ""
    if not any(replica.returning for replica in replicas.values()):
        return Fault(
            "NoReplicaReady",
            f"All replicas of this kernel are gone{because}; "
            "restart the kernel, which then begins without variables.",
        )
    if not late:
        return None
    if not_revived:
        return Fault("StoreError", f"The kernel cannot be brought back: {not_revived}")
    waited = f"No replica of this kernel became ready within {NO_REPLICA_LIMIT_S:.0f} s{because}"
    return Fault("NoReplicaReady", f"{waited}; run `replkernel status`, then restart the kernel.")
