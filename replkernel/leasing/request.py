"""What a cell asks for: GPUs of one host with cores and memory, by metadata, `%%gpu`, or the default.

Pure, and light enough for a router. Law: a cell that asks for nothing costs two looks for a word; what cannot
be understood is one sentence that names the fix, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TypeAlias

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.leasing.models import model_name
from replkernel.leasing.wire import GANG_HOSTS_MAX, GPUS_OF_LEASE_MAX

GPUS_ASKED_MAX = 1024
"""A cell may ask for so many, to be told by the scheduler what the largest possible request is."""
GPUS_DEFAULT_MAX = GPUS_OF_LEASE_MAX
"""The notebook's default is no larger than what one lease has."""
VRAM_GB_MAX = 1e6
CPU_MAX = 1024.0
MEMORY_GIB_MAX = 65_536.0
MODEL_CHARS_MAX = 200
LINES_LOOKED_AT = 16
EXPECTED_S_MAX = 1e6
PART_MIN = 0.01
"""No smaller part of a GPU is leased; parts are counted in thousandths."""
FORM = "2 --vram 20 --model H100 --cpu 4 --memory 32"
"""What follows `%gpu` or `%%gpu`, for people."""
_FRACTIONS = {0.25: "¼", 0.5: "½", 0.75: "¾"}

_WRAPPERS = ("%%time", "%%timeit", "%%capture", "%%prun")
"""Cell magics whose body is a cell of its own, which may begin with `%%gpu`."""
_QUESTIONS = ("%gpu", "%%gpu", "%job", "%replkernel")
"""What uses no GPU: a cell of nothing else asks for none, whatever the notebook's default is."""
_JOB = "%%job"
"""At a cell's top: the rest is run by a job, with GPUs of its own."""
_HELP = {"--help", "-h", "help"}


class BadGpuRequest(ReplkernelError):
    """A cell, or its notebook, asks for GPUs in a way that cannot be understood."""


class GpuRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`gpus` GPUs of one host (0: none), of one `model` (empty: any), each with `vram_gb` GiB at least.

    The model is the short name that hosts offer it by. With them go `cpu` cores and `memory_gib` GiB of the
    host's memory; 0: nothing is said of these. `part`: only this part of the one GPU (0: all of it), of whose
    memory `vram_gb` may be taken (0: the same part). `shared`: others may compute there at the same time, so
    that the parts come to more than the GPU. With several `hosts` all GPUs are counted, and the rest is what
    each of the hosts has; `back` names what the cell gives back.
    """

    gpus: int
    vram_gb: float = 0.0
    model: str = ""
    cpu: float = 0.0
    memory_gib: float = 0.0
    part: float = 0.0
    shared: bool = False
    hosts: int = 1
    back: tuple[str, ...] = ()
    preemptible: bool = False
    """Whether the cell may be paused for a shorter one."""
    expected_s: float = 0.0
    """So long its user thinks that it takes; 0: nobody has said."""


def number_of(wanted: GpuRequest | None) -> int | float:
    """Return how many GPUs are asked for, as people write it: 2, or 0.5."""
    return 0 if wanted is None else (wanted.part or wanted.gpus)


def in_words(wanted: GpuRequest) -> str:
    """Return ``2 H100 GPUs of at least 20 GiB, 4 cores and 32 GiB of memory``."""
    of = f" {'with' if wanted.part else 'of at least'} {wanted.vram_gb:g} GiB" if wanted.vram_gb else ""
    of += ", shared with others" if wanted.shared else ""
    cores = f"{wanted.cpu:g} core{'' if wanted.cpu == 1 else 's'}" if wanted.cpu else ""
    memory = f"{wanted.memory_gib:g} GiB of memory" if wanted.memory_gib else ""
    beside = " and ".join(part for part in (cores, memory) if part)
    pause = ", and may be paused for shorter cells" if wanted.preemptible else ""
    return f"{gpus_in_words(number_of(wanted), wanted.model)}{of}{f', {beside}' if beside else ''}{pause}"


def seconds_in_words(seconds: float) -> str:
    """Return roughly how long something takes."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def gpus_in_words(count: float, model: str = "") -> str:
    """Return ``2 H100 GPUs``, or ``½ H100 GPU`` of a part of one."""
    if 0 < count < 1:
        return f"{_FRACTIONS.get(count, f'{count:g}')} {model + ' ' if model else ''}GPU"
    return f"{count:g} {model + ' ' if model else ''}GPU{'' if count == 1 else 's'}"


def told_as(wanted: GpuRequest, before: GpuRequest | None) -> GpuRequest:
    """Return a request with what a form has no field for, as it was `before`: shared, if it can be."""
    if before is not None and wanted.gpus:
        wanted = msgspec.structs.replace(wanted, preemptible=before.preemptible, expected_s=before.expected_s)
    if before is None or not before.shared or wanted.gpus != 1 or not (wanted.part or wanted.vram_gb):
        return wanted
    return msgspec.structs.replace(wanted, part=wanted.part or 1.0, shared=True)


METADATA_NAME = b'"replkernel'
"""Without this in its metadata a cell says nothing there about GPUs."""
_META_FORM = '{"replkernel": {"gpus": 2, "vram_gb": 20, "gpu_model": "H100", "cpu": 4, "memory_gib": 32}}'


_Slip: TypeAlias = Any
"""What is in a wrong place: it is only looked whether there is something."""


class _OwnMetadata(msgspec.Struct, frozen=True):
    """What a cell's metadata says below `replkernel`; null is as good as nothing.

    The last ones, without a type, are slips of the pen: nobody who writes one means to ask for nothing.
    """

    gpus: Annotated[float, msgspec.Meta(ge=0, le=GPUS_ASKED_MAX)] | None = None
    vram_gb: Annotated[float, msgspec.Meta(ge=0.0, le=VRAM_GB_MAX)] | None = None
    gpu_model: Annotated[str, msgspec.Meta(max_length=MODEL_CHARS_MAX)] | None = None
    cpu: Annotated[float, msgspec.Meta(ge=0.0, le=CPU_MAX)] | None = None
    memory_gib: Annotated[float, msgspec.Meta(ge=0.0, le=MEMORY_GIB_MAX)] | None = None
    share: bool | None = None
    preemptible: bool | None = None
    expected_s: Annotated[float, msgspec.Meta(ge=0.0, le=EXPECTED_S_MAX)] | None = None
    gpu: _Slip = None
    vram: _Slip = None
    model: _Slip = None
    cpus: _Slip = None
    cores: _Slip = None
    memory: _Slip = None
    memory_gb: _Slip = None


class _Metadata(msgspec.Struct, frozen=True):
    """A cell's metadata as clients send it with an execute_request; the rest of it is not looked at.

    The last ones are slips: names with a point instead of an object.
    """

    replkernel: _OwnMetadata | None = None
    gpus: _Slip = msgspec.field(default=None, name="replkernel.gpus")
    vram_gb: _Slip = msgspec.field(default=None, name="replkernel.vram_gb")
    gpu_model: _Slip = msgspec.field(default=None, name="replkernel.gpu_model")
    cpu: _Slip = msgspec.field(default=None, name="replkernel.cpu")
    memory_gib: _Slip = msgspec.field(default=None, name="replkernel.memory_gib")
    share: _Slip = msgspec.field(default=None, name="replkernel.share")
    preemptible: _Slip = msgspec.field(default=None, name="replkernel.preemptible")
    expected_s: _Slip = msgspec.field(default=None, name="replkernel.expected_s")


_POINTED = ("gpus", "vram_gb", "gpu_model", "cpu", "memory_gib", "share", "preemptible", "expected_s")
_SLIPS = {
    "gpu": "gpus",
    "vram": "vram_gb",
    "model": "gpu_model",
    "cpus": "cpu",
    "cores": "cpu",
    "memory": "memory_gib",
    "memory_gb": "memory_gib",
}


_metadata = msgspec.json.Decoder(_Metadata)


def request_of(metadata: bytes, code: str, default: GpuRequest | None) -> GpuRequest | None:
    """Return what a cell asks for, None for no GPUs; raises BadGpuRequest.

    `metadata` is the request's metadata frame. Authority: metadata, then `%%gpu`, then the `default`.
    """
    if default is None and "%%gpu" not in code and METADATA_NAME not in metadata:
        return None
    asked = _by_metadata(metadata) if METADATA_NAME in metadata else None
    if asked is not None and asked.gpus and "--hosts" in code:
        _check_metadata_alone(code)
    if asked is None and (line := split_gpu_line(code)[0]) is not None:
        asked = None if asks_for_help(line) else parse_request(line, GPUS_ASKED_MAX)
    elif asked is None:
        asked = None if _only_questions(code) else default
    if asked is None or not asked.gpus or asked.hosts > 1:  # Of several hosts a cell asks by itself.
        return None
    return asked


def _check_metadata_alone(code: str) -> None:
    """Refuse a cell that would hold GPUs of one host while it waits for those of several."""
    line = split_gpu_line(code)[0]
    if line is not None and not asks_for_help(line) and parse_request(line, GPUS_ASKED_MAX).hosts > 1:
        raise BadGpuRequest(
            "The cell asks twice: its metadata for GPUs of one host, its `%%gpu` line for those of several. "
            "Take the GPUs off the cell's toolbar, or remove `--hosts`."
        )


def declines_gpus(metadata: bytes, code: str) -> bool:
    """Tell whether a cell says itself that it needs no GPUs (`%%gpu 0`, or metadata)."""
    try:
        asked = _by_metadata(metadata) if METADATA_NAME in metadata else None
        if asked is None and (line := split_gpu_line(code)[0]) is not None and not asks_for_help(line):
            asked = parse_request(line, GPUS_ASKED_MAX)
    except BadGpuRequest:
        return False
    return asked is not None and not asked.gpus


def split_gpu_line(code: str) -> tuple[str | None, str]:
    """Return what follows `%%gpu` at a cell's beginning (None: it begins otherwise), and the cell without.

    The line's place stays, empty, so that tracebacks name the right lines, unless another cell magic follows.
    """
    if "%%gpu" not in code:
        return None, code
    lines = code.splitlines(keepends=True)
    for number, line in enumerate(lines[:LINES_LOOKED_AT]):
        word, rest = [*line.split(maxsplit=1), "", ""][:2]
        if word == "%%gpu":
            body = lines[number + 1 :]
            follows = next((later for later in body if later.strip()), "")
            before = lines[:number] if follows.startswith("%%") else [*lines[:number], "\n"]
            return rest.strip(), "".join(before + body)
        if word and word not in _WRAPPERS:
            break
    return None, code


def asks_for_help(line: str) -> bool:
    """Tell whether what follows `%gpu` or `%%gpu` asks how they are used."""
    return not _HELP.isdisjoint(without_comment(line).split())


def without_comment(line: str) -> str:
    """Return what follows `%gpu` without a comment at its end, where it can be read."""
    try:
        return " ".join(_words(line))
    except BadGpuRequest:
        return line.strip()


def parse_request(line: str, gpus_max: int, *, kernels: bool = False) -> GpuRequest:
    """Return the request that follows `%gpu` or `%%gpu`; no number of GPUs means 1. Raises BadGpuRequest.

    It is `[N] [--vram GIB] [--model NAME] [--cpu CORES] [--memory GIB] [--share] [--preemptible]
    [--for TIME]`, for a cell also `[--hosts N] [--back NAMES]`; N is a whole number, or a part of one
    GPU. `kernels`: it is a kernel's,
    which may ask for cores and memory alone; a cell is leased those with GPUs.
    """
    number: tuple[int, float] | None = None
    shared = preemptible = False
    said: dict[str, Any] = {}
    words = _words(line)
    while words:
        word = words.pop(0)
        option, equals, value = word.partition("=")
        if option in _OPTIONS:
            if not equals:
                value = words.pop(0) if words else ""
            name, read = _OPTIONS[option]
            said[name] = read(value)
        elif word == "--share":
            shared = True
        elif word == "--preemptible":
            preemptible = True
        elif number is None and not word.startswith("-"):
            number = _count(word, gpus_max)
        else:
            _refuse(f"`{word[:40]}` is not understood")
    gpus, part = number or (1, 0.0)
    asked = GpuRequest(gpus, part=part, preemptible=preemptible, **said)
    asked = _shared(asked) if shared else asked
    if not kernels:
        _check_alone(asked)
    elif {"hosts", "back"} & set(said):
        _refuse("`--hosts` and `--back` are for one cell (`%%gpu`), and this is a kernel's request")
    _check_hosts(asked)
    return asked


def kernels_request(document: bytes) -> GpuRequest | None:
    """Return what a notebook's own metadata ask for, in the words of a cell's; raises BadGpuRequest."""
    try:
        metadata = _notebook.decode(document).metadata
    except UNREADABLE:
        return None  # Whoever opens it is told.
    raw = bytes(metadata)
    return _by_metadata(raw, "notebook", kernels=True) if METADATA_NAME in raw else None


class _Notebook(msgspec.Struct, frozen=True):
    """A notebook's file; its cells are not looked at."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_notebook = msgspec.json.Decoder(_Notebook)


def _check_alone(asked: GpuRequest) -> None:
    if not asked.gpus and (asked.cpu or asked.memory_gib):
        raise BadGpuRequest(
            "Cores and memory are leased with GPUs: ask for one GPU at least, or for no cores and memory."
        )


def _check_hosts(asked: GpuRequest) -> None:
    """Refuse what several hosts cannot have, each the same number of whole GPUs."""
    if asked.hosts == 1:
        if asked.back:
            _refuse("`--back` is for a cell on several hosts (`--hosts`)")
        return
    if asked.part or asked.gpus < asked.hosts or asked.gpus % asked.hosts:
        raise BadGpuRequest(
            f"{gpus_in_words(number_of(asked))} cannot be shared out among {asked.hosts} hosts: ask for "
            f"the same number of whole GPUs on each, as in `%%gpu {2 * asked.hosts} --hosts {asked.hosts}`."
        )
    if asked.preemptible or asked.expected_s:
        option = "--preemptible" if asked.preemptible else "--for"
        _refuse(f"`{option}` is for a cell on one host: leave it out, or `--hosts`")


def _by_metadata(metadata: bytes, whose: str = "cell", *, kernels: bool = False) -> GpuRequest | None:
    try:
        said = _metadata.decode(metadata)
    except UNREADABLE as error:
        raise BadGpuRequest(
            f"The {whose}'s metadata `replkernel` is not understood ({error}): write it like {_META_FORM}, "
            "or remove it."
        ) from error
    own = said.replkernel
    for name in _POINTED:
        if getattr(said, name) is not None:
            _refuse_metadata(whose, f"replkernel.{name}", "a name with a point")
    for name, meant in _SLIPS.items() if own is not None else ():
        if getattr(own, name) is not None:
            _refuse_metadata(whose, name, f"`{meant}` is the name")
    if own is None:
        return None
    said_more = own.vram_gb or own.gpu_model or own.cpu or own.memory_gib or own.share
    if own.gpus is None and not (said_more or own.preemptible or own.expected_s):
        return None
    model = model_name(own.gpu_model) if own.gpu_model else ""
    gpus, part = (1, 0.0) if own.gpus is None else _part(own.gpus)
    asked = GpuRequest(gpus, own.vram_gb or 0.0, model, own.cpu or 0.0, own.memory_gib or 0.0, part)
    asked = msgspec.structs.replace(
        asked, preemptible=bool(own.preemptible), expected_s=own.expected_s or 0.0
    )
    asked = _shared(asked) if own.share else asked
    if not kernels:
        _check_alone(asked)
    return asked


def _refuse_metadata(whose: str, name: str, why: str) -> NoReturn:
    raise BadGpuRequest(
        f"The {whose}'s metadata `{name}` is not understood ({why}): write it like {_META_FORM}, "
        "or remove it."
    )


def _only_questions(code: str) -> bool:
    """Tell whether a cell is empty, a comment, or nothing but questions to replkernel."""
    for line in code.splitlines():
        word = line.split(maxsplit=1)[0] if line.strip() else ""
        if word == _JOB:
            return True
        if word and not word.startswith("#") and word.strip("?") not in _QUESTIONS:
            return False
    return True


def _words(line: str) -> list[str]:
    """Return the words of a line, quoted ones whole, without a comment at its end."""
    import shlex  # Only cells that ask need it.

    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise BadGpuRequest(f"The GPU request cannot be read ({error}): write it like `{FORM}`.") from error


def _count(word: str, gpus_max: int) -> tuple[int, float]:
    """Return how many GPUs a word says, and what part of the one."""
    whole, point, rest = word.partition(".")
    if point and (whole + rest).isascii() and (whole + rest).isdecimal() and len(word) <= 9:
        count, part = _part(float(word))
        if count > gpus_max:
            raise _too_many(word, gpus_max)
        return count, part
    if not (word.isascii() and word.isdecimal()):
        _refuse(f"`{word[:40]}` is not a number of GPUs")
    if len(word) > 9 or int(word) > gpus_max:
        raise _too_many(word, gpus_max)
    return int(word), 0.0


def _too_many(word: str, gpus_max: int) -> BadGpuRequest:
    return BadGpuRequest(f"{word[:40]} GPUs are more than the {gpus_max} that can be asked for here.")


def _part(number: float) -> tuple[int, float]:
    """Return how many GPUs a number says, and what part of the one: 0 for all of it."""
    if number == int(number):
        return int(number), 0.0
    if number > 1:
        raise BadGpuRequest(
            f"Parts of a GPU go up to 1, and {number:g} is asked for: ask for a part of one GPU, or for "
            f"{math.ceil(number)} whole ones."
        )
    if number < PART_MIN:
        raise BadGpuRequest(f"Parts of a GPU begin at {PART_MIN:g}, and {number:g} is asked for.")
    part = round(number, 3)
    return 1, part if part < 1 else 0.0


def _shared(asked: GpuRequest) -> GpuRequest:
    """Return a request whose GPU others may compute on at the same time."""
    if asked.gpus != 1:
        raise BadGpuRequest(
            f"One GPU can be shared, or a part of one, and {gpus_in_words(asked.gpus)} are asked for."
        )
    if not asked.part and not asked.vram_gb:
        raise BadGpuRequest(
            "A whole GPU that is shared needs a bound of its memory: write `%%gpu 1 --vram 20 --share`, or "
            "ask for a part of it."
        )
    return msgspec.structs.replace(asked, part=asked.part or 1.0, shared=True)


def _number(text: str) -> float:
    """Return a number; NaN, which is within no bounds, for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _gigabytes(text: str) -> float:
    plain = text.lower().strip()
    try:
        # Notebooks have had `20GB` here, which always meant GiB.
        return memory_gib(plain.removesuffix("b") if plain.endswith(("gb", "mb")) else plain)
    except ValueError as error:
        _refuse(f"`--vram {text[:40]}` {error}")


def _cores(text: str) -> float:
    value = _number(text)
    if not 0.0 <= value <= CPU_MAX:
        _refuse(f"`--cpu {text[:40]}` is not a number of cores from 0 to {CPU_MAX:.0f}")
    return value


def _time(text: str) -> float:
    plain, units = text.lower().strip(), {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    unit = next((unit for unit in ("min", "s", "m", "h") if plain.endswith(unit)), "")
    value = _number(plain.removesuffix(unit)) * units.get(unit, 1.0)
    if not 0.0 < value <= EXPECTED_S_MAX:
        _refuse(f"`--for {text[:40]}` is not a time like 90s, 20m or 2h")
    return value


def memory_gib(text: str) -> float:
    """Return the GiB that `32`, `32GiB`, `512MiB` or `512M` say; raises ValueError with a clause."""
    plain, mib = text.lower().strip(), 1 / 1024
    units = {"gib": 1.0, "gi": 1.0, "g": 1.0, "mib": mib, "mi": mib, "m": mib}
    if plain.endswith(("gb", "mb")):
        raise ValueError("is not in GiB, as memory is counted here")
    unit = next((unit for unit in units if plain.endswith(unit)), "")
    value = _number(plain.removesuffix(unit)) * units.get(unit, 1.0)
    if not 0.0 <= value <= MEMORY_GIB_MAX:
        raise ValueError(f"is not a number of GiB from 0 to {MEMORY_GIB_MAX:.0f}")
    return value


def _gibibytes(text: str) -> float:
    try:
        return memory_gib(text)
    except ValueError as error:
        _refuse(f"`--memory {text[:40]}` {error}")


def _hosts(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= GANG_HOSTS_MAX):
        _refuse(f"`--hosts {text[:40]}` is not a number of hosts from 1 to {GANG_HOSTS_MAX}")
    return int(text)


def _back(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(name.isidentifier() for name in names):
        _refuse(f"`--back {text[:40]}` is no list of names like `model,losses`")
    return names


def _model(text: str) -> str:
    if not text or text.startswith("--") or len(text) > MODEL_CHARS_MAX:
        _refuse("`--model` needs the name of a GPU model")
    return model_name(text)


def _refuse(what: str) -> NoReturn:
    raise BadGpuRequest(f"The GPU request is wrong: {what}; write it like `{FORM}`.")


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--vram": ("vram_gb", _gigabytes),
    "--model": ("model", _model),
    "--cpu": ("cpu", _cores),
    "--memory": ("memory_gib", _gibibytes),
    "--hosts": ("hosts", _hosts),
    "--back": ("back", _back),
    "--for": ("expected_s", _time),
}
