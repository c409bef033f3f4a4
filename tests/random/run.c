/* whole COUNT SEED [MODE...]: random whole programs print the same bytes in all modes (rule 103).
 *
 * Each program of whole.c is written to files and run by ckl_run_file, in each mode; what it prints
 * on standard output, its status and its error code are compared with those of the first mode. On a
 * difference the program is cut down, part by part, and printed as a golden file: the text in the
 * form of the mode that differs, and the output that the first mode has.
 *
 * A mode is FORM, CPU, or FORM:CPU. CPU is a value of ckl_config.cpu, with @4 on so many threads,
 * and with /10 for every tenth program only; FORM is one of the table `forms`. CKL_SEED in the
 * environment goes before SEED. Prints TAP; with RANDOM_SHOW in the environment the programs too,
 * with RANDOM_WHOLE finds are not cut down, with RANDOM_STOPPED all errors of programs are shown. A
 * session runs ten programs; every other one checks addresses, passes and plans. */
#include <math.h>
#include <ckl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/makes_code.h"
#include "tests/random/whole.h"

enum { MODES = 16, PER_SESSION = 10, OUTPUT = 1 << 21, MOST_FINDS = 5 };

static const struct {
  const char *name, *cpu;
  Form form;
} forms[] = {
    {"code", "reference", {.proc = false}},
    {"script", "reference", {.proc = true, .plain = true}},
    {"copies", "reference", {.proc = true, .plain = true, .copies = true}},
    {"captured", "reference", {.proc = true}},
    {"blocks", "reference", {.blocks = true}},
    {"script-blocks", "reference", {.proc = true, .plain = true, .blocks = true}},
    {"captured-blocks", "reference", {.proc = true, .blocks = true}},
    {"rows", "reference", {.loops = true}},
    {"turns", "reference", {.turns = true}},
    {"turned-blocks", "reference", {.blocks = true, .turns = true}},
    {"planned", "reference", {.blocks = true, .plan = 5}},
    {"planned-least", "reference", {.plan = 1000}},
    {"planned-turns", "reference", {.turns = true, .plan = 5}},
    {"planned-blocks", "reference", {.blocks = true, .turns = true, .plan = 8}},
    {"planned-script", "reference", {.proc = true, .plain = true, .blocks = true, .plan = 8}},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Modes that a run without words compares; the first one is right. */
static const char *const default_modes[] = {
    "code",  "script",        "captured", "blocks",  "captured-blocks", "rows",
    "turns", "turned-blocks", "loops",    "planned", "planned-turns"};

typedef struct Mode {
  const char *name;
  char cpu[32];
  int threads;
  long every; /* of so many programs it runs one */
  Form form;
  ckl_session *session;
  /* of the last run */
  ckl_status status;
  char code[32], message[2000];
  char *out; /* OUTPUT bytes */
  size_t length;
} Mode;

static char folder[200];
static const char *main_path(void) {
  static char path[240];
  snprintf(path, sizeof path, "%s/p.ckl", folder);
  return path;
}
static const char *library_path(void) {
  static char path[240];
  snprintf(path, sizeof path, "%s/_lib.ckl", folder);
  return path;
}

static void collect(void *ud, int stream, const char *text, size_t n) {
  Mode *m = ud;
  if (stream != CKL_STDOUT) return;
  if (m->length + n + 1 > OUTPUT) n = OUTPUT - 1 - m->length;
  memcpy(m->out + m->length, text, n);
  m->out[m->length += n] = 0;
}

static bool read_mode(Mode *m, const char *name) {
  *m = (Mode){.name = name, .out = malloc(OUTPUT)};
  const char *cpu = name;
  for (int i = 0; i < FORMS; i++) {
    size_t n = strlen(forms[i].name);
    if (strncmp(name, forms[i].name, n) || (name[n] && !strchr(":@/", name[n]))) continue;
    m->form = forms[i].form;
    cpu = name[n] == ':' ? name + n + 1 : forms[i].cpu;
  }
  snprintf(m->cpu, sizeof m->cpu, "%.*s", (int)strcspn(cpu, "@/"), cpu);
  if (strchr(name, '@')) m->threads = atoi(strchr(name, '@') + 1);
  m->every = strchr(name, '/') ? atol(strchr(name, '/') + 1) : 1;
  return m->out != NULL && m->every > 0;
}

static void open_session(Mode *m) {
  const char *cache = getenv("RANDOM_CACHE"); /* a folder where machine code is kept */
  ckl_config config = {.size = sizeof config,
                       .cache = cache ? cache : "",
                       .cpu = m->cpu,
                       .threads = m->threads,
                       .write = collect,
                       .write_ud = m,
                       .has_seed = true,
                       .seed = 1};
  ckl_close(m->session);
  if (m->form.turns) setenv("CKL_UNROLL", "0", 1);
  if (m->form.copies) setenv("CKL_IN_PLACE", "0", 1);
  char plan[16];
  snprintf(plan, sizeof plan, "%d", m->form.plan - 1);
  if (m->form.plan) setenv("CKL_PLAN", plan, 1);
  m->session = ckl_open(&config);
  unsetenv("CKL_UNROLL");
  unsetenv("CKL_IN_PLACE");
  unsetenv("CKL_PLAN");
  if (!m->session) {
    printf("Bail out! no session of the mode %s\n", m->name);
    exit(2);
  }
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  if (!f || fputs(text, f) < 0 || fclose(f)) {
    printf("Bail out! %s cannot be written\n", path);
    exit(2);
  }
}

static void take_status(Mode *m, ckl_status status) {
  m->status = status;
  m->code[0] = m->message[0] = 0;
  for (size_t i = 0; status != CKL_OK && i < ckl_diag_count(m->session); i++) {
    if (!ckl_diag_is_error(m->session, i)) continue;
    snprintf(m->code, sizeof m->code, "%s", ckl_diag_code(m->session, i));
    snprintf(m->message, sizeof m->message, "%s", ckl_diag_text(m->session, i, 0));
    return;
  }
}

/* The form of a program in the mode: without its blocks narrow saves would have other bits. */
static Form form_of(const Mode *m, const Whole *w) {
  Form form = m->form;
  form.blocks |= w->narrow;
  return form;
}

/* Runs the program in the session of the mode. */
static void run(Mode *m, const Whole *w) {
  static char text[SOURCE];
  Form form = form_of(m, w);
  whole_source(w, &form, text, sizeof text);
  write_file(main_path(), text);
  if (whole_library(w, &form, text, sizeof text)) write_file(library_path(), text);
  m->length = 0;
  m->out[0] = 0;
  take_status(m, ckl_run_file(m->session, main_path()));
}

/* ---- comparing */

/* Hooks of params come in an order of their own, and so do all hooks where script has blocks (rule
 * 89): their lines, which stand together, are sorted. */
static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}
static void sort_hooks(char *out, bool all) {
  static char *line[OUTPUT / 16], *copy;
  const char *word = all ? "hook " : "hook p";
  if (!strstr(out, word)) return;
  copy = realloc(copy, strlen(out) + 1);
  strcpy(copy, out);
  char *to = out;
  for (char *at = copy; *at;) {
    int n = 0, kept = 0;
    static char *other[OUTPUT / 16];
    while (!strncmp(at, "hook ", 5) &&
           n + kept < OUTPUT / 16) { /* a run of hooks: others first, then the sorted ones */
      char *end = at + strcspn(at, "\n");
      if (!strncmp(at, word, strlen(word)))
        line[n++] = at;
      else
        other[kept++] = at;
      at = *end ? end + 1 : end;
      if (*end) *end = 0;
    }
    qsort(line, (size_t)n, sizeof *line, by_text);
    for (int i = 0; i < kept; i++) to += sprintf(to, "%s\n", other[i]);
    for (int i = 0; i < n; i++) to += sprintf(to, "%s\n", line[i]);
    if (n + kept) continue;
    size_t length = strcspn(at, "\n");
    memcpy(to, at, length);
    to += length;
    at += length;
    if (*at) *to++ = *at++;
    *to = 0;
  }
}

/* A size that one form knows when it compiles is a symbol in the other, so an index out of range
 * may be an error of a shape. */
static bool other_error(const char *a, const char *b) {
  bool x = !strncmp(a, "shape-", 6) || !strncmp(a, "index-", 6);
  bool y = !strncmp(b, "shape-", 6) || !strncmp(b, "index-", 6);
  return strcmp(a, b) && !(x && y);
}

/* A gradient of what stands before a choice, or by what no tape knows. */
static bool may_be_given(const Mode *m) {
  return !strcmp(m->code, "not-yet-1") || (m->form.proc && !strcmp(m->code, "grad-4"));
}

/* What a program with narrow saves may end with: one is made where it cannot stand, or a value is
 * saved as u8 that is not finite, which no gradient reads in another form. */
static bool narrow_error(const Mode *m) {
  return !strcmp(m->code, "not-yet-1") || !strcmp(m->code, "policy-8") ||
         !strcmp(m->code, "value-2");
}

static bool number_at(const char *p) {
  return strchr("-0123456789ni", *p) && *p &&
         (*p < 'a' || !strncmp(p, "nan", 3) || !strncmp(p, "inf", 3));
}

/* Whether two lines are the same but for their numbers, and these to a hundredth of the largest. */
static bool near(const char *p, const char *q, size_t i, size_t k) {
  const char *ends[2] = {p + i, q + k}, *at[2] = {p, q};
  double most = 0, apart = 0;
  while (at[0] < ends[0] && at[1] < ends[1]) {
    if (!number_at(at[0]) || !number_at(at[1])) {
      if (*at[0]++ != *at[1]++) return false;
      continue;
    }
    char *rest[2];
    double x = strtod(at[0], &rest[0]), y = strtod(at[1], &rest[1]);
    if (rest[0] == at[0] || rest[1] == at[1]) {
      if (*at[0]++ != *at[1]++) return false;
      continue;
    }
    at[0] = rest[0], at[1] = rest[1];
    if (isnan(x) != isnan(y)) return false;
    if (isnan(x) || x == y) continue;
    if (isinf(x) || isinf(y)) return false;
    most = fmax(most, fmax(fabs(x), fabs(y)));
    apart = fmax(apart, fabs(x - y));
  }
  return at[0] == ends[0] && at[1] == ends[1] && apart <= most / 100 + 1e-6;
}

/* The first difference in words; false: none. */
static bool differ(const Whole *w, const Mode *a, const Mode *b, char *why, size_t n) {
  static char x[OUTPUT], y[OUTPUT];
  why[0] = 0;
  /* what stands in a loop can less than what is unrolled: docs/not-yet.md */
  if ((b->form.turns || b->form.blocks) && !strcmp(b->code, "not-yet-1")) return false;
  if (w->narrow && (narrow_error(a) || narrow_error(b))) return false;
  if (w->inner && (may_be_given(a) || may_be_given(b))) return false;
  if (a->status != b->status || other_error(a->code, b->code)) {
    snprintf(why, n, "%s ends with status %d %s, %s with %d %s\n%s%s", b->name, (int)b->status,
             b->code, a->name, (int)a->status, a->code, b->message, a->message);
    return true;
  }
  /* what a call that fails has printed is not the same in script */
  if (a->status != CKL_OK && (a->form.proc != b->form.proc || strcmp(a->code, b->code)))
    return false;
  strcpy(x, a->out);
  strcpy(y, b->out);
  Form x_form = form_of(a, w), y_form = form_of(b, w);
  bool all = (x_form.proc && x_form.blocks) || (y_form.proc && y_form.blocks);
  sort_hooks(x, all);
  sort_hooks(y, all);
  if (!strcmp(x, y)) return false;
  char *p = x, *q = y;
  while (*p || *q) {
    size_t i = strcspn(p, "\n"), k = strcspn(q, "\n");
    if ((i != k || memcmp(p, q, i)) && !(w->near && near(p, q, i, k))) {
      snprintf(why, n, "%s prints\n%.*s\n%s prints\n%.*s", b->name, (int)(k < 900 ? k : 900), q,
               a->name, (int)(i < 900 ? i : 900), p);
      return true;
    }
    p += i + (p[i] == '\n');
    q += k + (q[k] == '\n');
  }
  return false;
}

static bool no_program(const Mode *m, const Whole *w) {
  if (w->narrow && narrow_error(m)) return false;
  return m->status == CKL_EPROGRAM || !strncmp(m->code, "name-", 5) ||
         !strncmp(m->code, "policy-", 7);
}

/* ---- cutting down */

/* Whether the modes differ on what is left, and end as they did with the whole program. */
static bool still(const Whole *w, Mode *right, Mode *other, char *why, size_t n) {
  char now[6000], *code[] = {right->code, other->code}, was[2][32];
  ckl_status status[] = {right->status, other->status};
  for (int i = 0; i < 2; i++) strcpy(was[i], code[i]);
  run(right, w);
  run(other, w);
  bool same_end = right->status == status[0] && other->status == status[1] &&
                  !strcmp(was[0], code[0]) && !strcmp(was[1], code[1]);
  bool found = same_end && differ(w, right, other, now, sizeof now);
  right->status = status[0], other->status = status[1];
  for (int i = 0; i < 2; i++) strcpy(code[i], was[i]);
  if (!found) return false;
  snprintf(why, n, "%s", now);
  return true;
}

static bool try_cut(Whole *w, bool *flag, Mode *right, Mode *other, char *why, size_t n) {
  if (*flag) return false; /* `flag` is of something that can be left out */
  *flag = true;
  if (still(w, right, other, why, n)) return true;
  *flag = false;
  return false;
}

/* Drops the parts below `at` that the difference does not need: the last ones first, whole ones
 * before their parts. Whether one was dropped. */
static bool cut_below(Whole *w, int at, Mode *right, Mode *other, char *why, size_t n) {
  static int child[PARTS]; /* of all levels */
  static int used;
  int from = used;
  bool some = false;
  for (int i = w->part[at].first; i; i = w->part[i].next) child[used++] = i;
  for (int k = used - 1; k >= from; k--)
    some |= try_cut(w, &w->part[child[k]].dropped, right, other, why, n);
  for (int k = used - 1; k >= from; k--) {
    Part *p = &w->part[child[k]];
    if (!p->dropped && p->kind == LINE && strstr(p->text, "let "))
      some |= try_cut(w, &p->flat, right, other, why, n);
    if (p->dropped || !p->first) continue;
    if (p->kind == BLOCK || p->kind == GROUP || p->kind == LOOP)
      some |= try_cut(w, &p->flat, right, other, why, n);
    some |= cut_below(w, child[k], right, other, why, n);
  }
  used = from;
  return some;
}

static void cut(Whole *w, Mode *right, Mode *other, char *why, size_t n) {
  open_session(right);
  open_session(other);
  try_cut(w, &w->one_file, right, other, why, n);
  bool again = true;
  while (again) {
    again = cut_below(w, w->program, right, other, why, n);
    if (w->library) again |= cut_below(w, w->library, right, other, why, n);
  }
  still(w, right, other, why, n);
}

static void comment(const char *text) {
  fputs("# ", stdout);
  for (const char *c = text; *c; c++) {
    putchar(*c);
    if (*c == '\n' && c[1]) fputs("# ", stdout);
  }
  putchar('\n');
}

/* The program as a golden file: its text in the form of `other`, its output in that of `right`. */
static void print_golden(const Whole *w, Mode *right, Mode *other) {
  static char text[SOURCE];
  Form form = form_of(other, w), right_form = form_of(right, w);
  if (whole_library(w, &form, text, sizeof text)) {
    printf("# ---- _lib.ckl\n%s# ---- the program\n", text);
    write_file(library_path(), text);
  }
  printf("## As seed %llu; %s and %s were not the same.\n", w->seed, right->name, other->name);
  open_session(right);
  const int roots[] = {w->one_file ? w->library : 0, w->program};
  for (int r = 0; r < 2; r++) {
    for (int i = roots[r] ? w->part[roots[r]].first : 0; i; i = w->part[i].next) {
      part_source(w, &right_form, i, text, sizeof text);
      right->length = 0;
      right->out[0] = 0;
      ckl_status status = ckl_eval(right->session, text, main_path(), NULL);
      part_source(w, &form, i, text, sizeof text);
      fputs(text, stdout);
      for (char *at = right->out; *at;) {
        size_t k = strcspn(at, "\n");
        printf("#> %.*s\n", (int)k, at);
        at += k + (at[k] == '\n');
      }
      take_status(right, status);
      if (status != CKL_OK && right->code[0]) printf("#! error[%s]\n", right->code);
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "use: whole COUNT SEED [MODE...]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0); /* a mode may die */
  static Mode mode[MODES];
  static Whole w, small;
  static char why[6000], text[SOURCE];
  int modes = 0, finds = 0, tests = 0;
  long count = atol(argv[1]), ran = 0, stopped = 0, wrong = 0, programs = 0;
  const char *fixed = getenv("CKL_SEED");
  unsigned long long seed = strtoull(fixed && *fixed ? fixed : argv[2], NULL, 10);
  for (int i = 3; i < argc && modes < MODES; i++) {
    if (read_mode(&mode[modes++], argv[i])) continue;
    fprintf(stderr, "%s is no mode\n", argv[i]);
    return 2;
  }
  for (size_t i = 0; argc == 3 && i < sizeof default_modes / sizeof *default_modes; i++)
    read_mode(&mode[modes++], default_modes[i]);
  for (int m = 0; m < modes; m++) must_make_code(mode[m].cpu);
  snprintf(folder, sizeof folder, "%s/whole.XXXXXX", getenv("builddir") ? getenv("builddir") : ".");
  if (!mkdtemp(folder)) {
    printf("Bail out! no folder %s\n", folder);
    return 2;
  }
  printf("# seeds from %llu on\n", seed);
  bool all_words = count >= 400; /* then further programs come until each word was in one */
  for (long n = 0; finds < MOST_FINDS; n++) {
    if (n >= count && !(all_words && features_missing() && n < 10 * count)) break;
    whole_generate(&w, seed + (unsigned long long)n);
    features_count(&w);
    programs++;
    if (getenv("RANDOM_SHOW")) {
      Form form = form_of(&mode[modes - 1], &w);
      whole_source(&w, &form, text, sizeof text);
      printf("## seed %llu\n%s", w.seed, text);
    }
    for (int m = 0; m < modes; m++) {
      if (n % PER_SESSION == 0 || !mode[m].session) {
        bool checked = n / PER_SESSION % 2 == 0;
        setenv("CKL_CHECK_ADDRESS", checked ? "1" : "0", 1);
        setenv("CKL_CHECK", checked ? "1" : "0", 1);
        open_session(&mode[m]);
      }
      if (n % mode[m].every || (m > 0 && mode[0].status == CKL_EPROGRAM)) continue;
      run(&mode[m], &w);
      if (m == 0 || !differ(&w, &mode[0], &mode[m], why, sizeof why)) continue;
      finds++;
      printf("# seed %llu: %s and %s differ\n", w.seed, mode[0].name, mode[m].name);
      comment(why);
      Mode right = mode[0], other = mode[m];
      right.session = other.session = NULL;
      right.out = malloc(OUTPUT);
      other.out = malloc(OUTPUT);
      small = w;
      if (!getenv("RANDOM_WHOLE")) cut(&small, &right, &other, why, sizeof why);
      comment(why);
      print_golden(&small, &right, &other);
      ckl_close(right.session);
      ckl_close(other.session);
      free(right.out);
      free(other.out);
    }
    if (w.full || no_program(&mode[0], &w)) {
      if (wrong++ < 3 || getenv("RANDOM_STOPPED")) {
        printf("# seed %llu is no program:\n", w.seed);
        comment(mode[0].message);
      }
    } else if (mode[0].status == CKL_OK) {
      ran++;
    } else {
      stopped++;
      if (getenv("RANDOM_STOPPED")) comment(mode[0].message);
    }
  }
  for (int m = 0; m < modes; m++) {
    ckl_close(mode[m].session);
    free(mode[m].out);
  }
  unlink(main_path());
  unlink(library_path());
  snprintf(text, sizeof text, "%s/saved.safetensors", folder);
  unlink(text);
  rmdir(folder);
  features_print(programs);
  printf("# %ld programs ran to the end, %ld stopped with an error, %ld were none\n", ran, stopped,
         wrong);
  printf("%s %d - random programs print the same in all modes\n", finds ? "not ok" : "ok", ++tests);
  long may_stop = programs * 15 / 100;
  if (may_stop < 2) may_stop = 2; /* one in a hundred stops: of ten, two may by chance */
  bool most = programs - ran <= may_stop || finds >= MOST_FINDS;
  printf("%s %d - programs run to their end, 85 of 100 at least\n", most ? "ok" : "not ok",
         ++tests);
  bool all = !all_words || !features_missing() || finds;
  printf("%s %d - each word of the language is in a program\n", all ? "ok" : "not ok", ++tests);
  printf("1..%d\n", tests);
  return finds || !most || !all;
}
