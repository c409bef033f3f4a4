# Shared by the reference scripts: inputs, and a comparison with the `label v v v` lines of a ckl run.
import jax, sys, numpy as np
jax.config.update('jax_enable_x64', True)
import jax.numpy as jnp
def wave(n, s): return jnp.sin(jnp.arange(n, dtype=jnp.float64) * 0.7 + s)
def flat(t): return np.concatenate([np.asarray(l, dtype=np.float64).ravel() for l in jax.tree_util.tree_leaves(t)])
def digest(v):  # one number for many; the same in the ckl programs
    v = flat(v); return float(np.sum(v * np.cos(np.arange(len(v)) * 0.9)))
want = []
def show(label, *trees): want.append((label, np.concatenate([flat(t) for t in trees])))
def compare(tol=1e-11):
    if len(sys.argv) < 2 or sys.argv[1].startswith('--'):
        for l, v in want: print('WANT', l, '%.16g' % digest(v))
        return
    got = []
    labels = {l for l, _ in want}
    for line in open(sys.argv[1]):
        p = line.split()
        if p and p[0] in labels:
            try: got.append((p[0], np.array([float(x) for x in p[1:]])))
            except ValueError: pass
    bad = 0
    if len(got) != len(want): print('COUNT', len(got), len(want)); bad += 1
    for i, ((a, x), (b, y)) in enumerate(zip(got, want)):
        if a != b or x.shape != y.shape or not np.allclose(x, y, rtol=tol, atol=tol):
            bad += 1
            if bad < 6: print('DIFF', i, a, b, x.shape, y.shape, np.abs(x - y).max() if x.shape == y.shape else '', x[:6], y[:6])
    print('compared', len(got), 'lines,', bad, 'bad')
