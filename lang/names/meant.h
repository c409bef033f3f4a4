/* What may have been meant by a name that nobody knows. */
#ifndef CKL_LANG_NAMES_MEANT_H
#define CKL_LANG_NAMES_MEANT_H

#include "lang/lang.h"

/* The candidate that is closest to a name, if it is close for a name of that length. */
typedef struct Near {
  const char *name, *found; /* found: NULL while nothing is close */
  int distance;             /* only what is closer than this */
} Near;

Near near_start(const char *name);
void near_try(Near *n, const char *candidate); /* NULL and `_names` are no candidates */

/* What a name of another language or library is here, as the text of a help, or NULL. */
typedef enum ForeignUse { FOREIGN_NAME, FOREIGN_FIELD, FOREIGN_ARGUMENT } ForeignUse;
const char *foreign_help(Session *s, const char *name, ForeignUse use);
const char *foreign_dtype(const char *name); /* "f32" for float32; NULL for what is no dtype */
/* The answer where `call` was called and has no such parameter: what it has instead, or NULL. */
const char *foreign_argument(const char *name);
bool foreign_module(const char *name); /* a module there: np, torch */

/* Which `use` brings a name that a module of the library declares, as the text of a help, or
 * NULL. */
const char *library_help(Session *s, const char *name);
bool library_module(const char *name);
bool library_has(const char *module, const char *name);

/* Help for a name that nobody knows here: another language's, the library's, or one that is spelled
 * nearly so. `near`: the last, or NULL. False: nothing is known. */
bool help_meant(Session *s, Diag *d, const char *name, const char *near);

/* For a field that an instance, or a record, does not have: the one that was meant, or those that
 * it has. */
const char *meant_field(Session *s, Inst *i, Name f);
const char *meant_item(Session *s, Value x, Name f);

#endif
