/* Values as views: a base value read with strides. */
#ifndef CKL_JIT_LOWER_LOWER_VIEW_H
#define CKL_JIT_LOWER_LOWER_VIEW_H

#include "jit/lower/lower.h"

/* Element (i..) of a value is element `offset + sum i_k * stride_k` of `base`, row-major. */
typedef struct View {
  Val base;
  int rank;
  Dim stride[CKL_MAX_RANK], offset;
} View;

/* Follows views down to a value that is computed or placed. Never fails: at worst the base is v. */
void low_view(const Lower *l, Val v, View *out);
static inline bool low_placed(const Lower *l, Val v) {
  return l->placed[l->g->nodes[v.node].result0 + v.res] != 0;
}

#endif
