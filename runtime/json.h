/* JSON (RFC 8259): a text to what it holds, piece by piece. */
#ifndef CKL_RUNTIME_JSON_H
#define CKL_RUNTIME_JSON_H

#include "runtime/err.h"
#include "runtime/mem.h"

typedef enum JsonKind {
  JSON_NULL,
  JSON_BOOL,
  JSON_INT, /* no point and no exponent, and it fits 64 bits */
  JSON_REAL,
  JSON_TEXT,
  JSON_LIST, /* begins; JSON_END ends it */
  JSON_DICT, /* begins; each value in it comes behind a JSON_KEY */
  JSON_KEY,
  JSON_END
} JsonKind;

typedef struct JsonPiece {
  JsonKind kind;
  bool yes;
  int64_t i;
  double x;
  const char *s; /* of texts and keys, without escapes; until the next piece */
  size_t n;
} JsonPiece;

/* Calls take(ud, p) for each piece of n bytes, which hold one value, valid UTF-8; `name` stands for
 * them in messages, which have line and column. take returns NULL, or why it does not want the
 * piece. Lists and dicts nest at most JSON_DEEP deep. Scratch memory comes from the arena; take may
 * throw. False after err_set. */
enum { JSON_DEEP = 512 };
bool json_read(Arena *a, const char *name, const char *text, size_t n,
               const char *(*take)(void *ud, const JsonPiece *p), void *ud, Err *e);

#endif
