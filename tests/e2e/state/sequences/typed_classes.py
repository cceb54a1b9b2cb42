"""Classes that describe their data: dataclasses, named tuples, protocols, typed dicts, generics, descriptors, proxies."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "dataclasses with slots that inherit, and are weakly known",
    """
from dataclasses import *
from typing import ClassVar
import weakref
MADE = []
def fresh(): MADE.append(len(MADE)); return MADE
@dataclass(slots=True, kw_only=True, weakref_slot=True)
class Base:
    n: int = 0
    log: list = field(default_factory=fresh)
    kinds: ClassVar[dict] = {}
@dataclass(slots=True, unsafe_hash=True)
class Leaf(Base):
    tag: str
    _: KW_ONLY
    twin: Base | None = field(default=None, hash=False, compare=False, repr=False)
a = Leaf('a', n=1); b = Leaf('b', twin=a); a.twin = b; r = weakref.ref(a)
""",
    "Base.kinds['x'] = a; c = Base(); c.log.append('c')",
    "print(a, b, r() is a, a.twin.twin is a, a.log is b.log is c.log is MADE, Leaf.kinds['x'] is a)",
    "try: a.extra = 1\nexcept AttributeError as e: print(e)\nd = replace(a, n=9); seen = {a: 'a', d: 'd'}",
    "print(d.twin is b, [f.name for f in fields(Leaf)], Leaf.__match_args__, Leaf.__slots__, Base.__slots__, fields(Base)[1].default_factory is fresh)",
    "a.n += 1; e = Leaf('e'); print(MADE[-3:], astuple(c)[0], r().n)\nMADE.pop(); a.n -= 1",
)
sequence(
    "frozen dataclass with cached values and a hash of its own",
    """
from dataclasses import dataclass, field
from functools import cached_property
@dataclass(frozen=True)
class Vec:
    xs: tuple
    meta: dict = field(default_factory=dict, compare=False, hash=False)
    def __post_init__(self): object.__setattr__(self, 'n', len(self.xs))
    @cached_property
    def norm(self): self.meta['asked'] = self.meta.get('asked', 0) + 1; return sum(x * x for x in self.xs)
    def __hash__(self): return hash(self.xs)
v = Vec((1, 2)); w = Vec((3,), v.meta); table = {v: [w], w: [v]}
""",
    "v.norm",
    "print(v.norm, v.meta, w.meta is v.meta, vars(v).keys(), table[Vec((1, 2))][0] is w)",
    "del v.__dict__['norm']",
    "print(v.norm, w.norm, v.meta, v == Vec((1, 2)), v.n)",
)
sequence(
    "named tuples with methods, defaults that are shared, and children",
    """
from typing import NamedTuple, Generic, TypeVar
import collections
T = TypeVar('T')
class Pair(NamedTuple, Generic[T]):
    a: T
    b: list = []
    def swapped(self): return Pair(self.b, self.a)
class Named(Pair):
    __slots__ = ()
    def __new__(cls, a, *rest): return super().__new__(cls, a * 2, *rest)
    def __repr__(self): return f'Named<{self.a}>'
class Loose(Pair): pass
p = Pair(1); n = Named(2); q = Loose(3); q.note = [p, n]; row = collections.namedtuple('Row', ['id', 'class', 'x'], rename=True)(1, 2, 3)
""",
    "p.b.append('shared'); q.note.append(q)",
    "print(p, n, n.b is p.b, q.note[2] is q, row, row._fields, type(q).__name__)",
    "Pair.total = property(lambda s: (s.a, len(s.b))); s = p.swapped(); k = {n: 'n'} if False else {row: 'r'}",
    "print(s, s.a is p.b, n.total, q.total, Pair[int].__args__, k[(1, 2, 3)], isinstance(n, Pair), n == (4, p.b))",
    "print(n._replace(a=1) if False else n._asdict(), p.__match_args__, Pair._field_defaults['b'] is n.b, q.note[0] is p)",
)
sequence(
    "protocols, typed dicts, overloads and ParamSpec",
    """
from typing import *
import typing, functools
P = ParamSpec('P'); R = TypeVar('R')
@runtime_checkable
class Closes(Protocol):
    name: str
    def close(self) -> None: ...
class Keyed(TypedDict):
    k: Required[int]
    o: NotRequired[list['Keyed']]
class More(Keyed, total=False): extra: str
class Traced(Generic[P, R]):
    def __init__(self, fn: Callable[P, R]): self.fn = fn; self.calls = []; functools.update_wrapper(self, fn)
    def __call__(self, *a: P.args, **k: P.kwargs) -> R: self.calls.append((a, k)); return self.fn(*a, **k)
    def __get__(self, o, c=None): return self if o is None else functools.partial(self, o)
@overload
def pick(x: int) -> int: ...
@overload
def pick(x: str) -> str: ...
def pick(x): return x
@Traced
def add(a: int, b: int = 2) -> int: return a + b
class File:
    name = 'f'
    def close(self): self.closed = True
    @Traced
    def size(self, k): return (self.name, k)
f = File(); m: More = {'k': 1, 'extra': 'e'}
""",
    "add(1); f.size(3)",
    "print(isinstance(f, Closes), isinstance(1, Closes), add(1, b=5), add.calls, File.size.calls[0][0][0] is f)",
    "print(sorted(More.__required_keys__), sorted(More.__optional_keys__), Keyed.__annotations__['o'], [o.__annotations__ for o in get_overloads(pick)], add.__wrapped__ is add.fn)",
    "Closes.register(int) if False else None\nclass Late(File): name: Final = 'late'\nl = Late(); m['o'] = [m]",
    "print(isinstance(l, Closes), m['o'][0] is m, get_type_hints(More, include_extras=True)['k'], Traced[[int], str].__args__, typing.is_typeddict(More), P.args.__origin__ is P, len(add.calls))",
)
sequence(
    "attributes answered and refused by the class",
    """
class Bag:
    def __init__(self): self.__dict__['_store'] = {}; self.__dict__['_reads'] = []
    def __getattr__(self, n):
        self._reads.append(n)
        try: return self._store[n]
        except KeyError: raise AttributeError(n) from None
    def __setattr__(self, n, v): self._store[n] = v
    def __delattr__(self, n): del self._store[n]
    def __dir__(self): return sorted(self._store)
    def __contains__(self, n): return n in self._store
class Lazy:
    def __getattr__(self, n):
        if n.startswith('_'): raise AttributeError(n)
        child = Lazy(); setattr(self, n, child); return child
class Frozen:
    __slots__ = ('v',)
    def __init__(self, v): object.__setattr__(self, 'v', v)
    def __setattr__(self, n, v): raise TypeError('frozen')
b = Bag(); b.x = [1]; z = Lazy(); z.a.b.c.leaf = b; fr = Frozen(b.x)
""",
    "b.y = b; b.x.append(2)",
    "print(b._reads, dir(b), 'x' in b, z.a.b.c.leaf is b, fr.v is b.x, sorted(vars(z.a)))",
    "del b.y; fr.v.append(3)",
    "try: fr.v = 1\nexcept TypeError as e: print(e)\ntry: b.nope\nexcept AttributeError as e: print('no', e)",
    "n = len(b._reads)\nprint(b.x, sorted(vars(b)), vars(z.a.b.c)['leaf'] is b, type(z.a.b).__name__, b._reads[:6]); del b._reads[n:]",
)
sequence(
    "descriptors that know their owner, weakly and by name",
    """
import weakref
class Tracked:
    def __set_name__(self, owner, name): self.name, self.owner = name, weakref.ref(owner); self.values = weakref.WeakKeyDictionary(); owner.fields = [*getattr(owner, 'fields', []), self]
    def __get__(self, o, c=None): return self if o is None else self.values.get(o, 'none')
    def __set__(self, o, v): self.values[o] = v
class NonData:
    def __init__(self, f): self.f = f
    def __get__(self, o, c=None): return o.__dict__.setdefault(self.f.__name__, self.f(o)) if o else self
class Model:
    a = Tracked(); b = Tracked()
    @NonData
    def lazy(self): RUNS.append(self.a); return [self.a]
RUNS = []; m = Model(); n = Model(); m.a = 1; n.a = {'m': m}
""",
    "m.b = n; m.lazy.append('x')",
    "print(m.a, n.a['m'] is m, m.b is n, m.lazy, RUNS, [f.name for f in Model.fields], Model.a.owner() is Model)",
    "del n; import gc; gc.collect(); k = Model()",
    "print(len(Model.a.values), k.a, m.b.a['m'] is m)",
    "m.b = None; k.a = m.lazy; g = gc.collect()",
    "print(len(Model.a.values), len(Model.b.values), k.a is m.lazy, Model.fields[0] is Model.a, RUNS)",
)
sequence(
    "__class_getitem__, __init_subclass__ and __prepare__ together",
    """
class Order(dict):
    def __init__(self): super().__init__(); self.seen = []
    def __setitem__(self, k, v):
        if not k.startswith('__'): self.seen.append(k)
        super().__setitem__(k, v)
class Meta(type):
    def __prepare__(name, bases, **kw): return Order()
    def __new__(m, name, bases, ns, **kw): c = super().__new__(m, name, bases, dict(ns)); c.order = ns.seen; return c
    def __init__(c, name, bases, ns, **kw): super().__init__(name, bases, ns)
    def __getitem__(c, k): return c.cache.setdefault(k, type(c)(f'{c.__name__}[{k}]', (c,), Order(), key=k))
    def __instancecheck__(c, o): CHECKS.append(c.__name__); return type.__instancecheck__(c, o)
    def __eq__(c, o): return c.__name__ == getattr(o, '__name__', None)
    def __hash__(c): return hash(c.__name__)
CHECKS = []
class Field(metaclass=Meta):
    cache = {}
    def __init_subclass__(cls, key=None, **kw): super().__init_subclass__(**kw); cls.key = key
    z = 1
    def go(self): return self.key
    a = 2
I = Field[int]; S = Field['s']; i = I()
""",
    "print(Field.order, i.go(), Field[int] is I, len(Field.cache), CHECKS)",
    "class Sub(I, key='sub'): more = [1]",
    "s = Sub(); print(s.go(), isinstance(s, Field), CHECKS, Sub.order, list(Field.cache))",
    "Field.late = lambda self: 'late'; table = {I: 'i', Sub: 's'}",
    "print(s.late(), table[Field[int]], table[Sub], I.__mro__[1] is Field, Field['s'] is S, len({c.__name__ for c in Field.__subclasses__()}))",
)
sequence(
    "enums with values made by themselves, members added as aliases",
    """
import enum
class Auto(enum.Enum):
    def _generate_next_value_(name, start, count, last): return name.lower() * (count + 1)
class Kind(Auto):
    A = enum.auto(); B = enum.auto()
    @classmethod
    def _missing_(cls, v): return cls.A if v == 'any' else None
    @property
    def other(self): return Kind.B if self is Kind.A else Kind.A
class Op(enum.Enum):
    ADD = enum.member(lambda a, b: a + b); SUB = enum.member(lambda a, b: a - b)
    helper = enum.nonmember([1])
    def __call__(self, *a): return self.value(*a)
class Bits(enum.IntFlag, boundary=enum.KEEP):
    X = 1; Y = 2; XY = 3
@enum.verify(enum.UNIQUE)
class U(enum.StrEnum): ONE = enum.auto()
k = Kind('any'); got = {Kind.A: [Kind.B], Bits.XY: 'xy', U.ONE: 'one'}; big = Bits(9)
""",
    "Op.helper.append(2); got[Kind.A].append(k)",
    "print(Kind.A.value, Kind('any') is k, got[Kind.A][1].other, Op.ADD(1, 2), Op.helper, got['one'], big, list(Bits.XY), 3 in got)",
    "Api = enum.Enum('Api', {'GET': 1, 'PUT': [2]}, module='made', qualname='made.Api'); Kind.A.note = [k]",
    "print(Api.PUT.value, Api(1), Kind.A.note[0] is Kind.A, Kind._member_map_.keys(), Op(Op.SUB.value) is Op.SUB, ~Bits.X, repr(big & Bits.Y), Api.__module__)",
)
sequence(
    "traits that are observed, linked and validated",
    """
from traitlets import HasTraits, Int, List, observe, validate, default, link, TraitError
class C(HasTraits):
    n = Int(1).tag(sync=True); l = List(Int())
    @default('l')
    def _l(self): return [9]
    @observe('n')
    def _on(self, ch): log.append((ch.old, ch.new))
    @validate('n')
    def _v(self, p):
        if p.value < 0: raise TraitError('neg')
        return p.value
log = []; a = C(); b = C(n=4); lk = link((a, 'n'), (b, 'n')); dyn = []
a.observe(dyn.append, 'l')
""",
    "b.n = 6; a.l = [1]",
    """
print(a.n, log, dyn[0].new, dyn[0].owner is a, a.trait_metadata('n', 'sync'))
try: a.n = -1
except TraitError as e: print(e)
""",
    """
lk.unlink(); a.n = 50
with a.hold_trait_notifications(): a.n = 60; a.n = 70
""",
    "print(log, a.n, b.n, b.l, a.l, len(dyn))",
)
sequence(
    "attrs classes that remember their hash",
    "import attrs\n@attrs.frozen(cache_hash=True)\nclass Q: n: int = 0\nq, late = Q(3), Q(4); h = hash(q); d = {q: [1]}",
    "k = hash(late); d[late] = q",
    "print(hash(q) == h, hash(late) == k, d[Q(3)], d[Q(4)] is q, q)",
    "d[q].append(2); e = attrs.evolve(q, n=5); he = hash(e)",
    "print(d[Q(3)], {e: 1}[Q(5)], q in d, len(d))",
    needs=("attrs",),
)

sequence(
    "a generic class that holds what it gives for types, and an instance made by it",
    """
import typing as t
T = t.TypeVar('T'); K = t.TypeVar('K'); asked = []
class Stack(t.Generic[T]):
    given: t.ClassVar[dict] = {}
    def __class_getitem__(cls, types):
        asked.append(str(types)); cls.given[str(types)] = found = super().__class_getitem__(types); return found
    def __init__(self): self.items: list[T] = []
Stack.of_ints = Stack[int](); S = Stack[str]; s = S(); n = len(asked)
""",
    "s.items.append(Stack.of_ints); Stack.of_ints.items.append(1)",
    """
print(asked, Stack.given['T'] if 'T' in Stack.given else '', S is Stack.given[str(str)], s.__orig_class__ is S)
class Table(Stack[T], t.Generic[T, K]): pass
Table.first = Table[int, str]()
""",
    "print(Table.__parameters__, Table.first.__orig_class__, Stack.of_ints.items, t.get_origin(S) is Stack)",
    "print(type(s.items[0]) is Stack, s.items[0] is Stack.of_ints, len(asked) > n, sorted(Stack.given), T in Table.__parameters__)",
)

sequence(
    "flags without a name, and combined ones, as the class comes to know more",
    "import enum\nclass F(enum.Flag): A = 1; B = 2; C = 4\nclass N(enum.IntFlag): P = 1\nbc = F.B | F.C; empty = F(0); odd = N(8); zero = N(0)",
    "ac = F.A | F.C; table = {empty: 'none', ac: 'ac', odd: 'odd'}",
    "print(empty is F(0) is F.A & F.B, bc is F.C | F.B, table[F(0)], zero is N(0), odd is N(8)); F.extra = [empty]; N.extra = 1",
    "more = N(9); print(F.extra[0] is empty is F(0), ac is F(5), zero is N.P & N(8), next(iter(table)) is empty)",
    "print(empty is ~F(7), more is N.P | 8, odd is N(8), zero is N(0), table[F.C | F.A], list(bc), empty.name)",
)
sequence(
    "structs of msgspec with tags, factories and generics, and what reads them",
    """
import msgspec
from typing import ClassVar, Generic, TypeVar
made = []
class Node(msgspec.Struct, tag='node', rename='camel', weakref=True, dict=True, omit_defaults=True):
    node_name: str
    kids: list['Node'] = []
    up: 'Node | None' = None
    size: int = msgspec.field(default_factory=lambda: step, name='sz')
    count: ClassVar[int] = 0
    def __post_init__(self): made.append(self.node_name); Node.count += 1
    def grow(self): self.size += step; return self.size
class Leaf(Node, tag='leaf', kw_only=True):
    v: int
    w: int = 3
    def __post_init__(self): super().__post_init__(); made.append('leaf')
T = TypeVar('T')
class Box(msgspec.Struct, Generic[T], frozen=True, cache_hash=True):
    v: T
    w: tuple = ()
step = 2; a = Node('a'); b = Leaf('b', v=1, up=a); a.kids.append(b); a.up = a; a.note = [1]; dec = msgspec.json.Decoder(Node | Leaf); box = Box[int](3); keyed = {box: a}
""",
    "print(made, a.grow(), a.kids[0] is b, b.up is a, a.up is a, a.note, Node.count, keyed[Box(3)] is a)",
    """
step = 5; c = dec.decode(b'{"type":"leaf","nodeName":"c","v":4,"sz":8}'); n = Node('z'); print(c, n.size, made, Node.count, type(c) is Leaf, Leaf.__match_args__, hash(box) == hash(Box(3)))
Node.grow = lambda self: 'new'
""",
    """
a.note.append(2); print(msgspec.json.encode(b.kids), msgspec.json.encode(n), n.grow(), a.note, Leaf.__struct_config__.tag, Leaf.__struct_defaults__[-1], Box.__parameters__)
class Node(msgspec.Struct): other: int
""",
    """
print(isinstance(a, Node), type(a).__name__, a.up is a, a.kids[0] is b, len(made), Leaf('q', v=2).w if False else b.w)
try: box.v = 4
except AttributeError as e: print(e)
""",
)
sequence(
    "encoders and decoders of msgspec",
    """
import msgspec
def hook(o): return rep
rep = 'r'; e = msgspec.json.Encoder(enc_hook=hook, order='sorted'); d = msgspec.msgpack.Decoder(list[int]); mp = msgspec.msgpack.Encoder()
""",
    "print(e.encode({'b': 1j, 'a': 1}), d.decode(mp.encode([1, 2])))",
    "rep = 's'; print(e.encode(1j), d.type, e.enc_hook is hook)",
)
