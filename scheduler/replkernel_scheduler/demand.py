"""How many live kernels there are for each GPU that computes: the samples behind the subscription limit.

Law: a sample is what was true at a full interval, whoever asks when; so no timer is needed. (Spec 1.3: D GPUs
requested by all live kernels, B committed now.)
"""

from __future__ import annotations

RATIO_MAX = 7.0
SAMPLES = 5
SAMPLE_EVERY_S = 1.0


class Demand:
    """D, B and the last samples of D/B."""

    __slots__ = ("committed", "next_at", "requested", "samples")

    def __init__(self) -> None:
        """Start with no demand and no sample."""
        self.requested = self.committed = 0
        self.samples: list[float] = []
        self.next_at: float | None = None

    @property
    def ratio(self) -> float:
        """Return D/B now, from 1 to RATIO_MAX; RATIO_MAX while nothing is committed."""
        if not self.committed:
            return RATIO_MAX
        ratio = self.requested / self.committed
        return RATIO_MAX if ratio > RATIO_MAX else max(1.0, ratio)

    @property
    def full(self) -> bool:
        """Say whether there are as many samples as a limit wants."""
        return len(self.samples) == SAMPLES

    def advance(self, now: float) -> None:
        """Take the samples that were due until `now`, before anything changes at `now`."""
        if self.next_at is None:
            self.next_at = now + SAMPLE_EVERY_S
        if now < self.next_at:
            return
        due = int((now - self.next_at) / SAMPLE_EVERY_S) + 1
        self.next_at += due * SAMPLE_EVERY_S
        if due >= SAMPLES:
            self.samples = [self.ratio] * SAMPLES
        else:
            self.samples = (self.samples + [self.ratio] * due)[-SAMPLES:]
