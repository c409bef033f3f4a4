/* The gradient of `loop`.
 *
 * In: a loop with its cotangents, as a Rule. Out: a `loop` node that goes through the turns from
 * the last to the first. What a turn computes is kept by the forward loop, row by row
 * (ad_keep_turns, graph/stash.h), so that there is one value for a further gradient to go through,
 * as in script; only what is no float is computed again.
 *
 * The gradient of a turn is that of its body (ad_vjp_ask). From turn to turn go the cotangents of
 * what the loop carries, and one sum for each other value that it reads, which starts with the sum
 * of the gradients that later uses gave it: each use in a turn adds to it, the last use of the last
 * turn first (rule 74). What a carried value is at entry may be such a value, too; then the first
 * turn of the loop adds to that sum. A value that the loop gives and that a rule reads is the one
 * with which the next turn began.
 *
 * Whether a cotangent is there may differ in the turn with which the gradient begins, and in the
 * last one, which is the first of the loop: these stand on sides of a `branch` of their own. What
 * differs besides is a bool that is carried (vjp.h).
 *
 * A turn that reads rows of a value adds to these rows of its sum, and leaves the others alone. The
 * sum of whole arrays would have added +0 to them, which makes +0 of -0: so the first turn, if it
 * is not the only one, adds +0 to all of the sum, and no later one can make a -0.
 *
 * Invariant: an absent gradient is -0 in every element. */
#include <math.h>
#include <string.h>

#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/shape.h"

typedef enum Here { NONE, MAYBE, SURE } Here;

/* What the turns of the gradient take: carried values, rows, captured values. */
typedef enum Part { CARRIED, ROW, CAPTURED } Part;
typedef struct Slot {
  Part part;
  Val outer; /* the operand of the node */
  Type type; /* in the region */
} Slot;
enum { NO_SLOT = -1 };

typedef struct Loop {
  Rule *r;
  const Graph *body;
  bool reverse, goes_on, some; /* some: it has at least one turn */
  int carry, rows, gives;      /* numbers of what it carries, of stashes, of outputs of the body */
  int all;                     /* of operands, and values behind them */
  bool *follows;               /* per carried value: a gradient goes through it */
  bool *adds;                  /* per operand that is a home: there is a sum for it */
  bool begins, ends;           /* the first and the last turn of the gradient are apart */
  bool *by_rows;               /* per home: turns add to rows of its sum */
  Slot *slots;
  int slot_count;
  /* slots: of cotangents of the carry, of sums, of their bools, per operand; of values that the
   * loop gave */
  int *dc, *dc_there, *sum, *sum_there, *gave;
  /* of rows: what the loop kept, per output of the body; its stashes, their sums, per operand */
  int *kept, *dkept, *dkept_there, *stash, *row_sum, *row_there;
  int *capture, count;   /* per operand; of the number of turns */
  int *origin;           /* of the bools of origins */
  int *seen, seen_count; /* of what hooks see */
  Here *row_here;        /* per stash: what the gradient says of its rows */
  GErr *e;
} Loop;

/* What is known of the cotangents before or after a turn, per operand: of carried values, and of
 * sums, which stand behind them in one array. */
typedef struct Known {
  Here *dc, *sum;
} Known;

/* The gradient of one turn in a graph: values there, per operand. */
typedef struct Answer {
  Val *dc, *dc_there, *sum, *sum_there, *row, *row_there, *gave;
} Answer;

/* The result of the loop that is output k of its body. */
static uint32_t result_of(const Loop *l, int k) {
  return (uint32_t)(k < l->carry ? k : k + l->goes_on);
}

/* ---- what the turns compute is kept */

/* Whether turns can run again for what they keep, and nothing says yet from which output on. */
static bool may_run_again(const Graph *g, uint32_t node) {
  bool effects = false;
  for (uint32_t k = 0; k < g->nodes[node].result_count; k++)
    effects |= gr_type(g, (Val){node, k})->kind == TK_TOKEN;
  return !effects && !gr_attr(g, node, AT_AGAIN) && !gr_attr(g, node, AT_REVERSE) &&
         !gr_attr_i(g, node, AT_MAPPED, 0);
}

bool ad_keep_turns(Graph *g, uint32_t node, GErr *e) {
  stack_check();
  enum { MOST = 60000 }; /* results of a node are counted in 16 bits */
  Graph *body = g->regions[g->nodes[node].region0];
  uint32_t nodes = (uint32_t)body->node_count;
  int64_t carry = gr_attr_i(g, node, AT_CARRY, 0), gives = (int64_t)body->output_count;
  if (!ad_keep_inside(body, 0, nodes - 1, e)) return false;
  bool *depends = ARENA_ARRAY(g->arena, bool, body->type_count + 1);
  bool *kept = ARENA_ARRAY(g->arena, bool, body->type_count + 1);
  for (size_t i = 0; i < body->output_count; i++) {
    /* what is carried is kept as the next turn takes it */
    if (i >= (size_t)carry || gr_node(body, body->outputs[i])->op != OP_INPUT)
      kept[ad_slot(body, body->outputs[i])] = true;
  }
  size_t more = 0;
  for (uint32_t i = 0; i < nodes; i++) {
    const GNode *n = &body->nodes[i];
    const Prov *p = &body->provs[n->prov];
    int64_t input = n->op == OP_INPUT ? gr_attr_i(body, i, AT_INDEX, 0) : -1;
    bool any = input >= 0, carried = input > 0 && input <= carry;
    for (uint32_t k = 0; k < n->operand_count && !any; k++)
      any = depends[ad_slot(body, gr_operand(body, i, (int)k))];
    for (uint32_t k = 0; any && k < n->result_count; k++) {
      Val v = {i, k};
      const Type *t = gr_type(body, v);
      depends[ad_slot(body, v)] = ad_has_gradient(t);
      if (kept[ad_slot(body, v)] || t->kind == TK_TOKEN || (!carried && !ad_has_gradient(t)))
        continue;
      if (input >= 0 && !carried) continue;
      /* a `checkpoint` block of the body computes its values again, but those that it saves */
      bool again = p->region != g->provs[g->nodes[node].prov].region;
      if (input < 0 && again && !(tag_says((Tag)p->tag, CHOICE_SAVE) && !tag_narrows((Tag)p->tag)))
        continue;
      if (g->nodes[node].result_count + more >= MOST) break;
      gr_output(body, v);
      more++;
    }
  }
  Type *types = ARENA_ARRAY(g->arena, Type, more + 1);
  for (size_t i = 0; i < more; i++) types[i] = type_stash();
  if (more) ad_add_results(g, node, more, types);
  if (more && may_run_again(g, node)) gr_set_attr(g, node, attr_i(AT_AGAIN, gives));
  return true;
}

/* ---- zero turns */

static Val turns_of(const Graph *g, uint32_t node) {
  bool goes_on = gr_attr(g, node, AT_WHILE) != NULL;
  return goes_on ? (Val){node, (uint32_t)gr_attr_i(g, node, AT_CARRY, 0)} : gr_operand(g, node, 0);
}

bool ad_has_turns(const Graph *g, uint32_t node) {
  Val count = gr_operand(g, node, 0);
  if (gr_node(g, count)->op != OP_CONST || gr_attr_i(g, count.node, AT_VALUE, 0) < 1) return false;
  if (!gr_attr(g, node, AT_WHILE)) return true;
  Val goes = gr_operand(g, node, 1);
  return gr_node(g, goes)->op == OP_CONST && gr_attr_i(g, goes.node, AT_VALUE, 0) == 1;
}

Val ad_no_turns(B *b, uint32_t node) {
  return b_bin(b, OP_LE, turns_of(b->g, node), gr_const_i(b->g, DT_I64, DEV_CPU, 0));
}

/* Whether v is the bool that ad_no_turns made. */
static bool says_no_turns(const Graph *g, Val v, uint32_t node) {
  if (val_none(v) || gr_node(g, v)->op != OP_LE) return false;
  Val zero = gr_operand(g, v.node, 1);
  return val_eq(gr_operand(g, v.node, 0), turns_of(g, node)) && gr_node(g, zero)->op == OP_CONST &&
         gr_attr_i(g, zero.node, AT_VALUE, -1) == 0;
}

/* ---- slots */

static int slot(Loop *l, Part part, Val outer, const Type *t) {
  Type own = *t;
  own.alias = 0;
  l->slots[l->slot_count] = (Slot){part, outer, own};
  return l->slot_count++;
}

/* Whether operand i is a value that all turns read. */
static bool captured(const Loop *l, int i) {
  return i > l->carry + l->rows;
}

static bool is_stash(const Loop *l, int i) {
  return i > l->carry && i <= l->carry + l->rows;
}

/* The type of operand i in the body: of a stash, that of a row. */
static const Type *body_type(const Loop *l, int i) {
  if (i >= l->r->in_count) return gr_type(l->r->g, l->r->at[i]); /* behind the operands (rule.h) */
  return gr_type(l->body, l->body->inputs[i]);
}

/* ---- the gradient of one turn */

typedef struct TurnJob {
  Loop *l;
  Graph *g;
  const Val *in; /* per slot */
  Known now;
  bool last; /* the first turn of the loop */
} TurnJob;

static bool turn_gradient(const TurnJob *job, Answer *out, Known *then) {
  Loop *l = job->l;
  Rule *r = l->r;
  Graph *g = job->g;
  const Graph *body = l->body;
  Arena *a = r->scratch;
  int all = l->all, most = 2 * all + l->gives + 1, n = 0, sums = 0, wanted = 0;
  B b = {.g = g};
#define IN(s) ((s) == NO_SLOT ? VAL_NONE : job->in[s])
  Val *args = ARENA_ARRAY(a, Val, all + 1);
  for (int i = 0; i < all; i++) {
    const Type *t = body_type(l, i);
    if (t->kind == TK_TOKEN) {
      args[i] = gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, l->e);
    } else {
      int s = i == 0 ? 0 : i <= l->carry ? NO_SLOT : is_stash(l, i) ? l->stash[i] : l->capture[i];
      for (int k = l->carry; i > 0 && i <= l->carry && k < l->gives; k++)
        if (val_eq(body->outputs[k], body->inputs[i])) s = l->kept[k];
      args[i] = IN(s);
    }
    CK_ASSERT(g->arena->mem, !val_none(args[i]));
  }
  for (int i = 1; job->last && i <= l->carry; i++) /* it is that value */
    for (int k = l->carry + l->rows + 1; r->wants[i] && l->adds[r->home[i]] && k < all; k++)
      if (val_eq(r->at[k], r->at[i])) args[i] = args[k];
  Val *given = ARENA_ARRAY(a, Val, l->gives + 1);
  Val *map = ARENA_ARRAY(a, Val, body->type_count + 1);
  if (!ad_inline_mapped(g, body, args, given, map, l->e)) return false;
  Val *read = ARENA_ARRAY(a, Val, g->type_count + 1);
  for (size_t i = 0; i < g->type_count; i++) read[i] = VAL_NONE;
  for (int k = l->gives - 1; k >= 0; k--) {
    Val v = body->outputs[k], is = IN(k < l->carry ? l->gave[k] : l->kept[k]);
    if (gr_node(body, v)->op == OP_INPUT || val_none(is) || !ad_has_gradient(gr_type(body, v)))
      continue;
    Val x = map[ad_slot(body, v)];
    read[ad_slot(g, x)] = is;
  }
  Val *y = ARENA_ARRAY(a, Val, most), *dy = ARENA_ARRAY(a, Val, most);
  Val *there = ARENA_ARRAY(a, Val, most);
  for (int k = 0; k < l->gives; k++) {
    int s = k < l->carry ? l->dc[1 + k] : l->dkept[k];
    Here here = k < l->carry ? job->now.dc[1 + k] : s == NO_SLOT ? NONE : SURE;
    if (s == NO_SLOT || here == NONE) continue;
    y[n] = given[k];
    dy[n] = IN(s);
    there[n] = k >= l->carry   ? IN(l->dkept_there[k])
               : here == MAYBE ? IN(l->dc_there[1 + k])
                               : VAL_NONE;
    if (k >= l->carry && !val_none(there[n]) && gr_type(g, dy[n])->kind == TK_TENSOR)
      dy[n] = ad_or_zero(&b, there[n], dy[n], true);
    n++;
  }
  int *number = ARENA_ARRAY(a, int, all + 1); /* per home: in wrt */
  for (int i = 0; i < all; i++) number[i] = NO_SLOT;
  Val *wrt = ARENA_ARRAY(a, Val, all + 1), *dx = ARENA_ARRAY(a, Val, all + 1);
  Val *dx_there = ARENA_ARRAY(a, Val, all + 1);
  int *as = ARENA_ARRAY(a, int, all + 1), *of = ARENA_ARRAY(a, int, all + 1);
  for (int i = 1; i < all; i++) {
    bool carried = i <= l->carry;
    if (carried ? !l->follows[i] : !r->wants[i]) continue;
    if (!ad_has_gradient(body_type(l, i))) continue;
    /* a carried value is the one of its home in the first turn of the loop */
    bool own = carried && (!job->last || !r->wants[i] || !l->adds[r->home[i]]);
    int home = own ? i : r->home[i];
    int *first = own ? &of[i] : &number[home];
    as[wanted] = wanted;
    if (own || *first == NO_SLOT) {
      *first = wanted;
      bool sum =
          !own && (is_stash(l, i) ? l->row_sum[home] != NO_SLOT : job->now.sum[home] != NONE);
      if (sum) {
        y[n] = args[i];
        dy[n] = IN(is_stash(l, i) ? l->row_sum[home] : l->sum[home]);
        there[n] = is_stash(l, i)                ? IN(l->row_there[home])
                   : job->now.sum[home] == MAYBE ? IN(l->sum_there[home])
                                                 : VAL_NONE;
        if (is_stash(l, i) && !val_none(there[n]) && gr_type(g, dy[n])->kind == TK_TENSOR)
          dy[n] = ad_or_zero(&b, there[n], dy[n], true);
        n++;
        sums++;
      }
    } else {
      as[wanted] = *first;
    }
    of[i] = as[wanted];
    wrt[wanted++] = args[i];
  }
  if (b.failed) {
    *l->e = b.err;
    return false;
  }
  size_t origin_count = 0;
  Origin *origins = ARENA_ARRAY(a, Origin, r->origin_count * (size_t)all + 1);
  for (size_t k = 0; k < r->origin_count; k++)
    for (int i = 1; i < all; i++) {
      const Origin *o = &r->origins[k];
      if (!val_eq(r->at[i], o->y) || !(captured(l, i) || (job->last && i <= l->carry))) continue;
      int x = 1;
      while (!captured(l, x) || !val_eq(r->at[x], o->x)) x++;
      bool again = false; /* what is carried is, in this turn, what is captured */
      for (size_t j = 0; j < origin_count; j++)
        again |= val_eq(origins[j].y, args[i]) && val_eq(origins[j].x, args[x]);
      if (again) continue;
      Origin *to = &origins[origin_count++];
      *to = *o;
      to->y = args[i];
      to->x = args[x];
      if (o->known < 0) to->is = IN(l->origin[k]);
    }
  Prov at;
  VjpAsk ask = {.ny = n,
                .sums = sums,
                .read = read,
                .read_count = g->type_count,
                .y = y,
                .dy = dy,
                .dy_there = there,
                .nwrt = wanted,
                .wrt = wrt,
                .as = as,
                .dx = dx,
                .dx_there = dx_there,
                .origins = origins,
                .origin_count = origin_count};
  if (!ad_vjp_ask(g, &ask, l->e, &at)) return false;
#undef IN
  for (int i = 1; i < all; i++) {
    out->dc[i] = out->sum[i] = out->row[i] = VAL_NONE;
    out->dc_there[i] = out->sum_there[i] = out->row_there[i] = VAL_NONE;
    if (i <= l->carry && l->gave[i - 1] != NO_SLOT) out->gave[i - 1] = args[i];
    bool carried = i <= l->carry;
    if ((carried ? l->follows[i] : r->wants[i]) && ad_has_gradient(body_type(l, i))) {
      bool own = carried && (!job->last || !r->wants[i] || !l->adds[r->home[i]]);
      if (own) {
        out->dc[i] = dx[of[i]];
        out->dc_there[i] = dx_there[of[i]];
      }
    }
    if (!r->wants[i] || r->home[i] != i) continue;
    if (is_stash(l, i)) {
      out->row[i] = number[i] == NO_SLOT ? VAL_NONE : dx[number[i]];
      out->row_there[i] = number[i] == NO_SLOT ? VAL_NONE : dx_there[number[i]];
    } else if (l->adds[i] && number[i] != NO_SLOT) {
      out->sum[i] = dx[number[i]];
      out->sum_there[i] = dx_there[number[i]];
    } else if (l->adds[i] && job->now.sum[i] != NONE) { /* no use in this turn */
      out->sum[i] = job->in[l->sum[i]];
      if (job->now.sum[i] == MAYBE) out->sum_there[i] = job->in[l->sum_there[i]];
    }
  }
  for (int i = 1; then && i < all; i++) {
    then->dc[i] = val_none(out->dc[i]) ? NONE : val_none(out->dc_there[i]) ? SURE : MAYBE;
    then->sum[i] = val_none(out->sum[i]) ? NONE : val_none(out->sum_there[i]) ? SURE : MAYBE;
  }
  return true;
}

/* ---- sums of rows */

static bool is_zeros(const Graph *g, Val v) {
  while (gr_node(g, v)->op == OP_BROADCAST || gr_node(g, v)->op == OP_RESHAPE)
    v = gr_operand(g, v.node, 0);
  const Attr *x = gr_node(g, v)->op == OP_CONST ? gr_attr(g, v.node, AT_VALUE) : NULL;
  return x && x->kind == AK_FLOAT && x->u.f == 0 && !signbit(x->u.f);
}

/* `put` of rows into zeros, none of them twice. */
static bool puts_rows(const Graph *g, Val v) {
  const GNode *n = gr_node(g, v);
  const Type *t = gr_type(g, v);
  if (n->op != OP_PUT || (t->dtype != DT_F32 && t->dtype != DT_F64)) return false;
  bool once = n->operand_count == 2 || !gr_type(g, gr_operand(g, v.node, 2))->rank ||
              gr_attr_i(g, v.node, AT_DISTINCT, 0);
  return once && is_zeros(g, gr_operand(g, v.node, 0));
}

/* Whether v is `sum`, plus rows. */
static bool adds_rows(const Graph *g, Val v, Val sum) {
  bool any = false;
  for (; !val_eq(v, sum); v = gr_operand(g, v.node, 0), any = true)
    if (gr_node(g, v)->op != OP_ADD || !puts_rows(g, gr_operand(g, v.node, 1))) return false;
  return any;
}

/* The same, with rows added where they are. */
static Val add_rows(B *b, Val v, Val sum) {
  Graph *g = b->g;
  stack_check();
  if (val_eq(v, sum)) return sum;
  Val put = gr_operand(g, v.node, 1), x = add_rows(b, gr_operand(g, v.node, 0), sum);
  uint32_t n = gr_node(g, put)->operand_count;
  if (b->failed) return VAL_NONE;
  Val *of = ARENA_ARRAY(g->arena, Val, n);
  of[0] = x;
  for (uint32_t k = 1; k < n; k++) of[k] = gr_operand(g, put.node, (int)k);
  return b_op(b, OP_PUT_ADD, (int)n, of, 1, gr_attr(g, put.node, AT_AXIS));
}

/* Sum v behind the first turn. */
static Val without_minus_zero(B *b, Val v, Val count) {
  Type flag = *gr_type(b->g, v);
  flag.rank = 0;
  Val one = gr_const_i(b->g, DT_I64, DEV_CPU, 1), plus = b_zeros(b, &flag);
  Val only = b->failed ? VAL_NONE : b_bin(b, OP_EQ, count, one);
  Val none = b->failed ? VAL_NONE : ad_absent(b, &flag);
  Val zero = b->failed ? VAL_NONE : b_where(b, only, none, plus);
  return b->failed ? VAL_NONE : b_bin(b, OP_ADD, v, zero);
}

/* ---- what is there in which turn */

static Val *take_slots(const Loop *l, Graph *g) {
  Val *in = ARENA_ARRAY(l->r->scratch, Val, l->slot_count + 1);
  for (int i = 0; i < l->slot_count; i++) in[i] = gr_input(g, &l->slots[i].type);
  Val *seen = ARENA_ARRAY(l->r->scratch, Val, l->seen_count + 1);
  for (int i = 0; i < l->seen_count; i++) seen[i] = in[l->seen[i]];
  ad_see(l->r, g, l->seen_count, seen);
  return in;
}

static Known known_new(const Loop *l) {
  Here *both = ARENA_ARRAY(l->r->scratch, Here, 2 * l->all);
  return (Known){both, both + l->all};
}

static Answer answer_new(const Loop *l) {
  Arena *a = l->r->scratch;
  size_t n = (size_t)l->all + 1;
  return (Answer){ARENA_ARRAY(a, Val, n), ARENA_ARRAY(a, Val, n), ARENA_ARRAY(a, Val, n),
                  ARENA_ARRAY(a, Val, n), ARENA_ARRAY(a, Val, n), ARENA_ARRAY(a, Val, n),
                  ARENA_ARRAY(a, Val, n)};
}

static Here either(Here a, Here b) {
  return a == b ? a : MAYBE;
}

static Here here(Val v, Val there) {
  return val_none(v) ? NONE : val_none(there) ? SURE : MAYBE;
}

/* Finds what is there after a turn that begins with `now`. */
static bool after(Loop *l, Known now, bool last, Known *then) {
  Graph *g = ad_region(l->r);
  Answer a = answer_new(l);
  TurnJob job = {l, g, take_slots(l, g), now, last};
  *then = known_new(l);
  if (!turn_gradient(&job, &a, then)) return false;
  for (int i = 1; i < l->all; i++)
    l->by_rows[i] |= l->adds[i] && now.sum[i] == SURE && !val_none(a.sum[i]) &&
                     adds_rows(g, a.sum[i], job.in[l->sum[i]]);
  for (int i = 1; i < l->all; i++)
    if (is_stash(l, i)) {
      Here h = here(a.row[i], a.row_there[i]);
      l->row_here[i] = l->row_here[i] == (Here)-1 ? h : either(l->row_here[i], h);
      bool wide = !val_none(a.row_there[i]) && gr_type(g, a.row_there[i])->kind == TK_STASH;
      if (!wide) continue;
      gerr_set(l->e, ERR_NOT_YET, -1,
               "not yet: a gradient of a gradient through a loop inside another one, where data "
               "decides whether it has a turn");
      return gerr_help(l->e, "take it in script, with `record = true`");
    }
  return true;
}

/* ---- the region of the gradient */

/* Appends a cotangent to the outputs, in the form that all turns give it. */
static void give(Graph *g, const Type *t, Here form, Val v, Val there) {
  B b = {.g = g};
  if (form == NONE) return;
  gr_output(g, val_none(v) ? ad_absent(&b, t) : v);
  if (form == MAYBE)
    gr_output(g, val_none(v) || val_none(there) ? ad_truth(g, !val_none(v)) : there);
}

typedef struct Forms {
  Known now, first, form; /* in most turns, in the first one; as it is carried */
} Forms;

static Graph *one_turn(Loop *l, const Forms *f, bool begin, bool last) {
  Graph *g = ad_region(l->r);
  Answer a = answer_new(l);
  TurnJob job = {l, g, take_slots(l, g), begin ? f->first : f->now, last};
  if (!turn_gradient(&job, &a, NULL)) return NULL;
  B b = {.g = g};
  for (int i = 1; i < l->all && !b.failed; i++) {
    if (!l->by_rows[i] || val_none(a.sum[i]) || !val_none(a.sum_there[i])) continue;
    if (begin)
      a.sum[i] = without_minus_zero(&b, a.sum[i], job.in[l->count]);
    else if (job.now.sum[i] == SURE && adds_rows(g, a.sum[i], job.in[l->sum[i]]))
      a.sum[i] = add_rows(&b, a.sum[i], job.in[l->sum[i]]);
  }
  if (b.failed) {
    *l->e = b.err;
    return NULL;
  }
  for (int i = 1; i < l->all; i++) {
    if (i <= l->carry) give(g, body_type(l, i), f->form.dc[i], a.dc[i], a.dc_there[i]);
    if (!is_stash(l, i))
      give(g, gr_type(l->r->g, l->r->at[i]), f->form.sum[i], a.sum[i], a.sum_there[i]);
  }
  for (int k = 0; k < l->carry; k++)
    if (l->gave[k] != NO_SLOT) gr_output(g, a.gave[k]);
  for (int i = 1; i < l->all; i++)
    if (is_stash(l, i)) give(g, body_type(l, i), l->row_here[i], a.row[i], a.row_there[i]);
  return g;
}

/* The region: its turns, or a choice of them by their number. */
static Graph *all_turns(Loop *l, const Forms *f, bool by_begin, bool by_last, bool begin,
                        bool last) {
  if (!by_begin && !by_last) return one_turn(l, f, begin, last);
  Graph *sides[2], *g = ad_region(l->r);
  for (int k = 0; k < 2; k++) {
    sides[k] = by_begin ? all_turns(l, f, false, by_last, k == 0, last)
                        : all_turns(l, f, false, false, begin, k == 0);
    if (!sides[k]) return NULL;
  }
  Val *in = take_slots(l, g), *args = ARENA_ARRAY(l->r->scratch, Val, l->slot_count + 1);
  B b = {.g = g};
  bool of_zero = by_begin == l->reverse; /* the turn number 0, or count - 1 */
  Val number = of_zero ? gr_const_i(g, DT_I64, DEV_CPU, 0)
                       : b_bin(&b, OP_SUB, in[l->count], gr_const_i(g, DT_I64, DEV_CPU, 1));
  args[0] = b.failed ? VAL_NONE : b_bin(&b, OP_EQ, in[0], number);
  if (b.failed) {
    *l->e = b.err;
    return NULL;
  }
  for (int i = 0; i < l->slot_count; i++) args[1 + i] = in[i];
  Val v = gr_op(g, OP_BRANCH, args, l->slot_count + 1, NULL, 0, sides, 2, l->e);
  if (val_none(v)) return NULL;
  for (uint32_t i = 0; i < gr_node(g, v)->result_count; i++) gr_output(g, (Val){v.node, i});
  return g;
}

/* ---- the rule */

static int *no_slots(const Loop *l, int n) {
  int *s = ARENA_ARRAY(l->r->scratch, int, n + 1);
  for (int i = 0; i <= n; i++) s[i] = NO_SLOT;
  return s;
}

/* Which carried values a gradient goes through: those that depend on what one is wanted of. */
static void find_follows(Loop *l) {
  const Graph *b = l->body;
  Rule *r = l->r;
  bool *on = ARENA_ARRAY(r->scratch, bool, b->type_count + 1);
  for (int i = 1; i < r->in_count; i++)
    on[ad_slot(b, b->inputs[i])] = r->wants[i] && ad_has_gradient(body_type(l, i));
  for (bool more = true; more;) {
    more = false;
    for (uint32_t n = 0; n < b->node_count; n++) {
      const GNode *node = &b->nodes[n];
      bool any = false;
      if (!ad_passes((OpCode)node->op)) continue;
      for (uint32_t k = 0; k < node->operand_count && !any; k++)
        any = on[ad_slot(b, gr_operand(b, n, (int)k))] && ad_carries(b, n, k);
      for (uint32_t k = 0; any && k < node->result_count; k++)
        on[ad_slot(b, (Val){n, k})] = ad_has_gradient(gr_type(b, (Val){n, k}));
    }
    for (int k = 0; k < l->carry; k++) {
      bool *to = &on[ad_slot(b, b->inputs[1 + k])];
      if (*to || !on[ad_slot(b, b->outputs[k])]) continue;
      *to = more = true;
    }
  }
  for (int i = 1; i <= l->carry; i++) l->follows[i] = on[ad_slot(b, b->inputs[i])];
}

/* The slots of carried values come first, then rows, then captured values; slot 0 is the number of
 * the turn. `first`: what is there before the first turn. */
static void make_slots(Loop *l, Known first) {
  Rule *r = l->r;
  const Graph *b = l->body;
  Graph *g = r->g;
  Type i64 = type_of(DT_I64, DEV_CPU, 0), flag = type_of(DT_BOOL, DEV_CPU, 0);
  B of = {.g = g};
  slot(l, CAPTURED, VAL_NONE, &i64);
  for (int i = 1; i < l->all; i++) {
    if (i <= l->carry && l->follows[i]) {
      const Type *t = body_type(l, i);
      Val v = r->dout[i - 1], w = r->dout_there[i - 1];
      first.dc[i] = here(v, w);
      l->dc[i] = slot(l, CARRIED, val_none(v) ? ad_absent(&of, t) : v, t);
      l->dc_there[i] =
          slot(l, CARRIED, first.dc[i] == MAYBE ? w : ad_truth(g, first.dc[i] == SURE), &flag);
    }
    if (!l->adds[i]) continue;
    Type t = *gr_type(g, r->at[i]);
    Val v = r->sum[i], w = r->sum_there[i];
    first.sum[i] = says_no_turns(g, w, r->node) ? NONE : here(v, w);
    l->sum[i] = slot(l, CARRIED, val_none(v) ? ad_absent(&of, &t) : v, &t);
    l->sum_there[i] =
        slot(l, CARRIED, !val_none(w) && !val_none(v) ? w : ad_truth(g, !val_none(v)), &flag);
  }
  for (int k = 0; k < l->carry; k++) {
    Val v = b->outputs[k];
    if (gr_node(b, v)->op != OP_INPUT && ad_has_gradient(gr_type(b, v)))
      l->gave[k] = slot(l, CARRIED, r->out[k], gr_type(b, v));
  }
  for (int k = l->carry; k < l->gives; k++) {
    uint32_t res = result_of(l, k);
    const Type *t = gr_type(b, b->outputs[k]);
    l->kept[k] = slot(l, ROW, r->out[res], t);
    if (val_none(r->dout[res])) continue;
    l->dkept[k] = slot(l, ROW, r->dout[res], t);
    Val w = r->dout_there[res];
    if (!val_none(w))
      l->dkept_there[k] = slot(l, gr_type(g, w)->kind == TK_STASH ? ROW : CAPTURED, w, &flag);
  }
  for (int i = l->carry + 1; i <= l->carry + l->rows; i++) {
    const Type *t = body_type(l, i);
    l->stash[i] = slot(l, ROW, r->in[i], t);
    if (!r->wants[i] || r->home[i] != i || val_none(r->sum[i])) continue;
    l->row_sum[i] = slot(l, ROW, r->sum[i], t);
    Val w = r->sum_there[i];
    if (!val_none(w))
      l->row_there[i] = slot(l, gr_type(g, w)->kind == TK_STASH ? ROW : CAPTURED, w, &flag);
  }
  l->count = slot(l, CAPTURED, turns_of(g, r->node), &i64);
  for (int i = l->carry + l->rows + 1; i < l->all; i++)
    if (body_type(l, i)->kind != TK_TOKEN)
      l->capture[i] = slot(l, CAPTURED, r->in[i], body_type(l, i));
  for (size_t k = 0; k < r->origin_count; k++)
    if (r->origins[k].known < 0) l->origin[k] = slot(l, CAPTURED, r->origins[k].is, &flag);
  for (int i = 0; i < l->seen_count; i++)
    l->seen[i] = slot(l, CAPTURED, g->seen[i], gr_type(g, g->seen[i]));
  r->b.failed |= of.failed;
  if (of.failed) r->b.err = of.err;
}

static void renumber(Loop *l, const int *to) {
  int *list[] = {l->dc,          l->dc_there,  l->sum,     l->sum_there, l->stash,
                 l->row_sum,     l->row_there, l->capture, l->kept,      l->dkept,
                 l->dkept_there, l->gave,      l->origin,  l->seen};
  for (size_t k = 0; k < sizeof list / sizeof *list; k++) {
    int count = k < 8     ? l->all
                : k < 12  ? l->gives
                : k == 12 ? (int)l->r->origin_count
                          : l->seen_count;
    for (int i = 0; i < count; i++)
      if (list[k][i] > 0) list[k][i] = to[list[k][i]];
  }
  l->count = to[l->count];
}

/* Brings the slots into the order of a node: carried, rows, captured. */
static void sort_slots(Loop *l) {
  int n = l->slot_count, at = 1;
  Slot *s = ARENA_ARRAY(l->r->scratch, Slot, n + 1);
  int *to = ARENA_ARRAY(l->r->scratch, int, n + 1);
  s[0] = l->slots[0];
  for (Part p = CARRIED; p <= CAPTURED; p++)
    for (int i = 1; i < n; i++)
      if (l->slots[i].part == p) {
        to[i] = at;
        s[at++] = l->slots[i];
      }
  l->slots = s;
  renumber(l, to);
}

/* Leaves out the slots of what is never there, or always. */
static void drop_slots(Loop *l, const Forms *f) {
  int n = l->slot_count, at = 0;
  bool *drop = ARENA_ARRAY(l->r->scratch, bool, n + 1);
  int *to = ARENA_ARRAY(l->r->scratch, int, n + 1);
  for (int i = 1; i < l->all; i++) {
    const Here form[2] = {f->form.dc[i], f->form.sum[i]};
    const int value[2] = {l->dc[i], l->sum[i]}, there[2] = {l->dc_there[i], l->sum_there[i]};
    for (int k = 0; k < 2; k++) {
      if (value[k] != NO_SLOT && form[k] == NONE) drop[value[k]] = true;
      if (there[k] != NO_SLOT && form[k] != MAYBE) drop[there[k]] = true;
    }
  }
  for (int i = 0; i < n; i++) {
    to[i] = drop[i] ? NO_SLOT : at;
    if (!drop[i]) l->slots[at++] = l->slots[i];
  }
  l->slot_count = at;
  renumber(l, to);
}

static bool same_known(const Loop *l, Known a, Known b) {
  return !memcmp(a.dc, b.dc, 2 * (size_t)l->all * sizeof *a.dc);
}

static void join(const Loop *l, Known *a, Known b) {
  for (int i = 1; i < l->all; i++) {
    a->dc[i] = either(a->dc[i], b.dc[i]);
    a->sum[i] = either(a->sum[i], b.sum[i]);
  }
}

/* Finds what is there in the first turn of the gradient, in the others, and behind the last. */
static bool find_forms(Loop *l, Known first, Forms *f, Known *end) {
  Known then;
  f->first = first;
  if (!after(l, first, false, &f->now)) return false;
  for (bool more = true; more; f->now = then) {
    if (!after(l, f->now, false, &then)) return false;
    join(l, &then, f->now);
    more = !same_known(l, f->now, then);
  }
  f->form = known_new(l);
  memcpy(f->form.dc, f->now.dc, 2 * (size_t)l->all * sizeof *f->now.dc);
  for (int i = 1; i < l->all; i++) { /* what the first turn reads is carried */
    const Here was[2] = {first.dc[i], first.sum[i]};
    Here *form[2] = {&f->form.dc[i], &f->form.sum[i]};
    for (int k = 0; k < 2; k++)
      if (was[k] == MAYBE || (was[k] == SURE && *form[k] == NONE)) *form[k] = MAYBE;
  }
  *end = f->form;
  l->begins = !same_known(l, first, f->now);
  for (int i = 1; i < l->all; i++) l->begins |= l->by_rows[i];
  if (!l->ends) return true;
  Known other;
  if (!after(l, f->now, true, end) || !after(l, first, true, &other)) return false;
  join(l, end, other);
  for (int i = 1; i < l->all; i++) {
    if (l->adds[i]) f->form.sum[i] = either(f->form.sum[i], end->sum[i]);
    if (end->dc[i] != NONE) f->form.dc[i] = either(f->form.dc[i], end->dc[i]);
  }
  return true;
}

static void all_LOOP(Rule *r) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  Graph *g = r->g;
  const GNode n = g->nodes[r->node];
  Loop l = {.r = r, .body = g->regions[n.region0], .e = &e};
  l.carry = (int)gr_attr_i(g, r->node, AT_CARRY, 0);
  l.rows = (int)gr_attr_i(g, r->node, AT_MAPPED, 0);
  l.gives = (int)l.body->output_count;
  l.goes_on = gr_attr(g, r->node, AT_WHILE) != NULL;
  l.reverse = gr_attr_i(g, r->node, AT_REVERSE, 0) != 0;
  l.some = ad_has_turns(g, r->node);
  l.all = r->in_count + r->behind;
  int *members = ARENA_ARRAY(r->scratch, int, l.all + 1);
  l.follows = ARENA_ARRAY(r->scratch, bool, l.all + 1);
  l.adds = ARENA_ARRAY(r->scratch, bool, l.all + 1);
  l.by_rows = ARENA_ARRAY(r->scratch, bool, l.all + 1);
  for (int i = 1; i < l.all; i++) {
    if (!r->wants[i] || is_stash(&l, i)) continue;
    int h = r->home[i];
    l.adds[h] |= captured(&l, i) || !val_none(r->sum[h]) || members[h]++ > 0;
  }
  for (size_t k = 0; k < r->origin_count; k++)
    for (int i = 1; i < l.all; i++)
      if (val_eq(r->at[i], r->origins[k].y) && r->wants[i]) l.adds[r->home[i]] = true;
  for (int i = 1; i <= l.carry; i++) {
    if (!r->wants[i] || !l.adds[r->home[i]]) continue;
    l.ends = true;
    /* without turns nothing but an origin brings its cotangent to the sum */
    CK_ASSERT(g->arena->mem, l.some || r->passed[(i - 1) * r->in_count + i]);
  }
  find_follows(&l);
  l.seen_count = ad_seen_inside(r);
  l.seen = ARENA_ARRAY(r->scratch, int, l.seen_count + 1);
  l.slots = ARENA_ARRAY(r->scratch, Slot,
                        6 * l.all + 4 * l.gives + (int)r->origin_count + l.seen_count + 4);
  int **per[] = {&l.dc,    &l.dc_there, &l.sum,       &l.sum_there,
                 &l.stash, &l.row_sum,  &l.row_there, &l.capture};
  for (size_t k = 0; k < sizeof per / sizeof *per; k++) *per[k] = no_slots(&l, l.all);
  int **outs[] = {&l.kept, &l.dkept, &l.dkept_there, &l.gave};
  for (size_t k = 0; k < sizeof outs / sizeof *outs; k++) *outs[k] = no_slots(&l, l.gives);
  l.origin = no_slots(&l, (int)r->origin_count);
  l.row_here = ARENA_ARRAY(r->scratch, Here, l.all + 1);
  for (int i = 0; i < l.all; i++) l.row_here[i] = (Here)-1;
  Known first = known_new(&l), end;
  make_slots(&l, first);
  sort_slots(&l);
  Forms f;
  Graph *body = NULL;
  if (!r->b.failed && find_forms(&l, first, &f, &end)) {
    drop_slots(&l, &f);
    body = all_turns(&l, &f, l.begins, l.ends, false, false);
  }
  if (r->b.failed) return;
  if (!body) {
    r->b.failed = true;
    r->b.err = e;
    return;
  }
  int carried = 0, rows = 0;
  Val *args = ARENA_ARRAY(r->scratch, Val, l.slot_count + 1);
  args[0] = turns_of(g, r->node);
  for (int i = 1; i < l.slot_count; i++) {
    args[i] = l.slots[i].outer;
    carried += l.slots[i].part == CARRIED;
    rows += l.slots[i].part == ROW;
  }
  if (!body->output_count) return;
  Attr attrs[5] = {attr_i(AT_CARRY, carried), attr_i(AT_MAPPED, rows),
                   attr_i(AT_REVERSE, !l.reverse)};
  const Attr *counter = gr_attr(g, r->node, AT_COUNTER), *from = gr_attr(g, r->node, AT_VALUE);
  int attr_count = 3;
  if (counter) attrs[attr_count++] = *counter;
  if (from) attrs[attr_count++] = *from;
  Val v = gr_op(g, OP_LOOP, args, l.slot_count, attrs, attr_count, &body, 1, &e);
  if (val_none(v)) {
    r->b.failed = true;
    r->b.err = e;
    return;
  }
  uint32_t res = 0;
  Val some = VAL_NONE;
  for (int i = 1; i < l.all; i++)
    for (int k = 0; k < 2; k++) {
      bool sum = k == 1;
      Here form = sum ? f.form.sum[i] : f.form.dc[i];
      if (form == NONE || (sum ? l.sum[i] : l.dc[i]) == NO_SLOT) continue;
      Val value = {v.node, res++}, there = VAL_NONE;
      if (form == MAYBE) there = (Val){v.node, res++};
      if (!r->wants[i] || r->home[i] != i || l.adds[i] != sum) continue;
      if (l.some && (sum ? end.sum[i] : end.dc[i]) == SURE) there = VAL_NONE;
      if (form == SURE && !l.some && val_none(sum ? r->sum[i] : r->dout[i - 1])) {
        if (val_none(some)) some = b_un(&r->b, OP_NOT, ad_no_turns(&r->b, r->node));
        there = some;
      } else if (form == SURE && !l.some) { /* without turns it is what it was */
        Val was = sum ? r->sum_there[i] : r->dout_there[i - 1];
        if (!val_none(was) && !says_no_turns(g, was, r->node)) {
          if (val_none(some)) some = b_un(&r->b, OP_NOT, ad_no_turns(&r->b, r->node));
          there = r->b.failed ? VAL_NONE : b_bin(&r->b, OP_OR, some, was);
        }
      }
      if (r->b.failed) return;
      r->dx[i] = value;
      r->dx_there[i] = there;
    }
  res = (uint32_t)carried;
  for (int i = l.carry + 1; i <= l.carry + l.rows; i++) {
    if (!r->wants[i] || r->home[i] != i || l.row_here[i] == NONE || l.row_here[i] == (Here)-1)
      continue;
    r->dx[i] = (Val){v.node, res++};
    if (l.row_here[i] == MAYBE) r->dx_there[i] = (Val){v.node, res++};
  }
}

const GradRule grad_LOOP = {NULL, all_LOOP};

/* ---- the rows of a stash as values of their own, and back
 *
 * What is said of the rows is a bool for all, or a stash of bools. */

static Val *rows_of(Rule *r, Val stash, const Type *t, int n) {
  Val *row = ARENA_ARRAY(r->scratch, Val, n + 1), v = b_unstash(&r->b, stash, t, n);
  for (int k = 0; k < n; k++) row[k] = (Val){v.node, (uint32_t)k};
  return row;
}

/* For each of the n rows whether it is there; VAL_NONE: surely. */
static Val *rows_there(Rule *r, Val there, int n) {
  const Type flag = {.kind = TK_TENSOR, .dtype = DT_BOOL};
  if (!val_none(there) && gr_type(r->g, there)->kind == TK_STASH)
    return rows_of(r, there, &flag, n);
  Val *row = ARENA_ARRAY(r->scratch, Val, n + 1);
  for (int k = 0; k < n; k++) row[k] = there;
  return row;
}

static void all_UNSTASH(Rule *r) {
  int n = r->out_count;
  const Type *t = gr_type(r->g, r->out[0]);
  if (!ad_has_gradient(t) || !r->wants[0]) return;
  Val *row = ARENA_ARRAY(r->scratch, Val, n + 1), *there = ARENA_ARRAY(r->scratch, Val, n + 1);
  for (int k = 0; k < n; k++) row[k] = there[k] = VAL_NONE;
  if (!val_none(r->sum[0])) {
    row = rows_of(r, r->sum[0], t, n);
    there = rows_there(r, r->sum_there[0], n);
  }
  bool maybe = false;
  for (int k = 0; k < n && !r->b.failed; k++) {
    if (!val_none(r->dout[k])) ad_add(&r->b, &row[k], &there[k], r->dout[k], r->dout_there[k]);
    maybe |= val_none(row[k]) || !val_none(there[k]);
  }
  for (int k = 0; k < n && !r->b.failed; k++) {
    bool has = !val_none(row[k]);
    if (!has) row[k] = ad_absent(&r->b, t);
    if (!has || val_none(there[k])) there[k] = ad_truth(r->g, has);
  }
  if (r->b.failed) return;
  r->dx[0] = b_op(&r->b, OP_STASH, n, row, 0, NULL);
  if (maybe && !r->b.failed) r->dx_there[0] = b_op(&r->b, OP_STASH, n, there, 0, NULL);
}

static void all_STASH(Rule *r) {
  int n = r->in_count;
  const Type *t = gr_type(r->g, r->at[0]);
  if (!ad_has_gradient(t)) return;
  Val *row = rows_of(r, r->dout[0], t, n);
  Val *there = rows_there(r, r->dout_there[0], n);
  for (int i = 0; i < n; i++) {
    r->dx[i] = r->wants[i] && r->home[i] == i ? r->sum[i] : VAL_NONE;
    r->dx_there[i] = r->sum_there[i];
  }
  for (int i = n - 1; i >= 0 && !r->b.failed; i--)
    if (r->wants[i]) ad_add(&r->b, &r->dx[r->home[i]], &r->dx_there[r->home[i]], row[i], there[i]);
}

const GradRule grad_STASH = {NULL, all_STASH};
const GradRule grad_UNSTASH = {NULL, all_UNSTASH};

/* Simplifying makes them, behind all gradients: these would be summed in another order. */
static void comes_later(Rule *r) {
  static const GErr e = {.code = ERR_BUG, .operand = -1, .text = "rows of loops have a gradient"};
  r->b.failed = true;
  r->b.err = e;
}

const GradRule grad_STASH_ROWS = {NULL, comes_later};
const GradRule grad_UNSTASH_ROWS = {NULL, comes_later};
