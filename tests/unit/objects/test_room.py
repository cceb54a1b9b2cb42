"""How much room a store has left: what is on its way counts once, and who cannot know says nothing."""

from __future__ import annotations

from replkernel.objects.room import KEPT_BYTES_MAX, KEPT_PART, PROMISED_S, SMALL_BYTES, Disk, StoreRoom

MIB = 2**20
TOTAL = 1000
KEPT = int(TOTAL * KEPT_PART)


class Bench:
    """A store whose disk and clock the test moves."""

    def __init__(self, free: int, total: int = TOTAL, *, taken: int = 0, share: float = 1.0) -> None:
        self.free = free
        self.total = total
        self.taken = taken
        self.time = 0.0
        self.room = StoreRoom(
            "the object store file:///store",
            lambda: Disk(self.free, self.total, self.taken),
            self.now,
            share=share,
        )

    def now(self) -> float:
        return self.time

    def takes(self, size: int) -> bool:
        return not self.room.refuses(size)


def test_a_part_is_left_to_what_is_small() -> None:
    bench = Bench(500)
    assert bench.takes(500 - KEPT)
    assert not bench.takes(501 - KEPT)
    large = Bench(1 << 40, 1 << 41)
    assert large.takes((1 << 40) - KEPT_BYTES_MAX)


def test_a_chunk_on_its_way_counts_until_it_has_arrived() -> None:
    bench = Bench(500)
    bench.room.promise(300)
    assert not bench.takes(200)
    assert bench.takes(200 - KEPT)
    bench.free = 200
    assert bench.takes(200 - KEPT), "it has arrived, and counts once"
    bench.room.promise(100)
    assert not bench.takes(200 - KEPT)
    bench.time = PROMISED_S
    assert bench.takes(200 - KEPT)


def test_a_refusal_says_what_there_is() -> None:
    bench = Bench(3 << 20, 3 << 20)
    said = bench.room.refuses(4 << 20)
    assert said == "the object store file:///store has no room left for it (2 MiB free)"


def test_large_state_takes_a_share_of_the_room_that_there_would_be_without_it() -> None:
    bench = Bench(600 * MIB, 1000 * MIB, taken=200 * MIB, share=0.5)
    assert bench.takes(200 * MIB)
    assert not bench.takes(200 * MIB + 1)
    assert "may take 50% of the free disk" in bench.room.refuses(201 * MIB)
    bench.taken = 0
    assert bench.takes(300 * MIB), "what has left makes room"
    bench.room.promise(250 * MIB)
    assert not bench.takes(100 * MIB)


def test_small_state_may_still_be_stored_above_the_share() -> None:
    bench = Bench(40 * MIB, 256 * MIB, taken=214 * MIB, share=0.8)
    assert not bench.takes(2 * MIB)
    assert bench.takes(SMALL_BYTES)
    bench.free = 10 * MIB
    assert not bench.takes(SMALL_BYTES), "some of the disk is left in any case"


def test_where_nobody_knows_nobody_says_no() -> None:
    room = StoreRoom("the object store s3://bucket", lambda: None)
    room.promise(1 << 60)
    assert room.refuses(1 << 60) == ""
