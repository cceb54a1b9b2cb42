"""matplotlib and seaborn: figures over cells, pyplot's state, settings, callbacks, colour maps."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "figure over cells",
    """
import matplotlib.pyplot as plt, numpy as np
fig, axs = plt.subplots(2, 2, sharex=True, squeeze=False); ax = axs[0, 0]; ln, = ax.plot([1, 2, 3], label='l'); im = axs[1, 1].imshow(np.eye(3)); cb = fig.colorbar(im, ax=axs[1, 1])
""",
    "ax.set_title('T'); ln.set_color('r'); sc = axs[0, 1].scatter([1, 2], [3, 4], c=[0, 1]); ax.legend()",
    "print(plt.gcf() is fig, ax.get_title(), ln.get_color(), fig.axes[0] is ax, axs[0, 0] is ax, len(fig.axes), ln.axes is ax)",
    "axs[1, 0].set_xlim(0, 9); print(ax.get_xlim(), axs[0,0].get_shared_x_axes().joined(ax, axs[1, 0]))",
    "im.set_data(np.ones((3, 3))); im.set_clim(0, 5); tx = fig.text(.1, .1, 'hi'); an = ax.annotate('a', (1, 1), arrowprops={}); print(cb.vmax, cb.mappable is im)",
    "plt.sca(axs[0, 1]); print(plt.gca() is axs[0, 1], sc.get_offsets().tolist(), [t.get_text() for t in ax.get_legend().get_texts()])",
    "fig.canvas.draw(); print(fig.canvas.get_width_height(), tx.get_text(), an.figure is fig, fig.number, plt.get_fignums())",
    "ln.remove(); plt.figure(7); plt.plot([1]); print(len(ax.lines), plt.gcf().number, plt.get_fignums())",
    "plt.close(fig); print(plt.get_fignums(), plt.gca().lines[0].get_ydata())",
    needs=("matplotlib",),
)
sequence(
    "pyplot state without names",
    """
import matplotlib.pyplot as plt
plt.figure(3); plt.plot([1, 2]); plt.title('A'); plt.figure('named'); plt.bar([1, 2], [3, 4])
""",
    "print(plt.get_fignums(), plt.get_figlabels(), plt.gcf().get_label())",
    "plt.figure(3); plt.xlabel('x'); print(plt.gca().get_title(), len(plt.gca().lines))",
    "plt.figure('named'); print(len(plt.gca().patches), plt.gcf().number)",
    "print(plt.gcf().get_label(), plt.fignum_exists('named'), plt.fignum_exists(3)); plt.close('named')",
    "print(plt.gca().get_xlabel(), plt.get_fignums()); plt.close('all')",
    "print(plt.get_fignums())",
    needs=("matplotlib",),
)
sequence(
    "styles and settings",
    """
import matplotlib as mpl, matplotlib.pyplot as plt
from cycler import cycler
plt.style.use('ggplot'); mpl.rcParams['lines.linewidth'] = 7; plt.rc('font', size=20); mpl.rcParams['axes.prop_cycle'] = cycler(color=['k', 'y']); plt.ioff()
""",
    "print(mpl.rcParams['lines.linewidth'], mpl.rcParams['font.size'], mpl.rcParams['axes.grid'], plt.isinteractive())",
    "fig, ax = plt.subplots(); l1, = ax.plot([1]); print(l1.get_linewidth(), l1.get_color())",
    "l2, = ax.plot([2]); print(l2.get_color(), ax.lines[1] is l2)",
    """\
with plt.style.context('dark_background'): print(mpl.rcParams['figure.facecolor'])
print(mpl.rcParams['figure.facecolor'])
""",
    """\
ctx = plt.rc_context({'lines.linewidth': 1})
plt.ion(); print(plt.isinteractive())
""",
    "print(plt.isinteractive(), mpl.rcParams['lines.linewidth']); mpl.rcdefaults()",
    "print(mpl.rcParams['lines.linewidth'], plt.rcParams is mpl.rcParams)",
    "plt.ioff(); print(plt.isinteractive())",
    "print(plt.isinteractive())",
    needs=("matplotlib",),
    pinned=True,
)
sequence(
    "interactive mode",
    """
import matplotlib.pyplot as plt
plt.ioff()
""",
    "print(plt.isinteractive())",
    "fig, ax = plt.subplots(); print(plt.isinteractive())",
    "print(plt.isinteractive(), len(fig.axes))",
    "l = ax.plot([1]); plt.ion()",
    "print(plt.isinteractive()); f2 = plt.figure(); plt.close(f2)",
    "print(plt.isinteractive()); plt.ioff()",
    "print(plt.isinteractive(), plt.get_fignums())",
    "print(plt.isinteractive())",
    needs=("matplotlib",),
)
sequence(
    "events of figures",
    """
import matplotlib.pyplot as plt
from matplotlib.backend_bases import MouseEvent
hits = []
fig, ax = plt.subplots(); cid = fig.canvas.mpl_connect('button_press_event', lambda e: hits.append(e.name))
def fire(): fig.canvas.callbacks.process('button_press_event', MouseEvent('button_press_event', fig.canvas, 1, 1, 1))
def onx(a): hits.append(a.get_xlim())
ax.callbacks.connect('xlim_changed', onx)
""",
    "fire(); ax.set_xlim(0, 3); print(hits)",
    "fire(); print(len(hits))",
    "ax.set_xlim(0, 4); print(len(hits), fig.canvas.figure is fig)",
    "fig.canvas.mpl_disconnect(cid); fire(); print(len(hits))",
    needs=("matplotlib",),
)
sequence(
    "colours, maps and own artists",
    """
import matplotlib as mpl, matplotlib.pyplot as plt, numpy as np
from matplotlib.colors import ListedColormap, LinearSegmentedColormap, Normalize
cm = ListedColormap(['r', 'g'], name='mine'); mpl.colormaps.register(cm); no = Normalize(0, 2); ls = LinearSegmentedColormap.from_list('q', ['w', 'k'])
class Dot(mpl.lines.Line2D):
    def __init__(s, *a, **k): super().__init__(*a, **k); s.hits = 0
    def draw(s, r): s.hits += 1; super().draw(r)
fig, ax = plt.subplots(); d = Dot([0, 1], [0, 1]); ax.add_line(d)
""",
    "fig.canvas.draw(); print(d.hits, mpl.colormaps['mine'](1.), no(1.), ls(0.5))",
    "no.vmax = 4; fig.canvas.draw(); print(d.hits, no(1.), ax.lines[0] is d, plt.get_cmap('mine').name)",
    "print(d.hits, 'mine' in mpl.colormaps)",
    needs=("matplotlib",),
)
sequence(
    "three dimensions and animation",
    """
import matplotlib.pyplot as plt, numpy as np, warnings; warnings.simplefilter('ignore')
from matplotlib.animation import FuncAnimation
fig = plt.figure(); a3 = fig.add_subplot(projection='3d'); s = a3.plot_surface(np.eye(3), np.eye(3), np.eye(3)); fig2, ax = plt.subplots(); ln, = ax.plot([0], [0])
def upd(i): ln.set_data([i], [i]); return ln,
""",
    "an = FuncAnimation(fig2, upd, frames=3, blit=False)",
    "print(a3.elev, type(s).__name__, ln.get_xdata())",
    "a3.view_init(5, 6); print(a3.azim, fig.axes[0] is a3)",
    needs=("matplotlib",),
)
sequence(
    "seaborn",
    """
import seaborn as sns, pandas as pd, matplotlib.pyplot as plt
sns.set_theme(style='whitegrid', palette='deep'); df = pd.DataFrame({'x': [1, 2, 3, 4], 'y': [2, 4, 5, 4], 'h': list('abab')}); ax = sns.lineplot(df, x='x', y='y', hue='h'); g = sns.FacetGrid(df, col='h'); pal = sns.color_palette('husl', 3)
""",
    "g.map(plt.plot, 'x', 'y'); print(g.axes.shape, len(ax.lines), pal.as_hex()[0], plt.rcParams['axes.grid'])",
    "ax.set_title('t'); print(ax.get_title(), g.data is df, g.figure.axes[0] is g.axes[0, 0], sns.axes_style()['axes.grid'])",
    "plt.close('all'); print(plt.get_fignums(), pal[0])",
    needs=("seaborn",),
)
sequence(
    "the backend that the notebook chose",
    """
import matplotlib.pyplot as plt
%matplotlib inline
fig, ax = plt.subplots(figsize=(1, 1)); ax.plot([1, 2]); plt.close(fig)
""",
    "fig",
    "plt.figure(figsize=(1, 1)); plt.plot([1, 2]);",
    "plt.switch_backend('svg')",
    "print(plt.get_backend())",
    needs=("matplotlib.pyplot",),
)
sequence(
    "figure formats that are installed and not set",
    "%matplotlib inline\nfrom matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('retina', 'pdf', dpi=40)",
    "from matplotlib.figure import Figure\ntables = get_ipython().display_formatter.formatters\ndef shown(): print([(k, f.type_printers[Figure].keywords) for k, f in tables.items() if Figure in f.type_printers])\nshown()",
    "shown()\n%config InlineBackend.figure_format = 'svg'",
    "%config InlineBackend.figure_format",
    "shown()\n%config InlineBackend.figure_formats",
    "tables['image/svg+xml'].for_type(Figure, lambda f: '<svg/>')\nprint(tables['image/svg+xml'](Figure()))",
    "print(tables['image/svg+xml'](Figure())); tables['image/svg+xml'].pop(Figure); shown()",
    "shown(); print(Figure in tables['image/svg+xml'].type_printers)",
    needs="matplotlib",
)

sequence(
    "the resolution of a figure that is open",
    "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); before = fig.dpi; box = fig.bbox; sub = fig.subfigures(1, 2)",
    "fig.dpi = 50",
    "print(fig.dpi, fig.bbox.width, box is fig.bbox, before, sub[0].dpi); fig.set_dpi(200)",
    "fig.canvas.draw(); print(fig.dpi, box.width, fig.canvas.get_width_height(), sub[1].bbox.width, plt.gcf() is fig)",
    needs="matplotlib",
)

sequence(
    "what seaborn found of the settings, and gives back",
    "import matplotlib as mpl, seaborn as sns; sns.set_theme(style='whitegrid', palette='Set2')",
    "mpl.rcParams['lines.linewidth'] = 8; mpl.rcParams['axes.prop_cycle'] = mpl.cycler(color=['r'])",
    "print(sns._orig_rc_params['axes.grid'], sns._orig_rc_params['lines.linewidth'], mpl.rcParams['axes.grid'])",
    "sns.reset_orig(); print(mpl.rcParams['axes.grid'], mpl.rcParams['lines.linewidth'], mpl.rcParams['axes.prop_cycle'] == mpl.rcParamsDefault['axes.prop_cycle'])",
    needs=("seaborn", "matplotlib"),
)
sequence(
    "figures of plotly and their parts",
    """
import plotly.graph_objects as go, plotly.express as px, pandas as pd, numpy as np
from plotly.subplots import make_subplots
df = pd.DataFrame({"a": [1,2,3], "b": [3,4,5], "c": list("xyx")})
fig = px.scatter(df, x="a", y="b", color="c", trendline=None, facet_col="c"); tr = fig.data[0]; lay = fig.layout; mk = tr.marker
sub = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=("u","v"), specs=[[{"secondary_y": True}],[{}]]); sub.add_trace(go.Scatter(y=np.arange(4.), name="n"), row=1, col=1, secondary_y=True)
seen = []
tr.on_change(lambda obj, *a: seen.append(a), "name") if hasattr(go.Figure, "_dummy") else None
fr = go.Figure(data=[go.Bar(y=[1])], frames=[go.Frame(data=[go.Bar(y=[2])], name="f1")]); ax = fr.layout.xaxis; menu = go.layout.Updatemenu(type="buttons")
lone = go.Scatter(x=[1], y=[2], marker=dict(size=5))
""",
    """
tr.marker.size = 20; mk.color = "green"; lay.title.text = "T"; fig.update_traces(opacity=.5); sub.update_yaxes(title_text="sec", secondary_y=True); ax.title.text = "X"
print(tr is fig.data[0], mk is tr.marker, lay is fig.layout, type(fig.data[0].x), fig.data[0].x.tolist(), lone.marker.size)
sub.add_trace(go.Bar(x=["p"], y=[1]), row=2, col=1); lone.name = "solo"; fr.add_trace(lone)
""",
    """
print(fig.data[0].marker.to_plotly_json(), fig.layout.title.text, [t.yaxis for t in sub.data], fr.frames[0].name, fr.layout.xaxis.title.text, fr.data[1].name, sub.data[0].y.sum())
print(len(fig.to_json()), fr.to_dict()["data"][1]["name"], sub.get_subplot(1, 1).xaxis.anchor, tr.parent is fig)
""",
    needs=(
        "plotly",
        "pandas",
        "numpy",
    ),
)
sequence(
    "the document of bokeh",
    """
from bokeh.io import curdoc, output_file, output_notebook
from bokeh.plotting import figure
p = figure(); curdoc().add_root(p); curdoc().theme = "dark_minimal"; curdoc().title = "T"
""",
    """
print(len(curdoc().roots), curdoc().title)
""",
    """
print(p.document is curdoc(), curdoc().roots[0] is p)
""",
    needs=("bokeh",),
)
sequence(
    "traces of plotly in variables, updated",
    """
import plotly.express as px, plotly.graph_objects as go, numpy as np, pandas as pd
df = px.data.iris() if False else pd.DataFrame({"x": range(4), "y": [1,3,2,5], "k": list("aabb")})
figs = {"a": px.histogram(df, x="y"), "b": px.imshow(np.eye(2))}; h = figs["a"].data[0]; cax = figs["b"].layout.coloraxis; ann = figs["a"].add_annotation(text="hi", x=1, y=1).layout.annotations[0]
fig = go.Figure(); [fig.add_scatter(x=[1], y=[i], name=f"t{i}") for i in range(3)]; first, *rest = fig.data; heat = go.Heatmap(z=[[1,2]])
""",
    """
h.nbinsx = 7; cax.colorscale = "Viridis"; ann.text = "bye"; fig.data = [fig.data[2], fig.data[0]]
print(figs["a"].layout.annotations[0].text, [t.name for t in fig.data], rest[1] is fig.data[0], figs["b"].layout.coloraxis.colorscale[0])
fig.add_trace(heat)
""",
    """
first.y = [99]; fig.for_each_trace(lambda t: t.update(opacity=.3), selector={"type": "scatter"})
print(fig.data[1].y, h.nbinsx, fig.data[2].z, figs["a"].data[0] is h, [t.opacity for t in fig.data], heat.z)
""",
    needs=(
        "plotly",
        "pandas",
        "numpy",
    ),
)
sequence(
    "sources and callbacks of bokeh",
    """
from bokeh.plotting import figure, show
from bokeh.models import ColumnDataSource, Slider, CustomJS, HoverTool, Range1d
from bokeh.layouts import column, row
from bokeh.io import curdoc, output_notebook, reset_output
src = ColumnDataSource(pd.DataFrame({"x":[1,2],"y":[3,4]})) if False else ColumnDataSource({"x":[1,2],"y":[3,4]})
p = figure(x_range=(0, 5), tools="pan"); g = p.line("x", "y", source=src, line_width=2); s = Slider(start=0, end=5, value=1); log = []
def cb(attr, old, new): log.append((attr, old, new)); g.glyph.line_width = new
s.on_change("value", cb); p.add_tools(HoverTool()); lay = column(s, p); s.js_on_change("value", CustomJS(args={"g": g}, code="1"))
""",
    """
s.value = 3; src.data["y"][0] = 9; src.data = {**src.data, "z": [0, 0]}
print(log, g.glyph.line_width, src.column_names, lay.children[1] is p, g.data_source is src, p.x_range.end)
""",
    """
src.patch({"y": [(1, 50)]}); p.x_range.end = 7; s.value = 4
print(src.data["y"], log[-1], len(p.tools), p.select_one(HoverTool) is p.tools[-1], p.renderers[0] is g, s.id == lay.children[0].id)
""",
    needs=(
        "bokeh",
        "pandas",
    ),
)
sequence(
    "settings of matplotlib that are tuples, arrays and products of cycles",
    """
import matplotlib as mpl, numpy as np, matplotlib.pyplot as plt
mpl.rcParams['axes.prop_cycle'] = (mpl.cycler(color=plt.cm.viridis(np.linspace(0, 1, 3))) * mpl.cycler(lw=[1, 2])); plt.rcParams['text.color'] = plt.cm.viridis(.5)
""",
    "mpl.rcParams['axes.edgecolor'] = ('red', .5); mpl.rcParams['lines.linestyle'] = (0, (1, 2)); print(mpl.rcParams['axes.prop_cycle'], plt.rcParams['text.color'])",
    "print(mpl.rcParams['axes.edgecolor'], mpl.rcParams['lines.linestyle'], list(mpl.rcParams['axes.prop_cycle'])[1], plt.rcParams['text.color'])",
    needs=(
        "matplotlib",
        "numpy",
    ),
)
sequence(
    "settings of matplotlib reached through pyplot, and their defaults again",
    "import matplotlib.pyplot as plt; import matplotlib as mpl\nplt.style.use('ggplot'); mpl.rc('lines', linewidth=4); plt.rcParams['axes.grid'] = False",
    "print(plt.rcParams['lines.linewidth'], plt.rcParams['axes.grid'], plt.rcParams['axes.facecolor'])",
    "fig, ax = plt.subplots(); ax.plot([1, 2], label='l')",
    "ax.set_title('t'); plt.rcdefaults()",
    "print(plt.rcParams['lines.linewidth'], plt.rcParams['axes.facecolor'], plt.get_fignums())",
    needs=("matplotlib",),
)
sequence(
    "the current axes after another was made current",
    "import matplotlib.pyplot as plt\nfig, (a, b) = plt.subplots(1, 2); c = fig.add_subplot(331); plt.sca(a)",
    "plt.sca(b); print(plt.gca() is b); plt.plot([1, 2])",
    "fig.sca(c); print(fig.gca() is c); d = fig.add_subplot(339)",
    "print(plt.gca() is d, len(b.lines)); plt.sca(a); print(plt.gca() is a)",
    "print(plt.gca() is a, [x.get_subplotspec().num1 for x in fig.axes])",
    needs=("matplotlib",),
)
sequence(
    "colours that a theme and the notebook give to names",
    """
import matplotlib.pyplot as plt, matplotlib as mpl, seaborn as sns
sns.set_theme(palette='muted')
""",
    "mpl.colors.get_named_colors_mapping()['brand'] = '#123456'; print(mpl.colors.to_rgb('k'), mpl.colors.to_hex('b'))",
    "fig, ax = plt.subplots(); line, = ax.plot([1, 2], 'r'); bar = ax.bar([1], [1], color='brand')[0]; print(mpl.colors.to_hex(line.get_color()), bar.get_facecolor())",
    "sns.set_color_codes('reset'); del mpl.colors.get_named_colors_mapping()['brand']",
    "print(mpl.colors.to_rgb('k'), mpl.colors.to_hex('b'), 'brand' in mpl.colors.get_named_colors_mapping(), mpl.colors.to_hex(line.get_color()))",
    needs=("matplotlib", "seaborn"),
)
sequence(
    "projections, units and scales of the notebook",
    """
import matplotlib.pyplot as plt, matplotlib as mpl, matplotlib.units as units
from matplotlib.projections import register_projection
from matplotlib.scale import register_scale, LinearScale
class Wide(mpl.axes.Axes):
    name = 'wide'
    def set_title(self, t, **kw): return super().set_title('<' + t + '>', **kw)
register_projection(Wide)
class Deg:
    def __init__(self, v): self.v = v
class DegConv(units.ConversionInterface):
    @staticmethod
    def convert(v, unit, axis): return [x.v * 2 for x in v] if isinstance(v, list) else v.v * 2 if isinstance(v, Deg) else v
units.registry[Deg] = DegConv()
""",
    "class Mine(LinearScale): name = 'mine'\nregister_scale(Mine); ax = plt.figure().add_subplot(projection='wide'); ax.set_title('t'); print(ax.get_title())",
    "ax.plot([Deg(1), Deg(2)], [1, 2]); ax.set_yscale('mine'); print(ax.dataLim.x1, ax.get_yscale())",
    "print(ax.get_title(), ax.get_yscale(), ax.dataLim.x1, 'wide' in mpl.projections.get_projection_names(), 'mine' in mpl.scale.get_scale_names())",
    needs=("matplotlib",),
)
sequence(
    "figures of several backends",
    "import matplotlib, matplotlib.pyplot as plt\nplt.switch_backend('agg'); f1, a1 = plt.subplots(); used = [plt.get_backend()]",
    "matplotlib.use('svg'); f2, a2 = plt.subplots(); used.append(plt.get_backend())",
    "used.append((plt.get_backend(), f1.dpi, f1.get_size_inches().tolist(), type(f1.canvas).__name__, type(f2.canvas).__name__))",
    "%matplotlib inline\nf3, a3 = plt.subplots(); plt.close(f2)",
    "print(used, plt.get_backend(), [(type(f.canvas).__name__, f.dpi) for f in (f1, f2, f3)], plt.get_fignums())",
    needs="matplotlib",
)
