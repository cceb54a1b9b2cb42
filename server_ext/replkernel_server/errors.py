"""The errors of replkernel_server: one root, messages of one sentence that name the cause and the fix."""

from __future__ import annotations


class ServerError(Exception):
    """The root of every error that replkernel_server raises on purpose."""


class BadRequest(ServerError):
    """A request's body or query does not fit; `status` is the HTTP status that says so."""

    status = 400


class ServiceSettingError(ServerError):
    """The service was started with an address or a path that it cannot use."""
