/* What the files of builtins share. */
#ifndef CKL_LANG_BUILTIN_BUILTIN_H
#define CKL_LANG_BUILTIN_BUILTIN_H

#include "lang/lang.h"

/* Axis numbers from an argument: an int or a tuple of ints, negative ones count from the end;
 * sorted, no axis twice. `none` means all. Returns how many. */
int axes_arg(Session *s, Call *c, int i, int rank, int64_t *axes);
int axis_arg(Session *s, Call *c, int i, int rank);
/* A shape: a tuple or weak list of ints, or an int. Returns the rank. */
int shape_arg(Session *s, Value v, Span at, Dim *d);
DType dtype_arg(Session *s, Value v, Span at);
/* Argument i as a tensor. */
Value tensor_arg(Session *s, Call *c, int i);
/* `ckl check`: the value that a builtin would give, as far as it is known. */
Value abstract_builtin(Session *s, const Builtin *b, Call *c);
/* `ckl check` of script: whether the result depends on data. */
bool abstract_only(Session *s, const Call *c);

#define BUILTIN_FN(name) Value name(Session *s, Call *c)

#define BUILTIN(name, signature, function, ...) BUILTIN_FN(function);
#define CONSTANT(name, number, doc)
#include "lang/builtin/builtins.def"
#undef BUILTIN
#undef CONSTANT

/* The argument nodes of a raw call: receiver first, then by position; named ones by name. */
size_t raw_args(Session *s, Call *c, Node **out, size_t most, const char *const *names);
/* An operand of such a call as a reference: `net.w` is the param, not its value. */
Value raw_ref(Session *s, Node *n);

#endif
