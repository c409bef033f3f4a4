/* The cases of cases.txt and their numbers.
 *
 * In: cases.txt, whose head explains it, the op table, whose column `cases` names a set for each
 * row, and numbers.txt, which an independent system has made of both. Out: a case for each row and
 * class. What is drawn is a pure function of the name of the input and of its interval, here and in
 * make-numbers.py. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/rule.h"
#include "runtime/domain.h"
#include "runtime/elementwise.h"
#include "tests/cover/cover.h"

enum { CELLS = 5 };

typedef struct Written {               /* a row `as` */
  const char *name, *expr, *ranges[2]; /* of floats, of ints */
} Written;
typedef struct Reading {
  Cover *c;
  char *text; /* the file; what is kept points into it */
  Written written[OP_COUNT];
  int written_count;
  bool exact; /* the set at hand */
  const char *path;
  int line;
} Reading;

bool cover_has_gradient(OpCode op) {
  static const GradRule *const rule[OP_COUNT] = {
#define OP(NAME, ...) [OP_##NAME] = &grad_##NAME,
#include "graph/ops_rows.def"
#undef OP
  };
  return rule[op]->one || rule[op]->all;
}

static bool wrong(Reading *r, const char *fmt, ...) {
  va_list ap;
  if (r->c->error[0]) return false;
  int n = snprintf(r->c->error, sizeof r->c->error, "%s:%d: ", r->path, r->line);
  va_start(ap, fmt);
  vsnprintf(r->c->error + n, sizeof r->c->error - (size_t)n, fmt, ap);
  va_end(ap);
  return false;
}

static void copy(char *to, size_t cap, const char *from) {
  snprintf(to, cap, "%s", from);
}

/* ---- numbers */

/* Number i of a name, from -1 to 1: SplitMix64. */
static double uniform(const char *name, int64_t i) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
  uint64_t z = h + (uint64_t)(i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (double)(z >> 11) / 0x1p52 - 1;
}

/* The leading bits of x, as many as the format has. */
static double leading(double x, DType dt) {
  int bits = dt == DT_F64 ? 53 : dt == DT_F32 ? 24 : dt == DT_F16 ? 11 : 8;
  uint64_t u;
  memcpy(&u, &x, 8);
  u &= UINT64_MAX << (53 - bits);
  memcpy(&x, &u, 8);
  return x;
}

void cover_draw(const char *name, DType dt, double low, double high, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) {
    double u = uniform(name, i), x = (low + high) / 2 + (high - low) / 2 * u;
    if (dt == DT_BOOL) {
      to[i] = u > 0;
    } else if (!dt_float(dt)) {
      to[i] = dt == DT_U8 ? fabs(floor(x)) : floor(x);
    } else {
      to[i] = leading(fabs(x) < 0x1p-9 ? copysign(0x1p-9, x) : x, dt);
    }
  }
}

Digest cover_digest(int rank, const int64_t *dim, const double *v, int64_t n) {
  Digest d = {.dims = "-"};
  size_t at = 0;
  for (int k = 0; k < rank && at < sizeof d.dims; k++) {
    at +=
        (size_t)snprintf(d.dims + at, sizeof d.dims - at, k ? "x%lld" : "%lld", (long long)dim[k]);
  }
  for (int64_t i = 0; i < n; i++) {
    double x = isnan(v[i]) ? 1234.5 : isinf(v[i]) ? copysign(5678.25, v[i]) : v[i];
    d.sum += x;
    d.weighted += x * uniform("digest", i);
    d.absolute += fabs(x);
    if (i == 0) d.first = x;
    d.last = x;
  }
  return d;
}

/* ---- a line of cases.txt */

/* The cells of a line between bars, without blanks around; those that are missing are "". */
static int cells_of(char *line, char *cell[CELLS]) {
  int n = 0;
  for (int i = 0; i < CELLS; i++) cell[i] = line + strlen(line);
  for (char *s = line; s && n < CELLS; n++) {
    char *bar = strchr(s, '|'), *end;
    if (bar) *bar = 0;
    while (*s == ' ') s++;
    for (end = s + strlen(s); end > s && (end[-1] == ' ' || end[-1] == '\n'); end--) end[-1] = 0;
    cell[n] = s;
    s = bar ? bar + 1 : NULL;
  }
  return n;
}

/* `word=value` among the words of a head; copies the value. */
static bool word_of(const char *head, const char *word, char *to, size_t cap) {
  size_t n = strlen(word);
  for (const char *s = strchr(head, ' '); s; s = strchr(s, ' ')) {
    while (*s == ' ') s++;
    if (strncmp(s, word, n) || s[n] != '=') continue;
    snprintf(to, cap, "%.*s", (int)strcspn(s + n + 1, " "), s + n + 1);
    return true;
  }
  return false;
}

static bool listed(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *s = list; s && *s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
    if (!strncmp(s, name, n) && (!s[n] || s[n] == ',')) return true;
  return false;
}

static const Written *written_of(const Reading *r, const char *name) {
  for (int i = 0; i < r->written_count; i++)
    if (!strcmp(r->written[i].name, name)) return &r->written[i];
  return NULL;
}

static const ElemInfo *function_of(const char *name) {
  for (int f = 0; f < RU_COUNT; f++)
    if (!strcmp(elem_un[f].name, name)) return &elem_un[f];
  return NULL;
}

/* The template with the arguments of `args`, which `;` parts. */
static void fill(char *to, size_t cap, const char *how, const char *args) {
  size_t at = 0;
  for (const char *s = how; *s && at + 1 < cap; s++) {
    if (*s != '$' || s[1] < '1' || s[1] > '9') {
      to[at++] = *s;
      continue;
    }
    const char *arg = args;
    for (int k = *++s - '1'; k > 0 && arg; k--) arg = strchr(arg, ';') ? strchr(arg, ';') + 1 : "";
    while (*arg == ' ') arg++;
    size_t n = strcspn(arg, ";");
    while (n > 0 && arg[n - 1] == ' ') n--;
    at += (size_t)snprintf(to + at, cap - at, "%.*s", (int)n, arg);
  }
  to[at < cap ? at : cap - 1] = 0;
}

static void interval(const Reading *r, const char *row, DType dt, int i, Input *in) {
  const Written *w = written_of(r, row);
  const ElemInfo *f = function_of(row);
  const char *s = w ? w->ranges[!dt_float(dt)] : "";
  in->low = dt_float(dt) ? -2 : -20;
  in->high = -in->low;
  if (*s) {
    for (; i > 0 && strchr(s, ' '); i--) s = strchr(s, ' ') + 1;
    sscanf(s, "%lf~%lf", &in->low, &in->high);
  } else if (f && dt_float(dt)) {
    in->low = (3 * f->low + f->high) / 4;
    in->high = (f->low + 3 * f->high) / 4;
  }
}

/* NAME[:DTYPE][DIM,..][~LOW~HIGH][=VALUE,..] */
static bool input(Reading *r, Case *c, const char *spec) {
  if (c->inputs == COVER_INPUTS) return wrong(r, "too many inputs");
  int i = c->inputs;
  Input *in = &c->in[c->inputs++];
  *in = (Input){.dtype = c->dtype, .count = 1};
  char dtype[16] = "", dims[64] = "";
  size_t n = strcspn(spec, ":[");
  snprintf(in->name, sizeof in->name, "%.*s", (int)n, spec);
  spec += n;
  if (*spec == ':' && sscanf(spec, ":%15[a-z0-9]", dtype) == 1) {
    int d = dtype_find(dtype);
    if (d < 0) return wrong(r, "no dtype: %s", dtype);
    in->dtype = (DType)d;
    spec += 1 + strlen(dtype);
  }
  if (*spec != '[') return wrong(r, "no dims: %s", spec);
  n = strcspn(++spec, "]");
  snprintf(dims, sizeof dims, "%.*s", (int)n, spec);
  spec += n + 1;
  for (char *d = dims; *d; d += strcspn(d, ",") + (d[strcspn(d, ",")] == ',')) {
    size_t len = strcspn(d, ",="), at = strlen(in->dims);
    snprintf(in->dims + at, sizeof in->dims - at, "%s%.*s", at ? ", " : "", (int)len, d);
    in->dim[in->rank++] = strtoll(d[len] == '=' ? d + len + 1 : d, NULL, 10);
    in->count *= in->dim[in->rank - 1];
  }
  interval(r, op_info[c->op].text, in->dtype, dtype[0] ? COVER_INPUTS : i, in);
  if (dtype[0]) in->low = dt_float(in->dtype) ? -2 : -20, in->high = -in->low;
  if (*spec == '~') {
    char *end;
    in->low = strtod(spec + 1, &end);
    in->high = strtod(end + 1, &end);
    spec = end;
  }
  if (*spec == '=') {
    char *end = (char *)spec;
    in->given = calloc((size_t)in->count + 1, sizeof(double));
    for (int64_t k = 0; k < in->count; k++) in->given[k] = strtod(end + 1, &end);
    spec = end;
  }
  in->wrt = !dtype[0] && dt_float(in->dtype);
  c->wrts += in->wrt;
  return !*spec || wrong(r, "what follows an input: %s", spec);
}

/* `from` with the name of the dtype for each `mark`. */
static void put_dtype(char *to, size_t cap, const char *from, const char *mark, DType dt) {
  size_t at = 0, n = strlen(mark);
  for (; *from && at + 1 < cap; from += n) {
    if (!strncmp(from, mark, n)) {
      at += (size_t)snprintf(to + at, cap - at, "%s", dtype_info[dt].name);
    } else {
      to[at++] = *from++;
      from -= n;
    }
  }
  to[at < cap ? at : cap - 1] = 0;
}

static bool add_case(Reading *r, OpCode op, char *const cell[CELLS], DType dt) {
  Cover *v = r->c;
  const char *row = op_info[op].text;
  char text[COVER_TEXT];
  if (v->count == v->room) {
    v->room = v->room ? 2 * v->room : 256;
    v->cases = realloc(v->cases, v->room * sizeof *v->cases);
  }
  Case *c = &v->cases[v->count++];
  memset(c, 0, sizeof *c);
  *c = (Case){.op = op,
              .dtype = dt,
              .exact = r->exact && !strstr(cell[0], " inexact"),
              .alone = strstr(cell[0], " alone") != NULL};
  c->order = cover_has_gradient(op) ? 2 : 0;
  if (word_of(cell[0], "order", text, sizeof text)) c->order = atoi(text);
  snprintf(text, sizeof text, "%.*s", (int)strcspn(cell[0], " "), cell[0]);
  put_dtype(c->cls, sizeof c->cls, text, "*", dt);
  const Written *w = written_of(r, row);
  if (w) {
    fill(text, sizeof text, w->expr, cell[2]);
  } else if (function_of(row)) {
    char call[64];
    snprintf(call, sizeof call, "%s($1)", row);
    fill(text, sizeof text, call, cell[2]);
  } else {
    copy(text, sizeof text, cell[2]);
  }
  put_dtype(c->expr, sizeof c->expr, text, "$D", dt);
  copy(text, sizeof text, cell[1]);
  for (char *s = strtok(text, " "); s; s = strtok(NULL, " "))
    if (!input(r, c, s)) return false;
  if (!c->wrts) c->order = 0;
  return true;
}

/* A case for each operation of the set, or for each of its dtypes. */
static bool class_of(Reading *r, const char *set, char *const cell[CELLS]) {
  char list[COVER_TEXT];
  for (int op = 0; op < OP_COUNT; op++) {
    OpDomain domain = op_info[op].domain;
    if (strcmp(r->c->set[op], set)) continue;
    if (word_of(cell[0], "only", list, sizeof list) && !listed(list, op_info[op].text)) continue;
    if (word_of(cell[0], "but", list, sizeof list) && listed(list, op_info[op].text)) continue;
    size_t name = strcspn(cell[0], " ");
    if (memchr(cell[0], '*', name)) {
      int but = word_of(cell[0], "not", list, sizeof list) ? dtype_find(list) : -1;
      for (int d = 0; d < DT_COUNT; d++)
        if (r->c->asked[op][d] && d != but && !add_case(r, (OpCode)op, cell, (DType)d))
          return false;
      continue;
    }
    int d = word_of(cell[0], "dtype", list, sizeof list) ? dtype_find(list) : DT_F64;
    if (d < 0) return wrong(r, "no dtype: %s", list);
    if (!dom_has(domain, (DType)d)) d = dom_has(domain, DT_I64) ? DT_I64 : DT_BOOL;
    if (!add_case(r, (OpCode)op, cell, (DType)d)) return false;
  }
  return true;
}

/* `set NAME [exact] [dtypes=D,..]`: which dtypes the set is asked for. */
static bool set_of(Reading *r, char *head, char *name, size_t cap) {
  char list[COVER_TEXT];
  bool some = word_of(head + 4, "dtypes", list, sizeof list), used = false;
  r->exact = strstr(head, " exact") != NULL;
  snprintf(name, cap, "%.*s", (int)strcspn(head + 4, " "), head + 4);
  for (int op = 0; op < OP_COUNT; op++) {
    if (strcmp(r->c->set[op], name)) continue;
    used = true;
    r->c->untaped[op] = strstr(head, " untaped") != NULL;
    r->c->staged[op] = strstr(head, " staged") != NULL;
    for (int d = 0; d < DT_COUNT; d++)
      r->c->asked[op][d] =
          dom_has(op_info[op].domain, (DType)d) && (!some || listed(list, dtype_info[d].name));
  }
  return used || wrong(r, "no row of the op table has the set %s", name);
}

/* ---- the files */

static char *content(Reading *r, const char *folder, const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  r->path = path;
  r->line = 0;
  FILE *f = fopen(path, "rb");
  if (!f) return wrong(r, "cannot be read"), NULL;
  size_t n = 0, room = 1 << 16;
  char *text = malloc(room);
  while ((n += fread(text + n, 1, room - n - 1, f)) == room - 1) text = realloc(text, room *= 2);
  text[n] = 0;
  fclose(f);
  return text;
}

/* The next line at *s, which is cut off; NULL at the end. */
static char *next_line(Reading *r, char **s) {
  char *line = *s, *end = strchr(line, '\n');
  if (!*line) return NULL;
  if (end) *end = 0;
  *s = end ? end + 1 : line + strlen(line);
  r->line++;
  return line;
}

static bool read_cases(Reading *r, const char *folder) {
  char *s = content(r, folder, "cases.txt"), *line, *cell[CELLS], set[COVER_NAME] = "";
  bool ok = true;
  size_t declared = 0;
  if (!s) return false;
  r->text = s;
  r->c->prelude = calloc(1, strlen(s) + 1);
  while (ok && (line = next_line(r, &s)) != NULL) {
    if (*line == '#' || !*line) continue;
    if (!strncmp(line, "ckl ", 4)) {
      declared += (size_t)sprintf(r->c->prelude + declared, "%s\n", line + 4);
      continue;
    }
    cells_of(line, cell);
    if (!strncmp(cell[0], "as ", 3)) {
      if (op_find(cell[0] + 3) < 0) return wrong(r, "no operation: %s", cell[0] + 3);
      r->written[r->written_count++] = (Written){cell[0] + 3, cell[1], {cell[3], cell[4]}};
    } else if (!strncmp(cell[0], "set ", 4)) {
      ok = set_of(r, cell[0], set, sizeof set);
    } else {
      ok = class_of(r, set, cell);
    }
  }
  return ok;
}

/* OPERATION CLASS ORDER, then of each array its dims and five numbers. */
static bool read_numbers(Reading *r, const char *folder) {
  char *text = content(r, folder, "numbers.txt"), *s = text, *line;
  bool ok = text != NULL;
  size_t next = 0;
  while (ok && (line = next_line(r, &s)) != NULL) {
    char row[COVER_NAME], cls[COVER_NAME];
    int order, at = 0;
    if (*line == '#' || !*line) continue;
    if (sscanf(line, "%63s %63s %d%n", row, cls, &order, &at) < 3) {
      ok = wrong(r, "no case");
      break;
    }
    Case *c = NULL;
    for (size_t k = 0; k < r->c->count && !c; k++, next++) { /* mostly the one after the last */
      Case *at_k = &r->c->cases[next % r->c->count];
      if (!strcmp(at_k->cls, cls) && !strcmp(op_info[at_k->op].text, row)) c = at_k;
    }
    if (!c) { /* of an operation that is not there */
      ok = wrong(r, "numbers for %s %s, which is no case", row, cls);
      break;
    }
    c->wants = 0;
    for (line += at; *line && c->wants < COVER_ARRAYS; c->wants++) {
      Digest *d = &c->want[c->wants];
      if (sscanf(line, "%63s%n", d->dims, &at) < 1) break;
      line += at;
      double *to[] = {&d->sum, &d->weighted, &d->absolute, &d->first, &d->last};
      for (int k = 0; k < 5; k++) *to[k] = strtod(line, &line);
    }
    if (order < c->order) c->order = order; /* the value is no float */
  }
  free(text);
  return ok;
}

bool cover_read(Cover *v, const char *folder) {
  static const char *const sets[OP_COUNT] = {
#define OP(NAME, text, arity, results, cls, traits, domain, shape, batch, remat, needs, cost,      \
           cases, doc)                                                                             \
  [OP_##NAME] = cases,
#include "graph/ops.def"
#undef OP
  };
  memset(v, 0, sizeof *v);
  memcpy(v->set, sets, sizeof sets);
  Reading r = {.c = v};
  bool ok = read_cases(&r, folder) && read_numbers(&r, folder);
  free(r.text);
  return ok;
}

void cover_free(Cover *v) {
  for (size_t i = 0; i < v->count; i++)
    for (int k = 0; k < v->cases[i].inputs; k++) free(v->cases[i].in[k].given);
  free(v->cases);
  free(v->prelude);
}
