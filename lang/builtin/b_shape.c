/* Builtins: shapes, movement, selection, making tensors. */
#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bounds.h"
#include "lang/eval/index.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/owned.h"
#include "lang/eval/rows.h"
#include "lang/eval/seq.h"
#include "lang/eval/shapes.h"
#include "lang/eval/sources.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"
#include "lang/value/texts.h"
#include "lang/value/tree.h"
#include "runtime/rng.h"

static Dim add_dim(Session *s, Value v, Span at) {
  if (v.tag == V_INT && v.u.i < 0)
    fail_at(s, ERR_SIZE_NEGATIVE, at, "a size cannot be negative: %lld", (long long)v.u.i);
  Dim turn = bounds_size(s, v);
  if (turn != DIM_BAD) return turn;
  if (v.tag == V_NODE && v.weak)
    fail_at(s, ERR_NOT_CONST, at,
            "a size must be a constant or a dim; this number is known only when the code runs");
  return type_dim_of(s, v, at, "a size");
}

/* A shape: a tuple or weak list of ints, or an int. Returns the rank. */
static int shape_arg(Session *s, Value v, Span at, Dim *d) {
  if (v.tag == V_INT || v.tag == V_DIM || (v.tag == V_NODE && v.weak)) {
    d[0] = add_dim(s, v, at);
    return 1;
  }
  if (v.tag != V_TUPLE && v.tag != V_LIST && v.tag != V_UNIT) { /* sizes are numbers (rule 13) */
    bool row = v_is_tensor(v) && op_type_of(s, v).rank == 1;
    fail_help(s, ERR_WANT_SHAPE, at,
              row ? "sizes are numbers: `(3, 4)` stays a tuple of them where `[3, 4]` with a name "
                    "is a tensor; int(x) reads a rank-0 tensor"
                  : "a shape is a list or tuple of ints: `[3, 4]`; int(x) reads a rank-0 tensor",
              "a shape is needed here, not %s", value_type_text(s, v));
  }
  size_t n = v.tag == V_UNIT ? 0 : v.u.list->count;
  if (n > CKL_MAX_RANK) fail_at(s, ERR_RANK_MAX, at, "a tensor has at most %d axes", CKL_MAX_RANK);
  for (size_t i = 0; i < n; i++) d[i] = add_dim(s, v.u.list->items[i], at);
  return (int)n;
}

BUILTIN_FN(bi_shape) {
  if (v_is_number(c->v[0]) && c->v[0].tag != V_NODE) return v_list(s, V_TUPLE, 0, NULL);
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  Value d[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) d[i] = type_dim_value(s, t.dim[i]);
  return v_list(s, V_TUPLE, t.rank, d);
}

static Value size_leaf(Session *s, void *ud, size_t n, Value *v, const char *path) {
  (void)n;
  Dim *sum = ud;
  if (v[0].tag == V_NONE || tree_structure(v[0], path)) return v[0];
  Dim d = dim_const(op_dims_of(s), 1);
  if (v_is_tensor(v[0])) {
    Type t = op_type_of(s, v[0]);
    d = dim_product(op_dims_of(s), t.rank, t.dim);
  }
  *sum = dim_add(op_dims_of(s), *sum, d);
  return v[0];
}

BUILTIN_FN(bi_size) {
  if (c->v[1].tag != V_NONE) {
    Type t = op_type_of(s, arg_tensor(s, c, 0));
    return type_dim_value(s, t.dim[arg_axis(s, c, 1, t.rank)]);
  }
  if (c->v[0].tag == V_STR)
    fail_help(s, ERR_WANT_TENSOR, c->spans[0], "`len(s)` counts the letters of a text",
              "`size` counts the numbers of tensors and trees, not of %s",
              value_type_text(s, c->v[0]));
  Dim sum = dim_const(op_dims_of(s), 0);
  Value x = c->v[0].tag == V_LIST && c->v[0].u.list->weak ? arg_tensor(s, c, 0) : c->v[0];
  tree_map(s, 1, &x, size_leaf, &sum, c->at);
  return type_dim_value(s, sum);
}

BUILTIN_FN(bi_rank) {
  return v_int(v_is_number(c->v[0]) ? 0 : op_type_of(s, arg_tensor(s, c, 0)).rank);
}

static Value range_len(Session *s, const Range *r, Span at) {
  Value lo = r->lo, hi = r->hi;
  int64_t n;
  if (lo.tag == V_INT && hi.tag == V_INT) {
    if (__builtin_sub_overflow(hi.u.i, lo.u.i, &n))
      fail_at(s, ERR_OVERFLOW, at, "the range has more than 2^63 - 1 elements");
    return v_int(n < 0 ? 0 : n);
  }
  if (lo.tag == V_INT && !lo.u.i && hi.tag == V_DIM) return hi; /* a size is not negative */
  if (lo.tag == V_UNKNOWN || hi.tag == V_UNKNOWN) return (Value){.tag = V_UNKNOWN};
  fail_help(s, ERR_NOT_CONST, at, "`hi - lo`, if that is not negative",
            "in code `len` of a range is for ends that are known when it is compiled");
}

static Value seq_len(Session *s, Value x, Span at) {
  if (x.u.seq->staged) return v_int(seq_size(s, x, at));
  int64_t n = seq_count(s, x, at);
  if (n == INT64_MAX)
    fail_help(s, ERR_VALUE, at, "`take(n)` gives it an end",
              "a sequence without an end has no length");
  if (n < 0)
    fail_help(s, ERR_ITERATE, at, "`len([l for l in read_lines(path)])` reads all of them",
              "how many elements this sequence has shows at its end: the lines of a file are read "
              "as they come");
  return v_int(n);
}

BUILTIN_FN(bi_len) {
  Value x = c->v[0];
  size_t n;
  if (x.tag == V_RANGE) return range_len(s, x.u.range, c->spans[0]);
  if (value_items(x, &n)) return v_int((int64_t)n);
  if (x.tag == V_STR) return v_int((int64_t)x.u.str->chars);
  if (x.tag == V_ROWS) return rows_count(s, x, c->at);
  if (x.tag == V_SEQ) return seq_len(s, x, c->spans[0]);
  Type t = op_type_of(s, arg_tensor(s, c, 0));
  if (!t.rank) fail_at(s, ERR_RANK, c->spans[0], "a rank-0 tensor has no length");
  return type_dim_value(s, t.dim[0]);
}

BUILTIN_FN(bi_reshape) {
  Value x = arg_tensor(s, c, 0), v = c->v[1];
  Type t = op_type_of(s, x);
  Dim d[CKL_MAX_RANK], known = dim_const(op_dims_of(s), 1);
  int hole = -1;
  if (v.tag == V_INT && v.u.i == -1) v = v_list(s, V_LIST, 1, &v); /* all elements in one row */
  size_t n = v.tag == V_TUPLE || v.tag == V_LIST ? v.u.list->count : 0;
  for (size_t i = 0; i < n && i < CKL_MAX_RANK; i++)
    if (v.u.list->items[i].tag == V_INT && v.u.list->items[i].u.i == -1) {
      if (hole >= 0)
        fail_at(s, ERR_WANT_SHAPE, c->spans[1], "at most one size of a shape may be -1");
      hole = (int)i;
    }
  if (hole >= 0) {
    if (n > CKL_MAX_RANK)
      fail_at(s, ERR_RANK_MAX, c->spans[1], "a tensor has at most %d axes", CKL_MAX_RANK);
    for (size_t i = 0; i < n; i++)
      if ((int)i != hole) {
        d[i] = add_dim(s, v.u.list->items[i], c->spans[1]);
        known = dim_mul(op_dims_of(s), known, d[i]);
      }
    Dim all = dim_product(op_dims_of(s), t.rank, t.dim);
    d[hole] = dim_floordiv(op_dims_of(s), all, known);
    if (d[hole] == DIM_BAD)
      fail_at(s, ERR_WANT_SHAPE, c->spans[1],
              "the size that -1 stands for cannot be found: the others multiply to 0");
    return op_reshape(s, x, (int)n, d, c->at);
  }
  int rank = shape_arg(s, v, c->spans[1], d);
  return op_reshape(s, x, rank, d, c->at);
}

BUILTIN_FN(bi_broadcast) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, c->v[1], c->spans[1], d);
  return op_broadcast(s, arg_tensor(s, c, 0), rank, d, c->at);
}

BUILTIN_FN(bi_transpose) {
  Value x = arg_tensor(s, c, 0);
  int rank = op_type_of(s, x).rank;
  int64_t perm[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) perm[i] = i;
  if (c->v[1].tag == V_NONE) {
    if (rank < 2)
      fail_at(s, ERR_RANK, c->spans[0], "`transpose` needs at least two axes, this is %s",
              value_type_text(s, x));
    perm[rank - 1] = rank - 2;
    perm[rank - 2] = rank - 1;
    return op_transpose(s, x, perm, c->at);
  }
  Value v = c->v[1];
  if ((v.tag != V_TUPLE && v.tag != V_LIST) || (int)v.u.list->count != rank)
    fail_at(s, ERR_AXIS, c->spans[1], "`axes` must name all %d axes", rank);
  bool seen[CKL_MAX_RANK] = {false};
  for (int i = 0; i < rank; i++) {
    int64_t a = want_int(s, v.u.list->items[i], c->spans[1], "an axis");
    if (a < 0) a += rank;
    if (a < 0 || a >= rank || seen[a])
      fail_at(s, ERR_AXIS, c->spans[1], "`axes` must name each of the %d axes once", rank);
    seen[a] = true;
    perm[i] = a;
  }
  return op_transpose(s, x, perm, c->at);
}

BUILTIN_FN(bi_expand) {
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  int rank = t.rank + (int)c->rest_n;
  bool fresh[CKL_MAX_RANK + 1] = {false};
  if (!c->rest_n)
    fail_help(s, ERR_ARG_COUNT, c->at, "`expand(x, 0)` makes it the first axis",
              "`expand` takes a tensor and the axes of the result that are new");
  if (c->rest_n > CKL_MAX_RANK || rank > CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, c->at, "a tensor has at most %d axes", CKL_MAX_RANK);
  for (size_t i = 0; i < c->rest_n; i++) {
    int64_t a = want_int(s, c->rest[i], c->rest_spans[i], "an axis"), k = a < 0 ? a + rank : a;
    if (k < 0 || k >= rank)
      fail_at(s, ERR_AXIS, c->rest_spans[i], "axis %lld is out of range: the result has rank %d",
              (long long)a, rank);
    if (fresh[k])
      fail_help(s, ERR_AXIS, c->rest_spans[i], "`broadcast(x, [2, 3])` stretches x to a shape",
                "axis %lld of the result is given twice", (long long)k);
    fresh[k] = true;
  }
  Dim d[CKL_MAX_RANK];
  for (int i = 0, j = 0; i < rank; i++) d[i] = fresh[i] ? dim_const(op_dims_of(s), 1) : t.dim[j++];
  return op_reshape(s, x, rank, d, c->at);
}

BUILTIN_FN(bi_squeeze) {
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  Dim d[CKL_MAX_RANK], one = dim_const(op_dims_of(s), 1);
  int64_t axes[CKL_MAX_RANK];
  int n = 0, k = 0;
  bool all = c->v[1].tag == V_NONE;
  if (!all) n = arg_axes(s, c, 1, t.rank, axes);
  for (int i = 0; i < t.rank; i++) {
    bool drop = all && t.dim[i] == one;
    for (int j = 0; j < n; j++)
      if (axes[j] == i) {
        drop = true;
        if (t.dim[i] != one)
          fail_at(s, ERR_AXIS, c->spans[1], "axis %d of %s is not of size 1", i,
                  value_type_text(s, x));
      }
    if (!drop) d[k++] = t.dim[i];
  }
  return op_reshape(s, x, k, d, c->at);
}

static bool plain_list(Value v) {
  return v.tag == V_LIST && !v.u.list->weak;
}

static Value lists_joined(Session *s, Call *c, size_t n, const Value *v) {
  size_t all = 0;
  bool weak = true;
  bool own = c->own && c->rest_n && v[0].u.list == c->v[0].u.list && plain_list(v[0]) &&
             v[0].u.list->count; /* with an empty list the result may be a weak tensor */
  if (want_int(s, c->v[2], c->spans[2], "an axis"))
    fail_at(s, ERR_AXIS, c->spans[2], "lists are joined end to end, they have no axes");
  for (size_t i = own; i < n; i++) all += v[i].u.list->count;
  Value *items = ARENA_ARRAY(&s->scratch, Value, all + 1);
  all = 0;
  for (size_t i = own; i < n; i++) {
    const List *l = v[i].u.list;
    weak &= l->weak || (!l->count && n > 1);
    for (size_t k = 0; k < l->count; k++) items[all++] = l->items[k];
  }
  if (own) {
    owned_push(s, v[0].u.list, all, items);
    return v[0];
  }
  Value r = v_list(s, V_LIST, all, items);
  r.u.list->weak = weak && all;
  return r;
}

static Value tensors_joined(Session *s, Call *c, size_t n, const Value *v) {
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  DType like = DT_COUNT; /* the dtype of numbers in brackets beside tensors */
  for (size_t i = 0; i < n && like == DT_COUNT; i++) {
    if (v[i].tag == V_UNKNOWN) return v[i];
    if (v_is_tensor(v[i])) like = (DType)op_type_of(s, v[i]).dtype;
  }
  for (size_t i = 0; i < n; i++) items[i] = op_as_tensor(s, v[i], like, c->spans[0]);
  int rank = op_type_of(s, items[0]).rank;
  if (!rank)
    fail_help(s, ERR_RANK, c->spans[0], "`stack(xs)` joins scalars",
              "`concat` needs an axis to join along, these are scalars");
  return op_concat(s, n, items, arg_axis(s, c, 2, rank), c->at);
}

/* Sequences and what else has elements, one after the other. */
static Value chained(Session *s, Call *c, size_t n, const Value *v) {
  int64_t k;
  if (in_code(s)) seq_refuse(s, v[n - 1], c->at);
  Value chain = data_source(s, text_elements(s, v[n - 1]), c->at, &k);
  for (size_t i = n - 1; i-- > 0;) {
    Value x = data_source(s, text_elements(s, v[i]), c->at, &k);
    chain = seq_value(s, SEQ_CHAIN, x, chain, 0, 0, false, false, 0);
  }
  return chain;
}

/* `apart`: they are the items of one list, so numbers in brackets are tensors. */
static Value joined(Session *s, Call *c, size_t n, const Value *v, bool apart) {
  stack_check();
  bool lists = true, weak = true, tensors = false, lazy = false;
  if (v[0].tag == V_TUPLE || v[0].tag == V_RECORD || v[0].tag == V_DICT) {
    size_t width, w;
    Value *items = value_parts(s, v[0], &width), *part = ARENA_ARRAY(&s->scratch, Value, n);
    for (size_t k = 0; k < width; k++) {
      for (size_t i = 0; i < n; i++) {
        const Value *x = value_counterpart(v[0], k, v[i]);
        if (!x || v[i].tag != v[0].tag || !value_items(v[i], &w) || w != width)
          fail_at(s, ERR_LEADING, c->at,
                  "what is joined leaf by leaf has one structure; these are %s and %s",
                  value_type_text(s, v[0]), value_type_text(s, v[i]));
        part[i] = *x;
      }
      items[k] = joined(s, c, n, part, false);
    }
    return value_like(s, v[0], items);
  }
  for (size_t i = 0; i < n; i++) {
    lists &= v[i].tag == V_LIST;
    weak &= v_is_weak_list(v[i]);
    tensors |= v_is_tensor(v[i]);
    lazy |= v[i].tag == V_SEQ || v[i].tag == V_RANGE;
  }
  if (lists && !(apart && weak)) return lists_joined(s, c, n, v);
  if (lazy && !tensors && !in_code(s)) return chained(s, c, n, v);
  size_t other = 0;
  while (other + 1 < n && v[other].tag == V_LIST) other++;
  for (size_t i = 0; i < n; i++)
    if (plain_list(v[i]) && v[other].tag != V_UNKNOWN)
      fail_at(s, ERR_WANT_LIST, c->at, "`concat` joins a list with lists, not with %s",
              value_type_text(s, v[other]));
  if (v[0].tag == V_STR)
    fail_help(s, ERR_WANT_LIST, c->spans[0], "`a + b` joins two texts",
              "`concat` joins lists, tensors and sequences, not texts");
  return tensors_joined(s, c, n, v);
}

BUILTIN_FN(bi_concat) {
  Value xs = c->v[0];
  size_t n = c->rest_n + 1;
  Value *items = ARENA_ARRAY(&s->scratch, Value, n);
  for (size_t i = 0; i < n; i++) items[i] = i ? c->rest[i - 1] : xs;
  if (n > 1) return joined(s, c, n, items, false);
  if (v_is_tensor(xs)) { /* [a, b] of tensors of one shape was stacked already: undo its axis */
    Type t = op_type_of(s, xs);
    int64_t count = 0;
    if (t.rank < 2)
      fail_help(s, ERR_WANT_LIST, c->spans[0], "`concat(a, b)`, `concat(list(a, b))`",
                "`concat` takes a list of tensors, or several");
    unit_need_const(s, t.dim[0], c->spans[0], "the number of tensors", &count);
    items = ARENA_ARRAY(&s->scratch, Value, count + 1);
    for (int64_t i = 0; i < count; i++) items[i] = op_element(s, xs, i, c->at);
    return op_concat(s, (size_t)count, items, arg_axis(s, c, 2, t.rank - 1), c->at);
  }
  if (!plain_list(xs) && xs.tag != V_TUPLE)
    fail_at(s, ERR_WANT_LIST, c->spans[0], "`concat` takes a list of tensors, not %s",
            value_type_text(s, xs));
  n = xs.u.list->count;
  if (!n) fail_at(s, ERR_STACK, c->at, "nothing to join: an empty list has no shape");
  return joined(s, c, n, xs.u.list->items, true);
}

/* x with its axis 0 in another place. */
static Value axis_moved(Session *s, Value x, int64_t axis, Call *c) {
  Type t = op_type_of(s, x);
  if (axis < 0) axis += t.rank;
  if (axis < 0 || axis >= t.rank)
    fail_at(s, ERR_AXIS, c->spans[1], "the axis is out of range: the result has rank %d", t.rank);
  if (!axis) return x;
  int64_t perm[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) perm[i] = i < axis ? i + 1 : i == axis ? 0 : i;
  return op_transpose(s, x, perm, c->at);
}

/* `stack(xs, most = n)`: as many as fit, zeros behind, and how many there are. */
static Value stack_most(Session *s, Call *c) {
  Value xs = c->v[0];
  int64_t axis = want_int(s, c->v[1], c->spans[1], "an axis");
  int64_t most = want_int(s, c->v[2], c->spans[2], "`most`");
  if (most < 0)
    fail_at(s, ERR_SHAPE_NEGATIVE, c->spans[2], "a size cannot be negative: %lld", (long long)most);
  Value out[2];
  if (xs.tag == V_ROWS) {
    Value both = rows_stack(s, xs, most, c->at);
    for (int i = 0; i < 2; i++) out[i] = both.u.list->items[i];
  } else if (v_is_tensor(xs) || v_is_weak_list(xs)) {
    Value x = op_as_tensor(s, xs, DT_COUNT, c->spans[0]);
    out[0] = rows_fit(s, x, most, c->at);
    out[1] = type_dim_value(s, op_type_of(s, x).dim[0]);
  } else { /* what does not fit has no use, and no gradient */
    size_t n = xs.u.list->count, fit = most && n > (uint64_t)most ? (size_t)most : n;
    out[0] = rows_fit(s, op_stack(s, fit, xs.u.list->items, 0, c->at), most, c->at);
    out[1] = v_int((int64_t)n);
  }
  out[0] = axis_moved(s, out[0], axis, c);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_stack) {
  Value xs = c->v[0];
  int64_t axis;
  if (xs.tag == V_ROWS && c->v[2].tag == V_NONE) rows_refuse(s, c->spans[0]);
  bool list = xs.tag == V_LIST || xs.tag == V_TUPLE || xs.tag == V_ROWS;
  if (c->v[2].tag != V_NONE && (list || v_is_tensor(xs))) return stack_most(s, c);
  if (v_is_tensor(xs) || v_is_weak_list(xs)) { /* [a, b] was stacked along axis 0 already */
    Value x = op_as_tensor(s, xs, DT_COUNT, c->spans[0]);
    return axis_moved(s, x, want_int(s, c->v[1], c->spans[1], "an axis"), c);
  }
  if (xs.tag != V_LIST && xs.tag != V_TUPLE)
    fail_at(s, ERR_WANT_LIST, c->spans[0], "`stack` takes a list of tensors, not %s",
            value_type_text(s, xs));
  axis = want_int(s, c->v[1], c->spans[1], "an axis");
  const Value *items = xs.u.list->items;
  size_t n = xs.u.list->count;
  bool leaves =
      n && (items[0].tag == V_TUPLE || items[0].tag == V_RECORD || items[0].tag == V_DICT);
  if (leaves) return data_stacked(s, n, items, axis, c->at);
  if (axis < 0 && n) axis += op_type_of(s, op_as_tensor(s, items[0], DT_COUNT, c->at)).rank + 1;
  return op_stack(s, n, items, (int)axis, c->at);
}

/* A number that is known now, as the `value` of an attribute. */
static Attr value_attr(Session *s, Value x, DType dt, Span at) {
  if (x.tag == V_BOOL && dt == DT_BOOL) return attr_i(AT_VALUE, x.u.i);
  if (x.tag == V_INT || x.tag == V_DIM)
    x = v_int(want_int(s, x, at, "the value"));
  else
    x = v_float(want_float(s, x, at, "the value"));
  number_meets(s, x, dt, at);
  if (!dt_float(dt)) return attr_i(AT_VALUE, x.u.i);
  return attr_f(AT_VALUE, x.tag == V_INT ? (double)x.u.i : x.u.f);
}

BUILTIN_FN(bi_pad) {
  Value x = arg_tensor(s, c, 0), w = c->v[1];
  Type t = op_type_of(s, x);
  int64_t low[CKL_MAX_RANK], high[CKL_MAX_RANK], inner[CKL_MAX_RANK] = {0};
  for (int i = 0; i < t.rank; i++) {
    Value v = w, lo, hi;
    bool per_axis = (w.tag == V_TUPLE || w.tag == V_LIST) && w.u.list->count &&
                    (w.u.list->items[0].tag == V_TUPLE || w.u.list->items[0].tag == V_LIST);
    if (per_axis) {
      if ((int)w.u.list->count != t.rank)
        fail_at(s, ERR_PAD, c->spans[1], "`width` has %zu pairs for %d axes", w.u.list->count,
                t.rank);
      v = w.u.list->items[i];
    }
    if (v.tag == V_TUPLE || v.tag == V_LIST) {
      if (v.u.list->count != 2)
        fail_at(s, ERR_PAD, c->spans[1], "a width is n or a pair (low, high)");
      lo = v.u.list->items[0];
      hi = v.u.list->items[1];
    } else
      lo = hi = v;
    low[i] = add_dim(s, lo, c->spans[1]);
    high[i] = add_dim(s, hi, c->spans[1]);
  }
  Attr a[4] = {attr_dims(AT_LOW, t.rank, low), attr_dims(AT_HIGH, t.rank, high),
               attr_ints(AT_INNER, t.rank, inner)};
  if (c->given[2]) a[3] = value_attr(s, c->v[2], (DType)t.dtype, c->spans[2]);
  return op_run(s, OP_PAD, 1, &x, a, c->given[2] ? 4 : 3, c->at);
}

BUILTIN_FN(bi_flip) {
  Value x = arg_tensor(s, c, 0);
  int64_t axes[CKL_MAX_RANK];
  int n = arg_axes(s, c, 1, op_type_of(s, x).rank, axes);
  Attr a = attr_ints(AT_AXES, n, axes);
  return op_run(s, OP_FLIP, 1, &x, &a, 1, c->at);
}

BUILTIN_FN(bi_slice) {
  Value x = arg_tensor(s, c, 0), start = c->v[1];
  Type t = op_type_of(s, x), st = {.dtype = DT_F32};
  int axis = arg_axis(s, c, 3, t.rank);
  Dim len = add_dim(s, c->v[2], c->spans[2]);
  if (v_is_number(start) || v_is_tensor(start)) st = op_type_of(s, start);
  if (st.rank || !dt_int((DType)st.dtype))
    fail_at(s, ERR_WANT_INT, c->spans[1], "the start of a slice must be an int, not %s",
            value_type_text(s, start));
  int64_t from, n, size;
  bool known = !v_is_tensor(start) || start.tag == V_TENSOR;
  if (known && !s->stage && dim_is_const(op_dims_of(s), len, &n) &&
      dim_is_const(op_dims_of(s), t.dim[axis], &size)) {
    from = start.tag == V_TENSOR ? tn_get_i64(start.u.t->t, 0)
                                 : want_int(s, start, c->spans[1], "the start of a slice");
    if (n > 0 && (from < 0 || from > size - n))
      fail_at(s, ERR_INDEX_RANGE, c->at,
              "a slice of %lld from %lld is out of range for axis %d of size %lld", (long long)n,
              (long long)from, axis, (long long)size);
  }
  if (v_is_tensor(start)) start = op_cast(s, start, DT_I64, c->spans[1]);
  Value idx = op_iota(s, len, DT_I64, c->at);
  idx = op_binary(s, AST_ADD, idx, start, c->at, c->spans[1], c->spans[1]);
  Value v[2] = {x, idx};
  Attr a[2] = {attr_i(AT_AXIS, axis), attr_i(AT_DISTINCT, 1)};
  return op_run(s, OP_TAKE, 2, v, a, 2, c->at);
}

static Value index_arg(Session *s, Call *c, int i) {
  Value v = arg_tensor(s, c, i);
  if (!dt_int((DType)op_type_of(s, v).dtype))
    fail_help(s, ERR_INDEX_KIND, c->spans[i],
              fail_text(s, "`i64(%s)` casts", fail_source_text(s, c->spans[i], "..")),
              "an index must be int, this is %s", value_type_text(s, v));
  return op_cast(s, v, DT_I64, c->spans[i]);
}

BUILTIN_FN(bi_gather) {
  Value v[2] = {arg_tensor(s, c, 0), index_arg(s, c, 1)};
  Attr a = attr_i(AT_AXIS, arg_axis(s, c, 2, op_type_of(s, v[0]).rank));
  return op_run(s, OP_GATHER, 2, v, &a, 1, c->at);
}

BUILTIN_FN(bi_scatter) {
  Value v[3] = {arg_tensor(s, c, 0), index_arg(s, c, 1), v_unit()};
  Type x = op_type_of(s, v[0]), i = op_type_of(s, v[1]);
  v[2] =
      op_broadcast(s, op_as_tensor(s, c->v[2], (DType)x.dtype, c->spans[2]), i.rank, i.dim, c->at);
  Attr a = attr_i(AT_AXIS, arg_axis(s, c, 3, x.rank));
  return op_run(s, want_bool(s, c->v[4], c->spans[4], "`add`") ? OP_SCATTER_ADD : OP_SCATTER, 3, v,
                &a, 1, c->at);
}

BUILTIN_FN(bi_bincount) {
  Value i = index_arg(s, c, 0), w = c->v[2];
  Dim n = add_dim(s, c->v[1], c->spans[1]);
  Type t = op_type_of(s, i);
  Dim all = dim_product(op_dims_of(s), t.rank, t.dim);
  DType dt = DT_I64;
  if (w.tag == V_NONE) {
    w = op_broadcast(s, op_cast(s, v_int(1), DT_I64, c->at), t.rank, t.dim, c->at);
  } else {
    w = arg_tensor(s, c, 2);
    Type x = op_type_of(s, w);
    dt = (DType)x.dtype;
    w = op_broadcast(s, w, t.rank, t.dim, c->spans[2]);
  }
  Value zero = op_cast(s, v_int(0), dt, c->at);
  Value v[3] = {op_broadcast_on(s, zero, 1, &n, s->modes.device, c->at),
                op_reshape(s, i, 1, &all, c->at), op_reshape(s, w, 1, &all, c->at)};
  Attr a = attr_i(AT_AXIS, 0);
  return op_run(s, OP_SCATTER_ADD, 3, v, &a, 1, c->at);
}

/* Each element along an axis n times: element i of the result is element i // n. */
Value builtin_repeat(Session *s, Call *c) {
  Value x = arg_tensor(s, c, 0);
  Type t = op_type_of(s, x);
  int axis = arg_axis(s, c, 2, t.rank);
  Dim n = add_dim(s, c->v[1], c->spans[1]);
  Value i = op_iota(s, dim_mul(op_dims_of(s), n, t.dim[axis]), DT_I64, c->at);
  i = op_binary(s, AST_FLOORDIV, i, c->v[1], c->at, c->spans[1], c->spans[1]);
  Value v[2] = {x, i};
  Attr a = attr_i(AT_AXIS, axis);
  return op_run(s, OP_TAKE, 2, v, &a, 1, c->at);
}

BUILTIN_FN(bi_one_hot) {
  Value i = index_arg(s, c, 0);
  Type t = op_type_of(s, i);
  DType dt = c->v[2].tag == V_NONE ? DT_F32 : arg_dtype(s, c->v[2], c->spans[2]);
  if (t.rank == CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, c->at, "a tensor has at most %d axes", CKL_MAX_RANK);
  Dim d[CKL_MAX_RANK];
  for (int k = 0; k < t.rank; k++) d[k] = t.dim[k];
  d[t.rank] = add_dim(s, c->v[1], c->spans[1]);
  Value places = op_iota(s, d[t.rank], DT_I64, c->at), of[2] = {places, i};
  Attr a = attr_i(AT_AXIS, 0);
  i = op_run(s, OP_TAKE, 2, of, &a, 1, c->at); /* the same numbers, which have to be places */
  Dim one[CKL_MAX_RANK];
  memcpy(one, d, sizeof one);
  one[t.rank] = dim_const(op_dims_of(s), 1);
  Value v[2] = {op_broadcast(s, op_reshape(s, i, t.rank + 1, one, c->at), t.rank + 1, d, c->at),
                op_broadcast(s, places, t.rank + 1, d, c->at)};
  return op_cast(s, op_run(s, OP_EQ, 2, v, NULL, 0, c->at), dt, c->at);
}

static void sorted(Session *s, Value x, int axis, bool down, Value out[2], Span at) {
  Attr a[2] = {attr_i(AT_AXIS, axis), attr_i(AT_DESCENDING, down)};
  op_run_multi(s, OP_SORT, 1, &x, a, 2, at, 2, out);
}

BUILTIN_FN(bi_sort) {
  Value x = arg_tensor(s, c, 0), out[2];
  sorted(s, x, arg_axis(s, c, 1, op_type_of(s, x).rank),
         want_bool(s, c->v[2], c->spans[2], "`descending`"), out, c->at);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_argsort) {
  return bi_sort(s, c).u.list->items[1];
}

BUILTIN_FN(bi_top_k) {
  Value x = arg_tensor(s, c, 0), out[2];
  Type t = op_type_of(s, x);
  int axis = arg_axis(s, c, 2, t.rank);
  Dim k = add_dim(s, c->v[1], c->spans[1]), n = t.dim[axis];
  int64_t over;
  const char *text = fail_text(s, "`top_k` asks for more than axis %d has", axis);
  if (dim_is_const(op_dims_of(s), dim_sub(op_dims_of(s), k, n), &over)) {
    if (over > 0) {
      Buf b;
      buf_init_arena(&b, &s->scratch);
      dim_print(&b, op_dims_of(s), n);
      buf_puts(&b, " is less than ");
      dim_print(&b, op_dims_of(s), k);
      fail_at(s, ERR_VALUE, c->spans[1], "%s: %s", text, b.s);
    }
  } else if (s->stage) { /* the error of the slice below would be about the slice */
    stage_at(s, c->spans[1]);
    gr_check(s->stage->g, CHECK_GE, n, k, text);
  }
  sorted(s, x, axis, true, out, c->at);
  int64_t st[CKL_MAX_RANK], ln[CKL_MAX_RANK], sp[CKL_MAX_RANK];
  for (int i = 0; i < t.rank; i++) {
    st[i] = dim_const(op_dims_of(s), 0);
    ln[i] = i == axis ? k : t.dim[i];
    sp[i] = 1;
  }
  Attr a[3] = {attr_dims(AT_STARTS, t.rank, st), attr_dims(AT_LENS, t.rank, ln),
               attr_ints(AT_STEPS, t.rank, sp)};
  for (int i = 0; i < 2; i++) out[i] = op_run(s, OP_SLICE, 1, &out[i], a, 3, c->at);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_nonzero) {
  Value x = arg_tensor(s, c, 0), out[2];
  bool all = c->v[1].tag == V_NONE;
  if (all && s->stage)
    fail_help(s, ERR_NOT_CONST, c->at,
              "`nonzero(x, most = n)` gives (positions, count) of a known size",
              "in code the size of a result cannot depend on data");
  Attr a = all ? (Attr){0} : attr_dim(AT_MOST, add_dim(s, c->v[1], c->spans[1]));
  op_run_multi(s, OP_NONZERO, 1, &x, &a, !all, c->at, 2, out);
  return all ? out[0] : v_list(s, V_TUPLE, 2, out);
}

static void pair_arg(Session *s, Call *c, int i, int64_t out[2], int64_t least, const char *what) {
  Value v = c->v[i];
  if (v.tag == V_TUPLE || v.tag == V_LIST) {
    if (v.u.list->count != 2)
      fail_at(s, ERR_CONV, c->spans[i], "%s is an int or a pair (rows, columns)", what);
    for (int k = 0; k < 2; k++) out[k] = want_int(s, v.u.list->items[k], c->spans[i], what);
  } else {
    out[0] = out[1] = want_int(s, v, c->spans[i], what);
  }
  for (int k = 0; k < 2; k++)
    if (out[k] < least)
      fail_at(s, ERR_CONV, c->spans[i], "%s must be at least %lld", what, (long long)least);
}

BUILTIN_FN(bi_conv2d) {
  Value v[2] = {arg_tensor(s, c, 0), arg_tensor(s, c, 1)};
  int64_t stride[2], pad[2];
  pair_arg(s, c, 2, stride, 1, "`stride`");
  pair_arg(s, c, 3, pad, 0, "`pad`");
  Attr a[3] = {attr_ints(AT_STRIDE, 2, stride), attr_ints(AT_PAD, 2, pad),
               attr_i(AT_COMPUTE, s->modes.compute)};
  return op_run(s, OP_CONV2D, 2, v, a, 3, c->at);
}

/* ---- making */

static Value fill(Session *s, Value x, Value shape, Span shape_at, Span at) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, shape, shape_at, d);
  if (!s->stage) {
    int64_t n[CKL_MAX_RANK];
    for (int i = 0; i < rank; i++) dim_is_const(s->dims, d[i], &n[i]);
    int64_t p = tn_product(rank, n);
    if (p < 0 || p > INT64_MAX / 8) fail_at(s, ERR_SIZE_OVER, at, "a size over 2^63 - 1 bytes");
  }
  return op_broadcast_on(s, x, rank, d, s->modes.device, at);
}

BUILTIN_FN(bi_fill) {
  Value x = op_cast(s, v_int(c->b->op), arg_dtype(s, c->v[1], c->spans[1]), c->at);
  return fill(s, x, c->v[0], c->spans[0], c->at);
}

BUILTIN_FN(bi_full) {
  DType dt = c->v[2].tag == V_NONE ? DT_COUNT : arg_dtype(s, c->v[2], c->spans[2]);
  Value x = op_as_tensor(s, c->v[1], dt, c->spans[1]);
  if (dt != DT_COUNT) x = op_cast(s, x, dt, c->at);
  return fill(s, x, c->v[0], c->spans[0], c->at);
}

BUILTIN_FN(bi_iota) {
  Dim n = add_dim(s, c->v[0], c->spans[0]);
  return op_iota_on(s, n, arg_dtype(s, c->v[1], c->spans[1]), s->modes.device, c->at);
}

BUILTIN_FN(bi_eye) {
  Dim d[2];
  d[0] = d[1] = add_dim(s, c->v[0], c->spans[0]);
  Value i = op_iota_on(s, d[0], DT_I64, s->modes.device, c->at);
  Dim col[2] = {d[0], dim_const(op_dims_of(s), 1)};
  Value v[2] = {op_broadcast(s, op_reshape(s, i, 2, col, c->at), 2, d, c->at),
                op_broadcast(s, i, 2, d, c->at)};
  Value one = op_run(s, OP_EQ, 2, v, NULL, 0, c->at);
  return op_cast(s, one, arg_dtype(s, c->v[1], c->spans[1]), c->at);
}

/* ---- random */

/* In code, a key of the program goes through a `stop`, which tells graph/batch.c that it is not the
 * key of a site: the numbers drawn under it depend on the key alone (rule 93), also for each
 * element of a batch. */
static Value key_arg(Session *s, Call *c, int i) {
  if (c->v[i].tag == V_NONE) return random_key(s, c->node);
  Value k = arg_tensor(s, c, i);
  Type t = op_type_of(s, k);
  int64_t n;
  if (t.dtype != DT_I64 || t.rank != 1 || (dim_is_const(op_dims_of(s), t.dim[0], &n) && n != 2))
    fail_help(s, ERR_KEY, c->spans[i], "key(7) makes one", "a key is i64[2], this is %s",
              value_type_text(s, k));
  return s->stage ? op_run(s, OP_STOP, 1, &k, NULL, 0, c->spans[i]) : k;
}

static Value draw(Session *s, Value key, int kind, DType dt, int dev, int rank, const Dim *d,
                  Span at) {
  int64_t dims[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = d[i];
  bool narrow = dt == DT_F16 || dt == DT_BF16;
  Attr a[4] = {attr_i(AT_KIND, kind), attr_i(AT_DTYPE, narrow ? DT_F32 : dt),
               attr_dims(AT_DIMS, rank, dims), attr_i(AT_DEVICE, dev)};
  Value v = op_run(s, OP_RANDOM, 1, &key, a, 4, at);
  return narrow ? op_cast(s, v, dt, at) : v;
}

BUILTIN_FN(bi_random) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, c->v[0], c->spans[0], d);
  DType dt = arg_dtype(s, c->v[3], c->spans[3]);
  if (!dt_float(dt))
    fail_at(s, ERR_WANT_FLOAT, c->spans[3], "`%s` makes floats, not %s", c->b->name,
            dtype_info[dt].name);
  Value x = draw(s, key_arg(s, c, 4), c->b->op, dt, s->modes.device, rank, d, c->at);
  Value a = c->v[1], b = c->v[2];
  bool plain_a = a.tag == V_FLOAT && a.u.f == 0, plain_b = b.tag == V_FLOAT && b.u.f == 1;
  if (c->b->op == RANDOM_UNIFORM && !(plain_a && plain_b))
    b = op_binary(s, AST_SUB, b, a, c->at, c->at, c->at);
  if (!plain_b || (c->b->op == RANDOM_UNIFORM && !plain_a))
    x = op_binary(s, AST_MUL, x, b, c->at, c->at, c->at);
  return plain_a ? x : op_binary(s, AST_ADD, x, a, c->at, c->at, c->at);
}

static Value ints_below(Session *s, Value key, Value n, int rank, const Dim *d, Span at) {
  int64_t dims[CKL_MAX_RANK];
  for (int i = 0; i < rank; i++) dims[i] = d[i];
  Value v[2] = {key, op_as_tensor(s, n, DT_I64, at)};
  Attr a[3] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, rank, dims),
               attr_i(AT_DEVICE, s->modes.device)};
  return op_run(s, OP_RANDINT, 2, v, a, 3, at);
}

/* The positions in which uniform numbers of 53 bits would be sorted. */
BUILTIN_FN(bi_permutation) {
  Dim n = add_dim(s, c->v[0], c->spans[0]);
  Value key = key_arg(s, c, 1), out[2];
  sorted(s, draw(s, key, RANDOM_UNIFORM, DT_F64, s->modes.device, 1, &n, c->at), 0, false, out,
         c->at);
  return out[1];
}

/* Positions below n, each as likely as its weight says. The position of u, uniform with 53 bits, is
 * the number of sums w[0] + .. + w[i] that are at most u * (the sum of all); this product is less
 * than the sum, so no element of weight 0 is drawn. The place is found by halving, as if sums of
 * infinity stood behind. Sums are running ones in f64: draws are the same everywhere. */
static Value weighted(Session *s, Call *c, Value key, Dim size, int rank, const Dim *d) {
  enum { WEIGHTS = 2 };
  Span at = c->spans[WEIGHTS];
  Value w = op_cast(s, c->v[WEIGHTS], DT_F64, at);
  if (w.tag == V_UNKNOWN) return w;
  if (!v_is_tensor(w) || op_type_of(s, w).rank != 1)
    fail_at(s, ERR_RANK, at, "`weights` is one number for each element, not %s",
            value_type_text(s, c->v[WEIGHTS]));
  DimTab *t = op_dims_of(s);
  int64_t n, m, first = 0, one = 1, width = 1;
  unit_need_const(s, op_type_of(s, w).dim[0], at, "the number of weights", &n);
  unit_need_const(s, size, c->spans[0], "the number of elements", &m);
  if (n != m)
    fail_at(s, ERR_LEADING, at, "there are %lld weights for %lld elements", (long long)n,
            (long long)m);
  Attr axis = attr_i(AT_AXIS, 0);
  Value sums = builtin_running_sums(s, w, at);
  int64_t low = dim_const(t, n - 1), len = dim_const(t, 1);
  Attr last[3] = {attr_dims(AT_STARTS, 1, &low), attr_dims(AT_LENS, 1, &len),
                  attr_ints(AT_STEPS, 1, &one)};
  Value all = op_reshape(s, op_run(s, OP_SLICE, 1, &sums, last, 3, at), 0, NULL, at);
  Value least = op_reduce(s, OP_REDUCE_MIN, w, 1, &first, false, at);
  Value ok[3] = {op_binary(s, AST_GE, least, v_float(0), at, at, at),
                 op_binary(s, AST_GT, all, v_float(0), at, at, at),
                 op_binary(s, AST_LT, all, v_float(INFINITY), at, at, at)};
  for (int i = 1; i < 3; i++) ok[0] = op_binary(s, AST_AND, ok[0], ok[i], at, at, at);
  Value start[2] = {op_cast(s, v_int(0), DT_I64, at), ok[0]};
  Attr why[2] = {attr_text(AT_TEXT, names_of(s->names, "a weight is below 0 or not finite, or all "
                                                       "are 0")),
                 attr_i(AT_KIND, 1)};
  Value zero = op_run(s, OP_FITS, 2, start, why, 2, at);
  while (width <= n) width *= 2;
  int64_t none = dim_const(t, 0), more = dim_const(t, width - n);
  Attr pad[4] = {attr_dims(AT_LOW, 1, &none), attr_dims(AT_HIGH, 1, &more),
                 attr_ints(AT_INNER, 1, &first), attr_f(AT_VALUE, INFINITY)};
  sums = op_run(s, OP_PAD, 1, &sums, pad, 4, at);
  Value u =
      op_binary(s, AST_MUL, draw(s, key, RANDOM_UNIFORM, DT_F64, s->modes.device, rank, d, at), all,
                at, at, at);
  Value place = op_broadcast_on(s, zero, rank, d, s->modes.device, at);
  for (int64_t step = width / 2; step; step /= 2) {
    Value of[2] = {sums, op_binary(s, AST_ADD, place, v_int(step - 1), at, at, at)};
    Value passed = op_binary(s, AST_LE, op_run(s, OP_TAKE, 2, of, &axis, 1, at), u, at, at, at);
    Value next = op_binary(s, AST_ADD, place, v_int(step), at, at, at);
    place = op_where(s, passed, next, place, at);
  }
  return place;
}

/* The positions of what `choice` takes, of n elements. */
static Value chosen(Session *s, Call *c, Value n, int rank, const Dim *d) {
  Value key = key_arg(s, c, 3);
  if (c->v[2].tag == V_NONE) return ints_below(s, key, n, rank, d, c->at);
  return weighted(s, c, key, n.tag == V_DIM ? n.u.d : dim_const(op_dims_of(s), n.u.i), rank, d);
}

/* Chosen elements as lists in lists, by the sizes of axes from `axis` on. */
static Value in_shape(Session *s, const Tensor *t, int axis, const Value **item) {
  size_t n = (size_t)t->dim[axis];
  Value *out = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++)
    out[i] = axis + 1 < t->rank ? in_shape(s, t, axis + 1, item) : *(*item)++;
  return v_list(s, V_LIST, n, out);
}

BUILTIN_FN(bi_choice) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, c->v[1], c->spans[1], d);
  Value xs = v_is_weak_list(c->v[0]) ? arg_tensor(s, c, 0) : c->v[0];
  const char *empty = "there is nothing to choose from";
  if (v_is_tensor(xs)) {
    Type t = op_type_of(s, xs);
    int64_t n;
    if (!t.rank) fail_at(s, ERR_RANK, c->spans[0], "a rank-0 tensor has no elements to choose");
    if (dim_is_const(op_dims_of(s), t.dim[0], &n) && !n)
      fail_at(s, ERR_VALUE, c->spans[0], "%s", empty);
    Value of[2] = {op_as_tensor(s, xs, DT_COUNT, c->spans[0]),
                   chosen(s, c, type_dim_value(s, t.dim[0]), rank, d)};
    if (of[1].tag == V_UNKNOWN) return of[1];
    Attr axis = attr_i(AT_AXIS, 0);
    return op_run(s, OP_TAKE, 2, of, &axis, 1, c->at);
  }
  if (in_code(s))
    fail_help(s, ERR_NOT_CONST, c->spans[0], "`choice(stack(xs), ..)` chooses rows of a tensor",
              "in code `choice` takes a tensor, not %s", value_type_text(s, xs));
  int64_t n;
  xs = data_source(s, text_elements(s, xs), c->spans[0], &n);
  if (n < 0)
    fail_at(s, ERR_WANT_TENSOR, c->spans[0], "`choice` takes tensors and lists, not a sequence");
  if (!n) fail_at(s, ERR_VALUE, c->spans[0], "%s", empty);
  if (rank > 1 && xs.tag != V_LIST)
    fail_help(s, ERR_WANT_SHAPE, c->spans[1], "`[]` chooses one element, `[n]` n of them",
              "what is chosen from %s has one axis", value_type_text(s, c->v[0]));
  Value at = chosen(s, c, v_int(n), rank, d);
  if (at.tag == V_UNKNOWN) return at;
  if (!rank) return data_element(s, xs, tn_get_i64(at.u.t->t, 0), c->at);
  int64_t count = tn_count(at.u.t->t), *rows = ARENA_ARRAY(&s->scratch, int64_t, count + 1);
  for (int64_t i = 0; i < count; i++) rows[i] = tn_get_i64(at.u.t->t, i);
  Value picked = data_pick(s, xs, rows, count, c->at);
  if (rank < 2) return picked;
  const Value *item = picked.u.list->items;
  return in_shape(s, at.u.t->t, 0, &item);
}

BUILTIN_FN(bi_randint) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, c->v[1], c->spans[1], d);
  if (c->v[0].tag == V_INT && c->v[0].u.i <= 0)
    fail_at(s, ERR_VALUE, c->spans[0], "`randint` needs n > 0, this is %lld",
            (long long)c->v[0].u.i);
  DType dt = arg_dtype(s, c->v[2], c->spans[2]);
  if (!dt_int(dt))
    fail_at(s, ERR_WANT_DTYPE, c->spans[2], "`randint` makes ints, not %s", dtype_info[dt].name);
  Value key = key_arg(s, c, 3), n = op_as_tensor(s, c->v[0], DT_I64, c->spans[0]);
  return op_cast(s, ints_below(s, key, n, rank, d, c->at), dt, c->at);
}

static void check_probability(Session *s, Value p, Span at) {
  double x = p.tag == V_FLOAT ? p.u.f : p.tag == V_INT ? (double)p.u.i : 0.5;
  if (!(x >= 0 && x <= 1)) fail_at(s, ERR_VALUE, at, "a probability lies between 0 and 1");
}

BUILTIN_FN(bi_bernoulli) {
  Dim d[CKL_MAX_RANK];
  int rank = shape_arg(s, c->v[1], c->spans[1], d);
  check_probability(s, c->v[0], c->spans[0]);
  Value p = c->v[0];
  DType dt = v_is_tensor(p) && !p.weak ? (DType)op_type_of(s, p).dtype : DT_COUNT, of = DT_F32;
  if (dt == DT_F64) of = DT_F64;
  if (dt == DT_F16 || dt == DT_BF16) p = op_cast(s, p, DT_F32, c->at);
  Value u = draw(s, key_arg(s, c, 2), RANDOM_UNIFORM, of, s->modes.device, rank, d, c->at);
  return op_binary(s, AST_LT, u, p, c->at, c->at, c->at);
}

BUILTIN_FN(bi_dropout) {
  check_probability(s, c->v[1], c->spans[1]);
  Value x = arg_tensor(s, c, 0);
  if (!s->modes.train) {
    Unit *u = s->stage ? s->stage->unit : NULL;
    if (u && !s->modes.no_grad &&
        !(c->v[1].tag != V_NODE && want_float(s, c->v[1], c->spans[1], "p") == 0))
      u->eval_dropout = c->at;
    return x;
  }
  Type t = op_type_of(s, x);
  if (!dt_float((DType)t.dtype))
    fail_at(s, ERR_WANT_FLOAT, c->spans[0], "`dropout` works on floats, this is %s",
            value_type_text(s, x));
  Value u = draw(s, key_arg(s, c, 2), RANDOM_UNIFORM, DT_F32, t.dev, t.rank, t.dim, c->at);
  Value keep = op_binary(s, AST_GE, u, c->v[1], c->at, c->at, c->at);
  Value scale = op_binary(s, AST_SUB, v_float(1.0), c->v[1], c->at, c->at, c->at);
  return op_where(s, keep, op_binary(s, AST_DIV, x, scale, c->at, c->at, c->at), v_float(0.0),
                  c->at);
}

BUILTIN_FN(bi_key) {
  int64_t n = want_int(s, c->v[0], c->spans[0], "the key's number"), two = 2;
  Value w[2] = {v_int((int64_t)rng_key((uint64_t)n)), v_int(0)};
  (void)two;
  Value l = v_list(s, V_LIST, 2, w);
  l.u.list->weak = true;
  return op_as_tensor(s, l, DT_I64, c->at);
}

BUILTIN_FN(bi_fold_in) {
  Value v[2] = {arg_tensor(s, c, 0), op_as_tensor(s, c->v[1], DT_I64, c->spans[1])};
  return op_run(s, OP_FOLD_IN, 2, v, NULL, 0, c->at);
}

BUILTIN_FN(bi_philox) {
  Value v[2] = {op_as_tensor(s, c->v[0], DT_I64, c->spans[0]),
                op_as_tensor(s, c->v[1], DT_I64, c->spans[1])};
  return op_run(s, OP_PHILOX, 2, v, NULL, 0, c->at);
}
