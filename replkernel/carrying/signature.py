"""Who signed a state file: Ed25519 over the digest of its manifest, which names the digest of all the rest.

Law: a signature says that the file is as the key's owner wrote it; whose key it is, the reader must know.
"""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from replkernel.errors import UNREADABLE, ReplkernelError

SIGNATURE_BYTES_MAX = 4096
KEY_BYTES_MAX = 64 * 1024
ALGORITHM = "ed25519"
_CONTEXT = b"replkernel state file 1\0"
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


class BadSignature(ReplkernelError):
    """A signature is missing, or not right; or a key cannot be used."""


class Signature(msgspec.Struct, frozen=True):
    """A public key and what it signed with, as text."""

    algorithm: str
    key: str
    signature: str

    @classmethod
    def read(cls, data: bytes, manifest_digest: bytes) -> Signature:
        """Return a signature that is right; raises BadSignature."""
        try:
            told = msgspec.json.decode(data, type=cls)
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(told.key, validate=True))
            key.verify(base64.b64decode(told.signature, validate=True), _CONTEXT + manifest_digest)
        except (InvalidSignature, *UNREADABLE) as error:
            raise BadSignature(
                "The signature of the file is not right: somebody has changed the file."
            ) from error
        return told

    @property
    def fingerprint(self) -> str:
        """Return the key's name for people, as ssh-keygen shows fingerprints."""
        from hashlib import sha256

        return "SHA256:" + base64.b64encode(sha256(self.key.encode()).digest()).decode().rstrip("=")


def sign(manifest_digest: bytes, keyfile: Path) -> bytes:
    """Return the signature of a manifest by a private key (PEM or OpenSSH, without a passphrase)."""
    key = _load(keyfile, private=True)
    assert isinstance(key, Ed25519PrivateKey)
    told = Signature(
        ALGORITHM,
        _shown(key.public_key()),
        base64.b64encode(key.sign(_CONTEXT + manifest_digest)).decode(),
    )
    return msgspec.json.encode(told)


def is_signed_by(signature: Signature, keyfile: Path) -> bool:
    """Tell whether a signature is of the public key in a file."""
    key = _load(keyfile, private=False)
    assert isinstance(key, Ed25519PublicKey)
    return signature.key == _shown(key)


def _shown(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes(*_RAW)).decode()


def _load(keyfile: Path, *, private: bool) -> Ed25519PrivateKey | Ed25519PublicKey:
    kind = "private" if private else "public"
    fix = "make one with `ssh-keygen -t ed25519 -N '' -f state-key`"
    try:
        with keyfile.open("rb") as file:
            data = file.read(KEY_BYTES_MAX)
        ssh = b"OPENSSH" in data or data.startswith(b"ssh-")
        key: object
        if private:
            load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
            key = load(data, None)
        else:
            key = (serialization.load_ssh_public_key if ssh else serialization.load_pem_public_key)(data)
    except OSError as error:
        raise BadSignature(f"The key {keyfile} cannot be read: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadSignature(f"{keyfile} is not a usable {kind} key: {fix}.") from error
    if not isinstance(key, Ed25519PrivateKey if private else Ed25519PublicKey):
        raise BadSignature(f"{keyfile} is no Ed25519 {kind} key: {fix}.")
    return key
