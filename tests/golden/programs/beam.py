from ref import *
P = dict(e=wave(30, .1).reshape(5, 6) * 1.5, w=wave(36, .5).reshape(6, 6) * .9, o=wave(30, .9).reshape(6, 5))
N = {k: np.asarray(v) for k, v in P.items()}
def lsm(x): m = x.max(); return x - m - np.log(np.exp(x - m).sum())
def score(p, s, toks, stop):
    tok, r = 0, 0.
    for t in toks:
        if stop and tok == 4: break
        s = jnp.tanh(p['e'][tok] + s @ p['w']); r = r + jax.nn.log_softmax(s @ p['o'])[t]; tok = t
    return r
def search(s0, k, n, stop):   # hypotheses as python lists, no back pointers
    hyps = [(0., [], np.asarray(s0))]; turns = 0
    while turns < n and not (stop and turns and len(hyps) == k and all(h[1][-1] == 4 for h in hyps)):
        cand = []
        for sc, toks, s in hyps:
            if stop and toks and toks[-1] == 4: cand.append((sc, toks + [4], s)); continue
            s = np.tanh(N['e'][toks[-1] if toks else 0] + s @ N['w']); l = lsm(s @ N['o'])
            cand += [(sc + l[v], toks + [v], s) for v in range(5)]
        hyps = sorted(cand, key=lambda c: -c[0])[:k]; turns += 1
    return hyps[0][1], turns
def line(label, s0, toks, stop, pad=None):
    v = score(P, s0, toks, stop); g, gs = jax.grad(score, (0, 1))(P, s0, toks, stop)
    out = np.array(toks + [-1] * ((pad or len(toks)) - len(toks)), float)
    show(label, out, v, g['e'], g['w'], g['o'], gs); return toks, float(v)
for k in range(3):
    s0 = wave(6, k * 1.3)
    for n in (1, 2, 4, 5):
        for w in (1, 2, 3): line('beam', s0, search(s0, w, n, False)[0], False)
    for most in (1, 2, 5, 12):
        t, turns = search(s0, 3, most, True); print(k, most, turns, line('loop', s0, t, True, 12))
compare()
