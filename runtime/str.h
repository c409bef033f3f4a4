/* Text: a growing buffer, interned names, shortest printing of numbers. */
#ifndef CKL_RUNTIME_STR_H
#define CKL_RUNTIME_STR_H

#include <stdarg.h>

#include "runtime/mem.h"

/* A growing NUL-terminated text. Memory comes from `mem` (throws when out of memory) or, where
 * `arena` is set, from the arena. Zero-initialise, then buf_init. */
typedef struct Buf {
  Mem *mem;
  Arena *arena;
  char *s;
  size_t n, cap;
} Buf;

void buf_init(Buf *b, Mem *m);         /* free with buf_free; not safe across a throw */
void buf_init_arena(Buf *b, Arena *a); /* freed with the arena: the usual form */
void buf_free(Buf *b);
void buf_put(Buf *b, const char *s, size_t n);
void buf_puts(Buf *b, const char *s);
void buf_putc(Buf *b, char c);
void buf_char(Buf *b, uint32_t cp); /* a code point in UTF-8 */
void buf_int(Buf *b, int64_t n);    /* as %lld does, in a tenth of the time */
void buf_printf(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *fmt, va_list ap);
void buf_json(Buf *b, const char *s, size_t n); /* a JSON string with its quotes */

/* The shortest text that reads back to the same value in its type, always with '.' or 'e' (inf, nan
 * apart). `buf` holds at least 40 bytes; returns its length. */
int str_f64(char *buf, double x);
int str_f32(char *buf, float x);
int str_f16(char *buf, float x);  /* x is exactly an f16 value */
int str_bf16(char *buf, float x); /* x is exactly a bf16 value */

/* The decimal digits of n, at most STR_I64 bytes, no NUL; returns how many. */
enum { STR_I64 = 20 };
int str_i64(char *buf, int64_t n);

/* Reads a decimal number that fills all of s[0..n): optional sign, digits with an optional point,
 * an optional exponent; or inf, infinity, nan in upper or lower case. Rounds correctly to the type;
 * a number that is too large becomes inf, as in literals. False for any other text. Independent of
 * the locale. */
bool str_to_f64(const char *s, size_t n, double *out);
bool str_to_f32(const char *s, size_t n, float *out);
/* Reads an optional sign and digits; false also if the number does not fit. */
bool str_to_i64(const char *s, size_t n, int64_t *out);

/* vsnprintf with '.' as decimal point in every locale. */
int str_vformat(char *buf, size_t cap, const char *fmt, va_list ap);

/* Decodes the character at s (n > 0 bytes there): its length, 1 and *cp = 0xfffd when it is not
 * valid UTF-8. */
int str_utf8(const char *s, size_t n, uint32_t *cp);
bool str_valid(const char *s, size_t n); /* n bytes of valid UTF-8 */
int str_width(uint32_t cp);              /* columns on a terminal: 0 combining, 2 wide, else 1 */

/* Interned names: equal names have equal pointers. One table per session, in an arena. */
typedef const char *Name;
typedef struct Names Names;
Names *names_new(Arena *a);
Name names_get(Names *t, const char *s, size_t n);
Name names_of(Names *t, const char *s); /* NUL-terminated */

/* Did you mean: the Damerau-Levenshtein distance between two names, at most `limit` + 1. */
int str_distance(const char *a, const char *b, int limit);

/* Glob over dotted paths (rule 62): `*` one part, `**` any number of parts, `[0-3]` a range of
 * numbers, `?` a character. */
bool str_glob(const char *glob, const char *path);

#endif
