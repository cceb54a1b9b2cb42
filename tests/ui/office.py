"""One JupyterLab and one browser for the tests of a session: to start them takes longer than most tests.

Law: each test finds no kernel, no notebook and no settings; after a failure all of it is started anew. What a
scheduler keeps for the next test, as the hosts that it knew, wants a desk of its own (`own_desk`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import KEPT, OWN
from tests.support import left_open
from tests.support.ending import end_agents, end_schedulers
from tests.support.group import replicas
from tests.support.live import eventually
from tests.support.stock import kernelspec_dir
from tests.ui.driven import SHOTS, Browser, Lab, lab_in_browser, refuse_news

GPUS = "2"


class Office:
    """Directories, JupyterLab and browser; started by the first test that needs them.

    With `beside`, a folder of installed packages, this JupyterLab has the extensions in it as well.
    """

    def __init__(self, beside: Path | None = None) -> None:
        self._beside = beside
        self._base: Path | None = None
        self._running = contextlib.ExitStack()
        self._desk: tuple[Lab, Browser] | None = None

    @contextlib.contextmanager
    def in_reach(self) -> Iterator[tuple[Lab, Browser]]:
        """Start what is not running, and point the environment to its places."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        if self._base is None:
            self._base = Path(tempfile.mkdtemp(prefix="rku-", dir="/tmp"))
        with pytest.MonkeyPatch.context() as patch:
            _point_to(self._base, patch, self._beside)
            if self._desk is None:
                self._desk = self._running.enter_context(lab_in_browser(self._base / "home"))
            yield self._desk

    def tidy(self) -> None:
        """Close all pages, end all kernels, forget notebooks and settings; else start anew next time."""
        assert self._desk is not None
        try:
            self._tidy(*self._desk)
        except BaseException:
            self.close()
            raise

    def _tidy(self, lab: Lab, browser: Browser) -> None:
        browser.do("leave", "")
        if lab.pid is None:
            lab.start()
        for kind in ("sessions", "kernels"):
            for one in lab.call("GET", f"api/{kind}"):
                lab.call("DELETE", f"api/{kind}/{one['id']}")
        eventually(lambda: not replicas(), "the end of all kernels")
        for path in lab.directory.iterdir():
            if path != lab.log:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.rmtree(Path(os.environ["JUPYTER_CONFIG_DIR"], "lab"), ignore_errors=True)
        refuse_news()
        self._keep(lab, browser)

    def _keep(self, lab: Lab, browser: Browser) -> None:
        """Have the check at each module's end pass them by."""
        process, thread = browser.lasting
        left_open.lasting_pids.update({process, lab.pid} - {None})
        left_open.lasting_threads.add(thread)

    def close(self) -> None:
        """End all of it, and keep JupyterLab's log; the next test that needs it starts it anew."""
        if self._base is None:
            return
        with pytest.MonkeyPatch.context() as patch:
            _point_to(self._base, patch, self._beside)
            self._desk = None
            self._running.close()
            end_agents(os.environ)
            end_schedulers(self._base)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(self._base / "home" / "lab.log", SHOTS / "lab.log")
        shutil.rmtree(self._base, ignore_errors=True)
        self._base = None


def _point_to(base: Path, patch: pytest.MonkeyPatch, beside: Path | None) -> None:
    for name in [name for name in os.environ if name.startswith("REPLKERNEL_") and name not in KEPT]:
        patch.delenv(name)
    for name in OWN:
        (base / name.lower()).mkdir(exist_ok=True)
        patch.setenv(name, str(base / name.lower()))
    for name in ("home", "s"):
        (base / name).mkdir(mode=0o700, exist_ok=True)
    patch.setenv("REPLKERNEL_SOCKET_DIR", str(base / "s"))
    patch.setenv("REPLKERNEL_FAKE_GPUS", GPUS)
    patch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    patch.setenv("JUPYTER_PATH", str(kernelspec_dir(base / "jupyter")))
    if beside is not None:
        patch.setenv("PYTHONPATH", str(beside), prepend=os.pathsep)
        patch.setenv("JUPYTER_PATH", str(beside / "share" / "jupyter"), prepend=os.pathsep)
        patch.setenv("JUPYTER_CONFIG_PATH", str(beside / "etc" / "jupyter"))
