"""One process of a cell on several hosts: runs the cell's text as a program; rank 0 gives results back.

Law: it ends with whoever started it. The text runs in `__main__`, with what it uses of the notebook's names.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import io
import linecache
import os
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import dill
import msgspec

from replkernel.ranks.held import ends_with
from replkernel.ranks.words import DATA_BYTES_MAX, Program

FILE = "<cell>"
ERROR_CHARS = 1_000


def main(place: Path, parent: int) -> int:
    """Run the program that lies in a directory; return the exit status."""
    if not ends_with(parent):
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    program = msgspec.msgpack.decode((place / "program").read_bytes(), type=Program)
    own = [entry for entry in sys.path if entry not in program.path_first]
    sys.path[:] = [*program.path_first, *own]
    sys.path += [entry for entry in program.path if entry not in sys.path]
    main_module = ModuleType("__main__")
    sys.modules["__main__"] = main_module
    namespace = main_module.__dict__
    rank = int(os.environ["RANK"])
    try:
        _fill(namespace, program)
        linecache.cache[FILE] = (len(program.source), None, program.source.splitlines(keepends=True), FILE)
        try:
            exec(compile(program.source, FILE, "exec", dont_inherit=True), namespace)  # noqa: S102 - the user's cell
        except SystemExit as end:
            if status := _status_of(end, place / f"error-{rank}"):
                return status
        if rank == 0 and program.back:
            _give_back(place, program, namespace)
    except BaseException as error:
        _tell(place / f"error-{rank}", error)
        return 1
    return 0


def _status_of(end: SystemExit, place: Path) -> int:
    """Return the status that an exit asks for; say its text, if it has one instead."""
    if end.code is None or isinstance(end.code, int):
        return int(end.code or 0)
    sys.stderr.write(f"{end.code}\n")
    with contextlib.suppress(OSError):
        place.write_text(str(end.code)[:ERROR_CHARS])
    return 1


def _fill(namespace: dict[str, Any], program: Program) -> None:
    for name, module in program.modules.items():
        namespace[name] = importlib.import_module(module)
    for name, data in program.names.items():
        namespace[name] = dill.loads(data)


def _give_back(place: Path, program: Program, namespace: dict[str, Any]) -> None:
    missing = [name for name in program.back if name not in namespace]
    if missing:
        raise NameError(f"--back names {', '.join(missing)}, which the cell has not made")
    data = dill.dumps({name: namespace[name] for name in program.back}, recurse=True)
    if len(data) > DATA_BYTES_MAX:
        raise ValueError(f"{', '.join(program.back)} take {len(data) >> 20} MiB: save them to a file instead")
    (place / "result").write_bytes(data)


def _tell(place: Path, error: BaseException) -> None:
    """Write the traceback from the cell's first line on, and the error in a line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != FILE:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)
    with contextlib.suppress(OSError):
        line = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        place.write_text(line[:ERROR_CHARS])


def _end(status: int) -> NoReturn:
    """End as an interpreter does, but run no destructors of C++.

    torch's store and gloo may have threads at work still. Their destructors then abort a rank that is done.
    """
    with contextlib.suppress(Exception):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _end(main(Path(sys.argv[1]), int(sys.argv[2])))
