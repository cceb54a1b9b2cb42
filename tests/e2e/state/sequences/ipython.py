"""What IPython keeps: history, outputs, magics, transformers, events, aliases, display handles, top-level await."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "outputs and the underscores",
    "[1, 2]",
    "_.append(3); _",
    "__ is _",
    "Out[1] is Out[2]",
    "x = {'k': Out[1]}; x",
    "_5['k'] is Out[2], _1",
    "_i, _ii, _i1, In[2]",
    "print(len(In), sorted(Out), _ih is In, _oh is Out, _i5)",
    "Out[1].append('late'); None",
    "print(_1, x['k'] is _1)",
    "print(Out[1], Out[5]['k'] is Out[2])",
)
sequence(
    "execution counts and results",
    "1 + 1",
    "get_ipython().execution_count",
    "'text'",
    "_ + '!'",
    "None",
    "5;",
    "get_ipython().execution_count, _4",
    "a = 5\na",
    "print(_8, len(_ih) > 8, _oh[1], 6 in Out)",
)
sequence(
    "history by magic",
    "x = 1",
    "y = x + 1\nprint(y)",
    "%history -n 1-2",
    "%hist",
    "%macro mac 1-2",
    "x = 10",
    "mac",
    "print(x, y, mac.value)",
)
sequence(
    "magics of the notebook",
    "from IPython.core.magic import register_line_magic, register_cell_magic, register_line_cell_magic\nseen = []\n@register_line_magic\ndef shout(line): seen.append(line); return line.upper()\n@register_cell_magic\ndef twice(line, cell): exec(cell * 2, globals()); seen.append(('cell', line))",
    "%shout hello",
    "n = 0",
    "%%twice arg\nn += 1\n",
    "x = %shout bye\nprint(x, n, seen)",
    "@register_line_magic\ndef shout(line): return 'quiet ' + line",
    "%shout again",
    "print(seen, n, _7)",
)
sequence(
    "magic classes with state",
    "from IPython.core.magic import Magics, magics_class, line_magic, cell_magic\n@magics_class\nclass Count(Magics):\n    def __init__(self, shell): super().__init__(shell); self.n = 0; self.log = []\n    @line_magic\n    def tick(self, line): self.n += 1; self.log.append(line); return self.n\nget_ipython().register_magics(Count)",
    "%tick a",
    "%tick b",
    "t = %tick c\nprint(t)",
    "m = get_ipython().magics_manager.registry['Count']; m.n += 10",
    "%tick d",
    "print(m.n, m.log)",
    pinned=True,
)
sequence(
    "time, capture, who and other magics",
    "%%capture cap\nprint('hidden'); 5",
    "cap.show(); print(repr(cap.stdout))",
    "a = [1]; s = 'x'",
    "%who",
    "%who_ls list",
    "%precision 3",
    "3.14159",
    "%pprint",
    "%xmode Minimal",
    "1 / 0",
    "%xmode Context",
    "print(_7)",
)
sequence(
    "env, cd, pushd, bookmarks, aliases",
    "import os\nos.mkdir('d1'); os.makedirs('d2/x')",
    "%cd -q d1",
    "print(os.path.basename(os.getcwd())); %env FOO=bar",
    "print(os.environ['FOO'])",
    "%cd -q ..",
    "%alias greet echo hi %s",
    "greet there",
    "%pushd d2",
    "print(os.path.basename(os.getcwd()))",
    "%popd",
    "out = !ls d2\nprint(out, out.n)",
    "print(os.environ['FOO'], sorted(os.listdir('.')))",
)
sequence(
    "input transformers and ast transformers",
    "ip = get_ipython()\ndef dollars(lines): return [l.replace('$$', 'twice') for l in lines]\nip.input_transformers_cleanup.append(dollars)\ntwice = 2",
    "x = $$ * 2\nprint(x)",
    "import ast\nclass Bump(ast.NodeTransformer):\n    def visit_Constant(self, n):\n        if type(n.value) is int and n.value == 777: return ast.copy_location(ast.Constant(778), n)\n        return n\nbump = Bump(); ip.ast_transformers.append(bump)",
    "y = 777; print(y)",
    "ip.input_transformers_cleanup.remove(dollars)",
    "ip.ast_transformers.remove(bump)",
    "print(777, x, y, len(ip.ast_transformers), dollars in ip.input_transformers_cleanup)",
    pinned=True,
)
sequence(
    "events of the shell",
    "ip = get_ipython(); log = []\ndef before(info): log.append(('pre', info.raw_cell[:6]))\ndef after(result): log.append(('post', result.success))\nip.events.register('pre_run_cell', before); ip.events.register('post_run_cell', after)",
    "x = 1",
    "1 / 0",
    "y = 2",
    "ip.events.unregister('pre_run_cell', before); ip.events.unregister('post_run_cell', after)",
    "z = 3",
    "print(log, x, y, z)",
)
sequence(
    "display handles and rich reprs",
    "from IPython.display import *\nclass R:\n    def __init__(self): self.shown = 0\n    def _repr_html_(self): self.shown += 1; return f'<b>{self.shown}</b>'\n    def __repr__(self): return f'R({self.shown})'\nr = R(); h = display(r, display_id='fixed')",
    "h.update(r)",
    "r",
    "display(HTML('<i>x</i>'), Markdown('*m*'), metadata={'k': 1})",
    "ip = get_ipython(); ip.display_formatter.formatters['text/plain'].for_type(R, lambda o, p, c: p.text(f'pretty {o.shown}'))",
    "r",
    "h.display(); update_display('new', display_id='fixed')",
    "r.shown = 0; clear_output(); r",
    pinned=True,
)
sequence(
    "top-level await and async iteration",
    "import asyncio\nasync def work(n): await asyncio.sleep(0); done.append(n); return n * 2\ndone = []",
    "r = await work(1)",
    "rs = await asyncio.gather(*(work(i) for i in range(3)))\nprint(r, rs, done)",
    "async def ticks():\n    for i in range(3):\n        await asyncio.sleep(0); yield i\nasync with asyncio.timeout(5):\n    got = [i async for i in ticks()]",
    "print(got)",
    "lock = asyncio.Lock()\nasync with lock: done.append('locked')",
    "print(done, lock.locked(), await work(9)); done.pop()",
)
sequence(
    "a task bound to its loop",
    "import asyncio\nlog = []\nasync def ticker():\n    for i in range(3): log.append(i); await asyncio.sleep(0.01)\n    return 'finished'\ntask = asyncio.ensure_future(ticker())",
    "await asyncio.sleep(0.1)\nprint(log)",
    "result = await task",
    "print(result, log)",
    "del task",
    "log.append('free')",
    "print(log, result)",
    pinned=True,
)
sequence(
    "a running task is lost by name",
    "import asyncio\nasync def forever():\n    while True: await asyncio.sleep(0.05)\ntask = asyncio.ensure_future(forever()); near = [1]",
    "near.append(2)",
    "print(near, task.done())",
    refuses="task",
)
sequence(
    "shell commands, scripts and captured output",
    "name = 'wörld'\n!echo hello {name}",
    "out = !printf 'a\\nb\\n'\nprint(out, type(out).__name__)",
    "%%bash --out bo\necho from bash\nexport Z=1",
    "print(bo)",
    "%%writefile w.py\nval = 41 + 1",
    "%run w.py",
    "print(val)",
    "%%python --out py\nprint('sub')",
    "print(py, val, open('w.py').read())",
)
sequence(
    "interactive options of the shell",
    "ip = get_ipython(); ip.ast_node_interactivity = 'all'",
    "1\n2\n'three'",
    "ip.ast_node_interactivity = 'last_expr_or_assign'",
    "x = [1]",
    "ip.ast_node_interactivity = 'last_expr'",
    "x; y = 2",
    "ip.set_custom_exc((KeyError,), lambda self, et, ev, tb, tb_offset=None: print('custom', ev))",
    "{}['q']",
    "ip.set_custom_exc((), None)",
    "print(x, y, ip.ast_node_interactivity)",
    pinned=True,
)
sequence(
    "user hooks in builtins and displayhook",
    "import builtins, sys\nbuiltins.my_global = [1]",
    "print(my_global)",
    "my_global.append(2)",
    "print(builtins.my_global)",
    "del builtins.my_global",
    "print(hasattr(builtins, 'my_global'))",
)
sequence(
    "formatters of libraries, of names, and ones taken away",
    "import functools, reprlib, fractions\nip = get_ipython(); plain = ip.display_formatter.formatters['text/plain']\nplain.for_type(fractions.Fraction, functools.partial(lambda mark, o, p, c: p.text(f'{mark}{o}'), '~'))",
    "fractions.Fraction(1, 2)",
    "plain.for_type_by_name('decimal', 'Decimal', lambda o, p, c: p.text(f'dec {o}'))\nimport decimal",
    "decimal.Decimal('1.5')",
    "plain.pop(set); ip.display_formatter.ipython_display_formatter.for_type(complex, lambda o: print('shown', o))",
    "1j",
    "{3, 1, 2}.__class__ in plain.type_printers",
    "plain.pop(fractions.Fraction)\nfractions.Fraction(1, 3)",
    "fractions.Fraction(1, 4), decimal.Decimal('2.5')",
)
sequence(
    "a magic of the notebook's that was deleted",
    "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef note(line): return line",
    "%note a",
    "del get_ipython().magics_manager.magics['line']['note']",
    "print('note' in get_ipython().magics_manager.magics['line'])",
)
sequence(
    "magics of the notebook's whose names are gone, and one of IPython's that is given back",
    "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef note(line): return line",
    "del note\nprint(get_ipython().run_line_magic('note', 'a'))",
    "@register_line_magic\ndef pwd(line): return 'nowhere'",
    "get_ipython().magics_manager.magics['line']['pwd'] = get_ipython().magics_manager.registry['OSMagics'].pwd",
    "print(get_ipython().run_line_magic('note', 'b'), get_ipython().run_line_magic('pwd', '') == __import__('os').getcwd())",
    "print('note' in get_ipython().magics_manager.magics['line'], 'pwd' in get_ipython().magics_manager.magics['line'])",
)
sequence(
    "a callback of the shell's whose name becomes another function's, and a magic's too",
    "from IPython.core.magic import register_line_magic\nheard = []\ndef hear(*_): heard.append('first')\nget_ipython().events.register('pre_run_cell', hear)\n@register_line_magic\ndef say(line): return 'first ' + line",
    "def hear(*_): heard.append('second')\ndef say(line): return 'second ' + line",
    "print(heard, get_ipython().run_line_magic('say', 'a'), hear.__name__)",
    "del hear, say\nprint(heard)",
    "print(set(heard), get_ipython().run_line_magic('say', 'b'))",
)
