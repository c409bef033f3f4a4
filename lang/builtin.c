/* The table of builtins and the binding of their arguments.
 *
 * In: a call's arguments. Out: values by parameter. A signature's text is parsed at each
 * call: it is short, and only scanned for commas; nothing is allocated for it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lang/builtin.h"
#include "lang/compile.h"

#define BUILTIN(name, sig, fn, flags, op, doc) {name, sig, doc, fn, flags, op},
const Builtin builtin_table[] = {
#include "lang/builtins.def"
};
#undef BUILTIN
const size_t builtin_count = sizeof builtin_table / sizeof *builtin_table;

const Builtin *builtin_find(Session *s, Name name) {
  (void)s;
  for (size_t i = 0; i < builtin_count; i++)
    if (!strcmp(builtin_table[i].name, name)) return &builtin_table[i];
  return NULL;
}

Value builtin_constant(Session *s, const Builtin *b) {
  (void)s;
  switch (b->op) {
  case 0: return v_none();
  case 1: return v_float(INFINITY);
  case 2: return v_float(NAN);
  default: return v_float(3.14159265358979323846);
  }
}

/* One parameter of a signature. */
typedef struct Param1 {
  const char *name, *deflt;
  size_t name_n, deflt_n;
  bool rest;
} Param1;

enum { MAX_PARAMS = 8 };

static size_t signature(const char *sig, Param1 *out) {
  size_t n = 0;
  const char *p = sig + 1;
  while (*p && *p != ')') {
    while (*p == ' ' || *p == ',') p++;
    if (*p == ')') break;
    Param1 q = {.name = p};
    while (*p && *p != ',' && *p != ')' && *p != ' ' && *p != '.') p++;
    q.name_n = (size_t)(p - q.name);
    if (!strncmp(p, "...", 3)) {
      q.rest = true;
      p += 3;
    }
    while (*p == ' ') p++;
    if (*p == '=') {
      p++;
      while (*p == ' ') p++;
      q.deflt = p;
      while (*p && *p != ',' && *p != ')') p++;
      q.deflt_n = (size_t)(p - q.deflt);
    }
    if (n < MAX_PARAMS) out[n++] = q;
  }
  return n;
}

static Value default_value(Session *s, const Param1 *p) {
  char t[32];
  size_t n = p->deflt_n < 31 ? p->deflt_n : 31;
  memcpy(t, p->deflt, n);
  t[n] = 0;
  if (!strcmp(t, "none")) return v_none();
  if (!strcmp(t, "true")) return v_bool(true);
  if (!strcmp(t, "false")) return v_bool(false);
  if (t[0] == '"') return str_value(s, t + 1, n - 2);
  int dt = dtype_find(t);
  if (dt >= 0) return (Value){.tag = V_DTYPE, .u.i = dt};
  if (strpbrk(t, ".e")) {
    /* the defaults of the table are short decimals: locale plays no part in reading them by hand */
    double x = 0, scale = 1;
    int e = 0;
    const char *q = t;
    for (; *q >= '0' && *q <= '9'; q++) x = x * 10 + (*q - '0');
    if (*q == '.')
      for (q++; *q >= '0' && *q <= '9'; q++) {
        x = x * 10 + (*q - '0');
        scale *= 10;
      }
    if (*q == 'e') e = atoi(q + 1);
    for (; e < 0; e++) scale *= 10;
    return v_float(x / scale);
  }
  return v_int(atoi(t));
}

Value call_builtin(Session *s, const Builtin *b, const Args *a, Node *node) {
  if (in_code(s) && (b->flags & BI_SCRIPT))
    fail(s, ERR_SCRIPT_ONLY, a->call, "`%s` works in script, not in code", b->name);
  if (b->flags & BI_RAW) {
    if (!node)
      fail(s, ERR_NOT_CALLABLE, a->call, "`%s` is called by its name, it is no function value",
           b->name);
    Call raw = {.b = b, .node = node, .at = a->call};
    return b->fn(s, &raw);
  }
  Param1 p[MAX_PARAMS];
  size_t n = signature(b->signature, p), pos = 0;
  Value v[MAX_PARAMS];
  bool given[MAX_PARAMS] = {false};
  Span spans[MAX_PARAMS];
  Call c = {.b = b, .n = n, .v = v, .given = given, .spans = spans, .node = node, .at = a->call};
  c.rest = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  c.rest_names = ARENA_ARRAY(&s->scratch, Name, a->count + 1);
  c.rest_spans = ARENA_ARRAY(&s->scratch, Span, a->count + 1);
  for (size_t i = 0; i < n; i++) spans[i] = a->call;
  for (size_t i = 0; i < a->count; i++) {
    size_t k = n;
    if (a->names[i]) {
      for (k = 0; k < n; k++)
        if (strlen(a->names[i]) == p[k].name_n && !strncmp(a->names[i], p[k].name, p[k].name_n) &&
            !p[k].rest)
          break;
      if (k == n) {
        Diag *d =
            err(s, ERR_ARG_NAME, a->spans[i], "`%s` has no parameter `%s`", b->name, a->names[i]);
        dg_help(&s->diags, d, "its signature is %s%s", b->name, b->signature);
        raise_(s);
      }
      if (given[k])
        fail(s, ERR_TWICE, a->spans[i], "the argument `%s` is given twice", a->names[i]);
    } else {
      while (pos < n && p[pos].deflt && !p[pos].rest) pos++;
      if (pos < n && p[pos].rest) {
        c.rest[c.rest_n] = a->v[i];
        c.rest_names[c.rest_n] = NULL;
        c.rest_spans[c.rest_n++] = a->spans[i];
        continue;
      }
      if (pos == n) {
        Diag *d =
            err(s, ERR_ARG_COUNT, a->spans[i], "`%s` takes fewer arguments by position", b->name);
        dg_help(&s->diags, d, "its signature is %s%s; a parameter with a default is given by name",
                b->name, b->signature);
        raise_(s);
      }
      k = pos++;
    }
    v[k] = a->v[i];
    spans[k] = a->spans[i];
    given[k] = true;
  }
  bool unknown = false;
  for (size_t k = 0; k < n; k++) {
    if (!given[k] && !p[k].rest) {
      if (!p[k].deflt) {
        Diag *d = err(s, ERR_ARG_COUNT, a->call, "`%s` needs the argument `%.*s`", b->name,
                      (int)p[k].name_n, p[k].name);
        dg_help(&s->diags, d, "its signature is %s%s", b->name, b->signature);
        raise_(s);
      }
      v[k] = default_value(s, &p[k]);
    }
    if (!p[k].rest && v[k].tag == V_UNKNOWN) unknown = true;
  }
  for (size_t i = 0; i < c.rest_n; i++) unknown |= c.rest[i].tag == V_UNKNOWN;
  if (unknown && !s->abstract) return (Value){.tag = V_UNKNOWN};
  if (s->abstract && (unknown || (b->flags & BI_SCRIPT) || abstract_only(s, &c))) return abstract_builtin(s, b, &c);
  if (unknown && s->stage && s->stage->unit && s->stage->unit->check && strcmp(b->name, "list")) return (Value){.tag = V_UNKNOWN};
  return b->fn(s, &c);
}
