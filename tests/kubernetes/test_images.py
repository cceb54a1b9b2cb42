"""The images of deploy/images, built as their heads say, and run by the kubelet of a real node.

The images that they begin with are not to be had without a registry; a Debian laid out like each stands in.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import SERVER, Cluster, Json, eventually
from tests.kubernetes.conftest import GPUS, NODES, PODS, SPACE, holders, install_with_journal
from tests.kubernetes.images import MISSING as NO_BUILDAH
from tests.kubernetes.images import Images, can_build
from tests.kubernetes.network import Network
from tests.kubernetes.node import MISSING, PAUSE, Node, can_run
from tests.kubernetes.real_nodes import HUB_IMAGE, OWN_IMAGE, USERS_IMAGE, ready
from tests.support.helm import MISSING as NO_HELM
from tests.support.helm import find_helm

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.one_machine,
    pytest.mark.skipif(not can_run(), reason=MISSING),
    pytest.mark.skipif(not can_build(), reason=NO_BUILDAH),
    pytest.mark.skipif(find_helm() is None, reason=NO_HELM),
]
WITHIN_S = 600.0
CELL = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="replkernel", startup_timeout=200)
client.execute_interactive("x = 6; print('a cell says', x * 7)")
client.stop_channels(); manager.shutdown_kernel()
"""
SETUP = """
import os, jupyterhub
from traitlets.config import Config
from replkernel_server.hub import setup_replkernel
c = Config(); c.KubeSpawner.environment = {"A": "b"}
setup_replkernel(c, service_token="x" * 16, address="http://rk:8797", plain_http=True)
print([it["name"] for it in c.JupyterHub.services], os.getuid())
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="rk-images-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def archives(place: Path) -> list[Path]:
    images = Images(place)
    images.build("Dockerfile", "python", OWN_IMAGE)
    images.build("hub.Dockerfile", "hub", HUB_IMAGE)
    images.build("notebook.Dockerfile", "notebook", USERS_IMAGE)
    return [*images.archives(PAUSE, OWN_IMAGE, HUB_IMAGE, USERS_IMAGE)]


@pytest.fixture(scope="module")
def cluster(place: Path, archives: list[Path]) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        network = Network()
        stack.callback(network.close)
        made = Cluster(place, SERVER, 443)
        stack.callback(made.close)
        network.name(made)
        node = Node(made, NODES[0], 1, place / "node", archives=archives)
        stack.callback(node.end)
        node.await_ready(WITHIN_S)
        made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        yield made


def said(cluster: Cluster, place: Path, image: str, code: str) -> str:
    """Return what a pod of an image, whose user is the image's own, says when it runs Python."""
    name = image.rpartition("/")[2].partition(":")[0]
    container: Json = {"name": "c", "image": image, "command": ["python", "-P", "-c", code]}
    container["env"] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    spec = {"containers": [container], "restartPolicy": "Never"}

    def over() -> Json | None:
        pod: Json = cluster.ask("GET", f"{PODS}/{name}")
        return pod if pod["status"]["phase"] in ("Succeeded", "Failed") else None

    eventually(lambda: cluster.ask("GET", f"/api/v1/namespaces/{SPACE}/serviceaccounts/default"))
    cluster.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})
    pod = eventually(over, WITHIN_S)
    text = "".join(it.read_text() for it in (place / "node/logs/pods").glob(f"{SPACE}_{name}_*/c/*.log"))
    assert pod["status"]["phase"] == "Succeeded", text
    return text


def test_the_schedulers_image_starts_and_answers_its_probe_and_is_the_holders_too(
    cluster: Cluster, place: Path
) -> None:
    told = {"status": {"capacity": {"nvidia.com/gpu": str(GPUS)}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{NODES[0]}/status", told)
    install_with_journal(cluster, place, {"launcher.hosts": "1", "launcher.runtimeClass": ""})

    def answers() -> bool:
        pods = cluster.pods(SPACE, "app.kubernetes.io/component=scheduler")
        return bool(pods) and ready(pods[0])

    eventually(answers, WITHIN_S)
    (scheduler,) = cluster.pods(SPACE, "app.kubernetes.io/component=scheduler")
    assert scheduler["status"]["containerStatuses"][0]["restartCount"] == 0
    eventually(lambda: any(ready(it) for it in holders(cluster, NODES[0])), WITHIN_S)


def test_two_lines_put_the_kernel_into_a_notebooks_image(cluster: Cluster, place: Path) -> None:
    assert "a cell says 42" in said(cluster, place, USERS_IMAGE, CELL)


def test_the_hubs_image_calls_setup_replkernel_as_the_hubs_user(cluster: Cluster, place: Path) -> None:
    assert "['replkernel'] 1000" in said(cluster, place, HUB_IMAGE, SETUP)
