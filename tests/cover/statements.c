/* statements FILE [all | TITLE]: every form of statement and expression in every context.
 *
 * In: directed snippets with known results (statements.txt, whose head describes it). Out: TAP, one
 * test for each snippet and one for the table of forms and contexts.
 *
 * Idea: the forms are the rules of the grammar, and which of them a snippet uses is told by the
 * parser itself, built once more with its trace on. A snippet is wrapped by the template of each
 * context and gives the same result in all of them, or the error that the file names; a rule is
 * shown in a context by a snippet that runs there, or by one that is such an error. A rule that
 * nothing shows in some context is a hole, and fails. So a new rule of grammar.y fails until it has
 * a snippet. Modes: the reference evaluator and, with `all`, loops and machine code. */
#include <unistd.h>

#include "parser/lex.h"
#include "parser/parse.h"
#include "tests/cover/modes.h"
#include "tests/unit/failing.h"

/* traced.c: grammar.c with its trace */
const char *gr_rule_name(unsigned i);
void GrTrace(FILE *to, char *prompt);

enum { RULES = 400, SNIPPETS = 200 };

typedef struct Context {
  const char *name;
  const char *before, *after; /* around the statements */
  int indent;
  bool batch; /* the value is a tensor where numbers are meant */
  int turns;  /* how often the statements run */
} Context;

#define VALUES "f32([1, 2, 3]), f32([[1, 2], [3, 4]]), 4"
#define LETS "let x = f32([1, 2, 3])\nlet m = f32([[1, 2], [3, 4]])\nlet n = 4\n"
#define TYPES "x: f32[3], m: f32[2, 2], n: int"
#define CALL "@case_of(" VALUES ")\n"
static const Context contexts[] = {
    {"top", LETS, "", 0, false, 1},
    {"proc", "proc case_of(x, m, n) {\n", "}\n" CALL, 2, false, 1},
    {"fn", "fn case_of(x, m, n) {\n", "}\n" CALL, 2, false, 1},
    {"typed", "fn case_of(" TYPES ") {\n", "}\n" CALL, 2, false, 1},
    {"method", "model Holder() {\n  let held = 3\n  fn forward(x, m, n) {\n",
     "  }\n}\nlet holder = Holder()\n@holder(" VALUES ")\n", 4, false, 1},
    {"block", "proc case_of(x, m, n) {\n  checkpoint {\n", "  }\n}\n" CALL, 4, false, 1},
    {"inner", "fn case_of(x, m, n) {\n  checkpoint {\n", "  }\n}\n" CALL, 4, false, 1},
    {"each", "proc case_of(x, m, n) {\n  let all = [{\n",
     "  } for turn in 0..2]\n  all[1]\n}\n" CALL, 4, true, 2},
    {"batch", "fn case_of(x, m, n) {\n  let all = [{\n",
     "  } for turn in 0..2]\n  all[1]\n}\n" CALL, 4, true, 2},
    {"hook", "var kept = list()\nproc case_of(x, m, n) {\n",
     "}\nlet hooked = track(f32(1))\nlet handle = on_grad(hooked, fn(g) {\n  keep()\n  g\n})\n"
     "proc keep() { kept = list(case_of(" VALUES ")) }\nlet slope = grad(hooked * 2, hooked)\n"
     "handle.remove()\n@kept[0]\n",
     2, false, 1},
    {"deferred", "var kept = list()\nproc case_of(x, m, n) {\n",
     "}\nproc late(v) {\n  kept = list(case_of(" VALUES "))\n  v\n}\nfn early(v) = defer(late)(v)\n"
     "let passed = early(f32(1))\n@kept[0]\n",
     2, false, 1},
};
enum { CONTEXTS = sizeof contexts / sizeof *contexts };

typedef struct Snippet {
  const char *title, *want, *prints;
  char *text;
  const char *error[CONTEXTS]; /* NULL: it runs */
  bool uses[RULES];
  size_t last; /* where the last statement begins */
  int line;
} Snippet;
static Snippet snippets[SNIPPETS];
static int snippet_count, failures;

#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static void
wrong(const Snippet *s, const char *fmt, ...) {
  Text t = {0};
  char part[4000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(part, sizeof part, fmt, ap);
  va_end(ap);
  failures++;
  text_add(&t, "statements.txt:%d: %s: %s", s ? s->line : 0, s ? s->title : "the table", part);
  comment(t.s);
  free(t.s);
}

/* ---- the file */

static int context_of(const char *name) {
  for (int i = 0; i < CONTEXTS; i++)
    if (!strcmp(contexts[i].name, name)) return i;
  return -1;
}

static void read_snippets(char *text) {
  Snippet *s = NULL;
  Text body = {0};
  int line = 0;
  for (char *p = text, *next; *p; p = next) {
    next = strchr(p, '\n');
    *next++ = 0;
    line++;
    if (!strncmp(p, "== ", 3)) {
      if (snippet_count == SNIPPETS) exit(2);
      s = &snippets[snippet_count++];
      *s = (Snippet){.title = p + 3, .line = line};
      body = (Text){0};
    } else if (!s || (p[0] == '#' && p[1] == ' ')) {
      continue;
    } else if (!strncmp(p, "-> ", 3)) {
      s->want = p + 3;
      s->text = body.s;
    } else if (!strncmp(p, "prints", 6)) {
      s->prints = p + 6 + (p[6] == ' ');
    } else if (!strncmp(p, "except ", 7)) {
      char *code = strtok(p + 7, " ");
      for (char *c = strtok(NULL, " "); c; c = strtok(NULL, " ")) {
        int k = context_of(c);
        if (k < 0) wrong(s, "there is no context %s", c);
        if (k >= 0) s->error[k] = code;
      }
    } else if (!s->want && (p[0] || body.n)) {
      text_add(&body, "%s\n", p);
    }
  }
  for (int i = 0; i < snippet_count; i++) {
    s = &snippets[i];
    for (int k = 0; s->want && s->want[0] == '!' && k < CONTEXTS; k++)
      if (!s->error[k]) s->error[k] = s->want + 2;
    if (!s->want) wrong(s, "it has no `-> value`");
  }
}

/* Which rules the statements use, by the trace of a parser. */
static void trace(Snippet *s) {
  char *log = NULL, none[] = "";
  size_t n = 0;
  Failing failing;
  Mem mem;
  Arena arena;
  Sources src;
  Diags diags;
  failing_init(&failing, &mem, 0);
  arena_init(&arena, &mem);
  src_init(&src, &arena);
  dg_init(&diags, &arena, &mem);
  ParseContext c = {&arena, names_new(&arena), &src, &diags};
  FILE *f = open_memstream(&log, &n);
  if (!f) exit(2);
  GrTrace(f, none);
  const Node *root = parse_file(&c, src_add(&src, "t", s->text, strlen(s->text)));
  GrTrace(NULL, NULL);
  uint32_t items = root->file.items.count;
  if (items) s->last = root->file.items.items[items - 1]->span.lo;
  fclose(f);
  for (const char *p = log; (p = strstr(p, "Reduce ")); p++) {
    int rule = atoi(p + 7);
    if (rule >= 0 && rule < RULES) s->uses[rule] = true;
  }
  free(log);
  arena_free(&arena);
  mem_close(&mem);
}

/* ---- running */

/* The program; as a file, whose value has the name `result`, or as a text for the prompt. */
static void put_program(Text *t, const Context *c, const Snippet *q, bool as_file) {
  const char *let = as_file ? "let result = " : "";
  text_clear(t);
  text_add(t, "%s", c->before);
  for (const char *p = q->text; *p;) {
    size_t n = strcspn(p, "\n");
    bool last = !c->indent && (size_t)(p - q->text) == q->last;
    text_add(t, "%*s%s%.*s\n", n ? c->indent : 0, "", last ? let : "", (int)n, p);
    p += n + (p[n] == '\n');
  }
  size_t n = strcspn(c->after, "@");
  text_add(t, "%.*s", (int)n, c->after);
  if (c->after[n]) text_add(t, "%s%s", let, c->after + n + 1);
  if (!as_file) t->s[--t->n] = 0; /* a text may end without a newline */
}

/* Runs it as a file, with all that is checked before it runs; the value is that of `result`. */
static void run_file(ckl_session *s, const char *text, Result *r) {
  FILE *f = fopen("case.ckl", "w");
  if (!f || fputs(text, f) < 0 || fclose(f)) exit(2);
  text_clear(&r->message);
  text_clear(&r->bits);
  text_clear(&r->printed);
  r->code[0] = 0;
  ckl_release(r->value);
  written = &r->printed;
  r->status = ckl_run_file(s, "case.ckl");
  written = NULL;
  r->value = ckl_get(s, "result");
  if (r->status != CKL_OK)
    failed(s, r);
  else
    tell(&r->bits, r->value);
}

/* A number, or the one element of a tensor without axes. */
static bool scalar(ckl_value *v, double *x) {
  ckl_kind k = ckl_kind_of(v);
  *x = ckl_to_float(v);
  return k == CKL_INT || k == CKL_FLOAT || k == CKL_BOOL || ckl_tensor_rank(v) == 0;
}

/* Whether values are alike, where numbers may have become tensors and tuples lists. */
static bool alike(ckl_value *a, ckl_value *b) {
  double x, y;
  if (scalar(a, &x) && scalar(b, &y)) return x == y;
  if (ckl_tensor_dtype(a) || ckl_tensor_dtype(b) || ckl_length(a) != ckl_length(b) ||
      !ckl_length(a)) {
    Text s = {0}, t = {0};
    tell(&s, a);
    tell(&t, b);
    bool same = !strcmp(s.s, t.s);
    free(s.s);
    free(t.s);
    return same;
  }
  for (size_t i = 0; i < ckl_length(a); i++) {
    ckl_value *p = ckl_item(a, i), *q = ckl_item(b, i);
    bool same = alike(p, q);
    ckl_release(p);
    ckl_release(q);
    if (!same) return false;
  }
  return true;
}

static bool prints(const char *want, const char *got, int turns) {
  Text t = {0};
  text_clear(&t);
  const char *first = want;
  while (turns-- > 0)
    for (want = first; *want; want++) {
      bool line = want[0] == '\\' && want[1] == 'n';
      text_bytes(&t, line ? "\n" : want, 1);
      want += line;
      if (!want[1]) text_add(&t, "\n");
    }
  bool same = !strcmp(t.s, got);
  free(t.s);
  return same;
}

static bool ran[SNIPPETS][CONTEXTS]; /* it did what the file says */

static void check_cell(int i, int k, const char *cpu, ckl_session *s, bool as_file) {
  static Result r, e;
  static Text t;
  Snippet *q = &snippets[i];
  const Context *c = &contexts[k];
  Text where = {0};
  text_add(&where, "%s, %s, %s", c->name, cpu, as_file ? "file" : "prompt");
  put_program(&t, c, q, as_file);
  if (as_file) {
    run_file(s, t.s, &r);
  } else {
    ckl_reset(s);
    run(s, t.s, &r);
  }
  ckl_value *got = r.value ? ckl_retain(r.value) : NULL;
  if (q->error[k]) { /* at the prompt it may be found later, as another one */
    bool right = !strcmp(r.code, q->error[k]) || (!as_file && r.status != CKL_OK);
    if (!right)
      wrong(q, "%s: %s %s, not the error %s\n%s", where.s, r.code, r.status ? "" : r.bits.s,
            q->error[k], r.message.s);
    ran[i][k] |= right;
  } else if (r.status != CKL_OK) {
    wrong(q, "%s: fails\n%s", where.s, r.message.s);
  } else {
    run(s, q->want, &e);
    if (e.status != CKL_OK)
      wrong(q, "the value expected fails:\n%s", e.message.s);
    else if (c->batch ? !alike(got, e.value) : strcmp(r.bits.s, e.bits.s) != 0)
      wrong(q, "%s: is\n%s\nnot\n%s", where.s, r.bits.s, e.bits.s);
    else if (q->prints && !prints(q->prints, r.printed.s, c->turns))
      wrong(q, "%s: prints\n%s", where.s, r.printed.s);
    else
      ran[i][k] = true;
  }
  ckl_release(got);
  free(where.s);
}

/* ---- the table */

/* Rules that no program reaches: in place of text that cannot be parsed, and without the SEP that
 * the lexer gives at the end of a text. */
static bool unreachable(const char *rule) {
  return !strcmp(rule, "item ::= BAD") || !strcmp(rule, "program ::= items item");
}

static void table(void) {
  printf("# %-50s", "rule");
  for (int k = 0; k < CONTEXTS; k++) printf(" %.5s%*s", contexts[k].name, 5, "");
  printf("\n");
  int holes = 0, cells = 0;
  for (unsigned rule = 0; gr_rule_name(rule); rule++) {
    if (unreachable(gr_rule_name(rule))) continue;
    printf("# %-50.50s", gr_rule_name(rule));
    for (int k = 0; k < CONTEXTS; k++) {
      const char *shown = NULL;
      for (int i = 0; i < snippet_count; i++) {
        if (!snippets[i].uses[rule] || !ran[i][k]) continue;
        if (!snippets[i].error[k]) {
          shown = "runs";
          break;
        }
        if (!shown) shown = snippets[i].error[k];
      }
      cells++;
      printf(" %-10s", shown ? shown : "HOLE");
      if (shown) continue;
      holes++;
      failures++;
    }
    printf("\n");
  }
  printf("# %d cells, %d holes\n", cells, holes);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "use: statements FILE [all | TITLE]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  static const char *const cpus[] = {"reference", "loops", "native"};
  bool all = argc > 2 && !strcmp(argv[2], "all");
  const char *only = argc > 2 && !all ? argv[2] : NULL;
  int bad = 0, tests = 0;
  read_snippets(read_text(argv[1]));
  char folder[] = "tests/cover-XXXXXX";
  if (!mkdtemp(folder) || chdir(folder)) return 2;
  FILE *used = fopen("used.ckl", "w");
  if (!used || fputs("fn three() = 3\nfn four() = 4\n", used) < 0 || fclose(used)) return 2;
  ckl_session *session[3] = {NULL};
  for (int m = 0; m < (all ? 3 : 1); m++) session[m] = open_cpu(cpus[m]);
  for (int i = 0; i < snippet_count; i++) {
    if (only && strcmp(only, snippets[i].title) != 0) continue;
    failures = 0;
    trace(&snippets[i]);
    for (int m = 0; m < (all ? 3 : 1); m++)
      for (int k = 0; k < CONTEXTS; k++) {
        check_cell(i, k, cpus[m], session[m], true);
        if (!m) check_cell(i, k, cpus[m], session[m], false);
      }
    bad += failures;
    printf("%s %d - %s\n", failures ? "not ok" : "ok", ++tests, snippets[i].title);
  }
  failures = 0;
  if (!only) {
    table();
    bad += failures;
    printf("%s %d - each form is shown in each context\n", failures ? "not ok" : "ok", ++tests);
  }
  for (int m = 0; m < 3; m++) ckl_close(session[m]);
  remove("used.ckl");
  remove("case.ckl");
  if (chdir("../..") || rmdir(folder)) printf("# %s is not empty\n", folder);
  printf("1..%d\n", tests);
  return bad > 0;
}
