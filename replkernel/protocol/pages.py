"""What a kernel process says of pages' messages to widgets: with which audit the log has what they changed.

It travels on the stdin channel, as JSON content of the message type below, and never reaches a client.
Law: it is said once nothing that such a message changed is left to be captured, and of the last one alone;
and of each for which nothing was done.
"""

from __future__ import annotations

import msgspec

SAVED_TYPE = "replkernel_page_saved"


class PageSaved(msgspec.Struct, frozen=True):
    """Whatever pages' messages up to `msg_id` changed is in the log with audit `audit` of execution `seq`.

    Nothing `ran` where the notebook could not be taken over with execution `seq`.
    """

    msg_id: str = ""
    seq: int = 0
    audit: int = 0
    ran: bool = True
