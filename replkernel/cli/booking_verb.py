"""The words of `replkernel book`, and its help."""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  replkernel book --gpus 8 --at 10:00 --for 2h --group class
  replkernel book --gpus 4 --at '2026-12-01 09:30' --for 90m --user ada --user bob
  replkernel book list
  replkernel book cancel booking-1a2b3c4d
"""


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `book` with its own words."""
    book = verbs.add_parser(
        "book",
        help="book GPUs for a time ahead",
        description=(
            "Have GPUs kept for a group, or for users, from a time on. Cells that run when it begins are not "
            "ended. For administrators of the scheduler, and for a group's owners."
        ),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    book.add_argument("act", nargs="?", choices=("list", "cancel"), help="list bookings, or cancel one")
    book.add_argument("booking", nargs="?", default="", help="which one to cancel")
    book.add_argument("--gpus", type=int, default=0, metavar="N", help="how many GPUs")
    book.add_argument("--at", default="", metavar="TIME", help="when it begins: 10:00, or a date and time")
    book.add_argument("--for", default="", dest="lasts", metavar="TIME", help="how long: 90m, 2h, 1d")
    book.add_argument("--group", default="", help="a group of the Hub")
    book.add_argument("--user", action="append", default=[], help="a user; may be given again")
    book.add_argument("--model", default="", help="the model of the GPUs")
