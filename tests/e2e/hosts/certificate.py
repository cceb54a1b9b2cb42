"""A certificate for one address, signed by itself: what an administrator's own authority would give."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(directory: Path, address: str) -> tuple[Path, Path]:
    """Return certificate and key for an IP address; the certificate is its own authority."""
    directory.mkdir(exist_ok=True)
    certificate, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        [
            *"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(),
            *("-subj", "/CN=replkernel", "-addext", f"subjectAltName=IP:{address}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return certificate, key
