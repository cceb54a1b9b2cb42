"""The channel to the scheduler, against a real server: greeted, lost, found again, refused, bounded."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.web import Application, RequestHandler

from replkernel.errors import SettingError
from replkernel.leasing import channel as module
from replkernel.leasing import connection
from replkernel.leasing.advice import Patience
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.wire import (
    MESSAGE_BYTES_MAX,
    WIRE_VERSION,
    FromScheduler,
    Granted,
    GrantedLease,
    Hello,
    HostBeat,
    HostLeaves,
    KernelHere,
    LeaseOver,
    Refused,
    Waiting,
    Welcome,
)
from replkernel.records import HostName
from tests.support.channel_server import TOKEN, ChannelServer, until

HELLO = Hello(WIRE_VERSION, "router", "kernel-1")


class Client:
    """A channel, and everything that it called back, in order."""

    def __init__(
        self, url: str, token: str = TOKEN, look: Callable[[], tuple[str, str]] | None = None
    ) -> None:
        self.told: list[str | FromScheduler] = []
        self.tells_on_up: list[HostBeat | KernelHere] = []
        self.channel = SchedulerChannel(url, token, HELLO, self.told.append, self._up, self.told.append, look)

    def _up(self) -> None:
        self.told.append("up")
        for message in self.tells_on_up:
            assert self.channel.send(message)


@pytest.fixture
async def server() -> AsyncIterator[ChannelServer]:
    server = ChannelServer()
    await server.start()
    yield server
    await server.stop()


@asynccontextmanager
async def connected(server: ChannelServer) -> AsyncIterator[Client]:
    client = Client(server.url)
    client.channel.start()
    try:
        await until(lambda: "up" in client.told)
        yield client
    finally:
        await client.channel.close()


async def test_hello_comes_first_and_messages_go_both_ways(server: ChannelServer) -> None:
    client = Client(server.url + "/")
    here = KernelHere((HostName("h1"),), gpus=2)
    client.tells_on_up = [here]
    assert not client.channel.send(here), "nothing is sent before the welcome"
    client.channel.start()
    await until(lambda: len(server.heard) == 2)
    assert server.heard == [HELLO, here]
    assert client.channel.user == "ada"
    lease = GrantedLease("l1", "r1", HostName("h1"), ("GPU-1",), 7, 30.0)
    server.say(Waiting("r1", 1))
    server.say(Granted(lease))
    await until(lambda: len(client.told) == 3)
    assert client.told == ["up", Waiting("r1", 1), Granted(lease)]
    await client.channel.close()
    await until(lambda: not server.clients)


async def test_a_message_does_not_wait_for_the_one_before_it(server: ChannelServer) -> None:
    async with connected(server) as client:
        used = client.channel._connection
        assert used is not None
        socket_of = used._socket.protocol.stream.socket
        assert socket_of.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "Nagle's algorithm is off"


async def test_a_lost_scheduler_is_told_once_and_found_again(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S_MIN", 0.05)
    tries: list[str] = []
    open_ = connection.Connection.open

    async def noted(self: connection.Connection, url: str, token: str) -> None:
        tries.append(url)
        await open_(self, url, token)

    monkeypatch.setattr(connection.Connection, "open", noted)
    async with connected(server) as client:
        await server.stop()
        await until(lambda: len(client.told) >= 2)
        assert not client.channel.send(HostBeat())
        await until(lambda: len(tries) > 3)  # The first was welcomed, two have failed by then.
        await server.start()
        await until(lambda: client.told.count("up") == 2)
        assert client.channel.send(HostBeat())
        await until(lambda: HostBeat() in server.heard)
    why = [said for said in client.told if said != "up"]
    assert len(why) == 2, "lost, then not there; not once for each try"
    assert why[0] == f"The scheduler at {server.url} closed the connection."
    assert "Connection refused" in why[1] and "replkernel scheduler" in why[1]
    assert server.heard.count(HELLO) == 2


async def test_a_scheduler_that_comes_later_is_found() -> None:
    server = ChannelServer()
    client = Client(server.url)
    client.channel.start()
    await until(lambda: client.told)
    assert "does not answer" in str(client.told[0])
    await server.start()
    await until(lambda: client.told[-1] == "up")
    await client.channel.close()
    await server.stop()


async def test_a_wrong_token_is_refused_with_the_fix(server: ChannelServer) -> None:
    client = Client(server.url, "another")
    client.channel.start()
    await until(lambda: client.told)
    assert "refuses our token" in str(client.told[0]) and "REPLKERNEL_SCHEDULER_TOKEN" in str(client.told[0])
    assert server.opened == 0
    await client.channel.close()


async def test_a_token_that_stays_refused_is_tried_less_and_less_often_and_told_once(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    pause_s = Patience.pause_s

    def noted(patience: Patience) -> float:
        pauses.append(pause_s(patience))
        return 0.001

    monkeypatch.setattr(Patience, "pause_s", noted)
    known = [server.url, "revoked"]
    client = Client(server.url, "revoked", lambda: (known[0], known[1]))
    client.channel.start()
    await until(lambda: len(pauses) > 7)
    assert pauses[:8] == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
    assert len(client.told) == 1
    known[1] = TOKEN
    await until(lambda: client.told[-1] == "up")
    await client.channel.close()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (401, " refuses our token: start your server from the Hub again, or ask its administrator"),
        (503, " answers 503, so the Hub's proxy does not reach it: ask the Hub's administrator, who finds"),
        (404, " answers 404, so the Hub has no service replkernel there: ask the Hub's administrator"),
        (0, " does not answer (Connection refused): ask the Hub's administrator, who finds in the Hub's log"),
    ],
)
async def test_behind_a_hub_its_administrator_is_named_and_no_command(code: int, sentence: str) -> None:
    async with answering(code or 200, "") as base:
        url = f"{base if code else 'http://127.0.0.1:9'}/services/replkernel"
        client = Client(url)
        client.channel.start()
        await until(lambda: client.told)
        await client.channel.close()
    assert str(client.told[0]).startswith(f"The scheduler at {url}{sentence}")
    assert "`replkernel scheduler`" not in str(client.told[0]) and "token file" not in str(client.told[0])


async def test_a_token_that_was_replaced_is_used_for_the_next_try(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S_MAX", 0.2)
    known = [server.url, "an-older-one"]
    client = Client(known[0], known[1], lambda: (known[0], known[1]))
    client.channel.start()
    await until(lambda: client.told)
    assert "refuses our token" in str(client.told[0])
    known[1] = TOKEN
    await until(lambda: client.told[-1] == "up")
    await client.channel.close()


async def test_a_scheduler_that_moved_is_followed_and_one_that_is_not_named_is_waited_for(
    server: ChannelServer,
) -> None:
    found = [(server.url, TOKEN)]
    client = Client(server.url, TOKEN, lambda: found[0])
    client.channel.start()
    await until(lambda: "up" in client.told)
    found[0] = ("", "")
    await server.stop()
    await until(lambda: "does not answer" in str(client.told[-1]))
    other = ChannelServer()
    await other.start()
    found[0] = ("no address", "")
    await asyncio.sleep(0.5)
    found[0] = (other.url, TOKEN)
    await until(lambda: client.told[-1] == "up")
    assert client.channel.url == other.url
    await client.channel.close()
    await other.stop()


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (Refused("a kernel of this name belongs to ben"), "belongs to ben"),
        (Welcome(WIRE_VERSION + 1), "install the same replkernel on both"),
        (LeaseOver("l", "no"), "does not begin with a welcome"),
        (b"\xff\xff", "sends what is not understood"),
    ],
)
async def test_a_greeting_that_is_no_welcome(
    server: ChannelServer, greeting: FromScheduler | bytes, words: str
) -> None:
    server.greeting = greeting
    client = Client(server.url)
    client.channel.start()
    await until(lambda: client.told)
    assert len(client.told) == 1 and words in str(client.told[0])
    await until(lambda: not server.clients)
    await client.channel.close()


async def test_a_silent_scheduler_is_given_up(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WELCOME_S_MAX", 0.3)
    server.greeting = None
    client = Client(server.url)
    client.channel.start()
    await until(lambda: client.told)
    assert "does not welcome us within 0.3 s" in str(client.told[0])
    server.greeting = Welcome(WIRE_VERSION)
    await until(lambda: client.told[-1] == "up")
    await client.channel.close()


async def test_a_peer_that_is_no_scheduler_ends_the_connection_only(server: ChannelServer) -> None:
    client = Client(server.url + "/elsewhere")
    client.channel.start()
    await until(lambda: client.told)
    assert "answers 404, so it is no replkernel scheduler" in str(client.told[0])
    await client.channel.close()


class _Answers(RequestHandler):
    """A server that is spoken to as if it were a scheduler."""

    def initialize(self, code: int, body: str) -> None:
        self.code, self.body = code, body

    def get(self) -> None:
        self.set_status(self.code)
        self.finish(self.body)


@asynccontextmanager
async def answering(code: int, body: str) -> AsyncIterator[str]:
    """Answer whatever is asked with this."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server = HTTPServer(Application([(".*", _Answers, {"code": code, "body": body})]))
    server.add_socket(listener)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.stop()
    await server.close_all_connections()


@pytest.mark.parametrize(
    ("code", "body", "sentence"),
    [
        (403, '{"why": "carol may not lease GPUs."}', " refuses us: carol may not lease GPUs."),
        (403, "no", " refuses our token: set REPLKERNEL_SCHEDULER_TOKEN"),
        (403, '{"why": "\\u001b[2J"}', " refuses our token: set REPLKERNEL_SCHEDULER_TOKEN"),
        (403, '{"why": 3}', " refuses our token: set REPLKERNEL_SCHEDULER_TOKEN"),
        (200, "<html>", " answers, and not as a replkernel scheduler does: correct the address."),
    ],
)
async def test_an_http_answer_instead_of_a_channel_is_put_into_words(
    code: int, body: str, sentence: str
) -> None:
    async with answering(code, body) as url:
        client = Client(url)
        client.channel.start()
        await until(lambda: client.told)
        await client.channel.close()
    assert str(client.told[0]).startswith(f"The scheduler at {url}{sentence}")


async def test_a_frame_that_does_not_fit_ends_the_connection_and_the_next_one_works(
    server: ChannelServer,
) -> None:
    async with connected(server) as client:
        server.say(b"\xc1")
        await until(lambda: client.told.count("up") == 2)
        assert "sends what is not understood" in str(client.told[1])


async def test_a_frame_that_is_too_large_is_not_taken(server: ChannelServer) -> None:
    async with connected(server) as client:
        server.say(b"x" * (MESSAGE_BYTES_MAX + 1))
        await until(lambda: client.told.count("up") == 2)
        assert client.told[1] == f"The scheduler at {server.url} closed the connection."


async def test_a_callback_that_fails_leaves_the_connection(
    server: ChannelServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(server) as client:
        client.channel._on_message = lambda message: 1 / 0
        server.say(LeaseOver("l", "gone"))
        await until(lambda: "could not be handled" in caplog.text)
        assert client.channel.send(HostBeat())
        await until(lambda: HostBeat() in server.heard)


async def test_a_scheduler_that_reads_nothing_is_left(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits to be sent is bounded: past the bound the message is refused and the connection given up."""
    monkeypatch.setattr(connection, "UNSENT_BYTES_MAX", 100_000)
    async with connected(server) as client:
        here = KernelHere(tuple(HostName(f"host-{number:04}" * 10) for number in range(64)))
        sent = 0
        while client.channel.send(here):  # The server shares this loop, so that it reads nothing meanwhile.
            sent += 1
            assert sent < 100_000
        await until(lambda: len(client.told) > 1)
        assert "takes nothing any more" in str(client.told[1])
        await until(lambda: client.told.count("up") == 2)


async def test_a_scheduler_that_answers_no_ping_is_left(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_S", 0.2)
    async with connected(server) as client:
        monkeypatch.setattr(server.clients[0].ws_connection, "_send_pong", lambda data: None)
        await until(lambda: client.told.count("up") == 2)
        assert "closed the connection" in str(client.told[1])


async def test_close_sends_what_was_handed_over(server: ChannelServer) -> None:
    async with connected(server) as client:
        for _ in range(200):
            assert client.channel.send(HostBeat())
        assert client.channel.send(HostLeaves())
        await client.channel.close()
        assert not client.channel.send(HostBeat())
        await until(lambda: not server.clients)
        assert server.heard[-1] == HostLeaves() and len(server.heard) == 202
    assert client.told == ["up"], "an end that was wanted is not told"


def _ended(client: Client, server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> IOStream:
    """End a connection whose goodbye is not answered; return its socket."""
    ends = client.channel._connection
    assert ends is not None
    monkeypatch.setattr(server.clients[0].ws_connection, "_handle_message", lambda opcode, data: None)
    ends.end("It is over.")
    stream: IOStream = ends._socket.protocol.stream
    return stream


async def test_close_leaves_no_socket_of_a_connection_whose_goodbye_is_not_answered(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server) as client:
        stream = _ended(client, server, monkeypatch)
        await until(lambda: "It is over." in client.told)
        await client.channel.close()
        assert stream.closed()


async def test_the_next_connection_leaves_no_socket_of_one_whose_goodbye_is_not_answered(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(server) as client:
        stream = _ended(client, server, monkeypatch)
        await until(lambda: client.told.count("up") == 2)
        assert stream.closed()


async def test_close_does_not_wait_for_a_scheduler_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_S_MAX", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(f"http://127.0.0.1:{deaf.getsockname()[1]}")
        client.channel.start()
        await asyncio.sleep(0.3)
        async with asyncio.timeout(60):
            await client.channel.close()
        assert client.told == []


async def test_the_token_is_in_no_text(
    server: ChannelServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with connected(server) as client:
        server.say(b"\xc1")
        await until(lambda: client.told.count("up") == 2)
        await server.stop()
        await until(lambda: len(client.told) == 4)
    other = Client(f"http://127.0.0.1:{server.port}/x", TOKEN)
    other.channel.start()
    await until(lambda: other.told)
    await other.channel.close()
    texts = [
        caplog.text,
        *capfd.readouterr(),
        *map(str, client.told),
        *map(str, other.told),
        repr(other.channel),
    ]
    assert not [text for text in texts if TOKEN in text]


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://h", "http://", "http://a:b@h", "http://h:x", "http://h/?q=1"]
)
async def test_a_text_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(SettingError, match="REPLKERNEL_SCHEDULER_URL") as told:
        Client(url)
    assert "a:b" not in str(told.value)
