/* builtins FILE [all] [NAME]: every builtin in every form, in every mode.
 *
 * In: the rows of lang/builtin/builtins.def, the functions of stdlib/shelf/, and directed
 * cases (builtins.txt, whose head describes its lines). Out: TAP, one test for each row, and a
 * table of what its cases show.
 *
 * Idea: a case is one call with a known result. From the signature of the row and the tree of the
 * call the other forms of the same call are made: parameters by name, `x.f(..)`, each omitted
 * default written out, a default by place (which is an error). All forms in all modes have the bits
 * of the first one, which agree with the expected value. A float result that depends on a float
 * input has its gradient by it, from the tape walked and captured, in code and in machine code;
 * these have the same bits, and in f64 they agree with central differences.
 *
 * What a row needs is counted: each parameter given and, with a default, left out; `name...` with
 * none, one, several; both bools; negative and other axes, `none`; the kinds of values that the
 * file promises for the parameter. A class that no case shows is a hole, and fails.
 *
 * One file: a case, its other forms and what is compared share the text of its line.
 */
#include <ftw.h>
#include <math.h>
#include <unistd.h>

#include "lang/builtin/builtin.h"
#include "parser/parse.h"
#include "stdlib/embed.h"
#include "tests/cover/modes.h"
#include "tests/unit/failing.h"

enum { PARAMS = 8, INPUTS = 8, KINDS = 32, LEAVES = 16, MODES = 4 };

/* ---- the table */

typedef struct Row {
  const char *name, *signature;
  unsigned flags;
} Row;
#define BUILTIN(name, sig, fn, flags, op, doc) {name, sig, (flags)&BI_TEXT ? 0 : (flags)},
#define CONSTANT(name, number, doc) {name, NULL, 0},
enum { ROWS = 400 };
static Row rows[ROWS] = {
#include "lang/builtin/builtins.def"
};
static int row_count;

typedef struct Par {
  char name[24], deflt[24];
  bool optional, rest;
  char needs[200]; /* kinds, each with a blank before and after */
  char seen[400];
  bool given, omitted, none, one, several;
} Par;
typedef struct Sig {
  Par par[PARAMS];
  int count;
  bool plain;        /* its calls have this form only */
  char through[100]; /* the functions that call it, with other parameters, a comma between, or "" */
  long cases, script, code, grads, errors;
  bool wrong;
} Sig;
static Sig sigs[ROWS];

static void need_kind(Par *p, const char *kind) {
  char word[40];
  snprintf(word, sizeof word, " %s ", kind);
  if (strstr(p->needs, word)) return;
  if (!p->needs[0]) strcpy(p->needs, " ");
  snprintf(p->needs + strlen(p->needs), sizeof p->needs - strlen(p->needs), "%s ", kind);
}

static void saw_kind(Par *p, const char *kind) {
  char word[40];
  snprintf(word, sizeof word, " %s ", kind);
  if (strstr(p->seen, word)) return;
  if (!p->seen[0]) strcpy(p->seen, " ");
  snprintf(p->seen + strlen(p->seen), sizeof p->seen - strlen(p->seen), "%s ", kind);
}

static void read_signature(const char *p, Sig *s) {
  if (!p) return;
  for (p += *p == '('; *p && *p != ')' && s->count < PARAMS;) {
    Par *q = &s->par[s->count++];
    size_t n = strcspn(p, " ,.=)");
    snprintf(q->name, sizeof q->name, "%.*s", (int)n, p);
    p += n;
    if (!strncmp(p, "...", 3)) {
      q->rest = true;
      p += 3;
    }
    p += strspn(p, " ");
    if (*p == '=') {
      p += 1 + strspn(p + 1, " ");
      n = strcspn(p, ",)");
      snprintf(q->deflt, sizeof q->deflt, "%.*s", (int)n, p);
      q->optional = true;
      p += n;
    }
    p += strspn(p, " ,");
    if (!strcmp(q->deflt, "true") || !strcmp(q->deflt, "false")) {
      need_kind(q, "true");
      need_kind(q, "false");
    }
    if (!strcmp(q->deflt, "none")) need_kind(q, "none");
    if (!strcmp(q->name, "axis") && !q->rest) {
      need_kind(q, "int");
      need_kind(q, "negative");
    }
    if (!strcmp(q->name, "dtype")) need_kind(q, "dtype");
  }
}

static int row_of(const char *name) {
  for (int i = 0; i < row_count; i++)
    if (!strcmp(rows[i].name, name)) return i;
  return -1;
}

/* ---- cases */

typedef struct Case {
  int line, row;
  char *call, *expect;
  char *input[INPUTS]; /* the names */
  char *value[INPUTS]; /* and what they are bound to */
  int inputs;
  char *options;
} Case;

typedef struct World { /* of the parser */
  Failing failing;
  Mem mem;
  Arena arena;
  Names *names;
  Sources src;
  Diags diags;
} World;
static World w;

static char *preamble;
static int line_now;
static int failures; /* of the row that runs */

static char *trim(char *s) {
  s += strspn(s, " \t");
  size_t n = strlen(s);
  while (n && (s[n - 1] == ' ' || s[n - 1] == '\t')) s[--n] = 0;
  return s;
}

#ifdef __GNUC__
__attribute__((format(printf, 1, 2)))
#endif
static void
wrong(const char *fmt, ...) {
  Text t = {0};
  char part[4000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(part, sizeof part, fmt, ap);
  va_end(ap);
  failures++;
  text_add(&t, "builtins.txt:%d: %s", line_now, part);
  comment(t.s);
  free(t.s);
}

static bool has(const Case *c, const char *option) {
  size_t n = strlen(option);
  for (const char *p = c->options; p && (p = strstr(p, option)); p += n)
    if ((p == c->options || p[-1] == ' ') && (!p[n] || p[n] == ' ' || p[n] == '=')) return true;
  return false;
}

/* The value of an option `name=value`, or NULL. */
static const char *option(const Case *c, const char *name) {
  static char value[40];
  const char *p = c->options ? strstr(c->options, name) : NULL;
  if (!p || p[strlen(name)] != '=') return NULL;
  p += strlen(name) + 1;
  snprintf(value, sizeof value, "%.*s", (int)strcspn(p, " "), p);
  return value;
}

/* ---- the call as a tree */

typedef struct Found {
  const char *name;
  Node *call;
} Found;

static void find_call(void *ud, Node *n) {
  Found *f = ud;
  if (!n || f->call) return;
  if (n->kind == N_CALL) {
    const Node *callee = n->call.callee;
    const char *name = callee->kind == N_NAME  ? callee->name
                       : callee->kind == N_DOT ? callee->dot.name.name
                                               : "";
    if (!strcmp(name, f->name)) {
      f->call = n;
      return;
    }
  }
  ast_children(n, find_call, ud);
}

/* The call of the row in an expression; its spans are places in it. */
static Node *call_in(const char *text, const char *name) {
  ParseContext c = {&w.arena, w.names, &w.src, &w.diags};
  int before = (int)w.diags.errors;
  Node *file = parse_file(&c, src_add(&w.src, "t", text, strlen(text)));
  Found f = {.name = name};
  if ((int)w.diags.errors == before) ast_children(file, find_call, &f);
  return f.call;
}

typedef struct Given { /* the arguments of a call, by parameter */
  const Node *arg[PARAMS];
  const Node *rest[16];
  int rests, places;
  bool method, names; /* x.f(..); a named argument that is no parameter */
} Given;

static void bind_args(const Node *call, const Sig *s, Given *g) {
  memset(g, 0, sizeof *g);
  const Node *callee = call->call.callee;
  int at = 0;
  g->method = callee->kind == N_DOT;
  for (int i = g->method ? -1 : 0; i < (int)call->call.args.count; i++) {
    const Node *value = i < 0 ? callee->dot.object : call->call.args.items[i]->arg.value;
    const char *name = i < 0 ? NULL : call->call.args.items[i]->arg.name.name;
    if (name) {
      int k = 0;
      while (k < s->count && (s->par[k].rest || strcmp(s->par[k].name, name) != 0)) k++;
      if (k < s->count)
        g->arg[k] = value;
      else
        g->names = true, g->rest[g->rests++] = value;
      continue;
    }
    g->places++;
    while (at < s->count && s->par[at].optional) at++;
    if (at < s->count && s->par[at].rest)
      g->rest[g->rests++] = value;
    else if (at < s->count)
      g->arg[at++] = value;
  }
}

static void put_span(Text *t, const char *text, Span span) {
  text_bytes(t, text + span.lo, span.hi - span.lo);
}

/* Rows for the functions that programs see without `use` and that are written in ckl, except those
 * of builtins that they wrap. */
static void library_rows_of(const StdFile *f) {
  ParseContext c = {&w.arena, w.names, &w.src, &w.diags};
  const Node *file = parse_file(&c, src_add(&w.src, f->name, f->text, f->size));
  for (uint32_t i = 0; i < file->file.items.count; i++) {
    const Node *n = file->file.items.items[i];
    char wrapped[40];
    if (n->kind != N_FN || n->fn->name.name[0] == '_') continue;
    snprintf(wrapped, sizeof wrapped, "_%s", n->fn->name.name);
    if (row_of(wrapped) >= 0) continue;
    Text t = {0};
    text_add(&t, "(");
    for (uint32_t k = 0; k < n->fn->params.count; k++) {
      const Node *q = n->fn->params.items[k];
      text_add(&t, "%s%s", k ? ", " : "", q->param.name.name);
      if (!q->param.init) continue;
      text_add(&t, " = ");
      put_span(&t, f->text, q->param.init->span);
    }
    text_add(&t, ")");
    if (row_count == ROWS) abort();
    rows[row_count++] = (Row){n->fn->name.name, t.s, n->fn->is_proc ? BI_SCRIPT : 0};
  }
}

static void library_rows(void) {
  for (const StdFile *f = std_files; f->name; f++)
    if (f->shelf) library_rows_of(f);
}

/* ---- programs of a case */

static void put_inputs(Text *t, const Case *c, bool track, bool wide) {
  for (int i = 0; i < c->inputs; i++)
    text_add(t, track ? "let %s = track(%s%s)\n" : "let %s = %s%s\n", c->input[i],
             wide ? "f64" : "", c->value[i]);
}

static void put_params(Text *t, const Case *c) {
  for (int i = 0; i < c->inputs; i++) text_add(t, "%s%s", i ? ", " : "", c->input[i]);
}

static void program(Text *t, const Case *c, const char *call, bool code) {
  text_clear(t);
  text_add(t, "seed(0)\n");
  put_inputs(t, c, false, false);
  text_add(t, "%s case_of(", code ? "fn" : "proc");
  put_params(t, c);
  text_add(t, ") {\n  %s\n}\ncase_of(", call);
  put_params(t, c);
  text_add(t, ")\n");
}

typedef struct Mode {
  const char *name, *cpu;
  bool code;
  ckl_session *s;
} Mode;
static Mode modes[MODES] = {{"script", "reference", false, NULL},
                            {"code", "reference", true, NULL},
                            {"loops", "loops", true, NULL},
                            {"native", "native", true, NULL}};
static bool all_modes;

static ckl_session *session(const char *cpu) {
  static struct {
    const char *cpu;
    ckl_session *s;
  } open[MODES];
  int i = 0;
  while (open[i].cpu && strcmp(open[i].cpu, cpu) != 0) i++;
  if (!open[i].cpu) {
    open[i].cpu = cpu;
    open[i].s = open_cpu(cpu);
    static Result r;
    run(open[i].s, preamble, &r);
    if (r.status != CKL_OK) {
      printf("Bail out! the preamble fails: %s\n", r.message.s);
      exit(2);
    }
  }
  return open[i].s;
}

/* ---- comparing */

/* Whether two values have one structure and nearly the same numbers. */
static bool near_values(ckl_value *a, ckl_value *b, double tol) {
  const char *da = ckl_tensor_dtype(a), *db = ckl_tensor_dtype(b);
  if (!da != !db || ckl_kind_of(a) != ckl_kind_of(b)) return false;
  if (da) {
    if (strcmp(da, db) != 0 || ckl_tensor_rank(a) != ckl_tensor_rank(b)) return false;
    for (int k = 0; k < ckl_tensor_rank(a); k++)
      if (ckl_tensor_dim(a, k) != ckl_tensor_dim(b, k)) return false;
    const void *p = ckl_tensor_data(a), *q = ckl_tensor_data(b);
    for (size_t i = 0; i < elements(a); i++) {
      double x = element(da, p, i), y = element(db, q, i);
      if (x != y && !(x != x && y != y) && !(fabs(x - y) <= tol * (1 + fabs(y)))) return false;
    }
    return true;
  }
  size_t n = ckl_length(a);
  if (n != ckl_length(b)) return false;
  if (ckl_kind_of(a) == CKL_INT || ckl_kind_of(a) == CKL_FLOAT) {
    double x = ckl_to_float(a), y = ckl_to_float(b);
    return x == y || (x != x && y != y) || fabs(x - y) <= tol * (1 + fabs(y));
  }
  for (size_t i = 0; i < n; i++) {
    ckl_value *x = ckl_item(a, i), *y = ckl_item(b, i);
    bool same = near_values(x, y, tol);
    ckl_release(x);
    ckl_release(y);
    if (!same) return false;
  }
  return true;
}

/* A text in which \n stands for a newline. */
static void put_lines(Text *t, const char *text) {
  for (; *text; text++) {
    bool line = text[0] == '\\' && text[1] == 'n';
    text_bytes(t, line ? "\n" : text, 1);
    text += line;
  }
}

/* Is the result what the case expects? `! code`, `> text`, `~ value`, `value`. */
static void expect(const Case *c, const char *what, Result *r) {
  static Result e;
  const char *want = c->expect;
  if (*want == '!') {
    want += 1 + strspn(want + 1, " ");
    if (strcmp(r->code, want) != 0)
      wrong("%s of `%s` gives %s %s, not %s\n%s", what, c->call, r->code,
            r->status ? "" : r->bits.s, want, r->message.s);
    return;
  }
  if (r->status != CKL_OK) {
    wrong("%s of `%s` fails:\n%s", what, c->call, r->message.s);
    return;
  }
  if (*want == '>') {
    Text t = {0};
    put_lines(&t, want + 1 + (want[1] == ' '));
    text_add(&t, "\n");
    if (strcmp(t.s, r->printed.s) != 0)
      wrong("%s of `%s` prints\n%snot\n%s", what, c->call, r->printed.s, t.s);
    free(t.s);
    return;
  }
  bool close = *want == '~';
  run(session("reference"), want + close, &e);
  if (e.status != CKL_OK) {
    wrong("the value expected of `%s` fails:\n%s", c->call, e.message.s);
  } else if (close ? !near_values(r->value, e.value, 1e-6) : strcmp(r->bits.s, e.bits.s) != 0) {
    wrong("%s of `%s` is\n%s\nnot\n%s", what, c->call, r->bits.s, e.bits.s);
  }
}

static void same(const Case *c, const char *what, const Result *a, const Result *b) {
  if (a->status != b->status || strcmp(a->code, b->code) != 0)
    wrong("%s of `%s` ends with %s %s\n%snot with %s %s\n%s", what, c->call, b->code,
          b->status ? "" : b->bits.s, b->message.s, a->code, a->status ? "" : a->bits.s,
          a->message.s);
  else if (strcmp(a->bits.s, b->bits.s) != 0)
    wrong("%s of `%s` is\n%s\nnot\n%s", what, c->call, b->bits.s, a->bits.s);
  else if (strcmp(a->printed.s, b->printed.s) != 0)
    wrong("%s of `%s` prints\n%snot\n%s", what, c->call, b->printed.s, a->printed.s);
}

static void is_error(const Case *c, const char *what, const Result *r, const char *code) {
  if (strcmp(r->code, code) != 0)
    wrong("%s of `%s` gives %s %s, not the error %s\n%s", what, c->call, r->code,
          r->status ? "" : r->bits.s, code, r->message.s);
}

/* ---- forms */

static void check_form(const Case *c, const char *what, const char *call, const Result *base,
                       const char *error) {
  static Result r;
  static Text t;
  const char *in_code = option(c, "code");
  for (int code = 0; code < 2; code++) {
    if (code && ((rows[c->row].flags & BI_SCRIPT) || in_code)) break;
    program(&t, c, call, code);
    run(session("reference"), t.s, &r);
    Text label = {0};
    text_add(&label, "%s, `%s`, in %s,", what, call, code ? "code" : "script");
    if (error)
      is_error(c, label.s, &r, error);
    else
      same(c, label.s, base, &r);
    free(label.s);
  }
}

static void forms(const Case *c, const Node *call, const Given *g, const Result *base) {
  Sig *s = &sigs[c->row];
  static Text t;
  const char *text = c->call;
  Span at = call->span;
  bool rest = false;
  for (int k = 0; k < s->count; k++) rest |= s->par[k].rest;
  if (!g->method && !g->rests && g->places && !has(c, "places")) { /* all by name */
    text_clear(&t);
    text_bytes(&t, text, at.lo);
    text_add(&t, "%s(", rows[c->row].name + (rows[c->row].name[0] == '_'));
    for (int k = 0, n = 0; k < s->count; k++) {
      if (!g->arg[k]) continue;
      text_add(&t, "%s%s = ", n++ ? ", " : "", s->par[k].name);
      put_span(&t, text, g->arg[k]->span);
    }
    text_add(&t, ")%s", text + at.hi);
    check_form(c, "by name", t.s, base, NULL);
  }
  if (!g->method && g->places && g->arg[0] && !has(c, "function")) { /* x.f(..) */
    text_clear(&t);
    text_bytes(&t, text, at.lo);
    text_add(&t, "(");
    put_span(&t, text, g->arg[0]->span);
    text_add(&t, ").%s(", rows[c->row].name + (rows[c->row].name[0] == '_'));
    for (uint32_t i = 1; i < call->call.args.count; i++) {
      text_add(&t, i > 1 ? ", " : "");
      put_span(&t, text, call->call.args.items[i]->span);
    }
    text_add(&t, ")%s", text + at.hi);
    check_form(c, "x.f(..)", t.s, base, NULL);
  }
  for (int k = 0; k < s->count; k++) { /* a default written out */
    if (!s->par[k].optional || g->arg[k] || has(c, "defaults")) continue;
    text_clear(&t);
    text_bytes(&t, text, at.hi - 1);
    text_add(&t, "%s%s = %s)%s", call->call.args.count ? ", " : "", s->par[k].name, s->par[k].deflt,
             text + at.hi);
    check_form(c, "with its default", t.s, base, NULL);
  }
  if (call->call.args.count) { /* a default by place */
    const Node *last = call->call.args.items[call->call.args.count - 1];
    bool only = true;
    int k = s->count;
    for (uint32_t i = 0; i + 1 < call->call.args.count; i++)
      only &= !call->call.args.items[i]->arg.name.name;
    if (last->arg.name.name)
      for (k = 0; k < s->count && strcmp(s->par[k].name, last->arg.name.name) != 0;) k++;
    if (only && k < s->count && s->par[k].optional && !rest) {
      text_clear(&t);
      text_bytes(&t, text, last->span.lo);
      put_span(&t, text, last->arg.value->span);
      text_add(&t, "%s", text + last->span.hi);
      check_form(c, "a default by place", t.s, base, "call-1");
    }
  }
}

/* ---- kinds */

static const char *const dtypes[] = {"f64", "f32", "f16", "bf16", "i64", "i32",
                                     "i16", "i8",  "u8",  "bool", NULL};

static const char *kind_of(ckl_session *s, const Case *c, const char *text, const Node *arg) {
  static Result r;
  static Text t;
  static char kind[24];
  text_clear(&t);
  put_inputs(&t, c, false, false);
  if (arg->kind == N_LIST) return arg->list.count ? "brackets" : "list";
  if (arg->kind == N_LAMBDA) return "fn";
  for (size_t i = 0; arg->kind == N_NAME && dtypes[i]; i++)
    if (!strcmp(arg->name, dtypes[i])) return "dtype";
  put_span(&t, text, arg->span);
  run(s, t.s, &r);
  if (r.status != CKL_OK) return "?";
  const char *dtype = ckl_tensor_dtype(r.value);
  switch (ckl_kind_of(r.value)) {
  case CKL_UNIT: return "unit";
  case CKL_NONE: return "none";
  case CKL_BOOL: return ckl_to_int(r.value) ? "true" : "false";
  case CKL_INT: return ckl_to_int(r.value) < 0 ? "negative" : "int";
  case CKL_FLOAT: return "float";
  case CKL_STR: return "str";
  case CKL_LIST: return "list";
  case CKL_TUPLE: return "tuple";
  case CKL_RECORD: return "record";
  case CKL_DICT: return "dict";
  case CKL_FN: return "fn";
  case CKL_MODEL: return "model";
  default: break;
  }
  if (!dtype) {
    return "other";
  }
  if (arg->kind == N_DOT) return "param";
  const char *rank = !ckl_tensor_rank(r.value) ? "0" : "n";
  if (!elements(r.value)) return "empty";
  if (!strcmp(dtype, "bool"))
    snprintf(kind, sizeof kind, "b/%s", rank);
  else
    snprintf(kind, sizeof kind, "%s/%s", dtype[0] == 'i' || dtype[0] == 'u' ? "i" : "f", rank);
  return kind;
}

static void count_forms(const Case *c, const Given *g) {
  Sig *s = &sigs[c->row];
  ckl_session *ref = session("reference");
  for (int k = 0; k < s->count; k++) {
    Par *p = &s->par[k];
    if (p->rest) {
      *(g->rests == 0 ? &p->none : g->rests == 1 ? &p->one : &p->several) = true;
      for (int i = 0; i < g->rests; i++) saw_kind(p, kind_of(ref, c, c->call, g->rest[i]));
      continue;
    }
    *(g->arg[k] ? &p->given : &p->omitted) = true;
    if (g->arg[k]) saw_kind(p, kind_of(ref, c, c->call, g->arg[k]));
    /* the forms above write an omitted default out */
    if (!g->arg[k] && p->optional && !has(c, "defaults") && strcmp(p->deflt, "false") == 0)
      saw_kind(p, "false");
    if (!g->arg[k] && p->optional && !has(c, "defaults") && strcmp(p->deflt, "none") == 0)
      saw_kind(p, "none");
  }
}

/* ---- gradients */

/* The sum of all float leaves of a result, each element with a weight of its own. */
static void put_total(Text *t, ckl_value *v, const char *path, bool wide, int *leaves) {
  const char *dtype = ckl_tensor_dtype(v);
  char below[80];
  if (dtype && strchr(dtype, 'f') && *leaves < LEAVES) {
    size_t n = elements(v);
    if (!n) return;
    text_add(t, " + sum(f64(%s) * reshape(f64([", path);
    for (size_t i = 0; i < n; i++)
      text_add(t, "%s%g", i ? ", " : "", 0.5 + 0.25 * (double)((i * 5 + (size_t)*leaves * 3) % 7));
    text_add(t, "]), (");
    for (int k = 0; k < ckl_tensor_rank(v); k++)
      text_add(t, "%lld, ", (long long)ckl_tensor_dim(v, k));
    text_add(t, ")))");
    (*leaves)++;
    return;
  }
  for (size_t i = 0; i < ckl_length(v); i++) {
    if (ckl_kind_of(v) == CKL_DICT)
      snprintf(below, sizeof below, "values(%s)[%zu]", path, i);
    else if (ckl_kind_of(v) == CKL_RECORD)
      snprintf(below, sizeof below, "%s.%s", path, ckl_field_name(v, i));
    else
      snprintf(below, sizeof below, ckl_kind_of(v) == CKL_LIST ? "%s[%zu]" : "%s.%zu", path, i);
    ckl_value *item = ckl_item(v, i);
    put_total(t, item, below, wide, leaves);
    ckl_release(item);
  }
}

static void put_function(Text *t, const Case *c, const char *head, const char *name) {
  text_add(t, "%s %s(", head, name);
  put_params(t, c);
  text_add(t, ")");
}

/* The program that takes the gradient by the inputs `by`. */
static void grad_program(Text *t, const Case *c, const char *total, const char *by, bool code,
                         bool plain, bool wide, const char *kinds) {
  text_clear(t);
  text_add(t, "seed(0)\n");
  for (int i = 0; i < c->inputs; i++) {
    bool cast = wide && kinds[i];
    text_add(t, "let %s = %s(%s%s%s)\n", c->input[i], kinds[i] == 'x' && !code ? "track" : "",
             cast ? "f64(" : "", c->value[i], cast ? ")" : "");
  }
  put_function(t, c, code ? "fn" : "proc", "case_of");
  text_add(t, " {\n  %s\n}\n", c->call);
  put_function(t, c, code ? "fn" : "proc", "loss_of");
  text_add(t, " {\n  let r = case_of(");
  put_params(t, c);
  text_add(t, ")\n  f64(0)%s\n}\n", total);
  if (code) {
    put_function(t, c, "fn", "slope_of");
    text_add(t, " = grad(loss_of(");
    put_params(t, c);
    text_add(t, "), (%s))\nslope_of(", by);
    put_params(t, c);
    text_add(t, ")\n");
    return;
  }
  text_add(t, plain ? "wrap <backward plain> { " : "{ ");
  text_add(t, "grad(loss_of(");
  put_params(t, c);
  text_add(t, "), (%s)) }\n", by);
}

static double loss_at(const Case *c, ckl_session *s, Result *r) {
  static Text t;
  text_clear(&t);
  text_add(&t, "seed(0)\nloss_of(");
  put_params(&t, c);
  text_add(&t, ")\n");
  run(s, t.s, r);
  return r->status == CKL_OK ? ckl_to_float(r->value) : NAN;
}

/* In f64 the gradient agrees with central differences. */
static void differences(const Case *c, const char *total, const char *by, const char *kinds) {
  static Result g, r;
  static Text t;
  ckl_session *s = session("reference");
  grad_program(&t, c, total, by, false, false, true, kinds);
  run(s, t.s, &g);
  if (g.status != CKL_OK) {
    wrong("the gradient in f64 of `%s` fails:\n%s", c->call, g.message.s);
    return;
  }
  size_t which = 0;
  for (int i = 0; i < c->inputs; i++) {
    if (kinds[i] != 'x') continue;
    ckl_value *slope = ckl_item(g.value, which++), *x = ckl_get(s, c->input[i]);
    size_t n = elements(x);
    double *data = malloc(8 * (n + 1));
    int64_t dims[12];
    int rank = ckl_tensor_rank(x);
    for (int k = 0; k < rank; k++) dims[k] = ckl_tensor_dim(x, k);
    memcpy(data, ckl_tensor_data(x), 8 * n);
    for (size_t k = 0; k < n; k++) {
      double at = data[k], h = 1e-6 * (1 + fabs(at)), side[2], got;
      for (int up = 0; up < 2; up++) {
        data[k] = up ? at + h : at - h;
        ckl_value *moved = ckl_tensor(s, "f64", rank, dims, data);
        ckl_set(s, c->input[i], moved);
        ckl_release(moved);
        side[up] = loss_at(c, s, &r);
      }
      data[k] = at;
      got = element("f64", ckl_tensor_data(slope), k);
      double want = (side[1] - side[0]) / (2 * h);
      if (!(fabs(got - want) <= 2e-6 * (1 + fabs(want))))
        wrong("the gradient of `%s` by %s, element %zu, is %.12g, by differences %.12g", c->call,
              c->input[i], k, got, want);
    }
    ckl_set(s, c->input[i], x);
    free(data);
    ckl_release(slope);
    ckl_release(x);
  }
}

static void gradients(const Case *c, const Result *base) {
  static Text t;
  static Result first, r;
  char kinds[INPUTS] = {0}; /* 'x': floats, by which gradients are taken; '0': no floats of them */
  Text by = {0}, total = {0};
  int count = 0, leaves = 0;
  ckl_session *ref = session("reference");
  for (int i = 0; i < c->inputs; i++) {
    run(ref, c->value[i], &r);
    const char *dtype = r.status == CKL_OK ? ckl_tensor_dtype(r.value) : NULL;
    if (dtype && strchr(dtype, 'f')) kinds[i] = elements(r.value) ? 'x' : '0';
    if (kinds[i] == 'x') text_add(&by, "%s, ", c->input[i]), count++;
  }
  put_total(&total, base->value, "r", false, &leaves);
  if (!count || !leaves) goto done;
  const char *error = option(c, "grad");
  bool script = rows[c->row].flags & BI_SCRIPT || option(c, "code");
  sigs[c->row].grads++;
  bool seen = false;
  for (int i = 0; i < 6; i++) { /* script walked, captured; code; captured, code as machine code */
    static const char *const name[] = {"walked",          "captured",   "code",
                                       "native captured", "loops code", "native code"};
    static const char *const cpu[] = {"reference", "reference", "reference",
                                      "native",    "loops",     "native"};
    bool code = i == 2 || i > 3;
    if (code && script) continue;
    if (i > 2 && !all_modes) continue;
    grad_program(&t, c, total.s, by.s, code, i == 0, false, kinds);
    run(session(cpu[i]), t.s, seen ? &r : &first);
    if (error)
      is_error(c, name[i], seen ? &r : &first, error);
    else if (!seen && first.status != CKL_OK)
      wrong("the gradient of `%s`, %s, fails:\n%s\n%s", c->call, name[i], first.message.s, t.s);
    else if (seen) {
      Text label = {0};
      text_add(&label, "the gradient, %s,", name[i]);
      same(c, label.s, &first, &r);
      free(label.s);
    }
    seen = true;
  }
  if (!error && !has(c, "kink") && first.status == CKL_OK) differences(c, total.s, by.s, kinds);
done:
  free(by.s);
  free(total.s);
}

/* ---- one case */

/* The call of the row in a case, or of a function that calls it. NULL: there is none. */
static Node *call_of(const Case *c) {
  const Sig *s = &sigs[c->row];
  const char *name = rows[c->row].name;
  if (!s->through[0]) return call_in(c->call, name + (*name == '_'));
  char names[sizeof s->through];
  Node *call = NULL;
  snprintf(names, sizeof names, "%s", s->through);
  for (char *p = strtok(names, ","); p && !call; p = strtok(NULL, ",")) call = call_in(c->call, p);
  return call;
}

static void check_case(const Case *c) {
  static Result base, r;
  static Text t;
  Sig *s = &sigs[c->row];
  line_now = c->line;
  s->cases++;
  const char *name = rows[c->row].name;
  bool constant = !rows[c->row].signature;
  Node *call = constant ? NULL : call_of(c);
  if (!call && !constant) {
    wrong("`%s` has no call of %s", c->call, name);
    return;
  }
  program(&t, c, c->call, false);
  run(session("reference"), t.s, &base);
  expect(c, "script", &base);
  bool fails = c->expect[0] == '!';
  if (fails)
    s->errors++;
  else
    s->script++;
  const char *in_code = option(c, "code");
  if (!in_code && (rows[c->row].flags & BI_SCRIPT)) in_code = "call-6";
  for (int m = 1; m < MODES; m++) {
    if (in_code && m > 1) break;
    if (m > 1 && !all_modes) break;
    program(&t, c, c->call, true);
    run(session(modes[m].cpu), t.s, &r);
    if (in_code) {
      is_error(c, "code", &r, in_code);
    } else if (fails) {
      is_error(c, modes[m].name, &r, c->expect + 1 + strspn(c->expect + 1, " "));
    } else {
      same(c, modes[m].name, &base, &r);
      if (m == 1) s->code++;
    }
  }
  if (fails || base.status != CKL_OK) return;
  if (call && !s->through[0]) {
    Given g;
    bind_args(call, s, &g);
    count_forms(c, &g);
    if (!s->plain) forms(c, call, &g, &base);
  }
  if (!has(c, "no-grad")) gradients(c, &base);
}

/* ---- the file of cases */

/* Cuts at ` | ` outside of quotes. */
static int columns(char *line, char **column, int most) {
  int n = 1;
  bool quoted = false;
  column[0] = line;
  for (char *p = line; *p; p++) {
    if (*p == '"') quoted = !quoted;
    if (!quoted && n < most && !strncmp(p, " | ", 3)) {
      *p = 0;
      column[n++] = p + 2;
      p += 1; /* the blank may begin the next one */
    }
  }
  for (int i = 0; i < n; i++) column[i] = trim(column[i]);
  return n;
}

static void read_inputs(Case *c, char *text) {
  while (*text && c->inputs < INPUTS) {
    char *end = text + strcspn(text, ";"), *next = *end ? end + 1 : end;
    *end = 0;
    char *eq = strstr(text, " = ");
    if (!eq) {
      wrong("an input is `name = value`, not `%s`", text);
      return;
    }
    *eq = 0;
    c->input[c->inputs] = trim(text);
    c->value[c->inputs++] = trim(eq + 3);
    text = next;
  }
}

static void read_options(Sig *s, const char *text) {
  const char *through = strstr(text, "through=");
  s->plain = through || strstr(text, "plain");
  if (through) snprintf(s->through, sizeof s->through, "%s", through + 8);
}

static void read_kinds(Sig *s, char *text) {
  char *colon = strchr(text, ':');
  if (!colon) return;
  *colon = 0;
  for (int k = 0; k < s->count; k++) {
    if (strcmp(s->par[k].name, trim(text)) != 0) continue;
    for (char *p = strtok(colon + 1, " "); p; p = strtok(NULL, " ")) need_kind(&s->par[k], p);
    return;
  }
  wrong("there is no parameter %s", text);
}

/* ---- files that the cases read and write, in a folder of their own */

enum { FILES = 8 };
static char folder[] = "tests/cover-XXXXXX";
static char *file_names[FILES];
static int files;

static void write_file(char *text) {
  char *blank = strchr(text, ' ');
  if (!blank || files == FILES) return;
  *blank = 0;
  Text t = {0};
  put_lines(&t, blank + 1);
  FILE *f = fopen(text, "w");
  if (!f || fwrite(t.s, 1, t.n, f) != t.n || fclose(f)) wrong("%s cannot be written", text);
  file_names[files++] = text;
  free(t.s);
}

static void enter_folder(void) {
  if (!mkdtemp(folder) || chdir(folder)) {
    printf("Bail out! no folder for files\n");
    exit(2);
  }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk) {
  (void)st, (void)type, (void)walk;
  return remove(path);
}

static void leave_folder(void) {
  if (chdir("../..") || nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS))
    printf("# %s is not empty\n", folder);
}

/* ---- the table of what was shown */

static void holes(int row) {
  Sig *s = &sigs[row];
  const char *name = rows[row].name;
  if (!strcmp(name, "_host")) return; /* in functions of the host alone: tests/api/function.c */
  if (!s->cases) {
    wrong("hole: %s%s has no case", name, rows[row].signature ? rows[row].signature : "");
    return;
  }
  if (*name == '_') { /* a program sees no such name */
    static Result r;
    Text t = {0};
    text_add(&t, "let seen = %s\n", name);
    run(session("reference"), t.s, &r);
    if (strcmp(r.code, "name-1") != 0) wrong("%s can be seen: %s", name, r.message.s);
    free(t.s);
  }
  if (s->through[0]) return;
  for (int k = 0; k < s->count; k++) {
    Par *p = &s->par[k];
    if (p->rest) {
      if (!p->none && !strstr(p->needs, " needed ")) wrong("hole: %s without %s", name, p->name);
      if (!p->one) wrong("hole: %s with one of %s", name, p->name);
      if (!p->several && !strstr(p->needs, " single "))
        wrong("hole: %s with several of %s", name, p->name);
    } else {
      if (!p->given) wrong("hole: %s with %s", name, p->name);
      if (p->optional && !p->omitted) wrong("hole: %s without %s", name, p->name);
    }
    if (!p->needs[0]) wrong("hole: no kinds of values are said for %s of %s", p->name, name);
    char needs[sizeof p->needs];
    snprintf(needs, sizeof needs, "%s", p->needs);
    for (char *q = strtok(needs, " "); q; q = strtok(NULL, " ")) {
      char word[40];
      snprintf(word, sizeof word, " %s ", q);
      if (!strcmp(q, "needed") || !strcmp(q, "single")) continue;
      if (!strstr(p->seen, word)) wrong("hole: %s with %s = a value of kind %s", name, p->name, q);
    }
  }
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "use: builtins FILE [all] [NAME...]\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  failing_init(&w.failing, &w.mem, 0);
  arena_init(&w.arena, &w.mem);
  w.names = names_new(&w.arena);
  src_init(&w.src, &w.arena);
  dg_init(&w.diags, &w.arena, &w.mem);
  all_modes = argc > 2 && !strcmp(argv[2], "all");
  const char *only = argc > 2 + all_modes ? argv[2 + all_modes] : NULL;
  while (rows[row_count].name) row_count++;
  library_rows();
  for (int i = 0; i < row_count; i++) read_signature(rows[i].signature, &sigs[i]);

  char *text = read_text(argv[1]);
  enter_folder();
  Text before = {0};
  int row = -1, bad = 0, line = 0;
  for (char *p = text, *next; *p; p = next) {
    next = strchr(p, '\n');
    *next++ = 0;
    line_now = ++line;
    failures = 0;
    if (p[0] == '#' || !p[strspn(p, " ")]) continue;
    if (p[0] == '>') { /* the preamble */
      text_add(&before, "%s\n", p + 1 + (p[1] == ' '));
      preamble = before.s;
      continue;
    }
    if (!strncmp(p, "file ", 5)) {
      write_file(p + 5);
      continue;
    }
    if (p[0] == '[') {
      char *end = strchr(p, ']');
      if (end) *end = 0;
      row = row_of(p + 1);
      if (row < 0) wrong("there is no builtin %s", p + 1);
      if (row >= 0) read_options(&sigs[row], end ? end + 1 : "");
    } else if (row < 0) {
      continue;
    } else if (!strncmp(p, "kinds ", 6)) {
      read_kinds(&sigs[row], p + 6);
    } else if (!only || !strcmp(only, rows[row].name)) {
      char *column[4] = {NULL};
      int n = columns(p, column, 4);
      if (n < 3) {
        wrong("a case is `call | inputs | expected`");
      } else {
        Case c = {.line = line, .row = row, .call = column[0], .expect = column[2]};
        c.options = column[3];
        read_inputs(&c, column[1]);
        check_case(&c);
      }
    }
    if (row >= 0) sigs[row].wrong |= failures > 0;
    bad += failures;
  }
  leave_folder();
  int tests = 0;
  for (int i = 0; i < row_count; i++) {
    const Sig *s = &sigs[i];
    if (only && strcmp(only, rows[i].name) != 0) continue;
    line_now = 0;
    failures = 0;
    holes(i);
    bad += failures;
    printf("# %-18s script %2ld, code %s%2ld, gradient %2ld, errors %2ld;", rows[i].name, s->script,
           rows[i].flags & BI_SCRIPT ? "refused " : "",
           rows[i].flags & BI_SCRIPT ? s->script : s->code, s->grads, s->errors);
    for (int k = 0; k < s->count; k++) printf(" %s:%s", s->par[k].name, s->par[k].seen);
    printf("\n%s %d - %s\n", failures || s->wrong ? "not ok" : "ok", ++tests, rows[i].name);
  }
  if (all_modes)
    printf("# %lld kernels were machine code\n",
           (long long)ckl_counter(session("native"), "jit.kernels"));
  printf("1..%d\n", tests);
  free(text);
  return bad > 0;
}
