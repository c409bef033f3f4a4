/* Values as text: formats of holes, inline text, tables. */
#ifndef CKL_LANG_VALUE_FORMAT_H
#define CKL_LANG_VALUE_FORMAT_H

#include "lang/lang.h"

enum {
  PRINT_INLINE_MOST = 100, /* elements of a line that is printed in full */
  PRINT_WIDTH = 98         /* columns of a table */
};

/* How a value is written on one line. */
typedef struct Print {
  Session *s;
  Buf *out;
  const Format *f; /* applied to every leaf, or NULL */
  Span at;         /* where a format that does not fit is reported */
  bool inside;     /* a tuple, record or list: of big tensors only the type is written */
  /* Called for numbers and tensors whose values code knows only when it runs (V_NODE, V_DIM,
   * params, tensors). NULL: tensors and params are printed, V_NODE and V_DIM by their type. */
  void (*hole)(const struct Print *p, Value v);
  void *ud;
} Print;

/* Tensors are on one line without their type, elided over 100 elements; texts with `quoted` or in
 * another value are in quotes. */
/* In quotes, with escapes; with `program` as a literal that reads back, in which a brace begins a
 * hole. */
void print_quoted(Buf *out, const StrObj *t, bool program);
void print_inline(const Print *p, Value v, bool quoted);
/* A weak list becomes the tensor that it stands for (rule 14); other values are returned. */
Value print_definite(Session *s, Value v, Span at);
void print_line(Buf *out, const Tensor *t, const Format *f, bool inside); /* one tensor */
void format_value(Session *s, Buf *out, Value v, const Format *f, Span at);
void print_value(Session *s, Buf *out, Value v, bool nested);
void show_value(Session *s, Buf *out, const char *name, Value v); /* as the REPL does: show.c */
/* A line with the type, then the table, without the last newline. */
void print_typed(Session *s, Buf *out, const Tensor *t);
void print_table(Session *s, Buf *out,
                 const Tensor *t); /* lines indented by 2, each with its newline */
/* The first n elements of a tensor of one axis, alike; n texts in scratch memory. */
void print_cells(Session *s, const Tensor *t, int64_t n, const char **out);
/* min, mean and max of a float or int tensor, with as many decimals as in its table. */
void print_stats(Session *s, Buf *out, const Tensor *t);

/* Parses the text after the colon of a hole; false if it is not a format. */
bool format_parse(const char *text, size_t n, Format *out);
void format_write(Buf *out, const Format *f); /* the inverse */
/* NULL if the format fits the dtype (a bool is formatted as text), else the reason why not. */
const char *format_misfit(const Format *f, DType dt);

#endif
