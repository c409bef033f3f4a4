/* Reverse-mode differentiation of a graph into the same graph.
 *
 * In: results y with cotangents dy, and values wrt. Out: nodes appended to the graph that compute
 * the gradient of each wrt. Two sweeps over the nodes between the first wrt and the last y
 * (Griewank and Walther, Evaluating Derivatives, chapter 6): forwards, a value is active when it
 * is a float that depends on a wrt through ops with a derivative; backwards, each node that has
 * an active operand and a cotangent gives contributions to its active operands. Time and memory
 * are linear in those nodes; no recursion over them (bodies of structured ops recurse by nesting
 * alone).
 *
 * A cotangent that comes from one side of a `branch` is absent when the other side is taken. Then
 * it has a bool (VjpAsk), and a node all of whose cotangents have one runs its rule in a `branch`
 * on them: a rule must not see a cotangent that is not there, as sqrt at 0 would make NaN of it.
 *
 * A side may give a captured value on as it is. Then result and captured value are one value in
 * script, whose uses are summed as they come. So each contribution to the result is also one to the
 * captured value, if that side is taken (Origin), where the two could otherwise differ: where the
 * captured value has uses behind the branch, too.
 *
 * Invariant (rule 74): a value's cotangent is ((last use + one before) + ..) + first use, a node
 * with the value as several operands counting as a use for each, the last operand last; the seed
 * of y comes before all uses. */
#include <string.h>

#include "autograd/remat.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"

static const GradRule *const rules[OP_COUNT] = {
#define OP(NAME, ...) &grad_##NAME,
#include "graph/ops_rows.def"
#undef OP
};

static bool passes_gradient(const GradRule *r) {
  return r->one || r->all;
}

/* Whether the rule of the node goes on with the sums of its operands. */
static bool goes_on(const GNode *n) {
  return n->op == OP_BRANCH || n->op == OP_LOOP || n->op == OP_STASH || n->op == OP_UNSTASH;
}

static void prov_out(Prov *at, const Graph *g, uint32_t node) {
  if (at) *at = g->provs[g->nodes[node].prov];
}

/* ---- copying nodes */

Val ad_copy_node(Graph *dst, const Graph *src, uint32_t node, const Val *in, GErr *e) {
  const GNode *n = &src->nodes[node];
  Graph *few[4], **regions = few;
  if (n->region_count > 4) regions = ARENA_ARRAY(dst->arena, Graph *, n->region_count);
  for (int k = 0; k < n->region_count; k++)
    regions[k] = gr_clone(dst->arena, src->regions[n->region0 + (uint32_t)k]);
  if (n->op == OP_INPUT) return gr_input(dst, &src->types[n->result0]);
  return gr_op(dst, (OpCode)n->op, in, (int)n->operand_count, &src->attrs[n->attr0], n->attr_count,
               regions, n->region_count, e);
}

/* A region without its effects. */
static Graph *pure_region(Graph *dst, const Graph *body, GErr *e) {
  Graph *g = gr_new(dst->arena, dst->dims, dst->names, body->name);
  g->blocks = dst->blocks;
  g->at = dst->at;
  Val *in = ARENA_ARRAY(dst->arena, Val, body->input_count + 1);
  Val *out = ARENA_ARRAY(dst->arena, Val, body->output_count + 1);
  for (size_t i = 0; i < body->input_count; i++)
    in[i] = gr_input(g, gr_type(body, body->inputs[i]));
  if (!ad_inline_pure(g, body, in, out, e)) return NULL;
  for (size_t i = 0; i < body->output_count; i++) gr_output(g, out[i]);
  return g;
}

/* The copy of a node, without the effects in its regions. */
static Val pure_node(Graph *dst, const Graph *src, uint32_t node, const Val *in, GErr *e) {
  const GNode *n = &src->nodes[node];
  bool pure = true;
  for (uint32_t k = 0; k < n->region_count; k++) pure &= !has_effect(src->regions[n->region0 + k]);
  if (pure) return ad_copy_node(dst, src, node, in, e);
  Graph **regions = ARENA_ARRAY(dst->arena, Graph *, n->region_count);
  for (uint32_t k = 0; k < n->region_count; k++) {
    regions[k] = pure_region(dst, src->regions[n->region0 + k], e);
    if (!regions[k]) return VAL_NONE;
  }
  return gr_op(dst, (OpCode)n->op, in, (int)n->operand_count, &src->attrs[n->attr0], n->attr_count,
               regions, n->region_count, e);
}

bool ad_inline_pure(Graph *dst, const Graph *body, const Val *args, Val *outs, GErr *e) {
  return ad_inline_mapped(dst, body, args, outs, NULL, e);
}

bool ad_inline_mapped(Graph *dst, const Graph *body, const Val *args, Val *outs, Val *map,
                      GErr *e) {
  stack_check();
  Arena *a = dst->arena;
  Prov at = dst->at;
  if (!map) map = ARENA_ARRAY(a, Val, body->type_count + 1);
  size_t widest = 0, next_arg = 0;
  bool narrows = rm_narrows(body);
  for (size_t j = 0; j < body->node_count; j++)
    if (body->nodes[j].operand_count > widest) widest = body->nodes[j].operand_count;
  Val *in = ARENA_ARRAY(a, Val, widest + 1);
  for (size_t j = 0; j < body->node_count; j++) {
    const GNode *n = &body->nodes[j];
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val v = body->operands[n->operand0 + k];
      in[k] = map[body->nodes[v.node].result0 + v.res];
    }
    Val *to = &map[n->result0];
    dst->at = body->provs[n->prov];
    bool stays = narrows && !dst->at.backward; /* in its block: remat.c rounds what it saves */
    dst->at.recomputed |= stays;
    dst->at.backward = !stays;
    if (!stays) dst->at.tag = TAG_NONE;
    if (!stays) dst->at.within = at.within;
    if (n->op == OP_INPUT) {
      *to = args[next_arg++];
    } else if (n->op == OP_PRINT || n->op == OP_ASSERT) {
      *to = in[0];
    } else if (n->op == OP_DEFER) { /* a hook, in a gradient of the gradient: an error of the run */
      Attr attr[3] = {*gr_attr(body, (uint32_t)j, AT_TEXT),
                      attr_i(AT_CARRY, gr_attr_i(body, (uint32_t)j, AT_CARRY, 1)),
                      attr_i(AT_INDEX, -1)};
      Val v = gr_op(dst, OP_DEFER, in, 1 + (int)attr[1].u.i, attr, 3, NULL, 0, e);
      if (val_none(v)) return false;
      for (uint32_t k = 0; k < n->result_count; k++) to[k] = (Val){v.node, k};
    } else if (n->op == OP_WRAP) {
      if (!ad_inline_pure(dst, body->regions[n->region0], in, to, e)) return false;
    } else {
      Val v = pure_node(dst, body, (uint32_t)j, in, e);
      if (val_none(v)) return false;
      for (uint32_t k = 0; k < n->result_count; k++) to[k] = (Val){v.node, v.res + k};
    }
  }
  for (size_t j = 0; j < body->output_count; j++) {
    Val v = body->outputs[j];
    outs[j] = map[body->nodes[v.node].result0 + v.res];
  }
  dst->at = at;
  return true;
}

bool ad_keep_inside(Graph *g, uint32_t lo, uint32_t hi, GErr *e) {
  for (uint32_t n = lo; n <= hi; n++) {
    if (g->nodes[n].op == OP_BRANCH && !ad_keep_sides(g, n, e)) return false;
    if (g->nodes[n].op == OP_LOOP && !ad_keep_turns(g, n, e)) return false;
  }
  return true;
}

/* ---- the two sweeps */

typedef struct Sweep {
  Graph *g;
  Arena scratch;
  int ny, nwrt;
  const Val *y, *dy, *dy_there, *wrt;
  const int *as; /* see ad_vjp_as */
  Val *dx, *dx_there;
  GErr *e;
  Prov *at;
  Prov entry; /* g->at at entry */
  bool ok;
  uint32_t lo, hi; /* nodes looked at: lo .. hi */
  uint32_t base;   /* number of lo's first result */
  struct Sink {
    uint32_t at, hook;
  } * sinks; /* nodes `hook`, by the last node whose value they take */
  size_t sink_count, sink_cap;
  uint8_t *active; /* per result from base on */
  Val *cot;        /* cotangent so far */
  Val *there;      /* whether it is there; VAL_NONE: surely */
  int sums;
  const Val *read; /* see VjpAsk */
  size_t read_count;
  const Origin *given;
  size_t given_count;
  Origin *origins;
  size_t origin_count, origin_cap;
  Val *home; /* per result: the value that its uses count for; none: itself */
  bool by_value;
  int asked; /* wrt of the ask; behind these stand values that they may be */
} Sweep;

static uint32_t slot(const Sweep *s, Val v) {
  return ad_slot(s->g, v) - s->base;
}

static bool inside(const Sweep *s, Val v) {
  return !val_none(v) && v.node >= s->lo && v.node <= s->hi;
}

static bool is_active(const Sweep *s, Val v) {
  return inside(s, v) && s->active[slot(s, v)];
}

bool ad_carries(const Graph *g, uint32_t node, uint32_t i) {
  if (g->nodes[node].op == OP_VERSION) return i == 1;
  if (g->nodes[node].op != OP_CUSTOM || g->nodes[node].region_count < 2) return true;
  const Attr *a = gr_attr(g, node, AT_WRT);
  for (uint32_t j = 0; a && j < a->count; j++)
    if (a->u.ints[j] == (int64_t)i) return true;
  return false;
}

static void mark_active(Sweep *s) {
  Graph *g = s->g;
  for (int j = 0; j < s->nwrt; j++)
    if (inside(s, s->wrt[j]) && ad_has_gradient(gr_type(g, s->wrt[j])))
      s->active[slot(s, s->wrt[j])] = 1;
  for (uint32_t n = s->lo; n <= s->hi; n++) {
    const GNode *node = &g->nodes[n];
    bool any = false;
    if (!passes_gradient(rules[node->op])) continue;
    for (uint32_t i = 0; i < node->operand_count && !any; i++)
      any = is_active(s, g->operands[node->operand0 + i]) && ad_carries(g, n, i);
    for (uint32_t k = 0; any && k < node->result_count; k++)
      if (ad_has_gradient(&g->types[node->result0 + k])) s->active[node->result0 + k - s->base] = 1;
  }
}

/* Uses of a later version of a value are uses of the value, in their order. */
static void find_homes(Sweep *s, size_t count) {
  bool any = s->as != NULL;
  for (uint32_t n = s->lo; n <= s->hi && !any; n++) any = s->g->nodes[n].op == OP_VERSION;
  if (!any) return;
  s->home = ARENA_ARRAY(&s->scratch, Val, count + 1);
  for (size_t j = 0; j < count; j++) s->home[j] = VAL_NONE;
  bool *wanted = ARENA_ARRAY(&s->scratch, bool, count + 1);
  for (int j = 0; j < s->nwrt; j++) {
    if (!inside(s, s->wrt[j])) continue;
    wanted[slot(s, s->wrt[j])] = true;
    if (s->as && s->as[j] != j) s->home[slot(s, s->wrt[j])] = s->wrt[s->as[j]];
  }
  for (uint32_t n = s->lo; n <= s->hi; n++) {
    Val v = {n, 0};
    if (s->g->nodes[n].op != OP_VERSION || wanted[slot(s, v)]) continue;
    Val of = gr_operand(s->g, n, 1);
    if (!is_active(s, of)) continue;
    s->home[slot(s, v)] = val_none(s->home[slot(s, of)]) ? of : s->home[slot(s, of)];
  }
}

/* The number of the result to whose sum v's gradients are added. */
static uint32_t home_of(const Sweep *s, Val v) {
  uint32_t at = slot(s, v);
  return s->home && !val_none(s->home[at]) ? slot(s, s->home[at]) : at;
}

/* The value whose later version v is, as far as uses of v are uses of it. */
static Val earlier(const Sweep *s, Val v) {
  while (s->home && inside(s, v) && s->g->nodes[v.node].op == OP_VERSION &&
         !val_none(s->home[slot(s, v)]))
    v = gr_operand(s->g, v.node, 1);
  return v;
}

static bool add_to(Sweep *s, B *b, Val v, Val d, Val there);

static bool add_here(Sweep *s, B *b, Val v, Val d, Val there);

/* Finds when the value is the older one: what a loop gives, if the loop has no turns. */
static void ask_origin(Sweep *s, B *b, Origin *o) {
  if (o->known != -2) return;
  if (gr_node(s->g, o->y)->op != OP_LOOP) {
    o->is = ad_gives(&s->scratch, b, o->y, o->x, &o->known);
    return;
  }
  Val is = ad_no_turns(b, o->y.node);
  for (size_t i = 0; i < s->origin_count; i++)
    if (s->origins[i].y.node == o->y.node) s->origins[i].known = -1, s->origins[i].is = is;
}

/* Adds d to the operand that v is on the side that is taken. */
static bool add_to_origin(Sweep *s, B *b, Origin *o, Val d, Val there) {
  ask_origin(s, b, o);
  if (b->failed) {
    *s->e = b->err;
    return false;
  }
  if (!o->known) return true;
  if (o->known < 0) {
    d = ad_or_zero(b, o->is, d, true);
    there = val_none(there) ? o->is : b_bin(b, OP_AND, there, o->is);
  }
  if (!b->failed) return add_to(s, b, o->x, d, there);
  *s->e = b->err;
  return false;
}

static bool add_to(Sweep *s, B *b, Val v, Val d, Val there) {
  stack_check();
  v = earlier(s, v);
  for (size_t i = 0; i < s->origin_count; i++)
    if (val_eq(s->origins[i].y, v) && !add_to_origin(s, b, &s->origins[i], d, there)) return false;
  return add_here(s, b, v, d, there);
}

void ad_add(B *b, Val *sum, Val *there, Val d, Val d_there) {
  if (val_none(*sum)) {
    *sum = d;
    *there = d_there;
    return;
  }
  *sum = b_bin(b, OP_ADD, *sum, d);
  if (val_none(*there) || val_none(d_there))
    *there = VAL_NONE;
  else if (!val_eq(*there, d_there))
    *there = b_bin(b, OP_OR, *there, d_there);
}

static bool add_here(Sweep *s, B *b, Val v, Val d, Val there) {
  uint32_t at = home_of(s, v);
  ad_add(b, &s->cot[at], &s->there[at], d, there);
  if (!b->failed) return true;
  *s->e = b->err;
  return false;
}

/* Whether a gradient fits its value: the same dtype and rank, and no dim provably different. */
static bool fits(const Sweep *s, Val v, Val d) {
  const Type *t = gr_type(s->g, v), *u = gr_type(s->g, d);
  if (t->kind != u->kind || t->dtype != u->dtype || t->rank != u->rank) return false;
  for (int j = 0; j < t->rank; j++)
    if (dim_compare(s->g->dims, t->dim[j], u->dim[j]) == DIM_DIFFERENT) return false;
  return true;
}

static bool seed(Sweep *s, B *b) {
  for (int j = s->ny - 1; j >= 0; j--) {
    if (!is_active(s, s->y[j])) continue;
    if (!fits(s, s->y[j], s->dy[j])) {
      Buf text;
      buf_init_arena(&text, &s->scratch);
      type_print(&text, s->g->dims, gr_type(s->g, s->dy[j]));
      buf_puts(&text, ", the value ");
      type_print(&text, s->g->dims, gr_type(s->g, s->y[j]));
      prov_out(s->at, s->g, s->y[j].node);
      return gerr_set(s->e, ERR_GRAD_COTANGENT, j, "the cotangent is %s", text.s);
    }
    s->g->at = s->g->provs[gr_node(s->g, s->y[j])->prov];
    s->g->at.backward = 1;
    s->g->at.tag = TAG_NONE;
    s->g->at.within = s->entry.region;
    s->g->at.anomaly |= s->entry.anomaly;
    Val there = s->dy_there ? s->dy_there[j] : VAL_NONE;
    if (!(j < s->ny - s->sums ? add_to : add_here)(s, b, s->y[j], s->dy[j], there)) return false;
  }
  return true;
}

/* ---- results of branches that may be values from before it */

/* Per result: the last node that uses it or what is summed with it, UINT32_MAX: it is seeded. */
static uint32_t *last_uses(Sweep *s, size_t count) {
  const Graph *g = s->g;
  uint32_t *last = ARENA_ARRAY(&s->scratch, uint32_t, count + 1);
  for (uint32_t n = s->lo; n <= s->hi; n++)
    for (uint32_t i = 0; i < g->nodes[n].operand_count; i++) {
      Val v = gr_operand(g, n, (int)i);
      if (inside(s, v)) last[home_of(s, v)] = n;
    }
  for (int j = 0; j < s->ny; j++)
    if (inside(s, s->y[j])) last[home_of(s, s->y[j])] = UINT32_MAX;
  return last;
}

/* What may be x is used last at `n`: so is x. */
static void used_as(const Sweep *s, uint32_t *last, Val x, uint32_t n) {
  stack_check();
  x = earlier(s, x);
  if (!inside(s, x)) return;
  uint32_t *at = &last[home_of(s, x)];
  if (*at >= n) return;
  *at = n;
  for (size_t i = 0; i < s->origin_count; i++)
    if (val_eq(s->origins[i].y, x)) used_as(s, last, s->origins[i].x, n);
}

/* Whether result v is among wrt beside values that it may be. */
static bool given_wrt(const Sweep *s, Val v) {
  for (int i = 0; s->nwrt > s->asked && i < s->nwrt; i++)
    if (val_eq(s->wrt[i], v)) return true;
  return false;
}

/* Whether v is x, or may be, or counts for the same sum. */
static bool has_origin(const Sweep *s, Val v, Val x) {
  stack_check();
  v = earlier(s, v);
  if (val_eq(v, earlier(s, x)) || (inside(s, v) && home_of(s, v) == home_of(s, x))) return true;
  for (size_t i = 0; i < s->origin_count; i++)
    if (val_eq(s->origins[i].y, v) && has_origin(s, s->origins[i].x, x)) return true;
  return false;
}

static void find_origins(Sweep *s, size_t count) {
  const Graph *g = s->g;
  uint32_t *last = NULL;
  for (size_t i = 0; i < s->given_count; i++) {
    VEC_PUSH(&s->scratch, s->origins, s->origin_count, s->origin_cap, s->given[i]);
    if (!last) last = last_uses(s, count);
    if (inside(s, s->given[i].y)) used_as(s, last, s->given[i].x, last[home_of(s, s->given[i].y)]);
  }
  for (uint32_t n = s->lo; n <= s->hi; n++) {
    const GNode *node = &g->nodes[n];
    bool loop = node->op == OP_LOOP;
    uint32_t given = node->operand_count;
    if (loop) given = ad_has_turns(g, n) ? 0 : 1 + (uint32_t)gr_attr_i(g, n, AT_CARRY, 0);
    if ((node->op != OP_BRANCH && !loop) || !given) continue;
    const bool *on = loop ? NULL : ad_given_on(&s->scratch, g, n);
    for (uint32_t i = 1; i < given; i++) {
      Val x = gr_operand(g, n, (int)i);
      if (!is_active(s, x)) continue;
      bool again = false; /* ad_gives asks all operands that are x */
      for (uint32_t k = 1; k < i && !again; k++) again = val_eq(gr_operand(g, n, (int)k), x);
      if (again && !loop) continue;
      uint32_t times = 0; /* that a loop has the value */
      for (uint32_t k = 1; loop && k < node->operand_count; k++)
        times += has_origin(s, gr_operand(g, n, (int)k), x);
      size_t from = s->origin_count;
      for (uint32_t k = 0; k < node->result_count; k++) {
        Origin o = {.y = {n, k}, .x = x, .known = -2};
        if (loop ? k + 1 == i : on[k * node->operand_count + i])
          VEC_PUSH(&s->scratch, s->origins, s->origin_count, s->origin_cap, o);
      }
      if (s->origin_count == from) continue;
      if (!last) last = last_uses(s, count);
      bool behind = false; /* x may be another value itself, which has later uses */
      for (size_t k = 0; k < from && !behind; k++) behind = val_eq(s->origins[k].y, earlier(s, x));
      bool asked = false;
      for (size_t k = from; k < s->origin_count; k++) asked |= given_wrt(s, s->origins[k].y);
      if (s->origin_count == from + 1 && last[home_of(s, x)] == n && !behind && times < 2 && !asked)
        s->origin_count = from;
      for (size_t k = from; k < s->origin_count; k++)
        used_as(s, last, x, last[home_of(s, s->origins[k].y)]);
    }
  }
}

/* ---- hooks: when the sweep reaches the last of the values of a hook, their cotangents are
 * complete (the values of one hook have no uses between them) and pass through a host function */

static void find_sinks(Sweep *s) {
  Graph *g = s->g;
  for (uint32_t n = s->lo; n < g->node_count; n++) {
    if (g->nodes[n].op != OP_HOOK) continue;
    struct Sink k = {0, n};
    for (int i = 0; i < gr_attr_i(g, n, AT_CARRY, 1); i++) {
      uint32_t at = gr_operand(g, n, i).node;
      if (at > k.at && at <= s->hi) k.at = at; /* behind hi nothing has a cotangent */
    }
    if (k.at >= s->lo) VEC_PUSH(&s->scratch, s->sinks, s->sink_count, s->sink_cap, k);
  }
}

/* The cotangents in[1] .. in[there] pass; the others of the n operands are read. Returns the first
 * of the results. */
static Val call_hook(Sweep *s, Graph *g, uint32_t hook, int there, const int64_t *which, Val *in,
                     int n) {
  const Graph *of = s->g;
  Attr attr[5] = {*gr_attr(of, hook, AT_TEXT), attr_i(AT_CARRY, there),
                  attr_i(AT_INDEX, gr_attr_i(of, hook, AT_INDEX, -1)),
                  attr_ints(AT_WRT, there, which), attr_i(AT_SEEN, of->seen_number)};
  in[0] = gr_op(g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, s->e);
  if (val_none(in[0])) return in[0];
  Val d = gr_op(g, OP_DEFER, in, n, attr, of->seen_count ? 5 : 4, NULL, 0, s->e);
  if (!val_none(d)) d.res = 1;
  return d;
}

/* The same where it is so; elsewhere the cotangents stay absent. */
static Val call_hook_if(Sweep *s, Val so, uint32_t hook, int there, const int64_t *which,
                        const Val *in, int n) {
  Graph *g = s->g, *sides[2];
  Val *args = ARENA_ARRAY(&s->scratch, Val, n + 1), *inner = ARENA_ARRAY(&s->scratch, Val, n + 1);
  for (int k = 0; k < 2; k++) {
    sides[k] = gr_new(g->arena, g->dims, g->names, NULL);
    sides[k]->blocks = g->blocks;
    sides[k]->at = g->at;
    for (int i = 1; i < n; i++) inner[i] = gr_input(sides[k], gr_type(g, in[i]));
    Val d = k ? VAL_NONE : call_hook(s, sides[k], hook, there, which, inner, n);
    if (!k && val_none(d)) return d;
    for (int i = 0; i < there; i++)
      gr_output(sides[k], k ? inner[1 + i] : (Val){d.node, d.res + (uint32_t)i});
  }
  args[0] = so;
  for (int i = 1; i < n; i++) args[i] = in[i];
  return gr_op(g, OP_BRANCH, args, n, NULL, 0, sides, 2, s->e);
}

static bool pass_hook(Sweep *s, uint32_t hook) {
  Graph *g = s->g;
  const GNode node = g->nodes[hook];
  int carry = (int)gr_attr_i(g, hook, AT_CARRY, 1), n = 1;
  Val *in = ARENA_ARRAY(&s->scratch, Val, node.operand_count + (size_t)g->seen_count + 2u);
  int64_t *which = ARENA_ARRAY(&s->scratch, int64_t, carry + 1);
  Val so = VAL_NONE;
  bool differ = false;
  for (int i = 0; i < carry; i++) {
    Val v = gr_operand(g, hook, i);
    if (!is_active(s, v) || val_none(s->cot[slot(s, v)])) continue;
    Val there = s->there[slot(s, v)];
    differ |= n > 1 && !val_eq(there, so);
    so = there;
    which[n - 1] = i;
    in[n++] = s->cot[slot(s, v)];
  }
  int there = n - 1;
  if (!there) return true;
  if (differ) {
    prov_out(s->at, g, hook);
    return gerr_set(s->e, ERR_NOT_YET, -1,
                    "not yet: a hook of values of which one side of a choice on data alone uses "
                    "some");
  }
  for (int i = carry; i < (int)node.operand_count; i++) in[n++] = gr_operand(g, hook, i);
  for (int i = 0; i < g->seen_count; i++) in[n++] = g->seen[i];
  g->at = g->provs[node.prov];
  g->at.backward = 1;
  g->at.tag = TAG_NONE;
  g->at.within = s->entry.region;
  Val d = val_none(so) ? call_hook(s, g, hook, there, which, in, n)
                       : call_hook_if(s, so, hook, there, which, in, n);
  if (val_none(d)) {
    prov_out(s->at, g, hook);
    return false;
  }
  for (int i = 0; i < there; i++)
    s->cot[slot(s, gr_operand(g, hook, (int)which[i]))] = (Val){d.node, d.res + (uint32_t)i};
  return true;
}

static bool pass_hooks(Sweep *s, uint32_t n) {
  for (size_t i = 0; i < s->sink_count; i++)
    if (s->sinks[i].at == n && !pass_hook(s, s->sinks[i].hook)) return false;
  return true;
}

/* What a rule reads in place of v. */
static Val read_of(const Sweep *s, Val v) {
  uint32_t at = s->g->nodes[v.node].result0 + v.res;
  return s->read && at < s->read_count && !val_none(s->read[at]) ? s->read[at] : v;
}

/* Room for the operands and results of any one node. */
typedef struct Room {
  Val *at; /* the operands; `in` is what rules read in their place */
  Val *in, *out, *dout, *dx, *dout_there, *dx_there, *sum, *sum_there;
  bool *wants;
  int *home;
} Room;

static Room room_for(Sweep *s) {
  uint32_t in = 0, out = 0;
  for (uint32_t n = s->lo; n <= s->hi; n++) {
    if (s->g->nodes[n].operand_count > in) in = s->g->nodes[n].operand_count;
    if (s->g->nodes[n].result_count > out) out = s->g->nodes[n].result_count;
  }
  Arena *a = &s->scratch;
  return (Room){.at = ARENA_ARRAY(a, Val, in + 1),
                .in = ARENA_ARRAY(a, Val, in + 1),
                .out = ARENA_ARRAY(a, Val, out + 1),
                .dout = ARENA_ARRAY(a, Val, out + 1),
                .dout_there = ARENA_ARRAY(a, Val, out + 1),
                .dx = ARENA_ARRAY(a, Val, in + 1),
                .dx_there = ARENA_ARRAY(a, Val, in + 1),
                .wants = ARENA_ARRAY(a, bool, in + 1)};
}

/* The operands of branch or loop n with the values that they may be, and what is known of their
 * sums, for the rule, which goes on with these. */
static bool give_sums(Sweep *s, Rule *r, Room *m, uint32_t n) {
  Arena *a = &s->scratch;
  const GNode node = s->g->nodes[n];
  size_t most = 2 * node.operand_count + s->origin_count + 1, count = node.operand_count;
  Val *in = ARENA_ARRAY(a, Val, most), *of = ARENA_ARRAY(a, Val, most);
  Origin *origins = ARENA_ARRAY(a, Origin, s->origin_count + 1);
  m->wants = memcpy(ARENA_ARRAY(a, bool, most), m->wants, count * sizeof *m->wants);
  memcpy(in, m->at, count * sizeof *in);
  m->at = in;
  r->origin_count = 0;
  size_t first = 0; /* what a loop takes at entry is not what its turns read */
  if (node.op == OP_LOOP)
    first = 1 + (size_t)(gr_attr_i(s->g, n, AT_CARRY, 0) + gr_attr_i(s->g, n, AT_MAPPED, 0));
  for (size_t i = 0; i < count; i++)
    for (size_t k = 0; m->wants[i] && k < s->origin_count; k++) {
      Origin *o = &s->origins[k];
      if (!val_eq(o->y, in[i])) continue;
      ask_origin(s, &r->b, o);
      if (r->b.failed) return false;
      bool again = false;
      for (size_t j = 0; j < r->origin_count; j++)
        again |= val_eq(origins[j].y, o->y) && val_eq(origins[j].x, o->x);
      if (!o->known || again) continue;
      origins[r->origin_count++] = *o;
      size_t at = first;
      while (at < count && !val_eq(in[at], o->x)) at++;
      if (at == count) in[count++] = o->x;
      m->wants[at] = true;
    }
  /* what a carried value is at entry, if it has a sum, is a value that the first turn reads */
  for (size_t i = 1; i < first; i++) {
    if (!m->wants[i] || i > (size_t)gr_attr_i(s->g, n, AT_CARRY, 0) ||
        val_none(s->cot[home_of(s, in[i])]))
      continue;
    size_t at = first;
    while (at < count && !val_eq(in[at], in[i])) at++;
    if (at == count) in[count++] = in[i];
    m->wants[at] = true;
  }
  r->behind = (int)(count - node.operand_count);
  r->origins = origins;
  for (size_t i = 0; i < count; i++) of[i] = read_of(s, in[i]);
  r->at = in;
  r->in = m->in = of;
  r->wants = m->wants;
  r->dx = m->dx = ARENA_ARRAY(a, Val, count + 1);
  r->dx_there = m->dx_there = ARENA_ARRAY(a, Val, count + 1);
  r->sum = m->sum = ARENA_ARRAY(a, Val, count + 1);
  r->sum_there = m->sum_there = ARENA_ARRAY(a, Val, count + 1);
  r->home = m->home = ARENA_ARRAY(a, int, count + 1);
  for (size_t i = 0; i < count; i++) {
    m->home[i] = (int)i;
    m->dx[i] = m->dx_there[i] = m->sum[i] = m->sum_there[i] = VAL_NONE;
    if (!m->wants[i]) continue;
    uint32_t at = home_of(s, in[i]);
    for (size_t k = i; k-- > 0;)
      if (m->wants[k] && home_of(s, in[k]) == at) m->home[i] = (int)k;
    m->sum[i] = s->cot[at];
    m->sum_there[i] = s->there[at];
  }
  bool *passed = ARENA_ARRAY(a, bool, node.result_count *node.operand_count + 1u);
  for (size_t i = 0; i < s->origin_count; i++)
    for (uint32_t k = 0; k < node.operand_count && s->origins[i].y.node == n; k++)
      passed[s->origins[i].y.res * node.operand_count + k] |= val_eq(in[k], s->origins[i].x);
  r->passed = passed;
  return true;
}

/* The new sums of a rule that went on with the old ones. */
static void take_sums(Sweep *s, const Room *m, int n) {
  for (int i = 0; i < n; i++) {
    if (!m->wants[i] || m->home[i] != i || val_none(m->dx[i])) continue;
    uint32_t at = home_of(s, m->at[i]);
    s->cot[at] = m->dx[i];
    s->there[at] = m->dx_there[i];
  }
}

/* Whether a cotangent of the node is there, if all that it has may be absent; VAL_NONE: one is
 * there for sure. Beside such a one, absent ones become zeros, for rules that know of none. */
static Val absent(B *b, Room *m, uint32_t results) {
  Val any = VAL_NONE;
  bool sure = false;
  for (uint32_t k = 0; k < results; k++)
    sure |= !val_none(m->dout[k]) && val_none(m->dout_there[k]);
  for (uint32_t k = 0; k < results; k++) {
    if (val_none(m->dout[k]) || val_none(m->dout_there[k])) continue;
    if (sure)
      m->dout[k] = ad_or_zero(b, m->dout_there[k], m->dout[k], false);
    else if (val_none(any))
      any = m->dout_there[k];
    else if (!val_eq(any, m->dout_there[k]))
      any = b_bin(b, OP_OR, any, m->dout_there[k]);
  }
  return any;
}

/* Calls the rule of node n when a result has a cotangent and an operand wants one. */
static bool step(Sweep *s, Rule *r, Room *m, uint32_t n) {
  Graph *g = s->g;
  r->in = m->in;
  r->at = m->at;
  r->wants = m->wants;
  r->dx = m->dx;
  const GNode node = g->nodes[n]; /* a copy: the arrays move when nodes are added */
  const GradRule *rule = rules[node.op];
  bool reached = false, wanted = false;
  if (!passes_gradient(rule)) return true;
  for (uint32_t k = 0; k < node.result_count; k++) {
    m->out[k] = read_of(s, (Val){n, k});
    m->dout[k] = s->cot[node.result0 + k - s->base];
    m->dout_there[k] = s->there[node.result0 + k - s->base];
    reached |= !val_none(m->dout[k]);
  }
  if (!reached) return true;
  for (uint32_t i = 0; i < node.operand_count; i++) {
    m->at[i] = g->operands[node.operand0 + i];
    m->in[i] = read_of(s, m->at[i]);
    m->wants[i] = is_active(s, m->at[i]) && ad_carries(g, n, i);
    m->dx[i] = m->dx_there[i] = VAL_NONE;
    wanted |= m->wants[i];
  }
  if (!wanted) return true;
  g->at = g->provs[node.prov];
  g->at.backward = 1;
  g->at.tag = TAG_NONE;
  g->at.within = s->entry.region;
  g->at.anomaly |= s->entry.anomaly;
  r->node = n;
  r->in_count = (int)node.operand_count;
  r->out_count = (int)node.result_count;
  r->held = 0;
  Val there = VAL_NONE;
  Room wide = *m; /* these need more room */
  if (goes_on(&node) && give_sums(s, r, m = &wide, n)) rule->all(r);
  bool plain = node.op == OP_ALIAS || node.op == OP_VERSION;
  if (plain)
    there = m->dx_there[node.operand_count - 1] = m->dout_there[0];
  else if (!goes_on(&node))
    there = absent(&r->b, m, node.result_count);
  bool whole = !val_none(there) && !plain;
  if (whole) {
    ad_rule_if(r, rule, there);
    for (int i = 0; i < r->in_count; i++) m->dx_there[i] = there;
  } else if (rule->all && !goes_on(&node)) {
    rule->all(r);
  }
  if (goes_on(&node)) {
    if (!r->b.failed) take_sums(s, m, r->in_count + r->behind);
    memset(m->wants, 0, (size_t)r->in_count * sizeof *m->wants);
  }
  for (int i = r->in_count - 1; i >= 0; i--) {
    if (!m->wants[i]) continue;
    if (rule->one && !whole)
      m->dx[i] = rule->one(r, i, m->in[0], r->in_count > 1 ? m->in[1] : VAL_NONE,
                           r->in_count > 2 ? m->in[2] : VAL_NONE, m->out[0], m->dout[0]);
    if (r->b.failed) break;
    if (val_none(m->dx[i])) continue;
    if (!fits(s, m->at[i], m->dx[i])) {
      prov_out(s->at, g, n);
      return gerr_set(s->e, ERR_BUG, i, "the gradient of `%s` has another type than its operand",
                      op_info[node.op].text);
    }
    if (!add_to(s, &r->b, m->at[i], m->dx[i], m->dx_there[i])) return false;
  }
  if (!r->b.failed) return true;
  *s->e = r->b.err;
  prov_out(s->at, g, n);
  return false;
}

/* ---- gradients by values that may be others (rule 72) */

/* Marks what v may be: what a choice gives, or a loop without turns. */
static void mark_givers(Sweep *s, Val v, bool *is) {
  stack_check();
  const Graph *g = s->g;
  const GNode *n = &g->nodes[v.node];
  if (is[ad_slot(g, v)]) return;
  is[ad_slot(g, v)] = true;
  const bool *on = n->op == OP_BRANCH ? ad_given_on(&s->scratch, g, v.node) : NULL;
  for (uint32_t i = 1; on && i < n->operand_count; i++)
    if (on[v.res * n->operand_count + i]) mark_givers(s, gr_operand(g, v.node, (int)i), is);
  if (n->op == OP_LOOP && v.res < (uint32_t)gr_attr_i(g, v.node, AT_CARRY, 0) &&
      !ad_has_turns(g, v.node))
    mark_givers(s, gr_operand(g, v.node, 1 + (int)v.res), is);
}

/* Adds what each wrt may be to wrt, if y depends on that in other ways, too. */
static void add_givers(Sweep *s) {
  const Graph *g = s->g;
  size_t n = (size_t)s->nwrt, cap = 0;
  Val *wrt = NULL;
  for (int j = 0; j < s->asked; j++) {
    Val v = s->wrt[j];
    if (val_none(v) || !ad_has_gradient(gr_type(g, v))) continue;
    if (gr_node(g, v)->op != OP_BRANCH && gr_node(g, v)->op != OP_LOOP) continue;
    bool *is = ARENA_ARRAY(&s->scratch, bool, g->type_count + 1), other = false;
    bool *live = ARENA_ARRAY(&s->scratch, bool, g->type_count + 1);
    bool *end = ARENA_ARRAY(&s->scratch, bool, g->type_count + 1);
    mark_givers(s, v, is);
    for (int i = 0; i < s->ny; i++) live[ad_slot(g, s->y[i])] = true;
    end[ad_slot(g, v)] = true;
    ad_mark_back(&s->scratch, g, live, end);
    for (size_t i = 0; i < g->type_count; i++) other |= is[i] && live[i] && !end[i];
    for (uint32_t k = 0; other && k < g->node_count; k++)
      for (uint32_t i = 0; i < g->nodes[k].result_count; i++) {
        if (!is[g->nodes[k].result0 + i]) continue;
        if (!wrt) {
          cap = 2 * n + 8;
          wrt = arena_alloc(&s->scratch, cap * sizeof *wrt);
          memcpy(wrt, s->wrt, n * sizeof *wrt);
        }
        bool known = false;
        for (size_t a = 0; a < n; a++) known |= val_eq(wrt[a], (Val){k, i});
        Val x = {k, i};
        if (!known) VEC_PUSH(&s->scratch, wrt, n, cap, x);
      }
  }
  if (!wrt) return;
  int *as = s->as ? ARENA_ARRAY(&s->scratch, int, n + 1) : NULL;
  for (size_t i = 0; as && i < n; i++) as[i] = i < (size_t)s->asked ? s->as[i] : (int)i;
  s->wrt = wrt;
  s->as = as;
  s->nwrt = (int)n;
}

/* The gradient by value v: by the one from before it that it is. */
static void by_value(Sweep *s, B *b, Val v, Val *d, Val *there) {
  stack_check();
  *d = s->cot[home_of(s, v)];
  *there = s->there[home_of(s, v)];
  for (size_t i = 0; s->nwrt > s->asked && i < s->origin_count; i++) {
    Origin *o = &s->origins[i];
    Val x, x_there;
    if (!val_eq(o->y, v) || !given_wrt(s, o->x)) continue;
    ask_origin(s, b, o);
    if (!o->known || b->failed) continue;
    by_value(s, b, o->x, &x, &x_there);
    if (val_none(x)) continue; /* then nothing reached v either */
    if (o->known > 0) {
      *d = x;
      *there = x_there;
      return;
    }
    Val other = b_un(b, OP_NOT, o->is), one = ad_or_zero(b, o->is, x, true);
    Val one_there = val_none(x_there) ? o->is : b_bin(b, OP_AND, o->is, x_there);
    if (!val_none(*d)) {
      Val two_there = val_none(*there) ? other : b_bin(b, OP_AND, other, *there);
      one = b_bin(b, OP_ADD, one, ad_or_zero(b, other, *d, true));
      one_there =
          val_none(x_there) && val_none(*there) ? VAL_NONE : b_bin(b, OP_OR, one_there, two_there);
    }
    *d = one;
    *there = one_there;
  }
}

static void sweep(void *ud) {
  Sweep *s = ud;
  Graph *g = s->g;
  uint32_t lo = UINT32_MAX, hi = 0;
  if (s->by_value) add_givers(s);
  for (int j = 0; j < s->nwrt; j++)
    if (!val_none(s->wrt[j]) && s->wrt[j].node < lo) lo = s->wrt[j].node;
  for (int j = 0; j < s->ny; j++)
    if (!val_none(s->y[j]) && s->y[j].node > hi) hi = s->y[j].node;
  for (int j = 0; j < s->asked; j++) {
    s->dx[j] = VAL_NONE;
    if (s->dx_there) s->dx_there[j] = VAL_NONE;
  }
  s->ok = true;
  if (lo > hi) return;
  for (size_t i = 0; i < s->given_count; i++)
    if (s->given[i].x.node > hi) hi = s->given[i].x.node;
  s->lo = lo;
  s->hi = hi;
  s->ok = ad_keep_inside(g, lo, hi, s->e);
  if (!s->ok) return;
  s->base = g->nodes[lo].result0;
  size_t count = g->nodes[hi].result0 + g->nodes[hi].result_count - s->base;
  s->active = ARENA_ARRAY(&s->scratch, uint8_t, count + 1);
  s->cot = ARENA_ARRAY(&s->scratch, Val, count + 1);
  s->there = ARENA_ARRAY(&s->scratch, Val, count + 1);
  for (size_t j = 0; j < count; j++) s->cot[j] = s->there[j] = VAL_NONE;
  mark_active(s);
  find_homes(s, count);
  find_origins(s, count);
  find_sinks(s);
  Room m = room_for(s);
  Rule r = {.b = {.g = g},
            .g = g,
            .scratch = &s->scratch,
            .in = m.in,
            .out = m.out,
            .dout = m.dout,
            .wants = m.wants,
            .dx = m.dx,
            .dout_there = m.dout_there,
            .dx_there = m.dx_there};
  s->ok = seed(s, &r.b);
  for (uint32_t n = hi; s->ok && n >= lo; n--) {
    s->ok = pass_hooks(s, n) && step(s, &r, &m, n);
    if (n == 0) break;
  }
  for (int j = 0; s->ok && j < s->asked; j++) {
    if (!is_active(s, s->wrt[j])) continue;
    Val there = s->there[slot(s, s->wrt[j])];
    s->dx[j] = s->cot[slot(s, s->wrt[j])]; /* none: counts elsewhere */
    if (given_wrt(s, s->wrt[j])) by_value(s, &r.b, s->wrt[j], &s->dx[j], &there);
    if (s->dx_there)
      s->dx_there[j] = there;
    else if (!val_none(s->dx[j]) && !val_none(there))
      s->dx[j] = ad_or_zero(&r.b, there, s->dx[j], false);
  }
  if (s->ok && r.b.failed) {
    *s->e = r.b.err;
    s->ok = false;
  }
}

bool ad_passes(OpCode op) {
  return passes_gradient(rules[op]);
}

/* Marks the operands of a choice or a loop to which gradients of its marked results go. */
static void back_through(Arena *scratch, const Graph *g, uint32_t n, const bool *live,
                         bool *operand) {
  const GNode *node = &g->nodes[n];
  bool loop = node->op == OP_LOOP;
  uint32_t carry = loop ? (uint32_t)gr_attr_i(g, n, AT_CARRY, 0) : 0;
  bool turns = loop && gr_attr(g, n, AT_WHILE); /* their number is a result */
  for (uint32_t r = 0; r < node->region_count; r++) {
    const Graph *in = g->regions[node->region0 + r];
    bool *inner = ARENA_ARRAY(scratch, bool, in->type_count + 1);
    for (uint32_t k = 0; k < in->output_count; k++)
      if (live[node->result0 + k + (turns && k >= carry)])
        inner[ad_slot(in, in->outputs[k])] = true;
    for (bool more = true; more;) {
      more = false;
      ad_mark_back(scratch, in, inner, NULL);
      for (uint32_t k = 0; k < carry; k++) {
        bool *out = &inner[ad_slot(in, in->outputs[k])];
        if (!inner[ad_slot(in, in->inputs[1 + k])] || *out) continue;
        *out = more = true;
      }
    }
    for (uint32_t k = !loop; k < node->operand_count; k++)
      operand[k] |= inner[ad_slot(in, in->inputs[loop ? k : k - 1])];
  }
}

void ad_mark_back(Arena *scratch, const Graph *g, bool *live, const bool *ends) {
  stack_check();
  for (uint32_t n = (uint32_t)g->node_count; n-- > 0;) {
    const GNode *node = &g->nodes[n];
    bool any = false, choice = node->op == OP_BRANCH || node->op == OP_LOOP;
    for (uint32_t k = 0; k < node->result_count; k++)
      any |= live[node->result0 + k] && !(ends && ends[node->result0 + k]);
    if (!any || !ad_passes((OpCode)node->op)) continue;
    bool *operand = choice ? ARENA_ARRAY(scratch, bool, node->operand_count + 1u) : NULL;
    if (choice) back_through(scratch, g, n, live, operand);
    for (uint32_t k = 0; k < node->operand_count; k++) {
      Val v = gr_operand(g, n, (int)k);
      if (choice ? !operand[k] : !ad_carries(g, n, k)) continue;
      if (ad_has_gradient(gr_type(g, v))) live[ad_slot(g, v)] = true;
    }
  }
}

void ad_reached(Arena *scratch, const Graph *f, const bool *wants_grad, bool *output) {
  Sweep s = {.g = (Graph *)(uintptr_t)f, .hi = (uint32_t)f->node_count - 1};
  Val *wrt = ARENA_ARRAY(scratch, Val, f->input_count + 1);
  for (size_t k = 0; k < f->input_count; k++)
    if (wants_grad[k]) wrt[s.nwrt++] = f->inputs[k];
  s.wrt = wrt;
  s.active = ARENA_ARRAY(scratch, uint8_t, f->type_count + 1);
  if (f->node_count) mark_active(&s);
  for (size_t k = 0; k < f->output_count; k++) output[k] = is_active(&s, f->outputs[k]);
}

bool ad_vjp(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt, Val *dx,
            GErr *e, Prov *at) {
  return ad_vjp_as(g, ny, y, dy, nwrt, wrt, NULL, dx, e, at);
}

bool ad_vjp_as(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt,
               const int *as, Val *dx, GErr *e, Prov *at) {
  VjpAsk ask = {.ny = ny, .y = y, .dy = dy, .nwrt = nwrt, .wrt = wrt, .as = as, .dx = dx};
  return ad_vjp_ask(g, &ask, e, at);
}

bool ad_vjp_ask(Graph *g, const VjpAsk *ask, GErr *e, Prov *at) {
  Sweep s = {.g = g,
             .ny = ask->ny,
             .nwrt = ask->nwrt,
             .y = ask->y,
             .dy = ask->dy,
             .dy_there = ask->dy_there,
             .wrt = ask->wrt,
             .as = ask->as,
             .dx = ask->dx,
             .dx_there = ask->dx_there,
             .sums = ask->sums,
             .read = ask->read,
             .read_count = ask->read_count,
             .given = ask->origins,
             .given_count = ask->origin_count,
             .by_value = ask->by_value,
             .asked = ask->nwrt,
             .e = e,
             .at = at,
             .entry = g->at};
  Mem *m = g->arena->mem;
  arena_init(&s.scratch, m);
  int code = mem_protect(m, sweep, &s);
  arena_free(&s.scratch);
  g->at = s.entry;
  if (code != MEM_OK) mem_throw(m, code);
  return s.ok;
}
