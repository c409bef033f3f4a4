"""Makes ops.txt: inputs, results and gradients of single operations, computed with JAX in f64.

    python3 make-ops.py > ops.txt          (needs jax; README.md says with which version ours was made)
    python3 make-ops.py NAME >> ops.txt    one case: of a new op, so that the numbers of others stay

Every float input is rounded to f32 first, so that one file serves f32 and f64. The format is line by line:

    case NAME ORDER     ORDER 2: with second derivatives; 1: first only
    in TYPE RANK DIM.. VALUE..      an input; TYPE float, int or bool
    out RANK DIM.. VALUE..          the result y
    weight VALUE..                  w, of y's shape: L = sum(w * y)
    grad I VALUE..                  dL/dx of input I (float inputs only)
    weight2 I VALUE..               v, of input I's shape: M = sum over I of sum(v * dL/dx)
    grad2 I VALUE..                 dM/dx
"""
import os
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(20240607)


def f(*shape, lo=-2.0, hi=2.0):
    return rng.uniform(lo, hi, shape).astype(np.float32).astype(np.float64)


def apart(*shape, lo=-2.0, hi=2.0):
    """Values with a distance of at least (hi - lo) / count: no ties nearby."""
    n = int(np.prod(shape))
    x = lo + (hi - lo) * (rng.permutation(n) + 0.5) / n
    return x.reshape(shape).astype(np.float32).astype(np.float64)


def given(*values):
    return np.array(values, dtype=np.float64)


def silu_grad(x):
    return jax.grad(lambda t: jax.nn.silu(t).sum())(x)


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def gelu_grad(x):
    return jax.grad(lambda t: gelu(t).sum())(x)


def conv(stride, pad):
    return lambda x, w: lax.conv_general_dilated(
        x, w, stride, [(pad[0], pad[0]), (pad[1], pad[1])],
        dimension_numbers=("NCHW", "OIHW", "NCHW"))


def conv_input(stride, pad, shape):
    def run(g, w):
        _, back = jax.vjp(lambda x: conv(stride, pad)(x, w), jnp.zeros(shape))
        return back(g)[0]
    return run


def conv_weight(stride, pad, shape):
    def run(x, g):
        _, back = jax.vjp(lambda w: conv(stride, pad)(x, w), jnp.zeros(shape))
        return back(g)[0]
    return run


cases = []


def case(name, fn, *inputs, order=2):
    cases.append((name, fn, inputs, order))


# elementwise
case("neg", lambda x: -x, f(3, 4))
case("abs", jnp.abs, apart(3, 4))
case("exp", jnp.exp, f(3, 4))
case("expm1", jnp.expm1, f(3, 4))
case("log", jnp.log, f(3, 4, lo=0.1, hi=4))
case("log1p", jnp.log1p, f(3, 4, lo=-0.8, hi=4))
case("sqrt", jnp.sqrt, f(3, 4, lo=0.1, hi=4))
case("rsqrt", lax.rsqrt, f(3, 4, lo=0.1, hi=4))
case("sin", jnp.sin, f(3, 4, lo=-7, hi=7))
case("cos", jnp.cos, f(3, 4, lo=-7, hi=7))
case("tan", jnp.tan, f(3, 4, lo=-1.2, hi=1.2))
case("tanh", jnp.tanh, f(3, 4))
case("erf", lax.erf, f(3, 4))
case("relu", jax.nn.relu, apart(3, 4))
case("sigmoid", jax.nn.sigmoid, f(3, 4, lo=-6, hi=6))
case("silu", jax.nn.silu, f(3, 4, lo=-6, hi=6))
case("silu_grad", silu_grad, f(3, 4, lo=-6, hi=6))
case("softplus", jax.nn.softplus, f(3, 4, lo=-6, hi=6))
case("gelu", gelu, f(3, 4, lo=-4, hi=4))
case("gelu_grad", gelu_grad, f(3, 4, lo=-4, hi=4))
case("alias", lambda x: x, f(3, 4))
case("add", jnp.add, f(3, 4), f(3, 4))
case("sub", jnp.subtract, f(3, 4), f(3, 4))
case("mul", jnp.multiply, f(3, 4), f(3, 4))
case("div", jnp.divide, f(3, 4), f(3, 4, lo=0.5, hi=3))
case("mod", lambda x, y: x - jnp.floor(lax.stop_gradient(x / y)) * y,
     f(3, 4, lo=0.55, hi=0.95) * 4, f(3, 4, lo=1.0, hi=1.1))
case("pow", jnp.power, f(3, 4, lo=0.2, hi=3), f(3, 4))
a = apart(3, 4)
b = a[::-1] * -1.0 + 0.0625  # exact, and no ties with a
b = b.astype(np.float32).astype(np.float64)
case("max", jnp.maximum, a, b)
case("min", jnp.minimum, a, b)
case("where", jnp.where, np.array([[True, False, True], [False, False, True]]), f(2, 3), f(2, 3))

# the fixed choices at kinks
case("abs_at_0", lambda x: jnp.where(x == 0, 0.0, jnp.abs(x)), given(0.0, 1.0, -1.0), order=1)
case("relu_at_0", jax.nn.relu, given(0.0, 1.0, -1.0), order=1)
case("sqrt_at_0", jnp.sqrt, given(0.0, 4.0), order=1)
case("max_ties", jnp.maximum, given(1.0, 2.0, -1.0), given(1.0, 1.0, 3.0), order=1)
case("min_ties", jnp.minimum, given(1.0, 2.0, -1.0), given(1.0, 1.0, 3.0), order=1)
case("reduce_max_ties", lambda x: jnp.max(x, axis=1),
     np.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]]), order=1)
case("reduce_min_ties", lambda x: jnp.min(x, axis=1),
     np.array([[1.0, 3.0, 1.0, 5.0], [2.0, 2.0, 2.0, 2.0]]), order=1)
case("pow_const_2", lambda x: x ** 2.0, given(0.0, -1.5, 2.0))
case("pow_const_3", lambda x: x ** 3.0, given(0.0, -1.5, 2.0))
case("pow_const_0", lambda x: 1.0 + 0.0 * x, given(0.0, -1.5, 2.0))
case("pow_zero_base", jnp.power, given(0.0, 0.0, 0.0, 0.0), given(0.5, 1.0, 2.5, 3.0), order=1)
case("where_selects", lambda c, x, y: jnp.log(jnp.where(c, x, y)),
     np.array([True, False, True, False]), given(0.0, 0.0, 2.0, 1.0), given(0.0, 3.0, 0.0, 0.0), order=1)

# movement
case("reshape", lambda x: x.reshape(4, 3), f(3, 4))
case("transpose", lambda x: x.transpose(2, 0, 1), f(2, 3, 4))
case("broadcast", lambda x: jnp.broadcast_to(x, (2, 3, 4)), f(3, 1))
case("slice", lambda x: x[1:4, 0:2], f(5, 4))
case("slice_steps", lambda x: x[1:7:2, 0:4:3], f(8, 4))
case("pad", lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=0.5), f(2, 3))
case("pad_inner", lambda x: lax.pad(x, 0.25, ((1, 2, 1), (0, 1, 2))), f(2, 3))
case("flip", lambda x: x[:, ::-1], f(3, 4))
case("concat", lambda x, y, z: jnp.concatenate([x, y, z], axis=1), f(2, 3), f(2, 1), f(2, 2))
i = np.array([[4, 0], [1, 4]])
case("take", lambda x, k: x[k], f(5, 2), i)
case("take_axis_1", lambda x, k: x[:, k], f(2, 5), i)
case("take_two", lambda x, k, l: x[:, k, l], f(2, 3, 4), np.array([0, 2, 2]), np.array([3, 1, 1]))
case("put", lambda x, u, k: x.at[k].set(u), f(5, 2), f(3, 2), np.array([4, 0, 2]))
case("put_add", lambda x, u, k: x.at[k].add(u), f(5, 2), f(3, 2), np.array([4, 0, 4]))
case("put_add_axis_1", lambda x, u, k: x.at[:, k].add(u), f(2, 5), f(2, 2, 2), i)
g = np.array([[2, 0, 1, 2], [0, 0, 1, 1]])
case("gather", lambda x, k: jnp.take_along_axis(x, k, axis=0), f(3, 4), g)
h = np.array([[2, 0, 1, 0], [0, 1, 2, 1]])
col = np.arange(4)[None, :].repeat(2, 0)
case("scatter", lambda x, k, u: x.at[k, col].set(u), f(3, 4), h, f(2, 4))
case("scatter_add", lambda x, k, u: x.at[k, col].add(u), f(3, 4), g, f(2, 4))
case("sort", lambda x: jnp.sort(x, axis=1), apart(3, 4))
case("sort_descending", lambda x: -jnp.sort(-x, axis=0), apart(3, 4))

# reductions
case("sum", lambda x: jnp.sum(x, axis=1), f(3, 4))
case("sum_all", lambda x: jnp.sum(x), f(3, 4))
case("sum_0_2", lambda x: jnp.sum(x, axis=(0, 2)), f(2, 3, 4))
case("prod", lambda x: jnp.prod(x, axis=1), f(3, 4))
case("prod_all", lambda x: jnp.prod(x), f(2, 3))
case("prod_0_2", lambda x: jnp.prod(x, axis=(0, 2)), f(2, 3, 2))
case("prod_zeros", lambda x: jnp.prod(x, axis=1),
     np.array([[0.0, 1.5, -2.0], [0.0, 0.0, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))
case("prod_long", lambda x: jnp.prod(x, axis=0), f(70, lo=0.8, hi=1.2))
case("reduce_max", lambda x: jnp.max(x, axis=1), apart(3, 4))
case("reduce_min", lambda x: jnp.min(x, axis=(0, 1)), apart(3, 4))
case("cumsum", lambda x: jnp.cumsum(x, axis=1), f(3, 4))
case("cumsum_reverse", lambda x: jnp.flip(jnp.cumsum(jnp.flip(x, 0), axis=0), 0), f(3, 4))
case("cummax", lambda x: lax.cummax(x, axis=1), apart(3, 4))
case("cummax_reverse", lambda x: lax.cummax(x, axis=0, reverse=True), apart(4, 3))
case("cummin", lambda x: lax.cummin(x, axis=0), apart(4, 3))

# factorizations
def factor(x):
    return jnp.linalg.cholesky(x @ jnp.swapaxes(x, -1, -2) + 2 * jnp.eye(x.shape[-1]))


def factor_grad(x, g):
    return jax.vjp(jnp.linalg.cholesky, x @ jnp.swapaxes(x, -1, -2) + 2 * jnp.eye(x.shape[-1]))[1](jnp.tril(g))[0]


def triangular(**words):
    return lambda a, b: jax.scipy.linalg.solve_triangular(a, b, **words)


def heavy(*shape):
    return f(*shape) + 4 * np.eye(shape[-1])


case("cholesky", factor, f(4, 4))
case("cholesky_batch", factor, f(2, 3, 3))
case("cholesky_grad", factor_grad, f(4, 4), f(4, 4))
case("lu", lambda x: lax.linalg.lu(x)[0], f(4, 4))
case("lu_batch", lambda x: lax.linalg.lu(x)[0], f(2, 3, 3))
case("eigh", lambda x: jnp.linalg.eigh(x)[0], f(4, 4))
case("eigh_batch", lambda x: jnp.linalg.eigh(x)[0], f(2, 3, 3))
case("eigh_vectors", lambda x: jnp.linalg.eigh(x)[1] ** 2, f(4, 4))
def qr(x):
    """q, and r with a diagonal that is not negative, also of a wide x."""
    k = min(x.shape[-2:])
    q, r = jnp.linalg.qr(x[..., :k])
    q = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return q, jnp.swapaxes(q, -1, -2) @ x


def left(x):
    """The left singular vectors, the largest element of each positive."""
    u = jnp.linalg.svd(x, full_matrices=False)[0]
    top = jnp.take_along_axis(u, jnp.argmax(jnp.abs(u), axis=-2, keepdims=True), axis=-2)
    return u * jnp.sign(top)


case("qr", lambda x: qr(x)[0], f(4, 3))
case("qr_batch", lambda x: qr(x)[0], f(2, 3, 3))
case("qr_triangle", lambda x: qr(x)[1], f(3, 3))
case("qr_wide", lambda x: qr(x)[1], f(2, 4))
case("svd", left, f(3, 2))
case("svd_batch", left, f(2, 3, 3))
case("svd_values", lambda x: jnp.linalg.svd(x, full_matrices=False)[1], f(3, 4))
case("svd_right", lambda x: jnp.linalg.svd(x, full_matrices=False)[2] ** 2, f(3, 4))
case("solve", jnp.linalg.solve, f(4, 4), f(4, 2))
case("solve_across", lambda a, b: jnp.linalg.solve(a.T, b), f(3, 3), f(3, 2))
case("factor_solve", jnp.linalg.solve, f(2, 4, 4), f(2, 4, 3))
case("triangular", triangular(lower=True), heavy(4, 4), f(4, 2))
case("triangular_upper", triangular(lower=False), heavy(4, 4), f(4, 2))
case("triangular_unit", triangular(lower=True, unit_diagonal=True), heavy(3, 3), f(3, 2))
case("triangular_unit_upper", triangular(lower=False, unit_diagonal=True), heavy(3, 3), f(3, 2))

# contractions
case("dot", jnp.matmul, f(3, 4), f(4, 2))
case("dot_batch", jnp.matmul, f(2, 3, 4), f(2, 4, 2))
case("inner", lambda x, y: jnp.sum(x * y, axis=-1), f(3, 4), f(3, 4))
case("conv2d", conv((1, 1), (0, 0)), f(2, 2, 4, 5), f(3, 2, 2, 3))
case("conv2d_stride_pad", conv((2, 1), (1, 2)), f(1, 2, 5, 4), f(2, 2, 3, 3))
case("conv2d_input", conv_input((1, 2), (1, 0), (1, 2, 4, 5)), f(1, 2, 4, 2), f(2, 2, 3, 2))
case("conv2d_weight", conv_weight((1, 2), (1, 0), (2, 2, 3, 2)), f(1, 2, 4, 5), f(1, 2, 4, 2))


# functions of one number that are not above: rows of runtime/elementwise.def with a gradient, in the middle
# half of the interval that the row says
def function(name):
    for module in (jnp, jax.nn, lax, jax.scipy.special):
        if hasattr(module, name):
            return getattr(module, name)
    sys.exit("jax has no function %s: write a case for it" % name)


here = os.path.dirname(os.path.abspath(__file__))
flat = re.compile(r"^CUT\((\w+)\)", re.M)
no_gradient = flat.findall(open(os.path.join(here, "../../autograd/grad.c")).read())
row = re.compile(r"^UN\((\w+), (\w+), .*?, (-?[\d.]+), (-?[\d.]+), \"", re.M)
for NAME, name, low, high in row.findall(open(os.path.join(here, "../../runtime/elementwise.def")).read()):
    if NAME in no_gradient or name in [c[0] for c in cases]:
        continue
    low, high = float(low), float(high)
    quarter = (high - low) / 4
    case(name, function(name), f(3, 4, lo=low + quarter, hi=high - quarter))
case("atan2", jnp.arctan2, apart(3, 4), apart(3, 4))
case("hypot", lambda x, y: jnp.sqrt(x * x + y * y), apart(3, 4), apart(3, 4))
case("eigh_alone", lambda x: jnp.linalg.eigh(x)[0], f(4, 4))
case("svd_alone", lambda x: jnp.linalg.svd(x, full_matrices=False)[1], f(4, 3))


def text(x):
    return " ".join(repr(float(v)) if x.dtype != bool and x.dtype.kind == "f" else str(int(v))
                    for v in np.asarray(x).reshape(-1))


def main():
    only = sys.argv[1:]
    if not only:
        print("# Made by make-ops.py with jax %s; the format is described there." % jax.__version__)
    for name, fn, inputs, order in cases:
        if only and name not in only:
            continue
        floats = [k for k, x in enumerate(inputs) if x.dtype == np.float64]
        print("case", name, order)
        for x in inputs:
            kind = {"f": "float", "i": "int", "b": "bool"}[x.dtype.kind]
            print("in", kind, x.ndim, *x.shape, text(x))
        y = np.asarray(fn(*[jnp.asarray(x) for x in inputs]))
        w = f(*y.shape)
        w = np.asarray(w)
        print("out", y.ndim, *y.shape, text(y))
        print("weight", text(w))

        def loss(*xs):
            full = [jnp.asarray(x) for x in inputs]
            for k, x in zip(floats, xs):
                full[k] = x
            return jnp.sum(w * fn(*full))

        wrt = tuple(range(len(floats)))
        xs = [jnp.asarray(inputs[k]) for k in floats]
        first = jax.grad(loss, wrt)
        for k, d in zip(floats, first(*xs)):
            print("grad", k, text(np.asarray(d)))
        if order < 2:
            continue
        vs = [f(*inputs[k].shape) for k in floats]

        def loss2(*zs):
            return sum(jnp.sum(v * d) for v, d in zip(vs, first(*zs)))

        for k, v in zip(floats, vs):
            print("weight2", k, text(np.asarray(v)))
        for k, d in zip(floats, jax.grad(loss2, wrt)(*xs)):
            print("grad2", k, text(np.asarray(d)))


main()
