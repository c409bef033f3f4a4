/* The error text of layers that have no session: files, graph, autograd.
 *
 * A function that can fail takes an `Err *`, fills it with err_set and returns false or NULL; the
 * caller that has a session turns the text into a diagnostic. */
#ifndef CKL_RUNTIME_ERR_H
#define CKL_RUNTIME_ERR_H

#include <stdbool.h>

typedef struct Err {
  char text[512]; /* one line; cut at a character with `...` when longer */
  bool nomem;     /* the reason is that memory ran out */
  bool closed;    /* the reason is that the host closed it to the program */
  bool interrupted;
} Err;

/* Fills `e` (NULL is fine: the text is dropped) and returns false, so that a failing function can
 * write `return err_set(e, ...)`. Needs no memory; '.' is the decimal point in every locale. */
bool err_set(Err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory: sets `nomem` and a text; `what` needed it (may be NULL). Returns false. */
bool err_nomem(Err *e, const char *what);

/* The session was interrupted: sets `interrupted` and a text. Returns false. */
bool err_interrupted(Err *e);

/* The host does not allow it: sets `closed` and a text. Returns false. */
bool err_closed(Err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
