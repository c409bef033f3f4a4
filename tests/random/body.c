/* The statements of random bodies: what program.c writes about tensors, and blocks, loops, modes,
 * calls, closures, records, prints, derivatives, hooks, state, batches.
 *
 * In: a Maker whose Program is the scope of the body. Out: parts of its program.
 *
 * One file: each form draws from the variables that the others have defined.
 */
#include <stdlib.h>

#include "tests/random/maker.h"

/* ---- parts and vars */

static Var *var_at(Program *p, int i) {
  return &p->vars[i < p->inputs ? i : INPUTS + i - p->inputs];
}

/* A var in scope, rather a new one; NULL when there is none. */
Var *body_pick(Maker *m, Wish wish, const Var *with) {
  Program *p = m->p;
  int n = p->inputs + p->statements;
  for (int tries = 0; tries < 40; tries++) {
    int back = chance(m, 60) && n > 6 ? n - 1 - below(m, 6) : below(m, n);
    Var *v = var_at(p, back);
    if (v->hidden) continue;
    if (wish == ANY || (wish == FLOATS && is_float(v)) ||
        (wish == AXES && is_float(v) && v->rank > 0) || (wish == ALIKE && alike(v, with)) ||
        (wish == ROWS && v->dt == m->dt && v->rank == 2 && !strcmp(v->dim[0].text, m->n.text) &&
         !strcmp(v->dim[1].text, m->d.text)))
      return v;
  }
  return NULL;
}

static bool room(const Maker *m, int n) {
  return m->p->statements + n + 3 <= STATEMENTS; /* some are left for the end of a body */
}
/* A new var like `v` in scope, whose statement the caller writes. */
Var *body_define(Maker *m, const Var *v) {
  Var *r = &m->p->vars[INPUTS + m->p->statements];
  Var copy = *v;
  snprintf(copy.name, sizeof copy.name, "v%d", m->p->statements);
  copy.hidden = false;
  m->p->statements++;
  *r = copy;
  return r;
}

void body_type(const Var *v, char *to, size_t cap) {
  int at = snprintf(to, cap, "%s", dt_name[v->dt]);
  for (int i = 0; i < v->rank; i++)
    at += snprintf(to + at, cap - (size_t)at, i ? ", %s" : "[%s", v->dim[i].text);
  if (v->rank) snprintf(to + at, cap - (size_t)at, "]");
}
static void dims_of(const Var *v, char *to, size_t cap) {
  int at = snprintf(to, cap, "[");
  for (int i = 0; i < v->rank; i++)
    at += snprintf(to + at, cap - (size_t)at, i ? ", %s" : "%s", v->dim[i].text);
  snprintf(to + at, cap - (size_t)at, "]");
}

Program *body_scope(Maker *m) {
  Program *p = calloc(1, sizeof *p);
  p->rng = program_random(&m->w->rng);
  p->most = 3000;
  for (int i = 0; i < STATEMENTS; i++) m->owner[i] = -1;
  return p;
}

/* ---- clauses */

static const char *const class_word[] = {
#define OPCLASS(NAME, word, of, doc) word,
#include "lang/names/clauses.def"
};
enum { CLASSES = sizeof class_word / sizeof *class_word };

/* Clauses of block `into` that runs the statements `from` on; `loop`: of so many iterations. */
void body_clauses(Maker *m, int into, int from, int loop) {
  Whole *w = m->w;
  if (chance(m, 15)) return;
  bool policy = !m->in_library && chance(m, 25), used[CLASSES] = {false};
  unsigned names = 0;                                /* that a clause has */
  const char *of_names = NULL, *of_attention = NULL; /* the words around */
  int classes = 0;
  if (policy) {
    static const char *const policies[] = {"lean", "tight 4", "tight 6", "decide", "least 64"};
    part_add(w, into, CLAUSE, ONE_OF(m, policies));
  }
  for (int n = below(m, 4); n > 0; n--) {
    static const char *const stance[] = {"save",        "recompute",        "save",   "recompute",
                                         "prefer save", "prefer recompute", "offload"};
    static const char *const narrow[] = {"save %s as bf16", "save %s as f16", "save %s as u8"};
    bool rounds = w->narrow && chance(m, 70);
    const char *what = NULL;
    const char *word = rounds ? ONE_OF(m, narrow) : part_text(w, "%s %%s", ONE_OF(m, stance));
    if (chance(m, 50) || policy) {
      int k = m->p->statements - from;
      if (k <= 0) continue;
      int i = from + below(m, k);
      if (names >> i & 1 || m->owner[i] != into || strstr(m->p->statement[i].text, "defer("))
        continue;
      if (rounds && !is_float(&m->p->vars[INPUTS + i])) continue;
      names |= 1u << i;
      if (!of_names) of_names = word;
      word = of_names; /* two names may be of one value */
      what = m->p->vars[INPUTS + i].name;
    } else {
      int i = below(m, CLASSES);
      bool attention = !strcmp(class_word[i], "attention"); /* its parts have classes, too */
      if (used[i] || (attention && classes)) continue;
      used[i] = true;
      classes++;
      what = class_word[i];
      if (attention) of_attention = word;
      if (of_attention) word = of_attention;
    }
    part_add(w, into, CLAUSE, part_text(w, word, what));
  }
  if (!policy && chance(m, 30)) {
    static const char *const option[] = {"reentrant", "reentrant", "auto", "budget = 256MB"};
    part_add(w, into, CLAUSE, ONE_OF(m, option));
  }
  if (loop && chance(m, 60))
    part_add(w, into, CLAUSE,
             part_text(w, chance(m, 50) ? "every %d" : "binomial %d", 1 + below(m, loop)));
}

/* ---- statements */

/* Builtins that tests/jit/program.c does not call. */
static void builtin(Maker *m, int into) {
  Var *v = body_pick(m, ANY, NULL), *f = body_pick(m, AXES, NULL), a, r;
  int n = m->p->statements;
  char dims[120];
  if (!v || !f || !room(m, 1)) return;
  a = r = *v;
  switch (below(m, 12)) {
  case 0: line(m, into, "let v%d = squeeze(expand(%s, 0), axis = 0)", n, a.name); break;
  case 1:
    a = r = *f;
    if (a.dim[0].n[0] < 3 || a.dim[0].n[1] < 3 || m->where != IN_ENTRY) return;
    r.dim[0] = number(2);
    line(m, into, "let v%d = slice(%s, int(k[0]) %% %d, 2)", n, a.name, 2);
    break;
  case 2:
    a = *f;
    if (a.rank > 2 || m->where == IN_ROW) return;
    r = (Var){.dt = I64, .rank = 2, .dim = {number(4), number(a.rank)}};
    line(m, into, "let v%d = nonzero(%s, most = 4).0", n, a.name);
    break;
  case 3:
    a = r = *f;
    if (a.rank != 2) return;
    r.dim[0] = a.dim[1], r.dim[1] = a.dim[0];
    line(m, into, "let v%d = rearrange(\"a b -> b a\", %s)", n, a.name);
    break;
  case 4:
    r.dt = F64;
    if (a.dt == BOOL) return;
    line(m, into, "let v%d = to_dtype(%s, f64)", n, a.name);
    break;
  case 5:
    a = r = *f;
    line(m, into, "let v%d = %s * float(stop(mean(%s)))", n, a.name, a.name);
    break;
  case 6:
    r = (Var){.dt = F32, .rank = 2, .dim = {number(3), number(3)}};
    line(m, into, "let v%d = eye(3)", n);
    break;
  case 7:
    r = (Var){.dt = I64, .rank = 1, .dim = {number(4)}};
    line(m, into, "let v%d = philox4x32(i64([1, 2, 3, 4]), k)", n);
    break;
  case 8:
    a = r = *f;
    dims_of(&a, dims, sizeof dims);
    line(m, into, "let v%d = where(isnan(%s) or isinf(%s), %s(%s, dtype = %s), %s)", n, a.name,
         a.name, chance(m, 50) ? "zeros" : "ones", dims, dt_name[a.dt], a.name);
    break;
  case 9:
    r.dt = BOOL;
    line(m, into, "let v%d = bool(%s)", n, a.name);
    break;
  case 10: /* derivatives of two orders */
    a = r = *f;
    if (a.rank != 1 || m->hooks || m->where == IN_ENTRY) return;
    r.rank = 2, r.dim[1] = a.dim[0];
    line(m, into, "let v%d = hessian(fn(z) = sum(z ** 3), %s)", n, a.name);
    break;
  default:
    a = *f;
    r = tensor("", a.dt, 1, number(2), a.dim[0], a.dim[0]);
    line(m, into, "let v%d = stack(list(sum(%s), max(%s)))", n, a.name, a.name);
  }
  body_define(m, &r);
}

static void tensors(Maker *m, int into) {
  if (program_statement(m->p)) line(m, into, "%s", m->p->statement[m->p->statements - 1].text);
}

/* Of the vars since `from` one to `most` stay in scope: writes their names, returns how many. */
static int leave(Maker *m, int from, int most, bool floats, char *names, size_t cap) {
  Program *p = m->p;
  int left[4], n = 0;
  for (int i = p->statements - 1; i >= from; i--) {
    Var *v = &p->vars[INPUTS + i];
    if (v->hidden) continue;
    if (n < most && (!floats || is_float(v)) && (n == 0 || chance(m, 40)))
      left[n++] = i;
    else
      v->hidden = true;
  }
  int at = snprintf(names, cap, n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    at += snprintf(names + at, cap - (size_t)at, i ? ", %s" : "%s", p->vars[INPUTS + left[i]].name);
  snprintf(names + at, cap - (size_t)at, n > 1 ? ")" : "");
  return n;
}

static void block(Maker *m, int into) {
  Whole *w = m->w;
  char names[80];
  int b = part_add(w, into, BLOCK, ""), from = m->p->statements;
  m->depth++;
  body_write(m, b, b, 2 + below(m, 5));
  m->depth--;
  if (m->totals && m->where == IN_ENTRY && !m->quiet && chance(m, 30)) {
    Var *v = body_pick(m, FLOATS, NULL);
    if (v) line(m, b, "total = total + f32(mean(tanh(%s)))", v->name);
  }
  body_clauses(m, b, from, 0);
  int n = leave(m, from, 3, false, names, sizeof names);
  if (!n) w->part[b].dropped = true;
  w->part[b].out = part_text(w, "%s", names);
}

/* `for` with a counter of that number that has so many values, most often the first ints. */
/* `rows`: what it goes through besides, with elements e; or NULL. */
static const char *loop_head(Maker *m, int number, int count, const char *rows) {
  if (rows && chance(m, 50))
    return part_text(m->w, "for (n%d, e%d) in zip(0..%d, %s)", number, number, count, rows);
  if (rows)
    return part_text(
        m->w, "for (n%d, (e%d, (k%d, _))) in enumerate(zip(%s[0:%d], reverse(zip(%s, 0..9))))",
        number, number, number, rows, count, rows);
  static const char *const head[] = {"for n%d in reverse(0..%d)",
                                     "for (n%d, k%d) in enumerate(reverse(0..%d))",
                                     "for (n%d, k%d) in zip(0..%d, 1..9)"};
  int kind = chance(m, 60) ? -1 : below(m, 4);
  if (kind < 0) return part_text(m->w, "for n%d in 0..%d", number, count);
  if (kind == 0) return part_text(m->w, head[0], number, count);
  if (kind == 3) return part_text(m->w, "for n%d in (0..%d).step_by(2)", number, 2 * count);
  return part_text(m->w, head[kind], number, number, count);
}

/* A bool that depends on data. A value that is no number makes it false. */
static const char *by_data(Maker *m, const Var *v) {
  static const char *const test[] = {"mean(tanh(%s)) > %s", "sum(%s) < %s", "max(%s) > %s"};
  static const char *const bound[] = {"0.0", "0.1", "-0.05", "0.4"};
  if (chance(m, 10)) return part_text(m->w, "any(isnan(%s))", v->name);
  const char *text = part_text(m->w, ONE_OF(m, test), v->name, ONE_OF(m, bound));
  const char *word = chance(m, 50) ? "and" : "or"; /* what is on the right may not run */
  if (chance(m, 8) && m->where != IN_ROW && !m->still)
    return part_text(m->w, "%s %s uniform([], dtype = f32) < 0.6", text, word);
  if (chance(m, 8) && v->rank && v->dim[0].n[0] > 1 && v->dim[0].n[1] > 1)
    return part_text(m->w, "%s %s mean(%s[int(i64(max(%s) > 0.2))]) < 0.3", text, word, v->name,
                     v->name);
  return text;
}

/* Adds to t, of dtype dt, a number made of a part of a tensor whose size depends on the counter of
 * the loop, which has values to `most`. */
static void prefix(Maker *m, int into, int counter, int most, const char *t, Dt dt) {
  static const char *const part[] = {
      "mean(tanh(%1$s[0:n%2$d + 1]))",
      "sum(softmax(%1$s[0:n%2$d + 1], axis = 0) * %1$s[0:n%2$d + 1])",
      "mean(%1$s[n%2$d:])",
      "sum([tanh(%1$s[j]) for j in 0..n%2$d])",
      "sum(sin(%1$s[n%2$d // 2:n%2$d]))",
      "sum(concat(list(%1$s[0:n%2$d], %1$s[n%2$d:])) * %1$s)",
      "max(%1$s[0:n%2$d + 1:2])",
      "sum(tanh(%1$s[max(0, n%2$d - 1):n%2$d + 1]) * 0.5)",
      "mean(sin(%1$s[n%2$d:min(n%2$d + 3, 5)]))",
      "sum(fold%2$d)"};
  Var *v = body_pick(m, AXES, NULL);
  if (!v || v->dim[0].n[0] <= most || v->dim[0].n[1] <= most) return;
  int which = below(m, 11);
  if (which == 10) { /* a side that data decides where the loop stays one */
    line(m, into, "if n%d > 0 { %s = %s + %s(mean(%s[0:n%d])) }", counter, t, t, dt_name[dt],
         v->name, counter);
    return;
  }
  if (which == 9)
    line(m, into,
         "var fold%d = 1 * %s\nfold%d[0:n%d + 1] = sqrt(abs(%s[0:n%d + 1]))\n"
         "for r in %s[0:n%d] { fold%d += tanh(r) }",
         counter, v->name, counter, counter, v->name, counter, v->name, counter, counter);
  line(m, into, "%s = %s + %s(%s)", t, t, dt_name[dt],
       part_text(m->w, part[which], v->name, counter));
}

static void choice(Maker *m, int into);
static void turns(Maker *m, int into);
static void draw(Maker *m, int into);

/* Whether params of model k may be used here. */
static bool usable(Maker *m, int k) {
  if (!m->depth) m->spent[k] = false;
  return !m->spent[k];
}

/* Writes a param in a turn or on a side, and uses it for t once: older versions have one use (rule
 * 74). */
static void rewrite(Maker *m, int into, const char *t, Dt dt) {
  int k = m->models ? below(m, m->models) : 0;
  if (!m->models || m->where != IN_ENTRY || m->hooks || m->uses[k] || chance(m, 50)) return;
  if (!usable(m, k)) return;
  line(m, into, "m%d.bias = m%d.bias * 0.5 + 0.25\n%s = %s + %s(mean(m%d.bias))", k, k, t, t,
       dt_name[dt], k);
  m->uses[k] = 1;
  m->spent[k] = true;
}

/* The statements of a side, about tensors alone, and one that gives t a value, or does not. */
static void side(Maker *m, int into, const Var *start, const char *t, bool assigns) {
  static const char *const step[] = {"%s = %s * 1.5 - tanh(%s)", "%s = tanh(%s) + 0.5 * %s",
                                     "%s = sqrt(abs(%s) + 0.0) * %s", "%s = min(%s, 2 * %s)"};
  int from = m->p->statements;
  bool fresh = m->fresh;
  m->depth++;
  for (int i = 1 + below(m, 3); i > 0 && room(m, 4); i--)
    if (m->depth < 4 && chance(m, 25))
      choice(m, into);
    else if (m->depth < 4 && chance(m, 15))
      turns(m, into);
    else if (chance(m, 15) && m->where != IN_ROW)
      draw(m, into);
    else
      tensors(m, into);
  m->depth--;
  Var *u = body_pick(m, ALIKE, start);
  const char *other = u ? u->name : t;
  if (assigns && chance(m, 20))
    line(m, into, fresh ? "%s = 1 * %s" : "%s = %s", t, other);
  else if (assigns && m->w->near && chance(m, 30))
    line(m, into, "if mean(tanh(%s)) > 0.1 { %s = %s }", other, t, other);
  else if (assigns)
    line(m, into, ONE_OF(m, step), t, t, other);
  if (assigns) rewrite(m, into, t, start->dt);
  if (assigns && m->hooks && m->scale && !m->quiet &&
      chance(m, 40)) { /* on a value of the side or turn */
    line(m, into, "let h%s = %s * %s(u)\non_grad(h%s, hook%d)\n%s = h%s + %s", t, t,
         dt_name[start->dt], t, below(m, 3), t, t, t);
    m->hooked = true;
  }
  for (int i = from; i < m->p->statements; i++) {
    m->p->vars[INPUTS + i].hidden = true;
    m->owner[i] = 0;
  }
}

/* An `if` on data that assigns a variable. Its value before stays in scope. */
static void choice(Maker *m, int into) {
  Var *v = body_pick(m, FLOATS, NULL), *c = body_pick(m, FLOATS, NULL);
  int from = m->p->statements;
  char t[16];
  if (!v || !c || !room(m, 8)) return;
  Var start = *v, by = *c;
  Var *r = body_define(m, &start);
  r->hidden = true;
  snprintf(t, sizeof t, "c%d", from);
  line(m, into, "var %s = %s", t, start.name);
  int g = part_add(m->w, into, GROUP, part_text(m->w, "if %s", by_data(m, &by)));
  bool first = chance(m, 75), second = chance(m, 60);
  side(m, g, &start, t, first);
  if (second) {
    int e = part_add(m->w, g, ELSE, "");
    side(m, e, &start, t, !first || chance(m, 60));
  }
  if (room(m, 1)) line(m, into, "let %s = %s", body_define(m, &start)->name, t);
}

/* A list that grows in a loop: a push of the variable, which the turn has or has not yet assigned,
 * of a value of its own, or of one like it. */
static void grow(Maker *m, int into, int number, const char *t, const char *like) {
  const char *v = chance(m, 50) ? t : like;
  if (chance(m, 30)) v = part_text(m->w, "%s * 0.5", v);
  static const char *const push[] = {"l%1$d = push(l%1$d, %2$s)", "l%1$d .= push(%2$s)",
                                     "l%1$d = l%1$d.push(%2$s)"};
  line(m, into, ONE_OF(m, push), number, v);
}

/* A loop whose number of turns depends on data: it stays one in code. */
static void turns(Maker *m, int into) {
  static const char *const range[] = {"for n%d in 0..int(i64(%s) + %d)",
                                      "for n%d in %d..int(2 * i64(%s) + %d)"};
  Var *v = body_pick(m, FLOATS, NULL), *c = body_pick(m, FLOATS, NULL);
  int from = m->p->statements, most = below(m, 4);
  char t[16];
  if (!v || !c || !room(m, 10)) return;
  Var start = *v, by = *c;
  Var *r = body_define(m, &start);
  r->hidden = true;
  snprintf(t, sizeof t, "w%d", from);
  bool counted = chance(m, 40);
  /* a value of its own: see rule 74 on values that data gives on from turn to turn */
  line(m, into, "var %s = 1 * %s", t, start.name);
  if (!counted) line(m, into, "var q%d = 0", from);
  const char *head;
  if (counted && chance(m, 60))
    head = part_text(m->w, range[0], from, by_data(m, &by), most);
  else if (counted)
    head = part_text(m->w, range[1], from, below(m, 2), by_data(m, &by), most);
  else if (chance(m, 50))
    head = part_text(m->w, "while q%d < %d and mean(tanh(%s)) < 0.3", from, most + 1, t);
  else
    head = part_text(m->w, "while q%d < %d", from, most);
  Var *x = counted && chance(m, 40) ? body_pick(m, AXES, NULL) : NULL;
  const char *rows = x ? part_text(m->w, "%s", x->name) : NULL;
  bool back = rows && chance(m, 50);
  if (rows) /* "for n in RANGE" */
    head = part_text(
        m->w, back ? "for (n%d, e%d) in zip(reverse(%s), %s)" : "for (n%d, e%d) in zip(%s, %s)",
        from, from, strstr(head, " in ") + 4, rows);
  bool grows = !m->w->near && chance(m, 40);
  if (grows) line(m, into, "var l%d = list(%s)", from, start.name);
  int g = part_add(m->w, into, GROUP, head);
  if (!counted) line(m, g, "q%d += 1", from);
  const char *exit =
      part_text(m->w, "if mean(tanh(%s)) > 0.1 { %s }", t, chance(m, 50) ? "break" : "continue");
  int where = below(m, 4); /* first, last, or nowhere */
  if (where == 0) line(m, g, "%s", exit);
  m->fresh = !m->w->near; /* docs/not-yet.md: what data gives on as it is, from before the loop */
  int early = grows ? below(m, 2) : 0, late = grows ? 1 - early + below(m, 2) : 0;
  if (where == 0) early = late = 0; /* a turn that ends before it would add nothing */
  for (int i = 0; i < early; i++) grow(m, g, from, t, start.name);
  side(m, g, &start, t, true);
  if (rows) line(m, g, "%s = %s + %s(mean(e%d) * mean(%s))", t, t, dt_name[start.dt], from, rows);
  if (counted && !back && chance(m, 60)) prefix(m, g, from, 5, t, start.dt);
  for (int i = 0; i < late; i++) grow(m, g, from, t, start.name);
  m->fresh = false;
  if (where == 1) line(m, g, "%s", exit);
  if (early + late && room(m, 1)) {
    line(m, into, "let (s%d, k%d) = stack(l%d, most = %d)", from, from, from, 1 + below(m, 9));
    line(m, into, "let %s = sum(s%d, axis = 0) * to_dtype(k%d, dtype_of(s%d))",
         body_define(m, &start)->name, from, from, from);
  }
  if (room(m, 1)) line(m, into, "let %s = %s", body_define(m, &start)->name, t);
}

/* What becomes of a list of so many elements. */
static void use_list(Maker *m, int into, int number, int elements, const Var *start) {
  static const char *const all[] = {"let %s = sum(stack(l%d, axis = %d), axis = %d)",
                                    "let %s = mean(stack(l%d, axis = %d), axis = %d)"};
  for (int uses = 1 + below(m, 2); uses > 0 && room(m, 1); uses--) {
    const char *name = body_define(m, start)->name;
    int axis = chance(m, 50) ? below(m, start->rank + 1) : 0;
    if (chance(m, 30))
      line(m, into, "let %s = l%d[%d] * 0.5 - l%d[%d]", name, number, below(m, elements), number,
           below(m, elements));
    else
      line(m, into, ONE_OF(m, all), name, number, axis, axis);
  }
}

/* A loop that carries a variable. */
static void loop(Maker *m, int into) {
  static const char *const step[] = {"%s = %s * 0.5 + tanh(%s)", "%s = tanh(%s) - 0.25 * %s",
                                     "%s = max(%s * 0.75, %s)"};
  Var *v = body_pick(m, FLOATS, NULL), start, *u;
  char t[16], text[120];
  int count = 1 + below(m, 4), from = m->p->statements;
  if (!v || !room(m, 4)) return;
  start = *v;
  Var *r = body_define(m, v); /* its number names the variable */
  r->hidden = true;
  snprintf(t, sizeof t, "w%d", from);
  bool exits = chance(m, 30), early = chance(m, 50); /* on data: a block may not have them */
  /* with them a value of its own: see rule 74 on values that data gives on from turn to turn */
  line(m, into, exits ? "var %s = 1 * %s" : "var %s = %s", t, start.name);
  int grows = exits || chance(m, 40) ? 0 : 1 + below(m, 2), front = chance(m, 25);
  if (grows) line(m, into, "var l%d = list(%s)", from, front ? start.name : "");
  Var *x = chance(m, 40) ? body_pick(m, AXES, NULL) : NULL;
  if (x && (x->dim[0].n[0] < count || x->dim[0].n[1] < count)) x = NULL;
  const char *rows = x ? part_text(m->w, "%s", x->name) : NULL;
  int l = part_add(m->w, into, LOOP, loop_head(m, from, count, rows));
  m->depth++;
  m->quiet++;
  m->still += exits;
  bool skips =
      !grows && chance(m, 15); /* then an iteration may run no statement that a clause names */
  if (skips) line(m, l, "if n%d == 2 { %s }", from, chance(m, 50) ? "continue" : "break");
  body_write(m, skips || exits ? 0 : l, l, 1 + below(m, 3));
  m->still -= exits;
  m->quiet--;
  m->depth--;
  u = body_pick(m, ALIKE, &start);
  snprintf(text, sizeof text, ONE_OF(m, step), t, t, u ? u->name : t);
  const char *test = part_text(m->w, "if mean(tanh(%s)) > %s { %s }", t,
                               chance(m, 50) ? "0.2" : "0.0", chance(m, 60) ? "break" : "continue");
  if (exits && early) line(m, l, "%s", test);
  const char *like = part_text(m->w, "%s", u ? u->name : start.name);
  bool first = chance(m, 30);
  if (grows && first) grow(m, l, from, t, like);
  line(m, l, "%s", text);
  if (rows) line(m, l, "%s = %s + %s(mean(e%d) * mean(%s))", t, t, dt_name[start.dt], from, rows);
  if (chance(m, 30)) prefix(m, l, from, 2 * count, t, start.dt);
  if (!grows) rewrite(m, l, t, start.dt);
  for (int i = first; i < grows; i++) grow(m, l, from, t, like);
  if (exits && !early) line(m, l, "%s", test);
  body_clauses(m, l, from + 1, count);
  for (int i = from; i < m->p->statements; i++) m->p->vars[INPUTS + i].hidden = true;
  if (grows) use_list(m, into, from, grows * count + front, &start);
  if (room(m, 1)) line(m, into, "let %s = %s", body_define(m, &start)->name, t);
}

/* A `wrap`, or an `if` whose condition is static. */
static void wrapped(Maker *m, int into) {
  static const char *const modes[] = {
      "train",        "eval", "no_grad",  "no_grad, grad", "bf16",       "f16",        "tf32",
      "opaque \"o\"", "grad", "around 2", "anomaly",       "device cpu", "train, bf16"};
  Whole *w = m->w;
  char names[80];
  int from = m->p->statements;
  bool seed = m->where != IN_ROW && chance(m, 10), branch = chance(m, 25);
  const char *mode = seed ? part_text(w, "seed %d", below(m, 9)) : ONE_OF(m, modes);
  if (!strcmp(mode, "anomaly") && chance(m, 80)) mode = "train"; /* it stops at NaN */
  if (!strcmp(mode, "no_grad, grad")) mode = "grad";
  int g = part_add(w, into, GROUP, "");
  m->depth++;
  m->quiet++;
  body_write(m, branch ? 0 : m->block, g, 1 + below(m, 4));
  m->quiet--;
  m->depth--;
  if (!branch &&
      !strcmp(
          mode,
          "no_grad")) { /* a value that is only passed on keeps its gradient in script (rule 78) */
    Var *v = body_pick(m, FLOATS, NULL);
    if (v && m->p->statements < STATEMENTS) {
      Var a = *v;
      for (int i = from; i < m->p->statements; i++) m->p->vars[INPUTS + i].hidden = true;
      line(m, g, "let %s = %s + %s", body_define(m, &a)->name, a.name, a.name);
    }
  }
  if (!leave(m, from, branch ? 1 : 3, false, names, sizeof names)) {
    w->part[g].dropped = true;
    return;
  }
  w->part[g].out = part_text(w, "%s", names);
  if (branch) {
    static const char *const test[] = {"training()", "rank(%s) > 1", "size(%s) > 6",
                                       "not training() and rank(%s) < 9"};
    char condition[60];
    Var *v = &m->p->vars[INPUTS + atoi(names + 1)], *u = body_pick(m, ALIKE, v);
    Var *x = var_at(m->p, below(m, m->p->inputs));
    snprintf(condition, sizeof condition, ONE_OF(m, test), x->name);
    /* the other branch cannot see what this one made */
    const char *other = u && u != v ? u->name : NULL;
    char type[80];
    dims_of(v, type, sizeof type);
    w->part[g].text = part_text(w, "let %s = if %s", names, condition);
    w->part[g].also =
        other           ? part_text(w, "} else { %s }", other)
        : v->dt == BOOL ? part_text(w, "} else { bernoulli(0.5, %s, key = key(1)) }", type)
                        : part_text(w, "} else { full(%s, 2, dtype = %s) }", type, dt_name[v->dt]);
  } else {
    w->part[g].text = part_text(w, "let %s = wrap <%s>", names, mode);
  }
}

static void call_model(Maker *m, int into) {
  Var *x = body_pick(m, ROWS, NULL);
  if (!x || !m->models || !room(m, 2) || m->where == IN_METHOD || m->where == IN_ROW) return;
  if (m->where == IN_HELPER && !m->helper[m->helpers].model) return;
  int k = below(m, m->models), how = below(m, 8);
  if (m->where == IN_HELPER) k = 0;
  if (!usable(m, k)) return;
  const char *net = m->where == IN_HELPER ? "net" : part_text(m->w, "m%d", k);
  m->uses[k] += m->depth ? 2 : 1; /* it may be a loop */
  Var like = *x;
  char arg[40];
  /* `after` of on_call is called where the argument has a gradient */
  snprintf(arg, sizeof arg, m->hooks && m->scale ? "%s * %s(u)" : "%s", x->name, dt_name[m->dt]);
  if (how == 0 && m->has_pair[k] && m->where == IN_ENTRY) {
    Var *a = body_define(m, &like), *b = body_define(m, &like);
    line(m, into, "let (%s, %s) = %s.pair(%s, k)", a->name, b->name, net, arg);
  } else if (how == 1) {
    line(m, into, "let %s = through(%s, %s, k)", body_define(m, &like)->name, net, arg);
  } else if (how == 2) {
    m->uses[k]++;
    line(m, into, "let %s = wrap <with_params %s (map(fn(p) = p * 0.5, params(%s)))> { %s(%s, k) }",
         body_define(m, &like)->name, net, net, net, arg);
  } else if (how == 3 && m->has_inner[k] && m->where == IN_ENTRY) {
    line(m, into, "let %s = %s.inner(%s)", body_define(m, &like)->name, net, arg);
  } else if (how >= 6 && !m->hooks) {
    /* the hooks of params would run inside of gradients, too */
    static const char *const form[] = {
        "let %s = slope(%s, %s, k)", "let %s = slope(%s, %s * (1 + mean(%s.w)), k)",
        "let %s = wrap <with_params %s (map(fn(p) = p * 0.5, params(%s)))> { slope(%s, %s, k) }"};
    m->uses[k]++;
    const char *name = body_define(m, &like)->name;
    if (how == 6)
      line(m, into, form[below(m, 2)], name, net, arg, net);
    else
      line(m, into, form[2], name, net, net, net, arg);
  } else {
    line(m, into, "let %s = %s(%s, k)", body_define(m, &like)->name, net, arg);
  }
}

static void call_helper(Maker *m, int into) {
  if (!m->helpers || m->where != IN_ENTRY || !room(m, 3)) return;
  const Helper *h = &m->helper[below(m, m->helpers)];
  if (h->model && !usable(m, 0)) return;
  char args[200] = "", names[80] = "";
  size_t at = 0;
  if (h->model) at += (size_t)snprintf(args, sizeof args, "m0, "), m->uses[0] += m->depth ? 2 : 1;
  for (int i = 0; i < h->params; i++) {
    Var *v = body_pick(m, ALIKE, &h->param[i]);
    if (!v) return;
    bool open = h->record && i == 0, close = h->record && i == 1;
    at += (size_t)snprintf(args + at, sizeof args - at, "%s%s",
                           open    ? "(first = "
                           : close ? "second = "
                                   : "",
                           v->name);
    /* hooks inside are called where the argument has a gradient */
    if (m->hooks && m->scale && is_float(v))
      at += (size_t)snprintf(args + at, sizeof args - at, " * %s(u)", dt_name[v->dt]);
    at += (size_t)snprintf(args + at, sizeof args - at, close ? "), " : ", ");
  }
  size_t n = (size_t)snprintf(names, sizeof names, h->results > 1 ? "(" : "");
  for (int i = 0; i < h->results; i++)
    n += (size_t)snprintf(names + n, sizeof names - n, i ? ", %s" : "%s",
                          body_define(m, &h->result[i])->name);
  snprintf(names + n, sizeof names - n, h->results > 1 ? ")" : "");
  line(m, into, "let %s = %s(%sk)", names, h->name, args);
}

/* Draws of the session: sites and counters. */
static void draw(Maker *m, int into) {
  Var *v = body_pick(m, ANY, NULL), r;
  char dims[120];
  if (!v || !room(m, 1) || m->where == IN_ROW) return;
  dims_of(v, dims, sizeof dims);
  r = *v;
  Dt f = chance(m, 60) ? F32 : F64;
  switch (below(m, 6)) {
  case 5:
    if (v->dt == BOOL) return;
    line(m, into, "let %s = %s * int(choice(permutation(%d), []))", body_define(m, v)->name, r.name,
         2 + below(m, 4));
    break;
  case 0:
    if (!is_float(v)) return;
    line(m, into, "let %s = wrap <train> { dropout(%s, 0.%d) }", body_define(m, v)->name, r.name,
         1 + below(m, 5));
    break;
  case 1:
    r.dt = I64;
    line(m, into, "let %s = randint(%d, %s)", body_define(m, &r)->name, 1 + below(m, 50), dims);
    break;
  case 2:
    r.dt = BOOL;
    line(m, into, "let %s = bernoulli(0.%d, %s)", body_define(m, &r)->name, 1 + below(m, 8), dims);
    break;
  default:
    r.dt = f;
    line(m, into, "let %s = %s(%s, dtype = %s)", body_define(m, &r)->name,
         chance(m, 50) ? "normal" : "uniform", dims, dt_name[f]);
  }
}

/* Functions made here: literals and nested ones, with what they capture; as arguments too. */
static void closure(Maker *m, int into) {
  Var *v = body_pick(m, FLOATS, NULL), *u = v ? body_pick(m, ALIKE, v) : NULL;
  char type[120];
  if (!u || !room(m, 1)) return;
  int n = m->p->statements;
  Var a = *v, b = *u;
  body_type(&a, type, sizeof type);
  const char *to = body_define(m, &a)->name;
  switch (below(m, 4)) {
  case 0:
    line(m, into, "let g%d = fn(z) = tanh(z) * %s\nlet %s = g%d(%s) + g%d(%s)", n, b.name, to, n,
         a.name, n, b.name);
    break;
  case 1:
    line(m, into,
         "fn g%d(z: %s) -> %s {\n  let y = z * %s\n  return y - 0.5 * z\n}\n"
         "let %s = g%d(%s)",
         n, type, type, b.name, to, n, a.name);
    break;
  case 2: line(m, into, "let %s = twice(fn(z) = tanh(z) + %s, %s)", to, b.name, a.name); break;
  default:
    line(m, into, "let %s = (fn(z, by = 2.0) = z * by - %s)(%s, by = 0.5)", to, b.name, a.name);
  }
}

/* A value that is held twice and updated under one of the names. */
static void updated(Maker *m, int into) {
  Var *v = body_pick(m, AXES, NULL);
  if (!v || !v->dim[0].n[0] || !v->dim[0].n[1] || !room(m, 1)) return;
  Var a = *v;
  int n = m->p->statements;
  const char *to = body_define(m, &a)->name;
  if (chance(m, 33))
    line(m, into,
         "var (up%1$d, on%1$d) = (%2$s, 0.5 * %2$s)\nvar xs%1$d = list(%2$s, on%1$d)\n"
         "for _ in 0..3 { (up%1$d, on%1$d) = (on%1$d, up%1$d - 0.5 * on%1$d) }\n"
         "(xs%1$d[0], (_, xs%1$d[1])) = (on%1$d, (up%1$d, xs%1$d[0]))\n"
         "let %3$s = xs%1$d[0] + up%1$d * xs%1$d[1]",
         n, a.name, to);
  else if (chance(m, 50))
    line(m, into,
         "var up%1$d = 1 * %2$s\nup%1$d[0] *= 0.5\nlet kept%1$d = up%1$d\nup%1$d[0] += 1\n"
         "up%1$d .= clamp(-3.0, 3.0)\nup%1$d[0:1] = up%1$d[-1]\nlet %3$s = up%1$d - kept%1$d",
         n, a.name, to);
  else
    line(m, into,
         "var up%1$d = (xs = list(%2$s), n = 1)\nlet kept%1$d = up%1$d\nup%1$d.n += 1\n"
         "up%1$d.xs .= push(2.0 * %2$s)\nup%1$d.xs[kept%1$d.n] .= clamp(-3.0, 3.0)\n"
         "up%1$d.xs .= push(%2$s)\nlet %3$s = up%1$d.xs[len(kept%1$d.xs)]",
         n, a.name, to);
}

/* Put into a dict and taken out again, by keys that are known before the run. */
static void keyed(Maker *m, int into) {
  static const char *const forms[] = {
      "var by%1$d = [\"a\": %2$s, %1$d: %3$s]\nlet kept%1$d = by%1$d\nby%1$d[\"c\"] = 2.0 * %2$s\n"
      "by%1$d .= remove(\"a\")\nlet %4$s = values(by%1$d)[len(kept%1$d) - 2]",
      "let by%1$d = group(list(\"p\", \"q\", \"p\"), list(%2$s, %3$s, %2$s))\n"
      "let %4$s = by%1$d[\"q\"][len(tally(list(1, 1, 2))) - 2]",
      "let by%1$d = merge([\"x\": 0.25 * %3$s], [(%1$d, \"y\"): %3$s])\nvar sum%1$d = get(by%1$d, "
      "\"x\")\n"
      "for (key, e) in by%1$d { if key in set(list((%1$d, \"y\"))) { sum%1$d = sum%1$d + e } }\n"
      "let %4$s = sum%1$d",
      "let by%1$d = map(fn(e, f) = e - 0.5 * f, [\"u\": %2$s, \"v\": %3$s], [\"v\": %2$s, \"u\": "
      "%3$s])\n"
      "let %4$s = by%1$d[\"v\"] + by%1$d.get(\"w\", otherwise = 1.0)",
      "let (_, key%1$d) = codes(list(\"s\", \"t\", \"s\"))\nlet by%1$d = "
      "except(union(set(key%1$d), "
      "set(list(1))), intersect(set(key%1$d).add(2), set(list(\"t\"))))\n"
      "let %4$s = %3$s * len(keys(by%1$d))",
      "var by%1$d = [key: 0.5 * e for (key, e) in [\"m\": %2$s, \"n\": %3$s]]\n"
      "by%1$d[\"m\"] += by%1$d[\"n\"]\nlet %4$s = by%1$d[\"m\"]"};
  Var *v = body_pick(m, AXES, NULL), *u = v ? body_pick(m, ALIKE, v) : NULL;
  if (!v || !u || !room(m, 1)) return;
  int n = m->p->statements, which = below(m, 6);
  Var a = *v, b = *u;
  if (!alike(&a, &b)) a = b;
  const char *to = body_define(m, &b)->name;
  line(m, into, forms[which], n, a.name, b.name, to);
}

/* Put into a list and found again. */
static void sought(Maker *m, int into) {
  static const char *const forms[] = {
      "var xs%1$d = insert(list(%3$s), 0, %2$s)\nxs%1$d .= pop()\nxs%1$d .= push(%3$s)\n"
      "xs%1$d .= insert(1, %2$s)\nxs%1$d .= remove_at(0)\nlet %4$s = xs%1$d[1]",
      "let in%1$d = sorted(list(3, 1, 2), by = fn(e) = -e)\n"
      "let %4$s = list(%2$s, %3$s, %3$s)[index_of(in%1$d, 2)]",
      "let cut%1$d = drop(flatten(list(list(%2$s), list(%3$s))), 1)\nlet %4$s = take(cut%1$d, "
      "1)[0]",
      "let %4$s = pick((list(%2$s, %3$s), list(0, 1)), [1]).0[0]",
      "let %4$s = list(%2$s, %3$s)[index_of(unique(list(\"a\", \"b\", \"a\")), "
      "max(list(\"a\", \"b\")))]"};
  Var *v = body_pick(m, ANY, NULL), *u = body_pick(m, ANY, NULL);
  if (!v || !u || !room(m, 1)) return;
  int n = m->p->statements, which = below(m, 5);
  Var a = *v, b = *u;
  const char *to = body_define(m, &b)->name;
  line(m, into, forms[which], n, a.name, b.name, to);
}

/* A factor out of texts, which code knows before the run. */
static void spelt(Maker *m, int into) {
  static const char *const forms[] = {
      "let tx%1$d = \"  {1 + 1}x, y \".trim().replace(\"x\", chr(228)).upper()\n"
      "let ty%1$d = join(list(tx%1$d.lower().casefold(), str(7), repr(\"q\"), format(1.5, "
      "\".2f\")), "
      "\"-\").normalize(form = \"NFD\")\n"
      "let tz%1$d = ty%1$d.pad_left(30).pad_right(32).repeat(2)\n"
      "let %3$s = %2$s * (0.01 * (len(words(tz%1$d)) + len(lines(\"a\\nb\")) + tx%1$d.find(\"Y\") "
      "+ "
      "ord(\"A\") + len(bytes(ty%1$d)) - len(text(list(97, 98)))))",
      "let hit%1$d = \"a1 bb22 c\".re_all(r\"[a-z]+(\\d+)\")\n"
      "let %3$s = %2$s * (0.1 * (hit%1$d[1].at + len(\"a,b;c\".re_split(\"[,;]\")) + "
      "len(\"aab\".re_replace(\"a+\", \"x\")) + (if \"xy\".starts_with(\"x\") and "
      "\"xy\".ends_with(\"y\") and re_find(\"xy\", \"z\") == none { 1 } else { 2 })))"};
  Var *v = body_pick(m, AXES, NULL);
  if (!v || !room(m, 1)) return;
  Var a = *v;
  int n = m->p->statements;
  const char *to = body_define(m, &a)->name;
  line(m, into, ONE_OF(m, forms), n, a.name, to);
}

/* Put into a tuple, record or list and taken out again. */
static void packed(Maker *m, int into) {
  if (chance(m, 45)) {
    int which = below(m, 13);
    if (which >= 10)
      body_matrix(m, into);
    else if (which < 5)
      updated(m, into);
    else if (which < 7)
      keyed(m, into);
    else if (which < 8)
      spelt(m, into);
    else
      sought(m, into);
    return;
  }
  static const char *const forms[] = {
      "let r%d = (x = %s, y = (%s, 1))\nlet %s = r%d.y.0",
      "let r%d = list(%s, %s)\nlet %s = r%d[1]",
      "let r%d = (%s, (some = %s, n = 2))\nlet (_, {some}) = r%d\nlet %s = some",
      "var r%d = (x = %s, y = %s)\nr%d.x = r%d.y\nlet %s = r%d.x",
      "let r%d = push(list(%s), %s)\nlet (_, %s) = r%d"};
  Var *v = body_pick(m, ANY, NULL), *u = body_pick(m, ANY, NULL);
  if (!v || !u || !room(m, 1)) return;
  int n = m->p->statements, which = below(m, 5);
  Var a = *v, b = *u;
  if (which == 3 && !alike(&a, &b)) which = 0;
  if (which == 1 && !alike(&a, &b)) which = 4;
  const char *to = body_define(m, &b)->name;
  char text[200];
  if (which == 2)
    snprintf(text, sizeof text, forms[2], n, a.name, b.name, n, to);
  else if (which == 3)
    snprintf(text, sizeof text, forms[3], n, a.name, b.name, n, n, to, n);
  else if (which == 4)
    snprintf(text, sizeof text, forms[4], n, a.name, b.name, to, n);
  else
    snprintf(text, sizeof text, forms[which], n, a.name, b.name, to, n);
  line(m, into, "%s", text);
}

static void say(Maker *m, int into) {
  Var *v = body_pick(m, ANY, NULL);
  if (!v || m->where == IN_ROW) return;
  if (chance(m, 30))
    line(m, into, chance(m, 5) ? "assert all(%s == %s)" : "assert all(%s == %s) or true", v->name,
         v->name);
  else
    line(m, into, "print(\"at %d\", \"{f64(%s):.17g}\")", m->prints++, v->name);
}

/* Derivatives inside of code. */
static void derive(Maker *m, int into) {
  Var *v = body_pick(m, AXES, NULL), a;
  if (!v || !room(m, 1) || (m->where == IN_ROW && m->hooks)) return;
  if (m->where == IN_ENTRY && (m->hooks || m->quiet || (m->depth && !chance(m, 30)))) return;
  a = *v;
  if (m->where == IN_ENTRY) { /* on the tape in script */
    Var *u = body_pick(m, ALIKE, v);
    const char *other = u ? u->name : a.name;
    line(m, into, "let %s = grad(f32(sum(sin(%s) * %s)), %s, record = true)",
         body_define(m, &a)->name, a.name, other, a.name);
    m->w->inner = true;
    return;
  }
  const char *to = body_define(m, &a)->name;
  /* with hooks: a second gradient is an error, and a call of one has zeros for missing ones */
  switch (m->hooks ? 1 + below(m, 2) : below(m, 4)) {
  case 0:
    line(m, into, "let %s = grad(f32(sum(tanh(%s) * %s)), %s)", to, a.name, a.name, a.name);
    break;
  case 1: line(m, into, "let %s = vjp(fn(z) = tanh(z) * z, %s, %s)", to, a.name, a.name); break;
  case 2: line(m, into, "let %s = jvp(fn(z) = tanh(z) * z, %s, %s)", to, a.name, a.name); break;
  default:
    line(m, into, "let %s = grad(f32(sum(grad(f32(sum(sin(%s))), %s) * %s)), %s)", to, a.name,
         a.name, a.name, a.name);
  }
}

static void hook(Maker *m, int into) {
  if (!m->hooks || m->quiet || (m->where != IN_ENTRY && m->where != IN_HELPER)) return;
  if (m->in_library) return;
  Var *v = body_pick(m, AXES, NULL), a;
  if (!v || !room(m, 2)) return;
  a = *v;
  if (chance(m, 25) && m->where == IN_ENTRY && m->depth == 0) {
    Var *u = body_pick(m, ALIKE, &a);
    if (u) {
      Var b = *u;
      line(m, into, "let %s = %s * defer(deferred)(stop(%s))", body_define(m, &a)->name, a.name,
           b.name);
      snprintf(m->p->statement[m->p->statements - 1].text, 8, "defer(");
    }
    return;
  }
  m->hooked = true;
  /* a value that is tracked in script too */
  Var *r = body_define(m, &a);
  if (m->where == IN_ENTRY) /* the loss reaches it, whatever calls it goes through */
    line(m, into, "let %s = %s * %s(u)\non_grad(%s, hook%d)\ntotal = total + f32(mean(%s))",
         r->name, a.name, dt_name[a.dt], r->name, below(m, 3), r->name);
  else
    line(m, into, "let %s = %s * 1.5\non_grad(%s, hook%d)", r->name, a.name, r->name, below(m, 3));
}

/* Params and buffers, read and written. */
static void state(Maker *m, int into) {
  if (m->where != IN_ENTRY || !m->models || m->quiet) return;
  int k = below(m, m->models);
  Var *x = body_pick(m, ROWS, NULL);
  switch (below(m, 4)) {
  case 0: /* one use of each older version (rule 74) */
    if (m->depth || m->uses[k] > 1) return;
    line(m, into, "m%d.bias = m%d.bias * 0.5 + 0.25", k, k);
    m->uses[k] = 0;
    break;
  case 1:
    if (x) line(m, into, "m%d.seen += 0.5 * mean(%s, axis = 0)", k, x->name);
    break;
  case 2: line(m, into, "m%d.calls += %d", k, 1 + below(m, 3)); break;
  default:
    if (!usable(m, k) || !x || !room(m, 1)) return;
    Var a = *x;
    if (chance(m, 50)) m->uses[k]++;
    line(m, into, "let %s = %s + m%d.%s", body_define(m, &a)->name, a.name, k,
         chance(m, 50) ? (m->uses[k]++, "bias") : "seen");
  }
}

/* The function of a row for every row of a matrix, as a batch or as a loop. */
static void batch(Maker *m, int into) { /* all forms have three calls: draws go by their number */
  if (!m->rows || m->where == IN_ROW || m->where == IN_METHOD || !room(m, 1)) return;
  Var a = tensor("", m->dt, 2, m->n, m->d, m->d), *x = body_pick(m, ALIKE, &a);
  if (!x || strcmp(x->dim[0].text, "N")) return;
  Var from = *x, *r = body_define(m, &a);
  const char *text =
      chance(m, 50) ? part_text(m->w, "stop([row0(stop(r), k) for r in %s])", from.name)
      : chance(m, 50)
          ? part_text(m->w, "stop(vmap(fn(t) = row0(t[\"r\"].0, k), [\"r\": (%s, none)]))",
                      from.name)
          : part_text(m->w, "stop(vmap(fn(r: %s[%s]) = row0(r, k), %s))", dt_name[m->dt], m->d.text,
                      from.name);
  int b = part_add(m->w, into, BATCH, text);
  m->w->part[b].out = part_text(m->w, "%s", r->name);
  m->w->part[b].also =
      part_text(m->w,
                "var l%s = zeros([N, %s], dtype = %s)\n"
                "for j in 0..N { l%s[j] = row0(%s[j], k) }\nlet %s = stop(l%s)",
                r->name, m->d.text, dt_name[m->dt], r->name, from.name, r->name, r->name);
}

/* A number for every row of a matrix, made of gradients by the params of a model: as a batch or as
 * a loop; or, where it has a gradient, as a batch alone. */
static void examples(Maker *m, int into) {
  if (m->hooks || !m->models || m->where != IN_ENTRY || !room(m, 1)) return;
  Var a = tensor("", m->dt, 2, m->n, m->d, m->d), *x = body_pick(m, ALIKE, &a);
  int k = below(m, m->models);
  if (!x || strcmp(x->dim[0].text, "N") || !usable(m, k)) return;
  const char *f = dt_name[m->dt], *from = part_text(m->w, "%s", x->name);
  bool second = chance(m, 40);
  if (second) m->uses[k] += 2;
  const char *by = part_text(m->w, second ? "(m%d, r)" : "m%d", k);
  Var one = tensor("", m->dt, 1, m->n, m->d, m->d), *r = body_define(m, &one);
  const char *each = part_text(m->w,
                               "fold(fn(n, g) = n + sum(tanh(g)), %s(0), "
                               "grad(f32(sum(tanh(r @ m%d.w + m%d.bias) * r)), %s))",
                               f, k, k, by);
  if (second) {
    line(m, into, "let %s = [%s for r in stop(%s)]", r->name, each, from);
    return;
  }
  int b = part_add(m->w, into, BATCH,
                   part_text(m->w, "stop([%s for r in stop(stop(%s))])", each, from));
  m->w->part[b].out = part_text(m->w, "%s", r->name);
  m->w->part[b].also =
      part_text(m->w,
                "var l%s = zeros([N], dtype = %s)\n"
                "for j in 0..N {\n  let r = stop(%s[j])\n  l%s[j] = %s\n}\nlet %s = stop(l%s)",
                r->name, f, from, r->name, each, r->name, r->name);
}

static void body(Maker *m, int into, int statements) {
  for (int i = 0; i < statements && room(m, 1) && !m->w->full; i++) {
    int from = m->p->statements, what = below(m, 32);
    if (m->still && what >= 6 && what <= 20 && (what < 11 || what > 13)) what = 23;
    switch (what) {
    case 0:
    case 1:
    case 2:
      if (m->depth < 3) block(m, into);
      break;
    case 3:
      if (m->depth < 2 && chance(m, 50))
        turns(m, into);
      else if (m->depth < 2)
        loop(m, into);
      break;
    case 21:
      if (m->depth < 3) choice(m, into);
      break;
    case 22:
      if (m->depth < 2) loop(m, into);
      break;
    case 4:
    case 5:
      if (m->depth < 3) wrapped(m, into);
      break;
    case 6:
    case 7:
    case 8: call_model(m, into); break;
    case 9:
    case 10: call_helper(m, into); break;
    case 11: draw(m, into); break;
    case 12: closure(m, into); break;
    case 13: packed(m, into); break;
    case 14: say(m, into); break;
    case 15:
    case 16: hook(m, into); break;
    case 17: state(m, into); break;
    case 18:
    case 31: chance(m, 60) ? batch(m, into) : examples(m, into); break;
    case 20: builtin(m, into); break;
    case 19: derive(m, into); break;
    default: tensors(m, into);
    }
    for (int s = from; s < m->p->statements; s++) {
      bool computed = what > 22 && !strstr(m->p->statement[s].text, "checkpoint");
      if (m->owner[s] < 0) m->owner[s] = computed ? m->block : 0;
    }
  }
}

/* The statements of block `b`, which its clauses may name. */
void body_write(Maker *m, int b, int into, int statements) {
  int around = m->block;
  m->block = b;
  body(m, into, statements);
  m->block = around;
}
