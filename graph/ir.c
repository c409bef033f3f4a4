/* The builder of graphs: nodes go in one at a time, each through its op's shape rule.
 *
 * In: operands that exist, attributes, regions. Out: a graph in which every invariant of ir.h holds
 * by construction; graph/verify.c tests them from outside. All arrays live in the graph's
 * arena. A node is appended only when everything it needs is there: a throw or a failed rule
 * leaves the graph as it was (array tails past the counts may be used up).
 */
#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op.h"
#include "graph/shape.h"
#include "runtime/half.h"

Graph *gr_new(Arena *a, DimTab *dims, Names *names, Name name) {
  Graph *g = ARENA_NEW(a, Graph);
  g->arena = a;
  g->dims = dims;
  g->names = names;
  g->name = name;
  g->at.origin = -1;
  return g;
}

GrRoom gr_room(const Graph *g) {
  return (GrRoom){g->node_count, g->operand_count, g->type_count,
                  g->attr_count, g->prov_count,    g->input_count};
}

static void *grown(Arena *a, void *p, size_t each, size_t count, size_t more, size_t *cap) {
  if (more <= *cap - count) return p;
  if (more > SIZE_MAX / each - count) mem_throw(a->mem, MEM_ERR_NOMEM);
  p = arena_grow(a, p, each * *cap, each * (count + more));
  *cap = count + more;
  return p;
}

void gr_reserve(Graph *g, GrRoom r) {
  Arena *a = g->arena;
  g->nodes = grown(a, g->nodes, sizeof *g->nodes, g->node_count, r.nodes, &g->node_cap);
  g->operands =
      grown(a, g->operands, sizeof *g->operands, g->operand_count, r.operands, &g->operand_cap);
  g->types = grown(a, g->types, sizeof *g->types, g->type_count, r.types, &g->type_cap);
  g->attrs = grown(a, g->attrs, sizeof *g->attrs, g->attr_count, r.attrs, &g->attr_cap);
  g->provs = grown(a, g->provs, sizeof *g->provs, g->prov_count, r.provs, &g->prov_cap);
  g->inputs = grown(a, g->inputs, sizeof *g->inputs, g->input_count, r.inputs, &g->input_cap);
}

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.lo == b.lo && a.hi == b.hi;
}

bool prov_same(const Prov *a, const Prov *b) {
  return same_span(a->span, b->span) && same_span(a->caller, b->caller) && a->path == b->path &&
         a->name == b->name && a->region == b->region && a->within == b->within &&
         a->origin == b->origin && a->tag == b->tag && a->backward == b->backward &&
         a->recomputed == b->recomputed && a->anomaly == b->anomaly;
}

uint32_t gr_block(Graph *g, Block b) {
  if (!g->blocks) {
    g->blocks = ARENA_NEW(g->arena, BlockTab);
    g->blocks->arena = g->arena;
  }
  BlockTab *t = g->blocks;
  VEC_PUSH(t->arena, t->items, t->count, t->cap, b);
  return (uint32_t)t->count;
}

bool gr_block_inside(const Graph *g, uint32_t id, uint32_t outer) {
  for (const Block *b; id != outer; id = b->parent) {
    if (!(b = gr_block_at(g, id))) return false;
  }
  return outer != 0;
}

bool gr_in_block(const Graph *g, uint32_t n, uint32_t id) {
  const Prov *p = &g->provs[g->nodes[n].prov];
  if (g->nodes[n].op == OP_INPUT) return false;
  return gr_block_inside(g, p->backward ? p->within : p->region, id);
}

/* Index of g->at in provs; neighbours with the same provenance share one. */
static uint32_t prov_index(Graph *g) {
  if (g->prov_count == 0 || !prov_same(&g->provs[g->prov_count - 1], &g->at)) {
    VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, g->at);
  }
  return (uint32_t)g->prov_count - 1;
}

void gr_set_prov(Graph *g, uint32_t node, Prov p) {
  Prov at = g->at;
  g->at = p;
  uint32_t k = prov_index(g);
  g->nodes[node].prov = k;
  g->at = at;
}

static Attr copy_attr(Arena *a, Attr from) {
  if ((from.kind == AK_INTS || from.kind == AK_DIMS) && from.count) {
    int64_t *v = ARENA_ARRAY(a, int64_t, from.count);
    memcpy(v, from.u.ints, sizeof *v * from.count);
    from.u.ints = v;
  }
  return from;
}

Val gr_op(Graph *g, OpCode op, const Val *operands, int n, const Attr *attrs, int nattrs,
          Graph *const *regions, int nregions, GErr *e) {
  GErr scratch;
  if (!e) e = &scratch;
  const Type *few_in[8], **in = few_in;
  Type few_out[2], *out = few_out;
  if (n > 8) in = ARENA_ARRAY(g->arena, const Type *, n);
  for (int i = 0; i < n; i++) {
    if (val_none(operands[i]) || operands[i].node >= g->node_count ||
        operands[i].res >= g->nodes[operands[i].node].result_count) {
      gerr_set(e, ERR_BUG, i, "`%s` is given a value that does not exist", op_info[op].text);
      return VAL_NONE;
    }
    in[i] = gr_type(g, operands[i]);
  }
  int nout = op_result_count(op, attrs, nattrs, regions, nregions);
  if (nout < 0 || nout > UINT16_MAX) {
    gerr_set(e, ERR_BUG, -1, "`%s` has no result count", op_info[op].text);
    return VAL_NONE;
  }
  if (nout > 2) out = ARENA_ARRAY(g->arena, Type, nout);
  size_t checks = g->check_count;
  ShapeCall c = {g->dims,  op,  in,   n, attrs, nattrs,          regions,
                 nregions, out, nout, g, e,     g->operand_text, g->operand_text_count};
  if (!op_shape(&c)) {
    g->check_count = checks;
    return VAL_NONE;
  }
  GNode node = {.op = (uint16_t)op,
                .result_count = (uint16_t)nout,
                .region_count = (uint16_t)nregions,
                .attr_count = (uint16_t)nattrs,
                .operand_count = (uint32_t)n,
                .operand0 = (uint32_t)g->operand_count,
                .result0 = (uint32_t)g->type_count,
                .attr0 = (uint32_t)g->attr_count,
                .region0 = (uint32_t)g->region_count};
  node.prov = prov_index(g);
  for (int i = 0; i < n; i++) {
    VEC_PUSH(g->arena, g->operands, g->operand_count, g->operand_cap, operands[i]);
  }
  for (int i = 0; i < nattrs; i++) {
    Attr a = copy_attr(g->arena, attrs[i]);
    VEC_PUSH(g->arena, g->attrs, g->attr_count, g->attr_cap, a);
  }
  for (int i = 0; i < nregions; i++) {
    VEC_PUSH(g->arena, g->regions, g->region_count, g->region_cap, (Graph *)regions[i]);
  }
  for (int i = 0; i < nout; i++) {
    VEC_PUSH(g->arena, g->types, g->type_count, g->type_cap, out[i]);
  }
  VEC_PUSH(g->arena, g->nodes, g->node_count, g->node_cap, node);
  if (op_info[op].traits & T_VIEW) {
    Type *from = &g->types[g->nodes[operands[0].node].result0 + operands[0].res];
    if (!from->alias) from->alias = ++g->alias_count;
    g->types[node.result0].alias = from->alias;
  }
  return (Val){(uint32_t)g->node_count - 1, 0};
}

static const char *const device_word[DEV_COUNT] = {"cpu", "cuda", "sim", "spill"};

Val gr_input(Graph *g, const Type *t) {
  int64_t dims[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) dims[i] = t->dim[i];
  Attr a[4] = {attr_i(AT_INDEX, (int64_t)g->input_count), attr_i(AT_DTYPE, t->dtype),
               attr_i(AT_DEVICE, t->dev), attr_dims(AT_DIMS, t->rank, dims)};
  if (t->kind != TK_TENSOR) a[1].u.i = -(int64_t)t->kind;
  Val v = gr_op(g, OP_INPUT, NULL, 0, a, 4, NULL, 0, NULL);
  CK_ASSERT(g->arena->mem, !val_none(v));
  VEC_PUSH(g->arena, g->inputs, g->input_count, g->input_cap, v);
  return v;
}

Val gr_const_f(Graph *g, DType dt, Device dev, double x) {
  if (!dt_float(dt)) return gr_const_i(g, dt, dev, hf_i64_from_f64(x));
  if (dt == DT_F32) x = (double)(float)x;
  if (dt == DT_F16) x = hf_f64_from_f16(hf_f16_from_f64(x));
  if (dt == DT_BF16) x = hf_f64_from_bf16(hf_bf16_from_f64(x));
  Attr a[3] = {attr_f(AT_VALUE, x), attr_i(AT_DTYPE, dt), attr_i(AT_DEVICE, dev)};
  return gr_op(g, OP_CONST, NULL, 0, a, 3, NULL, 0, NULL);
}

Val gr_const_i(Graph *g, DType dt, Device dev, int64_t x) {
  if (dt_float(dt)) return gr_const_f(g, dt, dev, (double)x);
  Attr a[3] = {attr_i(AT_VALUE, x), attr_i(AT_DTYPE, dt), attr_i(AT_DEVICE, dev)};
  return gr_op(g, OP_CONST, NULL, 0, a, 3, NULL, 0, NULL);
}

Val gr_dim(Graph *g, Dim d) {
  Attr a = attr_dim(AT_SIZE, d);
  return gr_op(g, OP_DIM, NULL, 0, &a, 1, NULL, 0, NULL);
}

void gr_output(Graph *g, Val v) {
  VEC_PUSH(g->arena, g->outputs, g->output_count, g->output_cap, v);
}

typedef struct FindCounter {
  const DimTab *t;
  bool found;
} FindCounter;

static void find_counter(void *ud, Sym s) {
  FindCounter *f = ud;
  f->found |= dim_is_counter(f->t, s);
}

bool gr_sized_by_turn(const DimTab *t, Dim d) {
  FindCounter f = {t, false};
  dim_symbols(t, d, find_counter, &f);
  return f.found;
}

void gr_check(Graph *g, CheckKind k, Dim a, Dim b, const char *text) {
  gr_check_help(g, k, a, b, text, NULL);
}

void gr_check_help(Graph *g, CheckKind k, Dim a, Dim b, const char *text, const char *help) {
  /* A condition is kept once. Long chains of one shape repeat it within a few nodes. */
  size_t from = g->check_count > 256 ? g->check_count - 256 : 0;
  for (size_t i = from; i < g->check_count; i++) {
    if (g->checks[i].kind == k && g->checks[i].a == a && g->checks[i].b == b) return;
  }
  SizeCheck c = {k, a, b, prov_index(g), NULL, NULL};
  if (text) c.text = arena_strdup(g->arena, text, strlen(text));
  if (help) c.help = arena_strdup(g->arena, help, strlen(help));
  VEC_PUSH(g->arena, g->checks, g->check_count, g->check_cap, c);
}

bool check_holds(CheckKind k, int64_t a, int64_t b) {
  switch (k) {
  case CHECK_EQ: return a == b;
  case CHECK_GE: return a >= b;
  case CHECK_DIVIDES: return b > 0 && a % b == 0;
  default: return dt_holds((DType)b, a);
  }
}

const Attr *gr_attr(const Graph *g, uint32_t node, AttrKey k) {
  return attr_find(g->attrs + g->nodes[node].attr0, g->nodes[node].attr_count, k);
}

int64_t gr_attr_i(const Graph *g, uint32_t node, AttrKey k, int64_t otherwise) {
  const Attr *a = gr_attr(g, node, k);
  return a && (a->kind == AK_INT || a->kind == AK_DIM) ? a->u.i : otherwise;
}

void gr_set_attr(Graph *g, uint32_t node, Attr a) {
  GNode *n = &g->nodes[node];
  for (uint32_t k = 0; k < n->attr_count; k++) {
    if (g->attrs[n->attr0 + k].key != a.key) continue;
    g->attrs[n->attr0 + k] = a;
    return;
  }
  uint32_t from = n->attr0;
  n->attr0 = (uint32_t)g->attr_count;
  for (uint32_t k = 0; k < n->attr_count; k++) {
    Attr old = g->attrs[from + k];
    VEC_PUSH(g->arena, g->attrs, g->attr_count, g->attr_cap, old);
  }
  VEC_PUSH(g->arena, g->attrs, g->attr_count, g->attr_cap, a);
  n->attr_count++;
}

bool gr_again(const Graph *g, uint32_t node) {
  if (!gr_attr(g, node, AT_STATES) && !gr_attr(g, node, AT_EVERY)) return false;
  const Graph *body = g->regions[g->nodes[node].region0];
  return gr_attr_i(g, node, AT_AGAIN, 0) < (int64_t)body->output_count;
}

bool type_eq(const Type *a, const Type *b) {
  if (a->kind != b->kind) return false;
  if (a->kind != TK_TENSOR) return true;
  if (a->dtype != b->dtype || a->rank != b->rank || a->dev != b->dev) return false;
  for (int i = 0; i < a->rank; i++) {
    if (a->dim[i] != b->dim[i]) return false;
  }
  return true;
}

bool type_same(DimTab *t, const Type *a, const Type *b) {
  if (a->kind != b->kind) return false;
  if (a->kind != TK_TENSOR) return true;
  if (a->dtype != b->dtype || a->dev != b->dev || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (dim_compare(t, a->dim[i], b->dim[i]) != DIM_EQUAL) return false;
  return true;
}

void type_sized_text(char *to, size_t size, DType dtype, int rank, const int64_t *dim) {
  int n = snprintf(to, size, "%s%s", dtype_info[dtype].name, rank ? "[" : "");
  for (int k = 0; k < rank && (size_t)n < size; k++)
    n += snprintf(to + n, size - (size_t)n, "%lld%s", (long long)dim[k], k + 1 < rank ? ", " : "]");
}

void type_print(Buf *out, const DimTab *t, const Type *ty) {
  if (ty->kind != TK_TENSOR) {
    buf_puts(out, ty->kind == TK_TOKEN ? "token" : "stash");
    return;
  }
  buf_puts(out, dtype_info[ty->dtype].name);
  if (ty->rank) {
    buf_putc(out, '[');
    for (int i = 0; i < ty->rank; i++) {
      if (i) buf_puts(out, ", ");
      dim_print(out, t, ty->dim[i]);
    }
    buf_putc(out, ']');
  }
  if (ty->dev != DEV_CPU) buf_printf(out, " on %s", device_word[ty->dev]);
}
