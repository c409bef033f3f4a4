from ref import *
q = wave(3, .4); lens = [0, 1, 2, 5, 3]
def pool(x, q, n, keep):
    if not keep: return 0. * q
    k = np.array(keep); return jax.nn.softmax(x[k] @ q) @ x[k]
for T in (5, 7):
    x = wave(15 * T, .9).reshape(5, T, 3); parts = {}
    for b in range(5):
        n = lens[b]; s = np.asarray(x[b] @ q)
        for label, keep in (('pool', range(n)), ('skip', [i for i in range(n) if i == 0 or s[i] >= -1]), ('for', range(n))):
            y = pool(x[b], q, n, list(keep)); g = jax.grad(lambda x, q: (pool(x, q, n, list(keep)) ** 3).sum(), (0, 1))(x[b], q)
            if n: show(label, y, *g)
            parts.setdefault(label, []).append((y, *g))
            if label == 'skip': parts.setdefault('each', []).append(jax.grad(lambda q: (pool(x[b], q, n, list(keep)) ** 2).sum())(q))
    show('none', *[parts[l][0][0] for l in ('pool', 'skip', 'for')])
    for label, of in (('rows', 'pool'), ('rowsskip', 'skip'), ('rowsfor', 'for')):
        p = parts[of]; show(label, jnp.stack([a[0] for a in p]), jnp.stack([a[1] for a in p]), sum(a[2] for a in p))
    if '--plain' not in sys.argv: show('each', jnp.stack(parts['each']))
compare(1e-10)
