/* Tables in text with a name and a type for each column: CSV and its relatives.
 *
 * Fields are separated by one character; a field in quotes may hold it, ends of lines and, doubled,
 * quotes (RFC 4180). Blanks around a field do not count, nor do blank lines. A column is read in
 * two steps: table_open finds the names, the caller says what is wanted, table_fill reads. */
#ifndef CKL_RUNTIME_TABLE_FILE_H
#define CKL_RUNTIME_TABLE_FILE_H

#include "runtime/csv.h"

/* What a column shall become. TABLE_FIND: ints, if all fields are whole numbers; else f64, where a
 * missing field is NaN; else bools, if all are `true` or `false`; else texts. A number of which
 * digits would get lost makes texts: a whole one with zeros before it or too large for its type. */
typedef enum TableWant { TABLE_FIND, TABLE_SKIP, TABLE_TEXTS, TABLE_DTYPE } TableWant;

typedef struct TableColumn {
  CsvText name;
  TableWant want;
  DType dtype; /* of TABLE_DTYPE */
  /* table_fill: a tensor, or, if it is NULL, `rows` texts, of which a missing one is empty */
  Tensor *t;
  CsvText *texts;
  struct TableKind *kind;
} TableColumn;

typedef struct TableFile {
  Mem *mem;
  Arena arena;
  const char *name;
  char *text; /* the file; texts lie in it */
  size_t size, begin;
  uint64_t first_line; /* of the rows */
  char separator;
  const CsvText *missing;
  size_t missing_count;
  bool header;
  size_t count;
  TableColumn *col;
  int64_t rows;
} TableFile;

/* Reads a file and the names of its columns; without a header the names are empty. `separator` 0:
 * the one of `,` `;` tab `|` that the first line has most of. `missing` has to live as long. False
 * after err_set; table_close is not needed then. */
bool table_open(TableFile *t, Mem *m, const char *path, char separator, bool header,
                const CsvText *missing, size_t missing_count, Err *e);
/* The same of n bytes, which are copied. */
bool table_parse(TableFile *t, Mem *m, const char *name, const char *text, size_t n, char separator,
                 bool header, const CsvText *missing, size_t missing_count, Err *e);
bool table_fill(TableFile *t, Err *e);
void table_close(TableFile *t); /* gives back what the columns hold, too */

#endif
