"""Configuration files count for a router that a front end starts by its command alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.launch.configured import take_configured
from replkernel.settings import CONFIG_FAULT


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_a_file_is_read_and_wins_over_the_environment(directory: Path) -> None:
    env = {"REPLKERNEL_REPLICAS": "3"}
    take_configured(env)
    assert env == {"REPLKERNEL_REPLICAS": "3"}
    (directory / "jupyter_replkernel_config.py").write_text(
        "c.ReplkernelProvisioner.replicas = 1\nc.ReplkernelProvisioner.hosts = ['a', 'b']\n"
        "c.ReplkernelProvisioner.nothing = 1\n"
    )
    take_configured(env)
    assert env == {"REPLKERNEL_REPLICAS": "1", "REPLKERNEL_HOSTS": "a,b"}


def test_a_faulty_file_is_left_for_the_router_to_name(directory: Path) -> None:
    (directory / "jupyter_replkernel_config.py").write_text("c.ReplkernelProvisioner.replicas = (\n")
    env: dict[str, str] = {}
    take_configured(env)
    assert "jupyter_replkernel_config.py" in env[CONFIG_FAULT]
