"""One target in a process of its own: `python -m tests.fuzz.worker TARGET SECONDS DIRECTORY`.

What the target raises is written down with the input, once for each place, and fuzzing goes on; a hang or too
much memory ends the process, with the input beside it. Law: it starts nothing and reaches nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import atheris

from tests.fuzz.mutation import mutated

INPUT_BYTES_MAX = 64 * 1024
HANG_S = 5
"""An input that takes longer is a finding."""
MEMORY_MIB = 1024
"""So is one with which the process takes more."""
ADDRESS_SPACE_BYTES = 16 << 30
FILES_MAX = 512
FILE_BYTES_MAX = 64 << 20
PACKAGES = ["replkernel", "replkernel_scheduler", "replkernel_server"]
FOUND = Path(__file__).parent / "found"


class Findings:
    """What was found, each place once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: set[str] = set()

    def note(self, data: bytes, error: BaseException) -> None:
        """Write down an input and what it leads to."""
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if "/tests/" not in f.filename), frames[-1])
        where = f"{Path(last.filename).name}:{last.lineno}"
        what = f"{type(error).__name__} at {where}"
        if what in self._known:
            return
        self._known.add(what)
        name = hashlib.sha256(data).hexdigest()[:16]
        (self._directory / f"finding-{name}").write_bytes(data)
        story = "".join(traceback.format_exception(error))
        told = {"what": what, "says": str(error)[:400], "story": story[-4000:], "input": f"finding-{name}"}
        with (self._directory / "findings.jsonl").open("a") as out:
            out.write(json.dumps(told) + "\n")


def _limit() -> None:
    for what, most in (
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, FILE_BYTES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def main(name: str, seconds: int, directory: Path) -> None:
    """Fuzz one target for so long; what is found lies in `directory` then."""
    _limit()
    own = tempfile.gettempdir()
    for variable in ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        os.environ[variable] = own
    with atheris.instrument_imports(include=PACKAGES):
        from tests.fuzz.targets import target

        chosen = target(name)
    seeds, corpus = directory / "seeds", directory / "corpus"
    for folder in (seeds, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(chosen.seeds()):
        (seeds / f"seed-{number:03}").write_bytes(seed)
    if (FOUND / name).is_dir():
        shutil.copytree(FOUND / name, seeds, dirs_exist_ok=True)
    findings = Findings(directory)

    def test_one(data: bytes) -> None:
        try:
            chosen.fuzz(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            findings.note(data, error)

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        return mutated(data, size_max, random.Random(seed), _by_libfuzzer)

    options: list[Any] = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-max_len={INPUT_BYTES_MAX}",
        "-len_control=0",
        f"-timeout={HANG_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={directory}/",
        "-print_final_stats=1",
        str(corpus),
        str(seeds),
    ]
    atheris.Setup(options, test_one, custom_mutator=mutate)
    with contextlib.suppress(SystemExit):
        atheris.Fuzz()


def _by_libfuzzer(data: bytes, dice: random.Random) -> bytes:
    del dice  # It has its own.
    return bytes(atheris.Mutate(data, min(INPUT_BYTES_MAX, 2 * len(data) + 64)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
