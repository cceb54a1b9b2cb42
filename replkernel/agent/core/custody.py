"""How long a kernel's replicas are kept without a router. Pure.

Law: a kernel whose router vanished without a word is put to rest or ended after its grace time, unless it is
detached or a router with the same key comes back.
"""

from __future__ import annotations

import hashlib
import hmac

from replkernel.protocol.kernel_spec import KernelSpec


class Custody:
    """Who may speak for a kernel, and until when it is kept for nobody."""

    def __init__(self, spec: KernelSpec, orphan_grace_s: float, now: float) -> None:
        self._key_digest = hashlib.sha256(spec.key.encode()).hexdigest()
        self._grace_s = orphan_grace_s
        self._detached = spec.detached
        self._gone_at: float | None = now
        self._spared_until = float("-inf")

    def admits(self, key_digest: str) -> bool:
        """Tell whether a router with this key digest speaks for the kernel."""
        return hmac.compare_digest(self._key_digest.encode(), key_digest.encode())

    def router_came(self) -> None:
        """Note that a router is attached."""
        self._gone_at = None

    def router_gone(self, now: float) -> None:
        """Note that the router has gone without ending the kernel."""
        self._gone_at = now

    @property
    def orphaned(self) -> bool:
        """Tell whether no router is attached."""
        return self._gone_at is not None

    def spared(self, until: float) -> None:
        """Keep the kernel until then: it is being put to rest, and that was not possible yet."""
        self._spared_until = until

    def alone_s(self, now: float) -> float:
        """Return for how long the kernel has been without a router."""
        return 0.0 if self._gone_at is None else now - self._gone_at

    def deadline(self) -> float | None:
        """Return when the kernel is to be put to rest or ended for want of a router, or None."""
        if self._gone_at is None or self._detached:
            return None
        return max(self._gone_at + self._grace_s, self._spared_until)

    def overdue(self, now: float) -> str:
        """Return why the kernel is to be ended now, or an empty string."""
        due = self.deadline()
        if due is None or now < due:
            return ""
        return f"its router has been gone for {self._grace_s:g} s (REPLKERNEL_ORPHAN_GRACE_S)"
