/* The values of names: locals, variables of the file, captures of function literals, patterns.
 *
 * In: names, values, patterns. Out: values on the pool, new locals. A name is looked up in the
 * order of rule 1. The value read from a `var` goes on the pool, so that an assignment in the same
 * statement does not free it.
 */
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/index.h"
#include "lang/eval/model.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/names/free_names.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"

/* ---- locals */

void local_room(Session *s) {
  size_t cap = s->local_cap ? s->local_cap * 2 : 64;
  s->locals = mem_need(&s->mem, s->locals, s->local_cap * sizeof(Local), cap * sizeof(Local));
  s->local_cap = cap;
}

/* ---- names */

static Value method_value(Session *s, Inst *self, Node *fn, ModelDecl *m) {
  return v_fn(s, fn, m->module, self, m, !fn->fn->is_proc, 0, NULL);
}

bool model_get(Session *s, Inst *i, Name name, Span at, Value *out) {
  Field *f = model_field(i, name);
  if (f) {
    *out = f->kind == FIELD_PARAM || f->kind == FIELD_BUFFER ? state_read(s, i, f, at)
                                                             : state_field_value(s, i, f);
    return true;
  }
  Node *m = model_method(s, i->model, name);
  if (!m) return false;
  *out = method_value(s, i, m, i->model);
  return true;
}

/* Whether a caller of the present function is in another file. */
static bool called_from_outside(const Session *s) {
  for (const Frame *f = s->frame; f; f = f->up)
    if (f->module != s->frame->module) return true;
  return false;
}

static _Noreturn void no_variable(Session *s, const Global *g, Span at) {
  Diag *d =
      fail_report(s, ERR_MODULE_VAR, at,
                  "`%s` is a top-level variable, which a file that is used does not have", g->name);
  dg_label(&s->diags, d, g->span, "declared here");
  dg_help(&s->diags, d,
          "pass it as an argument; a `let` of a constant expression is a declaration");
  fail_raise(s);
}

Value bind_global_value(Session *s, Global *g, Span at) {
  switch (g->kind) {
  case G_VALUE:
    if (!g->is_set && g->module != s->main && called_from_outside(s)) no_variable(s, g, at);
    if (!g->is_set && s->frame->fn && s->stage && s->stage->unit && s->stage->unit->check)
      return (Value){.tag = V_UNKNOWN}; /* functions are checked before the file runs */
    if (!g->is_set && s->abstract && s->frame->test) return (Value){.tag = V_UNKNOWN};
    if (!g->is_set) {
      Diag *d = fail_report(s, ERR_UNSET, at, "`%s` has no value yet: its `%s` stands below",
                            g->name, g->is_var ? "var" : "let");
      dg_label(&s->diags, d, g->span, "declared here");
      fail_raise(s);
    }
    if (s->frame->code) {
      if (g->is_var) {
        Diag *d =
            fail_report(s, ERR_CODE_VAR, at, "code cannot read the top-level `var` `%s`", g->name);
        dg_label(&s->diags, d, g->span, "declared here");
        dg_help(&s->diags, d, "pass it as an argument, or declare it with `let`");
        fail_raise(s);
      }
      if (in_code(s)) return unit_global_in_code(s, g, at);
    }
    if (s->abstract && g->moves) return (Value){.tag = V_UNKNOWN};
    return g->is_var ? value_pool(s, g->v) : g->v;
  case G_TYPE: fail_at(s, ERR_NOT_VALUE, at, "`%s` is a type, not a value", g->name);
  case G_POLICY: return policy_value(s, g->decl, g->module, 0, NULL);
  default: return g->v;
  }
}

Value bind_name_value(Session *s, Name name, Span at, bool must) {
  Local *l = local_find(s, name);
  if (l) return l->is_var ? value_pool(s, l->v) : l->v;
  Value v;
  if (s->frame->self && model_get(s, s->frame->self, name, at, &v)) return v;
  Global *g = global_find(s, s->frame->module, name);
  if (g) return bind_global_value(s, g, at);
  const Builtin *b = module_builtin(s, s->frame->module, name);
  if (b) return b->fn ? (Value){.tag = V_BUILTIN, .u.builtin = b} : builtin_constant(s, b);
  int dt = dtype_find(name);
  if (dt >= 0) return (Value){.tag = V_DTYPE, .u.i = dt};
  if (!must) return (Value){.tag = V_UNKNOWN};
  Diag *d = fail_report(s, ERR_UNKNOWN_NAME, at, "`%s` is not known here", name);
  help_meant(s, d, name, fail_suggest(s, name));
  fail_raise(s);
}

/* ---- function literals */

/* The locals that n's body mentions, on the scratch arena. */
static Local *capture(Session *s, Node *n, bool vars_too, size_t *count) {
  const FreeNames *f = free_names(s, n, false);
  Local *c = ARENA_ARRAY(&s->scratch, Local, f->count + 1);
  size_t k = 0;
  for (size_t i = 0; i < f->count; i++) {
    Local *l = local_find(s, f->items[i]);
    if (!l) { /* a literal at the top level captures the present `let`s there */
      Global *g = s->frame->fn ? NULL : global_find(s, s->frame->module, f->items[i]);
      if (g && g->kind == G_VALUE && g->is_set && !g->is_var && !g->is_const)
        c[k++] = (Local){g->name, g->v, false, g->span};
      continue;
    }
    if (l->is_var && !vars_too) {
      Diag *d = fail_report(s, ERR_CAPTURE_VAR, n->span,
                            "a function cannot capture the local `var` `%s`", l->name);
      dg_label(&s->diags, d, l->span, "declared here");
      dg_help(&s->diags, d, "copy it to a `let` first: `let now = %s`", l->name);
      fail_raise(s);
    }
    c[k] = *l;
    c[k++].is_var = false;
  }
  *count = k;
  return c;
}

Value closure_of_fn(Session *s, Node *n, bool is_code, bool vars_too) {
  size_t k;
  Local *c = capture(s, n, vars_too, &k);
  return v_fn(s, n, s->frame->module, s->frame->self, s->frame->model, is_code, k, c);
}

Value closure_of_body(Session *s, Node *lambda, bool is_code) {
  return closure_of_fn(s, lambda, is_code, true);
}

Value closure_of_capsule(Session *s, Node *n) {
  const FreeNames *f = free_names(s, n, true);
  Local *c = ARENA_ARRAY(&s->scratch, Local, f->count + 1);
  size_t k = 0;
  for (size_t i = 0; i < f->count; i++) {
    Name name = f->items[i];
    Local *l = local_find(s, name);
    if (l) {
      c[k++] = *l;
      continue;
    }
    if (s->frame->self &&
        (model_field(s->frame->self, name) || model_method(s, s->frame->self->model, name)))
      continue;
    Global *g = global_find(s, s->frame->module, name);
    if (g && g->kind == G_VALUE && g->is_set && !g->is_const && (g->is_var || !s->frame->fn))
      c[k++] = (Local){g->name, g->v, g->is_var, g->span};
  }
  return v_fn(s, n, s->frame->module, s->frame->self, s->frame->model, true, k, c);
}

/* ---- patterns */

static void bind_name(Session *s, const Word *w, Value v, bool is_var) {
  if (s->frame->model && s->frame->self) name_check_shadow(s, w);
  if (s->frame->block_depth == 0 && !s->frame->fn && !s->frame->test) {
    global_set(s, s->frame->module, w->name, v, is_var, w->span);
    return;
  }
  local_push(s, w->name, v, is_var, w->span);
}

/* Weak tensors become definite when they get a name (rule 14). */
Value bind_made_definite(Session *s, Value v, Span at) {
  if (v_is_weak_list(v)) return op_as_tensor(s, v, DT_COUNT, at);
  return v;
}

static APART void bind_parts(Session *s, Node *pat, Value v, bool is_var) {
  stack_check();
  switch (pat->kind) {
  case N_PAT_TUPLE: {
    size_t n = pat->list.count;
    if (v.tag == V_UNKNOWN) {
      for (size_t i = 0; i < n; i++) bind_pattern(s, pat->list.items[i], v, is_var);
      return;
    }
    if (v.tag == V_TUPLE || v.tag == V_LIST) {
      if (v.u.list->count != n)
        fail_at(s, ERR_PATTERN, pat->span, "the pattern takes %zu values apart, the value has %zu",
                n, v.u.list->count);
      for (size_t i = 0; i < n; i++)
        bind_pattern(s, pat->list.items[i], v.u.list->items[i], is_var);
      return;
    }
    if (v_is_tensor(v)) {
      Type t = op_type_of(s, v);
      if (t.rank == 0) fail_at(s, ERR_PATTERN, pat->span, "a rank-0 tensor cannot be taken apart");
      Dim want = dim_const(op_dims_of(s), (int64_t)n);
      if (t.dim[0] != want) {
        if (dim_compare(op_dims_of(s), t.dim[0], want) == DIM_MAYBE && s->stage)
          gr_check(s->stage->g, CHECK_EQ, t.dim[0], want,
                   "the pattern and the leading axis differ");
        else
          fail_at(s, ERR_PATTERN, pat->span, "the pattern takes %zu values apart, the value is %s",
                  n, value_type_text(s, v));
      }
      for (size_t i = 0; i < n; i++) {
        Value x = op_element(s, v, (int64_t)i, pat->span);
        name_result(s, pat->list.items[i], x);
        bind_pattern(s, pat->list.items[i], x, is_var);
      }
      return;
    }
    fail_at(s, ERR_PATTERN, pat->span, "the pattern takes a tuple apart, the value is %s",
            value_type_text(s, v));
  }
  case N_PAT_RECORD:
    if (v.tag != V_RECORD && v.tag != V_UNKNOWN)
      fail_at(s, ERR_PATTERN, pat->span, "the pattern takes a record apart, the value is %s",
              value_type_text(s, v));
    for (uint32_t i = 0; i < pat->list.count; i++) {
      Node *p = pat->list.items[i];
      if (v.tag == V_UNKNOWN) {
        bind_pattern(s, p, v, is_var);
        continue;
      }
      const Value *f = value_record_get(v.u.rec, p->word.name);
      if (!f)
        fail_at(s, ERR_NO_FIELD, p->span, "the record has no field `%s`: it is %s", p->word.name,
                value_type_text(s, v));
      bind_pattern(s, p, *f, is_var);
    }
    return;
  default: fail_at(s, ERR_BUG, pat->span, "pattern of kind %d", pat->kind);
  }
}

void bind_pattern(Session *s, Node *pat, Value v, bool is_var) {
  if (pat->kind == N_PAT_NAME)
    bind_name(s, &pat->word, bind_made_definite(s, v, pat->span), is_var);
  else if (pat->kind != N_PAT_WILD)
    bind_parts(s, pat, v, is_var);
}
