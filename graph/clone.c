/* Copies of whole graphs, and inlining of one graph into another.
 *
 * In: a graph. Out: a graph that shares nothing with it but the DimTab, interned names and, in the
 * same arena, the data of attributes; or the same nodes appended to a graph that is being built.
 * Copied nodes keep their types and provenance; inlined ones get their types from the shape rules
 * again, since arguments may be more exact than the inputs were. Recursion is over region nesting.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "graph/shape.h"

ValMap map_new(Arena *a, const Graph *src) {
  ValMap m = {src, ARENA_ARRAY(a, Val, src->type_count)};
  for (size_t i = 0; i < src->type_count; i++) m.to[i] = VAL_NONE;
  return m;
}

void copy_writes(Graph *dst, const Graph *src) {
  if (!src->write_count) return;
  int *writes = ARENA_ARRAY(dst->arena, int, src->write_count);
  memcpy(writes, src->writes, src->write_count * sizeof *writes);
  dst->writes = writes;
  dst->write_count = src->write_count;
}

Graph *copy_start_in(Arena *a, const Graph *g, GrRoom room) {
  Graph *d = gr_new(a, g->dims, g->names, g->name);
  d->alias_count = g->alias_count;
  d->blocks = g->blocks;
  gr_reserve(d, room);
  return d;
}

Graph *copy_start(Arena *a, const Graph *g) {
  return copy_start_in(a, g, gr_room(g));
}

static Attr own_attr(Arena *a, Attr x) {
  if ((x.kind == AK_INTS || x.kind == AK_DIMS) && x.count) {
    int64_t *v = ARENA_ARRAY(a, int64_t, x.count);
    memcpy(v, x.u.ints, sizeof *v * x.count);
    x.u.ints = v;
  }
  return x;
}

static uint32_t own_prov(Graph *dst, const Prov *p) {
  const Prov *last = dst->prov_count ? &dst->provs[dst->prov_count - 1] : NULL;
  /* Runs of nodes share a provenance; copies keep that. */
  if (last && prov_same(last, p)) return (uint32_t)dst->prov_count - 1;
  VEC_PUSH(dst->arena, dst->provs, dst->prov_count, dst->prov_cap, *p);
  return (uint32_t)dst->prov_count - 1;
}

Val copy_node_as(Graph *dst, const Graph *src, uint32_t node, const Val *in, Graph *const *regions,
                 const Prov *prov) {
  const GNode *n = &src->nodes[node];
  GNode c = *n;
  c.operand0 = (uint32_t)dst->operand_count;
  c.result0 = (uint32_t)dst->type_count;
  c.attr0 = (uint32_t)dst->attr_count;
  c.region0 = (uint32_t)dst->region_count;
  c.prov = own_prov(dst, prov);
  for (uint32_t i = 0; i < n->operand_count; i++) {
    VEC_PUSH(dst->arena, dst->operands, dst->operand_count, dst->operand_cap, in[i]);
  }
  for (uint32_t i = 0; i < n->attr_count; i++) {
    Attr a = src->attrs[n->attr0 + i];
    if (src->arena != dst->arena) a = own_attr(dst->arena, a);
    if (n->op == OP_INPUT && a.key == AT_INDEX) a.u.i = (int64_t)dst->input_count;
    VEC_PUSH(dst->arena, dst->attrs, dst->attr_count, dst->attr_cap, a);
  }
  for (uint32_t i = 0; i < n->region_count; i++) {
    Graph *r = regions ? regions[i] : src->regions[n->region0 + i];
    VEC_PUSH(dst->arena, dst->regions, dst->region_count, dst->region_cap, r);
  }
  Val v = {(uint32_t)dst->node_count, 0};
  for (uint32_t i = 0; i < n->result_count; i++) {
    VEC_PUSH(dst->arena, dst->types, dst->type_count, dst->type_cap, src->types[n->result0 + i]);
  }
  VEC_PUSH(dst->arena, dst->nodes, dst->node_count, dst->node_cap, c);
  if (op_info[n->op].traits & T_VIEW) {
    /* A pass may have put another value below the view. */
    Val x = dst->operands[c.operand0];
    Type *from = &dst->types[dst->nodes[x.node].result0 + x.res];
    if (!from->alias) from->alias = ++dst->alias_count;
    dst->types[c.result0].alias = from->alias;
  }
  if (n->op == OP_INPUT) VEC_PUSH(dst->arena, dst->inputs, dst->input_count, dst->input_cap, v);
  return v;
}

Val copy_node(Graph *dst, ValMap *m, uint32_t node, Graph *const *regions) {
  const GNode *n = &m->src->nodes[node];
  Val few[8], *in = n->operand_count <= 8 ? few : ARENA_ARRAY(dst->arena, Val, n->operand_count);
  for (uint32_t i = 0; i < n->operand_count; i++)
    in[i] = map_get(m, m->src->operands[n->operand0 + i]);
  Val v = copy_node_as(dst, m->src, node, in, regions, &m->src->provs[n->prov]);
  for (uint32_t i = 0; i < n->result_count; i++) m->to[n->result0 + i] = (Val){v.node, i};
  return v;
}

void copy_checks(Graph *dst, const Graph *src) {
  for (size_t i = 0; i < src->check_count; i++) {
    SizeCheck c = src->checks[i];
    SizeCheck *have = NULL;
    for (size_t k = dst->check_count; k-- > 0 && dst->check_count - k < 64 && !have;) {
      SizeCheck *h = &dst->checks[k];
      if (h->kind == c.kind && h->a == c.a && h->b == c.b) have = h;
    }
    c.prov = own_prov(dst, &src->provs[c.prov]);
    if (c.text) c.text = arena_strdup(dst->arena, c.text, strlen(c.text));
    if (c.help) c.help = arena_strdup(dst->arena, c.help, strlen(c.help));
    if (have) { /* the copy of an operation has made it again: keep the texts of this one */
      *have = c;
      continue;
    }
    VEC_PUSH(dst->arena, dst->checks, dst->check_count, dst->check_cap, c);
  }
}

void copy_outputs(Graph *dst, const ValMap *m) {
  for (size_t i = 0; i < m->src->output_count; i++) gr_output(dst, map_get(m, m->src->outputs[i]));
  copy_writes(dst, m->src);
}

bool node_effect(const Graph *g, uint32_t node) {
  const GNode *n = &g->nodes[node];
  if (op_info[n->op].traits & T_EFFECT) return true;
  for (uint32_t i = 0; i < n->region_count; i++) {
    if (has_effect(g->regions[n->region0 + i])) return true;
  }
  return false;
}

bool has_effect(const Graph *g) {
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (node_effect(g, i)) return true;
  }
  return false;
}

/* Per node: whether an operand or output reads one of its results. */
static bool *nodes_read(Arena *a, const Graph *g) {
  bool *read = ARENA_ARRAY(a, bool, g->node_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++)
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++)
      read[gr_operand(g, i, (int)k).node] = true;
  for (size_t i = 0; i < g->output_count; i++) read[g->outputs[i].node] = true;
  return read;
}

/* Copies g without `these` hooks, or (NULL) without any hook, also in regions. If the token of a
 * removed hook is read, a new token replaces it. */
static Graph *without_hooks(Arena *a, const Graph *g, const bool *these) {
  stack_check();
  Graph *d = copy_start(a, g);
  ValMap m = map_new(a, g);
  const bool *read = nodes_read(a, g);
  GErr e;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    Graph **regions = NULL;
    if (!these && n->region_count) regions = ARENA_ARRAY(a, Graph *, n->region_count);
    for (uint32_t k = 0; regions && k < n->region_count; k++)
      regions[k] = without_hooks(a, g->regions[n->region0 + k], NULL);
    if (these ? !these[i] : n->op != OP_HOOK)
      copy_node(d, &m, i, regions);
    else if (read[i])
      m.to[g->nodes[i].result0] = gr_op(d, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  }
  copy_checks(d, g);
  copy_outputs(d, &m);
  return d;
}

bool gr_has_hooks(const Graph *g) {
  stack_check();
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_HOOK) return true;
  for (size_t i = 0; i < g->region_count; i++)
    if (gr_has_hooks(g->regions[i])) return true;
  return false;
}

bool gr_calls_host(const Graph *g) {
  stack_check();
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].op == OP_CALL || g->nodes[i].op == OP_DEFER) return true;
  for (size_t i = 0; i < g->region_count; i++)
    if (gr_calls_host(g->regions[i])) return true;
  return false;
}

Graph *gr_no_hooks(Arena *a, const Graph *g) {
  return without_hooks(a, g, NULL);
}

const Graph *gr_drop_hooks(Arena *a, const Graph *g, const bool *these) {
  for (uint32_t i = 0; i < g->node_count; i++)
    if (these[i]) return gr_checked(without_hooks(a, g, these), "drop hooks");
  return g;
}

Graph *gr_clone(Arena *a, const Graph *g) {
  stack_check();
  Graph *d = copy_start(a, g);
  ValMap m = map_new(a, g);
  d->at = g->at;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    Graph **regions = n->region_count ? ARENA_ARRAY(a, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->region_count; k++)
      regions[k] = gr_clone(a, g->regions[n->region0 + k]);
    copy_node(d, &m, i, regions);
  }
  copy_checks(d, g);
  copy_outputs(d, &m);
  return d;
}

/* ---- inlining */
typedef struct Inline {
  DimTab *dims; /* of dst */
  const Dim *subst;
  Sym count;
  GErr *e;
  Name prefix;
} Inline;

/* Translates a dim of src to dst's table. */
static bool bring(Inline *in, const Graph *src, int64_t d, int64_t *out) {
  Dim x = in->dims == src->dims && !in->subst
              ? (Dim)d
              : dim_import(in->dims, src->dims, (Dim)d, in->subst, in->count);
  *out = x;
  if (x != DIM_BAD) return true;
  return gerr_set(in->e, ERR_SHAPE_SIZE, -1, "a size of `%s` passes 2^63 - 1, or divides by 0",
                  src->name ? src->name : "a function");
}

static bool bring_attr(Inline *in, Arena *a, const Graph *src, Attr *x) {
  if (x->kind == AK_DIM) return bring(in, src, x->u.i, &x->u.i);
  if (x->kind != AK_DIMS || !x->count) return true;
  int64_t *v = ARENA_ARRAY(a, int64_t, x->count);
  for (uint32_t i = 0; i < x->count; i++) {
    if (!bring(in, src, x->u.ints[i], &v[i])) return false;
  }
  x->u.ints = v;
  return true;
}

static Name joined(Inline *in, Graph *dst, Name path) {
  if (!in->prefix || !*in->prefix) return path;
  if (!path || !*path) return in->prefix;
  const char *s = arena_printf(dst->arena, "%s.%s", in->prefix, path);
  return names_of(dst->names, s);
}

static bool bring_checks(Inline *in, Graph *dst, const Graph *src) {
  for (size_t i = 0; i < src->check_count; i++) {
    const SizeCheck *c = &src->checks[i];
    int64_t a, b;
    if (!bring(in, src, c->a, &a) || !bring(in, src, c->b, &b)) return false;
    dst->at = src->provs[c->prov];
    dst->at.path = joined(in, dst, dst->at.path);
    int64_t x, y;
    DimOrder o = dim_compare(dst->dims, (Dim)a, (Dim)b);
    bool known = dim_is_const(dst->dims, (Dim)a, &x) && dim_is_const(dst->dims, (Dim)b, &y);
    bool holds = false, fails = false;
    if (c->kind == CHECK_EQ) {
      holds = o == DIM_EQUAL;
      fails = o == DIM_DIFFERENT;
    } else if (known) {
      holds = check_holds(c->kind, x, y);
      fails = !holds && c->kind != CHECK_FITS; /* reported at run time, with the number */
    }
    if (fails) {
      Buf t;
      buf_init_arena(&t, dst->arena);
      dim_print(&t, dst->dims, (Dim)a);
      buf_puts(&t, " and ");
      dim_print(&t, dst->dims, (Dim)b);
      gerr_set(in->e, ERR_SHAPE_CHECK, -1, "%s: %s", c->text ? c->text : "sizes differ", t.s);
      return c->help ? gerr_help(in->e, "%s", c->help) : false;
    }
    if (!holds) {
      gr_check_help(dst, c->kind, (Dim)a, (Dim)b, c->text, c->help);
    }
  }
  return true;
}

static bool inline_nodes(Inline *in, Graph *dst, const Graph *src, const Val *args, Val *outs);

/* Copies a region of src, with dims of dst's table. */
static Graph *bring_region(Inline *in, Graph *dst, const Graph *src) {
  stack_check();
  Graph *d = gr_new(dst->arena, dst->dims, dst->names, src->name);
  d->blocks = dst->blocks;
  Val *args = ARENA_ARRAY(dst->arena, Val, src->input_count + 1);
  Val *outs = ARENA_ARRAY(dst->arena, Val, src->output_count + 1);
  for (size_t i = 0; i < src->input_count; i++) {
    Type t = *gr_type(src, src->inputs[i]);
    int64_t x;
    for (int k = 0; k < t.rank; k++) {
      if (!bring(in, src, t.dim[k], &x)) return NULL;
      t.dim[k] = (Dim)x;
    }
    d->at = src->provs[src->nodes[src->inputs[i].node].prov];
    d->at.path = joined(in, dst, d->at.path);
    t.alias = 0;
    args[i] = gr_input(d, &t);
  }
  if (!inline_nodes(in, d, src, args, outs)) return NULL;
  for (size_t i = 0; i < src->output_count; i++) gr_output(d, outs[i]);
  return d;
}

static bool inline_nodes(Inline *in, Graph *dst, const Graph *src, const Val *args, Val *outs) {
  ValMap m = map_new(dst->arena, src);
  for (size_t i = 0; i < src->input_count; i++) map_set(&m, src->inputs[i], args[i]);
  for (uint32_t i = 0; i < src->node_count; i++) {
    const GNode *n = &src->nodes[i];
    if (n->op == OP_INPUT) continue;
    Val few[8],
        *operand = n->operand_count <= 8 ? few : ARENA_ARRAY(dst->arena, Val, n->operand_count);
    Attr attr[AT_COUNT];
    Graph **regions = n->region_count ? ARENA_ARRAY(dst->arena, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->operand_count; k++) {
      operand[k] = map_get(&m, src->operands[n->operand0 + k]);
    }
    for (uint32_t k = 0; k < n->attr_count; k++) {
      attr[k] = src->attrs[n->attr0 + k];
      if (!bring_attr(in, dst->arena, src, &attr[k])) return false;
    }
    for (uint32_t k = 0; k < n->region_count; k++) {
      regions[k] = bring_region(in, dst, src->regions[n->region0 + k]);
      if (!regions[k]) return false;
    }
    dst->at = src->provs[n->prov];
    dst->at.path = joined(in, dst, dst->at.path);
    if (src->blocks != dst->blocks) dst->at.region = dst->at.within = 0;
    Val v = gr_op(dst, (OpCode)n->op, operand, (int)n->operand_count, attr, n->attr_count, regions,
                  n->region_count, in->e);
    if (val_none(v)) return false;
    for (uint32_t k = 0; k < n->result_count; k++) map_set(&m, (Val){i, k}, (Val){v.node, k});
  }
  for (size_t i = 0; i < src->output_count; i++) outs[i] = map_get(&m, src->outputs[i]);
  return bring_checks(in, dst, src);
}

bool gr_inline(Graph *dst, const Graph *src, const Val *args, const Dim *subst, Val *outs,
               GErr *e) {
  GErr scratch;
  Inline in = {dst->dims, subst, subst ? dim_symbol_count(src->dims) : 0, e ? e : &scratch,
               dst->at.path};
  Prov at = dst->at;
  for (size_t i = 0; i < src->input_count; i++) {
    /* An argument must have the declared type of the input; undecided sizes become checks. */
    const Type *want = gr_type(src, src->inputs[i]);
    Type got = *gr_type(dst, args[i]);
    bool same = want->kind == got.kind &&
                (want->kind != TK_TENSOR ||
                 (want->dtype == got.dtype && want->dev == got.dev && want->rank == got.rank));
    if (!same)
      return gerr_set(in.e, ERR_IR_FORM, (int)i, "argument %d has another type", (int)i + 1);
    for (int k = 0; k < want->rank; k++) {
      int64_t d;
      if (!bring(&in, src, want->dim[k], &d)) return false;
      DimOrder o = dim_compare(dst->dims, (Dim)d, got.dim[k]);
      if (o == DIM_DIFFERENT) {
        return gerr_set(in.e, ERR_SHAPE_CHECK, (int)i, "axis %d of argument %d has another size", k,
                        (int)i + 1);
      }
      if (o == DIM_MAYBE)
        gr_check(dst, CHECK_EQ, (Dim)d, got.dim[k], "an argument has another size");
    }
  }
  bool ok = inline_nodes(&in, dst, src, args, outs);
  dst->at = at;
  return ok;
}
