"""Process state between two real processes with an IPython shell each: a cell here, what it shows there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.needs import need

PROCESS = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from replkernel.state.process.parts import Baseline, process_pins, settle, troubles

shell = InteractiveShell.instance()
shell.run_cell("pass")
baseline = Baseline.take(shell)
told, cells = json.loads(sys.stdin.read())
parts = {part.cid: part for part in baseline.parts}
for cid, data in told.items():
    parts[cid].load(bytes.fromhex(data))
failed = settle(baseline.parts)
shown = []
for cell in cells:
    result = shell.run_cell(cell)
    result.raise_error()
    shown.append(repr(result.result))
dumped = {cid: data.hex() for cid, part in parts.items() if (data := part.dump()) is not None}
pins = [pin.reason for pin in process_pins(1, "r1", baseline)]
again = [cid for cid, part in parts.items() if part.dump() is not None and part.dump().hex() != dumped[cid]]
print("\\n@@@" + json.dumps([dumped, shown, pins, list(troubles(baseline.parts)), list(failed), again]))
"""

REBUILT = """
import gc
from replkernel.state.process.parts import settle
from replkernel.state.process.part import Part
settle([part for part in gc.get_objects() if isinstance(part, Part)])
"""


class Outcome:
    """What a process said: dumps by component, repr of each cell's value, pins, troubles, failed imports."""

    def __init__(self, text: str) -> None:
        self.dumped, self.shown, self.pins, self.troubles, self.failed, self.unstable = json.loads(text)


Run: TypeAlias = Callable[..., Outcome]

NURSERY = """
import json, os, random, sys
import IPython.core.interactiveshell, replkernel.state.process.parts

for line in sys.stdin:
    place, program, environment = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(environment)
        os.dup2(os.open("in", os.O_RDONLY), 0)
        for number, name in enumerate(("out", "err"), 1):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        sys.stdin = open(0)
        random.seed()
        exec(program, {"__name__": "__main__"})
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""Forks each process from one that has IPython imported."""


@pytest.fixture(scope="module")
def spawner() -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-c", NURSERY]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def run(spawner: subprocess.Popen[str], tmp_path: Path) -> Run:
    def run_cells(cells: list[str], told: dict[str, str] | None = None) -> Outcome:
        assert spawner.stdin is not None
        assert spawner.stdout is not None
        (tmp_path / "in").write_text(json.dumps([told or {}, cells]))
        spawner.stdin.write(json.dumps([str(tmp_path), PROCESS, dict(os.environ)]) + "\n")
        spawner.stdin.flush()
        assert spawner.stdout.readline() == "0\n", (tmp_path / "err").read_text()
        return Outcome((tmp_path / "out").read_text().rpartition("@@@")[2])

    return run_cells


@pytest.mark.parametrize(
    ("change", "look", "shown"),
    [
        ("import random; random.seed(8); random.random()", "random.random()", None),
        (
            "import numpy as np; np.random.seed(8); np.random.rand()",
            "sys.modules['numpy'].random.rand()",
            None,
        ),
        ("import xml.dom.minidom", "'xml.dom.minidom' in sys.modules", "True"),
        (
            "import os; os.environ['NB'] = 'x'; del os.environ['NB_BIRTH']",
            "os.environ.get('NB'), os.environ.get('NB_BIRTH')",
            "('x', None)",
        ),
        ("%precision 3", "get_ipython().display_formatter.format(1.23456)[0]['text/plain']", "'1.235'"),
        (
            "%alias greet echo hello %s",
            "get_ipython().alias_manager.get_alias('greet').cmd",
            "'echo hello %s'",
        ),
        ("%alias_magic t timeit", "get_ipython().find_line_magic('t').magic_name", "'timeit'"),
        (
            "%load_ext autoreload\n%autoreload 2",
            "get_ipython().magics_manager.registry['AutoreloadMagics']._reloader.check_all",
            "True",
        ),
        ("get_ipython().ast_node_interactivity = 'all'", "get_ipython().ast_node_interactivity", "'all'"),
        ("%xmode Minimal", "get_ipython().InteractiveTB.mode", "'Minimal'"),
        (
            "import pandas as pd; pd.options.display.max_rows = 6",
            "sys.modules['pandas'].options.display.max_rows",
            "6",
        ),
        (
            "import matplotlib.pyplot as plt; plt.style.use('ggplot')",
            "sys.modules['matplotlib'].rcParams['axes.grid']",
            "True",
        ),
        (
            "import warnings; warnings.simplefilter('error', FutureWarning)",
            "sys.modules['warnings'].filters[0][:3:2]",
            "('error', <class 'FutureWarning'>)",
        ),
    ],
)
def test_process_state_that_a_cell_changed_shows_in_another_process(
    change: str, look: str, shown: str | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NB_BIRTH", "1")
    here = run([change])
    assert (here.pins, here.unstable) == ([], [])
    there = run(["import sys, os, random", look], here.dumped)
    assert (there.troubles, there.failed) == ([], [])
    if shown is None:
        expected = run([change, "import sys, os, random", look]).shown[-1]
        assert there.shown[-1] == expected
    else:
        assert there.shown[-1] == shown


def test_a_process_that_did_nothing_says_nothing(run: Run) -> None:
    assert run(["x = 1"]).dumped == {}


def test_the_receiver_says_again_exactly_what_it_was_told(run: Run) -> None:
    cell = "import numpy, os, random, warnings, decimal\nrandom.seed(1); os.environ['A'] = '1'; %precision 2"
    here = run([cell.replace("; %precision 2", ""), "%precision 2"])
    there = run(["1"], here.dumped)
    assert there.dumped == here.dumped


def test_the_notebooks_own_hooks_pin_or_travel_by_their_names(run: Run) -> None:
    gone = "from IPython.core.magic import register_line_magic\n"
    gone += "@register_line_magic\ndef shout(line): return line\ndel shout"
    assert run([gone]).pins == []
    handler = "get_ipython().set_custom_exc((ValueError,), lambda *a, **k: None)"
    assert run([handler]).pins == []
    named = (
        "def after(*a): pass\nget_ipython().events.register('post_run_cell', after)\n"
        "from IPython.core.magic import register_line_magic\n"
        "@register_line_magic\ndef shout(line): return line.upper()"
    )
    here = run([named])
    assert here.pins == []
    cells = [
        "count = []\ndef after(*a): count.append(1)\ndef shout(line): return line.upper()",
        REBUILT,
        "get_ipython().run_line_magic('shout', 'hi')",
        "bool(count)",
    ]
    assert run(cells, here.dumped).shown[-2:] == ["'HI'", "True"]


def test_threads_and_children_of_the_notebook_pin(run: Run) -> None:
    cell = (
        "import subprocess, sys, threading\nevent = threading.Event()\n"
        "thread = threading.Thread(target=event.wait, daemon=True, name='poll'); thread.start()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "import atexit; atexit.register(child.kill)"
    )
    thread, child = run([cell]).pins
    assert thread == "A running thread cannot be copied to another process."
    assert child.startswith("A running process (")


def test_torchs_generator_and_options_travel(run: Run) -> None:
    need("torch")
    cell = "import torch; torch.manual_seed(4); torch.set_default_dtype(torch.float64); torch.rand(1)"
    cell += f"; torch.set_num_threads({max(1, (os.cpu_count() or 2) // 2)})"
    look = "torch.rand(1).item(), str(torch.get_default_dtype()), torch.get_num_threads()"
    look_and_leave = f"state = torch.get_rng_state(); seen = {look}; _ = torch.set_rng_state(state); seen"
    here = run([cell, look_and_leave])
    assert run([f"import torch; {look}"], here.dumped).shown == here.shown[-1:]


REPLICA_WITH_THE_OLD_CODE = """
import os, sys
from IPython import get_ipython
from replkernel.state.libraries.ipython.extensions import ExtensionsPart
here, there = ExtensionsPart(get_ipython()), ExtensionsPart(get_ipython())
sys.path.insert(0, os.getcwd())
import edited
"""


def test_autoreload_sees_an_edit_made_before_it_was_loaded_here(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "edited.py"
    source.write_text("def value(): return 1\n")
    load = (
        "import sys, os; sys.path.insert(0, os.getcwd())\nimport edited\n%load_ext autoreload\n%autoreload 2"
    )
    told = run([load]).dumped["@ipython_extensions"]
    edit = (
        "source = open('edited.py', 'w'); source.write('def value(): return 22\\n'); source.close()\n"
        "os.utime('edited.py', (2e9, 2e9))\n"
        f"there.load(bytes.fromhex('{told}')); there.settle()"
    )
    assert run([REPLICA_WITH_THE_OLD_CODE, edit, "edited.value()"]).shown[-1] == "22"


def test_autoreload_sees_an_edit_by_the_first_cell_after_an_import_while_rebuilding(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "edited.py").write_text("def value(): return 1\n")
    load = "%load_ext autoreload\n%autoreload 2"
    imported = "import edited; there.settle()"
    first = (
        "import os, sys; sys.path.insert(0, os.getcwd())\n"
        "from replkernel.state.libraries.ipython.extensions import ExtensionsPart\n"
        "there = ExtensionsPart(get_ipython())"
    )
    edit = (
        "source = open('edited.py', 'w'); source.write('def value(): return 22\\n'); source.close()\n"
        "os.utime('edited.py', (2e9, 2e9))"
    )
    assert run([first, load, f"{imported}\n{edit}", "edited.value()"]).shown[-1] == "22"
