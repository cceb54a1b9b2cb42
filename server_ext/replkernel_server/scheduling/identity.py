"""Who asks: from the token of a request or of a connection to a user, what he may do, and his quota.

Law: nothing that a request or a kernel states about itself is an identity; only its token is. What follows
from an identity is decided in `access.py`.
"""

from __future__ import annotations

import hmac
import os
import pwd
import re
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec
from replkernel_scheduler.types import UserName, UserQuota

from replkernel_server.errors import ServerError

TOKEN_CHARS_MAX = 1_000
RECHECK_S = 30.0
"""A connection that lasts is asked about again after so many seconds, for its token may be revoked."""
_HEADER = re.compile(r"(?:token|bearer)\s+(\S+)\s*", re.IGNORECASE)


class Identity(msgspec.Struct, frozen=True):
    """Whom a token stands for; `quota` is what his groups give him (None: nothing is said about it here).

    An admin sees and touches everything. `may_lease`: he may lease GPUs; `may_host`: he may offer a host's;
    `sees_all`: he sees everything, and touches what is his.
    """

    user: UserName
    admin: bool = False
    may_host: bool = True
    may_lease: bool = True
    groups: tuple[str, ...] = ()
    quota: UserQuota | None = None
    sees_all: bool = False
    owns: tuple[str, ...] = ()
    """The groups for which he may book GPUs."""


class NotYours(ServerError):
    """Somebody asks for another user's kernel, lease or request, or for what only some may do."""

    status = 403


class TooMuch(ServerError):
    """A user asks for more, or more often, than one user may."""

    status = 429


class IdentityUnknown(ServerError):
    """Who asks cannot be found out at the moment: who knows does not answer, or says what makes no sense."""

    status = 503


Identify: TypeAlias = Callable[[str], Awaitable[Identity | None]]
"""Asks whom a token stands for: None if for nobody; raises IdentityUnknown. It keeps answers for a moment."""


def own_user() -> UserName:
    """Return the name of the user that runs this process."""
    try:
        return UserName(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return UserName(f"uid-{os.getuid()}")


def one_token(token: str, user: UserName | None = None) -> Identify:
    """Return the Identify of a service for one user: who has its token is that user, and an admin."""
    known, identity = token.encode(), Identity(user or own_user(), admin=True)

    async def identify(given: str) -> Identity | None:
        return identity if hmac.compare_digest(given.encode(), known) else None

    return identify


def token_of(authorization: str) -> str:
    """Return the token in an Authorization header, an empty text if there is none that could be one."""
    found = _HEADER.fullmatch(authorization) if len(authorization) <= TOKEN_CHARS_MAX else None
    return found[1] if found else ""
