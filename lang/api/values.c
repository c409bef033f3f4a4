/* ckl.h: values and their handles.
 *
 * In: C values, handles. Out: handles that hold a value each. A handle may outlive its session;
 * then it holds nothing.
 */
#include <string.h>

#include "lang/api/job.h"
#include "lang/value/dict.h"

/* ---- values */

ckl_value *handle_new(Session *s, Value v) {
  Mem *m = &s->mem;
  ckl_value *h = mem_try(m, NULL, 0, sizeof *h);
  if (!h) return NULL;
  *h = (ckl_value){
      .rc = 1, .owner = (ckl_session *)s, .v = v, .next = s->handles, .hook = m->hook, .ud = m->ud};
  if (h->next) h->next->prev = h;
  s->handles = h;
  value_retain(v);
  return h;
}

static void array_release(void *p) {
  HandleArray *h = p;
  for (size_t i = 0; i < h->n; i++) ckl_release(h->v[i]);
  mem_free(h->mem, h, h->bytes);
}

HandleArray *handle_array(Session *s, size_t n) {
  size_t bytes = sizeof(HandleArray) + n * sizeof(ckl_value *);
  HandleArray *h = mem_need(&s->mem, NULL, 0, bytes);
  memset(h, 0, bytes);
  h->mem = &s->mem;
  h->bytes = bytes;
  h->n = n;
  mem_pool_add(&s->mem, h, array_release);
  return h;
}

ckl_value *api_handle(ckl_session *k, Value v) {
  bool busy = api_keep_busy(&k->s);
  ckl_value *h = handle_new(&k->s, v);
  k->s.busy = busy;
  return h;
}

ckl_value *api_need_handle(Session *s, Value v) {
  ckl_value *h = handle_new(s, v);
  if (!h) mem_throw(&s->mem, MEM_ERR_NOMEM);
  return h;
}

ckl_value *ckl_retain(ckl_value *v) {
  if (v) v->rc++;
  return v;
}

void ckl_release(ckl_value *v) {
  if (!v || --v->rc > 0) return;
  if (!v->owner) {
    v->hook(v->ud, v, sizeof *v, 0);
    return;
  }
  Session *s = &v->owner->s;
  bool busy = api_keep_busy(s);
  if (v->prev)
    v->prev->next = v->next;
  else
    s->handles = v->next;
  if (v->next) v->next->prev = v->prev;
  tn_unref(v->flat);
  value_release(v->v);
  mem_free(&s->mem, v, sizeof *v);
  s->busy = busy;
}

ckl_value *ckl_int(ckl_session *s, int64_t i) {
  return api_handle(s, v_int(i));
}
ckl_value *ckl_float(ckl_session *s, double x) {
  return api_handle(s, v_float(x));
}
ckl_value *ckl_bool(ckl_session *s, bool b) {
  return api_handle(s, v_bool(b));
}

static void make_str(Job *j) {
  j->v = v_str(j->s, j->text, j->n);
  *j->out = api_need_handle(j->s, j->v);
}

ckl_value *ckl_str(ckl_session *s, const char *text, size_t n) {
  ckl_value *h = NULL;
  if (n && (!text || !str_valid(text, n))) return NULL;
  Job j = {.s = &s->s, .text = text ? text : "", .n = n, .out = &h};
  api_make_value(&j, make_str);
  return h;
}

typedef struct TensorJob {
  int rank;
  const int64_t *dims;
  const void *data; /* to copy; NULL: borrowed, or no elements */
  void *borrowed;
  void (*done)(void *ud);
  void *ud;
} TensorJob;

static void make_tensor(Job *j) {
  const TensorJob *n = j->more;
  Mem *m = &j->s->mem;
  DType dt = (DType)dtype_find(j->name);
  Tensor *t = n->data ? tn_new(m, DEV_CPU, dt, n->rank, n->dims)
                      : tn_foreign(m, dt, n->rank, n->dims, n->borrowed, n->done, n->ud);
  size_t bytes = t && n->data ? (size_t)tn_count(t) * dt_size(dt) : 0;
  if (bytes) memcpy(tn_data(t), n->data, bytes);
  *j->out = api_need_handle(j->s, v_tensor(j->s, t));
}

static ckl_value *new_tensor(ckl_session *k, const char *dtype, TensorJob n) {
  ckl_value *h = NULL;
  if (!dtype || dtype_find(dtype) < 0 || n.rank < 0 || n.rank > CKL_MAX_RANK) return NULL;
  int64_t count = tn_product(n.rank, n.dims);
  if (count < 0 || (count > 0 && !n.data && !n.borrowed)) return NULL;
  Job j = {.s = &k->s, .name = dtype, .more = &n, .out = &h};
  api_make_value(&j, make_tensor);
  return h;
}

ckl_value *ckl_tensor(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                      const void *data) {
  return new_tensor(s, dtype, (TensorJob){.rank = rank, .dims = dims, .data = data});
}

ckl_value *ckl_tensor_borrow(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                             void *data, void (*done)(void *ud), void *ud) {
  return new_tensor(s, dtype, (TensorJob){rank, dims, NULL, data, done, ud});
}

ckl_kind ckl_kind_of(const ckl_value *v) {
  if (!v) return CKL_UNIT;
  switch ((ValueTag)v->v.tag) {
  case V_UNIT: return CKL_UNIT;
  case V_NONE: return CKL_NONE;
  case V_BOOL: return CKL_BOOL;
  case V_INT: return CKL_INT;
  case V_FLOAT: return CKL_FLOAT;
  case V_STR: return CKL_STR;
  case V_TENSOR:
  case V_PARAM: return CKL_TENSOR;
  case V_LIST: return CKL_LIST;
  case V_TUPLE: return CKL_TUPLE;
  case V_RECORD: return CKL_RECORD;
  case V_DICT: return CKL_DICT;
  case V_FN:
  case V_BUILTIN:
  case V_DTYPE: return CKL_FN;
  case V_INST: return CKL_MODEL;
  default: return CKL_OTHER;
  }
}

int64_t ckl_to_int(const ckl_value *v) {
  if (!v) return 0;
  Tensor *t = handle_tensor(v);
  if (t) return tn_count(t) == 1 ? tn_get_i64(t, 0) : 0;
  if (v->v.tag == V_INT || v->v.tag == V_BOOL) return v->v.u.i;
  if (v->v.tag == V_FLOAT && v->v.u.f > -9.2e18 && v->v.u.f < 9.2e18) return (int64_t)v->v.u.f;
  return 0;
}

double ckl_to_float(const ckl_value *v) {
  if (!v) return 0;
  Tensor *t = handle_tensor(v);
  if (t) return tn_count(t) == 1 ? tn_get_f64(t, 0) : 0;
  if (v->v.tag == V_INT || v->v.tag == V_BOOL) return (double)v->v.u.i;
  return v->v.tag == V_FLOAT ? v->v.u.f : 0;
}

const char *ckl_to_str(const ckl_value *v, size_t *n) {
  if (!v || v->v.tag != V_STR) return NULL;
  if (n) *n = v->v.u.str->n;
  return v->v.u.str->s;
}

const char *ckl_tensor_dtype(const ckl_value *v) {
  Tensor *t = handle_tensor(v);
  return t ? dtype_info[t->dtype].name : NULL;
}

int ckl_tensor_rank(const ckl_value *v) {
  Tensor *t = handle_tensor(v);
  return t ? t->rank : -1;
}

int64_t ckl_tensor_dim(const ckl_value *v, int axis) {
  Tensor *t = handle_tensor(v);
  return t && axis >= 0 && axis < t->rank ? t->dim[axis] : -1;
}

const void *ckl_tensor_data(ckl_value *v) {
  Tensor *t = handle_tensor(v);
  if (!t || !v->owner) return NULL;
  if (tn_is_contiguous(t)) return tn_data(t);
  Session *s = &v->owner->s;
  bool busy = api_keep_busy(s);
  tn_unref(v->flat);
  v->flat = tn_contiguous(&s->mem, t);
  s->busy = busy;
  return v->flat ? tn_data(v->flat) : NULL;
}

size_t ckl_length(const ckl_value *v) {
  size_t n = 0;
  if (v) value_items(v->v, &n);
  return n;
}

ckl_value *ckl_item(const ckl_value *v, size_t i) {
  if (!v || !v->owner || i >= ckl_length(v)) return NULL;
  size_t n;
  return api_handle(v->owner, value_items(v->v, &n)[i]);
}

ckl_value *ckl_key(const ckl_value *v, size_t i) {
  if (!v || !v->owner || v->v.tag != V_DICT || i >= ckl_length(v)) return NULL;
  return api_handle(v->owner, v->v.u.dict->keys[i]);
}

const char *ckl_field_name(const ckl_value *v, size_t i) {
  return v && v->v.tag == V_RECORD && i < v->v.u.rec->count ? v->v.u.rec->names[i] : NULL;
}
