"""The few calls of Kubernetes' API that the launcher makes: pods of one namespace, listed, made, deleted.

The one module that imports `kubernetes_asyncio`, when it is opened. Law: what goes wrong is a LauncherFailed
with one sentence, and nothing is tried again here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from replkernel_server.launchers.protocol import LauncherFailed

Json: TypeAlias = dict[str, Any]
"""An object of Kubernetes as its API writes it."""
REVIEWS = "authorization.k8s.io"
CALL_S_MAX = 20.0
PODS_MAX = 5_000
SAID_CHARS_MAX = 300
FORBIDDEN = " is forbidden: "
"""Stands behind the pod's name, which is another one each time."""


class Refused(LauncherFailed):
    """The API server answers, and does not do this."""


class NotAllowed(Refused):
    """Whoever asks may not."""


class NotAdmitted(Refused):
    """A quota, or another rule of the cluster's, does not let this pod in."""


class KubernetesApi:
    """A client of one namespace."""

    def __init__(self, namespace: str, address: str = "") -> None:
        """`address` is an API server without authentication; without it, the pod's own or a kubeconfig."""
        self._namespace, self._address = namespace, address
        self._client: Any = None
        self._pods: object = None

    async def open(self) -> None:
        """Read whom to ask, and as whom."""
        try:
            from kubernetes_asyncio import client
            from kubernetes_asyncio import config as untyped
        except ImportError as error:
            raise LauncherFailed(
                "The launcher kubernetes needs its client: `pip install 'replkernel[kubernetes]'`."
            ) from error
        config: Any = untyped
        settings = client.Configuration()
        try:
            if self._address:
                settings.host = self._address
            else:
                try:
                    config.load_incluster_config(client_configuration=settings)
                except config.ConfigException:
                    await config.load_kube_config(client_configuration=settings)
        except Exception as error:
            raise LauncherFailed(
                f"This pod has no service account, and no kubeconfig can be read ({error}): set KUBECONFIG."
            ) from error
        self._client = client.ApiClient(settings)
        self._pods = client.CoreV1Api(self._client)

    async def close(self) -> None:
        """Close its connections."""
        client, self._client, self._pods = self._client, None, None
        if client is not None:
            await client.close()

    async def list(self, selector: str) -> list[Json]:
        """Return the pods with these labels."""
        told = await self._call(
            "list", "list_namespaced_pod", label_selector=selector, limit=PODS_MAX, resource_version="0"
        )
        pods = told.get("items") or []
        return [pod for pod in pods if isinstance(pod, dict)]

    async def create(self, pod: Json) -> None:
        """Make a pod; one of its name that is there is as good."""
        await self._call("create", "create_namespaced_pod", body=pod, as_good=409)

    async def delete(self, name: str, grace_s: int) -> None:
        """Have a pod end; none is there is as good."""
        await self._call(
            "delete", "delete_namespaced_pod", name=name, grace_period_seconds=grace_s, as_good=404
        )

    async def read(self, path: str) -> tuple[Json, ...]:
        """Return the objects that are listed at a path; raises NotAllowed."""
        told = await self._ask("list", partial(self._raw, path, "GET", None))
        return tuple(it for it in told.get("items") or [] if isinstance(it, dict))

    async def account_may(self, account: str, verb: str, resource: str) -> bool:
        """Say whether a ServiceAccount of the namespace may do something there; raises NotAllowed."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self._namespace}"]
        spec = {
            "user": f"system:serviceaccount:{self._namespace}:{account}",
            "groups": [*groups, "system:authenticated"],
            "resourceAttributes": {"namespace": self._namespace, "verb": verb, "resource": resource},
        }
        review = {"apiVersion": f"{REVIEWS}/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = f"/apis/{REVIEWS}/v1/subjectaccessreviews"
        told = await self._ask("review", partial(self._raw, path, "POST", review))
        return bool((told.get("status") or {}).get("allowed"))

    def _raw(self, path: str, method: str, body: Json | None) -> Any:
        kind = {"Accept": "application/json", "Content-Type": "application/json"}
        return self._client.call_api(
            path,
            method,
            header_params=kind,
            query_params=[("limit", PODS_MAX)] if method == "GET" else [],
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
        )

    async def _call(self, verb: str, method: str, *, as_good: int = 0, **arguments: object) -> Json:
        if self._pods is None:
            raise LauncherFailed("The launcher kubernetes is closed.")
        call = partial(getattr(self._pods, method), namespace=self._namespace, _preload_content=False)
        return await self._ask(verb, partial(call, **arguments), as_good)

    async def _ask(self, verb: str, call: Callable[[], Awaitable[Any]], as_good: int = 0) -> Json:
        try:
            async with asyncio.timeout(CALL_S_MAX):
                answer = await call()
                said = await answer.read()
        except TimeoutError:
            raise LauncherFailed(f"Kubernetes has not answered within {CALL_S_MAX:g} s.") from None
        except Exception as error:  # The client's own errors, aiohttp's and the system's have no common root.
            status = getattr(error, "status", None)
            if status is None:
                raise LauncherFailed(f"Kubernetes cannot be asked: {error}.") from error
            return self._refused(verb, int(status), _reason(getattr(error, "body", "") or ""), as_good)
        if answer.status >= 400:
            return self._refused(verb, answer.status, _reason(said), as_good)
        try:
            told = json.loads(said)
        except ValueError as error:
            raise LauncherFailed("Kubernetes answered what is no JSON: is that an API server?") from error
        return told if isinstance(told, dict) else {}

    def _refused(self, verb: str, status: int, why: str, as_good: int) -> Json:
        if status == as_good:
            return {}
        said = f"Kubernetes refuses to {verb} a pod ({status}): {why.partition(FORBIDDEN)[2] or why}."
        if status != 403:
            raise Refused(said)
        if verb == "create" and why and f"cannot {verb} resource" not in why:  # All may be made but this one.
            raise NotAdmitted(said)
        raise NotAllowed(
            f"Kubernetes does not let the scheduler {verb} pods in {self._namespace}: its Role needs the "
            f"verb {verb} for pods."
        )


def _reason(said: str | bytes) -> str:
    """Return the sentence of an API server's answer."""
    try:
        message = str(json.loads(said).get("message", ""))
    except (ValueError, AttributeError):
        message = said.decode(errors="replace") if isinstance(said, bytes) else said
    return " ".join(message.split())[:SAID_CHARS_MAX].rstrip(".")
