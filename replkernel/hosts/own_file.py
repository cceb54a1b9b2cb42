"""Small files that hold secrets or are trusted later: read only if they are our own, replaced whole.

Law: what is written is readable by its owner alone; a reader sees the old bytes or the new ones, never a mix.
"""

from __future__ import annotations

import os
from pathlib import Path

_OTHERS_WRITE = 0o002


def read_own(path: Path, bytes_max: int) -> bytes:
    """Return the file's bytes; raises OSError when it is absent, too long or could be somebody else's.

    Its group is not looked at: volumes of clusters are often handed to a group as a whole.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            raise OSError("somebody else could have written it")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(f"it is longer than {bytes_max} bytes")
    return data


def replace_own(path: Path, data: bytes, *, lasting: bool = False) -> None:
    """Put `data` in place of the file's bytes, with `lasting` so that a power cut leaves them; or OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
