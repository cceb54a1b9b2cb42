"""Settings of the process that notebooks change: directories, masks, limits, locale, signals, hooks, streams, threads."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "warnings that are caught while logging captures them",
    """
import logging, warnings, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(levelname)s:%(message)s', force=True)
log = logging.getLogger('me'); log.info('first')
""",
    """
class Counts(logging.Filter):
    n = 0
    def filter(self, record): Counts.n += 1; return True
log.addFilter(Counts()); log.info('second')
""",
    "cw = warnings.catch_warnings(record=True); rec = cw.__enter__(); warnings.simplefilter('always')",
    "warnings.warn('caught'); logging.captureWarnings(True); warnings.warn('logged', stacklevel=99)",
    "log.info('third'); print(len(rec), Counts.n)",
    "cw.__exit__(None, None, None); print(warnings.showwarning.__module__, warnings.showwarning.__name__)",
)
sequence(
    "directory, mask, limits and time zone",
    """
import os, sys, time, socket, threading, resource
os.makedirs('w/deep'); os.chdir('w'); os.umask(0o077); sys.setrecursionlimit(4321); sys.setswitchinterval(0.02); os.environ['TZ'] = 'America/New_York'; time.tzset(); socket.setdefaulttimeout(3.5); sys.set_int_max_str_digits(5000); threading.stack_size(1 << 20)
""",
    "open('private', 'w').close(); os.chdir('deep')",
    "print(oct(os.stat('../private').st_mode & 0o777), os.path.basename(os.getcwd()), sys.getrecursionlimit(), sys.getswitchinterval(), time.strftime('%H', time.localtime(0)), socket.getdefaulttimeout(), sys.get_int_max_str_digits(), threading.stack_size())",
    "os.umask(0o027); sys.path.insert(0, os.path.abspath('..')); sys.argv[1:] = ['--flag']; sys.dont_write_bytecode = True; open('p2', 'w').close()",
    "print(oct(os.stat('p2').st_mode & 0o777), sys.argv[1:], sys.path[0] == os.path.dirname(os.getcwd()), sys.dont_write_bytecode, time.tzname, time.timezone)",
    "os.environ.pop('TZ'); time.tzset(); os.chdir('../..')",
    "print(time.tzname, os.path.exists('w/deep'), os.umask(0o027) == 0o027, threading.stack_size(), sys.getswitchinterval())",
    pinned=True,
)
sequence(
    "locale, encodings and number formats",
    """
import locale, calendar, codecs, sys
was = locale.setlocale(locale.LC_ALL); now = locale.setlocale(locale.LC_CTYPE, 'C.UTF-8')
def shout(err): return ('<' + '?' * (err.end - err.start) + '>', err.end)
codecs.register_error('shout', shout)
""",
    "print('é'.encode('ascii', 'shout'), locale.setlocale(locale.LC_CTYPE), locale.localeconv()['decimal_point'])",
    "locale.setlocale(locale.LC_TIME, 'C')\ndef find(name):\n    if name != 'rev': return None\n    return codecs.CodecInfo(lambda s, e='strict': (s[::-1].encode(), len(s)), lambda b, e='strict': (bytes(b).decode()[::-1], len(b)), name='rev')\ncodecs.register(find)",
    "print('abc'.encode('rev'), b'cba'.decode('rev'), codecs.lookup_error('shout') is shout)",
    "print(codecs.lookup('rev').name, 'ü!'.encode('ascii', 'shout'), codecs.lookup_error('shout') is shout)",
    pinned=True,
)
sequence(
    "signal handlers and alarms",
    """
import signal, os, time
hits = []
def on(num, frame): hits.append(signal.Signals(num).name)
old = signal.signal(signal.SIGUSR1, on); signal.signal(signal.SIGUSR2, signal.SIG_IGN)
""",
    "os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR2)",
    "os.kill(os.getpid(), signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR2); print(hits, signal.getsignal(signal.SIGUSR1) is on, signal.getsignal(signal.SIGUSR2))",
    "signal.signal(signal.SIGUSR1, old)",
    "print(hits, signal.getsignal(signal.SIGUSR1) is on, old)",
)
sequence(
    "a handler of a signal that is an object's, and one that was another's before",
    """
import signal, os, functools
class Stop:
    def __init__(self): self.asked = []
    def ask(self, number, frame): self.asked.append(number == signal.SIGUSR2)
    def __call__(self, number, frame): self.asked.append('called')
stop = Stop(); first = signal.signal(signal.SIGUSR2, stop.ask); signal.signal(signal.SIGUSR1, signal.SIG_IGN)
""",
    "os.kill(os.getpid(), signal.SIGUSR2); signal.signal(signal.SIGUSR1, stop)",
    "os.kill(os.getpid(), signal.SIGUSR1); signal.signal(signal.SIGALRM, functools.partial(print, 'alarm'))",
    "before = signal.signal(signal.SIGUSR1, signal.SIG_IGN); os.kill(os.getpid(), signal.SIGUSR1)",
    "os.kill(os.getpid(), signal.SIGUSR2); print(before is stop, stop.asked[:3], signal.getsignal(signal.SIGUSR2).__self__ is stop, signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGALRM).args, first)",
)
sequence(
    "hooks of sys: trace, profile, audit of imports, finders, excepthooks",
    """
import sys, threading, importlib.abc, importlib.util, types
seen = []
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    asked = 0
    def find_spec(self, name, path, target=None):
        if name == 'virtual_mod': self.asked += 1; return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec): return None
    def exec_module(self, m): m.value = [1]; m.f = lambda: m.value
finder = Finder(); sys.meta_path.append(finder); import virtual_mod
""",
    "virtual_mod.value.append(2)",
    "print(virtual_mod.f(), finder.asked, sys.meta_path[-1] is finder, virtual_mod.f() is virtual_mod.value)",
    "threading.excepthook = lambda a: seen.append(('thread', str(a.exc_value))); sys.unraisablehook = lambda u: seen.append('unraisable'); t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()",
    "t = threading.Thread(target=lambda: {}['k']); t.start(); t.join(); print(seen)",
    "threading.excepthook = threading.__excepthook__; sys.meta_path.remove(finder)",
    "import virtual_mod as again; print(again is virtual_mod, len(seen), finder in sys.meta_path, virtual_mod.value)",
    pinned=True,
)
sequence(
    "streams replaced and given back",
    """
import sys, io
class Tee(io.TextIOBase):
    def __init__(self, under): self.under, self.kept = under, []
    def write(self, s): self.kept.append(s); return self.under.write(s)
    def flush(self): self.under.flush()
real = sys.stdout; tee = Tee(real); sys.stdout = tee
""",
    "print('one')",
    "print('two'); n = len(tee.kept)",
    "sys.stdout = real; err, sys.stderr = sys.stderr, io.StringIO(); print('to err', file=sys.stderr)",
    "print('more', file=sys.stderr); print(tee.kept, sys.stdout is real, tee.under is sys.stdout)",
    "text = sys.stderr.getvalue(); sys.stderr = err",
    "print(repr(text), sys.stderr is err, sys.stdin is sys.__stdin__, n)",
    pinned=True,
)
sequence(
    "the two own streams in each other's place, and back",
    "import sys\nout, err = sys.stdout, sys.stderr; sys.stderr = sys.stdout",
    "print('one', file=sys.stderr); print(sys.stderr is sys.stdout, sys.stderr is out, err is out)",
    "sys.stdout, sys.stderr = err, out",
    "print('two'); print('three', file=sys.stderr)",
    "print(sys.stdout is err, sys.stderr is out, file=out)",
    "sys.stdout, sys.stderr = out, err",
    "print(sys.stdout is out, sys.stderr is err, sys.stdout is sys.stderr)",
)
sequence(
    "standard output in standard error's place",
    "import sys, contextlib\nerr, sys.stdout = sys.stderr, sys.stderr",
    "print('one'); keeps = contextlib.redirect_stderr(None)",
    "print('two', sys.stdout is sys.stderr, sys.stdout is err)",
)
sequence(
    "warnings, garbage collection, fault handler and interpreter flags",
    """
import warnings, gc, sys, faulthandler, linecache, tracemalloc, random, copyreg, atexit, mimetypes, webbrowser
warnings.filterwarnings('error', 'stop', RuntimeWarning, module=r'__main__'); warnings.filterwarnings('once', category=FutureWarning, append=True); warnings.formatwarning = lambda m, c, f, l, line=None: f'W<{c.__name__}:{m}>\\n'; gc.set_threshold(500, 5, 5); gc.disable(); mimetypes.add_type('text/mine', '.mine'); copyreg.pickle(complex, lambda c: (complex, (c.real, -c.imag)))
""",
    "warnings.warn('soft', FutureWarning); warnings.warn('soft', FutureWarning)",
    "import copy, pickle\ntry: warnings.warn('stop here', RuntimeWarning)\nexcept RuntimeWarning as e: print('raised', e)\nprint(gc.isenabled(), gc.get_threshold(), mimetypes.guess_type('a.mine'), copy.copy(2 + 3j))",
    "gc.enable(); f = list(warnings.filters[:2]); warnings.simplefilter('ignore')",
    "warnings.warn('silent'); print(gc.isenabled(), len(f), f[0][0], f[0][2].__name__, pickle.loads(pickle.dumps(1j)))",
    "warnings.filters[:] = [x for x in warnings.filters if x[0] != 'ignore']; warnings.filters.insert(0, ('always', None, UserWarning, None, 0)); warnings._filters_mutated()",
    "warnings.warn('heard'); print(len([x for x in warnings.filters if x[0] == 'error']), gc.get_threshold())",
    pinned=True,
)
sequence(
    "threads that run, pools and futures are refused or go on",
    """
import threading, concurrent.futures as cf, queue
pool = cf.ThreadPoolExecutor(2, thread_name_prefix='w'); fut = pool.submit(pow, 2, 5); r = fut.result(); done = cf.Future(); done.set_result([r]); bad = cf.Future(); bad.set_exception(KeyError('k'))
""",
    "more = list(pool.map(lambda x: x * r, range(3)))",
    "print(r, more, fut.done(), done.result(), type(bad.exception()).__name__)",
    "pool.shutdown(); got = [fut.result(), done.result()]",
    "print(got, done.result() is got[1], fut.done(), bad.exception().args)",
    pinned=True,
)
sequence(
    "a thread that still runs is lost by name",
    "import threading\nstop = threading.Event(); beats = []\ndef beat():\n    while not stop.wait(0.01): pass\n    beats.append('stopped')\nt = threading.Thread(target=beat, name='beats', daemon=True); t.start()",
    "near = [1]",
    "print(near, t.is_alive())",
    refuses="'t'",
)
sequence(
    "a variable that holds the decimal context in force",
    """
import decimal
ctx = decimal.getcontext(); mine = decimal.Context(prec=3, rounding=decimal.ROUND_UP); held = {'ctx': ctx}
""",
    "ctx.prec = 6",
    "print(decimal.Decimal(2) / 3, ctx is decimal.getcontext(), held['ctx'] is ctx)",
    "decimal.setcontext(mine)",
    "mine.prec = 4; mine.clear_flags()",
    "print(decimal.Decimal(2) / 7, decimal.getcontext() is mine, held['ctx'] is ctx, ctx.prec)",
)
sequence(
    "the first day of weeks",
    "import calendar; calendar.setfirstweekday(calendar.SUNDAY)",
    "print(calendar.firstweekday())",
    "print(calendar.month(2024, 2).splitlines()[1])",
)
sequence(
    "options of xarray",
    """
import xarray as xr
xr.set_options(keep_attrs=True, display_style='text'); da = xr.DataArray([1, 2], attrs={'unit': 'm'})
""",
    "xr.set_options(display_width=60)",
    "print((da * 2).attrs, xr.get_options()['keep_attrs'], xr.get_options()['display_width'])",
    needs=("xarray",),
)
sequence(
    "a generator that shares its bits with numpy's own functions",
    """
import numpy as np
leg = np.random.RandomState(np.random.MT19937(3)); rng = np.random.Generator(np.random.PCG64(5))
""",
    "np.random.set_bit_generator(leg._bit_generator)",
    "r = [round(leg.rand(), 5), round(np.random.rand(), 5), round(leg.rand(), 5)]",
    "np.random.seed(8); r.append(round(leg.rand(), 5))",
    "np.random.set_bit_generator(rng.bit_generator); r.append(round(np.random.rand(), 5))",
    "print(r, leg._bit_generator is np.random.get_bit_generator(), rng.bit_generator is np.random.get_bit_generator())",
    needs=("numpy",),
)
sequence(
    "the numbers of nameless threads go on",
    """
import threading, concurrent.futures as cf
def work(): names.append(threading.current_thread().name)
def new_thread():
    t = threading.Thread(target=work); t.start(); t.join()
names = []; new_thread()
with cf.ThreadPoolExecutor(1) as ex: ex.submit(work).result()
""",
    "threading.Thread; new_thread()",
    "with cf.ThreadPoolExecutor(1) as ex: ex.submit(work).result()",
    "import threading; new_thread()",
    """
first = int(names[0].split('-')[1].split()[0]); pools = [int(n.split('-')[1].split('_')[0]) for n in names if 'Pool' in n]
print([int(n.split('-')[1].split()[0]) - first for n in names if 'Pool' not in n], pools[1] - pools[0], len(set(names)) == len(names))
""",
)
