/* Sizes in keys and graphs.
 *
 * In: sizes of tensors and attributes of operations. Out: parts of a key, and dims of the graph for
 * that key. Invariant: equal keys mean equal patterns of sizes, so their graphs are equal.
 */
#include "lang/value/sizes.h"

static bool is_constant(const Sizes *z, int64_t n) {
  if (n >= 0 && n <= 1) return true;
  for (int i = 0; i < z->pins; i++) {
    if (z->pin[i] == n) return true;
  }
  return false;
}

/* The number of the symbol for n, which may be new; -1: n is a constant. */
static int sizes_number(Sizes *z, int64_t n) {
  if (is_constant(z, n)) return -1;
  for (int k = 0; k < z->count; k++) {
    if (z->n[k] == n) return k;
  }
  if (z->count == z->most) {
    z->full = true;
    return -1;
  }
  z->n[z->count] = n;
  return z->count++;
}

void sizes_pin(Sizes *z, int64_t n) {
  if (!is_constant(z, n) && z->pins < z->most_pins) z->pin[z->pins++] = n;
}

void sizes_key(Buf *b, Sizes *z, int64_t n) {
  int32_t k = sizes_number(z, n);
  key_put(b, &k, sizeof k);
  if (k < 0) key_put(b, &n, sizeof n);
}

static int64_t constant(const Session *s, int64_t d) {
  int64_t n = -1;
  return dim_is_const(s->dims, (Dim)d, &n) ? n : -1;
}

void sizes_key_attrs(Session *s, Buf *b, Sizes *z, const Attr *a, size_t n) {
  for (const Attr *end = a + n; a < end; a++) {
    bool list = a->kind == AK_INTS || a->kind == AK_DIMS;
    uint32_t head[2] = {(uint32_t)a->key << 16 | a->kind, a->count};
    key_put(b, head, sizeof head);
    if (z && a->kind == AK_DIMS) {
      for (uint32_t k = 0; k < a->count; k++) sizes_key(b, z, constant(s, a->u.ints[k]));
    } else if (z && a->kind == AK_DIM) {
      sizes_key(b, z, constant(s, a->u.i));
    } else if (list) {
      buf_put(b, (const char *)a->u.ints, a->count * sizeof *a->u.ints);
    } else {
      key_put(b, &a->u, sizeof a->u);
    }
  }
}

void sizes_symbols(Sizes *z, Arena *a, DimTab *t, Name name) {
  z->dims = t;
  z->symbol = ARENA_ARRAY(a, Dim, z->count + 1);
  for (int i = 0; i < z->count; i++) z->symbol[i] = dim_symbol(t, name, (Span){0}, NULL);
}

Dim sizes_dim(Sizes *z, int64_t n) {
  int k = sizes_number(z, n);
  return k < 0 ? dim_const(z->dims, n) : z->symbol[k];
}

const Attr *sizes_attrs(Session *s, Arena *a, Sizes *z, const Attr *attrs, size_t n) {
  Attr *own = ARENA_ARRAY(a, Attr, n + 1);
  for (size_t i = 0; i < n; i++) {
    own[i] = attrs[i];
    if (own[i].kind == AK_DIM) own[i].u.i = sizes_dim(z, constant(s, own[i].u.i));
    if (own[i].kind != AK_DIMS) continue;
    int64_t *d = ARENA_ARRAY(a, int64_t, own[i].count + 1);
    for (uint32_t k = 0; k < own[i].count; k++) d[k] = sizes_dim(z, constant(s, own[i].u.ints[k]));
    own[i].u.ints = d;
  }
  return own;
}

static void mark_symbol(void *used, Sym s) {
  ((bool *)used)[s] = true;
}

void sizes_used(const Graph *g, bool *used) {
  stack_check();
  for (size_t i = 0; i < g->type_count; i++)
    for (int k = 0; k < g->types[i].rank; k++)
      dim_symbols(g->dims, g->types[i].dim[k], mark_symbol, used);
  for (size_t i = 0; i < g->region_count; i++) sizes_used(g->regions[i], used);
}
