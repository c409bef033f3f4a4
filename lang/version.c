/* Two builtins whose file is still to come. */
#include "lang/builtin.h"

Value bi_einsum(Session *s, Call *c) { fail(s, ERR_NOT_YET, c->at, "not yet: `einsum`"); }
Value bi_rearrange(Session *s, Call *c) { fail(s, ERR_NOT_YET, c->at, "not yet: `rearrange`"); }
