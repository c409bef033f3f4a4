/* Lowering: every op of the table, and typical groups, give the bits of the reference evaluator
 * when their kernels are walked; nothing is read or written out of bounds. */
#include "graph-gen.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/run.h"
#include "jit/lower/lower.h"

static Mem mem;
static Arena arena;
static int covered;

static const RegTile tile = {14, 32};

static uint32_t index_of(const Graph *g, Val v) {
  return g->nodes[v.node].result0 + v.res;
}

/* Numbers of all kinds for an input whose role is any. */
static void fill(Tensor *t, uint64_t seed) {
  Gen y = {.rng = seed * 77 + 5};
  static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 65504, 3e38};
  for (int k = 0; k < 9; k++) gen_rnd(&y, 2);
  for (int64_t i = 0, n = tn_count(t); i < n; i++) {
    double f = ((double)gen_rnd(&y, 2001) - 1000) / 250;
    if (seed % 2 && gen_rnd(&y, 60) == 0) f = odd[gen_rnd(&y, 10)];
    Tensor *s = dt_float(t->dtype)
                    ? tn_scalar_f64(&mem, DEV_CPU, t->dtype, f)
                    : tn_scalar_i64(&mem, DEV_CPU, t->dtype, (int64_t)gen_rnd(&y, 41) - 20);
    memcpy((char *)tn_data(t) + (size_t)i * dt_size(t->dtype), tn_data(s), dt_size(t->dtype));
    tn_unref(s);
  }
}

typedef struct Case { /* a graph with its inputs, and a place for each value */
  const char *name;
  const Graph *g;
  const int64_t *env;
  Tensor **at; /* per entry of g->types; owned */
  uint8_t *placed;
} Case;

static int64_t size_of(Case *c, Dim d) {
  int64_t n = 0;
  check_msg(dim_eval(c->g->dims, d, c->env, NULL, &n), "%s: a size of a kernel has no value",
            c->name);
  return n;
}

static Tensor *room(Case *c, const Type *t) {
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) dim[i] = size_of(c, t->dim[i]);
  Tensor *x = tn_new(&mem, DEV_CPU, (DType)t->dtype, t->rank, dim);
  if (x->store->bytes) memset(x->store->data, 0x55, x->store->bytes);
  return x;
}

static void show(const char *name, const Kernel *k) {
  Buf b;
  buf_init_arena(&b, &arena);
  lp_print(&b, k);
  tap_fail(TAP_HERE, "%s:\n%s", name, b.s);
}

/* Walks one launch. */
static bool launch(Case *c, const Launch *l, Tensor **panel) {
  static double nothing[16];
  const Kernel *k = l->k;
  void **buf = ARENA_ARRAY(&arena, void *, k->buf_count + 1);
  int64_t *n = ARENA_ARRAY(&arena, int64_t, k->buf_count + 1),
          *arg = ARENA_ARRAY(&arena, int64_t, k->arg_count + 1);
  Err e = {0};
  KStatus st = {0};
  if (!check_msg(lp_verify(k, &e), "%s: %s", c->name, e.text)) return show(c->name, k), false;
  for (size_t i = 0; i < k->buf_count; i++) {
    const BufUse *u = &l->bufs[i];
    if (u->kind == USE_LOCAL) continue;
    Tensor *t = buf_is_panel(u, c->g->dims, c->env) ? panel[u->panel] : c->at[index_of(c->g, u->v)];
    if (!check_msg(t != NULL, "%s: a buffer is no value with a place", c->name)) return false;
    n[i] = tn_count(t);
    buf[i] = n[i] ? tn_data(t) : (void *)nothing;
  }
  for (uint32_t i = 0; i < k->arg_count; i++) {
    arg[i] = l->args[i].kind == ARG_DIM ? size_of(c, l->args[i].dim) : l->args[i].bits;
  }
  int64_t iterations = lp_iterations(k, arg), cut = iterations / 3;
  bool ok = lp_run_within(&mem, k, buf, n, arg, cut, iterations, &st, &e) &&
            lp_run_within(&mem, k, buf, n, arg, 0, cut, &st, &e);
  if (!check_msg(ok, "%s: %s", c->name, e.text)) return show(c->name, k), false;
  if (!check_msg(!st.failed, "%s: a kernel failed", c->name)) return show(c->name, k), false;
  return true;
}

/* Lowers and runs one group; its outs are placed then. */
static bool group(Case *c, const Group *g) {
  Lower l = {.arena = &arena, .g = c->g, .tile = tile, .placed = c->placed};
  Lowered out = {0};
  GErr e = {.operand = -1};
  if (!low_group(&l, g, &out, &e))
    return check_msg(false, "%s (root %s): %s", c->name, op_info[c->g->nodes[g->root].op].text,
                     e.text);
  Tensor **panel = ARENA_ARRAY(&arena, Tensor *, out.panel_count + 1);
  for (size_t i = 0; i < out.panel_count; i++) {
    int64_t n = size_of(c, out.panels[i].count);
    panel[i] = tn_new(&mem, DEV_CPU, out.panels[i].dtype, 1, &n);
    memset(panel[i]->store->data, 0x55, panel[i]->store->bytes);
  }
  for (uint32_t i = 0; i < g->out_count; i++) {
    c->at[index_of(c->g, g->outs[i])] = room(c, gr_type(c->g, g->outs[i]));
  }
  bool ok = true;
  for (size_t i = 0; i < out.count && ok; i++) ok = launch(c, &out.launches[i], panel);
  for (size_t i = 0; i < out.panel_count; i++) tn_unref(panel[i]);
  for (uint32_t i = 0; i < g->out_count; i++) c->placed[index_of(c->g, g->outs[i])] = 1;
  return ok;
}

static void open_case(Case *c, const char *name, const Graph *g, const int64_t *env, Tensor **in) {
  *c = (Case){name, g, env, ARENA_ARRAY(&arena, Tensor *, g->type_count + 1), NULL};
  c->placed = ARENA_ARRAY(&arena, uint8_t, g->type_count + 1);
  for (size_t i = 0; i < g->input_count; i++) {
    uint32_t at = index_of(g, g->inputs[i]);
    if (!in[i]) continue;
    c->at[at] = tn_ref(in[i]);
    c->placed[at] = 1;
  }
}

static void close_case(Case *c) {
  for (size_t i = 0; i < c->g->type_count; i++) tn_unref(c->at[i]);
}

/* ---- every row of the table */

static bool lowered(OpCode op) {
  OpClass cls = op_info[op].cls;
  if (op == OP_INPUT || op == OP_SORT || op == OP_NONZERO) return false;
  return cls == ELEMENTWISE || cls == REDUCE || cls == MOVE || cls == GENERATE;
}

static GroupKind kind_of(OpCode op) {
  switch (op) {
  case OP_SUM:
  case OP_PROD:
  case OP_REDUCE_MAX:
  case OP_REDUCE_MIN:
  case OP_ANY:
  case OP_ALL: return GROUP_REDUCE;
  case OP_ARGMAX:
  case OP_ARGMIN:
  case OP_CUMSUM:
  case OP_CUMMAX:
  case OP_CUMMIN: return GROUP_SCAN;
  case OP_PUT:
  case OP_PUT_ADD:
  case OP_SCATTER:
  case OP_SCATTER_ADD: return GROUP_SCATTER;
  default: return GROUP_POINT;
  }
}

/* Sizes of a seed: small ones, or some about the width of vectors and blocks. */
static void sizes(Gen *x, uint64_t seed, bool symbolic) {
  static const int64_t big[] = {15, 16, 17, 33, 20, 1, 2, 18};
  for (int i = 0; i < GEN_SIZES && seed % 4 == 0; i++) {
    x->value[i] = big[gen_rnd(x, 8)];
    if (!symbolic) x->size[i] = dim_const(x->g->dims, x->value[i]);
  }
}

static void op_case(OpCode op, uint64_t seed, bool symbolic, Names *names) {
  Gen x;
  Case c;
  GErr e;
  Tensor *in[GEN_INPUTS], *want[4] = {0};
  gen_open(&x, &arena, names, seed, symbolic, seed % 3 == 0);
  sizes(&x, seed, symbolic);
  Val v = gen_op(&x, op);
  if (val_none(v)) return;
  int n = x.g->nodes[v.node].result_count;
  for (int i = 0; i < n; i++) gr_output(x.g, (Val){v.node, (uint32_t)i});
  RunCtx run = {.mem = &mem, .env = x.value};
  for (size_t i = 0; i < x.g->input_count; i++) in[i] = gen_tensor(&x, &mem, i, seed);
  if (check_msg(gr_run(x.g, &run, in, want, &e, NULL), "%s: %s", op_info[op].text, e.text)) {
    Group one = {.kind = (uint8_t)kind_of(op),
                 .root = v.node,
                 .nodes = &v.node,
                 .node_count = 1,
                 .outs = &v,
                 .out_count = 1};
    open_case(&c, op_info[op].text, x.g, x.value, in);
    if (group(&c, &one)) {
      covered++;
      for (int i = 0; i < n; i++) {
        Tensor *got = c.at[index_of(x.g, (Val){v.node, (uint32_t)i})];
        check_msg(tn_same(got, want[i]), "%s: other bits in result %d of seed %d%s", c.name, i,
                  (int)seed, symbolic ? ", symbolic" : "");
      }
    }
    close_case(&c);
  }
  for (size_t i = 0; i < x.g->input_count; i++) tn_unref(in[i]);
  for (int i = 0; i < n; i++) tn_unref(want[i]);
}

static void clean(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
}

static void t_op(OpCode op) {
  covered = 0;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    Names *names = names_new(&arena);
    op_case(op, seed, false, names);
    op_case(op, seed, true, names);
    clean();
  }
  check_msg(covered >= 30, "only %d cases were made", covered);
}

/* ---- chains of views and pointwise ops, pulled in one kernel */

static void t_chain(uint64_t seed) {
  static const OpCode ops[] = {OP_ADD,     OP_MUL,     OP_NEG,       OP_CAST,      OP_WHERE,
                               OP_RESHAPE, OP_RESHAPE, OP_TRANSPOSE, OP_TRANSPOSE, OP_BROADCAST,
                               OP_SLICE,   OP_FLIP,    OP_PAD,       OP_CONCAT,    OP_TAKE,
                               OP_GATHER,  OP_IOTA,    OP_LT,        OP_RANDOM};
  Gen x;
  Case c;
  GErr e;
  Tensor *in[GEN_INPUTS], **want;
  Names *names = names_new(&arena);
  gen_open(&x, &arena, names, seed, seed % 2, false);
  sizes(&x, seed / 2, seed % 2);
  x.reuse = true;
  for (int i = 0; i < 25; i++) gen_op(&x, ops[gen_rnd(&x, sizeof ops / sizeof *ops)]);
  for (uint32_t i = 0; i < x.g->node_count; i++) {
    if (x.g->nodes[i].op != OP_INPUT && gen_rnd(&x, 3) == 0) gr_output(x.g, (Val){i, 0});
  }
  want = ARENA_ARRAY(&arena, Tensor *, x.g->output_count + 1);
  RunCtx run = {.mem = &mem, .env = x.value};
  for (size_t i = 0; i < x.g->input_count; i++) in[i] = gen_tensor(&x, &mem, i, seed);
  if (gr_run(x.g, &run, in, want, &e, NULL)) {
    for (size_t i = 0; i < x.g->output_count; i++) {
      Val v = x.g->outputs[i];
      int64_t count = tn_count(want[i]);
      if (count > 20000) continue;
      Group one = {.kind = GROUP_POINT, .root = v.node, .outs = &v, .out_count = 1};
      char name[60];
      snprintf(name, sizeof name, "chain %d, node %u", (int)seed, (unsigned)v.node);
      open_case(&c, name, x.g, x.value, in);
      if (group(&c, &one))
        check_msg(tn_same(c.at[index_of(x.g, v)], want[i]), "%s: other bits", name);
      close_case(&c);
    }
    for (size_t i = 0; i < x.g->output_count; i++) tn_unref(want[i]);
  }
  for (size_t i = 0; i < x.g->input_count; i++) tn_unref(in[i]);
  clean();
}

/* ---- groups made by hand */

enum { MOST = 6 };

typedef struct Make { /* a graph under construction; symbols or constants */
  B b;
  Graph *g;
  bool symbolic;
  int64_t env[MOST];
  int symbols;
  DType dt;
} Make;

static Dim size(Make *m, int64_t n) {
  DimTab *t = m->g->dims;
  if (!m->symbolic || m->symbols == MOST) return dim_const(t, n);
  m->env[m->symbols++] = n;
  return dim_symbol(t, NULL, (Span){0}, NULL);
}

static void make_open(Make *m, bool symbolic, DType dt) {
  memset(m, 0, sizeof *m);
  Names *names = names_new(&arena);
  m->g = gr_new(&arena, dim_tab_new(&arena), names, names_of(names, "g"));
  m->g->at.origin = -1;
  m->b.g = m->g;
  m->symbolic = symbolic;
  m->dt = dt;
}

static Val make_input(Make *m, int rank, const Dim *dims) {
  Type t = gen_type(m->dt, rank, dims);
  return gr_input(m->g, &t);
}

static Val reduce(Make *m, OpCode op, Val x, int n, const int64_t *axes) {
  return b_op(&m->b, op, 1, &x, 1, (Attr[]){attr_ints(AT_AXES, n, axes)});
}

/* Runs the graph, one group of all its nodes whose outs are its outputs. */
static void run_group(Make *m, GroupKind kind, const char *name) {
  const Graph *g = m->g;
  Case c;
  GErr e;
  Tensor *in[MOST], *want[MOST];
  if (!check_msg(!m->b.failed, "%s: %s", name, m->b.err.text)) return;
  for (uint64_t seed = 1; seed <= 2; seed++) {
    for (size_t i = 0; i < g->input_count; i++) {
      int64_t dim[CKL_MAX_RANK];
      const Type *t = gr_type(g, g->inputs[i]);
      for (int k = 0; k < t->rank; k++) dim_eval(g->dims, t->dim[k], m->env, NULL, &dim[k]);
      in[i] = tn_new(&mem, DEV_CPU, (DType)t->dtype, t->rank, dim);
      fill(in[i], seed + 10 * i);
    }
    RunCtx run = {.mem = &mem, .env = m->env};
    Group one = {.kind = (uint8_t)kind,
                 .root = g->outputs[0].node,
                 .outs = g->outputs,
                 .out_count = (uint32_t)g->output_count};
    one.nodes = ARENA_ARRAY(&arena, uint32_t, g->node_count);
    for (uint32_t i = 0; i < g->node_count; i++) {
      OpClass cls = op_info[g->nodes[i].op].cls;
      if (cls != ELEMENTWISE && cls != REDUCE) continue;
      one.nodes[one.node_count++] = i;
      if (cls == REDUCE) one.root = i;
    }
    open_case(&c, name, g, m->env, in);
    if (check_msg(gr_run(g, &run, in, want, &e, NULL), "%s: %s", name, e.text)) {
      if (group(&c, &one)) {
        for (size_t i = 0; i < g->output_count; i++) {
          check_msg(tn_same(c.at[index_of(g, g->outputs[i])], want[i]),
                    "%s: other bits in output %d, seed %d", name, (int)i, (int)seed);
        }
      }
      for (size_t i = 0; i < g->output_count; i++) tn_unref(want[i]);
    }
    close_case(&c);
    for (size_t i = 0; i < g->input_count; i++) tn_unref(in[i]);
  }
}

static Val scale(Make *m, Val x, double f) {
  return b_bin(&m->b, OP_MUL, x, b_const(&m->b, x, f));
}

/* More ops in one kernel than a chain may be long, in a tree that is not deep. */
static void t_tree(void) {
  enum { LEAVES = 2048 };
  static Val v[LEAVES];
  Make m;
  make_open(&m, false, DT_F32);
  Dim n = size(&m, 7);
  Val x = make_input(&m, 1, &n);
  for (int i = 0; i < LEAVES; i++) v[i] = scale(&m, x, i + 2);
  for (int left = LEAVES; left > 1; left /= 2)
    for (int i = 0; i < left / 2; i++) v[i] = b_bin(&m.b, OP_ADD, v[2 * i], v[2 * i + 1]);
  gr_output(m.g, v[0]);
  run_group(&m, GROUP_POINT, "a tree");
  clean();
}

static void rows_of(bool symbolic, DType dt, int64_t r, int64_t n) {
  Make m;
  char name[80];
  static const int64_t last = 1, first = 0;
  snprintf(name, sizeof name, "%s[%d, %d]%s", dtype_info[dt].name, (int)r, (int)n,
           symbolic ? " symbolic" : "");

  make_open(&m, symbolic, dt);
  Dim d[2] = {size(&m, r), size(&m, n)};
  B *b = &m.b;
  Val x = make_input(&m, 2, d);
  Val top = reduce(&m, OP_REDUCE_MAX, x, 1, &last);
  Val ex = b_un(b, OP_EXP, b_bin(b, OP_SUB, x, b_keep(b, top, x, 1, &last)));
  Val sum = reduce(&m, OP_SUM, ex, 1, &last);
  gr_output(m.g, b_bin(b, OP_DIV, ex, b_keep(b, sum, ex, 1, &last)));
  run_group(&m, GROUP_ROWS, name); /* softmax */
  gr_output(m.g, b_bin(b, OP_ADD, top, b_un(b, OP_LOG, sum)));
  gr_output(m.g, ex);
  run_group(&m, GROUP_ROWS, name);

  make_open(&m, symbolic, dt);
  Dim e[2] = {size(&m, r), size(&m, n)};
  x = make_input(&m, 2, e);
  Val z = make_input(&m, 2, e), gain = make_input(&m, 1, e + 1);
  Val h = b_bin(b, OP_ADD, b_bin(b, OP_MUL, x, z), b_un(b, OP_TANH, z));
  Val mean = scale(&m, reduce(&m, OP_SUM, h, 1, &last), 0.01);
  Val diff = b_bin(b, OP_SUB, h, b_keep(b, mean, h, 1, &last));
  Val var = scale(&m, reduce(&m, OP_SUM, b_bin(b, OP_MUL, diff, diff), 1, &last), 0.01);
  Val inv = b_un(b, OP_RSQRT, b_bin(b, OP_ADD, var, b_const(b, var, 1e-5)));
  Val y = b_bin(b, OP_MUL, diff, b_keep(b, inv, h, 1, &last));
  y = b_bin(b, OP_MUL, y, b_broadcast(b, gain, 2, e));
  gr_output(m.g, h);
  gr_output(m.g, mean);
  gr_output(m.g, y);
  run_group(&m, GROUP_ROWS, name); /* layer norm after a residual */
  if (r > 1 && n != 1) {           /* and columns of it */
    gr_output(m.g, reduce(&m, OP_SUM, b_bin(b, OP_MUL, y, z), 1, &first));
    gr_output(m.g, reduce(&m, OP_REDUCE_MAX, h, 1, &first));
    run_group(&m, GROUP_ROWS, name);
  }

  /* the same columns, and their means */
  make_open(&m, symbolic, dt);
  Dim f[2] = {size(&m, n), size(&m, r)};
  x = make_input(&m, 2, f);
  z = make_input(&m, 2, f);
  gain = make_input(&m, 1, f + 1);
  Val s = reduce(&m, OP_SUM, b_bin(b, OP_MUL, x, z), 1, &first);
  Val t = reduce(&m, OP_REDUCE_MIN, b_bin(b, OP_MUL, x, b_broadcast(b, gain, 2, f)), 1, &first);
  gr_output(m.g, scale(&m, s, 0.1));
  gr_output(m.g, b_bin(b, OP_ADD, s, t));
  run_group(&m, GROUP_COLUMNS, name);
}

/* Columns alone, of more rows than a block has. */
static void t_tall(bool symbolic) {
  for (int64_t rows = 8190; rows < 8210; rows += 19) {
    static const int64_t first = 0;
    Make m;
    make_open(&m, symbolic, DT_F32);
    Dim d[2] = {size(&m, rows), size(&m, 5)};
    Val x = make_input(&m, 2, d),
        y = b_bin(&m.b, OP_MUL, x, b_broadcast(&m.b, make_input(&m, 1, d + 1), 2, d));
    gr_output(m.g, b_un(&m.b, OP_NEG, y));
    gr_output(m.g, reduce(&m, OP_SUM, y, 1, &first));
    gr_output(m.g, reduce(&m, OP_SUM, x, 1, &first));
    run_group(&m, GROUP_ROWS, "tall");
    clean();
  }
}

/* A transposed matrix and another that is not, beyond the size of a tile. */
static void t_across(bool symbolic) {
  static const int64_t swap[] = {1, 0}, swap3[] = {0, 2, 1};
  Make m;
  make_open(&m, symbolic, DT_F32);
  Dim d[3] = {size(&m, 3), size(&m, 70), size(&m, 131)};
  Val x = make_input(&m, 2, d + 1), y = b_transpose(&m.b, x, swap);
  Dim e[2] = {d[2], d[1]};
  gr_output(m.g, b_bin(&m.b, OP_MUL, y, make_input(&m, 2, e)));
  run_group(&m, GROUP_POINT, "across");
  make_open(&m, symbolic, DT_F16);
  Dim f[3] = {size(&m, 3), size(&m, 70), size(&m, 131)};
  gr_output(m.g, b_un(&m.b, OP_NEG, b_transpose(&m.b, make_input(&m, 3, f), swap3)));
  run_group(&m, GROUP_POINT, "across in threes");
  clean();
}

static void t_rows(DType dt, bool symbolic) {
  static const int64_t sizes_of[] = {0, 1, 2, 15, 16, 17, 33, 100, 4097};
  for (unsigned i = 0; i < sizeof sizes_of / sizeof *sizes_of; i++) {
    rows_of(symbolic, dt, 1, sizes_of[i]);
    if (sizes_of[i] < 1000) rows_of(symbolic, dt, 35, sizes_of[i]);
    clean();
  }
}

/* Reductions of every set of axes of dims, of an operand that repeats along one of them. */
static void t_axes(bool symbolic, int rank, const int64_t *dim) {
  for (unsigned set = 0; set < 1u << rank; set++) {
    for (int repeat = -1; repeat < rank; repeat++) {
      Make m;
      Dim d[CKL_MAX_RANK], one[CKL_MAX_RANK];
      int64_t axes[CKL_MAX_RANK];
      int n = 0;
      char name[100];
      snprintf(name, sizeof name, "axes %x of rank %d, repeated along %d%s", set, rank, repeat,
               symbolic ? ", symbolic" : "");
      make_open(&m, symbolic, DT_F32);
      for (int i = 0; i < rank; i++) {
        d[i] = one[i] = size(&m, dim[i]);
        if (i == repeat) one[i] = dim_const(m.g->dims, 1);
        if (set >> i & 1) axes[n++] = i;
      }
      Val x = make_input(&m, rank, d);
      if (repeat >= 0)
        x = b_bin(&m.b, OP_MUL, x, b_broadcast(&m.b, make_input(&m, rank, one), rank, d));
      gr_output(m.g, reduce(&m, OP_SUM, x, n, axes));
      run_group(&m, GROUP_REDUCE, name);
      clean();
    }
  }
}

/* Rows of two axes with an operand that has one of them. */
static void t_rows_of_two(bool symbolic) {
  Make m;
  make_open(&m, symbolic, DT_F32);
  B *b = &m.b;
  Dim d[4] = {size(&m, 3), size(&m, 2), size(&m, 7), size(&m, 18)}, one = dim_const(m.g->dims, 1);
  static const int64_t axes[] = {3, 2};
  Val x = make_input(&m, 4, d), g = make_input(&m, 4, (Dim[]){one, one, d[2], one});
  Val gain = b_broadcast(b, g, 4, d);
  Val s = reduce(&m, OP_SUM, b_bin(b, OP_MUL, x, gain), 2, axes);
  Val y = b_un(b, OP_EXP, b_bin(b, OP_SUB, x, b_keep(b, scale(&m, s, 0.01), x, 2, axes)));
  Val t = reduce(&m, OP_SUM, b_bin(b, OP_MUL, y, gain), 2, axes);
  gr_output(m.g, b_bin(b, OP_MUL, y, b_keep(b, t, x, 2, axes)));
  run_group(&m, GROUP_ROWS, "rows of two axes");
  clean();
}

int main(void) {
  static const DType floats[] = {DT_F32, DT_F64, DT_F16, DT_BF16};
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  for (int op = 0; op < OP_COUNT; op++) {
    if (lowered((OpCode)op)) TEST(t_op((OpCode)op), op_info[op].text);
  }
  for (uint64_t seed = 1; seed <= 60; seed++)
    TEST(t_chain(seed), "a chain of views and pointwise ops");
  TEST(t_tree(), "a tree of 4,095 ops");
  for (int i = 0; i < 8; i++) TEST(t_rows(floats[i / 2], i % 2), "rows and columns");
  for (int i = 0; i < 2; i++) {
    TEST(t_axes(i, 3, (int64_t[]){5, 3, 18}), "any axes");
    TEST(t_axes(i, 4, (int64_t[]){2, 3, 47, 32}), "any axes of blocks");
    TEST(t_axes(i, 2, (int64_t[]){4097, 3}), "tall");
    TEST(t_axes(i, 2, (int64_t[]){70, 300}), "wide");
    TEST(t_axes(i, 1, (int64_t[]){20001}), "long");
    TEST(t_across(i), "across");
    TEST(t_tall(i), "columns on the way through tall rows");
    TEST(t_rows_of_two(i), "rows of two axes");
  }
  arena_free(&arena);
  check_size(mem.live - mem.pool_cap * sizeof *mem.pool, ==, 0);
  return tap_done();
}
