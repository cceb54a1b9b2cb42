"""polars and Arrow: frames, expressions, tables, memory shared with numpy and pandas."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "filtered data sets, options, readers and outputs of Arrow that are closed",
    """
import pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq, pyarrow.compute as pc
pq.write_table(pa.table({'a': [1, 2, 3], 'g': ['x', 'y', 'x']}), 'd.parquet'); d = ds.dataset('d.parquet'); some = d.filter(ds.field('a') > 1)
kept = ds.dataset(pa.table({'v': [5, None]})); o = pc.CountOptions(mode='all'); out = pa.BufferOutputStream(); out.write(b'abc'); b = out.getvalue(); r = pa.BufferReader(b'abcdef')
""",
    "one = some.filter(ds.field('g') == 'x'); head = r.read(2); print(some.count_rows(), head)",
    "print(one.to_table().to_pydict(), r.read(2), r.tell(), pc.count(kept.to_table()['v'], options=o).as_py(), out.closed, b.to_pybytes())",
    "print(type(some).__name__, some.files, kept.filter(ds.field('v') > 1).count_rows(), d.count_rows(), out.getvalue() == b, r.size())",
    needs="pyarrow",
)
sequence(
    "plans of polars with functions of the notebook, and series of objects",
    """
import polars as pl
n = []; k = 2; df = pl.DataFrame({'a': [1, 2]}); bag = [1]; s = pl.Series('o', [bag, None], dtype=pl.Object); fo = pl.DataFrame({'o': s, 'i': [1, 2]})
class Scale:
    def __init__(self, by): self.by = by
    def __call__(self, part): n.append(len(part)); return part * self.by * k
by = Scale(3); e = pl.col('a').map_batches(by, return_dtype=pl.Int64); lf = df.lazy().with_columns(b=e)
""",
    "k = 10; bag.append(2); print(lf.collect().rows(), n)",
    "by.by = 1; lf2 = lf.select(c=pl.col('b') + 1); fo.insert_column(0, pl.Series('j', [7, 8])); print(df.select(e).rows())",
    "k = 100; del lf; print(lf2.collect().rows(), fo['o'][0] is bag, s[0] is bag)",
    "print(lf2.collect().rows(), fo.columns, fo.rows(), s.to_list(), sorted(set(n)), fo.schema)",
    needs="polars",
)
sequence(
    "polars frames",
    """
import polars as pl
df = pl.DataFrame({'a': [1, 2, None], 'b': ['x', 'y', 'z'], 'l': [[1], [2, 3], []]}); al = df; s = df['a']; lz = df.lazy().filter(pl.col('a') > 1).with_columns(c=pl.col('a') * 2)
""",
    "df[0, 'a'] = 10; s[1] = -1",
    "print(al is df, df, s.to_list())",
    "df.insert_column(1, pl.Series('n', [7, 8, 9])); df.replace_column(0, pl.Series('A', [1, 2, 3]))",
    "print(al.columns, lz.collect(), al['n'].sum())",
    "df.extend(al.clone()); print(al.height, lz.explain()[:6])",
    "s.rename('q'); s.append(pl.Series('a', [5])); print(s.name, s.to_list(), df.schema)",
    "print(s.name, s.to_list(), al is df, df.schema)",
    needs=("polars",),
)
sequence(
    "polars expressions and types",
    """
import polars as pl, datetime as dt
e = (pl.col('a') + 1).alias('e'); w = pl.when(pl.col('a') > 1).then(pl.lit('hi')).otherwise(pl.lit('lo')); df = pl.DataFrame({'a': [1, 2], 'd': [dt.date(2020, 1, 1), None], 's': [{'x': 1}, {'x': 2}], 'c': pl.Series(['u', 'v'], dtype=pl.Categorical), 'en': pl.Series(['p', 'q'], dtype=pl.Enum(['p', 'q'])), 'dec': pl.Series(['1.5', '2'], dtype=pl.String).cast(pl.Decimal(10, 2))}); t = pl.List(pl.Int8); g = df.group_by('c', maintain_order=True)
""",
    "print(df.select(e, w.alias('w')), t, df.schema)",
    "print(g.agg(pl.len()).height, df['c'].unique(maintain_order=True).to_list(), str(e))",
    "r = df.rolling if False else df.select(pl.col('a').rolling_sum(2)); print(r, df['en'].dtype)",
    "print(df.with_columns(pl.struct('a', 'd').alias('st'))['st'][0], df['dec'].to_list())",
    needs=("polars",),
)
sequence(
    "polars functions of the notebook",
    """
import polars as pl
K = 2
def tw(x): return x * K
df = pl.DataFrame({'a': [1, 2, 3]}); lz = df.lazy().select(pl.col('a').map_elements(tw, return_dtype=pl.Int64)); ob = pl.Series('o', [object(), [1]], dtype=pl.Object)
""",
    "K = 3; print(df.select(pl.col('a').map_elements(tw, return_dtype=pl.Int64))['a'].to_list())",
    "print(lz.collect()['a'].to_list())",
    "print(len(ob), ob[1])",
    needs=("polars",),
)
sequence(
    "polars string cache and config",
    """
import polars as pl
pl.Config.set_tbl_rows(3); pl.Config.set_tbl_cols(2)
a = pl.Series(['x', 'y'], dtype=pl.Categorical); b = pl.Series(['y', 'x'], dtype=pl.Categorical)
""",
    "print(pl.DataFrame({'k': range(10)}))",
    "print(pl.concat([a, b]).to_list(), (a == b).to_list())",
    "pl.Config.restore_defaults(); print(pl.DataFrame({'k': range(4)}))",
    needs=("polars",),
)
sequence(
    "arrow tables",
    """
import pyarrow as pa, pyarrow.compute as pc
t = pa.table({'a': [1, 2, None], 'b': ['x', 'y', 'z']}, metadata={'k': 'v'}); a = pa.array([1., 2., 3.]); n = a.to_numpy(); ch = pa.chunked_array([[1], [2, 3]]); rb = pa.record_batch({'q': [1]}); sc = t.schema; d = pa.array(['u', 'v', 'u']).dictionary_encode(); sl = t.slice(1); bu = pa.py_buffer(b'abc')
""",
    "print(t.schema.metadata, n, n.flags.writeable, ch.num_chunks, rb.num_rows, sl.num_rows)",
    "t = t.append_column('c', pa.array([True, None, False])); print(t.column_names, sc.names, d.dictionary, bu.to_pybytes())",
    "print(pc.sum(a), t.to_pandas(), sl['b'].to_pylist(), t.equals(t.slice(0)), d.indices)",
    "print(a.type, pa.types.is_float64(a.type), sc.field('a').nullable, pa.scalar(5), ch.type)",
    "m = pa.array([{'x': 1}]); s2 = pa.struct([('x', pa.int8())]); print(m.cast(s2), n.base is not None)",
    needs=("pyarrow", "pandas"),
)
sequence(
    "arrow memory shared",
    """
import pyarrow as pa, numpy as np
x = np.arange(20_000.); a = pa.array(x); v = a.to_numpy(zero_copy_only=True); b = pa.py_buffer(bytearray(b'12345678')); w = np.frombuffer(b, 'u1')
""",
    "x[5] = 55",
    "print(a[5], v[5], x[5], v.flags.writeable)",
    "x[6] = 66; print(a[6].as_py(), v[6])",
    "print(w, b.size, b.is_mutable)",
    needs=("pyarrow", "numpy"),
)
sequence(
    "arrow readers",
    """
import pyarrow as pa, pyarrow.csv as pc, io
t = pa.table({'a': list(range(10))}); rd = pa.RecordBatchReader.from_batches(t.schema, t.to_batches(max_chunksize=3)); next(rd)
other = t.slice(0, 2)
""",
    "print(other.to_pydict())",
    "print(t.num_rows)",
    needs=("pyarrow",),
    pinned="RecordBatchReader",
)
sequence(
    "arrow datasets",
    """
import pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq, tempfile, os
d = tempfile.mkdtemp(); pq.write_table(pa.table({'a': [1, 2, 3]}), os.path.join(d, 'x.parquet')); s = ds.dataset(d); e = ds.field('a') > 1; f = pa.fs.LocalFileSystem() if hasattr(pa, 'fs') else None
""",
    "print(s.to_table(filter=e).to_pydict(), e)",
    "pf = pq.ParquetFile(os.path.join(d, 'x.parquet')); print(pf.metadata.num_rows)",
    "print(s.schema, s.count_rows())",
    needs=("pyarrow",),
    pinned="ParquetReader",
)
sequence(
    "pandas, polars and arrow together",
    """
import pandas as pd, polars as pl, pyarrow as pa, numpy as np
df = pd.DataFrame({'a': [1., 2.], 's': ['x', 'y']}); p = pl.from_pandas(df).clone(); t = pa.Table.from_pandas(df); d = {'pd': df, 'pl': p, 'pa': t}; n = p['a'].to_numpy(); ns = p['a'].to_arrow()
""",
    "df = df.assign(a=[9., 2.]); print(p, t['a'], d['pl'] is p, df.a.tolist())",
    "p = p.with_columns(pl.col('a') * 10); print(d['pl']['a'].to_list(), p['a'].to_list(), n, ns)",
    "back = p.to_pandas(); back.iloc[0, 0] = 1; print(back, t.schema.pandas_metadata['index_columns'])",
    "print(pl.from_arrow(t).equals(d['pl']), n.flags.writeable)",
    needs=("polars", "pyarrow", "pandas"),
)
sequence(
    "an Arrow array over a bytearray",
    "import pyarrow as pa\nraw = bytearray(12); buf = pa.py_buffer(raw); a = pa.Array.from_buffers(pa.int32(), 3, [None, buf]); part = a.slice(1)",
    "raw[0] = 77",
    "raw[4] = 5; t = pa.table({'a': a})",
    "raw[8] = 6",
    "print(a.to_pylist(), part.to_pylist(), t.to_pydict(), buf.to_pybytes(), raw)",
    needs="pyarrow",
)
