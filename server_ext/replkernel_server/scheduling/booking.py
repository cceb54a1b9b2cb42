"""Bookings live: their times on the core's clock, and who is known as a member of a group.

Law: what is booked keeps its time of day, also while the scheduler was away; who may book is for `access.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
from replkernel_scheduler.events import BookingCancelled, BookingJoined, BookingMade
from replkernel_scheduler.view import BookingView

from replkernel_server.driver import SchedulerDriver
from replkernel_server.scheduling.identity import Identity

DRIFT_S = 1.0
"""Clocks that differ by less than this are left alone."""


async def set_right(driver: SchedulerDriver) -> None:
    """Have bookings begin at their time of day after the scheduler was away; forget those that are over."""
    ahead_s = driver.clock.now() - time.time()
    for one in driver.core.bookings():
        booking = one.booking
        at = booking.begins + ahead_s
        until = at + booking.until - booking.at
        if until <= driver.clock.now():
            await driver.apply(BookingCancelled(booking.booking))
        elif abs(at - booking.at) > DRIFT_S:
            await driver.apply(BookingMade(msgspec.structs.replace(booking, at=at, until=until)))


async def members_seen(driver: SchedulerDriver, members: Iterable[Identity]) -> None:
    """Have the core know whoever belongs to a group for which something is booked."""
    for who in members:
        if who.groups:
            for booking in driver.core.booked_for(who.groups, who.user):
                await driver.apply(BookingJoined(booking, who.user))


def in_words(one: BookingView) -> str:
    """Say for whom something is booked."""
    names = [f"group {one.booking.group}"] if one.booking.group else []
    return ", ".join([*names, *one.booking.users])
