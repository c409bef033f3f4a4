/* The verifier: every invariant of ir.h, tested from outside.
 *
 * In: any graph whose arrays can be read. Out: true, or false with a text that names the node. It
 * runs after each pass in tests, and on each graph that was read. It proves that indices are in
 * range, nodes are in topological order, types agree with the shape rules, each open condition on
 * sizes is among the checks, regions are closed graphs over the same DimTab, inputs are numbered,
 * tokens form a chain, and views share an alias class with their base.
 * Recursion is over region nesting, limited like in the reader.
 */
#include <string.h>

#include "graph/copy.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/shape.h"

enum { MAX_NESTING = 48 };

typedef struct Verify {
  const Graph *g;
  GErr *e;
  Arena *a;
} Verify;

static bool bad(Verify *v, uint32_t node, const char *what) {
  const Graph *g = v->g;
  if (node == UINT32_MAX) return gerr_set(v->e, ERR_IR_FORM, -1, "the graph: %s", what);
  unsigned op = g->nodes[node].op;
  return gerr_set(v->e, ERR_IR_FORM, (int)node, "node %u (`%s`): %s", (unsigned)node,
                  op < OP_COUNT ? op_info[op].text : "?", what);
}

static bool range_ok(size_t first, size_t n, size_t count) {
  return first <= count && n <= count - first;
}

static bool value_ok(const Graph *g, Val x, uint32_t before) {
  return x.node < before && x.node < g->node_count && x.res < g->nodes[x.node].result_count;
}

static bool type_ok(Verify *v, const Type *t) {
  if (t->alias > v->g->alias_count) return false;
  if (t->kind == TK_TOKEN || t->kind == TK_STASH) return t->alias == 0;
  if (t->kind != TK_TENSOR || t->dtype >= DT_COUNT || t->dev >= DEV_COUNT ||
      t->rank > CKL_MAX_RANK) {
    return false;
  }
  for (int i = 0; i < t->rank; i++) {
    if (!dim_valid(v->g->dims, t->dim[i])) return false;
  }
  return true;
}

static bool attrs_ok(Verify *v, const GNode *n) {
  bool seen[AT_COUNT] = {false};
  for (uint32_t i = 0; i < n->attr_count; i++) {
    const Attr *a = &v->g->attrs[n->attr0 + i];
    if (a->key >= AT_COUNT || a->kind > AK_TEXT || seen[a->key]) return false;
    seen[a->key] = true;
    if (a->kind == AK_TEXT && !a->u.text) return false;
    if (a->kind == AK_DIM && !dim_valid(v->g->dims, a->u.i)) return false;
    if ((a->kind == AK_INTS || a->kind == AK_DIMS) && a->count && !a->u.ints) return false;
    for (uint32_t k = 0; a->kind == AK_DIMS && k < a->count; k++) {
      if (!dim_valid(v->g->dims, a->u.ints[k])) return false;
    }
  }
  return true;
}

static bool has_check(const Graph *g, const SizeCheck *c) {
  for (size_t i = 0; i < g->check_count; i++) {
    const SizeCheck *k = &g->checks[i];
    if (k->kind != c->kind) continue;
    if (k->a == c->a && k->b == c->b) return true;
    if (dim_compare(g->dims, k->a, c->a) == DIM_EQUAL &&
        dim_compare(g->dims, k->b, c->b) == DIM_EQUAL) {
      return true;
    }
  }
  return false;
}

/* Whether a value before node i has the size d, so that it is no negative number. A pass may have
 * dropped the operand that said so. */
static bool is_a_size(const Graph *g, uint32_t i, const SizeCheck *c) {
  int64_t zero;
  if (c->kind != CHECK_GE || !dim_is_const(g->dims, c->b, &zero) || zero != 0) return false;
  for (uint32_t t = 0; t < g->nodes[i].result0; t++)
    for (int k = 0; k < g->types[t].rank; k++)
      if (dim_compare(g->dims, g->types[t].dim[k], c->a) == DIM_EQUAL) return true;
  return false;
}

static bool node_ok(Verify *v, uint32_t i, Graph *scratch) {
  const Graph *g = v->g;
  const GNode *n = &g->nodes[i];
  if (n->op >= OP_COUNT) return bad(v, i, "there is no such op");
  if (!range_ok(n->operand0, n->operand_count, g->operand_count) ||
      !range_ok(n->result0, n->result_count, g->type_count) ||
      !range_ok(n->attr0, n->attr_count, g->attr_count) ||
      !range_ok(n->region0, n->region_count, g->region_count) || n->prov >= g->prov_count) {
    return bad(v, i, "an index leaves its array");
  }
  const Prov *p = &g->provs[n->prov];
  if (p->tag >= TAG_COUNT || p->backward > 1 || p->recomputed > 1 || p->anomaly > 1 ||
      p->origin < -1 || p->span.lo > p->span.hi) {
    return bad(v, i, "its provenance is broken");
  }
  const Type **in = ARENA_ARRAY(v->a, const Type *, n->operand_count + 1u);
  for (uint32_t k = 0; k < n->operand_count; k++) {
    Val x = g->operands[n->operand0 + k];
    if (!value_ok(g, x, i)) return bad(v, i, "an operand is not computed before it");
    in[k] = gr_type(g, x);
  }
  for (uint32_t k = 0; k < n->result_count; k++) {
    if (!type_ok(v, &g->types[n->result0 + k])) return bad(v, i, "a result type is broken");
  }
  if (!attrs_ok(v, n)) return bad(v, i, "its attributes are broken");
  Graph *const *regions = g->regions + n->region0;
  int nout =
      op_result_count((OpCode)n->op, g->attrs + n->attr0, n->attr_count, regions, n->region_count);
  if (nout != (int)n->result_count) return bad(v, i, "it has another number of results");
  Type *out = ARENA_ARRAY(v->a, Type, nout + 1);
  scratch->check_count = 0;
  GErr e;
  ShapeCall c = {g->dims,
                 (OpCode)n->op,
                 in,
                 (int)n->operand_count,
                 g->attrs + n->attr0,
                 n->attr_count,
                 regions,
                 n->region_count,
                 out,
                 nout,
                 scratch,
                 &e,
                 NULL,
                 0};
  if (!op_shape(&c)) return bad(v, i, e.text);
  for (int k = 0; k < nout; k++) {
    if (type_same(g->dims, &out[k], &g->types[n->result0 + (uint32_t)k])) continue;
    Buf b;
    buf_init_arena(&b, v->a);
    buf_printf(&b, "result %d is ", k);
    type_print(&b, g->dims, &g->types[n->result0 + (uint32_t)k]);
    buf_puts(&b, ", its rule says ");
    type_print(&b, g->dims, &out[k]);
    return bad(v, i, b.s);
  }
  for (size_t k = 0; k < scratch->check_count; k++) {
    if (!has_check(g, &scratch->checks[k]) && !is_a_size(g, i, &scratch->checks[k]))
      return bad(v, i, "a condition on its sizes is not checked");
  }
  if (op_info[n->op].traits & T_VIEW) {
    uint32_t a = in[0]->alias, b = g->types[n->result0].alias;
    if (a == 0 || a != b) return bad(v, i, "a view has another alias class than what it looks at");
  }
  return true;
}

static bool graph_ok(const Graph *g, GErr *e, Arena *a, int nesting) {
  Verify v = {g, e, a};
  if (nesting > MAX_NESTING) return bad(&v, UINT32_MAX, "regions are nested too deeply");
  if (!g->dims || !g->names) return bad(&v, UINT32_MAX, "it has no dims or names");
  Graph *scratch = gr_new(a, g->dims, g->names, NULL);
  bool *is_input = ARENA_ARRAY(a, bool, g->node_count + 1);
  size_t inputs = 0;
  for (size_t i = 0; i < g->input_count; i++) {
    Val x = g->inputs[i];
    if (!value_ok(g, x, UINT32_MAX) || g->nodes[x.node].op != OP_INPUT || is_input[x.node]) {
      return bad(&v, UINT32_MAX, "an input is no input node, or is given twice");
    }
    is_input[x.node] = true;
  }
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (!node_ok(&v, i, scratch)) return false;
    const GNode *n = &g->nodes[i];
    if (n->op == OP_INPUT) {
      if (!is_input[i]) return bad(&v, i, "it is not among the inputs");
      if (!val_eq(g->inputs[inputs], (Val){i, 0}) ||
          gr_attr_i(g, i, AT_INDEX, -1) != (int64_t)inputs) {
        return bad(&v, i, "inputs are not numbered in order");
      }
      inputs++;
    }
    if (n->op == OP_WRITE && (nesting || g->nodes[gr_operand(g, i, 1).node].op != OP_INPUT))
      return bad(&v, i, "only inputs of a whole graph are written");
    for (uint32_t k = 0; k < n->region_count; k++) {
      const Graph *r = g->regions[n->region0 + k];
      if (r == g) return bad(&v, i, "a region is the graph itself");
      if (!graph_ok(r, e, a, nesting + 1)) return false;
    }
  }
  /* A token is used once, as operand or output: effects have one order. */
  uint8_t *used = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  for (uint32_t i = 0; i < g->node_count; i++) {
    const GNode *n = &g->nodes[i];
    for (uint32_t k = 0; k < n->operand_count; k++) {
      Val x = g->operands[n->operand0 + k];
      uint32_t t = g->nodes[x.node].result0 + x.res;
      if (g->types[t].kind == TK_TOKEN && used[t]++) return bad(&v, i, "its token was used before");
    }
  }
  for (size_t i = 0; i < g->output_count; i++) {
    Val x = g->outputs[i];
    if (!value_ok(g, x, UINT32_MAX)) return bad(&v, UINT32_MAX, "an output does not exist");
    uint32_t t = g->nodes[x.node].result0 + x.res;
    if (g->types[t].kind == TK_TOKEN && used[t]++) {
      return bad(&v, x.node, "its token is an output and was used before");
    }
  }
  for (size_t i = 0; i < g->check_count; i++) {
    const SizeCheck *c = &g->checks[i];
    int64_t d;
    if (c->kind > CHECK_FITS || !dim_valid(g->dims, c->a) || !dim_valid(g->dims, c->b) ||
        c->prov >= g->prov_count ||
        (c->kind == CHECK_FITS && !(dim_is_const(g->dims, c->b, &d) && d >= 0 && d < DT_COUNT))) {
      return bad(&v, UINT32_MAX, "a check is broken");
    }
  }
  return true;
}

bool gr_verify(const Graph *g, GErr *e) {
  GErr scratch;
  return graph_ok(g, e ? e : &scratch, g->arena, 0);
}

typedef struct VerifyJob {
  const Graph *g;
  Arena scratch;
  GErr e;
  bool ok;
} VerifyJob;

static void verify_job(void *ud) {
  VerifyJob *job = ud;
  job->ok = graph_ok(job->g, &job->e, &job->scratch, 0);
}

Graph *gr_checked(Graph *g, const char *pass) {
  if (!g || !g->arena->mem->check) return g;
  VerifyJob job = {.g = g};
  arena_init(&job.scratch, g->arena->mem);
  int code = mem_protect(g->arena->mem, verify_job, &job);
  arena_free(&job.scratch);
  if (code != MEM_OK) mem_throw(g->arena->mem, code);
  if (!job.ok)
    mem_bug(g->arena->mem, "after `%s` of `%s`: %s", pass, g->name ? g->name : "?", job.e.text);
  return g;
}
