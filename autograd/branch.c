/* Gradients under a condition: of `branch`, and of nodes whose cotangents may be absent.
 *
 * In: a node with its cotangents, as a Rule. Out: a `branch` node that computes gradients.
 *
 * The gradient of a branch is a branch on the same condition. What a side computes is made a result
 * of the forward branch, which its gradient reads (ad_keep_sides), so that there is one value for a
 * further gradient to go through, as in script; only what is no float is computed again. Each side
 * goes on with the sums of the gradients that later uses gave the captured values, so that each use
 * adds to a sum where it would if the side stood in place of the branch (rule 74). A capture that
 * one side alone uses has a gradient that may be absent: a bool comes with it (vjp.h). If the bool
 * is the condition, it is taken from there and not computed.
 *
 * Invariant: an absent gradient is -0 in every element, which leaves every sum as it is.
 */
#include <string.h>

#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/shape.h"

static bool is_token(const Graph *g, Val v) {
  return gr_type(g, v)->kind == TK_TOKEN;
}

Graph *ad_region(const Rule *r) {
  Graph *g = gr_new(r->g->arena, r->g->dims, r->g->names, NULL);
  g->blocks = r->g->blocks;
  g->at = r->g->at;
  return g;
}

int ad_seen_inside(const Rule *r) {
  const GNode *n = &r->g->nodes[r->node];
  bool hooks = false;
  for (uint32_t k = 0; r->g->seen_count && k < n->region_count; k++)
    hooks |= gr_has_hooks(r->g->regions[n->region0 + k]);
  return hooks ? r->g->seen_count : 0;
}

void ad_see(const Rule *r, Graph *g, int count, const Val *seen) {
  Val *own = ARENA_ARRAY(g->arena, Val, count + 1);
  for (int i = 0; i < count; i++) own[i] = seen[i];
  g->seen = own;
  g->seen_count = count;
  g->seen_number = r->g->seen_number;
}

Val ad_no_stash(B *b) {
  Graph *g = b->g, *body = gr_new(g->arena, g->dims, g->names, NULL);
  body->blocks = g->blocks;
  Type turn = {.kind = TK_TENSOR, .dtype = DT_I64};
  gr_output(body, gr_input(body, &turn));
  Val none = gr_const_i(g, DT_I64, DEV_CPU, 0);
  Attr carry = attr_i(AT_CARRY, 0);
  Val v = gr_op(g, OP_LOOP, &none, 1, &carry, 1, &body, 1, &b->err);
  b->failed |= val_none(v);
  return v;
}

Val ad_absent(B *b, const Type *t) {
  if (t->kind == TK_STASH) return ad_no_stash(b);
  return b_broadcast(b, gr_const_f(b->g, (DType)t->dtype, (Device)t->dev, -0.0), t->rank, t->dim);
}

static bool failed(Rule *r, bool fails, const GErr *e) {
  if (!fails) return r->b.failed;
  r->b.failed = true;
  r->b.err = *e;
  return true;
}

/* ---- values that a branch gives on
 *
 * Where a side gives a captured value as it is, the result and the captured value are one value in
 * script, and their uses are summed in one order. So here: a gradient of the result is one of the
 * captured value if that side is taken (vjp.c), unless that has no later use of its own. */

/* It does so on some side, as it is or by a branch of the side. */
bool *ad_given_on(Arena *a, const Graph *g, uint32_t node) {
  stack_check();
  const GNode *n = &g->nodes[node];
  bool *on = ARENA_ARRAY(a, bool, (size_t)n->result_count * n->operand_count + 1);
  for (uint32_t s = 0; s < 2; s++) {
    const Graph *side = g->regions[n->region0 + s];
    /* per result of the side: which of its inputs it may be; NULL: none */
    bool **is = ARENA_ARRAY(a, bool *, side->type_count + 1);
    size_t inputs = side->input_count;
    for (size_t i = 0; i < inputs; i++) {
      Val v = side->inputs[i];
      (is[side->nodes[v.node].result0 + v.res] = ARENA_ARRAY(a, bool, inputs))[i] = true;
    }
    for (uint32_t m = 0; m < side->node_count; m++) {
      const GNode *in = &side->nodes[m];
      if (in->op != OP_BRANCH) continue;
      const bool *inner = ad_given_on(a, side, m);
      for (uint32_t k = 0; k < in->result_count; k++)
        for (uint32_t i = 1; i < in->operand_count; i++) {
          Val v = gr_operand(side, m, (int)i);
          const bool *of = is[side->nodes[v.node].result0 + v.res];
          if (!of || !inner[k * in->operand_count + i]) continue;
          bool **to = &is[in->result0 + k];
          if (!*to) *to = ARENA_ARRAY(a, bool, inputs);
          for (size_t x = 0; x < inputs; x++) (*to)[x] = (*to)[x] || of[x];
        }
    }
    for (uint32_t k = 0; k < n->result_count; k++) {
      Val v = side->outputs[k];
      const bool *of = is[side->nodes[v.node].result0 + v.res];
      for (size_t x = 0; of && x < inputs; x++) {
        bool *to = &on[k * n->operand_count + x + 1];
        *to = *to || of[x];
      }
    }
  }
  return on;
}

/* Per result of g, from x up to y: whether it may be x. NULL: y cannot be. *on, if it is not NULL,
 * gets what branches give on, by the number of the node behind that of x. */
static bool *may_be(Arena *a, const Graph *g, Val y, Val x, bool ***on) {
  if (y.node <= x.node || gr_node(g, y)->op != OP_BRANCH) return NULL;
  uint32_t base = g->nodes[x.node].result0;
  size_t count = g->nodes[y.node].result0 + g->nodes[y.node].result_count - base;
  bool *may = ARENA_ARRAY(a, bool, count);
  bool **given = ARENA_ARRAY(a, bool *, y.node - x.node + 1u);
  may[x.res] = true;
  for (uint32_t n = x.node + 1; n <= y.node; n++) {
    const GNode *node = &g->nodes[n];
    for (uint32_t i = 1; node->op == OP_BRANCH && i < node->operand_count; i++) {
      Val v = gr_operand(g, n, (int)i);
      if (v.node < x.node || !may[g->nodes[v.node].result0 + v.res - base]) continue;
      if (!given[n - x.node]) given[n - x.node] = ad_given_on(a, g, n);
      for (uint32_t k = 0; k < node->result_count; k++) {
        bool *to = &may[node->result0 + k - base];
        *to = *to || given[n - x.node][k * node->operand_count + i];
      }
    }
  }
  if (on) *on = given;
  return may[g->nodes[y.node].result0 + y.res - base] ? may : NULL;
}

bool ad_may_be(Arena *a, const Graph *g, Val y, Val x) {
  return val_eq(y, x) || may_be(a, g, y, x, NULL);
}

/* a or b, of bools that may be known. */
static Val either(B *b, Val v, int *known, Val w, int also) {
  if (*known == 1 || also == 1) {
    *known = 1;
    return VAL_NONE;
  }
  if (*known == 0) {
    *known = also;
    return w;
  }
  return also == 0 ? v : b_bin(b, OP_OR, v, w);
}

/* Whether result y of a branch is its operand i. */
static Val is_operand(Arena *a, B *b, Val y, uint32_t i, int *known) {
  Graph *g = b->g, *sides[2];
  const GNode n = *gr_node(g, y);
  int each[2];
  Val flag[2], none = VAL_NONE;
  for (uint32_t k = 0; k < 2; k++) {
    const Graph *body = g->regions[n.region0 + k];
    Graph *side = sides[k] = gr_new(g->arena, g->dims, g->names, NULL);
    side->blocks = g->blocks;
    side->at = g->at;
    Val *in = ARENA_ARRAY(g->arena, Val, body->input_count + 1);
    Val *out = ARENA_ARRAY(g->arena, Val, body->output_count + 1);
    for (size_t j = 0; j < body->input_count; j++)
      in[j] = gr_input(side, gr_type(body, body->inputs[j]));
    if (!ad_inline_pure(side, body, in, out, &b->err)) {
      b->failed = true;
      return none;
    }
    B of = {.g = side};
    flag[k] = ad_is(a, &of, out[y.res], in[i - 1], &each[k]);
    if (of.failed) *b = (B){g, of.err, true};
  }
  if (b->failed) return none;
  *known = each[0] == each[1] ? each[0] : -1;
  if (*known >= 0) return none;
  Val cond = gr_operand(g, y.node, 0);
  if (each[0] == 1 && each[1] == 0) return cond;
  if (each[0] == 0 && each[1] == 1) return b_un(b, OP_NOT, cond);
  for (int k = 0; k < 2; k++)
    gr_output(sides[k], each[k] < 0 ? flag[k] : gr_const_i(sides[k], DT_BOOL, DEV_CPU, each[k]));
  Val *args = ARENA_ARRAY(g->arena, Val, n.operand_count + 1u);
  for (uint32_t j = 0; j < n.operand_count; j++) {
    args[j] = gr_operand(g, y.node, (int)j);
    if (is_token(g, args[j])) args[j] = gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &b->err);
  }
  Val v = gr_op(g, OP_BRANCH, args, (int)n.operand_count, NULL, 0, sides, 2, &b->err);
  b->failed |= val_none(v);
  return v;
}

Val ad_gives(Arena *a, B *b, Val y, Val x, int *known) {
  Val all = VAL_NONE;
  uint32_t operands = gr_node(b->g, y)->operand_count;
  *known = 0;
  for (uint32_t i = 1; i < operands && *known != 1 && !b->failed; i++) {
    if (!val_eq(gr_operand(b->g, y.node, (int)i), x)) continue;
    int is;
    Val f = is_operand(a, b, y, i, &is);
    all = either(b, all, known, f, is);
  }
  return *known < 0 ? all : VAL_NONE;
}

/* One result on the way from x to y. */
typedef struct Way {
  int known; /* see ad_is */
  Val is;
} Way;

Val ad_is(Arena *a, B *b, Val y, Val x, int *known) {
  stack_check();
  Graph *g = b->g;
  bool **on;
  *known = val_eq(y, x);
  const bool *may = *known ? NULL : may_be(a, g, y, x, &on);
  if (!may) return VAL_NONE;
  uint32_t base = g->nodes[x.node].result0;
  size_t count = g->nodes[y.node].result0 + g->nodes[y.node].result_count - base;
  bool *need = ARENA_ARRAY(a, bool, count);
  Way *way = ARENA_ARRAY(a, Way, count);
  need[g->nodes[y.node].result0 + y.res - base] = true;
  for (uint32_t n = y.node; n > x.node; n--) {
    const GNode node = g->nodes[n];
    for (uint32_t k = 0; k < node.result_count; k++)
      for (uint32_t i = 1; need[node.result0 + k - base] && i < node.operand_count; i++) {
        Val v = gr_operand(g, n, (int)i);
        if (v.node < x.node) continue;
        uint32_t at = g->nodes[v.node].result0 + v.res - base;
        need[at] = need[at] || (may[at] && on[n - x.node][k * node.operand_count + i]);
      }
  }
  way[x.res].known = 1;
  for (uint32_t n = x.node + 1; n <= y.node; n++) {
    const GNode node = g->nodes[n]; /* a copy: nodes are added */
    for (uint32_t k = 0; k < node.result_count; k++) {
      if (!need[node.result0 + k - base]) continue;
      Way *w = &way[node.result0 + k - base];
      for (uint32_t i = 1; i < node.operand_count && w->known != 1; i++) {
        Val v = gr_operand(g, n, (int)i);
        if (v.node < x.node) continue;
        const Way *from = &way[g->nodes[v.node].result0 + v.res - base];
        if (!from->known || !on[n - x.node][k * node.operand_count + i]) continue;
        int is;
        Val f = is_operand(a, b, (Val){n, k}, i, &is);
        if (b->failed) return VAL_NONE;
        if (!is) continue;
        if (is < 0 && from->known < 0) f = b_bin(b, OP_AND, f, from->is);
        if (is == 1) f = from->is, is = from->known;
        w->is = either(b, w->is, &w->known, f, is);
      }
    }
  }
  const Way *w = &way[g->nodes[y.node].result0 + y.res - base];
  *known = w->known;
  return w->known < 0 ? w->is : VAL_NONE;
}

Val ad_or_zero(B *b, Val there, Val v, bool none) {
  Graph *g = b->g, *sides[2];
  Type t = *gr_type(g, v);
  for (int k = 0; k < 2; k++) {
    sides[k] = gr_new(g->arena, g->dims, g->names, NULL);
    sides[k]->blocks = g->blocks;
    sides[k]->at = g->at;
    B in = {.g = sides[k]};
    Val x = gr_input(sides[k], &t);
    gr_output(sides[k], !k ? x : none ? ad_absent(&in, &t) : b_zeros(&in, &t));
  }
  Val of[2] = {there, v};
  Val y = gr_op(g, OP_BRANCH, of, 2, NULL, 0, sides, 2, &b->err);
  b->failed |= val_none(y);
  return y;
}

void ad_rule_if(Rule *r, const GradRule *rule, Val there) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  Graph *sides[2] = {ad_region(r), ad_region(r)};
  int seen_count = ad_seen_inside(r);
  int most = r->in_count + 2 * r->out_count + seen_count + 1, n = 1;
  Val *args = ARENA_ARRAY(r->scratch, Val, most);
  Val *seen = ARENA_ARRAY(r->scratch, Val, seen_count + 1);
  Val *in = ARENA_ARRAY(r->scratch, Val, most), *out = in + r->in_count, *dout = out + r->out_count;
  args[0] = there;
  for (int i = 0; i < r->in_count + 2 * r->out_count; i++) {
    Val v = i < r->in_count                  ? r->in[i]
            : i < r->in_count + r->out_count ? r->out[i - r->in_count]
                                             : r->dout[i - r->in_count - r->out_count];
    if (val_none(v)) {
      in[i] = v;
    } else if (is_token(r->g, v)) {
      in[i] = gr_op(sides[0], OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
    } else {
      in[i] = gr_input(sides[0], gr_type(r->g, v));
      gr_input(sides[1], gr_type(r->g, v));
      args[n++] = v;
    }
  }
  for (int i = 0; i < seen_count; i++) {
    Val v = args[n++] = r->g->seen[i];
    seen[i] = gr_input(sides[0], gr_type(r->g, v));
    gr_input(sides[1], gr_type(r->g, v));
  }
  ad_see(r, sides[0], seen_count, seen);
  /* the rule reads types, attributes and regions of the copy */
  Val copy = ad_copy_node(sides[0], r->g, r->node, in, &e);
  if (failed(r, val_none(copy), &e)) return;
  Rule of = *r;
  of.b = (B){.g = sides[0]};
  of.g = sides[0];
  of.node = copy.node;
  of.in = in;
  of.out = out;
  of.dout = dout;
  of.dx = ARENA_ARRAY(r->scratch, Val, r->in_count + 1);
  for (int i = 0; i < r->in_count; i++) of.dx[i] = VAL_NONE;
  if (rule->all) rule->all(&of);
  for (int i = r->in_count - 1; rule->one && i >= 0 && !of.b.failed; i--)
    if (r->wants[i])
      of.dx[i] = rule->one(&of, i, in[0], r->in_count > 1 ? in[1] : VAL_NONE,
                           r->in_count > 2 ? in[2] : VAL_NONE, out[0], dout[0]);
  if (failed(r, of.b.failed, &of.b.err)) return;
  B none = {.g = sides[1]};
  bool any = false;
  for (int i = 0; i < r->in_count; i++) {
    if (!r->wants[i] || val_none(of.dx[i])) continue;
    Type t = *gr_type(sides[0], of.dx[i]);
    gr_output(sides[0], of.dx[i]);
    gr_output(sides[1], ad_absent(&none, &t));
    any = true;
  }
  if (!any || failed(r, none.failed, &none.err)) return;
  Val first = gr_op(r->g, OP_BRANCH, args, n, NULL, 0, sides, 2, &e);
  if (failed(r, val_none(first), &e)) return;
  uint32_t res = 0;
  for (int i = 0; i < r->in_count; i++)
    if (r->wants[i] && !val_none(of.dx[i])) r->dx[i] = (Val){first.node, res++};
}

/* ---- the gradient of a branch */

/* The operands of the new branch: what they are, and where its sides find them. */
typedef struct Given {
  Val *v;
  int count;
} Given;

static int give(Given *given, Val v) {
  for (int i = 1; i < given->count; i++)
    if (val_eq(given->v[i], v)) return i - 1;
  given->v[given->count++] = v;
  return given->count - 2;
}

/* Whether `there` is decided by the condition: then *holds is what it is on side k. */
static bool decided(const Rule *r, Val there, int k, bool *holds) {
  Val cond = r->in[0];
  const GNode *n = gr_node(r->g, there), *c = gr_node(r->g, cond);
  bool same = val_eq(there, cond);
  bool other = (n->op == OP_NOT && val_eq(gr_operand(r->g, there.node, 0), cond)) ||
               (c->op == OP_NOT && val_eq(gr_operand(r->g, cond.node, 0), there));
  *holds = same == (k == 0);
  return same || other;
}

/* The answer of one side: the sums of its captures, per operand that is its own home. */
typedef struct Answer {
  Graph *g;
  Val *dx, *there;
  Val *sum; /* the old sum as an input of g; VAL_NONE: absent on this side */
} Answer;

/* The cotangent of result i without what was added to captured values that the result may be. */
static bool not_passed(Rule *r, Graph *g, int i, const Val *in, Val out, Val *dy, Val *there,
                       GErr *e) {
  B b = {.g = g};
  Val passed = VAL_NONE;
  int known = 0;
  for (int j = 1; j < r->in_count && known != 1; j++) {
    if (!r->passed[i * r->in_count + j]) continue;
    int is;
    Val f = ad_is(r->scratch, &b, out, in[j - 1], &is);
    passed = either(&b, passed, &known, f, is);
  }
  if (known == 1) *dy = VAL_NONE;
  if (known < 0) {
    Val stays = b_un(&b, OP_NOT, passed);
    *dy = b.failed ? *dy : ad_or_zero(&b, stays, *dy, true);
    *there = val_none(*there) ? stays : b_bin(&b, OP_AND, *there, stays);
  }
  if (b.failed) *e = b.err;
  return !b.failed;
}

static bool side_gradient(Rule *r, int k, const Given *given, Answer *a, GErr *e) {
  Graph *g = a->g = ad_region(r);
  const Graph *body = r->g->regions[r->g->nodes[r->node].region0 + (uint32_t)k];
  int captures = r->in_count + r->behind - 1, n = 0, wanted = 0, sums = 0;
  Given again = {ARENA_ARRAY(r->scratch, Val, given->count), 1};
  Val *input = ARENA_ARRAY(r->scratch, Val, given->count);
  for (int i = 1; i < given->count; i++) input[i - 1] = gr_input(g, gr_type(r->g, given->v[i]));
  for (int i = 1; i < given->count; i++) again.v[again.count++] = given->v[i];
#define AT(value) input[give(&again, value)]
  Val *in = ARENA_ARRAY(r->scratch, Val, captures + 1);
  Val *y = ARENA_ARRAY(r->scratch, Val, r->out_count + captures + 1);
  Val *dy = ARENA_ARRAY(r->scratch, Val, r->out_count + captures + 1);
  Val *there = ARENA_ARRAY(r->scratch, Val, r->out_count + captures + 1);
  Val *out = ARENA_ARRAY(r->scratch, Val, r->out_count + 1);
  Val *wrt = ARENA_ARRAY(r->scratch, Val, captures + 1);
  Val *dx = ARENA_ARRAY(r->scratch, Val, captures + 1);
  Val *dx_there = ARENA_ARRAY(r->scratch, Val, captures + 1);
  int *as = ARENA_ARRAY(r->scratch, int, captures + 1);
  int *number = ARENA_ARRAY(r->scratch, int, captures + 2); /* per operand: in wrt */
  for (int j = 0; j < captures; j++) {
    Val v = r->in[j + 1];
    in[j] = is_token(r->g, v) ? gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, e) : AT(v);
  }
  int seen_count = ad_seen_inside(r);
  Val *seen = ARENA_ARRAY(r->scratch, Val, seen_count + 1);
  for (int i = 0; i < seen_count; i++) seen[i] = AT(r->g->seen[i]);
  ad_see(r, g, seen_count, seen);
  Val *map = ARENA_ARRAY(r->scratch, Val, body->type_count + 1);
  if (!ad_inline_mapped(g, body, in, out, map, e)) return false;
  /* what the side has computed is read, and not computed again */
  size_t read_count = g->type_count;
  Val *read = ARENA_ARRAY(r->scratch, Val, read_count + 1);
  for (size_t i = 0; i < g->type_count; i++) read[i] = VAL_NONE;
  for (int i = 0; i < r->out_count; i++) {
    Val v = body->outputs[i], x = map[body->nodes[v.node].result0 + v.res];
    if (gr_node(body, v)->op != OP_INPUT && ad_has_gradient(gr_type(body, v)))
      read[g->nodes[x.node].result0 + x.res] = AT(r->out[i]);
  }
  /* seeds are added from the last to the first: sums, then cotangents of results */
  bool holds;
  for (int i = 0; i < r->out_count; i++) {
    Val t = r->dout_there[i];
    if (val_none(r->dout[i])) continue;
    bool known = !val_none(t) && decided(r, t, k, &holds);
    if (known && !holds) continue;
    y[n] = out[i];
    dy[n] = AT(r->dout[i]);
    there[n] = val_none(t) || known ? VAL_NONE : AT(t);
    if (!not_passed(r, g, i, in, out[i], &dy[n], &there[n], e)) return false;
    n += !val_none(dy[n]);
  }
  for (int i = 1; i <= captures; i++) {
    a->sum[i] = VAL_NONE;
    if (!r->wants[i]) continue;
    if (r->home[i] != i) continue;
    Val s = r->sum[i], t = r->sum_there[i];
    if (val_none(s)) continue;
    bool known = !val_none(t) && decided(r, t, k, &holds);
    if (known && !holds) continue;
    y[n] = in[i - 1];
    sums++;
    dy[n] = a->sum[i] = AT(s);
    there[n++] = val_none(t) || known ? VAL_NONE : AT(t);
  }
  for (int i = 1; i <= captures; i++) {
    if (!r->wants[i]) continue;
    number[i] = wanted;
    as[wanted] = r->home[i] == i ? wanted : number[r->home[i]];
    wrt[wanted++] = in[i - 1];
  }
  Prov at;
  VjpAsk ask = {.ny = n,
                .sums = sums,
                .read = read,
                .read_count = read_count,
                .y = y,
                .dy = dy,
                .dy_there = there,
                .nwrt = wanted,
                .wrt = wrt,
                .as = as,
                .dx = dx,
                .dx_there = dx_there};
  Origin *origins = ARENA_ARRAY(r->scratch, Origin, r->origin_count + 1);
  for (size_t i = 0; i < r->origin_count; i++) {
    Origin *o = &origins[ask.origin_count++];
    *o = r->origins[i];
    int is = 0, of = 0;
    while (!val_eq(r->at[is], o->y)) is++;
    while (!val_eq(r->at[of], o->x)) of++;
    o->y = in[is - 1];
    o->x = in[of - 1];
    if (o->known > 0) continue;
    if (decided(r, o->is, k, &holds)) {
      o->known = holds;
      ask.origin_count -= !holds;
    } else {
      o->is = AT(o->is);
    }
  }
  ask.origins = origins;
#undef AT
  if (!ad_vjp_ask(g, &ask, e, &at)) return false;
  for (int i = 1; i <= captures; i++) {
    a->dx[i] = a->there[i] = VAL_NONE;
    if (!r->wants[i] || r->home[i] != i) continue;
    a->dx[i] = dx[number[i]];
    a->there[i] = dx_there[number[i]];
  }
  return true;
}

static void all_BRANCH(Rule *r) {
  GErr e = {.code = ERR_BUG, .operand = -1};
  int all = r->in_count + r->behind;
  int seen_count = ad_seen_inside(r);
  size_t most = 3 * (size_t)all + 3 * (size_t)r->out_count + r->origin_count + 1;
  most += (size_t)seen_count;
  Given given = {ARENA_ARRAY(r->scratch, Val, most), 1};
  Answer side[2];
  given.v[0] = r->in[0];
  for (int i = 1; i < all; i++)
    if (!is_token(r->g, r->in[i])) give(&given, r->in[i]);
  bool holds;
  for (int i = 0; i < r->out_count; i++) {
    if (!is_token(r->g, r->out[i])) give(&given, r->out[i]);
    if (val_none(r->dout[i])) continue;
    give(&given, r->dout[i]);
    Val t = r->dout_there[i];
    if (!val_none(t) && !decided(r, t, 0, &holds)) give(&given, t);
  }
  for (int i = 1; i < all; i++) {
    if (!r->wants[i] || r->home[i] != i || val_none(r->sum[i])) continue;
    give(&given, r->sum[i]);
    Val t = r->sum_there[i];
    if (!val_none(t) && !decided(r, t, 0, &holds)) give(&given, t);
  }
  for (size_t i = 0; i < r->origin_count; i++)
    if (r->origins[i].known < 0 && !decided(r, r->origins[i].is, 0, &holds))
      give(&given, r->origins[i].is);
  for (int i = 0; i < seen_count; i++) give(&given, r->g->seen[i]);
  for (int k = 0; k < 2; k++) {
    side[k].dx = ARENA_ARRAY(r->scratch, Val, all + 1);
    side[k].there = ARENA_ARRAY(r->scratch, Val, all + 1);
    side[k].sum = ARENA_ARRAY(r->scratch, Val, all + 1);
    if (failed(r, !side_gradient(r, k, &given, &side[k], &e), &e)) return;
  }
  /* per operand: its result, and the result that says whether it is there */
  enum { NO = -1, COND = -2, NOT_COND = -3 };
  int *value = ARENA_ARRAY(r->scratch, int, all + 1);
  int *flag = ARENA_ARRAY(r->scratch, int, all + 1);
  int results = 0;
  for (int i = 1; i < all; i++) {
    value[i] = flag[i] = NO;
    if (!r->wants[i] || r->home[i] != i) continue;
    const Val *dx[2] = {&side[0].dx[i], &side[1].dx[i]};
    bool there[2] = {!val_none(*dx[0]), !val_none(*dx[1])}, sure[2], same = true;
    for (int k = 0; k < 2; k++) {
      sure[k] = there[k] && val_none(side[k].there[i]);
      same &= val_eq(*dx[k], side[k].sum[i]); /* neither side adds to the sum */
    }
    if ((!there[0] && !there[1]) || same) continue;
    Type t = *gr_type(there[0] ? side[0].g : side[1].g, there[0] ? *dx[0] : *dx[1]);
    for (int k = 0; k < 2; k++) {
      B b = {.g = side[k].g};
      gr_output(side[k].g, there[k] ? *dx[k] : ad_absent(&b, &t));
      if (failed(r, b.failed, &b.err)) return;
    }
    value[i] = results++;
    if (sure[0] && sure[1]) continue;
    if (sure[0] && !there[1]) {
      flag[i] = COND;
    } else if (!there[0] && sure[1]) {
      flag[i] = NOT_COND;
    } else {
      bool rows = false; /* a flag for each row of a stash */
      for (int k = 0; k < 2; k++)
        rows |= there[k] && !sure[k] && gr_type(side[k].g, side[k].there[i])->kind == TK_STASH;
      for (int k = 0; k < 2; k++) {
        B b = {.g = side[k].g};
        bool own = there[k] && !sure[k];
        if (rows && there[k] && (!own || gr_type(b.g, side[k].there[i])->kind != TK_STASH)) {
          gerr_set(&e, ERR_NOT_YET, -1,
                   "not yet: a gradient of a gradient through loops on both sides of a choice");
          gerr_help(&e, "take it in script, with `record = true`");
          failed(r, true, &e);
          return;
        }
        gr_output(b.g, own ? side[k].there[i] : rows ? ad_no_stash(&b) : ad_truth(b.g, there[k]));
        if (failed(r, b.failed, &b.err)) return;
      }
      flag[i] = results++;
    }
  }
  if (!results) return;
  Graph *sides[2] = {side[0].g, side[1].g};
  Val first = gr_op(r->g, OP_BRANCH, given.v, given.count, NULL, 0, sides, 2, &e), other = VAL_NONE;
  if (failed(r, val_none(first), &e)) return;
  for (int i = 1; i < all; i++) {
    if (value[i] == NO) continue;
    r->dx[i] = (Val){first.node, (uint32_t)value[i]};
    if (flag[i] == NOT_COND && val_none(other)) other = b_un(&r->b, OP_NOT, r->in[0]);
    r->dx_there[i] = flag[i] == NO         ? VAL_NONE
                     : flag[i] == COND     ? r->in[0]
                     : flag[i] == NOT_COND ? other
                                           : (Val){first.node, (uint32_t)flag[i]};
  }
}

/* ---- what the sides compute as results */

void ad_add_results(Graph *g, uint32_t node, size_t more, const Type *types) {
  size_t at = g->nodes[node].result0 + g->nodes[node].result_count, count = g->type_count;
  for (size_t i = 0; i < more; i++) {
    Type none = {0};
    VEC_PUSH(g->arena, g->types, g->type_count, g->type_cap, none);
  }
  memmove(g->types + at + more, g->types + at, (count - at) * sizeof *g->types);
  memcpy(g->types + at, types, more * sizeof *types);
  g->nodes[node].result_count = (uint16_t)(g->nodes[node].result_count + more);
  for (size_t n = node + 1u; n < g->node_count; n++) g->nodes[n].result0 += (uint32_t)more;
}

/* Whether no condition is open on the sizes: a result of size N - 1 would need one more check. */
static bool plain_sizes(const Graph *g, const Type *t) {
  Sym s;
  for (int i = 0; i < t->rank; i++)
    if (!dim_is_const(g->dims, t->dim[i], NULL) && !dim_is_symbol(g->dims, t->dim[i], &s))
      return false;
  return true;
}

bool ad_keep_sides(Graph *g, uint32_t node, GErr *e) {
  stack_check();
  enum { MOST = 60000 }; /* results of a node are counted in 16 bits */
  const GNode n = g->nodes[node];
  Type *types = NULL;
  size_t count = 0, cap = 0;
  uint32_t both[2]; /* nodes of the sides before zeros are added */
  for (uint32_t k = 0; k < 2; k++) {
    Graph *side = g->regions[n.region0 + k];
    both[k] = (uint32_t)side->node_count;
    if (both[k] && !ad_keep_inside(side, 0, both[k] - 1, e)) return false;
  }
  for (uint32_t k = 0; k < 2; k++) {
    Graph *side = g->regions[n.region0 + k], *other = g->regions[n.region0 + !k];
    uint32_t nodes = both[k];
    bool *depends = ARENA_ARRAY(g->arena, bool, side->type_count + 1); /* on a float from outside */
    bool *kept = ARENA_ARRAY(g->arena, bool, side->type_count + 1);
    for (size_t i = 0; i < side->output_count; i++) {
      Val v = side->outputs[i];
      kept[side->nodes[v.node].result0 + v.res] = true;
    }
    for (uint32_t i = 0; i < nodes; i++) {
      const GNode *in = &side->nodes[i];
      bool any = in->op == OP_INPUT;
      for (uint32_t j = 0; j < in->operand_count && !any; j++) {
        Val v = gr_operand(side, i, (int)j);
        any = depends[side->nodes[v.node].result0 + v.res];
      }
      for (uint32_t r = 0; any && r < in->result_count; r++) {
        Val v = {i, r};
        bool is_float = ad_has_gradient(gr_type(side, v));
        depends[in->result0 + r] = is_float;
        if (in->op == OP_INPUT || kept[in->result0 + r] || !is_float) continue;
        const Prov *p = &side->provs[in->prov];
        /* a `checkpoint` block of the side computes its values again, but those that it saves */
        bool saved = tag_says((Tag)p->tag, CHOICE_SAVE) && !tag_narrows((Tag)p->tag);
        if (p->region != g->provs[n.prov].region && !saved) continue;
        if (n.result_count + count >= MOST) break;
        Type t = *gr_type(side, v);
        t.alias = 0;
        if (!plain_sizes(g, &t)) continue;
        other->at = side->provs[in->prov];
        B b = {.g = other};
        Val none = t.kind == TK_STASH ? ad_no_stash(&b) : b_zeros(&b, &t);
        if (b.failed) {
          *e = b.err;
          return false;
        }
        gr_output(side, v);
        gr_output(other, none);
        VEC_PUSH(g->arena, types, count, cap, t);
      }
    }
  }
  if (count) ad_add_results(g, node, count, types);
  return true;
}

const GradRule grad_BRANCH = {NULL, all_BRANCH};
