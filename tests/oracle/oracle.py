"""Runs programs of ckl with JAX, and prints figures of their results.

    tests/oracle/oracle --programs COUNT SEED | python3 tests/oracle/oracle.py [FILE]

Lines of FILE stay as they are where seed and hash are the same.

An interpreter of the part of ckl that random programs use, over jax.numpy in f64. It was written from
docs/rules.md, docs/numerics.md and `ckl help`, and shares nothing with ckl: JAX traces the program
and differentiates it, Run below computes what JAX traced. Where JAX chooses otherwise than the rules of
ckl do, a comment that begins with "ckl:" says so. README.md describes the figures.
"""
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxpr

jax.config.update("jax_enable_x64", True)

# ---- reading

TOKEN = re.compile(r"""(?P<space>[ \t]+|\#[^\n]*)|(?P<line>\n)|(?P<float>\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)
  |(?P<int>\d+)|(?P<text>"[^"]*")|(?P<name>[A-Za-z_]\w*)
  |(?P<op>\.\.\.|\*\*|//|->|\.\.|<=|>=|==|!=|\+=|-=|\*=|[-+*/%@<>=()\[\]{},:;.])""", re.X)
LEVELS = [("or",), ("and",), (), ("<", "<=", ">", ">=", "==", "!="), ("..",), ("+", "-"), ("*", "/", "//", "%", "@")]
NOT = 2


def tokens(source):
    found, open_at = [], []
    for m in TOKEN.finditer(source):
        kind, text = m.lastgroup, m.group()
        if kind == "space":
            continue
        if kind == "line":  # ends a statement outside of ( and [
            if (not open_at or open_at[-1] == "{") and found and found[-1][1] != ";":
                found.append(("op", ";"))
            continue
        if kind == "op" and text in "([{":
            open_at.append(text)
        if kind == "op" and text in ")]}":
            open_at.pop()
        found.append((kind, text))
    return found + [("end", "")]


class Parser:
    """Makes trees of tuples: (kind, parts ..)."""

    def __init__(self, source):
        self.found, self.at = tokens(source), 0

    def see(self, *texts):
        return self.found[self.at][0] in ("op", "name") and self.found[self.at][1] in texts

    def take(self):
        self.at += 1
        return self.found[self.at - 1][1]

    def eat(self, text):
        if self.see(text):
            return self.take()

    def need(self, text):
        if not self.see(text):
            raise SyntaxError("%s, not %s" % (text, self.found[self.at:self.at + 5]))
        return self.take()

    def file(self):
        functions = {}
        while self.found[self.at][0] != "end":
            if self.eat(";"):
                continue
            self.need("fn")
            name = self.take()
            functions[name] = self.function()
            if self.eat("backward"):  # ckl: its own gradient must be the derivative, as JAX takes it
                self.parameters()
                self.block()
        return functions

    def function(self):
        if self.eat("["):
            while self.take() != "]":
                pass
        parameters = self.parameters()
        if self.eat("->"):
            self.type()
        if self.eat("="):
            return "fn", parameters, self.expression()
        return "fn", parameters, self.block()

    def parameters(self):
        self.need("(")
        found = []
        while not self.eat(")"):
            name = self.take()
            found.append((name, self.type() if self.eat(":") else None))
            self.eat(",")
        return found

    def type(self):
        self.take()
        dims = []
        if self.eat("["):
            while not self.eat("]"):
                dims.append(("rest", self.take()) if self.eat("...") else self.expression())
                self.eat(",")
        return dims

    def block(self):
        self.need("{")
        found = []
        while not self.eat("}"):
            if not self.eat(";"):
                found.append(self.statement())
        return "block", found

    def statement(self):
        if self.see("let", "var") and self.found[self.at + 1][0] == "name":
            self.take()
            name = self.take()
            self.need("=")
            return "let", name, self.expression()
        if self.eat("for"):
            name = self.take()
            self.need("in")
            return "for", name, self.expression(), self.block()
        place = self.expression()
        if self.see("=", "+=", "-=", "*="):
            op = self.take()
            return "assign", place, op, self.expression()
        return place

    def expression(self, level=0):
        if level == len(LEVELS):
            return self.unary()
        if level == NOT:
            return ("not", self.expression(level)) if self.eat("not") else self.expression(level + 1)
        left = self.expression(level + 1)
        while self.see(*LEVELS[level]):
            op = self.take()
            left = "binary", op, left, self.expression(level + 1)
        return left

    def unary(self):
        if self.eat("-"):
            return "minus", self.unary()
        left = self.postfix()
        if self.eat("**"):
            return "binary", "**", left, self.unary()
        return left

    def postfix(self):
        value = self.primary()
        while self.see("(", "[", "."):
            op = self.take()
            if op == "(":
                value = ("call", value) + self.arguments()
            elif op == "[":
                value = "index", value, self.items()
            elif self.found[self.at][0] == "int":
                value = "item", value, int(self.take())
            else:
                name = self.take()
                self.need("(")
                args, named = self.arguments()
                value = "call", ("name", name), [value] + args, named
        return value

    def arguments(self):
        args, named = [], {}
        while not self.eat(")"):
            if self.found[self.at][0] == "name" and self.found[self.at + 1] == ("op", "="):
                name = self.take()
                self.take()
                named[name] = self.expression()
            else:
                args.append(self.expression())
            self.eat(",")
        return args, named

    def items(self):
        found = []
        while not self.eat("]"):
            if self.eat("..."):
                found.append(("rest",))
            else:
                parts, colons = [None, None, None], 0
                while not self.see(",", "]"):
                    if self.eat(":"):
                        colons += 1
                    else:
                        parts[colons] = self.expression()
                found.append(("slice", parts) if colons else parts[0])
            self.eat(",")
        return found

    def primary(self):
        kind, text = self.found[self.at]
        if kind == "int":
            return "value", int(self.take())
        if kind == "float":
            return "value", float(self.take())
        if kind == "text":
            return "value", self.take()[1:-1]
        if self.eat("("):
            found, comma = [], False
            while not self.eat(")"):
                found.append(self.expression())
                comma = bool(self.eat(",")) or comma
            return ("tuple", found) if comma or not found else found[0]
        if self.eat("["):
            return self.list()
        if self.eat("fn"):
            return self.function()
        if self.eat("checkpoint"):
            return self.block()
        if self.eat("wrap"):
            self.need("<")
            words = []
            while not self.eat(">"):
                words.append(self.take())
            return "wrap", words, self.block()
        if kind != "name":
            raise SyntaxError("an expression, not %s" % self.found[self.at:self.at + 5])
        return "name", self.take()

    def list(self):
        found = []
        while not self.eat("]"):
            found.append(self.expression())
            if self.eat("for"):
                ranges = []
                while not self.eat("]"):
                    name = self.take()
                    self.need("in")
                    ranges.append((name, self.expression()))
                    self.eat(",")
                return "each", found[0], ranges
            self.eat(",")
        return "list", found


# ---- random numbers (docs/numerics.md, "Random numbers")

LOW = np.uint64(0xffffffff)


def philox(counter, key):
    """Philox 4x32-10 of Salmon et al. 2011: four words of 32 bits for each counter (four arrays)."""
    c = [np.asarray(x, np.uint64) for x in counter]
    k = [np.uint64(x) for x in key]
    for _ in range(10):
        p, q = np.uint64(0xd2511f53) * c[0], np.uint64(0xcd9e8d57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ k[0], q & LOW, (p >> np.uint64(32)) ^ c[3] ^ k[1], p & LOW]
        k = [(k[0] + np.uint64(0x9e3779b9)) & LOW, (k[1] + np.uint64(0xbb67ae85)) & LOW]
    return c


def words(key, blocks):
    """The words of blocks 0 .. of a key (i64[2]: key and counter)."""
    key, counter = (np.asarray(key).astype(np.uint64)[i] for i in (0, 1))
    n = np.arange(blocks, dtype=np.uint64)
    return philox([n & LOW, n >> np.uint64(32), counter & LOW, counter >> np.uint64(32)],
                  [key & LOW, key >> np.uint64(32)])


def words64(key, count):
    w = words(key, count // 2 + 1)
    return np.stack([w[0] | w[1] << np.uint64(32), w[2] | w[3] << np.uint64(32)], 1).reshape(-1)


def uniform32(key, shape):
    n = int(np.prod(shape))
    w = np.stack(words(key, n // 4 + 1), 1).reshape(-1)[:n]
    return ((w >> np.uint64(8)).astype(np.float64) * 2.0**-24).reshape(shape)


def uniform(key, shape):
    n = int(np.prod(shape))
    return ((words64(key, n)[:n] >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)


def normal(key, shape):
    n = int(np.prod(shape))
    w = words64(key, n + 1).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log((w[:, 0].astype(np.longdouble) + 0.5) * np.longdouble(2.0)**-64))
    angle = np.longdouble(np.pi) * 0 + w[:, 1].astype(np.int64) * (np.longdouble(2.0)**-63 * np.longdouble("3.14159265358979323846"))
    z = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    return z[:n].astype(np.float64).reshape(shape)


def randint(key, limit, shape):
    n = int(np.prod(shape))
    w = words64(key, n)[:n]
    return np.array([int(x) * limit >> 64 for x in w], np.int64).reshape(shape)


def fold_in(key, i):
    def fold(k, i):
        w = philox([i & 0xffffffff, i >> 32, 0xffffffff, 0xffffffff], [k & 0xffffffff, k >> 32])
        return int(w[0]) | int(w[1]) << 32
    key, counter = (int(x) for x in np.asarray(key).astype(np.uint64))
    made = fold(fold(key, counter), i)
    return np.array([made - 2**64 if made >> 63 else made, 0], np.int64)


# ---- operations

class Untold(Exception):
    """The documentation does not say what this gives."""


def is_float(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def axes_of(axis):
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


def reduction(f):
    def apply(x, axis=None, keep=False):
        return f(x, axis=axes_of(axis), keepdims=keep)
    return apply


def some(f):
    """Of no elements there is no largest."""
    def apply(x, axis=None, keepdims=False):
        axes = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        if any(x.shape[a] == 0 for a in axes):
            raise Untold("largest of nothing")
        return f(x, axis=axis, keepdims=keepdims)
    return apply


def extreme(reduce, both):
    whole = reduction(some(reduce))

    def apply(x, *more, axis=None, keep=False):
        if more:
            return both(x, *more)
        return whole(x, axis, keep)
    return apply


def cast(dtype):
    def apply(x):
        if isinstance(x, (int, float)):
            return jnp.asarray(x, dtype)
        if not is_float(x) or jnp.issubdtype(dtype, jnp.floating):
            return x.astype(dtype)
        info = jnp.iinfo(dtype)  # rule 15: towards zero, saturating, 0 of NaN
        x = jnp.where(jnp.isnan(x), 0.0, jnp.trunc(lax.stop_gradient(x)))
        top = float(info.max)
        inside = jnp.where((x > info.min) & (x < top), x, 0.0).astype(dtype)
        return jnp.where(x >= top, info.max, jnp.where(x <= info.min, info.min, inside)).astype(dtype)
    return apply


def gelu(u, exact=False):
    if exact:
        return u * 0.5 * (1.0 + lax.erf(u / np.sqrt(2.0)))
    return u * jax.nn.sigmoid(2.0 * np.sqrt(2 / np.pi) * (u + 0.044715 * u * u * u))


def std(x, axis=None, correction=0, keep=False):
    return jnp.sqrt(var(x, axis, correction, keep))


def var(x, axis=None, correction=0, keep=False):
    return jnp.var(x, axis=axes_of(axis), ddof=correction, keepdims=keep)


def norm(x, axis=None, keep=False):
    return jnp.sqrt(jnp.sum(x * x, axis=axes_of(axis), keepdims=keep))


def top_of(x, axis):
    return lax.stop_gradient(some(jnp.max)(x, axis=axes_of(axis), keepdims=True))


def logsumexp(x, axis=None, keep=False):
    top = top_of(x, axis)
    shift = jnp.where(jnp.isinf(top), 0.0, top)
    r = shift + jnp.log(jnp.sum(jnp.exp(x - shift), axis=axes_of(axis), keepdims=True))
    return r if keep else jnp.squeeze(r, axis=axes_of(axis))


def softmax(x, axis=-1):
    e = jnp.exp(x - top_of(x, axis))
    return e / jnp.sum(e, axis=axis, keepdims=True)


def log_softmax(x, axis=-1):
    shifted = x - top_of(x, axis)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=axis, keepdims=True))


def layer_norm(x):
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def attention(q, k, v, causal=False):
    scores = q @ jnp.swapaxes(k, -1, -2) / np.sqrt(float(q.shape[-1]))
    if causal:
        t, n = scores.shape[-2:]
        past = np.arange(n)[None, :] <= np.arange(t)[:, None] + (n - t)
        scores = jnp.where(past, scores, -jnp.inf)
    return softmax(scores) @ v


def conv2d(x, w, stride=1, pad=0):
    """A sum over the places of the filter, so that it is one of slices and products."""
    x = jnp.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    high, wide = ((x.shape[i] - w.shape[i]) // stride + 1 for i in (2, 3))
    total = 0.0
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            part = x[:, :, i:i + (high - 1) * stride + 1:stride, j:j + (wide - 1) * stride + 1:stride]
            total = total + jnp.einsum("bchw,oc->bohw", part, w[:, :, i, j])
    return total


def pool(f):
    def apply(x, window):
        b, c, h, w = x.shape
        x = x[:, :, :h // window * window, :w // window * window]
        return f(x.reshape(b, c, h // window, window, w // window, window), axis=(3, 5))
    return apply


def pad(x, width, value=0):
    return jnp.pad(x, [tuple(width)], constant_values=value)


def wide(x):
    """The dtype of sums: that of floats, and i64 of ints."""
    return x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int64


def cumsum(x, axis=0, reverse=False):
    return lax.cumsum(x.astype(wide(x)), axis=axis % x.ndim, reverse=reverse)


def running(extreme):
    """cummax and cummin: of equal elements the last so far takes the gradient (rule 110), where JAX shares it."""
    def apply(x, axis=0, reverse=False):
        axis %= x.ndim
        y = lax.stop_gradient(extreme(x, axis=axis, reverse=reverse))
        own = (lax.stop_gradient(x) == y) | (x != x)
        place = lax.broadcasted_iota(jnp.int64, x.shape, axis)
        if reverse:
            at = lax.cummin(jnp.where(own, place, x.shape[axis]), axis=axis, reverse=True)
        else:
            at = lax.cummax(jnp.where(own, place, 0), axis=axis)
        return jnp.take_along_axis(x, at, axis)
    return apply


def mod_parts(x, y):
    """Python's, of floats: the remainder, and whether y was added to it."""
    m = lax.rem(*jnp.broadcast_arrays(x, y))
    add = (m != 0) & ((m < 0) != (y < 0))
    return m, add


def floordiv(x, y):
    m, add = mod_parts(x, y)
    return lax.stop_gradient(jnp.round((x - m) / y - jnp.where(add, 1.0, 0.0)))


def mod(x, y):
    m, add = mod_parts(x, y)
    return jnp.where(add, m + y, m)


def sort(x, axis=-1):
    order = jnp.argsort(x, axis=axis, stable=True)
    return jnp.take_along_axis(x, order, axis=axis), order


def top_k(x, k):
    order = jnp.argsort(-x, axis=-1, stable=True)[..., :k]
    return jnp.take_along_axis(x, order, axis=-1), order


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)
    return jnp.mean(-picked)


DTYPES = {"f64": jnp.float64, "i64": jnp.int64, "i32": jnp.int32, "i16": jnp.int16, "i8": jnp.int8, "u8": jnp.uint8}
FUNCTIONS = {
    "abs": jnp.abs, "sign": jnp.sign, "exp": jnp.exp, "expm1": jnp.expm1, "log": jnp.log, "log1p": jnp.log1p,
    "sqrt": jnp.sqrt, "rsqrt": lax.rsqrt, "sin": jnp.sin, "cos": jnp.cos, "tan": jnp.tan, "tanh": jnp.tanh,
    "sinh": jnp.sinh, "cosh": jnp.cosh, "asin": jnp.arcsin, "acos": jnp.arccos, "atan": jnp.arctan,
    "asinh": jnp.arcsinh, "acosh": lambda x: jnp.arccosh(jnp.where(x < 1, jnp.nan, x)), "atanh": jnp.arctanh, "exp2": jnp.exp2, "log2": jnp.log2,
    "log10": jnp.log10, "cbrt": jnp.cbrt, "atan2": jnp.arctan2, "hypot": jnp.hypot,
    "erf": lax.erf, "sigmoid": jax.nn.sigmoid, "floor": jnp.floor, "ceil": jnp.ceil,
    "silu": lambda x: x * jax.nn.sigmoid(x), "softplus": lambda x: jnp.logaddexp(x, 0.0), "gelu": gelu,
    "relu": lambda x: jnp.where(x > 0, x, jnp.where(x != x, x, jnp.zeros_like(x))), "round": jnp.round,
    "stop": lax.stop_gradient, "isnan": jnp.isnan, "isinf": jnp.isinf,
    "clamp": lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi),
    "where": jnp.where, "sum": reduction(lambda x, **k: jnp.sum(x, dtype=wide(x), **k)),
    "prod": reduction(lambda x, **k: jnp.prod(x, dtype=wide(x), **k)), "mean": reduction(jnp.mean),
    "max": extreme(jnp.max, jnp.maximum), "min": extreme(jnp.min, jnp.minimum),
    "any": reduction(jnp.any), "all": reduction(jnp.all), "var": var, "std": std, "norm": norm,
    "logsumexp": logsumexp, "softmax": softmax, "log_softmax": log_softmax, "layer_norm": layer_norm,
    "argmax": reduction(some(jnp.argmax)), "argmin": reduction(some(jnp.argmin)), "cumsum": cumsum,
    "cummax": running(lax.cummax), "cummin": running(lax.cummin),
    "attention": attention, "conv2d": conv2d, "max_pool2d": pool(some(jnp.max)), "avg_pool2d": pool(jnp.mean),
    "reshape": lambda x, dims: jnp.reshape(x, dims), "pad": pad, "einsum": lambda p, *x: jnp.einsum(p.replace(" ", ""), *x),
    "transpose": lambda x, axes=None: jnp.swapaxes(x, -1, -2) if axes is None else jnp.transpose(x, axes),
    "expand": lambda x, *at: jnp.expand_dims(x, at), "concat": lambda xs, axis=0: jnp.concatenate(xs, axis),
    "stack": lambda xs: jnp.stack(xs), "flip": lambda x, axis=None: jnp.flip(x, axis), "broadcast": jnp.broadcast_to,
    "sort": sort, "top_k": top_k, "one_hot": lambda i, n: (i[..., None] == np.arange(n)).astype(jnp.float64),
    "iota": lambda n: jnp.arange(n, dtype=jnp.int64), "mse": lambda x, y: jnp.mean((x - y) * (x - y)),
    "list": lambda *x: list(x), "fold_in": fold_in, "cross_entropy": cross_entropy,
    "full": lambda dims, v, dtype: jnp.full(dims, v, DTYPES[dtype]),
    "normal": lambda dims, dtype, key: jnp.asarray(normal(key, dims)),
    "uniform": lambda dims, dtype, key: jnp.asarray(uniform(key, dims)),
    "randint": lambda n, dims, key: jnp.asarray(randint(key, n, dims)),
    # both compare draws of f32, with p rounded to f32
    "bernoulli": lambda p, dims, key: jnp.asarray(uniform32(key, dims) < np.float64(np.float32(p))),
    "dropout": lambda x, p, key: jnp.where(uniform32(key, x.shape) >= np.float64(np.float32(p)), x / (1.0 - p), 0.0),
}
FUNCTIONS.update({name: cast(d) for name, d in DTYPES.items()})
ARITHMETIC = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "@": lambda a, b: jnp.matmul(a, b), "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "..": lambda a, b: range(a, b), "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}


# ---- evaluation

class Interpreter:
    def __init__(self, functions):
        self.functions = functions
        self.failures = []  # conditions under which the program fails
        self.quiet = 0      # inside of what is evaluated again

    def fails_if(self, condition):
        if not self.quiet:
            self.failures.append(jnp.any(condition))

    def call(self, f, args):
        _, parameters, body = f
        env = {}
        for (name, dims), value in zip(parameters, args):
            env[name] = value
            if dims and not any(d[0] == "rest" for d in dims):
                for d, n in zip(dims, jnp.shape(value)):
                    if d[0] == "name" and d[1] not in env:
                        env[d[1]] = n
        return self.value(body, env) if body[0] != "block" else self.block(body[1], env)

    def block(self, statements, env):
        result = ()
        for i, s in enumerate(statements):
            result = self.statement(s, env, statements[:i])
        return result

    def statement(self, s, env, before):
        if s[0] == "let":
            e = s[2]
            if e[0] == "call" and e[1] == ("name", "grad"):
                env[s[1]] = self.gradient(e[2], env, before)
            else:
                env[s[1]] = self.value(e, env)
        elif s[0] == "assign":
            self.assign(s, env)
        elif s[0] == "for":
            for i in self.value(s[2], env):
                env[s[1]] = i
                self.block(s[3][1], env)
        else:
            return self.value(s, env)
        return ()

    def gradient(self, args, env, before):
        """grad(e, x): runs what stands before it again, as a function of parameters (rule 72)."""
        loss, by = args
        names = [by[1]] if by[0] == "name" else [x[1] for x in by[2]]
        at_entry = env["(entry)"]

        def f(values):
            inner = dict(at_entry, **dict(zip(names, values)))
            inner["(entry)"] = dict(inner)
            self.quiet += 1
            self.block(before, inner)
            result = self.value(loss, inner)
            self.quiet -= 1
            return result
        found = jax.grad(f)([at_entry[n] for n in names])
        return found[0] if by[0] == "name" else found

    def assign(self, s, env):
        _, place, op, e = s
        new = self.value(e, env)
        if place[0] == "name":
            env[place[1]] = new if op == "=" else ARITHMETIC[op[0]](env[place[1]], new)
            return
        name = place[1][1]
        x = env[name]
        at = self.place(x, place[2], env)
        if len(at) == 1 and at[0].dtype == bool:
            env[name] = jnp.where(at[0], jnp.asarray(new, x.dtype), x)
        elif op == "=":
            env[name] = x.at[at].set(jnp.asarray(new, x.dtype))
        else:
            env[name] = x.at[at].add(jnp.asarray(new, x.dtype))

    def place(self, x, items, env):
        at, axis = [], 0
        for item in items:
            if item[0] == "rest":
                axis = x.ndim - (len(items) - len(at) - 1)
                at.append(Ellipsis)
                continue
            if item[0] == "slice":
                a, b, c = (None if p is None else self.value(p, env) for p in item[1])
                at.append(slice(a, b, c))
            else:
                v = self.value(item, env)
                at.append(v)
                if isinstance(v, jax.Array) and v.dtype != bool:
                    self.fails_if((v < 0) | (v >= x.shape[axis]))
            axis += 1
        return tuple(at)

    def value(self, e, env):
        return getattr(self, "at_" + e[0])(e, env)

    def at_value(self, e, env):
        return e[1]

    def at_name(self, e, env):
        known = {"true": True, "false": False, "inf": np.inf, "nan": np.nan, "pi": np.pi, "none": None}
        if e[1] in env:
            return env[e[1]]
        return known[e[1]] if e[1] in known else e[1] if e[1] in DTYPES else self.functions[e[1]]

    def at_block(self, e, env):
        return self.block(e[1], dict(env))

    def at_wrap(self, e, env):
        value = self.at_block(e[2], env)
        return lax.stop_gradient(value) if e[1] == ["no_grad"] else value

    def at_fn(self, e, env):
        return e

    def at_tuple(self, e, env):
        return tuple(self.value(x, env) for x in e[1])

    def at_list(self, e, env):
        return [self.value(x, env) for x in e[1]]

    def at_each(self, e, env):
        _, body, ranges = e

        def over(i, env):
            if i == len(ranges):
                return self.value(body, env)
            return jax.vmap(lambda x: over(i + 1, dict(env, **{ranges[i][0]: x})))(self.value(ranges[i][1], env))
        return over(0, env)

    def at_not(self, e, env):
        return ~self.value(e[1], env)

    def at_minus(self, e, env):
        return -self.value(e[1], env)

    def at_item(self, e, env):
        return self.value(e[1], env)[e[2]]

    def at_index(self, e, env):
        x = self.value(e[1], env)
        if isinstance(x, (list, tuple)):
            return x[self.value(e[2][0], env)]
        at = self.place(x, e[2], env)
        arrays = any(isinstance(a, jax.Array) for a in at)
        return x.at[at].get(mode="clip") if arrays else x[at]

    def at_binary(self, e, env):
        _, op, left, right = e
        a, b = self.value(left, env), self.value(right, env)
        numbers = not (isinstance(a, (jax.Array, np.ndarray)) or isinstance(b, (jax.Array, np.ndarray)))
        if op in ARITHMETIC:
            return ARITHMETIC[op](a, b)
        if op == "**":
            if right[0] == "value" and right[1] in (2, 3, 4):  # rule 17
                r = a
                for _ in range(right[1] - 1):
                    r = r * a
                return r
            return a ** b if numbers else jnp.power(a, b)
        if numbers:
            return a // b if op == "//" else a % b
        if is_float(a):
            return floordiv(a, b) if op == "//" else mod(a, b)
        self.fails_if(jnp.asarray(b) == 0)
        b = jnp.where(jnp.asarray(b) == 0, jnp.ones_like(b), b).astype(jnp.result_type(a, b))
        return jnp.floor_divide(a, b) if op == "//" else jnp.remainder(a, b)

    def at_call(self, e, env):
        _, f, args, named = e
        name = f[1]
        args = [self.value(a, env) for a in args]
        named = {n: self.value(a, env) for n, a in named.items()}
        if name in env or name in self.functions:
            return self.call(self.at_name(f, env), args)
        if name == "vmap":
            return jax.vmap(lambda r: self.call(args[0], [r]))(args[1])
        if name == "gather":
            axis = named.get("axis", 0)
            self.fails_if((args[1] < 0) | (args[1] >= args[0].shape[axis]))
            return jnp.take_along_axis(args[0], args[1], axis=axis, mode="clip")
        if name == "scatter" and named == {"axis": 0, "add": True} and args[0].ndim == 1:
            self.fails_if((args[1] < 0) | (args[1] >= args[0].shape[0]))
            return args[0].at[args[1]].add(args[2])
        if name == "cross_entropy":
            self.fails_if((args[1] < 0) | (args[1] >= args[0].shape[-1]))
        return FUNCTIONS[name](*args, **named)


# ---- figures

def trace(program):
    """The program as a jaxpr of its float inputs, which gives (failed, results)."""
    functions = Parser(program["source"]).file()
    inputs = []
    for x in program["inputs"]:
        kind = {"f64": np.float64, "i64": np.int64, "i32": np.int32, "u8": np.uint8}[x["dtype"]]
        inputs.append(np.frombuffer(bytes.fromhex(x["bytes"]), kind).reshape(x["dims"]))

    def f(*inputs):
        it = Interpreter(functions)
        _, parameters, body = functions["f"]
        env = dict(zip([name for name, _ in parameters], inputs + (np.array(program["key"], np.int64),)))
        for (_, dims), x in zip(parameters, inputs):
            for d, n in zip(dims, x.shape):
                if d[0] == "name":
                    env.setdefault(d[1], n)
        env["(entry)"] = dict(env)
        results = it.block(body[1], env)
        failed = it.failures or [False]
        return jnp.any(jnp.stack([jnp.asarray(x) for x in failed])), [jnp.asarray(r) for r in results[:-1]]
    results = functions["f"][2][1][-1][1][:-1]  # of the tuple that stands last, without the number 0
    gradients = [r[0] == "index" or r[1] in ("second", "third") for r in results]
    return jax.make_jaxpr(f)(*inputs), inputs, gradients


def sums(x):
    """(not finite, sum, weighted sum, sum of absolutes, weighted)"""
    x = x.reshape(-1)
    weight = (np.arange(x.size) * 37 % 101 - 50).astype(np.float64)
    finite = np.isfinite(x)
    x, weight = x[finite].astype(np.longdouble), weight[finite]
    return int((~finite).sum()), x.sum(), (x * weight).sum(), abs(x).sum(), abs(x * weight).sum()


def figures(x, moved, is_gradient):
    """`moved`: the same with other rounding. What then differs much is no test."""
    if x.dtype.kind != "f":
        if not np.array_equal(x, moved):
            return "~"
        wide = x.reshape(-1).astype(np.int64).astype(np.uint64)
        weight = (np.arange(x.size) * 37 % 101 - 50).astype(np.uint64)
        with np.errstate(over="ignore"):
            return "i %d %d" % (wide.sum(dtype=np.uint64), (wide * weight).sum(dtype=np.uint64))
    a, b = sums(x), sums(moved)
    if is_gradient and a[0]:  # which elements become NaN by 0 * inf depends on how a rule is written
        return "~"
    if a[0] != b[0] or abs(a[1] - b[1]) > 1e-10 * a[3] or abs(a[2] - b[2]) > 1e-10 * a[4]:
        return "~"
    return "f %d %.12g %.12g" % a[:3]


def line(program):
    try:
        traced, inputs, gradients = trace(program)
    except Untold as e:
        return None, str(e)
    rng = np.random.default_rng(program["seed"])
    failed, *results = jaxpr.run(traced, inputs)
    if failed:
        return "error", ""
    moved = [x * (1 + 1e-13 * rng.choice([-1.0, 1.0], x.shape)) if x.dtype == np.float64 else x for x in inputs]
    jaxpr.noise = 1e-14
    _, *again = jaxpr.run(traced, moved)
    jaxpr.noise = 0.0
    return "; ".join(figures(*r) for r in zip(results, again, gradients)), ""


def main():
    print("# Figures of random programs, made by tests/oracle/record with jax %s; see README.md." % jax.__version__)
    known = {}
    if len(sys.argv) > 1:
        for old in open(sys.argv[1]):
            if old[0] != "#":
                known[tuple(old.split()[:2])] = old
    for text in sys.stdin:
        program = json.loads(text)
        old = known.get((str(program["seed"]), program["hash"]))
        if old:
            print(old, end="", flush=True)
            continue
        found, why = line(program)
        if found:
            print(program["seed"], program["hash"], found, flush=True)
        else:
            print("# left out: %d, %s" % (program["seed"], why), flush=True)


if __name__ == "__main__":
    main()
