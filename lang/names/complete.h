/* Names for completion at the prompt. */
#ifndef CKL_LANG_NAMES_COMPLETE_H
#define CKL_LANG_NAMES_COMPLETE_H

#include "lang/lang.h"

/* The i-th name that may stand for what was typed; of a path with dots, for its last part. NULL
 * past the end. */
const char *complete_name(Session *s, const char *typed, size_t i);

#endif
