/* The names that a function takes from outside. */
#ifndef CKL_LANG_NAMES_FREE_NAMES_H
#define CKL_LANG_NAMES_FREE_NAMES_H

#include "lang/lang.h"

typedef struct FreeNames {
  Name *items;
  size_t count;
} FreeNames;

/* `assigned`: also all names that it assigns, its own variables included. The result is kept, so
 * `assigned` must be the same in all calls for one node. */
const FreeNames *free_names(Session *s, Node *fn, bool assigned);

/* Those of any node, of a declaration too, on the scratch arena; with `f` of each call `x.f()`. */
const FreeNames *free_names_reached(Session *s, Node *n);

#endif
