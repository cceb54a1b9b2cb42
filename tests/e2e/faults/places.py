"""Where one run keeps its things, and the faults of its disks: full, away, slow; and the clock of its hosts.

Law: everything is below one directory; what is mounted there is seen by this run's processes alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.stock import kernelspec_dir

SUPPORT = Path(__file__).parents[2] / "support"
SOURCES = [str(Path(__file__).parents[3] / part) for part in (".", "scheduler", "server_ext")]
STORE_MIB, HOST_MIB = 64, 64


class Places:
    """The directories of a run and the environment that points there."""

    def __init__(self, root: Path, *, mounts: bool, clock: bool) -> None:
        """Make them below `root`; with `mounts` the store and each host have a small file system each."""
        self.root = root
        self.witness = self.root / "begun"
        self._mounts = mounts
        self._mounted: list[Path] = []
        self._delay = self.root / "delay"
        self._disk = self.root / "disk"
        self._store = self._disk / "store"
        self._away = self._disk / "away"
        for name in ("data", "run", "ipython", "mpl", "s", "disk", "config"):
            (self.root / name).mkdir(mode=0o700)
        if mounts:
            self._mount(self._disk, STORE_MIB)
        self._store.mkdir(mode=0o700)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("REPLKERNEL_") or name == "REPLKERNEL_ZYGOTE_IDLE_S"
        }
        paths = [str(SUPPORT / "faulty"), *SOURCES, os.environ.get("PYTHONPATH", "")]
        self.env = kept | {
            "JUPYTER_DATA_DIR": str(self.root / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.root / "run"),
            "JUPYTER_CONFIG_DIR": str(self.root / "config"),
            "JUPYTER_PATH": str(kernelspec_dir(self.root / "jupyter")),
            "IPYTHONDIR": str(self.root / "ipython"),
            "MPLCONFIGDIR": str(self.root / "mpl"),
            "REPLKERNEL_SOCKET_DIR": str(self.root / "s"),
            "REPLKERNEL_STORE": f"file://{self._store}",
            "REPLKERNEL_TEST_STORE_DELAY": str(self._delay),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        self._clocked = clock

    def host_env(self, host: str) -> dict[str, str]:
        """Return the environment of one host's agent."""
        if not self._clocked:
            return dict(self.env)
        self.move_clock(host, 0.0)
        return self.env | {"REPLKERNEL_TEST_CLOCK": str(self._clock(host))}

    def make_disk(self, directory: Path) -> None:
        """Give a host's directory a small file system of its own."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._mounts:
            self._mount(directory, HOST_MIB)

    def _mount(self, directory: Path, mib: int) -> None:
        size = f"size={mib}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "rkf", str(directory)], check=True)
        self._mounted.append(directory)

    def _clock(self, host: str) -> Path:
        return self.root / f"clock-{host}"

    def move_clock(self, host: str, by_s: float) -> None:
        """Have a host's clock go wrong by so much."""
        fresh = self.root / f"clock-{host}.new"
        fresh.write_text(f"{by_s:+.0f}\n")
        fresh.replace(self._clock(host))

    def slow_store(self, delay_s: float) -> None:
        """Make each access of the store take longer (0: as quick as ever)."""
        self._delay.write_text(str(delay_s))

    def take_store_away(self) -> None:
        """Have every access of the store fail: a file is where its directory was."""
        with contextlib.suppress(OSError):
            self._store.rename(self._away)
            self._store.write_text("")

    def bring_store_back(self) -> None:
        """Undo `take_store_away`."""
        if not self._away.exists():
            return
        if self._store.is_dir():
            shutil.copytree(self._store, self._away, dirs_exist_ok=True)
            shutil.rmtree(self._store)
        self._store.unlink(missing_ok=True)
        self._away.rename(self._store)

    def fill(self, directory: Path) -> None:
        """Use up all room in the file system of `directory`."""
        with contextlib.suppress(OSError), open(directory / "filler", "ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def fill_store(self) -> None:
        """Leave the store no room."""
        self.fill(self._disk)

    def free(self, directory: Path) -> None:
        """Undo `fill`."""
        (directory / "filler").unlink(missing_ok=True)

    def heal(self, hosts: list[Path]) -> None:
        """Undo every fault of disks and clocks."""
        self.bring_store_back()
        self.slow_store(0.0)
        for directory in (self._disk, *hosts):
            self.free(directory)

    def begun(self) -> dict[str, int]:
        """Return how often each cell began."""
        try:
            names = self.witness.read_text().split()
        except FileNotFoundError:
            return {}
        return {name: names.count(name) for name in names}

    def close(self) -> None:
        """Let go of the file systems; the directories are whoever's who made the root."""
        for directory in reversed(self._mounted):
            subprocess.run(["umount", "-l", str(directory)], check=False)
