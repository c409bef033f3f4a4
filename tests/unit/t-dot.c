/* Products and convolutions in loop form against the reference evaluator, bit for bit.
 *
 * Kernels are walked instruction by instruction with every access checked; every few of them run as
 * machine code of all levels too, where the code generator is there. */
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "graphs.h"
#include "jit/engine/engine.h"
#include "jit/loop/loop_elem.h"
#include "jit/lower/lower.h"

enum { MAX_BUFS = 64 };

static const RegTile tiles[ENG_LEVEL_COUNT] = {{2, 16}, {6, 16}, {14, 32}};

/* One per level that this CPU has; NULL where there is no code generator. */
static Engine *engines[ENG_LEVEL_COUNT];
static bool as_code, each_as_code; /* this case too; all of them */

static uint64_t seed = 88172645463325252u;

static int64_t pick(int64_t lo, int64_t hi) {
  return lo + (int64_t)(tap_random(&seed) >> 11) % (hi - lo + 1);
}

/* Everything of a graph that is not a view goes into the one group around `root`; its outputs are
 * the outs. Values in `in` are inputs' tensors. */
static bool lowered(Env *v, Graph *g, uint32_t root, GroupKind kind, int level, Tensor *const *in,
                    Tensor **want, const char *what) {
  Arena *a = &v->arena;
  uint8_t *placed = ARENA_ARRAY(a, uint8_t, g->type_count + 1);
  for (size_t i = 0; i < g->input_count; i++) placed[g->nodes[g->inputs[i].node].result0] = 1;
  Group group = {.kind = (uint8_t)kind,
                 .root = root,
                 .outs = g->outputs,
                 .out_count = (uint32_t)g->output_count};
  Lower l = {.arena = a, .g = g, .tile = tiles[level], .placed = placed};
  Lowered out = {0};
  GErr ge = {.operand = -1};
  if (!low_dot(&l, &group, &out, &ge)) return fails("%s: not lowered: %s", what, ge.text);
  const int64_t none[1] = {0}, *env = v->sizes ? v->sizes : none;
  bool ok = true;
  void *panel[16];
  int64_t panel_n[16];
  Tensor *got[8];
  for (size_t i = 0; i < out.panel_count; i++) {
    check(dim_eval(v->dims, out.panels[i].count, env, NULL, &panel_n[i]));
    panel[i] =
        aligned_alloc(64, ((size_t)panel_n[i] * dt_size(out.panels[i].dtype) + 64) & ~(size_t)63);
  }
  for (size_t i = 0; i < g->output_count; i++)
    got[i] = tn_new(&v->mem, DEV_CPU, want[i]->dtype, want[i]->rank, want[i]->dim);
  for (int way = 0; way < 2 && ok; way++) {
    Engine *engine = way ? engines[level] : NULL;
    if (way && (!engine || !as_code)) break;
    for (size_t i = 0; i < out.panel_count; i++)
      memset(panel[i], 0xff, (size_t)panel_n[i] * dt_size(out.panels[i].dtype));
    for (size_t i = 0; i < g->output_count; i++)
      memset(tn_data(got[i]), 0xff, (size_t)tn_count(got[i]) * dt_size(got[i]->dtype));
    for (size_t i = 0; i < out.count && ok; i++) {
      const Launch *c = &out.launches[i];
      void *buf[MAX_BUFS];
      int64_t count[MAX_BUFS], *arg = ARENA_ARRAY(a, int64_t, c->k->arg_count + 1);
      Err e = {0};
      if (!lp_verify(c->k, &e)) return fails("%s: launch %zu: %s", what, i, e.text);
      for (size_t j = 0; j < c->k->buf_count; j++) {
        const BufUse *u = &c->bufs[j];
        buf[j] = NULL;
        count[j] = 0;
        if (u->kind == USE_LOCAL) continue;
        if (buf_is_panel(u, v->dims, env)) {
          buf[j] = panel[u->panel];
          count[j] = panel_n[u->panel];
          continue;
        }
        for (size_t x = 0; x < g->input_count; x++)
          if (val_eq(g->inputs[x], u->v)) {
            buf[j] = tn_data(in[x]);
            count[j] = tn_count(in[x]);
          }
        for (size_t x = 0; x < g->output_count; x++)
          if (val_eq(g->outputs[x], u->v)) {
            buf[j] = tn_data(got[x]);
            count[j] = tn_count(got[x]);
          }
      }
      for (uint32_t j = 0; j < c->k->arg_count; j++) {
        arg[j] = c->args[j].bits;
        if (c->args[j].kind == ARG_DIM)
          check(dim_eval(v->dims, c->args[j].dim, env, NULL, &arg[j]));
      }
      KStatus st = {0};
      int64_t iterations = lp_iterations(c->k, arg), middle = iterations / 2;
      if (engine) {
        EngKernel *k = eng_kernel(engine, c->k, &e);
        int64_t bytes = lp_local_bytes(c->k, arg);
        ok = k && eng_wait(engine, &k, 1, NULL, &e) && eng_scratch(engine, bytes) &&
             eng_run(engine, eng_code(k), buf, arg, iterations, INT64_C(1) << 40, bytes, &st, NULL);
      } else {
        ok = lp_run_within(&v->mem, c->k, buf, count, arg, middle, iterations, &st, &e) &&
             lp_run_within(&v->mem, c->k, buf, count, arg, 0, middle, &st, &e);
      }
      check_msg(ok, "%s: launch %zu: %s", what, i, e.text);
      check(!st.failed);
    }
    for (size_t i = 0; i < g->output_count && ok; i++)
      ok = check_msg(tn_same(got[i], want[i]), "%s: output %zu differs%s", what, i,
                     way ? " as machine code" : "");
  }
  for (size_t i = 0; i < out.panel_count; i++) free(panel[i]);
  drop(got, g->output_count);
  return ok;
}

/* Runs the graph by the reference evaluator and in loop form, for every target. */
static void same(Env *v, Graph *g, Val root, GroupKind kind, const char *what) {
  Tensor *in[8], *want[8];
  uint64_t state = seed | 1;
  for (size_t i = 0; i < g->input_count; i++) in[i] = drawn(v, g, i, uniform, &state);
  if (run(v, g, in, want)) {
    static int number;
    as_code = number++ % 9 == 0 || each_as_code;
    for (int t = 0; t < ENG_LEVEL_COUNT; t++)
      if (!lowered(v, g, root.node, kind, t, in, want, what)) break;
    drop(want, g->output_count);
  }
  drop(in, g->input_count);
}

enum { PLAIN = 0, X_SWAPPED = 1, Y_SWAPPED = 2, SYMBOLS = 4, BIAS = 8, FUSED_IN = 16, ROWS = 32 };

/* x [m, k] @ y [k, n] with transposes, sizes as symbols, an epilogue, computed operands. */
static void product(DType dt, int64_t m, int64_t k, int64_t n, unsigned how) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  int64_t size[3] = {m, k, n};
  Dim d[3];
  for (int i = 0; i < 3; i++) {
    Sym s;
    d[i] = (how & SYMBOLS) ? dim_symbol(v.dims, names_of(v.names, "n"), (Span){0}, &s)
                           : dim_const(v.dims, size[i]);
  }
  if ((how & ROWS) && !(how & SYMBOLS)) {
    Sym s;
    d[0] = dim_symbol(v.dims, names_of(v.names, "n"), (Span){0}, &s);
  }
  v.sizes = size;
  Type tx = {.kind = TK_TENSOR,
             .dtype = (uint8_t)(dt == DT_F16 ? DT_F32 : dt),
             .dev = DEV_CPU,
             .rank = 2},
       ty = tx, tb = tx;
  bool xs = how & X_SWAPPED, ys = how & Y_SWAPPED;
  tx.dim[xs] = d[0];
  tx.dim[!xs] = d[1];
  ty.dim[ys] = d[1];
  ty.dim[!ys] = d[2];
  tb.rank = 1;
  tb.dim[0] = d[2];
  B b = {.g = g};
  Val x = gr_input(g, &tx), y = gr_input(g, &ty), bias = gr_input(g, &tb);
  if (dt == DT_F16) {
    x = b_cast(&b, x, dt);
    y = b_cast(&b, y, dt);
    bias = b_cast(&b, bias, dt);
  }
  if (xs) x = b_swap(&b, x);
  if (ys) y = b_swap(&b, y);
  if (how & FUSED_IN) {
    x = b_un(&b, OP_NEG, x);
    y = b_bin(&b, OP_MUL, y, y);
  }
  Val z = b_op(&b, OP_DOT, 2, (Val[]){x, y}, 0, NULL), o = z;
  if (how & BIAS) {
    Dim shape[2] = {d[0], d[2]};
    o = b_un(&b, OP_RELU, b_bin(&b, OP_ADD, z, b_broadcast(&b, bias, 2, shape)));
    gr_output(g, z);
  }
  gr_output(g, o);
  char what[200];
  snprintf(what, sizeof what, "%s %lldx%lldx%lld how %u", dtype_info[dt].name, (long long)m,
           (long long)k, (long long)n, how);
  if (built(&b)) same(&v, g, z, GROUP_DOT, what);
  env_close(&v);
}

static void small_products(void) {
  for (int i = 0; i < 60; i++) {
    product(pick(0, 2) ? DT_F32 : DT_F64, pick(1, 40), pick(1, 40), pick(1, 70),
            (unsigned)pick(0, 63));
  }
  for (unsigned how = 0; how < 4; how++) {
    product(DT_F32, 1, 33, 40, how);
    product(DT_F32, 40, 33, 1, how);
    product(DT_F32, 2, 5, 130, how | BIAS);
    product(DT_F64, 17, 1, 3, how);
    product(DT_F16, 9, 20, 18, how);
  }
}

static void edges(void) {
  each_as_code = true; /* the code of one text, with each number of rows */
  for (int64_t m = 5; m < 16; m++) product(DT_F32, m, 7, 32, m % 2 ? ROWS : ROWS | BIAS);
  each_as_code = false;
  static const int64_t sizes[] = {1, 13, 14, 15, 28, 29, 64, 65};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    product(DT_F32, sizes[i], 4, sizes[7 - i], PLAIN);
    product(DT_F64, sizes[i], 3, sizes[7 - i], BIAS | ROWS);
  }
  product(DT_F32, 130, 3, 300, PLAIN);
  product(DT_F32, 130, 3, 300, SYMBOLS | X_SWAPPED);
}

static void long_chains(void) {
  static const int64_t k[] = {1023, 1024, 1025, 4095, 4096, 4097, 9000};
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    product(DT_F32, 3, k[i], 5, PLAIN);
    product(DT_F32, 3, k[i], 2, SYMBOLS | BIAS);
    product(DT_F64, 30, k[i], 2, ROWS);
  }
}

/* Rows that turn out to lie a multiple of 4 KiB apart are copied. */
static void aliased_rows(void) {
  each_as_code = true;
  for (int64_t k = 1022; k < 1026; k++) product(DT_F32, 6, k, 70, SYMBOLS);
  product(DT_F32, 6, 1024, 64, SYMBOLS); /* not for few columns */
  product(DT_F64, 5, 512, 40, SYMBOLS | BIAS);
  product(DT_F32, 7, 1024, 65, SYMBOLS | Y_SWAPPED);
  each_as_code = false;
}

static void batches(void) {
  for (int i = 0; i < 24; i++) {
    Env v;
    env_open(&v);
    Graph *g = new_graph(&v);
    B b = {.g = g};
    DType dt = pick(0, 1) ? DT_F32 : DT_F64;
    int p = (int)pick(1, 3), q = (int)pick(1, 3), m = (int)pick(1, 16), k = (int)pick(1, 9),
        n = (int)pick(1, 35), how = (int)pick(0, 7);
    Dim dx[4] = {dim_const(v.dims, p), dim_const(v.dims, q), dim_const(v.dims, m),
                 dim_const(v.dims, k)};
    Dim dy[4] = {dx[0], dx[1], dx[3], dim_const(v.dims, n)};
    Val x = how & 1 ? input(&v, g, dt, 4, p, q, m, k) : input(&v, g, dt, 3, q, m, k);
    Val y = how & 2   ? input(&v, g, dt, 4, p, q, k, n)
            : how & 4 ? input(&v, g, dt, 2, k, n)
                      : input(&v, g, dt, 4, p, 1, k, n);
    x = b_broadcast(&b, x, 4, dx);
    y = b_broadcast(&b, y, 4, dy);
    Val z = b_op(&b, OP_DOT, 2, (Val[]){x, y}, 0, NULL);
    int64_t perm[4] = {0, 1, 3, 2};
    (void)perm;
    gr_output(g, z);
    char what[100];
    snprintf(what, sizeof what, "batch %d %d %d %d %d how %d", p, q, m, k, n, how);
    if (built(&b)) same(&v, g, z, GROUP_DOT, what);
    env_close(&v);
  }
}

/* Heads of attention: [B, T, H, D] read as [B, H, T, D], and slices. */
static void views(void) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  int64_t heads[4] = {0, 2, 1, 3};
  Dim split[4] = {dim_const(v.dims, 2), dim_const(v.dims, 7), dim_const(v.dims, 3),
                  dim_const(v.dims, 8)};
  Val x = input(&v, g, DT_F32, 3, 2, 7, 24), y = input(&v, g, DT_F32, 3, 2, 7, 24);
  Val q = b_transpose(&b, b_reshape(&b, x, 4, split), heads);
  Val k = b_transpose(&b, b_reshape(&b, y, 4, split), heads);
  Val s = b_op(&b, OP_DOT, 2, (Val[]){q, b_swap(&b, k)}, 0, NULL);
  gr_output(g, b_bin(&b, OP_MUL, s, b_const(&b, s, 0.25)));
  if (built(&b)) same(&v, g, s, GROUP_DOT, "heads");
  env_close(&v);
}

static void inner(void) {
  for (int i = 0; i < 12; i++) {
    Env v;
    env_open(&v);
    Graph *g = new_graph(&v);
    B b = {.g = g};
    DType dt = (DType[]){DT_F32, DT_F64, DT_F16}[i % 3];
    int n = (int)pick(1, 5), k = i == 0 ? 9000 : (int)pick(1, 100);
    Val x = input(&v, g, dt == DT_F16 ? DT_F32 : dt, 2, n, k), y = b_un(&b, OP_RELU, x);
    if (dt == DT_F16) {
      x = b_cast(&b, x, dt);
      y = b_cast(&b, y, dt);
    }
    Val z = b_op(&b, OP_INNER, 2, (Val[]){x, y}, 0, NULL);
    gr_output(g, b_un(&b, OP_NEG, z));
    if (built(&b)) same(&v, g, z, GROUP_DOT, "inner");
    env_close(&v);
  }
}

/* Operands rounded to f16, sums in f32; what has no loop form is refused. */
static void rounded(void) {
  for (int mode = COMPUTE_NONE; mode <= COMPUTE_TF32; mode++)
    for (int i = 0; i < 5; i++) {
      Env v;
      env_open(&v);
      Graph *g = new_graph(&v);
      B b = {.g = g};
      DType dt = (DType[]){DT_F32, DT_F16, DT_BF16, DT_I64, DT_U8}[i];
      Val big = input(&v, g, DT_F32, 2, 20, 33);
      Val x = b_cast(&b, b_bin(&b, OP_MUL, big, b_const(&b, big, 100)), dt);
      Val y = b_cast(&b, input(&v, g, DT_F32, 2, 33, 40), dt);
      if (dt == DT_I64) y = b_bin(&b, OP_SUB, y, b_const(&b, y, 3));
      Attr at = attr_i(AT_COMPUTE, mode);
      Val z = b_op(&b, OP_DOT, 2, (Val[]){x, y}, 1, &at);
      gr_output(g, z);
      char what[60];
      snprintf(what, sizeof what, "%s, compute %d", dtype_info[dt].name, mode);
      bool has = !dt_float(dt) || (dt != DT_BF16 && (mode == COMPUTE_NONE || mode == COMPUTE_F16));
      if (built(&b) && has) {
        same(&v, g, z, GROUP_DOT, what);
      } else if (built(&b)) {
        Group group = {.kind = GROUP_DOT, .root = z.node, .outs = g->outputs, .out_count = 1};
        uint8_t *placed = ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1);
        Lower l = {&v.arena, g, tiles[ENG_X86_64_V4], placed};
        Lowered out = {0};
        GErr e = {.operand = -1};
        check(!low_group(&l, &group, &out, &e));
        check_has(e.text, "no loop form");
      }
      env_close(&v);
    }
}

/* A kernel that fails after another one of its group was made takes that one back. */
static void unfinished(void) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  Val x = b_swap(&b, input(&v, g, DT_F32, 2, 33, 20)); /* it is packed first */
  Val z = b_op(&b, OP_DOT, 2, (Val[]){x, input(&v, g, DT_F32, 2, 33, 40)}, 0, NULL);
  Val end = z;
  for (int i = 0; i < 3100; i++) end = b_un(&b, OP_SIN, end);
  gr_output(g, end);
  if (built(&b)) {
    uint8_t *placed = ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1);
    Group group = {.kind = GROUP_DOT, .root = z.node, .outs = g->outputs, .out_count = 1};
    Lower l = {&v.arena, g, tiles[ENG_X86_64_V3], placed};
    Lowered out = {0};
    GErr e = {.operand = -1};
    for (size_t i = 0; i < g->input_count; i++) placed[g->nodes[g->inputs[i].node].result0] = 1;
    check(!low_group(&l, &group, &out, &e));
    check_has(e.text, "a chain of more than 3000 ops");
    check_uint(out.count, ==, 0);
    check_uint(out.panel_count, ==, 0);
  }
  env_close(&v);
}

/* for i { vec k { out[i + k * s] = in[i * m + k] } }: blocks in registers where s >= n. */
static void transposes(void) {
  static const int64_t sizes[] = {1, 15, 16, 33, 48};
  Mem m;
  Arena a;
  mem_init(&m, NULL, NULL);
  arena_init(&a, &m);
  for (int dt = DT_F32; dt <= DT_F64; dt++) {
    Kernel *k = lp_new(&a);
    int out = lp_buf(k, LB_OUT, (DType)dt), in = lp_buf(k, LB_IN, (DType)dt);
    LVal n = lp_size(k, 0), lanes = lp_size(k, 1), s = lp_size(k, 2);
    lp_par(k, lp_i(k, 1));
    LVal i = lp_for(k, n), j = lp_vec(k, lanes);
    LVal x = lp_load(k, in, lp_bin(k, RB_ADD, lp_bin(k, RB_MUL, i, lanes), j));
    lp_store(k, out, lp_bin(k, RB_ADD, i, lp_bin(k, RB_MUL, j, s)), x);
    for (int e = 0; e < 3; e++) lp_end(k);
    for (int t = 0; t < 100; t++) {
      int64_t arg[3] = {sizes[t % 5], sizes[t / 5 % 5], 0};
      arg[2] = (int64_t[]){1, 7, arg[0], arg[0] + 3}[t / 25];
      size_t size = (size_t)(arg[0] * arg[1]) * 8, room = (size_t)(arg[0] + arg[1] * arg[2]) * 8;
      char *from = malloc(size), *want = calloc(1, room), *got = calloc(1, room);
      for (size_t b = 0; b < size / dt_size((DType)dt); b++) {
        if (dt == DT_F32)
          ((float *)(void *)from)[b] = (float)b;
        else
          ((double *)(void *)from)[b] = (double)b;
      }
      KStatus st = {0};
      check(lp_run(&m, k, (void *[]){want, from}, arg, 0, 1, &st));
      for (int l = 0; l < ENG_LEVEL_COUNT; l++) {
        Err e = {0};
        EngKernel *code = engines[l] ? eng_kernel(engines[l], k, &e) : NULL;
        if (!engines[l]) continue;
        memset(got, 0, room);
        bool ok = code && eng_wait(engines[l], &code, 1, NULL, &e);
        if (!check_msg(ok, "%s", e.text)) break;
        eng_run(engines[l], eng_code(code), (void *[]){got, from}, arg, 1, 1, 0, &st, NULL);
        check_mem(got, want, room);
      }
      free(from);
      free(want);
      free(got);
    }
  }
  arena_free(&a);
  mem_close(&m);
}

static void convolution(DType dt, int n, int c, int o, int h, int kh, int kw, int stride, int pad,
                        bool epilogue) {
  Env v;
  int64_t strides[2] = {stride, stride}, pads[2] = {pad, pad + (stride > 1)};
  int width = h + 3, oh = (h + 2 * pad - kh) / stride + 1;
  int ow = (width + 2 * (int)pads[1] - kw) / stride + 1;
  Attr at[3] = {attr_ints(AT_STRIDE, 2, strides), attr_ints(AT_PAD, 2, pads)};
  OpCode ops[3] = {OP_CONV2D, OP_CONV2D_INPUT, OP_CONV2D_WEIGHT};
  for (int i = 0; i < 3; i++) {
    env_open(&v);
    Graph *g = new_graph(&v);
    B b = {.g = g};
    Val x = input(&v, g, dt, 4, n, c, h, width), w = input(&v, g, dt, 4, o, c, kh, kw);
    Val t = input(&v, g, dt, 4, n, o, oh, ow), z;
    const Type *like = gr_type(g, i == 1 ? x : w);
    int64_t dims[4];
    for (int j = 0; j < 4; j++) dims[j] = like->dim[j];
    at[2] = attr_dims(AT_DIMS, 4, dims);
    Val in[3][2] = {{x, w}, {t, w}, {x, t}};
    if (epilogue && i != 1) in[i][0] = b_un(&b, OP_NEG, x);
    if (epilogue && i == 2) in[i][1] = b_un(&b, OP_RELU, t);
    z = b_op(&b, ops[i], 2, in[i], i ? 3 : 2, at);
    gr_output(g, epilogue ? b_un(&b, OP_RELU, z) : z);
    char what[100];
    snprintf(what, sizeof what, "conv %d: %d %d %d %d %dx%d stride %d pad %d", i, n, c, o, h, kh,
             kw, stride, pad);
    if (built(&b)) same(&v, g, z, GROUP_CONV, what);
    env_close(&v);
  }
}

static void convolutions(void) {
  convolution(DT_F32, 2, 3, 4, 6, 3, 3, 1, 1, false);
  convolution(DT_F32, 1, 32, 5, 4, 3, 2, 1, 0, true);
  convolution(DT_F64, 2, 2, 17, 9, 3, 3, 2, 1, false);
  convolution(DT_F32, 1, 4, 40, 20, 1, 1, 1, 0, true);
  convolution(DT_F32, 1, 470, 3, 5, 3, 3, 1, 1, false);
  convolution(DT_F32, 3, 2, 3, 40, 3, 3, 1, 1, false);
  for (int i = 0; i < 20; i++) {
    int kh = (int)pick(1, 4), kw = (int)pick(1, 4);
    convolution(pick(0, 3) ? DT_F32 : DT_F64, (int)pick(1, 3), (int)pick(1, 7), (int)pick(1, 20),
                (int)pick(4, 12), kh, kw, (int)pick(1, 3), (int)pick(0, 3), pick(0, 1));
  }
}

int main(void) {
  Mem mem;
  Arena arena;
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  EngConfig config = {.threads = 2};
  eng_find(&arena, &config);
  config.cache = config.installed = NULL;
  for (int i = 0; config.codegen && i <= (int)eng_host_level(); i++) {
    config.level = (EngLevel)i;
    engines[i] = eng_open(&mem, &config);
  }
  if (!config.codegen) printf("# no code generator: kernels are walked only\n");
  TEST(small_products(), "small products of every form");
  TEST(edges(), "tiles at edges");
  TEST(long_chains(), "long chains");
  TEST(aliased_rows(), "rows a page apart");
  TEST(batches(), "batches and broadcasts");
  TEST(views(), "operands that are views");
  TEST(inner(), "products of vectors");
  TEST(unfinished(), "what fails leaves no kernel");
  TEST(rounded(), "operands rounded for computing");
  TEST(transposes(), "loops that transpose");
  TEST(convolutions(), "convolutions and their gradients");
  for (int i = 0; i < ENG_LEVEL_COUNT; i++) eng_close(engines[i]);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
