/* Folding: constants are computed, nodes that change nothing are removed, movements are joined.
 * Simplifying folds and merges (graph/cse.c) in one walk, then joins (graph/join_rows.c,
 * graph/join.c).
 *
 * In: a graph. Out: a graph with the same inputs, outputs and bits (rule 104: only the payload of
 * a NaN may differ). Each node is visited once, in order, after its operands; a rule returns the
 * value that replaces it, or nothing. A replacement must have exactly the type of the result.
 * Tagged nodes and recomputed copies stay; `alias` and `stop` stay, since gradients depend on them.
 * Constants run through the reference kernels, so their bits are those of the evaluator.
 * Not folded, because bits would change: x + 0 (x may be -0), x - (-0), 0 * x, x - x, sums over no
 * axes. Dead nodes are left for dce.
 */
#include <math.h>

#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "graph/run_op.h"

typedef struct Fold {
  Arena *a;
  const Graph *g;
  Graph *d;
  ValMap map;
  Merge *merge;  /* of d; NULL: nodes are only folded */
  uint32_t node; /* of g */
  const GNode *n;
  const Val *in;    /* operands in d */
  const Type *type; /* of result 0 */
} Fold;

static OpCode op_of(Fold *f, Val v) {
  return (OpCode)f->d->nodes[v.node].op;
}

static const Type *type_at(Fold *f, Val v) {
  return gr_type(f->d, v);
}

static Val under(Fold *f, Val v) {
  return gr_operand(f->d, v.node, 0);
}

static const Attr *attr_at(Fold *f, Val v, AttrKey k) {
  return gr_attr(f->d, v.node, k);
}

/* The literal that v is, or whose broadcast v is. */
static const Attr *literal(Fold *f, Val v) {
  if (op_of(f, v) == OP_BROADCAST) v = under(f, v);
  return op_of(f, v) == OP_CONST ? attr_at(f, v, AT_VALUE) : NULL;
}

static bool is_float(Fold *f, Val v, double x, bool minus_zero) {
  const Attr *a = literal(f, v);
  return a && a->kind == AK_FLOAT && a->u.f == x && (x != 0 || !!signbit(a->u.f) == minus_zero);
}

static bool is_int(Fold *f, Val v, int64_t x) {
  const Attr *a = literal(f, v);
  return a && a->kind == AK_INT && a->u.i == x;
}

static bool is_one(Fold *f, Val v) {
  return is_float(f, v, 1, false) || is_int(f, v, 1);
}

/* Returns v, the value of the last node, or that of an equal node if nodes are merged. */
static Val merged(Fold *f, Val v) {
  return f->merge && !val_none(v) ? merge_last(f->merge) : v;
}

static Val make(Fold *f, OpCode op, Val x, const Attr *attrs, int n) {
  f->d->at = f->g->provs[f->n->prov];
  return merged(f, gr_op(f->d, op, &x, 1, attrs, n, NULL, 0, NULL));
}

static Val make_dims(Fold *f, OpCode op, Val x) {
  int64_t dim[CKL_MAX_RANK];
  for (int i = 0; i < f->type->rank; i++) dim[i] = f->type->dim[i];
  Attr a[2] = {attr_dims(AT_DIMS, f->type->rank, dim), attr_i(AT_DEVICE, f->type->dev)};
  return make(f, op, x, a, op == OP_BROADCAST && type_at(f, x)->dev != f->type->dev ? 2 : 1);
}

/* ---- constants */
static Val constant(Fold *f, const Tensor *t) {
  DType dt = t->dtype;
  f->d->at = f->g->provs[f->n->prov];
  Device dev = (Device)f->type->dev;
  return merged(f, dt_float(dt) ? gr_const_f(f->d, dt, dev, tn_get_f64(t, 0))
                                : gr_const_i(f->d, dt, dev, tn_get_i64(t, 0)));
}

static void unref(void *t) {
  tn_unref(t);
}

/* Folds an elementwise op of literals, all single numbers or all broadcast to the same dims. */
static Val compute(Fold *f) {
  const GNode *n = f->n;
  if (op_info[n->op].cls != ELEMENTWISE || n->op == OP_STOP || n->op == OP_ALIAS ||
      n->operand_count < 1 || n->operand_count > 3 || f->type->dev != DEV_CPU ||
      f->g->provs[n->prov].anomaly) { /* only nodes that run are watched for NaN */
    return VAL_NONE;
  }
  for (uint32_t i = 0; i < n->operand_count; i++) {
    if (!literal(f, f->in[i])) return VAL_NONE;
  }
  /* Tensors go on the pool, since making nodes may throw. */
  Mem *m = f->a->mem;
  size_t mark = mem_pool_mark(m);
  Tensor *in[3] = {NULL, NULL, NULL}, *out = NULL;
  RunCtx c = {.mem = m};
  GErr e;
  Val v = VAL_NONE;
  for (uint32_t i = 0; i < n->operand_count; i++) {
    const Attr *x = literal(f, f->in[i]);
    DType dt = (DType)type_at(f, f->in[i])->dtype;
    in[i] = x->kind == AK_FLOAT ? tn_scalar_f64(m, DEV_CPU, dt, x->u.f)
                                : tn_scalar_i64(m, DEV_CPU, dt, x->u.i);
    if (!in[i]) mem_throw(m, MEM_ERR_NOMEM);
    mem_pool_add(m, in[i], unref);
  }
  if (gr_run_op(&c, f->d->dims, (OpCode)n->op, f->g->attrs + n->attr0, n->attr_count, in,
                (int)n->operand_count, &out, 1, &e)) {
    mem_pool_add(m, out, unref);
    v = constant(f, out);
    if (!val_none(v) && f->type->rank) v = make_dims(f, OP_BROADCAST, v);
  } else if (e.nomem) {
    mem_throw(m, MEM_ERR_NOMEM);
  } /* else the node fails at run time, with its own message */
  mem_pool_drain(m, mark);
  return v;
}

/* ---- identities, by class */
static bool lossless(DType from, DType mid) {
  if (from == mid || from == DT_BOOL) return true;
  if (dt_int(from) && dt_int(mid)) {
    if (from == DT_U8) return dt_size(mid) > 1;
    return mid != DT_U8 && dt_size(mid) >= dt_size(from);
  }
  if (!dt_float(mid)) return false;
  if (dt_int(from)) {
    int digits = from == DT_U8 ? 8 : (int)dt_size(from) * 8 - 1;
    int held = mid == DT_F64 ? 53 : mid == DT_F32 ? 24 : mid == DT_F16 ? 11 : 8;
    return digits <= held;
  }
  return mid == DT_F64 || (mid == DT_F32 && from != DT_F64);
}

static Val fold_cast(Fold *f) {
  Val x = f->in[0];
  DType to = (DType)f->type->dtype;
  if (type_at(f, x)->dtype == to) return x;
  if (op_of(f, x) != OP_CAST) return VAL_NONE;
  Val y = under(f, x);
  DType from = (DType)type_at(f, y)->dtype;
  if (!lossless(from, (DType)type_at(f, x)->dtype)) return VAL_NONE;
  if (from == to) return y;
  Attr a = attr_i(AT_DTYPE, to);
  return make(f, OP_CAST, y, &a, 1);
}

static Val fold_elementwise(Fold *f) {
  OpCode op = (OpCode)f->n->op;
  Val x = f->in[0], y = f->n->operand_count > 1 ? f->in[1] : VAL_NONE;
  bool same = f->n->operand_count == 2 && val_eq(x, y);
  switch (op) {
  case OP_ADD:
    if (is_float(f, y, 0, true) || is_int(f, y, 0)) return x;
    if (is_float(f, x, 0, true) || is_int(f, x, 0)) return y;
    break;
  case OP_SUB:
    if (is_float(f, y, 0, false) || is_int(f, y, 0)) return x;
    break;
  case OP_MUL:
    if (is_one(f, y)) return x;
    if (is_one(f, x)) return y;
    if (is_int(f, y, 0)) return y;
    if (is_int(f, x, 0)) return x;
    break;
  case OP_DIV:
    if (is_one(f, y)) return x;
    break;
  case OP_FLOORDIV:
    if (is_int(f, y, 1)) return x;
    break;
  case OP_NEG:
  case OP_NOT:
    if (op_of(f, x) == op) return under(f, x);
    break;
  case OP_ABS:
  case OP_RELU:
  case OP_SIGN:
  case OP_FLOOR:
  case OP_CEIL:
  case OP_ROUND:
    if (op_of(f, x) == op) return x;
    if (op == OP_ABS && op_of(f, x) == OP_NEG && dt_float((DType)f->type->dtype)) {
      return make(f, OP_ABS, under(f, x), NULL, 0);
    }
    break;
  case OP_MAX:
  case OP_MIN:
  case OP_AND:
  case OP_OR:
    if (same) return x;
    if (op == OP_AND && is_int(f, y, 1)) return x;
    if (op == OP_AND && is_int(f, x, 1)) return y;
    if (op == OP_OR && is_int(f, y, 0)) return x;
    if (op == OP_OR && is_int(f, x, 0)) return y;
    break;
  case OP_WHERE:
    if (is_int(f, x, 1)) return f->in[1];
    if (is_int(f, x, 0)) return f->in[2];
    if (val_eq(f->in[1], f->in[2])) return f->in[1];
    break;
  case OP_CAST: return fold_cast(f);
  default: break;
  }
  return VAL_NONE;
}

static Val fold_transpose(Fold *f) {
  Val x = f->in[0];
  const int64_t *perm = gr_attr(f->g, f->node, AT_PERM)->u.ints;
  int rank = f->type->rank;
  bool moves = false;
  for (int i = 0; i < rank; i++) moves = moves || perm[i] != i;
  if (!moves) return x;
  if (op_of(f, x) == OP_TRANSPOSE) {
    const int64_t *inner = attr_at(f, x, AT_PERM)->u.ints;
    int64_t both[CKL_MAX_RANK];
    moves = false;
    for (int i = 0; i < rank; i++) {
      both[i] = inner[perm[i]];
      moves = moves || both[i] != i;
    }
    if (!moves) return under(f, x);
    Attr a = attr_ints(AT_PERM, rank, both);
    return make(f, OP_TRANSPOSE, under(f, x), &a, 1);
  }
  if (op_of(f, x) == OP_BROADCAST && type_at(f, under(f, x))->rank == 0) {
    return make_dims(f, OP_BROADCAST, under(f, x));
  }
  return VAL_NONE;
}

static Val fold_slice(Fold *f) {
  Val x = f->in[0];
  DimTab *t = f->d->dims;
  const int64_t *start = gr_attr(f->g, f->node, AT_STARTS)->u.ints;
  const int64_t *len = gr_attr(f->g, f->node, AT_LENS)->u.ints;
  const int64_t *step = gr_attr(f->g, f->node, AT_STEPS)->u.ints;
  int rank = f->type->rank;
  bool whole = true;
  for (int i = 0; i < rank; i++) {
    int64_t s;
    whole = whole && dim_is_const(t, (Dim)start[i], &s) && s == 0 && step[i] == 1 &&
            (Dim)len[i] == type_at(f, x)->dim[i];
  }
  if (whole) return x;
  if (op_of(f, x) != OP_SLICE) return VAL_NONE;
  const int64_t *start0 = attr_at(f, x, AT_STARTS)->u.ints,
                *step0 = attr_at(f, x, AT_STEPS)->u.ints;
  int64_t s[CKL_MAX_RANK], by[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) {
    int64_t n;
    bool known = dim_is_const(t, (Dim)len[i], &n);
    if (!known && step0[i] != 1) return VAL_NONE; /* an empty slice may start beyond the end */
    if (known && n == 0) {
      s[i] = start0[i];
      by[i] = 1;
      continue;
    }
    Dim d = dim_add(t, (Dim)start0[i], dim_mul(t, (Dim)start[i], dim_const(t, step0[i])));
    if (d == DIM_BAD || __builtin_mul_overflow(step[i], step0[i], &by[i])) return VAL_NONE;
    s[i] = d;
  }
  Attr a[3] = {attr_dims(AT_STARTS, rank, s), attr_dims(AT_LENS, rank, len),
               attr_ints(AT_STEPS, rank, by)};
  return make(f, OP_SLICE, under(f, x), a, 3);
}

static Val fold_flip(Fold *f) {
  Val x = f->in[0];
  const Attr *a = gr_attr(f->g, f->node, AT_AXES);
  if (a->count == 0) return x;
  if (op_of(f, x) != OP_FLIP) return VAL_NONE;
  const Attr *b = attr_at(f, x, AT_AXES);
  unsigned once = 0, twice = 0;
  for (uint32_t i = 0; i < a->count; i++) once |= 1u << a->u.ints[i];
  for (uint32_t i = 0; i < b->count; i++) twice |= 1u << b->u.ints[i];
  return once == twice ? under(f, x) : VAL_NONE;
}

static Val fold_move(Fold *f) {
  OpCode op = (OpCode)f->n->op;
  Val x = f->in[0];
  switch (op) {
  case OP_RESHAPE:
    if (type_eq(type_at(f, x), f->type)) return x;
    if (op_of(f, x) == OP_RESHAPE) {
      return type_eq(type_at(f, under(f, x)), f->type) ? under(f, x)
                                                       : make_dims(f, op, under(f, x));
    }
    if (op_of(f, x) == OP_BROADCAST && type_at(f, under(f, x))->rank == 0) {
      return make_dims(f, OP_BROADCAST, under(f, x));
    }
    break;
  case OP_BROADCAST:
    if (type_eq(type_at(f, x), f->type)) return x;
    if (op_of(f, x) == OP_BROADCAST) return make_dims(f, op, under(f, x));
    break;
  case OP_TRANSPOSE: return fold_transpose(f);
  case OP_SLICE: return fold_slice(f);
  case OP_FLIP: return fold_flip(f);
  case OP_PAD: return type_eq(type_at(f, x), f->type) ? x : VAL_NONE;
  case OP_CONCAT: return f->n->operand_count == 1 ? x : VAL_NONE;
  default: break;
  }
  return VAL_NONE;
}

static Val replacement(Fold *f) {
  const Prov *p = &f->g->provs[f->n->prov];
  OpCode op = (OpCode)f->n->op;
  int64_t k;
  if (p->tag != TAG_NONE || p->recomputed || f->n->result_count != 1) return VAL_NONE;
  if (op == OP_DIM && dim_is_const(f->d->dims, (Dim)gr_attr(f->g, f->node, AT_SIZE)->u.i, &k)) {
    f->d->at = *p;
    return merged(f, gr_const_i(f->d, DT_I64, DEV_CPU, k));
  }
  if (f->n->operand_count == 0) return VAL_NONE;
  Val v = compute(f);
  if (val_none(v) && op_info[op].cls == ELEMENTWISE) v = fold_elementwise(f);
  if (val_none(v) && op_info[op].cls == MOVE) v = fold_move(f);
  return v;
}

/* Folds; with `simplify` it also merges equal nodes and drops unneeded ones. */
static Graph *walk(Arena *a, const Graph *from, bool simplify) {
  stack_check();
  Fold f = {.a = a, .g = from, .d = copy_start(a, from), .map = map_new(a, from)};
  const bool *live = simplify ? live_results(a, from) : NULL;
  if (simplify) f.merge = merge_new(a, f.d, from->node_count);
  for (uint32_t i = 0; i < from->node_count; i++) {
    const GNode *n = &from->nodes[i];
    if (live && !node_live(from, i, live)) continue;
    Val few[8], *in = n->operand_count <= 8 ? few : ARENA_ARRAY(a, Val, n->operand_count);
    for (uint32_t k = 0; k < n->operand_count; k++)
      in[k] = map_get(&f.map, from->operands[n->operand0 + k]);
    f.node = i;
    f.n = n;
    f.in = in;
    f.type = n->result_count ? &from->types[n->result0] : NULL;
    Val v = replacement(&f);
    if (!val_none(v) && type_eq(type_at(&f, v), f.type)) {
      f.map.to[n->result0] = v;
      continue;
    }
    Graph **regions = n->region_count ? ARENA_ARRAY(a, Graph *, n->region_count) : NULL;
    for (uint32_t k = 0; k < n->region_count; k++)
      regions[k] = walk(a, from->regions[n->region0 + k], simplify);
    v = merged(&f, copy_node(f.d, &f.map, i, regions));
    for (uint32_t k = 0; k < n->result_count; k++) f.map.to[n->result0 + k] = (Val){v.node, k};
  }
  copy_checks(f.d, from);
  copy_outputs(f.d, &f.map);
  f.d->at = from->at;
  return f.d;
}

Graph *gr_fold(Arena *a, const Graph *from) {
  return gr_checked(walk(a, from, false), "fold");
}

typedef struct Simplify {
  Arena *keep, temp; /* temp: for the intermediate graph */
  const Graph *g;
  Graph *made;
} Simplify;

static void simplify_job(void *ud) {
  Simplify *x = ud;
  x->made = gr_join(x->keep, gr_dce(x->keep, gr_rows(&x->temp, walk(&x->temp, x->g, true))));
}

Graph *gr_simplify(Arena *a, const Graph *g) {
  Simplify x = {.keep = a, .g = g};
  arena_init(&x.temp, a->mem);
  int code = mem_protect(a->mem, simplify_job, &x);
  arena_free(&x.temp);
  if (code != MEM_OK) mem_throw(a->mem, code);
  return x.made;
}
