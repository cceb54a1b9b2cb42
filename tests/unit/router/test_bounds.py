"""What the router remembers is bounded, and what it forgets first is the oldest."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.records import HostName, ReplicaId
from replkernel.router.__main__ import is_of_vs_code, read_arguments
from replkernel.router.core import record
from replkernel.router.core.comms import COMMS_MAX, Comms
from replkernel.router.core.events import Header
from replkernel.router.core.notices import NOTICES_MAX, Notices
from replkernel.router.core.record import AnswerRecord
from replkernel.router.io import log
from replkernel.router.io.connection import ConnectionFile
from replkernel.router.io.serve import find_kernel_id
from tests.support.router_world import World


def test_old_answers_are_forgotten_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "ANSWERS_MAX", 3)
    answers = AnswerRecord()
    for index in range(5):
        answers.add(Header(str(index), "execute_request", "s"), b"x", b"")
    answers.check_invariants()
    assert [answers.find(Header(str(index), "", "s")) is not None for index in range(5)] == [False] * 2 + [
        True
    ] * 3
    monkeypatch.setattr(record, "ANSWER_BYTES_MAX", 10)
    answers.add(Header("big", "", "s"), b"y" * 10, b"")
    answers.check_invariants()
    assert answers.find(Header("4", "", "s")) is None


def test_an_answer_belongs_to_its_session() -> None:
    answers = AnswerRecord()
    answers.add(Header("1", "", "mine"), b"x", b"")
    assert answers.find(Header("1", "", "yours")) is None


def test_comms_are_bounded() -> None:
    comms = Comms()
    for index in range(COMMS_MAX + 5):
        comms.saw("comm_open", b'{"comm_id": "%d", "target_name": "t"}' % index, ReplicaId("r1"))
    comms.check_invariants()
    assert comms.holder(b'{"comm_id": "0"}') is None
    assert comms.holder(b'{"comm_id": "10"}') == "r1"
    assert comms.holder(b"no json") is None


def test_notices_are_bounded_and_said_once() -> None:
    notices = Notices()
    for index in range(NOTICES_MAX + 5):
        notices.add(str(index))
        notices.add(str(index))
    notices.check_invariants()
    assert notices.take()[0] == "5"
    notices.trouble("r1", "full")
    notices.trouble("r1", "full")
    assert notices.take() == ["full"]
    notices.trouble("r2", "full")
    assert notices.take() == [], "it is one trouble, whoever has it"
    notices.trouble("r1", "")
    notices.trouble("r2", "")
    notices.trouble("r1", "full")
    assert notices.take() == ["full"]


def test_replicas_are_spread_over_the_hosts_in_turn() -> None:
    hosts = (HostName("a"), HostName("b"))
    world = World(replicas=5, hosts=hosts)
    assert [replica.host for replica in world.fleet.replicas.values()] == ["a", "b", "a", "b", "a"]


def test_options_for_the_kernel_are_told_from_the_routers() -> None:
    for file in (["-f", "k.json"], ["-f=k.json"], ["--IPKernelApp.connection_file=k.json"]):
        argv = ["--IPKernelApp.matplotlib=inline", *file, "--debug"]
        assert read_arguments(argv) == ("k.json", ("--IPKernelApp.matplotlib=inline", "--debug"))


def test_vs_codes_connection_files_are_known_by_their_names() -> None:
    for name in (f"/run/kernel-v3{'0a' * 20}.json", "kernel-v2-84123Zcq1bnP1u0Ip.json", "kernel-v4x.json"):
        assert is_of_vs_code(name)
    for name in ("kernel-f3a1.json", "/kernel-v3/kernel-1.json", "kernel-vector.json", "kernel-v.json", ""):
        assert not is_of_vs_code(name)


def test_a_kernel_is_known_by_the_launchers_id_the_files_name_or_its_key() -> None:
    def file(name: str, key: bytes = b"k") -> ConnectionFile:
        return ConnectionFile(Path(name), "tcp", "127.0.0.1", key, "hmac-sha256", {})

    assert find_kernel_id(file("kernel-7.json"), {"KERNEL_ID": "abc"}) == "abc"
    assert find_kernel_id(file("kernel-7.json"), {}) == "7"
    assert find_kernel_id(file("kernel-7.json"), {"KERNEL_ID": "../evil"}) == "7"
    assert find_kernel_id(file("tmp.json"), {}) == find_kernel_id(file("tmp.json"), {})
    assert find_kernel_id(file("tmp.json"), {}) != find_kernel_id(file("tmp.json", b"other"), {})


def test_a_warning_is_shown_once_and_a_log_that_cannot_be_written_is_done_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = log.RouterLog(Path("/proc/nowhere/router.log"))
    for _ in range(3):
        lines.write("The disk is full.", shown=True)
    assert capsys.readouterr().err == "replkernel: The disk is full.\n"
