from ref import *
stop = jax.lax.stop_gradient
W = wave(9, .4).reshape(3, 3)
class S: pass
def fresh(): S.avg = jnp.zeros(3); S.ring = jnp.zeros((4, 3)); S.at = 0; S.steps = 0
def note(b, x): return dict(avg=stop(.9 * b['avg'] + .1 * x), ring=stop(b['ring'].at[b['at'] % 4].set(x)), at=b['at'] + 1, steps=b['steps'] + 1)
# `path` holds the decisions of a run without tracing
class Path:
    def __init__(s): s.l = []; s.rec = True; s.i = 0
    def __call__(s, f):
        if s.rec: s.l.append(bool(f())); return s.l[-1]
        s.i += 1; return s.l[s.i - 1]
def settle(w, x, b, most, d):
    k = 0
    while k < most and d(lambda: jnp.sqrt((x * x).sum()) > .3): x = .8 * jnp.tanh(x @ w); b = note(b, x); k += 1
    return (x * b['avg']).sum() + (b['ring'] @ x).sum(), b
def direct(w, x, b, most, d):
    l = 0.; b = dict(b)
    for k in range(most):
        x = .8 * jnp.tanh(x @ w + b['avg']); b['avg'] = stop(b['avg'] + .5 * x)
        if d(lambda: b['avg'].sum() > 1.):
            b['avg'] = stop(b['avg'] * .5); b['at'] += 10
            if k > 3: break
        l = l + (b['avg'] * x).sum()
    return l, b
def nested(w, x, b, a, n, d):
    for i in range(a):
        for j in range(i, n):
            b = note(b, x * j)
            if b['at'] % 7 == 6: break
            x = x @ w
        for k in range(2): b = dict(b, avg=stop(jnp.tanh(b['avg']))); x = x - .1 * b['avg']
    return (x * x).sum(), b
def state(label, f, *a):
    b = dict(avg=S.avg, ring=S.ring, at=S.at, steps=S.steps); x = wave(3, .2); d = Path()
    l, nb = f(W, x, b, *a, d); d.rec = False
    def g(w, x): d.i = 0; return f(w, x, b, *a, d)[0]
    g = jax.grad(g, (0, 1))(W, x); S.avg, S.ring, S.at, S.steps = nb['avg'], nb['ring'], nb['at'], nb['steps']
    show(label, S.avg, S.ring, float(S.at), float(S.steps), l, *g)
fresh()
for m in (1, 2, 5, 20): state('settle', settle, m); state('settle', settle, m)
for m in (1, 2, 6, 20): fresh(); state('direct', direct, m); state('direct', direct, m)
fresh(); state('unrolled', direct, 6)
for a in (0, 1, 2, 4): fresh(); state('nested', nested, a, 5)
compare(1e-10)
