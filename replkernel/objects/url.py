"""The store's URL: what may be written in it, and what of it may be shown.

Law: whatever goes into a message has passed `redact`.
"""

from __future__ import annotations

import ipaddress
import re

from replkernel.errors import SettingError

SETTING = "REPLKERNEL_STORE"
URL_LENGTH_MAX = 4096

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,128}\Z", re.ASCII)


def scheme_of(url: str) -> str:
    """Return the scheme of `url` in lower case, or an empty string when it has none."""
    match = _SCHEME.match(url)
    return match.group(1).lower() if match else ""


def redact(url: str) -> str:
    """Return `url` without what may be secret: everything before an ``@``, and the values of a query.

    A path of this machine is shown whole.
    """
    scheme = scheme_of(url)
    if not scheme or scheme == "file":
        return url[:URL_LENGTH_MAX]
    head, rest = url[: len(scheme) + 3], url[len(scheme) + 3 :]
    if "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    rest, mark, _ = rest.partition("?")
    return (head + rest + ("?***" if mark else ""))[:URL_LENGTH_MAX]


def setting_error(url: str, problem: str, fix: str) -> SettingError:
    """Return the error for a store URL that cannot be used."""
    return SettingError(SETTING, redact(url), problem, fix)


def is_segment(text: str) -> bool:
    """Tell whether `text` may be one segment of a key, safe as a file's name in every store."""
    return _SEGMENT.match(text) is not None and text.strip(".") != ""


def prefix_of(url: str, path: str) -> str:
    """Return `path` as the prefix of keys, without a slash at either end; or raise SettingError."""
    segments = [segment for segment in path.split("/") if segment]
    for segment in segments:
        if not is_segment(segment):
            raise setting_error(
                url,
                f"{segment[:80]!r} cannot be part of a prefix",
                "use letters, digits, dots, dashes and underscores between the slashes",
            )
    return "/".join(segments)


def clear_text(host: str, fix: str) -> str:
    """Return the warning that what is stored goes to `host` unencrypted, with the fix; none for loopback."""
    try:
        here = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        here = host.lower() == "localhost"
    return "" if here else f"what notebooks store goes over the network unencrypted; {fix}"
