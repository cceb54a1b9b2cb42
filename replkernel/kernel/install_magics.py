"""`%pip` and `%conda`: IPython's own, and after them the same on the hosts of the kernel's other replicas.

Law: what failed here is repeated nowhere; what became of it elsewhere is shown in the cell.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magics.packaging import PackagingMagics

from replkernel.protocol.installing import InstallQuestion

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


CHANGING = {
    "pip": frozenset({"install", "uninstall"}),
    "conda": frozenset({"install", "remove", "uninstall", "update", "upgrade"}),
}
"""The commands that change what is installed."""


@magics_class
class InstallMagics(Magics):
    """The two line magics of one kernel process."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell=shell)
        self._stock: Any = PackagingMagics(shell=shell)

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip for this kernel's Python, here and on the hosts of its other replicas."""
        self._stock.pip(line)
        self._repeat("pip", line)

    @line_magic
    def conda(self, line: str) -> None:
        """Run conda for this kernel's environment, here and on the hosts of its other replicas."""
        self._stock.conda(line)
        self._repeat("conda", line)

    def _repeat(self, tool: Literal["pip", "conda"], line: str) -> None:
        try:
            arguments = tuple(shlex.split(line))
        except ValueError:
            return  # The shell has refused it as well.
        shell: Any = self.shell
        if not CHANGING[tool] & set(arguments[:1]) or shell.user_ns.get("_exit_code", 0):
            return
        answer = shell.kernel.ask_installs(InstallQuestion(tool, arguments))
        if answer.text or answer.error:
            print(answer.text or f"Not repeated on other hosts: {answer.error}")


def add_install_magics(shell: InteractiveShell) -> None:
    """Put these in the place of IPython's."""
    shell.register_magics(InstallMagics(shell))
