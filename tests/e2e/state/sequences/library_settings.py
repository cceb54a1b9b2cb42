"""Settings of libraries, made by calls: options, defaults, themes, renderers, seeds of their own generators."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "defaults, renderers and templates of plotly",
    """
import plotly.io as pio, plotly.express as px, plotly.graph_objects as go
pio.templates.default = "plotly_dark"; px.defaults.height = 222; pio.renderers.default = "json"
pio.templates["mine"] = go.layout.Template(layout={"title": {"text": "M"}})
""",
    """
print(pio.templates.default, px.defaults.height, px.line(x=[1],y=[2]).layout.height, pio.renderers.default, "mine" in pio.templates)
pio.templates.default = "mine"
""",
    """
print(go.Figure().layout.template.layout.title.text, px.defaults.height)
""",
    needs=(
        "plotly",
        "pandas",
    ),
)
sequence(
    "options that libraries choose when they are imported",
    """
import pandas, polars, matplotlib, rich, tqdm.auto
def chosen():
    return [
        {key: pandas.get_option(key) for key in ("display.max_columns", "display.width", "display.notebook_repr_html")},
        polars.Config.state(if_set=True), matplotlib.get_backend(), rich.get_console().is_jupyter, tqdm.auto.tqdm.__name__,
    ]
""",
    """
print(chosen())
""",
    needs=("pandas", "polars", "matplotlib", "rich", "tqdm"),
    preload=False,
)
sequence(
    "themes and renderers of altair",
    """
import altair as alt, pandas as pd
alt.data_transformers.disable_max_rows()
alt.renderers.enable("mimetype") if "mimetype" in alt.renderers.names() else None
@alt.theme.register("mine", enable=True)
def th(): return {"config": {"background": "red"}}
""",
    """
print(alt.theme.active, alt.data_transformers.active, alt.data_transformers.options, alt.renderers.active)
""",
    """
print(alt.Chart(pd.DataFrame({"a": range(6000)})).mark_point().encode(x="a").to_dict()["config"]["background"])
""",
    needs=(
        "altair",
        "pandas",
    ),
)
sequence(
    "the settings of dask",
    """
import dask, dask.dataframe as dd, pandas as pd
dask.config.set({"dataframe.convert-string": False, "my.opt": [1]}); dask.config.set(num_workers=1)
from dask.diagnostics import ProgressBar
""",
    """
print(dask.config.get("dataframe.convert-string"), dask.config.get("my.opt"), dask.config.get("num_workers"))
with dask.config.set(scheduler="sync"): print(dd.from_pandas(pd.DataFrame({"a":["x"]}), 1).dtypes.to_dict())
""",
    """
dask.config.set({"my.opt": 5}); print(dask.config.get("my.opt"), dask.config.get("scheduler", None))
""",
    needs=(
        "dask",
        "pandas",
    ),
)
sequence(
    "graphs of dask with a scheduler set",
    """
import dask, dask.array as da, dask.dataframe as dd, dask.bag as db, pandas as pd, numpy as np
dask.config.set(scheduler="synchronous")
log = []
@dask.delayed
def inc(x): log.append(x); return x+1
d = inc(inc(1)); x = da.arange(10, chunks=4).sum(); df = dd.from_pandas(pd.DataFrame({"a":range(6),"b":list("ababab")}), npartitions=2); bag = db.from_sequence([1,2,3]).map(lambda v: v*2); g = df.groupby("b").a.sum()
""",
    """
print(d.compute(), x.compute(), g.compute().to_dict(), bag.compute(), log, dask.config.get("scheduler"))
p = x.persist()
""",
    """
print(p.compute(), df.npartitions, dask.compute(d, x), len(log))
""",
    "print(p.compute(), df.npartitions, log)",
    needs=(
        "dask",
        "pandas",
    ),
)
sequence(
    "the generator that all of Faker shares",
    """
import nltk, random
from faker import Faker
from faker.providers import BaseProvider
nltk.data.path.append("/data/nltk")
class P(BaseProvider):
    def pet(self): return self.random_element(["cat","dog","emu"])
fk = Faker("en_US"); fk.add_provider(P); Faker.seed(11); fk.seed_instance(4)
print(fk.pet(), fk.random_int())
""",
    """
print(fk.pet(), "/data/nltk" in nltk.data.path, fk.random_int(), Faker().random_int())
""",
    """
print(fk.unique.random_digit(), fk.pet(), Faker().random_int())
Faker.seed(3)
also = Faker()
""",
    "print(also.random is Faker().random)",
    needs=(
        "nltk",
        "faker",
    ),
)
sequence(
    "threads of Arrow, errors of special functions",
    """
import scipy.special as sc, scipy.fft as sf, pyarrow as pa, numpy as np
sc.seterr(singular="raise"); pa.set_cpu_count(1); pa.set_io_thread_count(2)
class PT(pa.ExtensionType):
    def __init__(self): super().__init__(pa.int64(), "my.pt")
    def __arrow_ext_serialize__(self): return b""
    @classmethod
    def __arrow_ext_deserialize__(cls, st, ser): return cls()
pa.register_extension_type(PT()); arr = pa.ExtensionArray.from_storage(PT(), pa.array([1,2]))
""",
    """
print(sc.geterr()["singular"], pa.cpu_count(), pa.io_thread_count(), arr.type, arr.storage.to_pylist())
""",
    """
print(arr.type.extension_name, type(arr.type) is PT)
""",
    needs=(
        "scipy",
        "numpy",
        "pyarrow",
    ),
)
sequence(
    "the theme of plots of seaborn",
    """
import seaborn as sns, seaborn.objects as so, pandas as pd, matplotlib.pyplot as plt
df = pd.DataFrame({"x":[1,2,3,4],"y":[2,4,1,3],"h":list("abab")}); pl = so.Plot(df, x="x", y="y", color="h").add(so.Dots()); sns.set_palette("pastel"); sns.set_context("talk"); pg = sns.PairGrid(df[["x","y"]]); pg.map_diag(plt.hist); cm = sns.clustermap(df[["x","y"]]); so.Plot.config.theme["axes.facecolor"] = "w"; plt.close("all")
""",
    """
pl = pl.add(so.Line()); df.loc[0,"x"] = 50
print(len(pl._layers), pg.axes.shape, cm.dendrogram_row.reordered_ind, so.Plot.config.theme["axes.facecolor"], sns.color_palette().as_hex()[0], plt.rcParams["font.size"])
""",
    """
pg.map_offdiag(sns.scatterplot); plt.close("all"); print(pl._data.source_data is df if hasattr(pl._data,"source_data") else 0, cm.data2d.shape)
""",
    needs=(
        "seaborn",
        "pandas",
        "matplotlib",
    ),
)
sequence(
    "collections of dask",
    """
import dask, dask.array as da, dask.bag as db, dask.dataframe as dd, numpy as np, pandas as pd
from dask.diagnostics import ProgressBar
from dask import delayed
from dask.base import tokenize
dask.config.set(scheduler="threads", **{"array.slicing.split-large-chunks": False}); pb = ProgressBar()
x = np.arange(12.); a = da.from_array(x, chunks=4); m = (a*2).mean(); lazy = [delayed(lambda v: v+1)(i) for i in range(3)]; tot = delayed(sum)(lazy); ddf = dd.from_pandas(pd.DataFrame({"k": list("abab"), "v": range(4)}), npartitions=2).assign(w=lambda d: d.v*2)
""",
    """
x[0] = 100
print(m.compute(), tot.compute(), ddf.groupby("k").w.sum().compute().to_dict(), dask.config.get("array.slicing.split-large-chunks"))
""",
    """
with dask.config.set(scheduler="sync"): print(a.sum().compute(), ddf.map_partitions(len).compute().tolist(), dask.config.get("scheduler"))
print(dask.config.get("scheduler"), a.chunks)
""",
    needs=(
        "dask",
        "numpy",
        "pandas",
    ),
)
