"""What clients, replicas and agents send to a router, through its gate and into its core."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.protocol.agent_to_router import AgentToRouter
from replkernel.protocol.message import decoder
from replkernel.records import ReplicaId
from replkernel.router.core import events
from replkernel.router.core.wire import DELIMITER, Gate, Signer, WireError, read_replica
from replkernel.router.io.connection import read_connection_file
from tests.fuzz.examples import packed
from tests.fuzz.pieces import cut, filled, joined
from tests.support.router_world import World

CLIENT, SIGNED, REPLICA, AGENT, CONNECTION, TOPIC = range(6)
CHANNELS: tuple[events.Channel, ...] = ("shell", "control", "stdin")
FRAMES = 5
"""Identity, header, parent, metadata, content."""

REQUESTS = {
    "execute_request": {"code": "x = 1", "silent": False, "store_history": True, "stop_on_error": True},
    "complete_request": {"code": "x", "cursor_pos": 1},
    "inspect_request": {"code": "x", "cursor_pos": 1, "detail_level": 0},
    "history_request": {"hist_access_type": "tail", "n": 1},
    "is_complete_request": {"code": "x"},
    "comm_info_request": {"target_name": "t"},
    "comm_open": {"comm_id": "c", "target_name": "t", "data": {}},
    "comm_msg": {"comm_id": "c", "data": {}},
    "comm_close": {"comm_id": "c", "data": {}},
    "kernel_info_request": {},
    "connect_request": {},
    "shutdown_request": {"restart": False},
    "interrupt_request": {},
    "debug_request": {"seq": 1, "type": "request", "command": "attach", "arguments": {}},
    "input_reply": {"value": "x"},
    "create_subshell_request": {},
    "delete_subshell_request": {"subshell_id": "s"},
    "list_subshell_request": {},
    "replkernel_progress_request": {"since": 0},
    "replkernel_outputs_request": {"since": 0},
    "replkernel_hibernate_request": {},
}
ANSWERS = {
    "execute_reply": {"status": "ok", "execution_count": 1},
    "execute_input": {"code": "x", "execution_count": 1},
    "stream": {"name": "stdout", "text": "x"},
    "display_data": {"data": {}, "metadata": {}, "transient": {"display_id": "d"}},
    "error": {"ename": "E", "evalue": "", "traceback": []},
    "status": {"execution_state": "idle"},
    "input_request": {"prompt": "", "password": False},
    "comm_open": {"comm_id": "c", "target_name": "t", "data": {}},
    "debug_reply": {"body": {}},
    "replkernel_gpus": {"verb": "status"},
    "replkernel_installed": {"tool": "pip", "arguments": ["install", "x"]},
}
OF_NONE, OF_ONE = b"\xa7replica\xa1k", b"\xa7replica\xa2r1"
SIGNER = Signer(b"key", "hmac-sha256")


def seeds() -> list[bytes]:
    """Return one input for each message."""
    told = []
    for number, (kind, content) in enumerate(REQUESTS.items()):
        header = _json(
            {"msg_id": f"m{number}", "msg_type": kind, "session": "s", "username": "u", "date": ""}
        )
        frames = (b"client", header, b"{}", _json({"replkernel": {"gpus": 1}}), _json(content))
        told += [joined(CLIENT, *frames), joined(SIGNED + 6 * (number % 3), *frames)]
    for kind, content in ANSWERS.items():
        frames = (b"client", _json({"msg_type": kind}), _json({"msg_id": "m0"}), b"{}", _json(content))
        told.append(joined(REPLICA, *frames))
    told += [joined(AGENT, message.replace(OF_NONE, OF_ONE)) for message in packed(AgentToRouter)]
    ports = {f"{name}_port": 0 for name in ("shell", "stdin", "control", "iopub", "hb")}
    file = {"key": "k", "ip": "127.0.0.1", "transport": "tcp", "signature_scheme": "hmac-sha256", **ports}
    return [*told, joined(CONNECTION, _json(file)), joined(TOPIC, b"\x01topic")]


def fuzz(data: bytes) -> None:
    """Have a router with a cell under way take the pieces."""
    number, pieces = cut(data)
    match number % 6:
        case 4:
            _read_file(pieces)
        case 3:
            _from_agent(pieces)
        case 5:
            World().feed(events.Subscribed(*filled(pieces, 2)))  # type: ignore[call-arg]
        case 2:
            _from_replica(number // 6, pieces)
        case kind:
            _from_client(number // 6, pieces, signs=kind == SIGNED)


def _world() -> World:
    world = World()
    world.up()
    world.run("r1")
    world.execute("x = 2")
    return world


def _from_client(number: int, pieces: list[bytes], *, signs: bool) -> None:
    gate, world = Gate(SIGNER if signs else Signer(b"", "hmac-sha256")), _world()
    for start in range(0, min(len(pieces), 4 * FRAMES), FRAMES):
        identity, *body = filled(pieces[start:], FRAMES)
        signature = SIGNER.sign(body) if signs else b""
        try:
            request = gate.read(CHANNELS[number % 3], [identity, DELIMITER, signature, *body])
        except WireError:
            continue
        world.feed(request)
    world.wait(2.0)


def _from_replica(number: int, pieces: list[bytes]) -> None:
    channels: tuple[events.ReplicaChannel, ...] = ("shell", "iopub", "control", "stdin")
    world = _world()
    for start in range(0, min(len(pieces), 4 * FRAMES), FRAMES):
        prefix, *body = filled(pieces[start:], FRAMES)
        try:
            message = read_replica(
                ReplicaId("r1"), channels[number % 4], [prefix, DELIMITER, SIGNER.sign(body), *body]
            )
        except WireError:
            continue
        world.feed(message)


def _from_agent(pieces: list[bytes]) -> None:
    world = _world()
    world.checks = (
        False  # An agent that makes things up breaks laws that are about agents; it may not break us.
    )
    for piece in pieces[:4]:
        try:
            message = READS.decode(piece)
        except UNREADABLE:
            continue
        world.say(message)
        world.wait(1.0)


READS = decoder(AgentToRouter)
FILE = Path(tempfile.gettempdir()) / "replkernel-fuzz-connection.json"


def _read_file(pieces: list[bytes]) -> None:
    FILE.write_bytes(filled(pieces, 1)[0])
    try:
        read_connection_file(FILE)
    except ReplkernelError:
        return


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
