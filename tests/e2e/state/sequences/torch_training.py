"""torch: modules, hooks, optimizers, schedulers, loaders, generators, modes entered over cells."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "modules with everything",
    """
import torch
from torch import nn
torch.manual_seed(1)
class Block(nn.Module):
    def __init__(s, n):
        super().__init__(); s.lin = nn.Linear(n, n); s.norm = nn.BatchNorm1d(n); s.drop = nn.Dropout(.5); s.register_buffer('seen', torch.zeros(1)); s.register_buffer('tmp', torch.ones(1), persistent=False); s.scale = nn.Parameter(torch.ones(n)); s.log = []; s.plain = torch.zeros(2)
    def forward(s, x):
        s.seen += 1; s.log.append(tuple(x.shape)); s.plain[0] += 1; return s.drop(s.norm(s.lin(x))) * s.scale
class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.a = Block(4); s.b = s.a; s.out = nn.Linear(4, 2, bias=False); s.tied = nn.Linear(4, 2); s.tied.weight = s.out.weight; s.l = nn.ModuleList([nn.Identity(), s.a]); s.pd = nn.ParameterDict({'k': s.a.scale})
    def forward(s, x): return s.tied(s.b(s.a(x)))
net = Net(); ps = list(net.parameters()); sd = net.state_dict()
""",
    "y = net(torch.randn(3, 4)).detach(); print(y.shape, net.a.seen, net.a.log, net.a.plain)",
    "print([n for n, _ in net.named_parameters()], net.a is net.b, net.out.weight is net.tied.weight, ps[0] is net.a.scale, net.pd['k'] is net.a.scale)",
    "net.eval(); torch.manual_seed(3); y = net(torch.randn(3, 4)).detach(); print(y, net.a.norm.num_batches_tracked, net.training)",
    "sd['out.weight'].zero_(); print(net.tied.weight.abs().sum().item(), sd['a.seen'], list(sd._metadata)[:2], 'a.tmp' in sd)",
    "net.a.log.append('x'); net.load_state_dict(sd); net.train(); print(net.b.log, net.l[1] is net.a, net.a.drop.training, [type(m).__name__ for m in net.modules()])",
    "print(net.b.log, net.a.seen, net.out.weight is net.tied.weight, torch.equal(sd['out.weight'], net.out.weight))",
    needs=("torch",),
)
sequence(
    "hooks of every kind",
    """
import torch
from torch import nn
log = []
net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
def fwd(m, i, o): log.append(('f', type(m).__name__))
def pre(m, i): log.append(('p', type(m).__name__))
def bwd(m, gi, go): log.append(('b', type(m).__name__))
def sdh(m, s, p, l): s['extra'] = torch.ones(1)
h = [net[0].register_forward_hook(fwd), net[2].register_forward_pre_hook(pre), net[2].register_full_backward_hook(bwd), net.register_state_dict_post_hook(sdh) if False else net._register_state_dict_hook(sdh)]
x = torch.ones(2, 2, requires_grad=True); th = x.register_hook(lambda g: log.append(('x', tuple(g.shape))))
net[0].weight.register_post_accumulate_grad_hook(lambda p: log.append(('acc', tuple(p.shape))))
""",
    "net(x).sum().backward(); print(log); log.clear()",
    "h[0].remove(); net(x).sum().backward(); print(log, 'extra' in net.state_dict()); log.clear()",
    "th.remove(); net(x).sum().backward(); print(log)",
    "log.clear(); h[1].remove(); h[2].remove(); net(x).sum().backward(); print(log, len(net[0]._forward_hooks))",
    needs=("torch",),
)
sequence(
    "global module hooks",
    """
import torch
from torch import nn
cnt = []
hh = nn.modules.module.register_module_forward_hook(lambda m, i, o: cnt.append(type(m).__name__))
""",
    "nn.Linear(1, 1)(torch.ones(1)); print(cnt)",
    "nn.ReLU()(torch.ones(1)); print(cnt)",
    "hh.remove(); nn.ReLU()(torch.ones(1)); print(cnt)",
    needs=("torch",),
)
sequence(
    "optimizer sgd",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.SGD(net.parameters(), lr=.1, momentum=.9, nesterov=True); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))], 'lr': .5}); print(len(opt.param_groups), step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "optimizer adam groups",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.Adam([{'params': [net[0].weight]}, {'params': [net[0].bias, *net[2].parameters()], 'lr': .01}], lr=.05, amsgrad=True); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "print(step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "optimizer adamw fused",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.AdamW(net.parameters(), lr=.05, fused=True); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))], 'lr': .5}); print(len(opt.param_groups), step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "optimizer rmsprop",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.RMSprop(net.parameters(), centered=True); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))], 'lr': .5}); print(len(opt.param_groups), step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "optimizer adagrad",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.Adagrad(net.parameters()); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))], 'lr': .5}); print(len(opt.param_groups), step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "optimizer nadam foreach",
    """
import torch
from torch import nn
torch.manual_seed(0); net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)); opt = torch.optim.NAdam(net.parameters(), foreach=True); X = torch.randn(16, 3); Y = X.sum(1, keepdim=True)
sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5); warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: .9 ** e)
def step():
    opt.zero_grad(); l = nn.functional.mse_loss(net(X), Y); l.backward(); opt.step(); sch.step(); return f'{l.item():.5f}'
""",
    "print(step())",
    "print(step(), [g['lr'] for g in opt.param_groups]); warm.step()",
    "print(step(), len(opt.state), opt.param_groups[0]['params'][0] is net[0].weight)",
    "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))], 'lr': .5}); print(len(opt.param_groups), step())",
    "print(step(), sch.last_epoch, sch.optimizer is opt, warm.get_last_lr()[:1], sorted(next(iter(opt.state.values())), key=str))",
    "print(net[0].weight, sch.last_epoch, [len(v) for v in opt.state.values()], opt.param_groups[0]['params'][0] is net[0].weight)",
    needs=("torch",),
)
sequence(
    "lbfgs",
    """
import torch
p = torch.nn.Parameter(torch.tensor([3., -2.])); opt = torch.optim.LBFGS([p], lr=.5, max_iter=2)
def closure():
    opt.zero_grad(); l = (p ** 2).sum() + (p[0] - 1) ** 4; l.backward(); return l
""",
    "print(round(opt.step(closure).item(), 5))",
    "print(round(opt.step(closure).item(), 5), p)",
    "print(round(opt.step(closure).item(), 5), p, opt.state[p]['n_iter'], len(opt.state[p]['old_dirs']))",
    "print(round(opt.step(closure).item(), 5), p)",
    "print(p, opt.state[p]['n_iter'], opt.param_groups[0]['lr'])",
    needs=("torch",),
)
sequence(
    "schedulers",
    """
import torch
from torch.optim import lr_scheduler as L
p = torch.nn.Parameter(torch.ones(1)); o = torch.optim.SGD([p], lr=1.); s1 = L.LinearLR(o, total_iters=3); s2 = L.ExponentialLR(o, .5); seq = L.SequentialLR(o, [s1, s2], milestones=[3]); pl = L.ReduceLROnPlateau(o, patience=0, factor=.1)
o2 = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=.1, momentum=.9); oc = L.OneCycleLR(o2, 1., total_steps=10); ch = L.ChainedScheduler([L.StepLR(o2, 2)]) if False else None
""",
    "o.step(); seq.step(); print(o.param_groups[0]['lr'], seq.last_epoch)",
    """\
for _ in range(3): o.step(); seq.step(); o2.step(); oc.step()
print(o.param_groups[0]['lr'], o2.param_groups[0]['lr'], o2.param_groups[0]['momentum'])
""",
    "pl.step(1.); pl.step(2.); print(o.param_groups[0]['lr'], pl.num_bad_epochs, pl.best)",
    "o2.step(); oc.step(); print(oc.get_last_lr(), s1.optimizer is o, seq._schedulers[1] is s2, o._opt_called if hasattr(o,'_opt_called') else None)",
    """\
import warnings
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter('always'); o.step(); seq.step(); print(len(w))
""",
    needs=("torch",),
)
sequence(
    "optimizer hooks and swa",
    """
import torch
from torch.optim.swa_utils import AveragedModel, SWALR
torch.manual_seed(0)
m = torch.nn.Linear(2, 1); avg = AveragedModel(m); o = torch.optim.SGD(m.parameters(), lr=.1); n = []
h = o.register_step_post_hook(lambda *a: n.append(1)); sw = SWALR(o, swa_lr=.05)
def st():
    o.zero_grad(); m(torch.ones(1, 2)).sum().backward(); o.step(); avg.update_parameters(m); sw.step()
""",
    "st(); print(len(n), avg.n_averaged)",
    "st(); print(len(n), avg.n_averaged, avg.module.weight)",
    "h.remove(); st(); print(len(n), o.param_groups[0]['lr'])",
    "print(len(n), o.param_groups[0]['lr'], avg.n_averaged, sw.optimizer is o)",
    needs=("torch",),
)
sequence(
    "weights reparametrized",
    """
import torch
from torch import nn
import torch.nn.utils.parametrize as P
from torch.nn.utils import parametrizations as PZ
torch.manual_seed(2)
class Sym(nn.Module):
    def forward(s, X): return X.triu() + X.triu(1).T
l = nn.Linear(3, 3); P.register_parametrization(l, 'weight', Sym()); wn = PZ.weight_norm(nn.Linear(2, 2)); sn = PZ.spectral_norm(nn.Linear(2, 2)); orth = PZ.orthogonal(nn.Linear(2, 2))
""",
    "print(torch.equal(l.weight, l.weight.T), type(l).__name__, P.is_parametrized(l))",
    """\
with torch.no_grad(): l.parametrizations.weight.original[0, 1] = 5
print(l.weight[1, 0].item(), [n for n, _ in wn.named_parameters()])
""",
    "y = sn(torch.ones(1, 2)).detach(); print(y, wn(torch.ones(1, 2)).detach(), orth.weight.detach())",
    "P.remove_parametrizations(l, 'weight'); print(type(l).__name__, l.weight.shape, isinstance(l, nn.Linear))",
    "print(sn(torch.ones(1, 2)).detach(), P.is_parametrized(sn))",
    needs=("torch",),
)
sequence(
    "old weight norm and pruning",
    """
import torch
from torch import nn
import torch.nn.utils.prune as prune
torch.manual_seed(0)
import warnings; warnings.simplefilter('ignore')
a = nn.utils.weight_norm(nn.Linear(2, 2)); b = nn.Linear(3, 3); prune.l1_unstructured(b, 'weight', amount=3)
""",
    "print(a(torch.ones(2)).detach(), b.weight.eq(0).sum())",
    """\
with torch.no_grad(): b.weight_orig.fill_(2.); a.weight_g.mul_(2)
print(b(torch.ones(3)).detach(), a(torch.ones(2)).detach())
""",
    "prune.remove(b, 'weight'); nn.utils.remove_weight_norm(a); print([n for n, _ in b.named_parameters()], [n for n, _ in a.named_parameters()])",
    "print([n for n, _ in b.named_parameters()], [n for n, _ in a.named_parameters()], b.weight.detach())",
    needs=("torch",),
    pinned=True,
)
sequence(
    "datasets and loaders",
    """
import torch
from torch.utils.data import *
class Sq(Dataset):
    def __init__(s, n): s.n = n; s.got = []
    def __len__(s): return s.n
    def __getitem__(s, i): s.got.append(i); return torch.tensor(i), i * i
ds = Sq(5); g = torch.Generator().manual_seed(3); dl = DataLoader(ds, batch_size=2, shuffle=True, generator=g, collate_fn=None); tr, te = random_split(ds, [3, 2], generator=g); ws = WeightedRandomSampler([.1, .9, .5], 4, generator=g); cc = ConcatDataset([tr, te]); sub = Subset(ds, [4, 0])
""",
    "print([b[0].tolist() for b in dl], len(ds.got))",
    "print([b[0].tolist() for b in dl], dl.dataset is ds, tr.indices, tr.dataset is ds)",
    "print(list(ws), [int(x) for x, _ in cc], sub[0][1])",
    "print([b[1].tolist() for b in dl], len(ds.got), dl.generator is g, g.initial_seed())",
    "torch.manual_seed(5); d2 = DataLoader(ds, shuffle=True); print([int(b[0]) for b in d2])",
    "print([int(b[0]) for b in d2])",
    "print(len(ds.got), d2.dataset is ds, g.get_state().sum())",
    needs=("torch",),
)
sequence(
    "a loader part-way in a variable",
    """
import torch
from torch.utils.data import DataLoader
dl = DataLoader(list(range(6)), batch_size=2); it = iter(dl); a = next(it); k = torch.ones(2)
""",
    "print(a, k)",
    "k += 1; print(k, len(dl))",
    "print(k, len(dl))",
    needs=("torch",),
)
sequence(
    "generators and seeds",
    """
import torch
torch.manual_seed(7); g = torch.Generator().manual_seed(9); g2 = g; st = torch.get_rng_state(); d = torch.default_generator
""",
    "print(torch.rand(2), torch.rand(2, generator=g), torch.initial_seed())",
    "print(torch.randn(3), torch.randperm(5, generator=g2), g is g2, d is torch.default_generator)",
    "torch.set_rng_state(st); print(torch.rand(2), torch.seed() != 7)",
    "torch.manual_seed(1); x = torch.nn.functional.dropout(torch.ones(8)); print(x, torch.bernoulli(torch.full((4,), .5), generator=g))",
    "print(torch.normal(0., 1., (2,), generator=g), g.initial_seed(), torch.rand(1), g.get_state().sum())",
    "print(g.get_state().sum(), g is g2, torch.get_rng_state().sum(), torch.initial_seed())",
    needs=("torch",),
)
sequence(
    "modes entered for good",
    """
import torch
torch.set_grad_enabled(False); torch.set_default_dtype(torch.float64); torch.set_printoptions(precision=2); w = torch.ones(1, requires_grad=True)
""",
    "print((w * 2).requires_grad, torch.tensor([1.23456]), torch.is_grad_enabled())",
    "torch.set_grad_enabled(True); print((w * 2).requires_grad)",
    "ng = torch.no_grad(); ng.__enter__(); print((w * 2).requires_grad)",
    "print((w * 2).requires_grad)",
    "ng.__exit__(None, None, None); print((w * 2).requires_grad, torch.get_default_dtype())",
    "torch.use_deterministic_algorithms(True); torch.set_float32_matmul_precision('high')",
    "print(torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision())",
    needs=("torch",),
)
sequence(
    "as many threads as processors where the environment says one",
    "import torch, os; torch.set_num_threads(os.cpu_count())",
    "print(torch.get_num_threads() == os.cpu_count())",
    "torch.set_num_threads(1)",
    "print(torch.get_num_threads())",
    needs=("torch",),
)
sequence(
    "inference mode over cells",
    """
import torch
im = torch.inference_mode(); im.__enter__(); a = torch.ones(2)
""",
    "print(torch.is_inference_mode_enabled(), a.is_inference())",
    "b = torch.ones(1); print(b.is_inference())",
    "im.__exit__(None, None, None); print(torch.is_inference_mode_enabled(), a.is_inference())",
    """\
try:
    w = torch.ones(2, requires_grad=True); (a * w).sum().backward()
except RuntimeError as e: print(str(e)[:30])
""",
    needs=("torch",),
    pinned=True,
)
sequence(
    "autocast over cells",
    """
import torch
x = torch.ones(2, 2); ac = torch.autocast('cpu', dtype=torch.bfloat16); ac.__enter__()
""",
    "print((x @ x).dtype, torch.is_autocast_enabled('cpu'))",
    "print((x @ x).dtype, torch.get_autocast_dtype('cpu'))",
    "ac.__exit__(None, None, None); print((x @ x).dtype, torch.is_autocast_enabled('cpu'))",
    """\
with ac: print((x @ x).dtype)
print((x @ x).dtype)
""",
    needs=("torch",),
)
sequence(
    "default device and functions",
    """
import torch
torch.set_default_device('meta'); m = torch.ones(3)
""",
    "print(m, torch.zeros(2).device)",
    "torch.set_default_device('cpu'); print(torch.zeros(2).device, m.is_meta)",
    "torch.set_default_device(None); print(torch.zeros(2), torch.get_default_device())",
    needs=("torch",),
)
sequence(
    "script and trace",
    """
import torch, warnings; warnings.simplefilter('ignore')
class M(torch.nn.Module):
    def __init__(s): super().__init__(); s.w = torch.nn.Parameter(torch.ones(2))
    def forward(s, x): return x * s.w
m = M(); tr = torch.jit.trace(m, torch.ones(2))
""",
    "print(tr(torch.ones(2)).detach())",
    """\
with torch.no_grad(): tr.w[0] = 5
print(tr(torch.ones(2)).detach())
""",
    "print(type(tr).__name__, tr(torch.ones(2)).sum().item(), tr.w is m.w)",
    needs=("torch",),
    pinned="TorchScript",
)
sequence(
    "fx and compile",
    """
import torch
def f(x): return torch.relu(x) * K
K = 2; gm = torch.fx.symbolic_trace(lambda x: torch.relu(x) + 1); c = torch.compile(f, backend='eager'); cm = torch.compile(torch.nn.Linear(2, 2), backend='eager')
""",
    "print(gm(torch.tensor([-1., 2.])), c(torch.tensor([1.])))",
    "K = 5; print(c(torch.tensor([1.])), gm.code.count('relu'))",
    "print(cm(torch.ones(2)).shape, c(torch.tensor([2.])), type(cm).__name__)",
    needs=("torch",),
)
sequence(
    "module copies and saved state",
    """
import torch, copy, io
from torch import nn
m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)); best = copy.deepcopy(m.state_dict()); live = m.state_dict(); bio = io.BytesIO(); torch.save(m, bio)
""",
    """\
with torch.no_grad(): m[0].weight.fill_(1)
print(live['0.weight'], torch.equal(best['0.weight'], m[0].weight))
""",
    "bio.seek(0); m2 = torch.load(bio, weights_only=False); m2.load_state_dict(live); print(m2[0].weight)",
    "m.load_state_dict(best); print(torch.equal(m[0].weight, best['0.weight']), torch.equal(live['0.weight'], best['0.weight']))",
    "e = copy.deepcopy(m); e[0].weight.data.zero_(); print(torch.equal(live['0.weight'], e[0].weight), [k for k in live])",
    needs=("torch",),
)
sequence(
    "parameter changes kind",
    """
import torch
from torch import nn
m = nn.Linear(2, 2); w = m.weight; v = m.weight.data; o = torch.optim.SGD(m.parameters(), lr=1.)
""",
    "m.half(); print(w.dtype, w is m.weight, v.dtype)",
    "m.float(); m.weight.data = torch.zeros(2, 2); print(w, o.param_groups[0]['params'][0] is w)",
    "m.requires_grad_(False); m.bias = nn.Parameter(torch.ones(2)); print([p.requires_grad for p in m.parameters()], len(o.param_groups[0]['params']))",
    "m.register_parameter('x', None); m.weight = None; print(list(m._parameters), m.bias)",
    needs=("torch",),
)
sequence(
    "lazy modules and containers",
    """
import torch
from torch import nn
l = nn.LazyLinear(3); d = nn.ModuleDict({'a': l, 'b': nn.ParameterList([torch.ones(1), nn.Parameter(torch.zeros(1))])}); up = nn.UninitializedParameter
""",
    "print(d['a'] is l, type(l).__name__, nn.parameter.is_lazy(l.weight))",
    "print(l(torch.ones(1, 4)).shape, type(l).__name__)",
    "d['c'] = nn.GRU(2, 3, 2, bidirectional=True); d['m'] = nn.MultiheadAttention(4, 2)",
    "o, h = d['c'](torch.zeros(1, 2, 2)); print(o.shape, [n for n, _ in d.named_parameters()][:4], d['b'][0].requires_grad)",
    "print(d['c']._flat_weights[0] is d['c'].weight_ih_l0, d['c'](torch.zeros(1, 1, 2))[0].shape)",
    """\
with torch.no_grad(): d['c'].weight_ih_l0.zero_()
print(d['c']._flat_weights[0].abs().sum().item())
""",
    needs=("torch",),
    pinned=True,
)
sequence(
    "distributions and losses",
    """
import torch
from torch import distributions as D, nn
torch.manual_seed(0); n = D.Normal(torch.zeros(2), torch.ones(2)); c = D.Categorical(probs=torch.tensor([.1, .9])); mx = D.MixtureSameFamily(c, D.Normal(torch.zeros(2), torch.ones(2))); ce = nn.CrossEntropyLoss(weight=torch.tensor([1., 2.])); tr = D.TransformedDistribution(n, [D.ExpTransform()])
""",
    "print(n.sample(), c.sample(), n.batch_shape)",
    "n.loc[0] = 10; print(n.sample(), mx.sample(), ce.weight)",
    "print(tr.sample(), ce(torch.eye(2), torch.tensor([0, 1])))",
    "print(n.loc, ce.weight, ce(torch.eye(2), torch.tensor([0, 1])))",
    needs=("torch",),
)
sequence(
    "grad scaler and checkpoints",
    """
import torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0); sc = torch.amp.GradScaler('cpu'); m = torch.nn.Linear(2, 1); o = torch.optim.SGD(m.parameters(), lr=.01)
def st():
    o.zero_grad(); sc.scale(checkpoint(m, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum()).backward(); sc.step(o); sc.update(); return sc.get_scale()
""",
    "print(st())",
    "print(st(), sc.is_enabled())",
    "print(st(), sc._growth_tracker)",
    "print(sc.get_scale(), sc._growth_tracker, m.weight)",
    needs=("torch",),
)
sequence(
    "a loss that is shown after its backward",
    """
import torch
net = torch.nn.Linear(2, 1)
with torch.no_grad(): net.weight.fill_(1.); net.bias.zero_()
loss = ((h := net(torch.ones(4, 2)) * 2) ** 2).mean(); h.retain_grad(); loss.backward()
""",
    "loss",
    "print(h.grad, h.retains_grad, loss.grad_fn.name()); torch.set_grad_enabled(False)",
    "print(h, loss, loss.requires_grad, h.grad)",
    needs=("torch",),
)
sequence(
    "loaders part-way",
    """
import torch
from torch.utils.data import Dataset, DataLoader, TensorDataset, BatchSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
torch.manual_seed(0)
ds = TensorDataset(torch.arange(11.), torch.arange(11) % 3)
plain = iter(DataLoader(ds, batch_size=4)); shuf = iter(DataLoader(ds, batch_size=3, shuffle=True, drop_last=True)); g = torch.Generator().manual_seed(5); own = iter(DataLoader(ds, batch_size=2, shuffle=True, generator=g)); one = iter(DataLoader(ds, batch_size=None, shuffle=True)); spent = iter(DataLoader(ds, batch_size=11)); list(spent); fresh = iter(DataLoader(ds, batch_size=5, shuffle=True))
def coll(b): return [x[0].item() for x in b]
wl = DataLoader(ds, batch_size=3, sampler=WeightedRandomSampler(torch.ones(11), 6), collate_fn=coll); w = iter(wl); en = enumerate(DataLoader(ds, batch_size=6))
first = [next(i) for i in (plain, shuf, own, one, w)]; next(en)
print(first)
""",
    """
print([next(i) for i in (plain, shuf, own, one, w, fresh, en)], list(spent))
""",
    """
rest = [[*i] for i in (plain, shuf, own, one, w, fresh)]
print(rest, torch.rand(1), torch.rand(1, generator=g), plain._num_yielded)
""",
    "print(rest, [*plain], [*shuf], [*own], plain._num_yielded)",
    needs=(
        "torch",
        "numpy",
    ),
)
sequence(
    "hooks that all optimizers have",
    """
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
p = torch.nn.Parameter(torch.ones(2)); opt = torch.optim.SGD([p], lr=1.0); trace = []
after = register_optimizer_step_post_hook(lambda o, a, k: trace.append(type(o).__name__))
before = register_optimizer_step_pre_hook(lambda o, a, k: trace.append('before'))
""",
    "p.sum().backward(); opt.step(); print(trace)",
    "torch.optim.Adam([p]).step(); print(trace); before.remove()",
    "opt.step(); after.remove(); print(trace)",
    "n = len(trace); torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]).step(); print(n == len(trace), trace, p)",
    needs=("torch",),
)
