/* One generated test per row of ops.def: the shape rule against the reference kernel, the text
 * form, and the same bits from constant sizes, symbolic sizes, one op by itself, and strided
 * operands. */
#include "graph-gen.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run_op.h"

static Mem mem;
static Arena arena;
static int covered;

static void unref_all(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) tn_unref(t[i]);
}

static void round_trip(Graph *g, const char *name) {
  Buf a, b;
  GErr e;
  buf_init_arena(&a, &arena);
  buf_init_arena(&b, &arena);
  gr_print(&a, g);
  Graph *h = gr_read(&arena, g->names, a.s, a.n, &e);
  if (!check_msg(h != NULL, "%s does not read back: %s\n%s", name, e.text, a.s)) return;
  gr_print(&b, h);
  check_msg(!strcmp(a.s, b.s), "%s prints differently:\n%s%s", name, a.s, b.s);
  check_msg(gr_equal(g, h) && gr_hash(g) == gr_hash(h), "%s is not equal to what it reads back as",
            name);
}

/* The same elements behind other strides. */
static Tensor *strided(Tensor *t) {
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK];
  int64_t step = 1;
  for (int i = 0; i < t->rank; i++) {
    dim[i] = t->dim[i] + 1;
    stride[i] = step;
    step *= dim[i];
  }
  Tensor *big = tn_new(&mem, t->store->dev, t->dtype, t->rank, dim);
  if (big->store->bytes) memset(big->store->data, 0x55, big->store->bytes);
  Tensor *view = tn_view(&mem, big, t->rank, t->dim, stride, 0);
  size_t size = dt_size(t->dtype);
  for (int64_t i = 0, n = tn_count(t); i < n; i++) {
    int64_t at = 0, rest = i;
    for (int k = t->rank - 1; k >= 0; k--) {
      at += rest % t->dim[k] * stride[k];
      rest /= t->dim[k];
    }
    memcpy((char *)big->store->data + size * (size_t)at, (char *)tn_data(t) + size * (size_t)i,
           size);
  }
  tn_unref(big);
  return view;
}

/* Makes the graph of one node; its results are the outputs. */
static bool run_graph(Gen *x, Tensor **in, Tensor **out, GErr *e) {
  x->mem = &mem;
  RunCtx c = {.mem = &mem, .env = x->value, .effect = gen_effect, .ud = x};
  return gr_run(x->g, &c, in, out, e, NULL);
}

static void compare(const char *name, const char *what, Tensor **a, Tensor **b, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool same = a[i] && b[i] ? tn_same(a[i], b[i]) : a[i] == b[i];
    check_msg(same, "%s: %s gives other bits in result %zu", name, what, i);
  }
}

/* Constant sizes can be equal where symbols are not: then a region may have drawn other
 * operands. */
static bool alike(const Graph *a, const Graph *b) {
  if (a->node_count != b->node_count || a->operand_count != b->operand_count ||
      a->region_count != b->region_count) {
    return false;
  }
  for (size_t i = 0; i < a->node_count; i++) {
    if (a->nodes[i].op != b->nodes[i].op) return false;
  }
  for (size_t i = 0; i < a->operand_count; i++) {
    if (!val_eq(a->operands[i], b->operands[i])) return false;
  }
  for (size_t i = 0; i < a->output_count; i++) {
    if (!val_eq(a->outputs[i], b->outputs[i])) return false;
  }
  for (size_t i = 0; i < a->region_count; i++) {
    if (!alike(a->regions[i], b->regions[i])) return false;
  }
  return true;
}

static void case_of(OpCode op, uint64_t seed, Names *names) {
  const char *name = op_info[op].text;
  Gen fixed, open;
  GErr e;
  Val v = gen_single(&fixed, &arena, names, seed, false, op);
  Val w = gen_single(&open, &arena, names, seed, true, op);
  if (val_none(v)) return;
  if ((op_info[op].traits & T_REGION) && (val_none(w) || !alike(fixed.g, open.g))) return;
  if (!check_msg(!val_none(w), "%s: no symbolic form: %s", name, open.e.text)) return;
  covered++;
  if (!check_msg(gr_verify(fixed.g, &e) && gr_verify(open.g, &e), "%s: %s", name, e.text)) return;
  round_trip(fixed.g, name);
  round_trip(open.g, name);
  size_t n = fixed.g->input_count, nout = fixed.g->output_count;
  Tensor *in[GEN_INPUTS], *out[16] = {0}, *out2[16] = {0}, *out3[16] = {0};
  for (size_t i = 0; i < n; i++) in[i] = gen_tensor(&fixed, &mem, i, seed);
  if (!check_msg(run_graph(&fixed, in, out, &e), "%s fails: %s", name, e.text)) {
    unref_all(in, n);
    return;
  }
  /* The rule told what the kernel made. */
  for (size_t i = 0; i < nout; i++) {
    const Type *t = gr_type(fixed.g, (Val){v.node, (uint32_t)i}),
               *u = gr_type(open.g, (Val){w.node, (uint32_t)i});
    if (t->kind == TK_TOKEN) continue;
    check_msg(out[i]->dtype == (DType)t->dtype && out[i]->rank == t->rank,
              "%s: other dtype or rank", name);
    check_msg(u->dtype == t->dtype && u->rank == t->rank, "%s: another symbolic type", name);
    for (int k = 0; k < t->rank && k < out[i]->rank; k++) {
      int64_t d = gen_value(&fixed, t->dim[k]), s = gen_value(&open, u->dim[k]);
      check_msg(d == out[i]->dim[k] && s == d,
                "%s: axis %d is %lld, the rule says %lld, symbols %lld", name, k,
                (long long)out[i]->dim[k], (long long)d, (long long)s);
    }
  }
  check_msg(run_graph(&open, in, out2, &e), "%s fails with symbols: %s", name, e.text);
  compare(name, "a symbolic size", out, out2, nout);
  unref_all(out2, nout);
  memset(out2, 0, sizeof out2);
  for (size_t i = 0; i < n; i++) {
    Tensor *s = in[i] ? strided(in[i]) : NULL;
    tn_unref(in[i]);
    in[i] = s;
  }
  check_msg(run_graph(&fixed, in, out2, &e), "%s fails on strided operands: %s", name, e.text);
  compare(name, "a strided operand", out, out2, nout);
  const GNode *node = &fixed.g->nodes[v.node];
  bool alone = op != OP_INPUT && op != OP_TOKEN && op != OP_UNSTASH; /* a stash is no tensor */
  for (uint32_t i = 0; i < node->operand_count; i++)
    alone &= fixed.g->nodes[gr_operand(fixed.g, v.node, (int)i).node].op == OP_INPUT;
  if (!(op_info[op].traits & (T_REGION | T_EFFECT)) && alone) {
    RunCtx c = {.mem = &mem};
    Tensor *arg[8];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      Val from = gr_operand(fixed.g, v.node, (int)i);
      arg[i] = in[gr_attr_i(fixed.g, from.node, AT_INDEX, 0)];
    }
    check_msg(gr_run_op(&c, fixed.g->dims, op, fixed.g->attrs + node->attr0, node->attr_count, arg,
                        (int)node->operand_count, out3, node->result_count, &e),
              "%s fails by itself: %s", name, e.text);
    compare(name, "the op by itself", out, out3, nout);
    /* A commutative op does not see the order. */
    if ((op_info[op].traits & T_COMM) && node->operand_count == 2) {
      Tensor *back[2] = {arg[1], arg[0]}, *swapped[1] = {0};
      check(gr_run_op(&c, fixed.g->dims, op, NULL, 0, back, 2, swapped, 1, &e));
      compare(name, "the other order", out, swapped, 1);
      tn_unref(swapped[0]);
    }
  }
  unref_all(in, n);
  unref_all(out, nout);
  unref_all(out2, nout);
  unref_all(out3, nout);
}

static OpCode current;
static void row(void *ud) {
  Names *names = names_new(&arena);
  (void)ud;
  covered = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) case_of(current, seed, names);
  check_msg(covered >= 20 || (current == OP_TOKEN && covered), "only %d cases were made", covered);
}

static void t_row(OpCode op) {
  arena_init(&arena, &mem);
  current = op;
  check_int(mem_protect(&mem, row, NULL), ==, MEM_OK);
  arena_free(&arena);
  check_msg(mem.live == mem.pool_cap * sizeof *mem.pool, "%zu bytes are left", mem.live);
  mem_pool_drain(&mem, 0);
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  for (int i = 0; i < OP_COUNT; i++) {
    char title[80];
    snprintf(title, sizeof title, "%s: rule, kernel, text and sizes agree", op_info[i].text);
    TEST(t_row((OpCode)i), title);
  }
  mem_close(&mem);
  return tap_done();
}
