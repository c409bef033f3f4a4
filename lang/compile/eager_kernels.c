/* Single operations of script as machine code.
 *
 * In: an operation with tensors, as for gr_run_op. Out: the same. A large operation becomes a graph
 * of one node whose sizes are symbols, equal sizes one symbol, so that one kernel serves all sizes;
 * the session keeps these graphs by operation, dtypes, ranks, attributes and the pattern of sizes.
 * For an operand that is a transposed or repeated view, the input is the viewed tensor and the view
 * is in the graph: nothing is copied. Views themselves, small operations and failures are left to
 * gr_run_op. Invariant: a kept graph depends on its key alone.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "graph/build.h"
#include "graph/op.h"
#include "graph/run_op.h"
#include "lang/compile/eager_kernels.h"
#include "lang/compile/report.h"
#include "lang/compile/tiering.h"
#include "lang/value/sizes.h"

enum {
  KEPT = 512, /* graphs, a power of two; a newer one replaces an older one */
  MOST_OPERANDS = 8,
  MOST_SIZES = 64, /* different sizes in one operation */
  LARGE = 16384,   /* elements, or 1/8 of the multiplications of a contraction */
  SHARED = 4096    /* elements of matrices whose factorization has threads */
};

typedef struct Entry {
  Session *s;
  int64_t rc;
  Arena arena;
  const char *key;
  size_t key_len;
  Graph *g; /* NULL: no symbolic form */
  Native *native;
} Entry;

struct NativeOps {
  Entry *slot[KEPT];
};

static void entry_release(void *p) {
  Entry *x = p;
  if (--x->rc > 0) return;
  Mem *m = &x->s->mem;
  native_free(m, x->native);
  arena_free(&x->arena);
  mem_free(m, x, sizeof *x);
}

void native_ops_free(Session *s) {
  if (!s->native_ops) return;
  for (size_t i = 0; i < KEPT; i++)
    if (s->native_ops->slot[i]) entry_release(s->native_ops->slot[i]);
  mem_free(&s->mem, s->native_ops, sizeof *s->native_ops);
  s->native_ops = NULL;
}

/* ---- operations that are worth it */
static bool large(const Session *s, OpCode op, Tensor *const *in, int n) {
  const OpInfo *info = &op_info[op];
  if (info->traits & (T_VIEW | T_REGION | T_EFFECT) || info->cls == GENERATE || info->results != 1)
    return false;
  if (op == OP_SORT || op == OP_NONZERO || info->cls == FACTOR || n < 1 || n > MOST_OPERANDS)
    return false;
  int64_t most = 0;
  for (int i = 0; i < n; i++) {
    int64_t count = tn_count(in[i]);
    if (in[i]->store->dev != DEV_CPU || count == 0) return false;
    if (count > most) most = count;
  }
  if (s->config.cpu != CPU_TIERED) return true;
  if (info->cls == CONTRACT && in[0]->rank) most *= in[0]->dim[in[0]->rank - 1] / 8 + 1;
  return most >= LARGE;
}

/* ---- operands as views of something dense */
typedef struct Operand {
  int rank;
  int64_t dim[CKL_MAX_RANK];  /* as the operation sees it */
  int64_t perm[CKL_MAX_RANK]; /* axis k is axis perm[k] of the dense one */
  bool repeat[CKL_MAX_RANK];  /* axis k has one element in the dense tensor */
  bool moved, repeats;
} Operand;

/* Axes by their strides, the largest first; an axis of one element stays about where it is. */
static void look_at(const Tensor *t, Operand *o) {
  int order[CKL_MAX_RANK];
  *o = (Operand){.rank = t->rank};
  for (int k = 0; k < t->rank; k++) {
    o->dim[k] = t->dim[k];
    o->repeat[k] = t->stride[k] == 0 && t->dim[k] > 1;
    o->repeats |= o->repeat[k];
    int at = k;
    for (; at > 0; at--) {
      int j = order[at - 1];
      bool either = o->repeat[j] || o->repeat[k] || t->dim[j] == 1 || t->dim[k] == 1;
      if (either || t->stride[j] >= t->stride[k]) break;
      order[at] = j;
    }
    order[at] = k;
  }
  for (int k = 0; k < t->rank; k++) {
    o->perm[order[k]] = k;
    o->moved |= order[k] != k;
  }
}

/* The dense tensor under the view t; a new reference. */
static Tensor *dense_of(Session *s, Tensor *t, const Operand *o) {
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK];
  if (!o->moved && !o->repeats) return tn_ref(t);
  for (int k = 0; k < t->rank; k++) {
    dim[o->perm[k]] = o->repeat[k] ? 1 : t->dim[k];
    stride[o->perm[k]] = t->stride[k];
  }
  Tensor *v = tn_view(&s->mem, t, t->rank, dim, stride, t->offset);
  if (!v) mem_throw(&s->mem, MEM_ERR_NOMEM);
  return v;
}

/* ---- the key: sizes as their numbers */
static bool key_of(Session *s, Buf *b, Sizes *z, OpCode op, const Attr *attrs, int nattrs,
                   Tensor *const *in, const Operand *o, int n) {
  uint16_t code = (uint16_t)op;
  key_put(b, &code, sizeof code);
  for (int i = 0; i < n; i++) {
    uint8_t type[2] = {(uint8_t)in[i]->dtype, (uint8_t)in[i]->rank};
    key_put(b, type, sizeof type);
    for (int k = 0; k < o[i].rank; k++) {
      uint8_t axis = (uint8_t)(o[i].perm[k] << 1 | o[i].repeat[k]);
      sizes_key(b, z, o[i].dim[k]);
      key_put(b, &axis, sizeof axis);
    }
  }
  sizes_key_attrs(s, b, z, attrs, (size_t)nattrs);
  return !z->full;
}

/* ---- the graph */
static Graph *build(Session *s, Arena *a, Sizes *z, OpCode op, const Attr *attrs, int nattrs,
                    Tensor *const *in, const Operand *o, int n) {
  Graph *g = gr_new(a, dim_tab_new(a), s->names, names_of(s->names, op_info[op].text));
  Val v[MOST_OPERANDS];
  sizes_symbols(z, a, g->dims, names_of(s->names, "n"));
  for (int i = 0; i < n; i++) {
    Type t = {.kind = TK_TENSOR, .dtype = (uint8_t)in[i]->dtype, .rank = (uint8_t)o[i].rank};
    int64_t dims[CKL_MAX_RANK];
    for (int k = 0; k < o[i].rank; k++) {
      dims[k] = sizes_dim(z, o[i].dim[k]);
      t.dim[o[i].perm[k]] = o[i].repeat[k] ? dim_const(g->dims, 1) : (Dim)dims[k];
    }
    v[i] = gr_input(g, &t);
    Attr perm = attr_ints(AT_PERM, o[i].rank, o[i].perm);
    Attr whole = attr_dims(AT_DIMS, o[i].rank, dims);
    if (o[i].moved) v[i] = gr_op(g, OP_TRANSPOSE, &v[i], 1, &perm, 1, NULL, 0, NULL);
    if (o[i].repeats && !val_none(v[i]))
      v[i] = gr_op(g, OP_BROADCAST, &v[i], 1, &whole, 1, NULL, 0, NULL);
    if (val_none(v[i])) return NULL;
  }
  const Attr *own = sizes_attrs(s, a, z, attrs, (size_t)nattrs);
  Val r = gr_op(g, op, v, n, own, nattrs, NULL, 0, NULL);
  if (val_none(r)) return NULL;
  gr_output(g, r);
  return g;
}

static Entry *entry_of(Session *s, const Buf *key, Sizes *z, OpCode op, const Attr *attrs,
                       int nattrs, Tensor *const *in, const Operand *o, int n) {
  if (!s->native_ops) {
    s->native_ops = mem_need(&s->mem, NULL, 0, sizeof *s->native_ops);
    memset(s->native_ops, 0, sizeof *s->native_ops);
  }
  Entry **slot = &s->native_ops->slot[XXH3_64bits(key->s, key->n) & (KEPT - 1)];
  if (*slot && (*slot)->key_len == key->n && !memcmp((*slot)->key, key->s, key->n)) return *slot;
  size_t mark = mem_pool_mark(&s->mem);
  Entry *x = mem_need(&s->mem, NULL, 0, sizeof *x);
  *x = (Entry){.s = s, .rc = 1};
  arena_init(&x->arena, &s->mem);
  mem_pool_add(&s->mem, x, entry_release);
  x->key = arena_strdup(&x->arena, key->s, key->n);
  x->key_len = key->n;
  x->g = build(s, &x->arena, z, op, attrs, nattrs, in, o, n);
  if (*slot) entry_release(*slot);
  *slot = x;
  x->rc++;
  mem_pool_drain(&s->mem, mark);
  return x;
}

/* False: the operation is left to gr_run_op, which also reports every error. `e` is set by faults
 * of ckl itself. */
static bool by_code(Session *s, RunCtx *c, OpCode op, const Attr *attrs, int nattrs,
                    Tensor *const *in, int n, Tensor **out, GErr *e) {
  Operand o[MOST_OPERANDS];
  int64_t sizes[MOST_SIZES];
  Sizes z = {.n = sizes, .most = MOST_SIZES};
  Buf key;
  buf_init_arena(&key, &s->scratch);
  for (int i = 0; i < n; i++) look_at(in[i], &o[i]);
  if (!key_of(s, &key, &z, op, attrs, nattrs, in, o, n)) return false;
  Entry *x = entry_of(s, &key, &z, op, attrs, nattrs, in, o, n);
  if (!x->g) return false;
  x->rc++; /* another key may take its place in the table while it runs */
  size_t mark = mem_pool_mark(&s->mem);
  mem_pool_add(&s->mem, x, entry_release);
  Tensor *dense[MOST_OPERANDS];
  for (int i = 0; i < n; i++) {
    dense[i] = dense_of(s, in[i], &o[i]);
    mem_pool_add(&s->mem, dense[i], (void (*)(void *))tn_unref);
  }
  RunCtx inner = *c;
  inner.env = z.n;
  bool ok = native_run(s, &x->native, x->g, op_info[op].text, &inner, dense, out, e, NULL);
  mem_pool_drain(&s->mem, mark);
  return ok;
}

bool native_op(Session *s, RunCtx *c, OpCode op, const Attr *attrs, int nattrs, Tensor *const *in,
               int nin, Tensor **out, int nout, GErr *e) {
  report_op_count(s, op);
  bool code = s->config.cpu != CPU_REFERENCE && !c->anomaly && large(s, op, in, nin);
  GErr fault = {.text = ""};
  if (code && by_code(s, c, op, attrs, nattrs, in, nin, out, &fault)) {
    c->nodes_run++;
    return true;
  }
  if (fault.text[0] && fault.code == ERR_BUG) {
    *e = fault;
    return false;
  }
  if (op_info[op].cls == FACTOR) c->pool = native_pool(s, tn_count(in[0]) >= SHARED);
  return gr_run_op(c, s->dims, op, attrs, nattrs, in, nin, out, nout, e);
}
