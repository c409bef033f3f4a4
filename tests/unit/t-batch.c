/* Mapping graphs over an axis: every element's result has the bits of running the graph on that
 * element. */
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "tests/unit/opcases.h"

enum { ELEMENTS = 3, MOST = 16 };

/* Element e of a batched tensor, as a view. */
static Tensor *element(Env *v, const Tensor *t, int64_t e) {
  return tn_view(&v->mem, t, t->rank - 1, t->dim + 1, t->stride + 1, t->offset + e * t->stride[0]);
}

/* The batched graph on `in` (batched ones have the axis) against one run per element. */
static bool agrees(Env *v, const Graph *g, const bool *batched, Tensor **in, const char *what) {
  Tensor *one[MOST], *want[MOST], *got[MOST];
  GErr e = {.operand = -1};
  bool ok = true;
  Graph *many = gr_batch(&v->arena, g, batched, dim_const(v->dims, ELEMENTS), &e);
  if (!many) return fails("%s: %s", what, e.text);
  if (!gr_verify(many, &e)) return fails("%s: %s", what, e.text);
  if (!run(v, many, in, got)) return fails("%s", what);
  for (int64_t k = 0; k < ELEMENTS && ok; k++) {
    for (size_t i = 0; i < g->input_count; i++)
      one[i] = batched[i] ? element(v, in[i], k) : tn_ref(in[i]);
    if (!run(v, g, one, want)) return fails("%s", what);
    for (size_t i = 0; i < g->output_count; i++) {
      Tensor *part = element(v, got[i], k);
      check_int(got[i]->dim[0], ==, ELEMENTS);
      ok &= check_msg(tn_same(part, want[i]), "%s: result %d of element %d has other bits", what,
                      (int)i, (int)k);
      tn_unref(part);
    }
    drop(one, g->input_count);
    drop(want, g->output_count);
  }
  drop(got, many->output_count);
  return ok;
}

/* Element k of a batched input: the numbers rotated by k places, floats changed a little too. */
static Tensor *spread(Env *v, const Array *a, DType dt, bool batched) {
  if (!batched) return array_tensor(v, a, dt);
  int64_t dim[CKL_MAX_RANK] = {ELEMENTS};
  for (int j = 0; j < a->rank; j++) dim[j + 1] = a->dim[j];
  Tensor *t = tn_new(&v->mem, DEV_CPU, dtype_of(a, dt), a->rank + 1, dim);
  for (int64_t k = 0; k < ELEMENTS; k++)
    for (int j = 0; j < a->n; j++) {
      double x = a->v[(j + k) % a->n];
      set(t, k * a->n + j, a->dt == DT_F64 ? x * (1 + 0.01 * (double)k) : x);
    }
  return t;
}

/* The case with its gradient, every choice of batched inputs. */
typedef struct Cases {
  DType dt;
  int compared;
} Cases;

static void one_case(Env *v, const Data *d, void *ud) {
  Cases *c = ud;
  DType dt = c->dt;
  Array weight = d->out;
  int n = d->count + 1;
  weight.dt = DT_F64;
  memcpy(weight.v, d->weight.v, sizeof weight.v);
  for (int set_of = 1; set_of < 1 << n; set_of++) {
    Graph *g = new_graph(v);
    B b = {.g = g};
    Val x[MAX_IN + 1], wrt[MAX_IN], dx[MAX_IN];
    bool batched[MAX_IN + 1];
    Tensor *in[MAX_IN + 1];
    char what[100];
    int nf = 0;
    snprintf(what, sizeof what, "%s, set %d", d->c->name, set_of);
    for (int i = 0; i < n; i++) {
      const Array *a = i < d->count ? &d->in[i] : &weight;
      batched[i] = set_of >> i & 1;
      x[i] = array_input(v, g, a, dt);
      in[i] = spread(v, a, dt, batched[i]);
      if (i < d->count && a->dt == DT_F64) wrt[nf++] = x[i];
    }
    Val y = build_case(&b, d->c, d->count, x);
    bool ok = built(&b) && vjp(g, 1, &y, &x[d->count], nf, wrt, dx);
    if (ok) {
      gr_output(g, y);
      for (int k = 0; k < nf; k++)
        if (!val_none(dx[k])) gr_output(g, dx[k]);
      ok = agrees(v, g, batched, in, what);
    }
    drop(in, (size_t)n);
    if (!ok) return;
    c->compared++;
  }
}

/* Mapped first and differentiated then, all inputs batched: again the bits of one at a time. */
static void map_then_differentiate(Env *v, const Data *d, void *ud) {
  Cases *c = ud;
  Array weight = d->out;
  int n = d->count + 1, nf = 0;
  Graph *f = new_graph(v), *one = new_graph(v);
  B b = {.g = f}, b1 = {.g = one}, bm;
  Val x[MAX_IN + 1], x1[MAX_IN + 1], wrt[MAX_IN], dx[MAX_IN], dx1[MAX_IN];
  bool batched[MAX_IN + 1] = {true, true, true, true, true};
  Tensor *in[MAX_IN + 1], *part[MAX_IN + 1], *got[MAX_IN], *want[MAX_IN];
  GErr e = {.operand = -1};
  weight.dt = DT_F64;
  memcpy(weight.v, d->weight.v, sizeof weight.v);
  for (int i = 0; i < n; i++) {
    const Array *a = i < d->count ? &d->in[i] : &weight;
    x[i] = array_input(v, f, a, c->dt);
    x1[i] = array_input(v, one, a, c->dt);
    in[i] = spread(v, a, c->dt, true);
    if (i < d->count && a->dt == DT_F64) wrt[nf++] = x1[i];
  }
  gr_output(f, build_case(&b, d->c, d->count, x));
  Val y1 = build_case(&b1, d->c, d->count, x1);
  need(built(&b) && built(&b1) && vjp(one, 1, &y1, &x1[d->count], nf, wrt, dx1));
  Graph *many = gr_batch(&v->arena, f, batched, dim_const(v->dims, ELEMENTS), &e);
  need(check_msg(many != NULL, "%s: %s", d->c->name, e.text));
  bm = (B){.g = many};
  nf = 0;
  for (int i = 0; i < d->count; i++)
    if (d->in[i].dt == DT_F64) wrt[nf++] = many->inputs[i];
  need(vjp(many, 1, &many->outputs[0], &many->inputs[d->count], nf, wrt, dx));
  many->output_count = 0;
  for (int k = 0; k < nf; k++) {
    Type t = *gr_type(many, wrt[k]);
    gr_output(many, val_none(dx[k]) ? b_zeros(&bm, &t) : dx[k]);
    if (!val_none(dx1[k])) gr_output(one, dx1[k]);
    check(val_none(dx1[k]) == val_none(dx[k]));
  }
  need(run(v, many, in, got));
  for (int64_t k = 0; k < ELEMENTS; k++) {
    for (int i = 0; i < n; i++) part[i] = element(v, in[i], k);
    need(run(v, one, part, want));
    for (int i = 0; i < nf; i++) {
      Tensor *g = element(v, got[i], k);
      check_msg(tn_same(g, want[i]), "%s: gradient %d of element %d has other bits", d->c->name, i,
                (int)k);
      tn_unref(g);
    }
    drop(part, (size_t)n);
    drop(want, one->output_count);
  }
  drop(got, many->output_count);
  drop(in, (size_t)n);
  c->compared++;
}

static void t_map_then_differentiate(DType dt) {
  Cases c = {.dt = dt};
  int n = each_case(map_then_differentiate, &c);
  check_int(c.compared, ==, n);
}

static void t_cases(DType dt) {
  Cases c = {.dt = dt};
  int n = each_case(one_case, &c);
  check_int(n, >=, CASES);
  check_int(c.compared, >, 3 * n);
  tap_note("%d graphs", c.compared);
}

/* ---- single things */

typedef struct Fix {
  Env v;
  Graph *g;
  B b;
} Fix;

static void fix_open(Fix *f) {
  env_open(&f->v);
  f->g = new_graph(&f->v);
  f->b = (B){.g = f->g};
}

static Tensor *numbered(Env *v, DType dt, int rank, const int64_t *dim, double first, double step) {
  Tensor *t = tn_new(&v->mem, DEV_CPU, dt, rank, dim);
  for (int64_t k = 0, n = count_of(rank, dim); k < n; k++) set(t, k, first + step * (double)k);
  return t;
}

/* A result that depends on no batched input gets the axis all the same. */
static void t_unbatched_output(void) {
  Fix f;
  fix_open(&f);
  Val x = input(&f.v, f.g, DT_F64, 1, 4), z = input(&f.v, f.g, DT_F64, 1, 4);
  gr_output(f.g, b_un(&f.b, OP_SIN, x));
  gr_output(f.g, z);
  gr_output(f.g, gr_const_f(f.g, DT_F64, DEV_CPU, 3));
  Tensor *in[2] = {numbered(&f.v, DT_F64, 1, (int64_t[]){4}, 0, 0.3),
                   numbered(&f.v, DT_F64, 2, (int64_t[]){ELEMENTS, 4}, 1, 0.1)};
  need(built(&f.b));
  check(agrees(&f.v, f.g, (bool[]){false, true}, in, "outputs"));
  GErr e;
  Graph *many = gr_batch(&f.v.arena, f.g, (bool[]){false, true}, dim_const(f.v.dims, ELEMENTS), &e);
  need(many);
  for (size_t n = 0; n < many->node_count; n++) /* computed once */
    if (many->nodes[n].op == OP_SIN) check_int(gr_type(many, (Val){(uint32_t)n, 0})->rank, ==, 1);
  drop(in, 2);
  env_close(&f.v);
}

static Val drawn_node(B *b, OpCode op, Val key) {
  int64_t dims[1] = {dim_const(b->g->dims, 5)};
  Val in[2] = {key, gr_const_i(b->g, DT_I64, DEV_CPU, 1000000)};
  Attr attrs[3] = {attr_i(AT_DTYPE, op == OP_RANDOM ? DT_F64 : DT_I64), attr_dims(AT_DIMS, 1, dims),
                   attr_i(AT_KIND, RANDOM_NORMAL)};
  return b_op(b, op, op == OP_RANDOM ? 1 : 2, in, op == OP_RANDOM ? 3 : 2, attrs);
}

/* A batched key is used as it is. */
static void t_random_keys(OpCode op) {
  Fix f;
  fix_open(&f);
  Val key = input(&f.v, f.g, DT_I64, 1, 2);
  gr_output(f.g, drawn_node(&f.b, op, key));
  need(built(&f.b));
  Tensor *in = numbered(&f.v, DT_I64, 2, (int64_t[]){ELEMENTS, 2}, 7, 3);
  check(agrees(&f.v, f.g, (bool[]){true}, &in, "keys"));
  tn_unref(in);
  env_close(&f.v);
}

/* Under one key element i draws from fold_in(key, i). */
static void t_random_folds(OpCode op) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *one = new_graph(&f.v);
  B b1 = {.g = one};
  Val key = input(&f.v, f.g, DT_I64, 1, 2);
  input(&f.v, f.g, DT_F64, 0);
  gr_output(f.g, drawn_node(&f.b, op, key));
  Val in1[2] = {input(&f.v, one, DT_I64, 1, 2), input(&f.v, one, DT_I64, 0)};
  gr_output(one, drawn_node(&b1, op, b_op(&b1, OP_FOLD_IN, 2, in1, 0, NULL)));
  need(built(&f.b) && built(&b1));
  Graph *many = gr_batch(&f.v.arena, f.g, (bool[]){false, true}, dim_const(f.v.dims, ELEMENTS), &e);
  need(check_msg(many != NULL, "%s", e.text));
  Tensor *in[2] = {numbered(&f.v, DT_I64, 1, (int64_t[]){2}, 7, 3),
                   numbered(&f.v, DT_F64, 1, (int64_t[]){ELEMENTS}, 0, 1)},
         *got[1], *want[1];
  need(run(&f.v, many, in, got));
  for (int64_t k = 0; k < ELEMENTS; k++) {
    Tensor *two[2] = {in[0], tn_scalar_i64(&f.v.mem, DEV_CPU, DT_I64, k)};
    Tensor *part = element(&f.v, got[0], k);
    need(run(&f.v, one, two, want));
    check(tn_same(part, want[0]));
    drop((Tensor *[]){two[1], part, want[0]}, 3);
  }
  Tensor *a = element(&f.v, got[0], 0), *b = element(&f.v, got[0], 1);
  check(!tn_same(a, b));
  drop((Tensor *[]){a, b, got[0], in[0], in[1]}, 5);
  env_close(&f.v);
}

/* Mapped twice under one key, every element draws for itself. */
static void t_random_twice(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  gr_output(f.g, drawn_node(&f.b, OP_RANDOM, input(&f.v, f.g, DT_I64, 1, 2)));
  need(built(&f.b));
  Graph *g = f.g;
  bool none[1] = {false};
  for (int k = 0; k < 2; k++) {
    g = gr_batch(&f.v.arena, g, none, dim_const(f.v.dims, ELEMENTS), &e);
    need(check_msg(g != NULL, "%s", e.text));
    need(check_msg(gr_verify(g, &e), "%s", e.text));
  }
  Tensor *in = numbered(&f.v, DT_I64, 1, (int64_t[]){2}, 7, 3), *out[1];
  need(run(&f.v, g, &in, out));
  int64_t n = tn_count(out[0]);
  check_int((int)n, ==, ELEMENTS * ELEMENTS * 5);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) check_double(tn_get_f64(out[0], i), !=, tn_get_f64(out[0], j));
  drop((Tensor *[]){in, out[0]}, 2);
  env_close(&f.v);
}

static void t_keys(OpCode op) {
  Fix f;
  fix_open(&f);
  Val in[2];
  in[0] = input(&f.v, f.g, DT_I64, 1, op == OP_PHILOX ? 4 : 2);
  in[1] = op == OP_PHILOX ? input(&f.v, f.g, DT_I64, 1, 2) : input(&f.v, f.g, DT_I64, 0);
  gr_output(f.g, b_op(&f.b, op, 2, in, 0, NULL));
  need(built(&f.b));
  for (int set_of = 1; set_of < 4; set_of++) {
    bool batched[2] = {set_of & 1, set_of >> 1 & 1};
    Tensor *t[2];
    for (int k = 0; k < 2; k++) {
      int64_t dim[2] = {ELEMENTS, 0};
      const Type *ty = gr_type(f.g, f.g->inputs[k]);
      if (ty->rank) dim_is_const(f.v.dims, ty->dim[0], &dim[1]);
      t[k] = batched[k] ? numbered(&f.v, DT_I64, 1 + ty->rank, dim, 3, 2)
                        : numbered(&f.v, DT_I64, ty->rank, dim + 1, 5, 1);
    }
    check(agrees(&f.v, f.g, batched, t, op_info[op].text));
    drop(t, 2);
  }
  env_close(&f.v);
}

/* ---- structured ops: x [4], z [4] */

static Graph *body(Env *v, int kind) {
  Graph *g = new_graph(v);
  B b = {.g = g};
  if (kind == OP_LOOP) input(v, g, DT_I64, 0);
  Val x = kind == OP_MAP ? input(v, g, DT_F64, 0) : input(v, g, DT_F64, 1, 4);
  Val z = input(v, g, DT_F64, 1, 4);
  if (kind == OP_MAP)
    gr_output(g, b_bin(&b, OP_MUL, x, z));
  else
    gr_output(g, b_bin(&b, OP_MUL, b_un(&b, OP_SIN, x), z));
  return g;
}

static void t_structured(OpCode op) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *regions[2] = {body(&f.v, (int)op), body(&f.v, 0)};
  Val x = input(&f.v, f.g, DT_F64, 1, 4), z = input(&f.v, f.g, DT_F64, 1, 4);
  Val in[3] = {x, z}, y;
  Attr text = attr_text(AT_TEXT, names_of(f.v.names, "w"));
  if (op == OP_LOOP) {
    y = gr_op(f.g, op, (Val[]){gr_const_i(f.g, DT_I64, DEV_CPU, 3), x, z}, 3,
              (Attr[]){attr_i(AT_CARRY, 1)}, 1, regions, 1, &e);
  } else if (op == OP_BRANCH) {
    Val yes = b_cast(&f.b, gr_const_i(f.g, DT_I64, DEV_CPU, 1), DT_BOOL);
    y = gr_op(f.g, op, (Val[]){yes, x, z}, 3, NULL, 0, regions, 2, &e);
  } else if (op == OP_MAP) {
    y = gr_op(f.g, op, in, 2, (Attr[]){attr_i(AT_MAPPED, 1)}, 1, regions, 1, &e);
  } else {
    y = gr_op(f.g, op, in, 2, &text, 1, regions, 1, &e);
  }
  need(check_msg(!val_none(y), "%s", e.text));
  gr_output(f.g, y);
  for (int set_of = 1; set_of < 4; set_of++) {
    bool batched[2] = {set_of & 1, set_of >> 1 & 1};
    Tensor *t[2];
    for (int k = 0; k < 2; k++)
      t[k] = batched[k] ? numbered(&f.v, DT_F64, 2, (int64_t[]){ELEMENTS, 4}, 0.3 + k, 0.1)
                        : numbered(&f.v, DT_F64, 1, (int64_t[]){4}, 0.7, 0.2);
    check(agrees(&f.v, f.g, batched, t, op_info[op].text));
    drop(t, 2);
  }
  env_close(&f.v);
}

static void t_custom(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Graph *back = new_graph(&f.v);
  B b = {.g = back};
  Val k[4], dx[2];
  for (int j = 0; j < 4; j++) k[j] = input(&f.v, back, DT_F64, 1, 4); /* x z y dy */
  gr_output(back, b_bin(&b, OP_MUL, k[3], b_bin(&b, OP_MUL, k[1], b_un(&b, OP_COS, k[0]))));
  gr_output(back, b_bin(&b, OP_MUL, k[3], k[2]));
  Graph *regions[2] = {body(&f.v, 0), back};
  Val in[2] = {input(&f.v, f.g, DT_F64, 1, 4), input(&f.v, f.g, DT_F64, 1, 4)};
  Attr wrt = attr_ints(AT_WRT, 2, (int64_t[]){0, 1});
  Val y = gr_op(f.g, OP_CUSTOM, in, 2, &wrt, 1, regions, 2, &e);
  need(check_msg(!val_none(y), "%s", e.text));
  Tensor *t[2] = {numbered(&f.v, DT_F64, 2, (int64_t[]){ELEMENTS, 4}, 0.3, 0.1),
                  numbered(&f.v, DT_F64, 1, (int64_t[]){4}, 0.7, 0.2)};
  /* batched, then differentiated: the gradient of the unbatched operand is a sum over elements */
  gr_output(f.g, y);
  check(agrees(&f.v, f.g, (bool[]){true, false}, t, "custom"));
  Graph *many = gr_batch(&f.v.arena, f.g, (bool[]){true, false}, dim_const(f.v.dims, ELEMENTS), &e);
  need(many);
  B mb = {.g = many};
  Val my = many->outputs[0], dy = b_const(&mb, my, 1);
  need(vjp(many, 1, &my, &dy, 2, many->inputs, dx));
  many->output_count = 0;
  gr_output(many, dx[0]);
  gr_output(many, dx[1]);
  Tensor *out[2];
  need(run(&f.v, many, t, out));
  check_int(out[0]->rank, ==, 2);
  check_int(out[1]->rank, ==, 1);
  for (int j = 0; j < 4; j++) {
    double sum = 0;
    for (int i = 0; i < ELEMENTS; i++) sum += sin(0.3 + 0.1 * (4 * i + j)) * (0.7 + 0.2 * j);
    check_near(tn_get_f64(out[1], j), sum, 1e-14);
  }
  drop((Tensor *[]){t[0], t[1], out[0], out[1]}, 4);
  env_close(&f.v);
}

/* Batched twice: a matrix of elements. */
static void t_twice(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Val x = input(&f.v, f.g, DT_F64, 2, 2, 3), w = input(&f.v, f.g, DT_F64, 2, 3, 4);
  Val y = b_un(&f.b, OP_TANH, b_bin(&f.b, OP_DOT, x, w));
  gr_output(f.g, b_sum(&f.b, y, 1, (int64_t[]){1}));
  need(built(&f.b));
  Graph *rows = gr_batch(&f.v.arena, f.g, (bool[]){true, false}, dim_const(f.v.dims, 2), &e);
  need(check_msg(rows != NULL, "%s", e.text));
  Tensor *in[2] = {numbered(&f.v, DT_F64, 4, (int64_t[]){ELEMENTS, 2, 2, 3}, -1, 0.07),
                   numbered(&f.v, DT_F64, 3, (int64_t[]){ELEMENTS, 3, 4}, -0.9, 0.05)};
  check(agrees(&f.v, rows, (bool[]){true, true}, in, "twice"));
  drop(in, 2);
  env_close(&f.v);
}

/* The number of elements may be a symbol. */
static void t_symbolic(void) {
  static int64_t sizes[1] = {ELEMENTS};
  Fix f;
  Sym s;
  GErr e = {.operand = -1};
  fix_open(&f);
  f.v.sizes = sizes;
  Dim n = dim_symbol(f.v.dims, names_of(f.v.names, "N"), (Span){0, 0, 0}, &s);
  Val x = input(&f.v, f.g, DT_F64, 2, 2, 3), w = input(&f.v, f.g, DT_F64, 2, 3, 4);
  gr_output(f.g, b_bin(&f.b, OP_DOT, x, w));
  Graph *many = gr_batch(&f.v.arena, f.g, (bool[]){true, false}, n, &e);
  need(check_msg(many != NULL, "%s", e.text));
  Tensor *in[2] = {numbered(&f.v, DT_F64, 3, (int64_t[]){ELEMENTS, 2, 3}, -1, 0.07),
                   numbered(&f.v, DT_F64, 2, (int64_t[]){3, 4}, -0.9, 0.05)},
         *out[1];
  need(run(&f.v, many, in, out));
  check_int(out[0]->rank, ==, 3);
  check_int(out[0]->dim[0], ==, ELEMENTS);
  drop((Tensor *[]){in[0], in[1], out[0]}, 3);
  env_close(&f.v);
}

static void t_refused(void) {
  Fix f;
  GErr e = {.operand = -1};
  fix_open(&f);
  Val x = input(&f.v, f.g, DT_F64, 1, 4);
  int64_t most = dim_const(f.v.dims, 4);
  Val v = b_op(&f.b, OP_NONZERO, 1, &x, 1, (Attr[]){attr_dim(AT_MOST, (Dim)most)});
  need(built(&f.b));
  gr_output(f.g, v);
  check(!gr_batch(&f.v.arena, f.g, (bool[]){true}, dim_const(f.v.dims, 3), &e));
  check_int(e.code, ==, ERR_NOT_YET);
  check_has(e.text, "nonzero");
  env_close(&f.v);
}

int main(void) {
  TEST(t_cases(DT_F64), "every op and its gradient has the bits of one element at a time in f64");
  TEST(t_cases(DT_F32), "every op and its gradient has the bits of one element at a time in f32");
  TEST(t_map_then_differentiate(DT_F64), "the gradient of a mapped op is the mapped gradient, f64");
  TEST(t_map_then_differentiate(DT_F32), "the gradient of a mapped op is the mapped gradient, f32");
  TEST(t_unbatched_output(), "what depends on no element is computed once and stretched");
  TEST(t_random_keys(OP_RANDOM), "random numbers under batched keys");
  TEST(t_random_keys(OP_RANDINT), "random integers under batched keys");
  TEST(t_random_folds(OP_RANDOM), "random numbers under one key fold in the element's number");
  TEST(t_random_folds(OP_RANDINT), "random integers under one key fold in the element's number");
  TEST(t_random_twice(), "every element of a matrix of elements draws for itself");
  TEST(t_keys(OP_FOLD_IN), "fold_in of batched keys and numbers");
  TEST(t_keys(OP_PHILOX), "the raw generator under batched counters and keys");
  TEST(t_structured(OP_LOOP), "a loop is mapped");
  TEST(t_structured(OP_BRANCH), "a branch under one condition is mapped");
  TEST(t_structured(OP_MAP), "a map is mapped");
  TEST(t_structured(OP_WRAP), "a wrap is mapped");
  TEST(t_custom(), "a custom gradient is mapped, and differentiated after that");
  TEST(t_twice(), "a graph is mapped twice");
  TEST(t_symbolic(), "the number of elements may be known later");
  TEST(t_refused(), "an op without a rule is named");
  return tap_done();
}
