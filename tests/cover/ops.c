/* ops [--cells] [--show] [--only=OPERATION,..] [MODE...]: what can be written with each operation
 * is right, and has the same bits in every mode.
 *
 * Each case of cases.txt becomes a program: its value; if it has a derivative, also the gradient of
 * sum(w y (1 + y)) and the gradient of the sum of v times that. What the reference evaluator makes
 * of it is compared with the numbers of an independent system, and what the other modes make of it
 * with its bits. A cell is an operation with a class, an order of derivative and a mode; it counts
 * if the operation stands in the graph that ran. An operation without a case, a case without
 * numbers, a program without its operation are holes, and a hole is a failure, as a difference is.
 *
 * Prints TAP, a test for each operation, and a table of the cells. --cells: a line for each cell
 * instead; --show: the programs. */
#include <ckl.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/half.h"
#include "tests/cover/cover.h"
#include "tests/makes_code.h"

enum { ORDERS = 3, PER_SESSION = 150, TEXT = 4000 };

/* How a program runs. `ran` is a counter that tells that it did. */
typedef struct Mode {
  const char *name, *cpu;
  bool script;
  const char *backward; /* word of `wrap <backward ..>` */
} Mode;
static const Mode modes[] = {
    {"reference", "reference", false, NULL},  {"script", "reference", true, "plain"},
    {"captured", "native", true, "captured"}, {"native", "native", false, NULL},
    {"loops", "loops", false, NULL},
};
enum { MODES = sizeof modes / sizeof *modes };

typedef struct Result {
  DType dtype;
  int rank;
  int64_t dim[CKL_MAX_RANK], n;
  void *data;
} Result;
typedef struct Outcome { /* of one program in one mode */
  Result r[COVER_ARRAYS];
  int count;
  bool has_op; /* the operation was in the graph, or the steps of the script, that ran */
  char error[1500];
} Outcome;

typedef struct Function { /* of a session: programs of equal text are one */
  char *text;
  bool ops[OP_COUNT];
} Function;
typedef struct Run { /* a session */
  const Mode *mode;
  ckl_session *s;
  bool staged; /* whether it shows graphs as staged, or simplified */
  char *dump;
  size_t dump_len, dump_room;
  Function *functions;
  size_t count, cases;
  bool captured[OP_COUNT]; /* in graphs of tapes */
} Run;

/* What is asked of an operation, and what there is: classes, and cells by order and mode. */
typedef struct Tally {
  int classes, cells[ORDERS][MODES], filled[ORDERS][MODES], faults;
  int by_node; /* native programs of which a node is left to the reference */
} Tally;

static bool show, each_cell;
static const char *only;
static bool wanted[MODES];
static Tally tally[OP_COUNT];
static bool tried[OP_COUNT][DT_COUNT];

static void say(const char *fmt, ...) {
  char text[8000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fputs("# ", stdout);
  for (const char *c = text; *c; c++) {
    putchar(*c);
    if (*c == '\n' && c[1]) fputs("#   ", stdout);
  }
  putchar('\n');
}

/* ---- programs */

typedef struct Text {
  char s[TEXT];
  size_t n;
} Text;

static void put(Text *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
  va_end(ap);
  if (n > 0 && t->n + (size_t)n < sizeof t->s) t->n += (size_t)n;
}

/* `[x, y]`-like lists of what gradients are taken by. */
static void put_wrt(Text *t, const Case *c, const char *fmt, const char *between) {
  bool first = true;
  for (int i = 0; i < c->inputs; i++) {
    if (!c->in[i].wrt) continue;
    if (!first) put(t, "%s", between);
    put(t, fmt, c->in[i].name);
    first = false;
  }
}

/* The program of a case with derivatives up to `order`: `NAME` stands for the name of the function,
 * y is the value, for its weights. A gradient that is recorded is not captured. */
static void program(Text *t, const Case *c, const Mode *m, int order, const Result *y) {
  bool like_x = order && y->rank == c->in[0].rank && y->rank > 0;
  for (int k = 0; like_x && k < y->rank; k++) like_x = y->dim[k] == c->in[0].dim[k];
  t->n = 0;
  put(t, m->script ? "proc NAME(" : "fn NAME");
  if (!m->script) { /* symbols */
    const char *seen = "";
    for (int i = 0; i < c->inputs; i++)
      for (const char *d = c->in[i].dims; *d; d++)
        if (*d >= 'A' && *d <= 'Z' && *seen != *d) put(t, *seen ? ", %c" : "[%c", *d), seen = d;
    put(t, *seen ? "](" : "(");
  }
  for (int i = 0; i < c->inputs; i++) {
    const Input *in = &c->in[i];
    put(t, i ? ", %s" : "%s", in->name);
    if (!m->script) put(t, ": %s[%s]", dtype_info[in->dtype].name, in->dims);
  }
  if (order) {
    put(t, ", w");
    if (!m->script && like_x) {
      put(t, ": %s[%s]", dtype_info[y->dtype].name, c->in[0].dims);
    } else if (!m->script) {
      put(t, ": %s[", dtype_info[y->dtype].name);
      for (int k = 0; k < y->rank; k++) put(t, k ? ", %lld" : "%lld", (long long)y->dim[k]);
      put(t, "]");
    }
    for (int i = 0; i < c->inputs; i++) {
      if (!c->in[i].wrt) continue;
      put(t, ", v%s", c->in[i].name);
      if (!m->script) put(t, ": %s[%s]", dtype_info[c->in[i].dtype].name, c->in[i].dims);
    }
  }
  put(t, ") {\n  let r = %s\n", c->expr);
  if (order) {
    put(t, "  let g = grad(sum(r * w * (1.0 + r)), list(");
    put_wrt(t, c, "%s", ", ");
    put(t, order > 1 ? "), record = true)\n" : "))\n");
  }
  if (order > 1) {
    put(t, "  let h = grad(");
    for (int i = 0, k = 0; i < c->inputs; i++)
      if (c->in[i].wrt)
        put(t, k ? " + sum(g[%d] * v%s)" : "sum(g[%d] * v%s)", k, c->in[i].name), k++;
    put(t, ", list(");
    put_wrt(t, c, "%s", ", ");
    put(t, "))\n");
  }
  put(t, "  list(r");
  for (int o = 0; o < order; o++)
    for (int k = 0; k < c->wrts; k++) put(t, ", %c[%d]", "gh"[o], k);
  put(t, ")\n}\n");
}

/* Calls the proc of a program so that its inputs are on a tape, which is walked in the mode. */
static void tracking(Text *t, const Case *c, const Mode *m, int order, const char *name) {
  t->n = 0;
  put(t, "proc %s_of(", name);
  for (int call = 0; call < 2; call++) {
    for (int i = 0; i < c->inputs; i++)
      put(t, call && c->in[i].wrt ? "%strack(%s)" : "%s%s", i ? ", " : "", c->in[i].name);
    if (order) put(t, ", w");
    for (int i = 0; i < c->inputs; i++)
      if (order && c->in[i].wrt) put(t, ", v%s", c->in[i].name);
    if (!call) put(t, ") = wrap <backward %s> { %s(", m->backward, name);
  }
  put(t, ") }\n");
}

/* ---- sessions */

/* Graphs that were compiled come as text on stream 2, captured ones on stream 3. */
static void write_graph(void *ud, int stream, const char *text, size_t n) {
  Run *r = ud;
  if (stream < CKL_STDERR) return;
  if (r->dump_len + n + 1 > r->dump_room) {
    r->dump_room = 2 * (r->dump_len + n + 1);
    r->dump = realloc(r->dump, r->dump_room);
  }
  memcpy(r->dump + r->dump_len, text, n);
  r->dump_len += n;
  r->dump[r->dump_len] = 0;
}

/* The operations of the graphs in `text`: what follows `%1 = `; and those of a tape that was
 * captured: `"calls":["sin","mul"]`. */
static void ops_of(const char *text, bool *ops) {
  const char *calls = strstr(text, "\"calls\":[");
  char name[32];
  int n;
  for (calls = calls ? calls + 9 : ""; sscanf(calls, "%*[[,]\"%31[a-z0-9_]\"%n", name, &n) == 1;
       calls += n)
    if (op_find(name) >= 0) ops[op_find(name)] = true;
  for (const char *s = text; s && (s = strstr(s, " = ")) != NULL;) {
    const char *b = s;
    s += 3;
    while (b > text && b[-1] >= '0' && b[-1] <= '9') b--;
    if (b == text || b[-1] != '%') continue;
    snprintf(name, sizeof name, "%.*s", (int)strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_"), s);
    int op = op_find(name);
    if (op >= 0) ops[op] = true;
  }
}

static void run_close(Run *r) {
  if (r->s) ckl_close(r->s);
  for (size_t i = 0; i < r->count; i++) free(r->functions[i].text);
  free(r->functions);
  free(r->dump);
  *r = (Run){.mode = r->mode};
}

static bool run_open(Run *r, const char *prelude) {
  const char *cache = getenv("COVER_CACHE");
  ckl_config config = {.size = sizeof config,
                       .cpu = r->mode->cpu,
                       .threads = 1,
                       .cache = cache ? cache : "",
                       .trace = true,
                       .write = write_graph,
                       .write_ud = r};
  r->s = ckl_open(&config);
  r->functions = calloc(ORDERS * PER_SESSION, sizeof *r->functions);
  if (!r->s) {
    printf("Bail out! no session of the mode %s\n", r->mode->name);
    exit(2);
  }
  ckl_dump(r->s, r->staged ? "stage" : "simplify");
  if (r->mode->script) ckl_dump(r->s, "joint"); /* of blocks */
  return ckl_eval(r->s, prelude, "cases", NULL) == CKL_OK;
}

static bool failed(Run *r, Outcome *o) {
  snprintf(o->error, sizeof o->error, "it fails");
  for (size_t i = 0; i < ckl_diag_count(r->s); i++) {
    if (!ckl_diag_is_error(r->s, i)) continue;
    snprintf(o->error, sizeof o->error, "%s", ckl_diag_text(r->s, i, 0));
    break;
  }
  return false;
}

static void keep(Outcome *o, ckl_value *v) {
  const char *dtype = ckl_tensor_dtype(v);
  Result *r = &o->r[o->count];
  if (o->count == COVER_ARRAYS) return;
  *r = (Result){.dtype = DT_F64, .n = 1};
  if (!dtype) {
    r->data = malloc(sizeof(double));
    *(double *)r->data = ckl_to_float(v);
    o->count++;
    return;
  }
  r->dtype = (DType)dtype_find(dtype);
  r->rank = ckl_tensor_rank(v);
  for (int k = 0; k < r->rank; k++) r->n *= r->dim[k] = ckl_tensor_dim(v, k);
  size_t bytes = (size_t)r->n * dt_size(r->dtype);
  const void *data = ckl_tensor_data(v);
  r->data = malloc(bytes + 1);
  if (data && bytes) memcpy(r->data, data, bytes);
  o->count++;
}

static void clear(Outcome *o) {
  for (int i = 0; i < o->count; i++) free(o->r[i].data);
  o->count = 0;
}

static ckl_value *tensor(Run *r, DType dt, int rank, const int64_t *dim, const double *v,
                         int64_t n) {
  char *data = calloc((size_t)n + 1, 8);
  for (int64_t i = 0; i < n; i++) {
    float f = (float)v[i];
    int64_t k = dt_float(dt) ? 0 : (int64_t)v[i];
    uint16_t h = dt == DT_BF16 ? hf_bf16_from_f32(f) : dt == DT_F16 ? hf_f16_from_f32(f) : 0;
    const void *from = dt == DT_F64 ? (const void *)&v[i] : dt == DT_F32 ? (const void *)&f : &h;
    if (!dt_float(dt)) from = &k;
    memcpy(data + (size_t)i * dt_size(dt), from, dt_size(dt));
  }
  ckl_value *t = ckl_tensor(r->s, dtype_info[dt].name, rank, dim, data);
  free(data);
  return t;
}

static ckl_value *drawn(Run *r, const char *name, DType dt, int rank, const int64_t *dim,
                        double low, double high, const double *given) {
  int64_t n = 1;
  for (int k = 0; k < rank; k++) n *= dim[k];
  double *v = malloc(((size_t)n + 1) * sizeof *v);
  if (given) {
    memcpy(v, given, (size_t)n * sizeof *v);
  } else {
    cover_draw(name, dt, low, high, n, v);
  }
  ckl_value *t = tensor(r, dt, rank, dim, v, n);
  free(v);
  return t;
}

/* Runs a program of a case, as for `program`. */
static bool run_case(Run *r, const Cover *v, const Case *c, int order, const Result *y,
                     Outcome *o) {
  Text t, code;
  char text[TEXT + 64], name[32];
  ckl_value *args[2 * COVER_INPUTS + 1], *out = NULL;
  size_t n = 0, at = 0;
  *o = (Outcome){0};
  program(&t, c, r->mode, order, y);
  program(&code, c, &modes[0], order,
          y); /* functions of a name draw the same numbers in all modes */
  snprintf(name, sizeof name, "c%llx", (unsigned long long)XXH3_64bits(code.s, code.n));
  while (at < r->count && strcmp(r->functions[at].text, code.s)) at++;
  if (at == r->count) {
    char *place = strstr(t.s, "NAME");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(place - t.s), t.s, name, place + 4);
    if (show) say("%s %s, %s:\n%s", op_info[c->op].text, c->cls, r->mode->name, text);
    r->functions[r->count++].text = strcpy(malloc(code.n + 1), code.s);
    if (ckl_eval(r->s, text, "case", NULL) != CKL_OK) return failed(r, o);
    tracking(&t, c, r->mode, order, name);
    if (r->mode->script && ckl_eval(r->s, t.s, "case", NULL) != CKL_OK) return failed(r, o);
  }
  if (r->mode->script) strcat(name, "_of");
  for (int i = 0; i < c->inputs; i++) {
    const Input *in = &c->in[i];
    args[n++] = drawn(r, in->name, in->dtype, in->rank, in->dim, in->low, in->high, in->given);
  }
  if (order) {
    args[n++] = drawn(r, "w", y->dtype, y->rank, y->dim, -2, 2, NULL);
    for (int i = 0; i < c->inputs; i++) {
      const Input *in = &c->in[i];
      char weight[32];
      snprintf(weight, sizeof weight, "v%s", in->name);
      if (in->wrt) args[n++] = drawn(r, weight, in->dtype, in->rank, in->dim, -2, 2, NULL);
    }
  }
  ckl_value *f = ckl_get(r->s, name);
  int64_t by_node = ckl_counter(r->s, "jit.by_node"), lost = ckl_counter(r->s, "jit.failed");
  int64_t made = ckl_counter(r->s, "backward.captures"), hits = ckl_counter(r->s, "backward.hits");
  r->dump_len = 0;
  bool ok = ckl_call(r->s, f, args, n, &out) == CKL_OK || failed(r, o);
  made = ckl_counter(r->s, "backward.captures") - made;
  hits = ckl_counter(r->s, "backward.hits") - hits;
  if (!strcmp(r->mode->name, "native") && ckl_counter(r->s, "jit.by_node") > by_node)
    tally[c->op].by_node++;
  if (r->dump_len) ops_of(r->dump, r->functions[at].ops);
  if (r->mode->script && r->dump_len) ops_of(r->dump, r->captured);
  bool found = r->functions[at].ops[c->op];
  if (!r->mode->script) {
    o->has_op = found && lost == ckl_counter(r->s, "jit.failed");
  } else if (!order || !strcmp(r->mode->backward, "plain")) {
    o->has_op = !made && !hits;
  } else { /* a tape holds what has a gradient; one like another is that one's graph */
    bool held = cover_has_gradient(c->op) && !v->staged[c->op] && !v->untaped[c->op];
    o->has_op = made + hits > 0 && (found || !held || (!made && r->captured[c->op]));
  }
  for (size_t i = 0; ok && i < ckl_length(out); i++) {
    ckl_value *result = ckl_item(out, i);
    keep(o, result);
    ckl_release(result);
  }
  for (size_t i = 0; i < n; i++) ckl_release(args[i]);
  ckl_release(out);
  ckl_release(f);
  return ok;
}

/* ---- comparing */

static double element(const Result *r, int64_t i) {
  const char *p = (const char *)r->data + (size_t)i * dt_size(r->dtype);
  float f;
  double d;
  int64_t k;
  int32_t w;
  int16_t s;
  uint16_t h;
  switch (r->dtype) {
  case DT_F64: return memcpy(&d, p, 8), d;
  case DT_F32: return memcpy(&f, p, 4), f;
  case DT_F16: return memcpy(&h, p, 2), hf_f64_from_f16(h);
  case DT_BF16: return memcpy(&h, p, 2), hf_f64_from_bf16(h);
  case DT_I64: return memcpy(&k, p, 8), (double)k;
  case DT_I32: return memcpy(&w, p, 4), w;
  case DT_I16: return memcpy(&s, p, 2), s;
  case DT_I8: return *(const signed char *)p;
  default: return *(const unsigned char *)p;
  }
}

/* The same dtype, dims and bits; NaNs are equal. */
static bool same_bits(const Result *a, const Result *b, char *why, size_t cap) {
  if (a->dtype != b->dtype || a->rank != b->rank ||
      memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) != 0) {
    snprintf(why, cap, "has another dtype or shape");
    return false;
  }
  size_t size = dt_size(a->dtype);
  for (int64_t i = 0; i < a->n; i++) {
    const char *p = (const char *)a->data + (size_t)i * size,
               *q = (const char *)b->data + (size_t)i * size;
    if (!memcmp(p, q, size) || (isnan(element(a, i)) && isnan(element(b, i)))) continue;
    snprintf(why, cap, "element %lld of %lld is %.17g, not %.17g", (long long)i, (long long)a->n,
             element(b, i), element(a, i));
    return false;
  }
  return true;
}

static bool near(double got, double want, double scale) {
  return got == want || fabs(got - want) <= scale; /* false for NaN, which a digest never has */
}

static bool agrees(const Case *c, const Result *r, int order, const Digest *want, char *why,
                   size_t cap) {
  double *v = malloc(((size_t)r->n + 1) * sizeof *v);
  for (int64_t i = 0; i < r->n; i++) v[i] = element(r, i);
  Digest got = cover_digest(r->rank, r->dim, v, r->n);
  free(v);
  bool floats = dt_float(c->dtype) && dt_float(r->dtype);
  double tol = !floats || (c->exact && !order) ? 1e-13
               : c->dtype == DT_F64            ? 1e-11
               : c->dtype == DT_F32            ? 1e-5
               : c->dtype == DT_F16            ? 1e-2
                                               : 8e-2;
  double all = tol * fmax(1, want->absolute),
         one = tol * fmax(1, fmax(fabs(want->first), fabs(want->last)));
  if (order) one = fmax(one, all / (double)(r->n + 1) * 4);
  bool ok = !strcmp(got.dims, want->dims) && near(got.sum, want->sum, all) &&
            near(got.weighted, want->weighted, all) && near(got.absolute, want->absolute, all) &&
            near(got.first, want->first, one) && near(got.last, want->last, one);
  if (!ok) {
    snprintf(
        why, cap,
        "dims %s, sum %.17g, weighted %.17g, of absolute values %.17g, first %.17g, last %.17g\n"
        "the independent system has\n"
        "dims %s, sum %.17g, weighted %.17g, of absolute values %.17g, first %.17g, last %.17g",
        got.dims, got.sum, got.weighted, got.absolute, got.first, got.last, want->dims, want->sum,
        want->weighted, want->absolute, want->first, want->last);
  }
  return ok;
}

/* ---- cells */

static void cell(const Case *c, int order, int m, const char *why) {
  Tally *t = &tally[c->op];
  t->cells[order][m]++;
  t->filled[order][m] += !why;
  t->faults += why != NULL;
  if (each_cell)
    printf("%s %s %d %s %s\n", op_info[c->op].text, c->cls, order, modes[m].name,
           why ? "hole" : "filled");
  else if (why)
    say("%s %s, order %d, %s: %s\n%s", op_info[c->op].text, c->cls, order, modes[m].name, why,
        c->expr);
}

/* Whether a program of so many derivatives did right in one mode, else why not. `right`: what the
 * reference made of it. */
static const char *hole_of(const Case *c, int m, int order, const Outcome *o, bool ok,
                           const Outcome *right) {
  static char why[2000];
  if (!ok) return o->error;
  if (!o->has_op)
    return modes[m].script ? "it did not run as script, or nothing was captured"
                           : "the operation is not in the graph that ran";
  for (int k = 0; k < 1 + order * c->wrts; k++) {
    if (k >= o->count) return "a result is missing";
    if (m > 0) {
      if (k >= right->count || !same_bits(&right->r[k], &o->r[k], why, sizeof why)) return why;
    } else if (!c->alone) {
      if (k >= c->wants) return "no numbers: tests/cover/make-numbers.py makes them";
      if (!agrees(c, &o->r[k], k ? 1 + (k - 1) / c->wrts : 0, &c->want[k], why, sizeof why))
        return why;
    }
  }
  return NULL;
}

static void each_mode(Run *run, const Case *c, const Cover *v) {
  Outcome right[ORDERS] = {{{{0}}, 0, false, ""}}, o;
  Result y = {.dtype = c->dtype};
  for (int m = 0; m < MODES; m++) {
    if (!wanted[m]) continue;
    Run *r = &run[m];
    if (r->cases++ % PER_SESSION == 0 || r->staged != v->staged[c->op]) {
      run_close(r);
      *r = (Run){.mode = &modes[m], .cases = 1, .staged = v->staged[c->op]};
      if (!run_open(r, v->prelude)) {
        printf("Bail out! the declarations of cases.txt are wrong\n");
        exit(2);
      }
    }
    for (int order = 0; order <= c->order; order++) {
      bool ok = run_case(r, v, c, order, &y, &o);
      if (m == 0) right[order] = o;
      if (m == 0 && !order && ok && o.count == 1) y = o.r[0];
      cell(c, order, m, hole_of(c, m, order, &o, ok, &right[order]));
      if (m) clear(&o);
    }
  }
  for (int k = 0; k < ORDERS; k++) clear(&right[k]);
}

static bool asked(const char *name) {
  size_t n = strlen(name);
  for (const char *s = only; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
    if (!strncmp(s, name, n) && (!s[n] || s[n] == ',')) return true;
  return !only;
}

/* Classes, then for each order the filled cells of each mode, marked where some are missing. */
static void table(const Cover *v) {
  printf("# %-13s %7s", "", "classes");
  for (int o = 0; o < ORDERS; o++) {
    char head[40];
    snprintf(head, sizeof head, o == 0 ? "value" : o == 1 ? "gradient" : "second derivative");
    printf("   %-*s", 5 * MODES, head);
  }
  printf("\n# %-13s %7s", "operation", "");
  for (int o = 0; o < ORDERS; o++) {
    printf("   ");
    for (int m = 0; m < MODES; m++) printf("%-5.4s", modes[m].name);
  }
  printf("\n");
  int classes = 0, filled = 0, cells = 0;
  for (int op = 0; op < OP_COUNT; op++) {
    const Tally *t = &tally[op];
    if (!asked(op_info[op].text)) continue;
    if (!t->classes) {
      printf("# %-13s %s\n", op_info[op].text, v->set[op]);
      continue;
    }
    printf("# %-13s %7d", op_info[op].text, t->classes);
    classes += t->classes;
    for (int o = 0; o < ORDERS; o++) {
      printf("   ");
      for (int m = 0; m < MODES; m++) {
        char text[16] = "-";
        if (t->cells[o][m] && t->filled[o][m] == t->cells[o][m])
          snprintf(text, sizeof text, "%d", t->filled[o][m]);
        else if (t->cells[o][m])
          snprintf(text, sizeof text, "%d!", t->filled[o][m]);
        printf("%-5s", text);
        filled += t->filled[o][m];
        cells += t->cells[o][m];
      }
    }
    printf("\n");
  }
  say("%d classes, %d of %d cells", classes, filled, cells);
  for (int op = 0; op < OP_COUNT; op++)
    if (tally[op].by_node)
      say("%s: a node of %d native programs is left to the reference", op_info[op].text,
          tally[op].by_node);
}

int main(int argc, char **argv) {
  static char folder[4096];
  static Cover v;
  Run run[MODES] = {{0}};
  const char *dir = getenv("srcdir");
  bool all = true;
  int failures = 0, tests = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < argc; i++) {
    int m = 0;
    if (!strcmp(argv[i], "--cells")) {
      each_cell = true;
    } else if (!strcmp(argv[i], "--show")) {
      show = true;
    } else if (!strncmp(argv[i], "--only=", 7)) {
      only = argv[i] + 7;
    } else {
      while (m < MODES && strcmp(modes[m].name, argv[i])) m++;
      if (m == MODES) {
        fprintf(stderr, "use: ops [--cells] [--show] [--only=OPERATION,..] [MODE...]\n");
        return 2;
      }
      wanted[m] = true;
      all = false;
    }
  }
  for (int m = 0; m < MODES; m++) wanted[m] |= all || m == 0;
  for (int m = 0; m < MODES; m++)
    if (wanted[m]) must_make_code(modes[m].cpu);
  snprintf(folder, sizeof folder, "%s/tests/cover", dir ? dir : ".");
  if (!cover_read(&v, folder)) {
    printf("Bail out! %s\n", v.error);
    return 2;
  }
  for (size_t i = 0; i < v.count; i++) {
    if (!asked(op_info[v.cases[i].op].text)) continue;
    tally[v.cases[i].op].classes++;
    tried[v.cases[i].op][v.cases[i].dtype] = true;
    for (int k = 0; k < v.cases[i].inputs; k++) tried[v.cases[i].op][v.cases[i].in[k].dtype] = true;
    each_mode(run, &v.cases[i], &v);
  }
  for (int m = 0; m < MODES; m++) run_close(&run[m]);
  if (!each_cell) table(&v);
  for (int op = 0; op < OP_COUNT && !each_cell; op++) {
    bool none = !strncmp(v.set[op], "none: ", 6);
    if (!asked(op_info[op].text)) continue;
    bool bad = tally[op].faults || (!none && !tally[op].classes);
    if (!none && !tally[op].classes)
      say("%s: the set `%s` has no case", op_info[op].text, v.set[op]);
    for (int d = 0; d < DT_COUNT; d++) {
      if (!v.asked[op][d] || tried[op][d]) continue;
      say("%s: no class has the dtype %s", op_info[op].text, dtype_info[d].name);
      bad = true;
    }
    failures += bad;
    printf("%s %d - %s: %s\n", bad ? "not ok" : "ok", ++tests, op_info[op].text,
           none ? v.set[op] : "every class, in every order and mode");
  }
  if (!each_cell) printf("1..%d\n", tests);
  cover_free(&v);
  return failures > 0;
}
