import tb
from ref import *
want.clear(); tb.train(4, False)
def inner(w, lr, n):
    v = w; f = lambda v, w: (jnp.sin(v) ** 2).sum() + (v * w).sum()
    for i in range(n):
        g = jax.grad(f)(v, w); v = v - lr * g
    return (v ** 2).sum()
for n in (0, 1, 2, 9):
    w, lr = wave(4, .2), jnp.float64(.3); v, k = w, 0
    while k < n:
        g = np.asarray(2 * jnp.sin(v) * jnp.cos(v) + w); v = v - lr * g; k += 1
        if np.linalg.norm(g) < .01: break
    print(n, k); show('inner', *jax.grad(inner, (0, 1))(w, lr, k))
compare(1e-10)
