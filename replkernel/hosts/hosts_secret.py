"""The secret that the hosts of one user share where they share no directory: from it follow agents' keys.

Law: it is read from a 0600 file of the user's, and neither it nor what follows from it is ever shown.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from replkernel.errors import SettingError
from replkernel.hosts.own_file import read_own
from replkernel.hosts.places import data_place

if TYPE_CHECKING:
    from replkernel.hosts.far_sockets import Keys

SETTING = "REPLKERNEL_HOSTS_SECRET_FILE"
SECRET_CHARS_MIN = 32
SECRET_BYTES_MAX = 4096
_OTHERS_READ = 0o077


def secret_file(env: Mapping[str, str]) -> Path:
    """Return where the secret lies, if there is one."""
    return Path(env.get(SETTING, "").strip() or Path(data_place(env), "hosts.secret"))


def read_secret(env: Mapping[str, str]) -> bytes | None:
    """Return the hosts' secret, None where there is no such file; raises SettingError for one of no use."""
    path = secret_file(env)
    fix = f"write one with `openssl rand -hex 32 > {path}` and `chmod 600 {path}`, the same on every host"
    try:
        if path.stat().st_mode & _OTHERS_READ:
            raise SettingError(SETTING, str(path), "others than its owner can read it", f"chmod 600 {path}")
        secret = read_own(path, SECRET_BYTES_MAX).strip()
    except FileNotFoundError:
        if env.get(SETTING, "").strip():
            raise SettingError(SETTING, str(path), "there is no such file", fix) from None
        return None
    except OSError as error:
        raise SettingError(SETTING, str(path), str(error), fix) from error
    if len(secret) < SECRET_CHARS_MIN:
        raise SettingError(SETTING, str(path), f"shorter than {SECRET_CHARS_MIN} characters", fix)
    return secret


def agent_token(secret: bytes, host: str) -> str:
    """Return the token of a host's agent."""
    return _derived(secret, "token", host).hex()


def agent_keys(secret: bytes, host: str) -> Keys:
    """Return the CURVE keys of a host's agent."""
    import zmq
    from zmq.utils import z85

    from replkernel.hosts.far_sockets import Keys

    key = z85.encode(_derived(secret, "curve", host))
    return Keys(zmq.curve_public(key), key)


def _derived(secret: bytes, use: str, host: str) -> bytes:
    return hmac.digest(secret, f"replkernel agent {use} {host}".encode(), "sha256")
