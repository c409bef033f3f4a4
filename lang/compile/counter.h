/* Counters of a session, by name. */
#ifndef CKL_LANG_COMPILE_COUNTER_H
#define CKL_LANG_COMPILE_COUNTER_H

#include "lang/lang.h"

int64_t counter_read(const Session *s, const char *name);

#endif
