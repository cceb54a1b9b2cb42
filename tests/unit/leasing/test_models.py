"""A GPU model has one short name, however drivers and people write it."""

from __future__ import annotations

import pytest

from replkernel.leasing.models import model_name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100"),
        ("h100", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx-4090", "RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 ADA GENERATION"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Simulated GPU", "SIMULATED"),
        ("80GB", "80GB"),
        ("", ""),
    ],
)
def test_a_gpu_model_has_one_name_however_it_is_written(written: str, name: str) -> None:
    assert model_name(written) == name
    assert model_name(name) == name
