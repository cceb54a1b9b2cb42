"""One process of a cell on several hosts: what it runs, what it finds, and what it leaves to its launcher."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import dill
import msgspec
import pytest

from replkernel.launch.module_command import module_command
from replkernel.ranks.words import Program


def ran(
    place: Path, source: str, *, back: tuple[str, ...] = (), rank: int = 0, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a cell's text as a launcher has it run."""
    env = more.pop("env", {})
    program = Program(source, {}, {}, back, **{"path_first": (), "path": (), **more})
    (place / "program").write_bytes(msgspec.msgpack.encode(program))
    return subprocess.run(
        module_command("replkernel.ranks.rank", str(place), str(os.getpid())),
        env={**os.environ, "RANK": str(rank), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("end", ["", "import sys; sys.exit()", "raise SystemExit(0)"])
def test_rank_0_gives_back_however_it_ends_well(tmp_path: Path, end: str) -> None:
    done = ran(tmp_path, f"x = 7\n{end}\n", back=("x",))
    assert done.returncode == 0, done.stderr
    assert dill.loads((tmp_path / "result").read_bytes()) == {"x": 7}


def test_what_cpp_does_at_the_end_of_a_process_fails_no_rank_that_is_done(tmp_path: Path) -> None:
    aborts = "import ctypes; c = ctypes.CDLL(None); c.__cxa_atexit(c.abort, None, None)"
    done = ran(tmp_path, f"import atexit; atexit.register(print, 'bye')\n{aborts}\nprint('done')")
    assert (done.returncode, done.stdout) == (0, "done\nbye\n"), "gloo's threads abort there, now and then"


def test_only_rank_0_gives_back_and_only_where_it_ended_well(tmp_path: Path) -> None:
    assert ran(tmp_path, "x = 7", back=("x",), rank=1).returncode == 0
    assert ran(tmp_path, "x = 7; raise SystemExit(3)", back=("x",)).returncode == 3
    assert not (tmp_path / "result").exists()


def test_the_text_of_an_exit_is_written_and_told(tmp_path: Path) -> None:
    done = ran(tmp_path, "import sys; sys.exit('no data')")
    assert (done.returncode, done.stderr) == (1, "no data\n"), "as Python does it"
    assert (tmp_path / "error-0").read_text() == "no data"


def test_a_variable_to_give_back_that_was_not_made_is_named(tmp_path: Path) -> None:
    for end in ("", "raise SystemExit(0)"):
        done = ran(tmp_path, f"x = 7\n{end}\n", back=("x", "y"))
        assert done.returncode == 1
        assert (tmp_path / "error-0").read_text() == "NameError: --back names y, which the cell has not made"


def test_a_variable_that_cannot_be_pickled_is_no_result(tmp_path: Path) -> None:
    done = ran(tmp_path, "x = (each for each in [1])", back=("x",))
    assert done.returncode == 1
    assert "pickle" in (tmp_path / "error-0").read_text()
    assert not (tmp_path / "result").exists()


def module(directory: Path, says: str) -> str:
    directory.mkdir(exist_ok=True)
    (directory / "shadowed_here.py").write_text(f"says = {says!r}\n")
    return str(directory)


def test_the_notebooks_modules_come_before_the_hosts_own(tmp_path: Path) -> None:
    ours, theirs = module(tmp_path / "ours", "the notebook's"), module(tmp_path / "theirs", "the host's")
    found = "import shadowed_here; print(shadowed_here.says)"
    env = {"PYTHONPATH": theirs}
    assert ran(tmp_path, found, env=env).stdout == "the host's\n"
    assert ran(tmp_path, found, env=env, path_first=(ours,)).stdout == "the notebook's\n"
    assert ran(tmp_path, found, env=env, path=(ours,)).stdout == "the host's\n"
    assert ran(tmp_path, found, path=(ours,)).stdout == "the notebook's\n"
    order = ran(tmp_path, "import sys; print(sys.path)", path_first=("/b", ours), path=("/z", ours)).stdout
    assert order.startswith(f"['/b', '{ours}', ") and order.endswith(", '/z']\n")
