"""A real node: containerd, runc and kubelet as Debian has them, in Linux namespaces of its own.

A container's root holds nothing; `with_host.py` shows it this machine's programs and this repository, read
only, so every name of an image is there. Pods of all nodes meet on one bridge. Law: it needs root; the node's
processes, mounts and containers end with its first process.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes.cluster import BIN, Cluster, eventually

CONTAINERS = BIN.parent / "containers"
BRIDGE, GATEWAY, PODS = "rktest0", "10.89.0.1", "10.89.0.0/16"
SHARE = Path("/sys/fs/cgroup/cpu/k8s.io/cpu.shares")
"""All pods of all nodes are in this group: among the processes of a busy machine it would count as one."""
PAUSE = "tests.example/pause:1"
APART = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc")
NEEDED = ("containerd", "ctr", "runc")
MISSING = "no kubelet and containerd, or no root: `make kubernetes` builds them"


def can_run() -> bool:
    """Say whether nodes can be run here."""
    there = (BIN / "kubelet").is_file() and all((CONTAINERS / "usr/bin" / it).is_file() for it in NEEDED)
    return there and os.geteuid() == 0


class Node:
    """One node of a cluster; its pods' addresses are 10.89.NUMBER.x."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        number: int,
        place: Path,
        images: Sequence[str] = (),
        archives: Sequence[Path] = (),
    ) -> None:
        """Start it; `await_ready` waits for it.

        `archives`: images with all of their own programs, PAUSE among them, instead of names of `images`.
        """
        self.name, self._cluster, self._place = name, cluster, place
        place.mkdir(parents=True)
        for folder in ("kubelet", "logs", "cni", "plugins", "run"):
            (place / folder).mkdir()
        default = "plain" if archives else "host"
        if not archives:
            archives = [place / "images.tar"]
            _write_images(archives[0], [PAUSE, *images])
        (place / "containerd.toml").write_text(self._containerd(default))
        (place / "cni/10-tests.conflist").write_text(json.dumps(self._network(number)))
        (place / "kubelet.json").write_text(json.dumps({**KUBELET, "address": f"127.0.4.{number}"}))
        (place / "node.sh").write_text(self._script(archives))
        with contextlib.suppress(OSError):  # Where cgroups are of version 2, or none can be made.
            SHARE.parent.mkdir(exist_ok=True)
            SHARE.write_text("8192")
        with (place / "node.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*APART, "sh", str(place / "node.sh")],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def await_ready(self, within_s: float = 90.0) -> None:
        """Wait until Kubernetes calls it ready; its images are there before."""
        try:
            eventually(self.ready, within_s)
        except AssertionError as error:
            logs = [self._place / name for name in ("node.log", "kubelet.log")]
            said = "\n".join(it.read_text()[-3000:] for it in logs if it.exists())
            raise AssertionError(f"{self.name} is not ready: {said}") from error

    def ready(self) -> bool:
        """Say whether Kubernetes calls it ready."""
        told = self._cluster.ask("GET", f"/api/v1/nodes/{self.name}")["status"].get("conditions", [])
        return any(it["type"] == "Ready" and it["status"] == "True" for it in told)

    def end(self) -> None:
        """End it as a power cut does, with all of its pods."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._place / "containerd", ignore_errors=True)

    def _script(self, archives: Sequence[Path]) -> str:
        place, programs = self._place, CONTAINERS / "usr"
        imports = "\n".join(
            f"ctr --address {place}/run/c.sock -n k8s.io images import {it}" for it in archives
        )
        return f"""
set -e
mount --make-rprivate /
mkdir -p /var/log/pods /var/log/containers /var/lib/kubelet /run/containerd /run/runc
for name in pods containers; do
  mkdir -p {place}/logs/$name
  mount --bind {place}/logs/$name /var/log/$name
done
mount --bind {place}/kubelet /var/lib/kubelet
mount -t tmpfs none /run/containerd
mount -t tmpfs none /run/runc
export PATH={programs}/bin:{programs}/sbin:$PATH
export LD_LIBRARY_PATH={programs}/lib/{os.uname().machine}-linux-gnu
containerd --config {place}/containerd.toml > {place}/containerd.log 2>&1 &
until ctr --address {place}/run/c.sock version > /dev/null 2>&1; do sleep 0.1; done
{imports}
exec {BIN}/kubelet --config={place}/kubelet.json --kubeconfig={self._cluster.kubeconfig} \\
  --hostname-override={self.name} --node-ip={GATEWAY} --cert-dir={place}/plugins \\
  --container-runtime=remote --container-runtime-endpoint=unix://{place}/run/c.sock > {place}/kubelet.log 2>&1
"""

    def _containerd(self, default: str) -> str:
        place, shown = self._place, Path(__file__).with_name("with_host.py")
        runtimes = "".join(
            f"""
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
BinaryName = "{program}"
"""
            for name, program in {"host": shown, "nvidia": shown, "plain": "runc"}.items()
        )
        return f"""
version = 2
root = "{place}/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
address = "{place}/run/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "{default}"
{runtimes}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CONTAINERS}/usr/lib/cni"
conf_dir = "{place}/cni"
"""

    def _network(self, number: int) -> dict[str, object]:
        ours = {"subnet": PODS, "rangeStart": f"10.89.{number}.1", "rangeEnd": f"10.89.{number}.250"}
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{**ours, "gateway": GATEWAY}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": f"{self._place}/addresses",
            },
        }
        return {"cniVersion": "0.4.0", "name": "tests", "plugins": [bridge]}


KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "healthzPort": 0,
    "readOnlyPort": 0,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failSwapOn": False,
    "oomScoreAdj": 0,
    "clusterDNS": [GATEWAY],
    "clusterDomain": "cluster.local",
    "nodeStatusUpdateFrequency": "2s",
    "evictionHard": {
        "memory.available": "0%",
        "nodefs.available": "0%",
        "imagefs.available": "0%",
        "nodefs.inodesFree": "0%",
    },
    "featureGates": {"DevicePlugins": False, "LocalStorageCapacityIsolation": False},
}


FILES = {
    "etc/passwd": "root:x:0:0::/root:/bin/sh\njovyan:x:1000:1000::/home/jovyan:/bin/sh\n",
    "etc/group": "root:x:0:\njovyan:x:1000:\n",
}


def _write_images(path: Path, names: Sequence[str]) -> None:
    """Write an archive as `docker save` does: one root with next to nothing, under many names."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder, mode in (("tmp", 0o1777), ("etc", 0o755), ("srv", 0o755)):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, mode
            tar.addfile(made)
        for name, text in FILES.items():
            _add(tar, name, text.encode())
    programs = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": [f"PATH={programs}", "PYTHONDONTWRITEBYTECODE=1"],
            "Cmd": ["sleep", "2147483647"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, "config.json", json.dumps(config).encode())
        _add(tar, "manifest.json", json.dumps(manifest).encode())
        _add(tar, "layer.tar", layer.getvalue())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    made = tarfile.TarInfo(name)
    made.size = len(content)
    tar.addfile(made, io.BytesIO(content))
