#include "jit/lower_dot.h"

bool lower_conv(Dot *d, OpCode op) {
  return gerr_set(d->e, ERR_IR_FORM, -1, "%s has no loop form", op_info[op].text);
}
