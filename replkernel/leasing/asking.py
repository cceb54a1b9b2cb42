"""One question to the scheduler over REST: the one check of its address, and the one way to ask it.

Law: bounded in time and in size; it goes to nobody but the scheduler, so by no proxy and not where a redirect
leads, for the token would go along; the token is in a header and in no text, a password in no text either.
The standard library only, imported when asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError, SettingError
from replkernel.leasing.advice import HUB_TOKEN, when_silent, when_strange
from replkernel.leasing.finding import TOKEN, URL, is_hub_service, scheduler_place, token_for

if TYPE_CHECKING:
    import socket
    import threading
    from http.client import HTTPConnection, HTTPResponse

PIECE_BYTES = 64 * 1024
SAID_BYTES_MAX, SAID_CHARS_MAX = 64 * 1024, 1000
"""What an answer that is none is read of, and what is shown of the sentence in it."""


class Bounds(msgspec.Struct, frozen=True):
    """How long it may be silent, how long it may take in all, and how much it may answer."""

    silent_s: float
    within_s: float
    bytes_max: int


TROUBLE = Bounds(5.0, 5.0, 64 * 1024 * 1024)


class NoAnswer(ReplkernelError):
    """The scheduler has not answered the question; `why` says what it did, `code` is its HTTP status if any.

    `said` is its own sentence about that, empty if it has none. `sent`: it may have heard the question.
    """

    def __init__(self, why: str, code: int = 0, said: str = "", *, sent: bool = True) -> None:
        super().__init__(said or f"{why[:1].upper()}{why[1:]}.")
        self.why, self.code, self.said, self.sent = why, code, said, sent


def check_address(url: str) -> str:
    """Return the address without a slash at its end; raises SettingError if it is none, or holds a secret."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    plain = url.isprintable() and not any(mark in url for mark in " @?#")
    if not usable or not plain:
        fix = "write http://127.0.0.1:PORT, or unset the setting"
        raise SettingError(URL, shown(url), "not an http address", fix)
    return url.rstrip("/")


def shown(url: str) -> str:
    """Return what may be shown of an address: no password, no query."""
    return url.partition("?")[0].partition("#")[0].rpartition("@")[2]


def ask(
    url: str, token: str, path: str, bounds: Bounds, method: str = "GET", body: bytes | None = None
) -> bytes:
    """Return the scheduler's answer; raises what `pieces` raises."""
    return b"".join(pieces(url, token, path, bounds, method, body))


def pieces(
    url: str, token: str, path: str, bounds: Bounds, method: str = "GET", body: bytes | None = None
) -> Iterator[bytes]:
    """Yield the answer as it comes; raises SettingError for the address, NoAnswer for whatever else."""
    from http.client import HTTPException

    parts = urlsplit(check_address(url))
    line = _Line(parts.scheme == "https", str(parts.hostname), parts.port, bounds)
    left = bounds.bytes_max
    try:
        answer = line.ask(method, parts.path + path, token, body)
        while piece := answer.read1(PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise NoAnswer(f"its answer is larger than {bounds.bytes_max / 1e6:g} MB")
            yield piece
        if answer.length:
            raise NoAnswer("its answer breaks off")
        line.check()
    except (OSError, HTTPException, ValueError) as error:
        line.check()
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        why = f"it does not answer ({' '.join(reason.split())})"
        raise NoAnswer(why, sent=line.connected) from error
    finally:
        line.close()


class _Line:
    """One connection, which is cut when its time is over, whatever is being waited for."""

    def __init__(self, tls: bool, host: str, port: int | None, bounds: Bounds) -> None:
        from http.client import HTTPConnection, HTTPSConnection

        kind: Any = HTTPSConnection if tls else HTTPConnection
        self._connection: HTTPConnection = kind(host, port, timeout=bounds.silent_s)
        self._bounds, self._late, self.connected = bounds, False, False
        self._timer: threading.Timer | None = None

    def ask(self, method: str, path: str, token: str, body: bytes | None) -> HTTPResponse:
        """Send the question, and return the answer whose body is still to be read."""
        import threading

        began, connection = time.monotonic(), self._connection
        connection.connect()
        self.connected = True
        left_s = max(0.0, self._bounds.within_s - (time.monotonic() - began))
        self._timer = threading.Timer(left_s, self._cut, (connection.sock,))
        self._timer.daemon = True
        self._timer.start()
        connection.request(method, path, body, {"Authorization": f"token {token}"})
        answer = connection.getresponse()
        if answer.status not in (200, 201, 202):
            raise _refusal(answer)
        return answer

    def check(self) -> None:
        """Raise NoAnswer if the time was over before the answer was."""
        if self._late:
            raise NoAnswer(f"it does not answer within {self._bounds.within_s:g} s")

    def close(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()

    def _cut(self, socket: socket.socket) -> None:
        self._late = True
        try:
            socket.shutdown(2)
        except OSError:
            return  # It has ended by itself.


def _refusal(answer: HTTPResponse) -> NoAnswer:
    """Return what an answer with another status than 200 says."""
    code = answer.status
    try:
        said = str(msgspec.json.decode(answer.read(SAID_BYTES_MAX), type=dict[str, Any]).get("why", ""))
    except UNREADABLE:
        said = ""
    if not said.isprintable() or len(said) > SAID_CHARS_MAX:
        said = ""
    return NoAnswer("it refuses our token" if code in (401, 403) else f"it answers {code}", code, said)


def scheduler_trouble(url: str, env: Mapping[str, str]) -> str:
    """Return what is wrong with the scheduler at `url`, in one sentence; an empty string if all is well."""
    try:
        next(pieces(url, token_for(url, env), "/api/v1/status", TROUBLE), b"")
    except NoAnswer as error:
        return explained(url, env, error)
    except SettingError as error:
        return str(error)
    return ""


def explained(url: str, env: Mapping[str, str], error: NoAnswer) -> str:
    """Return in one sentence, with the setting and the fix, why there is no answer from `url`."""
    why, fix = error.why, when_silent(url)
    if error.code in (401, 403):
        fix = f"copy the scheduler's token file to {scheduler_place(env) / 'token'}, with mode 0600"
        if is_hub_service(url):
            fix = HUB_TOKEN
        elif env.get(URL, "").strip() and env.get(TOKEN, "").strip():
            fix = f"correct {TOKEN}, or unset it and {fix}"
    elif error.code:
        means, fix = when_strange(url, error.code)
        why = f"{why}{means}"
    elif not env.get(URL, "").strip():
        fix = "start one with `replkernel scheduler`"
    elif not is_hub_service(url):
        fix = f"{fix}, or unset the setting"
    if env.get(URL, "").strip():
        return str(SettingError(URL, shown(url), why, fix))
    return f"This user's own scheduler, {shown(url)}: {why}; {fix}."
