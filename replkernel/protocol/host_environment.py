"""How the environment of one host differs from that of another: Python, packages, the working directory.

Pure: words only. Law: what a host has beyond the other is no difference, for no notebook misses it.
"""

from __future__ import annotations

from collections.abc import Mapping

PACKAGES_MAX = 5_000
"""No more packages of a host are told."""
NAMED_MAX = 8
"""So many packages are named; the others are counted."""


def differences(
    python: str, packages: Mapping[str, str], other_python: str, other_packages: Mapping[str, str]
) -> str:
    """Say in a clause what of the first host the other one lacks or has otherwise; else nothing."""
    parts = [f"Python {other_python} (not {python})"] if python != other_python else []
    changed = [name for name in sorted(packages) if packages[name] != other_packages.get(name)]
    for name in changed[:NAMED_MAX]:
        found = other_packages.get(name)
        parts.append(f"{name} {found} (not {packages[name]})" if found else f"no {name} ({packages[name]})")
    if len(changed) > NAMED_MAX:
        parts.append(f"{len(changed) - NAMED_MAX} more packages")
    return ", ".join(parts)
