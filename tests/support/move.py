"""Runs cells in several real processes by turns, moving the state by deltas after every cell, as replicas do.

`Movers` holds the processes; `play` runs a notebook on them, `stay` runs it in one process and moves nothing.
Run as a script it is one of the processes, and talks msgpack over an inherited socket.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import io
import linecache
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

ANSWER_LIMIT_S = 100.0
INLINE_BYTES_MAX = 16 * 1024
_LENGTH = struct.Struct("<Q")


class Ask(msgspec.Struct):
    """What a process is asked: `reset`, `run`, `receive` or `materialise`."""

    verb: str
    replica: str = ""
    cache: str = ""
    source: str = ""
    seq: int = 0
    delta: bytes = b""
    caches: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    ordered: bool = False
    inline: int = INLINE_BYTES_MAX


class Answer(msgspec.Struct):
    """What it answers: the cell's output, the delta, and what a rebuild could not do."""

    output: str = ""
    error: str = ""
    delta: bytes = b""
    failed: tuple[str, ...] = ()
    trouble: str = ""
    named: tuple[str, ...] = ()
    """The globals that payloads have named since the last answer."""


class Moved(msgspec.Struct):
    """What became of one notebook: each cell's output, each cell's delta, and what could not be rebuilt."""

    outputs: list[str]
    deltas: list[Any]
    failed: list[str]
    quiet: list[str]
    """The components that a cell which does nothing shipped."""


def _send(channel: socket.socket, message: Any) -> None:
    data = msgspec.msgpack.encode(message)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive(channel: socket.socket, kind: Any) -> Any:
    def take(size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = channel.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise EOFError("the process is gone")
            data += piece
        return bytes(data)

    (size,) = _LENGTH.unpack(take(_LENGTH.size))
    return msgspec.msgpack.decode(take(size), type=kind)


# -- the test's side -------------------------------------------------------------------------------


class Mover:
    """One process."""

    def __init__(self, directory: Path, number: int) -> None:
        self.cache = str(directory / f"cache{number}")
        here, there = socket.socketpair()
        here.settimeout(ANSWER_LIMIT_S)
        self._channel = here
        env = {**os.environ, "PYTHONHASHSEED": str(100 + number), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())], pass_fds=(there.fileno(),), env=env
        )
        there.close()

    def ask(self, ask: Ask) -> Answer:
        """Return the answer; raise what went wrong in the process."""
        _send(self._channel, ask)
        answer: Answer = _receive(self._channel, Answer)
        if answer.trouble:
            raise RuntimeError(answer.trouble)
        return answer

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Movers:
    """Processes to play notebooks on; used again and again, each time with a fresh namespace."""

    def __init__(self, count: int = 2) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="rk-move-"))
        self._movers = [Mover(self._directory, number) for number in range(count)]
        self._stayer = Mover(self._directory, count)
        self._ordered = False
        self._stayed: dict[tuple[str, ...], list[str]] = {}

    def close(self) -> None:
        """End all processes."""
        for mover in [*self._movers, self._stayer]:
            mover.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def stay(self, cells: Sequence[str]) -> list[str]:
        """Return the outputs of the cells, all run in one process with nothing captured; once for all."""
        known = tuple(cells)
        if known not in self._stayed:
            self._stayer.ask(Ask("reset", "stock", self._stayer.cache))
            self._stayed[known] = [self._stayer.ask(Ask("run", source=source)).output for source in cells]
        return self._stayed[known]

    def play(
        self,
        cells: Sequence[str],
        *,
        order: Sequence[int] | None = None,
        probe: bool = True,
        ordered: bool = False,
    ) -> Moved:
        """Run the cells by turns (or each on the process that `order` says); move the state after each.

        With `ordered`, no bytes travel inline, and only what a cell reaches is rebuilt before it.
        """
        moved = Moved([], [], [], [])
        self._ordered = ordered
        for number, mover in enumerate(self._movers):
            mover.ask(Ask("reset", f"r{number + 1}", mover.cache, ordered=ordered))
        for index, source in enumerate(cells):
            place = order[index] if order is not None else index % len(self._movers)
            self._step(moved, place, source, index + 1)
        if probe:
            for place in range(len(self._movers)):
                number = len(self._movers) + len(cells) + place
                before = len(moved.deltas)
                self._step(moved, place, "pass", number)
                moved.outputs.pop()
                moved.quiet.extend(record["cid"] for record in moved.deltas.pop(before).get("components", ()))
        return moved

    def _step(self, moved: Moved, place: int, source: str, seq: int) -> None:
        executor = self._movers[place]
        caches = tuple(mover.cache for mover in self._movers if mover is not executor)
        ask = Ask("materialise", source=source, caches=caches, ordered=self._ordered)
        moved.failed.extend(executor.ask(ask).failed)
        answer = executor.ask(Ask("run", source=source, seq=seq))
        moved.outputs.append(answer.output)
        moved.deltas.append(msgspec.msgpack.decode(answer.delta))
        for mover in self._movers:
            if mover is not executor:
                mover.ask(Ask("receive", delta=answer.delta))


# -- the process's side ----------------------------------------------------------------------------


class _Notebook:
    """One notebook in this process."""

    def __init__(
        self,
        replica: str,
        cache: str,
        *,
        capturing: bool,
        ordered: bool = False,
        inline: int = INLINE_BYTES_MAX,
    ) -> None:
        from replkernel.objects.cache import BlobCache
        from replkernel.records import ReplicaId
        from replkernel.state import hooks
        from replkernel.state.patches.book import book
        from replkernel.state.patches.watch import Watch
        from replkernel.state.state_capture import StateCapture

        hooks.registered.clear()
        book.clear()
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self.namespace: dict[str, Any] = vars(module)
        self.namespace["__builtins__"] = __import__("builtins")
        ignore = frozenset(self.namespace)
        self.cache = BlobCache(Path(cache))
        self.state: Any = None
        if capturing:
            self.state = StateCapture(
                self.namespace,
                self.cache,
                ReplicaId(replica),
                inline_bytes_max=0 if ordered else inline,
                ignore=ignore,
            )
        self._count = 0
        self.restorer: Any = None
        self.book, self.watch = book, Watch(self.namespace, book)
        book.look = self.watch.compare

    def run(self, source: str) -> str:
        """Run one cell; return what it printed, and the error's last line."""
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        out = io.StringIO()
        self.watch.expect(source)
        with contextlib.redirect_stdout(out):
            try:
                for statement in ast.parse(source, name).body:
                    self.watch.go_on()
                    exec(compile(ast.Module([statement], []), name, "exec"), self.namespace)
            except Exception as error:
                print(f"!{type(error).__name__}: {error}")
                del error
        self.watch.compare()
        return out.getvalue()

    def capture(self, seq: int) -> bytes:
        """Return the encoded delta."""
        if self.restorer is not None:
            self.restorer.take_net_down()
        return msgspec.msgpack.encode(self.state.capture(seq, seq, seq))

    def receive(self, data: bytes) -> None:
        """Take a delta, and rebuild what is small."""
        from replkernel.records import Delta

        self.state.receive(msgspec.msgpack.decode(data, type=Delta))
        self.state.rebuild(everything=False, fetch=lambda refs: None)

    def materialise(self, caches: Sequence[str], source: str, *, ordered: bool) -> tuple[str, ...]:
        """Rebuild everything, or what a cell reaches, with blobs copied from the others' caches.

        Return what failed.
        """
        from replkernel.objects.cache import BlobCache

        def fetch(refs: Any) -> None:
            for ref in refs:
                for chunk in self.cache.missing(ref):
                    for directory in caches:
                        with contextlib.suppress(Exception):
                            self.cache.write_stored_chunk(chunk, BlobCache(Path(directory)).read_chunk(chunk))
                            break

        if self.restorer is not None:
            self.restorer.take_net_down()
        if ordered and self.state.pending_bytes:
            from order import restorer_of

            from replkernel.kernel import restorer

            restorer.WORTH_BYTES = 0
            self.restorer = restorer_of(self.state, self.namespace, fetch)
            if self.restorer.prepare([source]):
                self.book.settle()
                return ()
        report = self.state.rebuild(everything=True, fetch=fetch)
        self.book.settle()
        return tuple(f"{failure.names}: {failure.reason}" for failure in report.failed)


def _note_names() -> set[str]:
    """Have the unpicklers note what they look up, in the set that is returned."""
    from replkernel.state.restore import unpickling

    named: set[str] = set()

    def noted(find: Any) -> Any:
        def find_class(unpickler: Any, module: str, name: str) -> Any:
            named.add(f"{module} {name}")
            return find(unpickler, module, name)

        return find_class

    for unpickler in (unpickling.SeededUnpickler, unpickling.LateUnpickler):
        unpickler.find_class = noted(unpickler.find_class)  # type: ignore[method-assign]
    return named


def _serve(channel: socket.socket) -> None:
    notebook: _Notebook | None = None
    named = _note_names()
    while True:
        try:
            ask: Ask = _receive(channel, Ask)
        except EOFError:
            return
        answer = Answer()
        try:
            if ask.verb == "reset":
                notebook = None
                gc.collect()
                gc.freeze()  # the libraries that are loaded by now need not be looked at each time
                capturing = ask.replica != "stock"
                notebook = _Notebook(
                    ask.replica, ask.cache, capturing=capturing, ordered=ask.ordered, inline=ask.inline
                )
            elif ask.verb == "run":
                assert notebook is not None
                answer.output = notebook.run(ask.source)
                if notebook.state is not None:
                    answer.delta = notebook.capture(ask.seq)
            elif ask.verb == "receive":
                assert notebook is not None
                notebook.receive(ask.delta)
            elif ask.verb == "materialise":
                assert notebook is not None
                answer.failed = notebook.materialise(ask.caches, ask.source, ordered=ask.ordered)
        except Exception:
            import traceback

            answer.trouble = traceback.format_exc()
        answer.named = tuple(sorted(named))
        named.clear()
        _send(channel, answer)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    _serve(socket.socket(fileno=int(sys.argv[1])))
