"""Whether a scheduler answers at the address that a setting names, for routers and the doctor.

The standard library only, imported when asked. Law: bounded in time; no token is ever part of what is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.errors import SettingError

SETTING = "REPLKERNEL_SCHEDULER_URL"
ANSWER_TIMEOUT_S = 5.0
_START = "start it with `replkernel scheduler`, or unset the setting"


def scheduler_trouble(url: str, env: Mapping[str, str]) -> str:
    """Return what is wrong with the scheduler at `url`, in one sentence; an empty string if all is well."""
    import urllib.error
    import urllib.parse
    import urllib.request

    from replkernel.leasing.finding import find_scheduler, is_hub_service, scheduler_place

    def trouble(problem: str, fix: str) -> str:
        return str(SettingError(SETTING, url, problem, fix))

    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        usable = False
    if not usable:
        return trouble("not an http address", "write http://127.0.0.1:PORT, or unset the setting")
    token_file = scheduler_place(env) / "token"
    try:
        token = find_scheduler({**env, SETTING: url})[1]
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            f"{url.rstrip('/')}/api/v1/status", headers={"Authorization": f"token {token}"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:  # noqa: S310 - likewise
            answer.read(1024)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            fix = f"copy the scheduler's token file to {token_file}, with mode 0600"
            if is_hub_service(url):
                fix = "start your server from the Hub again, or ask its administrator"
            return trouble("it refuses our token", fix)
        return trouble(f"it answers {error.code}, so it is no replkernel scheduler", "correct the address")
    except Exception as error:  # whatever a server that is no scheduler makes of HTTP
        reason = getattr(error, "reason", error)
        return trouble(f"it does not answer ({getattr(reason, 'strerror', None) or reason})", _START)
    return ""
