"""``s3://bucket/prefix``: objects in S3 or a server that speaks its protocol, by s3fs.

Credentials and endpoint come from the usual AWS variables and files of the environment that is handed in,
never from the URL and never from this process's own environment.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from replkernel.objects.backend import (
    ANSWER_TIMEOUT_S,
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    NoSuchObject,
    ObjectExists,
    StoreFault,
    full,
    silent,
    unreachable,
)
from replkernel.objects.url import clear_text, prefix_of, setting_error

if TYPE_CHECKING:
    from s3fs import S3FileSystem


CONNECTIONS_MAX = 32
SLOWEST_BYTES_PER_S = 64 * 1024
"""A line slower than this counts as silent; s3fs alone would wait for a ``100 Continue`` for ever."""

GET_TIMEOUT_S = 300.0
"""No object, of whatever size, takes longer to read."""

DETAIL_LENGTH_MAX = 200

_ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})
_EXISTS = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_DENIED = frozenset(
    {
        "403",
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "ExpiredToken",
        "Forbidden",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_ELSEWHERE = frozenset(
    {"301", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_FULL = frozenset({"QuotaExceeded", "InsufficientStorage", "507", "XMinioStorageFull"})
_ENDPOINT = re.compile(r".*?(https?://[^/\s\"]+).*", re.DOTALL)
_KEYS = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE and the rights of that key on the bucket"
_REACH = "check the network and AWS_ENDPOINT_URL"


def open_backend(url: str, env: Mapping[str, str]) -> S3Backend:
    """Prepare a client for the bucket that `url` names; it connects on first use."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise setting_error(
            url, "credentials do not belong into the URL", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not parts.netloc or ":" in parts.netloc:
        raise setting_error(
            url, "it names no bucket", "write s3://bucket/prefix, and the server into AWS_ENDPOINT_URL"
        )
    return S3Backend(parts.netloc, prefix_of(url, parts.path), _file_system(env), _exposed(env))


def _file_system(env: Mapping[str, str]) -> object:
    import botocore.exceptions  # type: ignore[import-untyped]
    import s3fs

    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ("us-east-1" if endpoint else None)
    try:
        files = s3fs.S3FileSystem(
            key=env.get("AWS_ACCESS_KEY_ID") or None,
            secret=env.get("AWS_SECRET_ACCESS_KEY") or None,
            token=env.get("AWS_SESSION_TOKEN") or None,
            endpoint_url=endpoint,
            session=_session(env),
            client_kwargs={"region_name": region} if region else {},
            config_kwargs={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": ANSWER_TIMEOUT_S,
                "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
                "max_pool_connections": CONNECTIONS_MAX,
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
            use_listings_cache=False,
            skip_instance_cache=True,
        )
    except botocore.exceptions.BotoCoreError as error:
        raise _fault(error) from error
    files.retries = 1
    return files


def _exposed(env: Mapping[str, str]) -> str:
    """Return what there is to know of an endpoint without TLS, named by environment or profile."""
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    if not endpoint:
        with contextlib.suppress(Exception):  # whatever is wrong with the file is told when it is used
            endpoint = str(_session(env).get_scoped_config().get("endpoint_url") or "")
    parts = urlsplit(endpoint)
    if parts.scheme.lower() != "http":
        return ""
    return clear_text(
        parts.hostname or "", "have the server listen with TLS, and write https:// as its endpoint"
    )


def _session(env: Mapping[str, str]) -> Any:
    """Return a botocore session that reads the files which `env` names, and no variable of this process."""
    from aiobotocore.session import AioSession  # type: ignore[import-untyped]

    session = AioSession(profile=env.get("AWS_PROFILE") or None)
    home = Path(env.get("HOME") or Path.home())
    session.set_config_variable("config_file", env.get("AWS_CONFIG_FILE") or str(home / ".aws" / "config"))
    credentials = env.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / ".aws" / "credentials")
    session.set_config_variable("credentials_file", credentials)
    chain = session.get_component("credential_provider")
    unwanted = {"env"}
    if env.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        unwanted.add("iam-role")
    for name in unwanted:
        with contextlib.suppress(Exception):
            chain.remove(name)
    return session


class S3Backend:
    """Objects under a prefix of one bucket."""

    warning = ""

    def __init__(self, bucket: str, prefix: str, files: S3FileSystem, exposed: str = "") -> None:
        self.exposed = exposed
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._files = files

    def put(self, key: str, data: bytes) -> None:
        """Put the object in one request."""
        try:
            self._call("put_object", Key=self._prefix + key, Body=data)
        except NoSuchObject as error:
            raise StoreFault("answers as no S3 server does (404 to a write)", _REACH) from error

    def make(self, key: str, data: bytes) -> bool:
        """Put the object if there is none, by a condition that not every server knows."""
        try:
            self._call("put_object", Key=self._prefix + key, Body=data, IfNoneMatch="*")
        except ObjectExists:
            return False
        except NoSuchObject as error:
            raise StoreFault("answers as no S3 server does (404 to a write)", _REACH) from error
        return True

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        """Put the bytes; there is no cheaper way."""
        self.put(key, data)

    def settle(self) -> None:
        """A put that was answered is durable already."""

    def get(self, key: str) -> bytes:
        """Return the object's bytes."""
        with _told():
            path = f"{self._bucket}/{self._prefix}{key}"
            return bytes(self._files.cat_file(path, max_concurrency=1, timeout=GET_TIMEOUT_S))

    def age_s(self, key: str) -> float | None:
        """Return the seconds since the object was put, or None."""
        try:
            head = self._call("head_object", Key=self._prefix + key)
        except NoSuchObject:
            return None
        return _age_s(head["LastModified"])

    def delete(self, key: str) -> None:
        """Delete the object."""
        with contextlib.suppress(NoSuchObject):
            self._call("delete_object", Key=self._prefix + key)

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        """Yield the objects under the prefix, a page a request."""
        for item in self._list(under):
            yield item["Key"][len(self._prefix) :], _age_s(item["LastModified"])

    def sizes(self, under: str) -> Iterator[tuple[str, int]]:
        """Yield what a listing says of their sizes."""
        for item in self._list(under):
            yield item["Key"][len(self._prefix) :], int(item["Size"])

    def _list(self, under: str) -> Iterator[Any]:
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=f"{self._prefix}{under}/", **more)
            yield from page.get("Contents", ())
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def close(self) -> None:
        """Close the client's connections."""
        client = getattr(self._files, "_s3", None)
        if client is not None:
            with contextlib.suppress(Exception):  # a connection that cannot be closed is closed
                self._files.close_session(self._files.loop, client)

    def _call(self, method: str, **parameters: Any) -> Any:
        patience_s = ANSWER_TIMEOUT_S + len(parameters.get("Body", b"")) / SLOWEST_BYTES_PER_S
        with _told():
            return self._files.call_s3(method, timeout=patience_s, Bucket=self._bucket, **parameters)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StoreFault:
        raise
    except Exception as error:
        raise _fault(error) from error


def _fault(error: Exception) -> StoreFault | NoSuchObject | ObjectExists:
    """Return what `error`, or the answer of the server behind it, means."""
    import aiohttp
    import botocore.exceptions as boto

    chain = list(_causes(error))
    detail = " ".join(str(chain[-1]).split())[:DETAIL_LENGTH_MAX]
    for cause in chain:
        if isinstance(cause, boto.ClientError):
            return _answer(cause, detail)
        if isinstance(cause, (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound)):
            return StoreFault(f"was asked without usable credentials ({cause})", _KEYS, refused=True)
        if isinstance(cause, boto.NoRegionError):
            return StoreFault("was asked without a region", "set AWS_REGION", refused=True)
        if isinstance(cause, ValueError) and "endpoint" in str(cause).lower():
            return StoreFault(
                f"has an endpoint that is no URL ({cause})", "correct AWS_ENDPOINT_URL", refused=True
            )
    # Where aiodns is installed, aiohttp resolves names by it, and no gaierror is at the bottom.
    if any(isinstance(cause, socket.gaierror | aiohttp.ClientConnectorDNSError) for cause in chain):
        return unreachable("the name of its server does not resolve", _REACH)
    for cause in chain:
        if isinstance(cause, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ConnectionError)):
            return unreachable(_ENDPOINT.sub(r"no connection to \1", str(cause)), _REACH)
        if isinstance(cause, (boto.ReadTimeoutError, TimeoutError)):
            return silent(_REACH)
    return StoreFault(f"failed ({detail})", _REACH)


def _answer(error: Any, detail: str) -> StoreFault | NoSuchObject | ObjectExists:
    """Return what the server's error answer means."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code in _ABSENT:
        return NoSuchObject(detail)
    if code in _EXISTS:
        return ObjectExists(detail)
    if code == "NoSuchBucket":
        return StoreFault(
            "names a bucket that does not exist", "create the bucket or correct its name", refused=True
        )
    if code in _DENIED:
        return StoreFault(f"refuses access ({code})", _KEYS, refused=True)
    if code in _ELSEWHERE:
        return StoreFault(
            f"is in another region ({code})", "set AWS_REGION to the bucket's region", refused=True
        )
    if code in _FULL:
        return full(code)
    return StoreFault(f"answered with an error ({code}: {detail})", _REACH)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _age_s(moment: dt.datetime) -> float:
    return max(0.0, (dt.datetime.now(dt.UTC) - moment).total_seconds())
