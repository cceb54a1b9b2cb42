"""Safetensors files: the bytes that the format's definition asks for, from tensors wherever they lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import replkernel  # noqa: E402
from replkernel.gpu.export import ExportError  # noqa: E402


def read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Read a file as its definition says."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    names = header.pop("__metadata__")
    types = {"F32": torch.float32, "I64": torch.int64, "BF16": torch.bfloat16, "BOOL": torch.bool}
    found, ends = {}, [0]
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        assert start == ends[-1], "no holes"
        ends.append(end)
        raw = torch.frombuffer(bytearray(body[start:end]), dtype=torch.uint8)
        found[name] = raw.view(types[entry["dtype"]]).reshape(entry["shape"])
    assert ends[-1] == len(body)
    return found, names


def test_a_module_comes_out_as_it_is(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    replkernel.export(model, tmp_path / "m.safetensors")
    found, _ = read(tmp_path / "m.safetensors")
    assert found.keys() == model.state_dict().keys()
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def test_views_types_and_strides_are_written_by_their_elements(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    values = {"turned": base.t(), "row": base[1], "half": base.bfloat16(), "yes": base > 5}
    replkernel.export(values, tmp_path / "v.safetensors")
    found, _ = read(tmp_path / "v.safetensors")
    assert all(torch.equal(found[name], value) for name, value in values.items())


def test_tied_weights_are_written_once_and_named(tmp_path: Path) -> None:
    first, second = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    replkernel.export(torch.nn.Sequential(first, second), tmp_path / "t.safetensors")
    found, names = read(tmp_path / "t.safetensors")
    assert list(found) == ["0.weight"]
    assert names["1.weight"] == "0.weight"


def test_a_large_tensor_goes_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.gpu.export.PIECE_BYTES", 100)
    replkernel.export({"x": torch.arange(1000)}, tmp_path / "x.safetensors")
    assert torch.equal(read(tmp_path / "x.safetensors")[0]["x"], torch.arange(1000))


def test_an_export_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    replkernel.export({"x": torch.ones(1)}, path)
    before = path.read_bytes()
    for wrong in (
        [torch.ones(1)],
        {"x": 3},
        {"x": torch.ones(2, 2).to_sparse()},
        {"x": torch.ones(1).cdouble()},
    ):
        with pytest.raises(ExportError):
            replkernel.export(wrong, path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["x.safetensors"]
