/* Movement and selection kernels against element-by-element copies, over random layouts. */
#include "ref-naive.h"
#include "runtime/reference/ref.h"

static DType any(void) {
  return (DType)below(DT_COUNT);
}

/* Row-major number of an index, and back. */
static int64_t number(int rank, const int64_t *dim, const int64_t *idx) {
  int64_t n = 0;
  for (int i = 0; i < rank; i++) n = n * dim[i] + idx[i];
  return n;
}
static void place_of(int rank, const int64_t *dim, int64_t n, int64_t *idx) {
  for (int i = rank - 1; i >= 0; i--) {
    idx[i] = n % dim[i];
    n /= dim[i];
  }
}

static void t_reshape(void) {
  open_all();
  int views = 0;
  for (int round = 0; round < 400; round++) {
    int64_t dim[CKL_MAX_RANK], to[CKL_MAX_RANK];
    int rank = draw_shape(4, dim), n = 0;
    Tensor *x = draw_tensor(any(), rank, dim, WILD);
    int64_t left = tn_count(x);
    if (left == 0) {
      to[n++] = below(3);
      to[n++] = 0;
    } else {
      for (; left > 1 && n < 8;) { /* prime factors, put together by chance */
        int64_t p = 2;
        while (left % p) p++;
        left /= p;
        if (n && below(2))
          to[n - 1] *= p;
        else
          to[n++] = p;
        if (below(5) == 0) to[n++] = 1;
      }
      if (left > 1) to[n++] = left;
    }
    Tensor *want = fresh(x->dtype, n, to), *got;
    FOR_EACH(i, n, to) {
      int64_t from[CKL_MAX_RANK];
      place_of(rank, dim, number(n, to, i), from);
      set_from(want, i, x, from);
    }
    got = ref_reshape(&ref, x, n, to);
    if (got && got->store == x->store) views++;
    same_bits("reshape", got, want);
    tn_unref(x);
  }
  check_int(views, >, 100);
  int64_t dim[] = {2, 3, 4};
  Tensor *x = tn_zeros(&mem, DEV_CPU, DT_F32, 3, dim);
  Tensor *t = ref_transpose(&ref, x, (int64_t[]){1, 0, 2});
  Tensor *v = ref_reshape(&ref, t, 4, (int64_t[]){3, 2, 2, 2});
  check(v->store == x->store); /* splitting an axis keeps the storage */
  check(!ref_reshape(&ref, x, 1, (int64_t[]){23}));
  check_int(ref.err.kind, ==, REF_VALUE);
  tn_unref(v);
  tn_unref(t);
  tn_unref(x);
  close_all();
}

static void t_views(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK], to[CKL_MAX_RANK], perm[CKL_MAX_RANK], start[CKL_MAX_RANK];
    int64_t by[CKL_MAX_RANK], from[CKL_MAX_RANK];
    int rank = draw_shape(4, dim);
    Tensor *x = draw_tensor(any(), rank, dim, WILD);

    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
      int64_t j = below(i + 1), t = perm[i];
      perm[i] = perm[j];
      perm[j] = t;
    }
    for (int i = 0; i < rank; i++) to[i] = dim[perm[i]];
    Tensor *want = fresh(x->dtype, rank, to);
    FOR_EACH(i, rank, to) {
      for (int d = 0; d < rank; d++) from[perm[d]] = i[d];
      set_from(want, i, x, from);
    }
    same_bits("transpose", ref_transpose(&ref, x, perm), want);

    int lead = (int)below(3);
    for (int i = 0; i < lead; i++) to[i] = below(4);
    for (int i = 0; i < rank; i++) to[lead + i] = dim[i] == 1 ? 1 + below(4) : dim[i];
    want = fresh(x->dtype, lead + rank, to);
    FOR_EACH(i, lead + rank, to) {
      for (int d = 0; d < rank; d++) from[d] = dim[d] == 1 ? 0 : i[lead + d];
      set_from(want, i, x, from);
    }
    same_bits("broadcast", ref_broadcast(&ref, x, lead + rank, to), want);

    for (int i = 0; i < rank; i++) {
      start[i] = below(dim[i] + 1);
      by[i] = 1 + below(3);
      to[i] = below((dim[i] - start[i] + by[i] - 1) / by[i] + 1);
    }
    want = fresh(x->dtype, rank, to);
    FOR_EACH(i, rank, to) {
      for (int d = 0; d < rank; d++) from[d] = start[d] + i[d] * by[d];
      set_from(want, i, x, from);
    }
    same_bits("slice", ref_slice(&ref, x, start, to, by), want);
    tn_unref(x);
  }
  close_all();
}

static bool slice_fails(Tensor *x, int64_t start, int64_t len, int64_t by) {
  Tensor *t = ref_slice(&ref, x, &start, &len, &by);
  tn_unref(t);
  return !t;
}

static void t_slice_bounds(void) {
  open_all();
  Tensor *x = tn_zeros(&mem, DEV_CPU, DT_F32, 1, (int64_t[]){5});
  check(!slice_fails(x, 0, 5, 1));
  check(!slice_fails(x, 5, 0, 1));
  check(!slice_fails(x, 0, 3, 2));
  check(!slice_fails(x, 4, 1, INT64_MAX));
  check(slice_fails(x, 0, 6, 1));
  check_str(ref.err.text, "slice of 6 from 0 is out of range for axis 0 of size 5");
  check_int(ref.err.kind, ==, REF_INDEX);
  check(slice_fails(x, 6, 0, 1));
  check(slice_fails(x, -1, 1, 1));
  check(slice_fails(x, 0, -1, 1));
  check(slice_fails(x, 1, 3, 2));
  check_str(ref.err.text, "slice of 3 from 1 by 2 is out of range for axis 0 of size 5");
  check(slice_fails(x, 0, 2, 0));
  check(slice_fails(x, 0, 3, INT64_MAX));
  check(slice_fails(x, INT64_MAX, 1, 1));
  tn_unref(x);
  close_all();
}

static void t_pad(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK], to[CKL_MAX_RANK], low[CKL_MAX_RANK], high[CKL_MAX_RANK];
    int64_t inner[CKL_MAX_RANK], from[CKL_MAX_RANK];
    int rank = draw_shape(3, dim);
    Tensor *x = draw_tensor(any(), rank, dim, WILD);
    double value = below(2) ? 0 : dt_float(x->dtype) ? -2.5 : x->dtype == DT_BOOL ? 1 : 7;
    for (int i = 0; i < rank; i++) {
      low[i] = below(3);
      high[i] = below(3);
      inner[i] = below(2) * below(3);
      to[i] = low[i] + high[i] + dim[i] + (dim[i] > 1 ? (dim[i] - 1) * inner[i] : 0);
    }
    Tensor *want = fresh(x->dtype, rank, to);
    FOR_EACH(i, rank, to) {
      bool in = true;
      for (int d = 0; d < rank; d++) {
        int64_t p = i[d] - low[d];
        from[d] = p / (1 + inner[d]);
        in = in && p >= 0 && p % (1 + inner[d]) == 0 && from[d] < dim[d];
      }
      if (in)
        set_from(want, i, x, from);
      else if (dt_float(x->dtype))
        set_f(want, i, value);
      else
        set_i(want, i, (int64_t)value);
    }
    Tensor *one = value != 0 ? tn_scalar_f64(&mem, DEV_CPU, x->dtype, value) : NULL;
    same_bits("pad", ref_pad(&ref, x, low, high, inner, one), want);
    tn_unref(one);
    tn_unref(x);
  }
  close_all();
}

static void t_flip_concat(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK], from[CKL_MAX_RANK], axes[CKL_MAX_RANK];
    int rank = draw_shape(4, dim), n = 0;
    Tensor *x = draw_tensor(any(), rank, dim, WILD), *want = fresh(x->dtype, rank, dim);
    for (int i = 0; i < rank; i++)
      if (below(2)) axes[n++] = i;
    FOR_EACH(i, rank, dim) {
      memcpy(from, i, sizeof from);
      for (int k = 0; k < n; k++) from[axes[k]] = dim[axes[k]] - 1 - i[axes[k]];
      set_from(want, i, x, from);
    }
    same_bits("flip", ref_flip(&ref, x, n, axes), want);
    if (rank > 0) {
      Tensor *part[4] = {x};
      int parts = 1 + (int)below(4), axis = (int)below(rank);
      int64_t to[CKL_MAX_RANK], size[CKL_MAX_RANK];
      memcpy(to, dim, sizeof to);
      for (int k = 1; k < parts; k++) {
        memcpy(size, dim, sizeof size);
        size[axis] = below(5);
        part[k] = draw_tensor(x->dtype, rank, size, WILD);
        to[axis] += size[axis];
      }
      want = fresh(x->dtype, rank, to);
      FOR_EACH(i, rank, to) {
        int k = 0;
        memcpy(from, i, sizeof from);
        for (; from[axis] >= part[k]->dim[axis]; k++) from[axis] -= part[k]->dim[axis];
        set_from(want, i, part[k], from);
      }
      same_bits("concat", ref_concat(&ref, parts, part, axis), want);
      for (int k = 1; k < parts; k++) tn_unref(part[k]);
    }
    tn_unref(x);
  }
  close_all();
}

static void t_iota(void) {
  open_all();
  for (int d = DT_U8; d < DT_COUNT; d++) {
    int64_t n = 5000;
    Tensor *want = fresh((DType)d, 1, &n);
    FOR_EACH(i, 1, &n) {
      if (dt_float((DType)d))
        set_f(want, i, (double)i[0]);
      else
        set_i(want, i, i[0]);
    }
    same_bits("iota", ref_iota(&ref, DEV_CPU, (DType)d, n), want);
  }
  Tensor *none = ref_iota(&ref, DEV_CPU, DT_I64, 0);
  check_int(none->dim[0], ==, 0);
  tn_unref(none);
  close_all();
}

/* ---- take, put */

static void add_at(Tensor *t, const int64_t *it, const Tensor *u, const int64_t *iu) {
  if (t->dtype == DT_F64)
    set_f(t, it, get_f(t, it) + get_f(u, iu));
  else if (dt_float(t->dtype)) {
    set_f(t, it, (double)((float)get_f(t, it) + (float)get_f(u, iu)));
  } else
    set_i(t, it, (int64_t)((uint64_t)get_i(t, it) + (uint64_t)get_i(u, iu)));
}

/* Where element `i` of a take's result comes from. */
static void source_of(const Tensor *x, int axis, int k, Tensor *const *idx, const int64_t *i,
                      int64_t *from) {
  int irank = idx[0]->rank;
  for (int d = 0; d < axis; d++) from[d] = i[d];
  for (int a = 0; a < k; a++) from[axis + a] = get_i(idx[a], i + axis);
  for (int d = axis + k; d < x->rank; d++) from[d] = i[d - k + irank];
}

static void t_take_put(void) {
  open_all();
  for (int round = 0; round < 300; round++) {
    int64_t dim[CKL_MAX_RANK], idim[CKL_MAX_RANK], to[CKL_MAX_RANK], from[CKL_MAX_RANK];
    int rank = 1 + (int)below(4), irank = (int)below(3);
    for (int i = 0; i < rank; i++) dim[i] = 1 + below(6);
    if (below(8) == 0) dim[rank - 1] = 3000;
    int axis = (int)below(rank), k = 1 + (int)below(rank - axis);
    for (int i = 0; i < irank; i++) idim[i] = below(10) == 0 ? 0 : 1 + below(5);
    if (irank == 1 && dim[rank - 1] < 10 && below(5) == 0) idim[0] = 2500;
    DType dt = any();
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *idx[CKL_MAX_RANK];
    for (int a = 0; a < k; a++) idx[a] = draw_index(irank, idim, dim[axis + a]);
    int n = 0;
    for (int d = 0; d < axis; d++) to[n++] = dim[d];
    for (int d = 0; d < irank; d++) to[n++] = idim[d];
    for (int d = axis + k; d < rank; d++) to[n++] = dim[d];

    Tensor *want = fresh(dt, n, to);
    FOR_EACH(i, n, to) {
      source_of(x, axis, k, idx, i, from);
      set_from(want, i, x, from);
    }
    same_bits("take", ref_take(&ref, x, axis, k, idx), want);

    Tensor *upd = draw_tensor(dt, n, to, WILD);
    for (int add = 0; add < (dt == DT_BOOL ? 1 : 2); add++) {
      want = tn_copy(&mem, x, DEV_CPU);
      FOR_EACH(i, n, to) {
        source_of(x, axis, k, idx, i, from);
        if (add)
          add_at(want, from, upd, i);
        else
          set_from(want, from, upd, i);
      }
      same_bits(add ? "put_add" : "put", ref_put(&ref, x, upd, axis, k, idx, add), want);
    }
    tn_unref(x);
    tn_unref(upd);
    for (int a = 0; a < k; a++) tn_unref(idx[a]);
  }
  close_all();
}

static void t_gather_scatter(void) {
  open_all();
  for (int round = 0; round < 300; round++) {
    int64_t dim[CKL_MAX_RANK], idim[CKL_MAX_RANK], from[CKL_MAX_RANK];
    int rank = 1 + (int)below(4);
    for (int i = 0; i < rank; i++) dim[i] = 1 + below(6);
    int axis = (int)below(rank);
    memcpy(idim, dim, sizeof idim);
    idim[axis] = below(5) == 0 ? below(2000) : below(7);
    DType dt = any();
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *idx = draw_index(rank, idim, dim[axis]);
    Tensor *want = fresh(dt, rank, idim), *upd = draw_tensor(dt, rank, idim, WILD);
    FOR_EACH(i, rank, idim) {
      memcpy(from, i, sizeof from);
      from[axis] = get_i(idx, i);
      set_from(want, i, x, from);
    }
    same_bits("gather", ref_gather(&ref, x, idx, axis), want);
    for (int add = 0; add < (dt == DT_BOOL ? 1 : 2); add++) {
      want = tn_copy(&mem, x, DEV_CPU);
      FOR_EACH(i, rank, idim) {
        memcpy(from, i, sizeof from);
        from[axis] = get_i(idx, i);
        if (add)
          add_at(want, from, upd, i);
        else
          set_from(want, from, upd, i);
      }
      same_bits(add ? "scatter_add" : "scatter", ref_scatter(&ref, x, idx, upd, axis, add), want);
    }
    tn_unref(x);
    tn_unref(upd);
    tn_unref(idx);
  }
  close_all();
}

static void t_bad_index(void) {
  open_all();
  Tensor *x = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){5, 6});
  Tensor *a = tn_zeros(&mem, DEV_CPU, DT_I64, 2, (int64_t[]){2, 4});
  Tensor *b = tn_zeros(&mem, DEV_CPU, DT_I64, 2, (int64_t[]){2, 4});
  set_i(a, (int64_t[]){0, 3}, 7);
  set_i(a, (int64_t[]){1, 0}, -1);
  check(!ref_take(&ref, x, 0, 1, &a));
  check_int(ref.err.kind, ==, REF_INDEX);
  check_str(ref.err.text,
            "index 7 is out of range for axis 0 of size 5 (element [0, 3] of the index)");
  set_i(b, (int64_t[]){0, 2}, -1);
  Tensor *both[] = {a, b};
  check(!ref_take(&ref, x, 0, 2, both));
  check_str(ref.err.text,
            "index -1 is out of range for axis 1 of size 6 (element [0, 2] of the index)");
  set_i(b, (int64_t[]){0, 2}, 0);
  set_i(b, (int64_t[]){0, 3}, 9);
  Tensor *u = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){2, 4});
  check(!ref_put(&ref, x, u, 0, 2, both, true));
  check_str(ref.err.text,
            "index 7 is out of range for axis 0 of size 5 (element [0, 3] of the index)");
  Tensor *g = tn_zeros(&mem, DEV_CPU, DT_I64, 2, (int64_t[]){5, 2});
  set_i(g, (int64_t[]){3, 1}, 6);
  check(!ref_gather(&ref, x, g, 1));
  check_str(ref.err.text,
            "index 6 is out of range for axis 1 of size 6 (element [3, 1] of the index)");
  Tensor *v = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){5, 2});
  check(!ref_scatter(&ref, x, g, v, 1, false));
  check_has(ref.err.text, "(element [3, 1] of the index)");
  Tensor *s = tn_scalar_i64(&mem, DEV_CPU, DT_I64, 5);
  check(!ref_take(&ref, x, 0, 1, &s));
  check_str(ref.err.text, "index 5 is out of range for axis 0 of size 5");
  /* an index is checked even if nothing would be read with it */
  Tensor *e = tn_zeros(&mem, DEV_CPU, DT_F32, 2, (int64_t[]){5, 0});
  check(!ref_take(&ref, e, 0, 1, &s));
  Tensor *all[] = {x, a, b, u, g, v, s, e};
  for (int i = 0; i < 8; i++) tn_unref(all[i]);
  close_all();
}

/* ---- sort, nonzero */

/* Does element p come before q in a stable sort? */
static bool before(const Tensor *x, const int64_t *p, const int64_t *q, bool descending, int axis) {
  if (dt_float(x->dtype)) {
    double a = get_f(x, p), b = get_f(x, q);
    if (isnan(a) != isnan(b)) return isnan(b);
    if (!isnan(a) && a != b) return descending ? a > b : a < b;
  } else {
    int64_t a = get_i(x, p), b = get_i(x, q);
    if (a != b) return descending ? a > b : a < b;
  }
  return p[axis] < q[axis];
}

static void t_sort(void) {
  open_all();
  for (int round = 0; round < 150; round++) {
    int64_t dim[CKL_MAX_RANK], p[CKL_MAX_RANK], q[CKL_MAX_RANK];
    int rank = draw_shape(3, dim);
    if (rank == 0) continue;
    for (int i = 0; i < rank; i++)
      if (dim[i] > 300) dim[i] = 300;
    int axis = (int)below(rank);
    DType dt = any();
    bool descending = below(2) == 1;
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *val, *pos;
    Tensor *wval = fresh(dt, rank, dim), *wpos = fresh(DT_I64, rank, dim);
    FOR_EACH(i, rank, dim) { /* the place of i is the number of elements before it */
      int64_t n = 0;
      memcpy(p, i, sizeof p);
      for (p[axis] = 0; p[axis] < dim[axis]; p[axis]++) n += before(x, p, i, descending, axis);
      memcpy(q, i, sizeof q);
      q[axis] = n;
      set_from(wval, q, x, i);
      set_i(wpos, q, i[axis]);
    }
    check(ref_sort(&ref, x, axis, descending, &val, &pos));
    same_bits("sort", val, wval);
    same_bits("positions", pos, wpos);
    tn_unref(x);
  }
  close_all();
}

static void t_long_sort(void) {
  open_all();
  int64_t n = 100000, dim[] = {n};
  Tensor *x = draw_tensor(DT_I16, 1, dim, WILD), *val, *pos;
  check(ref_sort(&ref, x, 0, false, &val, &pos));
  for (int64_t i = 1; i < n; i++) {
    int64_t a = get_i(val, (int64_t[]){i - 1}), b = get_i(val, &i);
    int64_t p = get_i(pos, (int64_t[]){i - 1}), q = get_i(pos, &i);
    check(a < b || (a == b && p < q));
    check(get_i(x, &q) == b);
  }
  tn_unref(x);
  tn_unref(val);
  tn_unref(pos);
  close_all();
}

static void t_nonzero(void) {
  open_all();
  for (int round = 0; round < 200; round++) {
    int64_t dim[CKL_MAX_RANK], row = 0, found = 0;
    int rank = draw_shape(4, dim);
    DType dt = any();
    Tensor *x = draw_tensor(dt, rank, dim, WILD), *pos, *num;
    FOR_EACH(i, rank, dim) {
      if (below(2)) memset(at(x, i), 0, dt_size(dt));
    }
    FOR_EACH(i, rank, dim) found += dt_float(dt) ? get_f(x, i) != 0 : get_i(x, i) != 0;
    int64_t most = below(2) ? -1 : below(2 * found + 3);
    Tensor *want = tn_zeros(&mem, DEV_CPU, DT_I64, 2, (int64_t[]){most < 0 ? found : most, rank});
    FOR_EACH(i, rank, dim) {
      if (!(dt_float(dt) ? get_f(x, i) != 0 : get_i(x, i) != 0)) continue;
      if (row < want->dim[0])
        for (int64_t d = 0; d < rank; d++) set_i(want, (int64_t[]){row, d}, i[d]);
      row++;
    }
    check(ref_nonzero(&ref, x, most, &pos, &num));
    same_bits("nonzero", pos, want);
    check_int(tn_get_i64(num, 0), ==, found);
    check_int(num->rank, ==, 0);
    tn_unref(num);
    tn_unref(x);
  }
  close_all();
}

int main(void) {
  TEST(t_reshape(), "reshape keeps row-major order, as a view where strides allow");
  TEST(t_views(), "transpose, broadcast and slice are views of the right elements");
  TEST(t_slice_bounds(), "a slice out of range is an error, in every way it can be");
  TEST(t_pad(), "pad puts values around and between");
  TEST(t_flip_concat(), "flip reverses, concat joins");
  TEST(t_iota(), "iota counts");
  TEST(t_take_put(), "take reads, put writes in row-major order, the last wins or all add");
  TEST(t_gather_scatter(), "gather reads along an axis, scatter writes");
  TEST(t_bad_index(), "the first bad index is named with its place");
  TEST(t_sort(), "sort is stable, NaN last both ways");
  TEST(t_long_sort(), "a long sort is in order and stable");
  TEST(t_nonzero(), "nonzero lists positions in row-major order");
  return tap_done();
}
