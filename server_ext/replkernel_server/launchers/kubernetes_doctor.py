"""`replkernel doctor --kubernetes`: reads a release of the chart through the API, as whoever runs it.

It changes nothing. Law: what may not be read is passed on as such; `kubernetes_findings.py` judges.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from replkernel.cli.doctor import tell
from replkernel_server.launchers.kubernetes_api import KubernetesApi, NotAllowed
from replkernel_server.launchers.kubernetes_findings import VERBS, Seen, findings
from replkernel_server.launchers.kubernetes_pods import Json
from replkernel_server.launchers.protocol import LauncherFailed


def main(arguments: Sequence[str]) -> int:
    """Print a line for each part; return 1 if something is wrong."""
    parser = argparse.ArgumentParser("replkernel doctor --kubernetes")
    parser.add_argument("--namespace", default="default", help="where the chart's release is")
    parser.add_argument("--release", default="replkernel", help="its name")
    parser.add_argument("--resource", default="nvidia.com/gpu", help="as what nodes offer GPUs")
    options = parser.parse_args(arguments)
    try:
        seen = asyncio.run(look(options.namespace, options.release, options.resource))
    except LauncherFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return tell(findings(seen))


async def look(namespace: str, release: str, resource: str) -> Seen:
    """Read what there is; raises LauncherFailed where nobody answers."""
    api = KubernetesApi(namespace)
    await api.open()
    try:
        within = f"/api/v1/namespaces/{namespace}"
        return Seen(
            release=release,
            resource=resource,
            may=await _may(api, namespace, release),
            pods=await _read(api, f"{within}/pods"),
            claims=await _read(api, f"{within}/persistentvolumeclaims"),
            quotas=await _read(api, f"{within}/resourcequotas"),
            policies=await _read(api, f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
            nodes=await _read(api, "/api/v1/nodes"),
        )
    finally:
        await api.close()


async def _read(api: KubernetesApi, path: str) -> tuple[Json, ...] | None:
    try:
        return await api.read(path)
    except NotAllowed:
        return None


async def _may(api: KubernetesApi, namespace: str, account: str) -> dict[str, bool] | None:
    try:
        return {verb: await api.account_may(account, verb, "pods") for verb in VERBS}
    except NotAllowed:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
