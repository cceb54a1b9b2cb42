"""What a cell says to us: `%gpu`, `%%gpu`, `%replkernel`, `%pip`, and the metadata of its cell."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from IPython.core.error import UsageError

from replkernel.kernel.arrivals import forgets_missing
from replkernel.kernel.gpu_magics import GpuMagics, complete_gpu, drop_gpu_line
from replkernel.kernel.install_magics import InstallMagics
from replkernel.kernel.magics import ReplkernelMagics, words_of
from replkernel.leasing.notebook import GpuAnswer
from replkernel.leasing.request import BadGpuRequest, GpuRequest, declines_gpus, request_of, split_gpu_line
from tests.fuzz.pieces import cut, filled, joined

GPU, CELL, REPLKERNEL, INSTALL, METADATA = range(5)
LINES = (
    "2", "1 --vram 20 --model H100", "status", "release", "off", "--help", "0", "--vram=20GiB", "2 # two",
    "'", "migrate host-1", "status --json", "state --all", "pins", "sync", "where", "hibernate",
    "forget-missing", "save --help", "install numpy", "uninstall -y numpy",
)  # fmt: skip
METADATA_OF = b'{"replkernel": {"gpus": 2, "vram_gb": 20, "gpu_model": "H100"}, "cellId": "c"}'


class Shell:
    """Stands in for the shell: its kernel's router answers, and nothing is installed."""

    def __init__(self) -> None:
        self.kernel = self
        self.user_ns: dict[str, object] = {}

    def ask_router(self, _: object) -> GpuAnswer:
        return GpuAnswer("answered")

    ask_installs = ask_router


def _ignoring(_: object) -> None:
    """Do nothing."""


def _made() -> tuple[Any, Any, Any]:
    gpu: Any = GpuMagics.__new__(GpuMagics)
    own: Any = ReplkernelMagics.__new__(ReplkernelMagics)
    install: Any = InstallMagics.__new__(InstallMagics)
    for magics in (gpu, own, install):
        magics._trait_values = {}
        object.__setattr__(magics, "__dict__", {**magics.__dict__, "shell": Shell()})
    verbs = ("status", "where", "state", "pins", "sync", "hibernate", "forget-missing")
    own._verbs = dict.fromkeys(verbs, _ignoring)
    install._stock = SimpleNamespace(pip=_ignoring, conda=_ignoring)
    return gpu, own, install


def seeds() -> list[bytes]:
    """Return lines, cells and metadata."""
    told = [joined(kind, line.encode()) for kind in (GPU, REPLKERNEL, INSTALL) for line in LINES]
    told += [joined(CELL, f"%%gpu {line}\nx = 1\n".encode(), METADATA_OF) for line in LINES]
    told += [
        joined(CELL, b"%%time\n%%gpu 2\n%%bash\necho\n", b"{}"),
        joined(CELL, b"%gpu 2\n# nothing\n", b"{}"),
    ]
    return [*told, joined(METADATA, METADATA_OF, b"x = 1")]


def fuzz(data: bytes) -> None:
    """Have the pieces said in a cell."""
    number, pieces = cut(data)
    first, second = filled(pieces, 2)
    text = first.decode("utf-8", "replace")
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            match number % 5:
                case 1:
                    _cell(text, second)
                case 4:
                    _cell(second.decode("utf-8", "replace"), first)
                case kind:
                    gpu, own, install = _made()
                    says: Callable[[str], None] = {0: gpu.gpu, 2: own.replkernel, 3: install.pip}[kind]
                    says(text)
                    words_of(text)
                    event = SimpleNamespace(line=text, symbol=text[-3:])
                    complete_gpu(None, event)
        except (BadGpuRequest, UsageError):
            return


def _cell(text: str, metadata: bytes) -> None:
    declines_gpus(metadata, text)
    forgets_missing(text)
    split_gpu_line(text)
    drop_gpu_line(text.splitlines(keepends=True))
    for default in (None, GpuRequest(1)):
        request_of(metadata, text, default)
