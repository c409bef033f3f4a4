/* Names for completion at the prompt. */
#ifndef CKL_LANG_NAMES_COMPLETE_H
#define CKL_LANG_NAMES_COMPLETE_H

#include "lang/lang.h"

/* The i-th name that completes the typed text; for a path with dots, its last part. NULL past the
 * end. */
const char *complete_name(Session *s, const char *typed, size_t i);

#endif
