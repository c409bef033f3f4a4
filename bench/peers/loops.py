#!/usr/bin/env python3
"""The workloads gru and while on JAX or PyTorch, with the numbers of ../common.ckl. Prints one line of JSON.

    python loops.py WORKLOAD SYSTEM [--threads 2] [--steps N] [--time 1024]

SYSTEM: jax, torch, torch-compile (the cell of gru; while is not compiled)."""
import time

BEGIN = time.time()
import argparse
import json
import os
import statistics

import numpy as np

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("workload", choices=["gru", "while"])
ap.add_argument("system", choices=["jax", "torch", "torch-compile"])
ap.add_argument("--threads", type=int, default=2)
ap.add_argument("--steps", type=int, default=15)
ap.add_argument("--time", type=int, default=1024)
args = ap.parse_args()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])


def wave(shape, k, scale=1.0):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    j = i % 65537
    return (scale * np.sin(0.7 * i + 1.3 * k + 0.001 * j * j)).reshape(shape).astype(np.float32)


def weight(shape, k):
    return wave(shape, k, 1 / np.sqrt(shape[0]))


T, B, N, H = args.time, 16, 32, 64
if args.workload == "gru":
    param = [weight((N, 3 * H), 0), weight((H, 3 * H), 1), wave((3 * H,), 2, 0.01), wave((3 * H,), 3, 0.01),
             weight((H, 1), 4), wave((1,), 5, 0.01)]
    data = [wave((T, B, N), 1000), wave((T, B), 1001)]
else:
    param = [np.float32(0.98) * weight((128, 128), 0)]
    data = [np.float32(0.1) * wave((64, 128), 1000)]


def with_jax():
    import jax
    import jax.numpy as jnp

    def gru(p, x, y):
        wx, wh, bx, bh, wo, bo = p

        def turn(h, xt):
            xr, xz, xn = jnp.split(xt @ wx + bx, 3, 1)
            hr, hz, hn = jnp.split(h @ wh + bh, 3, 1)
            z = jax.nn.sigmoid(xz + hz)
            h = (1 - z) * jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn) + z * h
            return h, h

        hs = jax.lax.scan(turn, jnp.zeros((B, H), jnp.float32), x)[1]
        return jnp.mean(((hs @ wo + bo)[..., 0] - y) ** 2)

    def train(p, x, y):
        loss, g = jax.value_and_grad(gru)(p, x, y)
        return loss, [a - 0.1 * b for a, b in zip(p, g)]

    def settle(p, x):
        def turn(s):
            h, _, n = s
            new = jnp.tanh(h @ p[0] + x)
            return new, jnp.max(jnp.abs(new - h)), n + 1

        h, _, _ = jax.lax.while_loop(lambda s: (s[1] > 1e-5) & (s[2] < 1000), turn,
                                     (jnp.zeros_like(x), jnp.float32(1), 0))
        return jnp.sum(h ** 2), p

    step = jax.jit(train if args.workload == "gru" else settle)
    p, d = [jnp.array(a) for a in param], [jnp.array(a) for a in data]
    while True:
        loss, p = step(p, *d)
        yield float(loss)


def with_torch():
    import torch

    torch.set_num_threads(args.threads)
    p, d = [torch.tensor(a, requires_grad=args.workload == "gru") for a in param], [torch.tensor(a) for a in data]

    def turn(h, xt, wx, wh, bx, bh):
        xr, xz, xn = (xt @ wx + bx).chunk(3, 1)
        hr, hz, hn = (h @ wh + bh).chunk(3, 1)
        z = torch.sigmoid(xz + hz)
        return (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h

    if args.system == "torch-compile" and args.workload == "gru":
        turn = torch.compile(turn)
    while True:
        if args.workload == "gru":
            h, hs = torch.zeros(B, H), []
            for t in range(T):
                h = turn(h, d[0][t], *p[:4])
                hs.append(h)
            loss = (((torch.stack(hs) @ p[4] + p[5])[..., 0] - d[1]) ** 2).mean()
            g = torch.autograd.grad(loss, p)
            with torch.no_grad():
                for a, b in zip(p, g):
                    a -= 0.1 * b
        else:
            h, change, n = torch.zeros_like(d[0]), 1.0, 0
            while change > 1e-5 and n < 1000:
                new = torch.tanh(h @ p[0] + d[0])
                change, h, n = (new - h).abs().max().item(), new, n + 1
            loss = (h ** 2).sum()
        yield loss.item()


run, ms, losses = with_jax() if args.system == "jax" else with_torch(), [], {}
for s in range(args.steps):
    begin = time.time()
    losses[str(s + 1)] = next(run)
    ms.append(1e3 * (time.time() - begin))
    if s == 0:
        first = time.time() - BEGIN
later = ms[3:] or ms
print(json.dumps({"workload": args.workload, "peer": args.system, "threads": args.threads, "first_step_s": round(first, 3),
                  "step_ms": statistics.median(later), "step_ms_min": min(later), "losses": losses}))
