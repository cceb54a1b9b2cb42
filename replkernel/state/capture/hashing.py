"""Variables with large buffers that are dumped one after the other, and hashed together.

Law: a group is told as a whole, or not at all when the capture gives way; what came before it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture.dump import Dump
from replkernel.state.capture.fingerprint import DIGEST_BYTES
from replkernel.state.capture.survey_order import Known
from replkernel.state.format.shared_values import Value

TOGETHER_BYTES = 512 << 20
"""Some 20 ms of hashing."""


class Begun(NamedTuple):
    """A variable that was dumped, and whose buffers are being hashed; `held` is what others hold as well."""

    dump: Dump
    held: tuple[Value, ...]
    values: dict[str, Any]
    before: Known


def grouped(bulky: Iterable[tuple[str, Known]]) -> Iterator[list[tuple[str, Known]]]:
    """Yield variables, with what is known of each, in groups that are hashed together."""
    group: list[tuple[str, Known]] = []
    size = 0
    for one in bulky:
        group.append(one)
        size += len(one[1].fingerprint) // DIGEST_BYTES * CHUNK_BYTES
        if size >= TOGETHER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
