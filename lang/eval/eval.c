/* The evaluator: walks expressions and statements of script and of code.
 *
 * In: a tree and the session's present frame, stage and modes. Out: a Value on the pool. ops.c
 * decides what a tensor operation does. Invariants: locals above a block's entry are popped at its
 * end, also after a throw (the function that protects restores local_count); the pool is drained
 * after each statement, so temporaries live as long as the statement that made them; those of a
 * condition or of the source of a loop until the body begins, which may change in place what they
 * read. A value read from a `var` or a buffer goes on the pool, since the statement may assign it;
 * operands.c holds the values of params. Other values need no hold: the scope of a `let` or the
 * pool keeps them.
 */
#include <math.h>
#include <string.h>

#include "graph/opcode.h"
#include "lang/check/check.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/sides.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/line_times.h"
#include "lang/eval/index.h"
#include "lang/eval/known.h"
#include "lang/eval/loop_body.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/owned.h"
#include "lang/eval/seq.h"
#include "lang/eval/shapes.h"
#include "lang/eval/steps.h"
#include "lang/eval/turns.h"
#include "lang/eval/type.h"
#include "lang/eval/unroll.h"
#include "lang/eval/want.h"
#include "lang/names/desugar.h"
#include "lang/names/meant.h"
#include "lang/names/module.h"
#include "lang/tape/tape.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/format.h"

/* Hands a break, continue or return that left an expression to its statement. */
Flow eval_take_flow(Session *s) {
  Flow f = (Flow)s->flow;
  s->flow = FLOW_NEXT;
  return f;
}

/* ---- expressions */

/* v is used as a value: if it is a function, `check` notes that code elsewhere may call it. */
static Value taken(Session *s, Value v) {
  if (s->abstract && v.tag == V_FN) abstract_taken(v.u.fn);
  return v;
}

static APART Value eval_string(Session *s, Node *e) {
  Buf b;
  buf_init_arena(&b, &s->scratch);
  for (uint32_t i = 0; i < e->string.count; i++) {
    StrPart *p = &e->string.items[i];
    if (!p->hole) {
      buf_put(&b, p->text, p->length);
      continue;
    }
    Value v = eval_expr(s, p->hole);
    if (v.tag == V_UNKNOWN) return v;
    if (v.tag == V_NODE || v.tag == V_DIM) {
      if (s->abstract) return (Value){.tag = V_UNKNOWN};
      if (v.tag == V_DIM)
        v = v_int(want_int(s, v, p->span, "a hole of a string in code"));
      else
        fail_at(
            s, ERR_STATIC_STR, p->span,
            "in code a string is static: holes with run-time values stand in `print` and `assert` "
            "only");
    }
    format_value(s, &b, v, p->has_format ? &p->format : NULL, p->span);
  }
  return v_str(s, b.s ? b.s : "", b.n);
}

/* `apart`: tensors and rows are not stacked, as in the list that `concat` joins (rule 35). */
static APART Value eval_list(Session *s, NodeList *l, ValueTag tag, bool apart, Span at) {
  Value *items = ARENA_ARRAY(&s->scratch, Value, l->count + 1);
  bool numeric = l->count > 0, weak = l->count > 0, unknown = false;
  Operands read;
  operands_open(s, &read, items);
  for (uint32_t i = 0; i < l->count; i++) {
    items[i] = eval_expr(s, l->items[i]);
    read.count = i + 1;
  }
  operands_close(s, &read);
  for (uint32_t i = 0; i < l->count; i++) {
    Value v = items[i];
    bool number = v.tag == V_INT || v.tag == V_FLOAT || v.tag == V_DIM || v_is_weak_list(v) ||
                  (v.tag == V_NODE && v.weak);
    if (v.tag == V_UNKNOWN) unknown = true;
    if (!number) weak = false;
    if (!number && !v_is_tensor(v) && v.tag != V_BOOL && v.tag != V_NODE) numeric = false;
  }
  if (tag == V_LIST && unknown) return (Value){.tag = V_UNKNOWN};
  if (tag == V_LIST && weak && !(apart && items[0].tag == V_LIST)) {
    bool rows = items[0].tag == V_LIST;
    for (uint32_t i = 1; i < l->count; i++) {
      if ((items[i].tag == V_LIST) != rows)
        fail_at(s, ERR_STACK, l->items[i]->span,
                rows ? "a number stands among the rows of a tensor"
                     : "a row stands among the numbers of a tensor");
      if (rows && items[i].u.list->count != items[0].u.list->count)
        fail_at(s, ERR_STACK, l->items[i]->span,
                "the rows of a tensor must have one length: this one has %zu, the first %zu",
                items[i].u.list->count, items[0].u.list->count);
    }
    Value v = v_list(s, V_LIST, l->count, items);
    v.u.list->weak = true;
    return v;
  }
  if (tag == V_LIST && numeric && !apart) return op_stack(s, l->count, items, 0, at);
  return v_list(s, tag, l->count, items);
}

static APART Value eval_record(Session *s, Node *e) {
  size_t n = e->list.count;
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  Name *names = ARENA_ARRAY(&s->scratch, Name, n + 1);
  Table seen = {.arena = &s->scratch};
  Operands read;
  operands_open(s, &read, items);
  for (size_t i = 0; i < n; i++) {
    Node *a = e->list.items[i];
    names[i] = a->arg.name.name;
    if (table_add(&seen, table_key(names[i]), i) != TABLE_NONE)
      fail_at(s, ERR_TWICE, a->span, "the record has the field `%s` twice", names[i]);
    items[i] = bind_made_definite(s, eval_expr(s, a->arg.value), a->span);
    read.count = i + 1;
  }
  operands_close(s, &read);
  return v_record(s, n, names, items);
}

/* The key and the value of an entry, of a dict or of the value of a comprehension. */
void eval_entry(Session *s, Node *e, Value v[2]) {
  eval_pair(s, e->entry.key, e->entry.value, v);
  if (s->flow == FLOW_NEXT) v[0] = dict_key(s, v[0], e->entry.key->span);
}

static APART Value eval_dict(Session *s, Node *e) {
  size_t n = e->list.count;
  Value *v = ARENA_ARRAY(&s->scratch, Value, 2 * n + 1), d = v_dict_room(s, n);
  bool unknown = false;
  Operands read;
  operands_open(s, &read, v);
  for (size_t i = 0; i < n && s->flow == FLOW_NEXT; i++) {
    eval_entry(s, e->list.items[i], v + 2 * i);
    unknown |= v[2 * i].tag == V_UNKNOWN;
    v[2 * i + 1] = bind_made_definite(s, v[2 * i + 1], e->list.items[i]->entry.value->span);
    read.count = 2 * i + 2;
  }
  operands_close(s, &read);
  if (unknown || s->flow != FLOW_NEXT) return (Value){.tag = V_UNKNOWN};
  for (size_t i = 0; i < n; i++) {
    if (dict_find(d.u.dict, v[2 * i]))
      fail_help(s, ERR_KEY_TWICE, e->list.items[i]->entry.key->span,
                "`d[key] = v` replaces, and of `[k: v for ..]` the last one counts",
                "the dict has the key %s twice", dict_key_text(s, v[2 * i]));
    dict_put(s, d.u.dict, v[2 * i], v[2 * i + 1]);
  }
  return d;
}

static _Noreturn void no_field(Session *s, const Node *e, Value x) {
  Name f = e->dot.name.name;
  Span at = e->dot.name.span;
  Diag *d = fail_report(s, ERR_NO_FIELD, at, "%s has no field `%s`", value_type_text(s, x), f);
  const char *here =
      x.tag == V_INST || x.tag == V_RECORD ? NULL : foreign_help(s, f, FOREIGN_FIELD);
  if (here)
    dg_help(&s->diags, d, "%s", here);
  else if (x.tag == V_DICT && !builtin_find(s, f))
    dg_help(&s->diags, d, "the value of a key is `%s[\"%s\"]`",
            e->dot.object->kind == N_NAME ? e->dot.object->name : "..", f);
  else if (x.tag != V_INST && x.tag != V_RECORD &&
           bind_name_value(s, f, at, false).tag != V_UNKNOWN)
    dg_help(&s->diags, d, "a function is called with parentheses: `%s(%s)`", f,
            e->dot.object->kind == N_NAME ? e->dot.object->name : "..");
  else if (x.tag == V_INST)
    dg_help(&s->diags, d, "%s", meant_field(s, x.u.inst, f));
  else if (x.tag == V_RECORD && x.u.rec->count)
    dg_help(&s->diags, d, "%s", meant_item(s, x, f));
  fail_raise(s);
}

Value eval_field(Session *s, Value x, const Node *e) {
  Value v;
  const Value *p = x.tag == V_RECORD ? value_record_get(x.u.rec, e->dot.name.name) : NULL;
  if (x.tag == V_UNKNOWN) return x;
  if (p) return *p;
  if (x.tag == V_INST && model_get(s, x.u.inst, e->dot.name.name, e->dot.name.span, &v)) return v;
  no_field(s, e, x);
}

/* Rule 9: `x.f`. `callee`: it is about to be called, so `f` may be a function of x. */
static APART Value eval_dot(Session *s, Node *e, bool callee, Value *receiver, bool *has_receiver) {
  Name f = e->dot.name.name;
  Span at = e->dot.name.span;
  Value v;
  const Builtin *b = callee ? builtin_find(s, f) : NULL;
  bool ref = s->by_reference;
  if (b && (b->flags & BI_REF)) {
    v = bind_name_value(s, f, at, false);
    s->by_reference = ref || (v.tag == V_BUILTIN && v.u.builtin == b);
  }
  Value x = eval_expr(s, e->dot.object);
  s->by_reference = ref;
  if (has_receiver) *has_receiver = false;
  switch ((ValueTag)x.tag) {
  case V_UNKNOWN: return x;
  case V_MODULE: {
    Module *m = x.u.module;
    Global *g = global_own(m, f);
    if (g && g->module == m) {
      if (f[0] == '_') fail_at(s, ERR_PRIVATE, at, "`%s` is private to `%s`", f, m->name);
      if (g->kind == G_VALUE && !g->is_const)
        fail_at(s, ERR_MODULE_VAR, at,
                "`%s` of `%s` is a top-level variable; `use` brings declarations only", f, m->name);
      return bind_global_value(s, g, at);
    }
    if (module_visible_anyway(s, m, f, &v)) return v;
    fail_at(s, ERR_NO_FIELD, at, "module `%s` has no `%s`", m->name, f);
  }
  case V_INST:
    if (model_get(s, x.u.inst, f, at, &v)) return v;
    break;
  case V_RECORD: {
    const Value *p = value_record_get(x.u.rec, f);
    if (p) return *p;
    break;
  }
  case V_HANDLE: /* its only method, even if the program defines a `remove` */
    if (!callee || strcmp(f, "remove")) break;
    *receiver = x;
    *has_receiver = true;
    return (Value){.tag = V_BUILTIN, .u.builtin = builtin_find(s, names_of(s->names, "_remove"))};
  default: break;
  }
  if (callee) {
    v = bind_name_value(s, f, at, false);
    if (v.tag == V_UNKNOWN) {
      Diag *d = fail_report(s, ERR_NO_FIELD, at, "%s has no `%s`, and no function is called that",
                            value_type_text(s, x), f);
      const char *here = foreign_method_help(s, f, NULL, NULL);
      if (here)
        dg_help(&s->diags, d, "%s", here);
      else
        help_meant(s, d, f, fail_suggest(s, f));
      fail_raise(s);
    }
    *receiver = x;
    *has_receiver = true;
    return v;
  }
  no_field(s, e, x);
}

static Args args_of(Session *s, NodeList *l, const Value *receiver, Span receiver_span, Span call,
                    bool apart) {
  size_t n = l->count + (receiver ? 1 : 0), k = 0;
  Args a = {.count = n, .call = call};
  a.v = ARENA_ARRAY(&s->scratch, Value, n + 1);
  a.names = ARENA_ARRAY(&s->scratch, Name, n + 1);
  a.spans = ARENA_ARRAY(&s->scratch, Span, n + 1);
  if (receiver) {
    a.v[k] = *receiver;
    a.spans[k++] = receiver_span;
  }
  Table seen = {.arena = &s->scratch};
  Operands read;
  operands_open(s, &read, a.v);
  for (uint32_t i = 0; i < l->count; i++) {
    Node *x = l->items[i];
    read.count = k;
    a.names[k] = x->arg.name.name;
    a.spans[k] = x->span;
    if (!a.names[k] && seen.count)
      fail_at(s, ERR_ARG_ORDER, x->span, "an argument by position stands after one by name");
    if (a.names[k] && table_add(&seen, table_key(a.names[k]), i) != TABLE_NONE)
      fail_at(s, ERR_TWICE, x->span, "the argument `%s` is given twice", a.names[k]);
    Node *e = x->arg.value;
    a.v[k++] = apart && e->kind == N_LIST ? eval_list(s, &e->list, V_LIST, true, e->span)
                                          : eval_expr(s, e);
  }
  operands_close(s, &read);
  return a;
}

Args eval_args(Session *s, NodeList *l, const Value *receiver, Span receiver_span, Span call) {
  return args_of(s, l, receiver, receiver_span, call, false);
}

/* Is this a call of `concat` with one list, whose elements are joined as they stand? */
static bool joins_one(Value f, const NodeList *l, bool receiver) {
  int by_position = receiver;
  for (uint32_t i = 0; i < l->count; i++) by_position += !l->items[i]->arg.name.name;
  return by_position <= 1 && f.tag == V_BUILTIN && (f.u.builtin->flags & BI_APART);
}

/* A raw builtin finds the receiver of x.f(..), which is evaluated already, in v[0]. */
static APART Value call_raw(Session *s, const Builtin *b, Node *e, Value *receiver) {
  Call call = {.b = b, .n = receiver != NULL, .v = receiver, .node = e, .at = e->span};
  return b->fn(s, &call);
}

static APART Value eval_call(Session *s, Node *e) {
  Node *c = e->call.callee;
  Value receiver = v_unit(), f;
  bool has = false;
  if (c->kind == N_DOT)
    f = eval_dot(s, c, true, &receiver, &has);
  else if (c->kind == N_NAME)
    f = bind_name_value(s, c->name, c->span, true);
  else
    f = eval_expr(s, c);
  if (f.tag == V_BUILTIN && (f.u.builtin->flags & BI_RAW)) {
    count_step(s, e->span);
    return call_raw(s, f.u.builtin, e, has ? &receiver : NULL);
  }
  Args a = args_of(s, &e->call.args, has ? &receiver : NULL,
                   c->kind == N_DOT ? c->dot.object->span : c->span, e->span,
                   joins_one(f, &e->call.args, has));
  if (f.tag == V_UNKNOWN || s->flow != FLOW_NEXT) return f;
  if (!s->stage) fail_running_at(s, e->span);
  if (f.tag == V_BUILTIN) return builtin_call(s, f.u.builtin, &a, e);
  return call_value(s, f, &a);
}

static APART Value eval_item(Session *s, Node *e) {
  Value x = eval_expr(s, e->item.object);
  int64_t i = e->item.index;
  if (x.tag == V_UNKNOWN) return x;
  if (x.tag == V_TUPLE || x.tag == V_LIST) {
    if (i < 0 || (size_t)i >= x.u.list->count)
      fail_at(s, ERR_INDEX_RANGE, e->span, "there is no item %lld in %s", (long long)i,
              value_type_text(s, x));
    return x.u.list->items[i];
  }
  if (x.tag == V_INST || x.tag == V_RECORD)
    fail_at(s, ERR_NO_FIELD, e->span, "%s has no item %lld", value_type_text(s, x), (long long)i);
  fail_help(s, ERR_NO_FIELD, e->span,
            fail_text(s, "an axis is indexed with brackets: `x[%lld]`", (long long)i),
            "`.%lld` takes an item of a tuple or list, this is %s", (long long)i,
            value_type_text(s, x));
}

/* `check` evaluates both branches. It goes on after a break or return in one, which may not run. */
static APART Value both_branches(Session *s, Node *e, bool unknown) {
  AbstractVars k = abstract_vars(s, e);
  if (unknown && fail_in_library(s, e->span)) { /* a side may be for other kinds of values */
    abstract_forget(s, &k);
    return (Value){.tag = V_UNKNOWN};
  }
  Value a = eval_expr(s, e->if_.then), b = v_unit();
  bool left = s->flow != FLOW_NEXT;
  s->flow = FLOW_NEXT;
  Value *then = abstract_swap(s, &k);
  if (e->if_.els) b = eval_expr(s, e->if_.els);
  if (s->flow != FLOW_NEXT)
    b = left ? (Value){.tag = V_UNKNOWN} : a; /* nothing follows */
  else if (left)
    a = b;
  s->flow = FLOW_NEXT;
  value_set(&s->ret, v_unit()); /* of a return that may not run */
  abstract_join(s, &k, then);
  return value_same(a, b) ? a : (Value){.tag = V_UNKNOWN};
}

static APART bool is_bool_node(Session *s, Value c) {
  return c.tag == V_NODE && op_type_of(s, c).dtype == DT_BOOL && op_type_of(s, c).rank == 0;
}

static APART Value eval_if(Session *s, Node *e) {
  bool is_tail = s->tail == e;
  size_t mark = mem_pool_mark(&s->mem);
  Value c = eval_expr(s, e->if_.cond);
  if (is_tail) s->tail = e;
  if (c.tag == V_UNKNOWN || (s->abstract && is_bool_node(s, c)))
    return both_branches(s, e, c.tag == V_UNKNOWN);
  int64_t known;
  if (is_bool_node(s, c) && !want_known_bool(s, c, &known)) return sides_if(s, e, c);
  bool holds = want_bool(s, c, e->if_.cond->span, "the condition of `if`"), tail = s->tail == e;
  Node *side = holds ? e->if_.then : e->if_.els;
  if (!s->stage) mem_pool_drain(&s->mem, mark); /* the side may change what the condition read */
  if (!side) return v_unit();
  if (tail) s->tail = side;
  return eval_expr(s, side);
}

/* A block inside an expression: a break, continue or return is put in s->flow. */
static APART Value eval_block_expr(Session *s, Node *b) {
  Flow flow = FLOW_NEXT;
  Value v = eval_block(s, b, &flow);
  if (flow != FLOW_NEXT) s->flow = flow;
  return v;
}

static APART Value eval_unary(Session *s, Node *e) {
  const Node *of = e->unary.operand;
  if (of->kind == N_INT && of->number.i == INT64_MIN) return v_int(INT64_MIN); /* -2^63 */
  Value x = eval_expr(s, e->unary.operand);
  if (x.tag == V_UNKNOWN || s->flow != FLOW_NEXT) return x;
  if (e->unary.op != AST_NOT) return op_unary(s, OP_NEG, x, e->span);
  return x.tag == V_BOOL ? v_bool(!x.u.i) : op_unary(s, OP_NOT, x, e->span);
}

static APART Value eval_range(Session *s, Node *e, Value a, Value b) {
  if (a.tag == V_UNKNOWN || b.tag == V_UNKNOWN) return v_range(s, a, b);
  Value ends[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    if (s->abstract && !in_code(s) && v_is_tensor(ends[i])) ends[i] = (Value){.tag = V_UNKNOWN};
    if (ends[i].tag == V_UNKNOWN) return v_range(s, ends[0], ends[1]);
    if (!s->stage && v_is_tensor(ends[i]))
      ends[i] = v_int(
          want_int(s, ends[i], (i ? e->binary.right : e->binary.left)->span, "an end of a range"));
    if (ends[i].tag != V_INT && ends[i].tag != V_DIM && !(ends[i].tag == V_NODE && ends[i].weak))
      fail_at(s, ERR_WANT_INT, i ? e->binary.right->span : e->binary.left->span,
              "an end of a range must be an int, not %s", value_type_text(s, ends[i]));
  }
  return v_range(s, ends[0], ends[1]);
}

void eval_second(Session *s, Node *right, Value v[2]) {
  Operands read;
  operands_open(s, &read, v);
  read.count = 1;
  v[1] = eval_expr(s, right);
  operands_close(s, &read);
}

static bool is_float(Session *s, Value v) {
  return v.tag == V_FLOAT || (v_is_tensor(v) && dt_float((DType)op_type_of(s, v).dtype)) ||
         (v.tag == V_NODE && dt_float((DType)op_type_of(s, v).dtype));
}

static APART Value eval_binary(Session *s, Node *e) {
  AstOp op = e->binary.op;
  if (op == AST_AND || op == AST_OR) return eval_logic(s, e);
  Value v[2], r;
  eval_pair(s, e->binary.left, e->binary.right, v);
  if (s->flow != FLOW_NEXT) return v_unit();
  if (known_op(op, v[0], v[1], &r)) return r;
  if (op == AST_IN || op == AST_NOT_IN) return eval_in(s, e, v[0], v[1]);
  if (op == AST_RANGE) return eval_range(s, e, v[0], v[1]);
  if (op == AST_POW && v[1].tag == V_INT && e->binary.right->kind != N_INT && is_float(s, v[0]))
    v[1] = v_float((double)v[1].u.i); /* as an exponent that the run knows (rule 17) */
  return op_binary(s, op, v[0], v[1], e->span, e->binary.left->span, e->binary.right->span);
}

static APART Value self_value(Session *s, Node *e) {
  if (!s->frame->self) fail_at(s, ERR_SELF, e->span, "`self` stands in methods only");
  return value_pool(s, (Value){.tag = V_INST, .u.inst = s->frame->self});
}

static APART Value eval_lambda(Session *s, Node *e) {
  return taken(s, closure_of_fn(s, e, in_code(s) || desugar_is_code(s, e), false));
}

static APART Value eval_index(Session *s, Node *e) {
  Value x = eval_expr(s, e->index.object);
  if (s->flow != FLOW_NEXT) return v_unit();
  Operands read;
  operands_open(s, &read, &x);
  read.count = 1;
  Index i = index_eval(s, e);
  operands_close(s, &read);
  return s->flow == FLOW_NEXT ? op_index(s, x, &i) : v_unit();
}

static Value eval_node(Session *s, Node *e) {
  switch ((NodeKind)e->kind) {
  case N_INT: return v_int(e->number.i);
  case N_SIZE: return v_int(e->number.i);
  case N_FLOAT: return v_float(e->number.f);
  case N_STRING: return eval_string(s, e);
  case N_BOOL: return v_bool(e->boolean);
  case N_UNIT: return v_unit();
  case N_NAME: return taken(s, bind_name_value(s, e->name, e->span, true));
  case N_SELF: return self_value(s, e);
  case N_PLACE: return value_pool(s, *s->place);
  case N_UNARY: return eval_unary(s, e);
  case N_BINARY: return eval_binary(s, e);
  case N_CALL: return eval_call(s, e);
  case N_DOT: return eval_dot(s, e, false, NULL, NULL);
  case N_ITEM: return eval_item(s, e);
  case N_INDEX: return eval_index(s, e);
  case N_BLOCK: return eval_block_expr(s, e);
  case N_IF: return eval_if(s, e);
  case N_TUPLE: return eval_list(s, &e->list, V_TUPLE, false, e->span);
  case N_RECORD: return eval_record(s, e);
  case N_LIST: return eval_list(s, &e->list, V_LIST, false, e->span);
  case N_DICT: return eval_dict(s, e);
  case N_COMP: return eval_comp(s, e);
  case N_LAMBDA: return eval_lambda(s, e);
  case N_CHECKPOINT: return checkpoint_eval(s, e);
  case N_WRAP: return eval_wrap(s, e);
  default: fail_at(s, ERR_BUG, e->span, "expression of kind %s", ast_kind_name(e->kind));
  }
}

static APART Value eval_inner(Session *s, Node *e) {
  stack_check();
  bool ends = s->tail == e;
  Value v = eval_node(s, e);
  if (!ends && sides_pending(s)) sides_in_expression(s, e->span);
  if (v.tag == V_UNKNOWN) block_unknown(s);
  return v;
}

Value eval_expr(Session *s, Node *e) {
  if (s->flow != FLOW_NEXT) return v_unit(); /* a `return` inside the expression is on its way */
  Value v;
  return known_value(s, e, &v) ? v : eval_inner(s, e);
}

/* ---- statements */

static APART Flow eval_let(Session *s, Node *st) {
  Value v = eval_expr(s, st->let.init);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  if (st->let.type)
    v = type_match(s, st->let.type, v, st->let.init->span, &(Subject){.text = {"the value"}});
  if (st->let.places) v = operand_parts_held(s, v); /* the first place may be a param of the next */
  name_result(s, st->let.pat, v);
  bind_pattern(s, st->let.pat, v, st->let.is_var);
  return FLOW_NEXT;
}

static Flow iteration(Session *s, Node *st, Value v) {
  size_t base = s->local_count;
  Frame *frame = s->frame;
  Flow flow = FLOW_NEXT;
  frame->block_depth++;
  if (st->loop.pat) bind_pattern(s, st->loop.pat, v, false);
  frame->iteration = true;
  if (st->loop.is_checkpoint && !s->stage)
    checkpoint_iteration(s, st, &flow);
  else
    eval_block(s, st->loop.body, &flow);
  frame->block_depth--;
  local_pop(s, base);
  return flow == FLOW_GONE ? FLOW_NEXT : flow;
}

Flow eval_iteration(Session *s, Node *st, Value v) {
  if (!s->stage && !s->abstract) return iteration(s, st, v);
  check_step(s);
  if (!s->abstract) return iteration(s, st, v);
  AbstractVars k = abstract_vars(s, st->loop.body);
  abstract_enter_loop(s, &k);
  Flow flow = iteration(s, st, v);
  abstract_leave(s, &k);
  if (flow == FLOW_RETURN) value_set(&s->ret, v_unit());
  return FLOW_NEXT; /* the loop may have no iterations */
}

static Flow loop_end(Flow f) {
  return f == FLOW_RETURN ? FLOW_RETURN : FLOW_NEXT;
}

/* Rule 77: warns once per loop of a value whose tape grows for this many iterations. */
enum { TAPE_ITERATIONS = 10000 };

typedef struct Watch {
  int64_t iterations, tape;
  size_t bytes;
} Watch;

static Watch watch_start(const Session *s) {
  return (Watch){0, s->count.tape_live, s->mem.data_live[DEV_CPU] + s->mem.data_live[DEV_SIM]};
}

static void newest(Value v, Name name, uint64_t *seq, Name *found) {
  if (v.tag != V_TENSOR || !v.u.t->node || v.u.t->node->seq <= *seq) return;
  *seq = v.u.t->node->seq;
  *found = name;
}

static void watch_iteration(Session *s, Watch *w, Node *loop) {
  if (++w->iterations != TAPE_ITERATIONS || s->count.tape_live - w->tape < TAPE_ITERATIONS - 1)
    return;
  Name name = NULL;
  uint64_t seq = 0;
  for (size_t i = s->frame->base; i < s->local_count; i++)
    newest(s->locals[i].v, s->locals[i].name, &seq, &name);
  Module *m = s->frame->module;
  for (size_t i = 0; i < m->global_count; i++)
    if (m->globals[i].is_var) newest(m->globals[i].v, m->globals[i].name, &seq, &name);
  if (!name) return;
  size_t now = s->mem.data_live[DEV_CPU] + s->mem.data_live[DEV_SIM];
  fail_warn_once(
      s, ERR_TAPE_GROWS, (Span){loop->span.file, loop->span.lo, loop->span.lo + 5},
      "the tape of `%s` grows with every iteration: %d iterations hold %zu bytes; stop(%s) or "
      "wrap <no_grad> ends that",
      name, TAPE_ITERATIONS, now > w->bytes ? now - w->bytes : 0, name);
}

/* `for` iterates over the elements *lo .. *hi - 1 of `it`. */
static void loop_bounds(Session *s, const Node *st, Value it, int64_t *lo, int64_t *hi) {
  Span at = st->loop.iter->span;
  *lo = *hi = 0;
  if (it.tag == V_RANGE) {
    *lo = want_int(s, it.u.range->lo, at, "the start of the range");
    *hi = want_int(s, it.u.range->hi, at, "the end of the range");
    return;
  }
  if (it.tag == V_LIST || it.tag == V_TUPLE) {
    *hi = (int64_t)it.u.list->count;
    return;
  }
  if (it.tag == V_SEQ) {
    *hi = seq_size(s, it, at);
    return;
  }
  if (!v_is_tensor(it)) want_elements(s, it, at, "`for`");
  Type t = op_type_of(s, it);
  if (t.rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
  if (s->stage)
    unit_need_const(s, t.dim[0], at, "the number of iterations of a loop (for now)", hi);
  else
    dim_is_const(s->dims, t.dim[0], hi);
}

static Flow stays_for(Session *s, Node *st, Value it) {
  if (it.tag == V_RANGE) return turns_for(s, st, v_unit(), it.u.range->lo, it.u.range->hi, false);
  return turns_for(s, st, it, v_int(0), seq_number(s, it, st->loop.iter->span), false);
}

static Value loop_element(Session *s, Value it, int64_t i, Span at) {
  if (it.tag == V_RANGE) return in_code(s) ? number_node(s, i) : v_int(i);
  if (it.tag == V_SEQ) return seq_item(s, it, i, at);
  return v_is_tensor(it) ? op_element(s, it, i, at) : it.u.list->items[i];
}

/* The elements from number i on that a `for` of script goes through. */
typedef struct Elements {
  Value of;
  int64_t i, hi;
  SeqIter *seq; /* NULL: `of` is no sequence */
} Elements;

static inline bool next_element(Session *s, const Node *st, Elements *x, Value *v) {
  Span at = st->loop.iter->span;
  if (x->seq) return seq_next(s, x->seq, v, at);
  if (x->i == x->hi) return false;
  if (x->of.tag == V_RANGE) {
    *v = v_int(x->i++);
    return true;
  }
  *v = loop_element(s, x->of, x->i++, at);
  return true;
}

/* An iteration of a loop of script, whose body is open as `place` for all of them: eval_iteration
 * without what is the same each time. */
static Flow turn(Session *s, Node *st, Value v, Running *place, size_t mark, ArenaMark am) {
  const NodeList *body = &st->loop.body->list;
  size_t base = s->local_count;
  Flow flow = FLOW_NEXT;
  Value last;
  if (st->loop.pat) bind_pattern(s, st->loop.pat, v, false);
  place->base = s->local_count;
  for (uint32_t i = 0; i < body->count && flow == FLOW_NEXT; i++) {
    place->index = i;
    flow = eval_stmt(s, body->items[i], &last);
    mem_pool_drain(&s->mem, mark);
    arena_rewind(&s->scratch, am);
  }
  local_pop(s, base);
  return flow;
}

/* A loop of script: through x, or NULL: while its condition holds. */
static Flow script_loop(Session *s, Node *st, Elements *x) {
  stack_check();
  Watch watch = watch_start(s);
  Frame *frame = s->frame;
  Running place = {frame->place, st->loop.body, 0, 0, true};
  bool plain = !s->stage && !s->abstract && !st->loop.is_checkpoint;
  size_t mark = mem_pool_mark(&s->mem);
  ArenaMark am = arena_mark(&s->scratch);
  Flow f = FLOW_NEXT;
  while (f == FLOW_NEXT || f == FLOW_CONTINUE) {
    Value v = x ? v_unit() : eval_expr(s, st->loop.cond);
    if (s->flow != FLOW_NEXT) return eval_take_flow(s);
    bool go = x ? next_element(s, st, x, &v)
                : want_bool(s, v, st->loop.cond->span, "the condition of `while`");
    if (!go) break;
    if (!x) mem_pool_drain(&s->mem, mark); /* the body may change what the condition read */
    count_step(s, st->span);
    watch_iteration(s, &watch, st);
    if (plain) {
      frame->place = &place;
      frame->block_depth += 2; /* of the element, and of the body */
      f = turn(s, st, v, &place, mark, am);
      frame->block_depth -= 2;
      frame->place = place.up;
    } else {
      f = eval_iteration(s, st, v);
    }
    mem_pool_drain(&s->mem, mark);
    arena_rewind(&s->scratch, am);
  }
  if (x && x->seq) seq_finish(s, x->seq);
  return f == FLOW_RETURN ? f : FLOW_NEXT;
}

typedef struct Turn {
  Node *st;
  Value element;
} Turn;

static Value later_iteration(Session *s, void *ud) {
  const Turn *t = ud;
  s->flow = eval_iteration(s, t->st, t->element);
  return v_unit();
}

/* A loop of code that is unrolled: its iterations are staged one after the other. */
typedef struct Iterated {
  Session *s;
  Node *st;
  Value it;
  int64_t lo, hi;
  OpenLoop *l;
  Flow flow;
  int64_t most;  /* of iterations, with those of loops inside; 0: it has to be unrolled */
  bool too_many; /* there would be more: it ended after the first one */
} Iterated;

/* Whether iterations like the one that began at `was` are too many, and that can be taken back. */
static bool too_many(const Iterated *x, int64_t was, Val token) {
  const Session *s = x->s;
  int64_t each = s->unrolled - was;
  if (!x->most || each <= 1 || each <= x->most / (x->hi - x->lo)) return false;
  return !s->stage->unit || val_eq(s->stage->unit->token, token);
}

static APART void iterate(void *ud) {
  Iterated *x = ud;
  Session *s = x->s;
  Node *st = x->st;
  OpenLoop *l = x->l;
  int64_t lo = x->lo, hi = x->hi;
  x->flow = FLOW_NEXT;
  struct Iterations *iterations = iterations_start(s, st, l->iterations = hi > lo ? hi - lo : 0);
  Val token = s->stage->unit ? s->stage->unit->token : VAL_NONE;
  for (int64_t i = lo; i < hi; i++) {
    int64_t was = s->unrolled;
    count_step(s, st->span);
    iterations_before(iterations, l->iteration = i - lo);
    Value element = loop_element(s, x->it, i, st->loop.iter->span);
    Flow f;
    if (sides_pending(s)) {
      Turn turn = {st, element};
      sides_rest(s, later_iteration, &turn, st->span);
      f = eval_take_flow(s);
      if (f == FLOW_CONTINUE || f == FLOW_GONE) f = FLOW_NEXT;
    } else {
      f = eval_iteration(s, st, element);
    }
    l->continued = v_unit();
    s->unrolled += s->unrolled == was;
    x->too_many = i == lo && too_many(x, was, token);
    iterations_after(iterations, i - lo, i == hi - 1 || f == FLOW_BREAK || x->too_many);
    if (x->too_many || f == FLOW_BREAK) break;
    if (f == FLOW_RETURN) {
      x->flow = f;
      break;
    }
  }
}

/* The most iterations of loops that are unrolled, if they can stay. */
static int64_t short_loops(const Session *s) {
  return s->config.unroll >= 0 ? s->config.unroll : UNROLL_SHORT;
}

/* Iterations of loops around that have to be unrolled: one of them has a loop inside this often. */
static int64_t forced_around(const OpenLoop *l) {
  int64_t n = 1;
  for (l = l->up; l; l = l->up)
    if (l->staged && l->forced && __builtin_mul_overflow(n, l->iterations, &n)) return INT64_MAX;
  return n;
}

static APART Flow for_iterations(Session *s, Node *st, OpenLoop *l) {
  size_t mark = mem_pool_mark(&s->mem);
  Flow end;
  if (checkpoint_loop(s, st, &end)) return end;
  Value it = seq_source(s, st->loop.iter);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  if (it.tag == V_UNKNOWN || (s->abstract && it.tag != V_LIST && it.tag != V_TUPLE)) {
    Value elem = abstract_element(s, it, st->loop.iter->span);
    Flow f = eval_iteration(s, st, elem);
    return loop_end(f);
  }
  if (in_code(s) && it.tag != V_TUPLE && seq_stays(s, it)) return stays_for(s, st, it);
  if (in_code(s)) seq_refuse(s, it, st->loop.iter->span);
  if (!s->stage) owned_settle(s, mark, 1, &it); /* the body may change what was read for it */
  if (it.tag == V_SEQ && !in_code(s))
    return script_loop(s, st, &(Elements){.seq = seq_loop(s, it, st->loop.iter->span)});
  int64_t lo, hi;
  loop_bounds(s, st, it, &lo, &hi);
  if (!s->stage) return script_loop(s, st, &(Elements){it, lo, hi > lo ? hi : lo, NULL});
  bool may_stay =
      in_code(s) && (it.tag == V_RANGE || it.tag == V_SEQ || v_is_tensor(it)) && hi > lo;
  int64_t most = in_code(s) ? short_loops(s) : 0;
  bool stays = may_stay && hi - lo > most / forced_around(l);
  if (may_stay && !stays && hi - lo > RETURNS_MAX) {
    LoopExit exit = loop_exits(st);
    stays = exit == LOOP_RETURNS || (exit == LOOP_BREAKS && hi - lo > BREAKS_MAX);
  }
  if (stays && unroll_not(s, st, it, lo, hi, &end)) return end;
  l->forced = !may_stay || stays;
  Iterated x = {s, st, it, lo, hi, l, FLOW_NEXT, l->forced ? 0 : most, false};
  if (!may_stay)
    iterate(&x);
  else if (unroll_or_stay(s, st, it, lo, hi, iterate, &x, &x.too_many, &end))
    return end;
  if (x.too_many) { /* it cannot stay, so it is unrolled after all */
    l->forced = true;
    x.most = 0;
    iterate(&x);
  }
  return x.flow;
}

static APART Flow eval_for(Session *s, Node *st) {
  OpenLoop l = {.up = s->loops, .at = st->span, .staged = s->stage != NULL, .frame = s->frame};
  s->loops = &l;
  Flow f = for_iterations(s, st, &l);
  s->loops = l.up;
  return f;
}

static APART Flow while_in_code(Session *s, Node *st) {
  OpenLoop l = {.up = s->loops, .at = st->span, .staged = true, .frame = s->frame};
  s->loops = &l;
  Flow f = turns_while(s, st);
  s->loops = l.up;
  return f;
}

/* `check`: the body may run once, unless its condition is known. */
static Flow checked_while(Session *s, Node *st) {
  count_step(s, st->span);
  Value c = eval_expr(s, st->loop.cond);
  if (s->flow != FLOW_NEXT) return eval_take_flow(s);
  return c.tag == V_BOOL && !c.u.i ? FLOW_NEXT : loop_end(eval_iteration(s, st, v_unit()));
}

static APART Flow eval_while(Session *s, Node *st) {
  if (in_code(s)) return while_in_code(s, st);
  Flow end;
  if (checkpoint_loop(s, st, &end)) return end;
  return s->abstract ? checked_while(s, st) : script_loop(s, st, NULL);
}

static APART void declare_local(Session *s, Node *st) {
  Value f = closure_of_fn(s, st, !st->fn->is_proc, false);
  local_push(s, st->fn->name.name, f, false, st->fn->name.span);
}

static Flow run_stmt(Session *s, Node *st, Value *last) {
  count_step(s, st->span);
  *last = v_unit();
  s->tail = NULL;
  switch ((NodeKind)st->kind) {
  case N_EXPR_STMT: {
    s->tail = st->expr;
    Value v = eval_expr(s, st->expr);
    if (s->flow != FLOW_NEXT) break;
    *last = v;
    return FLOW_NEXT;
  }
  case N_LET: s->tail = st->let.init; return eval_let(s, st);
  case N_ASSIGN: return eval_assign(s, st);
  case N_FOR: return eval_for(s, st);
  case N_WHILE: return eval_while(s, st);
  case N_RETURN: {
    s->tail = st->expr;
    Value v = st->expr ? eval_expr(s, st->expr) : v_unit();
    if (s->flow != FLOW_NEXT) break;
    if (!s->frame->fn) fail_at(s, ERR_RETURN, st->span, "`return` stands in functions only");
    value_set(&s->ret, v);
    return FLOW_RETURN;
  }
  case N_BREAK: return FLOW_BREAK;
  case N_CONTINUE: return FLOW_CONTINUE;
  case N_ASSERT: eval_assert(s, st); return FLOW_NEXT;
  case N_FN: declare_local(s, st); return FLOW_NEXT;
  case N_BAD: return FLOW_NEXT;
  default: fail_at(s, ERR_BUG, st->span, "statement of kind %s", ast_kind_name(st->kind));
  }
  return eval_take_flow(s);
}

Flow eval_stmt(Session *s, Node *st, Value *last) {
  if (!s->config.profile || s->stage || s->abstract) return run_stmt(s, st, last);
  size_t before = line_times_enter(s, st->span);
  Flow f = run_stmt(s, st, last);
  line_times_leave(s, before);
  return f;
}

typedef struct Rest {
  Node *block;
  uint32_t from;
} Rest;

static Value block_from(Session *s, Node *block, uint32_t from, Flow *flow);

static Value rest_of_block(Session *s, void *ud) {
  const Rest *r = ud;
  Flow flow = FLOW_NEXT;
  Value v = block_from(s, r->block, r->from, &flow);
  s->flow = flow;
  return v;
}

/* The statements of the block from number `from` on. */
static Value block_from(Session *s, Node *block, uint32_t from, Flow *flow) {
  stack_check();
  size_t base = s->local_count, mark = mem_pool_mark(&s->mem);
  ArenaMark am = arena_mark(&s->scratch);
  Value v = v_unit();
  Frame *frame = s->frame;
  Running place = {frame->place, block, 0, base, frame->iteration};
  frame->place = &place;
  frame->iteration = false;
  frame->block_depth++;
  for (uint32_t i = from, n = block->list.count; i < n && *flow == FLOW_NEXT; i++) {
    place.index = i;
    *flow = eval_stmt(s, block->list.items[i], &v);
    if (i + 1 < n && *flow == FLOW_NEXT && sides_pending(s)) {
      Rest rest = {block, i + 1};
      v = sides_rest(s, rest_of_block, &rest, block->list.items[i + 1]->span);
      *flow = eval_take_flow(s);
      i = n - 1;
    }
    if (*flow != FLOW_NEXT) v = v_unit();
    if (i + 1 == n) value_retain(v); /* beyond the end of the scope */
    if (s->stage) continue;
    mem_pool_drain(&s->mem, mark);
    arena_rewind(&s->scratch, am);
  }
  frame->block_depth--;
  frame->place = place.up;
  local_pop(s, base);
  if (v_counted(v)) mem_pool_add(&s->mem, v.u.o, (void (*)(void *))obj_release);
  return v;
}

Value eval_block(Session *s, Node *block, Flow *flow) {
  return block_from(s, block, 0, flow);
}
