/* fuzz-axes SECONDS [SEED]: patterns of einsum and rearrange, formats of holes.
 *
 * Well-formed patterns are made at random and compared with plain loops over all indices, in script
 * and in code; mutated ones are run or refused with a message, never an internal error. What a hole
 * prints in code is what it prints in script. A find is printed as the program. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "include/ckl.h"

enum { NAMES = 6, MOST_AXES = 4, MOST_OPERANDS = 3, TEXT = 8192 };

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % below;
}

static ckl_session *session;
static char program[TEXT], printed[2][TEXT];
static size_t program_n, printed_n[2];
static int side;

static void text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void text(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(program + program_n, TEXT - program_n, fmt, ap);
  va_end(ap);
  if (n > 0) program_n += (size_t)n;
  if (program_n >= TEXT) program_n = TEXT - 1;
}

static void restart(void) {
  program_n = 0;
  program[0] = 0;
}

static void sink(void *ud, int stream, const char *s, size_t n) {
  (void)ud;
  if (stream != CKL_STDOUT || n > TEXT - 1 - printed_n[side]) return;
  memcpy(printed[side] + printed_n[side], s, n);
  printed_n[side] += n;
  printed[side][printed_n[side]] = 0;
}

/* Runs the program; a wrong program is fine unless `must` run. */
static bool run(bool must, ckl_value **out) {
  ckl_status st = ckl_eval(session, program, "fuzz", out);
  if (st == CKL_OK) return true;
  if (!must && (st == CKL_EPROGRAM || st == CKL_ERUN) && ckl_diag_count(session) &&
      strncmp(ckl_diag_code(session, 0), "bug", 3))
    return true;
  printf("status %d\n", st);
  for (size_t i = 0; i < ckl_diag_count(session); i++) fputs(ckl_diag_text(session, i, 0), stdout);
  return false;
}

/* ---- einsum against loops */

typedef struct Tens {
  int rank, axis[MOST_AXES];
  double data[4096];
} Tens;

static const char *const words[2][NAMES] = {{"i", "j", "k", "b", "t", "h"},
                                            {"row", "col", "k2", "b_", "time", "h"}};
static int size_of[NAMES];

static long count_of(const Tens *t) {
  long n = 1;
  for (int i = 0; i < t->rank; i++) n *= size_of[t->axis[i]];
  return n;
}

static double element(const Tens *t, const int *at) {
  long k = 0;
  for (int i = 0; i < t->rank; i++) k = k * size_of[t->axis[i]] + at[t->axis[i]];
  return t->data[k];
}

static void literal(const Tens *t) {
  text("reshape(f64([");
  long n = count_of(t);
  for (long i = 0; i < n; i++) text("%s%d", i ? ", " : "", (int)t->data[i]);
  if (!n) text("0][0:0");
  text("]), [");
  for (int i = 0; i < t->rank; i++) text("%s%d", i ? ", " : "", size_of[t->axis[i]]);
  text("])");
}

static bool same(const ckl_value *v, const Tens *want) {
  const double *d = v ? ckl_tensor_data((ckl_value *)v) : NULL;
  bool ok = v && ckl_tensor_rank(v) == want->rank;
  for (int i = 0; ok && i < want->rank; i++) ok = ckl_tensor_dim(v, i) == size_of[want->axis[i]];
  for (long i = 0, n = count_of(want); ok && i < n; i++) ok = d && d[i] == want->data[i];
  if (!ok) printf("another value\n");
  return ok;
}

static void names(const Tens *t, int style, bool letters) {
  for (int i = 0; i < t->rank; i++)
    text("%s%s", i && !letters ? " " : "", words[style][t->axis[i]]);
}

static bool einsum_case(void) {
  static Tens in[MOST_OPERANDS], out;
  int n = 1 + (int)draw(MOST_OPERANDS), style = (int)draw(2);
  bool letters = style == 0 && draw(3) == 0, used[NAMES] = {false};
  for (int i = 0; i < NAMES; i++) size_of[i] = draw(12) ? 1 + (int)draw(3) : 0;
  for (int k = 0; k < n; k++) {
    in[k].rank = (int)draw(MOST_AXES + 1);
    for (int i = 0; i < in[k].rank; i++) used[in[k].axis[i] = (int)draw(NAMES)] = true;
    for (long i = 0; i < count_of(&in[k]); i++) in[k].data[i] = (int)draw(9) - 4;
  }
  out.rank = 0;
  for (int i = 0; i < NAMES; i++) {
    int a = (int)draw(NAMES);
    bool there = !used[a] || out.rank == MOST_AXES;
    for (int k = 0; k < out.rank; k++) there |= out.axis[k] == a;
    if (!there && draw(2)) out.axis[out.rank++] = a;
  }
  memset(out.data, 0, sizeof out.data);
  int at[NAMES] = {0};
  bool empty = false;
  for (int i = 0; i < NAMES; i++) empty |= used[i] && size_of[i] == 0;
  for (bool more = !empty; more;) {
    double p = 1;
    for (int k = 0; k < n; k++) p *= element(&in[k], at);
    long o = 0;
    for (int i = 0; i < out.rank; i++) o = o * size_of[out.axis[i]] + at[out.axis[i]];
    out.data[o] += p;
    int i;
    for (i = 0; i < NAMES; i++) {
      if (!used[i]) continue;
      if (++at[i] < size_of[i]) break;
      at[i] = 0;
    }
    more = i < NAMES;
  }
  bool code = draw(2);
  restart();
  for (int k = 0; k < n; k++) {
    text("let x%d = ", k);
    literal(&in[k]);
    text("\n");
  }
  if (code) {
    text("fn f(");
    for (int k = 0; k < n; k++) text("%sx%d", k ? ", " : "", k);
    text(") = ");
  }
  text("einsum(\"");
  for (int k = 0; k < n; k++) {
    if (k) text(letters ? "," : ", ");
    names(&in[k], style, letters);
  }
  text(letters ? "->" : " -> ");
  names(&out, style, letters);
  text("\"");
  for (int k = 0; k < n; k++) text(", x%d", k);
  text(")\n");
  if (code) {
    text("f(");
    for (int k = 0; k < n; k++) text("%sx%d", k ? ", " : "", k);
    text(")\n");
  }
  ckl_value *v = NULL;
  bool ok = run(true, &v) && same(v, &out);
  ckl_release(v);
  return ok;
}

/* ---- rearrange against loops */

static void groups(const int *axis, int n, const int *group) {
  for (int i = 0; i < n; i++) {
    bool first = i == 0 || group[i] != group[i - 1], last = i + 1 == n || group[i] != group[i + 1];
    if (i) text(" ");
    if (first && !last) text("(");
    text("%s", words[0][axis[i]]);
    if (last && !first) text(")");
  }
}

static bool rearrange_case(void) {
  static Tens in, out;
  int n = 1 + (int)draw(MOST_AXES), order[NAMES] = {0, 1, 2, 3, 4, 5}, left[NAMES], right[NAMES];
  for (int i = 0; i < NAMES; i++) size_of[i] = 1 + (int)draw(3);
  for (int i = NAMES - 1; i > 0; i--) {
    int k = (int)draw((uint32_t)i + 1), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  in.rank = n;
  memcpy(in.axis, order, sizeof in.axis);
  for (long i = 0; i < count_of(&in); i++) in.data[i] = (double)i;
  int fresh = n < MOST_AXES && draw(3) == 0 ? 1 : 0; /* a new axis */
  out.rank = n + fresh;
  memcpy(out.axis, order, sizeof out.axis);
  for (int i = out.rank - 1; i > 0; i--) {
    int k = (int)draw((uint32_t)i + 1), t = out.axis[i];
    out.axis[i] = out.axis[k];
    out.axis[k] = t;
  }
  for (int i = 0; i < n; i++) left[i] = i ? left[i - 1] + (int)draw(2) : 0;
  for (int i = 0; i < out.rank; i++) right[i] = i ? right[i - 1] + (int)draw(2) : 0;
  int at[NAMES] = {0};
  for (long o = 0, m = count_of(&out); o < m; o++) {
    long rest = o;
    for (int i = out.rank; i-- > 0;) {
      at[out.axis[i]] = (int)(rest % size_of[out.axis[i]]);
      rest /= size_of[out.axis[i]];
    }
    out.data[o] = element(&in, at);
  }
  restart();
  text("let x = reshape(");
  literal(&in);
  text(", [");
  for (int i = 0; i < n;) {
    int p = 1, g = left[i];
    text("%s", i ? ", " : "");
    for (; i < n && left[i] == g; i++) p *= size_of[in.axis[i]];
    text("%d", p);
  }
  text("])\n");
  bool code = draw(2);
  text(code ? "fn f(x) = " : "let y = ");
  text("rearrange(\"");
  groups(in.axis, n, left);
  text(" -> ");
  groups(out.axis, out.rank, right);
  text("\", x");
  for (int i = 0; i < n; i++) { /* all sizes of a group but one */
    bool alone = (i == 0 || left[i] != left[i - 1]) && (i + 1 == n || left[i] != left[i + 1]);
    bool open = i + 1 == n || left[i] != left[i + 1];
    if (alone ? draw(4) == 0 : !open) text(", %s = %d", words[0][in.axis[i]], size_of[in.axis[i]]);
  }
  if (fresh) text(", %s = %d", words[0][order[n]], size_of[order[n]]);
  text(")\n%s", code ? "let y = f(x)\n" : "");
  text("reshape(y, [");
  for (int i = 0; i < out.rank; i++) text("%s%d", i ? ", " : "", size_of[out.axis[i]]);
  text("])\n");
  ckl_value *v = NULL;
  bool ok = run(true, &v) && same(v, &out);
  ckl_release(v);
  return ok;
}

/* ---- noise */

static const char *const bits[] = {
    "i",   "j", "k", " ", "  ",  ",", "->", "(",   ")",        "...", "1",  "-",   ">",   "ab",
    "i j", "_", "0", "2", "\\n", ";", "()", "i i", "\xc3\xa9", "{{",  "}}", "a(b", "b h", "h2"};

static void noise(void) {
  for (uint32_t k = draw(12); k > 0; k--) text("%s", bits[draw(sizeof bits / sizeof *bits)]);
}

static bool noise_case(void) {
  restart();
  bool code = draw(2), ein = draw(2);
  if (code)
    text("fn f(a, b) {\n  ");
  else
    text("let a = f32([[1, 2], [3, 4]])\nlet b = ones([2, 1, 3])\n");
  text("%s(\"", ein ? "einsum" : "rearrange");
  noise();
  if (draw(8)) text(" -> ");
  noise();
  text("\", a");
  for (uint32_t k = draw(3); k > 0; k--) text(draw(3) ? ", b" : ", i = 2");
  text(")");
  if (code) text("\n}\nf(f32([[1, 2], [3, 4]]), ones([2, 1, 3]))");
  text("\n");
  ckl_value *v = NULL;
  bool ok = run(false, &v);
  ckl_release(v);
  return ok;
}

/* ---- formats */

static const char *const values[] = {"x",      "t",     "n", "r",  "b",
                                     "(n, x)", "t > 0", "i", "-r", "\"s\""};
static const char *const pieces[] = {"<", ">", "^", "+", "0", "3", "12",  ",",   ".2", ".0",
                                     "d", "x", "e", "f", "g", "%", "KiB", "MiB", "GiB"};

static bool format_case(void) {
  char line[512];
  size_t n = 0;
  line[0] = 0;
  for (uint32_t k = 1 + draw(3); k > 0; k--) {
    n += (size_t)snprintf(line + n, sizeof line - n, "%s{%s", draw(2) ? " | " : "{{}}",
                          values[draw(9)]);
    if (draw(4)) {
      n += (size_t)snprintf(line + n, sizeof line - n, ":");
      for (uint32_t j = draw(5); j > 0; j--)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s",
                              pieces[draw(sizeof pieces / sizeof *pieces)]);
    }
    n += (size_t)snprintf(line + n, sizeof line - n, "}");
  }
  static const double numbers[] = {0, -0.0, 1.5, -2.25, 1e30, 123456.789, 0.00012, INFINITY, NAN};
  double r = numbers[draw(sizeof numbers / sizeof *numbers)];
  char number[40];
  if (isfinite(r))
    snprintf(number, sizeof number, "%.17g%s", r, fabs(r) < 1e6 && r == floor(r) ? ".0" : "");
  else
    snprintf(number, sizeof number, isnan(r) ? "nan" : "inf");
  int whole = (int)draw(3) * 1000 - 500;
  bool ok = true;
  for (side = 0; ok && side < 2; side++) {
    printed_n[side] = 0;
    printed[side][0] = 0;
    restart();
    text("%s f(x: f32, t: f64[2], n: int, r: float, b: bool, i: i64[2]) {\n  print(\"%s\")\n}\n",
         side ? "proc" : "fn", line);
    text("f(f32(%s), f64([%s, 2]), %d, %s, true, i64([%d, 7]))\n", number, number, whole, number,
         (int)(r == r && fabs(r) < 9 ? r : 3));
    ckl_value *v = NULL;
    ok = run(false, &v);
    ckl_release(v);
  }
  if (ok && strcmp(printed[0], printed[1])) {
    printf("code printed  %sscript printed %s", printed[0], printed[1]);
    ok = false;
  }
  return ok;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  printf("seed %" PRIu64 "\n", state);
  for (int i = 0; i < 50; i++) draw(2);
  ckl_config config = {.size = sizeof config, .write = sink};
  time_t start = time(NULL);
  long count = 0;
  static bool (*const cases[])(void) = {einsum_case, rearrange_case, noise_case, format_case};
  for (; difftime(time(NULL), start) < seconds; count++) {
    if (count % 500 == 0) {
      ckl_close(session);
      session = ckl_open(&config);
      if (!session) return 1;
    }
    if (cases[draw(4)]()) continue;
    printf("program %ld is a find:\n%s", count, program);
    return 1;
  }
  ckl_close(session);
  printf("%ld programs\n", count);
  return 0;
}
