"""What magics and the shell keep: stored values, timings, resets, hooks, transformers, aliases, extensions, widgets."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "values stored by %store",
    "keep = {'a': [1, 2]}; other = 'x'\n%store keep other",
    "del keep",
    "%store -r keep\nprint(keep)",
    "keep['a'].append(3)\n%store keep\n%store -d other",
    "keep = None\n%store -r",
    "print(keep, sorted(get_ipython().db['autorestore/' + k] and k for k in ['keep']), 'autorestore/other' in get_ipython().db)",
)
sequence(
    "results of timings and captured output",
    "t = %timeit -n 2 -r 2 -q -o sum(range(10))\nprint(t.loops, t.repeat, len(t.all_runs), len(t.timings))",
    "best = t.best",
    "%%capture cap\nimport sys\nprint('out'); print('err', file=sys.stderr); display({'k': 1}); 7",
    "print(t.best == best, t.worst >= best, cap.stdout, cap.stderr, len(cap.outputs), type(t).__name__)",
    "cap()",
    "t2 = %timeit -n 1 -r 1 -q -o sum([])",
    "print(t2.loops, cap.outputs[0].data['text/plain'], t.average >= 0, len(t2.timings), t.all_runs is not t2.all_runs)",
)
sequence(
    "names reset, deleted and pushed by the shell",
    "a = 1; b = [2]; c = 3; keep_me = b; import math; ip = get_ipython(); ip.push({'pushed': b, '_hidden': 1}); 5",
    "%reset_selective -f ^c$",
    "%xdel a",
    "print('a' in globals(), 'c' in globals(), pushed is b is keep_me, _hidden)\n%who list",
    "ip.drop_by_id({'pushed': b}); ip.del_var('keep_me')",
    "%reset -f in\nprint(len(In), 'pushed' in globals())",
    "x = 10\nx",
    "%reset -f",
    "print([n for n in globals() if not n.startswith('_') and n not in ('In', 'Out', 'exit', 'quit', 'open', 'get_ipython')], len(Out))",
    "y = 2",
    "print(y, 'x' in globals(), 'math' in globals(), _ih[-1] if False else 'ok')",
)
sequence(
    "transformers, hooks and prefixes of the shell",
    """
ip = get_ipython(); calls = []
class Hooks:
    def __init__(self): self.n = 0
    def pre(self): self.n += 1
    def post(self, result): calls.append((self.n, result.result))
hooks = Hooks(); ip.events.register('pre_execute', hooks.pre); ip.events.register('post_run_cell', hooks.post)
def swap(lines): return [line.replace('<<', 'calls.append(').replace('>>', ')') for line in lines]
ip.input_transformers_post.append(swap)
""",
    "<<'marked'>>",
    "1 + 1",
    "ip.set_hook('synchronize_with_editor', lambda *a: None); ip.events.unregister('post_run_cell', hooks.post)",
    "<<'again'>>; hooks.n",
    "ip.input_transformers_post.remove(swap); n = hooks.n",
    "print([c for c in calls if isinstance(c, str)], calls[:1], ip.input_transformers_post)",
    pinned=True,
)
sequence(
    "aliases, bookmarks, directory history and the environment",
    "import os\nos.makedirs('p/q')\n%alias hey echo hey %l",
    "%cd -q p",
    "%hey you",
    "%cd -q ..\n%cd -q p/q\n%cd -q ..\nprint(os.path.basename(os.getcwd()), len(_dh))",
    "%env NEW_VAR=a b\n%set_env OTHER {1 + 1}",
    "print(os.environ['NEW_VAR'], os.environ['OTHER'])\n%unalias hey",
    "%cd -q -\nprint(os.path.basename(os.getcwd()) == 'p', [os.path.basename(d) for d in _dh[-2:]])",
    "%env OTHER=\nprint(repr(os.environ['OTHER']), 'hey' in dict(get_ipython().alias_manager.aliases))",
)
sequence(
    "an extension of the notebook's own, loaded, reloaded, unloaded",
    "%%writefile my_ext.py\nstate = {'loads': 0, 'calls': []}\ndef hello(line): state['calls'].append(line); return len(state['calls'])\ndef load_ipython_extension(ip): state['loads'] += 1; ip.register_magic_function(hello, 'line', 'hello'); ip.push({'ext_state': state})\ndef unload_ipython_extension(ip): ip.magics_manager.magics['line'].pop('hello', None); state['loads'] -= 10",
    "%load_ext my_ext",
    "%hello one",
    "%hello two\nprint(ext_state, 'my_ext' in get_ipython().extension_manager.loaded)",
    "%reload_ext my_ext",
    "n = %hello three",
    "print(n, ext_state['calls'], ext_state['loads'])",
    "%unload_ext my_ext",
    "print('hello' in get_ipython().magics_manager.magics['line'], 'my_ext' in get_ipython().extension_manager.loaded)",
    pinned=True,
)
sequence(
    "options of the shell: precision, traceback, automagic, logging of input",
    "%precision %.2e\n%xmode Plain",
    "1234.5678",
    "%automagic off",
    "1 / 0",
    "%config InteractiveShell.ast_node_interactivity = 'last_expr_or_assign'",
    "z = 3.14159",
    "%xmode Verbose\n%precision 3",
    "def f(q): return q / 0\nf(z)",
    "%xmode Context\n%config InteractiveShell.ast_node_interactivity = 'last_expr'\nget_ipython().history_length = 7",
    "z * 2",
    "%precision\nprint(get_ipython().automagic, get_ipython().history_length, get_ipython().InteractiveTB.mode)",
)
sequence(
    "displays updated, rich reprs by mime and formatters by type",
    """
from IPython.display import *
class Both:
    def __init__(self): self.n = 0
    def _repr_mimebundle_(self, include=None, exclude=None): self.n += 1; return {'text/plain': f'both {self.n}', 'application/x-mine': {'n': self.n}}, {'application/x-mine': {'m': 1}}
class Shown:
    def _ipython_display_(self): print('displays itself')
b = Both(); s = Shown(); h = display(b, display_id='bb')
""",
    "b",
    "h.update(s)",
    "s",
    "display(b, include=['text/plain'], display_id='cc')\nimg = Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + b'0' * 20, format='png', width=3); js = JSON({'a': [1]}); p = ProgressBar(3)",
    "display(js, Latex('$x$'), Code('x = 1', language='python'), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))",
    "p.progress = 2",
    "print(b.n, h.display_id, img.width, js.data, p.progress, p.total)",
    pinned=True,
)
sequence(
    "trees of widgets with links, observers and an output",
    """
import ipywidgets as w, traitlets as t
a = w.IntSlider(3, max=50); b = w.FloatText(); c = w.Dropdown(options=[('one', 1), ('two', 2)], value=2); log = []
link = t.dlink((a, 'value'), (b, 'value'), lambda v: v / 2); a.observe(lambda ch: log.append((ch.old, ch.new)), 'value'); btn = w.Button(description='go'); btn.on_click(lambda _: log.append('clicked')); tab = w.Tab([w.VBox([a, b]), w.HBox([c, btn])], titles=('x', 'y')); a.style.handle_color = 'red'; a.layout.width = '50%'
def show(x, y=1): log.append(('show', x, y)); return x
ui = w.interactive(show, x=(0, 9), y=[1, 2])
""",
    "a.value = 10; btn.click()",
    "print(log[:3], b.value, tab.children[0].children[0] is a, tab.titles, a.style.handle_color, a.layout.width)",
    "link.unlink(); a.value = 20; c.index = 0; ui.children[0].value = 7",
    "print(b.value, c.value, c.label, log[-2:], ui.kwargs, a.keys[:3])",
    "a.unobserve_all(); a.value = 30; tab.children = tab.children[::-1]",
    "print(len(log), a.value, tab.children[1].children[1] is b, tab.selected_index, ui.result, len(a._trait_notifiers.get('value', {}).get('change', [])))",
    needs=("ipywidgets",),
    pinned=True,
)
sequence(
    "an underscore that was the user's, and was given back",
    "[1, 2]",
    "_.append(3); _",
    "{'k': Out[1]}",
    "_3['k'].append(4)",
    "_ = 'mine'\n5",
    "print(_, __, ___); del _",
    "7",
    "print(_, Out.keys())",
)
sequence(
    "interactivity of the shell's class, and then of the shell",
    "from IPython.core.interactiveshell import InteractiveShell\nInteractiveShell.ast_node_interactivity = 'all'\n%pprint",
    "1\n2",
    "get_ipython().ast_node_interactivity = 'last_expr'\n5\n6",
    "7\n8",
    "print(get_ipython().ast_node_interactivity, InteractiveShell.ast_node_interactivity)",
)
sequence(
    "a completer that was set up, and formatters that were switched off",
    "ip = get_ipython(); ip.Completer.use_jedi = False; f = ip.display_formatter.formatters\n"
    "class H:\n  def _repr_html_(s): return '<b>'\n  def _repr_latex_(s): return '$x$'\n"
    "class O:\n  def __dir__(s): return ['zed', 'zoo']\n"
    "o = O(); H.__repr__ = lambda s: 'H'; f['text/html'].enabled = False",
    "H()",
    "print(ip.complete('o.z')[1], ip.Completer.use_jedi, f['text/html'].enabled)\n%config IPCompleter.greedy = True",
    "f['text/html'].enabled = True; ip.display_formatter.active_types = ['text/plain', 'text/latex']; H()",
    "print(f['text/html'].enabled, ip.display_formatter.active_types)\n%config IPCompleter.greedy",
    "%config\nH()",
)
sequence(
    "the shell where the notebook has imported get_ipython",
    "from IPython import get_ipython\nfrom IPython.core.magics.namespace import NamespaceMagics\n"
    "import ipywidgets as w\nip = get_ipython(); nms = NamespaceMagics(ip)\n"
    "s = w.IntSlider(3); log = []; s.observe(lambda c: log.append(c['new']), 'value')",
    "s.value = 5; print(ip is get_ipython(), nms.shell is ip, ip.user_ns is globals(), log)",
    "print(nms.who_ls('int list'), s.value)",
    needs=("ipywidgets",),
    pinned=True,
)
sequence(
    "attributes and functions bound on the shell",
    "ip = get_ipython(); old = ip.run_line_magic; log = ip.box = []\n"
    "def run(*a, **k): log.append(a[0]); return old(*a, **k)\n"
    "ip.run_line_magic = run; ip.showtraceback = lambda *a, **k: print('TB!')",
    "1/0",
    "%precision 3\nprint(log, ip.box is log)",
    "del ip.showtraceback, ip.run_line_magic; ip.box.append('x')",
    "1/0",
    "%precision\nprint(log, ip.box is log, 'showtraceback' in vars(ip)); k = ip.box; del ip.box",
    "print(k, hasattr(ip, 'box'))",
    "print(k, hasattr(ip, 'box'), ip.run_line_magic.__self__ is ip)",
)
sequence(
    "an extension with a hook, reloaded and unloaded",
    """%%writefile ext2.py
import types
STATE = types.SimpleNamespace(runs=0, cells=[])
def _post(result):
    STATE.runs += 1
def load_ipython_extension(ip):
    ip.events.register("post_run_cell", _post)
def unload_ipython_extension(ip):
    ip.events.unregister("post_run_cell", _post)
""",
    """
import sys, os; sys.path.insert(0, os.getcwd())
%load_ext ext2
import ext2
""",
    """
print(ext2.STATE.runs)
""",
    """
ext2.STATE.cells.append("x")
%reload_ext ext2
""",
    """
%unload_ext ext2
seen = ext2.STATE.runs
print(seen, ext2.STATE.cells)
""",
    """
print(ext2.STATE.runs - seen, ext2.STATE.cells)
""",
)
sequence(
    "a callback from a module under autoreload",
    """
%load_ext autoreload
%autoreload 2
import sys, os; sys.path.insert(0, os.getcwd()); sys.dont_write_bytecode = True
open("work.py", "w").write("seen = []\\ndef hook(result):\\n    seen.append('old')\\n")
os.utime("work.py", (1, 1000))
import work
get_ipython().events.register("post_run_cell", work.hook)
""",
    """
x = 1
""",
    """
open("work.py", "w").write("def hook(result):\\n    seen.append('new')\\nseen = []\\n")
os.utime("work.py", (1, 2000))
""",
    """
y = 2
""",
    """
print(work.seen[:5], get_ipython().events.callbacks["post_run_cell"][-1] is work.hook)
""",
    """
get_ipython().events.unregister("post_run_cell", work.hook)
kept = list(work.seen)
""",
    """
print(kept, work.seen)
""",
)
sequence(
    "magics with state from an extension of the notebook's own",
    """%%writefile magic_mod.py
from IPython.core.magic import Magics, magics_class, line_magic, cell_magic
@magics_class
class Ledger(Magics):
    def __init__(self, shell, start=0):
        super().__init__(shell); self.lines = [start]
    @line_magic
    def note(self, line):
        self.lines.append(line); return len(self.lines)
    @cell_magic
    def block(self, line, cell):
        self.lines.append(cell.strip())
count = [0]
def tick(line):
    count[0] += 1
    return count[0]
def load_ipython_extension(ip):
    ip.register_magics(Ledger(ip, 100))
    ip.register_magic_function(tick, "line", "tock")
""",
    """
import sys, os; sys.path.insert(0, os.getcwd())
%load_ext magic_mod
%note first
""",
    """
%note second
""",
    """%%block
text
""",
    """
%tock
""",
    """
import magic_mod
led = get_ipython().magics_manager.registry["Ledger"]
print(led.lines, magic_mod.count)
""",
    """
%note third
print(led.lines, magic_mod.count, get_ipython().magics_manager.registry["Ledger"] is led)
""",
    """
print(led.lines, magic_mod.count, get_ipython().magics_manager.registry["Ledger"] is led, get_ipython().magics_manager.magics["line"]["note"].__self__ is led)
""",
)
sequence(
    "magics, a transformer and a printer from a module",
    """%%writefile magic_two.py
from IPython.core.magic import Magics, magics_class, line_magic
import ast
@magics_class
class Two(Magics):
    made = 0
    def __init__(self, shell):
        super().__init__(shell); self.n = 0; Two.made += 1
    @line_magic
    def two(self, line):
        self.n += 1; return self.n
def one(line, cell=None): return line.upper() + (cell or "")
class Sevens(ast.NodeTransformer):
    hits = 0
    def visit_Constant(self, node):
        if node.value == 7:
            self.hits += 1
            return ast.copy_location(ast.Constant(8), node)
        return node
def fmt(c): return f"<{c.real}>"
""",
    """
import sys, os; sys.path.insert(0, os.getcwd())
import magic_two
ip = get_ipython()
ip.register_magics(magic_two.Two)
ip.register_magic_function(magic_two.one, "line_cell", "uno")
ip.ast_transformers.append(magic_two.Sevens())
ip.display_formatter.formatters["text/html"].for_type(complex, magic_two.fmt)
%two
""",
    """
%two
""",
    """%%uno ab
cd
""",
    """
x = 7
1 + 2j
""",
    """
r = %two
print(r, x, magic_two.Two.made, ip.ast_transformers[-1].hits, ip.run_line_magic("uno", "z"))
""",
    """
print(r, x, magic_two.Two.made, ip.run_line_magic("uno", "z"), ip.magics_manager.registry["Two"].n, ip.ast_transformers[-1].hits, type(ip.ast_transformers[-1]) is magic_two.Sevens)
""",
)
sequence("the doctest mode", "%doctest_mode", "[1, 'two']", "%doctest_mode", "%doctest_mode", "1 / 0")
