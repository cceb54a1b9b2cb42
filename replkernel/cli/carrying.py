"""`replkernel fork`, `export`, `inspect`, `import`: a kernel's state in other kernels, and in files.

Law: it only asks and says; nothing of a file is believed, and before code from it could run somebody agreed.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replkernel.cli.status import format_bytes, table
from replkernel.errors import ReplkernelError

if TYPE_CHECKING:
    from replkernel.carrying.container import StateFile

SHOWN = 20
"""So many differences, and so many variables that are left out, are told."""
ASK = "Opening this kernel runs code from the file: it is as a program of whoever wrote it. Go on? [y/N] "


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the words to the command line."""
    fork = verbs.add_parser(
        "fork",
        help="make new kernels that begin with a kernel's state",
        description="Make new kernels that hibernate with the state of a kernel of yours, which goes on. They"
        " share its data in the store until they change it. Open one from JupyterLab's Running panel.",
    )
    fork.add_argument("kernel_id", metavar="KERNEL_ID", help="as `replkernel status` shows it")
    _add_at(fork)
    fork.add_argument("-n", dest="count", type=int, default=1, metavar="N", help="how many (default: 1)")
    fork.add_argument(
        "--reseed", action="store_true", help="give each random generators of its own (random, numpy, torch)"
    )
    fork.add_argument("--json", action="store_true", help="write the new ids as JSON, for programs")
    export = verbs.add_parser(
        "export",
        help="write a kernel's state into a file",
        description="Write the state of a kernel, which may run or hibernate, into one file. It has the "
        "variables, the history and what cells changed in the environment: look before you give it away.",
    )
    export.add_argument("kernel_id", metavar="KERNEL_ID", help="as `replkernel status` shows it")
    export.add_argument("file", metavar="FILE", type=Path, help="the file to write, such as state.rkz")
    _add_at(export)
    export.add_argument("--force", action="store_true", help="replace the file if it is there")
    export.add_argument("--sign", metavar="KEYFILE", type=Path, help="sign it with this Ed25519 private key")
    inspect = verbs.add_parser(
        "inspect",
        help="list what is in a state file; nothing in it is run",
        description="List names, types, shapes, sizes and packages of a state file without running anything.",
    )
    inspect.add_argument("file", metavar="FILE", type=Path)
    inspect.add_argument("--json", action="store_true", help="write all of it as JSON, for programs")
    _add_import(verbs)


def _add_at(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--at",
        metavar="POINT",
        default="",
        help="the state at an earlier point: a name that you gave it, a branch, or the number of a cell",
    )


def _add_import(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    importing = verbs.add_parser(
        "import",
        help="make a kernel of a state file",
        description="Make a kernel that hibernates with the state of a file. Its code runs once the kernel is"
        " opened, as a program of whoever wrote the file: import what you trust, or use --safe.",
    )
    importing.add_argument("file", metavar="FILE", type=Path)
    importing.add_argument("--yes", action="store_true", help="do not ask whether its code may run")
    importing.add_argument(
        "--safe",
        action="store_true",
        help="take arrays, frames, tensors and plain values only; nothing else runs",
    )
    importing.add_argument("--force", action="store_true", help="also where Python differs")
    importing.add_argument(
        "--signed-by", metavar="KEYFILE", type=Path, help="only if this public key signed it"
    )
    importing.add_argument(
        "--notebook", metavar="PATH", type=Path, help="VS Code opens this notebook with the new kernel"
    )


def run_fork(options: argparse.Namespace) -> int:
    """Fork a kernel; return the exit code."""
    from replkernel.carrying.forking import fork_kernel

    made, behind = fork_kernel(
        options.kernel_id, os.environ, options.count, at=options.at, reseed=options.reseed
    )
    _say_behind(options.kernel_id, behind)
    if options.json:
        print(msgspec.json.encode([record.kernel_id for record in made]).decode())
        return 0
    for record in made:
        print(record.kernel_id)
    print("They hibernate: open one from the Running panel, or choose it for a notebook.", file=sys.stderr)
    return 0


def run_export(options: argparse.Namespace) -> int:
    """Write a state file; return the exit code."""
    from replkernel.carrying.exporting import export_kernel, shown_progress

    try:
        manifest, behind = export_kernel(
            options.kernel_id,
            options.file,
            os.environ,
            at=options.at,
            force=options.force,
            key=options.sign,
            progress=shown_progress("Exported"),
        )
    except OSError as error:
        raise ReplkernelError(f"{options.file} cannot be written: {error.strerror}.") from error
    _say_behind(options.kernel_id, behind)
    size = format_bytes(options.file.stat().st_size)
    print(
        f"{options.file}: {size}, {len(manifest.names)} variables, as of cell [{manifest.execution_count}]."
    )
    for left in manifest.left_out[:SHOWN]:
        print(f"Left where it is: `{left.path}` ({left.type}). {left.why}")
    return 0


def _say_behind(kernel_id: str, behind: bool) -> None:
    if behind:
        print(f"A cell of kernel {kernel_id} runs: this is the state before it.", file=sys.stderr)


def run_inspect(options: argparse.Namespace) -> int:
    """List what is in a state file; return the exit code."""
    from replkernel.carrying.container import StateFile
    from replkernel.carrying.importing import read_state
    from replkernel.carrying.manifest import named_in
    from replkernel.carrying.taking import heads_of
    from replkernel.protocol.timeline import said_name

    with StateFile(options.file) as file:
        signature = file.signature()
        _base, state = read_state(file)
        components = state.table.components
        names = named_in(components.values(), heads_of(components, file.chunk))
        manifest = msgspec.structs.replace(file.manifest, names=names)
        changed = names != file.manifest.names
    if options.json:
        signed = signature.fingerprint if signature is not None else None
        print(msgspec.json.encode({"signed_by": signed, **msgspec.to_builtins(manifest)}).decode())
        return 0
    signed = f"signed by {signature.fingerprint}" if signature is not None else "not signed"
    print(f"{options.file}: as of cell [{manifest.execution_count}], {signed}.")
    print(_clean(f"Python {manifest.python} on {manifest.system}/{manifest.machine}"))
    rows = [("NAME", "TYPE", "SHAPE", "SIZE")]
    for one in names:
        shape = "×".join(map(str, one.shape)) or "-"
        rows.append((_clean(said_name(one.name)), _clean(one.type) or "?", shape, format_bytes(one.bytes)))
    print("\n".join(table(rows)))
    packages = ", ".join(f"{name} {version}" for name, version in manifest.packages.items())
    print(_clean(f"Packages: {packages or 'none'}"))
    for left in manifest.left_out[:SHOWN]:
        print(_clean(f"Not in it: `{left.path}` ({left.type}). {left.why}"))
    if changed:
        print("The file's own list of variables says otherwise: it was changed, or another release wrote it.")
    return 0


def run_import(options: argparse.Namespace) -> int:
    """Make a kernel of a state file; return the exit code."""
    from replkernel.carrying.container import StateFile
    from replkernel.carrying.exporting import shown_progress
    from replkernel.carrying.importing import import_kernel, only_safe, read_state

    with StateFile(options.file) as file:
        _check_signature(file, options.signed_by)
        base, state = read_state(file)
        _compare(file, force=options.force)
        if options.safe:
            base, state, left = only_safe(file, state)
            for one in left[:SHOWN]:
                print(_clean(f"Left out: `{one.name}`: {one.why}."))
            if len(left) > SHOWN:
                print(f"{len(left) - SHOWN} more variables are left out.")
        elif not options.yes:
            _ask()
        cwd = str(options.notebook.resolve().parent) if options.notebook else os.getcwd()
        record = import_kernel(file, base, state, os.environ, cwd, progress=shown_progress("Imported"))
    if options.notebook:
        _link(options.notebook, record.kernel_id)
    print(record.kernel_id)
    print("It hibernates: open it from the Running panel, or choose it for a notebook.", file=sys.stderr)
    return 0


def _check_signature(file: StateFile, keyfile: Path | None) -> None:
    from replkernel.carrying.signature import BadSignature, is_signed_by

    signature = file.signature()
    if keyfile is not None and (signature is None or not is_signed_by(signature, keyfile)):
        raise BadSignature(f"{file.path} is not signed by the key in {keyfile}: it is not imported.")
    if signature is not None and keyfile is None:
        print(
            f"Signed by {signature.fingerprint}; --signed-by KEYFILE checks whose key that is.",
            file=sys.stderr,
        )


def _compare(file: StateFile, *, force: bool) -> None:
    from replkernel.carrying.manifest import PACKAGES_MAX, differences, installed

    manifest = file.manifest
    hard, soft = differences(manifest, installed(list(manifest.packages)[:PACKAGES_MAX]))
    for sentence in soft[:SHOWN]:
        print(_clean(f"Different here: {sentence}"), file=sys.stderr)
    if hard and not force:
        raise ReplkernelError(_clean(f"{hard[0]} Use that Python, or --force to take what can be rebuilt."))
    for sentence in hard:
        print(_clean(sentence), file=sys.stderr)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise ReplkernelError(
            "Nobody is there to say whether code from the file may run: use --yes or --safe."
        )
    if input(ASK).strip().lower() not in ("y", "yes"):
        raise ReplkernelError("Nothing was imported.")


def _link(notebook: Path, kernel_id: str) -> None:
    from replkernel.launch.notebook_link import NotebookLink, Opener, link_file, write_link

    path = str(notebook.resolve())
    write_link(link_file(path, os.environ), NotebookLink(path, kernel_id, Opener(0, 0)))


def _clean(text: str) -> str:
    """Return a text of a stranger without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)
