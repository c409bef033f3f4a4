from ref import *
sg = jax.nn.sigmoid
def gru(p, x, s):
    h = s.shape[-1]; a = x @ p['wx'] + p['b']; u = s @ p['wh']
    r = sg(a[:, :h] + u[:, :h]); z = sg(a[:, h:2*h] + u[:, h:2*h]); n = jnp.tanh(a[:, 2*h:] + r * u[:, 2*h:])
    return (1 - z) * n + z * s
def lstm(p, x, s):
    hh, c = s; h = c.shape[-1]
    g = jnp.concatenate([x, hh], 1) @ p['w'] + p['b']; i, f, k, o = [g[:, j*h:(j+1)*h] for j in range(4)]
    c = sg(f) * c + sg(i) * jnp.tanh(k); return sg(o) * jnp.tanh(c), c
G = dict(wx=wave(36, .1).reshape(3, 12), wh=wave(48, .5).reshape(4, 12), b=wave(12, .9))
L = dict(w=wave(112, .3).reshape(7, 16), b=wave(16, .2))
order = lambda g: [g[k] for k in ('wx', 'wh', 'b', 'w') if k in g] if 'wx' in g else [g['w'], g['b']]
def run_gru(p, x, n):
    s = jnp.zeros((2, 4)); out = jnp.zeros((x.shape[0], 2, 4))
    for t in range(n): s = gru(p, x[t], s); out = out.at[t].set(s)
    return out
def turns_until(p, x, most):
    s = jnp.zeros((2, 4)); t = 0
    while t < x.shape[0] and float(jnp.sum(s * s)) < most: s = gru(p, x[t], s); t += 1
    return t
def run_lstm(p, x, n):
    s = (jnp.zeros((2, 4)), jnp.zeros((2, 4))); out = jnp.zeros((x.shape[0], 2, 4))
    for t in range(n): s = lstm(p, x[t], s); out = out.at[t].set(s[0])
    return out, s[1]
def lg(p, x, n):
    l = lambda p, x: (run_gru(p, x, n) ** 3).sum(); g, gx = jax.grad(l, (0, 1))(p, x); return [*order(g), gx]
def ll(p, x, n):
    def l(p, x): o, c = run_lstm(p, x, n); return (o ** 3).sum() + c.sum()
    o, c = run_lstm(p, x, n); g, gx = jax.grad(l, (0, 1))(p, x); return [o, c, *order(g), gx]
for T in (1, 5):
    x = wave(T * 6, 1.3).reshape(T, 2, 3)
    show('y', run_gru(G, x, T)); g = lg(G, x, T); show('g', *g); show('gt', *g[:3], jnp.transpose(g[3], (1, 0, 2)))
    for n in range(1, T + 1): show('gn', *lg(G, x, n)); show('lstm', *ll(L, x, n))
    for most in (.01, 1., 100.): show('gn', *lg(G, x, turns_until(G, x, most)))
    show('lstm', *ll(L, x, T))
compare()
