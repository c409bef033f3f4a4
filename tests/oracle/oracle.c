/* oracle FILE [EVERY [MODE]]: random programs give what another system says.
 * oracle --programs COUNT SEED: the programs and their inputs, a line of JSON each, for oracle.py.
 *
 * FILE (expected.txt) has a line for each program: its seed, a hash of its text and inputs, and
 * figures of each result, as README.md says. Every EVERY-th line is compared. Floats are f64 in all
 * programs, and a figure may differ by a part of 1e-9 of the sum of the absolute values it is made
 * of; ints are exact. A program with another hash was made by another generator: the file is stale,
 * which is a failure. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/jit/runner.h"

enum { PER_SESSION = 10, LINE = 4000 };
static const double tolerance = 1e-9;
static const double least_compared = 0.9; /* the part of results that the file has figures of */

static int call_of(const Program *p) {
  return (int)(p->seed % RUNS);
}

static uint64_t hash(uint64_t h, const void *data, size_t n) { /* FNV-1a */
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
  return h;
}

/* Of the text, the sizes and the inputs. */
static uint32_t hash_of(const Program *p, const char *source) {
  uint64_t h = hash(0xcbf29ce484222325u, source, strlen(source));
  for (int i = 0; i < p->inputs; i++) {
    size_t n;
    void *data = runner_input(p, i, call_of(p), &n);
    for (int d = 0; d < p->vars[i].rank; d++) h = hash(h, &p->vars[i].dim[d].n[call_of(p)], 8);
    h = hash(h, data, n * (size_t)dt_bytes[p->vars[i].dt]);
    free(data);
  }
  return (uint32_t)(h ^ h >> 32);
}

static void print_program(const Program *p, const char *source) {
  int64_t key[2];
  runner_key(p, call_of(p), key);
  printf("{\"seed\": %llu, \"hash\": \"%08" PRIx32 "\", \"key\": [%" PRId64 ", %" PRId64
         "], \"inputs\": [",
         p->seed, hash_of(p, source), key[0], key[1]);
  for (int i = 0; i < p->inputs; i++) {
    const Var *v = &p->vars[i];
    size_t n;
    unsigned char *data = runner_input(p, i, call_of(p), &n);
    printf("%s{\"dtype\": \"%s\", \"dims\": [", i ? ", " : "", dt_name[v->dt]);
    for (int d = 0; d < v->rank; d++) printf(d ? ", %ld" : "%ld", v->dim[d].n[call_of(p)]);
    printf("], \"bytes\": \"");
    for (size_t k = 0; k < n * (size_t)dt_bytes[v->dt]; k++) printf("%02x", data[k]);
    printf("\"}");
    free(data);
  }
  printf("], \"source\": \"");
  for (const char *c = source; *c; c++) {
    if (*c == '\n')
      fputs("\\n", stdout);
    else
      printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  }
  printf("\"}\n");
}

/* ---- figures */

/* Element i of a result that has ints or bools. */
static int64_t whole(const Blob *b, size_t i) {
  const unsigned char *at = b->data + i * (size_t)dt_bytes[b->dt];
  int64_t x = 0;
  memcpy(&x, at, (size_t)dt_bytes[b->dt]); /* little endian */
  int unused = 64 - 8 * dt_bytes[b->dt];
  bool is_signed = b->dt >= I8 && b->dt <= I64;
  return is_signed ? (int64_t)((uint64_t)x << unused) >> unused : x;
}

/* The weight of element i: all from -50 to 50 in an order of its own. */
static int64_t weight(size_t i) {
  return (int64_t)(i * 37 % 101) - 50;
}

/* Whether a result has these figures: "~" (none), "i SUM WEIGHTED", "f COUNT SUM WEIGHTED" with the
 * number of elements that are not finite, and sums of the others. */
static bool has_figures(const Blob *b, const char *figures, char *why, size_t room) {
  size_t n = b->bytes / (size_t)dt_bytes[b->dt];
  if (b->dt < F16) {
    uint64_t sum = 0, weighted = 0, s = 0, w = 0;
    for (size_t i = 0; i < n; i++) {
      sum += (uint64_t)whole(b, i);
      weighted += (uint64_t)whole(b, i) * (uint64_t)weight(i);
    }
    bool read = sscanf(figures, "i %" SCNu64 " %" SCNu64, &s, &w) == 2;
    snprintf(why, room, "sums %" PRIu64 " %" PRIu64 ", not %s", sum, weighted, figures);
    return read && s == sum && w == weighted;
  }
  long double sum = 0, weighted = 0, size = 0, weighted_size = 0;
  double s, w;
  size_t wild = 0, expected = 0;
  for (size_t i = 0; i < n; i++) {
    double x;
    memcpy(&x, b->data + 8 * i, 8);
    if (!isfinite(x)) {
      wild++;
      continue;
    }
    sum += x, size += fabs(x);
    weighted += x * (double)weight(i), weighted_size += fabs(x * (double)weight(i));
  }
  bool read = b->dt == F64 && sscanf(figures, "f %zu %lf %lf", &expected, &s, &w) == 3;
  snprintf(why, room, "%zu not finite, sums %.12Lg %.12Lg, not %s", wild, sum, weighted, figures);
  return read && wild == expected && fabsl(sum - s) <= tolerance * size &&
         fabsl(weighted - w) <= tolerance * weighted_size;
}

typedef struct Count {
  long results, compared;
} Count;

/* Compares one program with its line, "SEED HASH figures; figures; .." or "SEED HASH error". */
static bool differs(const Program *p, const Outcome *o, char *line, Count *count, char *why,
                    size_t room) {
  char *figures = strtok(line, ";\n");
  if (!strncmp(figures, "error", 5)) {
    snprintf(why, room, "it ends with status %d, not with an error", (int)o->status);
    return o->status != CKL_ERUN;
  }
  if (o->status != CKL_OK) {
    snprintf(why, room, "%s %s", o->code, o->message);
    return true;
  }
  int i = 0, results = o->count - 1; /* the last one is the number 0 */
  for (; figures && i < results; figures = strtok(NULL, ";\n"), i++) {
    char text[400];
    while (*figures == ' ') figures++;
    count->results++;
    if (*figures == '~') continue;
    count->compared++;
    if (has_figures(&o->blob[i], figures, text, sizeof text)) continue;
    snprintf(why, room, "result %d of %s: %s", i, p->no_loss ? "values" : "loss, gradients, values",
             text);
    return true;
  }
  snprintf(why, room, "%d results", results);
  return figures || i != results;
}

static int print_programs(long count, unsigned long long seed) {
  static Program p;
  static char source[40000];
  for (long n = 0; n < count; n++) {
    program_generate(&p, seed + (unsigned long long)n, true);
    program_source(&p, false, source, sizeof source);
    print_program(&p, source);
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "--programs"))
    return print_programs(atol(argv[2]), strtoull(argv[3], NULL, 10));
  if (argc < 2) {
    fprintf(stderr, "use: oracle FILE [EVERY [MODE]], or oracle --programs COUNT SEED\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  static Program p;
  static Outcome o;
  static char source[40000], line[LINE], why[LINE + 400];
  const char *mode = argc > 3 ? argv[3] : "reference";
  long every = argc > 2 ? atol(argv[2]) : 1, ran = 0, failures = 0, stale = 0, lines = 0;
  Count count = {0};
  ckl_session *s = NULL;
  FILE *in = fopen(argv[1], "r");
  if (!in) {
    printf("Bail out! no file %s\n", argv[1]);
    return 2;
  }
  while (failures < 20 && fgets(line, sizeof line, in)) {
    unsigned long long seed;
    uint32_t expected;
    int used = 0;
    if (line[0] == '#' || lines++ % every) continue;
    if (sscanf(line, "%llu %" SCNx32 " %n", &seed, &expected, &used) != 2 || !used) {
      failures++;
      printf("# no program: %.60s\n", line);
      continue;
    }
    program_generate(&p, seed, true);
    program_source(&p, false, source, sizeof source);
    if (hash_of(&p, source) != expected) {
      stale++;
      continue;
    }
    if (ran++ % PER_SESSION == 0) {
      ckl_close(s);
      s = runner_open(mode);
    }
    if (runner_declare(s, &p, mode, &o)) {
      void *input[INPUTS];
      size_t n;
      for (int i = 0; i < p.inputs; i++) input[i] = runner_input(&p, i, call_of(&p), &n);
      runner_call(s, &p, call_of(&p), input, &o);
      for (int i = 0; i < p.inputs; i++) free(input[i]);
    }
    if (!differs(&p, &o, line + used, &count, why, sizeof why)) continue;
    failures++;
    printf("# seed %llu, call %d\n", seed, call_of(&p));
    runner_comment(why);
    runner_comment(source);
  }
  fclose(in);
  ckl_close(s);
  runner_clear(&o);
  if (stale) {
    printf("# %ld programs were made for another generator: run tests/oracle/record\n", stale);
  }
  printf("%s 1 - the file is of the programs that are generated now\n", stale ? "not ok" : "ok");
  printf("%s 2 - %ld random programs give the figures of another system\n",
         failures ? "not ok" : "ok", ran);
  bool enough = (double)count.compared >= least_compared * (double)count.results && ran;
  printf("%s 3 - of %ld results %ld have figures\n1..3\n", enough ? "ok" : "not ok", count.results,
         count.compared);
  return stale || failures || !enough;
}
