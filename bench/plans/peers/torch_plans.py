"""Memory and work of gradients in PyTorch: a JSON line per program and plan.

    python torch_plans.py [PROGRAM..] [--no-compile] [name=value..]

Peak: the profiler records each allocation and release of PyTorch's allocator while a step runs.
They are added up without the tensors that are gradients at the end; params and inputs were made
before. Scratch of the library of products (MKL, oneDNN) is not in it. Work: floating-point
operations of products, convolutions and attention, by torch.utils.flop_counter; of compiled code,
which that cannot see, by the shapes of the operations that the profiler saw.
"""
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch._C._profiler import _EventType
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint, checkpoint_sequential,
                                    create_selective_checkpoint_contexts)

import programs

aten = torch.ops.aten
DEAR = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default}


def dear(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in DEAR else CheckpointPolicy.PREFER_RECOMPUTE


def plain(f, *args):
    return f(*args)


def layer(f, *args):
    return checkpoint(f, *args, use_reentrant=False)


def selective(f, *args):
    return checkpoint(f, *args, use_reentrant=False,
                      context_fn=lambda: create_selective_checkpoint_contexts(dear))


# ---- programs: make(sizes) gives params, inputs and a loss that runs its layers through `run`

def stack(layers, x, run, group):
    """The layers one after the other, `group` of them in a block."""
    for i in range(0, len(layers), group):
        def part(x, some=layers[i:i + group]):
            for f in some:
                x = f(x)
            return x
        x = run(part, x)
    return x


def chain(s):
    ws, x = programs.chain(s)
    ws, x = leaves(ws), torch.from_numpy(x)
    layers = [lambda h, w=w: torch.tanh(h @ w) * torch.sigmoid(h) for w in ws]
    return ws, lambda run, group: (stack(layers, x, run, group) ** 2).mean()


def gpt(s):
    ps, x, y = programs.gpt(s)
    ps, x, y = leaves(ps), torch.from_numpy(x), torch.from_numpy(y)
    tok, pos, *blocks = ps[:-3]
    d = s["d"]

    def block(h, p):
        g1, b1, wqkv, bqkv, wo, bo, g2, b2, wf, bf, wp, bp = p
        n, t, _ = h.shape
        qkv = F.linear(F.layer_norm(h, (d,), g1, b1), wqkv.t(), bqkv)
        q, k, v = qkv.view(n, t, 3, s["heads"], -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + F.linear(a.transpose(1, 2).reshape(n, t, d), wo.t(), bo)
        m = F.gelu(F.linear(F.layer_norm(h, (d,), g2, b2), wf.t(), bf), approximate="tanh")
        return h + F.linear(m, wp.t(), bp)

    layers = [lambda h, p=blocks[i:i + 12]: block(h, p) for i in range(0, len(blocks), 12)]

    def loss(run, group):
        h = stack(layers, F.embedding(x, tok) + pos, run, group)
        z = F.layer_norm(h, (d,), ps[-3], ps[-2]) @ ps[-1]
        return F.cross_entropy(z.flatten(0, 1), y.flatten())
    return ps, loss


def unet(s):
    ps, x = programs.unet(s)
    ps, x = leaves(ps), torch.from_numpy(x)
    depth = s["levels"]

    def two(h, i):
        return F.relu(F.conv2d(F.relu(F.conv2d(h, ps[i], padding=1)), ps[i + 1], padding=1))

    def loss(run, group):
        h, skips = x, []
        for i in range(depth):
            h = run(two, h, 2 * i)
            skips.append(h)
            h = F.avg_pool2d(h, 2)
        h = run(two, h, 2 * depth)
        for i in range(depth):
            def up(h, skip, k):
                h = F.interpolate(h, scale_factor=2, mode="nearest")
                return two(torch.cat([h, skip], 1), k)
            h = run(up, h, skips.pop(), 2 * (depth + 1 + i))
        return (h ** 2).mean()
    return ps, loss


def rnn(s):
    ps, *inputs = programs.rnn(s)
    ps, (xs, start, y) = leaves(ps), map(torch.from_numpy, inputs)
    wx, wh, b, wo = ps

    layers = [lambda h, i=i: torch.tanh(xs[i] @ wx + h @ wh + b) for i in range(s["time"])]

    def loss(run, group):
        h = stack(layers, start, run, group)
        return ((h @ wo - y) ** 2).mean()
    return ps, loss


def leaves(arrays):
    return [torch.from_numpy(a).requires_grad_() for a in arrays]


# ---- what a step takes

def product(dims):
    return math.prod(dims)


def work_of(event):
    """Floating-point operations of an event of the profiler."""
    shapes = [i.sizes if hasattr(i, "sizes") else None for i in event.typed[1].inputs]
    name = event.name
    if name == "aten::mm" or name == "aten::bmm":
        return 2 * product(shapes[0]) * shapes[1][-1]
    if name == "aten::addmm" or name == "aten::baddbmm":
        return 2 * product(shapes[1]) * shapes[2][-1]
    if name == "aten::convolution":
        n, _, h, w = shapes[0]
        return 2 * n * h * w * product(shapes[1])
    if name == "aten::convolution_backward":
        n, _, h, w = shapes[0]
        results = 1 if shapes[1][1] == 3 else 2  # the images need no gradient
        return 2 * n * h * w * product(shapes[2]) * results
    if name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
        backward = name.endswith("backward")
        q, k = (shapes[1], shapes[2]) if backward else (shapes[0], shapes[1])
        return (5 if backward else 2) * 2 * product(q) * k[-2]
    return 0


def norm(params):
    return math.sqrt(sum(float(t.grad.double().square().sum()) for t in params))


def measure(step, params, compiled):
    """Peak bytes beside params, inputs and gradients, and work."""
    if not compiled:
        with FlopCounterMode(display=False) as counter:
            step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True, record_shapes=True) as p:
        loss = step()
    grads = {t.grad.untyped_storage().data_ptr() for t in params}
    allocations, work, todo = [], 0, list(p.profiler.kineto_results.experimental_event_tree())
    while todo:
        e = todo.pop()
        todo += e.children
        if e.typed[0] == _EventType.Allocation:
            allocations.append((e.start_time_ns, e.typed[1].ptr, e.typed[1].alloc_size))
        elif e.typed[0] == _EventType.TorchOp:
            work += work_of(e)
    allocations.sort(key=lambda a: a[0])
    final = {}
    for i, (_, at, size) in enumerate(allocations):
        if size > 0 and at in grads:
            final[at] = i
    now = peak = 0
    owned = set()
    for i, (_, at, size) in enumerate(allocations):
        if size > 0 and final.get(at) == i:
            continue
        if size > 0:
            owned.add(at)
            now += size
        elif at in owned:  # what was there before the step is none of its
            owned.discard(at)
            now += size
        peak = max(peak, now)
    return peak, work if compiled else counter.get_total_flops(), float(loss)


def main():
    words = sys.argv[1:]
    for name, s, root in programs.chosen(words):
        params, loss = globals()[name](s)
        plans = [("eager", plain, 1), ("checkpoint per layer", layer, 1),
                 ("selective, products saved", selective, 1)]
        if root > 1:
            plans.append((f"checkpoint per {root} layers", layer, root))

        def report(plan, run, compiled=False):
            def step():
                for t in params:
                    t.grad = None
                l = run()
                l.backward()
                return l.detach()
            step()
            step()
            peak, work, value = measure(step, params, compiled)
            print(json.dumps({"program": name, "system": "torch", "plan": plan, "peak": peak,
                              "work": work, "loss": value, "grad_norm": norm(params)}), flush=True)

        for plan, run, group in plans:
            report(plan, lambda: loss(run, group))
        for budget in [] if "--no-compile" in words else [1, 0.75, 0.5, 0.25, 0]:
            torch._dynamo.reset()
            torch._functorch.config.activation_memory_budget = budget
            report(f"compile, budget {budget}", torch.compile(lambda: loss(plain, 1)), True)


if __name__ == "__main__":
    main()
