"""Memory and work of gradients in JAX: a JSON line per program and plan.

    python jax_plans.py [PROGRAM..] [name=value..]

Peak: temp_size_in_bytes of the compiled step, what XLA's plan of memory has beside arguments and
results. Work: floating-point operations of the products and convolutions of the compiled step, by
the shapes in its text.
"""
import json
import math
import re
import sys

import jax
import jax.numpy as jnp

import programs

P = jax.checkpoint_policies


def stack(layers, x, wrap, group):
    """The layers one after the other, `group` of them in a block. A layer is (function, params)."""
    for i in range(0, len(layers), group):
        some = layers[i:i + group]

        def part(x, ps, fs=tuple(f for f, _ in some)):
            for f, p in zip(fs, ps):
                x = f(x, p)
            return x
        x = wrap(part)(x, [p for _, p in some])
    return x


def chain(s):
    def layer(h, w):
        return jnp.tanh(h @ w) * jax.nn.sigmoid(h)

    def loss(ws, x, wrap, group):
        return (stack([(layer, w) for w in ws], x, wrap, group) ** 2).mean()
    ws, x = programs.chain(s)
    return ws, (x,), loss


def norm(x, g, b):
    c = x - x.mean(-1, keepdims=True)
    return c / jnp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * g + b


def gpt(s):
    def block(h, p):
        g1, b1, wqkv, bqkv, wo, bo, g2, b2, wf, bf, wp, bp = p
        n, t, d = h.shape
        qkv = (norm(h, g1, b1) @ wqkv + bqkv).reshape(n, t, 3, s["heads"], -1)
        a = jax.nn.dot_product_attention(*(qkv[:, :, i] for i in range(3)), is_causal=True)
        h = h + a.reshape(n, t, d) @ wo + bo
        return h + jax.nn.gelu(norm(h, g2, b2) @ wf + bf) @ wp + bp

    def loss(ps, x, y, wrap, group):
        tok, pos, *blocks = ps[:-3]
        h = tok[x] + pos
        h = stack([(block, blocks[i:i + 12]) for i in range(0, len(blocks), 12)], h, wrap, group)
        z = jax.nn.log_softmax(norm(h, ps[-3], ps[-2]) @ ps[-1])
        return -jnp.take_along_axis(z, y[..., None], -1).mean()
    ps, x, y = programs.gpt(s)
    return ps, (x, y), loss


def unet(s):
    depth = s["levels"]

    def conv(h, w):
        return jax.nn.relu(jax.lax.conv(h, w, (1, 1), "SAME"))

    def two(h, a, b):
        return conv(conv(h, a), b)

    def up(h, skip, a, b):
        h = jnp.repeat(jnp.repeat(h, 2, 2), 2, 3)
        return two(jnp.concatenate([h, skip], 1), a, b)

    def loss(ps, x, wrap, group):
        h, skips = x, []
        for i in range(depth):
            h = wrap(two)(h, ps[2 * i], ps[2 * i + 1])
            skips.append(h)
            n, c, y, x = h.shape
            h = h.reshape(n, c, y // 2, 2, x // 2, 2).mean((3, 5))
        h = wrap(two)(h, *ps[2 * depth:2 * depth + 2])
        for i in range(depth):
            k = 2 * (depth + 1 + i)
            h = wrap(up)(h, skips.pop(), ps[k], ps[k + 1])
        return (h ** 2).mean()
    ps, x = programs.unet(s)
    return ps, (x,), loss


def rnn(s):
    def loss(ps, xs, start, y, wrap, group):
        wx, wh, b, wo = ps
        layers = [(lambda h, p: jnp.tanh(p[0] @ p[1] + h @ p[2] + p[3]), (xs[i], wx, wh, b))
                  for i in range(s["time"])]
        h = stack(layers, start, wrap, group)
        return ((h @ wo - y) ** 2).mean()
    ps, *inputs = programs.rnn(s)
    return ps, inputs, loss


def work_of(text):
    """Floating-point operations of the products and convolutions in a compiled module."""
    shape = {m[1]: [int(n) for n in m[2].split(",") if n]
             for m in re.finditer(r"(%?[\w.-]+) = \w+\[([\d,]*)\]", text)}
    total = 0
    for m in re.finditer(r"= \w+\[([\d,]*)\]\S* (dot|convolution)\(([^)]*)\)(.*)", text):
        size = math.prod(int(n) for n in m[1].split(",") if n)
        names = re.findall(r"%[\w.-]+", m[3])
        if m[2] == "dot":
            a = shape[names[0]]
            axes = re.search(r"lhs_contracting_dims={([\d,]*)}", m[4])[1]
            total += 2 * size * math.prod(a[int(k)] for k in axes.split(",") if k)
        else:
            kernel = shape[names[1]]
            labels = re.search(r"dim_labels=\w+_(\w+)->", m[4])[1]
            total += 2 * size * math.prod(kernel) // kernel[labels.index("o")]
    if re.search(r"custom-call\(.*(matmul|conv)", text):
        raise SystemExit("products in custom calls are not counted")
    return total


def main():
    for name, s, root in programs.chosen(sys.argv[1:]):
        ps, inputs, loss = globals()[name](s)
        plans = [("jit", lambda f: f, 1), ("remat per layer, nothing saved",
                                           lambda f: jax.checkpoint(f, policy=P.nothing_saveable), 1),
                 ("remat per layer, dots saved",
                  lambda f: jax.checkpoint(f, policy=P.dots_saveable), 1)]
        if root > 1:
            plans.append((f"remat per {root} layers", jax.checkpoint, root))
        for plan, wrap, group in plans:
            step = jax.jit(jax.value_and_grad(lambda ps, *xs: loss(ps, *xs, wrap, group)))
            c = step.lower(ps, *inputs).compile()
            value, g = c(ps, *inputs)
            print(json.dumps({"program": name, "system": "jax", "plan": plan,
                              "peak": c.memory_analysis().temp_size_in_bytes,
                              "work": work_of(c.as_text()),
                              "loss": float(value),
                              "grad_norm": math.sqrt(sum(float((t ** 2).sum()) for t in g))}), flush=True)


if __name__ == "__main__":
    main()
