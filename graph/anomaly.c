/* Anomaly mode: the first operation that makes a NaN or inf is an error (rule 107).
 *
 * In: an operation, its operands and results. Out: the error, if a result has a kind of number that
 * no operand has.
 */
#include "graph/anomaly.h"

#include "graph/op.h"

enum { HAS_INF = 1, HAS_NAN = 2 };

/* The kinds of numbers in t that are not finite; *where is the place of the first one of `want`. */
static int oddities(const Tensor *t, int want, int64_t *where) {
  int found = 0;
  if (!t || !dt_float(t->dtype)) return 0;
  for (int64_t i = 0, n = tn_count(t); i < n && found != (HAS_INF | HAS_NAN); i++) {
    double x = tn_get_f64(t, i);
    if (x - x == 0) continue;
    int kind = x != x ? HAS_NAN : HAS_INF;
    if ((kind & want) && !(found & want)) *where = i;
    found |= kind;
  }
  return found;
}

bool anomaly_made(OpCode op, bool backward, Tensor *const *in, int nin, Tensor *const *out,
                  int nout, GErr *e) {
  int64_t where = 0;
  int made = 0, had = 0;
  if (op == OP_CONST || (op_info[op].traits & T_VIEW)) return false;
  for (int k = 0; k < nout; k++) made |= oddities(out[k], 0, &where);
  if (!made) return false;
  for (int k = 0; k < nin; k++) had |= oddities(in[k], 0, &where);
  if (had & HAS_NAN) return false;
  made &= ~had;
  for (int k = 0; k < nout && made; k++) {
    int kind = oddities(out[k], made, &where) & made;
    if (!kind) continue;
    double x = tn_get_f64(out[k], where);
    gerr_set(e, ERR_ANOMALY, -1, "`%s`%s made %s at element %lld", op_info[op].text,
             backward ? " of the backward" : "", x != x ? "nan" : "inf", (long long)where);
    return true;
  }
  return false;
}
