"""`%gpu` and `%%gpu`: what the notebook says about the GPUs of its cells. The kernel's router decides.

`%%gpu` is read by the router before the cell comes here; its line is then dropped, and the cell is its body.
Law: nothing is bound or held here; what is wrong is one sentence on stderr that names the fix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from replkernel.leasing.notebook import GpuQuestion
from replkernel.leasing.request import (
    GPUS_ASKED_MAX,
    GPUS_DEFAULT_MAX,
    BadGpuRequest,
    asks_for_help,
    parse_request,
    split_gpu_line,
    without_comment,
)

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


HELP = """\
%gpu 2               from the next cell on, each cell of this notebook gets 2 GPUs while it runs (0: none)
%gpu 1 --vram 20 --model H100   … one with 20 GiB at least, of that model
%gpu 1 --cpu 4 --memory 32      … and 4 cores and 32 GiB of memory of its host with it
%gpu 0.5             … half of one GPU and half of its memory, beside others; --vram GIB: so much of it
%gpu 1 --vram 20 --share        … 20 GiB of one on which others may compute at the same time
%gpu 1 --preemptible            … and cells may be paused for shorter ones; --for 20m: so long they take
%gpu status          what is asked for, what is held, what waits
%gpu release         give back now what this notebook holds between its cells
%gpu off             no GPUs for the cells to come, and give back what is held
%%gpu 2 --vram 20    at the top of a cell: this cell alone, whatever the default is (0: none)
%%gpu 16 --hosts 2   at the top of a cell: its text runs once for each of 16 GPUs, 8 on each of two hosts, as
                     torchrun starts a program; --back model,losses: rank 0 gives these variables back
%gpu --help          this text
The cell's metadata say the same as %%gpu:
{"replkernel": {"gpus": 2, "vram_gb": 20, "gpu_model": "H100", "cpu": 4, "memory_gib": 32,
                "preemptible": true, "expected_s": 1200}}"""

VERBS: dict[str, Literal["status", "release", "off"]] = {
    "status": "status",
    "release": "release",
    "off": "off",
}
OPTIONS = ("--vram", "--model", "--cpu", "--memory", "--share", "--preemptible", "--for", "--help")
CELL_OPTIONS = (*OPTIONS, "--hosts", "--back")


@magics_class
class GpuMagics(Magics):
    """The line and cell magic of one kernel process."""

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> None:
        """Ask for GPUs for this notebook's cells; ``%gpu --help`` lists what can be said."""
        if asks_for_help(line) or (cell is None and not without_comment(line)):
            print(HELP)
        elif cell is None:
            self._ask(line)
        else:
            self._run(line, cell)

    def _ask(self, line: str) -> None:
        """Have the router do what `line` says, and tell the answer."""
        verb = VERBS.get(without_comment(line))
        if verb is not None:
            question = GpuQuestion(verb)
        else:
            try:
                asked = parse_request(line, GPUS_DEFAULT_MAX)
                if asked.hosts > 1:
                    raise BadGpuRequest("`--hosts` is for one cell: write `%%gpu` at its top.")
            except BadGpuRequest as error:
                raise UsageError(f"{error} `%gpu --help` lists what can be said.") from None
            question = GpuQuestion(
                "default",
                asked.gpus,
                asked.vram_gb,
                asked.model,
                cpu=asked.cpu,
                memory_gib=asked.memory_gib,
                part=asked.part,
                shared=asked.shared,
                preemptible=asked.preemptible,
                expected_s=asked.expected_s,
            )
        shell: Any = self.shell
        answer = shell.kernel.ask_router(question)
        if answer.error:
            raise UsageError(answer.error)
        if answer.text:
            print(answer.text)

    def _run(self, line: str, cell: str) -> None:
        """Say what is wrong with a `%%gpu` line, or run the body: on several hosts, or for who calls it."""
        try:
            asked = parse_request(line, GPUS_ASKED_MAX)
        except BadGpuRequest as error:
            raise UsageError(f"{error} `%gpu --help` lists what can be said.") from None
        shell: Any = self.shell
        if asked.hosts > 1:
            from replkernel.ranks.cell import run_on_hosts

            run_on_hosts(shell, asked, cell)
            return
        shell.run_cell(cell).raise_error()


def drop_gpu_line(lines: list[str]) -> list[str]:
    """Make the body of a `%%gpu` cell the cell: an input transformation. A wrong line stays, to be told."""
    if not lines or not lines[0].startswith("%%gpu"):
        return lines
    line, body = split_gpu_line("".join(lines))
    if line is None or asks_for_help(line):
        return lines
    try:
        asked = parse_request(line, GPUS_ASKED_MAX)
    except BadGpuRequest:
        return lines
    if asked.hosts > 1:
        return lines  # Its body is a program for other processes.
    return body.splitlines(keepends=True)


def complete_gpu(shell: object, event: Any) -> list[str]:
    """Return the words that can follow `%gpu` or `%%gpu`."""
    cell = event.line.lstrip().startswith("%%")
    words = CELL_OPTIONS if cell else (*VERBS, *OPTIONS)
    return [word for word in words if word.startswith(event.symbol)]


def add_gpu_magics(shell: InteractiveShell) -> None:
    """Make `%gpu` and `%%gpu` known to the shell."""
    shell.register_magics(GpuMagics(shell=shell))
    shell.input_transformer_manager.line_transforms.insert(0, drop_gpu_line)
    for name in ("%gpu", "%%gpu"):
        shell.set_hook("complete_command", complete_gpu, str_key=name)
