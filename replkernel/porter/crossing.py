"""Messages that cross the proxy: verified under the one key, signed with the other.

Pure. Law: a message that its sender's key does not vouch for stays outside.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.launch.notebook_link import PATH_VARIABLE, named_in
from replkernel.router.core.wire import DELIMITER, SIGNED_FRAMES, Signer

_MARK = PATH_VARIABLE.encode()


class _Header(msgspec.Struct, frozen=True):
    msg_type: str = ""


class _Code(msgspec.Struct, frozen=True):
    code: str = ""


_headers = msgspec.json.Decoder(_Header)
_codes = msgspec.json.Decoder(_Code)


def across(frames: Sequence[bytes], source: Signer, target: Signer) -> list[bytes] | None:
    """Return the message as `target` signs it; None for one that `source` has not signed."""
    signed = signed_frames(frames)
    if signed is None:
        return None
    at = list(frames).index(DELIMITER)
    if source.signs and not hmac.compare_digest(source.sign(signed), frames[at + 1]):
        return None
    return [*frames[: at + 1], target.sign(signed), *frames[at + 2 :]]


def signed_frames(frames: Sequence[bytes]) -> list[bytes] | None:
    """Return header, parent header, metadata and content; None where these are not there."""
    if DELIMITER not in frames:
        return None
    at = list(frames).index(DELIMITER)
    signed = list(frames[at + 2 : at + 2 + SIGNED_FRAMES])
    return signed if len(signed) == SIGNED_FRAMES else None


def kind_of(frames: Sequence[bytes]) -> str:
    """Return the type of a message, or an empty string."""
    signed = signed_frames(frames)
    try:
        return _headers.decode(signed[0]).msg_type if signed else ""
    except UNREADABLE:
        return ""


def notebook_in(frames: Sequence[bytes]) -> str:
    """Return the path of the notebook that a message names as the front end's own code does, if any."""
    signed = signed_frames(frames)
    if signed is None or _MARK not in signed[3] or kind_of(frames) != "execute_request":
        return ""
    try:
        return named_in(_codes.decode(signed[3]).code)
    except UNREADABLE:
        return ""
