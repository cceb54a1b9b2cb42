"""Magics of all days: scripts run in the namespace, cells saved, rerun and loaded, profiles, shells, payloads."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "scripts run in the namespace, cells written, appended and saved",
    "%%writefile part.py\ncount = globals().get('count', 0) + 1\nclass Made:\n    n = count\n    def who(self): return (type(self).__module__, self.n, count)\ndef reads(): return count, other\n",
    "other = 'mine'\n%run -i part.py",
    "m = Made(); print(count, m.who(), reads())",
    "%run -i part.py",
    "print(count, m.who(), Made().who(), type(m) is Made, reads())",
    "%%writefile -a part.py\nlate = [count]\n",
    "%run part.py",
    "print(count, late, m.who()[2], Made().n)",
    "%save -f kept.py 3 5",
    "print(open('kept.py').read().count('print'))",
)
sequence(
    "cells recalled, rerun and edited through macros",
    "x = 1",
    "x += 10; print(x)",
    "%macro -q twice 2 2",
    "twice",
    "%rerun 2",
    "m = twice; m2 = m + 'print(\"added\")\\n' if False else m\nprint(type(m).__name__, m.value.count('x +='))",
    "%recall 2",
    "x = 5",
    "m2",
    "print(x, len(In) > 8, In[2])",
)
sequence(
    "payloads, pagers, pinfo and help of things of the notebook",
    "def area(w, h=2):\n    'Area of a box.'\n    return w * h\nclass Box:\n    'A box.'\n    def __init__(self, w): self.w = w\n    @property\n    def big(self): raise RuntimeError('touched')\nb = Box(3)",
    "area?",
    "area??",
    "Box??",
    "%pdef area",
    "%pdoc Box",
    "b.w?",
    "%psource area",
    "get_ipython().set_next_input('y = 1')",
    "print(get_ipython().inspector is not None, get_ipython().object_inspect('area')['docstring'])",
)
sequence(
    "shell commands, exit codes and scripts that leave variables",
    "!true\nprint(_exit_code)",
    "!exit 3",
    "print(_exit_code)",
    "%%sh --out o --err e\necho out; echo err >&2",
    "print(repr(o), repr(e))",
    "files = %sx echo a b",
    "x = 'v w'; got = !echo \"$x\" {len(x)} ${HOME:+home}\nprint(files, got, got.s, got.l)",
    "%%script --no-raise-error bash\nexit 2",
    "print(files.fields(0), _exit_code)",
)
sequence(
    "profiles, timers and the debugger's settings",
    "%pdb off\nimport io, pstats\ndef work(): return sum(range(50))",
    "st = %prun -q -r work()",
    "print(type(st).__name__, st.total_calls > 1)",
    "t = 1",
    "t0 = %timeit -o -q -n1 -r3 work()",
    "%prun -q -D prof.out work()",
    "p = pstats.Stats('prof.out'); print(len(t0.all_runs), p.total_calls > 1, get_ipython().call_pdb, t)",
    pinned=True,
)
sequence(
    "a class of magics that no variable holds an instance of",
    """
from IPython.core.magic import Magics, magics_class, line_magic, cell_magic, register_line_magic
@magics_class
class Timer(Magics):
    runs = []
    @line_magic
    def tick(self, line): self.runs.append(line); return len(self.runs)
    @cell_magic
    def twice(self, line, cell):
        self.shell.run_cell(cell); self.shell.run_cell(cell)
get_ipython().register_magics(Timer)
def _register():
    @register_line_magic
    def hidden(line): return line[::-1]
_register()
""",
    "%tick one",
    "%%twice\nprint('hey')",
    """
x = %hidden abc
print(x, Timer.runs, get_ipython().magics_manager.registry['Timer'].runs is Timer.runs)
""",
)
