"""A kernel outlives its user's server: the Hub gives the next one another token, and cells get GPUs again."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from tests.support import hub as running
from tests.support.shared_hub import SPAWNED, offering, shared_hub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]
NOTICED_S = 50.0
"""By then the scheduler has asked the Hub about an open connection again."""
VISIBLE = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


def test_a_kernel_gets_gpus_with_the_token_of_its_users_next_server(short_dir: Path) -> None:
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with shared_hub(short_dir, SPAWNED) as hub, offering(hub, short_dir / "agents", "one", 2):
        hub.running.start_servers("alice")
        kernel_id = hub.open_notebook("alice", 1)
        with hub.running.page("alice", kernel_id) as page:
            old = page.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])", within_s=120.0)
            assert page.run(VISIBLE, gpus=1).count("GPU-") == 1
        assert hub.ask(old, "GET", "status")[0] == 200
        hub.running.stop_servers("alice")
        time.sleep(NOTICED_S)
        assert hub.ask(old, "GET", "status")[0] == 401
        hub.running.start_servers("alice")
        with hub.running.page("alice", kernel_id) as page:
            assert page.run("print(os.environ['JUPYTERHUB_API_TOKEN'])") == old
            assert page.run(VISIBLE, within_s=120.0, gpus=2).count("GPU-") == 2
