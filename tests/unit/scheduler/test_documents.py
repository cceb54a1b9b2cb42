"""What the scheduler's REST takes: ids that can be shown in a line of a terminal or a table."""

from __future__ import annotations

import msgspec
import pytest
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_jobs import check_job
from replkernel_server.scheduling.documents import JobBody, check_id


@pytest.mark.parametrize("text", ["", "a\n", "\na", "a\tb", "a\x1b[2J", "a\x9b2J", "\x7f", "x" * 201])
def test_an_id_with_a_control_character_or_of_no_sensible_length_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="kernel's id must have 1 to 200 characters"):
        check_id(text, "kernel's id")


@pytest.mark.parametrize("text", ["k", "h-1.example", "Ünïcode id", "x" * 200])
def test_any_other_id_is_taken(text: str) -> None:
    assert check_id(text, "kernel's id") == text


def job(**fields: object) -> JobBody:
    return msgspec.convert({"job": "j", "command": ["x"], "directory": "/w", "seal": "s", **fields}, JobBody)


@pytest.mark.parametrize(
    "fields", [{"gpus": [1]}, {"gpus": [1, 2], "vram_gb": 8}, {"cpus": 2, "memory_gb": 1}]
)
def test_a_job_wants_gpus_or_cores_with_memory(fields: dict[str, object]) -> None:
    check_job(job(**fields))


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("name one of these", {}),
        ("name one of these", {"gpus": [1], "cpus": 1, "memory_gb": 1}),
        ("name more than 0 GiB", {"cpus": 1}),
        ("go with `gpus`", {"cpus": 1, "memory_gb": 1, "gpu_model": "H100"}),
        ("go with `gpus`", {"cpus": 1, "memory_gb": 1, "vram_gb": 8}),
        ("go with `cpus`", {"gpus": [1], "memory_gb": 1}),
        ("go with `cpus`", {"gpus": [1], "expected_s": 60}),
    ],
)
def test_a_jobs_fields_that_do_not_go_together_are_refused_by_name(
    said: str, fields: dict[str, object]
) -> None:
    with pytest.raises(BadRequest, match=said):
        check_job(job(**fields))
