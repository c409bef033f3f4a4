/* t-linear: what a program has many of costs each as much as one of a few.
 *
 * Counted are the entries that searches compare one by one (counter "searched") for a program with
 * 400 of something and with 1,600: where every search is by a table, or among a few, the second is
 * four times the first; where one goes through all there are, it is sixteen times as much.
 */
#include <stdlib.h>

#include "include/ckl.h"
#include "tests/tap.h"

typedef struct Text {
  char *s;
  size_t n, cap;
} Text;

/* Every `%` of the form is the number i. */
static void add(Text *t, const char *form, int i)
{
  for (; *form; form++) {
    char one[16];
    int n = *form == '%' ? snprintf(one, sizeof one, "%d", i) : 1;
    if (t->n + 16 > t->cap) {
      t->cap = 2 * t->cap + 64;
      t->s = realloc(t->s, t->cap);
      need(t->s != NULL);
    }
    memcpy(t->s + t->n, *form == '%' ? one : form, (size_t)n);
    t->n += (size_t)n;
    t->s[t->n] = 0;
  }
}

/* What a program of `n` lines `each` costs. `%` of the first and last line is the last number. */
static int64_t work_of(const char *first, const char *each, const char *last, int n)
{
  Text t = {0};
  ckl_config c = {.size = sizeof c, .codegen = "", .cpu = "reference"};
  ckl_session *s = ckl_open(&c);
  if (!check(s != NULL)) return -1;
  add(&t, first, n - 1);
  for (int i = 0; i < n; i++) add(&t, each, i);
  add(&t, last, n - 1);
  int64_t before = ckl_counter(s, "searched");
  bool ok = ckl_eval(s, t.s, "many", NULL) == CKL_OK;
  check_msg(ok, "%s", ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : "");
  int64_t after = ckl_counter(s, "searched");
  ckl_close(s);
  free(t.s);
  return after - before;
}

static void t_linear(const char *first, const char *each, const char *last)
{
  enum { FEW = 400, MANY = 4 * FEW, SLACK = 1000 };
  int64_t few = work_of(first, each, last, FEW), many = work_of(first, each, last, MANY);
  tap_note("%lld compared for %d, %lld for %d", (long long)few, FEW, (long long)many, MANY);
  check_int(many, <=, 5 * few + SLACK);
}

int main(void)
{
  TEST(t_linear("model M() {\n", "  let q% = %\n",
                "  fn forward(x) = x * q%\n}\nassert M().q% == % and M()(f32(2)) == 2 * %"),
       "fields of a model");
  TEST(t_linear("model M() {\n", "  param p%: f32[1] = ones([1])\n",
                "  fn forward(x) = x * p%\n}\nlet m = M()\nlet g = grad(sum(m(f32([2]))), m)\n"
                "assert g.p% == f32([2])"),
       "params, and their gradients");
  TEST(t_linear("model M() {\n  let k = 1\n", "  fn q%(x) = x + k\n",
                "}\nassert M().q%(f32(2)) == 3"),
       "methods");
  TEST(t_linear("let x = track(ones([1]))\nvar hs = list()\nfor i in 0..% {\n"
                "  let y = x * 2\n  hs = push(hs, on_grad(y, fn(g) = g * 3))\n"
                "  assert grad(sum(y), x) == f32([6])\n}\nfor h in hs { h.remove() }\n", "",
                "assert grad(sum(x), x) == f32([1])"),
       "hooks of values that die");
  TEST(t_linear("let x = track(f64([1]))\nvar hs = list()\nfor i in 0..% {\n"
                "  hs = push(hs, on_grad(x, fn(g) = g + 1))\n}\n", "",
                "assert grad(sum(x), x) == f64([% + 1])\nfor h in hs { h.remove() }\n"
                "assert grad(sum(x), x) == f64([1])"),
       "hooks of one value");
  return tap_done();
}
