/* Lists of code whose number of elements data decides (rule 41).
 *
 * In: what the turns of a loop added, as stashes (graph/stash.h). Out: a tensor of a size that the
 * program gives, with as many elements as fit, and their number. No size depends on data (rule 37),
 * so this is all that such a list can become.
 *
 * The elements are written into zeros by a loop over the rows. What a turn takes from the one
 * before is one value with what that one added, as in script (rule 74): its rows are those that the
 * turns take, and the first or last element is the value before or behind the loop.
 */
#include "lang/eval/rows.h"

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sides.h"
#include "lang/value/fail.h"

/* The tuple that stands for a source; ZEROS: of a row's type. */
enum { KIND, STASH, ZEROS, END, PARTS };

static Value node(const Session *s, Val v) {
  return (Value){.tag = V_NODE, .aux = s->stage->level, .u.v = v};
}

static Value zeros_of(Session *s, const Type *t, Span at) {
  B b = {.g = s->stage->g};
  stage_at(s, at);
  Val v = b_zeros(&b, t);
  if (b.failed) fail_gerr(s, at, &b.err);
  return node(s, v);
}

Value rows_new(Session *s, Value front, Value turns, size_t n, const RowSource *sources, Span at) {
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 2);
  items[0] = front;
  items[1] = turns;
  for (size_t i = 0; i < n; i++) {
    const RowSource *r = &sources[i];
    Value part[PARTS] = {v_int(r->kind), v_unit(), zeros_of(s, &r->type, at), v_unit()};
    if (r->kind != ROW_FIXED) part[STASH] = node(s, r->stash);
    if (r->kind != ROW_OWN) part[END] = node(s, r->end);
    items[2 + i] = v_list(s, V_TUPLE, PARTS, part);
  }
  return v_list(s, V_ROWS, n + 2, items);
}

void rows_refuse(Session *s, Span at) {
  fail_help(
      s, ERR_NOT_CONST, at,
      "`stack(xs, most = n)` gives (tensor, number of elements) of a known size, and `len(xs)` "
      "the number",
      "in code the size of a result cannot depend on data: here a list has as many elements as "
      "a loop has turns");
}

static Value number(Session *s, AstOp op, Value x, Value y, Span at) {
  return op_binary(s, op, x, y, at, at, at);
}

Value rows_count(Session *s, Value rows, Span at) {
  const List *l = rows.u.list;
  Value per_turn = number_node(s, (int64_t)l->count - 2);
  Value front = number_node(s, (int64_t)l->items[0].u.list->count);
  return number(s, AST_ADD, number(s, AST_MUL, l->items[1], per_turn, at), front, at);
}

/* The places that a turn, or the end, writes. */
typedef struct Fill {
  Session *s;
  const List *rows;
  Value into, turn; /* the number of the turn whose elements are written */
  Value *row;       /* per source: what is written; NULL: what is at an end */
  RowKind kind;     /* of the sources whose elements are written; FIXED counts as OWN */
  int64_t most;     /* places from there on are not written */
  Value x, place;   /* the element that is written */
  Span at;
} Fill;

static const Value *source(const List *rows, size_t i) {
  return rows->items[2 + i].u.list->items;
}

static Value write_one(Session *s, void *ud) {
  const Fill *f = ud;
  Attr axis = attr_i(AT_AXIS, 0);
  Value v[3] = {f->into, f->x, f->place};
  return op_run(s, OP_PUT, 3, v, &axis, 1, f->at);
}

static Value left_alone(Session *s, void *ud) {
  (void)s;
  return ((Fill *)ud)->into;
}

/* Writes the elements of the sources of the kind. One that does not fit has no gradient. */
static Value write_rows(Session *s, void *ud) {
  Fill f = *(const Fill *)ud;
  int64_t front = (int64_t)f.rows->items[0].u.list->count, k = (int64_t)f.rows->count - 2;
  for (int64_t i = 0; i < k; i++) {
    const Value *part = source(f.rows, (size_t)i);
    bool fixed = part[KIND].u.i == ROW_FIXED && f.kind == ROW_OWN;
    if (part[KIND].u.i != (int64_t)f.kind && !fixed) continue;
    Value at = number(s, AST_MUL, f.turn, number_node(s, k), f.at);
    f.place = number(s, AST_ADD, at, number_node(s, front + i), f.at);
    f.x = fixed || !f.row ? part[END] : f.row[i];
    SideChoice c = {.at = f.at, .side = {write_one, left_alone}, .ud = &f};
    f.into = sides_stage(s, number(s, AST_LT, f.place, v_int(f.most), f.at), &c);
  }
  return f.into;
}

static bool has_kind(const List *rows, RowKind kind) {
  for (size_t i = 0; i + 2 < rows->count; i++)
    if (source(rows, i)[KIND].u.i == (int64_t)kind) return true;
  return false;
}

/* The same where the condition holds. */
static void write_if(Fill *f, Value holds) {
  SideChoice c = {.at = f->at, .side = {write_rows, left_alone}, .ud = f};
  if (has_kind(f->rows, f->kind)) f->into = sides_stage(f->s, holds, &c);
}

/* Writes the rows of the first `turns` turns, by a loop. */
static Value fill(Session *s, const List *rows, Value into, Value turns, int64_t most, Span at) {
  size_t k = rows->count - 2;
  Val *args = ARENA_ARRAY(&s->scratch, Val, k + 2);
  Value *row = ARENA_ARRAY(&s->scratch, Value, k + 1);
  args[0] = stage_lift(s, turns, at).u.v;
  args[1] = stage_lift(s, into, at).u.v;
  Type number_type = {.kind = TK_TENSOR, .dtype = DT_I64}, of = op_type_of(s, into);
  of.alias = 0;
  size_t mapped = 0;
  for (size_t i = 0; i < k; i++)
    if (source(rows, i)[KIND].u.i != ROW_FIXED)
      args[2 + mapped++] = stage_lift(s, source(rows, i)[STASH], at).u.v;
  Stage st;
  region_open(s, &st, NULL);
  Value turn = node(s, gr_input(st.g, &number_type));
  turn.weak = true;
  Fill f = {.s = s, .rows = rows, .turn = turn, .row = row, .most = most, .at = at};
  f.into = node(s, gr_input(st.g, &of));
  for (size_t i = 0; i < k; i++) {
    if (source(rows, i)[KIND].u.i == ROW_FIXED) continue;
    Type t = op_type_of(s, source(rows, i)[ZEROS]);
    t.alias = 0;
    row[i] = node(s, gr_input(st.g, &t));
  }
  f.into = write_rows(s, &f);
  Value later = number(s, AST_GT, turn, v_int(0), at);
  f.kind = ROW_TAKEN;
  write_if(&f, later);
  f.kind = ROW_LEFT;
  f.turn = number(s, AST_SUB, turn, number_node(s, 1), at);
  write_if(&f, later);
  gr_output(st.g, stage_lift(s, f.into, at).u.v);
  stage_pop(s);
  size_t n = 2 + mapped + st.capture_count;
  Val *all = ARENA_ARRAY(&s->scratch, Val, n);
  for (size_t i = 0; i < n; i++) all[i] = i < 2 + mapped ? args[i] : st.outer[i - 2 - mapped];
  Attr attrs[2] = {attr_i(AT_CARRY, 1), attr_i(AT_MAPPED, (int64_t)mapped)};
  GErr e = {.code = ERR_BUG, .operand = -1};
  stage_at(s, at);
  Val v = gr_op(s->stage->g, OP_LOOP, all, (int)n, attrs, 2, &st.g, 1, &e);
  if (val_none(v)) fail_gerr(s, at, &e);
  return node(s, v);
}

/* `n` elements of x along axis 0. */
static Value first_rows(Session *s, Value x, int64_t n, Span at) {
  Type t = op_type_of(s, x);
  int64_t starts[CKL_MAX_RANK], lens[CKL_MAX_RANK], steps[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    starts[i] = dim_const(op_dims_of(s), 0);
    lens[i] = i ? t.dim[i] : dim_const(op_dims_of(s), n);
    steps[i] = 1;
  }
  Attr a[3] = {attr_dims(AT_STARTS, t.rank, starts), attr_dims(AT_LENS, t.rank, lens),
               attr_ints(AT_STEPS, t.rank, steps)};
  return op_run(s, OP_SLICE, 1, &x, a, 3, at);
}

Value rows_fit(Session *s, Value x, int64_t n, Span at) {
  Type t = op_type_of(s, x);
  int64_t have = 0, low[CKL_MAX_RANK], high[CKL_MAX_RANK], inner[CKL_MAX_RANK] = {0};
  unit_need_const(s, t.dim[0], at, "the number of elements", &have);
  if (have >= n) return first_rows(s, x, n, at);
  for (int i = 0; i < t.rank; i++) low[i] = high[i] = dim_const(op_dims_of(s), 0);
  high[0] = dim_const(op_dims_of(s), n - have);
  Attr a[3] = {attr_dims(AT_LOW, t.rank, low), attr_dims(AT_HIGH, t.rank, high),
               attr_ints(AT_INNER, t.rank, inner)};
  return op_run(s, OP_PAD, 1, &x, a, 3, at);
}

Value rows_stack(Session *s, Value v, int64_t most, Span at) {
  const List *rows = v.u.list, *front = rows->items[0].u.list;
  int64_t k = (int64_t)rows->count - 2, before = (int64_t)front->count;
  Value total = rows_count(s, v, at);
  /* zeros for the turns that fit, and one more: what a turn leaves is a row of the next */
  int64_t turns = most > before ? (most - before + k - 1) / k : 0, places = k * (turns + 1);
  Value *items = ARENA_ARRAY(&s->scratch, Value, (size_t)(before + k) + 1);
  for (int64_t i = 0; i < before; i++) items[i] = front->items[i];
  for (int64_t i = 0; i < k; i++)
    items[before + i] = stage_lift(s, source(rows, (size_t)i)[ZEROS], at);
  Type t = op_type_of(s, op_stack(s, (size_t)(before + k), items, 0, at)); /* all of one type */
  t.dim[0] = dim_const(op_dims_of(s), places);
  Value all[2] = {v_unit(), zeros_of(s, &t, at)};
  Value into = all[1];
  if (before) {
    all[0] = op_stack(s, (size_t)before, items, 0, at);
    into = op_concat(s, 2, all, 0, at);
  }
  Value known = stage_lift(s, rows->items[1], at), bound = number_node(s, turns + 1);
  Value v2[2] = {known, stage_lift(s, bound, at)};
  Value fit = op_run(s, OP_MIN, 2, v2, NULL, 0, at);
  fit.weak = true;
  into = fill(s, rows, into, fit, most, at);
  Fill f = {.s = s, .rows = rows, .into = into, .most = most, .at = at, .kind = ROW_TAKEN};
  Value some = number(s, AST_GT, known, v_int(0), at);
  f.turn = number_node(s, 0);
  write_if(&f, some);
  Value ends[2] = {some, number(s, AST_LE, known, v_int(turns + 1), at)};
  f.kind = ROW_LEFT;
  f.turn = number(s, AST_SUB, known, number_node(s, 1), at);
  write_if(&f, op_run(s, OP_AND, 2, ends, NULL, 0, at));
  Value out[2] = {first_rows(s, f.into, most, at), total};
  return v_list(s, V_TUPLE, 2, out);
}
