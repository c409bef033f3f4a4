/* Indexing and indexed update (rules 32 to 34).
 *
 * In: a value and an N_INDEX. Reading is a slice (bounds checked, no clamping), then a take for
 * integer tensors and run-time ints. Writing needs no rules of its own: a tensor of row-major
 * positions is read with the same index, and `put` or `put_add` writes to these positions.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/compile/stage.h"
#include "lang/eval/bounds.h"
#include "lang/eval/eval.h"
#include "lang/eval/index.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/lang.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"

/* One item of an index, evaluated. */
typedef struct Item {
  /* NODE: a run-time int, or a tensor of the positions of a slice */
  enum { IT_ALL, IT_INT, IT_NODE, IT_SLICE, IT_TENSOR, IT_MASK } kind;
  Span span;
  Value v;      /* INT, NODE, TENSOR, MASK */
  bool neg;     /* INT: a literal that counts from the end */
  Value lo, hi; /* SLICE; unit: absent */
  bool lo_neg, hi_neg;
  int64_t step;
} Item;

bool index_from_end(const Node *n) {
  return n->kind == N_UNARY && n->unary.op == AST_NEG && n->unary.operand->kind == N_INT;
}

/* The error of an int below 0 that is no literal; axis -1: not known. */
static _Noreturn void below_zero(Session *s, const Index *index, int axis, const Node *n, int64_t i,
                                 const char *what) {
  const char *x = fail_source_text(s, index->node->index.object->span, "x"), *from = NULL;
  const char *less = n->kind == N_UNARY && n->unary.op == AST_NEG
                         ? fail_source_text(s, n->unary.operand->span, "n")
                         : NULL;
  if (less && n->unary.operand->kind == N_BINARY) less = fail_text(s, "(%s)", less);
  if (axis == 0) from = fail_text(s, "len(%s)", x);
  if (axis > 0) from = fail_text(s, "size(%s, axis = %d)", x, axis);
  fail_help(s, ERR_INDEX_RANGE, n->span,
            fail_text(s, "only a literal counts from the end: write `%s %c %s`",
                      from ? from : "size(x, axis = ..)", less ? '-' : '+',
                      less ? less : fail_source_text(s, n->span, "n")),
            "%s is below 0: %lld", what, (long long)i);
}

/* ---- slices */

static Value bound(Session *s, const Index *index, int axis, Node *n, Value v, bool *neg) {
  *neg = false;
  if (!n) return v_unit();
  *neg = index_from_end(n);
  const Tensor *t = s->stage ? NULL : v_tensor_of(v);
  if (t && t->rank == 0 && dt_int(t->dtype)) v = v_int(tn_get_i64(t, 0));
  if (s->abstract && v.tag == V_NODE && op_type_of(s, v).rank == 0 &&
      dt_int((DType)op_type_of(s, v).dtype))
    v = (Value){.tag = V_UNKNOWN};
  if (v.tag == V_INT && v.u.i < 0 && !*neg)
    below_zero(s, index, axis, n, v.u.i, "a bound of a slice");
  bool run_time = v.tag == V_NODE && v.weak && !dt_float((DType)op_type_of(s, v).dtype);
  if (v.tag != V_INT && v.tag != V_DIM && v.tag != V_UNKNOWN && !run_time)
    fail_at(s, ERR_WANT_INT, n->span, "a bound of a slice must be an int, not %s",
            value_type_text(s, v));
  if (!run_time) return v;
  Bounds b = bounds_new(s);
  Dim d = bounds_dim(&b, bounds_of(&b, v), false);
  return d == DIM_BAD ? v : type_dim_value(s, d);
}

/* 0 <= d < size for every size. */
static bool provably_inside(Session *s, Dim d, Dim size) {
  DimTab *t = op_dims_of(s);
  int64_t c;
  return dim_nonneg(t, d) && size != DIM_BAD &&
         dim_is_const(t, dim_sub(t, size, dim_add(t, d, dim_const(t, 1))), &c) && c >= 0;
}

static Item item_of(Session *s, const Index *index, size_t k, int axis, Dim size) {
  const IndexPart *part = &index->part[k];
  Node *n = part->node;
  Item it = {.span = n->span};
  if (n->kind == N_SLICE) {
    it.kind = IT_SLICE;
    it.lo = bound(s, index, axis, n->slice.lo, part->lo, &it.lo_neg);
    it.hi = bound(s, index, axis, n->slice.hi, part->hi, &it.hi_neg);
    it.step = 1;
    if (n->slice.step) {
      it.step = want_int(s, part->step, n->slice.step->span, "the step of a slice");
      if (it.step <= 0)
        fail_help(s, ERR_SLICE_STEP, n->slice.step->span,
                  "`flip(x, axis = 0)` reverses a tensor, `reverse(x)` a list or a text",
                  "the step of a slice must be positive");
    }
    if (!n->slice.lo && !n->slice.hi && it.step == 1) it.kind = IT_ALL;
    return it;
  }
  Value v = part->v;
  it.v = v;
  if (v.tag == V_DIM && !provably_inside(s, v.u.d, size)) { /* tested at run time */
    it.kind = IT_NODE;
    it.v = op_dim_node(s, v.u.d);
    it.v.weak = false;
    return it;
  }
  if (v.tag == V_INT || v.tag == V_DIM || v.tag == V_UNKNOWN) {
    it.kind = IT_INT;
    it.neg = index_from_end(n);
    if (v.tag == V_INT && v.u.i < 0 && !it.neg) below_zero(s, index, axis, n, v.u.i, "the index");
    return it;
  }
  if (v_is_weak_list(v)) it.v = v = op_as_tensor(s, v, DT_I64, n->span);
  if (v.tag == V_NODE && v.weak) {
    it.kind = IT_NODE;
    it.v.weak = false;
    return it;
  }
  if (v.tag == V_NONE)
    fail_help(s, ERR_INDEX_KIND, n->span, "`expand(x, axis)` adds an axis of size 1",
              "none does not index");
  if (!v_is_tensor(v))
    fail_at(s, ERR_INDEX_KIND, n->span,
            "an index is an int, a slice, or an int or bool tensor, not %s", value_type_text(s, v));
  Type t = op_type_of(s, v);
  if (t.dtype == DT_BOOL)
    it.kind = IT_MASK;
  else if (dt_int((DType)t.dtype)) {
    it.kind = t.rank == 0 ? IT_NODE : IT_TENSOR;
    it.v = op_cast(s, v, DT_I64, n->span);
  } else
    fail_help(s, ERR_INDEX_KIND, n->span,
              fail_text(s, "`i64(%s)` casts", fail_source_text(s, n->span, "..")),
              "an index must be int or bool, this is %s", value_type_text(s, v));
  return it;
}

/* Requires a >= b: now if the difference is known, else by a check of the sizes of a call. */
static void check_ge(Session *s, Dim a, Dim b, Span at, const char *text, Dim show, Dim size) {
  DimTab *t = op_dims_of(s);
  int64_t d;
  Dim diff = dim_sub(t, a, b);
  if (dim_is_const(t, diff, &d)) {
    if (d >= 0) return;
    Buf p;
    buf_init_arena(&p, &s->scratch);
    dim_print(&p, t, show);
    buf_puts(&p, " is out of range for an axis of size ");
    dim_print(&p, t, size);
    fail_at(s, ERR_INDEX_RANGE, at, "%s %s", text, p.s);
  }
  if (s->stage) {
    s->stage->g->at.span = at;
    gr_check(s->stage->g, CHECK_GE, a, b, fail_text(s, "%s is out of range", text));
  }
}

static Dim dim_num(Session *s, Value v) {
  return v.tag == V_DIM ? v.u.d : dim_const(op_dims_of(s), v.u.i);
}

static Dim from_end(Session *s, Value v, bool neg, Dim size) {
  Dim d = dim_num(s, v);
  return neg ? dim_add(op_dims_of(s), size, d) : d;
}

/* The number of elements of a slice from bounds `len` apart; requires len >= 0. */
static Dim slice_length(Session *s, const Item *it, Dim len, Dim size) {
  DimTab *t = op_dims_of(s);
  int64_t d;
  if (dim_is_const(t, len, &d) && d < 0)
    fail_at(s, ERR_SLICE_ORDER, it->span, "the slice ends before it starts");
  check_ge(s, len, dim_const(t, 0), it->span, "the end of the slice", len, size);
  if (it->step == 1) return len;
  return dim_floordiv(t, dim_add(t, len, dim_const(t, it->step - 1)), dim_const(t, it->step));
}

/* Expands `...` and missing axes. Returns the number of items: one for each axis, but one for all
 * axes of a mask. */
static int items_of(Session *s, const Index *index, const Type *t, Item *out) {
  int rank = t->rank;
  Span at = index->node->span;
  int ellipsis = -1, n = 0, used = 0;
  Item given[2 * CKL_MAX_RANK];
  if (index->count > 2 * CKL_MAX_RANK) fail_at(s, ERR_INDEX_COUNT, at, "too many indices");
  for (size_t i = 0; i < index->count; i++) {
    const IndexPart *part = &index->part[i];
    if (part->node->kind == N_ELLIPSIS) {
      if (ellipsis >= 0)
        fail_at(s, ERR_INDEX_COUNT, part->node->span, "`...` stands once in an index");
      ellipsis = n;
      continue;
    }
    given[n] = item_of(s, index, i, ellipsis < 0 ? used : -1,
                       ellipsis < 0 && used < rank ? t->dim[used] : DIM_BAD);
    used += given[n].kind == IT_MASK ? op_type_of(s, given[n].v).rank : 1;
    n++;
  }
  if (used > rank)
    fail_at(s, ERR_INDEX_COUNT, at, "%d indices for %d ax%s", used, rank, rank == 1 ? "is" : "es");
  int k = 0;
  for (int i = 0; i <= n; i++) {
    if (i == (ellipsis >= 0 ? ellipsis : n))
      for (int j = used; j < rank; j++) out[k++] = (Item){.kind = IT_ALL, .span = at};
    if (i < n) out[k++] = given[i];
  }
  return k;
}

/* A slice with an end that only the run knows. One whose length is a size of the call becomes the
 * tensor of its positions along the axis. Else both ends are sizes of the iteration. */
static void run_time_slice(Session *s, Item *it, Dim size) {
  Bounds b = bounds_new(s);
  Dim len = DIM_BAD; /* stays so if only one end is a run-time number */
  bool both = it->lo.tag == V_NODE && it->hi.tag == V_NODE;
  if (both) len = dim_sub(b.t, bounds_of(&b, it->hi), bounds_of(&b, it->lo));
  Dim known = bounds_dim(&b, len, false);
  if (known == DIM_BAD) {
    Value end[2] = {it->lo, it->hi};
    bool sizes = true;
    for (int i = 0; i < 2; i++) {
      if (end[i].tag != V_NODE) continue;
      end[i] = (Value){.tag = V_DIM, .u.d = bounds_dim(&b, bounds_of(&b, end[i]), true)};
      sizes &= end[i].u.d != DIM_BAD;
    }
    if (sizes) {
      it->lo = end[0];
      it->hi = end[1];
      return;
    }
    known = bounds_dim(&b, len, true);
  }
  if (known == DIM_BAD)
    fail_help(s, ERR_SLICE_DYNAMIC, it->span, "`slice(x, start, len)` takes a run-time start",
              "in code the length of a slice must be a dim expression");
  len = slice_length(s, it, known, size);
  Value i = op_iota(s, len, DT_I64, it->span);
  if (it->step != 1) i = op_binary(s, AST_MUL, i, v_int(it->step), it->span, it->span, it->span);
  it->kind = IT_NODE;
  it->v = op_binary(s, AST_ADD, i, it->lo, it->span, it->span, it->span);
}

static Value mask_read(Session *s, Value x, int axis, Item *it, Node *index) {
  if (s->abstract) return (Value){.tag = V_UNKNOWN};
  if (in_code(s))
    fail_help(s, ERR_MASK_CODE, it->span,
              "`where(mask, x, 0.0)` keeps the shape; nonzero(mask, most = n) gives positions",
              "in code a mask cannot select: the size would depend on data");
  Type m = op_type_of(s, it->v), t = op_type_of(s, x);
  if (axis != 0 && m.rank + axis > t.rank)
    fail_at(s, ERR_INDEX_COUNT, index->span, "the mask has more axes than are left");
  for (int i = 0; i < m.rank; i++)
    if (m.dim[i] != t.dim[axis + i])
      fail_at(s, ERR_SHAPE_MASK, it->span, "the mask is %s, the indexed axes belong to %s",
              value_type_text(s, it->v), value_type_text(s, x));
  Value r[2];
  op_run_multi(s, OP_NONZERO, 1, &it->v, NULL, 0, it->span, 2, r);
  Value idx[1 + CKL_MAX_RANK] = {x};
  Type rt = op_type_of(s, r[0]);
  int64_t n;
  dim_is_const(s->dims, rt.dim[0], &n);
  for (int i = 0; i < m.rank; i++) {
    int64_t st[2] = {dim_const(s->dims, 0), dim_const(s->dims, i)};
    int64_t ln[2] = {dim_const(s->dims, n), dim_const(s->dims, 1)}, sp[2] = {1, 1};
    Attr a[3] = {attr_dims(AT_STARTS, 2, st), attr_dims(AT_LENS, 2, ln),
                 attr_ints(AT_STEPS, 2, sp)};
    Value c = op_run(s, OP_SLICE, 1, &r[0], a, 3, it->span);
    Dim d = dim_const(s->dims, n);
    idx[1 + i] = op_reshape(s, c, 1, &d, it->span);
  }
  Attr ax = attr_i(AT_AXIS, axis);
  return op_run(s, OP_TAKE, 1 + m.rank, idx, &ax, 1, it->span);
}

static Value index_tensor(Session *s, Value x, const Index *index) {
  Span at = index->node->span;
  x = op_as_tensor(s, x, DT_COUNT, index->node->index.object->span);
  Type t = op_type_of(s, x);
  DimTab *dt = op_dims_of(s);
  Item *it = ARENA_ARRAY(&s->scratch, Item, index->count + (size_t)t.rank + 1);
  int n = items_of(s, index, &t, it);
  for (int i = 0; i < n; i++)
    if (it[i].kind == IT_MASK) {
      if (n - i > 1 || i > 0)
        for (int k = 0; k < n; k++)
          if (k != i && it[k].kind != IT_ALL)
            fail_at(s, ERR_INDEX_GROUPS, it[k].span, "a mask stands alone in an index");
      int axis = i;
      return mask_read(s, x, axis, &it[i], index->node);
    } else if ((it[i].kind == IT_INT && it[i].v.tag == V_UNKNOWN) ||
               (it[i].kind == IT_SLICE && (it[i].lo.tag == V_UNKNOWN || it[i].hi.tag == V_UNKNOWN)))
      return (Value){.tag = V_UNKNOWN};
  for (int i = 0; i < n; i++)
    if (it[i].kind == IT_SLICE && (it[i].lo.tag == V_NODE || it[i].hi.tag == V_NODE))
      run_time_slice(s, &it[i], t.dim[i]);
  /* slices and static ints */
  int64_t start[CKL_MAX_RANK], len[CKL_MAX_RANK], step[CKL_MAX_RANK];
  bool basic = false;
  Dim one = dim_const(dt, 1), zero = dim_const(dt, 0);
  for (int i = 0; i < n; i++) {
    Dim size = t.dim[i];
    start[i] = zero;
    len[i] = size;
    step[i] = 1;
    if (it[i].kind == IT_INT) {
      Dim d = from_end(s, it[i].v, it[i].neg, size);
      Dim show = dim_num(s, it[i].v);
      if (!it[i].neg)
        check_ge(s, d, zero, it[i].span, "index", show, size);
      else
        check_ge(s, d, zero, it[i].span, "index", show, size);
      check_ge(s, size, dim_add(dt, d, one), it[i].span, "index", show, size);
      start[i] = d;
      len[i] = one;
      basic = true;
    } else if (it[i].kind == IT_SLICE) {
      Dim lo = it[i].lo.tag == V_UNIT ? zero : from_end(s, it[i].lo, it[i].lo_neg, size);
      Dim hi = it[i].hi.tag == V_UNIT ? size : from_end(s, it[i].hi, it[i].hi_neg, size);
      check_ge(s, lo, zero, it[i].span, "the start of the slice",
               it[i].lo.tag == V_UNIT ? lo : dim_num(s, it[i].lo), size);
      check_ge(s, size, hi, it[i].span, "the end of the slice",
               it[i].hi.tag == V_UNIT ? hi : dim_num(s, it[i].hi), size);
      start[i] = lo;
      len[i] = slice_length(s, &it[i], dim_sub(dt, hi, lo), size);
      step[i] = it[i].step;
      basic = true;
    }
  }
  if (basic) {
    Attr a[3] = {attr_dims(AT_STARTS, n, start), attr_dims(AT_LENS, n, len),
                 attr_ints(AT_STEPS, n, step)};
    x = op_run(s, OP_SLICE, 1, &x, a, 3, at);
    Dim d[CKL_MAX_RANK];
    int k = 0;
    Item rest[3 * CKL_MAX_RANK];
    for (int i = 0; i < n; i++)
      if (it[i].kind != IT_INT) {
        rest[k] = it[i];
        d[k++] = (Dim)len[i];
      }
    if (k != n) x = op_reshape(s, x, k, d, at);
    memcpy(it, rest, sizeof(Item) * (size_t)k);
    n = k;
  }
  /* integer tensors: neighbours, which index as one group */
  int first = -1, last = -1;
  for (int i = 0; i < n; i++)
    if (it[i].kind == IT_TENSOR) {
      if (first < 0)
        first = i;
      else if (last != i - 1)
        fail_help(s, ERR_INDEX_GROUPS, it[i].span, "index one after the other, or use `gather`",
                  "integer tensors in an index must be neighbours");
      last = i;
    }
  for (int i = n - 1; i >= 0;
       i--) { /* from the right, so that axes on the left stay where they are */
    if (it[i].kind == IT_NODE) {
      Value v[2] = {x, op_cast(s, it[i].v, DT_I64, it[i].span)};
      Attr a[2] = {attr_i(AT_AXIS, i), attr_i(AT_DISTINCT, 1)};
      x = op_run(s, OP_TAKE, 2, v, a, op_type_of(s, v[1]).rank ? 2 : 1, it[i].span);
    } else if (i == last) {
      Value v[1 + CKL_MAX_RANK] = {x};
      for (int k = first; k <= last; k++) v[1 + k - first] = it[k].v;
      Attr ax = attr_i(AT_AXIS, first);
      x = op_run(s, OP_TAKE, 2 + last - first, v, &ax, 1, it[first].span);
      i = first;
    }
  }
  return x;
}

Index index_eval(Session *s, Node *index) {
  const NodeList *l = &index->index.items;
  Index r = {.node = index, .count = l->count};
  r.part = ARENA_ARRAY(&s->scratch, IndexPart, l->count + 1);
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    IndexPart *p = &r.part[i];
    p->node = n;
    if (ast_is_expr(n)) p->v = eval_expr(s, n);
    if (n->kind != N_SLICE) continue;
    if (n->slice.lo) p->lo = eval_expr(s, n->slice.lo);
    if (n->slice.hi) p->hi = eval_expr(s, n->slice.hi);
    if (n->slice.step) p->step = eval_expr(s, n->slice.step);
  }
  return r;
}

size_t index_item(Session *s, const Index *index, size_t count, const char *of) {
  const IndexPart *p = &index->part[0];
  int64_t given = p->v.tag == V_INT
                      ? p->v.u.i
                      : want_int(s, p->v, p->node->span, fail_text(s, "the index of %s", of));
  int64_t i = index_from_end(p->node) ? given + (int64_t)count : given;
  if (i < 0 && i == given) below_zero(s, index, 0, p->node, i, "the index");
  if (i < 0 || (size_t)i >= count)
    fail_at(s, ERR_INDEX_RANGE, p->node->span, "index %lld is out of range for %s of %zu",
            (long long)given, of, count);
  return (size_t)i;
}

/* Selects one item of a list or tuple. False: it is to be indexed as a tensor, or sliced. */
static bool index_list(Session *s, Value x, const Index *index, Value *out) {
  if (index->count != 1 || !ast_is_expr(index->part[0].node)) return false;
  Value iv = index->part[0].v;
  if (iv.tag == V_UNKNOWN) {
    *out = iv;
    return true;
  }
  int64_t k;
  if (s->abstract && !in_code(s) && v_is_tensor(iv) && !v_is_weak_list(x)) { /* the run knows it */
    *out = (Value){.tag = V_UNKNOWN};
    return true;
  }
  bool known = iv.tag == V_INT || want_known(s, iv, &k);
  bool stacks = !known && iv.tag == V_NODE && iv.weak;
  bool tensors = stacks && x.tag == V_LIST; /* of other elements the index is a constant */
  for (size_t i = 0; tensors && i < x.u.list->count; i++) {
    Value v = x.u.list->items[i];
    tensors = v_is_tensor(v) || v_is_number(v) || v.tag == V_BOOL || v_is_weak_list(v);
  }
  if (tensors) { /* rule 37: tensors of one type */
    Value t = op_stack(s, x.u.list->count, x.u.list->items, 0, index->node->span);
    *out = index_tensor(s, t, index);
    return true;
  }
  if (!known && v_is_weak_list(x)) return false;
  const char *of = x.tag == V_LIST ? "a list" : "a tuple";
  *out = x.u.list->items[index_item(s, index, x.u.list->count, of)];
  return true;
}

/* The bounds of a slice of a list or text with n elements. */
static void slice_bounds(Session *s, const Index *index, int64_t n, const char *of, int64_t *lo,
                         int64_t *hi, int64_t *step) {
  Item it = item_of(s, index, 0, 0, DIM_BAD);
  *lo = 0, *hi = n, *step = it.kind == IT_SLICE ? it.step : 1;
  if (it.kind != IT_SLICE) return;
  if (it.lo.tag != V_UNIT) *lo = want_int(s, it.lo, it.span, "a bound") + (it.lo_neg ? n : 0);
  if (it.hi.tag != V_UNIT) *hi = want_int(s, it.hi, it.span, "a bound") + (it.hi_neg ? n : 0);
  if (*lo < 0 || *hi > n || *lo > *hi)
    fail_at(s, ERR_INDEX_RANGE, it.span, "%lld:%lld is no slice of %s of %lld", (long long)*lo,
            (long long)*hi, of, (long long)n);
}

static Value index_text(Session *s, const StrObj *t, const Index *index) {
  const Node *n = index->part[0].node;
  int64_t lo, hi, step = 1, count = (int64_t)t->chars;
  if (index->count != 1 || n->kind == N_ELLIPSIS)
    fail_at(s, ERR_INDEX_COUNT, index->node->span, "a text takes one index");
  if (n->kind == N_SLICE) {
    slice_bounds(s, index, count, "a text", &lo, &hi, &step);
  } else {
    if (index->part[0].v.tag == V_UNKNOWN) return index->part[0].v;
    lo = (int64_t)index_item(s, index, t->chars, "a text");
    hi = lo + 1;
  }
  return text_part(s, t, lo, hi, step);
}

Value index_key(Session *s, const Index *index) {
  const Node *n = index->part[0].node;
  if (index->count != 1)
    fail_help(s, ERR_INDEX_COUNT, index->node->span, "a tuple is a key, too: `d[(a, b)]`",
              "a dict takes one key");
  if (!ast_is_expr(n))
    fail_help(s, ERR_INDEX_KIND, n->span, "`values(d)[a:b]` are parts of the list of its values",
              "a dict is read at a key");
  return dict_key(s, index->part[0].v, n->span);
}

/* A small part of a tensor of script as a tensor of its own: a view would make the next write to
 * the tensor copy all of it. */
static Value part_of(Session *s, Value v) {
  enum { SMALL = 4096 };
  if (s->stage || v.tag != V_TENSOR || v.u.t->node) return v;
  const Tensor *t = v.u.t->t;
  if (t->store->rc == 1 || t->store->dev != DEV_CPU || tn_bytes(t) > SMALL) return v;
  return v_tensor(s, tn_copy(&s->mem, t, DEV_CPU));
}

Value op_index(Session *s, Value x, const Index *index) {
  Span at = index->node->span;
  if (x.tag == V_UNKNOWN) return x;
  if (x.tag == V_STR) return index_text(s, x.u.str, index);
  if (x.tag == V_DICT) {
    Value key = index_key(s, index);
    return key.tag == V_UNKNOWN ? key : *dict_need(s, x.u.dict, key, index->part[0].node->span);
  }
  if (x.tag == V_LIST || x.tag == V_TUPLE) {
    bool weak = v_is_weak_list(x);
    Value item;
    if (index_list(s, x, index, &item)) return item;
    if (!weak && x.tag == V_LIST && index->count == 1 && index->part[0].node->kind == N_SLICE) {
      int64_t n = (int64_t)x.u.list->count, lo, hi, step;
      slice_bounds(s, index, n, "a list", &lo, &hi, &step);
      Value *v = ARENA_ARRAY(&s->scratch, Value, n + 1);
      size_t k = 0;
      for (int64_t i = lo; i < hi; i += step) {
        v[k++] = x.u.list->items[i];
        if (step >= hi - i) break;
      }
      return v_list(s, V_LIST, k, v);
    }
    if (!weak && index->count == 1)
      fail_at(s, ERR_INDEX_KIND, at, "%s is indexed by a number, a list by a slice too",
              x.tag == V_LIST ? "a list" : "a tuple");
    if (!weak)
      fail_at(s, ERR_INDEX_COUNT, at, "%s takes one index", x.tag == V_LIST ? "a list" : "a tuple");
  }
  if (x.tag == V_RECORD)
    fail_help(s, ERR_INDEX_KIND, at,
              "a field is read by its name: `r.x`; `paths(r)` lists the names",
              "%s cannot be indexed", value_type_text(s, x));
  if (x.tag == V_INST || x.tag == V_FN || v_is_number(x) || x.tag == V_SEQ)
    fail_at(s, ERR_INDEX_KIND, at, "%s cannot be indexed", value_type_text(s, x));
  return part_of(s, index_tensor(s, x, index));
}

Value op_element(Session *s, Value x, int64_t i, Span at) {
  if (x.tag == V_UNKNOWN) return x;
  Type t = op_type_of(s, x);
  DimTab *dt = op_dims_of(s);
  int64_t st[CKL_MAX_RANK], ln[CKL_MAX_RANK], sp[CKL_MAX_RANK];
  Dim rest[CKL_MAX_RANK];
  for (int k = 0; k < t.rank; k++) {
    st[k] = dim_const(dt, k == 0 ? i : 0);
    ln[k] = k == 0 ? dim_const(dt, 1) : t.dim[k];
    sp[k] = 1;
    if (k) rest[k - 1] = t.dim[k];
  }
  Attr a[3] = {attr_dims(AT_STARTS, t.rank, st), attr_dims(AT_LENS, t.rank, ln),
               attr_ints(AT_STEPS, t.rank, sp)};
  Value v = op_as_tensor(s, x, DT_COUNT, at);
  v = op_run(s, OP_SLICE, 1, &v, a, 3, at);
  return op_reshape(s, v, t.rank - 1, rest, at);
}

/* Whether a value of this type stretches to a place (rule 29). With `at_call`, sizes of code that
 * may be equal are compared when it is called. */
static bool stretches_to(Session *s, const Type *from, const Type *place, bool at_call) {
  DimTab *dt = op_dims_of(s);
  Dim one = dim_const(dt, 1);
  bool fit = from->rank <= place->rank;
  for (int i = 0; fit && i < from->rank; i++) {
    Dim a = from->dim[i], b = place->dim[i + place->rank - from->rank];
    if (a == b || a == one) continue;
    fit = at_call && s->stage && b != one && dim_compare(dt, a, b) == DIM_MAYBE;
    if (fit) gr_check(s->stage->g, CHECK_EQ, a, b, "the shapes of the place and the value differ");
  }
  return fit;
}

Value op_index_put(Session *s, Value x, const Index *index, AstOp op, Value v, Span at) {
  if (x.tag == V_UNKNOWN || v.tag == V_UNKNOWN) return x;
  if (x.tag == V_STR)
    fail_help(s, ERR_INDEX_KIND, index->node->span,
              "`s = s[:i] + \"x\" + s[i + 1:]` makes the text of parts",
              "a part of a text cannot be assigned");
  if (!v_is_tensor(x))
    fail_at(s, ERR_INDEX_KIND, index->node->span, "%s cannot be assigned by index",
            value_type_text(s, x));
  x = op_as_tensor(s, x, DT_COUNT, at);
  Type t = op_type_of(s, x);
  DimTab *dt = op_dims_of(s);
  if (op == AST_MATMUL) fail_at(s, ERR_ASSIGN, at, "`@=` does not work on a part of a tensor");
  /* x[mask] = v is where(mask, v, x), unless v is of the elements that the mask picks */
  if (index->count == 1 && ast_is_expr(index->part[0].node)) {
    Value m = index->part[0].v;
    bool mask = v_is_tensor(m) && op_type_of(s, m).dtype == DT_BOOL, whole = true;
    if (mask && v_is_tensor(v) && (!s->stage || s->abstract)) {
      Type vt = op_type_of(s, v);
      whole = stretches_to(s, &vt, &t, false);
    }
    if (mask && !whole && s->abstract) return x; /* the run knows how many it picks */
    if (mask && whole) {
      Type mt = op_type_of(s, m);
      Value nv = op == AST_NONE ? v : op_binary(s, op, x, v, at, index->node->span, at);
      if (mt.rank < t.rank && mt.rank > 0) { /* the mask covers the leading axes */
        Dim d[CKL_MAX_RANK];
        for (int i = 0; i < t.rank; i++) d[i] = i < mt.rank ? mt.dim[i] : dim_const(dt, 1);
        m = op_reshape(s, m, t.rank, d, at);
      }
      return op_where(s, m, nv, x, at);
    }
    if (m.tag == V_UNKNOWN) return x;
  }
  /* positions of the selected elements, by the same index */
  Dim count = dim_product(dt, t.rank, t.dim);
  Value pos = op_iota_on(s, count, DT_I64, t.dev, at);
  pos = index_tensor(s, op_reshape(s, pos, t.rank, t.dim, at), index);
  if (pos.tag == V_UNKNOWN) return x;
  Type pt = op_type_of(s, pos);
  Value nv = op_as_tensor(s, v, (DType)t.dtype, at);
  Type vt = op_type_of(s, nv);
  if (vt.dtype != t.dtype)
    fail_help(s, ERR_DTYPE_MIX, at, fail_text(s, "`%s(..)` casts", dtype_info[t.dtype].name),
              "the place is %s, the value %s", dtype_info[t.dtype].name, dtype_info[vt.dtype].name);
  if (!stretches_to(s, &vt, &pt, true)) {
    pt.dtype = t.dtype;
    Buf b;
    buf_init_arena(&b, &s->scratch);
    type_print(&b, dt, &pt);
    fail_at(s, ERR_SHAPE_ASSIGN, at, "the place is %s, the value %s does not stretch to it", b.s,
            value_type_text(s, nv));
  }
  nv = op_broadcast_on(s, nv, pt.rank, pt.dim, t.dev, at);
  OpCode code = OP_PUT;
  if (op == AST_ADD)
    code = OP_PUT_ADD;
  else if (op == AST_SUB) {
    code = OP_PUT_ADD;
    nv = op_unary(s, OP_NEG, nv, at);
  } else if (op != AST_NONE) {
    nv = op_binary(s, op, index_tensor(s, x, index), nv, at, index->node->span, at);
  }
  Dim flat = dim_product(dt, pt.rank, pt.dim);
  Value a[3] = {op_reshape(s, x, 1, &count, at), op_reshape(s, nv, 1, &flat, at),
                op_reshape(s, pos, 1, &flat, at)};
  Attr ax = attr_i(AT_AXIS, 0);
  Value r = op_run(s, code, 3, a, &ax, 1, at);
  return op_reshape(s, r, t.rank, t.dim, at);
}
