"""What every cell of a notebook gets, handed from the record of what is restarted to the router that begins.

Law: only a restart carries it; what cannot be read is as good as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.launch.kernel_record import KernelRecord
from replkernel.leasing.request import GPUS_DEFAULT_MAX

CHOSEN = "REPLKERNEL_CHOSEN_GPUS"
"""Where the router of a kernel that is restarted finds it."""


class _Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    gpus: Annotated[int, msgspec.Meta(ge=1, le=GPUS_DEFAULT_MAX)]
    vram_gb: float = 0.0
    gpu_model: str = ""
    cpu: float = 0.0
    memory_gib: float = 0.0
    gpu_part: float = 0.0
    gpu_shared: bool = False


ASKED = _Chosen.__struct_fields__
"""The fields of a kernel's record that say it."""


def chosen_text(record: KernelRecord | None) -> str:
    """Return it as one line, empty for no GPU."""
    if record is None or record.gpus == 0:
        return ""
    return msgspec.json.encode(_Chosen(**{name: getattr(record, name) for name in ASKED})).decode()


def chosen_by(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a record that say it, none where nothing was carried."""
    try:
        return msgspec.structs.asdict(msgspec.json.decode(env.get(CHOSEN, ""), type=_Chosen))
    except UNREADABLE:
        return {}
