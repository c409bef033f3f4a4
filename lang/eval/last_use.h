/* Which local variables of script no later statement mentions (rule 76). */
#ifndef CKL_LANG_EVAL_LAST_USE_H
#define CKL_LANG_EVAL_LAST_USE_H

#include "lang/lang.h"

/* Whether nothing that can still run reads local number k, but for printing; `asks`: the expression
 * that asks mentions it once itself. */
bool local_dead(Session *s, size_t k, bool asks);

#endif
