/* graph-gen.h: random nodes and graphs of every op, and tensors to run them with.
 *
 * A Gen makes nodes in a graph. With `symbolic` its sizes are symbols, else constants: the same
 * seed gives the same graph in both forms. An operand is an existing value of the wanted type or a
 * new input; inside a region it is a constant. Inputs remember what their numbers must be
 * (`Role`). One file: each op's recipe makes operands by the recipes of others. */
#ifndef TESTS_UNIT_GRAPH_GEN_H
#define TESTS_UNIT_GRAPH_GEN_H

#include <stdlib.h>

#include "graph/build.h"
#include "graph/ir.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "tests/tap.h"

enum { GEN_SIZES = 4, GEN_INPUTS = 200 };
typedef enum RoleKind { ROLE_ANY, ROLE_INDEX, ROLE_POSITIVE, ROLE_SMALL } RoleKind;
typedef struct Role {
  RoleKind kind;
  int64_t limit; /* INDEX: below this */
} Role;

typedef struct Gen {
  Graph *g;
  uint64_t rng;
  bool symbolic, region, reuse, effects, writes; /* writes: to inputs */
  Dim size[GEN_SIZES];
  int64_t value[GEN_SIZES]; /* of size[], also the environment of the symbols */
  Role role[GEN_INPUTS];
  Val token; /* the last one, or none */
  int depth;
  Mem *mem; /* for gen_effect */
  GErr e;
} Gen;

static unsigned gen_rnd(Gen *x, unsigned n) {
  uint64_t drawn = tap_random(&x->rng);
  return n ? (unsigned)(drawn >> 33) % n : 0;
}

/* `zero`: sizes may be 0. Odd seeds have different sizes. */
static TAP_UNUSED void gen_open(Gen *x, Arena *a, Names *names, uint64_t seed, bool symbolic,
                                bool zero) {
  static const char *const name[GEN_SIZES] = {"A", "B", "C", "D"};
  memset(x, 0, sizeof *x);
  x->rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
  for (int i = 0; i < 9; i++) gen_rnd(x, 2);
  x->symbolic = symbolic;
  DimTab *t = dim_tab_new(a);
  for (int i = 0; i < GEN_SIZES; i++) {
    x->value[i] = (int64_t)gen_rnd(x, 5) + 1;
    for (int k = 0; seed % 2 && k < i; k++) {
      if (x->value[k] == x->value[i]) x->value[i] = x->value[i] % 7 + 1, k = -1;
    }
    if (zero && gen_rnd(x, 8) == 0) x->value[i] = 0;
    Dim s = dim_symbol(t, names_of(names, name[i]), (Span){1, (uint32_t)i, (uint32_t)i + 1}, NULL);
    x->size[i] = symbolic ? s : dim_const(t, x->value[i]);
  }
  x->g = gr_new(a, t, names, names_of(names, "g"));
  x->token = VAL_NONE;
}

static int64_t gen_value(Gen *x, Dim d) {
  int64_t v = -1;
  return dim_eval(x->g->dims, d, x->value, NULL, &v) ? v : -1;
}

static Dim gen_size(Gen *x) {
  return x->size[gen_rnd(x, GEN_SIZES)];
}

static DType gen_dtype(Gen *x, OpDomain d) {
  static const DType floats[] = {DT_F16, DT_BF16, DT_F32, DT_F64};
  static const DType ints[] = {DT_U8, DT_I8, DT_I16, DT_I32, DT_I64};
  switch (d) {
  case DOM_FLOAT: return floats[gen_rnd(x, 4)];
  case DOM_INT: return ints[gen_rnd(x, 5)];
  case DOM_BOOL: return DT_BOOL;
  case DOM_NUM: return gen_rnd(x, 2) ? floats[gen_rnd(x, 4)] : ints[gen_rnd(x, 5)];
  case DOM_ANY: break;
  }
  return (DType)gen_rnd(x, DT_COUNT);
}

static Type gen_type(DType dt, int rank, const Dim *dims) {
  Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)dt, .rank = (uint8_t)rank};
  for (int i = 0; i < rank; i++) t.dim[i] = dims[i];
  return t;
}

/* A new value of this type: an input, or a constant inside a region. */
static Val gen_fresh(Gen *x, const Type *t, Role role) {
  if (!x->region) {
    if (x->g->input_count >= GEN_INPUTS) return VAL_NONE;
    x->role[x->g->input_count] = role;
    return gr_input(x->g, t);
  }
  B b = {.g = x->g};
  Val c = gr_const_i(x->g, (DType)t->dtype, DEV_CPU, role.kind == ROLE_INDEX ? 0 : 1);
  return b_broadcast(&b, c, t->rank, t->dim);
}

/* A value of this type. */
static Val gen_want(Gen *x, const Type *t, Role role) {
  if (role.kind == ROLE_ANY && x->reuse && gen_rnd(x, 4)) {
    uint32_t n = (uint32_t)x->g->node_count, from = gen_rnd(x, n);
    for (uint32_t k = 0; k < n; k++) {
      uint32_t i = (from + k) % n;
      for (uint32_t r = 0; r < x->g->nodes[i].result_count; r++) {
        Val v = {i, r};
        if (type_eq(gr_type(x->g, v), t)) return v;
      }
    }
  }
  return gen_fresh(x, t, role);
}

/* A tensor of a dtype of the domain with rank in lo .. hi. */
static Val gen_any(Gen *x, OpDomain d, int lo, int hi) {
  if (x->reuse && gen_rnd(x, 4)) {
    uint32_t n = (uint32_t)x->g->node_count, from = gen_rnd(x, n);
    for (uint32_t k = 0; k < n; k++) {
      Val v = {(from + k) % n, 0};
      const Type *t = x->g->nodes[v.node].result_count ? gr_type(x->g, v) : NULL;
      if (!t || t->kind != TK_TENSOR || t->rank < lo || t->rank > hi || t->dev) continue;
      bool in = d == DOM_ANY || (d == DOM_FLOAT && dt_float((DType)t->dtype)) ||
                (d == DOM_NUM && t->dtype != DT_BOOL) ||
                (d == DOM_INT && dt_int((DType)t->dtype)) || (d == DOM_BOOL && t->dtype == DT_BOOL);
      if (in) return v;
    }
  }
  Dim dims[CKL_MAX_RANK];
  int rank = lo + (int)gen_rnd(x, (unsigned)(hi - lo + 1));
  for (int i = 0; i < rank; i++) dims[i] = gen_size(x);
  Type t = gen_type(gen_dtype(x, d), rank, dims);
  return gen_fresh(x, &t, (Role){ROLE_ANY, 0});
}

static Val gen_index(Gen *x, int rank, const Dim *dims, int64_t limit) {
  Type t = gen_type(DT_I64, rank, dims);
  if (limit <= 0) return VAL_NONE;
  return gen_fresh(x, &t, (Role){ROLE_INDEX, limit});
}

static Val gen_key(Gen *x, int n) {
  Dim d = dim_const(x->g->dims, n);
  Type t = gen_type(DT_I64, 1, &d);
  return gen_want(x, &t, (Role){ROLE_ANY, 0});
}

static Val gen_node(Gen *x, OpCode op, int n, const Val *v, int na, const Attr *a, int nr,
                    Graph **regions) {
  for (int i = 0; i < n; i++) {
    if (val_none(v[i])) return VAL_NONE;
  }
  Prov *at = &x->g->at;
  *at = (Prov){.origin = -1};
  if (gen_rnd(x, 3) == 0) at->span = (Span){1 + gen_rnd(x, 3), gen_rnd(x, 50), 50 + gen_rnd(x, 50)};
  if (gen_rnd(x, 4) == 0) at->path = names_of(x->g->names, "net.blocks.0");
  if (gen_rnd(x, 4) == 0) at->name = names_of(x->g->names, "h \"\\\n\x01 end");
  if (gen_rnd(x, 5) == 0) at->region = gen_rnd(x, 7);
  if (gen_rnd(x, 9) == 0) at->origin = (int32_t)gen_rnd(x, 70);
  if (gen_rnd(x, 9) == 0) at->tag = (uint8_t)gen_rnd(x, TAG_COUNT);
  at->backward = gen_rnd(x, 5) == 0;
  at->recomputed = gen_rnd(x, 9) == 0;
  return gr_op(x->g, op, v, n, a, na, regions, nr, &x->e);
}

static Val gen_op(Gen *x, OpCode op);

/* A symmetric positive definite matrix, of the type of m: m > 0 as numbers times its transpose, and
 * 1 added to the diagonal. */
static Val gen_positive(Gen *x, Val m) {
  if (val_none(m)) return VAL_NONE;
  B b = {.g = x->g};
  Type t = *gr_type(x->g, m);
  Dim n = t.dim[t.rank - 1];
  Val is = b_cast(&b, b_bin(&b, OP_GT, m, b_const(&b, m, 0)), (DType)t.dtype);
  Val s = b_op(&b, OP_DOT, 2, (Val[]){is, b_swap(&b, is)}, 0, NULL);
  Attr attrs[2] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, 1, (int64_t[]){n})};
  Val i = b_op(&b, OP_IOTA, 0, NULL, 2, attrs);
  Val rows = b_reshape(&b, i, 2, (Dim[]){n, dim_const(x->g->dims, 1)});
  Val on = b_bin(&b, OP_EQ, b_broadcast(&b, rows, 2, (Dim[]){n, n}),
                 b_broadcast(&b, i, 2, (Dim[]){n, n}));
  on = b_broadcast(&b, on, t.rank, t.dim);
  return b_where(&b, on, b_bin(&b, OP_ADD, s, b_const(&b, s, 1)), s);
}

/* A region over these inputs with a few nodes; `outs` gives what it must return (NULL:
 * anything). */
static Graph *gen_region(Gen *x, int nin, const Type *in, int nout, const Type *outs) {
  Gen y = *x;
  y.g = gr_new(x->g->arena, x->g->dims, x->g->names,
               gen_rnd(x, 2) ? names_of(x->g->names, "part") : NULL);
  y.region = y.reuse = true;
  y.token = VAL_NONE;
  y.depth = x->depth + 1;
  for (int i = 0; i < nin; i++) {
    Type t = in[i];
    t.alias = 0;
    Val v = gr_input(y.g, &t);
    if (t.kind == TK_TOKEN) y.token = v;
  }
  static const OpCode few[] = {OP_ADD,  OP_MUL,  OP_NEG,   OP_TRANSPOSE, OP_SUM,  OP_BROADCAST,
                               OP_CAST, OP_TAKE, OP_WHERE, OP_WRAP,      OP_SLICE};
  for (unsigned i = 0, n = 1 + gen_rnd(x, 4); i < n; i++) gen_op(&y, few[gen_rnd(&y, 11)]);
  x->rng = y.rng;
  for (int i = 0; i < nout; i++) {
    Val v;
    if (outs && outs[i].kind == TK_TOKEN)
      v = y.token;
    else if (outs)
      v = gen_want(&y, &outs[i], (Role){ROLE_ANY, 0});
    else
      v = gen_any(&y, DOM_ANY, 0, 3);
    gr_output(y.g, v);
  }
  x->rng = y.rng;
  return y.g;
}

static void gen_use_token(Gen *x) {
  if (val_none(x->token)) x->token = gen_node(x, OP_TOKEN, 0, NULL, 0, NULL, 0, NULL);
}

/* One node of this op with fitting operands and attributes; VAL_NONE when none fits just now. */
static Val gen_op(Gen *x, OpCode op) {
  DimTab *t = x->g->dims;
  const OpInfo *info = &op_info[op];
  Names *names = x->g->names;
  Attr a[6];
  Val v[8];
  Type ty;
  Role any = {ROLE_ANY, 0};
  int64_t l0[CKL_MAX_RANK], l1[CKL_MAX_RANK], l2[CKL_MAX_RANK];
  Dim one = dim_const(t, 1);
  if (info->cls == ELEMENTWISE) {
    if (op == OP_WHERE) {
      v[1] = gen_any(x, DOM_ANY, 0, 3);
      if (val_none(v[1])) return VAL_NONE;
      ty = *gr_type(x->g, v[1]);
      v[2] = gen_want(x, &ty, any);
      ty.dtype = DT_BOOL;
      v[0] = gen_want(x, &ty, any);
      return gen_node(x, op, 3, v, 0, NULL, 0, NULL);
    }
    v[0] = gen_any(x, info->domain, 0, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    bool whole = dt_int((DType)ty.dtype);
    if (op == OP_CAST) {
      a[0] = attr_i(AT_DTYPE, gen_dtype(x, DOM_ANY));
      return gen_node(x, op, 1, v, 1, a, 0, NULL);
    }
    if (info->arity == 1) return gen_node(x, op, 1, v, 0, NULL, 0, NULL);
    Role role = any;
    if (whole && (op == OP_FLOORDIV || op == OP_MOD)) role.kind = ROLE_POSITIVE;
    if (whole && op == OP_POW) role.kind = ROLE_SMALL;
    if (op == OP_FITS) {
      role.kind = ROLE_POSITIVE;
      ty.dtype = DT_BOOL;
    }
    v[1] = gen_want(x, &ty, role);
    return gen_node(x, op, 2, v, 0, NULL, 0, NULL);
  }
  if (info->cls == FACTOR) {
    Dim dims[3] = {gen_size(x), gen_size(x), gen_size(x)};
    int rank = 2 + (int)gen_rnd(x, 2);
    dims[rank - 1] = dims[rank - 2];
    ty = gen_type(gen_dtype(x, DOM_FLOAT), rank, dims);
    v[0] = gen_want(x, &ty, any);
    if (op == OP_CHOLESKY) v[0] = gen_positive(x, v[0]);
    a[0] = attr_i(op == OP_TRIANGULAR ? AT_UPPER : AT_ACROSS, gen_rnd(x, 2));
    a[1] = attr_i(AT_UNIT, gen_rnd(x, 2));
    if (op == OP_QR || op == OP_SVD) {
      ty.dim[rank - 2] = gen_size(x);
      v[0] = gen_want(x, &ty, any);
      a[0] = attr_i(AT_FULL, gen_rnd(x, 2));
      a[1] = attr_i(AT_VALUES, gen_rnd(x, 2));
      return gen_node(x, op, 1, v, op == OP_SVD ? 2 : 0, a, 0, NULL);
    }
    bool eigen = op == OP_EIGH || op == OP_EIG;
    if (eigen) a[0] = attr_i(AT_VALUES, gen_rnd(x, 2));
    if (op == OP_CHOLESKY || op == OP_LU || eigen) return gen_node(x, op, 1, v, eigen, a, 0, NULL);
    if (op == OP_CHOLESKY_GRAD) {
      v[0] = gen_node(x, OP_CHOLESKY, 1, (Val[]){gen_positive(x, v[0])}, 0, NULL, 0, NULL);
      v[1] = gen_want(x, &ty, any);
      return val_none(v[0]) ? VAL_NONE : gen_node(x, op, 2, v, 0, NULL, 0, NULL);
    }
    ty.dim[rank - 1] = gen_size(x);
    if (op == OP_TRIANGULAR) {
      v[1] = gen_want(x, &ty, any);
      return gen_node(x, op, 2, v, 2, a, 0, NULL);
    }
    if (op == OP_FACTOR_SOLVE) {
      v[0] = gen_positive(x, v[0]);
      v[1] = gen_want(x, &ty, any);
      return val_none(v[0]) ? VAL_NONE : gen_node(x, op, 2, v, 0, NULL, 0, NULL);
    }
    v[1] = gen_node(x, OP_LU, 1, v, 0, NULL, 0, NULL);
    v[2] = (Val){v[1].node, 1};
    v[3] = gen_want(x, &ty, any);
    return val_none(v[1]) ? VAL_NONE : gen_node(x, op, 4, v, 1, a, 0, NULL);
  }
  if (info->cls == REDUCE) {
    bool runs = op == OP_CUMSUM || op == OP_CUMMAX || op == OP_CUMMIN;
    bool axis = op == OP_ARGMAX || op == OP_ARGMIN || runs;
    v[0] = gen_any(x, info->domain, axis ? 1 : 0, 4);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    if (axis) {
      int k = (int)gen_rnd(x, ty.rank);
      if (!runs && gen_value(x, ty.dim[k]) < 1) return VAL_NONE;
      a[0] = attr_i(AT_AXIS, k);
      a[1] = attr_i(AT_REVERSE, gen_rnd(x, 2));
      return gen_node(x, op, 1, v, runs ? 2 : 1, a, 0, NULL);
    }
    int n = 0;
    for (int i = 0; i < ty.rank; i++) {
      if (gen_rnd(x, 2)) l0[n++] = i;
    }
    if (n > 1 && gen_rnd(x, 2)) l1[0] = l0[0], l0[0] = l0[n - 1], l0[n - 1] = l1[0];
    a[0] = attr_ints(AT_AXES, n, l0);
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  }
  switch (op) {
  case OP_INPUT: return gen_fresh(x, (ty = gen_type(gen_dtype(x, DOM_ANY), 1, x->size), &ty), any);
  case OP_CONST: {
    DType dt = gen_dtype(x, DOM_ANY);
    static const double values[] = {0.5, -0.0, 1, 1e300, 3.25e-5, 0, -1};
    double f = values[gen_rnd(x, 7)];
    return dt_float(dt) ? gr_const_f(x->g, dt, DEV_CPU, f)
                        : gr_const_i(x->g, dt, DEV_CPU, gen_rnd(x, 2));
  }
  case OP_DIM: return gr_dim(x->g, dim_add(t, gen_size(x), dim_mul(t, gen_size(x), gen_size(x))));
  case OP_IOTA:
    l0[0] = gen_size(x);
    a[0] = attr_i(AT_DTYPE, gen_dtype(x, DOM_NUM));
    a[1] = attr_dims(AT_DIMS, 1, l0);
    a[2] = attr_i(AT_DEVICE, DEV_CPU);
    return gen_node(x, op, 0, NULL, 3, a, 0, NULL);
  case OP_RANDOM:
  case OP_RANDINT: {
    int n = 1;
    v[0] = gen_key(x, 2);
    l0[0] = gen_size(x), l0[1] = gen_size(x);
    a[0] = attr_dims(AT_DIMS, (int)gen_rnd(x, 3), l0);
    a[1] = attr_i(AT_DTYPE, gen_dtype(x, op == OP_RANDOM ? DOM_FLOAT : DOM_INT));
    a[2] = attr_i(AT_KIND, gen_rnd(x, 2));
    if (op == OP_RANDINT) {
      ty = gen_type(DT_I64, 0, NULL);
      v[n++] = gen_want(x, &ty, (Role){ROLE_POSITIVE, 0});
    }
    return gen_node(x, op, n, v, op == OP_RANDOM ? 3 : 2, a, 0, NULL);
  }
  case OP_FOLD_IN:
    v[0] = gen_key(x, 2);
    ty = gen_type(DT_I64, 0, NULL);
    v[1] = gen_want(x, &ty, any);
    return gen_node(x, op, 2, v, 0, NULL, 0, NULL);
  case OP_PHILOX:
    v[0] = gen_key(x, 4);
    v[1] = gen_key(x, 2);
    return gen_node(x, op, 2, v, 0, NULL, 0, NULL);
  case OP_RESHAPE: {
    v[0] = gen_any(x, DOM_ANY, 0, 4);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    int n = 0;
    for (int i = 0; i < ty.rank; i++) {
      if (n && gen_rnd(x, 2))
        l0[n - 1] = dim_mul(t, (Dim)l0[n - 1], ty.dim[i]);
      else
        l0[n++] = ty.dim[i];
      if (gen_rnd(x, 4) == 0) l0[n++] = one;
    }
    a[0] = attr_dims(AT_DIMS, n, l0);
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  }
  case OP_TRANSPOSE:
  case OP_FLIP: {
    v[0] = gen_any(x, DOM_ANY, 0, 4);
    if (val_none(v[0])) return VAL_NONE;
    int rank = gr_type(x->g, v[0])->rank, n = 0;
    for (int i = 0; i < rank; i++) l0[i] = i;
    for (int i = rank - 1; i > 0; i--) {
      int k = (int)gen_rnd(x, (unsigned)i + 1);
      int64_t s = l0[i];
      l0[i] = l0[k], l0[k] = s;
    }
    n = op == OP_FLIP ? (int)gen_rnd(x, (unsigned)rank + 1) : rank;
    a[0] = attr_ints(op == OP_FLIP ? AT_AXES : AT_PERM, n, l0);
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  }
  case OP_BROADCAST: {
    Dim dims[4];
    int rank = 1 + (int)gen_rnd(x, 4), lead = (int)gen_rnd(x, (unsigned)rank + 1);
    for (int i = 0; i < rank; i++) l0[i] = dims[i] = gen_size(x);
    for (int i = lead; i < rank; i++) dims[i] = gen_rnd(x, 2) ? one : dims[i];
    ty = gen_type(gen_dtype(x, DOM_ANY), rank - lead, dims + lead);
    v[0] = gen_want(x, &ty, any);
    a[0] = attr_dims(AT_DIMS, rank, l0);
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  }
  case OP_SLICE: {
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    for (int i = 0; i < ty.rank; i++) {
      int64_t n = gen_value(x, ty.dim[i]), start = gen_rnd(x, (unsigned)n + 1);
      l2[i] = 1 + gen_rnd(x, 3);
      int64_t len = l2[i] == 1 ? n - start : (n - start + l2[i] - 1) / l2[i];
      l0[i] = dim_const(t, start);
      /* a constant, or the symbolic rest */
      bool rest = l2[i] == 1 && gen_rnd(x, 2);
      l1[i] = rest ? dim_sub(t, ty.dim[i], (Dim)l0[i]) : dim_const(t, len);
    }
    a[0] = attr_dims(AT_STARTS, ty.rank, l0);
    a[1] = attr_dims(AT_LENS, ty.rank, l1);
    a[2] = attr_ints(AT_STEPS, ty.rank, l2);
    return gen_node(x, op, 1, v, 3, a, 0, NULL);
  }
  case OP_PAD: {
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    for (int i = 0; i < ty.rank; i++) {
      l0[i] = dim_const(t, gen_rnd(x, 3));
      l1[i] = gen_rnd(x, 3) ? dim_const(t, gen_rnd(x, 3)) : gen_size(x);
      l2[i] = gen_value(x, ty.dim[i]) > 0 ? gen_rnd(x, 3) : 0;
    }
    a[0] = attr_dims(AT_LOW, ty.rank, l0);
    a[1] = attr_dims(AT_HIGH, ty.rank, l1);
    a[2] = attr_ints(AT_INNER, ty.rank, l2);
    a[3] = dt_float((DType)ty.dtype) ? attr_f(AT_VALUE, gen_rnd(x, 2) ? 0 : 1)
                                     : attr_i(AT_VALUE, gen_rnd(x, 2) ? 0 : 1);
    return gen_node(x, op, 1, v, gen_rnd(x, 2) ? 3 : 4, a, 0, NULL);
  }
  case OP_CONCAT: {
    v[0] = gen_any(x, DOM_ANY, 1, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    int k = (int)gen_rnd(x, ty.rank), n = 1 + (int)gen_rnd(x, 3);
    for (int i = 1; i < n; i++) {
      ty.dim[k] = gen_size(x);
      v[i] = gen_want(x, &ty, any);
    }
    a[0] = attr_i(AT_AXIS, k);
    return gen_node(x, op, n, v, 1, a, 0, NULL);
  }
  case OP_TAKE:
  case OP_PUT:
  case OP_PUT_ADD: {
    v[0] = gen_any(x, info->domain, 1, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    int k = 1 + (int)gen_rnd(x, ty.rank), first = op == OP_TAKE ? 1 : 2;
    int at = (int)gen_rnd(x, (unsigned)(ty.rank - k) + 1);
    Dim idx[2] = {gen_size(x), gen_size(x)};
    int rank = (int)gen_rnd(x, 3), n = 0;
    for (int i = 0; i < k; i++)
      v[first + i] = gen_index(x, rank, idx, gen_value(x, ty.dim[at + i]));
    if (first == 2) {
      Type u = gen_type((DType)ty.dtype, 0, NULL);
      for (int i = 0; i < at; i++) u.dim[n++] = ty.dim[i];
      for (int i = 0; i < rank; i++) u.dim[n++] = idx[i];
      for (int i = at + k; i < ty.rank; i++) u.dim[n++] = ty.dim[i];
      u.rank = (uint8_t)n;
      v[1] = gen_want(x, &u, any);
    }
    a[0] = attr_i(AT_AXIS, at);
    return gen_node(x, op, first + k, v, 1, a, 0, NULL);
  }
  case OP_GATHER:
  case OP_SCATTER:
  case OP_SCATTER_ADD: {
    v[0] = gen_any(x, info->domain, 1, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    int k = (int)gen_rnd(x, ty.rank);
    int64_t limit = gen_value(x, ty.dim[k]);
    ty.dim[k] = gen_size(x);
    v[1] = gen_index(x, ty.rank, ty.dim, limit);
    v[2] = op == OP_GATHER ? v[1] : gen_want(x, &ty, any);
    a[0] = attr_i(AT_AXIS, k);
    return gen_node(x, op, op == OP_GATHER ? 2 : 3, v, 1, a, 0, NULL);
  }
  case OP_SORT:
    v[0] = gen_any(x, DOM_NUM, 1, 3);
    if (val_none(v[0])) return VAL_NONE;
    a[0] = attr_i(AT_AXIS, gen_rnd(x, gr_type(x->g, v[0])->rank));
    a[1] = attr_i(AT_DESCENDING, gen_rnd(x, 2));
    return gen_node(x, op, 1, v, 2, a, 0, NULL);
  case OP_NONZERO:
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    a[0] = attr_dim(AT_MOST, gen_size(x));
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  case OP_DOT:
  case OP_INNER: {
    int least = op == OP_DOT ? 2 : 1;
    v[0] = gen_any(x, DOM_NUM, least, 4);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    if (op == OP_DOT) ty.dim[ty.rank - 2] = ty.dim[ty.rank - 1], ty.dim[ty.rank - 1] = gen_size(x);
    v[1] = gen_want(x, &ty, any);
    a[0] = attr_i(AT_COMPUTE, dt_float((DType)ty.dtype) ? gen_rnd(x, COMPUTE_TF32 + 1) : 0);
    return gen_node(x, op, 2, v, (int)gen_rnd(x, 2), a, 0, NULL);
  }
  case OP_CONV2D:
  case OP_CONV2D_INPUT:
  case OP_CONV2D_WEIGHT: {
    Dim img[4] = {gen_size(x), gen_size(x), gen_size(x), gen_size(x)};
    Dim ker[4] = {gen_size(x), img[1], dim_const(t, 1 + gen_rnd(x, 3)),
                  dim_const(t, 1 + gen_rnd(x, 3))};
    Dim res[4] = {img[0], ker[0], 0, 0};
    for (int i = 0; i < 2; i++) {
      l0[i] = 1 + gen_rnd(x, 2), l1[i] = gen_rnd(x, 3);
      if (gen_value(x, img[2 + i]) + 2 * l1[i] < gen_value(x, ker[2 + i])) return VAL_NONE;
      Dim room = dim_sub(t, dim_add(t, img[2 + i], dim_const(t, 2 * l1[i])), ker[2 + i]);
      res[2 + i] = dim_add(t, dim_floordiv(t, room, dim_const(t, l0[i])), one);
    }
    DType dt = gen_dtype(x, DOM_FLOAT);
    Type ti = gen_type(dt, 4, img), tk = gen_type(dt, 4, ker), tr = gen_type(dt, 4, res);
    v[0] = gen_want(x, op == OP_CONV2D_INPUT ? &tr : &ti, any);
    v[1] = gen_want(x, op == OP_CONV2D_WEIGHT ? &tr : &tk, any);
    for (int i = 0; i < 4; i++) l2[i] = op == OP_CONV2D_INPUT ? img[i] : ker[i];
    a[0] = attr_ints(AT_STRIDE, 2, l0);
    a[1] = attr_ints(AT_PAD, 2, l1);
    a[2] = attr_i(AT_COMPUTE, gen_rnd(x, 2));
    a[3] = attr_dims(AT_DIMS, 4, l2);
    return gen_node(x, op, 2, v, op == OP_CONV2D ? 3 : 4, a, 0, NULL);
  }
  case OP_CUSTOM:
  case OP_WRAP: {
    if (x->depth > 2) return VAL_NONE;
    Type in[12];
    int n = 1 + (int)gen_rnd(x, 3);
    for (int i = 0; i < n; i++) {
      v[i] = gen_any(x, op == OP_CUSTOM ? DOM_FLOAT : DOM_ANY, 0, 2);
      if (val_none(v[i])) return VAL_NONE;
      in[i] = *gr_type(x->g, v[i]);
    }
    int k = 1 + (int)gen_rnd(x, 2);
    Graph *r[2] = {gen_region(x, n, in, k, NULL), NULL};
    a[0] = attr_text(AT_TEXT, names_of(names, "no_grad"));
    if (op != OP_CUSTOM) return gen_node(x, op, n, v, 1, a, 1, r);
    int m = n;
    for (int i = 0; i < k; i++) in[m++] = *gr_type(r[0], r[0]->outputs[i]);
    for (int i = 0; i < k; i++) {
      if (dt_float((DType)in[n + i].dtype)) in[m++] = in[n + i];
    }
    r[1] = gen_region(x, m, in, 1, &in[0]);
    l0[0] = 0;
    a[0] = attr_ints(AT_WRT, 1, l0);
    return gen_node(x, op, n, v, 1, a, 2, r);
  }
  case OP_VERSION:
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    v[1] = gen_want(x, &ty, any);
    return gen_node(x, op, 2, v, 0, NULL, 0, NULL);
  case OP_STASH_ROWS:
    v[0] = gen_any(x, DOM_ANY, 1, 3);
    return val_none(v[0]) ? v[0] : gen_node(x, op, 1, v, 0, NULL, 0, NULL);
  case OP_STASH:
  case OP_UNSTASH:
  case OP_UNSTASH_ROWS: {
    int n = 1 + (int)gen_rnd(x, 3);
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    if (val_none(v[0])) return VAL_NONE;
    ty = *gr_type(x->g, v[0]);
    ty.alias = 0;
    for (int i = 1; i < n; i++) v[i] = gen_want(x, &ty, any);
    Val rows = gen_node(x, OP_STASH, n, v, 0, NULL, 0, NULL);
    if (op == OP_STASH || val_none(rows)) return rows;
    for (int i = 0; i < ty.rank; i++) l0[i] = ty.dim[i];
    a[0] = attr_i(AT_MAPPED, n);
    a[1] = attr_i(AT_DTYPE, ty.dtype);
    a[2] = attr_dims(AT_DIMS, ty.rank, l0);
    return gen_node(x, op, 1, &rows, 3, a, 0, NULL);
  }
  case OP_LOOP:
  case OP_BRANCH:
  case OP_MAP: {
    if (x->depth > 2) return VAL_NONE;
    Type in[8];
    int n = 1 + (int)gen_rnd(x, 3), first = op == OP_MAP ? 0 : 1;
    for (int i = first; i < first + n; i++) {
      v[i] = gen_any(x, DOM_ANY, op == OP_MAP ? 1 : 0, 2);
      if (val_none(v[i])) return VAL_NONE;
      in[i] = *gr_type(x->g, v[i]);
    }
    if (op == OP_BRANCH) {
      Type pred = gen_type(DT_BOOL, 0, NULL), out;
      v[0] = gen_want(x, &pred, any);
      Graph *r[2] = {gen_region(x, n, in + 1, 1, NULL), NULL};
      out = *gr_type(r[0], r[0]->outputs[0]);
      out.alias = 0;
      r[1] = gen_region(x, n, in + 1, 1, &out);
      return gen_node(x, op, n + 1, v, 0, NULL, 2, r);
    }
    if (op == OP_MAP) {
      ty = in[0];
      a[0] = attr_i(AT_MAPPED, 1);
      memmove(in[0].dim, in[0].dim + 1, sizeof in[0].dim[0] * --in[0].rank);
      Graph *r = gen_region(x, n, in, 1, NULL);
      return gen_node(x, op, n, v, 1, a, 1, &r);
    }
    Type count = gen_type(DT_I64, 0, NULL);
    v[0] = gen_want(x, &count, (Role){ROLE_SMALL, 0});
    in[0] = count;
    int carry = 1 + (int)gen_rnd(x, (unsigned)n);
    Graph *r = gen_region(x, n + 1, in, carry, in + 1);
    a[0] = attr_i(AT_CARRY, carry);
    return gen_node(x, op, n + 1, v, 1, a, 1, &r);
  }
  case OP_HOOK: {
    if (x->region) return VAL_NONE;
    int carry = 1 + (int)gen_rnd(x, 2);
    v[0] = gen_any(x, DOM_ANY, 0, 2);
    v[1] = gen_any(x, DOM_ANY, 0, 2);
    a[0] = attr_text(AT_TEXT, names_of(names, "hook"));
    a[1] = attr_i(AT_CARRY, carry);
    a[2] = attr_i(AT_INDEX, 3);
    return gen_node(x, op, 2, v, 3, a, 0, NULL);
  }
  case OP_PLACE:
    v[0] = gen_any(x, DOM_ANY, 0, 3);
    a[0] = attr_i(AT_DEVICE, DEV_SPILL);
    v[0] = gen_node(x, op, 1, v, 1, a, 0, NULL);
    a[0] = attr_i(AT_DEVICE, DEV_CPU);
    return gen_node(x, op, 1, v, 1, a, 0, NULL);
  case OP_TOKEN: return x->region ? VAL_NONE : gen_node(x, op, 0, NULL, 0, NULL, 0, NULL);
  case OP_CALL:
  case OP_DEFER:
  case OP_PRINT:
  case OP_ASSERT: {
    if (x->region) return VAL_NONE;
    gen_use_token(x);
    int64_t types[2] = {DT_F32, DT_BOOL};
    v[0] = x->token;
    ty = gen_type(DT_BOOL, 0, NULL);
    v[1] = op == OP_ASSERT ? gen_want(x, &ty, (Role){ROLE_POSITIVE, 0}) : gen_any(x, DOM_ANY, 0, 2);
    l0[0] = 2, l0[1] = 0;
    l1[0] = gen_size(x), l1[1] = gen_size(x);
    a[0] = attr_text(AT_TEXT, names_of(names, "host \t text"));
    a[1] = attr_ints(AT_DTYPE, 2, types);
    a[2] = attr_ints(AT_INDEX, 2, l0);
    a[3] = attr_dims(AT_DIMS, 2, l1);
    Val r = gen_node(x, op, 2, v, op == OP_CALL ? 4 : 1, a, 0, NULL);
    if (!val_none(r)) x->token = r;
    return r;
  }
  case OP_WRITE: {
    if (x->region || !x->writes) return VAL_NONE;
    gen_use_token(x);
    l0[0] = gen_size(x), l0[1] = gen_size(x);
    ty = gen_type(gen_dtype(x, DOM_ANY), 2, (Dim[]){(Dim)l0[0], (Dim)l0[1]});
    if (x->g->input_count && gen_rnd(x, 2))
      v[1] = x->g->inputs[gen_rnd(x, (unsigned)x->g->input_count)];
    else
      v[1] = gen_fresh(x, &ty, (Role){ROLE_ANY, 0});
    if (val_none(v[1]) || gr_type(x->g, v[1])->kind != TK_TENSOR) return VAL_NONE;
    ty = *gr_type(x->g, v[1]);
    ty.alias = 0;
    v[0] = x->token;
    v[2] = gen_want(x, &ty, (Role){ROLE_ANY, 0});
    Val r = gen_node(x, op, 3, v, 0, NULL, 0, NULL);
    if (!val_none(r)) x->token = r;
    return r;
  }
  default: return VAL_NONE;
  }
}

/* A graph of about n nodes of all ops; every second value without users is an output. */
static TAP_UNUSED void gen_graph(Gen *x, int n) {
  x->reuse = true;
  for (int i = 0; i < n; i++) {
    OpCode op = (OpCode)gen_rnd(x, OP_COUNT);
    if (!x->effects && (op_info[op].traits & T_EFFECT)) continue;
    if (!x->effects && op == OP_TOKEN) continue;
    gen_op(x, op);
  }
  bool *used = ARENA_ARRAY(x->g->arena, bool, x->g->type_count + 1);
  for (size_t i = 0; i < x->g->operand_count; i++) {
    Val v = x->g->operands[i];
    used[x->g->nodes[v.node].result0 + v.res] = true;
  }
  for (uint32_t i = 0; i < x->g->node_count; i++) {
    for (uint32_t r = 0; r < x->g->nodes[i].result_count; r++) {
      const Type *t = &x->g->types[x->g->nodes[i].result0 + r];
      if (used[x->g->nodes[i].result0 + r] || t->kind == TK_TOKEN || gen_rnd(x, 2)) continue;
      gr_output(x->g, (Val){i, r});
    }
  }
  if (!val_none(x->token)) gr_output(x->g, x->token);
}

/* One op, whose results are the outputs. */
static TAP_UNUSED Val gen_single(Gen *x, Arena *a, Names *names, uint64_t seed, bool symbolic,
                                 OpCode op) {
  gen_open(x, a, names, seed, symbolic, seed % 3 == 0);
  x->writes = true;
  Val v = gen_op(x, op);
  if (val_none(v)) return v;
  for (uint32_t i = 0; i < x->g->nodes[v.node].result_count; i++) gr_output(x->g, (Val){v.node, i});
  return v;
}

/* RunCtx.effect with the Gen as `ud`: host calls give zeros of the declared types. */
static TAP_UNUSED bool gen_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n,
                                  Tensor **out, GErr *e) {
  Gen *x = ud;
  (void)e;
  (void)n;
  for (uint32_t i = 0; i < g->nodes[node].result_count; i++) {
    const Type *t = gr_type(g, (Val){node, i});
    int64_t dim[CKL_MAX_RANK];
    if (t->kind == TK_TOKEN) continue;
    if (g->nodes[node].op == OP_DEFER) {
      out[i] = tn_ref(in[1]);
      continue;
    }
    for (int k = 0; k < t->rank; k++) dim[k] = gen_value(x, t->dim[k]);
    out[i] = tn_zeros(x->mem, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  }
  return true;
}

/* The tensor of input i: numbers by its role, the same for the same seed. */
static TAP_UNUSED Tensor *gen_tensor(Gen *x, Mem *m, size_t i, uint64_t seed) {
  const Type *t = gr_type(x->g, x->g->inputs[i]);
  int64_t dim[CKL_MAX_RANK];
  if (t->kind == TK_TOKEN) return NULL;
  for (int k = 0; k < t->rank; k++) dim[k] = gen_value(x, t->dim[k]);
  Tensor *out = tn_new(m, (Device)t->dev, (DType)t->dtype, t->rank, dim);
  if (!out) return NULL;
  Gen y = {.rng = seed * 77 + 5 + i * UINT64_C(0x9e3779b97f4a7c15)};
  for (int k = 0; k < 9; k++) gen_rnd(&y, 2);
  static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 65504, 3e38};
  char *data = tn_data(out);
  for (int64_t k = 0, n = tn_count(out); k < n; k++) {
    double f = ((double)gen_rnd(&y, 2001) - 1000) / 250;
    if (gen_rnd(&y, 30) == 0) f = odd[gen_rnd(&y, 10)];
    int64_t w = (int64_t)gen_rnd(&y, 41) - 20;
    Role r = x->role[i];
    if (r.kind == ROLE_INDEX) w = gen_rnd(&y, (unsigned)r.limit);
    if (r.kind == ROLE_POSITIVE) w = 1 + gen_rnd(&y, 9);
    if (r.kind == ROLE_SMALL) w = gen_rnd(&y, 4);
    if (t->dtype == DT_BOOL) w = r.kind == ROLE_POSITIVE ? 1 : gen_rnd(&y, 2);
    bool is_float = dt_float((DType)t->dtype);
    Tensor *s = is_float ? tn_scalar_f64(m, DEV_CPU, (DType)t->dtype, f)
                         : tn_scalar_i64(m, DEV_CPU, (DType)t->dtype, w);
    memcpy(data + (size_t)k * dt_size((DType)t->dtype), tn_data(s), dt_size((DType)t->dtype));
    tn_unref(s);
  }
  return out;
}

#endif
