/* random COUNT SEED [MODE...]: random programs give the same bits in every mode (rule 103).
 *
 * Each program of program.c runs through the C API, with two sets of sizes and the first again, and
 * every byte of every result is compared with the first mode's (NaNs are equal). On a difference
 * the program is shrunk by dropping statements and results, and printed with its seed.
 *
 * Modes: a value of ckl_config.cpu, as in `native@4` on so many threads; `script`, the same text as
 * a proc, on the reference evaluator, or as in `script:native@4`. Prints TAP; with RANDOM_SHOW in
 * the environment the programs too. Every other session of ten programs checks addresses. */
#include <ckl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/program.h"

/* Modes that a run without words compares; the first one is right. */
static const char *const default_modes[] = {"reference", "script", "loops"};

enum { MODES = 8, CALLS = 3, PER_SESSION = 10 }; /* the third call has the sizes of the first */
enum { KEEP = 256 };                             /* results of one run with their gradients */

static const int dt_bytes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};

typedef struct Blob { /* one result: dtype, dims, bytes */
  Dt dt;
  int rank;
  int64_t dim[12];
  size_t bytes;
  unsigned char *data;
} Blob;
typedef struct Outcome {
  ckl_status status;
  bool script;                  /* messages are worded otherwise */
  char code[32], message[1500]; /* of a failure */
  Blob blob[KEEP];
  int count;
} Outcome;

static void clear(Outcome *o) {
  for (int i = 0; i < o->count; i++) free(o->blob[i].data);
  memset(o, 0, sizeof *o);
}

static void keep(Outcome *o, const ckl_value *v) {
  const char *dtype = ckl_tensor_dtype(v);
  if (o->count == KEEP) return;
  Blob *b = &o->blob[o->count];
  *b = (Blob){.dt = F64, .bytes = 8};
  if (!dtype) { /* a number */
    double x = ckl_to_float(v);
    b->data = malloc(8);
    memcpy(b->data, &x, 8);
    o->count++;
    return;
  }
  for (int d = 0; d < DTS; d++)
    if (!strcmp(dtype, dt_name[d])) b->dt = (Dt)d;
  b->rank = ckl_tensor_rank(v);
  b->bytes = (size_t)dt_bytes[b->dt];
  for (int i = 0; i < b->rank; i++) b->bytes *= (size_t)(b->dim[i] = ckl_tensor_dim(v, i));
  b->data = malloc(b->bytes + 1);
  const void *data = ckl_tensor_data((ckl_value *)v);
  if (data && b->bytes) memcpy(b->data, data, b->bytes);
  o->count++;
}

static void failed(ckl_session *s, ckl_status status, Outcome *o) {
  o->status = status;
  for (size_t i = 0; i < ckl_diag_count(s); i++) {
    if (!ckl_diag_is_error(s, i)) continue;
    snprintf(o->code, sizeof o->code, "%s", ckl_diag_code(s, i));
    snprintf(o->message, sizeof o->message, "%s", ckl_diag_text(s, i, 0));
    return;
  }
}

/* Element i of an input: mostly small numbers, of floats now and then special ones. */
static void fill(unsigned long long rng, Dt dt, void *data, size_t n) {
  for (size_t i = 0; i < n; i++) {
    unsigned long long r = program_random(&rng);
    double x = (double)(long long)(r >> 40) / 0x1p22 - 2;
    int64_t k = (int64_t)(r >> 33) % 41 - (dt == U8 ? 0 : 20);
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    switch (dt) {
    case F64: memcpy((char *)data + 8 * i, &x, 8); break;
    case F32: memcpy((char *)data + 4 * i, &f, 4); break;
    case BF16: ((uint16_t *)data)[i] = (uint16_t)(u >> 16); break;
    case F16: /* +-(1 + m / 1024) * 2^e for e in -8 .. 1 */
      ((uint16_t *)data)[i] = (uint16_t)((r & 0x83ff) | (7 + (r >> 20) % 10) << 10);
      break;
    case I64: memcpy((char *)data + 8 * i, &k, 8); break;
    case I32: ((int32_t *)data)[i] = (int32_t)k; break;
    default: ((uint8_t *)data)[i] = (uint8_t)k; break;
    }
  }
}

static ckl_value *argument(ckl_session *s, const Program *p, int i, int call) {
  const Var *v = &p->vars[i];
  int64_t dim[RANK];
  size_t n = 1;
  for (int d = 0; d < v->rank; d++) n *= (size_t)(dim[d] = v->dim[d].n[call % RUNS]);
  void *data = calloc(n + 1, 8);
  fill(p->seed * 31 + (unsigned)(i * CALLS + call), v->dt, data, n);
  ckl_value *t = ckl_tensor(s, dt_name[v->dt], v->rank, dim, data);
  free(data);
  return t;
}

static bool in_script(const char *mode) {
  return !strncmp(mode, "script", 6);
}

static ckl_session *open_mode(const char *mode) {
  const char *cache = getenv("RANDOM_CACHE"); /* a folder where machine code is kept */
  ckl_config config = {.size = sizeof config, .cache = cache ? cache : ""};
  char cpu[32];
  const char *on = !in_script(mode) ? mode : mode[6] ? mode + 7 : "reference";
  snprintf(cpu, sizeof cpu, "%.*s", (int)strcspn(on, "@"), on);
  config.cpu = cpu;
  if (strchr(mode, '@')) config.threads = atoi(strchr(mode, '@') + 1);
  ckl_session *s = ckl_open(&config);
  if (!s) {
    printf("Bail out! no session of the mode %s\n", mode);
    exit(2);
  }
  return s;
}

/* Declares the program in `s` and calls it with both sets of sizes. */
static void run_in(ckl_session *s, const Program *p, const char *mode, Outcome *o) {
  static char text[40000];
  clear(o);
  o->script = in_script(mode);
  program_source(p, o->script, text, sizeof text);
  ckl_status status = ckl_eval(s, text, "program", NULL);
  if (status != CKL_OK) {
    failed(s, status, o);
    return;
  }
  for (int call = 0; call < CALLS && o->status == CKL_OK; call++) {
    ckl_value *args[INPUTS + 1], *out = NULL, *f = ckl_get(s, "f");
    int64_t key[2] = {(int64_t)(p->seed * 0x9e3779b97f4a7c15u), call}, two = 2;
    for (int i = 0; i < p->inputs; i++) args[i] = argument(s, p, i, call);
    args[p->inputs] = ckl_tensor(s, "i64", 1, &two, key);
    status = ckl_call(s, f, args, (size_t)p->inputs + 1, &out);
    if (status != CKL_OK) failed(s, status, o);
    for (size_t i = 0; status == CKL_OK && i < ckl_length(out); i++) {
      ckl_value *v = ckl_item(out, i);
      keep(o, v);
      ckl_release(v);
    }
    for (int i = 0; i <= p->inputs; i++) ckl_release(args[i]);
    ckl_release(out);
    ckl_release(f);
  }
}

static bool nan_at(Dt dt, const unsigned char *p) {
  uint16_t h;
  float f;
  double d;
  memcpy(&h, p, 2);
  if (dt == F16) return (h & 0x7fff) > 0x7c00;
  if (dt == BF16) return (h & 0x7fff) > 0x7f80;
  if (dt == F32) return memcpy(&f, p, 4), f != f;
  if (dt == F64) return memcpy(&d, p, 8), d != d;
  return false;
}

/* The first difference in words, or "". */
static void difference(const Outcome *a, const Outcome *b, char *text, size_t n) {
  text[0] = 0;
  bool words = a->script == b->script && strcmp(a->message, b->message);
  if (a->status != b->status || strcmp(a->code, b->code) || words) {
    snprintf(text, n, "status %d %s, not %d %s\n%s%s", (int)b->status, b->code, (int)a->status,
             a->code, b->message, a->message);
    return;
  }
  for (int i = 0; i < a->count && i < b->count; i++) {
    const Blob *x = &a->blob[i], *y = &b->blob[i];
    if (x->dt != y->dt || x->rank != y->rank || memcmp(x->dim, y->dim, sizeof x->dim)) {
      snprintf(text, n, "result %d: other dtype or dims", i);
      return;
    }
    int size = dt_bytes[x->dt];
    for (size_t k = 0; k + (size_t)size <= x->bytes; k += (size_t)size) {
      const unsigned char *p = x->data + k, *q = y->data + k;
      if (!memcmp(p, q, (size_t)size) || (nan_at(x->dt, p) && nan_at(x->dt, q))) continue;
      unsigned long long u = 0, v = 0;
      memcpy(&u, p, (size_t)size);
      memcpy(&v, q, (size_t)size);
      snprintf(text, n, "result %d, element %d (%s) has the bits %llx, not %llx", i,
               (int)(k / (size_t)size), dt_name[x->dt], v, u);
      return;
    }
  }
  if (a->count != b->count) snprintf(text, n, "%d results, not %d", b->count, a->count);
}

/* Runs in sessions of its own; whether the modes differ. */
static bool differs(const Program *p, const char *right, const char *mode, char *text, size_t n) {
  static Outcome a, b;
  ckl_session *s = open_mode(right);
  run_in(s, p, right, &a);
  ckl_close(s);
  s = open_mode(mode);
  run_in(s, p, mode, &b);
  ckl_close(s);
  char what[4000];
  difference(&a, &b, what, sizeof what);
  bool wrong = a.status == CKL_EPROGRAM || b.status == CKL_EPROGRAM || !strcmp(a.code, "name-1") ||
               !strcmp(b.code, "name-1"); /* as a statement is missing */
  if (what[0]) snprintf(text, n, "%s", what);
  clear(&a);
  clear(&b);
  return what[0] && !wrong;
}

/* Drops what the difference does not need: gradients, results, statements from the end. */
static void shrink(Program *p, const char *right, const char *mode, char *text, size_t n) {
  Program q = *p;
  q.no_loss = true;
  if (q.results && differs(&q, right, mode, text, n)) *p = q;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < p->results; i++) {
      q = *p;
      memmove(&q.result[i], &q.result[i + 1], sizeof(int) * (size_t)(--q.results - i));
      if ((q.results || !q.no_loss) && differs(&q, right, mode, text, n)) *p = q, again = true, i--;
    }
    for (int i = 0; i < p->losses && p->losses > 1; i++) {
      q = *p;
      memmove(&q.loss[i], &q.loss[i + 1], sizeof(int) * (size_t)(--q.losses - i));
      if (differs(&q, right, mode, text, n)) *p = q, again = true, i--;
    }
    for (int i = p->statements - 1; i >= 0; i--) {
      if (p->statement[i].dropped) continue;
      q = *p;
      q.statement[i].dropped =
          true; /* what uses it makes the program wrong, which is no difference */
      if (differs(&q, right, mode, text, n)) *p = q, again = true;
    }
  }
  differs(p, right, mode, text, n);
}

static void comment(const char *text) {
  fputs("# ", stdout);
  for (const char *c = text; *c; c++) {
    putchar(*c);
    if (*c == '\n' && c[1]) fputs("# ", stdout);
  }
  putchar('\n');
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "use: random COUNT SEED [MODE...]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* a mode may die */
  const char *mode[MODES];
  int modes = 0, failures = 0, tests = 0;
  long count = atol(argv[1]), wrong = 0, stopped = 0, ran = 0;
  unsigned long long seed = strtoull(argv[2], NULL, 10);
  for (int i = 3; i < argc && modes < MODES; i++) mode[modes++] = argv[i];
  for (size_t i = 0; argc == 3 && i < sizeof default_modes / sizeof *default_modes; i++)
    mode[modes++] = default_modes[i];
  static Program p;
  static Outcome out[MODES];
  static char text[40000], why[4000];
  ckl_session *s[MODES] = {0};
  long long kernels[MODES] = {0}, by_node[MODES] = {0}, reruns[MODES] = {0};
  for (long n = 0; n < count; n++) {
    program_generate(&p, seed + (unsigned long long)n);
    for (int m = 0; m < modes; m++) {
      if (n % PER_SESSION == 0) {
        setenv("CKL_CHECK_ADDRESS", n / PER_SESSION % 2 ? "0" : "1", 1);
        ckl_close(s[m]);
        s[m] = open_mode(mode[m]);
      }
      run_in(s[m], &p, mode[m], &out[m]);
      if (n % PER_SESSION < PER_SESSION - 1 && n < count - 1) continue;
      kernels[m] += ckl_counter(s[m], "jit.kernels");
      by_node[m] += ckl_counter(s[m], "jit.by_node");
      reruns[m] += ckl_counter(s[m], "jit.reruns");
    }
    if (getenv("RANDOM_SHOW")) {
      program_source(&p, false, text, sizeof text);
      printf("# seed %llu, status %d, %d results\n", p.seed, (int)out[0].status, out[0].count);
      comment(text);
    }
    if (out[0].status == CKL_EPROGRAM) {
      if (wrong++ < 3) {
        printf("# seed %llu is no program:\n", p.seed);
        program_source(&p, false, text, sizeof text);
        comment(out[0].message);
      }
    } else if (out[0].status == CKL_OK) {
      ran++;
    } else {
      stopped++;
    }
    for (int m = 1; m < modes; m++) {
      difference(&out[0], &out[m], why, sizeof why);
      if (!why[0]) continue;
      failures++;
      Program small = p;
      shrink(&small, mode[0], mode[m], why, sizeof why);
      printf("# seed %llu: %s and %s differ\n", p.seed, mode[0], mode[m]);
      comment(why);
      program_source(&small, false, text, sizeof text);
      comment(text);
      if (failures >= 20) n = count;
    }
  }
  for (int m = 0; m < modes; m++) {
    ckl_close(s[m]);
    clear(&out[m]);
  }
  for (int m = 0; m < modes; m++) {
    printf("# %s: %lld kernels, %lld nodes by the reference, %lld runs again\n", mode[m],
           kernels[m], by_node[m], reruns[m]);
  }
  printf("# %ld programs ran, %ld stopped with an error, %ld were none\n", ran, stopped, wrong);
  printf("%s %d - random programs give the same bits in all modes\n", failures ? "not ok" : "ok",
         ++tests);
  printf("%s %d - what is generated are programs\n", wrong * 20 > count ? "not ok" : "ok", ++tests);
  printf("1..%d\n", tests);
  return failures || wrong * 20 > count;
}
