"""Who may see and touch what: pure rules on an Identity and the owner of a thing.

Law: a thing belongs to the user under whose name it first came; an admin may do everything; on the channel a
router acts for kernels of its own user only, an admin's too. Whoever is refused learns whose right it is not.
"""

from __future__ import annotations

from replkernel_scheduler.types import UserName

from replkernel_server.errors import ServerError
from replkernel_server.scheduling.identity import Identity

LEASE_SCOPE = "custom:replkernel:lease"
HOST_SCOPE = "custom:replkernel:host"


class Forbidden(ServerError):
    """Whoever asks is known, and may not do this."""

    status = 403


def may_see(who: Identity, owner: UserName | None) -> bool:
    """Return whether `who` may see a lease, a kernel, a request or an account of `owner`."""
    return who.admin or (owner is not None and owner == who.user)


def check_touch(who: Identity, owner: UserName | None, what: str) -> None:
    """Raise Forbidden unless `who` may change `what`; one that nobody knows (None) is nobody's to protect."""
    if owner is not None and not may_see(who, owner):
        raise Forbidden(f"This {what} is another user's: {who.user} may use his own only.")


def check_lease(who: Identity) -> None:
    """Raise Forbidden unless `who` may ask for GPUs at all."""
    if not (who.may_lease or who.admin):
        raise Forbidden(
            f"{who.user} may not lease GPUs: the Hub's administrator gives the scope {LEASE_SCOPE} to a "
            "group with setup_replkernel(c, groups=[...])."
        )


def check_kernel(who: Identity, owner: UserName | None) -> None:
    """Raise Forbidden unless a router of `who` may act for a kernel; admins' routers are no exception."""
    check_lease(who)
    if owner is not None and owner != who.user:
        raise Forbidden(f"This kernel is another user's: a router of {who.user} acts for his own only.")


def check_host(who: Identity, owner: UserName | None) -> None:
    """Raise Forbidden unless `who` may offer or take down a host that `owner` offers now (None: nobody)."""
    if not (who.may_host or who.admin):
        raise Forbidden(
            f"{who.user} may not offer a host's GPUs: the agent that does needs a token with the scope "
            f"{HOST_SCOPE}, as setup_replkernel(c) gives it to the service replkernel-agents."
        )
    if owner is not None and owner != who.user and not who.admin:
        raise Forbidden(f"This host is offered by another agent: {who.user} may offer his own only.")


def check_admin(who: Identity, what: str) -> None:
    """Raise Forbidden unless `who` is an admin."""
    if not who.admin:
        raise Forbidden(f"Only an admin may {what}.")
