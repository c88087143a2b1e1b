"""judge_torch.py JUDGE.so -- compares training with PyTorch (CPU): optimizers with its own in float64, the
loss scale with GradScaler's, casts, the formats of ops with its header (GPU) and with their results (CPU)."""
import ctypes
import os
import re
import warnings

import numpy as np
import torch
from judge import at, check, finish, formats, same, size, so, wrong

warnings.filterwarnings("ignore")
print("PyTorch", torch.__version__)
rng = np.random.default_rng(1)
f32 = next(f for f in formats() if f.name == "f32")

# Optimizers: 300 steps on 1000 weights. The reference is torch in float64. Our error may be three times that
# of torch in float32, plus a few roundings of the largest weight.
N, STEPS = 1000, 300
w0 = rng.standard_normal(N).astype(np.float32)
grads = (rng.standard_normal((STEPS, N)) * np.exp(rng.standard_normal((STEPS, 1)))).astype(np.float32)


def torch_steps(make, dtype, shape=(N,)):
    w = torch.tensor(w0, dtype=dtype).reshape(shape).requires_grad_()
    o = make([w])
    for g in grads:
        w.grad = torch.tensor(g, dtype=dtype).reshape(shape)
        o.step()
    return w.detach().numpy().astype(np.float64).ravel()


def f(x):                       # a constant, rounded to float32, that both programs get
    return float(np.float32(x))


O = torch.optim
CASES = [
    ("SGD", 0, (f(1e-2), 0, 0, 0, 0, 0, 0), lambda p: O.SGD(p, f(1e-2))),
    ("SGD, momentum, decay", 0, (f(1e-2), f(1e-2), f(.9), 0, 0, 0, 0),
     lambda p: O.SGD(p, f(1e-2), f(.9), weight_decay=f(1e-2))),
    ("SGD, Nesterov", 0, (f(1e-2), 0, f(.9), 0, 0, 1, 0), lambda p: O.SGD(p, f(1e-2), f(.9), nesterov=True)),
    ("SGD, dampening", 0, (f(1e-2), 0, f(.9), 0, 0, 0, .5), lambda p: O.SGD(p, f(1e-2), f(.9), dampening=.5)),
    ("AdamW", 1, (f(1e-3), f(.01), f(.9), f(.999), f(1e-8), 0, 0),
     lambda p: O.AdamW(p, f(1e-3), (f(.9), f(.999)), f(1e-8), f(.01))),
    ("AdamW, small lr", 1, (f(1e-6), f(.01), f(.9), f(.999), f(1e-8), 0, 0),
     lambda p: O.AdamW(p, f(1e-6), (f(.9), f(.999)), f(1e-8), f(.01))),
    ("Adam, decay", 2, (f(1e-3), f(.01), f(.9), f(.95), f(1e-6), 0, 0),
     lambda p: O.Adam(p, f(1e-3), (f(.9), f(.95)), f(1e-6), f(.01))),
]
for name, number, h, make in CASES:
    w, room = w0.copy(), np.empty(3 * N, np.float32)
    status = so.judge_steps(number, at(np.array(h, np.float64)), at(w), at(grads), size(N), size(0), size(STEPS),
                            at(room))
    exact = torch_steps(make, torch.float64)
    ours, theirs = np.abs(w - exact), np.abs(torch_steps(make, torch.float32) - exact)
    scale = np.abs(exact).max() * 2.0 ** -24
    print(f"{name}: mean error of ours {ours.mean() / scale:.3f}, torch in float32 {theirs.mean() / scale:.3f}")
    check(name, status == 0 and ours.mean() <= 3 * theirs.mean() + scale and
          ours.max() <= 3 * theirs.max() + 8 * scale, f"{status}, {ours.max() / scale}, {theirs.max() / scale}")
for columns in 0, 25:
    h = np.array([f(1e-2), f(.01), 0, 0, 0, 0, 0], np.float64)
    w, room = w0.copy(), np.empty(3 * N, np.float32)
    status = so.judge_steps(5, at(h), at(w), at(grads), size(N), size(columns), size(STEPS), at(room))
    make = lambda p: O.Adafactor(p, f(1e-2), weight_decay=f(.01))       # noqa: E731
    exact = torch_steps(make, torch.float64, (N // columns, columns) if columns else (N,))
    error = np.abs(w - exact).max() / np.abs(w0 - exact).max()
    print(f"Adafactor, {columns} columns: error {error:.2g} of the way")
    check(f"Adafactor, {columns} columns", status == 0 and error < 1e-4, f"{status}, {error}")

# The loss scale over 20000 steps, of which a random share is bad.
for share in 0.0, 0.001, 0.02, 0.5, 1.0:
    steps = 20000
    bad = (rng.random(steps) < share).astype(np.uint8)
    got = np.empty(steps, np.float32)
    so.judge_scaler(2, at(bad), at(got), size(steps))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    want = np.empty(steps, np.float32)
    for i in range(steps):
        scaler.update_found = torch.full((1,), float(bad[i]))
        torch._amp_update_scale_(scaler._scale, scaler._growth_tracker, scaler.update_found, 2.0, 0.5, 2000)
        want[i] = scaler._scale.item()
    check(f"GradScaler, {share} bad", (got == want).all(), wrong(got == want, got, want))

# Casts from float32, random patterns.
x = rng.integers(0, 2 ** 32, 1000000, np.uint32).view(np.float32)
for ours in formats():
    name = {"f16": "float16", "bf16": "bfloat16", "e5m2": "float8_e5m2", "e4m3": "float8_e4m3fn",
            "e5m2fnuz": "float8_e5m2fnuz", "e4m3fnuz": "float8_e4m3fnuz", "e8m0": "float8_e8m0fnu"}.get(ours.name)
    if ours.name == "e8m0":                     # torch also takes the exponents of negative numbers
        x = np.abs(x[np.abs(x) >= 2.0 ** -126])
    if name:
        to = np.empty(len(x), ours.words)
        so.judge_convert(ours.number, at(to), f32.number, at(x), size(len(x)))
        theirs = torch.tensor(x).to(getattr(torch, name)).to(torch.float64).numpy()
        if ours.name in ("e4m3", "e5m2fnuz", "e4m3fnuz", "e5m2"):       # some versions of torch saturate
            inside = np.isfinite(theirs) & (np.abs(x) <= ours.facts[4])
        else:
            inside = np.ones(len(x), bool)
        ok = same(ours.values(to), theirs) | ~inside
        check(f"cast to {ours.name}", ok.all(), wrong(ok, x, ours.values(to), theirs))

# Policies. For the GPU: the lists in PyTorch's header.
answer = (ctypes.c_int * 3)()
RULES = {"LOWER_PRECISION_FP": 0, "FP32": 1, "FP32_SET_OPT_DTYPE": 2, "PROMOTE": 3}
NOT_TOLD = re.compile(r"^_|_backward|nll_loss2d")       # internal to torch
header = os.path.join(os.path.dirname(torch.__file__), "include/ATen/autocast_mode.h")
text = open(header).read().replace("\\\n", " ")
told = 0
for group, rule in RULES.items():
    body = re.search(rf"#define AT_FORALL_{group}\(_\)(.*)", text).group(1)
    for op in sorted(set(re.findall(r"_\((\w+)", body))):
        if NOT_TOLD.search(op):
            continue
        status = so.judge_policy(b"mixed_float16", op.encode(), f32.number, answer)
        told += 1
        check(f"GPU: {op}", status == 0 and answer[0] == rule, f"status {status}, rule {answer[0]}, not {rule}")
check("names in the header", told > 80, str(told))

# For the CPU: the format that an op returns for float32 and for bfloat16.
F, B = torch.nn.functional, torch.bfloat16
m = torch.rand(4, 4) * .4 + .3
b3, image, volume = m.expand(2, 4, 4), m.expand(1, 1, 4, 4), m.expand(1, 1, 4, 4, 4)
label = torch.tensor([0, 1, 2, 0])
cpu = {n: getattr(torch, n) for n in "exp expm1 log log10 log1p log2 reciprocal rsqrt sqrt tan sinh cosh acos asin "
       "erfinv tanh sigmoid relu neg abs sum prod mean norm".split()}
cpu |= {n: lambda x, g=getattr(torch, n): g(x, 0) for n in "cumsum cumprod logsumexp softmax log_softmax".split()}
cpu |= {n: getattr(F, n) for n in "softplus gelu elu leaky_relu".split()}
cpu |= {n: lambda x, g=getattr(F, n): g(x, x) for n in "l1_loss mse_loss smooth_l1_loss huber_loss kl_div "
        "binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss poisson_nll_loss linear".split()}
cpu |= {n: lambda x, g=getattr(torch, n): g(x, x) for n in "mm matmul cdist add sub mul div atan2 dist".split()}
cpu |= {"pow": lambda x: x ** 3.0, "bmm": lambda x: torch.bmm(x.expand(2, 4, 4), x.expand(2, 4, 4)),
        "addmm": lambda x: torch.addmm(x, x, x), "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
        "mv": lambda x: torch.mv(x, x[0]), "addr": lambda x: torch.addr(x, x[0], x[0]),
        "conv1d": lambda x: F.conv1d(x.expand(2, 4, 4), x.expand(2, 4, 4)), "prelu": lambda x: F.prelu(x, x[0, :1]),
        "layer_norm": lambda x: F.layer_norm(x, (4,)), "nll_loss": lambda x: F.nll_loss(x, label),
        "cross_entropy": lambda x: F.cross_entropy(x, label), "cat": lambda x: torch.cat([x, x]),
        "interpolate": lambda x: F.interpolate(x.expand(1, 1, 4, 4), scale_factor=2),
        "avg_pool": lambda x: F.avg_pool2d(x.expand(1, 1, 4, 4), 2),
        "avg_pool3d": lambda x: F.avg_pool3d(x.expand(1, 1, 4, 4, 4), 2),
        "max_pool3d": lambda x: F.max_pool3d(x.expand(1, 1, 4, 4, 4), 2),
        "group_norm": lambda x: F.group_norm(x.expand(2, 4, 4), 2),
        "cosine_similarity": lambda x: F.cosine_similarity(x, x),
        "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(*[x.expand(1, 1, 4, 4)] * 3)}
bf16 = next(g for g in formats() if g.name == "bf16")
for op, call in sorted(cpu.items()):
    for given, dtype in (f32, torch.float32), (bf16, B):
        with torch.autocast("cpu", B):
            want = {torch.float32: f32.number, B: bf16.number}[call(m.to(dtype)).dtype]
        status = so.judge_policy(b"cpu_bfloat16", op.encode(), given.number, answer)
        check(f"CPU: {op} of {given.name}", status == 0 and answer[2] == want, f"status {status}, {answer[2]}")
finish()
