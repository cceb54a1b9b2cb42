"""Other libraries: pictures, widgets, sessions, engines, models of data, documents, child processes."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "pictures",
    """
from PIL import Image, ImageDraw, ImageFont
import numpy as np, io
im = Image.new('RGB', (4, 4), 'red'); dr = ImageDraw.Draw(im); px = im.load(); al = im; im2 = Image.fromarray(np.arange(16, dtype='u1').reshape(4, 4)); im.info['k'] = 'v'; b = io.BytesIO(); im.save(b, 'PNG'); lz = Image.open(b); pal = im.convert('P')
""",
    "dr.point((1, 1), 'blue'); im.putpixel((0, 0), (1, 2, 3))",
    "print(im.getpixel((1, 1)), al is im, im.getpixel((0, 0)), im.info, lz.size, im2.getpixel((3, 3)), pal.mode)",
    "dr.line([(0, 3), (3, 3)], 'green'); print(im.getpixel((2, 3)), lz.getpixel((0, 0)), lz.format)",
    "px[2, 2] = (9, 9, 9); print(im.getpixel((2, 2)), im.tobytes()[:6], im.resize((2, 2)).size)",
    needs=("PIL", "numpy"),
)
sequence(
    "progress bars",
    """
from tqdm import tqdm, trange
import io
o = io.StringIO(); b = tqdm(total=10, file=o, mininterval=0, desc='d'); it = iter(tqdm([1, 2, 3], file=o)); next(it)
""",
    "b.update(3); print(b.n, b.total, b.desc)",
    "b.set_postfix(a=1); b.update(2); print(b.n, b.postfix, b.fp is o or 'd:' in o.getvalue())",
    "b.close(); print(b.n, b.disable, 'd:' in o.getvalue())",
    needs=("tqdm",),
    pinned="generator",
)
sequence(
    "widgets",
    """
import ipywidgets as w, traitlets as t
s = w.IntSlider(3, description='s'); log = []; s.observe(lambda c: log.append(c['new']), 'value'); box = w.VBox([s, w.Text('t')]); out = w.Output(); l = w.IntText(); t.link((s, 'value'), (l, 'value'))
class Mod(t.HasTraits):
    n = t.Int(2); tags = t.List()
    @t.observe('n')
    def _n(self, c): log.append(('n', c['new']))
    @t.validate('n')
    def _v(self, p): return min(p['value'], 10)
m = Mod()
""",
    "m.n = 50; m.tags.append(1); print(m.n, log)",
    "m.n = 4; print(log, m.tags, m.trait_names())",
    needs=("ipywidgets",),
    pinned=True,
)
sequence(
    "sessions and engines",
    """
import requests, httpx, sqlalchemy as sa
from sqlalchemy.orm import declarative_base, Session
s = requests.Session(); s.headers['X'] = '1'; s.cookies.set('k', 'v'); s.auth = ('u', 'p'); c = httpx.Client(headers={'Y': '2'}, base_url='http://h'); e = sa.create_engine('sqlite://'); md = sa.MetaData(); t = sa.Table('t', md, sa.Column('id', sa.Integer, primary_key=True)); sel = sa.select(t).where(t.c.id > 1); j = requests.cookies.RequestsCookieJar()
""",
    "s.params['q'] = 1; print(s.headers['X'], s.cookies.get('k'), s.auth, s.adapters.keys())",
    "print(str(sel), t.c.id.primary_key, s.params)",
    "print(c.headers['Y'], c.base_url)",
    "r = requests.Request('GET', 'http://x/a', params={'b': 1}); p = s.prepare_request(r); print(p.url)",
    "print(p.headers['X'], p.method, p.body)",
    needs=("requests", "httpx", "sqlalchemy"),
    pinned=True,
)
sequence(
    "sqlite engine on disk",
    """
import sqlalchemy as sa, tempfile, os
p = os.path.join(tempfile.mkdtemp(), 'a.db'); e = sa.create_engine('sqlite:///' + p)
with e.begin() as c: c.execute(sa.text('create table t(x int)')); c.execute(sa.text('insert into t values (1)'))
""",
    "with e.begin() as c: c.execute(sa.text('insert into t values (2)'))",
    "with e.connect() as c: print(c.execute(sa.text('select sum(x) from t')).scalar())",
    "print(e.url.database == p, e.dialect.name)",
    needs=("sqlalchemy",),
    pinned=True,
)
sequence(
    "orm classes",
    """
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
class Base(DeclarativeBase): pass
class U(Base):
    __tablename__ = 'u'
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
u = U(id=1, name='a')
""",
    "u.name = 'b'; print(u.name, U.__table__.columns.keys())",
    "print(sa.select(U).where(U.id == 1)); v = U(id=2, name='c')",
    "print(v.name, u.id, len(Base.metadata.tables))",
    needs=("sqlalchemy",),
    pinned="SQLAlchemy",
)
sequence(
    "pydantic and attrs",
    """
import pydantic, attrs, dataclasses, typing
class A(pydantic.BaseModel):
    x: int; tags: list[str] = []; _p: int = pydantic.PrivateAttr(3)
    @pydantic.field_validator('x')
    @classmethod
    def pos(cls, v):
        if v < 0: raise ValueError('neg')
        return v
    @pydantic.computed_field
    @property
    def dbl(self) -> int: return self.x * 2
class B(A): inner: A | None = None; model_config = pydantic.ConfigDict(validate_assignment=True)
@attrs.define
class C:
    a: int; b: list = attrs.field(factory=list)
@attrs.frozen
class F: k: int = 1
@dataclasses.dataclass(slots=True, order=True)
class D: n: int; m: dict = dataclasses.field(default_factory=dict, compare=False)
a = A(x=1); b = B(x=2, inner=a); c = C(1); f = F(); d = D(1); ta = pydantic.TypeAdapter(list[int]); lst = a.tags
""",
    "a.x = 5; a.tags.append('t'); c.b.append(1); d.m['k'] = c",
    "print(a, b, c, f, d, a._p, a.dbl, a.tags is lst)",
    """\
try:
    b.x = -1
except pydantic.ValidationError as e: print(e.error_count())
print(b.inner is a, B.model_fields.keys(), ta.validate_python(['1']))
""",
    "print(a.model_dump(), B.model_validate({'x': 3}), hash(f) == hash(F()), D(1) < D(2), attrs.asdict(c), a.model_fields_set, B.model_json_schema()['title'])",
    """\
class A(A): y: int = 0
print(A(x=1).y, isinstance(a, A), type(b).__mro__[1] is A)
""",
    "a2 = a.model_copy(deep=True); a2.tags.append('z'); print(a.tags, a2.tags, a == a2)",
    needs=("pydantic", "attrs"),
)
sequence(
    "xarray",
    """
import xarray as xr, numpy as np
d = np.arange(6.).reshape(2, 3); da = xr.DataArray(d, dims=['t', 'x'], coords={'x': [1, 2, 3]}, attrs={'u': []}); ds = xr.Dataset({'a': da, 'b': ('t', [1, 2])}); v = da.values; g = ds.groupby('x'); r = da.rolling(x=2); s = da[0]
""",
    "v[0, 0] = 50; da.attrs['u'].append(1)",
    "print(da, ds.a.values, s.values, d[0, 0])",
    "da[1, 1] = -5; print(v[1, 1], ds['a'].values[1, 1], r.mean().values, g.mean().a.values, da.attrs)",
    "ds['c'] = ds.a * 2; ds.attrs['k'] = 1; print(list(ds), ds.c.sum().item(), ds.sel(x=2).a.values)",
    needs=("xarray",),
)
sequence(
    "documents",
    """
from lxml import etree
from bs4 import BeautifulSoup
import yaml, json, configparser, decimal
r = etree.fromstring('<a><b k="1"/>t</a>'); b = r[0]; s = BeautifulSoup('<p class="x">hi <b>u</b></p>', 'html.parser'); p = s.p; y = yaml.safe_load('a: [1, {b: 2}]'); cp = configparser.ConfigParser(); cp.read_string('[s]\\nk = v')
class Pt(yaml.YAMLObject):
    yaml_tag = '!Pt'
    def __init__(s, x): s.x = x
""",
    "b.set('k', '2'); p.b.string = 'changed'; cp['s']['n'] = '1'",
    "print(etree.tostring(r), s, cp['s']['n'], y, yaml.dump(Pt(1)))",
    "print(p is s.p, p['class'], s.find('b').parent is p, b.getparent() is r)",
    "print(yaml.load('!Pt {x: 3}', yaml.Loader).x, r.xpath('//b/@k'))",
    needs=("lxml", "bs4", "yaml"),
    pinned=True,
)
sequence(
    "multiprocessing is named",
    """
import multiprocessing as mp
q = [1]; ctx = mp.get_context('fork'); v = ctx.Value('i', 3); a = ctx.Array('d', 2); ev = ctx.Event()
""",
    "q.append(2); print(q)",
    "print(q)",
    needs=(),
    pinned=True,
)
sequence(
    "odds of the standard library",
    """
import numpy as np, fractions, decimal, statistics, uuid, ipaddress, zoneinfo, datetime as dt, random, secrets, string, textwrap, calendar, heapq, bisect, cmath
nd = statistics.NormalDist(0, 2); u = uuid.UUID(int=5); ip = ipaddress.ip_network('10.0.0.0/30'); z = zoneinfo.ZoneInfo('Europe/Rome'); d = dt.datetime(2020, 1, 1, tzinfo=z); rr = random.Random(4); sr = random.SystemRandom(); rr.gauss(0, 1); tpl = string.Template('$a'); h = []; heapq.heappush(h, (2, 'x')); tw = textwrap.TextWrapper(width=5); ctx = decimal.getcontext(); cal = calendar.TextCalendar(6)
""",
    "print(rr.gauss(0, 1), nd.cdf(1), u, list(ip)[1], d.utcoffset(), d.tzinfo is z, tpl.substitute(a=1))",
    "heapq.heappush(h, (1, 'y')); print(rr.random(), heapq.heappop(h), tw.wrap('aaa bbb'), 0 <= sr.random() < 1)",
    "ctx.prec = 5; print(decimal.Decimal(1) / 3, ctx is decimal.getcontext())",
    "print(decimal.Decimal(1) / 3, cal.formatmonth(2020, 1)[:12], zoneinfo.ZoneInfo('Europe/Rome') is z)",
    needs=("numpy",),
)
sequence(
    "what init_printing registers",
    "import sympy as sp\nsp.init_printing(); x = sp.Symbol('x')",
    "x**2",
    "[x, 1.5]",
    "sp.init_printing(order='lex', use_latex='mathjax', forecolor='Black')",
    "x + x**3 + 1",
    "sp.init_printing(pretty_print=False)",
    "print(sp.core._print_helpers.Printable._repr_png_(x)); x**2 + 1",
    needs="sympy",
)
sequence(
    "calls that pydantic validates, and models made for types",
    """
import pydantic, typing as t
T = t.TypeVar('T')
class Resp(pydantic.BaseModel, t.Generic[T]):
    data: T
R = Resp[int]; r = R(data='5'); D = pydantic.create_model('D', x=(int, ...), y=(list[R], [])); d = D(x=1, y=[r]); seen = []
@pydantic.validate_call(validate_return=True)
def f(a: int, b: 'list[str]' = []) -> int: seen.append(b); return a
""",
    "print(R is Resp[int], isinstance(r, Resp[int]), type(d.y[0]) is Resp[int], f('3', ['q']), f.__name__, f.raw_function(1))",
    "d.y.append(Resp[int](data=7))",
    """
try: f('x')
except pydantic.ValidationError as e: err = e
""",
    "print(err.errors()[0]['type'], d.model_dump_json(), type(d.y[1]) is R, seen, Resp[str] is Resp[str])",
    needs=("pydantic",),
)
sequence(
    "a parser of arguments, asked in several cells",
    "import argparse\nap = argparse.ArgumentParser(prog='x'); ap.add_argument('--lr', type=float, default=.5); ap.add_argument('-v', action='count', default=0, help=argparse.SUPPRESS)",
    "ns = ap.parse_args([])",
    "sub = ap.add_subparsers(dest='c'); go = sub.add_parser('go', argument_default=argparse.SUPPRESS); go.add_argument('--q'); also = argparse.SUPPRESS",
    "print(ns, ap.parse_args(['go']), ap.format_help(), also is argparse.SUPPRESS, go.argument_default is also)",
)
sequence(
    "arrays that look at pictures",
    "from PIL import Image\nimport numpy as np\nim = Image.fromarray((np.arange(64).reshape(8, 8) * 4).astype('u1')); arr = np.asarray(im); own = np.array(im); rgb = np.asarray(Image.new('RGB', (2, 2), 'red'))[:, :, 0]",
    "im.putpixel((0, 0), 255); own[0, 0] = 9",
    "back = Image.fromarray(arr); part = arr[2:4]",
    "print(arr[0, 0], arr[7, 7], arr.flags.writeable, own[0, 0], im.getpixel((0, 0)), back.getpixel((7, 7)), part.base is arr, np.shares_memory(part, arr), rgb)",
    needs=("PIL", "numpy"),
)
sequence(
    "a parsed document and its tags",
    "from bs4 import BeautifulSoup\nsoup = BeautifulSoup('<ul><li class=\"a\">1</li><li>2</li></ul>', 'html.parser'); li = soup.find('li'); ul = soup.ul",
    "li['id'] = 'first'; li.string = 'one'",
    "new = soup.new_tag('li'); new.string = '3'; ul.append(new)",
    "li.extract(); rest = ul.find_all('li')",
    "print(soup, ul.parent is soup, soup.ul is ul, rest[-1] is new, new.previous_sibling, li, soup.find_all('li') == rest)",
    needs="bs4",
)
sequence(
    "pictures, their pixels and a font",
    """
from PIL import Image, ImageDraw, ImageFont, ImageFilter, ImageOps, ImageChops, ImageSequence, ImageStat
im = Image.new("RGBA", (8,8), (0,0,0,0)); px = im.load(); font = ImageFont.load_default(); d = ImageDraw.Draw(im); d.text((0,0), "A", font=font, fill="white"); mask = im.getchannel("A"); L = im.convert("L"); lp = L.load(); st = ImageStat.Stat(L); lut = Image.open; layers = {"base": im, "copy": im.copy()}
""",
    """
px[7,7] = (1,2,3,4); lp[0,0] = 77; d.point((3,3), "red")
print(im.getpixel((7,7)), L.getpixel((0,0)), layers["base"] is im, im.getpixel((3,3)), st.count, px[7,7])
""",
    """
im.paste((9,9,9,9), (0,0,2,2)); print(px[0,0], lp[0,0], mask.size, font.getbbox("A") == ImageFont.load_default().getbbox("A"), im.load()[1,1])
""",
    needs=(
        "PIL",
        "numpy",
    ),
)
sequence(
    "listeners of an engine and a table",
    """
import sqlalchemy as sa
from sqlalchemy import event
engine = sa.create_engine('sqlite://'); log = []; data = sa.MetaData(); table = sa.Table('t', data, sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', sa.String))
@event.listens_for(engine, 'before_cursor_execute')
def note(conn, cursor, statement, *rest): log.append(statement.split()[0])
@event.listens_for(table, 'after_create')
def made(target, connection, **how): log.append(target.name)
""",
    "data.create_all(engine); log.sort()",
    "with engine.begin() as c: c.execute(table.insert(), [{'name': 'ann'}, {'name': 'bob'}])",
    "query = sa.select(table.c.name).order_by(table.c.id)\nwith engine.connect() as c: rows = c.execute(query).all()",
    "with engine.connect() as again: last = again.execute(sa.text(\"select 'abc' regexp 'b'\")).scalar()",
    "print(log, rows, rows[0]._mapping, last, c.closed, again.engine is engine)",
    needs="sqlalchemy",
)
sequence(
    "an open connection of an engine",
    "import sqlalchemy as sa; engine = sa.create_engine('sqlite:///a.db'); kept = [engine]",
    "conn = engine.connect(); made = conn.execute(sa.text('create table t(x)'))",
    "conn.execute(sa.text('insert into t values (5)')); conn.commit(); _ = made = None",
    "conn.close()",
    "del conn\nwith engine.connect() as c: n = c.execute(sa.text('select x from t')).scalar()",
    "print(n, kept[0] is engine)",
    needs="sqlalchemy",
    pinned=True,
)
