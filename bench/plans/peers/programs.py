"""Sizes, params and inputs of the programs, as bench/plans/*.ckl has them."""
import math

import numpy as np

SIZES = {
    "chain": {"layers": 24, "batch": 1024, "d": 128},
    "gpt": {"layers": 6, "batch": 8, "time": 256, "d": 256, "heads": 8},
    "unet": {"levels": 4, "batch": 8, "side": 64, "width": 16},
    "rnn": {"time": 32, "batch": 512, "nin": 32, "hidden": 128},
}


def chosen(words):
    """The programs and sizes that the command line asks for, each as (name, sizes, root): plans
    take layers, or steps in time, one by one or `root` together."""
    sizes = {k: int(v) for k, v in (w.split("=") for w in words if "=" in w)}
    for name in [w for w in words if w in SIZES] or list(SIZES):
        s = {**SIZES[name], **{k: v for k, v in sizes.items() if k in SIZES[name]}}
        yield name, s, round(math.sqrt(s.get("layers", s.get("time", 1))))


def wave(shape, k, scale=1.0, base=0.0):
    """`wave` of bench/common.ckl."""
    i = np.arange(math.prod(shape), dtype=np.float64)
    j = i % 65537
    x = base + scale * np.sin(0.7 * i + 1.3 * k + 0.001 * (j * j))
    return x.astype(np.float32).reshape(shape)


def chain(s):
    ws = [wave((s["d"], s["d"]), i, 4 / math.sqrt(s["d"])) for i in range(s["layers"])]
    return ws, wave((s["batch"], s["d"]), 1000)


def gpt(s):
    d, n = s["d"], s["layers"]
    ps = [wave((65, d), 0, 0.02), wave((s["time"], d), 1, 0.02)]
    shapes = [(d,), (d,), (d, 3 * d), (3 * d,), (d, d), (d,),
              (d,), (d,), (d, 4 * d), (4 * d,), (4 * d, d), (d,)] * n + [(d,), (d,), (d, 65)]
    for k, shape in enumerate(shapes, 2):
        gain = (k - 2) % 6 == 0 and len(shape) == 1
        if len(shape) == 2:
            ps.append(wave(shape, k, 1 / math.sqrt(shape[0])))
        else:
            ps.append(wave(shape, k, 0.1, 1.0) if gain else wave(shape, k, 0.01))
    n = np.arange(s["batch"] * s["time"] + 1)
    stream = (7 * n + n * n // 11) % 65
    shape = (s["batch"], s["time"])
    return ps, stream[:-1].reshape(shape).copy(), stream[1:].reshape(shape).copy()


def unet(s):
    """Pairs of kernels: `levels` on the way down, one at the bottom, `levels` on the way up."""
    w, n = s["width"], s["levels"]
    down = [(3 if i == 0 else w << (i - 1), w << i) for i in range(n + 1)]
    up = [((w << i) + (w << (i + 1)), w << i) for i in reversed(range(n))]
    shapes = [p for nin, nout in down + up for p in ((nout, nin, 3, 3), (nout, nout, 3, 3))]
    ps = [wave(p, k, 2 / math.sqrt(p[1] * 9)) for k, p in enumerate(shapes)]
    return ps, wave((s["batch"], 3, s["side"], s["side"]), 1000)


def rnn(s):
    n, h = s["nin"], s["hidden"]
    ps = [wave((n, h), 0, 1 / math.sqrt(n)), wave((h, h), 1, 1 / math.sqrt(h)),
          wave((h,), 2, 0.01), wave((h, 1), 3, 1 / math.sqrt(h))]
    b = s["batch"]
    return ps, wave((s["time"], b, n), 1000), wave((b, h), 1001), wave((b, 1), 1002)
