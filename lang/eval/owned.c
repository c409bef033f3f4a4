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
#include "lang/eval/ops.h"
#include "lang/lang.h"
#include "lang/value/dict.h"

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
static Tensor *own_tensor(Value x) {
  if (x.tag != V_TENSOR || x.u.t->node) return NULL;
  Tensor *t = x.u.t->t;
  bool alone = t->rc == 1 && t->store->rc == 1 && !t->store->foreign_free;
  return alone && t->store->dev == DEV_CPU && tn_is_contiguous(t) ? t : NULL;
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

bool owned_elements(Session *s, Value x, const Index *index, AstOp op, Value v, Span at) {
  Tensor *t = own_tensor(x);
  Region r;
  if (!t || s->modes.anomaly || !region_of(t, index, &r)) return false;
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
  if (op != AST_NONE) {
    Tensor *part = tn_view(&s->mem, t, r.rank, r.dim, r.stride, r.offset), *copy = NULL;
    if (part) copy = tn_copy(&s->mem, part, DEV_CPU);
    tn_unref(part);
    if (sums && op == AST_SUB) nv = op_unary(s, OP_NEG, nv, at);
    nv = op_binary(s, sums ? AST_ADD : op, v_tensor(s, copy), nv, at, index->node->span, at);
    if (nv.tag != V_TENSOR || nv.u.t->t->dtype != t->dtype) return false;
  }
  if (!stretches(nv.u.t->t, &r)) return false;
  write_region(t, &r, nv.u.t->t);
  return true;
}
