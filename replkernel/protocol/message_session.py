"""The session id in the headers of a kernel's messages: one for all that speak for one incarnation of it.

A stock kernel has one id for each process, and a client that sees another one takes the kernel for restarted:
JupyterLab drops what it has not handled yet of the id before. Law: the id tells nothing of the key.
"""

from __future__ import annotations

import hashlib


def message_session(kernel_id: str, incarnation: str) -> str:
    """Return the session id of an incarnation, in the form of Jupyter's own ids."""
    digest = hashlib.sha256(f"message session of {kernel_id}/{incarnation}".encode()).hexdigest()[:32]
    return f"{digest[:8]}-{digest[8:]}"
