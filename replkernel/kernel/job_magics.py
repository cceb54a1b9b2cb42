"""`%%job`: the cell's text becomes a job's program, which runs beside notebooks. `%job` looks after jobs.

Law: the cell returns as soon as the job is taken in. A job is a program of its own, so it has none of the
notebook's variables: what it would miss, or could not read, is named before anything is submitted.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import os
import shlex
import shutil
import subprocess
import symtable
import sys
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from replkernel.errors import ReplkernelError
from replkernel.launch.module_command import module_command
from replkernel.leasing.request import asks_for_help

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from replkernel.jobs.submitting import Wanted

HELP = """\
%%job --gpus 1,2,4 --name resnet    at the top of a cell: its text runs as a job, on as many of 1, 2 or 4 GPUs
                     as notebooks leave idle. The cell returns at once, and says how the job is called
%%job --epochs 90    with the number of epochs, for a guess of its end (--gpu-model H100, --vram-gb 40)
%%job --gpus 1,2,4 -- torchrun      another program than Python runs the text: the file's name follows it
%%job --gpus 4,8 --hosts 2 -- torchrun    on two hosts at once, with half of these GPUs on each
%%job --cpus 4 --memory 16    without GPUs: on 4 cores and 16 GiB of a host, beside notebooks
%job list            your jobs;  %job show JOB, %job logs [-f] JOB, %job stop JOB, %job hold JOB,
                     %job resume JOB
%job --help          this text

The text is a program of its own, run with this notebook's Python in its working directory. It does not see
the notebook's variables: define them in the cell, or save them to a file and load that. Magics and `!` are
no Python, so leave them out. The file is kept as replkernel-jobs/JOB/cell.py, beside the job's checkpoint.
It is started anew whenever its GPUs change: docs/use/jobs.md says how it saves and goes on."""
VERBS = ("list", "show", "logs", "stop", "hold", "resume")
NOTEBOOKS_ALONE = frozenset(("display", "get_ipython"))
CELL_BYTES_MAX = 1024 * 1024
NAMED_MAX = 5
BAD = "`%job --help` lists what can be said."


@magics_class
class JobMagics(Magics):
    """The line and cell magic of one kernel process."""

    @line_cell_magic
    def job(self, line: str, cell: str | None = None) -> None:
        """Run this cell's text as a job on idle GPUs; ``%job --help`` lists what can be said."""
        if asks_for_help(line.partition(" -- ")[0]) or (cell is None and not line.strip()):
            print(HELP)
        elif cell is None:
            self._look(line)
        else:
            self._submit(line, cell)

    def _submit(self, line: str, cell: str) -> None:
        from replkernel.cli.jobs import wanted_by
        from replkernel.jobs.submitting import new_name
        from replkernel.jobs.words import make_jobs_dir

        said, separator, behind = f" {line} ".partition(" -- ")
        options = _options(said)
        try:
            wanted = wanted_by(options)
        except ReplkernelError as error:
            raise UsageError(f"%%job: {error}") from None
        program = _words(behind) if separator else [sys.executable]
        if not program:
            raise UsageError(f"%%job: name the program behind --. {BAD}")
        if not separator:
            self._check(cell)
        directory = _working_directory()
        try:
            name = new_name(wanted, "cell")
            runs = _runs(program, directory)
            file = make_jobs_dir(directory) / name / "cell.py"
            with _saved(file, f"# %%job {line.strip()}\n{cell}"):
                _hand_in(name, (*runs, str(file)), directory, wanted)
        except (ReplkernelError, OSError) as error:
            raise UsageError(f"%%job: {error}") from None
        print(
            f"Job {name} is submitted. `%job logs -f {name}` follows what it writes; `%job list` shows all."
        )

    def _check(self, cell: str) -> None:
        """Raise UsageError for a cell that is no program, or uses what only this notebook has."""
        check_plain(cell, "%%job", "A job is a program of its own")
        shell: Any = self.shell
        missing = sorted(names_from_outside(cell, shell.user_ns))
        if missing:
            more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
            raise UsageError(
                f"%%job: the cell uses {', '.join(missing[:NAMED_MAX])}{more}, which this notebook alone "
                "has. A job sees none of its variables: define or import them in the cell, or load a file."
            )

    def _look(self, line: str) -> None:
        """Have `replkernel job` do the rest, and show what it says as it comes."""
        words = _words(line, "%job")
        if words[0] not in VERBS:
            raise UsageError(f"%job {words[0]}: unknown. {BAD}")
        command = module_command("replkernel.cli", "job", *words)
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as asked:
            try:
                for said in asked.stdout or ():
                    print(said, end="", flush=True)
            finally:
                asked.terminate()


def _options(said: str) -> argparse.Namespace:
    from replkernel.cli.job_verbs import add_options

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UsageError(f"%%job: {message}. {BAD}")

    parser = Parser("%%job", add_help=False, allow_abbrev=False)
    add_options(parser)
    return parser.parse_args(_words(said, comments=True))


def _words(said: str, magic: str = "%%job", *, comments: bool = False) -> list[str]:
    try:
        return shlex.split(said, comments=comments)
    except ValueError as error:
        raise UsageError(f"{magic} cannot be read ({error}). {BAD}") from None


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError(
            "%%job: this notebook's working directory is gone. `%cd` into one that is there, then run the "
            "cell again."
        ) from None


@contextlib.contextmanager
def _saved(file: Path, text: str) -> Iterator[None]:
    """Keep the cell beside the job's checkpoint, with the notebook's line numbers; not if it is refused.

    It stays where nobody knows whether the job was taken in: its program would be gone.
    """
    from replkernel.hosts.own_file import replace_own
    from replkernel.jobs.submitting import MaybeSubmitted

    data = text.encode()
    if len(data) > CELL_BYTES_MAX:
        raise ReplkernelError("The cell is longer than 1 MiB: put what it needs into a file.")
    file.parent.mkdir(mode=0o700)
    try:
        replace_own(file, data, lasting=True)
    except BaseException:
        _forget(file)
        raise
    try:
        yield
    except (ReplkernelError, OSError) as error:
        if not isinstance(error, MaybeSubmitted):
            _forget(file)
        raise


def _forget(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
        file.parent.rmdir()


def _hand_in(name: str, command: tuple[str, ...], directory: str, wanted: Wanted) -> None:
    """Submit the job from a thread of its own, for here an event loop runs already."""
    from replkernel.jobs.submitting import submit

    try:
        with ThreadPoolExecutor(1) as apart:
            apart.submit(submit, name, command, directory, wanted, os.environ).result()
    except KeyboardInterrupt:
        print(f"Job {name} may have been submitted: `%job list` tells.")
        raise


def _runs(program: list[str], directory: str) -> tuple[str, ...]:
    """Return what runs a file, with the modules that this notebook's cells find."""
    found, env = shutil.which(program[0]), shutil.which("env")
    if found is None or env is None:
        raise ReplkernelError(f"There is no program {program[0]!r} here: name one that can be run.")
    paths = [directory, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return (env, f"PYTHONPATH={os.pathsep.join(paths)}", os.path.abspath(found), *program[1:])


def check_plain(source: str, magic: str, own: str) -> None:
    """Raise UsageError, in the words of a magic, for a cell that is no plain Python."""
    try:
        compile(source, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UsageError(
            f"{magic}: line {(error.lineno or 0) + 1} of the cell is no plain Python ({error.msg}). "
            f"{own}: leave out magics, `!` and `await` outside of functions."
        ) from None


def names_from_outside(source: str, known: Collection[str]) -> set[str]:
    """Return which names that a program uses, and does not define, only the notebook knows."""
    table = symtable.symtable(source, "<job>", "exec")
    bound = {name for name, defined, _ in _symbols(table) if defined}
    used = {name for name, _, referenced in _symbols(table) if referenced}
    if "import *" in source:
        return set()
    plain = set(dir(builtins)) - NOTEBOOKS_ALONE
    outside = {name for name in used - bound - plain if name in known or name in NOTEBOOKS_ALONE}
    return {name for name in outside if not name.startswith("__")}


def _symbols(table: symtable.SymbolTable) -> Iterator[tuple[str, bool, bool]]:
    """Yield a module's global names, wherever they stand in it: whether each is defined there, and used."""
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if top or symbol.is_global():
            defined = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            yield symbol.get_name(), defined, symbol.is_referenced()
    for child in table.get_children():
        yield from _symbols(child)


def complete_job(shell: object, event: Any) -> list[str]:
    """Return the words that can follow `%job` or `%%job`."""
    cell = event.line.lstrip().startswith("%%")
    options = (
        "--gpus", "--hosts", "--cpus", "--memory", "--hours", "--name", "--epochs", "--gpu-model",
        "--vram-gb", "--help",
    )  # fmt: skip
    return [word for word in (options if cell else (*VERBS, "--help")) if word.startswith(event.symbol)]


def add_job_magics(shell: InteractiveShell) -> None:
    """Make `%job` and `%%job` known to the shell."""
    shell.register_magics(JobMagics(shell=shell))
    for name in ("%job", "%%job"):
        shell.set_hook("complete_command", complete_job, str_key=name)
