/* Sequences in code.
 *
 * In: what a `for` or a comprehension goes through. Out: the number of elements and element k,
 * known when it is compiled or by the run alone. Invariant: the elements are those that script
 * goes through (seq.c), in that order, and each is taken when its turn comes, so that what reads
 * it adds to gradients where it does in script (rule 74).
 */
#include <string.h>

#include "graph/build.h"
#include "graph/opcode.h"
#include "lang/compile/stage.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/eval.h"
#include "lang/eval/index.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/shapes.h"
#include "lang/eval/steps.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/texts.h"
#include "lang/value/tree.h"

void seq_refuse(Session *s, Value v, Span at) {
  if (v.tag == V_SEQ && !v.u.seq->staged)
    fail_help(s, ERR_SCRIPT_ONLY, at, "go through it in script, and pass its elements",
              "a sequence works in script, not in code");
}

Value seq_staged(Session *s, SeqKind kind, Value source, Value extra, int64_t n) {
  int64_t m = kind == SEQ_ZIP ? n : 0; /* parts of a zip */
  if (v_is_weak_list(source)) source = op_as_tensor(s, source, DT_COUNT, s->frame->call);
  if (v_is_weak_list(extra)) extra = op_as_tensor(s, extra, DT_COUNT, s->frame->call);
  Value v = seq_value(s, kind, source, extra, n, m, false, false, 0);
  v.u.seq->staged = true;
  return v;
}

/* A value of several that go together, element by element. */
static bool parted(Value v) {
  return v.tag == V_TUPLE || v.tag == V_RECORD || v.tag == V_DICT;
}

/* The leading size of a tensor, or of tensors that go together. */
static int64_t leading(Session *s, Value v, Span at) {
  stack_check();
  int64_t n = 0;
  if (v_is_tensor(v) || v.tag == V_PARAM) {
    Type t = op_type_of(s, v);
    if (t.rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    unit_need_const(s, t.dim[0], at, "the number of elements that code goes through", &n);
    return n;
  }
  size_t count = 0;
  Value *items = parted(v) ? value_parts(s, v, &count) : NULL;
  seq_refuse(s, v, at);
  if (!items || !count)
    fail_at(s, ERR_ITERATE, at,
            "tensors, tuples, records and dicts of tensors, lists and ranges have elements in "
            "code; this "
            "is %s",
            value_type_text(s, v));
  for (size_t i = 0; i < count; i++) {
    int64_t k = leading(s, items[i], at);
    if (i && k != n)
      fail_at(s, ERR_LEADING, at,
              "tensors that go together have one leading size: %lld and %lld differ", (long long)n,
              (long long)k);
    n = k;
  }
  return n;
}

static Value element(Session *s, Value v, int64_t k, Span at) {
  stack_check();
  if (!parted(v)) return op_element(s, v, k, at);
  size_t n;
  Value *items = value_parts(s, v, &n);
  for (size_t i = 0; i < n; i++) items[i] = element(s, items[i], k, at);
  return value_like(s, v, items);
}

/* ---- elements that are taken one by one */

Value seq_source(Session *s, Node *e) {
  Node *before = s->frame->source;
  s->frame->source = e;
  Value v = operand_held(s, eval_expr(s, e));
  s->frame->source = before;
  return dict_elements(s, text_elements(s, v));
}

static bool goes_through(Session *s, const Node *n, const Node *call) {
  static const char *const names[] = {"enumerate", "zip",  "reverse", "step_by",
                                      "map",       "take", "drop"};
  stack_check();
  if (n == call) return true;
  const Node *f = n->kind == N_CALL ? n->call.callee : NULL;
  const char *name = !f                  ? NULL
                     : f->kind == N_NAME ? f->name
                     : f->kind == N_DOT  ? f->dot.name.name
                                         : NULL;
  bool any = false;
  for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) any |= !strcmp(name, names[i]);
  if (!any) return false;
  if (f->kind == N_DOT && goes_through(s, f->dot.object, call)) return true;
  if (f->kind == N_NAME && (local_find(s, name) || global_find(s, s->frame->module, name)))
    return false;
  for (uint32_t i = 0; i < n->call.args.count; i++)
    if (goes_through(s, n->call.args.items[i]->arg.value, call)) return true;
  return false;
}

bool seq_is_source(Session *s, const Node *call) {
  return call && !s->abstract && s->frame->source && goes_through(s, s->frame->source, call);
}

int64_t seq_size(Session *s, Value v, Span at) {
  stack_check();
  int64_t n;
  if (v.tag == V_SEQ && v.u.seq->staged) {
    const Seq *q = v.u.seq;
    n = seq_size(s, q->source, at);
    if (q->kind == SEQ_STEP) return n / q->n + (n % q->n != 0);
    if (q->kind == SEQ_TAKE) return q->n < n ? q->n : n;
    if (q->kind == SEQ_DROP) return q->n < n ? n - q->n : 0;
    int64_t m = q->kind == SEQ_ZIP ? seq_size(s, q->extra, at) : n;
    return m < n ? m : n;
  }
  if (v.tag == V_RANGE) {
    int64_t lo = want_int(s, v.u.range->lo, at, "the start of the range");
    int64_t hi = want_int(s, v.u.range->hi, at, "the end of the range");
    if (__builtin_sub_overflow(hi, lo, &n)) n = INT64_MAX;
    if (n < 0) n = 0;
  } else {
    n = v.tag == V_LIST ? (int64_t)v.u.list->count : leading(s, v, at);
  }
  if (n > UNROLL_MAX)
    fail_at(s, ERR_NOT_YET, at,
            "not yet: a compiled loop of %lld iterations (at most %d are unrolled)", (long long)n,
            UNROLL_MAX);
  return n;
}

/* The parts of element k of a zip, of which each follows the one that it is the rest of. */
static Value zipped(Session *s, const Seq *q, int64_t k, Value at_k, Span at) {
  bool known = at_k.tag == V_UNIT;
  size_t n = (size_t)q->m;
  Value *part = ARENA_ARRAY(&s->scratch, Value, n);
  for (size_t i = 0; i < n; i++) {
    Value of = i + 1 < n ? q->source : q->extra;
    part[i] = known ? seq_item(s, of, k, at) : seq_element(s, of, at_k, at);
    if (i + 2 < n) q = q->extra.u.seq;
  }
  return v_list(s, V_TUPLE, n, part);
}

Value seq_item(Session *s, Value v, int64_t k, Span at) {
  stack_check();
  if (v.tag == V_LIST) return v.u.list->items[k];
  if (v.tag == V_RANGE) return number_node(s, want_int(s, v.u.range->lo, at, "the start") + k);
  if (v.tag != V_SEQ) return element(s, v, k, at);
  const Seq *q = v.u.seq;
  Value pair[2];
  if (q->kind == SEQ_REVERSE) return seq_item(s, q->source, seq_size(s, q->source, at) - 1 - k, at);
  if (q->kind == SEQ_STEP) return seq_item(s, q->source, k * q->n, at);
  if (q->kind == SEQ_TAKE) return seq_item(s, q->source, k, at);
  if (q->kind == SEQ_DROP) return seq_item(s, q->source, k + q->n, at);
  if (q->kind == SEQ_ZIP) return zipped(s, q, k, v_unit(), at);
  if (q->kind == SEQ_MAP) {
    pair[0] = seq_item(s, q->source, k, at);
    return call_simple(s, q->extra, 1, pair, at);
  }
  pair[0] = number_node(s, k);
  pair[1] = seq_item(s, q->source, k, at);
  return v_list(s, V_TUPLE, 2, pair);
}

/* ---- elements by a number that only the run knows */

bool seq_stays(Session *s, Value v) {
  stack_check();
  int64_t end[2] = {0, 0}, n;
  if (v_is_tensor(v) || v.tag == V_PARAM) {
    Type t = op_type_of(s, v);
    if (!t.rank || gr_sized_by_turn(op_dims_of(s), t.dim[0])) return t.rank != 0;
    return dim_is_const(op_dims_of(s), t.dim[0], &end[1]) && end[1] > UNROLL_MAX;
  }
  if (parted(v)) {
    size_t count;
    const Value *items = value_items(v, &count);
    return count && (v_is_tensor(items[0]) || parted(items[0])) && seq_stays(s, items[0]);
  }
  if (v.tag == V_SEQ && v.u.seq->staged)
    return seq_stays(s, v.u.seq->source) ||
           (v.u.seq->kind == SEQ_ZIP && seq_stays(s, v.u.seq->extra));
  if (v.tag != V_RANGE) return false;
  const Value ends[2] = {v.u.range->lo, v.u.range->hi};
  bool size = false; /* it is known when it is asked for */
  for (int i = 0; i < 2; i++) {
    if (ends[i].tag == V_NODE && !want_known(s, ends[i], &end[i])) return true;
    if (ends[i].tag == V_INT) end[i] = ends[i].u.i;
    size |= ends[i].tag == V_DIM;
  }
  if (size || end[1] <= end[0]) return false;
  return __builtin_sub_overflow(end[1], end[0], &n) || n > UNROLL_MAX;
}

static Value less(Session *s, Value a, Value b, Span at) {
  if (a.tag == V_INT && (a.u.i <= 0 || (b.tag == V_INT && a.u.i < b.u.i))) return a;
  if (b.tag == V_INT && (b.u.i <= 0 || a.tag == V_INT)) return b;
  Value of[2] = {stage_lift(s, op_as_tensor(s, a, DT_I64, at), at),
                 stage_lift(s, op_as_tensor(s, b, DT_I64, at), at)};
  Value v = op_run(s, OP_MIN, 2, of, NULL, 0, at);
  v.weak = true;
  return v;
}

static bool weak_int(Session *s, Value v) {
  return v.tag == V_INT || (v.tag == V_NODE && v.weak && dt_int((DType)op_type_of(s, v).dtype));
}

/* Whether elements of a list have one structure, and leaves of one type: tensors, ints or bools. */
static bool alike(Session *s, size_t n, const Value *items) {
  stack_check();
  if (!n) return true;
  size_t count = 0;
  if (!parted(items[0])) {
    bool number = weak_int(s, items[0]);
    for (size_t i = 0; i < n; i++) {
      if (items[0].tag == V_BOOL && items[i].tag == V_BOOL) continue;
      if (number ? !weak_int(s, items[i]) : !v_is_tensor(items[i]) || items[i].weak) return false;
      Type t = op_type_of(s, items[0]), u = op_type_of(s, items[i]);
      if (t.dtype != u.dtype || t.rank != u.rank) return false;
    }
    return true;
  }
  value_parts(s, items[0], &count);
  Value *part = ARENA_ARRAY(&s->scratch, Value, n);
  for (size_t p = 0; p < count; p++) {
    for (size_t i = 0; i < n; i++) {
      size_t k;
      const Value *of = value_counterpart(items[0], p, items[i]);
      if (!of || !value_items(items[i], &k) || k != count) return false;
      part[i] = *of;
    }
    if (!alike(s, n, part)) return false;
  }
  return true;
}

Value seq_number(Session *s, Value v, Span at) {
  stack_check();
  if (v.tag == V_RANGE) {
    Value lo = v.u.range->lo, hi = v.u.range->hi;
    return lo.tag == V_INT && !lo.u.i ? hi : op_binary(s, AST_SUB, hi, lo, at, at, at);
  }
  if (v.tag == V_SEQ) {
    const Seq *q = v.u.seq;
    Value n = seq_number(s, q->source, at);
    if (q->kind == SEQ_ZIP) return less(s, n, seq_number(s, q->extra, at), at);
    if (q->kind == SEQ_TAKE) return less(s, n, v_int(q->n), at);
    if (q->kind == SEQ_DROP) return op_binary(s, AST_SUB, n, v_int(q->n), at, at, at);
    if (q->kind != SEQ_STEP || q->n == 1) return n;
    n = op_binary(s, AST_ADD, n, v_int(q->n - 1), at, at, at);
    return op_binary(s, AST_FLOORDIV, n, v_int(q->n), at, at, at);
  }
  if (v_is_tensor(v) || v.tag == V_PARAM) {
    Type t = op_type_of(s, v);
    if (t.rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    return type_dim_value(s, t.dim[0]);
  }
  if (parted(v)) {
    int64_t n = leading(s, v, at);
    return v_int(n);
  }
  if (v.tag != V_LIST || !alike(s, v.u.list->count, v.u.list->items))
    fail_help(s, ERR_NOT_YET, at, "go through it by an index",
              "not yet: %s, with elements that are not alike, beside what a loop of code goes "
              "through without being unrolled",
              value_type_text(s, v));
  return v_int((int64_t)v.u.list->count);
}

/* Element k of a list. */
static Value listed(Session *s, size_t n, const Value *items, Value k, Span at) {
  stack_check();
  size_t count;
  Value *parts = parted(items[0]) ? value_parts(s, items[0], &count) : NULL;
  if (!parts) {
    Value of[2] = {op_stack(s, n, items, 0, at), k};
    Attr axis = attr_i(AT_AXIS, 0);
    Value v = op_run(s, OP_TAKE, 2, of, &axis, 1, at);
    v.weak = weak_int(s, items[0]);
    return v;
  }
  Value *part = ARENA_ARRAY(&s->scratch, Value, n);
  for (size_t p = 0; p < count; p++) {
    for (size_t i = 0; i < n; i++) part[i] = *value_counterpart(items[0], p, items[i]);
    parts[p] = listed(s, n, part, k, at);
  }
  return value_like(s, items[0], parts);
}

Value seq_element(Session *s, Value v, Value k, Span at) {
  stack_check();
  if (v.tag == V_RANGE) {
    Value lo = v.u.range->lo;
    if (lo.tag == V_INT && !lo.u.i) return k;
    Value of[2] = {k, stage_lift(s, op_as_tensor(s, lo, DT_I64, at), at)};
    Value r = op_run(s, OP_ADD, 2, of, NULL, 0, at); /* fits: it is below the range's end */
    r.weak = true;
    return r;
  }
  if (parted(v)) {
    size_t n;
    Value *items = value_parts(s, v, &n);
    for (size_t i = 0; i < n; i++) items[i] = seq_element(s, items[i], k, at);
    return value_like(s, v, items);
  }
  if (v.tag != V_SEQ) {
    if (v.tag == V_LIST) return listed(s, v.u.list->count, v.u.list->items, k, at);
    Value of[2] = {stage_lift(s, v, at), k};
    Attr axis = attr_i(AT_AXIS, 0);
    return op_run(s, OP_TAKE, 2, of, &axis, 1, at);
  }
  const Seq *q = v.u.seq;
  Value pair[2] = {k, k};
  switch (q->kind) {
  case SEQ_ZIP: return zipped(s, q, 0, k, at);
  case SEQ_TAKE: return seq_element(s, q->source, k, at);
  case SEQ_DROP:
    k = op_binary(s, AST_ADD, k, v_int(q->n), at, at, at);
    return seq_element(s, q->source, k, at);
  case SEQ_REVERSE:
    k = op_binary(s, AST_SUB, seq_number(s, q->source, at), k, at, at, at);
    k = op_binary(s, AST_SUB, k, v_int(1), at, at, at);
    return seq_element(s, q->source, k, at);
  case SEQ_STEP:
    k = op_binary(s, AST_MUL, k, v_int(q->n), at, at, at);
    return seq_element(s, q->source, k, at);
  case SEQ_MAP:
    pair[0] = seq_element(s, q->source, k, at);
    return call_simple(s, q->extra, 1, pair, at);
  default: break;
  }
  pair[1] = seq_element(s, q->source, k, at);
  return v_list(s, V_TUPLE, 2, pair);
}
