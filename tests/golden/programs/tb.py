from ref import *
stop = jax.lax.stop_gradient
P = [wave(6, .1).reshape(2, 3), wave(9, .6).reshape(3, 3), wave(3, 1.7)]
def loss(p, x, y, k, n):
    s, l = jnp.zeros(3), 0.
    for t in range(n):
        if t % k == 0: s = stop(s)
        s = jnp.tanh(x[t] @ p[0] + s @ p[1]); l = l + (s @ p[2] - y[t]) ** 2
    return l / n
def rec(label, *a):
    g = jax.grad(loss, (0, 1))(P, *a); show(label, loss(P, *a), *g[0], g[1])
for T in (1, 2, 8):
    x, y = wave(2 * T, .9).reshape(T, 2), 3 * wave(T, .35)
    for k in (1, 3, 100):
        rec('full', x, y, k, T)
        for n in range(1, T + 1): rec('part', x, y, k, n)
    for most in (.001, .1, 1e6):
        u = wave(4, .3) * 10; f = 1.
        while float(jnp.linalg.norm(u * f)) > most: f *= .5
        for _ in range(2): show('clip', u * f, 3 * (u * f) ** 2 * f)
def segment(p, x, y, s):
    l = 0.
    for t in range(3): s = jnp.tanh(x[t] @ p[0] + s @ p[1]); l = l + (s @ p[2] - y[t]) ** 2
    return l, s
def train(n_epochs, each):
    p, x, y = list(P), wave(24, .9).reshape(12, 2), 3 * wave(12, .35)
    for e in range(n_epochs):
        s = jnp.zeros(3); tot = 0.
        for j in range(4):
            (l, s), g = jax.value_and_grad(segment, has_aux=True)(p, x[3*j:3*j+3], y[3*j:3*j+3], s); f = 1.
            while np.linalg.norm(flat(g)) * f > .5: f *= .5
            p = [a - .1 * f * b for a, b in zip(p, g)]; tot += l
            if each: show('train', l, *p, s)
        if not each: show('train', tot, *p)
if __name__ == '__main__': train(4, True); compare()
