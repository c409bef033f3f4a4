/* Joint graphs: forward and backward together give the bits of ad_vjp, and no more crosses than
 * has to. */
#include "autograd/autograd.h"
#include "autograd/rule.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "tests/unit/graphs.h"

enum { MOST = 8 };

/* A function under test: its graph, which outputs have cotangents, which inputs want gradients. */
typedef struct Func {
  Env v;
  Graph *g;
  B b;
  bool cot[MOST], wants[MOST];
} Func;

static void func_open(Func *f) {
  env_open(&f->v);
  f->g = new_graph(&f->v);
  f->b = (B){.g = f->g};
  for (int k = 0; k < MOST; k++) f->cot[k] = f->wants[k] = true;
}

static Val mat(Func *f) {
  return input(&f->v, f->g, DT_F64, 2, 3, 4);
}

static bool sound(const Graph *g) {
  GErr e;
  return gr_verify(g, &e) || fails("%s", e.text);
}

/* Nodes no output or effect needs. */
static size_t dead_nodes(Env *v, const Graph *g) {
  return g->node_count - gr_dce(&v->arena, g)->node_count;
}

static Joint *joint(Func *f) {
  GErr e = {.operand = -1};
  Prov at;
  if (!built(&f->b)) return NULL;
  Joint *j = ad_joint(&f->v.arena, f->g, f->cot, f->wants, &e, &at);
  if (!j) {
    fails("ad_joint: %s", e.text);
    return NULL;
  }
  sound(j->forward);
  sound(j->backward);
  check_size(j->forward->input_count, ==, f->g->input_count);
  check_int((int)j->forward->output_count, ==, j->output_count + j->saved_count);
  check_size(dead_nodes(&f->v, j->forward), ==, 0);
  check_size(dead_nodes(&f->v, j->backward), ==, 0);
  return j;
}

/* Forward then backward against outputs and gradients of one graph. */
static void agrees(Func *f) {
  Tensor *in[MOST], *want[3 * MOST], *out[3 * MOST], *back[MOST], *got[MOST], *cot[MOST];
  Graph *d = gr_clone(&f->v.arena, f->g);
  Val y[MOST], dy[MOST], wrt[MOST], dx[MOST];
  int ny = 0, nwrt = 0, m = 0, nb = 0;
  uint64_t state = 99;
  size_t inputs = f->g->input_count, outputs = f->g->output_count;
  Joint *j = joint(f);
  need(j);
  for (size_t k = 0; k < inputs; k++) in[k] = drawn(&f->v, f->g, k, uniform, &state);
  for (size_t k = 0; k < outputs; k++)
    if (f->cot[k]) {
      y[ny] = d->outputs[k];
      dy[ny] = gr_input(d, gr_type(d, y[ny]));
      ny++;
    }
  for (size_t k = 0; k < inputs; k++)
    if (f->wants[k]) wrt[nwrt++] = d->inputs[k];
  need(vjp(d, ny, y, dy, nwrt, wrt, dx));
  for (int k = 0; k < nwrt; k++)
    if (!val_none(dx[k])) gr_output(d, dx[k]);
  for (int k = 0; k < ny; k++)
    in[inputs + (size_t)k] = cot[k] = drawn(&f->v, d, inputs + (size_t)k, uniform, &state);
  need(run(&f->v, d, in, want));
  need(run(&f->v, j->forward, in, out));
  for (size_t k = 0; k < outputs; k++) check(tn_same(out[k], want[k]));
  for (int k = 0; k < j->saved_count; k++) back[nb++] = out[j->output_count + k];
  for (int k = 0; k < j->saved_count; k++)
    if (j->saved_input[k] >= 0)
      check(out[j->output_count + k]->store == in[j->saved_input[k]]->store);
  for (int k = 0; k < ny; k++) back[nb++] = cot[k];
  check_int(nb, ==, (int)j->backward->input_count);
  need(run(&f->v, j->backward, back, got));
  for (size_t k = 0, w = 0; k < inputs; k++) {
    bool there = f->wants[k] && !val_none(dx[w++]);
    check(j->gives_grad[k] == there);
    if (!there) continue;
    check_msg(tn_same(got[m], want[outputs + (size_t)m]), "gradient %d has other bits", m);
    m++;
  }
  check_int(m, ==, (int)j->backward->output_count);
  drop(want, d->output_count);
  drop(out, j->forward->output_count);
  drop(got, j->backward->output_count);
  drop(in, inputs + (size_t)ny);
}

/* ---- what is saved, op by op: a list of inputs (by number) and other values (by op) */

static void saves(Func *f, int count, const int *inputs, const OpCode *ops) {
  Joint *j = joint(f);
  need(j);
  check_int(j->saved_count, ==, count);
  for (int k = 0; k < count && k < j->saved_count; k++) {
    Val v = j->forward->outputs[j->output_count + k];
    check_int(j->saved_input[k], ==, inputs[k]);
    if (inputs[k] < 0) check_str(op_info[gr_node(j->forward, v)->op].text, op_info[ops[k]].text);
  }
  agrees(f);
}

static void t_unary(OpCode op, bool in, bool out) {
  Func f;
  func_open(&f);
  gr_output(f.g, b_un(&f.b, op, mat(&f)));
  int inputs[2];
  OpCode ops[2];
  int n = 0;
  if (in) inputs[n] = 0, ops[n++] = OP_INPUT;
  if (out) inputs[n] = -1, ops[n++] = op;
  saves(&f, n, inputs, ops);
  env_close(&f.v);
}

static void t_binary(OpCode op, bool wants0, bool wants1, int count, int a, int b) {
  Func f;
  func_open(&f);
  Val x = mat(&f), z = mat(&f);
  gr_output(f.g, b_bin(&f.b, op, x, z));
  f.wants[0] = wants0;
  f.wants[1] = wants1;
  saves(&f, count, (int[]){a, b}, (OpCode[]){op, op});
  env_close(&f.v);
}

/* The column `needs` of the op table is what ad_joint saves, for every elementwise row. */
static void t_table_says_what_is_saved(void) {
  for (int op = 0; op < OP_COUNT; op++) {
    const OpInfo *o = &op_info[op];
    bool has = false;
    switch (op) {
#define OP(NAME, ...)                                                                              \
  case OP_##NAME:                                                                                  \
    has = grad_##NAME.one || grad_##NAME.all;                                                      \
    break;
#include "graph/ops_rows.def"
#undef OP
    }
    if (o->cls != ELEMENTWISE || !has || op == OP_CAST || op == OP_WHERE) continue;
    Func f;
    func_open(&f);
    Val x[3];
    for (int k = 0; k < o->arity; k++) x[k] = mat(&f);
    gr_output(f.g, b_op(&f.b, (OpCode)op, o->arity, x, 0, NULL));
    Joint *j = joint(&f);
    if (j) {
      bool in = false, out = false;
      for (int k = 0; k < j->saved_count; k++) j->saved_input[k] >= 0 ? (in = true) : (out = true);
      Needs needs = in ? (out ? NEEDS_BOTH : NEEDS_IN) : out ? NEEDS_OUT : NEEDS_NONE;
      check_msg(needs == o->needs, "`%s` saves %d, the table says %d", o->text, needs, o->needs);
    }
    env_close(&f.v);
  }
}

/* ---- views and constants are recomputed */

static void t_views_are_recomputed(void) {
  /* sin(x^T reshaped) * 2: the root sin is not needed, x is an input */
  Func f;
  func_open(&f);
  Val x = mat(&f);
  Val h = b_un(&f.b, OP_TANH, x);
  Val v = b_transpose(&f.b, h, (int64_t[]){1, 0});
  v = b_reshape(&f.b, v, 1, (Dim[]){dim_const(f.v.dims, 12)});
  gr_output(f.g, b_bin(&f.b, OP_MUL, v, v));
  saves(&f, 1, (int[]){-1}, (OpCode[]){OP_TANH});
  env_close(&f.v);
}

static void t_broadcast_saves_the_small_one(void) {
  Func f;
  func_open(&f);
  Val x = mat(&f), s = input(&f.v, f.g, DT_F64, 0);
  Val small = b_un(&f.b, OP_TANH, s);
  gr_output(f.g, b_bin(&f.b, OP_MUL, x, small));
  saves(&f, 2, (int[]){0, -1}, (OpCode[]){OP_INPUT, OP_TANH});
  env_close(&f.v);
}

static Val first_rows(Func *f, Val x) {
  int64_t zero[2] = {dim_const(f->v.dims, 0), dim_const(f->v.dims, 0)};
  int64_t len[2] = {dim_const(f->v.dims, 1), dim_const(f->v.dims, 4)};
  return b_op(&f->b, OP_SLICE, 1, &x, 3,
              (Attr[]){attr_dims(AT_STARTS, 2, zero), attr_dims(AT_LENS, 2, len),
                       attr_ints(AT_STEPS, 2, (int64_t[]){1, 1})});
}

static void t_slice(bool base_needed) {
  /* A slice alone is saved as it is; with its base at hand it is cut again. */
  Func f;
  func_open(&f);
  Val x = mat(&f), h = b_un(&f.b, base_needed ? OP_TANH : OP_NEG, x), s = first_rows(&f, h);
  gr_output(f.g, b_bin(&f.b, OP_MUL, s, s));
  if (base_needed)
    saves(&f, 1, (int[]){-1}, (OpCode[]){OP_TANH});
  else
    saves(&f, 1, (int[]){-1}, (OpCode[]){OP_SLICE});
  env_close(&f.v);
}

static void t_slice_of_input(void) {
  Func f;
  func_open(&f);
  Val s = first_rows(&f, mat(&f));
  gr_output(f.g, b_bin(&f.b, OP_MUL, s, s));
  saves(&f, 1, (int[]){0}, (OpCode[]){OP_INPUT});
  env_close(&f.v);
}

static void t_stop_and_alias_are_recomputed(void) {
  Func f;
  func_open(&f);
  Val x = mat(&f), z = mat(&f);
  gr_output(f.g, b_bin(&f.b, OP_MUL, b_un(&f.b, OP_STOP, x), b_un(&f.b, OP_ALIAS, z)));
  f.wants[0] = true;
  saves(&f, 1, (int[]){0}, (OpCode[]){OP_INPUT});
  env_close(&f.v);
}

static void t_constants_are_not_saved(void) {
  Func f;
  func_open(&f);
  Val x = mat(&f);
  gr_output(f.g, b_bin(&f.b, OP_MUL, x, b_const(&f.b, x, 3)));
  saves(&f, 0, NULL, NULL);
  env_close(&f.v);
}

static void t_saved_once(void) {
  /* x is needed by three gradients */
  Func f;
  func_open(&f);
  Val x = mat(&f);
  Val y = b_bin(&f.b, OP_ADD, b_un(&f.b, OP_SIN, x), b_un(&f.b, OP_COS, x));
  gr_output(f.g, b_bin(&f.b, OP_MUL, y, x));
  saves(&f, 2, (int[]){0, -1}, (OpCode[]){OP_INPUT, OP_ADD});
  env_close(&f.v);
}

/* ---- whole functions */

/* rows S4.9 cotangent-mask, S4.13 mask-length, S4.30 mask-argument */
static void t_layer(bool reference_output) {
  /* tanh(x @ w + b) @ v, with the hidden value as a second output that may lack a cotangent */
  Func f;
  func_open(&f);
  Val x = mat(&f), w = input(&f.v, f.g, DT_F64, 2, 4, 5), bias = input(&f.v, f.g, DT_F64, 1, 5);
  Val v = input(&f.v, f.g, DT_F64, 2, 5, 2);
  Val h = b_bin(&f.b, OP_DOT, x, w);
  Dim dims[2] = {dim_const(f.v.dims, 3), dim_const(f.v.dims, 5)};
  h = b_un(&f.b, OP_TANH, b_bin(&f.b, OP_ADD, h, b_broadcast(&f.b, bias, 2, dims)));
  gr_output(f.g, b_bin(&f.b, OP_DOT, h, v));
  gr_output(f.g, h);
  f.cot[1] = reference_output;
  f.wants[0] = false;
  agrees(&f);
  env_close(&f.v);
}

static void t_unreached_input(void) {
  Func f;
  func_open(&f);
  Val x = mat(&f);
  mat(&f);
  gr_output(f.g, b_un(&f.b, OP_EXP, x));
  Joint *j = joint(&f);
  need(j);
  check(j->gives_grad[0] && !j->gives_grad[1]);
  check_size(j->backward->output_count, ==, 1);
  env_close(&f.v);
}

static void t_identity(void) {
  /* the gradient is the cotangent itself; one output twice */
  Func f;
  func_open(&f);
  Val x = mat(&f), z = mat(&f), y = b_bin(&f.b, OP_ADD, x, z);
  gr_output(f.g, y);
  gr_output(f.g, y);
  gr_output(f.g, x);
  saves(&f, 0, NULL, NULL);
  env_close(&f.v);
}

static void t_wrap_is_opened(OpCode op) {
  /* what a body computes is saved, not computed again */
  Func f;
  GErr e;
  func_open(&f);
  Graph *body = new_graph(&f.v);
  B b = {.g = body};
  gr_output(body, b_un(&b, OP_TANH, input(&f.v, body, DT_F64, 2, 3, 4)));
  Val x = mat(&f);
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "w"));
  Val y = gr_op(f.g, op, &x, 1, &text, 1, &body, 1, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  gr_output(f.g, y);
  Joint *j = joint(&f);
  need(j);
  check_size(count_ops(j->backward, OP_TANH), ==, 0);
  check_size(count_ops(j->forward, OP_TANH), ==, 1);
  check_int(j->saved_count, ==, 1);
  env_close(&f.v);
}

static void t_effects_stay_in_forward(void) {
  Func f;
  GErr e;
  func_open(&f);
  Val x = mat(&f), token = gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e), in[2] = {token, x};
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "{}"));
  token = gr_op(f.g, OP_PRINT, in, 2, &text, 1, NULL, 0, &e);
  need(check_msg(!val_none(token), "%s", e.text));
  gr_output(f.g, b_un(&f.b, OP_SIN, x));
  Joint *j = joint(&f);
  need(j);
  check_size(count_ops(j->forward, OP_PRINT), ==, 1);
  check_size(count_ops(j->backward, OP_PRINT), ==, 0);
  env_close(&f.v);
}

/* A body that prints: once, in forward, and its place is kept. */
static void t_wrap_prints_once(void) {
  Func f;
  GErr e = {.operand = -1};
  func_open(&f);
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "{}"));
  Type token = {.kind = TK_TOKEN};
  Graph *body = new_graph(&f.v);
  B b = {.g = body};
  Val in[2] = {gr_input(body, &token), input(&f.v, body, DT_F64, 2, 3, 4)};
  gr_output(body, gr_op(body, OP_PRINT, in, 2, &text, 1, NULL, 0, &e));
  gr_output(body, b_un(&b, OP_TANH, in[1]));
  Val outer[2] = {gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e), mat(&f)};
  Val y = gr_op(f.g, OP_WRAP, outer, 2, &text, 1, &body, 1, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  gr_output(f.g, (Val){y.node, 1});
  Joint *j = joint(&f);
  need(j);
  check_size(count_ops(j->forward, OP_PRINT), ==, 1);
  check_size(count_ops(j->backward, OP_PRINT), ==, 0);
  check_size(count_ops(j->backward, OP_TANH), ==, 0);
  env_close(&f.v);
}

static void t_error_place(void) {
  Func f;
  GErr e = {.operand = -1};
  Prov at = {.origin = -1};
  func_open(&f);
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "h"));
  Val in[2] = {gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e), mat(&f)};
  f.g->at.span = (Span){1, 10, 20};
  Val y = gr_op(f.g, OP_DEFER, in, 2, &text, 1, NULL, 0, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  f.g->at.span = (Span){1, 30, 40};
  gr_output(f.g, b_un(&f.b, OP_SIN, (Val){y.node, 1}));
  check(!ad_joint(&f.v.arena, f.g, f.cot, f.wants, &e, &at));
  check_int(e.code, ==, ERR_GRAD_NONE);
  check_uint(at.span.lo, ==, 10);
  f.wants[0] = false; /* nobody asks */
  check(ad_joint(&f.v.arena, f.g, f.cot, f.wants, &e, &at) != NULL);
  env_close(&f.v);
}

static void t_symbolic(void) {
  /* sums over a size known later: the size is recomputed, not saved */
  static int64_t sizes[1] = {7};
  Func f;
  Sym s;
  func_open(&f);
  f.v.sizes = sizes;
  Dim n = dim_symbol(f.v.dims, names_of(f.v.names, "N"), (Span){0, 0, 0}, &s);
  Type t = {.kind = TK_TENSOR, .dtype = DT_F64, .rank = 1, .dim = {n}};
  Val x = gr_input(f.g, &t);
  Val mean =
      b_bin(&f.b, OP_DIV, b_sum(&f.b, x, 1, (int64_t[]){0}), b_cast(&f.b, gr_dim(f.g, n), DT_F64));
  gr_output(f.g, b_bin(&f.b, OP_MUL, x, mean));
  agrees(&f);
  Joint *j = joint(&f);
  need(j);
  for (int k = 0; k < j->saved_count; k++)
    check_int(gr_node(j->forward, j->forward->outputs[j->output_count + k])->op, !=, OP_DIM);
  env_close(&f.v);
}

static void t_chain(int n) {
  Func f;
  func_open(&f);
  Val y = input(&f.v, f.g, DT_F64, 0);
  for (int k = 0; k < n; k++) y = b_un(&f.b, k % 2 ? OP_TANH : OP_NEG, y);
  gr_output(f.g, y);
  Joint *j = joint(&f);
  need(j);
  check_int(j->saved_count, ==, n / 2);
  env_close(&f.v);
}

int main(void) {
  TEST(t_unary(OP_TANH, false, true), "tanh saves its result");
  TEST(t_unary(OP_EXP, false, true), "exp saves its result");
  TEST(t_unary(OP_SIN, true, false), "sin saves its operand");
  TEST(t_unary(OP_RELU, false, true), "relu saves its result");
  TEST(t_unary(OP_RSQRT, true, true), "rsqrt saves both");
  TEST(t_unary(OP_NEG, false, false), "neg saves nothing");
  TEST(t_binary(OP_ADD, true, true, 0, 0, 0), "add saves nothing");
  TEST(t_binary(OP_MUL, true, true, 2, 0, 1), "mul saves both operands");
  TEST(t_binary(OP_MUL, true, false, 1, 1, 0), "mul saves the other operand of the one asked for");
  TEST(t_binary(OP_DIV, true, false, 1, 1, 0), "div saves the divisor alone for the dividend");
  TEST(t_table_says_what_is_saved(), "the table's `needs` is what is saved");
  TEST(t_views_are_recomputed(), "views of a saved value are recomputed");
  TEST(t_broadcast_saves_the_small_one(), "a stretched value is saved before stretching");
  TEST(t_slice(false), "a slice is saved rather than its base");
  TEST(t_slice(true), "a slice of a saved base is cut again");
  TEST(t_slice_of_input(), "a slice of an input is cut again");
  TEST(t_stop_and_alias_are_recomputed(), "stop and alias are recomputed");
  TEST(t_constants_are_not_saved(), "constants are not saved");
  TEST(t_saved_once(), "a value read by several gradients is saved once");
  TEST(t_layer(true), "a layer: forward and backward have the bits of the whole");
  TEST(t_layer(false), "a layer with an output without cotangent");
  TEST(t_unreached_input(), "an input that is not reached has no output");
  TEST(t_identity(), "gradients may be cotangents, outputs inputs");
  TEST(t_wrap_is_opened(OP_WRAP), "a wrap's values are saved");
  TEST(t_effects_stay_in_forward(), "effects stay in forward");
  TEST(t_wrap_prints_once(), "a wrap that prints does so once");
  TEST(t_error_place(), "an error is at the place of the op without a gradient");
  TEST(t_symbolic(), "sizes known later are recomputed");
  TEST(t_chain(100000), "a chain of 100,000 operations is split");
  return tap_done();
}
