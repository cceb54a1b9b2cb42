"""What a cell's reply says in `metadata.replkernel`: where it ran, what it had there, whether it is durable.

Law: clients read these names; the router reads them too, and what only it sees is in a declined cell's reply.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from replkernel.kernel.birth import Birth
from replkernel.kernel.execution import Execution


def reply_metadata(
    birth: Birth,
    execution: Execution,
    state_bytes: int,
    told: Mapping[str, object],
    *,
    ran: bool,
    leaves: bool,
) -> dict[str, object]:
    """Return what the reply of an execution says; `told` is what GPUs and a move add to it."""
    said: dict[str, object] = {
        "replica": birth.replica,
        "host": birth.host,
        **_terms(execution),
        "state_bytes": state_bytes,
        "durable": execution.durable,
        "ran": ran,
        **told,
    }
    return {**said, "leaves": True} if leaves else said


def declined_metadata(birth: Birth, execution: Execution) -> dict[str, object]:
    """Return what tells the router that another replica is to run a cell, or that it needs a lease."""
    return {
        "replica": birth.replica,
        "ran": False,
        "wants_gpus": execution.wants_gpus,
        "seq": 0 if execution.envelope is None else execution.envelope.seq,
        "declined": msgspec.to_builtins(execution.declined),
        "renews": execution.renews,
        "leaves": execution.renews,
    }


def _terms(execution: Execution) -> dict[str, object]:
    """Return on which GPUs an execution ran, how long it has had them, what that costs; its wait."""
    envelope = execution.envelope
    gpus = list(envelope.gpus or ()) if envelope is not None else []
    lease_s = round(execution.lease_s, 6) if gpus else 0.0
    terms: dict[str, object] = {"gpus": gpus, "lease_s": lease_s}
    terms["queued_s"] = 0.0 if envelope is None else envelope.queued_s
    if envelope is not None and envelope.part:
        terms |= {"part": envelope.part, "part_gb": envelope.vram_gb}
    if envelope is not None and envelope.price_hour:
        terms["cost"] = round(envelope.price_hour * lease_s / 3600.0, 6)
        terms["currency"] = envelope.currency
    return terms
