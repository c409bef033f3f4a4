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

/* The bytes of a file as u8[n]. NULL after err_set. */
Tensor *csv_read_bytes(Mem *m, const char *file, Err *e);

#endif
