/* A random program: one `fn` of several inputs with symbolic and constant dims: elementwise
 * operations of several dtypes, broadcasts, reductions, contractions, moves, reads and writes at
 * positions, random numbers, loops, blocks, calls, a loss and its gradients up to the third order.
 *
 * In: a seed. Out: the program, as data that can be cut down, and its text. It is a pure function
 * of its seed and well-typed by construction. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/program.h"

const char *const dt_name[DTS] = {"bool", "u8",  "i8",   "i16", "i32",
                                  "i64",  "f16", "bf16", "f32", "f64"};
static bool is_float(Dt d) {
  return d >= F16;
}
static bool is_int(Dt d) {
  return d >= U8 && d <= I64;
}
/* What the program makes of a dtype: f64 of every float in a wide one. */
static Dt form(const Program *p, Dt d) {
  return p->wide && is_float(d) ? F64 : d;
}

#define FUNCTIONS(f)                                                                               \
  "fn own(x: " f "[...S]) -> " f "[...S] { tanh(x) } backward(g) { g * (1.0 - out * out) }\n"      \
  "fn outer(x: " f "[...S]) -> " f "[...S] {\n"                                                    \
  "  let y = sigmoid(x) * x\n  y * tanh(y) + own(x)\n}\n"
const char program_functions[] = FUNCTIONS("f32");

unsigned long long program_random(unsigned long long *rng) { /* SplitMix64 */
  unsigned long long z = (*rng += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int below(Program *p, int n) {
  return (int)(program_random(&p->rng) % (unsigned)n);
}
static bool chance(Program *p, int percent) {
  return below(p, 100) < percent;
}

/* ---- sizes */

static Size number(long n) {
  Size s = {.n = {n, n}};
  snprintf(s.text, sizeof s.text, "%ld", n);
  return s;
}
static bool constant(const Size *s) {
  return s->text[0] >= '0' && s->text[0] <= '9';
}
static bool one(const Size *s) {
  return constant(s) && s->n[0] == 1;
}
static bool same_size(const Size *a, const Size *b) {
  return !strcmp(a->text, b->text);
}
static bool same_shape(const Var *a, const Var *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (!same_size(&a->dim[i], &b->dim[i])) return false;
  return true;
}
static long least(const Size *s) {
  return s->n[0] < s->n[1] ? s->n[0] : s->n[1];
}
static double elements(const Var *v) {
  double all = 1;
  for (int i = 0; i < v->rank; i++)
    all *= (double)(v->dim[i].n[0] > v->dim[i].n[1] ? v->dim[i].n[0] : v->dim[i].n[1]);
  return all;
}
/* s + n, or s * n for a constant s; false when the text would grow too long. */
static bool add_size(Size *s, long n) {
  Size r = *s;
  r.n[0] += n;
  r.n[1] += n;
  if (r.n[0] < 0 || r.n[1] < 0) return false;
  int len = constant(s) ? snprintf(r.text, sizeof r.text, "%ld", r.n[0])
                        : snprintf(r.text, sizeof r.text, n < 0 ? "(%s - %ld)" : "(%s + %ld)",
                                   s->text, labs(n));
  if (len >= (int)sizeof r.text) return false;
  *s = r;
  return true;
}
static bool join_size(Size *s, const Size *t, char op) {
  Size r = *s;
  for (int i = 0; i < RUNS; i++) r.n[i] = op == '*' ? s->n[i] * t->n[i] : s->n[i] + t->n[i];
  int len = constant(s) && constant(t)
                ? snprintf(r.text, sizeof r.text, "%ld", r.n[0])
                : snprintf(r.text, sizeof r.text, "(%s %c %s)", s->text, op, t->text);
  if (len >= (int)sizeof r.text) return false;
  *s = r;
  return true;
}

/* ---- picking operands */

/* A var that `ok` likes, rather a new one; NULL when there is none. */
static Var *pick(Program *p, bool (*ok)(const Var *v, const Var *with), const Var *with) {
  int n = p->inputs + p->statements;
  for (int tries = 0; tries < 30; tries++) {
    int i = chance(p, 60) && n > 6 ? n - 1 - below(p, 6) : below(p, n);
    Var *v = &p->vars[i < p->inputs ? i : INPUTS + i - p->inputs];
    if (!v->hidden && (!ok || ok(v, with))) return v;
  }
  return NULL;
}
static bool any_float(const Var *v, const Var *w) {
  return (void)w, is_float(v->dt);
}
static bool any_int(const Var *v, const Var *w) {
  return (void)w, is_int(v->dt);
}
static bool any_i64(const Var *v, const Var *w) {
  return (void)w, v->dt == I64;
}
static bool vector_i64(const Var *v, const Var *w) {
  return (void)w, v->dt == I64 && v->rank == 1;
}
static bool any_bool(const Var *v, const Var *w) {
  return (void)w, v->dt == BOOL;
}
static bool any_number(const Var *v, const Var *w) {
  return (void)w, v->dt != BOOL;
}
static bool float_axes(const Var *v, const Var *w) {
  return (void)w, is_float(v->dt) && v->rank > 0;
}
static bool number_axes(const Var *v, const Var *w) {
  return (void)w, v->dt != BOOL && v->rank > 0;
}
static bool any_axes(const Var *v, const Var *w) {
  return (void)w, v->rank > 0;
}
static bool matrix(const Var *v, const Var *w) {
  return (void)w, is_float(v->dt) && v->rank >= 2;
}
static bool image(const Var *v, const Var *w) {
  return (void)w, (v->dt == F32 || v->dt == F64) && v->rank == 4 && least(&v->dim[2]) >= 3 &&
                      least(&v->dim[3]) >= 3 && constant(&v->dim[2]) && constant(&v->dim[3]) &&
                      constant(&v->dim[1]);
}
static bool alike(const Var *v, const Var *w) {
  return v->dt == w->dt && same_shape(v, w);
}
/* v stretches to the shape of w: fewer axes, or axes of the constant 1. */
static bool stretches(const Var *v, const Var *w) {
  if (v->dt != w->dt || v->rank > w->rank) return false;
  for (int i = 1; i <= v->rank; i++) {
    const Size *a = &v->dim[v->rank - i], *b = &w->dim[w->rank - i];
    if (!same_size(a, b) && !one(a)) return false;
  }
  return true;
}
static bool same_dims_bool(const Var *v, const Var *w) {
  return v->dt == BOOL && same_shape(v, w);
}
/* w @ v */
static bool right_factor(const Var *v, const Var *w) {
  return v->dt == w->dt && (v->rank == 2 || v->rank == 1) &&
         same_size(&v->dim[0], &w->dim[w->rank - 1]);
}
static bool batch_factor(const Var *v, const Var *w) {
  return v->dt == w->dt && v->rank == 3 && same_size(&v->dim[0], &w->dim[0]) &&
         same_size(&v->dim[1], &w->dim[2]);
}
static bool filter_of(const Var *v, const Var *w) {
  return v->dt == w->dt && v->rank == 4 && same_size(&v->dim[1], &w->dim[1]) &&
         constant(&v->dim[2]) && constant(&v->dim[3]) && v->dim[2].n[0] <= w->dim[2].n[0] &&
         v->dim[3].n[0] <= w->dim[3].n[0];
}

/* ---- statements */

/* A new statement `let NAME = ..` whose value is like `v` (dtype and shape). */
static void put(Program *p, Var v, const char *fmt, ...) {
  char *to = p->statement[p->statements].text;
  size_t cap = sizeof p->statement->text;
  va_list ap;
  snprintf(v.name, sizeof v.name, "v%d", p->statements);
  v.hidden = false;
  int n = snprintf(to, cap, "let %s = ", v.name);
  va_start(ap, fmt);
  int m = vsnprintf(to + n, cap - (size_t)n, fmt, ap);
  va_end(ap);
  if (n + m >= (int)cap || elements(&v) > p->most) return; /* not kept */
  p->statement[p->statements].dropped = false;
  p->vars[INPUTS + p->statements++] = v;
}
static Var like(const Var *v, Dt dt) {
  Var r = *v;
  r.dt = dt;
  return r;
}

static void unary(Program *p) {
  static const char *const f[] = {
#define ROW_CALL_same(name) #name "(%s)",
#define ROW_CALL_test(name)
#define ROW_INNER_same(name)
#define UN(NAME, name, text, domain, result, needs, cost, call, ...) ROW_##call##_##result(name)
#include "runtime/elementwise.def"
      "gelu(%s)",
      "gelu(%s, exact = true)",
      "exp(-abs(%s))",
      "log1p(abs(%s))",
      "sqrt(abs(%s))",
      "rsqrt(abs(%s) + 1.0)",
      "round(%s * 3)",
      "%s ** 2",
      "-%s",
      "tanh(%s) ** 3",
      "1.0 / (abs(%s) + 0.5)",
      "expm1(-abs(%s))",
      "clamp(%s, -1.0, 1.5)",
      "%s * 1.7 + 0.3",
      "%s - 0.25",
      "2.0 - %s",
      "stop(%s)",
      "max(%s, 0.1)",
      "min(%s, 0.9)",
      "%s // 0.7",
      "%s %% 1.3",
      "abs(%s) ** 1.5",
      "%s / 3"};
  static const char *const g[] = {"-%s",     "abs(%s)", "sign(%s)", "%s // 3",
                                  "%s %% 5", "%s * 7",  "relu(%s)", "max(%s, 2)",
                                  "%s - 1",  "%s ** 2", "%s // -2", "%s %% -4"};
  char text[100];
  Var *x = pick(p, any_number, NULL);
  if (!x) return;
  const char *fmt =
      is_float(x->dt) ? f[below(p, sizeof f / sizeof *f)] : g[below(p, x->dt == U8 ? 10 : 12)];
  snprintf(text, sizeof text, fmt, x->name);
  put(p, *x, "%s", text);
}

static void cast(Program *p) {
  Var *x = pick(p, NULL, NULL);
  static const Dt often[] = {F32, F32, F64, F16, BF16, I64, I32};
  Dt to = form(p, chance(p, 70) ? often[below(p, 7)] : (Dt)below(p, DTS));
  if (!x || to == BOOL) return;
  put(p, like(x, to), "%s(%s)", dt_name[to], x->name);
}

static void binary(Program *p) {
  static const char *const f[] = {"%s + %s",
                                  "%s - %s",
                                  "%s * %s",
                                  "%s / (abs(%s) + 0.5)",
                                  "max(%s, %s)",
                                  "min(%s, %s)",
                                  "(abs(%s) + 0.1) ** tanh(%s)",
                                  "%s // (abs(%s) + 0.5)",
                                  "%s %% (abs(%s) + 0.5)",
                                  "%s / %s"};
  static const char *const g[] = {"%s + %s",
                                  "%s - %s",
                                  "%s * %s",
                                  "max(%s, %s)",
                                  "min(%s, %s)",
                                  "%s // (%s %% 7 + 1)",
                                  "%s %% (%s %% 5 + 1)"};
  static const char *const c[] = {"%s < %s",  "%s <= %s", "%s > %s",
                                  "%s >= %s", "%s == %s", "%s != %s"};
  static const char *const b[] = {"%s and %s", "%s or %s", "%s == %s", "%s != %s"};
  Var *x = pick(p, NULL, NULL), *y = x ? pick(p, stretches, x) : NULL;
  char text[120];
  if (!y) return;
  Dt dt = x->dt;
  const char *fmt;
  if (dt == BOOL)
    fmt = b[below(p, 4)];
  else if (chance(p, 20))
    fmt = c[below(p, 6)], dt = BOOL;
  else if (is_float(dt))
    fmt = f[below(p, 10)];
  else if (dt == U8)
    fmt = g[below(p, 5)];
  else
    fmt = g[below(p, 7)];
  bool swapped = chance(p, 30) && x->dt != BOOL; /* with one bool at the left script may stop */
  snprintf(text, sizeof text, fmt, swapped ? y->name : x->name, swapped ? x->name : y->name);
  put(p, like(x, dt), "%s", text);
}

static void choose(Program *p) {
  Var *x = pick(p, any_number, NULL), *y = x ? pick(p, alike, x) : NULL,
      *c = x ? pick(p, same_dims_bool, x) : NULL;
  if (!y) return;
  if (c)
    put(p, *x, "where(%s, %s, %s)", c->name, x->name, y->name);
  else
    put(p, *x, "where(%s > %s, %s, %s)", x->name, is_float(x->dt) ? "0.2" : "1", y->name, x->name);
}

/* The axes that are gone, or kept with size 1. */
static Var reduced(const Var *x, Dt dt, unsigned axes, bool keep) {
  Var r = like(x, dt);
  r.rank = 0;
  for (int i = 0; i < x->rank; i++) {
    if (!(axes >> i & 1))
      r.dim[r.rank++] = x->dim[i];
    else if (keep)
      r.dim[r.rank++] = number(1);
  }
  return r;
}

static void reduce(Program *p) {
  static const char *const f[] = {"sum(%s%s)",
                                  "mean(%s%s)",
                                  "max(%s%s)",
                                  "min(%s%s)",
                                  "prod(tanh(%s)%s)",
                                  "%s.var(%s)",
                                  "logsumexp(%s%s)",
                                  "std(%s%s)",
                                  "norm(%s%s)",
                                  "%s.var(correction = 1%s)",
                                  "prod(%1$s * relu(%1$s)%2$s)"};
  static const char *const g[] = {"sum(%s%s)", "prod(%s%s)", "max(%s%s)", "min(%s%s)"};
  Var *x = pick(p, any_axes, NULL);
  char axes[80] = "", text[120];
  unsigned set = 0;
  if (!x) return;
  bool keep = chance(p, 30);
  int few = below(p, 3);
  if (few == 0 && !keep) {
    set = (1u << x->rank) - 1;
  } else if (few == 1 && x->rank > 1) {
    int i = below(p, x->rank), j = (i + 1 + below(p, x->rank - 1)) % x->rank;
    set = 1u << i | 1u << j;
    snprintf(axes, sizeof axes, ", axis = (%d, %d)%s", i, j, keep ? ", keep = true" : "");
  } else {
    int i = below(p, x->rank);
    set = 1u << i;
    snprintf(axes, sizeof axes, ", axis = %d%s", chance(p, 30) ? i - x->rank : i,
             keep ? ", keep = true" : "");
  }
  if (x->dt == BOOL) {
    put(p, reduced(x, BOOL, set, keep), "%s(%s%s)", chance(p, 50) ? "any" : "all", x->name, axes);
    return;
  }
  int k = below(p, 11);
  if (is_float(x->dt) && (k == 6) && (set & (set - 1) || !axes[0])) k = 0; /* over one axis */
  int whole = below(p, 4);
  const char *fmt = is_float(x->dt) ? f[k] : g[whole];
  if (is_float(x->dt) && k == 5)
    memmove(axes, axes[0] ? axes + 2 : axes, strlen(axes) + 1 - (axes[0] ? 2 : 0));
  snprintf(text, sizeof text, fmt, x->name, axes);
  /* sums and products of ints are i64 */
  put(p, reduced(x, is_float(x->dt) || whole > 1 ? x->dt : I64, set, keep), "%s", text);
}

static void argreduce(Program *p) {
  Var *x = pick(p, number_axes, NULL);
  if (!x) return;
  int i = below(p, x->rank);
  if (least(&x->dim[i]) < 1 && !chance(p, 20)) return; /* of nothing there is none */
  put(p, reduced(x, I64, 1u << i, false), "arg%s(%s, axis = %d)", chance(p, 50) ? "max" : "min",
      x->name, i);
}

static void cumulate(Program *p) {
  Var *x = pick(p, number_axes, NULL);
  if (!x) return;
  bool sums = chance(p, 50);
  put(p, like(x, sums && !is_float(x->dt) ? I64 : x->dt), "cum%s(%s, axis = %d%s)",
      sums            ? "sum"
      : chance(p, 50) ? "max"
                      : "min",
      x->name, below(p, x->rank), chance(p, 40) ? ", reverse = true" : "");
}

static void normalise(Program *p) {
  Var *x = pick(p, float_axes, NULL);
  if (!x) return;
  switch (below(p, 3)) {
  case 0: put(p, *x, "layer_norm(%s)", x->name); break;
  case 1: put(p, *x, "softmax(%s, axis = %d)", x->name, below(p, x->rank)); break;
  default: put(p, *x, "log_softmax(%s)", x->name); break;
  }
}

static void contract(Program *p) {
  Var *x = pick(p, chance(p, 85) ? float_axes : number_axes, NULL);
  if (!x) return;
  Var *y = pick(p, right_factor, x), r = *x;
  const char *open =
      is_float(x->dt) && chance(p, 12) ? chance(p, 50) ? "wrap <bf16> { " : "wrap <f16> { " : "";
  if (p->wide) open = "";
  const char *close = open[0] ? " }" : "";
  if (x->rank == 2 && chance(p, 25)) {
    r.dim[1] = x->dim[0];
    put(p, r, "%s%s @ transpose(%s)%s", open, x->name, x->name, close);
  } else if (x->rank == 2 && chance(p, 20)) {
    r.dim[0] = x->dim[1];
    put(p, r, "einsum(\"i j, i k -> j k\", %s, %s)", x->name, x->name);
  } else if (x->rank >= 3 && chance(p, 40)) {
    if (chance(p, 30) && (x->dt == F32 || x->dt == F64)) {
      put(p, *x, "attention(%s, %s, %s%s)", x->name, x->name, x->name,
          chance(p, 50) ? ", causal = true" : "");
      return;
    }
    r.dim[r.rank - 1] = x->dim[r.rank - 2];
    put(p, r, "%s%s @ transpose(%s)%s", open, x->name, x->name, close);
  } else if (y) {
    if (y->rank == 1)
      r.rank--;
    else
      r.dim[r.rank - 1] = y->dim[1];
    put(p, r, "%s%s @ %s%s", open, x->name, y->name, close);
  }
}

static void move(Program *p) {
  Var *x = pick(p, any_axes, NULL), r;
  char text[200] = "";
  if (!x) return;
  r = *x;
  int a = below(p, x->rank), last = x->rank - 1;
  switch (below(p, 11)) {
  case 0: { /* flat */
    for (int i = 1; i < x->rank; i++)
      if (!join_size(&r.dim[0], &x->dim[i], '*')) return;
    r.rank = 1;
    put(p, r, "reshape(%s, [-1])", x->name);
    break;
  }
  case 1: /* two axes become one */
    if (x->rank < 2 || !join_size(&r.dim[0], &x->dim[1], '*')) return;
    snprintf(text, sizeof text, "[%s", r.dim[0].text);
    for (int i = 2; i < x->rank; i++) {
      size_t n = strlen(text);
      snprintf(text + n, sizeof text - n, ", %s", x->dim[i].text);
      r.dim[i - 1] = x->dim[i];
    }
    r.rank--;
    put(p, r, "reshape(%s, %s])", x->name, text);
    break;
  case 2:
    if (x->rank < 2) return;
    r.dim[last] = x->dim[last - 1];
    r.dim[last - 1] = x->dim[last];
    put(p, r, "transpose(%s)", x->name);
    break;
  case 3: { /* all axes rotated by a */
    if (x->rank < 2) return;
    for (int i = 0; i < x->rank; i++) {
      int from = (i + a) % x->rank;
      size_t n = strlen(text);
      r.dim[i] = x->dim[from];
      snprintf(text + n, sizeof text - n, i ? ", %d" : "%d", from);
    }
    put(p, r, "transpose(%s, axes = (%s))", x->name, text);
    break;
  }
  case 4:
    if (x->rank >= RANK - 1) return;
    memmove(&r.dim[a + 1], &x->dim[a], sizeof(Size) * (size_t)(x->rank - a));
    r.dim[a] = number(1);
    r.rank++;
    put(p, r, "expand(%s, %d)", x->name, a);
    break;
  case 5: /* a part of the leading axis */
    if (constant(&x->dim[0]) && x->dim[0].n[0] > 2) {
      long step = 1 + below(p, 2), from = below(p, 2),
           n = (x->dim[0].n[0] - from + step - 1) / step;
      r.dim[0] = number(n);
      put(p, r, "%s[%ld:%ld:%ld]", x->name, from, x->dim[0].n[0], step);
    } else if (least(&x->dim[0]) >= 1 && add_size(&r.dim[0], -1)) {
      put(p, r, chance(p, 50) ? "%s[1:]" : "%s[:-1]", x->name);
    }
    break;
  case 6: /* one of the last axis */
    if (least(&x->dim[last]) < 1) return;
    r.rank--;
    put(p, r, "%s[..., %d]", x->name, below(p, (int)least(&x->dim[last])));
    break;
  case 7: {
    Var *y = pick(p, alike, x);
    if (!y || !join_size(&r.dim[a], &y->dim[a], '+')) return;
    put(p, r, "concat(list(%s, %s), axis = %d)", x->name, y->name, a);
    break;
  }
  case 8: {
    Var *y = pick(p, alike, x);
    if (!y || x->rank >= RANK - 1) return;
    memmove(&r.dim[1], &x->dim[0], sizeof(Size) * (size_t)x->rank);
    r.dim[0] = number(2);
    r.rank++;
    put(p, r, "stack(list(%s, %s))", x->name, y->name);
    break;
  }
  case 9:
    if (x->rank != 1 || x->dt == BOOL || !add_size(&r.dim[0], 3)) return;
    put(p, r, "pad(%s, (1, 2), value = %s)", x->name, is_float(x->dt) ? "0.5" : "3");
    break;
  default: put(p, r, "flip(%s, axis = %d)", x->name, a); break;
  }
}

/* (s - from + step - 1) // step of an axis: what from::step leaves of it. */
static bool part_size(Size *s, long from, long step) {
  Size r = *s;
  for (int i = 0; i < RUNS; i++) r.n[i] = (s->n[i] - from + step - 1) / step;
  int len = constant(s) ? snprintf(r.text, sizeof r.text, "%ld", r.n[0])
                        : snprintf(r.text, sizeof r.text, "((%s + %ld) // %ld)", s->text,
                                   step - 1 - from, step);
  if (len >= (int)sizeof r.text) return false;
  *s = r;
  return true;
}

/* Slices with steps, from anywhere, of any axis or two, of what may be a slice itself; with what
 * they leave out put back. */
static void stride(Program *p) {
  Var *x = pick(p, any_axes, NULL), r;
  char text[200] = "";
  if (!x) return;
  r = *x;
  int axis = below(p, x->rank), other = chance(p, 25) ? below(p, x->rank) : axis;
  for (int i = 0; i < x->rank; i++) {
    size_t n = strlen(text);
    long from = 0, step = 1, most = least(&x->dim[i]) < 21 ? least(&x->dim[i]) : 21;
    if ((i == axis || i == other) && most > 0) from = below(p, (int)most), step += below(p, 7);
    if (step > 1 && !part_size(&r.dim[i], from, step)) return;
    if (step == 1 && from && !add_size(&r.dim[i], -from)) return;
    snprintf(text + n, sizeof text - n, i ? ", %ld::%ld" : "%ld::%ld", from, step);
  }
  switch (x->dt == BOOL ? 2 : below(p, 4)) {
  case 0: put(p, r, "%s[%s] * %s[%s]", x->name, text, x->name, text); break;
  case 1: put(p, r, "flip(%s, axis = %d)[%s]", x->name, axis, text); break;
  default: put(p, r, "%s[%s]", x->name, text); break;
  }
}

/* Reads and writes at positions that come from data. */
static void positions(Program *p) {
  Var *x = pick(p, number_axes, NULL), *i = pick(p, any_i64, NULL), r;
  if (!x || !i || least(&x->dim[0]) < 1 || x->rank + i->rank - 1 > RANK) return;
  r = *x;
  switch (below(p, 4)) {
  case 0: {
    r.rank = i->rank + x->rank - 1;
    memcpy(r.dim, i->dim, sizeof(Size) * (size_t)i->rank);
    memcpy(r.dim + i->rank, x->dim + 1, sizeof(Size) * (size_t)(x->rank - 1));
    put(p, r, "%s[%s %% %s]", x->name, i->name, x->dim[0].text);
    break;
  }
  case 1: {
    Var *v = pick(p, vector_i64, NULL);
    int n = p->statements;
    if (!v) return;
    char text[200] = "3";
    if (is_float(x->dt))
      snprintf(text, sizeof text, "%s[%s %% %s] * 0.375", x->name, v->name, x->dim[0].text);
    put(p, *x, "%s\n  t%d[%s %% %s] += %s", x->name, n, v->name, x->dim[0].text, text);
    if (p->statements == n) return;
    /* `let vN = x` becomes a variable, and vN its last value */
    char body[600];
    snprintf(body, sizeof body, "%s", p->statement[n].text);
    char *line = strchr(body, '\n');
    *line = 0;
    snprintf(p->statement[n].text, sizeof p->statement->text, "var t%d = %s\n%s\n  let v%d = t%d",
             n, x->name, line + 1, n, n);
    break;
  }
  case 2:
    if (x->rank != 1 || i->rank != 1 || !same_size(&x->dim[0], &i->dim[0])) return;
    put(p, r, "scatter(%s, %s %% %s, %s, axis = 0, add = true)", x->name, i->name, x->dim[0].text,
        x->name);
    break;
  default:
    if (x->rank != 2 || i->rank != 1) return;
    r.dim[0] = i->dim[0];
    put(p, r, "gather(%s, broadcast(expand(%s, 1) %% %s, [%s, %s]), axis = 0)", x->name, i->name,
        x->dim[0].text, i->dim[0].text, x->dim[1].text);
    break;
  }
}

static void make(Program *p) {
  Var *x = pick(p, any_axes, NULL), r;
  char dims[200] = "";
  if (!x) return;
  for (int i = 0; i < x->rank; i++) {
    size_t n = strlen(dims);
    snprintf(dims + n, sizeof dims - n, i ? ", %s" : "%s", x->dim[i].text);
  }
  r = *x;
  Dt f = form(p, chance(p, 60) ? F32 : (Dt)(F16 + below(p, 4)));
  switch (below(p, 7)) {
  case 0:
    put(p, like(x, f), "normal([%s], dtype = %s, key = fold_in(k, %d))", dims, dt_name[f],
        below(p, 9));
    break;
  case 1: put(p, like(x, f), "uniform([%s], dtype = %s, key = k)", dims, dt_name[f]); break;
  case 2:
    put(p, like(x, I64), "randint(%d, [%s], key = fold_in(k, 5))", 1 + below(p, 100), dims);
    break;
  case 3: put(p, like(x, BOOL), "bernoulli(0.%d, [%s], key = k)", 1 + below(p, 9), dims); break;
  case 4:
    if (is_float(x->dt)) put(p, r, "wrap <train> { dropout(%s, 0.3, key = k) }", x->name);
    break;
  case 5:
    if (x->rank == 1) put(p, like(x, I64), "iota(%s)", x->dim[0].text);
    break;
  default: put(p, like(x, f), "full([%s], 0.7, dtype = %s)", dims, dt_name[f]); break;
  }
}

static void loop(Program *p) {
  Var *x = pick(p, any_float, NULL), *y = x ? pick(p, stretches, x) : NULL;
  int n = p->statements;
  if (!y) return;
  put(p, *x, "x");
  if (p->statements == n) return;
  snprintf(p->statement[n].text, sizeof p->statement->text,
           "var t%d = %s\n  for t in 0..%d { t%d = tanh(t%d * 0.75 + %s) }\n  let v%d = t%d", n,
           x->name, 1 + below(p, 4), n, n, y->name, n, n);
}

static void pictures(Program *p) {
  Var *x = pick(p, image, NULL), *w = x ? pick(p, filter_of, x) : NULL, r;
  if (!x) return;
  r = *x;
  if (w && chance(p, 70)) {
    long stride = 1 + below(p, 3), pad = below(p, 2);
    r.dim[1] = w->dim[0];
    for (int i = 2; i < 4; i++)
      r.dim[i] = number((x->dim[i].n[0] + 2 * pad - w->dim[i].n[0]) / stride + 1);
    put(p, r, "conv2d(%s, %s, stride = %ld, pad = %ld)", x->name, w->name, stride, pad);
  } else {
    for (int i = 2; i < 4; i++) r.dim[i] = number(x->dim[i].n[0] / 2);
    put(p, r, "%s(%s, 2)", chance(p, 50) ? "max_pool2d" : "avg_pool2d", x->name);
  }
}

static bool vector_of(const Var *v, const Var *w) {
  return v->dt == w->dt && v->rank == 1;
}
static bool small_int(const Var *v, const Var *w) {
  return (void)w, is_int(v->dt) && v->rank > 0;
}

/* Writes, several indices, comprehensions, blocks, layers as functions. */
static void rarer(Program *p) {
  Var *x = pick(p, number_axes, NULL), *i = pick(p, vector_i64, NULL), *m = pick(p, matrix, NULL),
      *f = pick(p, float_axes, NULL), *v, r;
  int at = p->statements;
  switch (below(p, 14)) {
  case 0: /* the last one wins */
    if (!x || !i || least(&x->dim[0]) < 1) return;
    put(p, *x, "x");
    if (p->statements == at) return;
    snprintf(p->statement[at].text, sizeof p->statement->text,
             "var t%d = %s\n  t%d[%s %% %s] = %s[flip(%s) %% %s] * %s(2.5)\n  let v%d = t%d", at,
             x->name, at, i->name, x->dim[0].text, x->name, i->name, x->dim[0].text, dt_name[x->dt],
             at, at);
    break;
  case 1: /* elements by two indices */
    if (!m || !i || least(&m->dim[0]) < 1 || least(&m->dim[1]) < 1) return;
    r = *m;
    memmove(&r.dim[1], &m->dim[2], sizeof(Size) * (size_t)(m->rank - 2));
    r.dim[0] = i->dim[0];
    r.rank--;
    put(p, r, "%s[%s %% %s, (%s + 1) %% %s]", m->name, i->name, m->dim[0].text, i->name,
        m->dim[1].text);
    break;
  case 2:
    if (!m || m->rank != 2 || !i || least(&m->dim[1]) < 1) return;
    r = *m;
    r.dim[1] = i->dim[0];
    put(p, r, "%s[:, %s %% %s]", m->name, i->name, m->dim[1].text);
    break;
  case 3:
    if (!m || m->rank != 2 || !i || least(&m->dim[1]) < 1) return;
    r = *m;
    r.dim[1] = i->dim[0];
    put(p, r, "gather(%s, broadcast(%s %% %s, [%s, %s]), axis = 1)", m->name, i->name,
        m->dim[1].text, m->dim[0].text, i->dim[0].text);
    break;
  case 4:
    v = m ? pick(p, vector_of, m) : NULL;
    if (!v || m->rank != 2 || (!is_float(m->dt) && m->dt != I64)) return;
    r = *v;
    r.rank = 2;
    r.dim[1] = m->dim[0];
    put(p, r, "[s * sum(t) for s in %s, t in %s]", v->name, m->name);
    break;
  case 5:
    if (f)
      put(p, *f, "checkpoint { tanh(%s * 0.5) * %s + exp(-abs(%s)) }", f->name, f->name, f->name);
    break;
  case 6:
    if (m && m->rank == 2)
      put(p, *m, "checkpoint {\n    let q = sigmoid(%s)\n    q @ transpose(q) @ %s / 7.0\n  }",
          m->name, m->name);
    break;
  case 7:
    if (f) put(p, *f, "wrap <no_grad> { tanh(%s) } * %s", f->name, f->name);
    break;
  case 8:
    if (!m || m->rank != 2 || !i || !same_size(&i->dim[0], &m->dim[0]) || least(&m->dim[1]) < 1 ||
        least(&m->dim[0]) < 1)
      return;
    put(p, reduced(m, m->dt, 3, false), "cross_entropy(%s, %s %% %s)", m->name, i->name,
        m->dim[1].text);
    break;
  case 9:
    v = f ? pick(p, alike, f) : NULL;
    if (v) put(p, reduced(f, f->dt, (1u << f->rank) - 1, false), "mse(%s, %s)", f->name, v->name);
    break;
  case 10:
    v = m ? pick(p, alike, m) : NULL;
    if (!v || m->rank != 3) return;
    r = *m;
    r.rank = 2;
    put(p, r, "einsum(\"b i j, b i j -> b i\", %s, %s)", m->name, v->name);
    break;
  case 11: /* narrow ints */
    v = pick(p, small_int, NULL);
    if (!v) return;
    put(p, like(v, chance(p, 50) ? I8 : I16), chance(p, 50) ? "i8(%s)" : "i16(%s)", v->name);
    if (p->statements > at)
      p->vars[INPUTS + at].dt = strstr(p->statement[at].text, "i8(") ? I8 : I16;
    break;
  case 12: /* a function with a gradient of its own reads its result */
    if (f && f->dt == form(p, F32)) put(p, *f, "own(%s) * own(%s * 0.5)", f->name, f->name);
    break;
  default: /* a call: an edge */
    if (f && f->dt == form(p, F32)) put(p, *f, "outer(%s) + %s", f->name, f->name);
    break;
  }
}

static void more(Program *p) {
  Var *x = pick(p, float_axes, NULL), *m = pick(p, matrix, NULL), *i = pick(p, any_i64, NULL),
      *b = pick(p, any_bool, NULL);
  Var *n = pick(p, any_int, NULL), *d, r;
  char text[100];
  int at = p->statements;
  switch (below(p, 12)) {
  case 6: /* may be out of range: then all modes say so alike */
    if (!x || !i || i->rank != 1 || x->rank != 1 || !chance(p, 15)) return;
    r = *x;
    r.dim[0] = i->dim[0];
    put(p, r, "%s[%s]", x->name, i->name);
    break;
  case 7: /* may divide by zero */
    d = n ? pick(p, alike, n) : NULL;
    if (d && chance(p, 15)) put(p, *n, chance(p, 50) ? "%s // %s" : "%s %% %s", n->name, d->name);
    break;
  case 8:
  case 9: /* written where a mask says */
    x = pick(p, number_axes, NULL);
    if (!x) return;
    put(p, *x, "x");
    if (p->statements == at) return;
    snprintf(text, sizeof text, is_float(x->dt) ? "abs(%s) > 0.5" : "%s > 2", x->name);
    snprintf(p->statement[at].text, sizeof p->statement->text,
             "var t%d = %s\n  t%d[%s] = 1\n  let v%d = t%d", at, x->name, at, text, at, at);
    break;
  case 10:
    d = m && m->rank == 3 ? pick(p, batch_factor, m) : NULL;
    if (!d) return;
    r = *m;
    r.dim[2] = d->dim[2];
    put(p, r, "%s @ %s", m->name, d->name);
    break;
  case 11: /* rows of a matrix by a function of its own */
    if (m && m->rank == 2 && m->dt == form(p, F32)) {
      put(p, *m, "vmap(fn(r: %s[%s]) = r * sum(r) - max(r), %s)", dt_name[m->dt], m->dim[1].text,
          m->name);
    }
    break;
  case 0:
    if (x) put(p, *x, "sort(%s).0", x->name);
    break;
  case 1:
    if (!x || least(&x->dim[x->rank - 1]) < 2) return;
    r = *x;
    r.dim[r.rank - 1] = number(2);
    put(p, r, "top_k(%s, 2).0", x->name);
    break;
  case 2:
    if (!i || i->rank >= RANK - 1) return;
    r = like(i, form(p, F32));
    r.dim[r.rank++] = number(5);
    put(p, r, p->wide ? "f64(one_hot(%s %% 5, 5))" : "one_hot(%s %% 5, 5)", i->name);
    break;
  case 3:
    if (b) put(p, *b, "not %s", b->name);
    break;
  case 4:
    if (m && m->rank == 2)
      put(p, reduced(m, m->dt, 2, false), "[sum(tanh(r)) for r in %s]", m->name);
    break;
  default:
    if (n) put(p, like(n, BOOL), "%s %% 3 == 1", n->name);
    break;
  }
}

/* ---- programs */

static Var input(Program *p, Dt dt, int rank, const Size *dim) {
  Var v = {.dt = dt, .rank = rank};
  snprintf(v.name, sizeof v.name, "%c", "abcdefg"[p->inputs]);
  memcpy(v.dim, dim, sizeof(Size) * (size_t)rank);
  return p->vars[p->inputs++] = v;
}

static void statement(Program *p) {
  static void (*const makers[])(Program *) = {
      unary,    unary,     unary,     unary,    unary,    cast,      binary, binary,
      binary,   binary,    binary,    choose,   reduce,   reduce,    reduce, argreduce,
      cumulate, normalise, normalise, contract, contract, contract,  move,   move,
      move,     move,      positions, stride,   stride,   positions, make,   loop,
      pictures, pictures,  more,      more,     rarer,    rarer,     rarer};
  makers[below(p, sizeof makers / sizeof *makers)](p);
}

bool program_statement(Program *p) {
  int n = p->statements;
  for (int tries = 0; n < STATEMENTS && tries < 40 && p->statements == n; tries++) statement(p);
  return p->statements > n;
}

void program_generate(Program *p, unsigned long long seed, bool wide) {
  static const long sizes[] = {1,  2,  3,  4,  5,  7,  8,  14, 15, 16,  17,  28,
                               31, 32, 33, 40, 48, 56, 64, 70, 96, 100, 128, 1};
  static const Dt floats[] = {F32, F32, F32, F32, F64, F16, BF16};
  memset(p, 0, sizeof *p);
  p->seed = p->rng = seed;
  p->wide = wide;
  p->most = 40000;
  Size n = {"N", {0, 0}}, m = {"M", {0, 0}};
  Size c = number(chance(p, 80) ? 1 + below(p, 9) : 8L << below(p, 4));
  for (int i = 0; i < RUNS; i++) {
    n.n[i] = chance(p, 3) ? 0 : sizes[below(p, 24)];
    m.n[i] = chance(p, 3) ? 0 : sizes[below(p, 24)];
  }
  if (chance(p, 5))
    n.n[0] = 1000 + below(p, 8000), m.n[0] = 1 + below(p, 4); /* several blocks of a sum */
  if (chance(p, 1)) {                                         /* enough for several threads */
    n.n[1] = 1500 + below(p, 2000);
    m.n[1] = 60 + below(p, 100);
    p->most = 600000;
  }
  Dt f = form(p, floats[below(p, 7)]);
  const Size nm[] = {n, m}, mc[] = {m, c}, nmc[] = {n, m, c};
  input(p, f, 2, nm);
  input(p, f, 1, chance(p, 70) ? &m : &n);
  input(p, f, 2, mc);
  input(p, chance(p, 60) ? I64 : chance(p, 50) ? I32 : U8, 1, &n);
  if (chance(p, 40)) input(p, f, 3, nmc);
  if (chance(p, 30)) {
    const Size x[] = {chance(p, 70) ? number(2) : n, number(1 + below(p, 3)),
                      number(3 + below(p, 6)), number(3 + below(p, 6))};
    const Size w[] = {number(1 + below(p, 4)), x[1], number(1 + below(p, 3)),
                      number(1 + below(p, 3))};
    Dt dt = form(p, chance(p, 80) ? F32 : F64);
    input(p, dt, 4, x);
    input(p, dt, 4, w);
  }
  int want = 3 + below(p, STATEMENTS - 4);
  for (int tries = 0; tries < 200 && p->statements < want; tries++) statement(p);
  /* What is loss, what results: rather what came last. */
  int floats_left = 0;
  for (int i = 0; i < p->inputs; i++) floats_left += is_float(p->vars[i].dt);
  for (int i = 0; i < p->inputs && p->wrts < 3; i++) {
    if (!is_float(p->vars[i].dt)) continue;
    if (below(p, floats_left--) < 3 - p->wrts) p->wrt[p->wrts++] = i; /* three of them */
  }
  for (int tries = 0; tries < 12 && p->losses < 3; tries++) {
    int s = p->statements - 1 - below(p, p->statements < 8 ? p->statements : 8);
    if (is_float(p->vars[INPUTS + s].dt)) p->loss[p->losses++] = INPUTS + s;
  }
  p->no_loss = p->losses == 0 || chance(p, 15);
  p->order = chance(p, 75) ? 1 : chance(p, 70) ? 2 : 3;
  for (int s = p->statements - 1; s >= 0 && p->results < RESULTS; s--)
    if (s >= p->statements - 2 || chance(p, 25)) p->result[p->results++] = INPUTS + s;
}

static int write_to(char *to, size_t cap, size_t *at, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(to + *at, cap - *at, fmt, ap);
  va_end(ap);
  if (n > 0 && *at + (size_t)n < cap) *at += (size_t)n;
  return n;
}

static bool uses_loss(const Program *p) {
  return !p->no_loss;
}

void program_source(const Program *p, bool script, char *to, size_t cap) {
  size_t at = 0;
  const char *f = dt_name[form(p, F32)];
  write_to(to, cap, &at, "%s", p->wide ? FUNCTIONS("f64") : program_functions);
  write_to(to, cap, &at, "%s f[N, M](", script ? "proc" : "fn");
  for (int i = 0; i < p->inputs; i++) {
    const Var *v = &p->vars[i];
    write_to(to, cap, &at, "%s: %s[", v->name, dt_name[v->dt]);
    for (int d = 0; d < v->rank; d++) write_to(to, cap, &at, d ? ", %s" : "%s", v->dim[d].text);
    write_to(to, cap, &at, "], ");
  }
  write_to(to, cap, &at, "k: i64[2]) {\n");
  for (int i = 0; i < p->wrts && script && uses_loss(p); i++) {
    const char *name = p->vars[p->wrt[i]].name;
    write_to(to, cap, &at, "  let %s = track(%s)\n", name, name);
  }
  for (int s = 0; s < p->statements; s++)
    if (!p->statement[s].dropped) write_to(to, cap, &at, "  %s\n", p->statement[s].text);
  if (uses_loss(p)) {
    write_to(to, cap, &at, "  let loss = ");
    for (int i = 0; i < p->losses; i++) {
      write_to(to, cap, &at, "%s%s(mean(%s))", i ? " + " : "", f, p->vars[p->loss[i]].name);
    }
    for (int i = 0; i < p->wrts; i++)
      write_to(to, cap, &at, " + %s(mean(%s))", f, p->vars[p->wrt[i]].name);
    write_to(to, cap, &at, "\n  let grads = grad(loss, list(");
    for (int i = 0; i < p->wrts; i++)
      write_to(to, cap, &at, i ? ", %s" : "%s", p->vars[p->wrt[i]].name);
    write_to(to, cap, &at, p->order > 1 && script ? "), record = true)\n" : "))\n");
    const char *x = p->vars[p->wrt[0]].name;
    if (p->order > 1)
      write_to(to, cap, &at,
               "  let second = grad(%s(sum(grads[0] * grads[0])) + %s(mean(%s)), %s%s)\n", f, f, x,
               x, p->order > 2 && script ? ", record = true" : "");
    if (p->order > 2)
      write_to(to, cap, &at, "  let third = grad(%s(mean(second * grads[0] + second * %s)), %s)\n",
               f, x, x);
  }
  write_to(to, cap, &at, "  (%s", uses_loss(p) ? "loss, " : "");
  for (int i = 0; i < p->wrts && uses_loss(p); i++) write_to(to, cap, &at, "grads[%d], ", i);
  if (uses_loss(p) && p->order > 1) write_to(to, cap, &at, "second, ");
  if (uses_loss(p) && p->order > 2) write_to(to, cap, &at, "third, ");
  for (int i = 0; i < p->results; i++) write_to(to, cap, &at, "%s, ", p->vars[p->result[i]].name);
  write_to(to, cap, &at, "0)\n}\n");
}
