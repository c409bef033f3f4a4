/* Gradients inside a turn of a loop that stays one.
 *
 * In: a gradient in a turn, and the region of the turn once it is staged. Out: an error if the
 * gradient misses a part. The region has its inputs, what the loop carries and what it captures, as
 * given. So a gradient by input b misses what goes through input a, if a was made of the value that
 * b is in this turn: before the loop, if it is the first; from what the turn before leaves as b, if
 * it made that; or any time since b has that value, if turns may leave it as it is.
 *
 * The relation `made of` between inputs is the least one that holds what the first turn and one
 * turn to the next give. What stands before the loop is looked at in the stage around it; inputs
 * of that one are noted there, if it is a turn of a loop, too. */
#include "lang/eval/history.h"

#include <string.h>

#include "autograd/autograd.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/opcode.h"
#include "lang/eval/state.h"
#include "lang/eval/turns.h"
#include "lang/value/fail.h"

static bool *marks(Session *s, const Graph *g) {
  return ARENA_ARRAY(&s->scratch, bool, g->type_count + 1);
}

/* How a value may be another: `GIVEN`: a choice gives that, or a loop without turns. `TURNED`: the
 * turns of a loop do. `OLDER`: as an older version of a param. */
enum { GIVEN = 1, TURNED = 2, OLDER = 4 };

/* Marks in `is` the values of g that v may be. */
static void mark_ways(Session *s, const Graph *g, Val v, uint8_t how, uint8_t *is) {
  stack_check();
  uint8_t *at = &is[ad_slot(g, v)];
  if ((*at & how) == how) return;
  *at |= how;
  const GNode *n = &g->nodes[v.node];
  if (n->op == OP_VERSION) mark_ways(s, g, gr_operand(g, v.node, 1), OLDER, is);
  if (n->op == OP_BRANCH) {
    const bool *on = ad_given_on(&s->scratch, g, v.node);
    for (uint32_t i = 1; i < n->operand_count; i++)
      if (on[v.res * n->operand_count + i]) mark_ways(s, g, gr_operand(g, v.node, (int)i), how, is);
  }
  if (n->op == OP_LOOP && v.res < (uint32_t)gr_attr_i(g, v.node, AT_CARRY, 0)) {
    const Graph *turn = g->regions[n->region0];
    uint8_t *in = ARENA_ARRAY(&s->scratch, uint8_t, turn->type_count + 1);
    mark_ways(s, g, gr_operand(g, v.node, 1 + (int)v.res), how, is);
    mark_ways(s, turn, turn->outputs[v.res], GIVEN, in);
    for (uint32_t i = 1; i < n->operand_count; i++) {
      uint8_t way = in[ad_slot(turn, turn->inputs[i])];
      if (!way) continue;
      way = way & (GIVEN | TURNED) && !(how & OLDER) ? TURNED : OLDER;
      mark_ways(s, g, gr_operand(g, v.node, (int)i), way, is);
    }
  }
}

static void mark_same(Session *s, const Graph *g, Val v, bool *is) {
  uint8_t *ways = ARENA_ARRAY(&s->scratch, uint8_t, g->type_count + 1);
  mark_ways(s, g, v, GIVEN, ways);
  for (size_t i = 0; i < g->type_count; i++) is[i] |= ways[i] != 0;
}

/* What is known of one choice or loop: per region and result j what j depends on there; per region
 * and result i the values that it may be, a list that SIZE_MAX ends. NULL: not looked at yet. */
typedef struct Inside {
  const Graph *g;
  uint32_t node;
  bool **of[2];
  size_t **same[2];
} Inside;

static void depends_inside(Session *s, const Graph *in, bool *of, uint32_t carry,
                           const bool *same_as) {
  for (bool more = true; more;) { /* of a loop: what turns made, since it may have the value */
    more = false;
    ad_mark_back(&s->scratch, in, of, NULL);
    for (uint32_t k = 0; same_as && k < carry; k++) {
      bool *out = &of[ad_slot(in, in->outputs[k])];
      if (!of[ad_slot(in, in->inputs[1 + k])] || *out) continue;
      *out = more = true;
    }
  }
}

/* Whether result j of a choice or loop, or a row that is kept as that, was made of its result i,
 * inside. */
static bool made_inside(Session *s, Inside *c, const Graph *g, uint32_t node, uint32_t i,
                        uint32_t j) {
  const GNode *n = &g->nodes[node];
  bool loop = n->op == OP_LOOP, counts = loop && gr_attr(g, node, AT_WHILE);
  uint32_t carry = loop ? (uint32_t)gr_attr_i(g, node, AT_CARRY, 0) : n->result_count;
  if (i >= carry || (counts && j == carry)) return false;
  if (counts && j > carry) j--; /* the output of the region */
  if (c->g != g || c->node != node) {
    *c = (Inside){.g = g, .node = node};
    for (uint32_t r = 0; r < n->region_count; r++) {
      c->of[r] = ARENA_ARRAY(&s->scratch, bool *, n->result_count);
      c->same[r] = ARENA_ARRAY(&s->scratch, size_t *, carry);
    }
  }
  for (uint32_t r = 0; r < n->region_count; r++) {
    const Graph *in = g->regions[n->region0 + r];
    if (!c->of[r][j]) {
      c->of[r][j] = marks(s, in);
      c->of[r][j][ad_slot(in, in->outputs[j])] = true;
      depends_inside(s, in, c->of[r][j], carry, NULL);
    }
    if (!c->same[r][i]) {
      bool *is = marks(s, in);
      size_t count = 0;
      mark_same(s, in, in->outputs[i], is);
      for (size_t k = 0; k < in->type_count; k++) count += is[k];
      size_t *list = c->same[r][i] = ARENA_ARRAY(&s->scratch, size_t, count + 1);
      for (uint32_t k = 0; k < in->node_count; k++)
        for (uint32_t q = 0; q < in->nodes[k].result_count; q++)
          if (is[in->nodes[k].result0 + q] && (loop || in->nodes[k].op != OP_INPUT))
            *list++ = in->nodes[k].result0 + q;
      *list = SIZE_MAX;
    }
    const bool *of = c->of[r][j];
    for (const size_t *at = c->same[r][i]; loop && *at != SIZE_MAX; at++)
      if (*at == ad_slot(in, in->inputs[1 + i])) { /* turns may leave it */
        bool *all = marks(s, in);
        memcpy(all, of, in->type_count * sizeof *all);
        depends_inside(s, in, all, carry, all);
        of = all;
        break;
      }
    for (const size_t *at = c->same[r][i]; *at != SIZE_MAX; at++)
      if (of[*at]) return true;
  }
  return false;
}

/* Whether what is marked depends on something that a choice or loop made of its result v. */
static bool made_by_sides(Session *s, Inside *c, const Graph *g, const bool *live, Val v) {
  const GNode *n = &g->nodes[v.node];
  if (n->op != OP_BRANCH && n->op != OP_LOOP) return false;
  for (uint32_t j = 0; j < n->result_count; j++)
    if (j != v.res && live[n->result0 + j] && made_inside(s, c, g, v.node, v.res, j)) return true;
  return false;
}

/* An error if the loss uses what a choice or loop made of v, one of its results, beside v. */
static void made_beside(Session *s, const Graph *g, const bool *used, Val v, Span at) {
  Inside inside = {.g = NULL};
  if (made_by_sides(s, &inside, g, used, v))
    fail_help(s, ERR_NOT_YET, at,
              "compute that after it, of the value; or take the gradient where both are made",
              "not yet: a gradient by what a %s gave, of something that it made of that inside",
              g->nodes[v.node].op == OP_LOOP ? "loop" : "choice");
}

/* An error if one of wrt, values of st, may be another value that the loss uses, too, where the
 * gradient does not see that: `ways`. */
static void may_be_other(Session *s, const Stage *st, const bool *live, size_t n, const Val *wrt,
                         uint8_t ways, Span at) {
  const Graph *g = st->g;
  bool *used = NULL;
  for (size_t k = 0; k < n; k++) {
    if (val_none(wrt[k])) continue;
    OpCode op = (OpCode)g->nodes[wrt[k].node].op;
    if (op != OP_BRANCH && op != OP_LOOP) continue;
    if (!used) {
      bool *ends = marks(s, g);
      used = marks(s, g);
      memcpy(used, live, g->type_count * sizeof *used);
      for (size_t j = 0; j < n; j++)
        if (!val_none(wrt[j])) ends[ad_slot(g, wrt[j])] = true;
      ad_mark_back(&s->scratch, g, used, ends);
    }
    made_beside(s, g, used, wrt[k], at);
    uint8_t *is = ARENA_ARRAY(&s->scratch, uint8_t, g->type_count + 1);
    mark_ways(s, g, wrt[k], GIVEN, is);
    for (size_t i = 0; i < g->type_count; i++)
      if (is[i] & ways && used[i] && i != ad_slot(g, wrt[k]))
        fail_help(s, ERR_NOT_YET, at, "`1 * x`, where it is given on, is a value of its own",
                  "not yet: a gradient by a value that may be an older one, which %s gave on, of "
                  "what uses that one, too",
                  ways & GIVEN ? "a choice or loop" : "a loop");
  }
}

/* Notes a gradient in the turn st, of what depends on the marked values, by one of those in `by`.
 */
static void note(Session *s, const Stage *st, const bool *live, const bool *by, Span at) {
  const Graph *g = st->g;
  Taken t = {.at = at};
  t.by = ARENA_ARRAY(&s->scratch, size_t, g->input_count + 1);
  t.through = ARENA_ARRAY(&s->scratch, size_t, g->input_count + 1);
  for (size_t k = 1; k < g->input_count; k++) {
    size_t i = ad_slot(g, g->inputs[k]);
    if (by[i]) t.by[t.by_count++] = k;
    if (live[i]) t.through[t.through_count++] = k;
  }
  History *h = turns_history(st);
  if (t.by_count) VEC_PUSH(&s->scratch, h->items, h->count, h->cap, t);
}

/* From the marks of stage st those of the stage around it. */
static bool *marks_outside(Session *s, const Stage *st, const bool *in) {
  const Graph *g = st->g, *up = st->up->g;
  bool *out = marks(s, up);
  for (size_t c = 0; c < st->capture_count; c++)
    out[ad_slot(up, st->outer[c])] |= in[ad_slot(g, st->inner[c])];
  return out;
}

/* Whether the gradient is in a turn, or by something that a choice or loop gave. */
static bool concerns(const Stage *st, size_t nwrt, const Val *wrt) {
  const Graph *g = st->g;
  for (size_t i = 0; i < nwrt; i++) {
    OpCode op = (OpCode)g->nodes[wrt[i].node].op;
    if (op == OP_BRANCH || op == OP_LOOP || (op == OP_INPUT && st->up)) return true;
  }
  for (; st; st = st->up)
    if (st->turns) return true;
  return false;
}

void history_gradient(Session *s, size_t ny, const Val *y, size_t nwrt, const Val *wrt, Span at) {
  const Stage *st = s->stage;
  if (state_unsure(s) || !concerns(st, nwrt, wrt)) return;
  bool *live = marks(s, st->g), *by = marks(s, st->g);
  for (size_t i = 0; i < ny; i++) live[ad_slot(st->g, y[i])] = true;
  for (size_t i = 0; i < nwrt; i++) mark_same(s, st->g, wrt[i], by);
  Val *own = ARENA_ARRAY(&s->scratch, Val, nwrt + 1);
  if (nwrt) memcpy(own, wrt, nwrt * sizeof *own);
  for (uint8_t ways = TURNED;; ways = GIVEN | TURNED, st = st->up) {
    may_be_other(s, st, live, nwrt, own, ways, at);
    ad_mark_back(&s->scratch, st->g, live, NULL);
    if (st->turns) note(s, st, live, by, at);
    if (st->turns || !st->up) return;
    bool *same = marks_outside(s, st, by), *next = marks_outside(s, st, live);
    by = marks(s, st->up->g);
    for (size_t c = 0; c < st->capture_count; c++)
      if (same[ad_slot(st->up->g, st->outer[c])]) mark_same(s, st->up->g, st->outer[c], by);
    for (uint32_t i = 0; i < st->row_count; i++) /* elements: what they are of is no value of by */
      if (!val_none(st->rows[i]) && live[ad_slot(st->g, st->g->inputs[i])])
        next[ad_slot(st->up->g, st->rows[i])] = true;
    for (size_t i = 0; i < nwrt; i++) {
      Val inner = own[i];
      own[i] = VAL_NONE;
      for (size_t c = 0; c < st->capture_count; c++)
        if (val_eq(st->inner[c], inner)) own[i] = st->outer[c];
    }
    live = next;
  }
}

/* Whether what is marked in st depends on the value b of it. Where it depends on inputs of a turn,
 * that is noted there. */
static bool made_before(Session *s, const Stage *st, bool *live, Val b, Span at) {
  for (;;) {
    const Graph *g = st->g;
    bool *same = marks(s, g);
    mark_same(s, g, b, same);
    ad_mark_back(&s->scratch, g, live, NULL);
    Val x = VAL_NONE;
    for (size_t i = 0; i < g->type_count; i++)
      if (same[i] && live[i]) return true;
    Inside inside = {.g = NULL};
    if (made_by_sides(s, &inside, g, live, b)) return true;
    if (st->turns) {
      note(s, st, live, same, at);
      return false;
    }
    if (!st->up) return false;
    bool *outside = marks_outside(s, st, live);
    for (size_t c = 0; c < st->capture_count; c++) {
      if (!same[ad_slot(g, st->inner[c])]) continue;
      if (!val_none(x)) { /* one of several */
        bool *copy = marks(s, st->up->g);
        memcpy(copy, outside, st->up->g->type_count * sizeof *copy);
        if (made_before(s, st->up, copy, x, at)) return true;
      }
      x = st->outer[c];
    }
    if (val_none(x)) return false;
    live = outside;
    b = x;
    st = st->up;
  }
}

/* ---- the relation between the inputs of a turn */

/* What the turn leaves as an input depends on inputs, and on what it leaves as others: per input, a
 * bool for each. And the inputs that it may be as they are. NULL: not looked at yet. */
typedef struct Look {
  Session *s;
  const Turned *of;
  const Graph *g;
  size_t n;
  Inside inside;
  bool **reach, **reach_out;
  size_t **same; /* ends with 0 */
  bool **made;   /* [b][a]: a is made of b; NULL: nobody asks for b */
} Look;

static Val arg_of(const Look *l, size_t k) {
  const Stage *st = l->of->st;
  if (k <= l->of->carried) return l->of->args[k - 1];
  for (size_t c = 0; c < st->capture_count; c++)
    if (val_eq(st->inner[c], l->g->inputs[k])) return st->outer[c];
  return VAL_NONE;
}

static void look_at(Look *l, size_t k) {
  Arena *a = &l->s->scratch;
  const Graph *g = l->g;
  if (l->reach[k]) return;
  bool *in = l->reach[k] = ARENA_ARRAY(a, bool, l->n + 1);
  bool *out = l->reach_out[k] = ARENA_ARRAY(a, bool, l->n + 1);
  size_t *same = l->same[k] = ARENA_ARRAY(a, size_t, l->n + 1), count = 0;
  if (k > l->of->carried) { /* it stays */
    in[k] = true;
    same[0] = k;
    return;
  }
  bool *live = marks(l->s, g), *is = marks(l->s, g);
  live[ad_slot(g, l->of->outs[k - 1])] = true;
  ad_mark_back(a, g, live, NULL);
  mark_same(l->s, g, l->of->outs[k - 1], is);
  for (size_t i = 1; i < l->n; i++) {
    size_t at = ad_slot(g, g->inputs[i]);
    in[i] = live[at];
    if (i <= l->of->carried)
      out[i] = live[ad_slot(g, l->of->outs[i - 1])] ||
               made_by_sides(l->s, &l->inside, g, live, l->of->outs[i - 1]);
    if (is[at]) same[count++] = i;
  }
}

/* Adds the inputs that turns make of those in the set. */
static void close_reach(Look *l, bool *set) {
  for (bool more = true; more;) {
    more = false;
    for (size_t k = 1; k < l->n; k++) {
      if (!set[k]) continue;
      look_at(l, k);
      for (size_t i = 1; i < l->n; i++)
        if (l->reach[k][i] && !set[i]) set[i] = more = true;
    }
  }
}

/* Adds those that turns may leave as one of the set; *stays gets all that are left so. */
static void close_same(Look *l, bool *set, bool *stays) {
  for (bool more = true; more;) {
    more = false;
    for (size_t k = 1; k < l->n; k++) {
      if (!set[k]) continue;
      look_at(l, k);
      for (const size_t *x = l->same[k]; *x; x++) {
        stays[*x] = true;
        if (!set[*x]) set[*x] = more = true;
      }
    }
  }
}

/* What the first turn says: l->made[b]. */
static void made_at_first(Look *l, const Taken *t, const bool *from, size_t b) {
  Session *s = l->s;
  const Stage *up = l->of->st->up;
  bool in_turn = false; /* then notes stay, which stand among what is needed here alone */
  for (const Stage *st = up; st; st = st->up) in_turn |= st->turns != NULL;
  ArenaMark mark = arena_mark(&s->scratch);
  bool *all = marks(s, up->g);
  for (size_t a = 1; a < l->n; a++)
    if (from[a] && a != b && !val_none(arg_of(l, a))) all[ad_slot(up->g, arg_of(l, a))] = true;
  bool any = !val_none(arg_of(l, b)) && made_before(s, up, all, arg_of(l, b), t->at);
  for (size_t a = 1; any && a < l->n; a++) {
    if (!from[a] || a == b || val_none(arg_of(l, a))) continue;
    bool *one = marks(s, up->g);
    one[ad_slot(up->g, arg_of(l, a))] = true;
    l->made[b][a] = made_before(s, up, one, arg_of(l, b), t->at);
  }
  if (!in_turn) arena_rewind(&s->scratch, mark);
}

/* What a turn makes of b, from the one before it: whether that is more than was known. */
static bool made_in_turn(Look *l, const bool *from, size_t b) {
  bool more = false;
  for (size_t a = 1; a < l->n; a++) {
    if (!from[a] || a == b || l->made[b][a]) continue;
    look_at(l, a);
    bool is = b <= l->of->carried ? l->reach_out[a][b] : l->reach[a][b];
    for (const size_t *x = l->same[b]; *x && !is; x++) {
      is = l->reach[a][*x];
      for (size_t c = 1; c < l->n && !is && l->made[*x]; c++) is = l->made[*x][c] && l->reach[a][c];
    }
    more |= l->made[b][a] = is;
  }
  return more;
}

static void check_one(Look *l, const Taken *t) {
  Session *s = l->s;
  Arena *a = &s->scratch;
  bool *by = ARENA_ARRAY(a, bool, l->n + 1), *stays = ARENA_ARRAY(a, bool, l->n + 1);
  bool *from = ARENA_ARRAY(a, bool, l->n + 1), *late = ARENA_ARRAY(a, bool, l->n + 1);
  for (size_t i = 0; i < t->by_count; i++) by[t->by[i]] = true;
  for (size_t i = 0; i < t->through_count; i++) from[t->through[i]] = late[t->through[i]] = true;
  close_same(l, by, stays);
  close_reach(l, late);
  for (size_t b = 1; b < l->n; b++) {
    l->made[b] = by[b] ? ARENA_ARRAY(a, bool, l->n + 1) : NULL;
    if (by[b]) made_at_first(l, t, stays[b] ? late : from, b);
  }
  for (bool more = true; more;) {
    more = false;
    for (size_t b = 1; b < l->n; b++) more |= by[b] && made_in_turn(l, late, b);
  }
  for (size_t i = 0; i < t->by_count; i++)
    for (size_t k = 0; k < t->through_count; k++) {
      size_t of = t->through[k];
      if (of == t->by[i] || !l->made[t->by[i]][of]) continue;
      fail_help(s, ERR_NOT_YET, t->at,
                "if it counts as given, take the gradient in a function, of its arguments; or let "
                "a proc or the top level go through the loop, with the body in a fn",
                "not yet: this gradient goes through %s, which was made of what it is taken by, in "
                "an earlier turn of the loop or before it",
                l->of->name(s, l->of->ud, l->g->inputs[of]));
    }
}

void history_check(Session *s, const Turned *of) {
  const Graph *g = of->st->g;
  size_t n = g->input_count;
  Look l = {.s = s, .of = of, .g = g, .n = n};
  l.reach = ARENA_ARRAY(&s->scratch, bool *, n + 1);
  l.reach_out = ARENA_ARRAY(&s->scratch, bool *, n + 1);
  l.same = ARENA_ARRAY(&s->scratch, size_t *, n + 1);
  l.made = ARENA_ARRAY(&s->scratch, bool *, n + 1);
  for (size_t i = 0; i < of->history->count; i++) check_one(&l, &of->history->items[i]);
}
