/* Sessions and values as handles of the C API, for the files that implement ckl.h. */
#ifndef CKL_LANG_VALUE_HANDLE_H
#define CKL_LANG_VALUE_HANDLE_H

#include "ckl.h"
#include "lang/lang.h"

struct ckl_session {
  Session s;
};

struct ckl_value {
  int64_t rc;
  ckl_session *owner;
  Value v;
  Tensor *flat; /* row-major copy handed out by ckl_tensor_data, or NULL */
  ckl_value *prev, *next;
  MemHook hook; /* a handle may outlive its session */
  void *ud;
};

/* A new handle, which retains v; NULL when out of memory. */
ckl_value *handle_new(Session *s, Value v);

/* n handles for a call of the host, all NULL, on the pool, which releases them. Throws. */
typedef struct HandleArray {
  Mem *mem;
  size_t bytes, n;
  ckl_value *v[];
} HandleArray;
HandleArray *handle_array(Session *s, size_t n);

/* Whether v is a value of this session; values of other sessions are refused (rule 102). */
static inline bool handle_fits(const Session *s, const ckl_value *v) {
  return v && v->owner && &v->owner->s == s;
}

/* The tensor of a tensor or param; NULL for other values. */
static inline Tensor *handle_tensor(const ckl_value *v) {
  if (!v) return NULL;
  return v->v.tag == V_TENSOR ? v->v.u.t->t : v->v.tag == V_PARAM ? v->v.u.p->t : NULL;
}

#endif
