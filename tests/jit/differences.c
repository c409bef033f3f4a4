/* differences COUNT SEED [MODE]: gradients of random programs, up to the third order, against
 * central differences in f64.
 *
 * What is right comes from values alone, so a fault that all modes share shows. The program returns
 * three functions of its inputs that are differentiated (program.h): the loss, by up to three
 * inputs; sum(grads[0]^2) + mean(x), by the first, x; and mean(second * (grads[0] + x)), by x. Each
 * gradient, along a random direction, is compared with (V(x + h d) - V(x - h d)) / 2h for two
 * steps, and the value for none (Richardson).
 *
 * Where that is no test, the gradient is not compared but counted: `cut`, the program has a `stop`
 * or `no_grad`, whose gradient is by definition not the slope; `rough`, the two steps disagree, or
 * the slopes to the left and right do, since a kink or jump is near (abs, where, sort, round, //)
 * or the values are too large for the step; `endless`, a value is infinite, NaN or huge; `steep`,
 * the gradient is NaN and the program has a function whose slope is infinite somewhere (rule 73).
 * Shorter steps are tried before that, and before a gradient is called wrong, since two steps agree
 * by chance now and then. Of the gradients a fixed part must have been compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/runner.h"

enum { ORDERS = 3, PER_SESSION = 10, TRIES = 3 };
static const double step[TRIES] = {0x1p-12, 0x1p-15, 0x1p-18};
static const double least_compared = 0.6; /* the part of the gradients of each order */

/* The steps agree, to this part of the slope; then the gradient may differ from the value for no
 * step by a few times their difference, and by what rounding of V makes. */
static const double agree = 1e-4, factor = 4, precision = 1e-8, rounding = 0x1p-53 * 64;

typedef enum Verdict { RIGHT, WRONG, CUT, ROUGH, ENDLESS, STEEP, VERDICTS } Verdict;
static const char *const verdict_name[VERDICTS] = {"right", "wrong",   "cut",
                                                   "rough", "endless", "steep"};

/* Whether the program has a `stop`, or what may make an infinite slope. */
static bool has_cut(const char *source) {
  return strstr(source, "stop(") || strstr(source, "no_grad");
}
static bool has_steep(const char *source) {
  static const char *const steep[] = {"sqrt(", "std(", " norm(", "log(", "log1p(", "** 1.5"};
  for (size_t i = 0; i < sizeof steep / sizeof *steep; i++)
    if (strstr(source, steep[i])) return true;
  for (const char *c = source; (c = strstr(c, " / ")); c++) /* by a value */
    if (c[3] >= 'a' && c[3] <= 'z') return true;
  return false;
}

typedef struct Point { /* a program with its inputs */
  ckl_session *s;
  const Program *p;
  int call;
  void *input[INPUTS];
  size_t n[INPUTS];
} Point;

/* Element i of a result as f64. */
static double at(const Blob *b, size_t i) {
  double x;
  memcpy(&x, b->data + 8 * i, 8);
  return x;
}
static size_t elements(const Blob *b) {
  return b->bytes / 8;
}

/* The numbers of results: the loss, its gradients, second, third. */
static const Blob *gradient(const Program *p, const Outcome *o, int order, int wrt) {
  return &o->blob[order == 1 ? 1 + wrt : p->wrts + order - 1];
}

/* V of an order, and the size of its terms. */
static double value(const Point *a, const Outcome *o, int order, double *size) {
  const Blob *g = &o->blob[1], *h = gradient(a->p, o, 2, 0);
  const double *x = a->input[a->p->wrt[0]];
  size_t n = elements(g);
  long double sum = 0, all = 0;
  if (order == 1) return *size = fabs(at(&o->blob[0], 0)), at(&o->blob[0], 0);
  for (size_t i = 0; i < n; i++) {
    double term = order == 2 ? at(g, i) * at(g, i) + x[i] / (double)n
                             : at(h, i) * (at(g, i) + x[i]) / (double)n;
    sum += term;
    all += fabs(term);
  }
  *size = (double)all;
  return (double)sum;
}

/* V where the input `wrt` is h d away; NaN when the call fails. */
static double moved(Point *a, int order, int wrt, double h, const double *d, double *size) {
  static Outcome o;
  int i = a->p->wrt[wrt];
  double *was = a->input[i], *now = malloc(a->n[i] * 8 + 8);
  for (size_t k = 0; k < a->n[i]; k++) now[k] = was[k] + h * d[k];
  runner_clear(&o);
  a->input[i] = now;
  runner_call(a->s, a->p, a->call, a->input, &o);
  double v = o.status == CKL_OK ? value(a, &o, order, size) : (double)NAN;
  a->input[i] = was;
  free(now);
  return v;
}

static Verdict judge(Point *a, const Outcome *o, int order, int wrt, bool steep, char *text,
                     size_t room) {
  const Blob *g = gradient(a->p, o, order, wrt);
  size_t n = elements(g);
  double *d = malloc(n * 8 + 8), size, noise = 0;
  unsigned long long rng = a->p->seed ^ (unsigned long long)(order * 8 + wrt) << 40;
  double slope = 0, all = 0, here = value(a, o, order, &size);
  for (size_t i = 0; i < n; i++) {
    unsigned long long r = program_random(&rng);
    d[i] = (r & 1 ? 1 : -1) * (0.5 + (double)(r >> 12) * 0x1p-53);
    slope += at(g, i) * d[i];
    all += fabs(at(g, i) * d[i]);
  }
  Verdict v = ROUGH;
  for (int t = 0; t < TRIES && (v == ROUGH || v == WRONG); t++) {
    double h = step[t], up[2], down[2], by[2], bend[2], terms = size;
    for (int k = 0; k < 2; k++, h /= 2) {
      up[k] = moved(a, order, wrt, h, d, &size);
      terms = fmax(terms, size);
      down[k] = moved(a, order, wrt, -h, d, &size);
      terms = fmax(terms, size);
      by[k] = (up[k] - down[k]) / (2 * h);
      bend[k] = (up[k] + down[k] - 2 * here) / h;
    }
    noise = rounding * terms / h;
    double limit = (4 * by[1] - by[0]) / 3, apart = fabs(by[0] - by[1]);
    double scale = fmax(all, fabs(limit)), kink = fabs(bend[0] - 2 * bend[1]);
    double close = factor * (apart + kink) + noise + precision * scale;
    if (!isfinite(limit) || !isfinite(here) || terms > 0x1p52) {
      v = ENDLESS; /* for every step, then; above 2^52 every number is whole, and round smooth */
    } else if (isfinite(slope) && noise > agree * scale) {
      break; /* shorter steps have more of it */
    } else if (isfinite(slope) && apart + kink > agree * scale) {
      v = ROUGH;
    } else {
      v = fabs(limit - slope) <= close ? RIGHT : isnan(slope) && steep ? STEEP : WRONG;
      snprintf(text, room,
               "order %d, by %s: the gradient says %.17g, the differences %.17g +- %.1g", order,
               a->p->vars[a->p->wrt[wrt]].name, slope, limit, close);
    }
  }
  if (v != WRONG) text[0] = 0;
  free(d);
  return v;
}

typedef struct Count {
  long of[ORDERS][VERDICTS];
} Count;

/* Compares every gradient of one program; whether one is wrong, and how in `text`. */
static bool compare(ckl_session *s, const Program *p, const char *mode, Count *count, char *text,
                    size_t room) {
  static Outcome o;
  char source[40000], why[400];
  text[0] = 0;
  if (p->no_loss || !runner_declare(s, p, mode, &o)) return false;
  program_source(p, false, source, sizeof source);
  bool cut = has_cut(source), steep = has_steep(source);
  Point a = {.s = s, .p = p, .call = (int)(p->seed % RUNS)};
  for (int i = 0; i < p->inputs; i++) a.input[i] = runner_input(p, i, a.call, &a.n[i]);
  runner_call(s, p, a.call, a.input, &o);
  for (int order = 1; order <= p->order && o.status == CKL_OK; order++) {
    for (int wrt = 0; wrt < (order == 1 ? p->wrts : 1); wrt++) {
      Verdict v = cut ? CUT : judge(&a, &o, order, wrt, steep, why, sizeof why);
      if (count) count->of[order - 1][v]++;
      if (v == WRONG && !text[0]) snprintf(text, room, "%s", why);
    }
  }
  for (int i = 0; i < p->inputs; i++) free(a.input[i]);
  return text[0];
}

/* Runs in a session of its own; `with` is the mode. */
static bool wrong(const Program *p, const void *with, char *text, size_t n) {
  char why[400];
  ckl_session *s = runner_open(with);
  bool is = compare(s, p, with, NULL, why, sizeof why);
  ckl_close(s);
  if (is) snprintf(text, n, "%s", why);
  return is;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "use: differences COUNT SEED [MODE]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  static Program p;
  static char source[40000], why[400];
  Count count = {0};
  ckl_session *s = NULL;
  const char *mode = argc > 3 ? argv[3] : "reference";
  runner_mode(mode);
  long number = atol(argv[1]), failures = 0;
  unsigned long long seed = strtoull(argv[2], NULL, 10);
  for (long n = 0; n < number && failures < 20; n++) {
    program_generate(&p, seed + (unsigned long long)n, true);
    if (p.order < 2) p.order = 2; /* a third one of a long `prod` needs gigabytes */
    if (n % PER_SESSION == 0) {
      ckl_close(s);
      s = runner_open(mode);
    }
    if (!compare(s, &p, mode, &count, why, sizeof why)) continue;
    failures++;
    Program small = p;
    runner_shrink(&small, wrong, mode, why, sizeof why);
    program_source(&small, false, source, sizeof source);
    printf("# seed %llu, call %d\n", p.seed, (int)(p.seed % RUNS));
    runner_comment(why);
    runner_comment(source);
  }
  ckl_close(s);
  printf("%s 1 - gradients of random programs are the slopes of their values\n",
         failures ? "not ok" : "ok");
  for (int order = 0; order < ORDERS; order++) {
    const long *of = count.of[order];
    long all = 0, compared = of[RIGHT] + of[WRONG];
    for (int v = 0; v < VERDICTS; v++) all += of[v];
    printf("# order %d:", order + 1);
    for (int v = 0; v < VERDICTS; v++) printf(v ? ", %ld %s" : " %ld %s", of[v], verdict_name[v]);
    bool enough = (double)compared >= least_compared * (double)all;
    printf("\n%s %d - of %ld gradients of order %d %.0f %% were compared\n",
           enough ? "ok" : "not ok", order + 2, all, order + 1,
           all ? 100.0 * (double)compared / (double)all : 100.0);
    failures += !enough;
  }
  printf("1..%d\n", ORDERS + 1);
  return failures != 0;
}
