/* Builtins of stdlib/linalg.ckl: one for each operation on matrices.
 *
 * In: bound arguments. Out: a tensor, or a tuple of the results of the operation. Shapes are tested
 * by the shape rules. */
#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/want.h"

static Attr flag(Session *s, Call *c, int i, AttrKey key) {
  return attr_i(key, want_bool(s, c->v[i], c->spans[i], "this"));
}

/* A matrix of right sides goes with each matrix of a batch. */
static Value for_each(Session *s, Value a, Value b, Span at) {
  if (a.tag == V_UNKNOWN || b.tag == V_UNKNOWN) return b;
  Type t = op_type_of(s, a), u = op_type_of(s, b);
  if (u.rank != 2 || t.rank <= 2) return b;
  for (int k = 0; k < 2; k++) t.dim[t.rank - 2 + k] = u.dim[k];
  return op_broadcast(s, b, t.rank, t.dim, at);
}

BUILTIN_FN(bi_cholesky) {
  Value x = arg_tensor(s, c, 0);
  return op_run(s, OP_CHOLESKY, 1, &x, NULL, 0, c->at);
}

BUILTIN_FN(bi_lu) {
  Value x = arg_tensor(s, c, 0), out[3];
  Attr regular = flag(s, c, 1, AT_REGULAR);
  op_run_multi(s, OP_LU, 1, &x, &regular, 1, c->at, 3, out);
  return v_list(s, V_TUPLE, 3, out);
}

BUILTIN_FN(bi_eigh) {
  Value x = arg_tensor(s, c, 0), out[2];
  Attr values = flag(s, c, 1, AT_VALUES);
  op_run_multi(s, OP_EIGH, 1, &x, &values, 1, c->at, 2, out);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_eig) {
  Value x = arg_tensor(s, c, 0), out[2];
  Attr values = flag(s, c, 1, AT_VALUES);
  op_run_multi(s, OP_EIG, 1, &x, &values, 1, c->at, 2, out);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_qr) {
  Value x = arg_tensor(s, c, 0), out[2];
  op_run_multi(s, OP_QR, 1, &x, NULL, 0, c->at, 2, out);
  return v_list(s, V_TUPLE, 2, out);
}

BUILTIN_FN(bi_svd) {
  Value x = arg_tensor(s, c, 0), out[3];
  Attr a[2] = {flag(s, c, 1, AT_FULL), flag(s, c, 2, AT_VALUES)};
  op_run_multi(s, OP_SVD, 1, &x, a, 2, c->at, 3, out);
  return v_list(s, V_TUPLE, 3, out);
}

BUILTIN_FN(bi_solve) {
  Value v[4];
  for (int i = 0; i < 4; i++) v[i] = arg_tensor(s, c, i);
  v[3] = for_each(s, v[0], v[3], c->at);
  return op_run(s, OP_SOLVE, 4, v, NULL, 0, c->at);
}

BUILTIN_FN(bi_triangular) {
  Value v[2] = {arg_tensor(s, c, 0), arg_tensor(s, c, 1)};
  v[1] = for_each(s, v[0], v[1], c->at);
  Attr a[2] = {flag(s, c, 2, AT_UPPER), flag(s, c, 3, AT_UNIT)};
  return op_run(s, OP_TRIANGULAR, 2, v, a, 2, c->at);
}
