/* Movement and selection, pulled: the spot of a result becomes a spot of an operand.
 *
 * In: a node and a spot. Out: the code of the operand's element. Axes that an op does not change
 * keep their digits, and neighbours stay uncut; for a changed axis the coordinate is computed. Only
 * indices are computed. pad and concat branch, so that they read no element that does not exist.
 * */
#include <string.h>

#include "graph/structure.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"

typedef enum Mark { STAY, GONE, MOVED } Mark; /* of an axis: digits stay, go, become a coordinate */

/* Digits of s cut at the axes of `size`, runs of axes that STAY or are GONE left in one. */
typedef struct Cut {
  int count;
  uint8_t mark[CKL_MAX_RANK + 1];
  int axis[CKL_MAX_RANK + 1]; /* the first of the run */
  Digits d;
  int start[CKL_MAX_RANK + 2];
} Cut;

static void cut(Low *w, const Spot *s, int rank, const Dim *size, const uint8_t *mark, Cut *c) {
  Dim run[CKL_MAX_RANK + 1];
  c->count = 0;
  for (int i = 0; i < rank; i++) {
    if (i > 0 && mark[i] != MOVED && mark[i] == mark[i - 1]) {
      run[c->count - 1] = low_mul(w, run[c->count - 1], size[i]);
      continue;
    }
    c->mark[c->count] = mark[i];
    c->axis[c->count] = i;
    run[c->count++] = size[i];
  }
  low_cut(w, s, c->count, run, &c->d, c->start);
}

static void keep(Low *w, const Cut *c, int i, Digits *to) {
  for (int k = c->start[i]; k < c->start[i + 1]; k++) low_digit(w, to, c->d.d[k].v, c->d.d[k].n);
}

static LVal coordinate(Low *w, const Cut *c, int i) {
  return low_merge(w, c->d.d + c->start[i], c->start[i + 1] - c->start[i]);
}

static LVal both(Low *w, LVal x, LVal y) {
  return lp_bin(w->k, RB_AND, x, y);
}

static LVal at_digits(Low *w, Val v, const Digits *d) {
  return low_at(w, v, low_spot(w, d->d, d->count));
}

/* ---- views */

static LVal broadcast(Low *w, Val x, const Type *t, const Spot *s) {
  const Type *from = low_type(w, x);
  uint8_t mark[CKL_MAX_RANK];
  int lead = t->rank - from->rank;
  Cut c;
  Digits d = {0};
  for (int i = 0; i < t->rank; i++) {
    mark[i] =
        i < lead || (low_is(w, from->dim[i - lead], 1) && !low_is(w, t->dim[i], 1)) ? GONE : STAY;
  }
  cut(w, s, t->rank, t->dim, mark, &c);
  for (int i = 0; i < c.count; i++) {
    if (c.mark[i] == STAY) keep(w, &c, i, &d);
  }
  return at_digits(w, x, &d);
}

static LVal transpose(Low *w, Val x, const Type *t, const int64_t *perm, const Spot *s) {
  Dim run[CKL_MAX_RANK];
  int axis[CKL_MAX_RANK], count = 0, start[CKL_MAX_RANK + 1];
  Digits all, d = {0};
  for (int i = 0; i < t->rank; i++) {
    if (i > 0 && perm[i] == perm[i - 1] + 1)
      run[count - 1] = low_mul(w, run[count - 1], t->dim[i]);
    else {
      axis[count] = (int)perm[i];
      run[count++] = t->dim[i];
    }
  }
  low_cut(w, s, count, run, &all, start);
  for (int from = 0; from < t->rank; from++) {
    for (int i = 0; i < count; i++) {
      if (axis[i] != from) continue;
      for (int k = start[i]; k < start[i + 1]; k++) low_digit(w, &d, all.d[k].v, all.d[k].n);
    }
  }
  return at_digits(w, x, &d);
}

static LVal slice(Low *w, uint32_t node, Val x, const Type *t, const Spot *s) {
  const Type *from = low_type(w, x);
  const int64_t *start = gr_attr(w->l->g, node, AT_STARTS)->u.ints;
  const int64_t *step = gr_attr(w->l->g, node, AT_STEPS)->u.ints;
  uint8_t mark[CKL_MAX_RANK];
  Cut c;
  Digits d = {0};
  for (int i = 0; i < t->rank; i++) {
    bool all = low_is(w, (Dim)start[i], 0) && step[i] == 1 && t->dim[i] == from->dim[i];
    mark[i] = all ? STAY : MOVED;
  }
  cut(w, s, t->rank, t->dim, mark, &c);
  for (int i = 0; i < c.count; i++) {
    if (c.mark[i] == STAY) {
      keep(w, &c, i, &d);
      continue;
    }
    int a = c.axis[i];
    LVal at = mul(w, coordinate(w, &c, i), lp_i(w->k, step[a]));
    low_digit(w, &d, add(w, at, low_dim(w, (Dim)start[a])), from->dim[a]);
  }
  return at_digits(w, x, &d);
}

static LVal flip(Low *w, uint32_t node, Val x, const Type *t, const Spot *s) {
  const Attr *axes = gr_attr(w->l->g, node, AT_AXES);
  uint8_t mark[CKL_MAX_RANK] = {0};
  Cut c;
  Digits d = {0};
  for (uint32_t i = 0; i < axes->count; i++) mark[axes->u.ints[i]] = MOVED;
  cut(w, s, t->rank, t->dim, mark, &c);
  for (int i = 0; i < c.count; i++) {
    if (c.mark[i] == STAY) {
      keep(w, &c, i, &d);
      continue;
    }
    Dim n = t->dim[c.axis[i]];
    LVal last = low_dim(w, low_sub(w, n, low_const_dim(w, 1)));
    low_digit(w, &d, sub(w, last, coordinate(w, &c, i)), n);
  }
  return at_digits(w, x, &d);
}

/* ---- pad and concat */

/* A variable of v's dtype, `start`, that becomes v's element at d where `inside`. */
static LVal where_inside(Low *w, LVal start, LVal inside, Val v, const Digits *d) {
  LVal var = lp_var(w->k, start);
  lp_if(w->k, inside);
  LVal x = at_digits(w, v, d);
  if (x != LV_NONE) lp_set(w->k, var, x);
  lp_end(w->k);
  return x == LV_NONE ? x : lp_get(w->k, var);
}

static LVal pad(Low *w, uint32_t node, Val x, const Type *t, const Spot *s) {
  const Graph *g = w->l->g;
  const Type *from = low_type(w, x);
  const int64_t *low = gr_attr(g, node, AT_LOW)->u.ints, *high = gr_attr(g, node, AT_HIGH)->u.ints;
  const int64_t *inner = gr_attr(g, node, AT_INNER)->u.ints;
  const Attr *value = gr_attr(g, node, AT_VALUE);
  uint8_t mark[CKL_MAX_RANK];
  bool same = true;
  Cut c;
  Digits d = {0};
  for (int i = 0; i < t->rank; i++) {
    bool all = low_is(w, (Dim)low[i], 0) && low_is(w, (Dim)high[i], 0) && inner[i] == 0;
    mark[i] = all ? STAY : MOVED;
    same = same && all;
  }
  if (same) return low_at(w, x, s);
  cut(w, s, t->rank, t->dim, mark, &c);
  LVal inside = lp_const(w->k, DT_BOOL, 1), zero = lp_i(w->k, 0);
  for (int i = 0; i < c.count; i++) {
    if (c.mark[i] == STAY) {
      keep(w, &c, i, &d);
      continue;
    }
    int a = c.axis[i];
    LVal at = sub(w, coordinate(w, &c, i), low_dim(w, (Dim)low[a])), n = low_dim(w, from->dim[a]);
    if (!low_is(w, (Dim)low[a], 0)) inside = both(w, inside, lp_bin(w->k, RB_GE, at, zero));
    if (inner[a]) {
      LVal step = lp_i(w->k, inner[a] + 1), positive = lp_bin(w->k, RB_MAX, at, zero);
      inside = both(w, inside, lp_bin(w->k, RB_EQ, lp_irem(w->k, positive, step), zero));
      at = lp_idiv(w->k, positive, step);
    }
    if (inner[a] || !low_is(w, (Dim)high[a], 0)) inside = both(w, inside, less(w, at, n));
    low_digit(w, &d, at, from->dim[a]);
  }
  LVal fill = low_attr(w, value, (DType)t->dtype);
  return where_inside(w, fill, inside, x, &d);
}

static LVal concat(Low *w, uint32_t node, const Type *t, const Spot *s) {
  const Graph *g = w->l->g;
  int axis = (int)gr_attr_i(g, node, AT_AXIS, 0), n = (int)g->nodes[node].operand_count;
  uint8_t mark[CKL_MAX_RANK] = {0};
  Cut c;
  mark[axis] = MOVED;
  cut(w, s, t->rank, t->dim, mark, &c);
  int moved = 0;
  while (c.mark[moved] != MOVED) moved++;
  LVal at = coordinate(w, &c, moved);
  LVal var = lp_var(w->k, lp_const(w->k, (DType)t->dtype, 0));
  Dim first = low_const_dim(w, 0);
  for (int i = 0; i < n && !w->failed; i++) {
    Val x = gr_operand(g, node, i);
    Dim size = low_type(w, x)->dim[axis], end = low_add(w, first, size);
    Digits d = {0};
    for (int k = 0; k < c.count; k++) {
      if (k != moved)
        keep(w, &c, k, &d);
      else
        low_digit(w, &d, sub(w, at, low_dim(w, first)), size);
    }
    LVal in = lp_const(w->k, DT_BOOL, 1);
    if (i > 0) in = lp_bin(w->k, RB_GE, at, low_dim(w, first));
    if (i < n - 1) in = both(w, in, less(w, at, low_dim(w, end)));
    lp_if(w->k, in);
    LVal v = at_digits(w, x, &d);
    if (v != LV_NONE) lp_set(w->k, var, v);
    lp_end(w->k);
    first = end;
  }
  return w->failed ? LV_NONE : lp_get(w->k, var);
}

/* ---- take and gather */

LVal low_checked(Low *w, LVal i, Dim n) {
  LVal zero = lp_i(w->k, 0);
  LVal ok = both(w, lp_bin(w->k, RB_GE, i, zero), less(w, i, low_dim(w, n)));
  lp_op(w->k, LP_CHECK, DT_I64, 1, &ok, 0);
  return lp_where(w->k, ok, i, zero);
}

static LVal take(Low *w, uint32_t node, Val x, const Spot *s) {
  const Graph *g = w->l->g;
  const Type *from = low_type(w, x);
  int axis = (int)gr_attr_i(g, node, AT_AXIS, 0), k = (int)g->nodes[node].operand_count - 1;
  const Type *idx = low_type(w, gr_operand(g, node, 1));
  int tail = from->rank - axis - k, start[4];
  Dim size[3] = {low_const_dim(w, 1), low_count(w, idx), low_const_dim(w, 1)};
  Digits all, d = {0};
  for (int i = 0; i < axis; i++) size[0] = low_mul(w, size[0], from->dim[i]);
  for (int i = 0; i < tail; i++) size[2] = low_mul(w, size[2], from->dim[axis + k + i]);
  low_cut(w, s, 3, size, &all, start);
  for (int i = 0; i < start[1]; i++) low_digit(w, &d, all.d[i].v, all.d[i].n);
  const Spot *where = low_spot(w, all.d + start[1], start[2] - start[1]);
  for (int i = 0; i < k; i++) {
    LVal at = low_at(w, gr_operand(g, node, 1 + i), where);
    if (at == LV_NONE) return at;
    low_digit(w, &d, low_checked(w, at, from->dim[axis + i]), from->dim[axis + i]);
  }
  for (int i = start[2]; i < start[3]; i++) low_digit(w, &d, all.d[i].v, all.d[i].n);
  return at_digits(w, x, &d);
}

const Spot *low_along(Low *w, const Type *idx, const Type *x, int axis, LVal index, const Spot *s) {
  uint8_t mark[CKL_MAX_RANK];
  Cut c;
  Digits d = {0};
  for (int i = 0; i < idx->rank; i++)
    mark[i] = i != axis && x->dim[i] == idx->dim[i] ? STAY : MOVED;
  cut(w, s, idx->rank, idx->dim, mark, &c);
  for (int i = 0; i < c.count; i++) {
    int a = c.axis[i];
    if (c.mark[i] == STAY)
      keep(w, &c, i, &d);
    else
      low_digit(w, &d, a == axis ? low_checked(w, index, x->dim[a]) : coordinate(w, &c, i),
                x->dim[a]);
  }
  return low_spot(w, d.d, d.count);
}

static LVal gather(Low *w, uint32_t node, Val x, const Spot *s) {
  int axis = (int)gr_attr_i(w->l->g, node, AT_AXIS, 0);
  LVal index = low_at(w, gr_operand(w->l->g, node, 1), s);
  if (index == LV_NONE) return index;
  return low_at(w, x, low_along(w, low_type(w, (Val){node, 0}), low_type(w, x), axis, index, s));
}

LVal pull_move(Low *w, uint32_t node, const Spot *s) {
  const Graph *g = w->l->g;
  const Type *t = low_type(w, (Val){node, 0});
  OpCode op = (OpCode)g->nodes[node].op;
  Val x = gr_operand(g, node, 0);
  switch (op) {
  case OP_RESHAPE: return low_at(w, x, s);
  case OP_TRANSPOSE: return transpose(w, x, t, gr_attr(g, node, AT_PERM)->u.ints, s);
  case OP_BROADCAST: return broadcast(w, x, t, s);
  case OP_SLICE: return slice(w, node, x, t, s);
  case OP_PAD: return pad(w, node, x, t, s);
  case OP_FLIP: return flip(w, node, x, t, s);
  case OP_CONCAT: return concat(w, node, t, s);
  case OP_TAKE: return take(w, node, x, s);
  case OP_GATHER: return gather(w, node, x, s);
  default: return low_fail(w, "`%s` is not computed element by element", op_info[op].text);
  }
}
