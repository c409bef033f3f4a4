/* Writes at indices: put, put_add, scatter, scatter_add.
 *
 * In: a group of one such op. Out: two kernels: a copy of the operand, and the updates, one after
 * the other in row-major order along the indexed axes. Elements that differ in another coordinate
 * never meet, so iterations share those out: each iteration goes through all indices with its panel
 * of the last axis. */
#include <string.h>

#include "graph/structure.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower_impl.h"

enum { PANEL = 512 };

typedef struct Put {
  Low w;
  Lower *l;
  const Group *g;
  Val v, x, update;
  OpCode op;
  int axis, indices, first_index; /* operands that are indices, the first of them */
  Space s; /* of the update: axes before, those of the index (REDUCED), after */
} Put;

static bool taken(const Put *p) {
  return p->op == OP_PUT || p->op == OP_PUT_ADD;
}

/* Where the update at this spot goes: a spot of the result. */
static const Spot *target(Low *w, const Put *p, const Spot *s) {
  const Graph *g = w->l->g;
  const Type *x = low_type(w, p->x), *idx = low_type(w, gr_operand(g, p->g->root, p->first_index));
  if (!taken(p)) {
    LVal index = low_at(w, gr_operand(g, p->g->root, p->first_index), s);
    return index == LV_NONE ? NULL : low_along(w, idx, x, p->axis, index, s);
  }
  Dim size[3] = {low_const_dim(w, 1), low_count(w, idx), low_const_dim(w, 1)};
  Digits all, d = {0};
  int start[4];
  for (int i = 0; i < p->axis; i++) size[0] = low_mul(w, size[0], x->dim[i]);
  for (int i = p->axis + p->indices; i < x->rank; i++) size[2] = low_mul(w, size[2], x->dim[i]);
  low_cut(w, s, 3, size, &all, start);
  for (int i = 0; i < start[1]; i++) low_digit(w, &d, all.d[i].v, all.d[i].n);
  const Spot *where = low_spot(w, all.d + start[1], start[2] - start[1]);
  for (int i = 0; i < p->indices; i++) {
    LVal at = low_at(w, gr_operand(g, p->g->root, p->first_index + i), where);
    if (at == LV_NONE) return NULL;
    Dim n = x->dim[p->axis + i];
    low_digit(w, &d, low_checked(w, at, n), n);
  }
  for (int i = start[2]; i < start[3]; i++) low_digit(w, &d, all.d[i].v, all.d[i].n);
  return low_spot(w, d.d, d.count);
}

static void pull_copy(Low *w, const Spot *kept, const Spot *all, void *ud) {
  (void)kept;
  low_at(w, ((Put *)ud)->x, all);
}

static void pull_update(Low *w, const Spot *kept, const Spot *all, void *ud) {
  const Put *p = ud;
  (void)kept;
  low_at(w, p->update, all);
  const Spot *s = target(w, p, all);
  if (s) low_number(w, s);
}

static bool copy(Put *p, Lowered *out, GErr *e) {
  Low *w = &p->w;
  Space s;
  Nest nest;
  const Type *t = gr_type(p->l->g, p->x);
  low_begin(w, p->l, p->g, e);
  if (!low_space(w, t->rank, t->dim, NULL, pull_copy, p, &s)) return false;
  w->flops = low_count(w, t);
  low_nest(w, &s, &nest);
  const Spot *at = low_spot(w, nest.at.d, nest.at.count);
  LVal x = low_at(w, p->x, at);
  if (x != LV_NONE) lp_store(w->k, low_value(w, p->v, LB_OUT), low_number(w, at), x);
  low_nest_end(w, &nest);
  low_finish(w, out);
  return !w->failed;
}

static void write(Put *p, const Spot *s) {
  Low *w = &p->w;
  const Spot *to = target(w, p, s);
  LVal x = to ? low_at(w, p->update, s) : LV_NONE;
  if (x == LV_NONE) return;
  int buf = low_value(w, p->v, LB_INOUT);
  LVal at = low_number(w, to);
  if (p->op == OP_PUT_ADD || p->op == OP_SCATTER_ADD) x = add(w, lp_load(w->k, buf, at), x);
  lp_store(w->k, buf, at, x);
}

static bool updates(Put *p, Lowered *out, GErr *e) {
  Low *w = &p->w;
  const Type *t = gr_type(p->l->g, p->update);
  uint8_t cls[CKL_MAX_RANK];
  int from = p->axis, to = p->axis + 1;
  low_begin(w, p->l, p->g, e);
  if (taken(p)) to = from + low_type(w, gr_operand(p->l->g, p->g->root, p->first_index))->rank;
  for (int i = 0; i < t->rank; i++) cls[i] = i < from ? 1 : i < to ? REDUCED : 2;
  if (!low_space(w, t->rank, t->dim, cls, pull_update, p, &p->s)) return false;
  low_begin(w, p->l, p->g, e);
  w->flops = low_count(w, t);

  int m = p->s.count, last = m > 0 && p->s.cls[m - 1] == 2 ? m - 1 : -1;
  Dim one = low_const_dim(w, 1), panels = one, iterations = one;
  Digit at[MAX_DIGITS] = {{0}};
  if (last >= 0) panels = iterations = low_ceil_div(w, p->s.size[last], PANEL);
  for (int k = 0; k < m; k++) {
    if (p->s.cls[k] != REDUCED && k != last) iterations = low_mul(w, iterations, p->s.size[k]);
  }
  LVal iteration = lp_par(w->k, low_dim(w, iterations)), first = low_take(w, &iteration, panels);
  int blocks = 1;
  for (int k = m - 1; k >= 0; k--) {
    if (p->s.cls[k] != REDUCED && k != last)
      at[k] = (Digit){low_take(w, &iteration, p->s.size[k]), p->s.size[k]};
  }
  for (int k = 0; k < m; k++) {
    if (p->s.cls[k] != REDUCED) continue;
    at[k] = (Digit){lp_for(w->k, low_dim(w, p->s.size[k])), p->s.size[k]};
    blocks++;
  }
  if (last >= 0) {
    first = lp_bin(w->k, RB_MUL, first, lp_i(w->k, PANEL));
    LVal left = lp_bin(w->k, RB_SUB, low_dim(w, p->s.size[last]), first);
    at[last] = (Digit){add(w, first, lp_vec(w->k, low_least(w, left, lp_i(w->k, PANEL)))),
                       p->s.size[last]};
    blocks++;
  }
  write(p, low_spot(w, at, m));
  while (blocks-- > 0) lp_end(w->k);
  low_finish(w, out);
  return !w->failed;
}

bool low_scatter(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Put *p = ARENA_NEW(l->arena, Put);
  p->l = l;
  p->g = g;
  p->op = (OpCode)l->g->nodes[g->root].op;
  p->v = (Val){g->root, 0};
  p->x = gr_operand(l->g, g->root, 0);
  p->axis = (int)gr_attr_i(l->g, g->root, AT_AXIS, 0);
  bool put = taken(p);
  if (!put && p->op != OP_SCATTER && p->op != OP_SCATTER_ADD)
    return gerr_set(e, ERR_IR_FORM, -1, "no put");
  p->update = gr_operand(l->g, g->root, put ? 1 : 2);
  p->first_index = put ? 2 : 1;
  p->indices = put ? (int)l->g->nodes[g->root].operand_count - 2 : 1;
  return copy(p, out, e) && updates(p, out, e);
}
