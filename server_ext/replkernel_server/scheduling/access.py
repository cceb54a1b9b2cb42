"""Who may see and touch what: pure rules on an Identity and the owner of a thing.

Law: a thing belongs to the user under whose name it first came; an admin may see and touch everything, an
overseer see it, but a router speaks for kernels of its own user only, an admin's too. Each rule but `may_see`
returns why not, an empty text if it may be.
"""

from __future__ import annotations

from collections.abc import Collection

from replkernel_scheduler.gangs.desk import GANGS_REQUEST, is_of_gang
from replkernel_scheduler.harvest.asking import JOBS_REQUEST, is_of_job
from replkernel_scheduler.types import UserName

from replkernel_server.scheduling.identity import Identity

LEASE_SCOPE = "custom:replkernel:lease"
HOST_SCOPE = "custom:replkernel:host"
ADMIN_SCOPE = "custom:replkernel:admin"
SEE_SCOPE = "custom:replkernel:see"


def may_see(who: Identity, owner: UserName | None) -> bool:
    """Return whether `who` may see a lease, a kernel, a request or an account of `owner`."""
    return who.admin or who.sees_all or (owner is not None and owner == who.user)


def why_not_touch(who: Identity, owner: UserName | None, what: str) -> str:
    """Say why `who` may not change `what`; one that nobody knows (None) is nobody's to protect."""
    if owner is None or who.admin or owner == who.user:
        return ""
    return f"{what} is another user's: {who.user} may use his own only."


def why_not_lease(who: Identity) -> str:
    """Say why `who` may not ask for GPUs at all."""
    if who.may_lease or who.admin:
        return ""
    return (
        f"{who.user} may not lease GPUs: the Hub's administrator gives the scope {LEASE_SCOPE} to a group "
        "with setup_replkernel(c, groups=[...])."
    )


def why_not_kernel(kernel: str) -> str:
    """Say why nobody may speak of a kernel: those that stand for jobs and gangs are the scheduler's own."""
    if is_of_gang(kernel):
        return f"What begins with {GANGS_REQUEST!r} is the scheduler's own: name yours otherwise."
    if is_of_job(kernel):
        return f"Kernels and requests that begin with {JOBS_REQUEST!r} are jobs': name yours otherwise."
    return ""


def why_not_end(who: Identity, kernel: str) -> str:
    """Say why `who` may not give a lease of this kernel back: an admin may a gang's, and so end it."""
    return "" if who.admin and is_of_gang(kernel) else why_not_kernel(kernel)


def why_not_route(who: Identity, owner: UserName | None, kernel: str) -> str:
    """Say why a router of `who` may not speak for a kernel; an admin's is no exception."""
    if owner is not None and owner != who.user:
        return f"Kernel {kernel} is another user's: a router of {who.user} speaks for his own only."
    return why_not_kernel(kernel) or why_not_lease(who)


def why_not_host(who: Identity) -> str:
    """Say why `who` may not offer the GPUs of a host."""
    if who.may_host or who.admin:
        return ""
    return (
        f"{who.user} may not offer a host's GPUs: the agent that does needs a token with the scope "
        f"{HOST_SCOPE}, as setup_replkernel(c, agents_token=...) makes one."
    )


def why_not_book(who: Identity, group: str, users: Collection[str]) -> str:
    """Say why `who` may not book GPUs for a group, or for users."""
    if who.admin or (group and group in who.owns and not users):
        return ""
    return (
        f"{who.user} may book GPUs for the groups that he owns: the Hub's administrator gives a group the "
        'property owners, such as ["ada"]. Administrators book for anybody.'
    )


def why_not_administer(who: Identity) -> str:
    """Say why `who` may not do what is for administrators."""
    if who.admin:
        return ""
    return (
        f"The token of {who.user} does not administer this scheduler: a Hub's administrator makes one that "
        "does on the Hub's page Token, and sets REPLKERNEL_SCHEDULER_TOKEN to it."
    )
