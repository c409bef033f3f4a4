/* Texts that name axes: what einsum.c and rearrange.c share. */
#ifndef CKL_LANG_EVAL_PATTERN_H
#define CKL_LANG_EVAL_PATTERN_H

#include "lang/builtin/builtin.h"

typedef struct Pattern {
  Session *s;
  const char *text;
  size_t n, pos;
  Span span;        /* of the argument */
  uint32_t literal; /* where the source has the same text, so that errors can point into it; or 0 */
  ErrCode code;
} Pattern;

Span pat_place(const Pattern *p, size_t lo, size_t hi);
/* Evaluates the argument at node; false if its text is not known (`check`). */
bool pat_arg(Session *s, Pattern *p, Node *node, ErrCode code, const char *what);
void pat_skip(Pattern *p); /* blanks */
bool pat_takes(Pattern *p, const char *what);
static inline bool pat_is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static inline bool pat_is_name(char c) {
  return pat_is_letter(c) || (c >= '0' && c <= '9');
}

/* These return x itself if nothing changes. */
Value pat_reshape(Session *s, Value x, int rank, const Dim *d, Span at);
Value pat_transpose(Session *s, Value x, const int64_t *perm, Span at);
const char *pat_dim_text(Session *s, Dim d);
/* False: a and b differ. If the sizes of a call decide that, it adds a check for run time. */
bool pat_sizes_agree(Session *s, Dim a, Dim b, Span at, const char *text);

/* An argument that is not evaluated yet, or the receiver, which is evaluated already. */
typedef struct RawArg {
  Node *node; /* NULL: `value` is the argument */
  Value value;
  Span span;
  Name name;
} RawArg;
size_t pat_call_args(Session *s, Call *c, RawArg **out);
Value pat_call_value(Session *s, RawArg *a);

#endif
