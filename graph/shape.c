/* Shape rules: one function per `shape` word of ops.def. Contractions and regions have files of
 * their own.
 *
 * In: an op, its operand types, attributes and regions. Out: its result types, or an error with the
 * operand at fault, its shape, and a shape that would fit. A condition on sizes that are not known
 * yet is accepted and becomes a check of the graph (rule 23). Users read the messages: they name
 * types and dims as written and suggest text that type-checks.
 * Invariant: a rule reads attributes only after testing kind and length, so any input is safe.
 */
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/shape_rule.h"

/* ---- generate */
/* Whether v has the kind in which graphs write a number of this dtype. */
static bool literal_of(const Attr *v, DType dt) {
  return v && v->kind == (dt_float(dt) ? AK_FLOAT : AK_INT);
}

bool shape_given(C *c) {
  Type *t = &c->out[0];
  int64_t dt = 0, dev = DEV_CPU;
  const Attr *a;
  *t = type_of(DT_I64, DEV_CPU, 0);
  if (c->op == OP_DIM) {
    a = attr_find(c->attrs, c->nattrs, AT_SIZE);
    if (!a || a->kind != AK_DIM) return sh_bad_attr(c, AT_SIZE);
    if (a->u.i == (int64_t)DIM_BAD) {
      return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size passes 2^63 - 1, or divides by 0");
    }
    return dim_valid(c->dims, a->u.i) || sh_bad_attr(c, AT_SIZE);
  }
  if (c->op == OP_INPUT) {
    int64_t index;
    if (!sh_int(c, AT_INDEX, 0, INT32_MAX, &index)) return false;
    a = attr_find(c->attrs, c->nattrs, AT_DTYPE);
    if (a && a->kind == AK_INT && (a->u.i == -TK_TOKEN || a->u.i == -TK_STASH)) {
      *t = a->u.i == -TK_TOKEN ? (Type){.kind = TK_TOKEN} : type_stash();
      return true;
    }
  }
  if (!sh_int(c, AT_DTYPE, 0, DT_COUNT, &dt)) return false;
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE) && !sh_int(c, AT_DEVICE, 0, DEV_COUNT, &dev)) {
    return false;
  }
  *t = type_of((DType)dt, (Device)dev, 0);
  if (c->op == OP_CONST) {
    a = attr_find(c->attrs, c->nattrs, AT_VALUE);
    return literal_of(a, (DType)dt) || sh_bad_attr(c, AT_VALUE);
  }
  if (c->op == OP_IOTA && dt == DT_BOOL) return sh_bad_attr(c, AT_DTYPE);
  a = sh_dims(c, AT_DIMS, c->op == OP_IOTA ? 1 : -1);
  if (!a) return false;
  t->rank = (uint8_t)a->count;
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
  return true;
}

static bool need_key(C *c, int i, int count) {
  const Type *t = c->in[i];
  int64_t n;
  if (t->dtype == DT_I64 && t->rank == 1 && dim_is_const(c->dims, t->dim[0], &n) && n == count) {
    return true;
  }
  gerr_set(c->e, ERR_KEY, i, "`%s` takes i64[%d], not %s", sh_name(c), count, sh_operand(c, i));
  return count == 2 ? gerr_help(c->e, "a key comes from `key(seed)`") : false;
}

bool shape_random(C *c) {
  int64_t dt = 0, kind, dev = c->in[0]->dev;
  const Attr *a = sh_dims(c, AT_DIMS, -1);
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE) && !sh_int(c, AT_DEVICE, 0, DEV_COUNT, &dev))
    return false;
  if (!a || !sh_int(c, AT_DTYPE, 0, DT_COUNT, &dt) || !need_key(c, 0, 2)) return false;
  if (c->op == OP_RANDOM) {
    if (!sh_int(c, AT_KIND, 0, RANDOM_NORMAL + 1, &kind)) return false;
    if (!dt_float((DType)dt)) {
      gerr_set(c->e, ERR_DTYPE_DOMAIN, -1, "random numbers of `%s` are floats, not %s", sh_name(c),
               dtype_info[dt].name);
      return gerr_help(c->e, "`randint` makes whole numbers");
    }
  } else {
    if (!dt_int((DType)dt)) return sh_bad_attr(c, AT_DTYPE);
    if (c->in[1]->dtype != DT_I64 || c->in[1]->rank != 0) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`randint` takes its bound as one i64, not %s",
                      sh_operand(c, 1));
    }
  }
  Type *t = &c->out[0];
  *t = type_of((DType)dt, (Device)dev, (int)a->count);
  for (uint32_t i = 0; i < a->count; i++) t->dim[i] = (Dim)a->u.ints[i];
  return true;
}

/* fold_in, philox: the type of the first operand */
bool shape_first(C *c) {
  if (c->op == OP_PHILOX) {
    if (!need_key(c, 0, 4) || !need_key(c, 1, 2)) return false;
  } else {
    if (!need_key(c, 0, 2)) return false;
    if (c->in[1]->dtype != DT_I64 || c->in[1]->rank != 0) {
      return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`%s` takes one i64, not %s", sh_name(c),
                      sh_operand(c, 1));
    }
  }
  c->out[0] = *c->in[0];
  return true;
}

/* ---- elementwise */
static bool dims_match(C *c, const Type *a, const Type *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    if (dim_compare(c->dims, a->dim[i], b->dim[i]) != DIM_EQUAL) return false;
  }
  return true;
}

static bool shapes_differ(C *c, int i, int k, int axis) {
  const Type *a = c->in[i], *b = c->in[k];
  const char *what = c->n > 2 ? sh_text(c, "operands %d and %d", i + 1, k + 1) : "the operands";
  if (axis < 0) {
    gerr_set(c->e, ERR_SHAPE_DIFFER, k, "%s of `%s` have different shapes: %s and %s", what,
             sh_name(c), sh_operand(c, i), sh_operand(c, k));
  } else {
    gerr_set(c->e, ERR_SHAPE_DIFFER, k,
             "%s of `%s` have different shapes: %s and %s (axis %d is %s and %s)", what, sh_name(c),
             sh_operand(c, i), sh_operand(c, k), axis, sh_dim_text(c, a->dim[axis]),
             sh_dim_text(c, b->dim[axis]));
  }
  /* A fix that type-checks: a transposed operand, or one more axis that stretches. */
  if (a->rank == b->rank && a->rank >= 2) {
    Type t = *b;
    t.dim[t.rank - 1] = b->dim[t.rank - 2];
    t.dim[t.rank - 2] = b->dim[t.rank - 1];
    if (dims_match(c, a, &t)) {
      return gerr_help(c->e, "`%s` fits", sh_with(c, k, "transpose(", ")"));
    }
  }
  for (int swap = 0; swap < 2; swap++) {
    int s = swap ? i : k;
    const Type *big = swap ? b : a, *small = swap ? a : b;
    if (small->rank == 0 || small->rank >= big->rank) continue;
    for (int at = big->rank - 1; at >= big->rank - small->rank; at--) {
      /* try `small` with an axis of size 1 inserted before or after axis `at` of `big` */
      bool fits = true;
      int off = big->rank - small->rank - 1;
      for (int j = 0; j < small->rank && fits; j++) {
        int to = off + j < at ? off + j : off + j + 1;
        fits = to >= 0 && dim_compare(c->dims, small->dim[j], big->dim[to]) == DIM_EQUAL;
      }
      if (fits) {
        return gerr_help(c->e, "`%s` fits: the new axis of size 1 stretches",
                         sh_with(c, s, "expand(", sh_text(c, ", %d)", at - off)));
      }
    }
  }
  return gerr_help(c->e, "axes of size 1 stretch and missing leading axes are added; all others "
                         "must be equal");
}

static bool elementwise(C *c, int from, DType dt) {
  Device dev;
  if (!sh_devices(c, &dev)) return false;
  const char *what = NULL;
  for (int i = from + 1; i < c->n; i++) {
    int axis = -1;
    if (c->in[i]->rank == c->in[from]->rank) {
      bool decided = true;
      for (int k = 0; k < c->in[i]->rank && decided; k++) {
        decided = c->in[i]->dim[k] == c->in[from]->dim[k];
      }
      if (decided) continue;
      if (!what) what = sh_check_text(c, "the shapes of the operands of `%s` differ");
      if (sh_same_dims(c, c->in[from], c->in[i], what, &axis)) continue;
      if (axis < 0) return false;
    }
    return shapes_differ(c, from, i, axis);
  }
  Type *t = &c->out[0];
  *t = *c->in[from];
  t->dtype = (uint8_t)dt;
  t->dev = (uint8_t)dev;
  return true;
}

static bool all_in_domain(C *c) {
  for (int i = 0; i < c->n; i++) {
    if (!sh_domain(c, i)) return false;
  }
  return sh_dtypes(c, 0, c->n);
}

bool shape_same(C *c) {
  return all_in_domain(c) && elementwise(c, 0, (DType)c->in[0]->dtype);
}

bool shape_test(C *c) {
  return all_in_domain(c) && elementwise(c, 0, DT_BOOL);
}

bool shape_where(C *c) {
  if (c->in[0]->dtype != DT_BOOL) {
    gerr_set(c->e, ERR_DTYPE_DOMAIN, 0, "`where` takes a bool condition, not %s", sh_operand(c, 0));
    return gerr_help(c->e, "`where(%s != 0, %s, %s)`", sh_part(c, 0), sh_arg(c, 1), sh_arg(c, 2));
  }
  return sh_dtypes(c, 1, 3) && elementwise(c, 0, (DType)c->in[1]->dtype);
}

bool shape_fits(C *c) {
  if (c->in[1]->dtype != DT_BOOL)
    return gerr_set(c->e, ERR_DTYPE_DOMAIN, 1, "`fits` takes a bool, not %s", sh_operand(c, 1));
  return elementwise(c, 0, (DType)c->in[0]->dtype);
}

bool shape_cast(C *c) {
  int64_t dt = 0;
  return sh_int(c, AT_DTYPE, 0, DT_COUNT, &dt) && elementwise(c, 0, (DType)dt);
}

bool shape_place(C *c) {
  int64_t dev;
  if (!sh_tensors(c, 0) || !sh_int(c, AT_DEVICE, 0, DEV_COUNT, &dev)) return false;
  c->out[0] = *c->in[0];
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* ---- movement */

bool shape_reshape(C *c) {
  const Attr *a = sh_dims(c, AT_DIMS, -1);
  if (!a) return false;
  Type *t = &c->out[0];
  *t = *c->in[0];
  sh_set_dims(t, a);
  Dim from = dim_product(c->dims, c->in[0]->rank, c->in[0]->dim);
  Dim to = dim_product(c->dims, t->rank, t->dim);
  if (from == DIM_BAD || to == DIM_BAD) {
    return gerr_set(c->e, ERR_SHAPE_SIZE, 0, "the number of elements of %s passes 2^63 - 1",
                    sh_type_text(c, to == DIM_BAD ? t : c->in[0]));
  }
  Tri r = sh_equal(c, from, to, "a reshape keeps the number of elements");
  if (r == NO) {
    gerr_set(c->e, ERR_SHAPE_RESHAPE, 0, "%s has %s elements and cannot become %s with %s",
             sh_operand(c, 0), sh_dim_text(c, from), sh_type_text(c, t), sh_dim_text(c, to));
    /* One axis can be found from the others. */
    for (int k = 0; k < t->rank; k++) {
      Dim rest = dim_const(c->dims, 1), fit = DIM_BAD;
      for (int j = 0; j < t->rank; j++) {
        if (j != k) rest = dim_mul(c->dims, rest, t->dim[j]);
      }
      if (rest != DIM_BAD) fit = dim_floordiv(c->dims, from, rest);
      if (fit == DIM_BAD || dim_mul(c->dims, fit, rest) != from) continue;
      Type u = *t;
      u.dim[k] = fit;
      return gerr_help(c->e, "%s has as many", sh_type_text(c, &u));
    }
  }
  return r == YES;
}

bool shape_transpose(C *c) {
  unsigned mask;
  const Type *x = c->in[0];
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_PERM);
  if (!sh_axes(c, AT_PERM, x->rank, &mask)) return false;
  if ((int)a->count != x->rank) {
    gerr_set(c->e, ERR_SHAPE_AXIS, 0, "the new order of axes has %u, %s has %d", (unsigned)a->count,
             sh_operand(c, 0), x->rank);
    return gerr_help(c->e, "name each axis once");
  }
  Type *t = &c->out[0];
  *t = *x;
  for (int i = 0; i < x->rank; i++) t->dim[i] = x->dim[a->u.ints[i]];
  return true;
}

bool shape_broadcast(C *c) {
  const Attr *a = sh_dims(c, AT_DIMS, -1);
  const Type *x = c->in[0];
  int64_t dev = x->dev;
  if (!a) return false;
  if (attr_find(c->attrs, c->nattrs, AT_DEVICE)) {
    if (!sh_int(c, AT_DEVICE, 0, DEV_COUNT, &dev)) return false;
    if (dev != x->dev && (x->rank != 0 || x->dev != DEV_CPU)) return sh_bad_attr(c, AT_DEVICE);
  }
  Type *t = &c->out[0];
  *t = *x;
  t->dev = (uint8_t)dev;
  sh_set_dims(t, a);
  int lead = t->rank - x->rank;
  int axis = -1;
  for (int i = 0; i < x->rank && lead >= 0; i++) {
    int64_t one;
    if (dim_is_const(c->dims, x->dim[i], &one) && one == 1) continue;
    Tri r = sh_equal(c, x->dim[i], t->dim[lead + i], "a broadcast stretches axes of size 1 only");
    if (r == FAILED) return false;
    if (r == NO) {
      axis = i;
      break;
    }
  }
  if (lead >= 0 && axis < 0) return true;
  if (lead < 0) {
    gerr_set(c->e, ERR_SHAPE_BROADCAST, 0, "%s has more axes than %s and cannot be stretched to it",
             sh_operand(c, 0), sh_type_text(c, t));
  } else {
    gerr_set(c->e, ERR_SHAPE_BROADCAST, 0,
             "%s cannot be stretched to %s: its axis %d is %s, wanted %s", sh_operand(c, 0),
             sh_type_text(c, t), axis, sh_dim_text(c, x->dim[axis]),
             sh_dim_text(c, t->dim[lead + axis]));
  }
  for (int at = 0; at + x->rank < t->rank && lead >= 0; at++) {
    bool fits = true;
    for (int i = 0; i < x->rank && fits; i++) {
      fits = dim_compare(c->dims, x->dim[i], t->dim[at + i]) == DIM_EQUAL;
    }
    if (fits && x->rank + at + 1 == t->rank) {
      return gerr_help(c->e, "`expand(%s, %d)` adds an axis of size 1 that stretches", sh_arg(c, 0),
                       x->rank);
    }
  }
  return gerr_help(c->e, "only axes of size 1 stretch; shapes are aligned at the right");
}

bool shape_slice(C *c) {
  const Type *x = c->in[0];
  const Attr *start = sh_dims(c, AT_STARTS, x->rank), *len, *step;
  if (!start || !(len = sh_dims(c, AT_LENS, x->rank)) || !(step = sh_ints(c, AT_STEPS, x->rank))) {
    return false;
  }
  Type *t = &c->out[0];
  *t = *x;
  for (int i = 0; i < x->rank; i++) {
    Dim s = (Dim)start->u.ints[i], n = (Dim)len->u.ints[i];
    int64_t by = step->u.ints[i];
    if (by <= 0) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the step of a slice is %lld", (long long)by);
      return by < 0 ? gerr_help(c->e, "`flip(%s, axis = %d)` reverses", sh_arg(c, 0), i)
                    : gerr_help(c->e, "steps are 1 or more");
    }
    t->dim[i] = n;
    int64_t k;
    bool whole = dim_is_const(c->dims, s, &k) && k == 0 && n == x->dim[i] && by == 1;
    if (whole) continue;
    if (dim_is_const(c->dims, s, &k) && k < 0) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice starts at %s, before axis %d of %s",
               sh_dim_text(c, s), i, sh_operand(c, 0));
      return gerr_help(c->e, "only a literal negative number counts from the end");
    }
    if (dim_is_const(c->dims, n, &k) && k < 0) {
      return gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice of axis %d of %s has %s elements", i,
                      sh_operand(c, 0), sh_dim_text(c, n));
    }
    Dim zero = dim_const(c->dims, 0), one = dim_const(c->dims, 1);
    Dim end = dim_add(c->dims, s, n);
    if (by != 1) {
      Dim last = dim_mul(c->dims, dim_sub(c->dims, n, one), dim_const(c->dims, by));
      end = dim_add(c->dims, dim_add(c->dims, s, last), one);
      if (dim_is_const(c->dims, n, &k) && k == 0) end = s;
    }
    Tri r = sh_at_least(c, x->dim[i], end, "a slice ends behind its axis");
    if (r == YES && by != 1) r = sh_at_least(c, x->dim[i], s, "a slice starts behind its axis");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_SLICE, 0, "the slice from %s to %s is not inside axis %d of %s",
               sh_dim_text(c, s), sh_dim_text(c, end), i, sh_operand(c, 0));
      return gerr_help(c->e, "axis %d has %s elements; bounds are not clamped", i,
                       sh_dim_text(c, x->dim[i]));
    }
    if (r == YES) r = sh_at_least(c, s, zero, "a slice starts before its axis");
    if (r == YES) r = sh_at_least(c, n, zero, "a slice has a negative length");
    if (r == NO) {
      return gerr_set(c->e, ERR_SHAPE_SLICE, 0,
                      "the slice from %s of %s elements is not inside axis "
                      "%d of %s",
                      sh_dim_text(c, s), sh_dim_text(c, n), i, sh_operand(c, 0));
    }
    if (r == FAILED) return false;
  }
  return true;
}

bool shape_pad(C *c) {
  const Type *x = c->in[0];
  const Attr *low = sh_dims(c, AT_LOW, x->rank), *high, *inner;
  const Attr *v = attr_find(c->attrs, c->nattrs, AT_VALUE);
  if (!low || !(high = sh_dims(c, AT_HIGH, x->rank)) || !(inner = sh_ints(c, AT_INNER, x->rank))) {
    return false;
  }
  if (v && !literal_of(v, (DType)x->dtype)) return sh_bad_attr(c, AT_VALUE);
  Type *t = &c->out[0];
  *t = *x;
  Dim zero = dim_const(c->dims, 0), one = dim_const(c->dims, 1);
  for (int i = 0; i < x->rank; i++) {
    Dim a = (Dim)low->u.ints[i], b = (Dim)high->u.ints[i];
    int64_t in = inner->u.ints[i];
    if (in < 0 || in > INT32_MAX) return sh_bad_attr(c, AT_INNER);
    Tri r = sh_at_least(c, a, zero, "padding is negative");
    if (r == YES) r = sh_at_least(c, b, zero, "padding is negative");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_NEGATIVE, 0, "padding of axis %d by %s and %s", i, sh_dim_text(c, a),
               sh_dim_text(c, b));
      return gerr_help(c->e, "a slice makes an axis shorter");
    }
    if (r == FAILED) return false;
    Dim n = x->dim[i];
    int64_t k;
    if (in > 0) {
      /* with zeros between elements the size is n + (n - 1) * in, which needs an element */
      if (dim_is_const(c->dims, n, &k) && k == 0) {
        n = zero;
      } else {
        r = sh_at_least(c, n, one, "padding between elements needs an element");
        if (r != YES) return r == FAILED ? false : sh_bad_attr(c, AT_INNER);
        n = dim_add(c->dims, n, dim_mul(c->dims, dim_sub(c->dims, n, one), dim_const(c->dims, in)));
      }
    }
    t->dim[i] = dim_add(c->dims, dim_add(c->dims, n, a), b);
  }
  return true;
}

bool shape_flip(C *c) {
  unsigned mask;
  c->out[0] = *c->in[0];
  return sh_axes(c, AT_AXES, c->in[0]->rank, &mask);
}

bool shape_concat(C *c) {
  int axis;
  Device dev;
  if (c->n < 1) {
    return gerr_set(c->e, ERR_SHAPE_CONCAT, -1, "`concat` of no tensors has no dtype and shape");
  }
  if (!sh_axis(c, c->in[0]->rank, &axis) || !sh_dtypes(c, 0, c->n) || !sh_devices(c, &dev)) {
    return false;
  }
  Type *t = &c->out[0];
  *t = *c->in[0];
  t->dev = (uint8_t)dev;
  for (int i = 1; i < c->n; i++) {
    const Type *x = c->in[i];
    if (x->rank != t->rank) {
      gerr_set(c->e, ERR_SHAPE_CONCAT, i,
               "`concat` of %s and %s, which have different numbers of axes", sh_operand(c, 0),
               sh_operand(c, i));
      int lo = x->rank < t->rank ? i : 0,
          d = x->rank < t->rank ? t->rank - x->rank : x->rank - t->rank;
      return d == 1 ? gerr_help(c->e, "`expand(%s, %d)` has one more", sh_arg(c, lo), axis) : false;
    }
    for (int k = 0; k < t->rank; k++) {
      if (k == axis) continue;
      Tri r = sh_equal(c, t->dim[k], x->dim[k], "tensors to join differ beside the joined axis");
      if (r == FAILED) return false;
      if (r == NO) {
        gerr_set(c->e, ERR_SHAPE_CONCAT, i,
                 "`concat` along axis %d of %s and %s, whose axis %d differs", axis,
                 sh_operand(c, 0), sh_operand(c, i), k);
        bool only = true;
        for (int j = 0; j < t->rank; j++) {
          only = only && (j == k || dim_compare(c->dims, t->dim[j], x->dim[j]) == DIM_EQUAL);
        }
        return only ? gerr_help(c->e, "`axis = %d` joins them", k) : false;
      }
    }
    t->dim[axis] = dim_add(c->dims, t->dim[axis], x->dim[axis]);
  }
  return true;
}

/* The type of x[.., idx.., ..]: operands from `first` on replace the axes from `axis` on. */
static bool taken(C *c, int first, int axis, Type *t) {
  const Type *x = c->in[0];
  int k = c->n - first;
  if (k < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has no index", op_info[c->op].text);
  if (axis + k > x->rank) {
    return gerr_set(c->e, ERR_SHAPE_AXIS, 0, "%d index tensors from axis %d on, but %s has %d axes",
                    k, axis, sh_operand(c, 0), x->rank);
  }
  const Type *idx = c->in[first];
  for (int i = first; i < c->n; i++) {
    int at = -1;
    if (!sh_index(c, i)) return false;
    bool same = c->in[i]->rank == idx->rank &&
                sh_same_dims(c, idx, c->in[i], "index tensors have different shapes", &at);
    if (!same && at < 0 && c->in[i]->rank == idx->rank) return false;
    if (!same) {
      gerr_set(c->e, ERR_INDEX_SHAPE, i, "index tensors have different shapes: %s and %s",
               sh_operand(c, first), sh_operand(c, i));
      return gerr_help(c->e, "`expand` and `broadcast` make them equal");
    }
  }
  int rank = x->rank - k + idx->rank;
  if (rank > CKL_MAX_RANK) {
    return gerr_set(c->e, ERR_SHAPE_AXES, 0,
                    "the result of this index has %d axes, at most %d are "
                    "possible",
                    rank, CKL_MAX_RANK);
  }
  *t = *x;
  t->rank = (uint8_t)rank;
  for (int i = 0; i < idx->rank; i++) t->dim[axis + i] = idx->dim[i];
  for (int i = axis + k; i < x->rank; i++) t->dim[i - k + idx->rank] = x->dim[i];
  return true;
}

bool shape_take(C *c) {
  int axis;
  Device dev;
  if (c->n < 1) return gerr_set(c->e, ERR_IR_FORM, -1, "`take` has no operands");
  if (!sh_axis(c, c->in[0]->rank, &axis) || !sh_devices(c, &dev) || !sh_option(c, AT_DISTINCT, 2))
    return false;
  if (!taken(c, 1, axis, &c->out[0])) return false;
  c->out[0].dev = (uint8_t)dev;
  return true;
}

bool shape_put(C *c) {
  int axis, at;
  Device dev;
  Type want;
  if (c->n < 2) return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` lacks operands", op_info[c->op].text);
  if (!sh_domain(c, 0) || !sh_axis(c, c->in[0]->rank, &axis) || !sh_dtypes(c, 0, 2) ||
      !sh_devices(c, &dev) || !sh_option(c, AT_DISTINCT, 2) || !taken(c, 2, axis, &want)) {
    return false;
  }
  bool same = c->in[1]->rank == want.rank;
  if (same &&
      !sh_same_dims(c, &want, c->in[1], "a value written to an index has another shape", &at)) {
    if (at < 0) return false;
    same = false;
  }
  if (!same) {
    gerr_set(c->e, ERR_INDEX_SHAPE, 1, "the place written to is %s, the value is %s",
             sh_type_text(c, &want), sh_operand(c, 1));
    return gerr_help(c->e, "`broadcast(%s, ..)` makes a value of this shape", sh_arg(c, 1));
  }
  c->out[0] = *c->in[0];
  c->out[0].dev = (uint8_t)dev;
  return true;
}

/* x and idx have equal dims but on `axis`. */
static bool along(C *c, int axis) {
  const Type *x = c->in[0], *idx = c->in[1];
  if (!sh_index(c, 1)) return false;
  if (idx->rank != x->rank) {
    gerr_set(c->e, ERR_INDEX_SHAPE, 1, "`%s` of %s takes positions with %d axes, not %s",
             sh_name(c), sh_operand(c, 0), x->rank, sh_operand(c, 1));
    if (idx->rank + 1 == x->rank) {
      return gerr_help(c->e, "`expand(%s, %d)` has them", sh_arg(c, 1), axis);
    }
    return false;
  }
  for (int i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    Tri r =
        sh_equal(c, x->dim[i], idx->dim[i], "positions differ from their tensor beside the axis");
    if (r == FAILED) return false;
    if (r == NO) {
      return gerr_set(c->e, ERR_INDEX_SHAPE, 1,
                      "`%s` along axis %d of %s takes positions equal on the other axes, not %s",
                      sh_name(c), axis, sh_operand(c, 0), sh_operand(c, 1));
    }
  }
  return true;
}

bool shape_gather(C *c) {
  int axis;
  Device dev;
  if (!sh_axis(c, c->in[0]->rank, &axis) || !sh_devices(c, &dev) || !along(c, axis)) return false;
  c->out[0] = *c->in[1];
  c->out[0].dtype = c->in[0]->dtype;
  c->out[0].dev = (uint8_t)dev;
  return true;
}

bool shape_scatter(C *c) {
  int axis, at = -1;
  Device dev;
  if (!sh_domain(c, 0) || !sh_axis(c, c->in[0]->rank, &axis) || !sh_devices(c, &dev) ||
      !along(c, axis)) {
    return false;
  }
  if (c->in[2]->dtype != c->in[0]->dtype) {
    gerr_set(c->e, ERR_DTYPE_DIFFER, 2, "`%s` takes one dtype, not %s and %s", sh_name(c),
             sh_operand(c, 0), sh_operand(c, 2));
    return gerr_help(c->e, "`%s(%s)`", dtype_info[c->in[0]->dtype].name, sh_arg(c, 2));
  }
  bool same = c->in[2]->rank == c->in[1]->rank;
  if (same &&
      !sh_same_dims(c, c->in[1], c->in[2], "values and positions have different shapes", &at)) {
    if (at < 0) return false;
    same = false;
  }
  if (!same) {
    return gerr_set(c->e, ERR_INDEX_SHAPE, 2, "values %s and positions %s have different shapes",
                    sh_operand(c, 2), sh_operand(c, 1));
  }
  c->out[0] = *c->in[0];
  c->out[0].dev = (uint8_t)dev;
  return true;
}

bool shape_sort(C *c) {
  int axis;
  if (!sh_domain(c, 0) || !sh_axis(c, c->in[0]->rank, &axis) || !sh_option(c, AT_DESCENDING, 2)) {
    return false;
  }
  c->out[0] = c->out[1] = *c->in[0];
  c->out[1].dtype = DT_I64;
  return true;
}

bool shape_nonzero(C *c) {
  const Attr *a = attr_find(c->attrs, c->nattrs, AT_MOST);
  const Type *x = c->in[0];
  if (!a && c->into) {
    gerr_set(c->e, ERR_IR_FORM, 0, "the number of results of `nonzero` depends on the data");
    return gerr_help(c->e, "`nonzero(%s, most = n)` has a fixed size", sh_arg(c, 0));
  }
  if (a && (a->kind != AK_DIM || !dim_valid(c->dims, a->u.i))) return sh_bad_attr(c, AT_MOST);
  c->out[0] = type_of(DT_I64, (Device)x->dev, 2);
  c->out[0].dim[0] = a ? (Dim)a->u.i : dim_product(c->dims, x->rank, x->dim);
  c->out[0].dim[1] = dim_const(c->dims, x->rank);
  c->out[1] = type_of(DT_I64, (Device)x->dev, 0);
  return true;
}

/* ---- reductions */

bool shape_reduce(C *c) {
  unsigned mask;
  if (!sh_domain(c, 0) || !sh_axes(c, AT_AXES, c->in[0]->rank, &mask)) return false;
  sh_drop_axes(&c->out[0], c->in[0], mask);
  return true;
}

bool shape_argreduce(C *c) {
  int axis;
  int64_t n;
  if (!sh_domain(c, 0) || !sh_axis(c, c->in[0]->rank, &axis)) return false;
  bool fails = dim_is_const(c->dims, c->in[0]->dim[axis], &n) && n == 0;
  for (int k = 0; k < c->in[0]->rank && fails; k++) /* certain only if there are results */
    fails = k == axis || (dim_is_const(c->dims, c->in[0]->dim[k], &n) && n > 0);
  if (fails) {
    return gerr_set(c->e, ERR_VALUE_RUN, 0, "`%s` along axis %d of %s, which has no elements",
                    sh_name(c), axis, sh_operand(c, 0));
  }
  sh_drop_axes(&c->out[0], c->in[0], 1u << axis);
  c->out[0].dtype = DT_I64;
  return true;
}

bool shape_same_axis(C *c) {
  int axis;
  if (!sh_domain(c, 0) || !sh_axis(c, c->in[0]->rank, &axis) || !sh_option(c, AT_REVERSE, 2)) {
    return false;
  }
  c->out[0] = *c->in[0];
  return true;
}

/* ---- the table */
static bool (*const rule[OP_COUNT])(C *c) = {
#define OP(NAME, text, arity, results, cls, traits, domain, shape, ...) [OP_##NAME] = shape_##shape,
#include "graph/ops_rows.def"
#undef OP
};

int op_result_count(OpCode op, const Attr *attrs, int nattrs, Graph *const *regions, int nregions) {
  const Attr *a;
  switch (op) {
  case OP_LOOP:
    if (nregions < 1 || !regions[0] || regions[0]->output_count >= UINT16_MAX) return -1;
    return (int)regions[0]->output_count + (attr_find(attrs, nattrs, AT_WHILE) != NULL);
  case OP_UNSTASH:
    a = attr_find(attrs, nattrs, AT_MAPPED);
    return a && a->kind == AK_INT && a->u.i > 0 && a->u.i < UINT16_MAX ? (int)a->u.i : -1;
  case OP_CUSTOM:
  case OP_BRANCH:
  case OP_MAP:
  case OP_WRAP:
    if (nregions < 1 || !regions[0] || regions[0]->output_count > UINT16_MAX) return -1;
    return (int)regions[0]->output_count;
  case OP_CALL:
    a = attr_find(attrs, nattrs, AT_DTYPE);
    return a && a->kind == AK_INTS && a->count < UINT16_MAX ? 1 + (int)a->count : -1;
  case OP_DEFER: {
    a = attr_find(attrs, nattrs, AT_CARRY);
    int64_t carry = !a ? 1 : a->kind == AK_INT ? a->u.i : -1;
    return carry >= 0 && carry < UINT16_MAX ? 1 + (int)carry : -1;
  }
  default: return op_info[op].results;
  }
}

/* Checks that sizes computed by the op are not negative and that the bytes can be counted. */
static bool check_sizes(C *c, const Type *t) {
  for (int i = 0; i < t->rank; i++) {
    Dim d = t->dim[i];
    int64_t k;
    if (d == DIM_BAD) {
      return gerr_set(c->e, ERR_SHAPE_SIZE, -1, "a size of the result of `%s` passes 2^63 - 1",
                      sh_name(c));
    }
    if (dim_is_const(c->dims, d, &k) ? k >= 0 : dim_nonneg(c->dims, d)) continue;
    bool known = c->nregions > 0; /* a region tests its own */
    for (int j = 0; j < c->n && !known; j++) {
      for (int a = 0; a < c->in[j]->rank && !known; a++) known = c->in[j]->dim[a] == d;
    }
    if (known || (c->op == OP_INPUT && !dim_is_const(c->dims, d, NULL))) continue;
    Tri r = sh_at_least(c, d, dim_const(c->dims, 0), "a size is negative");
    if (r == NO) {
      gerr_set(c->e, ERR_SHAPE_NEGATIVE, -1, "axis %d of the result of `%s` has the size %s", i,
               sh_name(c), sh_dim_text(c, d));
      return false;
    }
    if (r == FAILED) return false;
  }
  int64_t bytes = (int64_t)dt_size((DType)t->dtype), n;
  bool over = false;
  for (int i = 0; i < t->rank; i++) {
    if (!dim_is_const(c->dims, t->dim[i], &n)) n = 1;
    if (n == 0) return true;
    over = over || __builtin_mul_overflow(bytes, n, &bytes);
  }
  return !over ||
         gerr_set(c->e, ERR_SHAPE_SIZE, -1, "%s has more than 2^63 - 1 bytes", sh_type_text(c, t));
}

bool op_shape(ShapeCall *c) {
  const OpInfo *info = &op_info[c->op];
  if (info->arity >= 0 && c->n != info->arity) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` takes %d operands, not %d", info->text,
                    info->arity, c->n);
  }
  if (c->nregions && !(info->traits & T_REGION)) {
    return gerr_set(c->e, ERR_IR_FORM, -1, "`%s` has no regions", info->text);
  }
  bool tokens = info->cls == EFFECT || info->cls == CONTROL;
  if (!tokens && !sh_tensors(c, 0)) return false;
  if (!rule[c->op](c)) return false;
  for (int i = 0; i < c->nout; i++) {
    c->out[i].alias = 0;
    if (c->out[i].kind == TK_TENSOR && !check_sizes(c, &c->out[i])) return false;
  }
  return true;
}
