"""What `%gpu` is told in the middle of a cell: what was done, and how it stands with this notebook's GPUs.

Pure, and nothing but words. Law: whatever cannot be is one sentence that names the fix.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel.leasing.request import GpuRequest, gpus_in_words, in_words, seconds_in_words
from replkernel.router.core.held_leases import Held
from replkernel.router.core.leases import Leases


def status(leases: Leases, cell: str, now: float) -> str:
    """Return how it stands, in lines; `cell` is the one that asks."""
    lines = [standing(leases.scheduler.default)]
    for held in leases.held_leases.by_id.values():
        if held.cell:
            whose = "This cell" if held.cell == cell else "A cell"
            lines.append(f"{whose} has {_lease(held)}, for {now - held.since:.1f} s so far.")
        else:
            lines.append(f"Kept between cells, until somebody wants them: {_lease(held)}.")
    lines.append(
        "The scheduler listens."
        if leases.scheduler.up
        else f"No scheduler listens: {leases.scheduler.why_down}"
    )
    return "\n".join(lines)


def standing(wanted: GpuRequest | None) -> str:
    """Return what the cells of the notebook ask for."""
    if wanted is None:
        return "Cells of this notebook get no GPU unless they ask for one."
    return f"Every cell of this notebook gets {in_words(wanted)} unless it asks for a different number."


def preferred(wanted: GpuRequest | None, trouble: str) -> str:
    """Return the answer to a new default."""
    if wanted is None:
        return "From the next cell on, cells get no GPU unless they ask for one."
    gets = f"every cell gets {in_words(wanted)} unless it asks for a different number."
    return " ".join(filter(None, [f"From the next cell on, {gets}", trouble]))


def released(given: Sequence[Held], cell: Held | None) -> str:
    """Return the answer to a release."""
    parts = [gpus_in_words(held.lease.part) for held in given if held.lease.part]
    count = sum(len(held.lease.gpus) for held in given if not held.lease.part)
    words = " and ".join([*([gpus_in_words(count)] if count else []), *parts])
    said = f"Given back: {words}." if given else "No GPUs were kept between cells."
    return said if cell is None else f"{said} Those that a cell uses go back when it ends."


def no_scheduler(why: str) -> str:
    """Return why a cell or a notebook that asks for GPUs cannot have any."""
    said = f"There is no scheduler to lease GPUs from{f' ({why})' if why else ''}"
    return f"{said}: start one with `replkernel scheduler`, or take the request for GPUs away (`%gpu off`)."


def kept(why: str, wanted: bool = True) -> str:
    """Return what is said in the next cell when GPUs cannot be left for somebody (`wanted`), or for rest."""
    whom = "Somebody waits for this notebook's GPUs" if wanted else "This notebook's GPUs were to be left"
    return (
        f"{whom}, and its state cannot leave them: {why.rstrip('.')}. "
        "Delete what you do not need there, or restart the kernel."
    )


def overdue(why: str) -> str:
    """Return what is said in the next cell when GPUs went to somebody else before the state had left them."""
    return (
        f"This notebook's lease ended before its state had left the GPUs ({why.rstrip('.')}): somebody else "
        "may compute there. It leaves them as soon as no cell runs."
    )


def fallen(gpus: Sequence[str], host: str, why: str) -> str:
    """Return what is said in a cell that has lost its lease."""
    return (
        f"this cell's lease on {', '.join(gpus)} of host {host} is over ({why.rstrip('.')}); "
        "somebody else may be given these GPUs, so the cell is interrupted. Run it again for another lease."
    )


def idle(gpus: int, share: float, for_s: float, ends_in_s: float | None) -> str:
    """Return what is said in a cell that leaves its GPUs idle; 0: it is interrupted for that now."""
    which = "The GPU of this cell has" if gpus == 1 else f"The {gpus} GPUs of this cell have"
    did = f"{which} computed {100 * share:.0f} % of the last {seconds_in_words(for_s)}"
    if ends_in_s is None:
        return f"{did}. If it does not need {'it' if gpus == 1 else 'so many'}, ask for fewer next time."
    if ends_in_s <= 0.0:
        return f"{did}, so the cell is interrupted: your administrator has set that for idle GPUs."
    return f"{did}. If that goes on, the cell is interrupted in {seconds_in_words(ends_in_s)}."


def _lease(held: Held) -> str:
    gpus, part = held.lease.gpus, held.lease.part
    memory = f" with {held.lease.vram_gb:g} GiB" if part and held.lease.vram_gb else ""
    return f"{gpus_in_words(part or len(gpus))}{memory} on host {held.lease.host} ({', '.join(gpus)})"
