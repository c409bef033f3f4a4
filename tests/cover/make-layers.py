"""Prints the cases of tests/cover/builtins.txt for what stdlib/shelf/layers.ckl has besides norms, 2-d pools and attention, and
for ctc: python3 make-layers.py > layers. By NumPy 2 and JAX in double precision; ctc by adding up all ways."""
import itertools

import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from cases import A, case, row

def wave(shape, k): return np.round(np.sin(0.7 * np.arange(int(np.prod(shape))) + 1.3 * k), 2).reshape(shape)

m = A([[1.5, 2, 0.5], [4, -1, 7]])
row("rms_norm", "x: f/n", "gain: f/n", "eps: float")
rms = lambda x, eps=1e-5: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
case("rms_norm(x)", {"x": m}, rms(m))
case("rms_norm(x, gain = g, eps = 0.5)", {"x": m, "g": A([1, 2, 3.5])}, rms(m, 0.5) * A([1, 2, 3.5]))
row("group_norm", "x: f/n", "groups: int", "gain: f/n", "bias: f/n", "eps: float")
def gn(x, n, eps=1e-5):
    y = x.reshape(x.shape[0], n, -1)
    return ((y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + eps)).reshape(x.shape)
x3, x4, x5 = wave((2, 4, 3), 0), wave((1, 2, 3, 4), 1), wave((1, 2, 2, 1, 2), 2)
case("group_norm(x, 2)", {"x": wave((2, 4), 3)}, gn(wave((2, 4), 3), 2))
g, b = A([1, 2, 0.5, 1]), A([0.5, 0, -1, 1])
case("group_norm(x, 2, gain = g, bias = b, eps = 0.1)", {"x": x3, "g": g, "b": b},
     gn(x3, 2, 0.1) * g[:, None] + b[:, None])
case("group_norm(x, 1, gain = g)", {"x": x4, "g": g[:2]}, gn(x4, 1) * g[:2, None, None])
case("group_norm(x, 2, bias = g)", {"x": x5, "g": g[:2]}, gn(x5, 2) + g[:2, None, None, None])
def windows(x, n, s, p, fill):
    x = np.pad(x, ((0, 0), (0, 0), (p, p)), constant_values=fill)
    return np.stack([x[..., i:i + n] for i in range(0, x.shape[2] - n + 1, s)], 2)
p = wave((1, 2, 7), 4)
row("max_pool1d", "x: f/n", "window: int", "stride: int", "pad: int")
case("max_pool1d(x, 3)", {"x": p}, windows(p, 3, 3, 0, 0).max(-1))
case("max_pool1d(x, 2, stride = 1, pad = 1)", {"x": p}, windows(p, 2, 1, 1, -np.inf).max(-1))
row("avg_pool1d", "x: f/n", "window: int", "stride: int", "pad: int")
case("avg_pool1d(x, 3)", {"x": p}, windows(p, 3, 3, 0, 0).mean(-1))
case("avg_pool1d(x, 3, stride = 2, pad = 1)", {"x": p}, windows(p, 3, 2, 1, 0).mean(-1))
row("global_avg_pool", "x: f/n")
for v in (x3, x4, x5): case("global_avg_pool(x)", {"x": v}, v.reshape(*v.shape[:2], -1).mean(-1))
row("adaptive_avg_pool2d", "x: f/n", "size: tuple")
def adaptive(x, n, k):
    h, w = x.shape[2:]
    up = lambda i, L, n: -(-(i + 1) * L // n)
    return A([[[[c[i * h // n:up(i, h, n), j * w // k:up(j, w, k)].mean() for j in range(k)] for i in range(n)]
               for c in e] for e in x])
q = wave((1, 1, 5, 4), 2)
case("adaptive_avg_pool2d(x, (2, 3))", {"x": q}, adaptive(q, 2, 3))
case("adaptive_avg_pool2d(x, (5, 1))", {"x": q}, adaptive(q, 5, 1))
case("adaptive_avg_pool2d(x, (7, 4))", {"x": q}, adaptive(q, 7, 4))
print("adaptive_avg_pool2d(x, 2) | x = zeros([1, 1, 2, 2]) | ! type-3")
row("resize", "x: f/n", "size: tuple list", "mode: str")
near = lambda x, n, ax: np.take(x, np.arange(n) * x.shape[ax] // n, ax)
line = lambda x, shape: np.asarray(jax.image.resize(x, shape, "linear", antialias=False))
t = wave((2, 5), 1)
case("resize(x, (4,))", {"x": t}, near(t, 4, 1))
case("resize(x, list(3, 7))", {"x": q}, near(near(q, 3, 2), 7, 3))
case("resize(x, (8,), mode = \"linear\")", {"x": t}, line(t, (2, 8)))
case("resize(x, (2, 9), mode = \"linear\")", {"x": q}, line(q, (1, 1, 2, 9)))
print("resize(x, (2,), mode = \"cubic\") | x = f64([1, 2]) | ! flow-1")
row("rotary", "x: f/n", "start: int", "base: float")
def turn(x, start=0, base=10000.0):
    d = x.shape[-1]
    z = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(
        1j * np.outer(np.arange(x.shape[-2]) + start, base ** (-np.arange(0, d, 2) / d)))
    return np.stack([z.real, z.imag], -1).reshape(x.shape)
r = wave((2, 3, 4), 5)
case("rotary(x)", {"x": r}, turn(r))
case("rotary(x, start = 5, base = 100.0)", {"x": r}, turn(r, 5, 100.0))
row("sinusoidal_positions", "n: int", "d: int")
pe = lambda n, d: np.stack([f(np.outer(np.arange(n), 10000.0 ** (-np.arange(0, d, 2) / d)))
                            for f in (np.sin, np.cos)], -1).reshape(n, d)
case("sinusoidal_positions(3, 4, dtype = f64)", {}, pe(3, 4))
print(f"sinusoidal_positions(2, 2) | | ~ f32({pe(2, 2).tolist()!r})")

row("ctc", "logp: f/n", "labels: i/n", "times: i/n", "lengths: i/n", "blank: int")
def ctc(logp, labels, times, lengths, blank=0):
    loss = []
    for e, la, n, k in zip(logp, labels, times, lengths):
        total = 0.0
        for way in itertools.product(range(e.shape[1]), repeat=n):
            said = [c for i, c in enumerate(way) if (i == 0 or way[i - 1] != c)]
            if [c for c in said if c != blank] == list(la[:k]):
                total += np.exp(sum(e[i, c] for i, c in enumerate(way)))
        loss.append(-np.log(total) if total > 0 else np.inf)
    return np.mean(loss)
e = wave((2, 4, 3), 6)
la = A([[1, 2], [1, 1]])
case("ctc(x, y)", {"x": e, "y": la}, ctc(e, la, [4, 4], [2, 2]))
case("ctc(x, y, times = t, lengths = n)", {"x": e, "y": la, "t": A([2, 3]), "n": A([2, 0])},
     ctc(e, la, [2, 3], [2, 0]))
case("ctc(x, y, blank = 2)", {"x": e, "y": A([[1, 0], [0, 0]])}, ctc(e, A([[1, 0], [0, 0]]), [4, 4], [2, 2], 2))
case("ctc(x, y)", {"x": e[:, :2], "y": A([[1, 2], [1, 1]])}, "f64(inf)", "kink")
print("ctc(x, y, times = t) | x = zeros([1, 2, 2]); y = i64([[1]]); t = i64([3]) | ! index-3")
print("ctc(x, y) | x = zeros([1, 2, 2]); y = i64([[0]]) | ! index-3")
print("ctc(x, y, lengths = n) | x = zeros([1, 2, 2]); y = i64([[1]]); n = i64([2]) | ! index-3")

def conv(x, w, stride=(1, 1), pad=(0, 0), apart=(1, 1), groups=1):
    return np.asarray(jax.lax.conv_general_dilated(x, w, stride, [(p, p) for p in pad], rhs_dilation=apart,
                                                   feature_group_count=groups))
x, w = wave((1, 4, 5, 4), 1), wave((2, 2, 2, 3), 2)
case("conv2d(x, w, groups = 2)", {"x": x, "w": w}, conv(x, w, groups=2))
case("conv2d(x, w, groups = 4, stride = (2, 1), pad = (1, 2))", {"x": x, "w": w[:, :1].reshape(2, 1, 2, 3).repeat(2, 0)},
     conv(x, w[:, :1].repeat(2, 0), (2, 1), (1, 2), groups=4))
case("conv2d(x, w, dilation = 2, pad = 1)", {"x": x[:, :2], "w": w}, conv(x[:, :2], w, pad=(1, 1), apart=(2, 2)))
case("conv2d(x, w, dilation = (3, 1), stride = (1, 2), groups = 2)", {"x": x, "w": w},
     conv(x, w, (1, 2), apart=(3, 1), groups=2))
print("conv2d(x, w, groups = 2) | x = zeros([1, 4, 2, 2]); w = zeros([2, 4, 1, 1]) | ! flow-1")
print("conv2d(x, w, dilation = 0) | x = zeros([1, 1, 2, 2]); w = zeros([1, 1, 1, 1]) | ! flow-1")
