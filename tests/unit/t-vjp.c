/* Differentiating whole graphs: which paths count, in which order contributions are added,
 * structured ops, size. */
#include "autograd/autograd.h"
#include "autograd/rule.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "tests/unit/failing.h"
#include "tests/unit/graphs.h"

typedef struct Fix {
  Env v;
  Graph *g;
  B b;
  Val one;
} Fix;

static void fix_open(Fix *f) {
  env_open(&f->v);
  f->g = new_graph(&f->v);
  f->b = (B){.g = f->g};
  f->one = gr_const_f(f->g, DT_F64, DEV_CPU, 1);
}

static Val f64_input(Fix *f) {
  return input(&f->v, f->g, DT_F64, 0);
}

static Val times(Fix *f, Val x, double c) {
  return b_bin(&f->b, OP_MUL, x, gr_const_f(f->g, DT_F64, DEV_CPU, c));
}

static Val plus(Fix *f, Val x, Val y) {
  return b_bin(&f->b, OP_ADD, x, y);
}

/* Runs the graph with scalar inputs and gives its first output. */
static double value(Fix *f, const double *x) {
  Tensor *in[8], *out[8] = {NULL};
  double y = NAN;
  if (!built(&f->b)) return NAN;
  for (size_t i = 0; i < f->g->input_count; i++) in[i] = tensor(&f->v, DT_F64, 0, NULL, &x[i]);
  if (run(&f->v, f->g, in, out)) {
    y = tn_get_f64(out[0], 0);
    drop(out, f->g->output_count);
  }
  drop(in, f->g->input_count);
  return y;
}

static double gradient_at(Fix *f, Val y, Val wrt, const double *x) {
  Val dx;
  if (!built(&f->b) || !vjp(f->g, 1, &y, &f->one, 1, &wrt, &dx)) return NAN;
  if (!check(!val_none(dx))) return NAN;
  f->g->output_count = 0;
  gr_output(f->g, dx);
  return value(f, x);
}

/* ---- order of sums (rule 74) */

static void t_last_use_first(double a, double b, double c, double want) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f);
  Val p = times(&f, x, a), q = times(&f, x, b), r = times(&f, x, c);
  Val y = plus(&f, plus(&f, p, q), r);
  check_double(gradient_at(&f, y, x, (double[]){1}), ==, want);
  env_close(&f.v);
}

static void t_last_operand_first(double a, double b, double c, double want) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f);
  Val row = b_reshape(&f.b, x, 1, (Dim[]){dim_const(f.v.dims, 1)}), in[3] = {row, row, row};
  Val cat = b_op(&f.b, OP_CONCAT, 3, in, 1, (Attr[]){attr_i(AT_AXIS, 0)});
  Val w[3], dx, wt;
  double at[3] = {a, b, c};
  for (int k = 0; k < 3; k++)
    w[k] = b_reshape(&f.b, gr_const_f(f.g, DT_F64, DEV_CPU, at[k]), 1,
                     (Dim[]){dim_const(f.v.dims, 1)});
  wt = b_op(&f.b, OP_CONCAT, 3, w, 1, (Attr[]){attr_i(AT_AXIS, 0)});
  need(built(&f.b));
  need(vjp(f.g, 1, &cat, &wt, 1, &x, &dx));
  gr_output(f.g, dx);
  check_double(value(&f, (double[]){1}), ==, want);
  env_close(&f.v);
}

/* The seed of y counts before its uses: x is a result itself. */
static void t_seed_first(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y[3], dy[3], dx;
  y[0] = times(&f, x, 1);
  y[1] = x;
  y[2] = times(&f, x, 1);
  dy[0] = dy[2] = f.one;
  dy[1] = gr_const_f(f.g, DT_F64, DEV_CPU, 1e16);
  need(vjp(f.g, 3, y, dy, 1, &x, &dx));
  gr_output(f.g, dx);
  check_double(value(&f, (double[]){1}), ==, 1e16); /* (1e16 + 1) + 1, not 1e16 + 2 */
  env_close(&f.v);
}

/* Several seeds of one value: the last first. */
static void t_seeds_last_first(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y[3] = {x, x, x}, dx;
  Val dy[3] = {f.one, f.one, gr_const_f(f.g, DT_F64, DEV_CPU, 1e16)};
  need(vjp(f.g, 3, y, dy, 1, &x, &dx));
  gr_output(f.g, dx);
  check_double(value(&f, (double[]){1}), ==, 1e16);
  env_close(&f.v);
}

/* alias marks the edge of a call: inside is summed before outside. */
static void t_alias_sums_inside_first(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), in = b_un(&f.b, OP_ALIAS, x);
  Val p = times(&f, in, 1), q = times(&f, in, 1), out = times(&f, x, 1e16);
  Val y = plus(&f, plus(&f, p, q), out);
  check_double(gradient_at(&f, y, x, (double[]){1}), ==, 1e16 + 2);
  env_close(&f.v);
}

static void t_wrap_sums_inside_first(void) {
  Fix f;
  GErr e;
  fix_open(&f);
  Graph *body = new_graph(&f.v);
  B in = {.g = body};
  Val u = input(&f.v, body, DT_F64, 0), k = gr_const_f(body, DT_F64, DEV_CPU, 1);
  gr_output(body, b_bin(&in, OP_ADD, b_bin(&in, OP_MUL, u, k), b_bin(&in, OP_MUL, u, k)));
  Val x = f64_input(&f);
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "w"));
  Val y = gr_op(f.g, OP_WRAP, &x, 1, &text, 1, &body, 1, &e);
  need(!val_none(y));
  Val z = plus(&f, y, times(&f, x, 1e16));
  check_double(gradient_at(&f, z, x, (double[]){1}), ==, 1e16 + 2);
  env_close(&f.v);
}

/* One value as two operands of a body: each gets its own part. */
static void t_wrap_of_the_same_twice(void) {
  Fix f;
  GErr e;
  fix_open(&f);
  Graph *body = new_graph(&f.v);
  B in = {.g = body};
  Val u = input(&f.v, body, DT_F64, 0), w = input(&f.v, body, DT_F64, 0);
  gr_output(body, b_bin(&in, OP_MUL, u, w));
  Val x = f64_input(&f), twice[2] = {x, x};
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "w"));
  Val y = gr_op(f.g, OP_WRAP, twice, 2, &text, 1, &body, 1, &e);
  need(!val_none(y));
  check_double(gradient_at(&f, y, x, (double[]){5}), ==, 10);
  env_close(&f.v);
}

/* ---- which paths count */

static void t_cut(OpCode op) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y = b_un(&f.b, op, x), dx;
  need(built(&f.b));
  size_t before = f.g->node_count;
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  check(val_none(dx));
  check_size(f.g->node_count, ==, before); /* nothing was made for nothing */
  env_close(&f.v);
}

static void t_int_path_is_cut(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), dx;
  Val y = b_cast(&f.b, b_cast(&f.b, x, DT_I64), DT_F64);
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  check(val_none(dx));
  env_close(&f.v);
}

static void t_casts_between_floats_pass(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f);
  Val y = b_cast(&f.b, b_cast(&f.b, x, DT_F32), DT_F64);
  check_double(gradient_at(&f, times(&f, y, 3), x, (double[]){1}), ==, 3);
  env_close(&f.v);
}

static void t_intermediates(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), other = f64_input(&f);
  Val h = times(&f, x, 2), y = b_bin(&f.b, OP_MUL, h, h);
  Val wrt[6] = {h, x, y, other, h, h}, dx[6];
  need(vjp(f.g, 1, &y, &f.one, 6, wrt, dx));
  check(val_none(dx[3]));
  check(val_eq(dx[0], dx[4]) && val_eq(dx[0], dx[5]));
  check(val_eq(dx[2], f.one));
  gr_output(f.g, dx[0]);
  check_double(value(&f, (double[]){5, 0}), ==, 20); /* dy/dh = 2 h */
  f.g->output_count = 0;
  gr_output(f.g, dx[1]);
  check_double(value(&f, (double[]){5, 0}), ==, 40); /* and on to x through h */
  env_close(&f.v);
}

static void t_wrt_behind_y(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y = times(&f, x, 2), late = times(&f, x, 3), dx;
  need(vjp(f.g, 1, &y, &f.one, 1, &late, &dx));
  check(val_none(dx));
  need(vjp(f.g, 0, NULL, NULL, 1, &x, &dx));
  check(val_none(dx));
  env_close(&f.v);
}

static void t_cotangent_type(void) {
  Fix f;
  GErr e = {.operand = -1};
  Prov at;
  fix_open(&f);
  Val x = input(&f.v, f.g, DT_F64, 1, 3), y = b_un(&f.b, OP_SIN, x), dx;
  check(!ad_vjp(f.g, 1, &y, &f.one, 1, &x, &dx, &e, &at));
  check_int(e.code, ==, ERR_GRAD_COTANGENT);
  check_has(e.text, "f64[3]");
  env_close(&f.v);
}

/* ---- host calls: an error when asked, none when not */

static void t_host_call(bool asked) {
  Fix f;
  GErr e = {.operand = -1};
  Prov at = {.origin = -1};
  fix_open(&f);
  Val token = gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e);
  Val x = f64_input(&f), in[2] = {token, x}, dx;
  f.g->at.span = (Span){1, 10, 20};
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "h"));
  Val d = gr_op(f.g, OP_DEFER, in, 2, &text, 1, NULL, 0, &e);
  f.g->at.span = (Span){1, 30, 40};
  if (!check_msg(!val_none(d), "%s", e.text)) return;
  Val out = {d.node, 1};
  Val y = plus(&f, asked ? out : b_un(&f.b, OP_STOP, out), times(&f, x, 2));
  need(built(&f.b));
  bool ok = ad_vjp(f.g, 1, &y, &f.one, 1, &x, &dx, &e, &at);
  check(ok == !asked);
  if (asked) {
    check_int(e.code, ==, ERR_GRAD_NONE);
    check_uint(at.span.lo, ==, 10);
  }
  env_close(&f.v);
}

/* ---- provenance */

static void t_provenance(void) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), dx;
  f.g->at.span = (Span){1, 5, 9};
  f.g->at.path = names_of(f.v.names, "net.a");
  Val y = b_un(&f.b, OP_SIN, x);
  f.g->at.span = (Span){1, 50, 90};
  f.g->at.path = NULL;
  size_t from = f.g->node_count;
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  for (size_t n = from; n < f.g->node_count; n++) {
    const Prov *p = &f.g->provs[f.g->nodes[n].prov];
    check(p->backward == 1);
    check_uint(p->span.lo, ==, 5);
    check_str(p->path, "net.a");
  }
  check_size(f.g->node_count, >, from);
  check(f.g->at.backward == 0 && f.g->at.span.lo == 50);
  env_close(&f.v);
}

/* ---- custom: value u * v with a made-up gradient, 3 g u for u (and none for v) */

static Graph *custom_value(Env *v) {
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val x = input(v, g, DT_F64, 0), z = input(v, g, DT_F64, 0);
  gr_output(g, b_bin(&b, OP_MUL, x, z));
  gr_output(g, b_bin(&b, OP_ADD, x, z));
  return g;
}

/* What is staged after an inlined body has the place of the caller. */
static void t_place_after_inlining(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Val in[2] = {f64_input(&f), f64_input(&f)}, out[2];
  f.g->at.span = (Span){1, 50, 90};
  need(ad_inline_pure(f.g, custom_value(&f.v), in, out, &e));
  check(f.g->provs[f.g->nodes[out[0].node].prov].backward == 1);
  check(f.g->at.backward == 0 && f.g->at.span.lo == 50);
  env_close(&f.v);
}

static Graph *custom_back(Env *v) {
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val in[6];
  for (int k = 0; k < 6; k++) in[k] = input(v, g, DT_F64, 0); /* x z | y s | dy ds */
  Val three = gr_const_f(g, DT_F64, DEV_CPU, 3);
  gr_output(g, b_bin(&b, OP_ADD, b_bin(&b, OP_MUL, three, b_bin(&b, OP_MUL, in[4], in[0])), in[5]));
  return g;
}

static void t_custom(void) {
  Fix f;
  GErr e = {.operand = -1};
  int64_t wrt0 = 0;
  fix_open(&f);
  Graph *regions[2] = {custom_value(&f.v), custom_back(&f.v)};
  Val x = f64_input(&f), z = f64_input(&f), in[2] = {x, z};
  Val y = gr_op(f.g, OP_CUSTOM, in, 2, (Attr[]){attr_ints(AT_WRT, 1, &wrt0)}, 1, regions, 2, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  Val wrt[2] = {x, z}, dx[2], ddx[2];
  need(vjp(f.g, 1, &y, &f.one, 2, wrt, dx));
  check(val_none(dx[1]));
  gr_output(f.g, dx[0]);
  check_double(value(&f, (double[]){5, 7}), ==, 15); /* 3 x, the absent cotangent of s is zero */
  need(vjp(f.g, 1, &dx[0], &f.one, 2, wrt, ddx));
  f.g->output_count = 0;
  gr_output(f.g, ddx[0]);
  check_double(value(&f, (double[]){5, 7}), ==, 3);
  env_close(&f.v);
}

/* Without a gradient region a custom is its body. */
static void t_custom_without_gradient(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *region = custom_value(&f.v);
  Val x = f64_input(&f), z = f64_input(&f), in[2] = {x, z};
  Val y = gr_op(f.g, OP_CUSTOM, in, 2, NULL, 0, &region, 1, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  check_double(gradient_at(&f, y, x, (double[]){5, 7}), ==, 7);
  env_close(&f.v);
}

/* Cotangents of float results alone may be what the gradient region takes. */
static void t_custom_with_int_result(bool all) {
  Fix f;
  GErr e = {.operand = -1};
  int64_t wrt0 = 0;
  fix_open(&f);
  Graph *fwd = new_graph(&f.v), *back = new_graph(&f.v), *regions[2] = {fwd, back};
  B b = {.g = fwd}, c = {.g = back};
  Val x = input(&f.v, fwd, DT_F64, 0), k[5];
  gr_output(fwd, b_cast(&b, x, DT_I64));
  gr_output(fwd, b_un(&b, OP_SIN, x));
  k[0] = input(&f.v, back, DT_F64, 0);
  k[1] = input(&f.v, back, DT_I64, 0);
  k[2] = input(&f.v, back, DT_F64, 0);
  if (all) input(&f.v, back, DT_I64, 0);
  k[4] = input(&f.v, back, DT_F64, 0);
  gr_output(back, b_bin(&c, OP_MUL, k[4], gr_const_f(back, DT_F64, DEV_CPU, 4)));
  Val in = f64_input(&f);
  Val y = gr_op(f.g, OP_CUSTOM, &in, 1, (Attr[]){attr_ints(AT_WRT, 1, &wrt0)}, 1, regions, 2, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  check_double(gradient_at(&f, (Val){y.node, 1}, in, (double[]){5}), ==, 4);
  env_close(&f.v);
}

/* ---- branch: x * x if the predicate holds, else sin(z) */

static void t_branch(bool taken) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *side[2];
  for (int k = 0; k < 2; k++) {
    side[k] = new_graph(&f.v);
    B b = {.g = side[k]};
    Val x = input(&f.v, side[k], DT_F64, 0), z = input(&f.v, side[k], DT_F64, 0);
    gr_output(side[k], k == 0 ? b_bin(&b, OP_MUL, x, x) : b_un(&b, OP_SIN, z));
  }
  Val x = f64_input(&f), z = f64_input(&f), p = f64_input(&f);
  Val in[3] = {b_bin(&f.b, OP_GT, p, gr_const_f(f.g, DT_F64, DEV_CPU, 0)), x, z};
  Val y = gr_op(f.g, OP_BRANCH, in, 3, NULL, 0, side, 2, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  double at[3] = {3, 0.5, taken};
  Val wrt[2] = {x, z}, dx[2], ddx[2];
  need(vjp(f.g, 1, &y, &f.one, 2, wrt, dx));
  for (int k = 0; k < 2; k++) {
    f.g->output_count = 0;
    gr_output(f.g, dx[k]);
    check_near(value(&f, at), k == 0 ? (taken ? 6 : 0) : (taken ? 0 : cos(0.5)), 1e-15);
  }
  Val s = plus(&f, dx[0], dx[1]);
  need(vjp(f.g, 1, &s, &f.one, 2, wrt, ddx));
  for (int k = 0; k < 2; k++) {
    f.g->output_count = 0;
    gr_output(f.g, ddx[k]);
    check_near(value(&f, at), k == 0 ? (taken ? 2 : 0) : (taken ? 0 : -sin(0.5)), 1e-15);
  }
  env_close(&f.v);
}

/* A side that prints is differentiated without printing again. */
static void t_branch_without_effects(void) {
  Fix f;
  GErr e = {.operand = -1};
  Type token = {.kind = TK_TOKEN};
  fix_open(&f);
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "{}"));
  Graph *side[2];
  for (int k = 0; k < 2; k++) {
    side[k] = new_graph(&f.v);
    B b = {.g = side[k]};
    Val in[2] = {gr_input(side[k], &token), input(&f.v, side[k], DT_F64, 0)};
    gr_output(side[k], gr_op(side[k], OP_PRINT, in, 2, &text, 1, NULL, 0, &e));
    gr_output(side[k], b_un(&b, k ? OP_SIN : OP_COS, in[1]));
  }
  Val p = f64_input(&f), x = f64_input(&f), dx;
  Val in[3] = {b_bin(&f.b, OP_GT, p, gr_const_f(f.g, DT_F64, DEV_CPU, 0)),
               gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e), x};
  Val y = gr_op(f.g, OP_BRANCH, in, 3, NULL, 0, side, 2, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  y.res = 1;
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  const GNode *n = gr_node(f.g, dx);
  check_int(n->op, ==, OP_BRANCH);
  for (uint32_t k = 0; k < 2; k++)
    check_size(count_ops(f.g->regions[n->region0 + k], OP_PRINT), ==, 0);
  env_close(&f.v);
}

/* A body that prints is differentiated without printing again. */
static void t_wrap_without_effects(OpCode op) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *body = new_graph(&f.v);
  B b = {.g = body};
  Type token = {.kind = TK_TOKEN};
  Val t = gr_input(body, &token), u = input(&f.v, body, DT_F64, 0), in[2] = {t, u};
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "{}"));
  t = gr_op(body, OP_PRINT, in, 2, &text, 1, NULL, 0, &e);
  need(check_msg(!val_none(t), "%s", e.text));
  gr_output(body, t);
  gr_output(body, b_un(&b, OP_SIN, u));
  Val outer[2] = {gr_op(f.g, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, &e), f64_input(&f)}, dx;
  Val w = gr_op(f.g, op, outer, 2, &text, 1, &body, 1, &e);
  need(check_msg(!val_none(w), "%s", e.text));
  Val y = {w.node, 1};
  need(vjp(f.g, 1, &y, &f.one, 1, &outer[1], &dx));
  check(!val_none(dx));
  check_size(count_ops(f.g, OP_PRINT), ==, 0);
  check_size(count_ops(f.g, OP_COS), ==, 1);
  env_close(&f.v);
}

/* sin three times by a loop: first and second derivatives against the formula. */
static void t_loop(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *body = new_graph(&f.v);
  B b = {.g = body};
  Type turn = type_c(&f.v, DT_I64, 0, NULL);
  gr_input(body, &turn);
  gr_output(body, b_un(&b, OP_SIN, input(&f.v, body, DT_F64, 0)));
  Val x = f64_input(&f), in[2] = {gr_const_i(f.g, DT_I64, DEV_CPU, 3), x}, dx, ddx;
  Val y = gr_op(f.g, OP_LOOP, in, 2, (Attr[]){attr_i(AT_CARRY, 1)}, 1, &body, 1, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  need(vjp(f.g, 1, &dx, &f.one, 1, &x, &ddx));
  gr_output(f.g, dx);
  gr_output(f.g, ddx);
  double at = 0.7, u = sin(at), v = sin(u);
  Tensor *t = tensor(&f.v, DT_F64, 0, NULL, &at), *out[2];
  need(run(&f.v, f.g, &t, out));
  double c = cos(v), d = cos(u), k = cos(at);
  check_near(tn_get_f64(out[0], 0), c * d * k, 1e-14);
  check_near(tn_get_f64(out[1], 0), -sin(v) * d * d * k * k - c * v * k * k - c * d * u, 1e-14);
  drop(&t, 1);
  drop(out, 2);
  env_close(&f.v);
}

/* map of sin(x) * c over x, with c captured: first and second derivatives against the formula. */
static void t_map(void) {
  Fix f;
  GErr e = {.operand = -1};
  int64_t n = 3;
  fix_open(&f);
  Graph *body = new_graph(&f.v);
  B b = {.g = body};
  Val u = input(&f.v, body, DT_F64, 0), k = input(&f.v, body, DT_F64, 0);
  gr_output(body, b_un(&b, OP_COS, u)); /* unused outside: no cotangent */
  gr_output(body, b_bin(&b, OP_MUL, b_un(&b, OP_SIN, u), b_bin(&b, OP_MUL, k, k)));
  Val x = input(&f.v, f.g, DT_F64, 1, 3), c = f64_input(&f), in[2] = {x, c};
  Val y = gr_op(f.g, OP_MAP, in, 2, (Attr[]){attr_i(AT_MAPPED, 1)}, 1, &body, 1, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  Val z = {y.node, 1}, dz = b_const(&f.b, z, 1), dx[2], ddx[2];
  need(vjp(f.g, 1, &z, &dz, 2, in, dx));
  need(vjp(f.g, 1, &dx[1], &f.one, 2, in, ddx));
  gr_output(f.g, dx[0]);
  gr_output(f.g, dx[1]);
  gr_output(f.g, ddx[0]);
  gr_output(f.g, ddx[1]);
  double at[3] = {0.5, 1, 2}, cc = 3, sum = 0;
  Tensor *t[2] = {tensor(&f.v, DT_F64, 1, &n, at), tensor(&f.v, DT_F64, 0, NULL, &cc)}, *out[4];
  need(run(&f.v, f.g, t, out));
  for (int j = 0; j < 3; j++) {
    check_near(tn_get_f64(out[0], j), 9 * cos(at[j]), 1e-14);
    check_near(tn_get_f64(out[2], j), 6 * cos(at[j]), 1e-14);
    sum += sin(at[j]);
  }
  check_near(tn_get_f64(out[1], 0), 6 * sum, 1e-14);
  check_near(tn_get_f64(out[3], 0), 2 * sum, 1e-14);
  drop(t, 2);
  drop(out, 4);
  env_close(&f.v);
}

/* ---- sizes known later */

/* The gradient of sum(op(x)) for x: f64[N], N bound to n. */
static Tensor *symbolic(Env *v, OpCode op, int64_t start, int64_t len, int64_t step, bool constant,
                        int64_t n, const double *x) {
  static int64_t sizes[1];
  Graph *g = new_graph(v);
  B b = {.g = g};
  Sym s;
  Dim d = dim_symbol(v->dims, names_of(v->names, "N"), (Span){0, 0, 0}, &s);
  if (constant) d = dim_const(v->dims, n);
  sizes[0] = n;
  v->sizes = sizes;
  Type t = {.kind = TK_TENSOR, .dtype = DT_F64, .rank = 1, .dim = {d}};
  Val in = gr_input(g, &t), y, dx;
  int64_t axis = 0, from = dim_const(v->dims, start);
  int64_t count = dim_sub(v->dims, d, dim_const(v->dims, len));
  if (op == OP_SLICE) {
    y = b_op(&b, OP_SLICE, 1, &in, 3,
             (Attr[]){attr_dims(AT_STARTS, 1, &from), attr_dims(AT_LENS, 1, &count),
                      attr_ints(AT_STEPS, 1, &step)});
    y = b_bin(&b, OP_MUL, y, y);
  } else {
    y = b_op(&b, op, 1, &in, 1, (Attr[]){attr_ints(AT_AXES, 1, &axis)});
  }
  if (!built(&b)) return NULL;
  Val one = gr_const_f(g, DT_F64, DEV_CPU, 1), dy = one;
  if (op == OP_SLICE) dy = b_const(&b, y, 1);
  if (!vjp(g, 1, &y, &dy, 1, &in, &dx) || !check(!val_none(dx))) return NULL;
  gr_output(g, dx);
  Tensor *xt = tensor(v, DT_F64, 1, &n, x), *out[1] = {NULL};
  run(v, g, &xt, out);
  tn_unref(xt);
  return out[0];
}

static void t_symbolic_slice(int64_t n, int64_t start, int64_t less, int64_t step) {
  Env v;
  double x[16];
  env_open(&v);
  for (int k = 0; k < 16; k++) x[k] = k + 1;
  Tensor *got = symbolic(&v, OP_SLICE, start, less, step, false, n, x);
  need(got);
  check_int(tn_count(got), ==, n);
  for (int64_t k = 0; k < n; k++) {
    bool in = k >= start && (k - start) % step == 0 && (k - start) / step < n - less;
    check_double(tn_get_f64(got, k), ==, in ? 2 * x[k] : 0);
  }
  tn_unref(got);
  env_close(&v);
}

/* The bits of a gradient do not depend on whether the size was known (rule 27). */
static void t_symbolic_prod(int64_t n) {
  Env v;
  static double x[5000];
  uint64_t state = 5;
  env_open(&v);
  for (int64_t k = 0; k < n; k++) x[k] = 1 + 0.01 * uniform(&state);
  if (n > 3) x[3] = 0;
  Tensor *a = symbolic(&v, OP_PROD, 0, 0, 1, false, n, x);
  Tensor *b = symbolic(&v, OP_PROD, 0, 0, 1, true, n, x);
  need(a && b);
  check(tn_same(a, b));
  for (int64_t k = 0; k < n; k++) {
    double others = 1;
    for (int64_t j = 0; j < n; j++) others *= j == k ? 1 : x[j];
    if (fabs(tn_get_f64(a, k) - others) > 1e-12 * fabs(others)) {
      fails("element %d is %g, not %g", (int)k, tn_get_f64(a, k), others);
      break;
    }
  }
  drop((Tensor *[]){a, b}, 2);
  env_close(&v);
}

/* ---- writing the same place twice: the last one wins, and only it has a gradient */

static void t_put_duplicates(bool scatter) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  Val x = input(&v, g, DT_F64, 1, 4), u = input(&v, g, DT_F64, 1, 4);
  Val i = input(&v, g, DT_I64, 1, 4);
  Val in[3] = {x, scatter ? i : u, scatter ? u : i}, wrt[2] = {x, u}, dx[2];
  Val y = b_op(&b, scatter ? OP_SCATTER : OP_PUT, 3, in, 1, (Attr[]){attr_i(AT_AXIS, 0)});
  Val w = input(&v, g, DT_F64, 1, 4);
  need(built(&b));
  need(vjp(g, 1, &y, &w, 2, wrt, dx));
  gr_output(g, dx[0]);
  gr_output(g, dx[1]);
  int64_t n = 4;
  Tensor *t[4] = {tensor(&v, DT_F64, 1, &n, (double[]){1, 2, 3, 4}),
                  tensor(&v, DT_F64, 1, &n, (double[]){5, 6, 7, 8}),
                  tensor(&v, DT_I64, 1, &n, (double[]){2, 0, 2, 0}),
                  tensor(&v, DT_F64, 1, &n, (double[]){10, 20, 30, 40})},
         *out[2];
  need(run(&v, g, t, out));
  const double want[2][4] = {{0, 20, 0, 40}, {0, 0, 30, 10}};
  for (int k = 0; k < 2; k++)
    for (int j = 0; j < 4; j++) check_double(tn_get_f64(out[k], j), ==, want[k][j]);
  drop(out, 2);
  drop(t, 4);
  env_close(&v);
}

/* ---- the rounding of operands belongs to the gradient too */

static void t_compute_is_carried(OpCode op) {
  Env v;
  env_open(&v);
  Graph *g = new_graph(&v);
  B b = {.g = g};
  Val in[2] = {input(&v, g, DT_F32, 2, 3, 4),
               op == OP_DOT ? input(&v, g, DT_F32, 2, 4, 2) : input(&v, g, DT_F32, 2, 3, 4)},
      dx[2];
  Val y = b_op(&b, op, 2, in, 1, (Attr[]){attr_i(AT_COMPUTE, COMPUTE_BF16)});
  need(built(&b));
  Val dy = b_const(&b, y, 1);
  size_t from = g->node_count;
  need(vjp(g, 1, &y, &dy, 2, in, dx));
  int dots = 0;
  for (size_t n = from; n < g->node_count; n++)
    if (op_info[g->nodes[n].op].cls == CONTRACT) {
      dots++;
      check_int(gr_attr_i(g, (uint32_t)n, AT_COMPUTE, 0), ==, COMPUTE_BF16);
    }
  check_int(dots, ==, 2);
  env_close(&v);
}

/* ---- size */

static void t_chain(int n) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y = x, dx;
  for (int k = 0; k < n; k++) y = b_un(&f.b, k % 2 ? OP_SIN : OP_NEG, y);
  need(built(&f.b));
  size_t nodes = f.g->node_count, bytes = f.v.mem.live;
  need(vjp(f.g, 1, &y, &f.one, 1, &x, &dx));
  check(!val_none(dx));
  check_size(f.g->node_count, <, 4 * nodes);
  check_size(f.v.mem.live, <, 6 * bytes);
  gr_output(f.g, dx);
  check(isfinite(value(&f, (double[]){0.5})));
  env_close(&f.v);
}

static void t_many_uses(int n) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), y = x;
  for (int k = 0; k < n; k++) y = plus(&f, y, x);
  check_double(gradient_at(&f, y, x, (double[]){1}), ==, n + 1);
  env_close(&f.v);
}

static void t_wide_concat(int n) {
  Fix f;
  fix_open(&f);
  Val x = f64_input(&f), dx;
  Val row = b_reshape(&f.b, x, 1, (Dim[]){dim_const(f.v.dims, 1)});
  Val *in = ARENA_ARRAY(&f.v.arena, Val, n);
  for (int k = 0; k < n; k++) in[k] = row;
  Val cat = b_op(&f.b, OP_CONCAT, n, in, 1, (Attr[]){attr_i(AT_AXIS, 0)});
  need(built(&f.b));
  Val dy = b_const(&f.b, cat, 1);
  need(vjp(f.g, 1, &cat, &dy, 1, &x, &dx));
  gr_output(f.g, dx);
  check_double(value(&f, (double[]){1}), ==, n);
  env_close(&f.v);
}

/* ---- out of memory: nothing stays behind */

typedef struct Little {
  Mem m;
  Arena a;
} Little;

static void little_program(void *ud) {
  Little *l = ud;
  arena_init(&l->a, &l->m);
  DimTab *dims = dim_tab_new(&l->a);
  Names *names = names_new(&l->a);
  Graph *g = gr_new(&l->a, dims, names, names_of(names, "f"));
  B b = {.g = g};
  Dim n = dim_const(dims, 40);
  Type t = {.kind = TK_TENSOR, .dtype = DT_F64, .rank = 2, .dim = {n, n}};
  Val x = gr_input(g, &t), y = x, dx;
  GErr e;
  Prov at;
  for (int k = 0; k < 3; k++) y = b_bin(&b, OP_DOT, b_un(&b, OP_GELU, y), x);
  y = b_op(&b, OP_PROD, 1, &y, 1, (Attr[]){attr_ints(AT_AXES, 1, (int64_t[]){1})});
  Val dy = b_const(&b, y, 1);
  gr_output(g, y);
  bool yes[1] = {true};
  ad_joint(&l->a, g, yes, yes, &e, &at);
  gr_batch(&l->a, g, yes, n, &e);
  if (!b.failed) ad_vjp(g, 1, &y, &dy, 1, &x, &dx, &e, &at);
}

static void t_no_memory(void) {
  bool done = false;
  int64_t n = 0;
  for (n = 1; n < 10000 && !done; n++) {
    Failing f;
    Little l = {.a = {NULL, NULL, 0}};
    failing_init(&f, &l.m, n);
    int code = mem_protect(&l.m, little_program, &l);
    done = code == MEM_OK;
    check(done || code == MEM_ERR_NOMEM);
    arena_free(&l.a);
    mem_close(&l.m);
    if (!check(failing_clean(&f, &l.m))) return;
  }
  check(done);
  check_int(n, >, 5);
}

int main(void) {
  TEST(t_last_use_first(1e16, 1, 1, 1e16 + 2), "the last use is added first");
  TEST(t_last_use_first(1, 1, 1e16, 1e16), "the first use is added last");
  TEST(t_last_operand_first(1e16, 1, 1, 1e16 + 2), "the last operand of a node is its last use");
  TEST(t_last_operand_first(1, 1, 1e16, 1e16), "the first operand of a node is its first use");
  TEST(t_seed_first(), "the seed of a result comes before its uses");
  TEST(t_seeds_last_first(), "of several seeds of a value the last is added first");
  TEST(t_alias_sums_inside_first(), "uses inside a call are summed before those outside");
  TEST(t_wrap_sums_inside_first(), "uses inside a wrap are summed before those outside");
  TEST(t_wrap_of_the_same_twice(), "a value handed twice to a wrap gets both parts once");
  TEST(t_cut(OP_STOP), "stop cuts");
  TEST(t_cut(OP_FLOOR), "floor has no gradient");
  TEST(t_cut(OP_ROUND), "round has no gradient");
  TEST(t_cut(OP_SIGN), "sign has no gradient");
  TEST(t_int_path_is_cut(), "a path through ints is cut");
  TEST(t_casts_between_floats_pass(), "casts between floats pass the gradient");
  TEST(t_intermediates(), "wrt may name intermediates, the result, strangers and duplicates");
  TEST(t_wrt_behind_y(), "what comes after the result has no gradient");
  TEST(t_cotangent_type(), "a cotangent has the type of its value");
  TEST(t_host_call(true), "a host call has no gradient, and the error is at the call");
  TEST(t_host_call(false), "a host call off the way does not matter");
  TEST(t_provenance(), "nodes made carry the place of their forward node");
  TEST(t_place_after_inlining(), "a body that is inlined leaves the place as it was");
  TEST(t_custom(), "custom uses its own gradient, which can be differentiated");
  TEST(t_custom_without_gradient(), "custom without a gradient is differentiated as its body");
  TEST(t_custom_with_int_result(true), "custom with an int result, all cotangents");
  TEST(t_custom_with_int_result(false), "custom with an int result, float cotangents");
  TEST(t_branch(true), "the first side of a branch is differentiated twice");
  TEST(t_branch(false), "the second side of a branch is differentiated twice");
  TEST(t_branch_without_effects(), "differentiating a branch does not print again");
  TEST(t_wrap_without_effects(OP_WRAP), "differentiating a wrap does not print again");
  TEST(t_loop(), "a loop is differentiated twice");
  TEST(t_map(), "a map is differentiated twice, captures are summed");
  TEST(t_symbolic_slice(7, 2, 3, 1), "a slice of unknown length");
  TEST(t_symbolic_slice(7, 1, 4, 2), "a slice with steps of unknown length");
  TEST(t_symbolic_slice(8, 0, 5, 3), "a slice with steps that ends before the last gap");
  TEST(t_symbolic_slice(4, 2, 4, 3), "a slice with steps of length 0");
  TEST(t_symbolic_prod(1), "the gradient of a product of one number");
  TEST(t_symbolic_prod(5), "the gradient of a product is the same for unknown sizes, short");
  TEST(t_symbolic_prod(32), "the gradient of a product is the same for unknown sizes, one block");
  TEST(t_symbolic_prod(33), "the gradient of a product is the same for unknown sizes, two blocks");
  TEST(t_symbolic_prod(3000), "the gradient of a product is the same for unknown sizes, long");
  TEST(t_put_duplicates(false), "put gives the gradient to the last of equal places");
  TEST(t_put_duplicates(true), "scatter gives the gradient to the last of equal places");
  TEST(t_compute_is_carried(OP_DOT), "gradients of a rounded product round too");
  TEST(t_compute_is_carried(OP_INNER), "gradients of a rounded inner product round too");
  TEST(t_chain(100000), "a chain of 100,000 operations is differentiated in linear space");
  TEST(t_many_uses(100000), "a value with 100,000 uses is differentiated");
  TEST(t_wide_concat(20000), "a wide concat is differentiated in linear time");
  TEST(t_no_memory(), "running out of memory leaves nothing behind");
  return tap_done();
}
