/* t-linear: what a program has many of costs each as much as one of a few.
 *
 * Counted are the entries that searches compare one by one (counter "searched") for a program with
 * 400 of something and with 1,600: where every search is by a table, or among a few, the second is
 * four times the first; where one goes through all there are, it is sixteen times as much.
 */
#include <stdlib.h>
#include <unistd.h>

#include "include/ckl.h"
#include "tests/tap.h"

typedef struct Text {
  char *s;
  size_t n, cap;
} Text;

/* Every `%` of the form is the number i. */
static void add(Text *t, const char *form, int i) {
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

/* What a program of these parts costs, up to NULL: one that begins with `*` stands there `n` times,
 * for each number below n. `%` of the others is the last number. */
static int64_t work_of(const char *const *part, int n) {
  Text t = {0};
  ckl_config c = {.size = sizeof c, .codegen = "", .cpu = "reference"};
  ckl_session *s = ckl_open(&c);
  if (!check(s != NULL)) return -1;
  for (; *part; part++) {
    if (**part != '*') add(&t, *part, n - 1);
    for (int i = 0; **part == '*' && i < n; i++) add(&t, *part + 1, i);
  }
  char path[] = "/tmp/t-linear-XXXXXX";
  int file = mkstemp(path); /* of a file declarations are resolved and checked, too */
  check(file >= 0 && write(file, t.s, t.n) == (ssize_t)t.n);
  close(file);
  int64_t before = ckl_counter(s, "searched");
  bool ok = ckl_run_file(s, path) == CKL_OK;
  check_msg(ok, "%s", ckl_diag_count(s) ? ckl_diag_text(s, 0, 0) : "");
  int64_t after = ckl_counter(s, "searched");
  unlink(path);
  ckl_close(s);
  free(t.s);
  return after - before;
}

static void t_linear(const char *const *part) {
  enum { FEW = 400, MANY = 4 * FEW, SLACK = 1000 };
  int64_t few = work_of(part, FEW), many = work_of(part, MANY);
  tap_note("%lld compared for %d, %lld for %d", (long long)few, FEW, (long long)many, MANY);
  check_int(many, <=, 5 * few + SLACK);
}

#define LINEAR(title, ...) TEST(t_linear((const char *const[]){__VA_ARGS__, NULL}), title)

int main(void) {
  LINEAR("fields of a model", "model M() {\n", "*  let q% = %\n",
         "  fn forward(x) = x * q%\n}\nlet m = M()\n", "*assert m.q% == %\n",
         "assert m(f32(2)) == 2 * %");
  LINEAR("params, and their gradients", "model M() {\n", "*  param p%: f32[1] = ones([1])\n",
         "  fn forward(x) = x * p%\n}\nlet m = M()\nlet g = grad(sum(m(f32([2]))), m)\n"
         "assert g.p% == f32([2])");
  LINEAR("methods", "model M() {\n  let k = 1\n", "*  fn q%(x) = x + k\n",
         "}\nassert M().q%(f32(2)) == 3");
  LINEAR("layers of an argument",
         "model L() {\n  param w: f32[1] = ones([1])\n}\nlet ls = [L() for i in 0..% + 1]\n"
         "fn f(ls, x) = ls[%].w * x\nassert f(ls, f32(2)) == f32([2])");
  LINEAR("tensors of an argument",
         "let xs = [list(f32(i)) for i in 0..% + 1]\nfn f(xs) = xs[%][0] * 2\n"
         "assert f(xs) == 2 * %");
  LINEAR("named arguments of a function", "proc f(", "*a% = 0, ", "z = 0) { a% + z }\nassert f(",
         "*a% = %, ", "z = 1) == % + 1");
  LINEAR("named arguments of code", "fn f(", "*a% = 0, ", "z = 0) = a% + z\nassert f(", "*a% = %, ",
         "z = 1) == % + 1");
  LINEAR("named arguments of a constructor", "model M(", "*a%: int, ",
         "z: int) {\n  let s = a% + z\n}\nassert M(", "*a% = %, ", "z = 1).s == % + 1");
  LINEAR("hooks of many values",
         "let x = track(ones([1]))\nlet ys = [list(x * 2) for i in 0..% + 1]\n"
         "let hs = [on_grad(y[0], fn(g) = g * 3) for y in ys]\n"
         "assert grad(sum(ys[%][0]), x) == f32([6])\nfor h in hs { h.remove() }\n"
         "assert grad(sum(ys[%][0]), x) == f32([2])");
  LINEAR("hooks of values that die",
         "let x = track(ones([1]))\nlet ys = [list(x * 2) for i in 0..% + 1]\n"
         "for i in 0..% {\n  let y = x * 2\n  let h = on_grad(y, fn(g) = g * 3)\n"
         "  assert grad(sum(y), x) == f32([6])\n  let k = on_grad(ys[i][0], fn(g) = g)\n}\n"
         "assert grad(sum(x), x) == f32([1])");
  LINEAR("hooks of one value",
         "let x = track(f64([1]))\n"
         "let hs = [on_grad(x, fn(g) = g + 1) for i in 0..% + 1]\n"
         "assert grad(sum(x), x) == f64([% + 2])\nfor h in hs { h.remove() }\n"
         "assert grad(sum(x), x) == f64([1])");
  LINEAR("hooks that were removed beside others that stay",
         "let x = track(f64([1]))\nlet z = track(f64([1]))\n"
         "let stay = [on_grad(z, fn(g) = g) for i in 0..2 * %]\n"
         "let hs = [on_grad(x, fn(g) = g + 1) for i in 0..% + 1]\nfor h in hs { h.remove() }\n"
         "for i in 0..% { assert grad(sum(x), x) == f64([1]) }");
  return tap_done();
}
