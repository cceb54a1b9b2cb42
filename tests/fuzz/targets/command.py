"""What people and deployments write: command lines, settings, names of kernels and hosts."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path

from replkernel_server.errors import ServerError
from replkernel_server.launchers.installed import read_options, whole
from replkernel_server.scheduling.settings import read_service_settings
from replkernel_server.service import check_loopback, read_port

from replkernel.agent.io import early
from replkernel.agent.io.lookup import check_host_name
from replkernel.cli import build_parser
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import kernel_dir
from replkernel.launch.unknown_settings import misspelt
from replkernel.router.__main__ import read_arguments
from replkernel.settings import SETTING_DOCS, read_settings, reads_unsealed
from tests.fuzz.pieces import cut, joined

WORDS, ENVIRONMENT, NAMES, ROUTER, AGENT, SERVICE = range(6)
VARIABLES = sorted({doc.variable for doc in SETTING_DOCS} | {
    f"REPLKERNEL_SCHEDULER_{name}"
    for name in ("DB", "GRACE_S", "AWAY_S", "POLICIES", "USER_REQUESTS", "USER_LEASES", "USER_CALLS_PER_S")
})  # fmt: skip
LINES = (
    "doctor", "status --json", "agent --name h --fake-gpus 2", "agent list", "agent stop h",
    "agent --bind 10.0.0.1 --advertise 10.0.0.2 --ports 20000-20100 --port 20000", "hibernate k", "recover k",
    "forget k", "store collect", "store usage --json", "accounting --csv --by user --since 2026-01-31",
    "drain h", "undrain h", "version", "scheduler --port 1", "simulate x", "--help",
)  # fmt: skip
VALUES = (
    "3",
    "1.5",
    "here,there=10.0.0.1:20000",
    "127.0.0.1",
    "20000-20100",
    "async",
    "file:///x",
    "set=x a=b",
    "",
)


def seeds() -> list[bytes]:
    """Return command lines, settings with values, and names."""
    told = [joined(WORDS, *(word.encode() for word in line.split())) for line in LINES]
    told += [
        joined(ENVIRONMENT, variable.encode(), value.encode())
        for variable in VARIABLES
        for value in VALUES[:3]
    ]
    told += [joined(ENVIRONMENT, b"REPLKERNEL_HOSTS", value.encode()) for value in VALUES]
    told += [joined(NAMES, b"0f2c-k.1", b"host-1"), joined(ROUTER, b"-f", b"kernel.json", b"--debug")]
    told += [joined(AGENT, b"--name", b"h", b"--fake-gpus", b"2"), joined(SERVICE, b"8797", b"address=auto")]
    return told


def fuzz(data: bytes) -> None:
    """Have the pieces read as what somebody wrote."""
    logging.disable(logging.CRITICAL)
    number, pieces = cut(data)
    words = [piece.decode("utf-8", "surrogateescape") for piece in pieces]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            (_words, _environment, _names, read_arguments, _agent, _service)[number % 6](words)
        except (ReplkernelError, ServerError, SystemExit):
            return


def _words(words: list[str]) -> None:
    build_parser().parse_args([word for word in words if "\0" not in word])


def _environment(words: list[str]) -> None:
    env = {
        name: value for name, value in zip(words[0::2], words[1::2], strict=False) if "\0" not in name + value
    }
    misspelt(env)
    for read in (read_settings, read_service_settings):
        with contextlib.suppress(ReplkernelError, ServerError):
            read(env)
    with contextlib.suppress(ReplkernelError):
        reads_unsealed(env, sealed=False)


def _names(words: list[str]) -> None:
    for word in words:
        with contextlib.suppress(ReplkernelError):
            path = kernel_dir(Path("/data"), word)
            assert path.parent == Path("/data/kernels"), path
        with contextlib.suppress(ReplkernelError):
            assert "/" not in check_host_name(word)


def _agent(words: list[str]) -> None:
    given = [word for word in words if word != "--ready-fd"]  # It would touch a descriptor of ours.
    early.parse(given)


def _service(words: list[str]) -> None:
    import argparse

    for word in words:
        with contextlib.suppress(argparse.ArgumentTypeError):
            read_port(word)
        with contextlib.suppress(ServerError):
            check_loopback(word)
    whole("local", read_options(words), "hosts", 1, 10)
