"""What a host tells the scheduler: its offer, its beats, GPUs that vanish, offers that are refused."""

from __future__ import annotations

import msgspec

from replkernel.agent.core.announcement import FAILED_S, MISSED_MAX, REFUSED_S, UNREAD_S, Announcement
from replkernel.leasing.wire import GpuUse, HostBeat, HostOffer, OfferedGpu
from replkernel.protocol.status import GpuStatus

ONE = GpuStatus("GPU-1", "NVIDIA H100 80GB HBM3", 85_520_809_984, utilisation=0.5, memory_used_bytes=2 << 30)
TWO = GpuStatus("GPU-2", "NVIDIA H100 80GB HBM3", 85_520_809_984)
GIB = 81_559 / 1024
"""What such a card has, to the MiB."""
OFFERED = (OfferedGpu("GPU-1", "H100", GIB), OfferedGpu("GPU-2", "H100", GIB))


def announcement(*gpus: GpuStatus) -> Announcement:
    made = Announcement(8.0, 64.0)
    made.read(gpus)
    return made


def test_the_offer_comes_first_and_once() -> None:
    host = announcement(ONE, TWO)
    beat = HostBeat((GpuUse("GPU-1", 0.5, 2.0, read=True), GpuUse("GPU-2")))
    assert host.welcomed(0.0) == [HostOffer(OFFERED, 8.0, 64.0), beat]
    assert host.beat(2.0) == [beat]
    assert host.welcomed(4.0)[0] == HostOffer(OFFERED, 8.0, 64.0), "a scheduler that comes back knows nothing"


def test_a_host_without_gpus_is_offered_too() -> None:
    assert announcement().welcomed(0.0) == [HostOffer((), 8.0, 64.0), HostBeat()]


def test_a_driver_that_does_not_answer_stops_no_beat() -> None:
    host = announcement(ONE)
    host.welcomed(0.0)
    assert host.beat(2.0, fresh=False) == [HostBeat()]


def test_a_host_is_not_offered_without_its_gpus_while_its_driver_begins() -> None:
    host = Announcement(8.0, 64.0)
    assert host.welcomed(0.0) == host.beat(4.0, fresh=False) == [], "leases on its GPUs would end"
    host.read((ONE, TWO))
    assert host.beat(6.0)[0] == HostOffer(OFFERED, 8.0, 64.0)
    hangs = Announcement(8.0, 64.0)
    hangs.welcomed(0.0)
    hangs.welcomed(UNREAD_S - 1.0)
    assert hangs.beat(UNREAD_S, fresh=False) == [
        HostOffer((), 8.0, 64.0, unread=True),
        HostBeat(),
    ], "the scheduler keeps what it knows of them"


def test_a_driver_that_fails_at_first_is_waited_for_and_then_nothing_is_said_of_gpus() -> None:
    host = Announcement(8.0, 64.0)
    host.welcomed(0.0)
    for second in range(int(FAILED_S)):
        host.unread(float(second))
        assert host.beat(float(second), fresh=False) == []
    host.unread(FAILED_S)
    assert host.beat(FAILED_S, fresh=False)[0] == HostOffer((), 8.0, 64.0, unread=True)
    host.read((ONE, TWO))
    assert host.beat(FAILED_S + 2.0)[0] == HostOffer(OFFERED, 8.0, 64.0)


def test_a_driver_that_fails_later_keeps_what_was_offered_however_long_that_lasts() -> None:
    host = announcement(ONE, TWO)
    host.welcomed(0.0)
    for beat in range(10 * MISSED_MAX):
        host.unread(2.0 * beat)
        assert host.beat(2.0 * beat, fresh=False) == [HostBeat()]
        host.read((ONE,), whole=False)
        assert [type(said) for said in host.beat(2.0 * beat + 1.0)] == [HostBeat]
    host.welcomed(100.0)
    assert host.beat(100.0) == [HostBeat((GpuUse("GPU-1", 0.5, 2.0, read=True),))]


def test_of_gpus_that_cannot_all_be_read_at_first_the_others_are_offered_beside_those_known_before() -> None:
    host = Announcement(8.0, 64.0)
    host.welcomed(0.0)
    host.read((ONE,), whole=False)
    assert host.beat(1.0) == []
    assert host.beat(1.0 + FAILED_S)[0] == HostOffer(OFFERED[:1], 8.0, 64.0, unread=True)
    host.read((ONE,))
    assert host.beat(20.0)[0] == HostOffer(OFFERED[:1], 8.0, 64.0), "now the other one is gone for sure"


def test_a_gpu_that_is_missing_for_a_moment_keeps_its_leases() -> None:
    host = announcement(ONE, TWO)
    host.welcomed(0.0)
    for _ in range(MISSED_MAX - 1):
        host.read((ONE,))
        assert [type(said) for said in host.beat(2.0)] == [HostBeat]
    host.read((ONE, TWO))
    for _ in range(MISSED_MAX - 1):
        host.read((ONE,))
        assert [type(said) for said in host.beat(2.0)] == [HostBeat]


def test_a_gpu_that_is_gone_is_taken_off_the_offer_and_comes_back_on_it() -> None:
    host = announcement(ONE, TWO)
    host.welcomed(0.0)
    for _ in range(MISSED_MAX):
        host.read((ONE,))
    assert host.beat(2.0)[0] == HostOffer(OFFERED[:1], 8.0, 64.0)
    host.read((ONE, TWO))
    assert host.beat(4.0)[0] == HostOffer(OFFERED, 8.0, 64.0)


def test_a_gpu_of_which_the_driver_keeps_a_little_more_for_a_while_is_not_offered_anew() -> None:
    host = announcement(ONE, TWO)
    host.welcomed(0.0)
    for less_mib in (1, 40, 0, 200):
        host.read((msgspec.structs.replace(ONE, memory_bytes=ONE.memory_bytes - less_mib * 2**20), TWO))
        assert [type(said) for said in host.beat(2.0)] == [HostBeat], "two halves still fit"
    host.read((msgspec.structs.replace(ONE, memory_bytes=ONE.memory_bytes - 2**30), TWO))
    assert host.beat(4.0)[0] == HostOffer((OfferedGpu("GPU-1", "H100", GIB - 1), OFFERED[1]), 8.0, 64.0)


def test_a_refused_host_is_silent_for_a_while_and_offers_itself_again() -> None:
    host = announcement(ONE)
    host.welcomed(10.0)
    host.refused(10.0)
    assert host.beat(12.0) == []
    assert host.beat(10.0 + REFUSED_S - 1) == []
    assert isinstance(host.beat(10.0 + REFUSED_S)[0], HostOffer)
    host.refused(80.0)
    assert isinstance(host.welcomed(81.0)[0], HostOffer), "another scheduler may take it"
