#include "jit/lower_impl.h"

bool lower_scatter(Lower *l, const Group *g, Lowered *out, GErr *e) {
  (void)l; (void)g; (void)out;
  return gerr_set(e, ERR_IR_FORM, -1, "no loop form yet");
}
