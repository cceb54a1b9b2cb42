"""The command line: its help teaches, its exit codes tell, and one failing check never stops the others."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from replkernel import __version__
from replkernel.cli import build_parser, doctor, main
from replkernel.cli.doctor import Finding, examine, note, ok, run_doctor, wrong
from replkernel.errors import SettingError


def test_no_verb_prints_the_help_and_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().out
    verbs = ("doctor", "status", "agent", "store", "scheduler", "simulate", "accounting", "version")
    for verb in verbs:
        assert verb in said
    assert "Start here" in said


@pytest.mark.parametrize("verb", ["doctor", "status", "agent", "accounting", "version"])
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([verb, "--help"])
    assert ended.value.code == 0
    assert verb in capsys.readouterr().out


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"replkernel {__version__}\n"


def test_a_scheduler_that_cannot_be_asked_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", "nowhere")
    assert main(["accounting"]) == 1
    assert capsys.readouterr().err == (
        "REPLKERNEL_SCHEDULER_URL='nowhere': not an http address; "
        "write http://127.0.0.1:PORT, or unset the setting.\n"
    )


def test_an_expected_fault_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--name", "no/such/host"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "REPLKERNEL_HOST_NAME" in said


def test_parsing_the_command_imports_nothing_heavy() -> None:
    light = {"zmq", "tornado", "jupyter_client", "jupyter_server", "IPython"} - set(sys.modules)
    build_parser()
    assert not light & set(sys.modules)


def test_the_doctor_reports_every_part_and_fails_if_one_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = (
        ("one", lambda env: ok("fine")),
        ("two", lambda env: note("absent")),
        ("three", lambda env: wrong("do")),
    )
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert run_doctor({}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ok", "note", "wrong"]
    assert lines[3] == "1 of 3 need attention."


def test_the_doctor_is_content_when_only_optional_parts_are_absent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (("one", lambda env: ok("")), ("two", lambda env: note("absent"))))
    assert run_doctor({}) == 0
    assert "All is well." in capsys.readouterr().out


def _setting_fault(env: Mapping[str, str]) -> Finding:
    raise SettingError("REPLKERNEL_REPLICAS", "x", "not a number", "set REPLKERNEL_REPLICAS=3")


def _unforeseen_fault(env: Mapping[str, str]) -> Finding:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    ("check", "said"),
    [(_setting_fault, "set REPLKERNEL_REPLICAS=3"), (_unforeseen_fault, "RuntimeError: boom")],
)
def test_a_check_that_fails_becomes_a_finding(check: object, said: str) -> None:
    finding = examine(check, {})
    assert finding.state == "wrong"
    assert said in finding.text


def test_settings_that_cannot_be_used_are_named() -> None:
    finding = examine(doctor.check_settings, {"REPLKERNEL_EXECUTOR": "fastest"})
    assert finding.state == "wrong"
    assert "REPLKERNEL_EXECUTOR" in finding.text
    assert "sticky" in finding.text


@pytest.mark.parametrize("url", ["file:///etc/passwd", "nonsense"])
def test_a_scheduler_address_must_be_http(url: str) -> None:
    finding = examine(doctor.check_scheduler, {"REPLKERNEL_SCHEDULER_URL": url})
    assert finding.state == "wrong"
    assert "REPLKERNEL_SCHEDULER_URL" in finding.text


def test_pretended_gpus_are_called_so() -> None:
    finding = examine(doctor.check_gpus, {"REPLKERNEL_FAKE_GPUS": "4"})
    assert finding == note("4 simulated GPUs (REPLKERNEL_FAKE_GPUS)")
