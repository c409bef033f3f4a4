"""Computes a jaxpr with NumPy: what JAX traced and differentiated, without compiling it, which would
take longer than everything else. Primitives that are not here are given to JAX."""
import jax
import numpy as np
from jax.extend.core import Literal
from scipy import special

UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "erf": special.erf, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "not": np.logical_not,
    "logistic": special.expit, "is_finite": np.isfinite, "copy": np.copy, "copy_p": np.copy, "square": np.square,
    "stop_gradient": np.copy, "real": np.real, "rsqrt": lambda x: 1 / np.sqrt(x),
}
BINARY = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "pow": np.power, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "atan2": np.arctan2,
}
REDUCE = {
    "reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min,
    "reduce_and": np.all, "reduce_or": np.any,
}


def div(x, y):
    if x.dtype.kind == "f":
        return x / y
    q = np.abs(x) // np.where(y == 0, 1, np.abs(y))
    return np.where((x < 0) != (y < 0), -q, q)


def rem(x, y):
    return np.fmod(x, y) if x.dtype.kind == "f" else x - div(x, y) * y


def dot_general(a, b, dimension_numbers, **_):
    (ca, cb), (ba, bb) = dimension_numbers
    fa = [i for i in range(a.ndim) if i not in ca + ba]
    fb = [i for i in range(b.ndim) if i not in cb + bb]
    batch, k = [a.shape[i] for i in ba], int(np.prod([a.shape[i] for i in ca]))
    left, right = [a.shape[i] for i in fa], [b.shape[i] for i in fb]
    x = a.transpose(*ba, *fa, *ca).reshape(batch + [int(np.prod(left)), k])
    y = b.transpose(*bb, *cb, *fb).reshape(batch + [k, int(np.prod(right))])
    return np.matmul(x, y).reshape(batch + left + right)


def pad(x, value, padding_config):
    low = [p[0] for p in padding_config]
    shape = [max(a + b + (n + (n - 1) * c if n else 0), 0) for n, (a, b, c) in zip(x.shape, padding_config)]
    if any(min(a, b) < 0 for a, b, _ in padding_config):  # cuts
        full = [(max(a, 0), max(b, 0), c) for a, b, c in padding_config]
        y = pad(x, value, full)
        return y[tuple(slice(max(-a, 0), y.shape[i] - max(-b, 0)) for i, (a, b, _) in enumerate(padding_config))]
    out = np.full(shape, value)
    at = tuple(slice(a, a + (n - 1) * (c + 1) + 1, c + 1) if n else slice(0, 0)
               for a, n, (_, _, c) in zip(low, x.shape, padding_config))
    out[at] = x
    return out


def broadcast_in_dim(x, *_, shape, broadcast_dimensions, **__):
    full = [1] * len(shape)
    for n, d in zip(x.shape, broadcast_dimensions):
        full[d] = n
    return np.broadcast_to(x.reshape(full), shape)


def sort(*xs, dimension, num_keys, **_):
    assert num_keys == 1
    order = np.argsort(xs[0], axis=dimension, kind="stable")  # NaN last
    return [np.take_along_axis(x, order, dimension) for x in xs]


def cumsum(x, axis, reverse):
    return np.flip(np.cumsum(np.flip(x, axis), axis, dtype=x.dtype), axis) if reverse else np.cumsum(x, axis, dtype=x.dtype)


def running(f):
    def apply(x, axis, reverse):
        return np.flip(f(np.flip(x, axis), axis), axis) if reverse else f(x, axis)
    return apply


def places(shape, indices, ndim, window, collapsed, mapped, operand_batch, index_batch, sizes):
    """An index array for each axis of the operand; all of them broadcast to the shape of the slices."""
    batch = [i for i in range(ndim) if i not in window]
    whole = [i for i in range(len(shape)) if i not in collapsed and i not in operand_batch]
    starts = {}
    for k, axis in enumerate(mapped):
        at = np.clip(indices[..., k], 0, shape[axis] - sizes[axis])
        full = [1] * ndim
        for n, d in zip(at.shape, batch):
            full[d] = n
        starts[axis] = at.reshape(full)
    found = []
    for axis in range(len(shape)):
        at = starts.get(axis, np.zeros([1] * ndim, np.int64))
        if axis in operand_batch:
            d = batch[index_batch[list(operand_batch).index(axis)]]
            full = [1] * ndim
            full[d] = shape[axis]
            at = at + np.arange(shape[axis]).reshape(full)
        elif axis in whole:
            full = [1] * ndim
            full[window[whole.index(axis)]] = sizes[axis]
            at = at + np.arange(sizes[axis]).reshape(full)
        found.append(at)
    return tuple(found)


def gather(x, indices, dimension_numbers, slice_sizes, **_):
    d = dimension_numbers
    ndim = indices.ndim - 1 + len(d.offset_dims)
    at = places(x.shape, indices, ndim, d.offset_dims, d.collapsed_slice_dims, d.start_index_map,
                d.operand_batching_dims, d.start_indices_batching_dims, slice_sizes)
    return x[at] if at else x.reshape([1] * ndim)


def scatter(how):
    def apply(x, indices, updates, dimension_numbers, **_):
        d = dimension_numbers
        whole = [i for i in range(x.ndim) if i not in d.inserted_window_dims and i not in d.operand_batching_dims]
        sizes = [1] * x.ndim
        for axis, u in zip(whole, d.update_window_dims):
            sizes[axis] = updates.shape[u]
        at = places(x.shape, indices, updates.ndim, d.update_window_dims, d.inserted_window_dims,
                    d.scatter_dims_to_operand_dims, d.operand_batching_dims, d.scatter_indices_batching_dims, sizes)
        out = np.array(x)
        if updates.size:
            how(out, at, updates)
        return out
    return apply


def put(out, at, updates):  # ckl: of repeated places the last one wins (rule 34); NumPy does the same
    out[at] = updates


OTHERS = {
    "div": div, "rem": rem, "dot_general": dot_general, "pad": pad, "broadcast_in_dim": broadcast_in_dim, "sort": sort,
    "cummax": running(np.maximum.accumulate), "cummin": running(np.minimum.accumulate),
    "cumsum": cumsum, "gather": gather, "scatter": scatter(put), "scatter-add": scatter(np.add.at),
    "integer_pow": lambda x, y: np.power(x, float(y)) if x.dtype.kind == "f" else x ** y,
    "reshape": lambda x, new_sizes, dimensions, **_: (x if dimensions is None else x.transpose(dimensions)).reshape(new_sizes),
    "transpose": lambda x, permutation: x.transpose(permutation),
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "rev": lambda x, dimensions: np.flip(x, dimensions),
    "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "slice": lambda x, start_indices, limit_indices, strides:
        x[tuple(slice(a, b, c) for a, b, c in zip(start_indices, limit_indices, strides or [1] * x.ndim))],
    "select_n": lambda c, *x: np.where(c, x[1], x[0]) if c.dtype == bool else np.choose(c, x),
    "iota": lambda dtype, shape, dimension, **_: np.broadcast_to(
        np.arange(shape[dimension], dtype=dtype).reshape([-1 if i == dimension else 1 for i in range(len(shape))]), shape),
    "convert_element_type": lambda x, new_dtype, **_: x.astype(new_dtype),
    "argmax": lambda x, axes, index_dtype: np.argmax(x, axes[0]).astype(index_dtype),
    "argmin": lambda x, axes, index_dtype: np.argmin(x, axes[0]).astype(index_dtype),
    "clamp": lambda low, x, high: np.clip(x, low, high),
}
INNER = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
         "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr", "remat": "jaxpr"}


ROUNDED = set(UNARY) - {"neg", "abs", "sign", "floor", "ceil", "round", "not", "is_finite", "copy", "stop_gradient"}
ROUNDED |= {"div", "pow", "reduce_sum", "reduce_prod", "dot_general", "cumsum", "integer_pow"}
noise = 0.0


def rounded_otherwise(x):
    """Each number moved by up to `noise` of itself, equal ones alike: so ties stay ties."""
    bits = np.ascontiguousarray(x).view(np.uint64) * np.uint64(0x9e3779b97f4a7c15)
    part = (bits >> np.uint64(32)).astype(np.float64) * 2.0**-31 - 1
    return np.where(np.isfinite(x), x * (1 + noise * part.reshape(np.shape(x))), x)


def apply(eqn, xs):
    out = exactly(eqn, xs)
    if noise and eqn.primitive.name in ROUNDED and np.asarray(out).dtype == np.float64:
        return rounded_otherwise(np.asarray(out))
    return out


def exactly(eqn, xs):
    name, params = eqn.primitive.name, eqn.params
    if name in INNER:
        inner = params[INNER[name]]
        return run(inner, xs) if hasattr(inner, "consts") else evaluate(inner, [], xs)
    if name in UNARY:
        return UNARY[name](xs[0]) if name != "not" or xs[0].dtype == bool else np.invert(xs[0])
    if name in BINARY:
        return BINARY[name](*xs)
    if name in REDUCE:
        axes = tuple(params["axes"])
        return REDUCE[name](xs[0], axis=axes) if axes else xs[0]
    if name in OTHERS:
        return OTHERS[name](*xs, **params)
    out = eqn.primitive.bind(*[jax.numpy.asarray(x) for x in xs], **params)
    return [np.asarray(x) for x in out] if eqn.primitive.multiple_results else np.asarray(out)


def evaluate(jaxpr, consts, args):
    env, last = {}, {}
    for i, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            if not isinstance(v, Literal):
                last[v] = i
    for v in jaxpr.outvars:
        if not isinstance(v, Literal):
            last[v] = len(jaxpr.eqns)

    def read(v):
        return np.asarray(v.val, v.aval.dtype) if isinstance(v, Literal) else env[v]
    for v, x in zip(list(jaxpr.constvars) + list(jaxpr.invars), list(consts) + list(args)):
        env[v] = np.asarray(x, v.aval.dtype)
    for i, eqn in enumerate(jaxpr.eqns):
        out = apply(eqn, [read(v) for v in eqn.invars])
        for v, x in zip(eqn.outvars, out if isinstance(out, list) else [out]):
            if v in last:
                env[v] = np.asarray(x, v.aval.dtype)
                assert env[v].shape == v.aval.shape, (eqn, env[v].shape)
        for v in eqn.invars:
            if not isinstance(v, Literal) and last[v] == i:
                env.pop(v, None)
    return [read(v) for v in jaxpr.outvars]


def run(closed, args):
    """The results of a closed jaxpr, of which ROUNDED operations are off by up to `noise`."""
    with np.errstate(all="ignore"):
        return evaluate(closed.jaxpr, closed.consts, args)
