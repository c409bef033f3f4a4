/* t-lasting: a session that lives long does not grow.
 *
 * Bytes are counted by the session's allocator. The same kind of statement is evaluated again and
 * again, each time as another text; after as many rounds as caches hold no more bytes are alive
 * than half-way, but for what the statements themselves keep.
 */
#include <stdlib.h>

#include "include/ckl.h"
#include "tests/tap.h"

static int64_t alive;
static int64_t until_failure; /* allocations before one fails; less than 1: none does */

static void *count(void *ud, void *p, size_t old, size_t n) {
  (void)ud;
  void *q = NULL;
  if (n > old && --until_failure == 0) return NULL;
  if (n)
    q = realloc(p, n);
  else
    free(p);
  if (q || !n) alive += (int64_t)n - (int64_t)old;
  return q;
}

static ckl_session *opened(void) {
  ckl_config c = {.size = sizeof c, .alloc = count, .codegen = "", .cpu = "reference"};
  return ckl_open(&c);
}

/* What `rounds` evaluations of a text with one number in it leave alive. `want`: their status. */
static void t_evals(const char *before, const char *format, ckl_status want, int rounds,
                    int64_t most) {
  ckl_session *s = opened();
  need(s != NULL);
  check(ckl_eval(s, before, "before", NULL) == CKL_OK);
  int64_t half = 0;
  for (int i = 0; i < rounds; i++) {
    char text[400];
    ckl_value *v = NULL;
    snprintf(text, sizeof text, format, i, i, i);
    check_int(ckl_eval(s, text, "t", &v), ==, want);
    ckl_release(v);
    if (i == rounds / 2) half = alive;
  }
  tap_note("%lld bytes are alive, %lld half-way", (long long)alive, (long long)half);
  check_int(alive, <=, half + most);
  ckl_close(s);
  check_int(alive, ==, 0);
}

/* A call whose blocks are planned fails for want of memory, at each allocation in turn, and is made
 * again in the same session. */
static void t_again(void) {
  ckl_status got = CKL_ENOMEM;
  for (int n = 1; got != CKL_OK; n++) {
    ckl_session *s = opened();
    need(s != NULL);
    check(ckl_eval(s,
                   "fn f(x: f64[8]) -> f64 {\n let y = checkpoint <budget = 1000000> { exp(sin(x)) "
                   "}\nsum(y * y) }\nlet x = track(f64(ones([8])))",
                   "before", NULL) == CKL_OK);
    until_failure = n;
    got = ckl_eval(s, "f(x)", "fails", NULL);
    until_failure = 0;
    check(got == CKL_OK || got == CKL_ENOMEM);
    check(ckl_eval(s, "grad(f(x), x)", "again", NULL) == CKL_OK);
    ckl_close(s);
    check_int(alive, ==, 0);
    if (alive) return;
  }
}

/* What refers to a text that went half of the session ago still works, and tells where it is. */
static void t_kept(void) {
  ckl_session *s = opened();
  need(s != NULL);
  static const char *const first[] = {
      "let k = 3",
      "let f = fn(x) = x * k + sum([y * 2.0 for y in x])",
      "proc p(a) { var x = a\n for i in 0..2 { checkpoint { x = x * 2 } }\n x }",
      "model M(a: int) { param w: f32[2] = ones([2])\n fn forward(x: f32[2]) -> f32[2] = x * w }",
      "let m = M(1)",
      "let x = track(f32([1, 2]))",
      "let y = sum(f(x) * m(x))",
      "let h = on_grad(x, fn(g) = g * 10)",
      "type Pair = (f32[2], f32[2])",
      "fn q(a: Pair) -> f32 = sum(a[0] * a[1])",
      "let lost = x[3 - k]",
  };
  for (size_t i = 0; i < sizeof first / sizeof *first; i++)
    check_msg(ckl_eval(s, first[i], "first", NULL) == CKL_OK, "%s: %s", first[i],
              ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : "");
  for (int i = 0; i < 300; i++) {
    char text[100];
    snprintf(text, sizeof text, "let z = sum(f32([%d, 2]) * 2)\nzz%d", i, i);
    check(ckl_eval(s, text, "between", NULL) == CKL_ERUN);
  }
  static const char *const then[] = {
      "assert f(f32([1, 1])) == f32([7, 7])",
      "assert p(f32([1, 1])) == f32([4, 4])",
      "assert q((f32([1, 2]), f32([3, 4]))) == 11",
      "assert M(2)(f32([5, 6])) == f32([5, 6])",
      "assert grad(y, x) == grad(y, x)",
      "assert grad(lost, x) == f32([10, 0])",
  };
  for (size_t i = 0; i < sizeof then / sizeof *then; i++)
    check_msg(ckl_eval(s, then[i], "then", NULL) == CKL_OK, "%s: %s", then[i],
              ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : "");
  check(ckl_eval(s, "f(\"text\")", "bad", NULL) == CKL_ERUN);
  check_has(ckl_diag_text(s, 0, 0), "first:1:");
  ckl_close(s);
  check_int(alive, ==, 0);
}

/* A tape outlives the code that made it, which a declaration takes out of the cache. */
static void t_tape(void) {
  ckl_session *s = opened();
  need(s != NULL);
  static const char made[] = "fn f[N](x: f64[N]) -> f64 = sum(x * x)\n"
                             "let x = track(f64([1, 2, 3]))\nlet y = f(x)";
  check(ckl_eval(s, made, "a", NULL) == CKL_OK);
  check(ckl_eval(s, "fn other() = 1", "b", NULL) == CKL_OK);
  check(ckl_eval(s, "fn f(x) = 7", "c", NULL) == CKL_OK);
  check(ckl_eval(s, "wrap <backward plain> { assert grad(y, x) == f64([2, 4, 6]) }", "d", NULL) ==
        CKL_OK);
  check(ckl_eval(s, "assert grad(y * y, x) == f64([56, 112, 168])", "d", NULL) == CKL_OK);
  ckl_close(s);
  check_int(alive, ==, 0);
}

/* A gradient of one result narrows a call's backward to that; one of all results still comes to
 * all when the cache has let the call go. */
static void t_results(void) {
  ckl_session *s = opened();
  need(s != NULL);
  static const char *const texts[] = {
      "fn f[N](x: f64[N]) -> (f64, f64) = (sum(x * x), sum(x * 3))\n"
      "fn g(x) = sum(x * 2.0)\n"
      "let x = track(f64([1, 2, 3]))\nlet y = f(x)",
      "wrap <backward plain> { assert grad(y[0], x) == f64([2, 4, 6]) }",
      "for i in 0..8000 { g(zeros([i, 0, i])) }",
      "wrap <backward plain> { assert grad(y[0] + y[1], x) == f64([5, 7, 9]) }",
      "assert grad(y[0] + y[1], x) == f64([5, 7, 9])",
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    check_msg(ckl_eval(s, texts[i], "t", NULL) == CKL_OK, "%s: %s", texts[i],
              ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : "");
  ckl_close(s);
  check_int(alive, ==, 0);
}

int main(void) {
  enum { FEW = 2000, MANY = 12000, SLACK = 1 << 18 };
  TEST(t_evals("let b = 1", "let a = f64([%d, 2, 3]) * 2\nsum(a)", CKL_OK, 10 * FEW, 0),
       "evaluations leave nothing");
  TEST(t_evals("let b = 1", "let a = ((1 + %d", CKL_EPROGRAM, FEW, 0), "nor wrong texts");
  TEST(t_evals("let b = 1", "f32([%d, 2]) + ones([3])", CKL_ERUN, FEW, 0), "nor those that fail");
  TEST(t_evals("let b = 1", "fn f(x: f64[3]) -> f64 = sum(x * %d)\nf(f64([1, 2, 3]))", CKL_OK, FEW,
               SLACK),
       "nor functions that are declared again");
  TEST(t_evals("var k = fn(x) = x", "k = fn(x) = x * %d\nk(2)", CKL_OK, MANY, SLACK),
       "nor function values that are");
  TEST(t_evals("let x = track(ones([3]))", "let l = sum(x * %d)\ngrad(l, x)", CKL_OK, FEW, SLACK),
       "nor tapes");
  TEST(t_evals("let b = 1", "wrap <no_grad> { let c = [i * %d for i in 0..3] }", CKL_OK, MANY,
               SLACK),
       "nor what is made beside a tree");
  TEST(t_evals("fn f(x) = sum(x * 2.0)", "f(zeros([%d, 0, %d]))", CKL_OK, MANY, 1 << 20),
       "signatures have a bound");
  TEST(t_evals(
           "fn f[N](x: f64[N]) -> f64 {\n let y = checkpoint <budget = 1000000> { exp(sin(x)) }\n"
           "sum(y * y) }",
           "let x = track(f64(ones([%d + 1])))\nlet l = f(x)\ngrad(l, x)\nf(f64(ones([%d + 1])))",
           CKL_OK, FEW, 8 * SLACK),
       "plans for sizes have a bound");
  TEST(t_again(), "a planned call that failed keeps nothing of its first plan");
  TEST(t_kept(), "what is referred to stays");
  TEST(t_tape(), "a tape outlives the code that made it");
  TEST(t_results(), "results that had no gradient before get one later");
  return tap_done();
}
