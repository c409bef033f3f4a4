/* Values as text: formats of holes, inline text, tables. For effect.c, show.c. */
#ifndef CKL_LANG_VALUE_FORMAT_H
#define CKL_LANG_VALUE_FORMAT_H

#include "lang/lang.h"

/* How a value is written on one line. */
typedef struct Print {
  Session *s;
  Buf *out;
  const Format *f; /* applied to every leaf, or NULL */
  Span at;         /* where a format that does not fit is reported */
  bool inside;     /* of a tuple, record or list: big tensors are told by their type */
  /* Called for numbers and tensors of code (V_NODE, V_DIM, params, tensors), whose values are known
   * when it runs; NULL: what is known is printed. */
  void (*hole)(const struct Print *p, Value v);
  void *ud;
} Print;

/* Tensors in one line without their type, elided over 100 elements; texts in quotes when nested. */
void print_inline(const Print *p, Value v, bool quoted);
/* A weak list as the tensor that it is when it is passed (rule 14); other values as they are. */
Value print_definite(Session *s, Value v, Span at);
void print_line(Buf *out, const Tensor *t, const Format *f, bool inside); /* a tensor alone */
void format_value(Session *s, Buf *out, Value v, const Format *f, Span at);
void print_value(Session *s, Buf *out, Value v, bool nested);
void show_value(Session *s, Buf *out, const char *name, Value v); /* what the REPL shows: show.c */
/* A type line and the table, without the last newline. */
void print_typed(Session *s, Buf *out, const Tensor *t);
void print_table(Session *s, Buf *out,
                 const Tensor *t); /* lines indented by 2, each with its newline */
/* min, mean, max of a float or int tensor with as many decimals as its table has. */
void print_stats(Session *s, Buf *out, const Tensor *t);

/* The text of a format as it stands after the colon of a hole; false when it is none. */
bool format_parse(const char *text, size_t n, Format *out);
void format_write(Buf *out, const Format *f); /* the inverse */
/* Whether a format goes with a dtype (as text: bool); else why not. */
const char *format_misfit(const Format *f, DType dt);

#endif
