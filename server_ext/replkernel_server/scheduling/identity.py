"""Who a token is: the one question that every hosting of the scheduler answers in its own way.

Law: an identity comes from its token alone, never from what a request says about itself.
"""

from __future__ import annotations

import hmac
import os
import pwd
from collections.abc import Awaitable, Callable

import msgspec
from replkernel_scheduler.types import UserQuota

from replkernel_server.errors import ServerError

TOKEN_CHARS_MAX = 1_000
SCHEMES = ("token ", "Bearer ")


class Identity(msgspec.Struct, frozen=True):
    """A user; an admin sees and touches everybody's. `quota` None leaves the user's quota as it is.

    `may_host`: the user's agents may offer hosts.
    """

    user: str
    admin: bool = False
    may_host: bool = True
    quota: UserQuota | None = None


Identify = Callable[[str], Awaitable[Identity | None]]
"""Tells who a token is: None refuses it; a ServerError says that nobody can be asked now."""


class NotYours(ServerError):
    """Somebody asks for another user's kernel, lease or request, or for what admins may."""

    status = 403


def own_user() -> str:
    """Return the name of the user whom this process belongs to."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def one_token(token: str, user: str | None = None) -> Identify:
    """Return who knows one token: it is this process' own user (or `user`), who is admin here."""
    identity = Identity(own_user() if user is None else user, admin=True)
    secret = token.encode()

    async def identify(given: str) -> Identity | None:
        return identity if hmac.compare_digest(given.encode(), secret) else None

    return identify


def token_of(header: str) -> str:
    """Return the token in an Authorization header; nothing if there is none that could be one."""
    for scheme in SCHEMES:
        if header.startswith(scheme):
            token = header.removeprefix(scheme)
            return token if len(token) <= TOKEN_CHARS_MAX else ""
    return ""
