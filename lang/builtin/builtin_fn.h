/* Shared by the files of builtins: functions of the table, and readers of arguments. */
#ifndef CKL_LANG_BUILTIN_BUILTIN_FN_H
#define CKL_LANG_BUILTIN_BUILTIN_FN_H

#include "lang/builtin/builtin.h"

/* Axis numbers from an argument: an int or a tuple of ints, negative ones count from the end;
 * sorted, no axis twice. `none` means all. Returns how many. */
int arg_axes(Session *s, Call *c, int i, int rank, int64_t *axes);
int arg_axis(Session *s, Call *c, int i, int rank);
DType arg_dtype(Session *s, Value v, Span at);
/* Argument i as the path of a file. */
const char *arg_path(Session *s, Call *c, int i);
/* Writes a file of n bytes; `at` is the place of its path. */
void arg_write(Session *s, Span at, const char *path, const void *bytes, size_t n);
/* Argument i, numbers or a tensor of script, as a tensor; its leaf for `what` in messages. */
const Tensor *arg_known(Session *s, Call *c, int i, const char *what);
/* Argument i as a tensor. */
Value arg_tensor(Session *s, Call *c, int i);
/* Argument i, which must be a text. */
const StrObj *arg_text(Session *s, Call *c, int i);
/* Whether argument 0 of `int` or `float` is a text, and the number that it is: b_convert.c. */
bool arg_text_number(Session *s, Call *c, Value *out);
/* The element of argument i that is the largest, or least; the first of equal ones. */
Value arg_extreme(Session *s, Call *c, int i, Value by, bool least);

#define BUILTIN_FN(name) Value name(Session *s, Call *c)

BUILTIN_FN(bi_elementwise); /* all of runtime/elementwise.def */
#define BUILTIN_NO_ELEMENTWISE
#define BUILTIN(name, signature, function, ...) BUILTIN_FN(function);
#define CONSTANT(name, number, doc)
#include "lang/builtin/builtins_rows.def"
#undef BUILTIN_NO_ELEMENTWISE
#undef BUILTIN
#undef CONSTANT
/* `split` of a text: b_text.c. */
Value bi_split_text(Session *s, Call *c);

/* The argument nodes of a raw call: receiver first, then by position; named ones by name. */
size_t arg_raw(Session *s, Call *c, Node **out, size_t most, const char *const *names);
/* An operand of a raw call as a reference: `net.w` is the param, not its value. */
Value arg_raw_ref(Session *s, Node *n);

/* b_shape.c: `repeat` of a tensor */
Value builtin_repeat(Session *s, Call *c);
/* b_math.c: along axis 0 of x, from the front */
Value builtin_running_sums(Session *s, Value x, Span at);

#endif
