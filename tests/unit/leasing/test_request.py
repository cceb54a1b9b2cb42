"""What a cell asks for: who decides, how it is written, and that everything else is refused with the fix."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.leasing.request import (
    GPUS_ASKED_MAX,
    GPUS_DEFAULT_MAX,
    BadGpuRequest,
    GpuRequest,
    kernels_request,
    parse_request,
    request_of,
    split_gpu_line,
)
from replkernel.router.core.wishes import Wish

DEFAULT = GpuRequest(3, 8.0, "L4")
NOTHING = b"{}"


def metadata(**own: Any) -> bytes:
    """A metadata frame as JupyterLab sends it."""
    return json.dumps({"trusted": True, "replkernel": own, "cellId": "c3"}).encode()


@pytest.mark.parametrize(
    ("frame", "code", "default", "asked"),
    [
        (NOTHING, "x = 1", None, None),
        (NOTHING, "x = 1", DEFAULT, DEFAULT),
        (NOTHING, "%%gpu 2\nx = 1", None, GpuRequest(2)),
        (NOTHING, "%%gpu 2\nx = 1", DEFAULT, GpuRequest(2)),
        (metadata(gpus=1), "%%gpu 2\nx = 1", DEFAULT, GpuRequest(1)),
        (metadata(gpus=2, vram_gb=20, gpu_model="NVIDIA h100"), "x", None, GpuRequest(2, 20.0, "H100")),
        (metadata(vram_gb=20), "x", None, GpuRequest(1, 20.0)),
        (metadata(gpus=0.5), "x", None, GpuRequest(1, part=0.5)),
        (metadata(gpus=1, vram_gb=20, share=True), "x", None, GpuRequest(1, 20.0, part=1.0, shared=True)),
        (NOTHING, "%%gpu 0.5\nx = 1", DEFAULT, GpuRequest(1, part=0.5)),
        (metadata(cpu=4, memory_gib=32), "x", None, GpuRequest(1, cpu=4.0, memory_gib=32.0)),
        (metadata(gpus=None, gpu_model=None), "x", DEFAULT, DEFAULT),
        (metadata(), "x", DEFAULT, DEFAULT),
        (metadata(other={"deep": [1]}), "x", None, None),
        (b'{"replkernel": null}', "x", DEFAULT, DEFAULT),
        (metadata(gpus=0), "%%gpu 2\nx", DEFAULT, None),
        (NOTHING, "%%gpu 0\nx", DEFAULT, None),
        (NOTHING, "%%gpu --help\nx", DEFAULT, None),
        (NOTHING, "%gpu 2\n\n# later\n%gpu status", DEFAULT, None),
        (NOTHING, "%replkernel status", DEFAULT, None),
        (NOTHING, "%job list", DEFAULT, None),
        (NOTHING, "# trains beside\n%%job --gpus 2\nimport torch\ntorch.ones(1)", DEFAULT, None),
        (NOTHING, "%%gpu?", DEFAULT, None),
        (NOTHING, "", DEFAULT, None),
        (NOTHING, "%gpu status\nx = 1", DEFAULT, DEFAULT),
        (NOTHING, "x = 1\n%%gpu 2", None, None),
        (NOTHING, "print('%%gpu 2')", None, None),
    ],
)
def test_metadata_decide_before_the_cells_magic_and_that_before_the_default(
    frame: bytes, code: str, default: GpuRequest | None, asked: GpuRequest | None
) -> None:
    assert request_of(frame, code, default) == asked


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("", GpuRequest(1)),
        ("4", GpuRequest(4)),
        ("1 --vram 20 --model H100", GpuRequest(1, 20.0, "H100")),
        ("--model='A100 80GB' --vram=12.5GB 2", GpuRequest(2, 12.5, "A100")),
        ("2 # the whole box", GpuRequest(2)),
        ("1 --vram 20GiB", GpuRequest(1, 20.0)),
        ("1 --vram 20.5", GpuRequest(1, 20.5)),
        ("0.25 --vram 500M", GpuRequest(1, 500 / 1024, part=0.25)),
        ("0.25 --vram 1536MiB", GpuRequest(1, 1.5, part=0.25)),
        ("--cpu 4 --memory 32", GpuRequest(1, cpu=4.0, memory_gib=32.0)),
        ("2 --cpu=0.5 --memory=1.5GiB", GpuRequest(2, cpu=0.5, memory_gib=1.5)),
        ("1 --memory 512MiB", GpuRequest(1, memory_gib=0.5)),
        ("1 --memory 512M", GpuRequest(1, memory_gib=0.5)),
        ("0.5", GpuRequest(1, part=0.5)),
        (".25 --vram 8 --model H100", GpuRequest(1, 8.0, "H100", part=0.25)),
        ("0.3333", GpuRequest(1, part=0.333)),
        ("1.0", GpuRequest(1)),
        ("2.0", GpuRequest(2)),
        ("0.9996", GpuRequest(1)),
        ("1 --vram 20 --share", GpuRequest(1, 20.0, part=1.0, shared=True)),
        ("0.5 --share", GpuRequest(1, part=0.5, shared=True)),
    ],
)
def test_how_a_request_is_written(line: str, asked: GpuRequest) -> None:
    assert parse_request(line, GPUS_ASKED_MAX) == asked


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("two", "`two` is not a number of GPUs"),
        ("²", "is not a number of GPUs"),
        ("1 2", "`2` is not understood"),
        ("-1", "`-1` is not understood"),
        ("20.0", "20.0 GPUs are more than the 8"),
        ("9999999.0", "9999999.0 GPUs are more than the 8"),
        ("1 --vrm 20", "`--vrm` is not understood"),
        ("1 --vram", "not a number of GiB"),
        ("1 --vram nan", "not a number of GiB"),
        ("1 --vram -4", "not a number of GiB"),
        ("1 --cpu", "not a number of cores from 0 to 1024"),
        ("1 --cpu 2000", "not a number of cores from 0 to 1024"),
        ("1 --cpu nan", "not a number of cores from 0 to 1024"),
        ("1 --memory", "not a number of GiB from 0 to 65536"),
        ("1 --memory inf", "not a number of GiB from 0 to 65536"),
        ("1 --memory 32GB", "is not in GiB"),
        ("1 --model", "needs the name"),
        ("1 --model --vram 3", "needs the name"),
        ("1 --model " + "x" * 201, "needs the name"),
        ("1 --model 'H100", "No closing quotation"),
        ("9", "9 GPUs are more than the 8"),
        ("0.5.5", "`0.5.5` is not a number of GPUs"),
        ("0.5 0.5", "`0.5` is not understood"),
        ("9" * 5000, "are more than the 8"),
    ],
)
def test_a_wrong_request_is_refused_with_the_fix(line: str, words: str) -> None:
    with pytest.raises(BadGpuRequest) as told:
        parse_request(line, GPUS_DEFAULT_MAX)
    said = str(told.value)
    assert words in said and len(said) < 300
    assert "`2 --vram 20 --model H100 --cpu 4 --memory 32`" in said or "can be asked for" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1.5", "Parts of a GPU go up to 1, and 1.5 is asked for: ask for a part of one GPU, or for 2 whole"),
        ("0.001", "Parts of a GPU begin at 0.01, and 0.001 is asked for"),
        ("1 --share", "needs a bound of its memory"),
        ("2 --vram 20 --share", "One GPU can be shared, or a part of one, and 2 GPUs are asked for"),
        ("0 --share", "One GPU can be shared, or a part of one, and 0 GPUs are asked for"),
    ],
)
def test_a_part_of_a_gpu_that_cannot_be_is_refused_by_name(line: str, words: str) -> None:
    with pytest.raises(BadGpuRequest, match=words):
        parse_request(line, GPUS_DEFAULT_MAX)


@pytest.mark.parametrize(
    "own",
    [
        {"gpus": "two"},
        {"gpus": -1},
        {"gpus": 2000},
        {"vram_gb": -1},
        {"gpu_model": 4},
        {"cpu": -1},
        {"cpu": 2000},
        {"memory_gib": 1e9},
    ],
)
def test_metadata_that_does_not_fit_is_refused(own: dict[str, Any]) -> None:
    with pytest.raises(BadGpuRequest, match="metadata `replkernel` is not understood") as told:
        request_of(metadata(**own), "x", DEFAULT)
    assert '{"gpus": 2' in str(told.value)


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        (metadata(gpus=1, vram=20), "`vram` is not understood (`vram_gb` is the name)"),
        (metadata(gpus=1, model="H100"), "`model` is not understood (`gpu_model` is the name)"),
        (metadata(gpu=1), "`gpu` is not understood (`gpus` is the name)"),
        (b'{"replkernel.gpus": 1}', "`replkernel.gpus` is not understood (a name with a point)"),
    ],
)
def test_a_slip_of_the_pen_in_metadata_is_refused_and_not_taken_for_nothing(frame: bytes, name: str) -> None:
    with pytest.raises(BadGpuRequest) as told:
        request_of(frame, "x", None)
    assert name in str(told.value) and 'write it like {"replkernel": {"gpus": 2' in str(told.value)


def test_metadata_that_only_share_ask_for_a_bound() -> None:
    with pytest.raises(BadGpuRequest, match="needs a bound of its memory"):
        request_of(metadata(share=True), "x", None)


def test_metadata_that_is_no_object_is_refused() -> None:
    with pytest.raises(BadGpuRequest):
        request_of(b'{"replkernel": 3}', "x", None)


def test_a_cell_may_ask_for_more_than_a_lease_has_and_is_answered_by_the_scheduler() -> None:
    assert request_of(NOTHING, "%%gpu 100", None) == GpuRequest(100)
    with pytest.raises(BadGpuRequest, match="1025 GPUs are more than the 1024"):
        request_of(NOTHING, "%%gpu 1025", None)


@pytest.mark.parametrize(
    ("code", "line", "rest"),
    [
        ("%%gpu 1\nx = 1\n1/0", "1", "\nx = 1\n1/0"),
        ("\n\n  %%gpu\n  x = 1", "", "\n\n\n  x = 1"),
        ("%%gpu\t1 --vram 3\r\nx", "1 --vram 3", "\nx"),
        ("%%gpu 1\n\n%%time\nx", "1", "\n%%time\nx"),
        ("%%time\n%%gpu 1\nx", "1", "%%time\n\nx"),
        ("%%gpu", "", "\n"),
        ("%%bash\n%%gpu 1", None, "%%bash\n%%gpu 1"),
        ("%%gpus 1\nx", None, "%%gpus 1\nx"),
        ("# first\n%%gpu 1", None, "# first\n%%gpu 1"),
    ],
)
def test_the_line_is_read_at_the_beginning_and_leaves_its_place(
    code: str, line: str | None, rest: str
) -> None:
    assert split_gpu_line(code) == (line, rest)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_line_is_understood_or_refused_by_name(line: str, body: str) -> None:
    try:
        asked = request_of(NOTHING, f"%%gpu {line}\n{body}", DEFAULT)
    except BadGpuRequest:
        return
    assert asked is None or 1 <= asked.gpus <= GPUS_ASKED_MAX


@given(st.binary(max_size=200))
def test_any_metadata_is_understood_or_refused_by_name(frame: bytes) -> None:
    try:
        asked = request_of(b'{"replkernel":' + frame, "x", None)
    except BadGpuRequest:
        return
    assert asked is None or 1 <= asked.gpus <= GPUS_ASKED_MAX


def test_a_cell_is_leased_cores_and_memory_with_gpus_only_and_a_kernel_may_ask_for_them_alone() -> None:
    for code, frame in (("%%gpu 0 --cpu 4\nx", NOTHING), ("x", metadata(gpus=0, memory_gib=4))):
        with pytest.raises(BadGpuRequest, match="are leased with GPUs: ask for one GPU at least"):
            request_of(frame, code, DEFAULT)
    assert parse_request("0 --cpu 4", GPUS_DEFAULT_MAX, kernels=True) == GpuRequest(0, cpu=4.0)


def test_a_notebooks_own_metadata_are_its_kernels_request() -> None:
    own = {"gpus": 0, "cpu": 2, "memory_gib": 8}
    document = {"cells": [{"source": "x"}], "metadata": {"replkernel": own, "kernelspec": {}}, "nbformat": 4}
    assert kernels_request(json.dumps(document).encode()) == GpuRequest(0, cpu=2.0, memory_gib=8.0)
    assert kernels_request(b'{"cells": [], "metadata": {}}') is None
    assert kernels_request(b"no notebook") is None
    with pytest.raises(BadGpuRequest, match="notebook's metadata `memory` is not understood"):
        kernels_request(b'{"metadata": {"replkernel": {"memory": 32}}}')
    with pytest.raises(BadGpuRequest, match="metadata `cores` is not understood"):
        request_of(metadata(cores=2), "x", DEFAULT)


def test_memory_is_told_to_schedulers_in_their_unit() -> None:
    assert Wish("cell", "request", GpuRequest(1, memory_gib=16.0), ()).message().memory_gb == 16.0


def test_a_cell_on_several_hosts_asks_by_itself() -> None:
    assert parse_request("16 --hosts 2 --vram 20 --back model,losses", GPUS_ASKED_MAX) == GpuRequest(
        16, 20.0, hosts=2, back=("model", "losses")
    )
    assert request_of(NOTHING, "%%gpu 16 --hosts 2\nx", DEFAULT) is None
    assert request_of(NOTHING, "%%gpu 2 --hosts 1\nx", DEFAULT) == GpuRequest(2)


def test_a_cell_asks_for_gpus_of_one_host_or_of_several_and_never_for_both() -> None:
    for code in ("%%gpu 4 --hosts 2\nx", "%%time\n%%gpu 4 --hosts 2 --back a\nx"):
        with pytest.raises(BadGpuRequest, match="asks twice: its metadata for GPUs of one host"):
            request_of(metadata(gpus=2), code, None)
        assert request_of(metadata(gpus=0), code, DEFAULT) is None
    assert request_of(metadata(gpus=2), "%%gpu 4\nx", None) == GpuRequest(2)
    assert request_of(metadata(gpus=2), "print('--hosts')", None) == GpuRequest(2)


@pytest.mark.parametrize("line", ["8 --hosts 2", "2 --hosts=1", "--back a"])
def test_a_kernels_request_is_of_one_host(line: str) -> None:
    with pytest.raises(BadGpuRequest, match="are for one cell"):
        parse_request(line, GPUS_DEFAULT_MAX, kernels=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("3 --hosts 2", "3 GPUs cannot be shared out among 2 hosts: ask for the same number"),
        ("1 --hosts 2", "1 GPU cannot be shared out among 2 hosts"),
        ("0.5 --hosts 2", "½ GPU cannot be shared out"),
        ("4 --hosts two", "`--hosts two` is not a number of hosts from 1 to 64"),
        ("4 --hosts 65", "`--hosts 65` is not a number of hosts"),
        ("4 --hosts 2 --back a,b c", "`c` is not understood"),
        ("4 --hosts 2 --back a-b", "is no list of names like `model,losses`"),
        ("4 --back a", "`--back` is for a cell on several hosts"),
        ("4 --hosts 2 --preemptible", "`--preemptible` is for a cell on one host"),
        ("4 --hosts 2 --for 30m", "`--for` is for a cell on one host"),
    ],
)
def test_an_impossible_request_of_several_hosts_is_refused_by_name(line: str, why: str) -> None:
    with pytest.raises(BadGpuRequest) as raised:
        parse_request(line, GPUS_ASKED_MAX)
    assert why in str(raised.value)
