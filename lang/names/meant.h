/* Suggestions for an unknown name. */
#ifndef CKL_LANG_NAMES_MEANT_H
#define CKL_LANG_NAMES_MEANT_H

#include "lang/lang.h"

/* The candidate that is closest to a name, if it is close for a name of that length. */
typedef struct Near {
  const char *name, *found; /* found: NULL while nothing is close */
  int distance;             /* a candidate must be closer than this */
} Near;

Near near_start(const char *name);
void near_try(Near *n, const char *candidate); /* NULL and `_names` are no candidates */

/* What ckl has for a name of another language or library, as the text of a help, or NULL. */
/* CALL: a function that ckl has, too, and that is called as elsewhere. */
typedef enum ForeignUse { FOREIGN_NAME, FOREIGN_FIELD, FOREIGN_ARGUMENT, FOREIGN_CALL } ForeignUse;
const char *foreign_help(Session *s, const char *name, ForeignUse use);
/* Of CALL: only if it names another function; only if its line changes a variable. */
const char *foreign_instead(Session *s, const char *name);
const char *foreign_change(Session *s, const char *name);
const char *foreign_member_help(Session *s, const char *module, const char *name);
/* For a method. Of the call place.name(..), with `args` as its text behind the name, a help that
 * changes the place says so of this one; both may be NULL. */
const char *foreign_method_help(Session *s, const char *name, const char *place, const char *args);
const char *foreign_dtype(const char *name); /* "f32" for float32; NULL: it is no dtype */
/* What ckl has for a named argument of another library that a call does not take, or NULL. */
const char *foreign_argument(const char *name);
bool foreign_module(const char *name); /* whether it is a module of another library: np, torch */

/* The `use` that brings a name declared by a module of the library, as the text of a help, or
 * NULL. */
const char *library_help(Session *s, const char *name);
bool library_module(const char *name);
bool library_has(const char *module, const char *name);

/* Adds a help for an unknown name: a name of another language, of the library, or `near`, a known
 * name of similar spelling or NULL. False: there is no help. */
bool help_meant(Session *s, Diag *d, const char *name, const char *near);

/* Help for a field that an instance, or a record, does not have: one of similar spelling, or all
 * its fields. */
const char *meant_field(Session *s, Inst *i, Name f);
const char *meant_item(Session *s, Value x, Name f);

#endif
