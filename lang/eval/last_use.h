/* Last uses: local variables of script that no later statement mentions (rule 76). */
#ifndef CKL_LANG_EVAL_LAST_USE_H
#define CKL_LANG_EVAL_LAST_USE_H

#include "lang/lang.h"

/* Whether no code that can still run reads local number k, except to print it. `asks`: the
 * expression that asks mentions the local once itself. */
bool local_dead(Session *s, size_t k, bool asks);

#endif
