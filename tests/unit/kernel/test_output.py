"""What a router is sent that begins to listen while a cell prints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq
from jupyter_client.session import Session

from replkernel.kernel.output import OutputThread

PARENT = {"msg_type": "execute_request", "msg_id": "cell"}


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    """Return a context whose sockets are closed after the test."""
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


def published(router: zmq.Socket[Any]) -> list[str]:
    """Return the texts that a router was sent, in their order."""
    texts, session = [], Session(key=b"k")
    while router.poll(300):
        _, frames = session.feed_identities(router.recv_multipart())
        message = session.deserialize(frames)
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])
    return texts


def test_a_router_that_comes_while_a_cell_prints_is_sent_everything_once_and_in_order(
    context: zmq.Context[Any],
) -> None:
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    session = Session(key=b"k")
    thread = OutputThread(publisher, session=session)  # Not started: the test decides what comes first.

    def show(text: str) -> None:
        message = session.msg("stream", {"name": "stdout", "text": text}, parent=PARENT)
        thread._really_send(session.serialize(message))

    def listen() -> zmq.Socket[Any]:
        router: zmq.Socket[Any] = context.socket(zmq.SUB)
        router.connect(f"tcp://127.0.0.1:{port}")
        router.subscribe(b"")
        time.sleep(0.3)  # Its subscription has arrived, and nobody has looked.
        return router

    first = listen()
    show("one")
    show("two")
    assert published(first) == ["one", "two"]
    first.close(linger=0)
    time.sleep(0.3)
    show("three")
    second = listen()
    show("four")
    show("five")
    assert published(second) == ["one", "two", "three", "four", "five"]
    second.close(linger=0)
    thread.io_loop.close(all_fds=True)
