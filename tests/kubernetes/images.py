"""The images of deploy/images, built from their Dockerfiles as they are by buildah, and archives for nodes.

No registry is asked: a Debian made by mmdebstrap stands in for what they begin with, laid out as that is. The
wheel is this repository's. Law: all of it lies below `build/images`; what was made there is made once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kubernetes.cluster import ROOT
from tests.kubernetes.node import PAUSE

KEPT = ROOT / "build/images"
DOCKERFILES = ROOT / "deploy/images"
NEEDED = ("buildah", "mmdebstrap")
MISSING = "no buildah and mmdebstrap, or no root: `apt-get install buildah mmdebstrap` brings them"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
PIP = "[global]\\nfind-links = /wheels\\ncert = /etc/ssl/certs/ca-certificates.crt\\n"

# Of python:*-slim: `python` and `pip` are root's, and nobody else is there.
PYTHON = f"""FROM scratch
ADD base.tar /
COPY certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN rm -f /usr/lib/python3.*/EXTERNALLY-MANAGED && ln -s python3 /usr/bin/python \\
  && printf '{PIP}' > /etc/pip.conf
"""
# Of z2jh's k8s-hub: the same, with a user who may not write to Python.
HUB = """FROM localhost/python
RUN pip install --no-cache-dir jupyterhub jupyterhub-kubespawner && useradd --uid 1000 --create-home jovyan
USER 1000
"""
# Of the docker-stacks: Python of the user's own below /opt/conda, JupyterLab in it.
NOTEBOOK = """FROM localhost/python
RUN useradd --uid 1000 --gid 100 --create-home jovyan && python -m venv /opt/conda && chown -R 1000 /opt/conda
ENV PATH=/opt/conda/bin:/usr/local/bin:/usr/bin:/bin HOME=/home/jovyan
USER 1000
WORKDIR /home/jovyan
RUN pip install --no-cache-dir jupyterlab jupyterhub
"""
NOTHING = 'FROM localhost/python\nCMD ["sleep", "2147483647"]\n'


def can_build() -> bool:
    """Say whether images can be built here."""
    return os.geteuid() == 0 and all(shutil.which(it) for it in NEEDED)


def _run(*words: str, **env: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, env=os.environ | env)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Images:
    """What was built, by names of images."""

    def __init__(self, place: Path) -> None:
        """Make what the images begin with, and the wheel."""
        self.place = place
        self._wheels = place / "wheels"
        self._wheels.mkdir()
        source = [str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(self._wheels)]
        _run(sys.executable, "-m", "pip", "wheel", *source)
        base = KEPT / "base.tar"
        if not base.exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            made = base.with_suffix(".new.tar")
            _run("mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(made))
            made.rename(base)
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", KEPT / "certificates.crt")
        for name, text in {"python": PYTHON, "hub": HUB, "notebook": NOTEBOOK}.items():
            self._build_of(text, f"localhost/{name}")
        self._build_of(NOTHING, PAUSE)

    def build(self, dockerfile: str, base: str, image: str) -> None:
        """Build one of ours as its head says, beginning with a stand-in."""
        file = str(DOCKERFILES / dockerfile)
        self._buildah(
            "--build-arg", f"BASE=localhost/{base}", "--tag", image, "--file", file, str(DOCKERFILES)
        )

    def archives(self, *images: str) -> Iterator[Path]:
        """Yield an archive of each, as `docker save` writes it."""
        for number, image in enumerate(images):
            path = self.place / f"{number}.tar"
            _run("buildah", *self._stored(), "push", image, f"docker-archive:{path}:{image}")
            yield path

    def _build_of(self, text: str, image: str) -> None:
        file = self.place / "Dockerfile"
        file.write_text(text)
        self._buildah("--layers", "--tag", image, "--file", str(file), str(KEPT))

    def _buildah(self, *words: str) -> None:
        how = ("--isolation=chroot", f"--volume={self._wheels}:/wheels:ro")
        _run("buildah", *self._stored(), "build", *how, *words)

    def _stored(self) -> tuple[str, ...]:
        return ("--storage-driver=overlay", f"--root={KEPT}/store", f"--runroot={self.place}/run")
