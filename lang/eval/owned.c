/* Values that the place that is assigned alone holds, changed where they are.
 *
 * In: a value at the root of an assigned place, or below it, and what it becomes. Out: the same
 * object, changed. Nobody sees it (rule 34): an object with one reference has one holder, since
 * variables, elements, captures, running loops and calls, the tape and the host each count; what
 * the statement itself has read is released before (owned_settle). So 10^6 pushes cost what they
 * append, and an element that is written no copy of the rest. Only in script: values of code are
 * nodes of a graph. Invariant: what can fail comes before the first change.
 */
#include "lang/eval/owned.h"

#include <string.h>

#include "graph/opcode.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/lang.h"
#include "lang/value/dict.h"
#include "runtime/reference/ref.h"

/* ---- who holds a value */

void owned_settle(Session *s, size_t mark, size_t n, const Value *keep) {
  bool some = false;
  for (size_t i = 0; i < n; i++) some |= v_counted(keep[i]);
  if (some) mem_pool_reserve(&s->mem, n);
  for (size_t i = 0; i < n && some; i++) value_retain(keep[i]);
  mem_pool_drain(&s->mem, mark);
  for (size_t i = 0; i < n && some; i++) {
    value_pool(s, keep[i]);
    value_release(keep[i]);
  }
}

bool owned_alone(const Session *s, Value v) {
  return owned_on(s) && v_counted(v) && v.u.o->rc == 1;
}

/* ---- lists and records */

uint32_t owned_parts(Value v) {
  return v_counted(v) ? v.u.o->parts : 0;
}

void owned_lose(Obj *of, uint32_t parts) {
  uint32_t gone = parts < UINT32_MAX ? parts + 1 : UINT32_MAX;
  if (of->parts < UINT32_MAX) of->parts -= gone < of->parts ? gone : of->parts;
}

void owned_item(Obj *of, Value *slot, Value v, uint32_t before) {
  owned_lose(of, before);
  obj_holds(of, v);
  value_set(slot, v);
}

static void list_room(Session *s, List *l, size_t n) {
  if (l->cap - l->count >= n) return;
  size_t cap = l->count + n < 8 ? 8 : l->count + n < 2 * l->cap ? 2 * l->cap : l->count + n;
  l->items = mem_need(&s->mem, l->items, l->cap * sizeof(Value), cap * sizeof(Value));
  l->cap = cap;
}

void owned_room(Session *s, Value v, size_t n) {
  if (v.tag == V_LIST)
    list_room(s, v.u.list, n);
  else
    dict_room(s, v.u.dict, n);
}

void owned_push(Session *s, List *l, size_t n, const Value *v) {
  list_room(s, l, n);
  for (size_t i = 0; i < n; i++) {
    value_retain(v[i]);
    l->items[l->count++] = v[i];
    obj_holds(&l->o, v[i]);
  }
  l->weak = false;
}

void owned_grow(Session *s, Value of, Value more) {
  size_t n;
  const Value *items = value_items(more, &n);
  if (of.tag == V_LIST)
    owned_push(s, of.u.list, n, items);
  else
    for (size_t i = 0; i < n; i++) dict_put(s, of.u.dict, more.u.dict->keys[i], items[i]);
}

void owned_insert(Session *s, List *l, size_t i, Value v) {
  bool weak = l->weak && (v.tag == V_INT || v.tag == V_FLOAT);
  owned_push(s, l, 1, &v);
  memmove(l->items + i + 1, l->items + i, (l->count - 1 - i) * sizeof *l->items);
  l->items[i] = v;
  l->weak = weak;
}

void owned_remove(List *l, size_t i) {
  Value gone = l->items[i];
  l->count--;
  memmove(l->items + i, l->items + i + 1, (l->count - i) * sizeof *l->items);
  l->weak &= l->count > 0;
  owned_lose(&l->o, owned_parts(gone));
  value_release(gone);
}

Value owned_text(Session *s, Value text, const StrObj *more) {
  StrObj *t = text.u.str;
  if (t->cap - t->n < more->n) {
    text = v_str_room(s, t->s, t->n, t->n + more->n + t->n / 2 + 16);
    t = text.u.str;
  }
  memcpy(t->s + t->n, more->s, more->n + 1);
  t->n += more->n;
  t->chars += more->chars;
  return text;
}

/* ---- calls that do not fail */

Sure owned_sure_of(Value v) {
  size_t n = v.tag == V_LIST ? v.u.list->count : 0;
  return (Sure){.v = v, .before = n, .count = n, .most = n, .sure = true};
}

static bool sure_of_list(Sure *m, const Builtin *b, const Args *a) {
  const Value *v = a->v;
  size_t n;
  if (b->fn == bi_push || b->fn == bi_concat) {
    size_t more = b->fn == bi_push;
    if (more ? a->count != 2 : a->count < 2 || m->v.u.list->weak || !m->count) return false;
    for (size_t i = 1; i < a->count && !more; more += n, i++)
      if (v[i].tag != V_LIST)
        return false;
      else
        value_items(v[i], &n);
    m->count += more;
    m->fresh += more;
  } else if (b->fn == bi_pop) {
    if (a->count != 1 || !m->count) return false;
    m->mixed |= m->fresh > 0;
    m->fresh -= m->fresh > 0;
    m->count--;
  } else {
    bool in = b->fn == bi_insert;
    if ((!in && b->fn != bi_remove_at) || a->count != (in ? 3 : 2)) return false;
    if (v[1].tag != V_INT || v[1].u.i < 0 || (uint64_t)v[1].u.i >= m->count + in) return false;
    m->mixed |= in || (uint64_t)v[1].u.i >= m->count - m->fresh;
    m->count = in ? m->count + 1 : m->count - 1;
  }
  if (m->count > m->most) m->most = m->count;
  return true;
}

static bool sure_of_dict(Session *s, Sure *m, const Builtin *b, const Args *a) {
  if (a->count != 2) return false;
  Value v = a->v[1];
  if (b->fn == bi_merge || b->fn == bi_add) {
    if (b->fn == bi_merge ? v.tag != V_DICT : !dict_is_key(v) || !value_bounded(s, m->v))
      return false;
    m->mixed |= m->fresh > 0;
    m->fresh += b->fn == bi_merge ? v.u.dict->count : 1;
    m->most = m->fresh;
    return true;
  }
  if (b->fn != bi_remove_key || !dict_is_key(v) || !dict_find(m->v.u.dict, v)) return false;
  for (size_t i = 0; i < m->gone_n; i++)
    if (value_same(m->gone[i], v)) return false;
  VEC_PUSH(&s->scratch, m->gone, m->gone_n, m->gone_cap, v);
  m->mixed |= m->fresh > 0;
  return true;
}

void owned_sure(Session *s, Sure *m, const Builtin *b, const Args *a) {
  for (size_t i = 1; i < a->count; i++) {
    Value v = a->v[i]; /* what has params changes when they are written */
    m->sure &= !a->names[i] && v.tag != V_PARAM && !(v_counted(v) && v.u.o->params);
  }
  m->sure = m->sure && (m->v.tag == V_LIST ? sure_of_list(m, b, a) : sure_of_dict(s, m, b, a));
}

/* ---- elements of tensors */

/* The only tensor of its bytes, each element in a place of its own, which nobody else holds and no
 * gradient needs. */
static bool own_tensor(const Tensor *t) {
  bool alone = t->rc == 1 && t->store->rc == 1 && !t->store->foreign_free;
  return alone && t->store->dev == DEV_CPU && tn_is_contiguous(t);
}

/* An int of script: a number, or a tensor of rank 0 that no gradient can need. */
static bool int_of(Value v, int64_t *i) {
  if (v.tag == V_INT) {
    *i = v.u.i;
    return true;
  }
  if (v.tag != V_TENSOR || v.u.t->t->rank || !dt_int(v.u.t->t->dtype)) return false;
  *i = tn_get_i64(v.u.t->t, 0);
  return true;
}

/* A bound of a slice; `none` if it is absent. */
static bool bound_of(const Node *n, Value v, int64_t size, int64_t none, int64_t *i) {
  if (!n) {
    *i = none;
    return true;
  }
  if (!int_of(v, i)) return false;
  if (index_from_end(n)) *i += size;
  return *i >= 0 && *i <= size;
}

/* The part of t that ints and slices select: its rank, dims, strides and offset. */
typedef struct Region {
  int rank;
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK], offset;
} Region;

static bool region_of(const Tensor *t, const Index *index, Region *r) {
  *r = (Region){.offset = t->offset};
  if (index->count > (size_t)t->rank) return false;
  for (int k = 0; k < t->rank; k++) {
    int64_t size = t->dim[k], lo = 0, hi = size, step = 1;
    if ((size_t)k < index->count) {
      const IndexPart *p = &index->part[k];
      const Node *n = p->node;
      if (n->kind == N_SLICE) {
        if (!bound_of(n->slice.lo, p->lo, size, 0, &lo) ||
            !bound_of(n->slice.hi, p->hi, size, size, &hi) || lo > hi)
          return false;
        if (n->slice.step && (p->step.tag != V_INT || (step = p->step.u.i) <= 0)) return false;
      } else {
        if (!ast_is_expr(n) || !int_of(p->v, &lo)) return false;
        if (index_from_end(n)) lo += size;
        if (lo < 0 || lo >= size) return false;
        r->offset += lo * t->stride[k];
        continue;
      }
    }
    r->offset += lo * t->stride[k];
    r->dim[r->rank] = (hi - lo + step - 1) / step;
    r->stride[r->rank++] = step * t->stride[k];
  }
  return true;
}

/* The new element of a dtype that most programs have. False: the general way. */
static bool one_number(DType d, void *at, AstOp op, Value v) {
  bool minus = op == AST_SUB;
  if (op != AST_NONE && op != AST_ADD && !minus) return false;
  if (v.tag == V_INT && d == DT_I64) {
    uint64_t x = (uint64_t)v.u.i, old = *(uint64_t *)at;
    *(uint64_t *)at = op == AST_NONE ? x : minus ? old - x : old + x;
    return true;
  }
  double x = v.tag == V_FLOAT ? v.u.f : (double)v.u.i;
  if (v.tag != V_FLOAT && (v.tag != V_INT || v.u.i < -(1 << 24) || v.u.i > 1 << 24)) return false;
  if (d == DT_F64) {
    double *p = at;
    *p = op == AST_NONE ? x : *p + (minus ? -x : x);
    return true;
  }
  if (d == DT_F32) {
    float *p = at, y = (float)x;
    *p = op == AST_NONE ? y : *p + (minus ? -y : y);
    return true;
  }
  return false;
}

/* Copies the elements of x, whose axes are the last ones of the region, stretched, into it. */
static void write_region(const Tensor *t, const Region *r, const Tensor *x) {
  size_t each = dt_size(t->dtype);
  int64_t from[CKL_MAX_RANK] = {0}, at[CKL_MAX_RANK] = {0};
  int lead = r->rank - x->rank, last = r->rank - 1;
  for (int k = lead; k < r->rank; k++) from[k] = x->dim[k - lead] == 1 ? 0 : x->stride[k - lead];
  int64_t rows = tn_product(r->rank, r->dim), n = r->rank ? r->dim[last] : 1;
  if (rows == 0) return;
  char *to = (char *)t->store->data + each * (size_t)r->offset;
  const char *in = tn_data(x);
  for (rows /= n; rows > 0; rows--) {
    ptrdiff_t d = 0, f = 0;
    for (int k = 0; k < last; k++) d += at[k] * r->stride[k], f += at[k] * from[k];
    int64_t ds = r->rank ? r->stride[last] : 0, fs = r->rank ? from[last] : 0;
    char *a = to + (ptrdiff_t)each * d;
    const char *b = in + (ptrdiff_t)each * f;
    if (ds == 1 && fs == 1)
      memcpy(a, b, each * (size_t)n);
    else
      for (int64_t i = 0; i < n; i++)
        memcpy(a + (ptrdiff_t)each * i * ds, b + (ptrdiff_t)each * i * fs, each);
    for (int k = last - 1; k >= 0 && ++at[k] == r->dim[k]; k--) at[k] = 0;
  }
}

/* Whether x stretches to the region (rule 29). */
static bool stretches(const Tensor *x, const Region *r) {
  int lead = r->rank - x->rank;
  for (int k = 0; lead >= 0 && k < x->rank; k++)
    if (x->dim[k] != 1 && x->dim[k] != r->dim[lead + k]) return false;
  return lead >= 0;
}

/* Whether v becomes a tensor of that dtype without an error. */
static bool becomes(Value v, DType d) {
  if (v.tag == V_INT) return dt_float(d) || d == DT_I64;
  if (v.tag == V_FLOAT) return dt_float(d);
  return v.tag == V_TENSOR && !v.u.t->node && v.u.t->t->dtype == d &&
         v.u.t->t->store->dev == DEV_CPU;
}

/* A tensor of rank 1 or more that indexes an axis, as i64. False: p is no such index. */
static bool index_of(Session *s, const IndexPart *p, Value *v) {
  if (!ast_is_expr(p->node)) return false;
  bool ints = v_is_weak_list(p->v);
  for (size_t i = 0; ints && i < p->v.u.list->count; i++) ints = p->v.u.list->items[i].tag == V_INT;
  if (!ints && (p->v.tag != V_TENSOR || !p->v.u.t->t->rank || !dt_int(p->v.u.t->t->dtype) ||
                p->v.u.t->t->store->dev != DEV_CPU))
    return false;
  *v =
      ints ? op_as_tensor(s, p->v, DT_I64, p->node->span) : op_cast(s, p->v, DT_I64, p->node->span);
  return v->tag == V_TENSOR;
}

/* t[index] op= v, where neighbours among the indices are tensors, of one shape, before them stand
 * ints, and behind them what region_of takes. */
static bool put_at(Session *s, Tensor *t, const Index *index, AstOp op, Value v, Span at) {
  Region r;
  Index rest = {index->node, index->count, ARENA_ARRAY(&s->scratch, IndexPart, index->count)};
  Tensor *idx[CKL_MAX_RANK];
  int k = 0, first = 0;
  if (index->count > (size_t)t->rank || (op == AST_SUB && t->dtype == DT_BOOL)) return false;
  bool scales = op == AST_MUL || op == AST_DIV;
  if (!becomes(v, t->dtype) || (op != AST_NONE && op != AST_ADD && op != AST_SUB && !scales))
    return false;
  for (size_t i = 0; i < index->count; i++) {
    Value at_axis;
    int64_t one;
    rest.part[i] = index->part[i];
    if (index_of(s, &index->part[i], &at_axis)) {
      if (!k) first = (int)i;
      if (first + k != (int)i) return false;
      idx[k++] = at_axis.u.t->t;
      rest.part[i].v = v_int(0);
      if (idx[k - 1]->rank != idx[0]->rank ||
          memcmp(idx[k - 1]->dim, idx[0]->dim, (size_t)idx[0]->rank * sizeof(int64_t)) != 0)
        return false;
    } else if (!k && (!ast_is_expr(index->part[i].node) || !int_of(index->part[i].v, &one))) {
      return false;
    }
  }
  if (!k || !region_of(t, &rest, &r)) return false;
  /* the axes of the indices before those of the region; below, the shape of the place */
  int rank = idx[0]->rank + r.rank;
  int64_t dim[2 * CKL_MAX_RANK], stride[2 * CKL_MAX_RANK];
  if (rank > CKL_MAX_RANK) return false;
  Region all = {.rank = rank};
  memcpy(all.dim, idx[0]->dim, (size_t)idx[0]->rank * sizeof *dim);
  memcpy(all.dim + idx[0]->rank, r.dim, (size_t)r.rank * sizeof *dim);
  memcpy(dim, t->dim + first, (size_t)k * sizeof *dim);
  memcpy(stride, t->stride + first, (size_t)k * sizeof *dim);
  memcpy(dim + k, r.dim, (size_t)r.rank * sizeof *dim);
  memcpy(stride + k, r.stride, (size_t)r.rank * sizeof *dim);
  if (v.tag == V_TENSOR && !stretches(v.u.t->t, &all)) return false;
  Value nv = op_as_tensor(s, v, t->dtype, at);
  if (op == AST_SUB) nv = op_unary(s, OP_NEG, nv, at);
  if (scales) { /* of an index that is there twice, the last one counts */
    Value old = op_index(s, v_tensor(s, tn_ref(t)), index);
    nv = op_binary(s, op, old, nv, at, index->node->span, at);
    if (nv.tag != V_TENSOR || nv.u.t->t->dtype != t->dtype) return false;
  }
  Dim to[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) to[i] = dim_const(op_dims_of(s), all.dim[i]);
  nv = op_broadcast(s, nv, rank, to, at);
  if (nv.tag != V_TENSOR || nv.u.t->node) return false;
  Ref ref = {.mem = &s->mem, .interrupt = &s->kernel.stop};
  Tensor *view = tn_view(&s->mem, t, k + r.rank, dim, stride, r.offset);
  bool done = view && ref_put_in(&ref, view, nv.u.t->t, k, idx, op != AST_NONE && !scales);
  tn_unref(view);
  return done;
}

static bool elements(Session *s, Tensor *t, const Index *index, AstOp op, Value v, Span at) {
  Region r;
  if (!own_tensor(t) || s->modes.anomaly) return false;
  if (!region_of(t, index, &r)) return put_at(s, t, index, op, v, at);
  if (!r.rank &&
      one_number(t->dtype, (char *)t->store->data + dt_size(t->dtype) * (size_t)r.offset, op, v))
    return true;
  bool sums = op == AST_ADD || op == AST_SUB; /* as put_add: in f16 and bf16 by its own rounding */
  bool known = op == AST_NONE || op == AST_MUL || op == AST_DIV ||
               (sums && t->dtype != DT_F16 && t->dtype != DT_BF16 && t->dtype != DT_BOOL);
  bool plain = v_is_number(v) || v_is_weak_list(v) || (v.tag == V_TENSOR && !v.u.t->node);
  if (!known || !plain || v.tag == V_NODE) return false;
  if (v.tag == V_TENSOR &&
      (v.u.t->t->dtype != t->dtype || v.u.t->t->store->dev != DEV_CPU || !stretches(v.u.t->t, &r)))
    return false;
  Value nv = op_as_tensor(s, v, t->dtype, at);
  if (nv.tag != V_TENSOR || nv.u.t->node || nv.u.t->t->dtype != t->dtype) return false;
  if (!stretches(nv.u.t->t, &r)) return false;
  if (op != AST_NONE) {
    Tensor *part = tn_view(&s->mem, t, r.rank, r.dim, r.stride, r.offset), *copy = NULL;
    if (part) copy = tn_copy(&s->mem, part, DEV_CPU);
    tn_unref(part);
    if (sums && op == AST_SUB) nv = op_unary(s, OP_NEG, nv, at);
    nv = op_binary(s, sums ? AST_ADD : op, v_tensor(s, copy), nv, at, index->node->span, at);
    if (nv.tag != V_TENSOR || nv.u.t->t->dtype != t->dtype) return false;
  }
  write_region(t, &r, nv.u.t->t);
  return true;
}

bool owned_elements(Session *s, Value x, const Index *index, AstOp op, Value v, Span at) {
  return x.tag == V_TENSOR && !x.u.t->node && elements(s, x.u.t->t, index, op, v, at);
}

bool owned_param(Session *s, Param *p, const Index *index, AstOp op, Value v, Span at) {
  if (!owned_on(s) || p->overlay.tag) return false;
  operands_hold(s, p);
  if (!elements(s, p->t, index, op, v, at)) return false;
  p->version++;
  return true;
}
