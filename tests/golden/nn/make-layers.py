"""Makes _layers.ckl: results and gradients of the models of stdlib/nn.ckl, computed with JAX 0.10.2 in f64.

    python3 make-layers.py > _layers.ckl

The params of a model, in the order of its paths, are one wave of half height; inputs are waves. Recorded are all results and
two sums of the gradient of sum(y * wave) by the params and by each input: with weights wave(3) and wave(5); `h` are such sums
of the gradient of M, the sum of products of all gradients of sum(y * (1 + y) * wave) and wave(4).
"""
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)


def wave(shape, k):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return jnp.asarray(np.sin(0.7 * i + 1.3 * k + 0.001 * (i * i)).reshape(shape))


def put(numbers):
    flat = [f"{v:.9g}" for v in numbers]
    return ", ".join(v if any(c in v for c in ".en") else v + ".0" for v in flat)


def case(name, shapes, inputs, f):
    """f(list of params, *inputs) gives y or a tuple of results, which count as one vector."""
    sizes = [int(np.prod(s)) for s in shapes]
    flat = 0.5 * wave((sum(sizes),), 1)

    def run(flat, *xs):
        at = list(itertools.accumulate([0] + sizes))
        y = f([flat[a:b].reshape(s) for a, b, s in zip(at, at[1:], shapes)], *xs)
        return jnp.concatenate([v.ravel() for v in y]) if isinstance(y, tuple) else y.ravel()

    y = run(flat, *inputs)
    w = wave(y.shape, 9)
    floats = [0] + [i + 1 for i, x in enumerate(inputs) if jnp.asarray(x).dtype == jnp.float64]
    if not sizes:
        floats = floats[1:]

    def sums(loss):
        gs = jax.grad(loss, argnums=tuple(floats))(flat, *inputs)
        return [jnp.sum(g.ravel() * wave((g.size,), k)) for g in gs for k in (3, 5)]

    def twice(*a):
        gs = jax.grad(lambda *b: jnp.sum(run(*b) * (1 + run(*b)) * w), argnums=tuple(floats))(*a)
        return sum(jnp.sum(g.ravel() * wave((g.size,), 4)) for g in gs)

    print(f"\nfn {name}() =\n  (\n    y = f64([")
    for at in range(0, y.size, 6):
        print("      " + put(y[at:at + 6]) + ",")
    print("    ]),\n    g = f64([")
    print("      " + put(sums(lambda *a: jnp.sum(run(*a) * w))) + ",\n    ]),\n    h = f64([")
    print("      " + put(sums(twice)) + ",\n    ]),\n  )")


def sig(x):
    return jax.nn.sigmoid(x)


def recurrent(kind, hidden, layers, both, per):
    """torch.nn.RNN, GRU, LSTM, batch first, with weights [in, gates]; per: params of a cell."""
    def once(p, x, s):
        if kind == "rnn":
            return (jnp.tanh(x @ p[0] + s[0] @ p[1] + p[2]),)
        if kind == "gru":
            a, u = jnp.split(x @ p[0] + p[2], 3, -1), jnp.split(s[0] @ p[1] + p[3], 3, -1)
            r, z = sig(a[0] + u[0]), sig(a[1] + u[1])
            return ((1 - z) * jnp.tanh(a[2] + r * u[2]) + z * s[0],)
        i, f, g, o = jnp.split(x @ p[0] + s[0] @ p[1] + p[2], 4, -1)
        c = sig(f) * s[1] + sig(i) * jnp.tanh(g)
        return (sig(o) * jnp.tanh(c), c)

    def f(ps, x, *start):
        ways = 2 if both else 1
        b, t, _ = x.shape
        lasts = []
        for layer in range(layers):
            outs = []
            for way in range(ways):
                k = layer * ways + way
                p = ps[per * k:per * k + per]
                n = 2 if kind == "lstm" else 1
                s = tuple(v[k] for v in start) if start else tuple(jnp.zeros((b, hidden)) for _ in range(n))
                out = [None] * t
                for j in (range(t - 1, -1, -1) if way else range(t)):
                    s = once(p, x[:, j], s)
                    out[j] = s[0]
                outs.append(jnp.stack(out, 1))
                lasts.append(s)
            x = jnp.concatenate(outs, -1)
        return (x,) + tuple(jnp.stack([s[i] for s in lasts]) for i in range(len(lasts[0])))
    return f


def cell_shapes(kind, nin, hidden, layers, both):
    gates = dict(rnn=1, gru=3, lstm=4)[kind] * hidden
    shapes = []
    for k in range(layers * (2 if both else 1)):
        first = k < (2 if both else 1)
        shapes += [(nin if first else hidden * (2 if both else 1), gates), (hidden, gates), (gates,)]
        shapes += [(gates,)] if kind == "gru" else []
    return shapes


def turn(x, start=0):
    t, d = x.shape[-2:]
    z = x[..., 0::2] + 1j * x[..., 1::2]
    z = z * np.exp(1j * np.outer(np.arange(t) + start, 10000.0 ** (-np.arange(0, d, 2) / d)))
    return jnp.stack([z.real, z.imag], -1).reshape(x.shape)


def mha(p, q, k, v, heads, kv, mask=None, rot=False):
    b, t, d = q.shape
    e = d // heads
    def split(x, n): return x.reshape(b, -1, n, e).transpose(0, 2, 1, 3)
    qs, ks, vs = split(q @ p[0] + p[1], heads), split(k @ p[2] + p[3], kv), split(v @ p[4] + p[5], kv)
    if rot:
        qs, ks = turn(qs), turn(ks)
    outs = []
    for h in range(heads):
        g = h * kv // heads
        s = jnp.einsum("bte,bne->btn", qs[:, h], ks[:, g]) / np.sqrt(e)
        if mask is not None:
            s = jnp.where(mask, s, -jnp.inf)
        outs.append(jax.nn.softmax(s) @ vs[:, g])
    return jnp.concatenate(outs, -1) @ p[6] + p[7]


def lin(a, b): return [(a, b), (b,)]


def mha_shapes(d, heads, kv): return lin(d, d) + lin(d, kv * d // heads) + lin(d, kv * d // heads) + lin(d, d)


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def gelu(u): return u * sig(2 * np.sqrt(2 / np.pi) * (u + 0.044715 * u ** 3))


def block(p, x, first, mask, heads=2, rot=False):
    n1, at, n2, up, down = p[:2], p[2:10], p[10:12], p[12:14], p[14:16]
    def mlp(y): return gelu(y @ up[0] + up[1]) @ down[0] + down[1]
    def att(y): return mha(at, y, y, y, heads, heads, mask, rot)
    if first:
        x = x + att(norm(x, *n1))
        return x + mlp(norm(x, *n2))
    x = norm(x + att(x), *n1)
    return norm(x + mlp(x), *n2)


def block_shapes(d, hidden):
    return [(d,), (d,)] + mha_shapes(d, 2, 2) + [(d,), (d,)] + lin(d, hidden) + lin(hidden, d)


def conv(n, stride=1, pad=0, dilation=1, groups=1):
    def f(p, x):
        y = lax.conv_general_dilated(x, p[0], (stride,) * n, [(pad, pad)] * n, rhs_dilation=(dilation,) * n,
                                     feature_group_count=groups)
        return y + p[1].reshape((-1,) + (1,) * n) if len(p) > 1 else y
    return f


def transposed(n, long, stride, pad):
    """By definition: the gradient of the convolution by its input, of shape `long`."""
    def f(p, x):
        def forward(v):
            return lax.conv_general_dilated(v, p[0], (stride,) * n, [(pad, pad)] * n)
        zero = jnp.zeros((x.shape[0], p[0].shape[1]) + long)
        return jax.vjp(forward, zero)[1](x)[0] + p[1].reshape((-1,) + (1,) * n)
    return f


def group_norm(groups):
    def f(p, x):
        shape = x.shape
        y = x.reshape(shape[0], groups, -1)
        m = y.mean(-1, keepdims=True)
        y = ((y - m) / jnp.sqrt(((y - m) ** 2).mean(-1, keepdims=True) + 1e-5)).reshape(shape)
        each = (-1,) + (1,) * (len(shape) - 2)
        return y * p[0].reshape(each) + p[1].reshape(each)
    return f


print("# made by make-layers.py: numbers of JAX in f64.")
for kind, per in (("rnn", 3), ("gru", 4), ("lstm", 3)):
    starts = lambda n: [wave((n, 2, 2), 6 + i) for i in range(2 if kind == "lstm" else 1)]
    case(kind + "0", cell_shapes(kind, 3, 2, 1, False), [wave((2, 3, 3), 0)], recurrent(kind, 2, 1, False, per))
    case(kind + "1", cell_shapes(kind, 3, 2, 2, True), [wave((2, 3, 3), 0)] + starts(4),
         recurrent(kind, 2, 2, True, per))
q, k, v = wave((2, 3, 4), 0), wave((2, 2, 4), 6), wave((2, 2, 4), 7)
past = np.tril(np.ones((3, 3), bool))
case("attention0", mha_shapes(4, 2, 2), [q, k, v], lambda p, q, k, v: mha(p, q, k, v, 2, 2))
case("attention1", mha_shapes(8, 4, 2), [wave((1, 3, 8), 0)], lambda p, q: mha(p, q, q, q, 4, 2, past, True))
mask = np.array([[True, False], [True, True], [False, True]])
case("attention2", mha_shapes(4, 2, 1), [q, k], lambda p, q, k: mha(p, q, k, k, 2, 1, mask))
case("block0", block_shapes(4, 16), [q], lambda p, x: block(p, x, True, past))
case("block1", block_shapes(4, 6), [q], lambda p, x: block(p, x, False, None, rot=True))
x1, x2, x3 = wave((2, 4, 7), 0), wave((1, 4, 5, 6), 0), wave((1, 2, 3, 4, 5), 0)
case("conv1d0", [(3, 4, 3), (3,)], [x1], conv(1, 2, 1))
case("conv1d1", [(4, 2, 2), (4,)], [x1], conv(1, 1, 2, 3, 2))
case("conv2d0", [(3, 4, 2, 2), (3,)], [x2], conv(2, 2, 1, 2))
case("conv2d1", [(8, 1, 3, 3)], [x2], conv(2, 2, 1, 1, 4))
case("conv3d0", [(3, 2, 2, 2, 2), (3,)], [x3], conv(3, 2, 1))
case("conv3d1", [(2, 1, 2, 2, 2), (2,)], [x3], conv(3, 1, 0, 2, 2))
case("transposed1d0", [(4, 3, 3), (3,)], [x1], transposed(1, (14,), 2, 1))
case("transposed2d0", [(4, 2, 3, 3), (2,)], [x2], transposed(2, (7, 8), 1, 0))
case("transposed2d1", [(4, 2, 3, 3), (2,)], [x2], transposed(2, (10, 12), 2, 1))
case("group_norm0", [(4,), (4,)], [x2], group_norm(2))
case("instance_norm0", [(4,), (4,)], [x1], group_norm(4))
case("rms_norm0", [(4,)], [q], lambda p, x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[0])
ids = np.array([[0, 3, 3], [4, 1, 2]])
case("bag0", [(5, 3)], [], lambda p: p[0][ids].mean(1))
case("bag1", [(5, 3)], [wave((2, 3), 4)], lambda p, w: (p[0][ids] * w[..., None]).sum(1))
case("bag2", [(5, 3)], [], lambda p: p[0][ids[:, 1:]].max(1))
case("bilinear0", [(2, 4, 3), (2,)], [q, wave((2, 3, 3), 4)],
     lambda p, x, y: jnp.einsum("bti,oij,btj->bto", x, p[0], y) + p[1])
case("upsample0", [], [wave((1, 2, 2, 3), 0)], lambda p, x: x.repeat(2, 2).repeat(2, 3))
case("upsample1", [], [wave((1, 1, 3, 2), 0)], lambda p, x: jax.image.resize(x, (1, 1, 6, 4), "linear"))
case("linear0", lin(4, 3), [q], lambda p, x: x @ p[0] + p[1])
case("layer_norm0", [(4,), (4,)], [q], lambda p, x: norm(x, *p))
def batch_norm(p, x):
    return norm(x.transpose(1, 0, 2).reshape(4, -1), 1, 0).reshape(4, 2, 7).transpose(1, 0, 2) * p[0][:, None] + p[1][:, None]
case("batch_norm0", [(4,), (4,)], [x1], batch_norm)
case("embedding0", [(5, 3)], [], lambda p: p[0][ids])
case("residual0", lin(4, 4), [q], lambda p, x: x + jnp.tanh(x @ p[0] + p[1]))
def biased(p, x):
    far = np.arange(3)[None, :] - np.arange(3)[:, None]
    b = p[0][np.where(far > 0, 3, 1 * (far < 0))]
    qs, ks, vs = (v.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3) for v in (x @ p[1] + p[2], x @ p[3] + p[4], x @ p[5] + p[6]))
    s = qs @ ks.swapaxes(-1, -2) / np.sqrt(2) + b.transpose(2, 0, 1)
    return (jax.nn.softmax(s) @ vs).transpose(0, 2, 1, 3).reshape(2, 3, 4) @ p[7] + p[8]
case("biased0", [(4, 2)] + mha_shapes(4, 2, 2), [q], biased)
