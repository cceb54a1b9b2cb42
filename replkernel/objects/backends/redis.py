"""``redis://[user:password@]host[:port][/database][/prefix]`` (``rediss://`` with TLS): objects in Redis.

An object is one hash: its time, and its bytes in parts. Replacing it is one transaction.
Redis keeps it as long as the server's own persistence does.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from replkernel.objects.backend import (
    ANSWER_TIMEOUT_S,
    ATTEMPTS,
    CONNECT_TIMEOUT_S,
    NoSuchObject,
    StoreFault,
    full,
    silent,
    unreachable,
)
from replkernel.objects.url import clear_text, prefix_of, setting_error

PORT = 6379
PREFIX = "replkernel"
PART_BYTES = 8 * 2**20
"""An object's bytes are cut every so many, well below what Redis takes as one value."""

SCAN_COUNT = 1000
CONNECTIONS_MAX = 32
DETAIL_LENGTH_MAX = 200

_REACH = "check the address and that the Redis server runs"
_KEYS = "check the user name and password in the URL"
_FORM = "write redis://host:6379/0/prefix, with %2F and %40 for / and @ in a password"


def open_backend(url: str, env: Mapping[str, str]) -> RedisBackend:
    """Prepare a client for the server that `url` names; it connects on first use."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        raise setting_error(url, "its host or port cannot be read", _FORM) from None
    if not host:
        raise setting_error(url, "it names no host", _FORM)
    database, _, path = parts.path.strip("/").partition("/")
    if database and not (database.isdecimal() and len(database) < 10):
        database, path = "", parts.path
    sealed = parts.scheme.lower() == "rediss"
    client = redis.Redis(
        host=host,
        port=port,
        db=int(database or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        ssl=sealed,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        retry=Retry(NoBackoff(), ATTEMPTS - 1),
        max_connections=CONNECTIONS_MAX,
    )
    exposed = "" if sealed else clear_text(host, "have the server listen with TLS, and write rediss://")
    return RedisBackend(client, prefix_of(url, path) or PREFIX, exposed)


class RedisBackend:
    """Objects as hashes whose keys begin with `prefix`."""

    warning = ""

    def __init__(self, client: Any, prefix: str, exposed: str = "") -> None:
        self.exposed = exposed
        self._client = client
        self._prefix = prefix
        self._clock: float | None = None

    def _now(self) -> float:
        """Return the time of the server, whose clock is the same for all hosts."""
        if self._clock is None:
            with _told():
                seconds, microseconds = self._client.time()
            self._clock = seconds + microseconds / 1e6 - time.monotonic()
        return self._clock + time.monotonic()

    def put(self, key: str, data: bytes) -> None:
        """Replace the object in one transaction."""
        name, fields = self._name(key), self._fields(data)
        with _told(), self._client.pipeline(transaction=True) as batch:
            batch.delete(name)
            batch.hset(name, mapping=fields)
            batch.execute()

    def make(self, key: str, data: bytes) -> bool:
        """Store the object if there is none, in a transaction that ends when somebody else stores one."""
        import redis.exceptions as faults

        name, fields = self._name(key), self._fields(data)
        with _told(), self._client.pipeline(transaction=True) as batch:
            batch.watch(name)
            if batch.exists(name):
                return False
            batch.multi()
            batch.hset(name, mapping=fields)
            try:
                batch.execute()
            except faults.WatchError:
                return False
        return True

    def _fields(self, data: bytes) -> dict[str, bytes | str]:
        starts = range(0, max(1, len(data)), PART_BYTES)
        fields: dict[str, bytes | str] = {"at": repr(self._now()), "parts": str(len(starts))}
        for number, start in enumerate(starts):
            fields[f"p{number}"] = data[start : start + PART_BYTES]
        return fields

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        """Put the bytes; there is no cheaper way."""
        self.put(key, data)

    def settle(self) -> None:
        """How long Redis keeps what it holds is the server's own setting."""

    def get(self, key: str) -> bytes:
        """Return the object's bytes."""
        with _told():
            fields = self._client.hgetall(self._name(key))
        try:
            return b"".join(fields[b"p%d" % number] for number in range(int(fields[b"parts"])))
        except (KeyError, ValueError):
            raise NoSuchObject(key) from None

    def age_s(self, key: str) -> float | None:
        """Return the seconds since the object was put, or None."""
        with _told():
            return _age_s(self._client.hget(self._name(key), "at"), self._now())

    def delete(self, key: str) -> None:
        """Delete the hash without making the server wait for it."""
        with _told():
            self._client.unlink(self._name(key))

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        """Yield the objects under the prefix, as the server scans its keys."""
        for key, moment in self._scan(under, lambda batch, name: batch.hget(name, "at")):
            age_s = _age_s(moment, self._now())
            if age_s is not None:
                yield key, age_s

    def sizes(self, under: str) -> Iterator[tuple[str, int]]:
        """Yield what each object takes of the server's memory."""
        for key, size in self._scan(under, lambda batch, name: batch.memory_usage(name)):
            if size is not None:
                yield key, int(size)

    def _scan(self, under: str, ask: Callable[[Any, bytes], Any]) -> Iterator[tuple[str, Any]]:
        """Yield each key under the prefix with the answer to what `ask` puts into a batch."""
        start = self._name(under) + "/"
        cursor = 0
        while True:
            with _told(), self._client.pipeline(transaction=False) as batch:
                cursor, names = self._client.scan(cursor, match=f"{start}*", count=SCAN_COUNT)
                for name in names:
                    ask(batch, name)
                answers = batch.execute() if names else []
            for name, answer in zip(names, answers, strict=True):
                yield name.decode()[len(self._prefix) + 1 :], answer
            if cursor == 0:
                return

    def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(Exception):  # a connection that cannot be closed is closed
            self._client.close()

    def _name(self, key: str) -> str:
        return f"{self._prefix}/{key}"


@contextlib.contextmanager
def _told() -> Iterator[None]:
    import redis.exceptions as faults

    try:
        yield
    except faults.RedisError as error:
        raise _fault(error) from error


def _fault(error: Exception) -> StoreFault:
    """Return the fault that words what redis-py raised; no message of it carries a password."""
    import redis.exceptions as faults

    detail = " ".join(str(error).split())[:DETAIL_LENGTH_MAX]
    if isinstance(error, (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError)):
        reason = "it asks for a password" if detail.startswith("HELLO") else detail
        return StoreFault(f"refuses access ({reason})", _KEYS, refused=True)
    if "DB index" in detail:
        return StoreFault("has no database of that number", f"correct the number, {_FORM}", refused=True)
    if isinstance(error, faults.TimeoutError):
        return unreachable(detail, _REACH) if "connecting" in detail else silent(_REACH)
    if isinstance(error, faults.ConnectionError):
        if isinstance(error.__cause__ or error.__context__, socket.gaierror):
            return unreachable("the name of its server does not resolve", _REACH)
        return unreachable(detail, _REACH)
    if isinstance(error, faults.OutOfMemoryError) or "maxmemory" in detail:
        return full("the Redis server is at its maxmemory")
    if detail.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
        return StoreFault(f"refuses access ({detail})", _KEYS, refused=True)
    return StoreFault(f"failed ({detail})", _REACH)


def _age_s(moment: bytes | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - float(moment))
