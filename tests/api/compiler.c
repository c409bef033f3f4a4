/* A compiler of the host for gradients of script: what it sees, how it runs, declines, fails, and
 * what it may not do. Status 0: all checks hold. */
#include <ckl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad;

static void check_at(int line, int holds, const char *text) {
  if (holds) return;
  bad++;
  printf("compiler.c:%d: %s\n", line, text);
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

/* ---- the compiler */
typedef enum How {
  BY_CKL, /* runs everything by ckl_backward_run */
  TWICE,  /* the same, and doubles what comes out */
  DECLINES,
  REFUSES, /* while compiling */
  BREAKS,  /* while running */
  SILENT,  /* fails without a word */
  WRONG,   /* gives a tensor of another shape */
  NOTHING, /* gives nothing */
  NUMBER,  /* gives an int */
  FOREIGN, /* gives and takes values of another session */
  ALONE,   /* gives zeros and never asks ckl */
  DENIES,  /* says CKL_OK although ckl_backward_run failed */
  MEDDLES  /* calls what it may not */
} How;

typedef struct Host {
  How how;
  ckl_session *s, *other;
  int compiled, ran, freed;
  size_t inputs, outputs, sizes;
  long long size;
  bool acts;
  char text[4096];
} Host;

static void meddle(Host *h) {
  ckl_value *v = NULL;
  CHECK(ckl_eval(h->s, "1 + 1", "t", &v) == CKL_EUSAGE && !v);
  CHECK(ckl_run_file(h->s, "none.ckl") == CKL_EUSAGE);
  /* row S3.69 reset-inside */
  CHECK(ckl_reset(h->s) == CKL_EUSAGE);
  CHECK(ckl_set_compiler(h->s, NULL, NULL) == CKL_EUSAGE);
  CHECK(ckl_ir(h->s, "none.ckl", "f", NULL, 0, "graph") == NULL);
}

static ckl_value *zeros(ckl_session *s, int rank, const int64_t *dims) {
  static const double none[64];
  return ckl_tensor(s, "f64", rank, dims, none);
}

static ckl_status run(void *ud, ckl_backward *b, ckl_value *const *in, ckl_value **out) {
  Host *h = ud;
  size_t n = ckl_backward_outputs(b);
  h->ran++;
  h->size = ckl_backward_sizes(b) ? ckl_backward_size(b, 0) : 0;
  CHECK(ckl_backward_size(b, 1000) == -1);
  for (size_t i = 0; i < ckl_backward_inputs(b); i++) CHECK(ckl_kind_of(in[i]) == CKL_TENSOR);
  if (h->how == MEDDLES) meddle(h);
  if (h->how == BREAKS) return ckl_backward_fail(b, "the device is gone");
  if (h->how == SILENT) return CKL_EDEVICE;
  if (h->how == NOTHING) return CKL_OK;
  if (h->how == NUMBER) {
    for (size_t i = 0; i < n; i++) out[i] = ckl_int(h->s, 3);
    return CKL_OK;
  }
  int64_t dims[1] = {h->how == WRONG ? 7 : ckl_tensor_dim(in[1], 0)};
  if (h->how == FOREIGN) {
    ckl_value *theirs[16];
    for (int i = 0; i < 16; i++) theirs[i] = zeros(h->other, 1, dims);
    CHECK(ckl_backward_run(b, theirs, out) == CKL_EUSAGE);
    for (int i = 0; i < 16; i++) ckl_release(theirs[i]);
  }
  if (h->how == WRONG || h->how == ALONE || h->how == FOREIGN) {
    for (size_t i = 0; i < n; i++) out[i] = zeros(h->how == FOREIGN ? h->other : h->s, 1, dims);
    return CKL_OK;
  }
  ckl_status st = ckl_backward_run(b, in, out);
  if (st == CKL_OK && ckl_backward_acts(b)) CHECK(ckl_backward_run(b, in, out) == CKL_EUSAGE);
  if (h->how == DENIES) return CKL_OK;
  if (h->how != TWICE || st != CKL_OK) return st;
  for (size_t i = 0; i < n; i++) {
    double x[64];
    int64_t dim = ckl_tensor_dim(out[i], 0);
    const double *y = ckl_tensor_data(out[i]);
    for (int64_t k = 0; y && k < dim; k++) x[k] = 2 * y[k];
    ckl_release(out[i]);
    out[i] = y ? ckl_tensor(h->s, "f64", 1, &dim, x) : NULL;
    if (!out[i]) return CKL_ENOMEM;
  }
  return CKL_OK;
}

static void done(void *ud) {
  ((Host *)ud)->freed++;
}

static ckl_status compile(void *ud, ckl_backward *b, ckl_code *code) {
  Host *h = ud;
  h->compiled++;
  h->inputs = ckl_backward_inputs(b);
  h->outputs = ckl_backward_outputs(b);
  h->sizes = ckl_backward_sizes(b);
  h->acts = ckl_backward_acts(b);
  const char *text = ckl_backward_text(b);
  if (!text) return CKL_ENOMEM;
  snprintf(h->text, sizeof h->text, "%s", text);
  CHECK(ckl_backward_run(b, NULL, NULL) == CKL_EUSAGE);
  if (h->how == MEDDLES) meddle(h);
  if (h->how == DECLINES) return CKL_OK;
  if (h->how == REFUSES) return ckl_backward_fail(b, "no kernel for `tanh`");
  *code = (ckl_code){h, run, done};
  return CKL_OK;
}

/* ---- a session with some gradients */
static const char program[] =
    "let x = track(f64([1, 2, 3]))\n"
    "var said = 0\n"
    "proc slope(x) = grad(sum(tanh(x) * x), x)\n"
    "proc first(x) { let g = slope(x); float(g[0]) }\n"
    "proc hooked(x, ok) {\n"
    "  let h = x * x\n"
    "  on_grad(h, fn(g) { said = said + 1; assert ok })\n"
    "  grad(sum(exp(h)), x)\n"
    "}\n"
    "proc far(x) = grad(sum(at(tanh(x))), x)\n"
    "fn at(a: f64[...S]) -> f64[...S] { a + 0 } backward(g) { g + g[argmax(g) + 9] }\n";

static ckl_session *open_with(Account *a, Host *h, How how) {
  ckl_config f;
  memset(a, 0, sizeof *a);
  memset(h, 0, sizeof *h);
  memset(&f, 0, sizeof f);
  f.size = sizeof f;
  f.alloc = account_alloc;
  f.alloc_ud = a;
  ckl_session *s = ckl_open(&f);
  h->s = s;
  h->how = how;
  CHECK(ckl_eval(s, program, "program", NULL) == CKL_OK);
  CHECK(ckl_set_compiler(s, compile, h) == CKL_OK);
  return s;
}

static void close_with(ckl_session *s, Account *a, Host *h) {
  ckl_close(s);
  CHECK(a->bytes == 0);
  CHECK(h->freed <= h->compiled);
}

static double number(ckl_session *s, const char *text) {
  ckl_value *v = NULL;
  ckl_status st = ckl_eval(s, text, "t", &v);
  double x = st == CKL_OK ? ckl_to_float(v) : -1000;
  for (size_t i = 0; i < ckl_diag_count(s) && st != CKL_OK; i++)
    printf("%s", ckl_diag_text(s, i, 0));
  ckl_release(v);
  return x;
}

/* The call fails with this code, and the text names what it should; the session goes on. */
static void fails(ckl_session *s, const char *text, ckl_status want, const char *code,
                  const char *word) {
  ckl_status st = ckl_eval(s, text, "t", NULL);
  CHECK(st == want && ckl_diag_count(s) == 1);
  if (ckl_diag_count(s) != 1) return;
  const char *say = ckl_diag_text(s, 0, 0);
  CHECK(!strcmp(ckl_diag_code(s, 0), code));
  CHECK(strstr(say, word) != NULL);
  if (strcmp(ckl_diag_code(s, 0), code) || !strstr(say, word)) printf("%s", say);
  CHECK(number(s, "1 + 1") == 2);
}

/* row S3.6 host-compiler */
static void runs(void) {
  Account a;
  Host h;
  ckl_session *s = open_with(&a, &h, BY_CKL);
  double own = number(s, "wrap <backward plain> { first(x) }");
  CHECK(h.compiled == 0); /* plain needs no compiler */
  CHECK(number(s, "first(x)") == own && h.compiled == 1 && h.ran == 1);
  CHECK(h.inputs >= 2 && h.outputs == 1 && !h.acts);
  CHECK(strstr(h.text, "graph") && strstr(h.text, "input"));
  /* other sizes, and the same tape again: nothing is compiled anew */
  CHECK(number(s, "first(x)") == own && h.compiled == 1 && h.ran == 2);
  number(s, "first(track(f64([1, 2, 3, 4, 5])))");
  CHECK(h.compiled == 1 && h.ran == 3 && h.sizes == 1 && h.size == 5);
  /* blocks nest: the inner one says whether it is asked */
  number(s, "wrap <backward plain> { wrap <backward captured> { first(x) } }");
  CHECK(h.ran == 4);
  /* an error leaves no mode behind */
  CHECK(ckl_eval(s, "wrap <backward plain> { x[9] }", "t", NULL) == CKL_ERUN);
  CHECK(number(s, "first(x)") == own && h.ran == 5);
  h.how = TWICE;
  CHECK(number(s, "first(x)") == 2 * own);
  CHECK(number(s, "counter(\"backward.captures\")") == 1);
  CHECK(ckl_set_compiler(s, NULL, NULL) == CKL_OK && h.freed == 1);
  CHECK(number(s, "first(x)") == own && h.ran == 6);
  close_with(s, &a, &h);
  CHECK(h.freed == 1);

  s = open_with(&a, &h, DECLINES);
  CHECK(number(s, "first(x)") == own && number(s, "first(x)") == own);
  CHECK(h.compiled == 1 && h.ran == 0);
  close_with(s, &a, &h);
  CHECK(h.freed == 0);

  s = open_with(&a, &h, BY_CKL);
  CHECK(number(s, "first(x)") == own);
  CHECK(ckl_reset(s) == CKL_OK && h.freed == 1); /* a reset ends it */
  CHECK(ckl_eval(s, program, "program", NULL) == CKL_OK);
  CHECK(number(s, "first(x)") == own && h.compiled == 1 && h.ran == 1);
  close_with(s, &a, &h);
}

static void errors(void) {
  Account a;
  Host h;
  ckl_session *s = open_with(&a, &h, REFUSES);
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "no kernel for `tanh`");
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "program:3"); /* the place is the `grad` */
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "wrap <backward plain>");
  CHECK(h.compiled == 3 && number(s, "wrap <backward plain> { first(x) }") > 0);
  h.how = BREAKS;
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "the device is gone");
  h.how = SILENT;
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "fails to run");
  h.how = WRONG;
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "f64[7]");
  h.how = NOTHING;
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "not nothing");
  h.how = NUMBER;
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "f64[3], not int");
  h.how = FOREIGN;
  h.other = ckl_open(NULL);
  fails(s, "slope(x)", CKL_ERUN, "grad-15", "f64[3], not a value of another session");
  ckl_close(h.other);
  h.how = BY_CKL; /* errors of the program are its own */
  fails(s, "far(x)", CKL_ERUN, "index-3", "index 9 is out of range");
  h.how = DENIES;
  fails(s, "far(x)", CKL_ERUN, "index-3", "index 9 is out of range");
  CHECK(number(s, "first(x)") > 0);
  h.how = MEDDLES;
  CHECK(number(s, "first(x)") > 0);
  CHECK(number(s, "float(sum(grad(sum(x * x * x), x)))") > 0);
  close_with(s, &a, &h);
}

static void hooks(void) {
  Account a;
  Host h;
  ckl_session *s = open_with(&a, &h, BY_CKL);
  CHECK(number(s, "float(sum(hooked(x, true)))") > 0 && h.acts);
  CHECK(number(s, "said") == 1); /* once, however often the host tries */
  fails(s, "hooked(x, false)", CKL_ERUN, "flow-1", "in a hook");
  h.how = DENIES;
  fails(s, "hooked(x, false)", CKL_ERUN, "flow-1", "in a hook");
  h.how = ALONE;
  fails(s, "hooked(x, true)", CKL_ERUN, "grad-15", "ckl_backward_run");
  h.how = BY_CKL; /* a gradient inside of a hook goes the same way */
  CHECK(number(s, "let r = x * x\n"
                  "on_grad(r, fn(g) { said = said + 10 * int(wrap <grad> { first(x) } > 0) })\n"
                  "let t = grad(sum(r), x)\nsaid") == 13);
  close_with(s, &a, &h);
}

/* Each allocation of a gradient fails in turn. */
static void memory(void) {
  Account a;
  Host h;
  ckl_session *s = open_with(&a, &h, TWICE);
  double want = number(s, "first(x)");
  int failed = 0;
  for (int k = 1; k < 2000; k++) {
    ckl_set_compiler(s, compile, &h); /* captured anew */
    a.calls = 0;
    a.fail_at = k;
    ckl_value *v = NULL;
    ckl_status st = ckl_eval(s, "first(x)", "t", &v);
    a.fail_at = 0;
    CHECK(st == CKL_OK || st == CKL_ENOMEM);
    if (st == CKL_OK) CHECK(ckl_to_float(v) == want);
    failed += st != CKL_OK;
    ckl_release(v);
    if (st == CKL_OK && a.calls < k) break;
  }
  CHECK(failed > 20 && number(s, "first(x)") == want);
  close_with(s, &a, &h);
}

int main(void) {
  runs();
  errors();
  hooks();
  memory();
  if (bad) printf("%d checks failed\n", bad);
  return bad ? 1 : 0;
}
