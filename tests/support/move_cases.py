"""Short notebooks whose output must not depend on which process ran which cell.

Each is a name and its cells. Nothing printed may depend on addresses, process ids or hash seeds.
"""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

CASES: dict[str, list[str]] = {}


def case(name: str, *cells: str) -> None:
    """Add a notebook."""
    assert name not in CASES
    CASES[name] = list(cells)


# -- names, identity, aliasing ---------------------------------------------------------------------

case(
    "atoms",
    "x=1; y=2.5; s='é'; b=b'q'; n=None; c=1+2j; t=True",
    "print(x,y,s,b,n,c,t); x+=1; s*=3",
    "print(x,s)",
)
case("list grows", "a=[]", "a.append(1)", "a.append(2); print(a)", "print(a)")
case("alias kept", "a=[1]; b=a", "a.append(2)", "print(b, a is b)", "b=[9]", "print(a, b)")
case(
    "alias made later by equal content",
    "a=[1]; b=[[1],[2]]",
    "b[0]=a",
    "a.append(5); print(b)",
    "print(b, b[0] is a)",
)
case("alias undone", "a=[1]; b=[a]", "b[0]=list(a)", "a.append(2); print(b)", "print(a, b)")
case("nested shared", "s={'k':1}; d={'a':s}; l=[s,s]", "s['k']=2", "print(d,l,l[0] is l[1] is d['a'])")
case(
    "cycle",
    "a=[]; a.append(a); d={}; d['me']=d",
    "print(a[0] is a, d['me'] is d)",
    "a.append(1)",
    "print(len(a[0]))",
)
case(
    "delete",
    "a=[1]; b=a; c=3",
    "del a",
    "print('a' in globals(), b)",
    "del b, c",
    "print('b' in globals(), 'c' in globals())",
)
case("rebind", "x=[1]", "x={'k':2}", "print(x)", "x=(1,[2])", "print(x)")
case("tuple of mutables", "t=([1],{'a':1}); l=t[0]", "l.append(2)", "print(t)", "t[1]['b']=3; print(t)")
case("underscore names travel", "_private=[1]; __dunder=2", "_private.append(__dunder)", "print(_private)")
case("globals update", "globals().update(z=[1], w=2)", "z.append(w)", "print(z)", "exec('q=5')", "print(q)")
case(
    "loop and with variables",
    "for i in range(3): pass\nimport io\nwith io.StringIO() as f: f.write('x')",
    "print(i, f.closed)",
    "print([i for i in range(2)], i)",
)
case("order of names", "b=1; a=2", "c=3", "del b; b=4", "print([n for n in globals() if n in 'abc'])")
case(
    "sentinel object",
    "S=object(); d={'x':S}; l=[S]",
    "print(d['x'] is S, l[0] is S)",
    "d['y']=S",
    "print(d['y'] is l[0])",
)
case("sets", "s={1,'a',(2,3)}; f=frozenset([1,2]); h={f}", "s.add(4)", "print(sorted(map(str,s)), f in h)")
case("dict order", "d={'z':1,'a':2}; d['m']=3", "d.pop('z'); d['z']=4", "print(list(d))")
case(
    "big bytes and str",
    "b=bytes(range(256))*2000; s='xyzé'*100000; ba=bytearray(b)",
    "ba[5]=99; print(len(b),len(s),s[:5])",
    "print(ba[4:7], b[4:7])",
    "c=b; ba2=ba; ba2[0]=1",
    "print(ba[0], c is b)",
)
case(
    "collections",
    "from collections import *\nd=deque([1,2],maxlen=3); dd=defaultdict(list); od=OrderedDict(a=1); c=Counter('aab'); m=ChainMap({'x':1},{'y':2})",
    "d.append(3); d.append(4); dd['k'].append(1); od['b']=2; c.update('b'); m['z']=3",
    "print(d,dict(dd),od,c,m,dd['q'])",
)
case(
    "stdlib values",
    "import decimal,fractions,datetime,uuid,pathlib,re,array\nx=[decimal.Decimal('1.10'),fractions.Fraction(1,3),datetime.datetime(2020,1,2,tzinfo=datetime.timezone.utc),datetime.timedelta(1),uuid.UUID(int=5),pathlib.Path('/a/b'),re.compile('a+'),array.array('d',[1.,2.]),range(5),slice(1,2)]",
    "print(x)",
    "x[7].append(3.)",
    "print(x[7])",
)
case(
    "dict views",
    "d={'a':1}; k=d.keys(); v=d.values(); i=d.items()",
    "d['b']=2",
    "print(list(k),list(v),list(i))",
    "d['c']=3; print(len(k))",
    "print(list(k))",
)
case(
    "mapping proxy",
    "import types\nd={'a':1}; p=types.MappingProxyType(d)",
    "d['b']=2",
    "print(p['b'])",
    "class A: x=1\nq=A.__dict__",
    "print(q['x'])",
)
case(
    "memoryview",
    "ba=bytearray(10); m=memoryview(ba)[2:5]",
    "m[0]=7",
    "print(ba[:4])",
    "ba[3]=8",
    "print(m[1], m.readonly)",
)

# -- functions -------------------------------------------------------------------------------------

case(
    "late binding",
    "def helper(): return 1\ndef f(): return helper()",
    "print(f())",
    "def helper(): return 2",
    "print(f())",
)
case("global writer", "n=0\ndef bump():\n    global n\n    n+=1", "bump()", "bump(); print(n)", "print(n)")
case(
    "two closures one cell",
    "def make():\n    n=0\n    def inc():\n        nonlocal n\n        n+=1\n    def get(): return n\n    return inc,get\ninc,get=make()",
    "inc()",
    "inc(); print(get())",
    "print(get())",
)
case(
    "one closure kept twice",
    "def make():\n    items=[]\n    def add(x): items.append(x); return items\n    return add\nadd=make(); alias=add",
    "add(1)",
    "print(alias(2), alias is add)",
    "print(add(3))",
)
case(
    "recursive closure",
    "def outer():\n    def fact(n): return 1 if n<2 else n*fact(n-1)\n    return fact\nfact=outer()",
    "print(fact(5))",
    "print(fact.__closure__[0].cell_contents is fact)",
)
case(
    "defaults and attributes",
    "def f(a, items=[], *, k={'x':1}): items.append(a); return items\nf.tag=['t']",
    "print(f(1))",
    "print(f(2), f.tag)",
    "f.tag.append('u'); print(f.__kwdefaults__)",
    "print(f.tag, f.__defaults__)",
)
case(
    "mutable default shared",
    "shared=[]\ndef f(x, acc=shared): acc.append(x); return acc",
    "f(1)",
    "shared.append('s')",
    "print(f(2), f.__defaults__[0] is shared)",
)
case(
    "lambda and partial",
    "from functools import partial\nadd=lambda a,b=1:a+b\np=partial(add,b=5)",
    "print(add(1),p(1))",
    "print(p.func is add)",
    "add.__defaults__=(7,)",
    "print(p.func(1))",
)
case(
    "wraps",
    "import functools\ndef deco(fn):\n    @functools.wraps(fn)\n    def w(*a): w.calls+=1; return fn(*a)\n    w.calls=0\n    return w\n@deco\ndef f(x): 'doc'; return x*2",
    "print(f(2), f.calls)",
    "print(f(3), f.calls, f.__name__, f.__doc__, f.__wrapped__(1))",
)
case(
    "annotations and qualname",
    "def f(x:int, y:'str'='a')->list[int]: ...",
    "print(f.__annotations__, f.__qualname__, f.__module__)",
)
case(
    "generator function", "def g(n):\n    for i in range(n): yield i", "print(list(g(3)))", "print(sum(g(4)))"
)
case("function in dict", "def f(): return 1\nd={'f':f}", "print(d['f'] is f)", "f.x=5", "print(d['f'].x)")
case(
    "exec with own globals",
    "scope={}\nexec('z=1\\ndef h(): return z', scope)\nh=scope['h']",
    "scope['z']=2",
    "print(h(), h.__globals__ is scope)",
)
case(
    "lru_cache",
    "import functools\ncalls=[]\n@functools.lru_cache(maxsize=3)\ndef f(x,y=0): calls.append(x); return [x,y]",
    "a=f(1); f(2); f(1,y=5)",
    "print(calls, f(1) is a, f.cache_info())",
    "f(9); print(f.cache_info(), calls)",
    "f(2); print(calls, f.cache_parameters())",
)
case(
    "cache of closure",
    "import functools\ndef make(k):\n    @functools.cache\n    def f(n): return n if n<2 else f(n-1)+f(n-2)+k\n    return f\nfib=make(0)",
    "print(fib(50))",
    "print(fib(50), fib.cache_info().hits, fib.cache_info().currsize)",
)
case(
    "singledispatch",
    "import functools\n@functools.singledispatch\ndef show(x): return 'any'\n@show.register\ndef _(x:int): return 'int'",
    "print(show(1),show('a'))",
    "class A: pass\n@show.register\ndef _(x:A): return 'A'",
    "print(show(A()),show(1))",
)
case(
    "function with code replaced",
    "def f(): return 1\ndef g(): return 2",
    "f.__code__=g.__code__",
    "print(f(), f.__name__)",
)
case(
    "bound methods",
    "class A:\n    def __init__(self): self.n=0\n    def hit(self): self.n+=1; return self.n\na=A(); h=a.hit; ap=[].append",
    "h()",
    "print(a.n, h.__self__ is a)",
    "print(h(), a.n)",
)
case(
    "operator and builtins",
    "import operator\ng=operator.itemgetter(1); m=operator.methodcaller('upper'); b=len; mm=max; u=str.upper; e=dict.fromkeys",
    "print(g([1,2]),m('a'),b([1]),mm(1,2),u('x'),e('a'))",
)

# -- classes ---------------------------------------------------------------------------------------

case(
    "class and instances",
    "class A:\n    n=0\n    def __init__(self,v): self.v=v; A.n+=1\n    def double(self): return self.v*2\na=A(1)",
    "b=A(2); print(A.n, a.double())",
    "print(type(a) is type(b) is A, isinstance(b,A), A.n)",
    "a.v=5",
    "print(a.double())",
)
case(
    "redefinition",
    "class A:\n    def who(self): return 'old'\na=A()",
    "class A:\n    def who(self): return 'new'\nb=A()",
    "print(a.who(), b.who(), isinstance(a,A), type(a).__name__)",
    "c=type(a)(); print(c.who())",
)
case(
    "class attribute changes",
    "class A: items=[]\na=A(); b=A()",
    "A.items.append(1); A.tag='t'",
    "print(a.items, b.tag)",
    "del A.tag",
    "print(hasattr(b,'tag'))",
)
case(
    "monkey patch",
    "class A:\n    def f(self): return 1\na=A()",
    "A.f=lambda self: 2",
    "print(a.f())",
    "A.g=property(lambda self: self.f()+1)",
    "print(a.g)",
)
case(
    "inheritance and super",
    "class B:\n    def hi(self): return 'B'\nclass C(B):\n    def hi(self): return 'C'+super().hi()\nc=C()",
    "print(c.hi(), isinstance(c,B))",
    "class D(C):\n    def hi(self): return 'D'+super().hi()\nprint(D().hi())",
    "print(D.__mro__[1] is C, [k.__name__ for k in D.__mro__])",
)
case(
    "slots",
    "class P:\n    __slots__=('x','y')\n    def __init__(s,x): s.x=x\np=P(1)",
    "p.y=[2]",
    "print(p.x,p.y,hasattr(p,'__dict__'))",
    "class Q(P): __slots__=('z',)\nq=Q(5); q.z=1",
    "print(q.x,q.z,hasattr(q,'y'))",
)
case(
    "dataclass",
    "from dataclasses import *\n@dataclass(order=True)\nclass D:\n    x:int\n    y:list=field(default_factory=list)\nd=D(1)",
    "d.y.append(2)",
    "print(d, D(1)<D(2), [f.name for f in fields(d)], asdict(d), replace(d,x=9))",
    "print(is_dataclass(D), D(3)==D(3))",
)
case(
    "enum",
    "import enum\nclass C(enum.Enum):\n    R=1\n    G='g'\n    def low(self): return self.name.lower()\nclass F(enum.Flag):\n    A=1\n    B=2\nclass I(enum.IntEnum):\n    X=3\nclass P(enum.Enum):\n    E=(1,2)\n    def __init__(self,a,b): self.a=a\nr=C.R; f=F.A|F.B; d={C.G:1}",
    "print(r is C.R, C('g') is C.G, d[C.G], r.low(), list(C))",
    "print(F.A in f, I.X+1, I(3) is I.X, P.E.a, C['R'] is r, f)",
    "print([m.name for m in C], isinstance(r,C), I.X<4)",
)
case(
    "namedtuple",
    "from collections import namedtuple\nfrom typing import NamedTuple\nP=namedtuple('P','x y')\nclass Q(NamedTuple):\n    a:int\n    b:str='z'\np=P(1,[2]); q=Q(5)",
    "p.y.append(3)",
    "print(p,q,p._replace(x=9),q._asdict(),type(p) is P)",
)
case(
    "abc",
    "import abc\nclass Shape(abc.ABC):\n    @abc.abstractmethod\n    def area(self): ...\nclass Sq(Shape):\n    def area(self): return 4\n@Shape.register\nclass Alien: pass\ns=Sq()",
    "print(isinstance(s,Shape), isinstance(Alien(),Shape))",
    "try: Shape()\nexcept TypeError: print('abstract')",
    "print(s.area(), issubclass(Alien,Shape))",
)
case(
    "metaclass",
    "class M(type):\n    made=[]\n    def __new__(m,n,b,d,**k): c=super().__new__(m,n,b,d); M.made.append(n); return c\n    def __init__(c,n,b,d,**k): pass\n    def hello(cls): return cls.__name__\nclass A(metaclass=M, flag=1): pass\na=A()",
    "print(A.hello(), M.made)",
    "class B(A): pass\nprint(M.made)",
    "print(type(B) is M, B.hello(), M.made, isinstance(a,A))",
)
case(
    "init_subclass and set_name",
    "class Base:\n    subs=[]\n    def __init_subclass__(cls,**k): Base.subs.append(cls.__name__)\nclass Field:\n    def __set_name__(self,o,n): self.n=n; log.append(n)\n    def __get__(self,i,o): return self.n\nlog=[]\nclass S(Base): f=Field()",
    "print(Base.subs, S.f, log)",
    "class T(Base): g=Field()\nprint(Base.subs,log)",
    "print(Base.subs, log, T.g)",
)
case(
    "generic",
    "from typing import *\nT=TypeVar('T')\nclass Box(Generic[T]):\n    def __init__(self,v:T): self.v=v\nb=Box[int](5)",
    "print(b.v, Box.__parameters__==(T,), Box[int])",
    "class L(Box[str]): pass\nprint(L('x').v, L.__orig_bases__)",
    "print(Box.__parameters__[0] is T)",
)
case(
    "properties",
    "import functools\nclass A:\n    def __init__(s): s._x=1; s.calls=0\n    @property\n    def x(s): s.calls+=1; return s._x\n    @x.setter\n    def x(s,v): s._x=v\n    @classmethod\n    def make(cls): return cls()\n    @staticmethod\n    def st(): return 's'\n    @functools.cached_property\n    def big(s): s.calls+=10; return [1]\na=A.make()",
    "a.x=4; print(a.x, a.st())",
    "print(a.big, a.calls)",
    "print(a.big, a.calls, a.x)",
    "print(a.calls)",
)
case(
    "subclass of builtin",
    "class L(list):\n    def total(s): return sum(s)\nclass D(dict):\n    def __missing__(s,k): return k*2\nclass S(str): pass\nclass N(int): pass\nl=L([1,2]); l.tag='t'; d=D(a=1); s=S('q'); s.z=1; n=N(5)",
    "l.append(3); d['b']=2",
    "print(l.total(), l.tag, d['zz'], dict(d), s.z, n+1, type(n).__name__)",
)
case(
    "nested and local classes",
    "class O:\n    class I:\n        v=1\n    def mk(self):\n        class Loc:\n            def get(s): return self.k\n        return Loc()\no=O(); o.k=3; i=O.I(); l=o.mk()",
    "print(type(i) is O.I, l.get())",
    "o.k=4; print(l.get())",
    "print(type(l).__qualname__)",
)
case(
    "class registry list",
    "reg=[]\ndef plug(c): reg.append(c); return c\n@plug\nclass A: name='a'",
    "@plug\nclass B: name='b'",
    "print([c.name for c in reg], reg[0] is A)",
    "A.name='aa'",
    "print(reg[0].name)",
)
case(
    "class refers to instance",
    "class A: pass\nA.inst=A(); A.inst.x=1; a=A.inst",
    "a.x=2",
    "print(A.inst.x, A.inst is a)",
)
case(
    "getattr classes",
    "class Magic:\n    def __init__(s): object.__setattr__(s,'d',{})\n    def __getattr__(s,k):\n        if k.startswith('__'): raise AttributeError(k)\n        return s.d.get(k,'none')\n    def __setattr__(s,k,v): s.d[k]=v\nm=Magic(); m.a=1",
    "m.b=2",
    "print(m.a,m.b,m.c)",
)
case(
    "getstate and reduce",
    "class G:\n    def __init__(s,v): s.v=v; s.tmp='t'\n    def __getstate__(s): return {'v':s.v}\n    def __setstate__(s,st): s.v=st['v']; s.tmp='again'\nclass R:\n    def __init__(s,v): s.v=v\n    def __reduce__(s): return (R,(s.v,))\ng=G(1); r=R(2)",
    "print(g.v,r.v)",
    "print(g.v, r.v); g.v=3",
    "print(g.v)",
)
case(
    "hooks on a class",
    "class H:\n    def __init__(s,f): s.f=f; s.g=(x for x in f)\n    def __replkernel_dump__(s): return s.f\n    @staticmethod\n    def __replkernel_load__(f): return H(f)\nh=H([1,2])",
    "print(h.f, list(h.g))",
    "h.f.append(3)",
    "print(h.f)",
)
case(
    "registered hooks",
    "import replkernel.state as rn\nclass H:\n    def __init__(s,f): s.f=f; s.g=(x for x in f)\nrn.register(H, lambda h: h.f, lambda f: H(f))\nh=H([1,2])",
    "print(h.f)",
    "k=H([5]); print(len(list(k.g)))",
    "print(k.f, h.f)",
)
case(
    "dynamic module",
    "import types\nm=types.ModuleType('m'); exec('x=1\\ndef f(): return x', m.__dict__)",
    "m.x=5; print(m.f())",
    "print(m.f(), m.__name__)",
)
case(
    "modules",
    "import math, os.path as osp, collections.abc\nfrom math import pi, sqrt",
    "print(math.sqrt(4), osp.join('a','b'), pi, sqrt(9))",
)
case(
    "abc class without instance dict",
    "from collections.abc import Mapping\nclass M(Mapping):\n    def __init__(s,d): s.d=d\n    def __getitem__(s,k): return s.d[k]\n    def __iter__(s): return iter(s.d)\n    def __len__(s): return len(s.d)\nm=M({'a':1})",
    "print(m['a'], list(m), isinstance(m,Mapping), 'a' in m)",
    "m.d['b']=2; print(len(m))",
    "print(dict(m))",
)
case(
    "weakrefs",
    "import weakref\nclass A: pass\na=A(); r=weakref.ref(a); w=weakref.WeakValueDictionary(a=a); k=weakref.WeakKeyDictionary({a:1}); s=weakref.WeakSet([a])\np=weakref.proxy(a)",
    "print(r() is a, w['a'] is a, k[a], a in s); p.x=5",
    "print(a.x)",
    "del a; import gc; n=gc.collect(); print(r() is None, len(w), len(k), len(s))",
    "print(r() is None, len(w))",
)
case(
    "finalizers stay silent",
    "class D:\n    def __init__(s,n): s.n=n\n    def __del__(s): print('del',s.n)\nd=D(1); l=[D(2)]",
    "d.x=1",
    "l.append(3)",
    "d=None; print('after')",
    "print(len(l))",
    "l.clear()",
)

# -- iterators, exceptions, files, locks ------------------------------------------------------------

case(
    "iterators part-way",
    "import itertools\nl=[1,2,3,4]; it=iter(l); next(it); e=enumerate('abc'); next(e); z=zip(l,'wxyz'); next(z); m=map(str,iter([5,6])); next(m); c=itertools.count(3); next(c); ch=itertools.chain([1],[2]); next(ch); cy=itertools.cycle('ab'); next(cy); rv=reversed([1,2,3]); next(rv)",
    "print(next(it),next(e),next(z),next(m),next(c),next(ch),next(cy),next(rv))",
    "print(next(it),next(e),next(z),next(c),next(cy),next(rv))",
    "l.append(5); print(list(it))",
)
case("spent generator", "g=(i for i in range(2)); print(list(g))", "print(list(g), g.__name__)")
case(
    "exceptions",
    "class E(Exception):\n    def __init__(self,a,b): super().__init__(f'{a}-{b}'); self.a=a; self.b=b\ntry:\n    try: 1/0\n    except ZeroDivisionError as z: raise E(1,2) from z\nexcept E as x: err=x; err.add_note('n')",
    "print(type(err) is E, err, err.a, err.b, repr(err.__cause__), err.__notes__)",
    "import traceback; print(''.join(traceback.format_exception(err)).count('raise E(1,2) from z'))",
    "print(isinstance(err,E), err.args)",
)
case(
    "builtin exceptions",
    "es=[]\nfor s in ['int(\"x\")','{}[1]','open(\"/nope\")','b\"\\\\xff\".decode()','import_nope()','[].x']:\n    try: exec(s)\n    except Exception as e: es.append(e)",
    "print([type(e).__name__ for e in es], es[2].errno, es[2].filename, es[3].start)",
    "print([str(e) for e in es])",
    "g=ExceptionGroup('g',[ValueError(1)]); s=SystemExit(3); st=StopIteration([4])",
    "print(g.exceptions, s.code, st.value)",
)
case(
    "locks and queues",
    "import threading,queue\nl=threading.Lock(); l.acquire(); r=threading.RLock(); r.acquire(); e=threading.Event(); e.set(); q=queue.Queue(); q.put(1); c=threading.Condition(); s=threading.Semaphore(2); b=threading.local(); b.x=1",
    "print(l.locked(), e.is_set(), q.qsize(), b.x); q.put(2); l.release()",
    "print(l.locked(), q.get(), q.get(), s.acquire(blocking=False)); r.release()",
    "with c: c.notify()\nwith r: print('ok')",
)
case(
    "thread objects",
    "import threading\nout=[]\nt=threading.Thread(target=lambda: out.append(1), name='w'); u=threading.Thread(target=out.append, args=(2,)); u.start(); u.join()",
    "print(t.is_alive(), u.is_alive(), t.name, out)",
    "t.start(); t.join(); print(out)",
    "print(t.is_alive(), out)",
)
case(
    "re.Match",
    "import re\nm=re.search(r'(\\w)(\\d)','__a1 b2'); ms=list(re.finditer(r'\\w\\d','a1 b2 c3')); k=ms[1]",
    "print(m.groups(), m.span(), k.group(), k.start(), m.re.pattern)",
    "print([x.group() for x in ms], k is ms[1])",
)
case(
    "files",
    "import tempfile,os\npath=os.path.join(tempfile.mkdtemp(),'f.txt')\nw=open(path,'w'); n=w.write('hello\\nworld\\n')",
    "n=w.write('more\\n'); w.flush(); r=open(path); print(repr(r.readline()))",
    "print(repr(r.readline()), r.tell(), w.mode, os.path.basename(w.name)); w.close()",
    "print(w.closed, repr(r.read())); r.close()",
    "a=open(path,'a'); n=a.write('z')",
    "a.close(); print(open(path).read().endswith('z'))",
    "b=open(path,'rb'); print(b.read(3))",
    "print(b.read(2), b.closed)",
)
case(
    "closed file is no trouble",
    "import os\nwith open(os.devnull,'w') as f: pass\nwith open(os.devnull,'rb') as g: pass",
    "print(f.closed, f.mode, f.name, g.closed)",
    "try: f.write('x')\nexcept ValueError as e: print(e)",
)
case(
    "string and bytes io",
    "import io\ns=io.StringIO('abc'); s.read(1); b=io.BytesIO(b'xyz'); b.seek(2)",
    "print(s.read(1), b.read())",
    "print(s.read(), b.tell())",
)
case(
    "random objects",
    "import random\nr=random.Random(5); r.random()",
    "print(r.random())",
    "print(r.random(), r.randint(1,9))",
)
case(
    "context variables",
    "import contextvars\nv=contextvars.ContextVar('v', default='d'); u=contextvars.ContextVar('u'); tok=None; u.set([1])",
    "print(v.get(), u.get(), v.name)",
    "v.set('w')",
    "print(v.get(), u.get())",
)
case(
    "loggers",
    "import logging\nlg=logging.getLogger('my.log'); own=logging.Logger('own')",
    "print(lg.name, lg is logging.getLogger('my.log'), own.name)",
    "print(lg is logging.getLogger('my.log'))",
)
case(
    "deep list",
    "d=[]\nfor _ in range(30000): d=[d]",
    "n=0; p=d\nwhile p: p=p[0]; n+=1\nprint(n)",
    "d.append(1)",
    "print(d[1])",
)
case(
    "linked list",
    "class N:\n    def __init__(s,v,nx): s.v=v; s.nx=nx\nhead=None\nfor i in range(30000): head=N(i,head)",
    "p=head; t=0\nwhile p: t+=p.v; p=p.nx\nprint(t)",
    "head.v=-1",
    "print(head.v, head.nx.v)",
)
case(
    "tree with parents",
    "class T:\n    def __init__(s,p=None): s.p=p; s.c=[]\nroot=T(); a=T(root); root.c.append(a); leaf=T(a); a.c.append(leaf)",
    "leaf.name='leaf'",
    "print(root.c[0].c[0].name, leaf.p is a, a.p is root)",
)
case(
    "stdout by reference",
    "import sys\nout=sys.stdout; err=sys.stderr",
    "import sys; print(err is sys.stderr)",
)

case(
    "async fn",
    "import asyncio\nasync def f(x):\n    await asyncio.sleep(0); return x*2\nasync def ag():\n    yield 1",
    "print(asyncio.run(f(2)))",
    "async def main(): return [i async for i in ag()]\nprint(asyncio.run(main()))",
)
case(
    "typing",
    "from typing import *\nfrom dataclasses import dataclass\nclass P(Protocol):\n    def f(self)->int: ...\nclass TD(TypedDict):\n    a:int\n@runtime_checkable\nclass R(Protocol):\n    def g(self): ...\n@dataclass(slots=True,frozen=True)\nclass S:\n    x:int=1\nclass Impl:\n    def g(self): return 1\nU=Union[int,str]; O=Optional[List[int]]; Cb=Callable[[int],str]; N=NewType('N',int); L=Literal['a']; X=int|str; A=Annotated[int,'m']; D=dict[str,'S']",
    "print(U,O,Cb,N(5),L,X,A,D,TD(a=1),isinstance(Impl(),R),S(2))",
    "print(S.__slots__, TD.__annotations__, hash(S(1))==hash(S(1)))\ntry: S(1).x=2\nexcept Exception as e: print(type(e).__name__)",
)
case(
    "init_subclass kwargs",
    "class B:\n    def __init_subclass__(cls,/,tag=None,**k): super().__init_subclass__(**k); cls.tag=tag\nclass C(B,tag='c'): pass",
    "print(C.tag)",
    "class D(C,tag='d'): pass\nprint(D.tag,C.tag)",
    "print(D.tag)",
)
case(
    "class_getitem, descriptors",
    "class V:\n    def __set_name__(s,o,n): s.n='_'+n\n    def __get__(s,i,o=None): return s if i is None else getattr(i,s.n,0)\n    def __set__(s,i,v): setattr(i,s.n,v*2)\nclass A:\n    x=V()\n    def __class_getitem__(cls,k): return (cls.__name__,k)\n    def __call__(s,*a): return a\n    def __contains__(s,k): return True\na=A(); a.x=5",
    "print(a.x,A['k'],a(1,2),3 in a)",
    "a.x=1; print(a.x, type(A.x).__name__)",
)
case(
    "multiple inheritance & mixins",
    "class A:\n    def f(s): return ['A']\nclass B(A):\n    def f(s): return ['B']+super().f()\nclass C(A):\n    def f(s): return ['C']+super().f()\nclass D(B,C):\n    def f(s): return ['D']+super().f()\nclass E(Exception,D): pass\nd=D(); e=E('x')",
    "print(d.f(), e.f(), e.args, [k.__name__ for k in D.__mro__])",
    "print(isinstance(e,Exception), d.f())",
)
case(
    "total_ordering etc",
    "import functools,contextlib\n@functools.total_ordering\nclass T:\n    def __init__(s,v): s.v=v\n    def __eq__(s,o): return s.v==o.v\n    def __lt__(s,o): return s.v<o.v\n    def __hash__(s): return hash(s.v)\n@contextlib.contextmanager\ndef cm():\n    yield 5\nst={T(1),T(2)}; d={T(3):'x'}",
    "print(T(1)>=T(1), len(st), d[T(3)], T(1) in st)",
    "with cm() as v: print(v)\nst.add(T(1)); print(len(st))",
    "print(sorted(x.v for x in st))",
)
case(
    "hash depends on state",
    "class K:\n    def __init__(s,n): s.n=n; s.o=[]\n    def __hash__(s): return hash(s.n)\n    def __eq__(s,o): return s.n==o.n\nk=K(1); k.o.append(k); d={k:'v'}; s={k}; k.o.append(s)",
    "print(d[K(1)], k.o[0] is k, k in s, k.o[1] is s)",
    "k.o.append(2); print(len(next(iter(s)).o))",
)
case(
    "simple lib objects",
    "import types,string,ipaddress,zoneinfo,datetime,collections,configparser,argparse,ast,inspect,time,struct,itertools,bisect,heapq,textwrap,queue,enum,http,email.message,json,csv,io\nx=[types.SimpleNamespace(a=1),string.Template('$a'),ipaddress.ip_address('1.2.3.4'),datetime.datetime(2020,1,1,tzinfo=zoneinfo.ZoneInfo('UTC')),collections.UserDict(a=1),configparser.ConfigParser(),argparse.ArgumentParser(prog='p'),ast.parse('a+1'),inspect.signature(lambda a,b=1:0),time.gmtime(0),http.HTTPStatus.OK,json.JSONEncoder(),struct.Struct('<I')]\nq=queue.PriorityQueue(); q.put(2); q.put(1)",
    "print(x[0].a,x[1].substitute(a=1),x[2]+1,x[3].tzname(),x[4]['a'],type(x[6]).__name__,ast.unparse(x[7]),x[8],x[9].tm_year,x[10].value,x[11].encode([1]),x[12].size)",
    "print(q.get()); x[6].add_argument('-v'); print(x[6].parse_args(['-v','3']).v)",
    "print(x[6].parse_args(['-v','4']).v, q.get())",
)
case(
    "itertools",
    "import itertools as it\na,b=it.tee(iter([1,2,3])); next(a); g=it.groupby('aabb'); next(g); p=it.permutations([1,2,3]); next(p); pr=it.product('ab',[1]); next(pr); sl=it.islice(range(9),2,None,2); next(sl); ac=it.accumulate([1,2,3]); next(ac); tw=it.takewhile(lambda v:v<3,[1,2,3]); next(tw); st=it.starmap(pow,[(2,3),(3,2)]); next(st); zl=it.zip_longest('a','bc'); next(zl); cb=it.combinations('abc',2); next(cb); pw=it.pairwise([1,2,3]); rp=it.repeat(1,3); next(rp); cp=it.compress('abc',[1,0,1]); fl=filter(None,[0,1,2]); ff=it.filterfalse(None,[0,1]); di=iter({'a':1,'b':2}); next(di); si=iter('xyz'); next(si); ri=iter(range(5)); next(ri); ci=iter(lambda:1,2)",
    "for v in 'a b g p pr sl ac tw st zl cb rp cp fl ff di si ri ci'.split():\n    try: w=next(globals()[v]); print(v, w[0] if v=='g' else w, end=' ')\n    except BaseException as e: print(v,type(e).__name__,end=' ')",
    "print(next(b),next(ri),next(si))",
)
case(
    "module dict",
    "import math\nd=vars(math); import sys; m=sys.modules; g=globals()",
    "print(d is vars(math), m is sys.modules, g is globals())",
)
case(
    "thread subclass etc",
    "import threading\nclass W(threading.Thread):\n    def __init__(s): super().__init__(name='W'); s.r=[]\n    def run(s): s.r.append(1)\nw=W()",
    "w.start(); w.join(); print(w.r)",
    "print(w.r, w.is_alive(), w.name)\nbar=threading.Barrier(1); tm=threading.Timer(5,print)",
    "print(bar.wait(), tm.interval)",
)
case(
    "del with refs",
    "class D:\n    def __init__(s): s.log=log\n    def __del__(s): log.append('d')\nlog=[]\nd=D(); lst=[d]",
    "x=1",
    "print(log)",
    "del d, lst; print(log)",
    "print(log)",
)
case(
    "finalize",
    "import weakref\nlog=[]\nclass A: pass\na=A(); f=weakref.finalize(a,log.append,'gone')",
    "a.x=1",
    "print(f.alive, log)",
    "a.y=2",
    "del a; print(f.alive, log)",
    "print(log)",
)
case(
    "star and walrus",
    "a,*b=range(4); (c:=[5])\ntry: raise ValueError\nexcept ValueError as e: pass\nwith open('/dev/null') as fh: pass\nimport os as o",
    "print(a,b,c,'e' in globals(),fh.closed,o.sep)",
)
case(
    "function identity in containers",
    "def f(): pass\nh={'a':f}; l=[f]",
    "print(h['a'] is l[0] is f)",
    "def f(): return 2\nprint(h['a'] is f)",
    "print(h['a'] is l[0], h['a'] is f)",
)
case(
    "class holds namespace function",
    "def helper(self): return self.n\nclass A:\n    n=1\n    get=helper\na=A()",
    "print(a.get(), A.__dict__['get'] is helper)",
    "helper.__defaults__=None; A.n=5; print(a.get())",
)
case(
    "kwonly lru method",
    "import functools\nclass A:\n    calls=0\n    @functools.lru_cache\n    def f(self,x): A.calls+=1; return [x]\n    @functools.singledispatchmethod\n    def s(self,x): return 'o'\n    @s.register\n    def _(self,x:int): return 'i'\na=A(); r=a.f(1)",
    "print(a.f(1) is r, A.calls, a.s(1), a.s('x'))",
    "a.f(2); print(A.f.cache_info().currsize, A.calls)",
)
case(
    "partialmethod, operator",
    "import functools,operator\nclass A:\n    def f(s,a,b=0): return a+b\n    g=functools.partialmethod(f,5)\n    __add__=lambda s,o: 'add'\na=A(); bm=functools.partial(a.f,b=2)",
    "print(a.g(), a+1, bm(1), bm.func.__self__ is a)",
    "a.q=1; print(bm.func.__self__.q)",
)
case(
    "big int/ str keys",
    "d={10**50:'x', (1,'a'):2, None:3, 1.5:4, frozenset([1]):5, b'k':6}",
    "print(d[10**50], d[(1,'a')], d[None], d[1.5], d[frozenset([1])], d[b'k'])",
)
case(
    "pickle by reference of main",
    "import __main__ as me, sys\nmod=sys.modules['__main__']\nx=5",
    "print(me.x, me is mod)",
    "me.y=6; print(y)",
    "print(me.y)",
)
case(
    "code and frames objects",
    "def f(a): return a+1\nc=f.__code__\nimport types",
    "g=types.FunctionType(c,globals()); print(g(1), c.co_name)",
    "print(c == f.__code__, g(4))",
)
case(
    "exception groups notes in list",
    "errs=[]\nfor i in range(2):\n    try: [][i]\n    except IndexError as e: errs.append(e)",
    "print(len(errs), type(errs[0]).__name__, errs[0].__traceback__ is not None)",
    "raise errs[0]",
)
