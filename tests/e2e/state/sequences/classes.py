"""Classes: redefined, patched, generated; and the instances that were made of them before and after."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "a class redefined with instances of both",
    "class Dog:\n    kind = 'old'\n    def speak(self): return f'old {self.name}'\n    def __init__(self, name): self.name = name\na = Dog('a'); Old = Dog",
    "class Dog:\n    kind = 'new'\n    def speak(self): return f'new {self.name}'\n    def __init__(self, name): self.name = name.upper()\nb = Dog('b')",
    "print(a.speak(), b.speak(), isinstance(a, Dog), type(a) is Old, type(a) is type(b))",
    "Old.kind = 'patched old'",
    "a.__class__ = Dog; c = Old('c')",
    "del Old\nprint(a.speak(), type(c).kind, c.speak())",
    "class Dog(type(c)):\n    def speak(self): return 'sub ' + super().speak()\nd = Dog('d')",
    "print([x.speak() for x in (a, b, c, d)], isinstance(d, type(c)), type(b).__name__, [type(x).kind for x in (a, b, c, d)])",
)
sequence(
    "patched classes and instances",
    "class A:\n    def hi(self): return 'hi'\nx, y = A(), A()",
    "A.hi = lambda self: 'patched'",
    "import types\nx.hi = types.MethodType(lambda self: f'own {self.n}', x); x.n = 1",
    "A.extra = property(lambda self: self.__dict__.setdefault('e', []))",
    "x.extra.append(1); y.extra.append(2)\nprint(x.hi(), y.hi())",
    "del A.hi\nprint(hasattr(y, 'hi'), x.hi())",
    "A.__call__ = lambda self, k: k * 2; A.__len__ = lambda self: 3",
    "print(x(4), len(y), x.extra, y.extra, x.hi(), sorted(k for k in vars(A) if not k.startswith('__')), x.hi.__self__ is x)",
)
sequence(
    "enums and flags",
    "import enum\nclass Color(enum.Enum):\n    RED = 1\n    GREEN = 'g'\n    CRIMSON = 1\n    def loud(self): return self.name + '!'\nclass Perm(enum.Flag):\n    R = enum.auto(); W = enum.auto(); X = enum.auto()\nclass Num(enum.IntEnum):\n    ONE = 1\n    TWO = 2\nc = Color.RED; p = Perm.R | Perm.X; table = {Color.GREEN: 'go'}",
    "print(c is Color.RED, Color.CRIMSON is c, table[Color('g')], p, Perm.W in p)",
    "p |= Perm.W; d = {c: [c]}",
    "class Str(enum.StrEnum):\n    A = enum.auto()\n    B = enum.auto()\nmembers = list(Color) + list(Str)",
    "print(members, Num.TWO + 1, c.loud(), p == Perm(7), Color.__members__.keys())",
    "class Planet(enum.Enum):\n    EARTH = (5.9, 6.3)\n    def __init__(self, mass, radius): self.mass, self.radius = mass, radius; self.seen = []\nPlanet.EARTH.seen.append(1)",
    "Planet.EARTH.seen.append(2)",
    "print(Planet.EARTH.seen, Planet((5.9, 6.3)) is Planet.EARTH, d[Color(1)][0] is c, Str.A == 'a', ~Perm.R, p.value, repr(Num.ONE))",
)
sequence(
    "generic, protocol, ParamSpec and aliases",
    "from typing import *\nT = TypeVar('T', bound='Base'); P = ParamSpec('P'); K = TypeVar('K', int, str, covariant=False); Ts = TypeVarTuple('Ts')\nclass Base: pass\nclass Box(Generic[T]):\n    def __init__(self, item: T): self.item = item\nclass Two(Box[Base], Generic[T, K]): pass\n@runtime_checkable\nclass HasLen(Protocol):\n    size: int\n    def __len__(self) -> int: ...\nAlias = dict[str, list[Box[Base]]]; Fn = Callable[P, T]",
    "b = Box[Base](Base()); print(b.__orig_class__, Two.__parameters__)",
    "class Sized:\n    size = 3\n    def __len__(self): return 3\nprint(isinstance(Sized(), HasLen), isinstance(b, HasLen))",
    "UserId = NewType('UserId', int); u = UserId(5); Opt = Optional[Alias]; L = Literal['a', 1]; A = Annotated[int, 'meta', [1]]",
    "print(get_args(Alias), get_origin(Fn), Box[int].__args__, T.__bound__, K.__constraints__)",
    "def typed(x: T, *a: P.args, **k: P.kwargs) -> T: return x\nprint(get_type_hints(typed))",
    "IntBox = Box[int]; same = Box[T].__parameters__[0] is T",
    "print(same, IntBox(3).item, u, UserId, Opt, L, A.__metadata__, Two[Base, int], typed.__annotations__['x'] is T, b.__orig_class__.__args__[0] is Base, Ts, Fn)",
)
sequence(
    "abstract classes and virtual subclasses",
    "import abc\nclass Shape(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def area(self): ...\n    @classmethod\n    def __subclasshook__(cls, C): return True if hasattr(C, 'quacks') else NotImplemented\nclass Sq(Shape):\n    area = 4\nclass Out: pass\nShape.register(Out)",
    "print(issubclass(Out, Shape), isinstance(Sq(), Shape), issubclass(int, Shape))",
    "try: Shape()\nexcept TypeError as e: print(e)",
    "@Shape.register\nclass Late: quacks = False\nclass Duck: quacks = True",
    "print(issubclass(Late, Shape), issubclass(Duck, Shape), Shape.__abstractmethods__)",
    "import collections.abc\nclass Seq(collections.abc.Sequence):\n    def __init__(self, *a): self.a = a\n    def __getitem__(self, i): return self.a[i]\n    def __len__(self): return len(self.a)\ncollections.abc.Hashable.register(Seq) if False else None\ns = Seq(1, 2, 3)",
    "Sq.area = property(lambda self: 9)",
    "print(issubclass(Out, Shape), 2 in s, s.index(3), list(reversed(s)), Sq().area, isinstance(s, collections.abc.Sequence), issubclass(float, Shape))",
)
sequence(
    "init_subclass registry and class keywords",
    "class Plugin:\n    registry = {}\n    def __init_subclass__(cls, /, name=None, **kw):\n        super().__init_subclass__(**kw)\n        cls.name = name or cls.__name__.lower()\n        Plugin.registry[cls.name] = cls",
    "class A(Plugin): pass\nclass B(Plugin, name='bee'): pass",
    "print(Plugin.registry, len(Plugin.registry))",
    "class A(Plugin, name='a2'): newer = True",
    "made = {k: c() for k, c in Plugin.registry.items()}",
    "class C(B): pass\nB.version = 2",
    "print(list(Plugin.registry), Plugin.registry['a2'] is A, Plugin.registry['a'] is A, made['bee'].version, C.name, Plugin.registry['c'].__mro__[1] is B, [c.__name__ for c in Plugin.__subclasses__()])",
)
sequence(
    "metaclasses",
    "class Meta(type):\n    made = []\n    def __new__(m, name, bases, ns, **kw):\n        cls = super().__new__(m, name, bases, ns); cls.tag = kw.get('tag', name); m.made.append(name); return cls\n    def __init__(cls, name, bases, ns, **kw): super().__init__(name, bases, ns)\n    def __call__(cls, *a):\n        cls.instances = getattr(cls, 'instances', 0) + 1; return super().__call__(*a)\n    def __len__(cls): return 42\n    def __getattr__(cls, n): return f'no {n}'\n    def __contains__(cls, x): return x == 1\n    @property\n    def shiny(cls): return cls.tag * 2\nclass M(metaclass=Meta, tag='em'): pass",
    "m = M(); M()",
    "class N(M): pass\nprint(len(M), 1 in N, N.zzz, M.shiny)",
    "n = N(); Meta.added = lambda cls: cls.__name__",
    "print(M.instances, N.instances, Meta.made, N.added(), type(n) is N)",
    "M.tag = 'new'",
    "print(Meta.made, M.shiny, N.tag, isinstance(N, Meta), M.instances, type(M).__name__)",
)
sequence(
    "slots with and without dict",
    "class S:\n    __slots__ = ('x', 'y', '__weakref__')\n    def __init__(self, x): self.x = x\nclass D(S):\n    __slots__ = ('z', '__dict__')\nclass E(S): pass\nclass Priv:\n    __slots__ = ('__secret',)\n    def set(self, v): self.__secret = v; return self\n    def get(self): return self.__secret\ns = S([1]); d = D(2); e = E(3); p = Priv().set([9])",
    "s.y = s.x; d.z = s; d.free = [4]; e.any = 1",
    "try: s.nope = 1\nexcept AttributeError as err: print(err)",
    "s.y.append(2); p.get().append(10)",
    "import weakref\nr = weakref.ref(s); del e.x",
    "print(s.x, s.y is s.x, d.z is s, vars(d), vars(e), hasattr(e, 'x'), hasattr(d, 'y'), p.get(), r() is s, hasattr(s, '__dict__'), D.__slots__)",
)
sequence(
    "descriptors and set_name",
    "class Typed:\n    def __set_name__(self, owner, name): self.name = name; self.owner = owner.__name__; self.reads = 0\n    def __get__(self, obj, cls=None):\n        if obj is None: return self\n        self.reads += 1; return obj.__dict__.get(self.name, 'unset')\n    def __set__(self, obj, v): obj.__dict__[self.name] = (v, self.owner)\n    def __delete__(self, obj): obj.__dict__.pop(self.name, None)\nclass Rec:\n    a = Typed(); b = Typed()\nr = Rec()",
    "r.a = 1",
    "print(r.a, r.b, Rec.a.reads)",
    "r.b = [2]; Rec.c = Typed(); Rec.c.__set_name__(Rec, 'c')",
    "del r.a; r.c = 'see'",
    "print(r.a, r.c, Rec.a.name)",
    "q = Rec(); q.b = r.b[0]",
    "print(vars(r), vars(q), q.__dict__['b'][0] is r.__dict__['b'][0], Rec.b.owner, Rec.a.reads, Rec.b.reads)",
)
sequence(
    "properties with side effects are not touched",
    "class Loud:\n    touched = []\n    def __init__(self): self._v = 1\n    @property\n    def v(self): Loud.touched.append('get'); return self._v\n    @v.setter\n    def v(self, x): Loud.touched.append('set'); self._v = x\n    def __getattr__(self, n):\n        if not n.startswith('__'): Loud.touched.append(n)\n        raise AttributeError(n)\n    def __bool__(self): raise RuntimeError('no truth')\n    def __len__(self): raise RuntimeError('no length')\n    def __eq__(self, o): raise RuntimeError('no equality')\n    __hash__ = None\n    def __repr__(self): raise RuntimeError('no repr')\n    def __iter__(self): raise RuntimeError('no iteration')\nx = Loud(); box = [x, {'k': x}]",
    "x.v = 5",
    "print(Loud.touched)",
    "box.append(x)",
    "print(x.v, Loud.touched, box[0] is box[1]['k'] is box[2] is x)",
    "hasattr(x, 'missing')",
    "print(Loud.touched, x._v, len(box))",
)
sequence(
    "dataclasses of all sorts",
    "from dataclasses import *\n@dataclass\nclass D:\n    x: int\n    items: list = field(default_factory=list, repr=False)\n    hidden: dict = field(default_factory=dict, compare=False, metadata={'m': 1})\n    total: InitVar[int] = 0\n    def __post_init__(self, total): self.t = total + self.x\n@dataclass(frozen=True, order=True)\nclass F:\n    a: int\n    b: tuple = ()\n@dataclass(slots=True, kw_only=True)\nclass S:\n    p: int = 1\n    q: list = field(default_factory=list)\nd = D(1, total=5); f = F(2); s = S(p=3)",
    "d.items.append(1); s.q.append('q'); seen = {f: 'f'}",
    "print(d, f, s, seen[F(2)], F(1) < f)",
    "d2 = replace(d, x=9); s.q.append(d)",
    "try: f.a = 3\nexcept FrozenInstanceError as e: print(e)",
    "G = make_dataclass('G', [('z', int, field(default=7))], namespace={'dbl': lambda self: self.z * 2}); g = G()",
    "d2.items.append(2); g.z = 8",
    "print(d.items, d2.items is d.items, asdict(s)['p'], s.q[1] is d, g, g.dbl(), [x.name for x in fields(D)], fields(D)[2].metadata, D.__match_args__, d.t, hasattr(s, '__dict__'))",
)
sequence(
    "named tuples and typed dicts",
    "from collections import namedtuple\nfrom typing import NamedTuple, TypedDict\nP = namedtuple('P', 'x y', defaults=[0])\nclass Emp(NamedTuple):\n    name: str\n    tags: list = []\n    def hello(self): return f'hi {self.name}'\nclass Movie(TypedDict, total=False):\n    title: str\n    year: int\np = P(1); e = Emp('bo'); m: Movie = {'title': 't'}; deep = P(p, [e])",
    "e.tags.append('x'); m['year'] = 1",
    "print(p, deep, e.hello(), Emp.__annotations__, Movie.__total__)",
    "q = p._replace(y=[5]); Emp.bye = lambda self: 'bye ' + self.name",
    "q.y.append(6)\nclass Sub(P):\n    @property\n    def norm(self): return abs(self.x)\ns = Sub(-3, 1)",
    "print(q, e.bye(), s, s.norm, type(s).__name__, deep.y[0] is e, Emp._field_defaults['tags'] is e.tags, isinstance(q, P), m)",
)
sequence(
    "subclasses of builtins with attributes",
    "class L(list):\n    def __init__(self, *a, note=None): super().__init__(*a); self.note = note\nclass Dd(dict):\n    def __missing__(self, k): self[k] = v = [k]; return v\nclass I(int):\n    def __new__(cls, v, unit): o = super().__new__(cls, v); o.unit = unit; return o\nclass St(str): pass\nclass Fl(float): pass\nclass Se(set): pass\nclass Tu(tuple): pass\nclass By(bytes): pass\nl = L([1], note={'n': l if 'l' in dir() else 0}); d = Dd(a=1); i = I(5, 'kg'); st = St('s'); st.mark = [1]; se = Se([1]); se.tag = 'tag'; tu = Tu((1, [2])); tu.x = 1; by = By(b'b'); by.y = 2; fl = Fl(1.5); fl.z = l",
    "l.append(2); d['new'].append('n')",
    "print(l, l.note, d, i + 1, i.unit, type(i).__name__)",
    "st.mark.append(st); se.add(2); tu[1].append(tu)",
    "l.note['l'] = l; fl.z.append(3)",
    "print(l, l.note['l'] is l, d, i.unit, st.mark[1] is st, se, se.tag, tu[1][1] is tu, tu.x, by.y, fl.z is l, fl)",
)
sequence(
    "class attributes, class methods and statics",
    "class C:\n    count = 0; all = []\n    @classmethod\n    def make(cls, *a):\n        cls.count += 1; o = cls(); cls.all.append(o); return o\n    @staticmethod\n    def helper(x): return x * 2\nclass D(C): count = 100\nmk = C.make; mkd = D.make; hp = C.helper",
    "mk(); mkd()",
    "print(C.count, D.count, len(C.all), hp(2))",
    "C.helper = staticmethod(lambda x: x * 3)",
    "x = mk(); print(C.helper(2), hp(2))",
    "D.all = []; y = mkd()",
    "print(C.count, D.count, len(C.all), len(D.all), C.all[-1] is x, D.all[0] is y, mk.__self__ is C, mkd.__self__ is D, mkd.__func__ is mk.__func__)",
)
sequence(
    "super, diamond, mixins and bases changed",
    "class A:\n    def who(self): return ['A']\nclass B(A):\n    def who(self): return ['B', *super().who()]\nclass C(A):\n    def who(self): return ['C', *super().who()]\nclass D(B, C):\n    def who(self): return ['D', *super().who()]\nd = D()",
    "print(d.who())",
    "A.who = lambda self: ['A2']",
    "class M:\n    def who(self): return ['M', *super().who()]\nC.__bases__ = (M, A)",
    "print(d.who(), [c.__name__ for c in D.__mro__])",
    "class E(D): pass\ne = E(); D.who = lambda self: ['D2', *super(D, self).who()]",
    "print(d.who(), e.who(), [c.__name__ for c in E.__mro__], super(B, e).who())",
)
sequence(
    "what an object says of its class is not asked",
    """
asked = []
class Sly:
    def __init__(self): self.x = 1
    @property
    def __class__(self): asked.append(1); return int
s = Sly(); box = [s, {'k': s}]
""",
    "asked.clear()",
    "print(len(asked))",
    """
import json, math, types, sys, functools
json.sly = math.sly = s; json.tab = {'s': s}; box.append(lambda: s)
own = types.ModuleType('own'); own.s = s; sys.modules['own'] = own
def f(a=s): return a
f.held = s
class K:
    sly = s
@functools.lru_cache
def cached(n): return s
cached(1); asked.clear()
""",
    "print(len(asked), json.sly is s, own.s is s, f() is s, K.sly is s, cached(1) is s, box[2]() is s)",
)
sequence(
    "a child of a registered class is refused by its variable where a list has it as well",
    """
import replkernel, hashlib
class Client:
    def __init__(self, url): self.url = url; self.raw = hashlib.sha256(b'x')
replkernel.register(Client, lambda c: c.url, Client)
a = Client('one'); both = [a]
""",
    "print(both[0] is a, a.url)",
    "class Sub(Client): pass\ns = Sub('two'); both.append(s)",
    "print(both[0] is a, both[1].url)",
    refuses="'s' is a Sub",
)
sequence(
    "what holds something stuck says nothing of its class",
    """
import hashlib
asked = []
class Sly:
    @property
    def __class__(self): asked.append(1); return int
s = Sly(); s.h = hashlib.sha256(b'1'); s.me = s
""",
    "asked.clear()",
    "print(len(asked), s.me is s)",
    pinned=True,
)
sequence(
    "getattribute, setattr, class tricks",
    "class Proxy:\n    def __init__(self, t): object.__setattr__(self, '_t', t); object.__setattr__(self, 'log', [])\n    def __getattribute__(self, n):\n        if n in ('_t', 'log') or n.startswith('__'): return object.__getattribute__(self, n)\n        object.__getattribute__(self, 'log').append(n); return getattr(object.__getattribute__(self, '_t'), n)\n    def __setattr__(self, n, v): object.__getattribute__(self, 'log').append('set ' + n); setattr(object.__getattribute__(self, '_t'), n, v)\n    @property\n    def __class__(self): return int\nclass T: pass\nt = T(); p = Proxy(t)",
    "p.x = [1]",
    "p.x.append(2)\nprint(t.x, isinstance(p, int), type(p).__name__)",
    "p.y = 3; q = [p]",
    "print(p.log, q[0] is p, p._t is t)",
    "q[0].x.append('end')",
    "print(t.x, t.y, p._t is t, type(q[0]).__name__)",
)
sequence(
    "pickle hooks of users",
    "class Red:\n    built = 0\n    def __init__(self, a, b): Red.built += 1; self.a, self.b = a, b\n    def __reduce__(self): return (Red, (self.a, self.b))\nclass GS:\n    def __init__(self): self.keep, self.drop = [1], lambda: 0\n    def __getstate__(self): d = dict(self.__dict__); d['drop'] = None; return d\n    def __setstate__(self, d): self.__dict__.update(d)\nclass NA:\n    def __new__(cls, *a): o = super().__new__(cls); o.args = a; return o\n    def __getnewargs__(self): return ('fixed',)\nshared = [0]; r = Red(shared, 'b'); na = NA(1, 2)",
    "shared.append(1)",
    "print(r.a, r.a is shared, na.args)",
    "pair = [r, na, shared]",
    "pair[0].a.append(2)",
    "print(r.a, pair[0] is r, pair[1] is na, shared is r.a, na.args)",
)
sequence(
    "pickle and copy of notebook objects after moves",
    "import pickle, copy\nclass A:\n    def __init__(self): self.x = [1]; self.me = self\na = A()",
    "s = pickle.dumps(a); c = copy.deepcopy(a); sh = copy.copy(a)",
    "b = pickle.loads(s)\nprint(type(b) is A, b.me is b, b.x == a.x, c.me is c, sh.x is a.x)",
    "class A:\n    new = True\nprint(type(pickle.loads(s)) is A)",
    "def f(): return 7\ng = pickle.loads(pickle.dumps(f))",
    "print(g is f, type(a) is A, type(b) is type(a), c.x, copy.deepcopy(b).me is b)",
)
sequence(
    "instances in their own sets and dicts",
    "class H:\n    def __init__(self, n): self.n = n; self.peers = set(); self.index = {}\n    def __hash__(self): return hash(self.n)\n    def __eq__(self, o): return isinstance(o, H) and self.n == o.n\na, b = H(1), H(2); a.peers |= {a, b}; b.peers.add(a); a.index[b] = b.index; b.index[a] = 'a'",
    "a.peers.add(H(3))",
    "print(a in a.peers, b in a.peers, H(3) in a.peers, a.index[H(2)] is b.index)",
    "b.peers.add(b); fs = frozenset([a, (a, b)])",
    "a.index[a] = a.peers",
    "print(a.index[a] is a.peers, len(b.peers), (a, b) in fs, b.index[a], [h.n for h in sorted(a.peers, key=lambda h: h.n)])",
)
sequence(
    "destructors run once, when they should",
    "gone = []\nclass R:\n    def __init__(self, n): self.n = n\n    def __del__(self): gone.append(self.n)\na = R('a'); b = R('b'); keep = [R('c')]",
    "print(gone)",
    "del a\nprint(gone)",
    "b = None",
    "print(gone)",
    "keep.append(R('d')); keep.pop(0)\nprint(gone)",
    "x = y = R('x')",
    "del x\nprint(gone)",
    "del y",
    "keep.clear()",
    "print(gone)",
)
sequence(
    "class_getitem, type() and class decorators",
    "def register(cls): REG.append(cls); cls.registered = len(REG); return cls\nREG = []\n@register\nclass A:\n    def __class_getitem__(cls, k): return f'A[{k}]'\nB = type('B', (A,), {'x': [1], 'm': lambda self: self.x, '__module__': 'made.up'})\nb = B()",
    "B.x.append(2); print(A[3], b.m(), B.__module__)",
    "@register\nclass A(A): again = True",
    "C = type(B)('C', (B,), {}); c = C(); c.own = C",
    "print(REG[0] is A, REG[1] is A, B.__mro__[1] is REG[0], A.__mro__[1] is REG[0])",
    "C.x.append(3)",
    "print(b.m(), c.m() is b.x, c.own is C, A['k'], [r.registered for r in REG], C.__name__, C.__module__)",
)
sequence(
    "user types by hooks",
    "import replkernel\nclass Res:\n    def __init__(self, path): self.path = path; self.handle = (i for i in ())\nreplkernel.register(Res, lambda r: {'path': r.path}, lambda s: Res(s['path'] + "
    "''"
    "))\nclass Own:\n    def __init__(self, n): self.n = n; self.live = (i for i in ())\n    def __replkernel_dump__(self): return self.n\n    @classmethod\n    def __replkernel_load__(cls, n): return cls(n)\nr = Res('/a'); o = Own(1); both = [r, o, r]",
    "r.path += '/b'",
    "o.n += 1; print(r.path, both[0] is r, both[2] is r)",
    "o.n += 10",
    "print(r.path, o.n, both[1] is o, type(r.handle).__name__)",
)
sequence(
    "objects whose equality lies",
    "class Yes:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return True\n    def __hash__(self): return 1\nclass No:\n    def __eq__(self, o): return False\n    def __hash__(self): return 2\nys = [Yes(), Yes()]; n = No(); d = {n: [1]}; nan = float('nan'); ns = [nan, float('nan')]",
    "d[n].append(2); ys[0].tag = 'first'",
    "print(len({*ys}), d.get(n), ys[1].__dict__, ns[0] == ns[0])",
    "ys.reverse(); d[No()] = 'second'",
    "ys[0].tag = 'now first'",
    "print([getattr(y, 'tag', None) for y in ys], n in d, len(d), d[n])",
)
sequence(
    "an instance of a class nobody names",
    "def make():\n    class Hidden:\n        total = 0\n        def add(self, n): type(self).total += n; return self\n    return Hidden()\nh = make(); k = make()",
    "h.add(1)",
    "h.add(10); k.add(100)",
    "h2 = type(h)(); h2.add(1000)",
    "print(type(h).total, type(k).total, type(h) is type(h2), type(h) is type(k), type(h).__qualname__)",
    "type(h).total = 0; type(h).late = [1]; k.late2 = h.late",
    "print(h2.total, h.late is k.late2, type(k).total)",
)
sequence(
    "a getstate leaves the cache and the parent out",
    "import copy, pickle\nclass Tree:\n    def __init__(self, name, parent=None): self.name, self.parent, self.cache = name, parent, None\n    def __getstate__(self):\n        d = self.__dict__.copy(); d['cache'] = None; d.pop('parent'); return d\n    def __setstate__(self, d): self.__dict__.update(d, parent='unpickled')\nroot = Tree('root'); leaf = Tree('leaf', root)",
    "leaf.cache = {'seen': [root]}",
    "print(leaf.parent is root, leaf.cache['seen'][0] is root)\nroot.cache = leaf",
    "print(root.cache is leaf, vars(pickle.loads(pickle.dumps(leaf))), copy.copy(leaf).parent)",
)
sequence(
    "enums over text, floats and tuples",
    "import enum\nclass St(str, enum.Enum): A = 'a'\nclass Fl(float, enum.Enum): A = 1.5\nclass Tp(tuple, enum.Enum): A = (1, 2)\nclass SE(enum.StrEnum): A = enum.auto()\nclass Un(int, enum.Enum):\n    A = 1\n    def __int__(self): return 99",
    "print(St.A == 'a', len(St.A), Fl.A + 1, Tp.A[1], len(Tp.A), SE.A == 'a', Un.A + 1)",
    "print({'a': 1}[St.A], '|'.join([St.A, SE.A]), f'{St.A}', St('a') is St.A)",
    "print(St.A == 'a', len(St.A), Fl.A + 1, Tp.A[1], len(Tp.A), SE.A == 'a', Un.A + 1)",
)
sequence(
    "what super() returned, in variables",
    "class A:\n  n = 'A'\n  def hi(s): return 'A'\nclass B(A):\n  n = 'B'\n  def hi(s): return 'B'\n"
    "b = B(); s, c, u = super(B, b), super(B, B), super(B)",
    "print(s.hi(), s.__self__ is b, c.n, u.__self__)",
    "b.x = [1]; A.hi = lambda s: s.x",
    "print(s.hi() is b.x, s.__thisclass__ is B, c.__self_class__ is B, u.__get__(b).hi())",
)
sequence(
    "an instance that says it is of another class ends once",
    """
class Poses:
    __class__ = property(lambda self: int)
    def __init__(self): self.v = 1
    def __del__(self): print('gone')
class Holder: pass
posing = Poses(); holder = Holder(); holder.held = posing; other = [1]
""",
    "posing.v = 2",
    "posing.v = 3; print(isinstance(posing, int), holder.held.v)",
    "del posing; holder.held = None; print('x')",
    "print(other, holder.held)",
)
sequence(
    "a metaclass that counts who asks it for hashes",
    "log = []\nclass Meta(type):\n    def __hash__(cls):\n        log.append(('hash', cls.__name__))\n        return 7\n    def __eq__(cls, other):\n        log.append(('eq', cls.__name__))\n        return cls is other\nclass A(metaclass=Meta):\n    def __init__(self): self.v = 1\nclass B(A): pass\na, b = A(), B(); log.clear()\nprint(len(log))",
    "a.v = 2; b.w = [1]\nprint(len(log))",
    "class C(B): pass\nclass L(list, metaclass=Meta): pass\nc = C(); held = L([A, c, a.__init__]); log.clear()",
    "c.v = 5; x = [a, b, c, held]",
    "print(len(log), log[:3], a.v, b.w, held[1].v, x[0] is a, x[3] is held)",
)
sequence(
    "classes that are equal by name, and such as cannot be hashed",
    "class Named(type):\n    def __eq__(cls, other): return isinstance(other, Named) and cls.__name__ == other.__name__\n    def __hash__(cls): return hash(cls.__name__)\nclass Unhashed(type):\n    def __eq__(cls, other): raise RuntimeError('compared')\nclass A(metaclass=Named):\n    def f(self): return 1\nclass U(metaclass=Unhashed): pass\na = A(); Old = A; u = U()",
    "class A(metaclass=Named):\n    __slots__ = ('v', '__dict__')\n    def f(self): return 2\nb = A(); u.a = [a, b]",
    "a.v = 1; b.v = 2; b.w = u\ntry: hash(U)\nexcept TypeError as e: print(e)",
    "d = {A: 'new'}; u.a.append(U)",
    "class U(metaclass=Unhashed): pass\nu.late = U()",
    "print(a.f(), b.f(), Old == A, Old is A, type(a) is Old, type(b) is A, d[Old], Old().f(), A().f(), a.v, b.v, b.w is u, u.a[2] is type(u), type(u.late) is U, type(u) is U)",
)
