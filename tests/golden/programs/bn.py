from ref import *
w32 = lambda n, s: jnp.asarray(jnp.asarray(wave(n, s), jnp.float32), jnp.float64)
masks = [np.array([float(x) for x in l.split()[1:]]).reshape(5, 4) for l in open('bn-masks.txt') if l.startswith('mask ')]
def init(): v = w32(12 + 4 + 16 + 8, .3); return [v[:12].reshape(3, 4), v[12:16], v[16:32].reshape(4, 4), v[32:36], v[36:40]]
class St: pass
def fresh(): S.m = jnp.zeros(4); S.v = jnp.ones(4); S.c = 0
S = St()
stop = jax.lax.stop_gradient
def step(p, x, s, st, train):
    aw, ab, bw, g, b = p; z = x @ aw + ab + s @ bw; m, v, c = st
    if train:
        mu = z.mean(0); va = ((z - mu) ** 2).mean(0); n = z.shape[0]
        st = (stop(.9 * m + .1 * mu), stop(.9 * v + .1 * va * n / (n - 1)), c + 1); y = (z - mu) / jnp.sqrt(va + 1e-5) * g + b
    else: st = (m, v, c + 1); y = (z - m) / jnp.sqrt(v + 1e-5) * g + b
    return jnp.tanh(y), st
def run(p, x, n, st, train, masked=False):
    s = jnp.zeros((5, 4))
    for t in range(n):
        s, st = step(p, x[t], s, st, train)
        if masked: s = s * masks[t]
    return s, st
def turns(p, x, most, st, train):
    s = jnp.zeros((5, 4)); t = 0
    while t < x.shape[0] and float((s * s).sum()) < most: s, st = step(p, x[t], s, st, train); t += 1
    return t
P = init()
def state(label, x, n, train, masked=False):
    st = (S.m, S.v, S.c)
    l = lambda p, x: ((run(p, x, n, st, train, masked)[0]) ** 3).sum()
    y, new = run(P, x, n, st, train, masked); g = jax.grad(l, (0, 1))(P, x)
    S.m, S.v, S.c = new; show(label, S.m, S.v, float(S.c), y, *g[0], g[1])
for T in (1, 2, 6):
    x = w32(15 * T, 1.3).reshape(T, 5, 3)
    fresh(); state('train', x, T, True); state('eval', x, T, False)
    for n in range(1, T + 1): fresh(); state('train', x, n, True); state('eval', x, n, False); fresh(); state('masked', x, n, True, True)
    for most in (.5, 5., 9., 1000.):
        fresh(); n = turns(P, x, most, (S.m, S.v, 0), True); state('until', x, n, True)
        k = turns(P, x, most, (S.m, S.v, 0), False); state('uneval', x, k, False); print(T, most, n, k)
compare(2e-4)
