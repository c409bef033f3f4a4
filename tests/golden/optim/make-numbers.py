"""Makes _numbers.ckl: where the optimizers of stdlib/optim.ckl are after eight steps, by NumPy 2 in f64, from the
formulas of their papers as PyTorch's documentation writes them.

    python3 make-numbers.py > _numbers.ckl

The loss is the sum of cosh(p) * weight over w [2, 3] and u [4, 2], which begin as waves. After four steps the rate
is halved. `groups`: u has another rate and decay.
"""
import numpy as np


def wave(shape, k):
    i = np.arange(int(np.prod(shape)), dtype=np.float64)
    return np.sin(0.7 * i + 1.3 * k + 0.001 * (i * i)).reshape(shape)


def sgd(o, p, g, lr, decay, t):
    d = g + decay * p
    if o["momentum"]:
        d0 = d
        d = o["m"] = o["momentum"] * o.get("m", 0.0) + d
        if o["nesterov"]:
            d = d0 + o["momentum"] * d
    return p - lr * d


def rmsprop(o, p, g, lr, decay, t):
    g = g + decay * p
    o["v"] = 0.99 * o.get("v", 0.0) + 0.01 * g * g
    return p - lr * g / (np.sqrt(o["v"]) + 1e-8)


def adagrad(o, p, g, lr, decay, t):
    g = g + decay * p
    o["v"] = o.get("v", 0.0) + g * g
    return p - lr * g / (np.sqrt(o["v"]) + 1e-10)


def adadelta(o, p, g, lr, decay, t):
    g = g + decay * p
    o["v"] = 0.9 * o.get("v", 0.0) + 0.1 * g * g
    d = np.sqrt(o.get("u", 0.0) + 1e-6) / np.sqrt(o["v"] + 1e-6) * g
    o["u"] = 0.9 * o.get("u", 0.0) + 0.1 * d * d
    return p - lr * d


def moments(o, g, b1=0.9, b2=0.999):
    o["m"] = b1 * o.get("m", 0.0) + (1 - b1) * g
    o["v"] = b2 * o.get("v", 0.0) + (1 - b2) * g * g
    return o["m"], o["v"]


def adamw(o, p, g, lr, decay, t):
    m, v = moments(o, g)
    p = p - lr * decay * p
    return p - lr * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


def nadam(o, p, g, lr, decay, t):
    g = g + decay * p
    mu = 0.9 * (1 - 0.5 * 0.96 ** (t * 4e-3))
    mu1 = 0.9 * (1 - 0.5 * 0.96 ** ((t + 1) * 4e-3))
    o["prod"] = o.get("prod", 1.0) * mu
    m, v = moments(o, g)
    mhat = mu1 * m / (1 - o["prod"] * mu1) + (1 - mu) * g / (1 - o["prod"])
    return p - lr * mhat / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-8)


def radam(o, p, g, lr, decay, t):
    g = g + decay * p
    m, v = moments(o, g)
    mhat = m / (1 - 0.9 ** t)
    most = 2 / (1 - 0.999) - 1
    rho = most - 2 * t * 0.999 ** t / (1 - 0.999 ** t)
    if rho <= 5:
        return p - lr * mhat
    r = np.sqrt((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho))
    return p - lr * mhat * r * np.sqrt(1 - 0.999 ** t) / (np.sqrt(v) + 1e-8)


def lion(o, p, g, lr, decay, t):
    m = o.get("m", 0.0)
    p = p * (1 - lr * decay) - lr * np.sign(0.9 * m + (1 - 0.9) * g)
    o["m"] = 0.99 * m + (1 - 0.99) * g
    return p


def lamb(o, p, g, lr, decay, t):
    m, v = moments(o, g)
    r = (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.999 ** t)) + 1e-6) + decay * p
    a, b = np.linalg.norm(p), np.linalg.norm(r)
    return p - lr * (a / b if a > 0 and b > 0 else 1.0) * r


def muon(o, p, g, lr, decay, t):
    o["m"] = 0.95 * o.get("m", 0.0) + 0.05 * g
    d = (0.95 * o["m"] + 0.05 * g).T      # weights [out, in]
    x = d / max(np.linalg.norm(d), 1e-7)
    if x.shape[0] > x.shape[1]:
        x = x.T
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    if d.shape[0] > d.shape[1]:
        x = x.T
    return p * (1 - lr * decay) - lr * max(1, d.shape[0] / d.shape[1]) ** 0.5 * x.T


def descend(step, lr, decay, groups, **kind):
    ps = [wave((2, 3), 0), wave((4, 2), 4)]
    weights = [1 + wave((2, 3), 1) ** 2, 1 + wave((4, 2), 2) ** 2]
    states = [dict(kind), dict(kind)]
    own = [(lr, decay), groups or (lr, decay)]
    for t in range(1, 9):
        half = 1.0 if t <= 4 else 0.5
        ps = [step(o, p, np.sinh(p) * w, r * half, d, t) for o, p, w, (r, d) in zip(states, ps, weights, own)]
    return np.concatenate([p.ravel() for p in ps])


def put(name, x):
    flat = [f"{v:.15g}" for v in x]
    flat = [v if any(c in v for c in ".e") else v + ".0" for v in flat]
    print(f"\nfn {name}() -> f64[{len(flat)}] =\n  f64([")
    for at in range(0, len(flat), 4):
        print("    " + ", ".join(flat[at:at + 4]) + ",")
    print("  ])")


print("# made by make-numbers.py: where optimizers are after eight steps, by NumPy in f64.")
for name, step, lr, decay, kind in (
        ("sgd", sgd, 0.01, 0.0, dict(momentum=0.0, nesterov=False)),
        ("momentum", sgd, 0.01, 0.1, dict(momentum=0.9, nesterov=False)),
        ("nesterov", sgd, 0.01, 0.1, dict(momentum=0.9, nesterov=True)),
        ("adamw", adamw, 0.05, 0.01, {}), ("rmsprop", rmsprop, 0.01, 0.1, {}), ("adagrad", adagrad, 0.05, 0.1, {}),
        ("adadelta", adadelta, 1.0, 0.1, {}), ("nadam", nadam, 0.02, 0.1, {}), ("radam", radam, 0.02, 0.1, {}),
        ("lion", lion, 0.01, 0.3, {}), ("lamb", lamb, 0.02, 0.01, {}), ("muon", muon, 0.02, 0.1, {})):
    put(name, descend(step, lr, decay, None, **kind))
    put(name + "_groups", descend(step, lr, decay, (3 * lr, 0.5), **kind))
