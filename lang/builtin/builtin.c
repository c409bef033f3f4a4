/* The table of builtins and the binding of their arguments.
 *
 * In: a call's arguments. Out: values by parameter. Idea: when a session starts, each signature's
 * text is read once, and names are interned; from then on names are found and compared by address.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/eval.h"
#include "lang/eval/steps.h"
#include "lang/value/fail.h"
#include "lang/value/tree.h"

#define BUILTIN(name, sig, fn, flags, op, doc) {name, sig, doc, fn, flags, op},
const Builtin builtin_table[] = {
#define CONSTANT(name, number, doc) BUILTIN(name, "", NULL, 0, number, doc)
#include "lang/builtin/builtins.def"
};
#undef BUILTIN
#undef CONSTANT
const size_t builtin_count = sizeof builtin_table / sizeof *builtin_table;

Value builtin_constant(Session *s, const Builtin *b) {
  (void)s;
  switch (b->op) {
  case 0: return v_none();
  case 1: return v_float(INFINITY);
  case 2: return v_float(NAN);
  default: return v_float(3.14159265358979323846);
  }
}

/* ---- signatures */

enum { MAX_PARAMS = 8, SLOTS = 512 }; /* more than twice the builtins, a power of two */

struct BuiltinTab {
  BuiltinSig *sig;            /* by index in builtin_table */
  const Builtin *slot[SLOTS]; /* by address of the interned name, open addressing */
  Name name[SLOTS];
};

static size_t slot_of(const BuiltinTab *t, Name name) {
  size_t i = (size_t)((uint64_t)(uintptr_t)name * UINT64_C(0x9e3779b97f4a7c15) >> 40) % SLOTS;
  while (t->slot[i] && t->name[i] != name) i = (i + 1) % SLOTS;
  return i;
}

/* A default of the table: a word, a text, a dtype, or a short decimal. */
static void read_default(BuiltinParam *p, const char *from, size_t len) {
  char t[32];
  size_t n = len < 31 ? len : 31;
  memcpy(t, from, n);
  t[n] = 0;
  int dt = dtype_find(t);
  if (!strcmp(t, "none")) {
    p->deflt = v_none();
  } else if (!strcmp(t, "true") || !strcmp(t, "false")) {
    p->deflt = v_bool(t[0] == 't');
  } else if (t[0] == '"') {
    p->text = from + 1;
    p->text_n = len - 2;
  } else if (dt >= 0) {
    p->deflt = (Value){.tag = V_DTYPE, .u.i = dt};
  } else if (strpbrk(t, ".e")) { /* digits are read by hand, without the locale */
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
    p->deflt = v_float(x / scale);
  } else {
    p->deflt = v_int(atoi(t));
  }
}

static void read_signature(Session *s, const char *sig, BuiltinSig *out) {
  BuiltinParam par[MAX_PARAMS];
  const char *p = sig + (*sig == '(');
  while (*p && *p != ')' && out->count < MAX_PARAMS) {
    size_t n = strcspn(p, " ,.=)");
    BuiltinParam q = {.name = names_get(s->names, p, n), .deflt = v_unit()};
    p += n;
    if (!strncmp(p, "...", 3)) {
      q.rest = true;
      out->open |= n == 5 && !strcmp(q.name, "sizes");
      p += 3;
    }
    p += strspn(p, " ");
    if (*p == '=') {
      p++;
      p += strspn(p, " ");
      n = strcspn(p, ",)");
      q.optional = true;
      read_default(&q, p, n);
      p += n;
    }
    p += strspn(p, " ,");
    par[out->count++] = q;
  }
  out->par = ARENA_ARRAY(&s->perm, BuiltinParam, out->count + 1);
  if (out->count) memcpy(out->par, par, out->count * sizeof *par);
}

void builtin_start(Session *s) {
  BuiltinTab *t = ARENA_NEW(&s->perm, BuiltinTab);
  t->sig = ARENA_ARRAY(&s->perm, BuiltinSig, builtin_count);
  for (size_t i = 0; i < builtin_count; i++) {
    Name name = names_of(s->names, builtin_table[i].name);
    size_t at = slot_of(t, name);
    t->slot[at] = &builtin_table[i];
    t->name[at] = name;
    read_signature(s, builtin_table[i].signature, &t->sig[i]);
  }
  s->builtins = t;
}

const Builtin *builtin_find(Session *s, Name name) {
  return s->builtins->slot[slot_of(s->builtins, name)];
}

const BuiltinSig *builtin_sig(const Session *s, const Builtin *b) {
  return &s->builtins->sig[b - builtin_table];
}

/* ---- calls */

static void refuse_code(Session *s, const Builtin *b, Span at) {
  fail_help(s, ERR_SCRIPT_ONLY, at, "call it at the top level or in a proc",
            "`%s` works in script, not in code", b->name + (b->name[0] == '_'));
}

Value builtin_call(Session *s, const Builtin *b, const Args *a, Node *node) {
  if (!a->own) count_step(s, a->call); /* else it was, since from now on nothing may fail */
  bool script_only = in_code(s) && (b->flags & BI_SCRIPT);
  if (script_only && !(b->flags & BI_TEXT)) refuse_code(s, b, a->call);
  for (size_t i = 0; i < a->count && !(b->flags & BI_DEEP); i++)
    value_bound(s, a->v[i], a->spans[i]);
  if (b->flags & BI_RAW) {
    if (!node)
      fail_at(s, ERR_NOT_CALLABLE, a->call, "`%s` is called by its name, it is no function value",
              b->name);
    Call raw = {.b = b, .node = node, .at = a->call};
    return b->fn(s, &raw);
  }
  const BuiltinSig *sig = builtin_sig(s, b);
  const BuiltinParam *p = sig->par;
  size_t n = sig->count, pos = 0;
  Value v[MAX_PARAMS] = {{0}};
  bool given[MAX_PARAMS] = {false};
  Span spans[MAX_PARAMS];
  Call c = {.b = b, .n = n, .v = v, .given = given, .spans = spans, .node = node, .at = a->call};
  c.own = a->own;
  c.rest = ARENA_ARRAY(&s->scratch, Value, a->count + 1);
  c.rest_names = ARENA_ARRAY(&s->scratch, Name, a->count + 1);
  c.rest_spans = ARENA_ARRAY(&s->scratch, Span, a->count + 1);
  for (size_t i = 0; i < n; i++) spans[i] = a->call;
  for (size_t i = 0; i < a->count; i++) {
    size_t k = 0;
    if (a->names[i]) {
      for (; k < n && (p[k].name != a->names[i] || p[k].rest);) k++;
      if (k == n) {
        Diag *d = fail_report(s, ERR_ARG_NAME, a->spans[i], "`%s` has no parameter `%s`", b->name,
                              a->names[i]);
        dg_help(&s->diags, d, "its signature is %s%s", b->name, b->signature);
        fail_raise(s);
      }
      if (given[k])
        fail_at(s, ERR_TWICE, a->spans[i], "the argument `%s` is given twice", a->names[i]);
    } else {
      while (pos < n && p[pos].optional && !p[pos].rest) pos++;
      if (pos < n && p[pos].rest) {
        c.rest[c.rest_n] = a->v[i];
        c.rest_names[c.rest_n] = NULL;
        c.rest_spans[c.rest_n++] = a->spans[i];
        continue;
      }
      if (pos == n) {
        Diag *d = fail_report(s, ERR_ARG_COUNT, a->spans[i],
                              "`%s` takes fewer arguments by position", b->name);
        dg_help(&s->diags, d, "its signature is %s%s; a parameter with a default is given by name",
                b->name, b->signature);
        fail_raise(s);
      }
      k = pos++;
    }
    v[k] = a->v[i];
    spans[k] = a->spans[i];
    given[k] = true;
  }
  if (script_only && v[0].tag != V_STR) refuse_code(s, b, a->call);
  bool unknown = false;
  for (size_t k = 0; k < n; k++) {
    if (!given[k] && !p[k].rest) {
      if (!p[k].optional) {
        Diag *d = fail_report(s, ERR_ARG_COUNT, a->call, "`%s` needs the argument `%s`", b->name,
                              p[k].name);
        dg_help(&s->diags, d, "its signature is %s%s", b->name, b->signature);
        fail_raise(s);
      }
      v[k] = p[k].text ? v_str(s, p[k].text, p[k].text_n) : p[k].deflt;
    }
    if (!p[k].rest) unknown |= b->flags & BI_LEAVES ? !tree_known(s, v[k]) : v[k].tag == V_UNKNOWN;
  }
  for (size_t i = 0; i < c.rest_n; i++) unknown |= c.rest[i].tag == V_UNKNOWN;
  if (unknown && !s->abstract) return (Value){.tag = V_UNKNOWN};
  if (s->abstract && (unknown || (b->flags & (BI_SCRIPT | BI_SEQ)) || abstract_only(s, &c)))
    return abstract_builtin(s, b, &c);
  bool checked = s->stage && s->stage->unit && s->stage->unit->check;
  if (unknown && checked && strcmp(b->name, "list")) return (Value){.tag = V_UNKNOWN};
  return b->fn(s, &c);
}

size_t arg_raw(Session *s, Call *c, Node **out, size_t most, const char *const *names) {
  Node *call = c->node, *callee = call->call.callee;
  size_t n = 0;
  memset(out, 0, most * sizeof *out);
  if (callee->kind == N_DOT &&
      !(callee->dot.object->kind == N_NAME &&
        bind_name_value(s, callee->dot.object->name, callee->dot.object->span, false).tag ==
            V_MODULE))
    out[n++] = callee->dot.object;
  for (uint32_t i = 0; i < call->call.args.count; i++) {
    Node *a = call->call.args.items[i];
    size_t k = n;
    if (a->arg.name.name) {
      for (k = 0; k < most; k++)
        if (!strcmp(names[k], a->arg.name.name)) break;
      if (k == most)
        fail_help(s, ERR_ARG_NAME, a->span,
                  fail_text(s, "its signature is %s%s", c->b->name, c->b->signature),
                  "`%s` has no parameter `%s`", c->b->name, a->arg.name.name);
    } else
      n++;
    const BuiltinSig *sig = builtin_sig(s, c->b);
    if (!a->arg.name.name && k < sig->count && sig->par[k].optional)
      fail_help(
          s, ERR_ARG_COUNT, a->span,
          fail_text(s, "a parameter with a default is given by name: `%s = ..`", sig->par[k].name),
          "`%s` takes %zu argument%s by position", c->b->name, k, k == 1 ? "" : "s");
    if (k >= most) fail_at(s, ERR_ARG_COUNT, a->span, "`%s` takes fewer arguments", c->b->name);
    if (out[k]) fail_at(s, ERR_TWICE, a->span, "the argument `%s` is given twice", names[k]);
    out[k] = a->arg.value;
  }
  return n;
}

Value arg_raw_ref(Session *s, Node *n) {
  bool old = s->by_reference;
  s->by_reference = true;
  Value v = eval_expr(s, n);
  s->by_reference = old;
  return v;
}
