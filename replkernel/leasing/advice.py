"""What to do about a scheduler that does not answer or refuses us, by where it is, and how often to try.

Pure. Law: under a Hub nobody is told to start a scheduler or to copy a token file, for the Hub runs it; who
is refused again and again tries less and less often.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from replkernel.leasing.finding import TOKEN, is_hub_service

REFUSED_S, REFUSED_S_MAX = 30.0, 600.0
"""Who was refused, by word or by token, tries again after the one; each further time after twice as long."""
PROXY_CODES = (502, 503, 504)
HUB_LOOKS = (
    "ask the Hub's administrator, who finds in the Hub's log why its service replkernel does not answer"
)
HUB_TOKEN = (
    "start your server from the Hub again, or ask its administrator: an agent's token is the `agents_token` "
    f"of setup_replkernel, an administrator's own in {TOKEN} comes from the Hub's page Token"
)
HUB_CONFIGURES = "ask the Hub's administrator whether its configuration ends with setup_replkernel(c)"


def when_silent(url: str) -> str:
    """Say what to do about a scheduler that does not answer."""
    if is_hub_service(url):
        return HUB_LOOKS
    return f"start it{'' if _is_here(url) else ' on its machine'} with `replkernel scheduler`"


def when_strange(url: str, code: int) -> tuple[str, str]:
    """Say what an HTTP status means that no scheduler gives, and what to do about it."""
    if not is_hub_service(url):
        return ", so it is no replkernel scheduler", "correct the address"
    if code in PROXY_CODES:
        return ", so the Hub's proxy does not reach it", HUB_LOOKS
    return ", so the Hub has no service replkernel there", HUB_CONFIGURES


class Patience:
    """How long to leave a scheduler alone that refuses us."""

    def __init__(self) -> None:
        self._next_s = REFUSED_S

    def pause_s(self) -> float:
        """Return how long to wait after one more refusal."""
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, REFUSED_S_MAX)
        return pause_s

    def forget(self) -> None:
        """Begin anew: we were let in, or have another token."""
        self._next_s = REFUSED_S


def _is_here(url: str) -> bool:
    """Return whether the address is one of this machine alone."""
    try:
        name = urlsplit(url).hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
