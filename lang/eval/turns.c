/* Loops of code that stay loops (rules 40 to 43): `while`, and a `for` whose number of turns is not
 * known when it is compiled, or is large.
 *
 * In: the loop, and how many turns it has. Out: a `loop` node. One turn is staged as its region.
 * What a turn leaves behind (left.h) is carried: variables that it assigns, buffers that it writes,
 * how often it has drawn random numbers, the order of effects, and exits. What it carries is found
 * by staging: what the body assigns by its text, all else by what the region has changed; then it
 * is staged once more. An exit that depends on data, and the condition of `while`, are one carried
 * bool: whether there is a next turn. The condition is computed before the loop, and at the end of
 * each turn.
 *
 * A number that a turn makes a tensor is one in the first turn alone, which then stands in front of
 * the loop, under the condition that there is one.
 *
 * Invariant: a turn of the node does what the same turn does in script, with the same operations in
 * the same order.
 */
#include "lang/eval/turns.h"

#include <string.h>

#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/history.h"
#include "lang/eval/left.h"
#include "lang/eval/loop_body.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/rows.h"
#include "lang/eval/seq.h"
#include "lang/eval/sides.h"
#include "lang/eval/state.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"

typedef enum PlaceKind {
  PLACE_VAR,
  PLACE_STATE,
  PLACE_RETURNED,
  PLACE_VALUE,
  PLACE_DRAWS
} PlaceKind;

/* A place whose value goes from turn to turn. */
typedef struct Carried {
  PlaceKind kind;
  size_t index; /* in Left.vars or .state, or of the site in Unit.draws */
  Value before, in, out;
  bool still; /* the turn leaves what it found */
  bool grows; /* a list to which the turn adds; `out` is what it adds */
  /* Of its tensors and numbers, in order: those that the turn was seen to leave as they are, and
   * those that are not carried for that. NULL: none, so far. */
  bool *left, *kept;
  size_t leaves;
} Carried;

/* What a turn adds to lists: a value of the region, kept turn by turn. */
typedef struct Kept {
  Val v;          /* of the region */
  int64_t carry;  /* it is what the turn takes as, or leaves in, this carried value; or -1 */
  bool left;      /* it leaves it */
  uint32_t stash; /* the output of the region that keeps it */
  Val *rows;      /* behind the loop, turn by turn */
} Kept;

/* Each turn that stands in front of a loop makes one number at least a tensor. */
enum { MOST_FROM = 8 };

typedef struct Turns {
  Session *s;
  Node *st;
  Value it, lo, count; /* count: unit for a `while` */
  Value goes;          /* whether there is a first turn: of a `while` */
  int64_t from;        /* turns that stand in front of the loop */
  Left left;
  Carried *items;
  size_t item_count, item_cap;
  bool flag, effects; /* carries whether there is a next turn; a token */
  bool peel;          /* one more turn has to stand in front of the loop */
  Stage stage;
  Value turns;      /* a bound of their number; without exits that is it */
  Dim counter;      /* the number of the turn in sizes; DIM_BAD: in none */
  Val *args, *outs; /* of the node; of the region */
  size_t arg_count, arg_cap, out_count, out_cap, next;
  bool again;    /* a list was seen to grow */
  size_t leaf;   /* of the place that is looked at: tensors and numbers that were gone through */
  bool apart;    /* under no_grad, what may leave it is carried in both forms (stage.h) */
  bool tried;    /* otherwise it is unrolled */
  int64_t keeps; /* states of so many turns, or of each so-many-th; 0: all values */
  bool every;
  Kept *kept;
  size_t kept_count, kept_cap;
  History history; /* of gradients in the turn */
  Val node;
} Turns;

/* ---- gradients inside of a turn */

History *turns_history(const Stage *st) {
  return &st->turns->history;
}

static bool has_leaf(const Turns *t, Value v, Val x) {
  stack_check();
  if (v.tag == V_NODE) return v.aux == t->stage.level && val_eq(v.u.v, x);
  size_t n;
  Value *parts = value_parts(t->s, v, &n);
  for (size_t i = 0; parts && i < n; i++)
    if (has_leaf(t, parts[i], x)) return true;
  return false;
}

/* `x`, the variable that is carried as this input, if there is one. */
static const char *carried_name(Session *s, void *ud, Val in) {
  const Turns *t = ud;
  for (size_t i = 0; i < t->item_count; i++)
    if (t->items[i].kind == PLACE_VAR && has_leaf(t, t->items[i].in, in))
      return fail_text(s, "`%s`", s->locals[t->left.vars[t->items[i].index].local].name);
  return "a value";
}

static void check_gradients(Turns *t) {
  Turned of = {&t->stage, &t->history, t->arg_count, t->args, t->outs, carried_name, t};
  history_check(t->s, &of);
}

/* The counter of the loop in its first turn, as far as it is known. */
static int64_t first_number(const Turns *t) {
  int64_t lo = t->lo.tag == V_INT && t->lo.u.i > 0 ? t->lo.u.i : 0, sum;
  return __builtin_add_overflow(lo, t->from, &sum) ? 0 : sum;
}

Dim turns_counter(const Stage *st, bool make, int64_t *first) {
  Turns *t = st->turns;
  *first = first_number(t);
  const Node *var = t->st->loop.pat;
  Name name = var && var->kind == N_PAT_NAME ? var->name : NULL;
  if (t->counter == DIM_BAD && make) t->counter = dim_counter(st->g->dims, name, t->st->span, NULL);
  return t->counter;
}

typedef struct FindTurn {
  Sym own;
  bool found;
} FindTurn;

static void find_turn(void *ud, Sym k) {
  FindTurn *f = ud;
  f->found |= k == f->own;
}

/* Whether a size of the type differs from turn to turn. */
static bool sized_by_turn(const Turns *t, const Type *of) {
  const DimTab *dims = t->stage.g->dims;
  FindTurn f = {0, false};
  if (t->counter == DIM_BAD || !dim_is_symbol(dims, t->counter, &f.own)) return false;
  for (int k = 0; k < of->rank; k++) dim_symbols(dims, of->dim[k], find_turn, &f);
  return f.found;
}

/* ---- values that are carried: trees of tensors and numbers */

static bool numeric(Value v) {
  return v_is_tensor(v) || v_is_number(v) || v.tag == V_BOOL || v.tag == V_NODE ||
         v_is_weak_list(v);
}

static _Noreturn void changes(Turns *t, const Carried *c, Value a, Value b) {
  Session *s = t->s;
  const char *name = "a value";
  Span place = {0}, at = t->st->span;
  if (c->kind == PLACE_VAR) {
    const Local *l = &s->locals[t->left.vars[c->index].local];
    const Node *assigned = abstract_assignment(t->st->loop.body, l->name);
    if (assigned) at = assigned->span;
    name = fail_text(s, "`%s`", l->name);
    place = l->span;
  } else if (c->kind == PLACE_STATE && s->stage->unit->states[c->index].field) {
    name = fail_text(s, "`%s`", s->stage->unit->states[c->index].field);
  } else if (c->kind == PLACE_VALUE) {
    name = "what `return` gives";
  }
  const char *is = value_type_text(s, b), *when = "the loop's turn";
  if (t->from) when = fail_text(s, "turn %lld", (long long)t->from + 1);
  stage_pop(s);
  Diag *d = fail_report(s, ERR_CARRY, at, "%s is %s before %s and %s after it", name,
                        value_type_text(s, a), when, is);
  if (place.file) dg_label(&s->diags, d, place, "declared here");
  dg_help(
      &s->diags, d,
      "a `var` of a loop that stays one keeps its dtype and shape: a `let` in the body is new "
      "in each iteration; a `for` of at most 4,096 iterations, whose number is known when it is "
      "compiled, is unrolled");
  fail_raise(s);
}

/* The number, bool or tensor as it enters the loop, in the stage around it. */
static Value entering(Session *s, Value v, Span at) {
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, at);
  bool weak = v_is_number(v);
  DType dt = v.tag == V_INT || v.tag == V_DIM ? DT_I64 : v.tag == V_FLOAT ? DT_F64 : DT_COUNT;
  if (v.tag != V_NODE) v = op_as_tensor(s, v, dt, at);
  v = stage_lift(s, v, at);
  v.weak = weak;
  return v;
}

static void push_arg(Turns *t, Val v) {
  VEC_PUSH(&t->s->scratch, t->args, t->arg_count, t->arg_cap, v);
}

/* Whether what is carried may leave `wrap <no_grad>` with a gradient. */
static bool leaves(const Turns *t, const Carried *c) {
  return t->s->modes.no_grad && t->s->stage->unit &&
         (c->kind == PLACE_VAR || c->kind == PLACE_VALUE);
}

/* Whether a value that the turn takes as `in` is carried in two forms. */
static bool has_apart(const Turns *t, Value in) {
  return t->apart && !in.weak && dt_float((DType)gr_type(t->stage.g, in.u.v)->dtype);
}

/* Whether the next tensor or number of the place is one that is not carried. */
static bool is_kept(Turns *t, const Carried *c) {
  return t->leaf++ < c->leaves && c->kept[t->leaf - 1];
}

/* What the turn sees of v: inputs of the region, whose first values are operands of the node. */
static Value inputs(Turns *t, const Carried *c, Value v) {
  stack_check();
  Session *s = t->s;
  if (numeric(v)) {
    if (is_kept(t, c)) return v;
    s->stage = t->stage.up;
    v = entering(s, v, t->st->span);
    s->stage = &t->stage;
    push_arg(t, v.u.v);
    Type of = *gr_type(t->stage.up->g, v.u.v);
    of.alias = 0;
    Value in = {.tag = V_NODE, .aux = t->stage.level, .weak = v.weak};
    in.u.v = gr_input(t->stage.g, &of);
    if (!has_apart(t, in)) return in;
    bool other = false;
    s->stage = t->stage.up;
    push_arg(t, stage_outside(s, v.u.v, &other, t->st->span));
    s->stage = &t->stage;
    stage_apart(s, in.u.v, gr_input(t->stage.g, &of));
    return in;
  }
  size_t n;
  Value *parts = value_parts(s, v, &n);
  if (!parts) return v;
  for (size_t i = 0; i < n; i++) parts[i] = inputs(t, c, parts[i]);
  return value_like(s, v, parts);
}

static void push_out(Turns *t, Val v) {
  VEC_PUSH(&t->s->scratch, t->outs, t->out_count, t->out_cap, v);
}

/* Notes whether the turn leaves the tensor or number `in`, the next one of the place, as it is.
 * True: it is not carried. */
static bool note_left(Turns *t, Carried *c, Value in, Value v) {
  bool same = left_same(in, v), kept = is_kept(t, c);
  size_t k = t->leaf - 1;
  if (k >= c->leaves) {
    size_t cap = c->leaves ? 2 * c->leaves : 8;
    bool *left = ARENA_ARRAY(&t->s->scratch, bool, cap);
    bool *all = ARENA_ARRAY(&t->s->scratch, bool, cap);
    if (c->leaves) memcpy(left, c->left, c->leaves * sizeof *left);
    if (c->leaves) memcpy(all, c->kept, c->leaves * sizeof *all);
    c->left = left, c->kept = all, c->leaves = cap;
  }
  c->left[k] = same;
  if (!kept || same) return kept;
  c->kept[k] = false;
  return t->again = true;
}

/* What the turn leaves at a place, as outputs of the region: it has the type with which it came. */
static void outputs(Turns *t, Carried *c, Value in, Value v) {
  stack_check();
  Session *s = t->s;
  Span at = t->st->span;
  if (numeric(in) && numeric(v)) {
    if (note_left(t, c, in, v)) return;
    if (v.tag == V_PARAM) v = param_read(s, v.u.p, at);
    Type is = op_type_of(s, in), of = op_type_of(s, v);
    bool number = v_is_number(v) || v_is_weak_list(v);
    if (v.tag == V_FLOAT) of.dtype = DT_F64;
    if (v.tag == V_INT || v.tag == V_DIM) of.dtype = DT_I64;
    bool fits =
        number && (!dt_float((DType)of.dtype) || dt_float((DType)is.dtype)) && is.dtype != DT_BOOL;
    if (in.weak && (!number || !fits)) { /* the number became a tensor, or an int a float */
      if (t->from == MOST_FROM || of.rank || of.dtype == DT_BOOL) changes(t, c, c->before, v);
      t->peel = true;
      return;
    }
    if (number && fits) {
      v = v.tag == V_NODE ? (of.dtype == is.dtype ? v : op_cast(s, v, (DType)is.dtype, at))
                          : op_as_tensor(s, v, (DType)is.dtype, at);
      of = op_type_of(s, v);
    }
    bool same = is.dtype == of.dtype && is.rank == of.rank;
    for (int k = 0; same && k < is.rank; k++)
      same = dim_compare(op_dims_of(s), is.dim[k], of.dim[k]) != DIM_DIFFERENT;
    if (!same || sized_by_turn(t, &of)) changes(t, c, c->before, v);
    /* a value from before the loop, which is the same from the second turn on (rule 74) */
    t->peel |= v.tag == V_NODE && v.aux < t->stage.level && !t->from;
    Val out = stage_lift(s, v, at).u.v;
    bool other = false;
    push_out(t, out);
    if (has_apart(t, in)) push_out(t, stage_outside(s, out, &other, at));
    return;
  }
  size_t n, m;
  Value *x = value_parts(s, in, &n), *y = value_parts(s, v, &m);
  if (!x && !y && value_same(in, v)) return;
  if (!value_alike(in, v)) changes(t, c, c->before, v);
  for (size_t i = 0; i < n && !t->peel; i++) outputs(t, c, x[i], y[i]);
}

/* The value behind the loop. */
static Value results(Turns *t, const Carried *c, Value in) {
  stack_check();
  Session *s = t->s;
  if (numeric(in)) {
    if (is_kept(t, c)) return in;
    Val v = {t->node.node, (uint32_t)t->next++};
    if (has_apart(t, in)) stage_apart(s, v, (Val){t->node.node, (uint32_t)t->next++});
    return (Value){.tag = V_NODE, .aux = s->stage->level, .weak = in.weak, .u.v = v};
  }
  size_t n;
  Value *parts = value_parts(s, in, &n);
  if (!parts) return in;
  for (size_t i = 0; i < n; i++) parts[i] = results(t, c, parts[i]);
  return value_like(s, in, parts);
}

static _Noreturn void leaves_sized(Turns *t, const char *what, const Type *of) {
  Session *s = t->s;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  type_print(&b, t->stage.g->dims, of);
  s->stage = t->stage.up;
  fail_help(s, ERR_NOT_YET, t->st->span,
            "a tensor of one size for all iterations, `zeros(..)`, of which each writes a part",
            "not yet: in a loop that stays one in code, %s has a size that differs from iteration "
            "to iteration: %s",
            what, b.s);
}

/* A value of the type of v, of the region, for the stage around it: it is never read. */
static Value blank(Turns *t, Value v) {
  stack_check();
  Session *s = t->s;
  if (v.tag == V_NODE || v_is_tensor(v)) {
    Type of = op_type_of(s, v);
    if (sized_by_turn(t, &of)) leaves_sized(t, "what `return` gives", &of);
    s->stage = t->stage.up;
    B b = {.g = s->stage->g};
    Value r = {.tag = V_NODE, .aux = s->stage->level, .weak = v.weak};
    r.u.v = b_zeros(&b, &of);
    if (b.failed) fail_gerr(s, t->st->span, &b.err);
    s->stage = &t->stage;
    return r;
  }
  size_t n;
  Value *parts = numeric(v) ? NULL : value_parts(s, v, &n);
  if (!parts) return v;
  for (size_t i = 0; i < n; i++) parts[i] = blank(t, parts[i]);
  return value_like(s, v, parts);
}

/* ---- places */

static Carried *carry(Turns *t, PlaceKind kind, size_t index, Value before) {
  for (size_t i = 0; i < t->item_count; i++)
    if (t->items[i].kind == kind && t->items[i].index == index) return NULL;
  Carried c = {.kind = kind, .index = index, .before = before};
  VEC_PUSH(&t->s->scratch, t->items, t->item_count, t->item_cap, c);
  return &t->items[t->item_count - 1];
}

/* Variables that the body assigns by its text. */
static void carry_assigned(Turns *t) {
  Session *s = t->s;
  AbstractVars names = abstract_vars(s, t->st->loop.body);
  for (size_t i = 0; i < names.count; i++) {
    const Local *l = local_find(s, names.names[i]);
    for (size_t k = 0; l && l->is_var && k < t->left.var_count; k++)
      if (&s->locals[t->left.vars[k].local] == l) carry(t, PLACE_VAR, k, t->left.vars[k].v[0]);
  }
}

static void enter(Turns *t, Carried *c) {
  Session *s = t->s;
  Unit *u = s->stage->unit;
  t->apart = leaves(t, c);
  t->leaf = 0;
  c->in = c->grows ? v_list(s, V_LIST, 0, NULL) : inputs(t, c, c->before);
  switch (c->kind) {
  case PLACE_VAR: value_set(&s->locals[t->left.vars[c->index].local].v, c->in); break;
  case PLACE_STATE:
    u->states[c->index].cur = c->in;
    state_turn(u, &u->states[c->index], c->in);
    break;
  case PLACE_DRAWS: u->draws[c->index].more = c->in; break;
  case PLACE_RETURNED:
  case PLACE_VALUE: break; /* a turn begins when there was no return */
  }
}

static Value node_value(const Session *s, Val v) {
  return (Value){.tag = V_NODE, .aux = s->stage->level, .u.v = v};
}

/* ---- lists that grow
 *
 * What a turn adds to a list is kept row by row (graph/stash.h); behind the loop the rows are the
 * elements. A value that is carried, too, is one value with what the next turn takes, as in script
 * (rule 74): its rows are those that the turns take. */

enum { MOST_ROWS = 60000 }; /* results of a node are counted in 16 bits */

/* The number of turns, if a list can have an element for each; -1: data decides it, or there are
 * too many. */
static int64_t turns_known(Turns *t) {
  if (t->flag || t->count.tag == V_NODE) return -1;
  int64_t n = want_int(t->s, t->count, t->st->span, "the number of turns") - t->from;
  return n > MOST_ROWS ? -1 : n < 0 ? 0 : n;
}

/* What the turn adds to a list whose number of elements data decides: tensors of the region. */
static Value as_rows(Turns *t, Value v, Name list) {
  Session *s = t->s;
  size_t n;
  Span at = t->st->span;
  Value *items = value_parts(s, v, &n);
  if (t->tried) {
    stage_pop(s);
    fail_at(s, ERR_NOT_YET, at, "not yet: data decides how many elements `%s` has", list);
  }
  for (size_t i = 0; i < n; i++) {
    if (!numeric(items[i])) {
      const char *what = value_type_text(s, items[i]);
      stage_pop(s);
      fail_help(s, ERR_NOT_YET, at, "a list of its own for each part",
                "not yet: data decides how many elements `%s` has, and they are no tensors but %s",
                list, what);
    }
    if (items[i].tag == V_NODE || v_is_tensor(items[i])) continue;
    items[i] = op_as_tensor(s, items[i], items[i].tag == V_FLOAT ? DT_F32 : DT_COUNT, at);
  }
  return v_list(s, V_LIST, n, items);
}

/* Whether the turn adds values to the list; then it is staged once more, with an empty one. */
static bool grows(Turns *t, Carried *c, Value v) {
  Session *s = t->s;
  if (c->kind != PLACE_VAR || c->in.tag != V_LIST || v.tag != V_LIST || c->in.u.list->weak)
    return false;
  const List *a = c->in.u.list, *b = v.u.list;
  bool same = b->count > a->count;
  for (size_t i = 0; same && i < a->count; i++) same = left_same(a->items[i], b->items[i]);
  if (!same && !c->grows) return false;
  Name list = s->locals[t->left.vars[c->index].local].name;
  Node *read = loop_reads(t->st, list);
  if (read) {
    stage_pop(s);
    fail_help(s, ERR_NOT_YET, read->span,
              "carry what the turns need in a variable of its own; or let a proc or the top level "
              "go through the loop",
              "not yet: a loop that stays one in code adds to `%s` and reads it, too", list);
  }
  t->again |= !c->grows;
  c->grows = true;
  c->out = turns_known(t) < 0 ? as_rows(t, v, list) : v;
  return true;
}

/* How often site i has drawn in the turn and before it. */
static Value draws_after(Turns *t, size_t i) {
  Session *s = t->s;
  const Left *l = &t->left;
  const DrawCount *to = &l->drawn[1].draws[i];
  uint64_t from = i < l->drawn[0].count ? l->drawn[0].draws[i].now : 0;
  Value n = v_int((int64_t)(to->now - from));
  if (to->more.tag == V_UNIT) return n;
  Span at = t->st->span;
  return to->now == from ? to->more : op_binary(s, AST_ADD, to->more, n, at, at, at);
}

static Value returned(Value flag) {
  return flag.tag == V_UNIT ? v_bool(false) : flag;
}

static void leave(Turns *t, Carried *c) {
  const Left *l = &t->left;
  Value v = v_unit();
  switch (c->kind) {
  case PLACE_VAR: v = l->vars[c->index].v[1]; break;
  case PLACE_STATE: v = l->state[c->index][1]; break;
  case PLACE_DRAWS: v = draws_after(t, c->index); break;
  case PLACE_RETURNED: v = returned(l->returned[1]); break;
  case PLACE_VALUE: v = l->returned[1].tag == V_UNIT ? c->in : l->ret_value[1]; break;
  }
  c->still = c->kind == PLACE_VAR && left_same(c->in, v) && !c->grows;
  t->apart = leaves(t, c);
  t->leaf = 0;
  if (!grows(t, c, v)) outputs(t, c, c->in, v);
}

/* Leaves out variables that no turn changes, and parts of variables. */
static bool drop_still(Turns *t) {
  size_t n = 0, all = t->item_count;
  bool parts = false;
  for (size_t i = 0; i < all; i++) {
    Carried c = t->items[i];
    if (c.still) continue;
    for (size_t k = 0; k < c.leaves && c.kind == PLACE_VAR && !c.grows; k++)
      parts |= c.kept[k] = c.left[k];
    t->items[n++] = c;
  }
  t->item_count = n;
  return n < all || parts;
}

/* What the value of a turn is among those that are kept. */
static Kept *kept_of(Turns *t, Val v) {
  const Graph *body = t->stage.g;
  Kept k = {.v = v, .carry = -1};
  for (size_t i = 0; i < t->arg_count && k.carry < 0; i++)
    if (val_eq(v, t->outs[i])) k.carry = (int64_t)i;
  k.left = k.carry >= 0;
  for (size_t i = 0; i < t->arg_count && k.carry < 0; i++)
    if (val_eq(v, body->inputs[1 + i])) k.carry = (int64_t)i;
  for (size_t i = 0; i < t->kept_count; i++)
    if (val_eq(t->kept[i].v, v)) return &t->kept[i];
  VEC_PUSH(&t->s->scratch, t->kept, t->kept_count, t->kept_cap, k);
  return &t->kept[t->kept_count - 1];
}

/* Finds what of v, which a turn adds to a list, differs from turn to turn. */
static void keep_leaves(Turns *t, Value v) {
  stack_check();
  size_t n;
  if (v.tag == V_NODE) {
    if (v.aux == t->stage.level) kept_of(t, v.u.v);
    return;
  }
  Value *parts = value_parts(t->s, v, &n);
  for (size_t i = 0; parts && i < n; i++) keep_leaves(t, parts[i]);
}

/* Makes outputs of the region of all that lists keep. */
static void keep_rows(Turns *t) {
  Graph *body = t->stage.g;
  for (size_t i = 0; i < t->item_count; i++)
    if (t->items[i].grows) keep_leaves(t, t->items[i].out);
  for (size_t i = 0; i < t->kept_count; i++) {
    Kept *k = &t->kept[i];
    if (sized_by_turn(t, gr_type(body, k->v)))
      leaves_sized(t, "what it adds to a list", gr_type(body, k->v));
    Val v = k->carry < 0 ? k->v : body->inputs[1 + k->carry];
    size_t at = t->arg_count;
    while (at < body->output_count && !val_eq(body->outputs[at], v)) at++;
    if (at == body->output_count) gr_output(body, v);
    k->stash = (uint32_t)at;
  }
}

/* What a turn added to a list as v, in turn i of n. */
static Value row(Turns *t, Value v, int64_t i, int64_t n) {
  stack_check();
  Session *s = t->s;
  if (v.tag == V_NODE && v.aux == t->stage.level) {
    const Kept *k = kept_of(t, v.u.v);
    Value r = {.tag = V_NODE, .aux = s->stage->level, .weak = v.weak};
    int64_t at = i + (k->carry >= 0 && k->left);
    if (k->carry >= 0 && at == 0)
      r.u.v = t->args[k->carry];
    else if (k->carry >= 0 && at == n)
      r.u.v = (Val){t->node.node, (uint32_t)k->carry};
    else
      r.u.v = k->rows[at];
    return r;
  }
  size_t count;
  Value *parts = v.tag == V_NODE ? NULL : value_parts(s, v, &count);
  if (!parts) return v;
  for (size_t j = 0; j < count; j++) parts[j] = row(t, parts[j], i, n);
  return value_like(s, v, parts);
}

/* The rows of what the loop keeps, behind it. */
static void open_rows(Turns *t, Kept *k, int64_t n) {
  Session *s = t->s;
  for (const Kept *o = t->kept; o < k; o++) /* the same, which turns take and leave */
    if (o->stash == k->stash) {
      k->rows = o->rows;
      return;
    }
  B b = {.g = s->stage->g};
  Val stash = {t->node.node, k->stash + t->flag};
  k->rows = ARENA_ARRAY(&s->scratch, Val, n);
  stage_at(s, t->st->span);
  Val v = b_unstash(&b, stash, gr_type(t->stage.g, k->v), n);
  if (b.failed) fail_gerr(s, t->st->span, &b.err);
  for (int64_t i = 0; i < n; i++) k->rows[i] = (Val){v.node, (uint32_t)i};
}

/* The list behind a loop whose number of turns data decides. */
static Value rows_behind(Turns *t, const Carried *c) {
  Session *s = t->s;
  const List *each = c->out.u.list;
  RowSource *from = ARENA_ARRAY(&s->scratch, RowSource, each->count + 1);
  Value turns;
  if (t->flag) {
    turns = node_value(s, (Val){t->node.node, (uint32_t)t->arg_count});
  } else { /* a range that ends before it begins has none */
    Value of[2] = {t->turns, op_as_tensor(s, v_int(0), DT_I64, t->st->span)};
    turns = op_run(s, OP_MAX, 2, of, NULL, 0, t->st->span);
  }
  turns.weak = true;
  for (size_t i = 0; i < each->count; i++) {
    RowSource *r = &from[i];
    Value v = each->items[i];
    if (v.tag != V_NODE || v.aux != t->stage.level) { /* from before the loop */
      *r = (RowSource){.kind = ROW_FIXED, .end = stage_lift(s, v, t->st->span).u.v};
      r->type = *gr_type(s->stage->g, r->end);
      continue;
    }
    const Kept *k = kept_of(t, v.u.v);
    *r = (RowSource){.stash = {t->node.node, k->stash + t->flag}};
    r->type = *gr_type(t->stage.g, k->v);
    if (k->carry < 0) continue;
    r->kind = k->left ? ROW_LEFT : ROW_TAKEN;
    r->end = k->left ? (Val){t->node.node, (uint32_t)k->carry} : t->args[k->carry];
  }
  return rows_new(s, c->before, turns, each->count, from, t->st->span);
}

/* The list behind the loop, which had n turns. */
static Value grown(Turns *t, const Carried *c, int64_t n) {
  Session *s = t->s;
  const List *from = c->before.u.list, *each = c->out.u.list;
  if (n < 0) return rows_behind(t, c);
  size_t count = 0;
  Value *all = ARENA_ARRAY(&s->scratch, Value, from->count + each->count * (size_t)n + 1);
  for (size_t i = 0; i < from->count; i++) all[count++] = from->items[i];
  for (int64_t i = 0; i < n; i++)
    for (size_t k = 0; k < each->count; k++) all[count++] = row(t, each->items[k], i, n);
  return v_list(s, V_LIST, count, all);
}

static void settle(Turns *t, Carried *c, int64_t rows) {
  Session *s = t->s;
  Unit *u = s->stage->unit;
  t->apart = leaves(t, c);
  t->leaf = 0;
  c->out = c->grows ? grown(t, c, rows) : results(t, c, c->in);
  switch (c->kind) {
  case PLACE_VAR: value_set(&s->locals[t->left.vars[c->index].local].v, c->out); break;
  case PLACE_STATE:
    u->states[c->index].cur = c->out;
    state_merged(s, &u->states[c->index], c->out);
    break;
  case PLACE_DRAWS: {
    const DrawMark *m = &t->left.drawn[0];
    u->draws[c->index].now = c->index < m->count ? m->draws[c->index].now : 0;
    u->draws[c->index].more = c->out;
    break;
  }
  case PLACE_RETURNED: s->frame->returned = c->out; break;
  case PLACE_VALUE: s->frame->ret_value = c->out; break;
  }
}

/* Carries what the region has changed besides. False: there was nothing new. */
static bool carry_more(Turns *t) {
  Session *s = t->s;
  Unit *u = s->stage->unit;
  Left *l = &t->left;
  bool more = false;
  for (size_t i = 0; i < l->var_count; i++)
    if (!left_same(l->vars[i].v[0], l->vars[i].v[1]))
      more |= carry(t, PLACE_VAR, i, l->vars[i].v[0]) != NULL;
  for (size_t i = 0; i < l->state_count; i++)
    if (!left_same(l->state[i][0], l->state[i][1]))
      more |= carry(t, PLACE_STATE, i, l->state[i][0]) != NULL;
  if (l->returned[1].tag != V_UNIT && !(l->returned[1].tag == V_BOOL && !l->returned[1].u.i)) {
    more |= carry(t, PLACE_RETURNED, 0, v_bool(false)) != NULL;
    Carried *c = carry(t, PLACE_VALUE, 0, v_unit());
    if (c) c->before = blank(t, l->ret_value[1]);
  }
  for (size_t i = 0; u && i < l->drawn[1].count; i++) {
    const DrawCount *to = &l->drawn[1].draws[i];
    const DrawCount *from = i < l->drawn[0].count ? &l->drawn[0].draws[i] : NULL;
    Value before = from ? from->more : v_unit();
    if (to->now == (from ? from->now : 0) && left_same(to->more, before)) continue;
    Carried *c = carry(t, PLACE_DRAWS, i, before.tag == V_UNIT ? v_int(0) : before);
    if (!c) continue;
    more = true;
    if (!stage_in_order(t->stage.up) || s->element)
      fail_help(s, ERR_NOT_YET, t->st->span, "draw before the loop, a row for each turn",
                "not yet: in a comprehension, a loop that draws random numbers in each turn");
  }
  bool effects = !val_none(l->token[1]);
  more |= effects && !t->effects;
  t->effects |= effects;
  return more;
}

/* ---- one turn */

static Value element(Turns *t, Value turn) {
  Session *s = t->s;
  Span at = t->st->loop.iter ? t->st->loop.iter->span : t->st->span;
  if (t->count.tag == V_UNIT) return v_unit();
  if (t->it.tag != V_UNIT) return seq_element(s, t->it, turn, at);
  if (t->lo.tag == V_INT && t->lo.u.i == 0) return turn;
  Value of[2] = {turn, stage_lift(s, op_as_tensor(s, t->lo, DT_I64, at), at)};
  Value v = op_run(s, OP_ADD, 2, of, NULL, 0, at); /* fits: it is below the range's end */
  v.weak = true;
  return v;
}

static Value condition(Session *s, void *ud) {
  const Node *st = ((Turns *)ud)->st;
  Value c = eval_expr(s, st->loop.cond);
  bool flag = c.tag == V_NODE && op_type_of(s, c).dtype == DT_BOOL && op_type_of(s, c).rank == 0;
  return flag ? c : v_bool(want_bool(s, c, st->loop.cond->span, "the condition of `while`"));
}

/* Whether there is a next turn: neither break nor return was taken, and the condition holds. */
static Value next_turn(Turns *t, Flow flow) {
  Session *s = t->s;
  OpenLoop *l = s->loops;
  Span at = t->st->span;
  if (flow == FLOW_BREAK || flow == FLOW_RETURN) return v_bool(false);
  if (t->count.tag == V_UNIT)
    return sides_pending(s) ? sides_rest(s, condition, t, at) : condition(s, t);
  Value gone = l->broken, also = s->frame->returned;
  if (!left_is_open(gone)) {
    gone = also;
  } else if (left_is_open(also)) {
    Value v[2] = {gone, also};
    gone = op_run(s, OP_OR, 2, v, NULL, 0, at);
  }
  return left_is_open(gone) ? op_run(s, OP_NOT, 1, &gone, NULL, 0, at) : v_bool(true);
}

static Val truth(const Stage *st, Value v) {
  return v.tag == V_NODE ? v.u.v : gr_const_i(st->g, DT_BOOL, DEV_CPU, v.u.i != 0);
}

/* Stages one turn as a region. False: once more, with more to carry. */
static bool stage_turn(Turns *t) {
  Session *s = t->s;
  Unit *u = s->stage->unit;
  Span at = t->st->span;
  OpenLoop *l = s->loops;
  t->arg_count = t->out_count = t->kept_count = t->history.count = 0;
  t->again = false;
  bool effects = t->effects;
  Val token = VAL_NONE;
  if (effects) token = stage_token(s, at);
  Val outer_token = u ? u->token : VAL_NONE;
  Value goes = t->goes.tag == V_UNIT ? v_bool(true) : t->goes;
  stage_at(s, at);
  Val first = truth(s->stage, goes.tag == V_NODE ? stage_lift(s, goes, at) : goes);
  region_open(s, &t->stage, NULL);
  t->stage.side = true;
  t->stage.turns = t;
  t->stage.token = outer_token;
  t->stage.counters = 1;
  Type count = {.kind = TK_TENSOR, .dtype = DT_I64}, flag = {.kind = TK_TENSOR, .dtype = DT_BOOL};
  Value turn = {.tag = V_NODE, .weak = true, .aux = t->stage.level};
  turn.u.v = gr_input(t->stage.g, &count);
  if (t->flag) {
    push_arg(t, first);
    gr_input(t->stage.g, &flag);
  }
  for (size_t i = 0; i < t->item_count; i++) enter(t, &t->items[i]);
  if (t->from) {
    Value of[2] = {turn, stage_lift(s, op_as_tensor(s, v_int(t->from), DT_I64, at), at)};
    turn = op_run(s, OP_ADD, 2, of, NULL, 0, at);
    turn.weak = true;
  }
  if (u) u->token = VAL_NONE;
  if (effects) {
    Type of = {.kind = TK_TOKEN};
    push_arg(t, token);
    u->token = gr_input(t->stage.g, &of);
  }
  struct Iterations *blocks = t->keeps ? NULL : iterations_start(s, t->st, 1);
  iterations_before(blocks, 0);
  Flow flow = eval_iteration(s, t->st, element(t, turn));
  l->continued = v_unit();
  iterations_after(blocks, 0, true);
  if (flow == FLOW_RETURN) {
    s->frame->returned = v_bool(true);
    s->frame->ret_value = value_pool(s, s->ret);
    value_set(&s->ret, v_unit());
  }
  Value next = next_turn(t, flow);
  left_note(s, &t->left, 1);
  bool more = carry_more(t);
  if (!more) {
    if (t->flag) push_out(t, truth(&t->stage, next));
    for (size_t i = 0; i < t->item_count; i++)
      if (!t->peel || t->items[i].in.tag == V_LIST) leave(t, &t->items[i]);
    if (effects) push_out(t, t->left.token[1]);
  }
  stage_pop(s);
  left_restore(s, &t->left);
  if (!more && !t->again && !t->peel) check_gradients(t);
  return !more && !t->again;
}

/* ---- the node */

static void make_node(Turns *t) {
  Session *s = t->s;
  int64_t rows = 0;
  for (size_t i = 0; i < t->item_count; i++)
    if (t->items[i].grows) rows = turns_known(t);
  Graph *g = s->stage->g, *body = t->stage.g;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Span at = t->st->span;
  size_t carried = t->arg_count, n = 1 + carried + t->stage.capture_count;
  Val *args = ARENA_ARRAY(&s->scratch, Val, n);
  stage_at(s, at);
  Value many = t->count.tag == V_UNIT ? v_int(INT64_MAX) : t->count;
  many = stage_lift(s, op_as_tensor(s, many, DT_I64, at), at);
  if (t->from && t->count.tag != V_UNIT) {
    Value of[2] = {many, stage_lift(s, op_as_tensor(s, v_int(t->from), DT_I64, at), at)};
    many = op_run(s, OP_SUB, 2, of, NULL, 0, at);
  }
  args[0] = many.u.v;
  t->turns = many;
  if (carried) memcpy(args + 1, t->args, carried * sizeof *args);
  if (t->stage.capture_count)
    memcpy(args + 1 + carried, t->stage.outer, t->stage.capture_count * sizeof *args);
  for (size_t i = 0; i < t->out_count; i++) gr_output(body, t->outs[i]);
  keep_rows(t);
  Attr attrs[6] = {attr_i(AT_CARRY, (int64_t)carried)};
  int attr_count = 1;
  if (t->flag) attrs[attr_count++] = attr_i(AT_WHILE, 1);
  if (t->counter != DIM_BAD) {
    attrs[attr_count++] = attr_dim(AT_COUNTER, t->counter);
    attrs[attr_count++] = attr_i(AT_VALUE, first_number(t));
  }
  if (t->keeps) {
    if (t->effects) iterations_refuse(s, t->st, t->every, "its turns have effects");
    attrs[attr_count++] = attr_i(t->every ? AT_EVERY : AT_STATES, t->keeps);
    attrs[attr_count++] = attr_i(AT_AGAIN, (int64_t)body->output_count);
  }
  stage_at(s, at);
  t->node = gr_op(g, OP_LOOP, args, (int)n, attrs, attr_count, &body, 1, &e);
  if (val_none(t->node)) fail_gerr(s, at, &e);
  t->next = t->flag;
  for (size_t i = 0; i < t->kept_count && rows > 0; i++) open_rows(t, &t->kept[i], rows);
  for (size_t i = 0; i < t->item_count; i++) settle(t, &t->items[i], rows);
  if (t->effects) s->stage->unit->token = (Val){t->node.node, (uint32_t)t->next};
}

/* ---- the loop */

static Flow rolled(Turns *t);

/* The turns behind those in front of the loop. */
static Value later_turns(Session *s, void *ud) {
  Turns *t = ud;
  Turns rest = {.s = s,
                .st = t->st,
                .it = t->it,
                .lo = t->lo,
                .count = t->count,
                .from = t->from + 1,
                .counter = t->counter,
                .tried = t->tried,
                .every = t->every,
                .keeps = t->keeps};
  s->flow = FLOW_NEXT;
  if (t->count.tag == V_UNIT) {
    rest.goes = condition(s, t);
    if (rest.goes.tag == V_BOOL && !rest.goes.u.i) return v_unit();
  }
  s->flow = rolled(&rest);
  return v_unit();
}

static Value first_turn(Session *s, void *ud) {
  Turns *t = ud;
  OpenLoop *l = s->loops;
  struct Iterations *blocks = t->keeps ? NULL : iterations_start(s, t->st, 1);
  iterations_before(blocks, 0);
  Span at = t->st->span;
  Value number = stage_lift(s, op_as_tensor(s, v_int(t->from), DT_I64, at), at);
  number.weak = true;
  Flow flow = eval_iteration(s, t->st, element(t, number));
  l->continued = v_unit();
  iterations_after(blocks, 0, true);
  if (flow == FLOW_RETURN) s->flow = flow;
  if (flow == FLOW_RETURN || flow == FLOW_BREAK) return v_unit();
  if (!sides_pending(s)) return later_turns(s, t);
  sides_rest(s, later_turns, t, at);
  if (s->flow == FLOW_BREAK || s->flow == FLOW_CONTINUE || s->flow == FLOW_GONE)
    s->flow = FLOW_NEXT;
  return v_unit();
}

static Flow rolled(Turns *t) {
  Session *s = t->s;
  OpenLoop *l = s->loops;
  Span at = t->st->span;
  left_open(s, &t->left);
  if (!t->from) carry_assigned(t);
  t->flag = t->count.tag == V_UNIT;
  t->flag |= loop_exits(t->st) != LOOP_ENDS;
  for (bool dropped = false;; dropped = true) {
    while (!stage_turn(t)) {
    }
    if (t->peel || dropped || !drop_still(t)) break;
  }
  bool lists = false;
  for (size_t i = 0; i < t->item_count; i++) lists |= t->items[i].grows;
  if (!t->arg_count && !lists) { /* a turn may fail: a node has a result */
    t->flag = true;
    stage_turn(t);
  }
  if (!t->peel) {
    make_node(t);
    if (!loop_only_returns(t->st) || !left_is_open(s->frame->returned)) return FLOW_NEXT;
    value_set(&s->ret, s->frame->ret_value);
    s->frame->returned = s->frame->ret_value = v_unit();
    return FLOW_RETURN;
  }
  Value any = t->goes;
  if (t->count.tag == V_INT) any = v_bool(t->count.u.i > t->from);
  if (t->count.tag != V_INT && t->count.tag != V_UNIT) {
    Value of[2] = {t->count, v_int(t->from)};
    any = op_binary(s, AST_GT, of[0], of[1], at, at, at);
  }
  if (any.tag == V_BOOL) {
    if (any.u.i) first_turn(s, t);
  } else {
    if (lists)
      fail_help(
          s, ERR_NOT_YET, at, "begin with tensors, as in `var s = f32(0)` and not `var s = 0.0`",
          "not yet: a loop that may have no turn, whose first turn makes a number a tensor or "
          "gives a value on as it is, and adds to a list");
    SideChoice c = {.at = at, .side = {first_turn, NULL}, .ud = t};
    sides_stage(s, any, &c);
  }
  l->broken = l->continued = v_unit();
  Flow flow = eval_take_flow(s);
  return flow == FLOW_RETURN ? flow : FLOW_NEXT;
}

Flow turns_for(Session *s, Node *st, Value it, Value lo, Value hi, bool tried) {
  Turns t = {.s = s, .st = st, .it = it, .lo = lo, .counter = DIM_BAD, .tried = tried};
  Span at = st->loop.iter->span;
  t.keeps = iterations_keep(s, st, &t.every);
  t.count = lo.tag == V_INT && !lo.u.i ? hi : op_binary(s, AST_SUB, hi, lo, at, at, at);
  if (t.count.tag == V_INT && t.count.u.i <= 0) return FLOW_NEXT;
  return rolled(&t);
}

Flow turns_while(Session *s, Node *st) {
  Turns t = {.s = s, .st = st, .counter = DIM_BAD};
  t.keeps = iterations_keep(s, st, &t.every);
  t.goes = condition(s, &t);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  if (t.goes.tag == V_BOOL && !t.goes.u.i) return FLOW_NEXT;
  return rolled(&t);
}
