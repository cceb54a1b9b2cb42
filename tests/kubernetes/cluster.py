"""A real Kubernetes on one machine: etcd, API server, controllers and scheduler, each a process.

`get.sh` builds them. Nodes are objects, and `kubelet.py` stands in for what runs pods; `node.py` has real
ones. Law: it listens at loopback, or where pods of this machine alone reach it; all of it lies below one
directory, and ends with `close`.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(os.environ.get("REPLKERNEL_TEST_KUBERNETES", "") or ROOT / "build/kubernetes/bin")
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
MISSING = f"no Kubernetes in {BIN}: `make kubernetes` builds it from Debian's source"
ADMIN = "of-the-tests-alone"
STARTS_S = 180.0
SERVICES, SERVER = "10.88.0.0/24", "10.88.0.1"
"""The addresses of services; pods ask the API server at the first one."""
Json = dict[str, Any]


def there() -> bool:
    """Say whether all parts have been built."""
    return all((BIN / part).is_file() for part in PARTS)


class Refused(Exception):
    """The API server's answer; `status` is HTTP's."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said[:400]}")
        self.status = status


def eventually(what: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Return what is true at last; the last error, or the last value, is shown where it never is."""
    until, last = time.monotonic() + within_s, None
    while time.monotonic() < until:
        try:
            last = what()
        except (Refused, OSError) as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s:g} s: {last!r}")


class Cluster:
    """Its processes, and a client with all rights."""

    def __init__(self, place: Path, address: str = "127.0.0.1", port: int = 0) -> None:
        """Start them all, and wait until the API server is ready."""
        self.place, self._address = place, address
        self.etcd, self.port = free_port(), port or free_port()
        self.url = f"https://{address}:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        key = place / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        (place / "tokens.csv").write_text(f"{ADMIN},admin,admin,system:masters\n")
        self.kubeconfig = self.kubeconfig_of(ADMIN, "admin")
        self._start_etcd()
        self.start_api()
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={free_port()}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={place}/controllers",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={place}/api/apiserver.crt",
            "--node-monitor-period=1s",
            "--node-monitor-grace-period=8s",
            "--pod-eviction-timeout=5s",
        )
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={free_port()}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={place}/scheduler",
        )

    def kubeconfig_of(self, token: str, name: str) -> Path:
        """Write a file with which clients are whoever the token stands for."""
        path = self.place / f"{name}.kubeconfig"
        said = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(said))
        path.chmod(0o600)
        return path

    def _start(self, part: str, *options: str) -> None:
        with (self.place / f"{part}.log").open("ab") as log:
            self._processes[part] = subprocess.Popen([BIN / part, *options], stdout=log, stderr=log)

    def _start_etcd(self) -> None:
        url, peer = f"http://127.0.0.1:{self.etcd}", f"http://127.0.0.1:{free_port()}"
        self._start(
            "etcd",
            f"--data-dir={self.place}/etcd",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )

    def start_api(self) -> None:
        """Start the API server, at the port that it had."""
        key = self.place / "accounts.key"
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd}",
            f"--secure-port={self.port}",
            "--insecure-port=0",
            f"--bind-address={self._address}",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            f"--cert-dir={self.place}/api",
            f"--token-auth-file={self.place}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--service-cluster-ip-range={SERVICES}",
        )
        eventually(lambda: self.ask("GET", "/readyz", raw=True) == "ok", STARTS_S)

    def end_api(self) -> None:
        """End the API server as a crash does; etcd keeps what it knew."""
        process = self._processes.pop("kube-apiserver")
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all parts."""
        for part in reversed([*self._processes]):
            self._processes[part].kill()
        for process in self._processes.values():
            process.wait()

    def ask(
        self, method: str, path: str, body: Json | None = None, *, token: str = ADMIN, raw: bool = False
    ) -> Any:
        """Ask the API server; raises Refused."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20, context=self._context) as answer:
                said = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")) from None
        except http.client.HTTPException as error:  # It was killed in the middle of its answer.
            raise OSError(f"{path}: {error!r}") from error
        return said if raw else json.loads(said)

    def token_of(self, namespace: str, account: str) -> str:
        """Return a token of a ServiceAccount, as a pod of it has one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.ask("POST", path, spec)["status"]["token"])

    def make_node(self, name: str, gpus: int, labels: Mapping[str, str] | None = None) -> None:
        """Make a node with GPUs; who keeps it Ready is the stand-in for its kubelet."""
        labels = {"kubernetes.io/hostname": name, **(labels or {})}
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        size = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        told = {"status": {"capacity": size, "allocatable": size}}
        self.ask("PATCH", f"/api/v1/nodes/{name}/status", told)

    def pods(self, namespace: str, selector: str = "") -> list[Json]:
        """Return the pods of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"
        return list(self.ask("GET", path)["items"])

    def gpus_of(self, node: str) -> int:
        """Return how many GPUs of a node Kubernetes counts as given, as its scheduler does."""
        found = 0
        for pod in self.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}")["items"]:
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                limits = [it.get("resources", {}).get("limits", {}) for it in pod["spec"]["containers"]]
                found += sum(int(limit.get("nvidia.com/gpu", 0)) for limit in limits)
        return found
