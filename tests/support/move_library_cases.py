"""Short notebooks over numpy, pandas, torch, scikit-learn and matplotlib, as in `move_cases`."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

CASES: dict[str, list[str]] = {}


def case(name: str, *cells: str) -> None:
    """Add a notebook."""
    assert name not in CASES
    CASES[name] = list(cells)


case(
    "array and views",
    "import numpy as np\na=np.arange(12.).reshape(3,4); v=a[1]; t=a.T; s=a[::-1,::2]",
    "v[:]=0",
    "print(a, t[2], s, v.base is a)",
    "a+=1",
    "print(v, s.flags.writeable, t.flags.f_contiguous)",
)
case(
    "large array and views",
    "import numpy as np\na=np.zeros(200_000); v=a[100:200]; b=a",
    "v[0]=5",
    "print(a[100], b is a, a.flags.owndata, a.base is None)",
    "a[150]=7",
    "print(v[50], v.base is a)",
)
case(
    "array kinds",
    "import numpy as np\nx=[np.array(5), np.asfortranarray(np.ones((2,3))), np.array([(1,2.5)],dtype=[('a',int),('b',float)]), np.array(['a','bc']), np.array([1,'x',None],object), np.array(['2020-01-01'],'M8[D]'), np.zeros((0,3)), np.ma.array([1,2],mask=[0,1]), np.matrix([[1,2]]), np.float32(1.5), np.array([True]), np.array([1+2j]), np.rec.array([(1,2)],names='p,q'), np.array(['a','ü'],dtype=np.dtypes.StringDType())]",
    "print([ (type(i).__name__, getattr(i,'dtype',None), np.shape(i)) for i in x])",
    "print(x[1].flags.f_contiguous, x[2]['b'], x[4], x[7], x[8]*2, x[12].p, x[13])",
    "x[4][0]=[9]; x[2]['a']=7",
    "print(x[4], x[2])",
)
case(
    "object array shares",
    "import numpy as np\nl=[1]; o=np.array([l,None],object); v=o[:1]",
    "l.append(2)",
    "print(o[0], v[0] is l)",
    "v[0]='z'",
    "print(o[0])",
)
case(
    "read-only array",
    "import numpy as np\na=np.arange(3); a.flags.writeable=False; b=np.arange(4); r=b[:2]; r.flags.writeable=False",
    "try: a[0]=1\nexcept ValueError: print('ro')",
    "b[0]=9; print(r, r.flags.writeable, b.flags.writeable)",
    "print(a, r)",
)
case(
    "broadcast and strided",
    "import numpy as np\na=np.arange(6); w=np.lib.stride_tricks.sliding_window_view(a,3); b=np.broadcast_to(a,(2,6)); e=a[None,:]",
    "a[0]=10",
    "print(w[0], b[1][0], e, w.flags.writeable)",
    "print(w.shape, b.shape)",
)
case(
    "array over bytearray",
    "import numpy as np\nba=bytearray(16); a=np.frombuffer(ba,np.int64)",
    "a[0]=3",
    "print(ba[:2])",
    "ba[8]=1",
    "print(a)",
)
case(
    "array subclass",
    "import numpy as np\nclass U(np.ndarray):\n    def __array_finalize__(s,o): s.unit=getattr(o,'unit',None)\nu=np.arange(3.).view(U); u.unit='m'",
    "u[0]=5",
    "print(u, u.unit, type(u).__name__, (u*2).unit)",
)
case(
    "numpy random",
    "import numpy as np\ng=np.random.default_rng(1); g.random(); rs=np.random.RandomState(2); h={'g':g}",
    "print(g.integers(100), rs.randint(100))",
    "print(h['g'] is g, h['g'].integers(100), rs.randint(100))",
    "print(g.random())",
)
case(
    "numpy functions in a dict",
    "import numpy as np\nfs={'m':np.mean,'add':np.add,'lin':np.linalg.norm}; nan=np.nan; dt=np.dtype('f4')",
    "print(fs['m']([1,2]), fs['add'](1,2), fs['lin']([3,4]), dt)",
)
case(
    "memmap",
    "import numpy as np,tempfile,os\np=os.path.join(tempfile.mkdtemp(),'m.bin'); m=np.memmap(p,dtype='f8',mode='w+',shape=(4,)); m[:]=1",
    "m[1]=5",
    "print(m, type(m).__name__)",
    "print(np.fromfile(p))",
)

case(
    "dataframe",
    "import pandas as pd, numpy as np\ndf=pd.DataFrame({'a':[1,2,3],'b':[.5,1.5,2.5],'s':['x','y',None],'d':pd.date_range('2020',periods=3),'c':pd.Categorical(['u','v','u'])},index=['i','j','k'])",
    "df.loc['i','a']=10; df['n']=df.a*2",
    "print(df); print(df.dtypes)",
    "df.attrs['k']=1; df.index.name='id'",
    "print(df.attrs, df.index, df.to_dict())",
)
case(
    "dataframe alias and copy on write",
    "import pandas as pd\ndf=pd.DataFrame({'a':[1,2,3],'b':[4,5,6]}); al=df; part=df[['a']]; sl=df[:2]; se=df['a']",
    "df.loc[0,'a']=100",
    "print(al.a[0], part.a[0], sl.a[0], se[0], al is df)",
    "sl.iloc[0,1]=-1; se.iloc[1]=-2",
    "print(df, sl, se)",
)
case(
    "shared columns stay apart",
    "import pandas as pd\ndf=pd.DataFrame({'a':[1,2,3]}); q=df[df.a>1]; q2=df.copy()",
    "q.columns=['z']",
    "print(df.columns, q, q2.columns)",
    "df['w']=0",
    "print(df.shape, q.shape)",
)
case(
    "series and indexes",
    "import pandas as pd\ns=pd.Series([1.,None,3.],name='s'); mi=pd.MultiIndex.from_product([['a','b'],[1,2]]); f=pd.Series(range(4),index=mi); p=pd.period_range('2020-01',periods=3,freq='M'); iv=pd.interval_range(0,3); ts=pd.Timestamp('2020-01-01',tz='UTC'); nat=pd.NaT; na=pd.NA; i8=pd.array([1,None],dtype='Int64')",
    "f.loc[('a',1)]=50; s[0]=9",
    "print(s,f,p,iv,ts,nat is pd.NaT,na is pd.NA,i8)",
)
case(
    "groupby and rolling",
    "import pandas as pd\ndf=pd.DataFrame({'k':list('aabb'),'v':[1,2,3,4]}); g=df.groupby('k'); r=df.v.rolling(2); e=df.groupby('k')['v']",
    "print(g.v.sum().to_dict(), r.sum().tolist(), e.mean().to_dict())",
    "print(g.obj is df, len(g))",
)
case(
    "large text frame",
    "import pandas as pd\ndf=pd.DataFrame({'t':[f'row {i}' for i in range(50_000)],'n':range(50_000)})",
    "df.loc[7,'t']='changed'",
    "print(df.t[7], df.n.sum(), len(df))",
    "df=df[df.n>10].reset_index(drop=True); print(df.shape)",
    "print(df.iloc[0].tolist())",
)
case(
    "frame of objects",
    "import pandas as pd\nl=[1]; df=pd.DataFrame({'o':[l,{'a':1},None]})",
    "l.append(2)",
    "print(df.o[0], df.o[0] is l)",
)

case(
    "tensor and views",
    "import torch\nt=torch.arange(6.).reshape(2,3); v=t[0]; w=t.T; a=t",
    "v[1]=-1",
    "print(t, w, a is t)",
    "t+=1",
    "print(v, w.stride(), v.storage_offset())",
)
case(
    "large tensor",
    "import torch\nt=torch.zeros(100_000); v=t[5:]; u=t.view(100,1000)",
    "v[0]=3; u[1,1]=4",
    "print(t[5], t[1001], t.sum())",
    "t.resize_(200_000); print(t.shape)",
    "print(t.shape, v.shape)",
)
case(
    "from_numpy alias",
    "import torch,numpy as np\na=np.zeros(5); t=torch.from_numpy(a); n=torch.ones(3); m=n.numpy(); s=torch.from_numpy(a[2:4])",
    "t[0]=5; m[1]=7; s[0]=8",
    "print(a, n, t, m)",
    "a[4]=9; n[2]=-1",
    "print(t, m, s)",
)
case(
    "tensor named before its array",
    "import torch,numpy as np\nbase=np.zeros(20_000); t=torch.from_numpy(base[10:20]); d={'t':t}",
    "d['t'][0]=1; print(base[10])",
    "base[11]=2",
    "print(t[:3], base.flags.owndata)",
)
case(
    "tensor kinds",
    "import torch\nx=[torch.tensor(5), torch.zeros(0,3), torch.ones(2,dtype=torch.bfloat16), torch.tensor([True]), torch.ones(2,dtype=torch.complex64).conj(), torch.eye(3).to_sparse(), torch.float16, torch.device('cpu'), torch.Size([1,2]), torch.ones(2,requires_grad=True)]",
    "print([getattr(i,'dtype',i) for i in x])",
    "print(x[4], x[5].to_dense().sum(), x[9].requires_grad, x[2])",
)
case(
    "gradients",
    "import torch\nw=torch.ones(3,requires_grad=True); loss=(w*2).sum(); loss.backward()",
    "print(w.grad, w.is_leaf, loss.item())",
    "w.grad.zero_(); (w*3).sum().backward(); print(w.grad)",
    "print(w.grad, float(loss))",
)
case(
    "module, optimizer, scheduler",
    "import torch\ntorch.manual_seed(0)\nclass Net(torch.nn.Module):\n    def __init__(s):\n        super().__init__(); s.a=torch.nn.Linear(3,2); s.b=torch.nn.Linear(3,2); s.b.weight=s.a.weight; s.register_buffer('k',torch.zeros(1)); s.calls=0\n    def forward(s,x): s.calls+=1; return s.a(x)+s.b(x)\nnet=Net(); opt=torch.optim.AdamW(net.parameters(),lr=.1); sch=torch.optim.lr_scheduler.StepLR(opt,1,gamma=.5)\ndef step():\n    opt.zero_grad(); l=(net(torch.ones(4,3))**2).mean(); l.backward(); opt.step(); sch.step(); return round(l.item(),5)",
    "print(step())",
    "print(step(), net.calls, net.b.weight is net.a.weight)",
    "print(step(), opt.param_groups[0]['params'][0] is net.a.weight, opt.param_groups[0]['lr'])",
    "print(step(), len(opt.state), type(net).__name__)",
)
case(
    "hooks of modules",
    "import torch\nlog=[]\nlin=torch.nn.Linear(2,2)\ndef hook(m,i,o): log.append(tuple(o.shape))\nh=lin.register_forward_hook(hook)",
    "y=lin(torch.ones(1,2)).detach(); print(log)",
    "y=lin(torch.ones(3,2)).detach(); print(log)",
    "h.remove(); y=lin(torch.ones(3,2)).detach(); print(log)",
    "print(len(log))",
)
case(
    "data loader and dataset",
    "import torch\nfrom torch.utils.data import *\nds=TensorDataset(torch.arange(6.)); dl=DataLoader(ds,batch_size=2)\nclass D(Dataset):\n    def __len__(s): return 2\n    def __getitem__(s,i): return i\nmine=DataLoader(D())",
    "print([b[0].tolist() for b in dl], len(mine))",
    "print([int(b) for b in mine], dl.dataset is ds)",
)
case(
    "torch generator",
    "import torch\ng=torch.Generator().manual_seed(3); torch.rand(1,generator=g)",
    "print(torch.rand(2,generator=g))",
    "print(torch.randint(100,(2,),generator=g))",
)
case(
    "state dict",
    "import torch\nm=torch.nn.Sequential(torch.nn.Linear(2,2),torch.nn.ReLU()); sd=m.state_dict()",
    "sd['0.bias'].zero_()",
    "print(m[0].bias.tolist(), sd['0.bias'].data_ptr()==m[0].bias.data_ptr())",
)

case(
    "sklearn",
    "from sklearn.linear_model import LogisticRegression\nfrom sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler\nimport numpy as np\nX=np.arange(20.).reshape(10,2); y=np.array([0]*5+[1]*5); p=make_pipeline(StandardScaler(),LogisticRegression())",
    "q=p.fit(X,y); print(q is p, p.predict(X))",
    "print(p.predict(X), p[0].mean_, q is p)",
)
case(
    "figure",
    "import matplotlib.figure\nfig=matplotlib.figure.Figure(); ax=fig.add_subplot(); line,=ax.plot([1,2],[3,4]); ax.set_title('t')",
    "ax.set_xlabel('x'); line.set_ydata([5,6])",
    "print(fig.axes[0] is ax, ax.get_title(), ax.get_xlabel(), list(ax.lines[0].get_ydata()), ax.lines[0] is line)",
)

case(
    "np in closure",
    "import numpy as np\ndef mk():\n    w=np.ones(30000)\n    def f(i): w[i]+=1; return w[i]\n    def g(): return w.sum()\n    return f,g\nf,g=mk()",
    "print(f(0))",
    "print(f(0), g())",
    "print(f(1), g())",
)
case(
    "class attr array",
    "import numpy as np\nclass M:\n    W=np.zeros(10)\n    def upd(s): s.W+=1; return s.W[0]\nm=M(); v=M.W[2:4]",
    "print(m.upd())",
    "v[0]=50; print(M.W)",
    "print(m.upd(), v)",
)
case(
    "pyplot",
    "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig,ax=plt.subplots(); ax.plot([1,2])",
    "ax.set_title('T'); print(plt.gcf() is fig, len(fig.axes))",
    "print(ax.get_title(), ax.figure is fig, plt.fignum_exists(fig.number))",
    "plt.close(fig); print(plt.get_fignums())",
)
case(
    "parents of transforms",
    "import matplotlib; matplotlib.use('agg')\nimport copy, matplotlib.pyplot as plt\nfrom matplotlib.transforms import Affine2D\nfig,ax=plt.subplots(); t=Affine2D(); both=t+ax.transData",
    "known=[t, ax.transData, ax.transAxes, ax.bbox, fig.bbox, fig.dpi_scale_trans, fig.transFigure]\nprint([[key==id(parent()) for key,parent in node._parents.items()] for node in known])",
    "other=copy.copy(both); before=other.transform((0,0)).tolist()",
    "t.translate(7,0); print(before!=other.transform((0,0)).tolist(), (other.transform((0,0))==both.transform((0,0))).all()); plt.close(fig)",
)
case(
    "autograd function",
    "import torch\nclass Sq(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx,x): ctx.save_for_backward(x); return x*x\n    @staticmethod\n    def backward(ctx,g): x,=ctx.saved_tensors; return 2*x*g\nx=torch.tensor(3.,requires_grad=True)",
    "y=Sq.apply(x); y.backward(); print(x.grad)",
    "print(Sq.apply(torch.tensor(2.)), x.grad)",
)
case(
    "live graph",
    "import torch\nw=torch.ones(2,requires_grad=True); out=(w*3).sum()",
    "print(out.requires_grad, out.item(), out.is_leaf)",
    "try: out.backward()\nexcept Exception as e: print(type(e).__name__)",
)
case(
    "param list & buffers",
    "import torch\nfrom torch import nn\nm=nn.ModuleDict({'a':nn.ParameterList([nn.Parameter(torch.ones(2))]),'bn':nn.BatchNorm1d(2),'d':nn.Dropout()}); p=m['a'][0]",
    "with torch.no_grad(): p.add_(1)\nprint(m['a'][0], p is m['a'][0])",
    "y=m['bn'](torch.arange(6.).reshape(3,2)); m.eval(); print(m['bn'].running_mean, m.training)",
    "print(m['bn'].num_batches_tracked, m.training, [n for n,_ in m.named_parameters()])",
)
case(
    "sgd momentum state alias",
    "import torch\ntorch.manual_seed(0)\np=torch.nn.Parameter(torch.ones(3)); o=torch.optim.SGD([p],lr=.1,momentum=.9)\ndef st():\n    o.zero_grad(); (p**2).sum().backward(); o.step(); return p.detach().clone()",
    "print(st())",
    "print(st(), o.state[p]['momentum_buffer'])",
    "print(st(), next(iter(o.state)) is p)",
)
case(
    "pandas more",
    "import pandas as pd, numpy as np\ndf=pd.DataFrame({'x':range(5)}); df['cat']=df.x.astype('category'); piv=df.pivot_table(index='x',aggfunc='size'); it=df.iterrows(); next(it); loc=df.loc; acc=df['x'].rolling(2); g=df.groupby('x'); st=df.x.astype('string'); tz=pd.Series(pd.date_range('2020',periods=2,tz='Europe/Paris')); sp=pd.Series(pd.arrays.SparseArray([0,0,1])); cut=pd.cut(df.x,2)",
    "print(piv.tolist(), acc.sum().tolist(), st.tolist(), tz.dt.hour.tolist(), sp.sum(), cut.astype(str).tolist()[0], loc[1,'x'])",
    "df.loc[0,'x']=99; print(loc[0,'x'], g.size().sum(), df.cat.tolist())",
)

case(
    "a class whose module its package imports lazily",
    "import numpy as np; r = np.array([(1, 2.)], dtype=[('i','i4'),('f','f8')]).view(np.recarray)",
    "print(type(r) is np.recarray, r.i)",
    "r.i[0] = 5; print(repr(r))",
)
case(
    "the notebook's own process",
    "import os, psutil\np=psutil.Process(); held=[p]; q=psutil.Process(os.getpid()); q.info={'name': 'me'}",
    "print(p.pid == os.getpid() == held[0].pid, held[0] is p, p == q, p.is_running(), q.info)",
    "held.append(psutil.Process())",
    "print(held[1] == p, p.memory_info().rss == 0)",
)
