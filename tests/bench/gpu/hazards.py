"""What a driver may refuse, or fail at, each in a process of its own that uses CUDA by `cuda-bindings`.

The same code runs over the real driver and over the stubs. Law: a row says what was seen, in the words that a
user is told; whether that is good is for the reader, and only what must never be is FAILED.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replkernel.gpu.backend import Moved, Outcome
from tests.bench.gpu.rows import Row

TAKEN = 2**30
PRETENDED_TAKEN = 10_000
USES = {
    "torch": "import torch; x = torch.arange(10.0).cuda(); assert x.sum().item() == 45",
    "jax": "import jax; assert float(jax.numpy.arange(10.0).sum()) == 45",
    "cupy": "import cupy; assert float(cupy.arange(10.0).sum()) == 45",
    "numba": "from numba import cuda; import numpy; assert cuda.to_device(numpy.arange(10)).size == 10",
    "tensorflow": "import tensorflow as tf; assert float(tf.reduce_sum(tf.range(10.0))) == 45",
    "process": "from cuda.bindings import driver as cu; assert int(cu.cuInit(0)[0]) == 0",
}
ASKED = """
import os
from replkernel.gpu.door import Door
from replkernel.gpu import first_use
asked = []
def lease():
    if not asked:
        os.environ["CUDA_VISIBLE_DEVICES"] = {gpu!r}
    asked.append(1)
def at_the_driver():
    lease()
    return 0
door = Door(at_the_driver)
door.stand(open_=False)
first_use.watch(lease)
{use}
print("asked", len(asked), door.is_there)
"""


def told(hazard: Callable[[int], Row], size: int, *, pretend: bool) -> list[Row]:
    """Meet a hazard here, or under the stubs in a process that finds them; return what was seen."""
    stubs = os.environ.get("BENCH_STUBS")
    if pretend and stubs is None and "STUB_DRIVERS" not in os.environ:
        return [Row(_what(hazard), "", "not shown: there is no C compiler for the stub drivers")]
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("pynvml") is None:
        return [Row(_what(hazard), "", "not shown: cuda-bindings and nvidia-ml-py are not installed")]
    if pretend and stubs is not None:
        env = {name: value for name, value in os.environ.items() if name != "BENCH_STUBS"}
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.bench.gpu.one_row", *sys.argv[1:]],
            env | json.loads(stubs),
        )
    if pretend:
        from replkernel.gpu import seen

        seen.DEVICES = Path(os.environ["STUB_DRIVERS"], "dev")
    try:
        return [hazard(PRETENDED_TAKEN if pretend else min(size, TAKEN))]
    except Exception as error:  # The row says it.
        return [
            Row(_what(hazard), "", f"FAILED: {' '.join(f'{type(error).__name__}: {error}'.split())[:200]}")
        ]


def _what(hazard: Callable[[int], Row]) -> str:
    return (hazard.__doc__ or hazard.__name__).split("\n")[0].rstrip(".")


class _Here:
    """This process, with so many bytes on its first GPU, and what keeps its state."""

    def __init__(self, size: int) -> None:
        from cuda.bindings import driver

        from replkernel.gpu import seen
        from replkernel.gpu.occupancy import Occupancy

        self.gpus = list(seen.models())
        if not os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-")) and self.gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.gpus[0]
        self.driver: Any = driver
        self.call("cuInit", 0)
        self.context = self.call("cuDevicePrimaryCtxRetain", 0)
        self.call("cuCtxSetCurrent", self.context)
        if size:
            self.call("cuMemAlloc", size)
        self.state = Occupancy(lambda thread: True, lambda: None, settled=lambda: True)

    @property
    def gpu(self) -> tuple[str, ...]:
        return (os.environ["CUDA_VISIBLE_DEVICES"],)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call the driver; raises RuntimeError with its error."""
        answer = getattr(self.driver, name)(*arguments)
        if int(answer[0]):
            raise RuntimeError(f"{name} returned {answer[0]!r}")
        return answer[-1]

    def off_and_back(self, gpus: tuple[str, ...] = ()) -> str:
        """Suspend and resume; say how that went."""
        off = self.state.suspend()
        if not isinstance(off, Moved):
            return said(off)
        back = self.state.lend(gpus or self.gpu)
        self.call("cuCtxSynchronize")
        return f"off {said(off)}, back {said(back)}"


def said(outcome: Outcome) -> str:
    """Return an outcome in a few words."""
    if isinstance(outcome, Moved):
        return f"in {outcome.seconds:.2f} s"
    return f"kept: {outcome.why}"


def pressure(size: int) -> Row:
    """Restore while somebody else has the GPU."""
    from replkernel.gpu import driver

    here = _Here(size)
    off = here.state.suspend()
    if not isinstance(off, Moved):
        return Row("restore while somebody else has the GPU", "told, then back", said(off))
    driver.ROOM_WAIT_S = 1.0
    with _filler(here) as why:
        full = why or said(here.state.lend(here.gpu))
    driver.ROOM_WAIT_S = 20.0
    back = said(here.state.lend(here.gpu))
    return Row("restore while somebody else has the GPU", "told, then back", f"{full}; then back {back}")


class _filler:
    """Somebody else who has all but a little of the GPU, for as long as the block lasts."""

    def __init__(self, here: _Here) -> None:
        self._gpu, self._process = here.gpu[0], None
        self._script = Path(os.environ["STUB_DRIVERS"], "script") if "STUB_DRIVERS" in os.environ else None

    def __enter__(self) -> str:
        from replkernel.gpu import seen

        free = seen.free_by_gpu().get(self._gpu, 0)
        if self._script is not None:
            self._text = self._script.read_text()
            first, rest = self._text.split("\n", 1)
            self._script.write_text(f"{first}\nprocess 4100000 {free}\n{rest}")
            return ""
        source = (
            "import sys\nfrom cuda.bindings import driver as cu\ncu.cuInit(0)\n"
            "cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])\n"
            "free = cu.cuMemGetInfo()[1]\nprint(int(cu.cuMemAlloc(int(free * 0.99))[0]), flush=True)\n"
            "sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return "" if self._process.stdout.readline().strip() == "0" else "the GPU could not be filled"

    def __exit__(self, *exc: object) -> None:
        if self._script is not None:
            self._script.write_text(self._text)
        if self._process is not None:
            self._process.communicate()


def remap(size: int) -> Row:
    """Resume on another GPU of the machine."""
    here = _Here(size)
    others = [gpu for gpu in here.gpus if gpu != here.gpu[0]]
    seen = here.off_and_back((others[0],)) if others else "not shown: the machine has one GPU"
    return Row("resume on another GPU of its model", "back there", seen)


def managed_memory(size: int) -> Row:
    """Suspend a process with managed memory (UVM)."""
    here = _Here(0)
    here.call("cuMemAllocManaged", size, 1)
    return Row("a process with managed memory (UVM)", "kept, or back", here.off_and_back())


def nccl(size: int) -> Row:
    """Suspend a process in which NCCL is at work."""
    if "STUB_DRIVERS" in os.environ:
        here = _Here(size)
        ctypes.CDLL(None).prctl(15, b"NCCL Service", 0, 0, 0)  # PR_SET_NAME
        return Row("a process in which NCCL is at work", "kept, or back", here.off_and_back())
    import torch

    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})
    torch.distributed.init_process_group("nccl", rank=0, world_size=1, store=torch.distributed.HashStore())
    torch.distributed.all_reduce(torch.ones(10, device="cuda"))
    here = _Here(size)
    return Row("a process in which NCCL is at work", "kept, or back", here.off_and_back())


def children(size: int) -> Row:
    """Suspend a process and one that it has started."""
    source = (
        "import sys\nfrom cuda.bindings import driver as cu\ncu.cuInit(0)\n"
        "cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])\n"
        f"print(int(cu.cuMemAlloc({size})[0]), flush=True)\nsys.stdin.readline()\n"
        "print(int(cu.cuCtxSynchronize()[0]), flush=True)"
    )
    here = _Here(size)
    child = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    seen = here.off_and_back()
    out, _ = child.communicate("go\n", timeout=20)
    goes = "the child goes on" if out.strip() == "0" else "FAILED: the child does not go on"
    return Row(
        "a process with one that it has started, both on the GPU",
        "both off and back, or kept",
        f"{seen}; {goes}",
    )


def mig(size: int) -> Row:
    """Suspend a process on a part of a GPU (MIG)."""
    here = _Here(0)
    if not here.gpu[0].startswith("MIG-"):
        return Row("a process on a part of a GPU (MIG)", "kept", "not shown: no GPU is split here")
    return Row("a process on a part of a GPU (MIG)", "kept", here.off_and_back())


def first_use_of(library: str) -> Callable[[int], Row]:
    """Return the row of a library's first use of CUDA without a lease."""

    def first_use(_size: int) -> Row:
        what = f"first use without a lease: {library}"
        module = "cuda" if library == "process" else library
        if "STUB_DRIVERS" in os.environ and library != "process":
            return Row(what, "asked before the driver", "not shown: the stub drivers compute nothing")
        if importlib.util.find_spec(module) is None:
            return Row(what, "asked before the driver", f"not shown: {library} is not installed")
        from replkernel.agent.io.spawning_place import interpreter_environment
        from replkernel.gpu import seen

        gpu = next(iter(seen.models()), "0")
        env = interpreter_environment({**os.environ, "REPLKERNEL_CUDA_DOOR": "on"})
        env |= {"CUDA_VISIBLE_DEVICES": "-1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        source = ASKED.format(gpu=gpu, use=USES[library])
        ran = subprocess.run(
            [sys.executable, "-c", source], env=env, capture_output=True, text=True, check=False
        )
        words = ran.stdout.split()[-3:]
        if ran.returncode or words[:1] != ["asked"] or words[1] == "0":
            return Row(
                what, "asked before the driver", f"FAILED: {' '.join(ran.stderr.split())[-160:] or words}"
            )
        how = "by the library before `cuInit`" if words[2] == "True" else "by Python's doors alone"
        return Row(what, "asked before the driver", f"asked, and went on ({how})")

    first_use.__doc__ = f"First use without a lease: {library}."
    return first_use
