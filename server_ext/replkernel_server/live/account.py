"""What this user has used and may have, asked of the scheduler wherever it is.

Law: asking is bounded, and goes to nobody but the scheduler; what is not understood is no account.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.leasing.asking import ask
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.standing import BOUNDS
from replkernel_server.live.documents import Account
from replkernel_server.scheduling.accounting import SumRow
from replkernel_server.scheduling.documents import QuotaAnswer, Quotas

HUB_USER = "JUPYTERHUB_USER"


class _Sums(msgspec.Struct, frozen=True):
    sums: list[SumRow] = []


def ask_account(env: Mapping[str, str]) -> Account | None:
    """Return this user's account; None where there is no scheduler, or none that tells."""
    url, token = find_scheduler(env)
    if not url:
        return None
    try:
        quotas = msgspec.json.decode(ask(url, token, "/api/v1/quotas", BOUNDS), type=Quotas).quotas
        used = ask(url, token, "/api/v1/accounting?by=user", BOUNDS)
        sums = msgspec.json.decode(used, type=_Sums).sums
    except (ReplkernelError, *UNREADABLE):  # Its status tells what is wrong.
        return None
    return account_of(env.get(HUB_USER, ""), quotas, sums)


def account_of(user: str, quotas: list[QuotaAnswer], sums: list[SumRow]) -> Account | None:
    """Return the account of `user`; without a name, of the only one that there is."""
    names = {row.user for row in quotas} | {row.user for row in sums if row.user}
    if not user:
        if len(names) != 1:
            return None
        (user,) = names
    if user not in names:
        return None
    quota = next((row for row in quotas if row.user == user), None)
    used = next((row for row in sums if row.user == user), None)
    month = 0.0 if quota is None else quota.gpu_hours_used
    return Account(
        user=user,
        gpu_hours=0.0 if used is None else used.gpu_hours,
        saved_gpu_hours=0.0 if used is None else used.saved_gpu_hours,
        gpu_hours_month=month,
        gpu_hours_month_quota=None if quota is None else quota.gpu_hours_month,
        gpus_held=0 if quota is None else quota.held,
        gpu_quota=None if quota is None else quota.gpu_quota,
        spent_month=None if quota is None else quota.spent_month,
        budget_month=None if quota is None else quota.budget_month,
        currency="" if quota is None else quota.currency,
    )
