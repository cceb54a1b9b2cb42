"""The scheduler's REST resources for GPUs that are booked for later.

Law: everybody sees what is booked; an administrator books for anybody, a group's owner for the group.
"""

from __future__ import annotations

import secrets
import time
from typing import ClassVar

from replkernel_scheduler.effects import BookingRefused
from replkernel_scheduler.events import BookingCancelled, BookingMade
from replkernel_scheduler.types import Booking, BookingId, UserName
from replkernel_scheduler.view import BookingView

from replkernel_server.errors import NotKnown
from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling import access, booking
from replkernel_server.scheduling.documents import BookingAnswer, BookingBody, Bookings, Empty, Why, check_id


def booking_answer(one: BookingView, now: float) -> BookingAnswer:
    """Write a booking with seconds from now instead of times."""
    booked = one.booking
    return BookingAnswer(
        booked.booking,
        booked.gpus,
        booking.in_words(one),
        round(booked.at - now, 3),
        round(booked.until - now, 3),
        one.phase,
        one.ready,
        booked.gpu_model,
        booked.by,
    )


class BookingsHandler(SchedulerHandler):
    """/api/v1/bookings."""

    operations: ClassVar = {
        "get": Operation("What is booked, the next one first.", {200: Bookings}),
        "post": Operation(
            "Book GPUs for users, or for a group: an administrator, or the group's owner.",
            {201: BookingAnswer, 409: Why},
            takes=BookingBody,
        ),
    }

    async def get(self) -> None:
        """Answer with what is booked."""
        now = self.driver.clock.now()
        await self.answer_lists(bookings=(booking_answer(one, now) for one in self.driver.core.bookings()))

    async def post(self) -> None:
        """Book GPUs."""
        body = self.body(BookingBody)
        self.unless(access.why_not_book(self.identity, body.group, body.users))
        name, at = BookingId(f"booking-{secrets.token_hex(4)}"), self.driver.clock.now() + body.in_s
        users = tuple(UserName(user) for user in body.users)
        made = Booking(
            name,
            body.gpus,
            at,
            at + body.lasts_s,
            time.time() + body.in_s,
            users,
            body.group,
            body.gpu_model,
            self.identity.user,
        )
        for effect in await self.driver.apply(BookingMade(made)):
            if isinstance(effect, BookingRefused):
                self.answer(409, Why(effect.why))
                return
        known = [client.identity for client in self.channel.desk.clients.by_id.values()]
        await booking.members_seen(self.driver, known)
        one = next(one for one in self.driver.core.bookings() if one.booking.booking == name)
        self.answer(201, booking_answer(one, self.driver.clock.now()))


class BookingHandler(SchedulerHandler):
    """/api/v1/bookings/BOOKING."""

    operations: ClassVar = {
        "delete": Operation("Cancel what is booked: who may book it may.", {200: Empty, 404: Why})
    }

    async def delete(self, name: str) -> None:
        """Cancel a booking."""
        wanted = check_id(name, "booking's id")
        found = [one for one in self.driver.core.bookings() if one.booking.booking == wanted]
        if not found:
            raise NotKnown(f"No booking {wanted} is known: GET /api/v1/bookings lists them.")
        booked = found[0].booking
        self.unless(access.why_not_book(self.identity, booked.group, booked.users))
        await self.driver.apply(BookingCancelled(booked.booking))
        self.answer(200, Empty())
