"""What a cell asks the kernel's router while it runs (by `%gpu`, or as it first uses a GPU), and the answer.

It travels on the stdin channel, as JSON content of the two message types below, and never reaches a client.
Law: a question is bounded; what does not fit is answered by an error, never by silence.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

QUESTION_TYPE = "replkernel_gpu_request"
ANSWER_TYPE = "replkernel_gpu_reply"
ANSWER_LIMIT_S = 10.0
"""So long the kernel process waits for its router's answer."""


SECONDS_MAX = 1e6
"""What is longer, a cell of weeks, is told as this long."""


class PausedOn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which lease a cell has left for a shorter one, how often it has been paused, and how far it had come.

    It goes on with GPUs of `gpu_model`.
    """

    lease: Annotated[str, msgspec.Meta(max_length=200)]
    times: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    ran_s: Annotated[float, msgspec.Meta(ge=0.0, le=SECONDS_MAX)] = 0.0
    paused_s: Annotated[float, msgspec.Meta(ge=0.0, le=SECONDS_MAX)] = 0.0
    gpu_model: Annotated[str, msgspec.Meta(max_length=200)] = ""


class GpuQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """`default`: cells ask for `gpus` from the next one on (0: none); `off`: for none, and all given back.
    `cpu` cores and `memory_gib` GiB of the host go with GPUs; `part` and `shared` are as in a `GpuRequest`.

    `release`: what lingers is given back now, and the cell's own lease when it ends; `status`: how it stands.
    `migrate`: one of the replicas is wanted on `host`. `lease`: the cell that runs wants `gpus` on its host;
    it is asked again until there is an answer, and means the same each time. `waive`: it waits no more.
    `paused`: it has left its GPUs for a shorter cell, and goes on with these. `preemptible`: cells may be so
    paused; `expected_s`: so long they are thought to take.
    """

    verb: Literal["status", "release", "off", "default", "migrate", "lease", "waive"]
    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    vram_gb: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""
    host: Annotated[str, msgspec.Meta(max_length=64)] = ""
    cpu: Annotated[float, msgspec.Meta(ge=0.0, le=1024.0)] = 0.0
    memory_gib: Annotated[float, msgspec.Meta(ge=0.0, le=65_536.0)] = 0.0
    part: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    shared: bool = False
    preemptible: bool = False
    expected_s: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    paused: PausedOn | None = None


class GpuAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """`text` is for people, on stdout; `error` is one sentence that names the fix, empty when all is well.

    `gpus` are those of the lease that the running cell has now. `unheard`: the router has said nothing in
    time, and may when it is asked again. The lease costs `price_hour` of `currency`; 0: nothing is charged.
    It may be of a `part` of the one GPU, with `vram_gb` GiB of its memory. A cell that was paused is told its
    name, `lease`: one that it cannot go on with it leaves as the one before.
    """

    text: str = ""
    error: str = ""
    gpus: tuple[str, ...] = ()
    unheard: bool = False
    price_hour: float = 0.0
    currency: str = ""
    part: float = 0.0
    vram_gb: float = 0.0
    lease: str = ""
