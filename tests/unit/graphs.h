/* graphs.h: what the tests of graphs and gradients share: a session's tables, tensors from
 * numbers, running a graph, reading values. */
#ifndef TESTS_UNIT_GRAPHS_H
#define TESTS_UNIT_GRAPHS_H

#include <stdlib.h>

#include "autograd/autograd.h"
#include "autograd/vjp.h"
#include "graph/build.h"
#include "graph/pass.h"
#include "graph/run.h"
#include "tests/tap.h"

#define fails(...) tap_fail(TAP_HERE, __VA_ARGS__)

/* One test's memory and tables. */
typedef struct Env {
  Mem mem;
  Arena arena;
  DimTab *dims;
  Names *names;
  const int64_t *sizes; /* values of symbols, for runs */
} Env;

static TAP_UNUSED void env_open(Env *v) {
  mem_init(&v->mem, NULL, NULL);
  arena_init(&v->arena, &v->mem);
  v->dims = dim_tab_new(&v->arena);
  v->names = names_new(&v->arena);
  v->sizes = NULL;
}

/* Everything was given back. */
static TAP_UNUSED void env_close(Env *v) {
  arena_free(&v->arena);
  mem_close(&v->mem);
  check_size(v->mem.live, ==, 0);
}

static TAP_UNUSED Graph *new_graph(Env *v) {
  Graph *g = gr_new(&v->arena, v->dims, v->names, names_of(v->names, "f"));
  g->at.origin = -1;
  return g;
}

static TAP_UNUSED Type type_c(Env *v, DType dt, int rank, const int64_t *dim) {
  Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)dt, .dev = DEV_CPU, .rank = (uint8_t)rank};
  for (int j = 0; j < rank; j++) t.dim[j] = dim_const(v->dims, dim[j]);
  return t;
}

/* An input of constant dims: input(v, g, DT_F64, 2, 3, 4) is f64[3, 4]. */
static TAP_UNUSED Val input(Env *v, Graph *g, DType dt, int rank, ...) {
  int64_t dim[CKL_MAX_RANK];
  va_list ap;
  va_start(ap, rank);
  for (int j = 0; j < rank; j++) dim[j] = va_arg(ap, int);
  va_end(ap);
  Type t = type_c(v, dt, rank, dim);
  return gr_input(g, &t);
}

static TAP_UNUSED int64_t count_of(int rank, const int64_t *dim) {
  int64_t n = 1;
  for (int j = 0; j < rank; j++) n *= dim[j];
  return n;
}

static TAP_UNUSED void set(Tensor *t, int64_t i, double x) {
  switch (t->dtype) {
  case DT_F64: ((double *)tn_data(t))[i] = x; break;
  case DT_F32: ((float *)tn_data(t))[i] = (float)x; break;
  case DT_I64: ((int64_t *)tn_data(t))[i] = (int64_t)x; break;
  case DT_BOOL: ((uint8_t *)tn_data(t))[i] = x != 0; break;
  default: fails("dtype %s in set", dtype_info[t->dtype].name);
  }
}

static TAP_UNUSED Tensor *tensor(Env *v, DType dt, int rank, const int64_t *dim, const double *x) {
  Tensor *t = tn_new(&v->mem, DEV_CPU, dt, rank, dim);
  for (int64_t i = 0, n = count_of(rank, dim); i < n; i++) set(t, i, x[i]);
  return t;
}

/* A tensor for input number i of the graph (constant dims), filled by `next`. */
static TAP_UNUSED Tensor *drawn(Env *v, const Graph *g, size_t i, double (*next)(void *ud),
                                void *ud) {
  const Type *t = gr_type(g, g->inputs[i]);
  int64_t dim[CKL_MAX_RANK];
  for (int j = 0; j < t->rank; j++) dim_eval(v->dims, t->dim[j], v->sizes, NULL, &dim[j]);
  Tensor *x = tn_new(&v->mem, DEV_CPU, (DType)t->dtype, t->rank, dim);
  for (int64_t k = 0, n = count_of(t->rank, dim); k < n; k++) set(x, k, next(ud));
  return x;
}

/* Uniform in [-1, 1). */
static TAP_UNUSED double uniform(void *state) {
  return (double)(tap_random(state) >> 11) * (2.0 / 9007199254740992.0) - 1;
}

static TAP_UNUSED bool run(Env *v, const Graph *g, Tensor *const *in, Tensor **out) {
  static const int64_t no_sizes[1] = {0};
  RunCtx c = {.mem = &v->mem, .env = v->sizes ? v->sizes : no_sizes};
  GErr e = {.operand = -1};
  if (gr_run(g, &c, in, out, &e, NULL)) return true;
  return fails("running failed: %s", e.text);
}

static TAP_UNUSED void drop(Tensor **t, size_t n) {
  for (size_t i = 0; i < n; i++) tn_unref(t[i]);
}

static TAP_UNUSED bool built(const B *b) {
  return check_msg(!b->failed, "building failed: %s", b->err.text);
}

/* dx = vjp, with the message checked, and the graph (unless it is long). */
static TAP_UNUSED bool vjp(Graph *g, int ny, const Val *y, const Val *dy, int nwrt, const Val *wrt,
                           Val *dx) {
  GErr e = {.operand = -1};
  Prov at;
  if (ad_vjp(g, ny, y, dy, nwrt, wrt, dx, &e, &at))
    return g->node_count > 2000 || gr_verify(g, &e) || fails("gr_verify failed: %s", e.text);
  return check_msg(false, "ad_vjp failed: %s", e.text);
}

static TAP_UNUSED size_t count_ops(const Graph *g, OpCode op) {
  size_t n = 0;
  for (size_t j = 0; j < g->node_count; j++) n += g->nodes[j].op == op;
  return n;
}

#endif
