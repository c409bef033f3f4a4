/* Gradients: every row of the op table against central differences in f64 to the third order, and
 * against numbers of an independent system (tests/grad/ops.txt); then what holds for graphs. */
#include "autograd/rule.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "runtime/elementwise.h"
#include "tests/unit/opcases.h"

/* NaN and infinities are equal to themselves; else relative to the larger of 1 and the number. */
static bool close_to(double got, double want, double tol) {
  if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
  return fabs(got - want) <= tol * fmax(1, fabs(want));
}

static void compare(const Data *d, const char *what, int i, const Tensor *got, const Array *want,
                    double tol) {
  check_msg(tn_count(got) == want->n, "%s: %s %d has another size", d->c->name, what, i);
  for (int k = 0; k < want->n && k < tn_count(got); k++) {
    double x = tn_get_f64(got, k);
    if (!close_to(x, want->v[k], tol)) {
      fails("%s: %s %d, element %d is %.17g, not %.17g", d->c->name, what, i, k, x, want->v[k]);
      return;
    }
  }
}

/* ---- against the independent system */

typedef struct Numbers {
  DType dt;
  double tol, tol2;
  int seen;
} Numbers;

static void against_data(Env *v, const Data *d, void *ud) {
  Numbers *how = ud;
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val x[MAX_IN], wrt[MAX_IN], dx[MAX_IN], v2[MAX_IN], ddx[MAX_IN], y, w;
  int which[MAX_IN], nf = 0, nv = 0, ny2 = 0;
  Val y2[MAX_IN], dy2[MAX_IN];
  Tensor *in[3 * MAX_IN], *out[3 * MAX_IN];
  int n = 0, m = 0;
  for (int i = 0; i < d->count; i++) {
    x[i] = array_input(v, g, &d->in[i], how->dt);
    in[n++] = array_tensor(v, &d->in[i], how->dt);
    if (d->in[i].dt == DT_F64) which[nf] = i, wrt[nf++] = x[i];
  }
  Array weight = d->out;
  weight.dt = DT_F64;
  memcpy(weight.v, d->weight.v, sizeof weight.v);
  w = array_input(v, g, &weight, how->dt);
  in[n++] = array_tensor(v, &weight, how->dt);
  y = build_case(&b, d->c, d->count, x);
  if (!built(&b) || !vjp(g, 1, &y, &w, nf, wrt, dx)) goto end;
  gr_output(g, y);
  for (int k = 0; k < nf; k++) {
    if (!check_msg(!val_none(dx[k]), "%s: gradient %d is missing", d->c->name, which[k])) goto end;
    gr_output(g, dx[k]);
  }
  if (d->order == 2) {
    for (int k = 0; k < nf; k++) {
      Array a = d->in[which[k]];
      memcpy(a.v, d->weight2[which[k]].v, sizeof a.v);
      v2[nv++] = array_input(v, g, &a, how->dt);
      in[n++] = array_tensor(v, &a, how->dt);
      y2[ny2] = dx[k];
      dy2[ny2++] = v2[k];
    }
    if (!vjp(g, ny2, y2, dy2, nf, wrt, ddx)) goto end;
    for (int k = 0; k < nf; k++)
      if (!val_none(ddx[k])) gr_output(g, ddx[k]);
  }
  if (!run(v, g, in, out)) {
    fails("case %s", d->c->name);
    goto end;
  }
  compare(d, "result", 0, out[m++], &d->out, how->tol);
  for (int k = 0; k < nf; k++)
    compare(d, "gradient of input", which[k], out[m++], &d->grad[which[k]], how->tol);
  for (int k = 0; k < nf && d->order == 2; k++) {
    const Array *want = &d->grad2[which[k]];
    if (!val_none(ddx[k])) {
      compare(d, "second gradient of input", which[k], out[m++], want, how->tol2);
      continue;
    }
    for (int j = 0; j < want->n; j++)
      check_msg(want->v[j] == 0, "%s: second gradient %d is absent", d->c->name, which[k]);
  }
  drop(out, g->output_count);
  how->seen++;
end:
  drop(in, (size_t)n);
}

static void t_numbers(DType dt, double tol, double tol2) {
  Numbers how = {.dt = dt, .tol = tol, .tol2 = tol2};
  int n = each_case(against_data, &how);
  check_int(how.seen, ==, n);
}

/* ---- against central differences */

static bool has_gradient(int op) {
  switch (op) {
#define OP(NAME, ...)                                                                              \
  case OP_##NAME:                                                                                  \
    return grad_##NAME.one || grad_##NAME.all;
#include "graph/ops_rows.def"
#undef OP
  default: return false;
  }
}

/* The scalar F_k of the inputs: F_1 = sum(w y), F_k+1 = sum over inputs of sum(w_k dF_k/dx), with
 * fixed pseudo-random weights that are constants made by an iota: sin of a multiple. */
static Val weighted(B *b, Val x, int seed) {
  if (b->failed || val_none(x)) return VAL_NONE;
  Type t = *gr_type(b->g, x);
  int64_t axes[CKL_MAX_RANK];
  int64_t count = dim_product(b->g->dims, t.rank, t.dim);
  Attr attrs[3] = {attr_i(AT_DTYPE, t.dtype), attr_dims(AT_DIMS, 1, &count),
                   attr_i(AT_DEVICE, DEV_CPU)};
  Val n = b_op(b, OP_IOTA, 0, NULL, 3, attrs);
  n = b_bin(b, OP_ADD, b_bin(b, OP_MUL, n, b_const(b, n, 1.7)), b_const(b, n, 0.3 + seed));
  Val w = b_reshape(b, b_un(b, OP_SIN, n), t.rank, t.dim);
  for (int j = 0; j < t.rank; j++) axes[j] = j;
  return b_sum(b, b_bin(b, OP_MUL, x, w), t.rank, axes);
}

typedef struct Func {
  const Case *c;
  int count;
  const Array *in;
  DType dt;
} Func;

/* F_order of the case on new inputs of g, then (when dx is given) its gradient. */
static Val scalar(Env *v, Graph *g, B *b, const Func *f, int order, Val *wrt, Val *dx) {
  Val x[MAX_IN], some[MAX_IN];
  int nf = 0;
  for (int i = 0; i < f->count; i++) {
    x[i] = array_input(v, g, &f->in[i], f->dt);
    if (f->in[i].dt == DT_F64) wrt[nf++] = x[i];
  }
  Val s = weighted(b, build_case(b, f->c, f->count, x), 0);
  for (int k = 1; k <= order; k++) {
    if (k == order && !dx) return s;
    if (b->failed) return VAL_NONE;
    Val one = gr_const_f(g, f->dt, DEV_CPU, 1), *to = k == order ? dx : some;
    if (!vjp(g, 1, &s, &one, nf, wrt, to)) return VAL_NONE;
    if (k == order) return s;
    Val next = VAL_NONE;
    for (int i = 0; i < nf; i++) {
      if (val_none(some[i])) continue;
      Val t = weighted(b, some[i], 10 * k + i);
      next = val_none(next) ? t : b_bin(b, OP_ADD, next, t);
    }
    if (val_none(next)) return VAL_NONE;
    s = next;
  }
  return s;
}

static double value_at(Env *v, const Graph *g, Tensor **in) {
  Tensor *out[1];
  if (!run(v, g, in, out)) return NAN;
  double x = tn_get_f64(out[0], 0);
  tn_unref(out[0]);
  return x;
}

/* Five-point differences (error h^4): the gradient of F_order, element by element. */
static bool differences(Env *v, const Func *f, int order, double tol) {
  Graph *plain = new_graph(v), *full = new_graph(v);
  B b1 = {.g = plain}, b2 = {.g = full};
  Val wrt[MAX_IN], dx[MAX_IN];
  Tensor *in[MAX_IN], *out[MAX_IN];
  int m = 0, nf = 0;
  bool ok = true;
  Val s = scalar(v, plain, &b1, f, order, wrt, NULL);
  if (!built(&b1)) return false;
  if (val_none(s)) return true; /* the lower order is constant */
  gr_output(plain, s);
  s = scalar(v, full, &b2, f, order, wrt, dx);
  if (!built(&b2) || val_none(s)) return fails("%s: order %d", f->c->name, order);
  for (int i = 0; i < f->count; i++)
    if (f->in[i].dt == DT_F64) {
      if (!val_none(dx[nf])) gr_output(full, dx[nf]);
      nf++;
    }
  for (int i = 0; i < f->count; i++) in[i] = array_tensor(v, &f->in[i], f->dt);
  if (!run(v, full, in, out)) return fails("%s: order %d", f->c->name, order);
  for (int i = 0, k = 0; i < f->count && ok; i++) {
    if (f->in[i].dt != DT_F64) continue;
    Tensor *d = val_none(dx[k++]) ? NULL : out[m++];
    for (int64_t j = 0; j < tn_count(in[i]) && ok; j++) {
      double x = f->in[i].v[j], h = 1e-3, at[4], want;
      for (int p = 0; p < 4; p++) {
        set(in[i], j, x + (p < 2 ? h : 2 * h) * (p % 2 ? -1 : 1));
        at[p] = value_at(v, plain, in);
      }
      set(in[i], j, x);
      want = (8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h);
      double got = d ? tn_get_f64(d, j) : 0;
      ok = check_msg(close_to(got, want, tol),
                     "%s, order %d: gradient of input %d, element %d is %.12g, differences %.12g",
                     f->c->name, order, i, (int)j, got, want);
    }
  }
  drop(out, full->output_count);
  drop(in, (size_t)f->count);
  return ok;
}

static void case_differences(Env *v, const Data *d, void *ud) {
  int order = *(int *)ud;
  Func f = {d->c, d->count, d->in, DT_F64};
  /* At a kink only one side has a derivative; long inputs take the time of all others. */
  if (d->order < 2 || (order > 2 && d->in[0].n > 24)) return;
  differences(v, &f, order, order == 1 ? 1e-8 : 1e-7);
}

static void t_differences(int order) {
  each_case(case_differences, &order);
}

/* What elementwise.def says of an op of one operand, NULL of others. */
static const ElemInfo *row_of(int op) {
  for (int f = 0; f < RU_COUNT; f++)
    if (!strcmp(elem_un[f].name, op_info[op].text)) return &elem_un[f];
  return NULL;
}

/* Every elementwise row with a gradient, on inputs from the middle half of an interval in which it
 * is smooth. */
static void t_elementwise_rows(int order) {
  int rows = 0;
  for (int op = 0; op < OP_COUNT; op++) {
    if (op_info[op].cls != ELEMENTWISE || !has_gradient(op) || op == OP_CAST) continue;
    Env v;
    uint64_t state = 77 + (uint64_t)op;
    Case c = {op_info[op].text, (OpCode)op, NULL};
    Array in[MAX_IN] = {{0}};
    Func f = {&c, op_info[op].arity, in, DT_F64};
    for (int i = 0; i < f.count; i++) {
      in[i] = (Array){.rank = 2, .dim = {2, 3}, .n = 6, .dt = DT_F64};
      if (op == OP_WHERE && i == 0) in[i].dt = DT_BOOL;
      const ElemInfo *row = row_of(op);
      double middle = row ? (row->low + row->high) / 2 : i ? 1.5 : 0.5;
      double reach = row ? (row->high - row->low) / 4 : 0.3;
      for (int k = 0; k < 6; k++) in[i].v[k] = middle + reach * uniform(&state);
      if (in[i].dt == DT_BOOL) in[i].v[2] = in[i].v[3] = 0;
    }
    env_open(&v);
    check_msg(differences(&v, &f, order, 1e-7), "row %s", op_info[op].text);
    env_close(&v);
    rows++;
  }
  check_int(rows, >, 25);
}

static void no_more(Env *v, const Data *d, void *ud) {
  (void)v, (void)d, (void)ud;
}

/* A row that has a gradient and is not in the data is a gap, as is a way to build without data. */
static void t_all_rows_have_a_case(void) {
  int n = each_case(no_more, NULL);
  check_int(n, >=, CASES);
  for (int op = 0; op < OP_COUNT; op++) {
    bool needed = has_gradient(op) && op_info[op].cls != CONTROL && op != OP_CAST;
    check_msg(!needed || op_seen[op], "no case in tests/grad for `%s`: tests/grad/make-ops.py %s",
              op_info[op].text, op_info[op].text);
  }
  for (int k = 0; k < CASES; k++) check_msg(case_seen[k], "no numbers for %s", cases[k].name);
}

int main(void) {
  TEST(t_all_rows_have_a_case(), "every op with a gradient has a case with known numbers");
  TEST(t_numbers(DT_F64, 1e-12, 1e-11), "gradients agree with an independent system in f64");
  TEST(t_numbers(DT_F32, 2e-6, 2e-5), "gradients agree with an independent system in f32");
  TEST(t_elementwise_rows(1), "elementwise rows agree with central differences");
  TEST(t_elementwise_rows(2), "elementwise rows agree with central differences in second order");
  TEST(t_elementwise_rows(3), "elementwise rows agree with central differences in third order");
  TEST(t_differences(1), "gradients agree with central differences");
  TEST(t_differences(2), "second derivatives agree with central differences");
  TEST(t_differences(3), "third derivatives agree with central differences");
  return tap_done();
}
