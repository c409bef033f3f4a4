/* Functions of the host that programs call: values, gradients, where code may call them, errors.
 * Status 0: all checks hold. */
#include <ckl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad;

static void check_at(int line, int holds, const char *text) {
  if (holds) return;
  bad++;
  printf("function.c:%d: %s\n", line, text);
}
#define CHECK(x) check_at(__LINE__, (x) ? 1 : 0, #x)

/* ---- memory that counts, and fails once */
typedef struct Account {
  long long bytes, calls, fail_at;
} Account;

static void *account_alloc(void *ud, void *p, size_t old_size, size_t new_size) {
  Account *a = ud;
  if (new_size > old_size && ++a->calls == a->fail_at) return NULL;
  void *q = NULL;
  if (!new_size)
    free(p);
  else if (!(q = realloc(p, new_size)))
    return NULL;
  a->bytes += (long long)new_size - (long long)old_size;
  return q;
}

/* ---- the functions */
enum { MOST = 256 };
typedef struct Host {
  int calls, gradients;
} Host;

static ckl_value *like(ckl_session *s, ckl_value *x, const double *y) {
  int64_t dims[12];
  int rank = ckl_tensor_rank(x);
  for (int i = 0; i < rank; i++) dims[i] = ckl_tensor_dim(x, i);
  return ckl_tensor(s, ckl_tensor_dtype(x), rank, dims, y);
}

static int64_t count(ckl_value *x) {
  int64_t n = 1;
  for (int i = 0; i < ckl_tensor_rank(x); i++) n *= ckl_tensor_dim(x, i);
  return n < MOST ? n : MOST;
}

/* fn wave[N](x: f64[N], k: int) -> f64[N]: sin(k x) */
static ckl_status wave(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  double y[MOST], k = (double)ckl_to_int(in[1]);
  ((Host *)ud)->calls++;
  CHECK(ckl_kind_of(in[0]) == CKL_TENSOR && ckl_kind_of(in[1]) == CKL_INT);
  const double *x = ckl_tensor_data(in[0]);
  if (!x) return CKL_ENOMEM;
  for (int64_t i = 0; i < count(in[0]); i++) y[i] = sin(k * x[i]);
  out[0] = like(s, in[0], y);
  return out[0] ? CKL_OK : CKL_ENOMEM;
}

/* in: x, k, the result, its cotangent */
static ckl_status wave_gradient(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  double dx[MOST], k = (double)ckl_to_int(in[1]);
  ((Host *)ud)->gradients++;
  const double *x = ckl_tensor_data(in[0]), *g = ckl_tensor_data(in[3]);
  if (!x || !g) return CKL_ENOMEM;
  for (int64_t i = 0; i < count(in[0]); i++) dx[i] = k * cos(k * x[i]) * g[i];
  out[0] = like(s, in[0], dx);
  return out[0] ? CKL_OK : CKL_ENOMEM;
}

/* fn polar(x: f64, y: f64) -> (r: f64, quadrant: i64) */
static ckl_status polar(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  double x = ckl_to_float(in[0]), y = ckl_to_float(in[1]);
  (void)ud;
  out[0] = ckl_float(s, sqrt(x * x + y * y));
  out[1] = ckl_int(s, y >= 0 ? (x >= 0 ? 1 : 2) : x < 0 ? 3 : 4);
  return out[0] && out[1] ? CKL_OK : CKL_ENOMEM;
}

/* in: x, y, r, quadrant, cotangents of r and quadrant; no gradient by x: NULL is zero */
static ckl_status polar_gradient(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  (void)ud;
  CHECK(ckl_to_float(in[5]) == 0);
  out[1] = ckl_float(s, ckl_to_float(in[4]) * ckl_to_float(in[1]) / ckl_to_float(in[2]));
  return out[1] ? CKL_OK : CKL_ENOMEM;
}

/* a gradient of another shape */
static ckl_status wrong_gradient(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  (void)ud, (void)in;
  out[0] = ckl_tensor(s, "f64", 1, (int64_t[]){2}, (double[]){1, 2});
  return out[0] ? CKL_OK : CKL_ENOMEM;
}

/* fn refuses(x: f32[N], how: int) -> f32[N] */
static ckl_status refuses(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out) {
  static const float none[MOST];
  int64_t how = ckl_to_int(in[1]), dims[1] = {how == 3 ? 7 : ckl_tensor_dim(in[0], 0)};
  ckl_value *v = NULL;
  switch (how) {
  case 0: return ckl_fail(s, "the sensor is off");
  case 1: return CKL_EDEVICE;
  case 2: return CKL_OK; /* gives nothing */
  case 4: out[0] = ckl_tensor(s, "f64", 1, (int64_t[]){0}, none); return CKL_OK;
  case 5: out[0] = ckl_str(s, "text", 4); return CKL_OK;
  case 6: out[0] = ckl_int((ckl_session *)ud, 1); return CKL_OK; /* of another session */
  case 7: return CKL_EINTERRUPT;
  case 8: /* what a busy session refuses */
    CHECK(ckl_eval(s, "1", "t", &v) == CKL_EUSAGE && ckl_reset(s) == CKL_EUSAGE);
    CHECK(ckl_define(s, "fn f(x: f32) -> f32", refuses, NULL, NULL) == CKL_EUSAGE);
    break;
  default: break;
  }
  out[0] = ckl_tensor(s, "f32", 1, dims, none);
  return out[0] ? CKL_OK : CKL_ENOMEM;
}

/* ---- programs */
static void complain(ckl_session *s) {
  for (size_t i = 0; i < ckl_diag_count(s); i++) fputs(ckl_diag_text(s, i, 0), stdout);
}

static void holds_at(int line, ckl_session *s, const char *text) {
  ckl_value *v = NULL;
  ckl_status st = ckl_eval(s, text, "program", &v);
  if (st != CKL_OK || !ckl_to_int(v)) {
    bad++;
    printf("function.c:%d: status %d, not true: %s\n", line, st, text);
    complain(s);
  }
  ckl_release(v);
}
#define HOLDS(text) holds_at(__LINE__, s, text)

static void fails_at(int line, ckl_session *s, const char *text, ckl_status want, const char *code,
                     const char *part) {
  ckl_value *v = NULL;
  ckl_status st = ckl_eval(s, text, "program", &v);
  bool ok = st == want && !v && ckl_diag_count(s) && !strcmp(ckl_diag_code(s, 0), code) &&
            strstr(ckl_diag_text(s, 0, 0), part);
  if (!ok) {
    bad++;
    printf("function.c:%d: status %d, not %s with \"%s\": %s\n", line, st, code, part, text);
    complain(s);
  }
  ckl_release(v);
}
#define FAILS(text, code, part) fails_at(__LINE__, s, text, CKL_ERUN, code, part)

static ckl_status define(ckl_session *s, Host *h, ckl_session *other) {
  ckl_status st = ckl_define(s, "fn wave[N](x: f64[N], k: int) -> f64[N]", wave, wave_gradient, h);
  if (st == CKL_OK)
    st = ckl_define(s, "fn polar(x: f64, y: f64) -> (r: f64, quadrant: i64)", polar, polar_gradient,
                    h);
  if (st == CKL_OK)
    st = ckl_define(s, "fn plain[N](x: f64[N], k: int = 2) -> f64[N]", wave, NULL, h);
  if (st == CKL_OK)
    st = ckl_define(s, "fn twisted[N](x: f64[N], k: int) -> f64[N]", wave, wrong_gradient, h);
  if (st == CKL_OK)
    st = ckl_define(s, "fn refuses[N](x: f32[N], how: int) -> f32[N]", refuses, NULL, other);
  return st;
}

static const char program[] =
    "let x = track(f64([0.5, -1, 2]))\n"
    "fn by_host[N](x: f64[N]) -> f64 = sum(wave(x * x, 3))\n"
    "fn by_ckl[N](x: f64[N]) -> f64 = sum(sin(3 * (x * x)))\n"
    "proc near(a, b) = all(abs(a - b) < 1e-12)\n"
    "fn looped(x: f64[3], n: i64) -> f64 {\n"
    "  var y = x\n"
    "  var i = 0\n"
    "  while i < int(n) { y = wave(y, 2); i += 1 }\n"
    "  sum(y)\n"
    "}\n"
    "fn looped_ckl(x: f64[3], n: i64) -> f64 {\n"
    "  var y = x\n"
    "  var i = 0\n"
    "  while i < int(n) { y = sin(2 * y); i += 1 }\n"
    "  sum(y)\n"
    "}\n"
    "fn sided(x: f64[3]) -> f64 = sum(if x[0] > 0 { wave(x, 2) } else { plain(x) })\n"
    "fn kept(x: f64[3]) -> f64 = checkpoint <recompute all> { sum(wave(sin(x), 2) ** 2) }\n"
    "fn again(x: f64[3]) -> f64 = checkpoint <reentrant> { sum(wave(sin(x), 2) ** 2) }\n"
    "fn snapped(x: f64[3]) -> f64 {\n"
    "  var y = x\n"
    "  checkpoint <every 2> for i in 0..5 { y = wave(y, 2) }\n"
    "  sum(y)\n"
    "}\n"
    "fn plainly(x: f64[3]) -> f64 = sum(sin(2 * sin(x)) ** 2)\n"
    "fn length(y: f64) -> f64 = polar(f64(3), y).r\n"
    "model Net() {\n"
    "  param w: f64[3] = f64([1, 2, 3])\n"
    "  fn forward(x: f64[3]) -> f64 = sum(wave(self.w * x, 1))\n"
    "}\n"
    "let net = Net()\n";

static void values(ckl_session *s, Host *h) {
  HOLDS("near(wave(f64([0, 1]), 2), sin(f64([0, 2])))");
  HOLDS("near(by_host(x), by_ckl(x))");
  HOLDS("plain(f64([1]))[0] == wave(f64([1]), 2)[0] and plain(f64([1]), k = 3)[0] == "
        "wave(f64([1]), 3)[0]");
  HOLDS("polar(f64(3), f64(-4)).r == 5 and polar(f64(3), f64(-4)).quadrant == 4");
  HOLDS("near(vmap(fn(r: f64[3]) = wave(r, 2), f64([[1, 2, 3], [4, 5, 6]])), "
        "sin(2 * f64([[1, 2, 3], [4, 5, 6]])))");
  HOLDS("near([wave(r, 2) for r in f64([[1, 2, 3], [4, 5, 6]])], "
        "sin(2 * f64([[1, 2, 3], [4, 5, 6]])))");
  HOLDS("near([wave(f64([1]), i)[0] for i in 0..3], sin(f64([0, 1, 2])))");
  HOLDS("near(map(fn(v: f64[2]) = wave(v, 1), (a = f64([1, 2]), b = f64([3, 4]))).b, sin(f64([3, "
        "4])))");
  HOLDS("near(looped(x, 3), looped_ckl(x, 3))");
  HOLDS("near(sided(x), sum(sin(2 * x)))");
  int before = h->calls;
  HOLDS("near(wave(wave(x, 1), 1), sin(sin(x)))");
  CHECK(h->calls == before + 2);
}

static void gradients(ckl_session *s, Host *h) {
  HOLDS("near(grad(by_host(x), x), grad(by_ckl(x), x))");
  HOLDS("near(grad(sum(wave(x, 2)), x), 2 * cos(2 * x))");
  HOLDS("near(wrap <backward plain> { grad(sum(wave(x, 2)), x) }, 2 * cos(2 * x))");
  HOLDS("fn slope(x: f64[3]) -> f64[3] = grad(by_host(x), x)\nnear(slope(x), grad(by_ckl(x), x))");
  HOLDS("gradcheck(fn(v: f64[3]) = sum(wave(v * v, 2) ** 2), f64([0.3, 0.4, 1.5]))");
  HOLDS("gradcheck(fn(y: f64) = polar(f64(3), y).r, f64(4))");
  HOLDS("let y = track(f64(4))\nnear(grad(length(y), y), 0.8)");
  HOLDS("near(grad(looped(x, 3), x), grad(looped_ckl(x, 3), x))");
  HOLDS("near(grad(sided(x), x), 2 * cos(2 * x))");
  HOLDS("near(grad(kept(x), x), grad(plainly(x), x))");
  HOLDS("near(grad(again(x), x), grad(plainly(x), x))");
  HOLDS("near(grad(snapped(x), x), grad(looped_ckl(x, 5), x))");
  HOLDS("near(grad(net(x), net).w, x * cos(net.w * x))");
  HOLDS("near(vmap(fn(r: f64[3]) = grad(sum(wave(r, 2)), r), f64([[1, 2, 3], [4, 5, 6]])), "
        "2 * cos(2 * f64([[1, 2, 3], [4, 5, 6]])))");
  HOLDS("near([grad(sum(wave(r, 2)), r) for r in f64([[1, 2, 3], [4, 5, 6]])], "
        "2 * cos(2 * f64([[1, 2, 3], [4, 5, 6]])))");
  HOLDS("let rows = track(f64([[1, 2, 3], [4, 5, 6]]))\n"
        "near(grad(sum([sum(wave(r, 2)) for r in rows]), rows), 2 * cos(2 * rows))");
  HOLDS("near(vjp(fn(v: f64[3]) = wave(v, 2), x, ones([3], dtype = f64)), 2 * cos(2 * x))");
  int before = h->gradients, calls = h->calls;
  HOLDS("near(grad(kept(x), x), grad(plainly(x), x))");
  CHECK(h->gradients == before + 1 && h->calls == calls + 1); /* rule 81 */
}

static void errors(ckl_session *s) {
  FAILS("wave(f64([1]), 0.5)", "type-3", "argument `k` of `wave`");
  FAILS("wave(f32([1]), 1)", "type-3", "f64");
  FAILS("wave(f64([1]))", "call-1", "needs the argument `k`");
  FAILS("fn f(x: f32[3]) -> f64[3] = wave(x, 1)\nf(ones([3]))", "type-3", "program:1");
  FAILS("let v = f32([1])\nrefuses(v, 0)", "call-13", "the sensor is off");
  FAILS("let v = f32([1])\nrefuses(v, 0)", "call-13", "program:2:1");
  FAILS("fn f(x: f32[3]) -> f32[3] = 2 * refuses(x, 0)\nf(ones([3]))", "call-13", "program:1:33");
  FAILS("let v = f32([1])\n[refuses(v, i) for i in 0..2]", "call-13", "program:2");
  FAILS("refuses(f32([1]), 1)", "call-13", "`refuses` fails");
  FAILS("refuses(f32([1]), 2)", "call-13", "nothing");
  FAILS("refuses(f32([1]), 3)", "call-13", "f32[7], and was declared as f32[1]");
  FAILS("refuses(f32([1]), 4)", "call-13", "f64[0]");
  FAILS("refuses(f32([1]), 5)", "call-13", "str");
  FAILS("refuses(f32([1]), 6)", "call-13", "another session");
  HOLDS("refuses(f32([1]), 8)[0] == 0");
  FAILS("let p = track(f64([1]))\ngrad(sum(plain(p)), p)", "grad-1", "program:2");
  FAILS("fn f(x: f64[3]) -> f64 = sum(grad(sum(wave(x, 2)), x) ** 2)\ngrad(f(x), x)", "grad-1",
        "second gradient");
  FAILS("grad(sum(twisted(x, 1)), x)", "call-13", "f64[2], and was declared as f64[3]");
  FAILS("vmap(fn(r) = refuses(r, 0), ones([2, 3]))", "call-13", "program:1:14");
  FAILS("let a = track(f64([1]))\nlet g = grad(sum(wave(a, 1)), a, record = true)\n"
        "grad(sum(g * g), a)",
        "grad-1", "second gradient");
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, "refuses(f32([1]), 7)", "t", &v) == CKL_EINTERRUPT && !v);
  CHECK(ckl_eval(s, "wave(f64([1]), 1)", "t", NULL) == CKL_OK);
}

static void refused(ckl_session *s, const char *declaration, const char *code, const char *part) {
  ckl_status st = ckl_define(s, declaration, wave, NULL, NULL);
  if (st == CKL_EPROGRAM && ckl_diag_count(s) && !strcmp(ckl_diag_code(s, 0), code) &&
      strstr(ckl_diag_text(s, 0, 0), part))
    return;
  bad++;
  printf("function.c: status %d, not %s with \"%s\": %s\n", st, code, part, declaration);
  complain(s);
}

static void declarations(ckl_session *s) {
  CHECK(ckl_define(s, NULL, wave, NULL, NULL) == CKL_EUSAGE);
  CHECK(ckl_define(s, "fn f(x: f32) -> f32", NULL, NULL, NULL) == CKL_EUSAGE);
  refused(s, "fn f(x) -> f32", "call-14", "a parameter");
  refused(s, "fn f(x: f32)", "call-14", "a result");
  refused(s, "fn f(x: str) -> f32", "call-14", "a parameter");
  refused(s, "fn f(x: (f32, f32)) -> f32", "call-14", "a parameter");
  refused(s, "fn f(x: f32) -> [f32]", "call-14", "a result");
  refused(s, "fn f(x: f32) -> ()", "call-14", "results");
  refused(s, "proc f(x: f32) -> f32", "call-14", "`fn`");
  refused(s, "fn f(x: f32) -> f32 = x", "syntax-11", "<host>:1:25");
  refused(s, "let f", "call-14", "`fn`");
  refused(s, "fn sum(x: f32) -> f32", "call-14", "`sum` is a name of the language");
  refused(s, "fn mse(x: f32) -> f32", "call-14", "`mse` is a name of the language");
  refused(s, "fn _f(x: f32) -> f32", "call-14", "is a name of the language");
  CHECK(ckl_define(s, "fn any_size(x: int) -> float", wave, NULL, NULL) == CKL_OK);
  FAILS("any_size(3)", "call-14", "which dtype the result");
  CHECK(ckl_define(s, "fn lost[N](x: f32[N]) -> f32[M]", wave, NULL, NULL) == CKL_OK);
  FAILS("lost(ones([2]))", "name-1", "M");
}

/* Programs in files see them, and are checked before they run. */
static void files(ckl_session *s, const char *path) {
  static const char *const texts[] = {
      "fn f(x: f64[3]) -> f64 = sum(wave(x, 1))\nassert f(zeros([3], dtype = f64)) == 0\n",
      "print(1)\nfn f(x: f64[3]) -> f64 = sum(wave(x, 1, 2))\n",
      "print(1)\nfn f[N](x: f64[N]) -> f64[N + 1] = wave(x, 1)\n",
  };
  static const ckl_status want[] = {CKL_OK, CKL_EPROGRAM, CKL_EPROGRAM};
  for (int i = 0; i < 3; i++) {
    FILE *f = fopen(path, "w");
    if (!f) continue;
    fputs(texts[i], f);
    fclose(f);
    CHECK(ckl_run_file(s, path) == want[i]);
    CHECK(ckl_check_file(s, path) == want[i]);
  }
  remove(path);
}

int main(void) {
  Account account = {0};
  Host h = {0};
  ckl_config c = {.size = sizeof c, .alloc = account_alloc, .alloc_ud = &account};
  const char *const cpus[] = {NULL, "reference"};
  ckl_session *other = ckl_open(NULL);
  for (int i = 0; i < 2; i++) {
    c.cpu = cpus[i];
    ckl_session *s = ckl_open(&c);
    if (!s || !other) return 1;
    CHECK(define(s, &h, other) == CKL_OK);
    CHECK(ckl_eval(s, program, "program", NULL) == CKL_OK);
    complain(s);
    values(s, &h);
    gradients(s, &h);
    errors(s);
    declarations(s);
    files(s, "function.tmp.ckl");
    CHECK(ckl_reset(s) == CKL_OK); /* functions of the host stay */
    HOLDS("wave(f64([0]), 1)[0] == 0");
    CHECK(ckl_define(s, "fn wave(x: f64) -> f64", polar, NULL, &h) ==
          CKL_OK); /* and are replaced */
    FAILS("wave(f64([0]), 1)", "call-1", "takes 1 argument");
    HOLDS("fn wave(x: int) -> int = x + 1\nwave(1) == 2"); /* a program may have the name */
    ckl_close(s);
    CHECK(account.bytes == 0);
  }
  c.cpu = NULL;
  for (long long n = 1; n < 4000; n += n / 8 + 1) { /* memory runs out anywhere */
    account.calls = account.fail_at = 0;
    ckl_session *s = ckl_open(&c);
    if (!s) return 1;
    account.fail_at = account.calls + n;
    if (define(s, &h, other) == CKL_OK && ckl_eval(s, program, "program", NULL) == CKL_OK) {
      ckl_value *v = NULL;
      ckl_status st = ckl_eval(s, "grad(by_host(x), x)", "t", &v);
      CHECK(st == CKL_OK || st == CKL_ENOMEM);
      ckl_release(v);
    }
    account.fail_at = 0;
    if (define(s, &h, other) == CKL_OK) HOLDS("wave(f64([0]), 1)[0] == 0");
    ckl_close(s);
    CHECK(account.bytes == 0);
  }
  ckl_close(other);
  printf("%s\n", bad ? "failed" : "ok");
  return bad != 0;
}
