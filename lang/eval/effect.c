/* print and assert, in script and in code (rules 53, 97, 98).
 *
 * In: a call of `print`, or the operands of an assertion. Out: text for the host, or an error. In
 * code the text becomes a template, an attribute of the node, with a hole for each value that is
 * known at run time; nodes are ordered by the unit's token. In a template, `{}` is a value,
 * `{:format}` a value by a format, `{=}` a tensor as a table, `{~}` a value inside of another,
 * `{0}` a NUL byte; `{{` `}}` are braces; `{.}` at its end: no newline follows. `{#n ..}` are n
 * columns of a dict (see put_columns).
 * Invariant: the same program prints the same in script and in code.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/effect.h"
#include "lang/eval/eval.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/rows.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/tape/callback.h"
#include "lang/tape/host_function.h"
#include "lang/value/columns.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"
#include "lang/value/log.h"

/* ---- templates */

typedef struct Template {
  Session *s;
  Buf text;  /* finished */
  Buf plain; /* text not yet escaped */
  Value *ops;
  size_t count, cap;
} Template;

static void template_init(Template *t, Session *s) {
  *t = (Template){.s = s};
  buf_init_arena(&t->text, &s->scratch);
  buf_init_arena(&t->plain, &s->scratch);
}

static void flush(Template *t) {
  for (size_t i = 0; i < t->plain.n; i++) {
    char c = t->plain.s[i];
    if (c == '{' || c == '}') buf_putc(&t->text, c);
    if (c)
      buf_putc(&t->text, c);
    else
      buf_puts(&t->text, "{0}");
  }
  t->plain.n = 0;
}

static void operand(Template *t, Value v) {
  VEC_PUSH(&t->s->scratch, t->ops, t->count, t->cap, v);
}

static void hole(const Print *p, Value v) {
  Template *t = p->ud;
  Session *s = p->s;
  DType dt = v.tag == V_DIM ? DT_I64 : (DType)op_type_of(s, v).dtype;
  const char *why = format_misfit(p->f, dt);
  if (why)
    fail_at(s, ERR_FORMAT, p->at, "the format does not go with %s: %s", value_type_text(s, v), why);
  flush(t);
  buf_puts(&t->text, p->inside ? "{~" : "{");
  if (p->f) buf_putc(&t->text, ':');
  if (p->f) format_write(&t->text, p->f);
  buf_putc(&t->text, '}');
  operand(t, v);
}

/* Texts with their lengths before them. */
static void put_counted(Buf *out, const char *text) {
  buf_printf(out, "%zu:%s", strlen(text), text);
}

/* For each column its key, then `=` for an operand, or the number of texts, that of the empty ones,
 * and those texts that may be shown. */
static void put_columns(Template *t, const Column *c, size_t n) {
  flush(t);
  buf_printf(&t->text, "{#%zu ", n);
  for (size_t i = 0; i < n; i++) {
    put_counted(&t->text, c[i].key);
    if (!c[i].texts) {
      buf_putc(&t->text, '=');
      operand(t, c[i].v);
      continue;
    }
    buf_printf(&t->text, "%zu:%lld:", c[i].count, (long long)c[i].empty);
    for (size_t k = 0; k < c[i].count && k < PRINT_INLINE_MOST; k++)
      put_counted(&t->text, c[i].texts[k]);
  }
  buf_putc(&t->text, '}');
}

/* Puts v into the text; with `whole`, a tensor or a dict of columns without a format becomes a
 * table. */
static void put(Template *t, Value v, const Format *f, Span at, bool quoted, bool whole) {
  if (v.tag == V_ROWS) rows_refuse(t->s, at);
  v = print_definite(t->s, v, at);
  if (whole && !f && v_is_tensor(v)) {
    flush(t);
    buf_puts(&t->text, "{=}");
    operand(t, v);
    return;
  }
  size_t n;
  const Column *columns = whole && !f ? columns_of(t->s, v, &n, at) : NULL;
  if (columns) {
    put_columns(t, columns, n);
    return;
  }
  Print p = {.s = t->s, .out = &t->plain, .f = f, .at = at, .hole = hole, .ud = t};
  print_inline(&p, v, quoted);
}

static void append(Session *s, OpCode op, const Val *cond, Template *t, Span at) {
  Unit *u = s->stage->unit;
  if (!u || !stage_in_order(s->stage))
    fail_help(s, ERR_NOT_YET, at, "a `for` loop prints and asserts in order",
              "not yet: `%s` inside a comprehension or a function with a backward of its own",
              op == OP_PRINT ? "print" : "assert");
  if (u->check) return;
  flush(t);
  Graph *g = s->stage->g;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Val *in = ARENA_ARRAY(&s->scratch, Val, t->count + 3);
  int n = 1;
  if (cond) in[n++] = *cond;
  for (size_t i = 0; i < t->count; i++) in[n++] = stage_lift(s, t->ops[i], at).u.v;
  stage_at(s, at);
  in[0] = stage_token(s, at);
  Attr text = attr_text(AT_TEXT, names_get(s->names, t->text.s, t->text.n));
  Val r = gr_op(g, op, in, n, &text, 1, NULL, 0, &e);
  if (val_none(r)) fail_gerr(s, at, &e);
  u->token = r;
}

/* ---- print */

/* Puts a string, whose holes may have run-time values. False: some value is V_UNKNOWN. */
static bool put_string(Session *s, Template *t, Buf *out, Node *str) {
  bool known = true;
  for (uint32_t i = 0; i < str->string.count; i++) {
    StrPart *p = &str->string.items[i];
    if (!p->hole) {
      buf_put(out ? out : &t->plain, p->text, p->length);
      continue;
    }
    const Format *f = p->has_format ? &p->format : NULL;
    Value v = eval_expr(s, p->hole);
    if (s->flow != FLOW_NEXT) return false;
    if (v.tag == V_UNKNOWN) {
      known = false;
      continue;
    }
    if (out)
      format_value(s, out, v, f, p->span);
    else
      put(t, v, f, p->span, false, false);
  }
  return known;
}

/* `end = ".."`, the one named argument of `print`. */
static Value print_end(Session *s, Node *a) {
  if (strcmp(a->arg.name.name, "end"))
    fail_help(s, ERR_ARG_NAME, a->arg.name.span, "\"{x:.3f}\" formats a value",
              "`print` has no parameter `%s`", a->arg.name.name);
  Value v = eval_expr(s, a->arg.value);
  if (s->flow == FLOW_NEXT && v.tag != V_UNKNOWN) want_str(s, v, a->arg.value->span, "`end`");
  return v;
}

BUILTIN_FN(bi_print) {
  NodeList *args = &c->node->call.args;
  bool code = s->stage != NULL; /* `check` too: there the template is thrown away */
  Template t;
  Buf out;
  template_init(&t, s);
  buf_init_arena(&out, &s->scratch);
  bool known = true;
  size_t n = c->n + args->count, seen = 0, values = n;
  Value end = v_unit();
  for (uint32_t i = 0; i < args->count; i++) values -= args->items[i]->arg.name.name != NULL;
  for (size_t k = 0; k < n; k++) {
    Value v;
    Span at = c->at;
    if (k < c->n) { /* x.print() */
      v = c->v[k];
      seen++;
    } else {
      Node *a = args->items[k - c->n];
      at = a->arg.value->span;
      if (a->arg.name.name) {
        end = print_end(s, a);
        if (s->flow != FLOW_NEXT) return v_unit();
        known &= end.tag != V_UNKNOWN;
        continue;
      }
      if (seen++) buf_putc(code ? &t.plain : &out, ' ');
      if (a->arg.value->kind == N_STRING) {
        if (!put_string(s, &t, code ? NULL : &out, a->arg.value)) known = false;
        if (s->flow != FLOW_NEXT) return v_unit();
        continue;
      }
      v = eval_expr(s, a->arg.value);
      if (s->flow != FLOW_NEXT) return v_unit();
    }
    if (v.tag == V_UNKNOWN)
      known = false;
    else if (code)
      put(&t, v, NULL, at, false, values == 1);
    else if (values == 1)
      print_value(s, &out, v, false);
    else
      format_value(s, &out, v, NULL, at);
  }
  if (s->abstract || !known) return v_unit();
  Buf *last = code ? &t.plain : &out;
  if (end.tag == V_STR) buf_put(last, end.u.str->s, end.u.str->n);
  if (code) {
    flush(&t);
    if (end.tag == V_STR) buf_puts(&t.text, "{.}");
    append(s, OP_PRINT, NULL, &t, c->at);
  } else {
    if (end.tag != V_STR) buf_putc(&out, '\n');
    log_write(s, 1, out.s, out.n);
  }
  return v_unit();
}

/* ---- assert in code */

void effect_assert(Session *s, Value cond, const Value *left, const Value *right, Span at) {
  Template t;
  template_init(&t, s);
  const char *library = fail_library_text(s, at);
  if (library) buf_printf(&t.plain, "`%s`%s", library, left && right ? ", " : "");
  if (left && right) {
    buf_puts(&t.plain, "the left side is ");
    put(&t, *left, NULL, at, true, false);
    buf_puts(&t.plain, ", the right side ");
    put(&t, *right, NULL, at, true, false);
  }
  Val v = stage_lift(s, cond, at).u.v;
  append(s, OP_ASSERT, &v, &t, at);
}

/* ---- at run time */

static size_t get_number(const char **p) {
  size_t n = 0;
  while (**p >= '0' && **p <= '9') n = n * 10 + (size_t)(*(*p)++ - '0');
  ++*p; /* what ends it */
  return n;
}

static const char *get_counted(Session *s, const char **p) {
  size_t n = get_number(p);
  const char *text = arena_strdup(&s->scratch, *p, n);
  *p += n;
  return text;
}

/* What put_columns wrote, from the number on; what follows it. */
static const char *get_columns(Session *s, Buf *out, const char *p, Tensor *const *in, int *k) {
  size_t n = get_number(&p);
  Column *c = ARENA_ARRAY(&s->scratch, Column, n);
  for (size_t i = 0; i < n; i++) {
    c[i].key = get_counted(s, &p);
    if (*p == '=') {
      c[i].t = in[(*k)++];
      p++;
      continue;
    }
    c[i].count = get_number(&p);
    c[i].empty = (int64_t)get_number(&p);
    size_t kept = c[i].count < PRINT_INLINE_MOST ? c[i].count : PRINT_INLINE_MOST;
    const char **texts = ARENA_ARRAY(&s->scratch, const char *, kept);
    for (size_t j = 0; j < kept; j++) texts[j] = get_counted(s, &p);
    c[i].texts = texts;
  }
  if (columns_show(s, out, c, n)) out->n--; /* the last newline */
  return p;
}

/* Fills the holes of a template with tensors. False: no newline follows. */
static bool render(Session *s, Buf *out, const char *text, Tensor *const *in, int n) {
  int k = 0;
  for (const char *p = text; *p; p++) {
    if ((*p == '{' || *p == '}') && p[1] == *p) {
      buf_putc(out, *p++);
      continue;
    }
    if (*p != '{') {
      buf_putc(out, *p);
      continue;
    }
    if (p[1] == '#') {
      p = get_columns(s, out, p + 2, in, &k);
      continue;
    }
    const char *end = strchr(p, '}');
    if (!end) break;
    if (p[1] == '.') {
      return false;
    } else if (p[1] == '0') {
      buf_putc(out, 0);
    } else if (k < n) {
      const Tensor *t = in[k++];
      const char *q = p + 1;
      bool inside = *q == '~', whole = *q == '=';
      Format f;
      if (inside || whole) q++;
      bool has = *q == ':' && format_parse(q + 1, (size_t)(end - q - 1), &f);
      if (whole && t->rank)
        print_typed(s, out, t);
      else
        print_line(out, t, has ? &f : NULL, inside);
    }
    p = end;
  }
  return true;
}

bool effect_run(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                GErr *e) {
  Session *s = ud;
  const GNode *nd = &g->nodes[node];
  const Attr *a = gr_attr(g, node, AT_TEXT);
  const char *text = a && a->kind == AK_TEXT ? a->u.text : "";
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (int i = 0; i < nd->result_count; i++) out[i] = NULL;
  switch ((OpCode)nd->op) {
  case OP_DEFER: return host_no_gradient(g, node, e);
  case OP_CALL: return host_function_run(s, g, node, in, out, e);
  case OP_PRINT:
    if (render(s, &b, text, in + 1, n - 1)) buf_putc(&b, '\n');
    log_write(s, 1, b.s, b.n);
    return true;
  case OP_ASSERT: {
    int64_t count = tn_count(in[1]);
    for (int64_t i = 0; i < count; i++) {
      if (tn_get_i64(in[1], i)) continue;
      render(s, &b, text, in + 2, n - 2);
      return gerr_set(e, ERR_ASSERT, 1, "the assertion does not hold%s%s", b.n ? ": " : "",
                      b.n ? b.s : "");
    }
    return true;
  }
  default: return gerr_set(e, ERR_NOT_YET, -1, "not yet: `%s`", op_info[nd->op].text);
  }
}

/* ---- the statement `assert` */

static const char *operands_text(Session *s, Value a, Value b) {
  Buf t;
  buf_init_arena(&t, &s->scratch);
  buf_puts(&t, "the left side is ");
  print_value(s, &t, a, true);
  buf_puts(&t, ", the right side ");
  print_value(s, &t, b, true);
  return t.s;
}

/* `assert d % heads == 0` is also a fact for dims (rule 23). */
static void assume(Session *s, const Node *c, Value x, Value y) {
  if ((x.tag == V_DIM || x.tag == V_INT) && (y.tag == V_DIM || y.tag == V_INT))
    dim_assume_divides(op_dims_of(s), type_dim_of(s, x, c->span, "a size"),
                       type_dim_of(s, y, c->span, "a size"));
}

static Value binary_value(Session *s, const Node *e, Value a, Value b) {
  return op_binary(s, e->binary.op, a, b, e->span, e->binary.left->span, e->binary.right->span);
}

void eval_assert(Session *s, Node *st) {
  Node *c = st->expr;
  Value a = v_unit(), b = v_unit(), x = v_unit(), y = v_unit(), v;
  bool cmp = c->kind == N_BINARY && c->binary.op >= AST_LT && c->binary.op <= AST_NE;
  if (cmp) {
    Node *l = c->binary.left;
    bool divides = c->binary.op == AST_EQ && l->kind == N_BINARY && l->binary.op == AST_MOD;
    if (divides) {
      Value of[2];
      eval_pair(s, l->binary.left, l->binary.right, of);
      x = of[0];
      y = of[1];
      a = binary_value(s, l, x, y);
      b = eval_expr(s, c->binary.right);
    } else {
      Value of[2];
      eval_pair(s, l, c->binary.right, of);
      a = of[0];
      b = of[1];
    }
    if (s->stage && s->stage->unit && s->stage->unit->check && (a.tag == V_DIM || b.tag == V_DIM)) {
      assume(s, c, x, y); /* the sizes of a call decide the condition */
      return;
    }
    v = binary_value(s, c, a, b);
  } else {
    v = eval_expr(s, c);
  }
  if (v.tag == V_UNKNOWN || (s->abstract && (v.tag == V_BOOL || v_is_tensor(v)))) return;
  if (v.tag == V_NODE && op_type_of(s, v).dtype == DT_BOOL) {
    Type t = op_type_of(s, v);
    int64_t axes[CKL_MAX_RANK];
    for (int i = 0; i < t.rank; i++) axes[i] = i;
    if (t.rank) v = op_reduce(s, OP_ALL, v, t.rank, axes, false, c->span);
    effect_assert(s, v, cmp ? &a : NULL, cmp ? &b : NULL, c->span);
    return;
  }
  bool ok;
  if (v.tag == V_BOOL)
    ok = v.u.i != 0;
  else if (v.tag == V_TENSOR && v.u.t->t->dtype == DT_BOOL) {
    ok = true;
    for (int64_t i = 0, n = tn_count(v.u.t->t); i < n && ok; i++) ok = tn_get_i64(v.u.t->t, i) != 0;
  } else
    fail_at(s, ERR_WANT_BOOL, c->span, "`assert` takes a bool, this is %s", value_type_text(s, v));
  if (ok) {
    if (s->stage) assume(s, c, x, y);
    return;
  }
  const char *library = fail_library_text(s, c->span); /* which no message shows */
  if (library)
    fail_at(s, ERR_ASSERT, c->span, "`%s` does not hold%s%s", library, cmp ? ": " : "",
            cmp ? operands_text(s, a, b) : "");
  Diag *d = fail_report(s, ERR_ASSERT, c->span, "the assertion does not hold");
  if (cmp) dg_label(&s->diags, d, c->span, "%s", operands_text(s, a, b));
  fail_raise(s);
}
