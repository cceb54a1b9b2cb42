"""Agents and routers find the scheduler: the one that is set, else the one that runs here, else none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replkernel.agent.io.death import start_time
from replkernel.leasing.finding import (
    find_scheduler,
    forget_address,
    last_url,
    read_address,
    tell_address,
    tell_hub_token,
)
from tests.support.scheduler_service import serving

HERE = "http://127.0.0.1:8797"
HUB = "http://hub.example:8000/services/replkernel"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"JUPYTER_DATA_DIR": str(tmp_path)}


def scheduler_file(env: dict[str, str], name: str) -> Path:
    return Path(env["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler" / name


def write_token(env: dict[str, str], text: str) -> Path:
    path = scheduler_file(env, "token")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_without_a_setting_and_without_a_scheduler_there_is_none(env: dict[str, str]) -> None:
    assert find_scheduler(env) == ("", "")


@pytest.mark.parametrize("token", ["sec\nret", "sec ret", "\x00", "€"])
def test_a_token_that_no_header_can_carry_is_none_and_so_in_no_error(env: dict[str, str], token: str) -> None:
    env |= {"REPLKERNEL_SCHEDULER_URL": HERE, "REPLKERNEL_SCHEDULER_TOKEN": token}
    assert find_scheduler(env) == (HERE, "")
    del env["REPLKERNEL_SCHEDULER_TOKEN"]
    write_token(env, token)
    assert find_scheduler(env) == (HERE, "")
    write_token(env, " good\n")
    assert find_scheduler(env) == (HERE, "good"), "an editor's newline at the end is nobody's"


def test_the_scheduler_that_serves_here_is_found_until_it_ends(env: dict[str, str]) -> None:
    tell_address(env, HERE + "/", "secret")
    assert find_scheduler(env) == (HERE, "secret")
    assert scheduler_file(env, "address.json").stat().st_mode & 0o777 == 0o600
    assert scheduler_file(env, "address.json").parent.stat().st_mode & 0o777 == 0o700
    forget_address(env)
    assert find_scheduler(env) == ("", "")
    assert "secret" not in scheduler_file(env, "address.json").read_text()
    assert last_url(env) == HERE
    forget_address(env)
    assert last_url(env) == HERE


def test_the_address_of_a_killed_scheduler_is_no_answer_and_the_next_one_replaces_it(
    env: dict[str, str],
) -> None:
    told = f"tell_address({env!r}, 'http://127.0.0.1:1', 'old')"
    tell = f"from replkernel.leasing.finding import tell_address; {told}"
    subprocess.run([sys.executable, "-c", tell], check=True, timeout=60)
    assert scheduler_file(env, "address.json").exists()
    assert find_scheduler(env) == ("", "")
    tell_address(env, HERE, "new")
    assert find_scheduler(env) == (HERE, "new")


def test_a_process_that_has_the_killed_ones_number_is_not_taken_for_it(env: dict[str, str]) -> None:
    tell_address(env, HERE, "secret")
    found = read_address(env)
    assert found is not None
    path = scheduler_file(env, "address.json")
    path.write_text(path.read_text().replace(str(found.started), str(found.started - 1)))
    assert find_scheduler(env) == ("", "")


def test_a_scheduler_that_ends_late_does_not_remove_the_address_of_the_next(env: dict[str, str]) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        tell_address(env, HERE, "secret")
        found = read_address(env)
        assert found is not None
        path = scheduler_file(env, "address.json")
        text = path.read_text().replace(str(found.started), str(start_time(other.pid)))
        path.write_text(text.replace(f'"pid":{os.getpid()}', f'"pid":{other.pid}'))
        forget_address(env)
        assert find_scheduler(env) == (HERE, "secret")
    finally:
        other.communicate(b"\n", timeout=30)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"url": 3}', "x" * 5000, "\xff"])
def test_a_damaged_file_is_no_answer(env: dict[str, str], damage: str) -> None:
    tell_address(env, HERE, "secret")
    scheduler_file(env, "address.json").write_text(damage, encoding="latin-1")
    assert find_scheduler(env) == ("", "")
    assert last_url(env) == ""


def test_a_file_that_others_could_have_written_is_no_answer(env: dict[str, str]) -> None:
    tell_address(env, HERE, "secret")
    scheduler_file(env, "address.json").chmod(0o666)
    assert find_scheduler(env) == ("", "")


def test_the_setting_comes_before_the_one_that_runs_here(env: dict[str, str]) -> None:
    tell_address(env, HERE, "secret")
    write_token(env, "of-the-file\n")
    env["REPLKERNEL_SCHEDULER_URL"] = "http://127.0.0.1:9999/"
    assert find_scheduler(env) == ("http://127.0.0.1:9999", "of-the-file")
    env["REPLKERNEL_SCHEDULER_URL"] = HERE
    assert find_scheduler(env) == (HERE, "secret")
    env["REPLKERNEL_SCHEDULER_TOKEN"] = "given"
    assert find_scheduler(env) == (HERE, "given")


def test_the_hubs_token_goes_to_the_hubs_service_and_to_nobody_else(env: dict[str, str]) -> None:
    env |= {"JUPYTERHUB_API_TOKEN": "of-the-hub", "REPLKERNEL_SCHEDULER_URL": HUB}
    write_token(env, "of-the-file")
    assert find_scheduler(env) == (HUB, "of-the-hub")
    env["REPLKERNEL_SCHEDULER_URL"] = HERE
    assert find_scheduler(env) == (HERE, "of-the-file")


def test_the_token_of_the_file_does_not_go_to_the_hub(env: dict[str, str]) -> None:
    write_token(env, "of-the-file")
    env["REPLKERNEL_SCHEDULER_URL"] = HUB
    assert find_scheduler(env) == (HUB, "")


def test_a_kernel_that_outlives_its_server_gets_the_token_of_the_next_one_of_that_name(
    env: dict[str, str],
) -> None:
    env |= {"REPLKERNEL_SCHEDULER_URL": HUB, "JUPYTERHUB_SERVICE_PREFIX": "/user/alice/"}
    kernel = env | {"JUPYTERHUB_API_TOKEN": "first"}
    tell_hub_token(kernel)
    assert find_scheduler(kernel) == (HUB, "first")
    tell_hub_token(env | {"JUPYTERHUB_API_TOKEN": "second"})
    tell_hub_token(env | {"JUPYTERHUB_API_TOKEN": "other", "JUPYTERHUB_SERVICE_PREFIX": "/user/alice/named/"})
    assert find_scheduler(kernel) == (HUB, "second")
    modes = {path.stat().st_mode & 0o777 for path in scheduler_file(env, "token").parent.iterdir()}
    assert modes == {0o600}


def test_without_a_hub_no_token_of_one_is_kept(env: dict[str, str]) -> None:
    tell_hub_token(env | {"JUPYTERHUB_API_TOKEN": "first"})
    tell_hub_token(env | {"REPLKERNEL_SCHEDULER_URL": HERE, "JUPYTERHUB_API_TOKEN": "first"})
    assert not scheduler_file(env, "token").parent.exists()


def test_a_setting_without_any_token_is_found_with_none(env: dict[str, str]) -> None:
    env["REPLKERNEL_SCHEDULER_URL"] = HERE
    assert find_scheduler(env) == (HERE, "")


def test_the_service_is_found_while_it_serves_and_not_once_it_was_killed_or_ended() -> None:
    with serving() as service:
        url, token = find_scheduler(os.environ)
        assert url == service.url
        assert token == (Path(os.environ["JUPYTER_DATA_DIR"]) / "replkernel/scheduler/token").read_text()
        service.kill()
        assert find_scheduler(os.environ) == ("", "")
    with serving() as service:
        assert find_scheduler(os.environ) == (service.url, token)
        assert service.end()[0] == 0
        assert find_scheduler(os.environ) == ("", "")
