#include "jit/lower_impl.h"

bool lower_rows(Lower *l, const Group *g, Lowered *out, GErr *e) {
  (void)l; (void)g; (void)out;
  return gerr_set(e, ERR_IR_FORM, -1, "no loop form yet");
}
LVal low_kept(Low *w, const Keep *k, const Spot *s) { (void)k; (void)s; return low_fail(w, "?"); }
