"""What `with` and `for` leave in their variables: it is over, and binds the notebook to no process."""

from __future__ import annotations

import multiprocessing
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from replkernel.records import Delta
from tests.support.notebook import Notebook, moved, pair

FORK = "import multiprocessing as mp\nfork = mp.get_context('fork')\n"
EXECUTOR = "from concurrent.futures import ProcessPoolExecutor\n" + FORK
THREADS = "from multiprocessing.pool import ThreadPool\n"


def at_the_other(source: str) -> dict[str, Any]:
    """Run a cell on one replica and one more on the other; return the namespace of that one."""
    return moved(source, "more = 1", "again = 1")


def told(delta: Delta) -> dict[str, bool]:
    """Return the names that a delta sets, and whether they are bound to its process."""
    return {name: bool(component.pins) for component in delta.components for name in component.names}


@pytest.mark.parametrize(
    "source",
    [
        "with ProcessPoolExecutor(1, mp_context=fork) as ex: done = list(ex.map(abs, [-1]))",
        "ex = ProcessPoolExecutor(1, mp_context=fork); done = [ex.submit(abs, -1).result()]; ex.shutdown()",
    ],
)
def test_an_executor_of_processes_that_was_shut_down_travels(source: str) -> None:
    space = at_the_other(EXECUTOR + source)
    assert space["done"] == [1]
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        space["ex"].submit(abs, 1)
    space["ex"].shutdown()


def test_an_executor_of_processes_that_may_get_work_stays() -> None:
    notebook = Notebook("r1")
    assert told(notebook.run(EXECUTOR + "ex = ProcessPoolExecutor(1, mp_context=fork)", 1))["ex"]
    assert told(notebook.run("done = ex.submit(abs, -1).result(); box = [ex]", 2))["box"]
    assert told(notebook.run("ex.shutdown()", 3)) == {"ex": False, "box": False}


@pytest.mark.parametrize(
    "source",
    [
        FORK + "with fork.Pool(1) as pool: done = pool.map(abs, [-1])",
        FORK + "pool = fork.Pool(1); done = pool.map(abs, [-1]); pool.close(); pool.join()",
        THREADS + "with ThreadPool(2) as pool: done = pool.map(abs, [-1])",
        THREADS + "pool = ThreadPool(2); done = pool.map(abs, [-1]); pool.close(); pool.join()",
    ],
)  # fmt: skip
def test_a_pool_that_is_closed_travels(source: str) -> None:
    space = at_the_other(source)
    assert space["done"] == [1]
    with pytest.raises(ValueError, match="Pool not running"):
        space["pool"].map(abs, [1])
    space["pool"].close()
    space["pool"].join()
    with pytest.raises(ValueError, match="Pool not running"), space["pool"]:
        pass
    space["pool"].terminate()
    assert "pool_size=0" in repr(space["pool"])


def test_a_pool_that_may_get_work_stays() -> None:
    notebook = Notebook("r1")
    assert told(notebook.run(THREADS + "pool = ThreadPool(1)", 1))["pool"]
    assert told(notebook.run("pool.terminate(); pool.join()", 2)) == {"pool": False}


def test_a_process_that_has_ended_travels_and_says_how() -> None:
    space = at_the_other(
        FORK + "def work(status): raise SystemExit(status)\n"
        "class Own(fork.Process):\n  def __init__(self): super().__init__(name='own'); self.seen = [1]\n"
        "  def run(self): pass\n"
        "p = fork.Process(target=work, args=(3,), daemon=True); p.start(); p.join(); pid = p.pid\n"
        "own = Own(); own.start(); own.join(); own.close()"
    )
    p = space["p"]
    assert (p.exitcode, p.is_alive(), p.pid, p.daemon) == (3, False, space["pid"], True)
    assert p.authkey == multiprocessing.current_process().authkey
    p.join()
    p.close()
    assert (space["own"].name, space["own"].seen) == ("own", [1])
    with pytest.raises(ValueError, match="process object is closed"):
        space["own"].join()


def test_a_process_that_was_not_begun_begins_elsewhere() -> None:
    space = at_the_other(FORK + "p = fork.Process(target=abs, args=(1,)); main = mp.current_process()")
    assert space["main"] is multiprocessing.current_process()
    space["p"].start()
    space["p"].join()
    assert space["p"].exitcode == 0
    space["p"].close()


def test_the_key_of_processes_is_in_no_delta() -> None:
    one, two = pair()
    delta = one.run(FORK + "p = fork.Process(target=abs); own = fork.Process(); own.authkey = b'mine'", 1)
    held = b"".join((repr(delta).encode(), *one.cache.chunks.values()))
    for key in (multiprocessing.current_process().authkey, b"mine"):
        assert key not in held and repr(bytes(key))[2:-1].encode() not in held
    assert told(delta) == {"mp": False, "fork": False, "p": False, "own": True}
    assert two.take(delta).failed == ()
    assert two["p"].authkey == multiprocessing.current_process().authkey


def test_a_manager_that_was_shut_down_travels() -> None:
    space = at_the_other(FORK + "with fork.Manager() as manager: held = dict(manager.dict(a=1))")
    assert space["held"] == {"a": 1}
    with pytest.raises(AssertionError, match="server not yet started"):
        space["manager"].dict()


def test_a_process_that_runs_stays() -> None:
    notebook = Notebook("r1")
    source = "import time\np = fork.Process(target=time.sleep, args=(60,)); p.start()"
    assert told(notebook.run(FORK + source, 1))["p"]
    assert told(notebook.run("p.terminate(); p.join()", 2)) == {"p": False}
    notebook["p"].close()


def test_an_entry_of_a_directory_travels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("four")
    (tmp_path / "b").mkdir()
    space = at_the_other(
        f"import os\nwith os.scandir({str(tmp_path)!r}) as found: entries = {{e.name: e for e in found}}\n"
        f"spent = os.scandir({os.fsencode(tmp_path)!r}); raw = sorted(spent, key=lambda e: e.name)\n"
        "first = raw[0]; twice = [*os.scandir('/proc/self'), *os.scandir('/proc/self')]"
    )
    entries = space["entries"]
    assert (entries["a.txt"].path, entries["a.txt"].stat().st_size) == (str(tmp_path / "a.txt"), 4)
    assert (entries["a.txt"].is_dir(), entries["b"].is_dir()) == (False, True)
    assert [e.path for e in space["raw"]] == [os.fsencode(tmp_path / "a.txt"), os.fsencode(tmp_path / "b")]
    assert space["first"] is space["raw"][0]
    assert len({id(e) for e in space["twice"]}) == len(space["twice"])
    assert list(space["found"]) == list(space["spent"]) == []


def test_a_directory_is_read_once_for_all_its_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    one, two = pair()
    delta = one.run(f"import os\nentries = list(os.scandir({str(tmp_path)!r}))", 1)
    read: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> Any:
        read.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    assert two.take(delta).failed == ()
    assert [e.path for e in two["entries"]] == [e.path for e in one["entries"]]
    assert len(read) == 1


def test_an_entry_whose_file_is_gone_is_missed_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    one, two = pair()
    delta = one.run(f"import os\nentries = list(os.scandir({str(tmp_path)!r})); n = len(entries)", 1)
    (tmp_path / "a").unlink()
    two.take(delta)
    assert two["n"] == 1
    with pytest.raises(Exception, match=str(tmp_path / "a")):
        two["entries"][0].name


def test_a_directory_that_is_still_read_stays() -> None:
    notebook = Notebook("r1")
    assert told(notebook.run("import os\nfound = os.scandir('/'); e = next(found).name", 1))["found"]
    assert told(notebook.run("found.close()", 2)) == {"found": False}


def test_a_closed_file_of_codecs_travels(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("ä\nb\n")
    opened = f"codecs.open({str(tmp_path / 'f')!r}, 'r+', "
    space = at_the_other(
        f"import codecs\nwith {opened}'utf-8') as f: line = f.readline()\nwith {opened}'latin-1') as g: pass"
    )
    assert space["line"] == "ä\n"
    assert (space["f"].closed, space["f"].encoding, space["g"].closed) == (True, "utf-8", True)
    with pytest.raises(ValueError, match="closed file"):
        space["g"].read(1)


def test_an_open_file_of_codecs_stays(tmp_path: Path) -> None:
    notebook = Notebook("r1")
    source = f"import codecs\nf = codecs.open({str(tmp_path / 'f')!r}, 'w', 'utf-8')"
    assert told(notebook.run(source, 1))["f"]
    assert told(notebook.run("f.close()", 2)) == {"f": False}


def test_what_a_command_has_printed_leaves_travels() -> None:
    space = at_the_other("import os\nwith os.popen('echo 1') as f: said = f.read()")
    assert space["said"] == "1\n" and space["f"].closed


def test_results_of_a_pool_travel_once_they_have_come() -> None:
    space = at_the_other(
        THREADS + "with ThreadPool(1) as pool:\n  some = [pool.apply_async(abs, (-n,)) for n in range(3)]\n"
        "  done = [one.get() for one in some]; rows = pool.imap(abs, [-1, -2]); first = list(rows)"
    )
    assert [one.get() for one in space["some"]] == space["done"] == [0, 1, 2]
    assert list(space["rows"]) == []


def test_a_closed_member_of_a_tar_file_travels(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        tar.add(__file__, "m")
    space = at_the_other(
        f"import tarfile\nwith tarfile.open({str(tmp_path / 't.tar')!r}) as tar, tar.extractfile('m') as f:\n"
        "  line = f.readline()"
    )
    assert space["f"].closed and space["line"].startswith(b'"""What')


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_member_of_a_closed_tar_file_that_was_read_travels(tmp_path: Path, mode: str) -> None:
    with tarfile.open(tmp_path / "t.tar", mode) as tar:  # type: ignore[call-overload]
        tar.add(__file__, "m")
    opened = (
        f"import tarfile\nwith tarfile.open({str(tmp_path / 't.tar')!r}) as tar: f = tar.extractfile('m'); "
    )
    space = at_the_other(opened + "text = f.read()")
    assert space["text"] == Path(__file__).read_bytes() and space["f"].read() == b""
    assert told(Notebook("r1").run(opened + "text = f.read(5)", 1))["f"]
