/* Tables of numbers in text: CSV and its relatives.
 *
 * Fields are separated by the first of `;` `,` tab blank that the second line has, or else the
 * first line. Blanks and quotes around a field, blank lines, CRLF and text behind a `#` do not
 * count. A first line is skipped as a header when none of its fields is a number.
 * Numbers are decimal, with '.' whatever the locale, inf or nan, correctly rounded. */
#ifndef CKL_RUNTIME_CSV_H
#define CKL_RUNTIME_CSV_H

#include "runtime/err.h"
#include "runtime/tensor.h"

/* A new tensor [rows, columns] of dtype f32, f64 or i64 (fields must then be whole numbers) on
 * DEV_CPU. NULL after err_set; the text has file:line:column and the reason. */
Tensor *csv_read(Mem *m, const char *file, DType dt, Err *e);
/* Reads a table from memory, by the rules of csv_read; `name` stands for the file in messages. */
Tensor *csv_parse(Mem *m, const char *name, const char *text, size_t n, DType dt, Err *e);

/* A text of n bytes. */
typedef struct CsvText {
  const char *s;
  size_t n;
} CsvText;
/* A column to be written: element first + i * step of a tensor, or texts. */
typedef struct CsvColumn {
  const Tensor *t; /* NULL: texts */
  int64_t first, step;
  const CsvText *texts;
} CsvColumn;

/* Writes a table as a whole or not at all: `header`, unless it is NULL, then `rows` lines of n
 * fields, with `,` between them. A number is the shortest text that reads back. A text is quoted if
 * it has to be. False after err_set. */
bool csv_write(Mem *m, const char *file, const CsvText *header, size_t n, const CsvColumn *columns,
               int64_t rows, Err *e);

#endif
