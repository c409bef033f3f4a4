/* Sessions, values, diagnostics, threads and memory through the installed header alone. Reads as C
 * and as C++ (session.cc). Status 0: all checks hold; those that do not are printed. */
#ifndef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <ckl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int bad;

static void check_at(int line, int holds, const char *text) {
  if (holds) return;
  bad++;
  printf("session.c:%d: %s\n", line, text);
}
#define CHECK(x) check_at(__LINE__, (x) ? 1 : 0, #x)

/* ---- an allocator that counts */
typedef struct Account {
  long long bytes, calls;
  int wrong_size;
} Account;

/* Each block carries its size, so that a wrong `old_size` shows. */
static void *account_alloc(void *ud, void *p, size_t old_size, size_t new_size) {
  Account *a = (Account *)ud;
  char *block = p ? (char *)p - 32 : NULL;
  size_t known = 0;
  if (block) memcpy(&known, block, sizeof known);
  if (known != old_size) a->wrong_size++;
  a->calls++;
  if (!new_size) {
    a->bytes -= (long long)old_size;
    free(block);
    return NULL;
  }
  char *more = (char *)realloc(block, new_size + 32);
  if (!more) return NULL;
  a->bytes += (long long)new_size - (long long)old_size;
  memcpy(more, &new_size, sizeof new_size);
  return more + 32;
}

typedef struct Page {
  char text[4096];
  size_t n;
} Page;

static void keep(void *ud, int stream, const char *text, size_t n) {
  Page *p = (Page *)ud;
  (void)stream;
  if (p->n + n >= sizeof p->text) return;
  memcpy(p->text + p->n, text, n);
  p->n += n;
  p->text[p->n] = 0;
}

static ckl_session *open_with(Account *a, Page *p) {
  ckl_config f;
  memset(&f, 0, sizeof f);
  memset(p, 0, sizeof *p);
  f.size = sizeof f;
  if (a) {
    memset(a, 0, sizeof *a);
    f.alloc = account_alloc;
    f.alloc_ud = a;
  }
  f.write = keep;
  f.write_ud = p;
  return ckl_open(&f);
}

/* ---- the parts */

static void values(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  CHECK(s != NULL);
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, "1 + 2", "t", &v) == CKL_OK);
  CHECK(ckl_kind_of(v) == CKL_INT && ckl_to_int(v) == 3 && ckl_to_float(v) == 3.0);
  ckl_release(v);
  CHECK(ckl_eval(s, "let x = 5\nprint(\"x is {x}\")", "t", &v) == CKL_OK);
  CHECK(!strcmp(p.text, "x is 5\n"));
  ckl_release(v);
  v = ckl_get(s, "x");
  CHECK(v && ckl_to_int(v) == 5);
  ckl_release(v);
  CHECK(ckl_get(s, "nothing_of_this_name") == NULL);

  v = ckl_float(s, 2.5);
  CHECK(ckl_set(s, "y", v) == CKL_OK);
  ckl_release(v);
  v = NULL;
  CHECK(ckl_eval(s, "y * 2", "t", &v) == CKL_OK && ckl_to_float(v) == 5.0);
  static const char *const no_names[] = {
      "",      "z z", " z",   "z ",   "7",  "z.z", "\xef\xbb\xbfz",
      "z\xff", "let", "true", "none", "pi", "f32", "bool"};
  for (size_t i = 0; i < sizeof no_names / sizeof *no_names; i++)
    CHECK(ckl_set(s, no_names[i], v) == CKL_EUSAGE);
  CHECK(ckl_set(s, "_", v) == CKL_OK && ckl_eval(s, "_ + 1", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(s, "let _ = 7", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(s, "_ = 7", "t", NULL) == CKL_ERUN);
  CHECK(ckl_eval(s, "assert _ == 5.0", "t", NULL) == CKL_OK);
  CHECK(ckl_set(s, "_z", v) == CKL_OK && ckl_set(s, "model", v) == CKL_OK);
  CHECK(ckl_set(s, "sum", v) == CKL_OK); /* as `let` may */
  CHECK(ckl_eval(s, "let f32 = 5", "t", NULL) == CKL_ERUN);
  CHECK(ckl_eval(s, "fn two(x: f32[2]) -> any = wrap <bf16, f16> { x }", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(s, "two(ones([2]))", "t", NULL) == CKL_ERUN);
  CHECK(!strcmp(ckl_diag_code(s, 0), "wrap-3")); /* as a file that holds it is refused */
  ckl_release(v);
  v = NULL;
  CHECK(ckl_eval(s, "f32(model) + f32(pi)", "t", &v) == CKL_OK && ckl_to_float(v) > 8.1);
  ckl_release(v);

  CHECK(!ckl_str(s, "a\xffz", 3) && !ckl_str(s, "\xc3", 1));
  v = ckl_str(s, "abc\0d", 5);
  size_t n = 0;
  const char *text = ckl_to_str(v, &n);
  CHECK(n == 5 && text && !memcmp(text, "abc\0d", 5));
  CHECK(ckl_tensor_dtype(v) == NULL && ckl_tensor_rank(v) == -1 && ckl_tensor_data(v) == NULL);
  ckl_release(v);
  v = ckl_bool(s, true);
  CHECK(ckl_kind_of(v) == CKL_BOOL && ckl_to_int(v) == 1);
  ckl_value *same = ckl_retain(v);
  CHECK(same == v);
  ckl_release(same);
  ckl_release(v);

  v = NULL;
  CHECK(ckl_eval(s, "[\"a\": 1.5, 3: true]", "d", &v) == CKL_OK);
  CHECK(ckl_kind_of(v) == CKL_DICT && ckl_length(v) == 2 && ckl_key(v, 2) == NULL);
  ckl_value *key = ckl_key(v, 1), *of = ckl_item(v, 1);
  CHECK(ckl_to_int(key) == 3 && ckl_kind_of(of) == CKL_BOOL && ckl_key(key, 0) == NULL);
  ckl_release(key);
  ckl_release(of);
  ckl_release(v);

  v = NULL;
  CHECK(ckl_eval(s, "(loss = 1.5, name = \"r\", t = (1, 2))", "t", &v) == CKL_OK);
  CHECK(ckl_kind_of(v) == CKL_RECORD && ckl_length(v) == 3);
  CHECK(v && ckl_field_name(v, 1) && !strcmp(ckl_field_name(v, 1), "name"));
  CHECK(v && ckl_field_name(v, 3) == NULL);
  ckl_value *item = ckl_item(v, 2);
  CHECK(ckl_kind_of(item) == CKL_TUPLE && ckl_length(item) == 2);
  ckl_value *two = ckl_item(item, 1);
  CHECK(ckl_to_int(two) == 2);
  CHECK(ckl_item(item, 2) == NULL);
  ckl_release(two);
  ckl_release(item);
  ckl_release(v);
  v = NULL;
  CHECK(ckl_eval(s, "none", "t", &v) == CKL_OK && ckl_kind_of(v) == CKL_NONE);
  ckl_release(v);
  v = (ckl_value *)1;
  CHECK(ckl_eval(s, "let q = 1", "t", &v) == CKL_OK && v == NULL);
  CHECK(ckl_kind_of(NULL) == CKL_UNIT);
  ckl_release(NULL);
  ckl_close(s);
  CHECK(a.bytes == 0 && a.calls > 0 && !a.wrong_size);
  ckl_close(NULL);
}

static void tell_done(void *ud) {
  ++*(int *)ud;
}

static void tensors(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  int64_t dims[2] = {2, 3};
  float data[6] = {1, 2, 3, 4, 5, 6};
  ckl_value *t = ckl_tensor(s, "f32", 2, dims, data);
  CHECK(t && ckl_kind_of(t) == CKL_TENSOR && !strcmp(ckl_tensor_dtype(t), "f32"));
  CHECK(t && ckl_tensor_rank(t) == 2 && ckl_tensor_dim(t, 0) == 2 && ckl_tensor_dim(t, 1) == 3);
  data[0] = 100; /* copied: no effect */
  CHECK(ckl_set(s, "t", t) == CKL_OK);
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, "sum(t)", "t", &v) == CKL_OK && ckl_to_float(v) == 21.0);
  ckl_release(v);
  v = NULL;
  CHECK(ckl_eval(s, "transpose(t)", "t", &v) == CKL_OK);
  const float *out = v ? (const float *)ckl_tensor_data(v) : NULL;
  /* row-major, whatever the strides inside */
  CHECK(out && out[0] == 1 && out[1] == 4 && out[5] == 6);
  ckl_release(v);
  ckl_release(t);

  int done = 0;
  double *own = (double *)malloc(4 * sizeof *own);
  for (int i = 0; i < 4; i++) own[i] = i + 0.5;
  dims[0] = 4;
  t = ckl_tensor_borrow(s, "f64", 1, dims, own, tell_done, &done);
  CHECK(t != NULL && ckl_set(s, "b", t) == CKL_OK);
  ckl_release(t);
  CHECK(done == 0);
  v = NULL;
  CHECK(ckl_eval(s, "let before = b\nvar c = b\nc[0] = 9\n(c[0], before[0], sum(b))", "t", &v) ==
        CKL_OK);
  CHECK(own[0] == 0.5); /* writing made a copy */
  ckl_value *sum = ckl_item(v, 2);
  CHECK(ckl_to_float(sum) == 8.0);
  ckl_release(sum);
  ckl_release(v);
  CHECK(ckl_reset(s) == CKL_OK);
  CHECK(done == 1);
  free(own);

  CHECK(ckl_tensor(s, "f33", 1, dims, data) == NULL);
  CHECK(ckl_tensor(s, "f32", 13, dims, data) == NULL);
  dims[0] = -1;
  CHECK(ckl_tensor(s, "f32", 1, dims, data) == NULL);
  t = ckl_tensor(s, "i64", 0, NULL, &dims[1]);
  CHECK(t && ckl_tensor_rank(t) == 0 && ckl_to_int(t) == 3);
  ckl_release(t);
  dims[0] = 0;
  t = ckl_tensor(s, "f32", 1, dims, NULL);
  CHECK(t && ckl_tensor_dim(t, 0) == 0);
  ckl_release(t);
  t = ckl_tensor(s, "f32", 1, dims, NULL);
  ckl_close(s);
  ckl_release(t); /* the only thing that may still be done with it */
  CHECK(a.bytes == 0 && !a.wrong_size);
}

static void calls(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  CHECK(ckl_eval(s,
                 "fn f(x: f64[...S], k = 1.0) -> f64 = k * sum(x * x)\n"
                 "proc greet(n: int) { print(\"hello {n}\") }\n"
                 "model M() { param w: f64[2] = 3\n"
                 " fn forward(x: f64[2]) -> f64 = sum(w * x) }\n"
                 "let net = M()",
                 "defs", NULL) == CKL_OK);
  ckl_value *f = ckl_get(s, "f"), *greet = ckl_get(s, "greet"), *net = ckl_get(s, "net"), *r = NULL;
  CHECK(ckl_kind_of(f) == CKL_FN && ckl_kind_of(net) == CKL_MODEL);
  int64_t two = 2;
  double xs[2] = {3, 4};
  ckl_value *x = ckl_tensor(s, "f64", 1, &two, xs);
  CHECK(ckl_call(s, f, &x, 1, &r) == CKL_OK && ckl_to_float(r) == 25.0);
  ckl_release(r);
  r = NULL;
  CHECK(ckl_call(s, net, &x, 1, &r) == CKL_OK && ckl_to_float(r) == 21.0);
  ckl_release(r);
  ckl_value *n = ckl_int(s, 7);
  CHECK(ckl_call(s, greet, &n, 1, NULL) == CKL_OK && !strcmp(p.text, "hello 7\n"));
  r = NULL;
  CHECK(ckl_call(s, f, NULL, 0, &r) == CKL_EPROGRAM || ckl_diag_count(s) > 0);
  CHECK(r == NULL && ckl_diag_count(s) == 1);
  CHECK(ckl_call(s, n, NULL, 0, &r) != CKL_OK); /* a number cannot be called */
  CHECK(ckl_call(s, f, &x, 1, &r) == CKL_OK && ckl_diag_count(s) == 0);
  ckl_release(r);
  r = NULL;
  ckl_value *some[2] = {x, NULL};
  CHECK(ckl_call(s, f, NULL, 3, &r) == CKL_EUSAGE && ckl_call(s, f, some, 2, &r) == CKL_EUSAGE);
  CHECK(ckl_call(s, NULL, &x, 1, &r) == CKL_EUSAGE && !r);
  CHECK(ckl_plan_call(s, f, NULL, 3, &r) == CKL_EUSAGE && !r);
  CHECK(!ckl_ir(s, "none.ckl", "f", NULL, 1, "stage"));
  CHECK(!ckl_plan(s, "none.ckl", "f", NULL, 1, NULL));
  CHECK(!ckl_tensor(s, "f64", 1, &two, NULL));
  ckl_release(n);
  ckl_release(x);
  ckl_release(f);
  ckl_release(greet);
  ckl_release(net);
  ckl_close(s);
  CHECK(a.bytes == 0 && !a.wrong_size);
}

/* ---- a checker of JSON: gives what follows a value, or NULL */
static const char *json(const char *p);

static const char *json_string(const char *p) {
  if (*p++ != '"') return NULL;
  for (; *p != '"'; p++) {
    if ((unsigned char)*p < 32) return NULL;
    if (*p == '\\' && !strchr("\"\\/bfnrtu", *++p)) return NULL;
  }
  return p + 1;
}

static const char *json(const char *p) {
  char close = *p == '{' ? '}' : ']';
  if (*p == '"') return json_string(p);
  if (*p == '{' || *p == '[') {
    if (*++p == close) return p + 1;
    for (;; p++) {
      if (close == '}') {
        p = json_string(p);
        if (!p || *p++ != ':') return NULL;
      }
      p = json(p);
      if (!p) return NULL;
      if (*p == close) return p + 1;
      if (*p != ',') return NULL;
    }
  }
  size_t n = strspn(p, "-+.0123456789eE");
  if (!n && !strncmp(p, "true", 4)) n = 4;
  if (!n && !strncmp(p, "null", 4)) n = 4;
  if (!n && !strncmp(p, "false", 5)) n = 5;
  return n ? p + n : NULL;
}

static void diagnostics(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  const char *wrong = "let t = ones([2, 3])\nlet name = \"\\\"quoted\\\"\"; t @ t";
  CHECK(ckl_eval(s, wrong, "a \"file\"\\", NULL) != CKL_OK);
  CHECK(ckl_diag_count(s) == 1 && ckl_diag_is_error(s, 0));
  CHECK(ckl_diag_code(s, 0) && !strcmp(ckl_diag_code(s, 0), "shape-3"));
  const char *text = ckl_diag_text(s, 0, 0);
  CHECK(text && strstr(text, "error[shape-3]") && strchr(text, '^') && !strchr(text, '\033'));
  text = ckl_diag_text(s, 0, CKL_COLOR);
  CHECK(text && strchr(text, '\033'));
  text = ckl_diag_json(s, 0);
  const char *end = text ? json(text) : NULL;
  CHECK(end && (!*end || !strcmp(end, "\n")));
  CHECK(text && strstr(text, "\"shape-3\""));
  /* past the end */
  CHECK(!*ckl_diag_text(s, 9, 0) && !*ckl_diag_json(s, 9) && !*ckl_diag_code(s, 9));
  CHECK(ckl_help(s, "shape-3") != NULL && ckl_help(s, "no such topic") == NULL);
  CHECK(ckl_eval(s, "1 + 1", "t", NULL) == CKL_OK && ckl_diag_count(s) == 0);
  CHECK(ckl_log(s, "no such channel") == CKL_EUSAGE);
  for (size_t i = 0; ckl_log_name(i); i++) CHECK(ckl_log(s, ckl_log_name(i)) == CKL_OK);
  CHECK(ckl_counter(s, "no such counter") == -1);
  size_t n = 0;
  while (ckl_counter_name(n)) CHECK(ckl_counter(s, ckl_counter_name(n++)) >= 0);
  CHECK(n >= 6);
  CHECK(ckl_is_complete("f(1)", 4) && !ckl_is_complete("f(", 2) && !ckl_is_complete("1 +", 3));
  CHECK(ckl_is_complete("", 0));
  CHECK(ckl_eval(s, "let late = 1\n1 + nope", "t", NULL) == CKL_ERUN);
  CHECK(ckl_eval(s, "let early = 1\nlet = ", "t", NULL) == CKL_EPROGRAM);
  CHECK(ckl_eval(s, "let early = 1\nuse nope", "t", NULL) == CKL_EPROGRAM);
  ckl_value *late = ckl_get(s, "late");
  CHECK(ckl_to_int(late) == 1 && ckl_get(s, "early") == NULL);
  ckl_release(late);
  text = ckl_format(s, "t", "let   x=1", 9);
  CHECK(text && !strcmp(text, "let x = 1\n"));
  CHECK(ckl_format(s, "t", "let = ", 6) == NULL && ckl_diag_count(s) >= 1);
  const char *name = ckl_complete(s, "softma", 0);
  CHECK(name && !strcmp(name, "softmax") && ckl_complete(s, "softma", 1) == NULL);
  CHECK(ckl_run_file(s, "no/such/file.ckl") != CKL_OK && ckl_diag_count(s) == 1);
  CHECK(ckl_run_file(s, NULL) == CKL_EUSAGE && ckl_eval(s, NULL, "t", NULL) == CKL_EUSAGE);
  ckl_close(s);
  CHECK(a.bytes == 0 && !a.wrong_size);
}

/* ---- threads */

typedef struct Worker {
  pthread_t thread;
  double result;
  int seed, ok;
} Worker;

static void *work(void *ud) {
  Worker *w = (Worker *)ud;
  char text[256];
  ckl_session *s = ckl_open(NULL);
  ckl_value *v = NULL;
  snprintf(text, sizeof text,
           "seed(%d)\nlet w = track(normal([8, 8]))\nvar x = w\n"
           "for i in 0..20 { x = tanh(x @ w) }\nfloat(sum(grad(sum(x), w)))",
           w->seed);
  w->ok = s && ckl_eval(s, text, "thread", &v) == CKL_OK;
  w->result = w->ok ? ckl_to_float(v) : 0;
  ckl_release(v);
  ckl_close(s);
  return NULL;
}

static void threads(void) {
  Worker w[4];
  for (int i = 0; i < 4; i++) {
    w[i].seed = i % 2;
    CHECK(!pthread_create(&w[i].thread, NULL, work, &w[i]));
  }
  for (int i = 0; i < 4; i++) pthread_join(w[i].thread, NULL);
  CHECK(w[0].ok && w[1].ok && w[2].ok && w[3].ok);
  CHECK(w[0].result == w[2].result && w[1].result == w[3].result && w[0].result != w[1].result);
}

static void *interrupt_soon(void *ud) {
  struct timespec t = {0, 200000000};
  nanosleep(&t, NULL);
  ckl_interrupt((ckl_session *)ud);
  return NULL;
}

static void interrupts(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  pthread_t thread;
  static const char *const loops[] = {
      "let kept = 5\nvar n = 0\nwhile true { n += 1 }",
      "let kept = 5\nlet m = ones([50, 50])\nvar n = m\nfor i in 0..1000000000 { n = m @ m }",
      /* without a loop */
      "let kept = 5\nproc pr(n: int) -> int { if n < 2 { n } else { pr(n - 1) + pr(n - 2) } }\n"
      "pr(60)",
      "let kept = 5\nlet l = list(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)\n"
      "proc walk(n: int) { if n > 0 { each(fn(i) { walk(n - 1) }, l) } }\nwalk(20)",
  };
  for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
    CHECK(!pthread_create(&thread, NULL, interrupt_soon, s));
    CHECK(ckl_eval(s, loops[i], "loop", NULL) == CKL_EINTERRUPT);
    pthread_join(thread, NULL);
    ckl_value *v = NULL;
    CHECK(ckl_eval(s, "kept + 1", "after", &v) == CKL_OK && ckl_to_int(v) == 6);
    ckl_release(v);
  }
  ckl_close(s);
  CHECK(a.bytes == 0 && !a.wrong_size);
}

static void limits(void) {
  Page p;
  ckl_config f;
  memset(&f, 0, sizeof f);
  memset(&p, 0, sizeof p);
  f.size = sizeof f;
  f.write = keep;
  f.write_ud = &p;
  f.memory_limit = 1 << 20;
  static const char *const args[] = {"steps=12"};
  f.args = args;
  f.arg_count = 1;
  ckl_session *s = ckl_open(&f);
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, "args(\"steps\", 3)", "t", &v) == CKL_OK && ckl_to_int(v) == 12);
  ckl_release(v);
  CHECK(ckl_eval(s, "let big = uniform([1024, 1024])", "t", NULL) != CKL_OK &&
        ckl_diag_count(s) == 1);
  v = NULL;
  CHECK(ckl_eval(s, "sum(ones([100]))", "t", &v) == CKL_OK && ckl_to_float(v) == 100.0);
  ckl_release(v);
  ckl_close(s);
  f.device = "no such device";
  CHECK(ckl_open(&f) == NULL);
}

/* What belongs to one session is nothing to another (rule 102). */
static void strangers(void) {
  Account a[2];
  Page p[2];
  ckl_session *s = open_with(&a[0], &p[0]), *t = open_with(&a[1], &p[1]);
  ckl_value *r = NULL;
  CHECK(ckl_eval(s, "let x = f64([1, 2])\nfn f(x: f64[2]) -> f64 = sum(x)", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(t, "fn f(x: f64[2]) -> f64 = sum(x)", "t", NULL) == CKL_OK);
  ckl_value *x = ckl_get(s, "x"), *f = ckl_get(s, "f"), *own = ckl_get(t, "f");
  CHECK(ckl_set(t, "x", x) == CKL_EUSAGE && ckl_get(t, "x") == NULL);
  CHECK(ckl_call(t, f, NULL, 0, &r) == CKL_EUSAGE && ckl_call(t, own, &x, 1, &r) == CKL_EUSAGE);
  CHECK(ckl_plan_call(t, own, &x, 1, &r) == CKL_EUSAGE && !r && !ckl_show(t, "x", x));
  ckl_release(f);
  ckl_close(s);
  CHECK(ckl_set(t, "x", x) == CKL_EUSAGE); /* it has no session */
  ckl_release(x);
  ckl_release(own);
  ckl_close(t);
  CHECK(a[0].bytes == 0 && a[1].bytes == 0);
}

/* What is held over a reset, or over another program, is data or (). */
static void held(void) {
  static const char program[] =
      "fn f(x: f64[2]) -> f64 = sum(x)\nlet x = track(f64([1, 2]))\nlet y = f(x * x)\n"
      "let fs = list(f, f)\nlet r = (a = 1, b = 2)\nlet t = (1, \"a\", f64([1, 2]), x * x)";
  static const char *const names[] = {"f", "x", "fs", "r", "y", "t"};
  for (int how = 0; how < 2; how++) {
    Account a;
    Page p;
    ckl_session *s = open_with(&a, &p);
    ckl_value *v[6], *r = NULL;
    CHECK(ckl_eval(s, program, "t", NULL) == CKL_OK && ckl_counter(s, "tape.live") > 0);
    for (int i = 0; i < 6; i++) v[i] = ckl_get(s, names[i]);
    if (how)
      CHECK(ckl_reset(s) == CKL_OK);
    else
      CHECK(ckl_run_file(s, "none.ckl") != CKL_OK);
    for (int i = 0; i < 4; i++) CHECK(v[i] && ckl_kind_of(v[i]) == CKL_UNIT);
    CHECK(ckl_to_float(v[4]) == 5.0 && ckl_length(v[5]) == 4 && !ckl_counter(s, "tape.live"));
    CHECK(ckl_set(s, "y", v[4]) == CKL_OK && ckl_eval(s, "y * 2", "t", &r) == CKL_OK);
    CHECK(ckl_to_float(r) == 10.0);
    ckl_release(r);
    for (int i = 0; i < 6; i++) ckl_release(v[i]);
    ckl_close(s);
    CHECK(a.bytes == 0 && !a.wrong_size);
  }
}

/* row S3.68 reset-clean */
static void resets(void) {
  Account a;
  Page p;
  ckl_session *s = open_with(&a, &p);
  static const char twice[] =
      "let x = track(ones([3]))\nlet n = counter(\"backward.captures\")\n"
      "grad(sum(x * x), x)\ngrad(sum(x * x), x)\ncounter(\"backward.captures\") - n";
  for (int i = 0; i < 3; i++) {
    /* a session knows nothing of what it captured before, and is in no mode */
    ckl_value *v = NULL;
    CHECK(ckl_eval(s, twice, "t", &v) == CKL_OK && ckl_to_int(v) == 1);
    ckl_release(v);
    v = NULL;
    CHECK(ckl_eval(s, "wrap <backward plain> { x[3] }", "t", &v) == CKL_ERUN);
    ckl_release(v);
    CHECK(ckl_reset(s) == CKL_OK);
    CHECK(ckl_eval(s, "print(x)", "t", NULL) == CKL_ERUN);
    CHECK(ckl_reset(s) == CKL_OK);
  }
  ckl_close(s);
  CHECK(a.bytes == 0 && !a.wrong_size);
}

/* ---- functions of the host, which the session calls */
typedef struct Meddler {
  ckl_session *s; /* NULL: leaves it alone */
  ckl_value *x;   /* 2.5, until the session is closed */
  size_t count;
  bool inside;
} Meddler;

/* What would run or change the session is refused. */
static void meddle(Meddler *m) {
  ckl_session *s = m->s;
  ckl_value *v = NULL;
  if (!s || m->inside) return;
  m->inside = true;
  m->count++;
  CHECK(ckl_eval(s, "let q = 5\nq + 1", "t", &v) == CKL_EUSAGE && !v);
  CHECK(ckl_run_file(s, "none.ckl") == CKL_EUSAGE && ckl_check_file(s, "none.ckl") == CKL_EUSAGE);
  CHECK(ckl_test_file(s, "none.ckl", NULL, NULL, NULL) == CKL_EUSAGE);
  CHECK(ckl_reset(s) == CKL_EUSAGE && ckl_set_compiler(s, NULL, NULL) == CKL_EUSAGE);
  CHECK(ckl_set(s, "x", m->x) == CKL_EUSAGE);
  CHECK(ckl_call(s, m->x, NULL, 0, &v) == CKL_EUSAGE && !v);
  CHECK(ckl_plan_call(s, m->x, NULL, 0, &v) == CKL_EUSAGE && !v);
  CHECK(!ckl_plan(s, "none.ckl", "f", NULL, 0, NULL) && !ckl_show(s, "x", m->x));
  CHECK(!ckl_format(s, "t", "1", 1) && !ckl_ir(s, "none.ckl", "f", NULL, 0, "stage"));
  CHECK(!ckl_opt(s, "dce", "t", "", 0));
  ckl_close(s);
  CHECK(ckl_kind_of(m->x) != CKL_STR && ckl_counter(s, "values.live") >= 0);
  m->inside = false;
}

/* Values, variables and diagnostics are at hand. */
static void meddle_more(void *ud) {
  Meddler *m = (Meddler *)ud;
  if (!m->s) return;
  int64_t two = 2;
  double data[2] = {1, 2};
  ckl_value *v = ckl_tensor(m->s, "f64", 1, &two, data), *i = ckl_int(m->s, 3);
  ckl_value *t = ckl_str(m->s, "text", 4), *x = ckl_get(m->s, "kept");
  CHECK(ckl_tensor_dim(v, 0) == 2 && ckl_to_int(i) == 3 && ckl_to_str(t, NULL));
  CHECK(ckl_to_int(x) == 7 || ckl_kind_of(x) == CKL_UNIT); /* the session is being closed */
  ckl_release(v);
  ckl_release(i);
  ckl_release(t);
  ckl_release(x);
  for (size_t k = 0; k < ckl_diag_count(m->s); k++) CHECK(*ckl_diag_text(m->s, k, 0));
  meddle(m);
}

static void meddling_write(void *ud, int stream, const char *text, size_t n) {
  (void)stream, (void)text, (void)n;
  meddle_more(ud);
}

static void meddling_report(void *ud, const char *title, bool ok, const char *diagnostics) {
  (void)title, (void)ok, (void)diagnostics;
  meddle_more(ud);
}

static void *meddling_alloc(void *ud, void *p, size_t old_size, size_t new_size) {
  (void)old_size;
  meddle((Meddler *)ud);
  if (new_size) return realloc(p, new_size);
  free(p);
  return NULL;
}

static ckl_session *open_meddled(Meddler *m, bool alloc) {
  ckl_config f;
  memset(&f, 0, sizeof f);
  memset(m, 0, sizeof *m);
  f.size = sizeof f;
  f.write = meddling_write;
  f.write_ud = f.alloc_ud = m;
  if (alloc) f.alloc = meddling_alloc;
  ckl_session *s = ckl_open(&f);
  m->x = ckl_float(s, 2.5);
  CHECK(ckl_eval(s, "let kept = 7", "t", NULL) == CKL_OK);
  m->s = s;
  return s;
}

static void still_runs(ckl_session *s) {
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, "kept + 1", "t", &v) == CKL_OK && ckl_to_int(v) == 8);
  ckl_release(v);
}

static int64_t counted(ckl_session *s, const char *source) {
  ckl_value *v = NULL;
  CHECK(ckl_eval(s, source, "t", &v) == CKL_OK);
  int64_t n = ckl_to_int(v);
  ckl_release(v);
  return n;
}

static void close_meddled(Meddler *m) {
  ckl_session *s = m->s;
  m->s = NULL;
  ckl_release(m->x);
  ckl_close(s);
}

static void callbacks(void) {
  static const char hooked[] =
      "let x = track(f64([1, 2]))\nlet y = x * x\n"
      "on_grad(y, fn(g) { print(\"hook\", g)\nassert sum(g) < limit })\nlet gg = grad(sum(y), x)";
  Meddler m;
  ckl_session *s = open_meddled(&m, false);
  CHECK(ckl_eval(s, "let limit = f64(3)", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(s, hooked, "t", NULL) == CKL_OK && m.count == 1);
  CHECK(ckl_eval(s, "let limit = f64(1)", "t", NULL) == CKL_OK);
  CHECK(ckl_eval(s, hooked, "t", NULL) == CKL_ERUN && m.count == 2);
  still_runs(s);
  FILE *f = fopen("callbacks.ckl", "w");
  CHECK(f && fputs("let kept = 7\ntest \"a\" { }\ntest \"b\" { assert false }\n", f) >= 0);
  if (f) fclose(f);
  /* what the host holds is counted after tests, too; of its tape nothing is left */
  CHECK(ckl_eval(s, "let held = [y, x * 2]", "t", NULL) == CKL_OK);
  ckl_value *held = ckl_get(s, "held");
  CHECK(ckl_test_file(s, "callbacks.ckl", NULL, meddling_report, &m) == CKL_ERUN && m.count == 4);
  int64_t values = counted(s, "counter(\"values.live\")");
  CHECK(held && values > 0 && counted(s, "counter(\"tape.live\")") == 0);
  ckl_release(held);
  CHECK(counted(s, "counter(\"values.live\")") == values - 1);
  remove("callbacks.ckl");
  still_runs(s);
  close_meddled(&m);

  /* memory that is the host's goes while a statement runs, at a release, with the session */
  static double own[3][2];
  ckl_value *b[3];
  int64_t two = 2;
  s = open_meddled(&m, false);
  for (int i = 0; i < 3; i++) b[i] = ckl_tensor_borrow(s, "f64", 1, &two, own[i], meddle_more, &m);
  CHECK(ckl_set(s, "b", b[0]) == CKL_OK && ckl_set(s, "c", b[2]) == CKL_OK);
  ckl_release(b[0]);
  ckl_release(b[2]);
  CHECK(ckl_eval(s, "let b = 1", "t", NULL) == CKL_OK && m.count == 1);
  ckl_release(b[1]);
  CHECK(m.count == 2);
  still_runs(s);
  ckl_close(s);
  CHECK(m.count == 3);
  ckl_release(m.x);

  s = open_meddled(&m, true);
  CHECK(ckl_eval(s, "let limit = f64(3)", "t", NULL) == CKL_OK && m.count > 0);
  CHECK(ckl_eval(s, hooked, "t", NULL) == CKL_OK);
  still_runs(s);
  size_t before = m.count;
  ckl_release(ckl_int(s, 1));
  CHECK(m.count >= before + 2);
  ckl_release(ckl_str(s, "a", 1));
  CHECK(ckl_help(s, "softmax") != NULL);
  still_runs(s);
  close_meddled(&m);
}

int main(void) {
  values();
  tensors();
  calls();
  diagnostics();
  threads();
  interrupts();
  limits();
  strangers();
  held();
  resets();
  callbacks();
  if (bad) printf("%d checks failed\n", bad);
  return bad ? 1 : 0;
}
