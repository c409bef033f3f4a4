from ref import *
import math
P = dict(e=wave(30, .1).reshape(5, 6) * 1.5, w=wave(36, .5).reshape(6, 6) * .9, o=wave(30, .9).reshape(6, 5))
def score(p, s, toks, n):   # given the tokens, the score is differentiable
    tok, r = 0, 0.
    for t in toks: s = jnp.tanh(p['e'][tok] + s @ p['w']); r = r + jax.nn.log_softmax(s @ p['o'])[t]; tok = t
    return r
def tokens(p, s, most, u=None, first=True):
    tok, out = 0, []
    p = {k: np.asarray(v) for k, v in p.items()}; s = np.asarray(s)
    while len(out) < most and tok != 4:
        s = np.tanh(p['e'][tok] + s @ p['w']); l = s @ p['o']
        if u is not None: l = l + np.asarray(u)[len(out)]
        tok = int(np.argmax(l)); out.append(tok)
    return out
def line(s, toks, minus=0):
    v = score(P, s, toks, 0); g, gs = jax.grad(score, (0, 1))(P, s, toks, 0)
    show('g', g['e'], g['w'], g['o'], gs); return toks, float(v) - minus
for k in range(3):
    s = wave(6, k * 1.3)
    for most in (1, 3, 12):
        a = line(s, tokens(P, s, most)); line(s, a[0])
        u = wave(60, float(k)).reshape(12, 5) * 3
        t = tokens(P, s, most, u); b = line(s, t, 0 if t[-1] == 4 else 1)
        print(k, most, a, b)
    line(s, tokens(P, s, 12))
compare()
