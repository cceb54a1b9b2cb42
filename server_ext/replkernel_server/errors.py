"""The errors of replkernel_server: one root, messages of one sentence that name the cause and the fix."""

from __future__ import annotations


class ServerError(Exception):
    """The root of every error that replkernel_server raises on purpose; `status` is its HTTP status."""

    status = 503


class BadRequest(ServerError):
    """A request's body or query does not fit; `status` is the HTTP status that says so."""

    status = 400


class NotKnown(ServerError):
    """Nobody has told of what a request is about."""

    status = 404


class ServiceSettingError(ServerError):
    """The service was started with an address or a path that it cannot use."""


class JournalRefused(ServiceSettingError):
    """The journal is used by somebody else, damaged, or of another version."""


class JournalInUse(JournalRefused):
    """Another scheduler that runs has the journal."""


class JournalAway(JournalRefused):
    """The journal cannot be used at the moment: its disk, its database or another program is in the way."""


class JournalFailed(ServerError):
    """The journal can no longer be written: nothing may be decided any more."""


class JournalFull(JournalFailed):
    """There is no room for the journal at the moment; what was to be written is not, for certain."""
