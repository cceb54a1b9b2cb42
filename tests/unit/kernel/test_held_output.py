"""What a kernel process holds for its next router: everything that has not been confirmed, in its order."""

from __future__ import annotations

import pytest

from replkernel.kernel import held_output
from replkernel.kernel.held_output import HeldOutput
from replkernel.protocol.confirmation import Confirmation, confirmation_frame, read_confirmation


def message(number: int, parent: str = "execute_request", size: int = 0) -> list[bytes]:
    """Return a message that is known by its header."""
    parent_header = b'{"msg_type": "%b"}' % parent.encode()
    return [b"topic", b"<IDS|MSG>", b"sig", b"header %d" % number, parent_header, b"{}", b"x" * size]


def numbers(held: HeldOutput) -> list[int]:
    """Return the numbers of what is held."""
    return [int(frames[3].split()[1]) for frames in held.begin()]


def test_confirmed_output_is_let_go_of() -> None:
    held = HeldOutput()
    held.begin()
    for number in range(5):
        held.published(message(number))
    held.replied(message(10))
    held.confirmed(Confirmation(b"header 2", []))
    assert numbers(held) == [3, 4, 10]
    held.confirmed(Confirmation(b"header 2", [b"header 10"]))
    assert numbers(held) == [3, 4]
    held.check_invariants()


def test_nothing_is_held_before_a_first_router_nor_what_belongs_to_no_cell() -> None:
    held = HeldOutput()
    held.published(message(1))
    held.begin()
    held.published(message(2, parent="kernel_info_request"))
    assert numbers(held) == []


def test_views_are_held_as_they_were() -> None:
    held = HeldOutput()
    held.begin()
    data = bytearray(b"before")
    held.published([*message(1), memoryview(data)])
    data[:] = b"after!"
    assert held.begin()[0][-1] == b"before"


def test_held_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_output, "BYTES_MAX", 1000)
    monkeypatch.setattr(held_output, "REPLIES_MAX", 2)
    held = HeldOutput()
    held.begin()
    for number in range(50):
        held.published(message(number, size=100))
        held.replied(message(100 + number))
        held.check_invariants()
    kept = numbers(held)
    assert kept[-3:] == [49, 148, 149]
    assert len(kept) < 10


@pytest.mark.parametrize("frame", [b"", b"\x01", b"\x02", b"\x02\xc1", b"\x02\x92\xc4\x00"])
def test_a_frame_that_confirms_nothing_is_none(frame: bytes) -> None:
    assert read_confirmation(frame) is None


def test_a_confirmation_is_read_as_it_was_written() -> None:
    confirmation = Confirmation(b"h", [b"a", b"b"])
    assert read_confirmation(confirmation_frame(confirmation)) == confirmation
