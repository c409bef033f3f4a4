/* tap.h: unit tests that print TAP (Test Anything Protocol), one process per file.

   A test is a function without result; the title says what holds:

     static void t_grows(size_t n) { check_size(grow(n), >=, n); }

     int main(void)
     {
       TEST(t_grows(0), "growing nothing gives something");
       TEST(t_grows(7), "growing gives at least what was asked for");
       return tap_done();
     }

   A check that fails is reported with its place and both values, and the test goes on; `need`
   leaves the test function at once (for what later checks would crash without). Checks may be
   called from helper functions, but not from other threads. The number of tests need not be known
   before: the plan is printed by `tap_done`, so a program that dies early is seen to have died. */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__GNUC__)
#define TAP_UNUSED __attribute__((unused))
#define TAP_PRINTF(f, a) __attribute__((unused, format(printf, f, a)))
#else
#define TAP_UNUSED
#define TAP_PRINTF(f, a)
#endif

static int tap_tests, tap_failed; /* tests so far, and how many of them failed */
static long tap_bad;              /* failed checks of the running test */
static const char *tap_skipped;   /* why the running test was skipped, or NULL */

#define TAP_SHOWN 20 /* failed checks printed per test; the rest is only counted */

/* Report a failed check: the text is printed as TAP comments. Always returns false. */
static bool TAP_PRINTF(3, 4) tap_fail(const char *file, int line, const char *fmt, ...) {
  if (tap_bad++ < TAP_SHOWN) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("# %s:%d: ", file, line);
    for (const char *p = text; *p; p++) {
      putchar(*p);
      if (*p == '\n' && p[1]) fputs("#   ", stdout);
    }
    if (!text[0] || text[strlen(text) - 1] != '\n') putchar('\n');
  }
  return false;
}

/* A line of comment in the output, for sizes, seeds and the like. */
static void TAP_PRINTF(1, 2) tap_note(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fputs("# ", stdout);
  vprintf(fmt, ap);
  putchar('\n');
  va_end(ap);
}

/* The next pseudo-random number; a state is any number but 0 (xorshift64, Marsaglia 2003). */
static TAP_UNUSED uint64_t tap_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static TAP_UNUSED void tap_begin(void) {
  tap_bad = 0;
  tap_skipped = NULL;
}

static TAP_UNUSED void tap_end(const char *title) {
  tap_tests++;
  if (tap_bad > TAP_SHOWN) printf("# ... %ld failed checks in all\n", tap_bad);
  if (tap_bad) tap_failed++;
  printf("%s %d - %s", tap_bad ? "not ok" : "ok", tap_tests, title);
  if (tap_skipped && !tap_bad) printf(" # SKIP %s", tap_skipped);
  putchar('\n');
  fflush(stdout);
}

/* Print the plan; the exit status of main. */
static TAP_UNUSED int tap_done(void) {
  printf("1..%d\n", tap_tests);
  fflush(stdout);
  return tap_failed ? 1 : 0;
}

static TAP_UNUSED bool tap_pass_(void) {
  return true;
}

static TAP_UNUSED bool tap_true_(const char *file, int line, const char *expr, bool holds) {
  return holds || tap_fail(file, line, "%s", expr);
}

/* Does `a op b` hold, where the operator is given by its text? Both sides are evaluated once. */
#define TAP_HOLDS(op, a, b)                                                                        \
  (!strcmp(op, "==")   ? (a) == (b)                                                                \
   : !strcmp(op, "!=") ? (a) != (b)                                                                \
   : !strcmp(op, "<")  ? (a) < (b)                                                                 \
   : !strcmp(op, "<=") ? (a) <= (b)                                                                \
   : !strcmp(op, ">")  ? (a) > (b)                                                                 \
                       : (a) >= (b))
#define TAP_COMPARE(name, type, fmt)                                                               \
  static TAP_UNUSED bool tap_##name##_(const char *file, int line, const char *left,               \
                                       const char *op, const char *right, type a, type b) {        \
    if (TAP_HOLDS(op, a, b)) return true;                                                          \
    return tap_fail(file, line, "%s %s %s\nleft:  " fmt "\nright: " fmt, left, op, right, a, b);   \
  }
TAP_COMPARE(int, intmax_t, "%" PRIdMAX)
TAP_COMPARE(uint, uintmax_t, "%" PRIuMAX)
TAP_COMPARE(hex, uintmax_t, "0x%" PRIxMAX)
TAP_COMPARE(ptr, const void *, "%p")
TAP_COMPARE(double, double, "%.17g")

static TAP_UNUSED bool tap_near_(const char *file, int line, const char *left, const char *right,
                                 double a, double b, double tol) {
  if (fabs(a - b) <= tol) return true;
  return tap_fail(file, line,
                  "%s is near %s\nleft:  %.17g\nright: %.17g\noff by %.3g, allowed %.3g", left,
                  right, a, b, fabs(a - b), tol);
}

static TAP_UNUSED bool tap_has_(const char *file, int line, const char *expr, const char *text,
                                const char *part) {
  if (text && strstr(text, part)) return true;
  return tap_fail(file, line, "%s contains a given part\ntext: %s\npart: %s", expr,
                  text ? text : "(null)", part);
}

static TAP_UNUSED bool tap_str_(const char *file, int line, const char *left, const char *op,
                                const char *right, const char *a, const char *b) {
  bool same = a && b ? strcmp(a, b) == 0 : a == b;
  if (same == (op[0] == '=')) return true;
  return tap_fail(file, line, "%s %s %s\nleft:  %s\nright: %s", left, op, right, a ? a : "(null)",
                  b ? b : "(null)");
}

static TAP_UNUSED bool tap_mem_(const char *file, int line, const char *expr, const void *a,
                                const void *b, size_t n) {
  const unsigned char *x = a, *y = b;
  for (size_t i = 0; i < n; i++)
    if (x[i] != y[i]) {
      return tap_fail(file, line, "%s\nbyte %zu of %zu: 0x%02x, 0x%02x", expr, i, n, (unsigned)x[i],
                      (unsigned)y[i]);
    }
  return true;
}

#define TAP_HERE __FILE__, __LINE__

/* Run one test. `call` is an expression, most often a call of a test function. */
#define TEST(call, title) (tap_begin(), (void)(call), tap_end(title))

/* Mark the running test as skipped, for what a machine lacks, by name: "no GPU", "no AVX-512". */
#define SKIP(reason) ((void)(tap_skipped = (reason)))

/* The checks. Each is an expression that is true when it holds. */
#define check(cond) tap_true_(TAP_HERE, #cond, (cond))
#define check_msg(cond, ...) ((cond) ? tap_pass_() : tap_fail(TAP_HERE, __VA_ARGS__))
#define TAP_CMP(type, a, op, b) tap_##type##_(TAP_HERE, #a, #op, #b, a, b)
#define check_int(a, op, b) TAP_CMP(int, a, op, b)       /* signed */
#define check_uint(a, op, b) TAP_CMP(uint, a, op, b)     /* unsigned */
#define check_hex(a, op, b) TAP_CMP(hex, a, op, b)       /* unsigned, shown as bits */
#define check_size(a, op, b) TAP_CMP(uint, a, op, b)     /* size_t */
#define check_ptr(a, op, b) TAP_CMP(ptr, a, op, b)       /* == and != */
#define check_double(a, op, b) TAP_CMP(double, a, op, b) /* NaN differs from everything */
#define check_near(a, b, tol) tap_near_(TAP_HERE, #a, #b, a, b, tol)
/* Strings: `check_str(name, "add")`; NULL equals NULL only. */
#define check_str(a, b) tap_str_(TAP_HERE, #a, "==", #b, a, b)
#define check_str_differ(a, b) tap_str_(TAP_HERE, #a, "!=", #b, a, b)
#define check_has(text, part) tap_has_(TAP_HERE, #text, text, part)
#define check_mem(a, b, n) tap_mem_(TAP_HERE, #a " and " #b " hold the same bytes", a, b, n)

/* Leave the test function (of type void) when `cond` does not hold. */
#define need(cond)                                                                                 \
  do {                                                                                             \
    if (!(cond)) {                                                                                 \
      tap_fail(TAP_HERE, "needed: %s", #cond);                                                     \
      return;                                                                                      \
    }                                                                                              \
  } while (0)

#endif
