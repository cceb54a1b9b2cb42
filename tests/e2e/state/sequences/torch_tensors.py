"""torch: views, shared memory, gradients, layouts, subclasses."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "views of a tensor",
    """
import torch
t = torch.arange(12.).reshape(3, 4); v = t[1]; tr = t.T; n = t.narrow(1, 1, 2); e = torch.ones(1).expand(3); u = t.unfold(1, 2, 1); d = torch.diagonal(t); f = t.flatten(); b = t.view(torch.int32); p = t.permute(1, 0)[::2]; c = t.detach(); dt = t.data
""",
    "v[0] = 100; d[2] = -1",
    "print(t, tr[0], n, f[4], p, c[1, 0], dt[2, 2])",
    "n.mul_(2); e2 = e.clone(); b[0, 0] = 0",
    "print(t, u[0], e.stride(), t._is_view(), v._is_view(), v._base is t)",
    "del t; tr.zero_(); print(v, f.sum(), c.sum(), v._version > 0)",
    "print(v, f.sum(), c.sum(), tr.shape, v._base is f._base)",
    needs=("torch",),
)
sequence(
    "base of a view",
    """
import torch
t = torch.zeros(4); v = t[1:]; w = v[1:]; x = torch.zeros(3)[1:]
""",
    "print(v._base is t, w._base is t, t._base is None, x._base.shape, v._is_view())",
    "w.fill_(5); print(t, v._base is t, w._base is v._base)",
    "print(t._is_view(), x._is_view(), torch.equal(x._base, torch.zeros(3)))",
    needs=("torch",),
)
sequence(
    "memory shared with processes that are forked later",
    """
import os, torch, numpy as np
t = torch.zeros(3).share_memory_(); n = t.numpy(); v = t[1:]
m = torch.nn.Linear(2, 1).share_memory(); plain = torch.ones(2)
with torch.no_grad(): m.weight.fill_(1.)
np.arange(4, dtype=np.float32).tofile('values.bin')
mapped = torch.from_file('values.bin', shared=True, size=4)
def in_a_fork(work):
    pid = os.fork()
    if not pid:
        work(); os._exit(0)
    os.waitpid(pid, 0)
""",
    "n[1] = 5; in_a_fork(lambda: (t.add_(1), m.weight.data.mul_(2), plain.zero_()))",
    "print(t, v, n, m.weight.data, plain, t.is_shared(), m.weight.is_shared(), plain.is_shared())",
    "in_a_fork(lambda: v.fill_(7)); big = torch.zeros(50_000).share_memory_(); part = big[10:]; mapped[0] = 9",
    "in_a_fork(lambda: part.add_(2)); in_a_fork(lambda: mapped.mul_(2))",
    "print(t, n, big.sum(), part.is_shared(), mapped, mapped.is_shared(), np.fromfile('values.bin', np.float32))",
    needs=("torch", "numpy"),
)
sequence(
    "memory shared with numpy",
    """
import torch, numpy as np
a = np.arange(6.); t = torch.from_numpy(a); s = torch.from_numpy(a[::2]); b = torch.zeros(3); n = b.numpy(); m = torch.as_tensor(a); l = [b]; z = torch.frombuffer(bytearray(8), dtype=torch.uint8)
""",
    "a[0] = 50; b[1] = 7; z[0] = 3",
    "print(t, s, n, m, z[:2])",
    "n[2] = 9; t[4] = -4",
    "print(l[0], a, s, torch.from_numpy(n).data_ptr() == b.data_ptr())",
    "l[0].add_(1); a *= 2; print(n, t, m.sum())",
    "print(a, t, n, b, l[0] is b)",
    needs=("torch",),
)
sequence(
    "tensor over a bytearray",
    """
import torch
ba = bytearray(16); t = torch.frombuffer(ba, dtype=torch.int32); mv = memoryview(ba)
""",
    "t[1] = 1; print(ba[4], mv[4])",
    "ba[0] = 2; print(t)",
    "mv[8] = 3; print(t, ba[8])",
    needs=("torch",),
)
sequence(
    "gradients of leaves",
    """
import torch
w = torch.ones(3, requires_grad=True); b = torch.zeros(1, requires_grad=True); (w.sum() * 2 + b).backward(); g = w.grad
""",
    "print(w.grad, b.grad, g is w.grad)",
    "(w * 3).sum().backward(); print(w.grad, g)",
    "w.grad[0] = 9; print(g, w.grad is g)",
    """\
with torch.no_grad(): w -= 0.1 * w.grad
w.grad = None
""",
    "print(w, w.grad, g, w.is_leaf, w._version)",
    "w.retain_grad(); w.requires_grad_(False); print((w * 2).requires_grad, b.requires_grad)",
    "print(w, w.grad, b.grad, w.is_leaf)",
    needs=("torch",),
)
sequence(
    "graph across cells is named",
    """
import torch
w = torch.ones(2, requires_grad=True); y = (w * w).sum(); d = y.detach(); k = [1]
""",
    "k.append(d.item()); print(k)",
    "print(w, w.grad, d)",
    needs=("torch",),
    pinned="autograd graph",
)
sequence(
    "graph used in the same cell",
    """
import torch
w = torch.ones(2, requires_grad=True)
for i in range(3):
    y = ((w - 3) ** 2).sum(); y.backward()
    with torch.no_grad(): w -= .1 * w.grad
    w.grad.zero_()
""",
    "print(w, y.item(), w.grad)",
    "y = (w ** 2).sum(); y.backward(); print(w.grad); y2 = y.detach()",
    "print(y2, y.requires_grad, y.grad_fn is not None)",
    needs=("torch",),
)
sequence(
    "layouts",
    """
import torch
s = torch.sparse_coo_tensor([[0, 1], [1, 0]], [3., 4.], (2, 2)); c = s.to_sparse_csr(); sc = s.coalesce(); i = sc.indices(); nt = torch.nested.nested_tensor([torch.ones(2), torch.zeros(1)]); q = torch.quantize_per_tensor(torch.tensor([1., 2.]), .1, 0, torch.quint8); cl = torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last); mk = torch.ones(3).to_mkldnn(); z = torch.zeros(2, dtype=torch.complex64); zr = torch.view_as_real(z); cj = z.conj()
""",
    "zr[0, 1] = 2",
    "print(z, cj, cj.is_conj(), s.is_coalesced(), sc.is_coalesced(), c, q, cl.is_contiguous(memory_format=torch.channels_last))",
    "print(nt, mk.layout, mk.to_dense(), q.int_repr(), q.q_scale(), i)",
    "sc.values()[0] = 9; print(sc.to_dense(), s.to_dense())",
    "z[1] = 1j; print(cj.resolve_conj(), zr, torch.real(z).is_contiguous(), z.imag)",
    needs=("torch",),
    pinned=True,
)
sequence(
    "sparse shares its values",
    """
import torch
v = torch.ones(2); s = torch.sparse_coo_tensor(torch.tensor([[0, 1]]), v, (3,), is_coalesced=True); w = s.values() ; g = torch.ones(2, requires_grad=True)
emb = torch.nn.Embedding(4, 2, sparse=True); emb(torch.tensor([1, 1])).sum().backward()
""",
    "v[0] = 7; print(s.to_dense(), w)",
    "w[1] = 3; print(s.to_dense(), emb.weight.grad.is_sparse, emb.weight.grad.to_dense().sum())",
    "o = torch.optim.SparseAdam(emb.parameters()); o.step(); print(emb.weight.shape, v)",
    needs=("torch",),
)
sequence(
    "subclass of Tensor",
    """
import torch
class Tag(torch.Tensor):
    @staticmethod
    def __new__(cls, x, tag): return torch.Tensor._make_subclass(cls, torch.as_tensor(x))
    def __init__(s, x, tag): s.tag = tag
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):
        calls.append(f.__name__); return super().__torch_function__(f, types, args, kwargs or {})
calls = []; t = Tag(torch.ones(2), ['x']); tg = t.tag; v = t[0:1]; p = torch.nn.Parameter(torch.ones(1)); p.note = tg
""",
    "n = len(calls); t.tag.append(1)",
    "print(t.tag is tg, type(v).__name__, len(calls) == n, p.note is tg)",
    "t[0] = 5; print(v.as_subclass(torch.Tensor), type(t + 1).__name__, len(calls) > n)",
    needs=("torch",),
)
sequence(
    "wrapper tensor",
    """
import torch
from torch.utils._pytree import tree_map
class W(torch.Tensor):
    @staticmethod
    def __new__(cls, e): return torch.Tensor._make_wrapper_subclass(cls, e.shape, dtype=e.dtype)
    def __init__(s, e): s.elem = e
    def __repr__(s): return f'W({s.elem})'
    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kwargs=None):
        u = lambda x: x.elem if isinstance(x, W) else x
        r = f(*tree_map(u, args), **tree_map(u, kwargs or {})); return W(r) if isinstance(r, torch.Tensor) else r
inner = torch.ones(2); w = W(inner)
""",
    "inner[0] = 4",
    "print(w, w + 1, w.elem is inner)",
    "w.elem[1] = 9; print(inner, w * 2)",
    needs=("torch",),
)
sequence(
    "torch functions as variables",
    """
import torch
from torch import nn
from torch.func import vmap, grad, functional_call, jacrev
f = lambda x: (x ** 2).sum(); gf = grad(f); vf = vmap(torch.dot); relu = torch.nn.functional.relu; m = nn.Linear(2, 1); step = m.forward; act = {'r': relu, 't': torch.tanh}; add = torch.add; op = torch.ops.aten.add; jr = jacrev(f)
""",
    "print(gf(torch.tensor([1., 2.])), vf(torch.ones(2, 3), torch.ones(2, 3)))",
    "print(act['r'](torch.tensor([-1., 1.])), step(torch.ones(2)).shape, add(torch.ones(1), 1), step.__self__ is m)",
    "print(jr(torch.ones(2)), op(torch.ones(1), 2), functional_call(m, dict(m.named_parameters()), torch.zeros(2)).shape)",
    needs=("torch",),
)
sequence(
    "storages held directly",
    """
import torch
t = torch.zeros(4); s = t.untyped_storage(); ts = t.storage() if False else None; u = torch.empty(0).set_(s)
""",
    "s[0] = 1; t[3] = 5",
    "print(t[3], s.nbytes(), t.untyped_storage().data_ptr() == s.data_ptr(), u.shape)",
    "t.resize_(8); print(s.nbytes(), t[:4])",
    "t[5] = 2; print(u.set_(s)[5], s.nbytes())",
    needs=("torch",),
)
sequence(
    "mixed memory of numpy, pandas and torch",
    """
import numpy as np, pandas as pd, torch
a = np.arange(4.); t = torch.from_numpy(a); s = pd.Series(a, copy=False); v = t[1:3]; m = {'t': v, 'a': a}
""",
    "a[1] = 50",
    "print(t, s.tolist(), v, m['a'] is a)",
    "v[1] = -7; print(a, s.tolist(), t)",
    "s.iloc[0] = 99; print(a, s.tolist(), t[0])",
    "t += 1; print(a, v, m['t'] is v, s.tolist())",
    "print(a, v, m['t'] is v, s.tolist(), t)",
    needs=("torch",),
)
sequence(
    "tensors of whose making a library warns",
    "import torch, warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    q = torch.quantize_per_tensor(torch.tensor([1., 2.]), 0.1, 0, torch.qint8)\nbox = [q]",
    "print(q.int_repr()); warnings.simplefilter('error', UserWarning)",
    "box.append(1); n = q.q_scale()",
    "print(box[0] is q, q.int_repr(), n)",
    needs=("torch",),
)
sequence(
    "what torch warns of once in a process",
    "import torch\nt = torch.tensor([1.5, 2.5], requires_grad=True); seen = [float(t[0])]",
    "seen.append(float(t[1]))",
    "loss = (t ** 2).sum(); loss.backward(); seen.append(round(float(loss), 2))",
    "print(seen, float(t.grad[1]), float(t.sum()))",
    "a mapped file under tensors",
    "import torch, numpy as np\nmm = np.memmap('w.bin', dtype=np.float32, mode='w+', shape=(6,)); t = torch.from_numpy(mm); t[0] = 1.5",
    "t[1:3] = 2; print(mm[:3]); ff = torch.from_file('w.bin', shared=True, size=6); print(ff)",
    "ff[5] = 9; print(t[5], np.shares_memory(mm, t.numpy()))",
    "mm[4] = 7; own = torch.from_numpy(np.memmap('w.bin', dtype=np.float32, mode='r+', shape=(6,)))",
    "own[3] = 4; print(t, ff)",
    "print(t, ff, own, mm, np.fromfile('w.bin', dtype=np.float32))",
    needs=("torch",),
)
sequence(
    "views of quantized and nested tensors, and the negative bit",
    """
import torch, warnings; warnings.simplefilter('ignore')
q = torch.quantize_per_tensor(torch.tensor([-1., 0.1, 2.]), 0.1, 10, torch.quint8); v = q[1:]
st = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)]); parts = st.unbind()
z = torch.tensor([1 + 2j, 3 - 1j]); c = z.conj(); n = c.imag
""",
    "v[0] = 1.5; parts[0].fill_(5); n[1] = 8; print(q.dequantize(), st[0][0], z)",
    "q.fill_(0.3); z[0] = 2j; print(v.int_repr(), n, n.is_neg(), c)",
    "print(q, v.data_ptr() - q.data_ptr(), parts[0][0], st.is_nested, z, c, n, c.is_conj())",
    needs=("torch",),
)
sequence(
    "switches of torch that are seldom set",
    "import torch\ntorch.autograd.set_detect_anomaly(True, check_nan=False); flushes = torch.set_flush_denormal(True)",
    "torch.backends.mha.set_fastpath_enabled(False); torch.backends.cuda.enable_flash_sdp(False)",
    "print(torch.is_anomaly_check_nan_enabled(), torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled(), (torch.tensor(1e-310, dtype=torch.float64) * 0.5 == 0) == flushes)",
    "torch.autograd.set_detect_anomaly(True); torch.set_flush_denormal(False)",
    "print(torch.is_anomaly_check_nan_enabled(), (torch.tensor(1e-310, dtype=torch.float64) * 0.5 == 0))",
    needs=("torch",),
)
sequence(
    "nested tensors with rows of different lengths fit each other",
    """
import torch
jag = torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=torch.jagged); out = jag + 1
vals = jag.values(); other = torch.nested.nested_tensor([torch.ones(1, 3)], layout=torch.jagged)
""",
    "vals[0] = 7; print(jag.unbind()[0], (jag * out).unbind()[0])",
    "third = out * 2; print(third.shape == jag.shape, other.shape == jag.shape, out)",
    "w = torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged, requires_grad=True); (w * 3).values().sum().backward()",
    "print(w.grad.unbind(), w, (third + jag).unbind()[0], jag.shape, other.shape, vals.data_ptr() == jag.values().data_ptr())",
    needs=("torch",),
)
sequence(
    "tensors know how often they were changed in place",
    """
import torch
class Own(torch.Tensor): pass
fresh = torch.ones(3); weight = torch.nn.Parameter(torch.ones(2)); y = torch.ones(4); y.add_(1); v = y[:2]
own = torch.ones(2).as_subclass(Own); own.add_(1); leaf = torch.zeros(3); leaf[0] = 1; leaf.requires_grad_(True)
eye = torch.eye(2).to_sparse(); eye.mul_(2); z = torch.zeros(2, dtype=torch.complex64).conj()
with torch.inference_mode(): i = torch.ones(2)
def versions(): return [t._version for t in (fresh, weight, y, v, own, leaf, eye, z)]
""",
    "print(versions())",
    "y.add_(1); own.mul_(2); layer = torch.nn.Linear(2, 2); l = layer(torch.ones(2)).sum(); l.backward(); torch.optim.SGD(layer.parameters(), 0.1).step()",
    "l.add_(1); print(versions(), layer.weight._version, i, l._base)",
    "print(versions(), layer.weight._version, l._version)",
    needs=("torch",),
)
sequence(
    "arrays that came from tensors by way of dlpack stay in their memory",
    "import numpy as np, torch; u = torch.ones(2_000); v = np.from_dlpack(u); "
    "late = torch.ones(20_000); part = np.from_dlpack(late[4:]); late = late.view(-1)",
    "b = torch.arange(30_000.); a = np.from_dlpack(b[10:20]); w = b.numpy(); z = np.from_dlpack(b)[::2]",
    "v[0] = 5; part[0] = 5; a[0] = -1",
    "u[1] = 7; late[5] = 7; print(v[:3], u[:3], part[:3], late[4:7], b[10], w[10], z[5])",
    "print([np.shares_memory(*pair) for pair in ((v, u.numpy()), (part, late.numpy()), (a, w), (w, b.numpy()), (z, w))]); del b",
    "w[11] = -2; print(a[:3], z[5:7], late[:6], v[:2])",
    needs=("torch",),
)
