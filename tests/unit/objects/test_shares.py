"""How a store is divided among its kernels."""

from __future__ import annotations

from replkernel.cli.store import describe
from replkernel.objects.shares import About, shares_of
from replkernel.records import Digest, KernelId

A, B, C, D, E = (Digest(letter * 64) for letter in "abcde")
K1, K2 = KernelId("k1"), KernelId("k2")
SIZES = {A: 1 << 20, B: 2 << 20, C: 4 << 20, D: 8 << 20, E: 16 << 20}


def test_each_kernel_has_what_it_names_and_what_it_made_and_nobody_names() -> None:
    named = {K1: {A, B}, K2: {B, C}}
    shares = shares_of(SIZES, named, {K1: {A, C, D}}, {K1: About("train.ipynb", "ann")})
    one, two = shares.kernels
    assert (one.kernel_id, one.in_use, one.shared, one.superseded) == (K1, 3 << 20, 2 << 20, 8 << 20)
    assert (two.kernel_id, two.in_use, two.shared, two.superseded) == (K2, 6 << 20, 2 << 20, 0)
    assert (shares.total, shares.nobodys) == (31 << 20, 16 << 20)
    lines = describe("file:///store", shares, {K1: 5 << 20, K2: 0})
    assert lines[0] == "file:///store: 31 MiB of large state, of 2 kernels."
    assert lines[2].split() == "k1 train.ipynb ann 3.0 MiB 2.0 MiB 8.0 MiB 5.0 MiB".split()
    assert "16 MiB are nobody's" in lines[-1]


def test_a_named_chunk_that_is_absent_counts_nothing() -> None:
    shares = shares_of({}, {K1: {A}}, {}, {})
    assert (shares.kernels[0].in_use, shares.total, shares.nobodys) == (0, 0, 0)
    assert describe("s3://b", shares_of({}, {}, {}, {}), {}) == ["s3://b: 0 B of large state, of 0 kernels."]
