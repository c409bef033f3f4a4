/* Rows: reductions over the last axes with pointwise work around them, two rows per iteration.
 *
 * In: a group whose values have the shapes R and R x C, where C are the reduced axes. Out: one
 * kernel. A row is worked on in passes: pass p makes the reductions of level p (whose operands need
 * results of level p - 1 at most) together in one loop over the row; the last pass stores what is
 * left. So a softmax is: max; exp and sum; quotient. A value that a later pass needs again is
 * pulled again where it is cheap; an expensive one is kept in a buffer of one row, and an `out` is
 * read back from where it was stored.
 *
 * Reductions over the first axes of the same values (columns) are made on the way: an iteration
 * then has the rows of one of the 16 lanes of a block of 4,096, whose results so far are a local
 * row; what iterations leave behind is combined by a second kernel. So a gradient of a gain costs
 * no pass over memory.
 *
 * If a pass cannot visit a row by one loop (an operand repeats along an axis of C), its operands
 * are first copied side by side. */
#include <string.h>

#include "graph/opcode.h"
#include "jit/lower/lower_op.h"
#include "jit/lower/lower_rows.h"

enum {
  EXPENSIVE = 5, /* cost from which a value is kept: a division; a store and a load cost about 2 */
  EXPENSIVE_OUT = 3,
  LANES = 16,
  BLOCK = 4096,
  SIDE_NODES = 100 /* rows are side by side in groups up to this size */
};

static uint32_t index_of(const Rows *r, Val v) {
  return low_index_of(r->w.l->g, v);
}

static bool full(Rows *r, Val v) {
  return low_count(&r->w, low_type(&r->w, v)) == low_mul(&r->w, r->rows, r->cols);
}

static bool is_col(const Rows *r, Val v) {
  for (int i = 0; i < r->col_count; i++)
    if (val_eq(r->col[i].v, v)) return true;
  return false;
}

/* Whether v is a contraction: the one that computes the rows, or one that reads them. None of them
 * is a value of a row. */
static bool is_dot(const Rows *r, Val v) {
  return gr_node(r->w.l->g, v)->op == OP_DOT;
}

static bool is_out(const Rows *r, Val v) {
  for (uint32_t i = 0; i < r->g->out_count; i++)
    if (val_eq(r->g->outs[i], v)) return true;
  return false;
}

/* Computes depth and cost of the group's values and of views, up to the last one needed. */
static void measure(Rows *r, uint32_t last) {
  const Graph *g = r->w.l->g;
  for (uint32_t n = 0, own = 0; n <= last; n++) {
    const GNode *node = &g->nodes[n];
    while (own < r->g->node_count && r->g->nodes[own] < n) own++;
    if ((own == r->g->node_count || r->g->nodes[own] != n) && !low_pulled(g, n)) continue;
    int depth = 0, cost = op_info[node->op].cost;
    bool fold = low_is_fold((OpCode)node->op);
    if (node->result_count == 0 || g->types[node->result0].kind == TK_TOKEN) continue;
    if (r->w.l->placed[node->result0] || node->op == OP_DOT) continue;
    for (uint32_t k = 0; k < node->operand_count; k++) {
      uint32_t v = index_of(r, g->operands[node->operand0 + k]);
      if (r->depth[v] > depth) depth = r->depth[v];
      cost += r->cost[v];
    }
    if (fold && depth < 255) depth++;
    if (fold || (cost && !full(r, (Val){n, 0}))) cost = 0;
    for (uint32_t k = 0; k < node->result_count; k++) {
      r->depth[node->result0 + k] = (uint8_t)depth;
      r->cost[node->result0 + k] = (int16_t)(cost > 10000 ? 10000 : cost);
    }
  }
}

/* ---- trials */

static bool visit(void *ud, Val v, const Spot *s) {
  Rows *r = ud;
  uint32_t i = index_of(r, v);
  OpCode op = (OpCode)gr_node(r->w.l->g, v)->op;
  if (low_is_fold(op)) return true;
  if (r->strip && val_eq(v, r->strip->score)) {
    if (!r->first[i]) r->first[i] = (uint8_t)r->pass;
    return true;
  }
  if (!r->pass || s != r->all || !op_info[op].cost) return false;
  if (!r->first[i]) r->first[i] = (uint8_t)r->pass;
  if (r->first[i] == r->pass || r->cost[i] < (is_out(r, v) ? EXPENSIVE_OUT : EXPENSIVE))
    return false;
  r->kept[i] = true;
  if (r->last[i] < r->pass) r->last[i] = (uint8_t)r->pass;
  return true;
}

static bool in_pass(const Rows *r, Val v, int pass) {
  int first = r->first[index_of(r, v)];
  return first ? first == pass : pass == r->passes + 1;
}

/* Whether v is computed from rows by another contraction, or is its transpose. */
static bool after(const Rows *r, Val v) {
  if (!r->strip || val_eq(v, r->strip->score)) return false;
  return is_dot(r, v) || gr_node(r->w.l->g, v)->op == OP_TRANSPOSE;
}

/* Makes the pulls of pass r->pass. Pass 0 pulls everything: the pieces of rows are chosen by it. */
static void pull_pass(Low *w, const Spot *kept, const Spot *all, void *ud) {
  Rows *r = ud;
  w->memo->watch->visit = visit;
  w->memo->watch->ud = r;
  r->all = all;
  for (int i = 0; i < r->fold_count; i++) {
    if (!r->pass || r->level[i] == r->pass) low_at(w, r->fold[i].x, all);
  }
  for (int i = 0; i < r->col_count; i++) {
    if (!r->pass || in_pass(r, r->col[i].x, r->pass)) low_at(w, r->col[i].x, all);
  }
  for (int i = 0; r->strip && i < r->strip->count; i++) {
    if (!r->pass || in_pass(r, r->strip->left[i], r->pass)) low_at(w, r->strip->left[i], all);
  }
  for (uint32_t i = 0; i < r->g->out_count; i++) {
    Val v = r->g->outs[i];
    if (is_col(r, v) || after(r, v)) continue;
    if (!full(r, v)) {
      if (!r->pass) low_at(w, v, kept);
    } else if (!r->pass || in_pass(r, v, r->pass)) {
      low_at(w, v, all);
    }
  }
}

static bool choose_pass(Rows *r, int pass, const Dim *size, int n) {
  Dim all[MAX_DIGITS];
  uint8_t cls[MAX_DIGITS];
  int count = 0;
  if (r->kept_space.count + n > MAX_DIGITS) return low_fail(&r->w, "too many axes"), false;
  for (int i = 0; i < r->kept_space.count; i++) {
    all[count] = r->kept_space.size[i];
    cls[count] = (uint8_t)(1 + count); /* stay apart */
    count++;
  }
  for (int i = 0; i < n; i++) {
    all[count] = size[i];
    cls[count++] = REDUCED;
  }
  r->pass = pass;
  return low_space(&r->w, count, all, cls, pull_pass, r, &r->space[pass]);
}

/* ---- the kernel */

LVal low_kept(Low *w, const Keep *k, const Spot *s) {
  for (int u = 0; u < w->memo->rows; u++) {
    const Spot *row = w->memo->row[u];
    bool same = s->count >= row->count;
    for (uint32_t i = 0; i < row->count && same; i++) {
      same = s->d[i].v == row->d[i].v && s->d[i].n == row->d[i].n;
    }
    if (!same) continue;
    uint32_t from = k->local ? row->count : 0;
    LVal at = low_merge(w, s->d + from, (int)(s->count - from));
    if (k->strip) at = lp_bin(w->k, RB_ADD, k->at[u], at);
    return lp_load(w->k, k->buf[u], at);
  }
  return LV_NONE;
}

static int row_buffer(Rows *r, DType dt) {
  int64_t n;
  if (low_known(&r->w, r->cols, &n)) return low_local(&r->w, dt, -1, n > 0 ? n : 1);
  return low_local(&r->w, dt, low_dim_arg(&r->w, r->cols), 1);
}

static const Spot *in_row(Rows *r, int u, const Digit *cols, int n) {
  Digits d = {0};
  for (uint32_t i = 0; i < r->row[u]->count; i++) d.d[d.count++] = r->row[u]->d[i];
  for (int i = 0; i < n; i++) low_digit(&r->w, &d, cols[i].v, cols[i].n);
  return low_spot(&r->w, d.d, d.count);
}

static bool full_out(Rows *r, uint32_t i) {
  Val v = r->g->outs[i];
  return !is_col(r, v) && !after(r, v) && full(r, v);
}

/* Adds the present rows to the columns whose operands pass p computes. */
static void add_columns(Rows *r, int p, const Digit *cols, int n) {
  Low *w = &r->w;
  for (int i = 0; i < r->col_count; i++) {
    const Fold *f = &r->col[i];
    if (!in_pass(r, f->x, p)) continue;
    LVal at = low_merge(w, cols, n), sum = lp_load(w->k, r->acc[i], at);
    for (int u = 0; u < r->side; u++) {
      LVal x = low_fold_x(w, f, in_row(r, u, cols, n));
      if (x == LV_NONE) return;
      LVal next = lp_bin(w->k, f->f, sum, x);
      sum = u ? lp_where(w->k, r->there[u], next, sum) : next;
    }
    lp_store(w->k, r->acc[i], at, sum);
  }
}

typedef int Stage[MAX_FOLDS][SIDE];

/* Stores the values of a row that pass p computes and later passes read, and, if `stage`, the
 * operands of its reductions. */
static void store_pass(Rows *r, int p, int u, const Digit *cols, int n, Stage stage) {
  Low *w = &r->w;
  const Spot *s = in_row(r, u, cols, n);
  for (int i = 0; stage && i < r->fold_count; i++) {
    if (r->level[i] != p) continue;
    LVal x = low_fold_x(w, &r->fold[i], s);
    if (x != LV_NONE) lp_store(w->k, stage[i][u], low_merge(w, cols, n), x);
  }
  for (uint32_t i = 0; i < r->g->out_count; i++) {
    if (full_out(r, i) && in_pass(r, r->g->outs[i], p)) low_store(w, r->g->outs[i], s);
  }
  for (int i = 0; r->strip && i < r->strip->count; i++) {
    bool twice = false; /* two contractions read it */
    for (int j = 0; j < i; j++) twice |= r->strip->lefts[j] == r->strip->lefts[i];
    if (twice || !in_pass(r, r->strip->left[i], p)) continue;
    LVal x = low_at(w, r->strip->left[i], s);
    if (x == LV_NONE) return;
    lp_store(w->k, r->strip->lefts[i], add(w, r->strip->at[u], low_merge(w, cols, n)), x);
  }
  for (uint32_t i = 0; i < r->g->node_count; i++) {
    Val v = {r->g->nodes[i], 0};
    const Keep *k = &w->memo->keep[index_of(r, v)];
    if (!r->kept[index_of(r, v)] || r->first[index_of(r, v)] != p || !k->local) continue;
    LVal x = low_at(w, v, s);
    if (x != LV_NONE) lp_store(w->k, k->buf[u], low_merge(w, cols, n), x);
  }
}

static int col_pieces(const Space *s, Dim *size) {
  int n = 0;
  for (int i = 0; i < s->count; i++)
    if (s->cls[i] == REDUCED) size[n++] = s->size[i];
  return n;
}

static void pass_loops(Rows *r, int p, Stage stage) {
  Low *w = &r->w;
  Dim size[MAX_DIGITS];
  Digit at[MAX_DIGITS] = {{0}};
  int n = col_pieces(&r->space[p], size);
  for (int i = 0; i < n; i++) {
    LVal count = low_dim(w, size[i]);
    at[i] = (Digit){i == n - 1 ? lp_vec(w->k, count) : lp_for(w->k, count), size[i]};
  }
  for (int u = 0; u < r->side; u++) store_pass(r, p, u, at, n, stage);
  add_columns(r, p, at, n);
  for (int i = 0; i < n; i++) lp_end(w->k);
}

static void reduce_pass(Rows *r, int p) {
  Low *w = &r->w;
  Dim size[MAX_DIGITS];
  LVal y[MAX_FOLDS][SIDE];
  Stage stage;
  int n = col_pieces(&r->space[p], size);
  bool staged = n > 1;
#define EACH                                                                                       \
  for (int u = 0; u < r->side; u++)                                                                \
    for (int i = 0; i < r->fold_count; i++)                                                        \
      if (r->level[i] == p)
  EACH if (staged) stage[i][u] = row_buffer(r, r->fold[i].dt);
  if (staged) pass_loops(r, p, stage);
  Digit at = {lp_red(w->k, low_dim(w, r->cols)), r->cols};
  EACH {
    LVal x = staged ? lp_load(w->k, stage[i][u], at.v)
                    : low_fold_x(w, &r->fold[i], in_row(r, u, &at, 1));
    if (x == LV_NONE) return;
    y[i][u] = lp_yield(w->k, r->fold[i].kind, x, LV_NONE);
  }
  for (int u = 0; u < r->side && !staged; u++) store_pass(r, p, u, &at, 1, NULL);
  if (!staged) add_columns(r, p, &at, 1);
  lp_end(w->k);
  EACH low_fold_know(w, &r->fold[i], r->row[u], lp_result(w->k, y[i][u]));
#undef EACH
}

/* A buffer of the dtype that no kept value needs in pass p, or a new one. */
static void row_buffers(Rows *r, Keep *keep, DType dt, int p) {
  Low *w = &r->w;
  for (size_t i = 0; i < w->l->g->type_count; i++) {
    const Keep *old = &w->memo->keep[i];
    if (!r->kept[i] || !old->local || r->last[i] >= p || old->taken) continue;
    if (w->k->bufs[old->buf[0]].dtype != dt) continue;
    w->memo->keep[i].taken = true;
    memcpy(keep->buf, old->buf, sizeof keep->buf);
    return;
  }
  for (int u = 0; u < r->side; u++) keep->buf[u] = row_buffer(r, dt);
}

static void place_kept(Rows *r, int p) {
  Low *w = &r->w;
  for (uint32_t i = 0; i < r->g->node_count; i++) {
    Val v = {r->g->nodes[i], 0};
    uint32_t at = index_of(r, v);
    Keep *keep = &w->memo->keep[at];
    if (!r->kept[at] || r->first[at] != p) continue;
    if (!is_out(r, v)) {
      row_buffers(r, keep, (DType)low_type(w, v)->dtype, p);
      keep->local = true;
      continue;
    }
    for (int u = 0; u < r->side; u++) keep->buf[u] = low_value(w, v, LB_INOUT);
  }
}

const Spot *rows_spot(Rows *r, LVal x) {
  Digit at[MAX_DIGITS];
  int n = r->kept_space.count;
  for (int i = n - 1; i > 0; i--) {
    at[i] = (Digit){low_take(&r->w, &x, r->kept_space.size[i]), r->kept_space.size[i]};
  }
  if (n) at[0] = (Digit){x, r->kept_space.size[0]};
  return low_spot(&r->w, at, n);
}

void rows_passes(Rows *r) {
  Low *w = &r->w;
  bool more = false;
  for (uint32_t i = 0; i < r->g->out_count; i++) {
    more = more || (full_out(r, i) && in_pass(r, r->g->outs[i], r->passes + 1));
  }
  for (int i = 0; i < r->col_count; i++) more = more || in_pass(r, r->col[i].x, r->passes + 1);
  for (int i = 0; r->strip && i < r->strip->count; i++) {
    more = more || in_pass(r, r->strip->left[i], r->passes + 1);
  }
  for (int p = 1; p <= r->passes + more; p++) {
    place_kept(r, p);
    if (p <= r->passes)
      reduce_pass(r, p);
    else
      pass_loops(r, p, NULL);
    for (size_t i = 0; i < w->l->g->type_count; i++) {
      if (r->kept[i] && r->first[i] == p) w->memo->keep[i].ready = true;
    }
  }
  for (uint32_t i = 0; i < r->g->out_count; i++) {
    Val v = r->g->outs[i];
    if (is_col(r, v) || after(r, v) || full(r, v)) continue;
    for (int u = 0; u < r->side; u++) low_store(w, r->g->outs[i], r->row[u]);
  }
}

/* Makes an iteration of `side` rows. If fewer are left, the last one is computed twice, with the
 * same stores. */
static void by_rows(Rows *r) {
  Low *w = &r->w;
  Kernel *k = w->k;
  LVal first = mul(w, lp_par(k, low_dim(w, low_ceil_div(w, r->rows, r->side))), lp_i(k, r->side));
  LVal last = low_dim(w, low_sub(w, r->rows, low_const_dim(w, 1)));
  for (int u = 0; u < r->side; u++) {
    LVal x = u ? low_least(w, add(w, first, lp_i(k, u)), last) : first;
    w->memo->row[u] = r->row[u] = rows_spot(r, x);
  }
  rows_passes(r);
  lp_end(k);
}

/* Makes an iteration of the rows of one lane of a block. */
static void by_lanes(Rows *r, uint32_t panel0) {
  Low *w = &r->w;
  Kernel *k = w->k;
  LVal lanes = lp_i(k, LANES), one = lp_i(k, 1);
  for (int i = 0; i < r->col_count; i++) r->acc[i] = row_buffer(r, r->col[i].dt);
  LVal t = lp_par(k, low_dim(w, low_mul(w, r->blocks, low_const_dim(w, LANES))));
  LVal from = mul(w, lp_idiv(k, t, lanes), lp_i(k, BLOCK)), lane = lp_irem(k, t, lanes);
  LVal n = low_least(w, lp_bin(k, RB_SUB, low_dim(w, r->rows), from), lp_i(k, BLOCK));
  n = lp_idiv(k, add(w, lp_bin(k, RB_SUB, n, lane), lp_i(k, LANES - 1)), lanes);
  LVal c = lp_vec(k, low_dim(w, r->cols));
  for (int i = 0; i < r->col_count; i++) {
    lp_store(k, r->acc[i], c, lp_const(k, r->col[i].dt, r->col[i].start));
  }
  lp_end(k);
  LVal pairs = lp_idiv(k, add(w, n, lp_i(k, r->side - 1)), lp_i(k, r->side));
  LVal first = mul(w, lp_for(k, pairs), lp_i(k, r->side)), last = lp_bin(k, RB_SUB, n, one);
  for (int u = 0; u < r->side; u++) {
    LVal x = add(w, first, lp_i(k, u));
    r->there[u] = lp_bin(k, RB_LE, x, last);
    if (u) x = low_least(w, x, last);
    w->memo->row[u] = r->row[u] = rows_spot(r, add(w, add(w, from, lane), mul(w, x, lanes)));
  }
  rows_passes(r);
  lp_end(k);
  c = lp_vec(k, low_dim(w, r->cols));
  for (int i = 0; i < r->col_count; i++) {
    int buf = low_panel(w, panel0 + (uint32_t)i, r->col[i].dt, LB_OUT);
    lp_store(k, buf, add(w, mul(w, t, low_dim(w, r->cols)), c), lp_load(k, r->acc[i], c));
  }
  lp_end(k);
  lp_end(k);
}

/* ---- what the group is */

typedef enum Over { OVER_COLS, OVER_ROWS, OVER_OTHER } Over;

/* Whether a reduction is over the last or the first axes; *rows and *cols: the shape of its
 * operand. */
static Over shape_of(Low *w, const Fold *f, Dim *rows, Dim *cols) {
  const Attr *axes = gr_attr(w->l->g, f->v.node, AT_AXES);
  const Type *x = low_type(w, f->x);
  bool reduced[CKL_MAX_RANK] = {false}, before = false;
  int changes = 0, first = -1;
  Dim gone = low_const_dim(w, 1), stay = gone;
  for (uint32_t k = 0; k < axes->count; k++) reduced[axes->u.ints[k]] = true;
  for (int k = 0; k < x->rank; k++) {
    if (low_is(w, x->dim[k], 1)) continue;
    *(reduced[k] ? &gone : &stay) = low_mul(w, reduced[k] ? gone : stay, x->dim[k]);
    if (first < 0)
      first = reduced[k];
    else if (before != reduced[k])
      changes++;
    before = reduced[k];
  }
  bool over_rows = first == 1 && changes == 1;
  *rows = over_rows ? gone : stay;
  *cols = over_rows ? stay : gone;
  return over_rows                                      ? OVER_ROWS
         : changes == 0 || (first == 0 && changes == 1) ? OVER_COLS
                                                        : OVER_OTHER;
}

static bool collect(Rows *r, GErr *e) {
  Low *w = &r->w;
  const Graph *g = w->l->g;
  bool seen = false;
  for (int want = OVER_COLS; want <= OVER_ROWS; want++) {
    for (uint32_t i = 0; i < r->g->node_count; i++) {
      uint32_t node = r->g->nodes[i];
      Dim rows, cols;
      if (!low_is_fold((OpCode)g->nodes[node].op)) continue;
      if (r->fold_count == MAX_FOLDS || r->col_count == MAX_FOLDS) {
        return gerr_set(e, ERR_IR_FORM, -1, "more than %d reductions", MAX_FOLDS);
      }
      Fold f = low_fold(w, node);
      Over over = shape_of(w, &f, &rows, &cols);
      if (over == OVER_OTHER)
        return gerr_set(e, ERR_IR_FORM, -1, "the reduced axes are not the last");
      if ((int)over != want) continue;
      if (!seen) {
        r->rows = rows;
        r->cols = cols;
      } else if (rows != r->rows || cols != r->cols) {
        return gerr_set(e, ERR_IR_FORM, -1, "rows of different sizes");
      }
      seen = true;
      if (over == OVER_COLS)
        r->fold[r->fold_count++] = f;
      else
        r->col[r->col_count++] = f;
    }
  }
  r->blocks = low_ceil_div(w, r->rows, BLOCK);
  return seen || gerr_set(e, ERR_IR_FORM, -1, "no reduction");
}

bool rows_begin(Rows *r, Lower *l, const Group *g, Strip *strip, GErr *e) {
  Low *w = &r->w;
  uint32_t last = 0;
  *r = (Rows){.g = g, .strip = strip};
  low_begin(w, l, g, e);
  if (!collect(r, e)) return false;
  size_t n = l->g->type_count;
  r->depth = ARENA_ARRAY(l->arena, uint8_t, n);
  r->first = ARENA_ARRAY(l->arena, uint8_t, n);
  r->last = ARENA_ARRAY(l->arena, uint8_t, n);
  r->cost = ARENA_ARRAY(l->arena, int16_t, n);
  r->kept = ARENA_ARRAY(l->arena, bool, n);
  for (uint32_t i = 0; i < g->out_count; i++) {
    if (after(r, g->outs[i])) continue;
    if (g->outs[i].node > last) last = g->outs[i].node;
    Dim count = low_count(w, low_type(w, g->outs[i]));
    if (is_col(r, g->outs[i])) continue;
    if (count != r->rows && !full(r, g->outs[i])) {
      return gerr_set(e, ERR_IR_FORM, -1, "an out is neither a row's nor a row");
    }
  }
  for (int i = 0; i < r->fold_count; i++)
    if (r->fold[i].v.node > last) last = r->fold[i].v.node;
  for (int i = 0; i < r->col_count; i++)
    if (r->col[i].v.node > last) last = r->col[i].v.node;
  for (int i = 0; strip && i < strip->count; i++)
    if (strip->left[i].node > last) last = strip->left[i].node;
  measure(r, last);
  for (int i = 0; i < r->fold_count; i++) {
    r->level[i] = r->depth[index_of(r, r->fold[i].v)];
    if (r->level[i] > r->passes) r->passes = r->level[i];
  }
  if (r->passes >= MAX_PASSES)
    return gerr_set(e, ERR_IR_FORM, -1, "more than %d passes", MAX_PASSES - 1);

  const Fold *f = r->fold_count ? &r->fold[0] : &r->col[0];
  const Type *t = low_type(w, f->x);
  const Attr *axes = gr_attr(l->g, f->v.node, AT_AXES);
  uint8_t cls[CKL_MAX_RANK], in = r->fold_count ? REDUCED : 0;
  memset(cls, REDUCED - in, sizeof cls);
  for (uint32_t i = 0; i < axes->count; i++) cls[axes->u.ints[i]] = in;
  if (!low_space(w, t->rank, t->dim, cls, pull_pass, r, &r->space[0])) return false;
  Dim cols[MAX_DIGITS];
  int cols_n = 0;
  for (int i = 0; i < r->space[0].count; i++) {
    if (r->space[0].cls[i] == REDUCED)
      cols[cols_n++] = r->space[0].size[i];
    else
      r->kept_space.size[r->kept_space.count++] = r->space[0].size[i];
  }
  for (int p = 1; p <= r->passes + 1; p++)
    if (!choose_pass(r, p, cols, cols_n)) return false;

  low_begin(w, l, g, e);
  w->memo->keep = ARENA_ARRAY(l->arena, Keep, n);
  w->flops = low_mul(w, low_mul(w, r->rows, r->cols), low_cost(w));
  bool alone = low_is(w, r->rows, 1) || g->node_count > SIDE_NODES;
  r->side = w->memo->rows = alone ? 1 : SIDE;
  return !w->failed;
}

bool low_rows(Lower *l, const Group *g, Lowered *out, GErr *e) {
  Rows *r = ARENA_NEW(l->arena, Rows);
  Low *w = &r->w;
  if (!rows_begin(r, l, g, NULL, e)) return false;
  if (!r->col_count) {
    by_rows(r);
    low_finish(w, out);
    return !w->failed;
  }
  uint32_t panel0 = (uint32_t)out->panel_count;
  Dim lanes = low_mul(w, r->blocks, low_const_dim(w, LANES));
  for (int i = 0; i < r->col_count; i++) {
    Panel p = {r->col[i].dt, low_mul(w, lanes, r->cols)};
    VEC_PUSH(l->arena, out->panels, out->panel_count, out->panel_cap, p);
  }
  by_lanes(r, panel0);
  low_finish(w, out);
  Tree tree = {.results = r->cols, .blocks = r->blocks, .lanes = true, .panel0 = panel0};
  tree.fold = r->col;
  tree.count = r->col_count;
  tree.out = ARENA_ARRAY(l->arena, Val, g->out_count + 1);
  for (uint32_t i = 0; i < g->out_count; i++)
    if (is_col(r, g->outs[i])) tree.out[tree.out_count++] = g->outs[i];
  return !w->failed && low_tree(l, g, &tree, out, e);
}
