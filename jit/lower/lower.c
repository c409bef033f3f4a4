/* Lowering: the kernel under construction, and pulling values into it.
 *
 * In: a group of graph nodes and what is materialised. Out: kernels in loop form with the use of
 * each buffer and argument. A value is pulled: straight-line code makes one element of it from
 * elements of its operands, down to what lies in memory. Where the element is, is a spot
 * (lower_impl.h); a value pulled at one spot in a block that is still open is there already.
 *
 * Invariant: constants of the program (sizes, literals) become arguments, so that the text of a
 * kernel depends on the form of the computation alone; sizes known when the graph was made stay
 * constants. */
#include "jit/lower/lower_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_op.h"
#include "runtime/half.h"

enum { MAX_DEPTH = 3000 }; /* of nested pulls; a call is about 200 bytes of stack */

/* A value made at a spot, good while the block that it was made in is open. */
typedef struct Pulled {
  const Spot *spot; /* NULL = free */
  uint32_t v;       /* index in g->types */
  LVal x;
  uint32_t block; /* opener of the innermost block, or none */
  int depth;
} Pulled;

typedef struct DimArg {
  Dim d;
  Pulled at;
} DimArg;

LVal low_fail(Low *w, const char *fmt, ...) {
  char text[300];
  va_list ap;
  if (!w->failed) {
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gerr_set(w->e, ERR_IR_FORM, -1, "%s", text);
  }
  w->failed = true;
  return LV_NONE;
}

/* ---- sizes */

static Dim checked(Low *w, Dim d) {
  if (d != DIM_BAD) return d;
  low_fail(w, "a size passes 2^63 - 1");
  return dim_const(low_tab(w), 0);
}

Dim low_const_dim(Low *w, int64_t n) {
  return dim_const(low_tab(w), n);
}
Dim low_mul(Low *w, Dim a, Dim b) {
  return checked(w, dim_mul(low_tab(w), a, b));
}
Dim low_add(Low *w, Dim a, Dim b) {
  return checked(w, dim_add(low_tab(w), a, b));
}
Dim low_sub(Low *w, Dim a, Dim b) {
  return checked(w, dim_sub(low_tab(w), a, b));
}
Dim low_div(Low *w, Dim a, Dim b) {
  return checked(w, dim_floordiv(low_tab(w), a, b));
}
Dim low_ceil_div(Low *w, Dim a, int64_t by) {
  return low_div(w, low_add(w, a, low_const_dim(w, by - 1)), low_const_dim(w, by));
}
Dim low_count(Low *w, const Type *t) {
  return checked(w, dim_product(low_tab(w), t->rank, t->dim));
}

bool low_divides(Low *w, Dim a, Dim b, Dim *q) {
  int64_t x, y;
  if (low_known(w, b, &y) && y == 0) return false;
  if (low_known(w, a, &x) && x == 0) return false;
  *q = dim_floordiv(low_tab(w), a, b);
  return *q != DIM_BAD && dim_mul(low_tab(w), *q, b) == a;
}

/* ---- memory of what was made */

static void mark(const Low *w, Pulled *p) {
  p->depth = w->k->open_count;
  p->block = p->depth ? w->k->open[p->depth - 1] : 0;
}

static bool alive(const Low *w, const Pulled *p) {
  return p->depth == 0 || (p->depth <= w->k->open_count && w->k->open[p->depth - 1] == p->block);
}

static size_t slot(const Memo *m, const Spot *s, uint32_t v) {
  size_t i = (s->hash * 31u + v * 2654435761u) & (m->pulled_cap - 1);
  while (m->pulled[i].spot && (m->pulled[i].spot != s || m->pulled[i].v != v)) {
    i = (i + 1) & (m->pulled_cap - 1);
  }
  return i;
}

static void remember(Low *w, Pulled p) {
  Memo *m = w->memo;
  if (m->pulled_count * 2 >= m->pulled_cap) {
    Pulled *old = m->pulled;
    size_t n = m->pulled_cap;
    m->pulled_cap = n ? n * 2 : 64;
    m->pulled = ARENA_ARRAY(w->l->arena, Pulled, m->pulled_cap);
    for (size_t i = 0; i < n; i++) {
      if (old[i].spot) m->pulled[slot(m, old[i].spot, old[i].v)] = old[i];
    }
  }
  Pulled *to = &m->pulled[slot(m, p.spot, p.v)];
  if (!to->spot) m->pulled_count++;
  *to = p;
}

static LVal recall(const Low *w, Val v, const Spot *s) {
  const Memo *m = w->memo;
  if (!m->pulled_cap) return LV_NONE;
  const Pulled *p = &m->pulled[slot(m, s, low_index_of(w->l->g, v))];
  return p->spot && alive(w, p) ? p->x : LV_NONE;
}

void low_know(Low *w, Val v, const Spot *s, LVal x) {
  Pulled p = {.spot = s, .v = low_index_of(w->l->g, v), .x = x};
  mark(w, &p);
  remember(w, p);
}

void low_bind(Low *w, Val v, const Index *at, LVal x) {
  low_know(w, v, low_index_spot(w, v, at), x);
}

/* ---- buffers and arguments */

/* A kernel that chooses among more, as `stack` of a long list does, takes long to make; the
 * evaluator copies. */
enum { MOST_BUFS = 256 };

static int use(Low *w, BufUse u, LBufKind kind, DType dt) {
  for (size_t i = 0; i < w->buf_count; i++) {
    const BufUse *o = &w->bufs[i];
    bool same = o->kind == u.kind && o->either == u.either &&
                (u.kind == USE_VALUE && !u.either ? val_eq(o->v, u.v) : o->panel == u.panel);
    if (!same) continue;
    if (w->k->bufs[i].kind != kind) w->k->bufs[i].kind = LB_INOUT;
    return (int)i;
  }
  if (w->buf_count == MOST_BUFS) low_fail(w, "more than %d buffers", MOST_BUFS);
  VEC_PUSH(w->l->arena, w->bufs, w->buf_count, w->buf_cap, u);
  return lp_buf(w->k, kind, dt);
}

int low_value(Low *w, Val v, LBufKind kind) {
  return use(w, (BufUse){.kind = USE_VALUE, .v = v}, kind, (DType)low_type(w, v)->dtype);
}

int low_panel(Low *w, uint32_t panel, DType dt, LBufKind kind) {
  return use(w, (BufUse){.kind = USE_PANEL, .panel = panel}, kind, dt);
}

int low_either(Low *w, Val v, uint32_t panel, Dim copied) {
  BufUse u = {.kind = USE_VALUE, .v = v, .panel = panel, .either = true, .copied = copied};
  return use(w, u, LB_IN, (DType)low_type(w, v)->dtype);
}

int low_local(Low *w, DType dt, int arg, int64_t each) {
  BufUse u = {.kind = USE_LOCAL};
  VEC_PUSH(w->l->arena, w->bufs, w->buf_count, w->buf_cap, u);
  return lp_local(w->k, dt, arg, each);
}

static int argument(Low *w, ArgUse u) {
  for (size_t i = 0; i < w->arg_count; i++) {
    const ArgUse *o = &w->args[i];
    if (o->kind == u.kind && (u.kind == ARG_DIM ? o->dim == u.dim : o->bits == u.bits))
      return (int)i;
  }
  VEC_PUSH(w->l->arena, w->args, w->arg_count, w->arg_cap, u);
  return (int)w->arg_count - 1;
}

int low_dim_arg(Low *w, Dim d) {
  return argument(w, (ArgUse){.kind = ARG_DIM, .dim = d});
}

LVal low_dim(Low *w, Dim d) {
  Memo *m = w->memo;
  int64_t n;
  if (d == DIM_BAD) return low_fail(w, "a size passes 2^63 - 1"), lp_i(w->k, 0);
  if (low_known(w, d, &n)) return lp_i(w->k, n);
  for (size_t i = 0; i < m->dim_count; i++) {
    if (m->dims[i].d == d && alive(w, &m->dims[i].at)) return m->dims[i].at.x;
  }
  DimArg a = {.d = d, .at = {.x = lp_size(w->k, low_dim_arg(w, d))}};
  mark(w, &a.at);
  VEC_PUSH(w->l->arena, m->dims, m->dim_count, m->dim_cap, a);
  return a.at.x;
}

/* Numbers that do not come from the program stay in the text. */
static bool common(double x) {
  return x == 0 || x == 1 || x == -1 || x == 2 || x == 0.5 || isinf(x) || x != x;
}

static LVal literal(Low *w, DType dt, double x) {
  if (common(x)) return lp_const(w->k, dt, x);
  return lp_num(w->k, dt, argument(w, (ArgUse){.kind = ARG_BITS, .bits = (int64_t)hf_bits64(x)}));
}

LVal low_int(Low *w, int64_t x) {
  if (x >= -16 && x <= 16) return lp_i(w->k, x);
  return lp_size(w->k, argument(w, (ArgUse){.kind = ARG_BITS, .bits = x}));
}

LVal low_attr(Low *w, const Attr *v, DType dt) {
  if (!v) return lp_const(w->k, dt, 0);
  if (v->kind == AK_FLOAT) return literal(w, dt, v->u.f);
  if (dt == DT_BOOL) return lp_const(w->k, dt, v->u.i != 0);
  return lp_cast(w->k, low_int(w, v->u.i), dt);
}

/* ---- spots */

void low_digit(Low *w, Digits *d, LVal v, Dim n) {
  if (low_is(w, n, 1)) return;
  if (d->count == MAX_DIGITS) {
    low_fail(w, "an index of more than %d digits", MAX_DIGITS);
    return;
  }
  d->d[d->count++] = (Digit){v, n};
}

const Spot *low_spot(Low *w, const Digit *d, int n) {
  Memo *m = w->memo;
  uint32_t hash = 17;
  for (int i = 0; i < n; i++) hash = (hash ^ d[i].v) * 16777619u + d[i].n;
  size_t mask = 63;
  if (!m->spots) m->spots = ARENA_ARRAY(w->l->arena, Spot *, mask + 1);
  for (Spot *s = m->spots[hash & mask]; s; s = s->next) {
    bool same = s->hash == hash && s->count == (uint32_t)n;
    for (int i = 0; same && i < n; i++) same = s->d[i].v == d[i].v && s->d[i].n == d[i].n;
    if (same) return s;
  }
  Spot *s = arena_alloc(w->l->arena, sizeof(Spot) + sizeof(Digit) * (size_t)n);
  s->hash = hash;
  s->count = (uint32_t)n;
  if (n) memcpy(s->d, d, sizeof(Digit) * (size_t)n);
  s->next = m->spots[hash & mask];
  return m->spots[hash & mask] = s;
}

/* The number of the atom that d is, or -1. An atom's value with another size is no atom: it is an
 * index inside of a part. */
static int atom_of(const Watch *t, Digit d) {
  for (int k = 0; k < t->count; k++) {
    if (t->atom[k] == d.v && t->size[k] == d.n) return k;
  }
  return -1;
}

/* Marks atoms that are not neighbours here: they cannot be one loop, unless both are missing. */
static void watch_number(Watch *t, const Digit *d, int n) {
  int place[MAX_DIGITS];
  for (int k = 0; k < t->count; k++) place[k] = -1;
  for (int i = 0; i < n; i++) {
    int k = atom_of(t, d[i]);
    if (k >= 0) place[k] = i;
  }
  for (int k = 0; k + 1 < t->count; k++) {
    bool joined = place[k] < 0 ? place[k + 1] < 0 : place[k + 1] == place[k] + 1;
    if (!joined) t->apart[k] = true;
  }
}

LVal low_merge(Low *w, const Digit *d, int n) {
  if (w->memo->watch) watch_number(w->memo->watch, d, n);
  LVal x = n ? d[0].v : lp_i(w->k, 0);
  for (int i = 1; i < n; i++) {
    x = lp_bin(w->k, RB_ADD, lp_bin(w->k, RB_MUL, x, low_dim(w, d[i].n)), d[i].v);
  }
  return x;
}

/* Divides a digit into high * low parts; a trial notes that the atom is cut. */
static void split(Low *w, Digit d, Dim high, Dim low, Digit *top, Digit *bottom) {
  Watch *t = w->memo->watch;
  int k = t ? atom_of(t, d) : -1;
  if (k >= 0 && t->split < 0) {
    t->split = k;
    t->high = high;
    t->low = low;
  }
  LVal n = low_dim(w, low);
  *top = (Digit){lp_idiv(w->k, d.v, n), high};
  *bottom = (Digit){lp_irem(w->k, d.v, n), low};
}

void low_cut(Low *w, const Spot *s, int n, const Dim *size, Digits *out, int start[]) {
  Digit rest[MAX_DIGITS], got[MAX_DIGITS]; /* got: from the last digit on */
  int left = (int)s->count, count = 0, end[CKL_MAX_RANK * 2 + 2];
  if (left) memcpy(rest, s->d, sizeof(Digit) * (size_t)left);
  for (int g = n - 1; g >= 0; g--) {
    Dim need = size[g], q;
    while (left > 0 && count < MAX_DIGITS && (g == 0 || !low_is(w, need, 1))) {
      Digit *d = &rest[left - 1];
      if (g == 0 || d->n == need) {
        got[count++] = *d;
        left--;
        if (g > 0) break;
      } else if (low_divides(w, need, d->n, &q)) {
        got[count++] = *d;
        left--;
        need = q;
      } else {
        if (!low_divides(w, d->n, need, &q)) {
          /* The known sizes do not divide: the digits left are merged into one number. */
          Dim above = need;
          for (int h = 0; h < g; h++) above = low_mul(w, above, size[h]);
          *d = rest[0] = (Digit){low_merge(w, rest, left), above};
          left = 1;
          d = &rest[0];
          if (!low_divides(w, above, need, &q)) q = low_const_dim(w, 0);
          if (d->n == need) continue;
        }
        Digit top;
        split(w, *d, q, need, &top, &got[count++]);
        *d = top;
        break;
      }
    }
    end[g] = count;
  }
  if (count == MAX_DIGITS && left) low_fail(w, "an index of more than %d digits", MAX_DIGITS);
  out->count = count;
  for (int i = 0; i < count; i++) out->d[i] = got[count - 1 - i];
  for (int g = 0; g < n; g++) start[g] = count - end[g];
  start[n] = count;
}

const Spot *low_index_spot(Low *w, Val v, const Index *at) {
  const Type *t = low_type(w, v);
  Digits d = {0};
  if (at->linear)
    low_digit(w, &d, at->lin, low_count(w, t));
  else
    for (int i = 0; i < t->rank; i++) low_digit(w, &d, at->at[i], t->dim[i]);
  return low_spot(w, d.d, d.count);
}

LVal low_row_major(Low *w, const Type *t, const LVal *at) {
  LVal x = lp_i(w->k, 0);
  for (int i = 0; i < t->rank; i++) {
    x = lp_bin(w->k, RB_ADD, lp_bin(w->k, RB_MUL, x, low_dim(w, t->dim[i])), at[i]);
  }
  return x;
}

/* ---- pulling */

static LVal load(Low *w, Val v, const Spot *s) {
  Watch *t = w->memo->watch;
  if (t && s->count) {
    int last = atom_of(t, s->d[s->count - 1]);
    for (uint32_t i = 0; i + 1 < s->count && last >= 0; i++) {
      if (atom_of(t, s->d[i]) == t->count - 1) t->crossed[last] = true;
    }
  }
  return lp_load(w->k, low_value(w, v, LB_IN), low_number(w, s));
}

static LVal dispatch(Low *w, Val v, const Spot *s) {
  OpCode op = (OpCode)gr_node(w->l->g, v)->op;
  if (low_elementwise(op)) return pull_elem(w, v.node, s);
  if (op_info[op].cls == GENERATE) return pull_generate(w, v.node, s);
  if (op_info[op].cls == MOVE) return pull_move(w, v.node, s);
  return low_fail(w, "`%s` is not computed element by element", op_info[op].text);
}

LVal low_at(Low *w, Val v, const Spot *s) {
  stack_check();
  Memo *m = w->memo;
  if (w->failed) return LV_NONE;
  LVal x = recall(w, v, s);
  if (x != LV_NONE) return x;
  uint32_t index = low_index_of(w->l->g, v);
  const Keep *keep = m->keep ? &m->keep[index] : NULL;
  if (keep && keep->ready && !keep->taken && !m->watch) x = low_kept(w, keep, s);
  if (x != LV_NONE) {
    /* found */
  } else if (w->l->placed[index]) {
    x = load(w, v, s);
  } else {
    const Type *t = low_type(w, v);
    if (m->depth >= MAX_DEPTH) return low_fail(w, "a chain of more than %d ops", MAX_DEPTH);
    if (m->watch && m->watch->visit && m->watch->visit(m->watch->ud, v, s)) {
      x = lp_const(w->k, (DType)t->dtype, 0);
    } else {
      m->depth++;
      x = dispatch(w, v, s);
      m->depth--;
    }
  }
  if (x != LV_NONE) low_know(w, v, s, x);
  return x;
}

LVal low_pull(Low *w, Val v, const Index *at) {
  return low_at(w, v, low_index_spot(w, v, at));
}

/* ---- a kernel */

void low_begin(Low *w, Lower *l, const Group *group, GErr *e) {
  *w = (Low){.l = l, .group = group, .k = lp_new(l->arena), .e = e};
  w->memo = ARENA_NEW(l->arena, Memo);
  w->flops = dim_const(l->g->dims, 0);
}

void low_finish(Low *w, Lowered *out) {
  if (w->failed) return;
  Launch launch = {.bufs = w->bufs, .args = w->args, .flops = w->flops};
  w->k->arg_count = (uint32_t)w->arg_count;
  launch.k = lp_clean(w->l->arena, low_hoist(w->l->arena, w->k));
  VEC_PUSH(w->l->arena, out->launches, out->count, out->cap, launch);
}

bool low_group(Lower *l, const Group *group, Lowered *out, GErr *e) {
  size_t launches = out->count, panels = out->panel_count;
  bool ok;
  switch ((GroupKind)group->kind) {
  case GROUP_POINT: ok = low_point(l, group, out, e); break;
  case GROUP_ROWS: ok = low_rows(l, group, out, e); break;
  case GROUP_COLUMNS:
  case GROUP_REDUCE: ok = low_reduce(l, group, out, e); break;
  case GROUP_DOT:
  case GROUP_CONV: ok = low_dot(l, group, out, e); break;
  case GROUP_STRIP: ok = low_strip(l, group, out, e); break;
  case GROUP_SCATTER: ok = low_scatter(l, group, out, e); break;
  case GROUP_SCAN: ok = low_scan(l, group, out, e); break;
  default: ok = gerr_set(e, ERR_IR_FORM, -1, "no loop form"); break;
  }
  if (!ok) {
    out->count = launches;
    out->panel_count = panels;
  }
  return ok;
}
