"""Whoever asks the scheduler asks it alone: no redirect, no proxy, no endless answer, and no secret is shown.

The peer here is a server that is no scheduler and does what one must not be harmed by.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from replkernel.cli import accounting as accounts
from replkernel.cli.doctor import check_scheduler, examine
from replkernel.errors import ReplkernelError, SettingError
from replkernel.leasing import asking, standing
from replkernel.leasing.asking import Bounds, NoAnswer, ask, check_address, scheduler_trouble
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.standing import ask_scheduler
from replkernel.leasing.wire import WIRE_VERSION, Hello

URL = "REPLKERNEL_SCHEDULER_URL"
UNUSABLE = [
    "nonsense",
    "http://",
    "ftp://host",
    "http://127.0.0.1:many",
    "http://127.0.0.1:0",
    "http://me:secret@127.0.0.1:1",
    "http://127.0.0.1:1/?token=secret",
    "http://127.0.0.1:1/#secret",
    "http://127.0.0.1:1/a\r\nX-Header: 1",
    "http://127.0.0.1:1/a b",
]


class Peer(BaseHTTPRequestHandler):
    """Sends whoever asks elsewhere, answers without end, or byte by byte; notes who arrives elsewhere."""

    shape = "redirect"
    code = 302
    arrived: list[str] = []  # noqa: RUF012 - made anew by the fixture

    def do_GET(self) -> None:
        if self.path.startswith("/elsewhere"):
            self.arrived.append(self.headers.get("Authorization", ""))
            self.send_response(200)
            self.end_headers()
        elif self.shape == "redirect":
            self.send_response(self.code)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
        elif self.shape in ("nothing", "refusal"):
            self.send_response(401 if self.shape == "refusal" else 200)
            self.end_headers()
            self.wfile.write(b"{}")
        elif self.shape == "much":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b" " * 65536)
        else:
            with suppress(OSError):
                for byte in b"HTTP/1.0 200 OK\r\n" + b"X: 1\r\n" * 1000:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.02)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Peer, "arrived", [])
    with ThreadingHTTPServer(("127.0.0.1", 0), Peer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv(URL, url)
        monkeypatch.setenv("REPLKERNEL_SCHEDULER_TOKEN", "the-token")
        yield url
        server.shutdown()
        thread.join()


def doctor() -> str:
    return examine(check_scheduler, dict(os.environ)).text


def status() -> str:
    found, _ = ask_scheduler(os.environ)
    assert found is not None
    return found.trouble


def accounting() -> str:
    with pytest.raises(ReplkernelError) as caught:
        accounts.run_accounting("csv", None, "")
    return str(caught.value)


def router() -> str:
    return scheduler_trouble(os.environ[URL], os.environ)


ASKERS = pytest.mark.parametrize("asker", [doctor, status, accounting, router])


@ASKERS
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    peer: str, asker: Callable[[], str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "code", code)
    assert str(code) in asker()
    assert Peer.arrived == []


@ASKERS
@pytest.mark.parametrize("url", UNUSABLE)
def test_a_wrong_address_is_refused_by_name_and_its_secret_is_not_shown(
    asker: Callable[[], str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL, url)
    said = asker()
    assert URL in said and "unset the setting" in said
    assert "secret" not in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("url", UNUSABLE)
def test_the_channel_takes_no_other_address_than_who_asks(url: str) -> None:
    with pytest.raises(SettingError) as channel:
        SchedulerChannel(
            url, "t", Hello(WIRE_VERSION, "router", "k"), lambda _: None, lambda: None, lambda _: None
        )
    with pytest.raises(SettingError) as asked:
        check_address(url)
    assert str(channel.value) == str(asked.value)


@ASKERS
def test_no_proxy_is_asked(peer: str, asker: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", peer)
    monkeypatch.setenv(URL, "http://127.0.0.1:9")
    assert "does not answer" in asker()


def test_who_answers_as_no_scheduler_does_is_not_believed(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is leased there, but nobody has said so."""
    monkeypatch.setattr(Peer, "shape", "nothing")
    assert "not understood" in status()
    for about in ("user", "kernel", "cell"):
        with pytest.raises(
            ReplkernelError, match=r"not understood.*correct the setting REPLKERNEL_SCHEDULER_URL"
        ):
            accounts.run_accounting("table", about, "")


def test_a_token_that_was_set_and_is_refused_is_named(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another token file would not help: the setting goes before it."""
    monkeypatch.setattr(Peer, "shape", "refusal")
    assert "correct REPLKERNEL_SCHEDULER_TOKEN, or unset it and copy" in doctor()
    monkeypatch.delenv("REPLKERNEL_SCHEDULER_TOKEN")
    assert "SCHEDULER_TOKEN" not in doctor() and "copy the scheduler's token file" in doctor()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoAnswer("it refuses our token", 401), "start your server from the Hub again, or ask its admin"),
        (NoAnswer("it answers 503", 503), "the Hub's proxy does not reach it"),
        (NoAnswer("it answers 404", 404), "its configuration ends with setup_replkernel(c)"),
        (NoAnswer("it does not answer (Connection refused)"), "finds in the Hub's log why its service"),
    ],
)
def test_behind_a_hub_its_administrator_is_named_and_no_command(error: NoAnswer, words: str) -> None:
    url = "http://hub:8000/services/replkernel"
    for env in ({URL: url}, {URL: url, "REPLKERNEL_SCHEDULER_TOKEN": "t"}):
        said = asking.explained(url, env, error)
        assert words in said and url in said
        assert "`replkernel scheduler`" not in said and "token file" not in said


def test_a_scheduler_elsewhere_is_started_there() -> None:
    error = NoAnswer("it does not answer (Connection refused)")
    for url, where in (("http://127.0.0.1:8797", "it"), ("https://gpu1:8797", "it on its machine")):
        fix = f"start {where} with `replkernel scheduler`, or unset the setting."
        assert asking.explained(url, {URL: url}, error).endswith(fix)


def test_a_setting_that_nobody_set_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL, raising=False)
    monkeypatch.setattr(accounts, "DEFAULT_URL", "http://127.0.0.1:9")
    assert accounting() == (
        "This user's own scheduler, http://127.0.0.1:9: it does not answer (Connection refused); "
        "start one with `replkernel scheduler`."
    )


def test_a_question_that_may_have_been_heard_is_told_from_one_that_was_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hears = threading.Thread(target=lambda: server.accept()[0].close())
        hears.start()
        with pytest.raises(NoAnswer) as heard:
            ask(f"http://127.0.0.1:{port}", "t", "/api/v1/jobs", Bounds(20.0, 20.0, 1000), "POST", b"{}")
        hears.join()
    with pytest.raises(NoAnswer) as unheard:
        ask(f"http://127.0.0.1:{port}", "t", "/api/v1/jobs", Bounds(20.0, 20.0, 1000), "POST", b"{}")
    assert (heard.value.sent, unheard.value.sent) == (True, False)


def test_an_answer_has_a_limit(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "shape", "much")
    with pytest.raises(NoAnswer, match=r"larger than 0\.1 MB"):
        ask(peer, "t", "/api/v1/status", Bounds(20.0, 20.0, 100_000))


@ASKERS
def test_who_answers_byte_by_byte_is_given_up_in_time(
    peer: str, asker: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Peer, "shape", "slow")
    for module, name in ((asking, "TROUBLE"), (accounts, "EXPORT")):
        monkeypatch.setattr(module, name, Bounds(5.0, 0.5, 1000))
    monkeypatch.setattr(standing, "BOUNDS", Bounds(3.0, 0.5, 1024 * 1024))
    began = time.monotonic()
    assert "not answer" in asker()
    assert time.monotonic() - began < 30, "the answer would take minutes"
