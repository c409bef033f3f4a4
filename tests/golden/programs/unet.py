from ref import *
jnp32 = jnp.float32
def unpack(v, n, d=4):
    i = 0; P = dict(down=[], up=[], merge=[])
    def take(*s):
        nonlocal i; k = int(np.prod(s)); r = v[i:i + k].reshape(s); i += k; return r
    block = lambda: (take(d, d), take(d), take())
    # a model's own params come after ... the order of declaration: a.w, a.b, scale
    P['down'] = [block() for _ in range(n)]; P['up'] = [block() for _ in range(n)]
    P['merge'] = [(take(2 * d, d), take(d)) for _ in range(n)]; P['middle'] = block(); assert i == len(v); return P
B = lambda p, x: x + p[2] * jnp.tanh(x @ p[0] + p[1])
def unet(P, x, n):
    y, sk = x, []
    for i in range(n): y = B(P['down'][i], y); sk.append(y); y = .5 * y
    y = B(P['middle'], y)
    for i in reversed(range(n)): y = jnp.concatenate([y, sk[i]], 1) @ P['merge'][i][0] + P['merge'][i][1]; y = B(P['up'][i], y)
    return y
def adaptive(P, x, n, least, path):
    y, sk, depth, on = x, [], 0, True
    for i in range(n):
        if on and (path[i] if path is not None else float((y * y).sum()) < least): on = False
        if path is None: trail.append(not on)
        if on: y = .5 * B(P['down'][i], y); depth += 1
        sk.append(y)
    for i in reversed(range(n)):
        if i < depth: y = B(P['up'][i], y + sk[i])
    return y
def deep(P, x, n, times, path):
    y = x; j = 0
    for i in range(n):
        for k in range(times): y = B(P['down'][i], y) * .9
        k = 0
        while (path[i][k] if path is not None else float((y * y).sum()) > 3.) if k < 5 else False:
            y = .5 * B(P['down'][i], y); k += 1
        counts.append(k) if path is None else None
    return y
for n in range(4):
    size = n * 21 * 2 + n * 36 + 21
    v = jnp.asarray(wave(size, .3) , jnp.float32).astype(jnp.float64) * .5
    x = jnp.asarray(wave(8, 1.1), jnp.float32).astype(jnp.float64).reshape(2, 4)
    def both(label, f):
        l = lambda v, x: (f(unpack(v, n), x) ** 2).sum()
        show(label, f(unpack(v, n), x), *jax.grad(l, (0, 1))(v, x))
    both('unet', lambda P, x: unet(P, x, n))
    for least in (0., 1., 1.5, 3., 100.):
        trail = []
        adaptive(unpack(v, n), x, n, least, None); tr = list(trail)
        if n > 0 and least < 100: both('adaptive', lambda P, x: adaptive(P, x, n, least, tr))
    for times in (0, 1, 2, 5):
        counts = []; deep(unpack(v, n), x, n, times, None); path = [[k < c for k in range(6)] for c in counts]
        if n: print(n, times, counts); both('deep', lambda P, x: deep(P, x, n, times, path))
compare(3e-5)
