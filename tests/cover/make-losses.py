"""Prints the cases of tests/cover/builtins.txt for stdlib/shelf/activations.ckl and losses.ckl, with JAX in double
precision: python3 make-losses.py > losses."""
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jax.nn as jn
from jax.scipy.special import xlogy
from cases import A, case, row

x = A([-7.5, -2.3, -0.4, 0.25, 1.5, 8])
m = A([[1.5, 2, 0.5, -1], [4, -1, 0.75, 2.5]])
for name, f in (("elu", jn.elu), ("selu", jn.selu), ("celu", jn.celu), ("mish", jn.mish), ("hardswish", jn.hard_swish),
                ("hardtanh", jn.hard_tanh), ("softsign", jn.soft_sign), ("tanhshrink", lambda x: x - np.tanh(x)),
                ("leaky_relu", jn.leaky_relu), ("logsigmoid", jn.log_sigmoid)):
    row(name)
    case(f"{name}(x)", {"x": x}, f(x))
    if name in ("elu", "celu"): case(f"{name}(x, alpha = 0.7)", {"x": x}, f(x, 0.7))
    if name == "leaky_relu": case("leaky_relu(x, slope = 0.2)", {"x": x}, f(x, 0.2))
row("prelu")
case("prelu(x, a)", {"x": x, "a": A(0.3)}, jn.leaky_relu(x, 0.3))
case("prelu(x, a)", {"x": m, "a": A([0.1, 0.2, 0.3, 0.4])}, jn.leaky_relu(m, A([0.1, 0.2, 0.3, 0.4])))
row("glu")
case("glu(x)", {"x": m}, jn.glu(m))
case("glu(x, axis = 0)", {"x": m}, jn.glu(m, 0))
case("glu(x, axis = -2)", {"x": m}, jn.glu(m, 0))
row("softmin")
case("softmin(x)", {"x": m}, jn.softmax(-m))
case("softmin(x, axis = 0)", {"x": m}, jn.softmax(-m, 0))
case("softmin(x, axis = -1)", {"x": m}, jn.softmax(-m))
lo = A([[1, 2, 0.5], [0, -1, 3], [0.25, 1, 0.75], [2, 0, 1.5]]); la = A([2, 0, 1, 2]); w = A([0.5, 2, 1.25])
def ce(s=0, w=np.ones(3), skip=None):
    lp = jn.log_softmax(lo); k = np.ones(4) if skip is None else (la != skip) * 1.0
    r = (1 - s) * w[la] * -lp[np.arange(4), la] + s * (w * -lp).mean(-1)
    return (k * r).sum() / (k * w[la]).sum()
print("\n# below [cross_entropy]:")
for args, v in (("smoothing = 0.1", ce(0.1)), ("weight = w", ce(w=w)), ("skip = 2", ce(skip=2)),
                ("smoothing = 0.2, weight = w", ce(0.2, w)), ("smoothing = 0.2, weight = w, skip = 0", ce(0.2, w, 0))):
    ins = {"x": lo, "y": la}
    if "= w" in args: ins["w"] = w
    case(f"cross_entropy(x, y, {args})", ins, v)
a, b, c = A([[1.5, 2, 0.5], [4, -1, 0.75]]), A([[0.25, 2.5, 0.7], [1, 1, 3]]), A([[1, 0.5, 1.7], [3.5, 1.25, 0.5]])
row("l1"); case("l1(x, y)", {"x": a, "y": b}, np.abs(a - b).mean())
row("huber")
hub = lambda d: np.where(np.abs(a - b) <= d, (a - b) ** 2 / 2, d * (np.abs(a - b) - d / 2)).mean()
case("huber(x, y)", {"x": a, "y": b}, hub(1.0)); case("huber(x, y, delta = 0.4)", {"x": a, "y": b}, hub(0.4))
p, y = A([0.2, 0.9, 0.5, 0.7]), A([0., 1, 1, 0.25])
row("bce"); case("bce(p, y)", {"p": p, "y": y}, -(xlogy(y, p) + xlogy(1 - y, 1 - p)).mean())
z = A([-3, 0.5, 2, -0.75])
row("bce_logits")
bl = lambda w: -(w * y * jn.log_sigmoid(z) + (1 - y) * jn.log_sigmoid(-z)).mean()
case("bce_logits(x, y)", {"x": z, "y": y}, bl(1)); case("bce_logits(x, y, weight = 3.0)", {"x": z, "y": y}, bl(3))
row("nll"); case("nll(x, y)", {"x": lo, "y": la}, -lo[np.arange(4), la].mean())
row("kl_div")
P, Q = A([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]), A([[0.4, 0.4, 0.2], [0.1, 0.6, 0.3]])
kl = lambda P, Q: (xlogy(P, P) - P * np.log(Q)).sum(-1).mean()
case("kl_div(p, q)", {"p": P, "q": Q}, kl(P, Q))
case("kl_div(p, q)", {"p": A([0., 1]), "q": A([0.5, 0.5])}, np.log(2), "kink")
row("cosine_loss")
case("cosine_loss(a, b)", {"a": a, "b": b},
     (1 - (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))).mean())
row("triplet")
tr = lambda g: np.maximum(np.linalg.norm(a - b, axis=-1) - np.linalg.norm(a - c, axis=-1) + g, 0).mean()
case("triplet(a, p, n)", {"a": a, "p": b, "n": c}, tr(1.0))
case("triplet(a, p, n, margin = 0.25)", {"a": a, "p": b, "n": c}, tr(0.25))
row("hinge"); s = A([-1., 1, -1, 1]); case("hinge(x, y)", {"x": z, "y": s}, np.maximum(1 - z * s, 0).mean())
row("focal"); y = A([0., 1, 1, 0])
def fo(g, al):
    pt = np.where(y == 1, jn.sigmoid(z), jn.sigmoid(-z)); at = np.where(y == 1, al, 1 - al)
    return (-at * (1 - pt) ** g * np.log(pt)).mean()
case("focal(x, y)", {"x": z, "y": y}, fo(2, 0.25))
case("focal(x, y, gamma = 1.5, alpha = 0.6)", {"x": z, "y": y}, fo(1.5, 0.6))
