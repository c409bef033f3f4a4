/* Text: buffers, numbers to text and back, interned names, globs.
 *
 * Idea of the number printing: C's own conversions are correctly rounded, so the fewest digits that
 * read back are found by trying. Only the style and the independence of the locale are our own.
 * Invariant: the texts of str_f64, str_f32, str_f16 and str_bf16 read back as the same value. */
#include "runtime/str.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/half.h"

/* ---- buffers */

void buf_init(Buf *b, Mem *m) {
  *b = (Buf){.mem = m, .s = (char *)""};
}

void buf_init_arena(Buf *b, Arena *a) {
  *b = (Buf){.mem = a->mem, .arena = a, .s = (char *)""};
}

void buf_free(Buf *b) {
  if (!b->arena && b->cap) mem_free(b->mem, b->s, b->cap);
  b->s = (char *)"";
  b->n = b->cap = 0;
}

/* Makes room for `more` bytes and the NUL. */
static void reserve(Buf *b, size_t more) {
  if (more > PTRDIFF_MAX - 1 - b->n) mem_throw(b->mem, MEM_ERR_NOMEM);
  size_t need = b->n + more + 1;
  if (need <= b->cap) return;
  size_t cap = b->cap < 32 ? 64 : 2 * b->cap;
  if (cap < need) cap = need;
  char *old = b->cap ? b->s : NULL;
  b->s = b->arena ? arena_grow(b->arena, old, b->cap, cap) : mem_need(b->mem, old, b->cap, cap);
  b->cap = cap;
}

void buf_put(Buf *b, const char *s, size_t n) {
  reserve(b, n);
  if (n) memcpy(b->s + b->n, s, n);
  b->n += n;
  b->s[b->n] = 0;
}

void buf_puts(Buf *b, const char *s) {
  buf_put(b, s, strlen(s));
}

void buf_putc(Buf *b, char c) {
  buf_put(b, &c, 1);
}

void buf_char(Buf *b, uint32_t cp) {
  char u[4];
  size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; cp >>= 6) u[i] = (char)(0x80 | (cp & 63));
  u[0] = (char)(n == 1 ? cp : (0xf0u << (4 - n) & 0xff) | cp);
  buf_put(b, u, n);
}

int str_i64(char *buf, int64_t n) {
  char text[STR_I64];
  size_t at = sizeof text;
  uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
  do {
    text[--at] = (char)('0' + left % 10);
    left /= 10;
  } while (left);
  if (n < 0) text[--at] = '-';
  memcpy(buf, text + at, sizeof text - at);
  return (int)(sizeof text - at);
}

void buf_int(Buf *b, int64_t n) {
  char text[STR_I64];
  buf_put(b, text, (size_t)str_i64(text, n));
}

void buf_vprintf(Buf *b, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  size_t room = b->cap ? b->cap - b->n : 0;
  int n = str_vformat(room ? b->s + b->n : NULL, room, fmt, ap);
  if (n > 0 && (size_t)n >= room) {
    if (room) b->s[b->n] = 0; /* terminated again, in case the next line throws */
    reserve(b, (size_t)n);
    n = str_vformat(b->s + b->n, b->cap - b->n, fmt, again);
  }
  va_end(again);
  if (n > 0) b->n += (size_t)n;
}

void buf_printf(Buf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  buf_vprintf(b, fmt, ap);
  va_end(ap);
}

void buf_json(Buf *b, const char *s, size_t n) {
  buf_putc(b, '"');
  for (size_t i = 0; i < n;) {
    unsigned char c = (unsigned char)s[i];
    if (c < 0x80) {
      i++;
      if (c == '"' || c == '\\') {
        char esc[2] = {'\\', (char)c};
        buf_put(b, esc, 2);
      } else if (c == '\n') {
        buf_put(b, "\\n", 2);
      } else if (c == '\t') {
        buf_put(b, "\\t", 2);
      } else if (c < 0x20 || c == 0x7f) {
        buf_printf(b, "\\u%04x", c);
      } else {
        buf_putc(b, (char)c);
      }
      continue;
    }
    uint32_t cp;
    int len = str_utf8(s + i, n - i, &cp);
    if (cp == 0xfffd) {
      buf_put(b, "\xef\xbf\xbd", 3);
    } else {
      buf_put(b, s + i, (size_t)len);
    }
    i += (size_t)len;
  }
  buf_putc(b, '"');
}

/* ---- formatting and UTF-8 */

int str_vformat(char *buf, size_t cap, const char *fmt, va_list ap) {
  /* the "C" locale object is static in the C libraries: nothing is allocated */
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  locale_t old = c ? uselocale(c) : (locale_t)0;
  int n = vsnprintf(buf, cap, fmt, ap);
  if (c) {
    uselocale(old);
    freelocale(c);
  }
  return n;
}

bool str_valid(const char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    uint32_t cp;
    int len = str_utf8(s + i, n - i, &cp);
    if (cp == 0xfffd && len == 1) return false;
    i += (size_t)len;
  }
  return true;
}

int str_utf8(const char *s, size_t n, uint32_t *cp) {
  const unsigned char *u = (const unsigned char *)s;
  uint32_t c = u[0];
  *cp = c;
  if (c < 0x80) return 1;
  int len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
  *cp = 0xfffd;
  if (c < 0xc2 || c > 0xf4 || n < (size_t)len) return 1;
  c &= 0xffu >> (len + 1);
  for (int i = 1; i < len; i++) {
    if ((u[i] & 0xc0) != 0x80) return 1;
    c = c << 6 | (u[i] & 0x3fu);
  }
  static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 1;
  *cp = c;
  return len;
}

/* Ranges of Unicode 15 that matter in source text: the large blocks, not every single mark. */
static bool in_ranges(const uint32_t (*r)[2], size_t n, uint32_t cp) {
  size_t lo = 0, hi = n;
  while (lo < hi) {
    size_t mid = (lo + hi) / 2;
    if (cp < r[mid][0]) {
      hi = mid;
    } else if (cp > r[mid][1]) {
      lo = mid + 1;
    } else {
      return true;
    }
  }
  return false;
}

int str_width(uint32_t cp) {
  static const uint32_t zero[][2] = {
      {0x0300, 0x036f}, {0x0483, 0x0489},   {0x0591, 0x05bd},   {0x05bf, 0x05c7}, {0x0610, 0x061a},
      {0x064b, 0x065f}, {0x0670, 0x0670},   {0x06d6, 0x06dc},   {0x06df, 0x06e4}, {0x06e7, 0x06ed},
      {0x0730, 0x074a}, {0x07a6, 0x07b0},   {0x0816, 0x082d},   {0x0859, 0x085b}, {0x08d3, 0x0902},
      {0x093a, 0x093a}, {0x093c, 0x093c},   {0x0941, 0x0948},   {0x094d, 0x094d}, {0x0951, 0x0957},
      {0x0962, 0x0963}, {0x09bc, 0x09bc},   {0x09c1, 0x09c4},   {0x09cd, 0x09cd}, {0x0e31, 0x0e31},
      {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e},   {0x0eb1, 0x0eb1},   {0x0eb4, 0x0ebc}, {0x0ec8, 0x0ecd},
      {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},   {0x200b, 0x200f},   {0x202a, 0x202e}, {0x2060, 0x2064},
      {0x20d0, 0x20f0}, {0x302a, 0x302d},   {0x3099, 0x309a},   {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
      {0xfeff, 0xfeff}, {0x1f3fb, 0x1f3ff}, {0xe0100, 0xe01ef},
  };
  static const uint32_t wide[][2] = {
      {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},
      {0x23f0, 0x23f0},   {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},
      {0x2648, 0x2653},   {0x267f, 0x267f},   {0x2693, 0x2693},   {0x26a1, 0x26a1},
      {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x26ce, 0x26ce},
      {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
      {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},
      {0x2728, 0x2728},   {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},
      {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27b0, 0x27b0},   {0x2b1b, 0x2b1c},
      {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x2e80, 0x303e},   {0x3041, 0x33ff},
      {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xa960, 0xa97f},
      {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},
      {0xffe0, 0xffe6},   {0x16fe0, 0x18aff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004},
      {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f265},
      {0x1f300, 0x1f320}, {0x1f32d, 0x1f335}, {0x1f337, 0x1f37c}, {0x1f37e, 0x1f393},
      {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0}, {0x1f3f4, 0x1f3f4},
      {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d},
      {0x1f54b, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596}, {0x1f5a4, 0x1f5a4},
      {0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6ff}, {0x1f7e0, 0x1f7eb},
      {0x1f90c, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
  };
  if (cp < 0x300) return 1;
  if (in_ranges(zero, sizeof zero / sizeof *zero, cp)) return 0;
  return in_ranges(wide, sizeof wide / sizeof *wide, cp) ? 2 : 1;
}

/* ---- reading numbers */

/* The parts of a decimal number: value = digits * 10^exp10. Significant digits beyond MOST_DIGITS
 * are cut; a last digit 1 stands for the digits that were cut, which decides every tie (an f64
 * midpoint has at most 767 digits). */
enum { MOST_DIGITS = 780 };

typedef struct Decimal {
  bool negative, inf, nan;
  int n; /* count of digits; 0 is zero */
  int64_t exp10;
  char digit[MOST_DIGITS + 32]; /* with room for the exponent */
} Decimal;

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool same_word(const char *s, size_t n, const char *word) {
  for (size_t i = 0; i < n; i++) {
    char c = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i];
    if (c != word[i] || !c) return false;
  }
  return !word[n];
}

static void take_digit(Decimal *d, char c, bool *cut) {
  if (!d->n && c == '0') return;
  if (d->n < MOST_DIGITS) {
    d->digit[d->n++] = c;
  } else {
    d->exp10++;
    if (c != '0') *cut = true;
  }
}

static bool read_decimal(const char *s, size_t n, Decimal *d) {
  const char *p = s, *end = s + n;
  d->negative = d->inf = d->nan = false;
  d->n = 0;
  d->exp10 = 0;
  if (p < end && (*p == '+' || *p == '-')) d->negative = *p++ == '-';
  size_t rest = (size_t)(end - p);
  if (rest == 3 && same_word(p, 3, "nan")) return d->nan = true;
  if ((rest == 3 && same_word(p, 3, "inf")) || (rest == 8 && same_word(p, 8, "infinity")))
    return d->inf = true;
  bool any = false, cut = false;
  for (; p < end && is_digit(*p); p++, any = true) take_digit(d, *p, &cut);
  if (p < end && *p == '.') {
    for (p++; p < end && is_digit(*p); p++, any = true) {
      take_digit(d, *p, &cut);
      d->exp10--;
    }
  }
  if (!any) return false;
  if (p < end && (*p == 'e' || *p == 'E')) {
    p++;
    bool minus = false;
    if (p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
    if (p == end || !is_digit(*p)) return false;
    int64_t e = 0;
    for (; p < end && is_digit(*p); p++)
      if (e < INT64_MAX / 100) e = 10 * e + (*p - '0');
    d->exp10 += minus ? -e : e;
  }
  if (p != end) return false;
  if (cut) { /* the last kept digit becomes one more, nonzero, digit */
    d->digit[d->n++] = '1';
    d->exp10--;
  }
  if (!d->n) d->exp10 = 0;
  return true;
}

static const double exact10[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Multiplies or divides digits up to 2^53 by a power of ten up to 10^22: both are exact, so one
 * rounding is right (W. Clinger, How to read floating point numbers accurately, 1990). */
static bool fast_f64(const Decimal *d, double *out) {
  if (d->n > 18 || d->exp10 < -22 || d->exp10 > 22) return false;
  uint64_t m = 0;
  for (int i = 0; i < d->n; i++) m = 10 * m + (uint64_t)(d->digit[i] - '0');
  if (m > 1ull << 53) return false;
  *out = d->exp10 < 0 ? (double)m / exact10[-d->exp10] : (double)m * exact10[d->exp10];
  return true;
}

/* Appends the exponent to the digits, for strtod: without a decimal point, no locale matters. */
static const char *as_text(Decimal *d) {
  int64_t e = d->exp10 > 99999 ? 99999 : d->exp10 < -99999 ? -99999 : d->exp10;
  snprintf(d->digit + d->n, sizeof d->digit - (size_t)d->n, "e%d", (int)e);
  return d->digit;
}

static double decimal_f64(Decimal *d) {
  double x = 0;
  if (d->nan) return NAN;
  if (d->inf) {
    x = INFINITY;
  } else if (d->n && !fast_f64(d, &x)) {
    x = strtod(as_text(d), NULL);
  }
  return d->negative ? -x : x;
}

bool str_to_f64(const char *s, size_t n, double *out) {
  Decimal d;
  if (!read_decimal(s, n, &d)) return false;
  *out = decimal_f64(&d);
  return true;
}

bool str_to_f32(const char *s, size_t n, float *out) {
  Decimal d;
  if (!read_decimal(s, n, &d)) return false;
  double x = decimal_f64(&d);
  uint64_t u;
  memcpy(&u, &x, 8);
  /* rounding twice is wrong only if the f64 is a midpoint of two f32, or is subnormal as an f32,
   * where midpoints have other bits */
  bool finite = !d.inf && !d.nan && d.n;
  if (finite && ((u & 0x1fffffff) == 0x10000000 || fabs(x) < 0x1p-125)) {
    float f = strtof(as_text(&d), NULL);
    *out = d.negative ? -f : f;
  } else {
    *out = (float)x;
  }
  return true;
}

bool str_to_i64(const char *s, size_t n, int64_t *out) {
  const char *p = s, *end = s + n;
  bool minus = false;
  if (p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
  if (p == end) return false;
  uint64_t v = 0, most = minus ? 1ull << 63 : (uint64_t)INT64_MAX;
  for (; p < end; p++) {
    if (!is_digit(*p)) return false;
    uint64_t digit = (uint64_t)(*p - '0');
    if (v > (most - digit) / 10) return false;
    v = 10 * v + digit;
  }
  *out = minus ? (int64_t)(0 - v) : (int64_t)v;
  return true;
}

/* ---- printing numbers */

/* Writes |x| correctly rounded to `prec` significant digits; returns the decimal exponent of the
 * first. */
static int digits_of(double x, int prec, char *digit) {
  char text[64];
  snprintf(text, sizeof text, "%.*e", prec - 1, x);
  int n = 0;
  const char *p = text;
  for (; *p && *p != 'e'; p++)
    if (is_digit(*p) && n < prec) digit[n++] = *p; /* skips sign and point, whatever it is */
  digit[n] = 0;
  return *p ? atoi(p + 1) : 0;
}

/* Writes 0.ddd, ddd.0 or d.dde-x; numbers from 10^most on get an exponent. */
static int put_number(char *buf, bool negative, const char *digit, int exp10, int most) {
  int n = (int)strlen(digit);
  while (n > 1 && digit[n - 1] == '0') n--;
  char *p = buf;
  if (negative) *p++ = '-';
  if (exp10 < -4 || exp10 >= most) {
    *p++ = digit[0];
    if (n > 1) {
      *p++ = '.';
      memcpy(p, digit + 1, (size_t)n - 1);
      p += n - 1;
    }
    return (int)(p - buf) + sprintf(p, "e%d", exp10);
  }
  if (exp10 < 0) {
    *p++ = '0';
    *p++ = '.';
    for (int i = -1; i > exp10; i--) *p++ = '0';
    memcpy(p, digit, (size_t)n);
    p += n;
  } else {
    for (int i = 0; i <= exp10; i++) *p++ = i < n ? digit[i] : '0';
    *p++ = '.';
    if (n <= exp10 + 1) *p++ = '0';
    for (int i = exp10 + 1; i < n; i++) *p++ = digit[i];
  }
  *p = 0;
  return (int)(p - buf);
}

typedef bool (*Same)(const char *digit, int exp10, double x);

/* Adds `by` (1 or -1) to the last digit; false if the carry would leave the first digit. */
static bool nudge(char *digit, int n, int by) {
  for (int i = n - 1; i >= 0; i--) {
    digit[i] = (char)(digit[i] + by);
    if (is_digit(digit[i])) return digit[0] != '0';
    digit[i] = by > 0 ? '0' : '9';
  }
  return false;
}

static int shortest(char *buf, double x, int from, int to, int most, Same same) {
  if (isnan(x)) return sprintf(buf, "nan");
  if (isinf(x)) return sprintf(buf, x < 0 ? "-inf" : "inf");
  bool negative = signbit(x);
  double a = fabs(x);
  if (a == 0) return sprintf(buf, negative ? "-0.0" : "0.0");
  char digit[32];
  for (int prec = from;; prec++) {
    int e = digits_of(a, prec, digit);
    if (prec == to || same(digit, e, a)) return put_number(buf, negative, digit, e, most);
    /* below a power of two the spacing halves, so the nearest number of `prec` digits may lie just
     * below the interval that reads back while its upper neighbour lies in it */
    char up[32];
    memcpy(up, digit, sizeof up);
    if (nudge(up, prec, 1) && same(up, e, a)) return put_number(buf, negative, up, e, most);
  }
}

static double value_of(const char *digit, int exp10) {
  Decimal d = {.n = (int)strlen(digit)};
  memcpy(d.digit, digit, (size_t)d.n);
  d.exp10 = exp10 - d.n + 1;
  return decimal_f64(&d);
}

static bool same_f64(const char *digit, int exp10, double x) {
  return value_of(digit, exp10) == x;
}

static bool same_f32(const char *digit, int exp10, double x) {
  char text[64];
  float f;
  int n = snprintf(text, sizeof text, "%se%d", digit, exp10 - (int)strlen(digit) + 1);
  return str_to_f32(text, (size_t)n, &f) && (double)f == x;
}

static bool same_f16(const char *digit, int exp10, double x) {
  return hf_f64_from_f16(hf_f16_from_f64(value_of(digit, exp10))) == x;
}

static bool same_bf16(const char *digit, int exp10, double x) {
  return hf_f64_from_bf16(hf_bf16_from_f64(value_of(digit, exp10))) == x;
}

int str_f64(char *buf, double x) {
  /* if a normal number has a text of up to 15 digits, trying 15 digits finds it */
  return shortest(buf, x, fabs(x) < 0x1p-1021 ? 1 : 15, 17, 16, same_f64);
}

int str_f32(char *buf, float x) {
  return shortest(buf, (double)x, fabsf(x) < 0x1p-125f ? 1 : 6, 9, 8, same_f32);
}

int str_f16(char *buf, float x) {
  return shortest(buf, (double)x, 1, 5, 8, same_f16);
}

int str_bf16(char *buf, float x) {
  return shortest(buf, (double)x, 1, 4, 8, same_bf16);
}

/* ---- interned names */

typedef struct NameItem {
  uint32_t hash;
  size_t n;
  char s[];
} NameItem;

struct Names {
  Arena *arena;
  NameItem **slot; /* open addressing, a power of two, at most half full */
  size_t cap, count;
};

Names *names_new(Arena *a) {
  Names *t = ARENA_NEW(a, Names);
  t->arena = a;
  t->cap = 64;
  t->slot = ARENA_ARRAY(a, NameItem *, t->cap);
  return t;
}

/* FNV-1a, 32 bits. */
static uint32_t hash_of(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
  return h;
}

static NameItem **slot_of(NameItem **slot, size_t cap, uint32_t hash, const char *s, size_t n) {
  for (size_t i = hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
    NameItem *it = slot[i];
    if (!it || (it->hash == hash && it->n == n && (!n || memcmp(it->s, s, n) == 0)))
      return &slot[i];
  }
}

Name names_get(Names *t, const char *s, size_t n) {
  uint32_t hash = hash_of(s, n);
  NameItem **at = slot_of(t->slot, t->cap, hash, s, n);
  if (*at) return (*at)->s;
  if (2 * (t->count + 1) > t->cap) {
    NameItem **grown = ARENA_ARRAY(t->arena, NameItem *, 2 * t->cap);
    for (size_t i = 0; i < t->cap; i++) {
      NameItem *it = t->slot[i];
      if (it) *slot_of(grown, 2 * t->cap, it->hash, it->s, it->n) = it;
    }
    t->slot = grown;
    t->cap *= 2;
    at = slot_of(t->slot, t->cap, hash, s, n);
  }
  if (n > PTRDIFF_MAX - sizeof(NameItem) - 1) mem_throw(t->arena->mem, MEM_ERR_NOMEM);
  NameItem *it = arena_alloc(t->arena, sizeof *it + n + 1);
  it->hash = hash;
  it->n = n;
  if (n) memcpy(it->s, s, n);
  *at = it;
  t->count++;
  return it->s;
}

Name names_of(Names *t, const char *s) {
  return names_get(t, s, strlen(s));
}

/* ---- did you mean */

/* Optimal string alignment: insertions, deletions, changes, swaps of neighbours, no byte edited
 * twice. Rows of the classic table (R. Wagner, M. Fischer 1974), three kept for the swaps. */
int str_distance(const char *a, const char *b, int limit) {
  enum { MOST = 64 };
  size_t na = strlen(a), nb = strlen(b);
  size_t apart = na > nb ? na - nb : nb - na;
  if (limit < 0 || apart > (size_t)limit) return limit + 1;
  if (na >= MOST || nb >= MOST) return strcmp(a, b) == 0 ? 0 : limit + 1;
  int row[3][MOST];
  int *before = row[0], *last = row[1], *now = row[2];
  for (size_t j = 0; j <= nb; j++) last[j] = (int)j;
  for (size_t i = 1; i <= na; i++) {
    int least = now[0] = (int)i;
    for (size_t j = 1; j <= nb; j++) {
      int v = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < v) v = last[j] + 1;
      if (now[j - 1] + 1 < v) v = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < v)
        v = before[j - 2] + 1;
      now[j] = v;
      if (v < least) least = v;
    }
    if (least > limit) return limit + 1;
    int *free_row = before;
    before = last;
    last = now;
    now = free_row;
  }
  return last[nb] > limit ? limit + 1 : last[nb];
}

/* ---- globs */

/* Reads `[lo-hi]` or `[n]` at g; returns its length, or 0 if it is no such range. */
static size_t read_range(const char *g, const char *end, uint64_t *lo, uint64_t *hi) {
  const char *p = g + 1;
  uint64_t v[2] = {0, 0};
  for (int k = 0; k < 2; k++) {
    if (p == end || !is_digit(*p)) return 0;
    for (; p < end && is_digit(*p); p++)
      if (v[k] < UINT64_MAX / 100) v[k] = 10 * v[k] + (uint64_t)(*p - '0');
    if (p == end) return 0;
    if (k == 0 && *p == ']') {
      v[1] = v[0];
      break;
    }
    if (*p != (k == 0 ? '-' : ']')) return 0;
    if (k == 0) p++;
  }
  *lo = v[0];
  *hi = v[1];
  return (size_t)(p + 1 - g);
}

/* The end of a part of a path, which is a name, a number, or a key in brackets: net.3["a b"].w */
static const char *path_end(const char *p) {
  if (*p != '[') return p + strcspn(p, ".[");
  bool quoted = false;
  for (p++; *p && (quoted || *p != ']'); p++) {
    if (quoted && *p == '\\' && p[1])
      p++;
    else if (*p == '"')
      quoted = !quoted;
  }
  return *p ? p + 1 : p;
}

/* Whether a key in brackets begins here: net["a b"], net[(1, "x")], net[true]; `[3]` is a range. */
static bool is_key(const char *p) {
  return *p == '[' && (p[1] == '"' || p[1] == '(' || !strncmp(p + 1, "true]", 5) ||
                       !strncmp(p + 1, "false]", 6));
}

/* Matches one part of a glob with one part of a path. After a later `*` an earlier one need not
 * match more, so it is enough to go back to the last `*`. A key matches as it is written. */
static bool part_matches(const char *g, const char *g_end, const char *s, const char *s_end) {
  const char *star = NULL, *retry = NULL;
  const char *start = s;
  if (g_end - g == 1 && *g == '*') return s != s_end;
  if (is_key(g)) return g_end - g == s_end - s && !memcmp(g, s, (size_t)(g_end - g));
  while (s < s_end || g < g_end) {
    bool ok = false;
    if (g < g_end && *g == '*') {
      star = ++g;
      retry = s;
      continue;
    }
    if (g < g_end && s < s_end) {
      uint64_t lo, hi, v = 0;
      size_t range = *g == '[' ? read_range(g, g_end, &lo, &hi) : 0;
      if (range) {
        const char *p = s;
        bool inside = s > start && is_digit(s[-1]); /* ranges match whole numbers */
        bool key = *p == '[' && s_end - p > 2;      /* and keys that are one, with the brackets */
        for (p += key; p < s_end && is_digit(*p); p++)
          if (v < UINT64_MAX / 100) v = 10 * v + (uint64_t)(*p - '0');
        ok = p > s + key && v >= lo && v <= hi && !(inside && star == g);
        if (key) ok = ok && p++ < s_end && p[-1] == ']';
        if (ok) {
          s = p;
          g += range;
        }
      } else if (*g == '?') {
        uint32_t cp;
        s += str_utf8(s, (size_t)(s_end - s), &cp);
        g++;
        ok = true;
      } else if (*g == *s) {
        g++;
        s++;
        ok = true;
      }
    }
    if (ok) continue;
    if (!star || retry >= s_end) return false;
    s = ++retry;
    g = star;
  }
  return true;
}

/* The end of a part of a glob. */
static const char *part_end(const char *p) {
  if (is_key(p)) return path_end(p);
  if (!strncmp(p, "**[", 3)) return p + 2;
  while (*p && *p != '.' && !is_key(p)) p++;
  return p;
}

/* The end of what one part of a glob matches of a path: a part, or one with the keys behind it that
 * are numbers, since `ps[3]` may mean both a name `ps3` and the key 3 of `ps`. NULL: nothing. */
static const char *parts_matched(const char *g, const char *g_end, const char *s) {
  const char *end = path_end(s);
  while (!part_matches(g, g_end, s, end)) {
    if (*end != '[' || is_key(end)) return NULL;
    end = path_end(end);
  }
  return end;
}

static bool is_any(const char *g, const char *end) {
  return end - g == 2 && g[0] == '*' && g[1] == '*';
}

/* The part behind the one that ends at `end`; NULL if there is none. */
static const char *next_part(const char *end) {
  return *end == '.' ? end + 1 : *end ? end : NULL;
}

bool str_glob(const char *glob, const char *path) {
  const char *g = *glob ? glob : NULL, *s = *path ? path : NULL;
  const char *any = NULL, *retry = NULL; /* the parts after the last `**`; where they were tried */
  bool have_any = false;
  if (!strcmp(glob, path)) return true; /* also one with a key in brackets */
  while (s || g) {
    if (g && is_any(g, part_end(g))) {
      g = next_part(part_end(g));
      any = g;
      retry = s;
      have_any = true;
      continue;
    }
    const char *end = g && s ? parts_matched(g, part_end(g), s) : NULL;
    if (end) {
      g = next_part(part_end(g));
      s = next_part(end);
      continue;
    }
    if (!have_any || !retry) return false;
    retry = next_part(path_end(retry));
    s = retry;
    g = any;
  }
  return true;
}
