from ref import *
P = [wave(16, s).reshape(4, 4) for s in (.1, .5, .9)]
def att(p, x):
    q, k, v = [x @ w for w in p]; T = x.shape[0]
    s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), q @ k.T / 2, -jnp.inf)
    return jax.nn.softmax(s, 1) @ v
def rec(label, x, n=None):
    def f(p, x):
        y = att(p, x)
        return y if n is None else jnp.where(jnp.arange(x.shape[0])[:, None] < n, y, 0)
    g = jax.grad(lambda p, x: (f(p, x) ** 3).sum(), (0, 1))(P, x); show(label, f(P, x), *g[0], g[1])
def dream(p, x, n, T):
    out = []; ks = []; vs = []
    for t in range(n):
        ks.append(x @ p[1]); vs.append(x @ p[2])
        x = jnp.tanh(jax.nn.softmax(jnp.stack(ks) @ (x @ p[0]) / 2) @ jnp.stack(vs)) + .1 * x; out.append(x)
    return jnp.concatenate([jnp.stack(out), jnp.zeros((T - n, 4))]), x
for T in (1, 2, 6):
    x = wave(4 * T, 1.3).reshape(T, 4)
    for l in ('full', 'cached', 'listed'): rec(l, x)
    for n in range(1, T + 1): rec('masked', x, n)
    x0 = wave(4, .3); n = 0
    while n < T and float((dream(P, x0, n, T)[1] ** 2).sum() if n else (x0 ** 2).sum()) > .05: n += 1
    print('turns', n)
    g = jax.grad(lambda p, x: (dream(p, x, n, T)[0] ** 3).sum(), (0, 1))(P, x0); show('dream', dream(P, x0, n, T)[0], *g[0], g[1])
compare()
