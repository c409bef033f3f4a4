/* runner.c: runs random programs through the C API (runner.h). */
#include "tests/jit/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/makes_code.h"

const int dt_bytes[DTS] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};

void runner_clear(Outcome *o) {
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

void *runner_input(const Program *p, int i, int call, size_t *n) {
  const Var *v = &p->vars[i];
  *n = 1;
  for (int d = 0; d < v->rank; d++) *n *= (size_t)v->dim[d].n[call % RUNS];
  void *data = calloc(*n + 1, 8);
  fill(p->seed * 31 + (unsigned)(i * CALLS + call), v->dt, data, *n);
  return data;
}

bool runner_in_script(const char *mode) {
  return !strncmp(mode, "script", 6);
}

static void read_cpu(const char *mode, char cpu[32]) {
  const char *on = !runner_in_script(mode) ? mode : mode[6] ? mode + 7 : "reference";
  snprintf(cpu, 32, "%.*s", (int)strcspn(on, "@"), on);
}

void runner_mode(const char *mode) {
  char cpu[32];
  read_cpu(mode, cpu);
  must_make_code(cpu);
}

ckl_session *runner_open(const char *mode) {
  const char *cache = getenv("RANDOM_CACHE"); /* a folder where machine code is kept */
  ckl_config config = {.size = sizeof config, .cache = cache ? cache : ""};
  char cpu[32];
  read_cpu(mode, cpu);
  config.cpu = cpu;
  if (strchr(mode, '@')) config.threads = atoi(strchr(mode, '@') + 1);
  ckl_session *s = ckl_open(&config);
  if (!s) {
    printf("Bail out! no session of the mode %s\n", mode);
    exit(2);
  }
  return s;
}

bool runner_declare(ckl_session *s, const Program *p, const char *mode, Outcome *o) {
  static char text[40000];
  runner_clear(o);
  o->script = runner_in_script(mode);
  program_source(p, o->script, text, sizeof text);
  ckl_status status = ckl_eval(s, text, "program", NULL);
  if (status != CKL_OK) failed(s, status, o);
  return status == CKL_OK;
}

void runner_key(const Program *p, int call, int64_t key[2]) {
  key[0] = (int64_t)(p->seed * 0x9e3779b97f4a7c15u);
  key[1] = call;
}

void runner_call(ckl_session *s, const Program *p, int call, void *const *input, Outcome *o) {
  ckl_value *args[INPUTS + 1], *out = NULL, *f = ckl_get(s, "f");
  int64_t key[2], two = 2;
  runner_key(p, call, key);
  for (int i = 0; i < p->inputs; i++) {
    const Var *v = &p->vars[i];
    int64_t dim[RANK];
    for (int d = 0; d < v->rank; d++) dim[d] = v->dim[d].n[call % RUNS];
    args[i] = ckl_tensor(s, dt_name[v->dt], v->rank, dim, input[i]);
  }
  args[p->inputs] = ckl_tensor(s, "i64", 1, &two, key);
  ckl_status status = ckl_call(s, f, args, (size_t)p->inputs + 1, &out);
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

void runner_run(ckl_session *s, const Program *p, const char *mode, Outcome *o) {
  if (!runner_declare(s, p, mode, o)) return;
  for (int call = 0; call < CALLS && o->status == CKL_OK; call++) {
    void *input[INPUTS];
    size_t n;
    for (int i = 0; i < p->inputs; i++) input[i] = runner_input(p, i, call, &n);
    runner_call(s, p, call, input, o);
    for (int i = 0; i < p->inputs; i++) free(input[i]);
  }
}

void runner_shrink(Program *p, Shows *shows, const void *with, char *text, size_t n) {
  Program q = *p;
  q.no_loss = true;
  if (q.results && shows(&q, with, text, n)) *p = q;
  for (bool again = true; again;) {
    again = false;
    for (int i = 0; i < p->results; i++) {
      q = *p;
      memmove(&q.result[i], &q.result[i + 1], sizeof(int) * (size_t)(--q.results - i));
      if ((q.results || !q.no_loss) && shows(&q, with, text, n)) *p = q, again = true, i--;
    }
    for (int i = 0; i < p->losses && p->losses > 1; i++) {
      q = *p;
      memmove(&q.loss[i], &q.loss[i + 1], sizeof(int) * (size_t)(--q.losses - i));
      if (shows(&q, with, text, n)) *p = q, again = true, i--;
    }
    for (int i = p->statements - 1; i >= 0; i--) {
      if (p->statement[i].dropped) continue;
      q = *p;
      q.statement[i].dropped =
          true; /* what uses it makes the program wrong, which is no difference */
      if (shows(&q, with, text, n)) *p = q, again = true;
    }
  }
  shows(p, with, text, n);
}

void runner_comment(const char *text) {
  fputs("# ", stdout);
  for (const char *c = text; *c; c++) {
    putchar(*c);
    if (*c == '\n' && c[1]) fputs("# ", stdout);
  }
  putchar('\n');
}
