"""Makes _numbers.ckl: results and gradients of layers and optimizers, computed with JAX 0.10.2 in f64.

    python3 make-numbers.py > _numbers.ckl

Inputs come from the formula `wave`, which _numbers.ckl repeats, so that only results are stored. A gradient is
that of sum(y * wave(y.shape, 9)).
"""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)


def wave(shape, k):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return jnp.asarray(np.sin(0.7 * i + 1.3 * k + 0.001 * (i * i)).reshape(shape))


def put(name, x):
    flat = [f"{v:.15g}" for v in np.asarray(x, np.float64).ravel()]
    flat = [v if any(c in v for c in ".e") else v + ".0" for v in flat]
    shape = ", ".join(str(d) for d in np.shape(x))
    print(f"\nfn {name}() -> f64[{shape}] {{")
    print("  reshape(f64([")
    for at in range(0, len(flat), 4):
        print("    " + ", ".join(flat[at:at + 4]) + ",")
    print(f"  ]), [{shape}])\n}}")


def case(name, f, *xs):
    y = f(*xs)
    put(name, y)
    w = wave(y.shape, 9)
    for i, g in enumerate(jax.grad(lambda *a: jnp.sum(f(*a) * w), argnums=tuple(range(len(xs))))(*xs)):
        put(f"{name}_grad{i}", g)


def layer_norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * g + b


def batch_norm(x, g, b):
    m = x.mean((0, 2, 3), keepdims=True)
    v = ((x - m) ** 2).mean((0, 2, 3), keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * g[:, None, None] + b[:, None, None]


def attention(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    t, n = s.shape[-2:]
    s = jnp.where(jnp.arange(n)[None] <= jnp.arange(t)[:, None] + n - t, s, -jnp.inf)
    return jax.nn.softmax(s) @ v


LABELS = np.array([2, 0, 3])


def cross_entropy(z):
    return -jax.nn.log_softmax(z)[np.arange(3), LABELS].mean()


def pool(x, window, stride, pad, init, op):
    return lax.reduce_window(x, init, op, (1, 1, window, window), (1, 1, stride, stride),
                             [(0, 0), (0, 0), (pad, pad), (pad, pad)])


def lstm(x, wx, wh, b):
    h = c = jnp.zeros((x.shape[1], wh.shape[0]))
    out = []
    for t in range(x.shape[0]):
        i, f, g, o = jnp.split(x[t] @ wx + h @ wh + b, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        out.append(h)
    return jnp.stack(out)


def descend(step, state):
    p = wave((2, 3), 0)
    for t in range(1, 6):
        g = jax.grad(lambda q: jnp.sum(jnp.cosh(q) * (1 + wave((2, 3), 1) ** 2)))(p)
        p, state = step(p, g, state, t)
    return p


def momentum(p, g, v, t):
    v = 0.9 * v + g
    return p - 0.01 * v, v


def adam(decay):
    def step(p, g, mv, t):
        m, v = 0.9 * mv[0] + 0.1 * g, 0.999 * mv[1] + 0.001 * g * g
        p = p * (1 - 0.05 * decay) - 0.05 * (m / (1 - 0.9 ** t)) / (jnp.sqrt(v / (1 - 0.999 ** t)) + 1e-8)
        return p, (m, v)
    return step


print("# made by make-numbers.py: numbers of JAX in f64; the inputs are waves.")
print("fn wave(shape, k) {")
print("  let i = iota(size(zeros(shape)), dtype = f64)")
print("  reshape(sin(0.7 * i + 1.3 * k + 0.001 * (i * i)), shape)\n}")
case("softmax0", lambda x: jax.nn.softmax(x, axis=0), 3 * wave((3, 4), 0))
case("log_softmax1", lambda x: jax.nn.log_softmax(x, axis=1), 3 * wave((3, 4), 0))
case("logsumexp1", lambda x: jax.scipy.special.logsumexp(x, axis=1), 3 * wave((3, 4), 0))
case("std1", lambda x: jnp.std(x, axis=1, ddof=1), wave((3, 4), 0))
case("layer_norm0", layer_norm, wave((3, 4), 0), 1 + 0.1 * wave((4,), 1), wave((4,), 2))
case("batch_norm0", batch_norm, wave((2, 3, 2, 2), 0), 1 + 0.1 * wave((3,), 1), wave((3,), 2))
case("attention0", attention, wave((2, 3, 4), 0), wave((2, 5, 4), 1), wave((2, 5, 2), 2))
put("cross_entropy0", cross_entropy(3 * wave((3, 4), 0)))
put("cross_entropy0_grad", jax.grad(cross_entropy)(3 * wave((3, 4), 0)))
case("max_pool0", lambda x: pool(x, 3, 2, 1, -jnp.inf, lax.max), wave((1, 2, 5, 6), 0))
case("avg_pool0", lambda x: pool(x, 2, 1, 1, 0.0, lax.add) / 4, wave((1, 2, 3, 4), 0))
case("conv0", lambda x, w: lax.conv_general_dilated(x, w, (2, 2), [(1, 1), (1, 1)]),
     wave((2, 3, 5, 4), 0), wave((4, 3, 3, 3), 1))
case("lstm0", lstm, wave((3, 2, 2), 0), wave((2, 12), 1), wave((3, 12), 2), wave((12,), 3))
put("momentum0", descend(momentum, 0.0))
put("adam0", descend(adam(0.0), (0.0, 0.0)))
put("adamw0", descend(adam(0.3), (0.0, 0.0)))
