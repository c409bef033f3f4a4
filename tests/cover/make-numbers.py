"""Makes numbers.txt: the results, first and second derivatives of the cases of cases.txt, computed with JAX in f64.

    python3 make-numbers.py > numbers.txt           (needs jax; README.md of tests/ says with which version ours was made)
    python3 make-numbers.py OPERATION[/CLASS].. >> numbers.txt    some of them: a new row of graph/ops.def, a new class

A line has the operation, the class and, for each array, its dims and five numbers: the sum, the sum with weights, the sum
of absolute values, the first and the last element. The arrays are the value y; then, where there is a derivative, the
gradient of sum(w y (1 + y)) by each input; then, in second order, the gradient by each input of the sum of v_i times
gradient i. Inputs and weights are drawn as tests/cover/cases.c draws them.
"""
import os
import re
import sys

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "../..")
BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
INTS = ["u8", "i8", "i16", "i32", "i64"]
NUMPY = {"bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
         "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
DOMAIN = {"FLOAT": list(BITS), "INT": INTS, "BOOL": ["bool"], "NUM": INTS + list(BITS),
          "ANY": ["bool"] + INTS + list(BITS)}


# ---- numbers

def name_hash(name):
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = (h ^ c) * 0x100000001b3 & 0xffffffffffffffff
    return h


def uniform(name, n):
    """n numbers from -1 to 1 that belong to a name: SplitMix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(name_hash(name)) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) / 2.0 ** 52 - 1


def draw(name, n, dtype, low, high):
    u = uniform(name, n)
    if dtype == "bool":
        return u > 0
    x = (low + high) / 2 + (high - low) / 2 * u
    if dtype in INTS:
        x = np.floor(x)
        return (np.abs(x) if dtype == "u8" else x).astype(NUMPY[dtype])
    x = np.where(np.abs(x) < 2.0 ** -9, np.copysign(2.0 ** -9, x), x)
    mask = np.uint64(0xffffffffffffffff << (53 - BITS[dtype]) & 0xffffffffffffffff)
    return (x.view(np.uint64) & mask).view(np.float64)


def digest(a):
    a = np.asarray(a)
    v = a.astype(np.float64).ravel()
    v = np.where(np.isnan(v), 1234.5, np.where(np.isinf(v), np.copysign(5678.25, v), v))
    dims = "x".join(str(d) for d in a.shape) or "-"
    first, last = (v[0], v[-1]) if v.size else (0.0, 0.0)
    five = [v.sum(), (v * uniform("digest", v.size)).sum(), np.abs(v).sum(), first, last]
    return dims + "".join(" %.17g" % x for x in five)


# ---- the functions of ckl

def axes(axis):
    return axis


def reduced(f):
    return lambda x, axis=None: f(x, axis=axis)


def integral(x):
    return jnp.issubdtype(x.dtype, jnp.integer)


def total(f):
    """A sum or product that keeps the dtype."""
    return lambda x, axis=None: f(x, axis=axis, dtype=x.dtype)


def extreme(f, start):
    def run(x, axis=None):
        low = start if not integral(x) else (jnp.iinfo(x.dtype).min if start < 0 else jnp.iinfo(x.dtype).max)
        return f(x, axis=axis, initial=low) if x.size == 0 else f(x, axis=axis)
    return run


def slope(f, x):
    return jax.grad(lambda t: f(t).sum())(x)


def eig(x):
    return lax.linalg.eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True)


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def plain_abs(x):
    return jnp.where(x == 0, 0, jnp.abs(x))


def transpose(x, axes=None):
    return jnp.swapaxes(x, -1, -2) if axes is None else jnp.transpose(x, axes)


def rounded(bits, x):
    """To so many bits, ties to even."""
    m, e = jnp.frexp(x)
    return jnp.ldexp(jnp.round(m * 2.0 ** bits), e - bits)


FORMAT = {"f32": (24, -149, 2.0 ** 128), "f16": (11, -24, 2.0 ** 16), "bf16": (8, -133, 2.0 ** 128)}


def narrow(x, name):
    """The nearest number of a float format, by its definition."""
    bits, least, beyond = FORMAT[name]
    _, e = jnp.frexp(x)
    step = jnp.ldexp(1.0, jnp.maximum(e - bits, least))
    y = jnp.round(x / step) * step
    return jnp.where(jnp.isfinite(x), jnp.where(jnp.abs(y) >= beyond, jnp.copysign(jnp.inf, x), y), x)


def cast(x, name):
    """A cast of ckl; a narrow float is returned as f64, and so is the gradient that passes."""
    if name == "bool":
        return x != 0
    if name in FORMAT:
        @jax.custom_vjp
        def run(t):
            return narrow(t, name)
        run.defvjp(lambda t: (run(t), None), lambda _, g: (cast(g, name),))
        return run(x.astype(jnp.float64))
    if name == "f64":
        return x.astype(jnp.float64)
    info = np.iinfo(NUMPY[name])
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(NUMPY[name])
    t = jnp.trunc(jnp.where(jnp.isnan(x), 0, x))
    low, high = t <= float(info.min), t >= float(info.max)
    return jnp.where(low, info.min, jnp.where(high, info.max, jnp.where(low | high, 0, t).astype(np.int64)))


def conv2d(x, k, stride=1, pad=0):
    return lax.conv_general_dilated(x, k, (stride, stride), [(pad, pad)] * 2,
                                    dimension_numbers=("NCHW", "OIHW", "NCHW"))


def pad(x, width, value=0):
    width = [width] * x.ndim if isinstance(width, (int, tuple)) else width
    return jnp.pad(x, width, constant_values=jnp.asarray(value).astype(x.dtype))


def cumsum(x, axis=0, reverse=False):
    y = jnp.cumsum(jnp.flip(x, axis) if reverse else x, axis=axis, dtype=x.dtype)
    return jnp.flip(y, axis) if reverse else y


def running(f):
    return lambda x, axis=0, reverse=False: f(x, axis=axis, reverse=reverse)


def argreduce(f):
    return lambda x, axis=None: f(x, axis=axis)


def scatter(x, i, u, axis=0, add=False):
    place = list(jnp.indices(i.shape))
    place[axis] = i
    at = x.at[tuple(place)]
    return at.add(u) if add else at.set(u)


# ---- random numbers, as docs/numerics.md defines them

def philox(c, k):
    c, k = [int(x) & 0xffffffff for x in c], [int(x) & 0xffffffff for x in k]
    for i in range(10):
        p, q = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & 0xffffffff, p >> 32 ^ c[3] ^ k[1], p & 0xffffffff]
        k = [k[0] + 0x9e3779b9 & 0xffffffff, k[1] + 0xbb67ae85 & 0xffffffff]
    return c


def words(n, key, counter):
    """n 32-bit words."""
    key, counter = int(key) & 0xffffffffffffffff, int(counter) & 0xffffffffffffffff
    out = []
    for i in range((n + 3) // 4):
        out += philox([i, i >> 32, counter, counter >> 32], [key, key >> 32])
    return np.array(out[:n], dtype=np.uint64)


def wide(n, k):
    w = words(2 * n, k[0], k[1]).reshape(n, 2)
    return w[:, 0] | w[:, 1] << np.uint64(32)


def uniform_of(name, n, k):
    if name == "f64":
        return (wide(n, k) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53
    u = (words(n, k[0], k[1]) >> np.uint64(8)).astype(np.float64) * 2.0 ** -24
    return np.floor(u * 2.0 ** {"f32": 24, "f16": 11, "bf16": 8}[name]) * 2.0 ** -{"f32": 24, "f16": 11, "bf16": 8}[name]


def normal_of(name, n, k):
    """Box and Muller: a word w of so many bits is u = (w + 0.5) / 2^bits."""
    m = n + n % 2
    w = wide(m, k).astype(np.float64) / 2.0 ** 64 if name == "f64" else words(m, k[0], k[1]).astype(np.float64) / 2.0 ** 32
    half = 2.0 ** -65 if name == "f64" else 2.0 ** -33
    r, turn = np.sqrt(-2 * np.log(w[0::2] + half)), 2 * np.pi * w[1::2]
    return np.stack([r * np.cos(turn), r * np.sin(turn)], 1).ravel()[:n]


def randint(limit, n, k):
    return np.array([int(x) * limit >> 64 for x in wide(n, k)], dtype=np.int64)


def fold_in(k, i):
    """The counter and then i, folded into the key; a fold is two words at the counter that is kept for it."""
    key = int(k[0]) & 0xffffffffffffffff
    for j in (int(k[1]), int(i)):
        j &= 0xffffffffffffffff
        w = philox([j, j >> 32, 0xffffffff, 0xffffffff], [key, key >> 32])
        key = w[0] | w[1] << 32
    return np.array([key, 0], dtype=np.uint64).view(np.int64)


# ---- functions with gradients of their own: those that cases.txt declares

def with_gradient(f, back):
    g = jax.custom_vjp(f)
    g.defvjp(lambda *x: (g(*x), x), back)
    return g


def operands_of(bits, f, left, right):
    """A contraction f of rounded operands whose gradients are contractions of the same kind."""
    return with_gradient(lambda x, y: f(rounded(bits, x), rounded(bits, y)), lambda x, g: (left(g, *x), right(g, *x)))


dot_of = {b: operands_of(b, jnp.matmul, lambda g, x, y, b=b: dot_of[b](g, y.T), lambda g, x, y, b=b: dot_of[b](x.T, g))
          for b in (8, 11)}
scale_of = {8: operands_of(8, lambda g, x: g * x, lambda d, g, x: inner_of[8](d, x), lambda d, g, x: scale_of[8](g, d))}
inner_of = {8: operands_of(8, lambda x, y: jnp.sum(x * y), lambda g, x, y: scale_of[8](g, y),
                           lambda g, x, y: scale_of[8](g, x))}
own = with_gradient(jnp.tanh, lambda x, g: (2 * g * (1 - own(x[0]) ** 2),))
own2 = with_gradient(lambda x, y: x * y, lambda x, g: (g * x[1] * 3, g * x[0]))
own_cut = with_gradient(lambda x, y: x * y, lambda x, g: (0 * g, g * x[0]))
tripled = with_gradient(lambda x: x, lambda x, g: (g * 3,))
squared = with_gradient(lambda x: x, lambda x, g: (g * g,))


def maker(name):
    return lambda v: jnp.asarray(np.array(v, dtype=NUMPY[name]))


names = {
    "jnp": jnp, "np": np, "jax": jax, "lax": lax, "none": None, "true": True, "false": False, "slope": slope, "eig": eig,
    "pi": np.pi, "len": len,
    "sum": total(jnp.sum), "prod": total(jnp.prod), "any": reduced(jnp.any), "all": reduced(jnp.all),
    "max": extreme(jnp.max, -np.inf), "min": extreme(jnp.min, np.inf), "maximum": jnp.maximum, "minimum": jnp.minimum,
    "gelu": gelu, "silu": jax.nn.silu, "abs": plain_abs, "transpose": transpose, "broadcast": jnp.broadcast_to,
    "reshape": jnp.reshape, "flip": jnp.flip, "stop": lax.stop_gradient, "where": jnp.where,
    "dot_of": dot_of, "inner_of": inner_of, "cast": cast, "conv2d": conv2d, "pad": pad, "cumsum": cumsum,
    "cummax": running(lax.cummax), "cummin": running(lax.cummin), "scatter": scatter,
    "squeeze": jnp.squeeze, "list": lambda *xs: list(xs), "gather": lambda x, i, axis=0: jnp.take_along_axis(x, i, axis),
    "argmax": argreduce(jnp.argmax), "argmin": argreduce(jnp.argmin),
    "philox4x32": lambda c, k: np.array(philox(c, k), dtype=np.int64), "uniform": uniform_of, "normal": normal_of,
    "randint": randint, "fold_in": fold_in, "own": own, "own2": own2, "own_cut": own_cut, "tripled": tripled,
    "squared": squared,
    "concat": lambda xs, axis=0: jnp.concatenate(xs, axis=axis), "stack": lambda *xs, axis=0: jnp.stack(xs, axis=axis),
}
for d in NUMPY:
    names[d] = maker(d)


def function(name):
    if name in names:
        return names[name]
    for module in (jnp, jax.nn, lax, jax.scipy.special):
        if hasattr(module, name):
            return getattr(module, name)
    sys.exit("jax has no function %s: cases.txt needs a row `as %s`" % (name, name))


# ---- the tables

def rows():
    """Name, domain, set and interval of each row of the op table; whether it has a gradient."""
    elementwise = open(os.path.join(root, "runtime/elementwise.def")).read()
    text = "".join(open(os.path.join(root, "graph", f)).read() for f in ("structure.def", "ops.def"))
    flat = re.findall(r"^CUT\((\w+)\)", open(os.path.join(root, "autograd/grad.c")).read(), re.M)
    out = {}
    for m in re.finditer(r'^OP\((\w+), "(\w+)", (.*), "([^"]*)", "[^"]*"\)$', text, re.M):
        out[m[2]] = (m[3].split(", ")[4], m[4], None, m[1] not in flat)
    for m in re.finditer(r"^UN\((\w+), (\w+), \w+, (\w+), .*?, (-?[\d.]+), (-?[\d.]+), \"", elementwise, re.M):
        out[m[2]] = (m[3], "numbers", (float(m[4]), float(m[5])), m[1] not in flat)
    for m in re.finditer(r"^BIN\((\w+), (\w+), \w+, [^,]*, (\w+),", elementwise, re.M):
        out[m[2]] = (m[3], "pair", None, m[1] not in flat)
    return out


def cells(line):
    return [c.strip() for c in line.split("|")]


def table():
    """name of a set -> (dtypes, cases); name of an operation -> how it is written."""
    sets, written, at = {}, {}, None
    for line in open(os.path.join(here, "cases.txt")):
        line = line.strip()
        if not line or line[0] == "#" or line.startswith("ckl "):
            continue
        c = cells(line)
        head = c[0].split()
        if head[0] == "set":
            of = [w[7:].split(",") for w in head if w.startswith("dtypes=")]
            sets[head[1]] = (of[0] if of else list(NUMPY), [])
            at = sets[head[1]][1]
        elif head[0] == "as":
            written[head[1]] = c[1:] + [""] * (5 - len(c))
        else:
            at.append((head[0], dict((w + "=").split("=")[:2] for w in head[1:]), c[1], c[2], c[3] if len(c) > 3 else ""))
    return sets, written


def fill(template, args):
    for i, a in enumerate(args):
        template = template.replace("$%d" % (i + 1), a)
    return template


INPUT = re.compile(r"(\w+)(?::(\w+))?\[([^]]*)\](?:~([^~ =]+)~([^ =]+))?(?:=(\S+))?$")


def intervals(row, written, dtype, count):
    """The interval of each argument in turn."""
    floats = dtype in BITS
    text = written.get(row, [""] * 4)[2 if floats else 3]
    if text:
        return [tuple(float(x) for x in w.split("~")) for w in text.split()]
    return None


def case(row, info, written, cls, words, inputs, expr, python):
    domain, _, smooth, slopes = info
    dtype = words.get("dtype", "f64")
    if dtype not in DOMAIN[domain]:
        dtype = "i64" if "i64" in DOMAIN[domain] else "bool"
    order = int(words.get("order", 2 if slopes else 0))
    given = intervals(row, written, dtype, 0)
    xs, wrt, plain = {}, [], []
    for i, spec in enumerate(inputs.split()):
        m = INPUT.match(spec) or sys.exit("no input: " + spec)
        name, d = m[1], m[2] or dtype
        shape = tuple(int(t.split("=")[-1]) for t in m[3].split(",") if t)
        n = int(np.prod(shape, dtype=np.int64))
        if m[4]:
            low, high = float(m[4]), float(m[5])
        elif given and not m[2]:
            low, high = given[min(i, len(given) - 1)]
        elif smooth and d in BITS:
            low, high = (3 * smooth[0] + smooth[1]) / 4, (smooth[0] + 3 * smooth[1]) / 4
        else:
            low, high = (-2, 2) if d in BITS else (-20, 20)
        if m[6]:
            v = np.array([float(t) for t in m[6].split(",")])
            v = v.astype(np.float64 if d in BITS else NUMPY[d])
        else:
            v = draw(name, n, d, low, high)
        xs[name] = v.reshape(shape)
        if m[2]:
            plain.append(name)  # an index or a key: its numbers are known
        elif d in BITS:
            wrt.append(name)
    if row in written or python == "" and smooth:
        args = [a.strip() for a in (python or expr).split(";")]
        how = written[row][1] or written[row][0] if row in written else row + "($1)"
        text = fill(how, args)
    else:
        text = python or expr
    text = text.replace("$D", dtype)
    env = dict(names)
    for word in re.findall(r"(?<![.\w])([a-z_]\w*) *\(", text):
        if word not in env and word not in xs:
            env[word] = function(word)

    def value(*args):
        return jnp.asarray(eval(text, env | xs | dict(zip(wrt, args))))

    x = [jnp.asarray(xs[k]) for k in wrt]
    xs = {k: v if k in plain else jnp.asarray(v) for k, v in xs.items()}
    like = jax.eval_shape(value, *x)
    if not wrt or not jnp.issubdtype(like.dtype, jnp.floating):
        order = 0
    w = jnp.asarray(draw("w", like.size, dtype, -2, 2).reshape(like.shape)) if order else None
    v = [jnp.asarray(draw("v" + k, xs[k].size, dtype, -2, 2).reshape(xs[k].shape)) for k in wrt] if order else None
    which = tuple(range(len(wrt)))

    def loss(*args):
        y = value(*args)
        return jnp.sum(y * w * (1 + y))

    def turn(*args):
        return sum(jnp.sum(g * t) for g, t in zip(jax.grad(loss, which)(*args), v))

    def every(*args):
        out = [value(*args)]
        if order > 0:
            out += jax.grad(loss, which)(*args)
        if order > 1:
            out += jax.grad(turn, which)(*args)
        return out

    parts = [digest(a) for a in jax.jit(every)(*x)]
    print(row, cls, order, *parts)


def main():
    sets, written = table()
    version = jax.__version__
    wanted = sys.argv[1:]
    if not wanted:
        print("# Made by make-numbers.py with jax %s; the format is described there." % version)
    for row, info in rows().items():
        if wanted and not any(w.split("/")[0] == row for w in wanted):
            continue
        dtypes, some = sets.get(info[1], (None, []))
        for cls, words, inputs, expr, python in some:
            if "only" in words and row not in words["only"].split(","):
                continue
            if row in words.get("but", "").split(","):
                continue
            if "alone" in words:
                continue
            for dtype in (d for d in DOMAIN[info[0]] if d in dtypes and d != words.get("not")) if "*" in cls else [None]:
                name = cls.replace("*", dtype) if dtype else cls
                if wanted and not {row, row + "/" + name} & set(wanted):
                    continue
                words = words | ({"dtype": dtype} if dtype else {})
                case(row, info, written, name, words, inputs, expr, python)


main()
