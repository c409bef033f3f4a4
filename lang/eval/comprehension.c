/* Comprehensions, and regions that are mapped over axes (rule 36).
 *
 * In: the construct's node. Out: a tensor or a list. A comprehension over ranges and tensors stages
 * its body once, for one element, and maps the graph over each axis (graph/batch.c); others run in
 * order.
 */
#include <string.h>

#include "graph/opcode.h"
#include "graph/pass.h"
#include "lang/check/check.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/bounds.h"
#include "lang/eval/bindings.h"
#include "lang/eval/call.h"
#include "lang/eval/element.h"
#include "lang/eval/eval.h"
#include "lang/eval/index.h"
#include "lang/eval/op_run.h"
#include "lang/eval/operands.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/shapes.h"
#include "lang/eval/steps.h"
#include "lang/eval/type.h"
#include "lang/eval/want.h"
#include "lang/names/desugar.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"

static bool numeric(Value v) {
  return v_is_tensor(v) || v_is_number(v) || v.tag == V_BOOL;
}

/* The source of one `for` of a comprehension. It is evaluated once, before the first iteration, or,
 * if it mentions the variable of an earlier `for`, at each iteration of the loops around it. */
typedef struct CompSource {
  Value v;
  bool once;
} CompSource;

typedef struct CompRun {
  Session *s;
  Node *e;
  const CompSource *source;
  Value *items, *keys; /* keys: of a dict */
  size_t count, cap, key_count, key_cap;
  bool over_seq, over_range;
  Element *element[CKL_MAX_RANK]; /* one for each loop */
  Operands read;                  /* the items so far */
} CompRun;

static void comp_push(CompRun *c, Value v) {
  VEC_PUSH(&c->s->scratch, c->items, c->count, c->cap, v);
  c->read.v = c->items;
  c->read.count = c->count;
}

/* An expression of a comprehension. Rules 36 and 43, for what no resolver looked at before it
 * ran. */
static Value comp_value(Session *s, Node *e) {
  size_t fixed = s->frame->fixed;
  s->frame->fixed = 1 + s->local_count;
  Value v = eval_expr(s, e);
  s->frame->fixed = fixed;
  if (s->flow != FLOW_NEXT && !s->abstract)
    fail_at(s, s->flow == FLOW_RETURN ? ERR_RETURN : ERR_BREAK, e->span,
            "`%s` cannot leave a comprehension",
            s->flow == FLOW_RETURN  ? "return"
            : s->flow == FLOW_BREAK ? "break"
                                    : "continue");
  return v;
}

/* What a filter says of the present element: code has to know it while it is staged, as it decides
 * how long the list is. */
static bool comp_takes(Session *s, Node *cond) {
  Value v = comp_value(s, cond);
  if (s->flow != FLOW_NEXT) return false;
  if (v.tag == V_NODE)
    fail_help(s, ERR_NOT_CONST, cond->span,
              "`where(c, x, 0.0)` keeps the shape; a list that grows in a loop may depend on data",
              "in code a filter cannot depend on data, as the length of a list does not");
  return want_bool(s, v, cond->span, "the condition of a filter");
}

static void comp_element(CompRun *c, Node *e) {
  Session *s = c->s;
  if (e->kind == N_ENTRY) {
    Value key = comp_value(s, e->entry.key);
    if (s->flow != FLOW_NEXT) return;
    key = dict_key(s, key, e->entry.key->span);
    VEC_PUSH(&s->scratch, c->keys, c->key_count, c->key_cap, key);
    e = e->entry.value;
    comp_push(c, bind_made_definite(s, comp_value(s, e), e->span));
  } else {
    comp_push(c, comp_value(s, e));
  }
}

static void comp_iterations(CompRun *c, uint32_t k);

static void comp_iteration(CompRun *c, uint32_t k, Value v) {
  Session *s = c->s;
  size_t base = s->local_count;
  check_step(s);
  Element *now = c->element[k];
  element_enter(s, now);
  s->frame->block_depth++;
  const Node *f = c->e->comp.fors.items[k];
  bind_pattern(s, f->loop.pat, v, false);
  bool taken = !f->loop.cond || comp_takes(s, f->loop.cond);
  if (taken && k + 1 < c->e->comp.fors.count)
    comp_iterations(c, k + 1);
  else if (taken)
    comp_element(c, c->e->comp.value);
  s->frame->block_depth--;
  local_pop(s, base);
  element_leave(s, now);
}

static void comp_iterations(CompRun *c, uint32_t k) {
  stack_check();
  Session *s = c->s;
  Node *f = c->e->comp.fors.items[k];
  Value it = c->source[k].once ? c->source[k].v : seq_source(s, f->loop.iter);
  Span at = f->loop.iter->span;
  Element *element = c->element[k] = elements_start(s);
  if (it.tag == V_RANGE) {
    c->over_range = true;
    int64_t lo = want_int(s, it.u.range->lo, at, "the start of the range"),
            hi = want_int(s, it.u.range->hi, at, "the end of the range");
    for (int64_t i = lo; i < hi; i++) {
      count_step(s, at);
      comp_iteration(c, k, v_int(i));
    }
  } else if (it.tag == V_LIST || it.tag == V_TUPLE) {
    for (size_t i = 0; i < it.u.list->count; i++) {
      count_step(s, at);
      comp_iteration(c, k, it.u.list->items[i]);
    }
  } else if (v_is_tensor(it)) {
    c->over_range = true;
    Type t = op_type_of(s, it);
    int64_t n = 0;
    if (t.rank == 0) fail_at(s, ERR_ITERATE, at, "a rank-0 tensor has no elements to go through");
    unit_need_const(s, t.dim[0], at, "the number of elements", &n);
    for (int64_t i = 0; i < n; i++) {
      count_step(s, at);
      comp_iteration(c, k, op_element(s, it, i, at));
    }
  } else if (it.tag == V_SEQ && s->stage) {
    c->over_seq = true;
    int64_t n = seq_size(s, it, at);
    for (int64_t i = 0; i < n; i++) {
      count_step(s, at);
      comp_iteration(c, k, seq_item(s, it, i, at));
    }
  } else if (it.tag == V_SEQ) {
    c->over_seq = true;
    seq_comp(s, it, at, c, k, (void (*)(void *, uint32_t, Value))comp_iteration);
  } else {
    want_elements(s, it, at, "a comprehension");
  }
  elements_end(s, element);
}

static bool filtered(const Node *e) {
  bool some = false;
  for (uint32_t k = 0; k < e->comp.fors.count; k++)
    some |= e->comp.fors.items[k]->loop.cond != NULL;
  return some;
}

/* Element by element, in order. Numeric elements are stacked unless all sources are lists, or
 * elements are left out. */
static Value comp_in_order(Session *s, Node *e, const CompSource *source) {
  CompRun c = {.s = s, .e = e, .source = source};
  operands_open(s, &c.read, NULL);
  comp_iterations(&c, 0);
  operands_close(s, &c.read);
  bool all = c.count > 0, unknown = false;
  for (size_t i = 0; i < c.count; i++) {
    all &= numeric(c.items[i]);
    unknown |= c.items[i].tag == V_UNKNOWN; /* in `check`: may be a tensor, may be none */
  }
  if (e->comp.value->kind == N_ENTRY) {
    for (size_t i = 0; i < c.key_count; i++)
      if (c.keys[i].tag == V_UNKNOWN) return c.keys[i];
    return v_dict(s, c.key_count, c.keys, c.items);
  }
  if (unknown && (c.over_range || c.over_seq)) return (Value){.tag = V_UNKNOWN};
  if (!all || filtered(e) || !(c.over_range || c.over_seq))
    return v_list(s, V_LIST, c.count, c.items);
  Value v = op_stack(s, c.count, c.items, 0, e->span);
  uint32_t k = e->comp.fors.count;
  if (k == 1) return v;
  Type t = op_type_of(s, v); /* several loops: their sizes are the leading axes, if each has one */
  Dim d[2 * CKL_MAX_RANK];
  int n = 0;
  for (uint32_t i = 0; i < k; i++) {
    Value it = source[i].v;
    if (!source[i].once || (it.tag != V_RANGE && !v_is_tensor(it))) return v;
    d[n++] = it.tag == V_RANGE
                 ? dim_sub(op_dims_of(s), type_dim_of(s, it.u.range->hi, e->span, "a range"),
                           type_dim_of(s, it.u.range->lo, e->span, "a range"))
                 : op_type_of(s, it).dim[0];
  }
  for (int i = 1; i < t.rank; i++) d[n++] = t.dim[i];
  return op_reshape(s, v, n, d, e->span);
}

typedef struct Axis {
  Value lo;
  Value source; /* a range, or a tensor */
  Dim n;
  bool range;
} Axis;

typedef struct BatchJob {
  Session *s;
  Node *e;
  Axis *axes;
  uint32_t n;
  Stage *st;
  Value result; /* of the body, in st */
  Val *inputs;
} BatchJob;

static void batch_job(void *ud) {
  BatchJob *j = ud;
  Session *s = j->s;
  Graph *g = j->st->g;
  size_t base = s->local_count;
  s->frame->block_depth++;
  for (uint32_t k = 0; k < j->n; k++) {
    Type t = {.kind = TK_TENSOR, .dtype = DT_I64};
    if (!j->axes[k].range) {
      Type full = op_type_of(s, j->axes[k].source);
      t.dtype = full.dtype;
      t.dev = full.dev;
      t.rank = (uint8_t)(full.rank - 1);
      memcpy(t.dim, full.dim + 1, sizeof(Dim) * t.rank);
    }
    j->inputs[k] = gr_input(g, &t);
  }
  for (uint32_t k = 0; k < j->n; k++) {
    Value v = {.tag = V_NODE, .aux = j->st->level, .weak = j->axes[k].range};
    v.u.v = j->inputs[k];
    if (v.weak) j->st->counters |= 1u << k;
    if (v.weak && !(j->axes[k].lo.tag == V_INT && j->axes[k].lo.u.i == 0)) {
      Value of[2] = {v, op_as_tensor(s, j->axes[k].lo, DT_I64, j->e->span)};
      v = op_run(s, OP_ADD, 2, of, NULL, 0, j->e->span); /* fits: it is below the range's end */
      v.weak = true;
    }
    bind_pattern(s, j->e->comp.fors.items[k]->loop.pat, v, false);
  }
  Value r = comp_value(s, j->e->comp.value);
  s->frame->block_depth--;
  local_pop(s, base);
  if (numeric(r))
    r = stage_lift(s, op_as_tensor(s, r, DT_COUNT, j->e->comp.value->span), j->e->span);
  j->result = r;
}

void region_open(Session *s, Stage *st, Name name) {
  Graph *g = gr_new(s->stage->g->arena, op_dims_of(s), s->names, name);
  g->at = s->stage->g->at;
  g->blocks = s->stage->g->blocks;
  stage_push(s, st, g);
}

Val *region_map(Session *s, const Stage *st, size_t k, const Value *rows, const Dim *n, bool zip,
                Span at) {
  Graph *g = st->g;
  GErr e = {.code = ERR_BUG, .operand = -1};
  size_t nin = g->input_count;
  bool *batched = ARENA_ARRAY(&s->scratch, bool, nin + 1);
  bool *key = ARENA_ARRAY(&s->scratch, bool, nin + 1); /* random keys: one for each element */
  size_t axes = zip ? 1 : k;
  for (size_t i = k; i < nin; i++) key[i] = element_is_key(s->stage, st->outer[i - k]);
  for (size_t axis = axes; axis-- > 0;) { /* the innermost first */
    for (size_t i = 0; i < nin; i++) batched[i] = key[i] || (zip ? i < k : i == axis);
    g = gr_batch(s->stage->g->arena, g, batched, n[axis], &e);
    if (!g) fail_gerr(s, at, &e);
  }
  Val *in = ARENA_ARRAY(&s->scratch, Val, nin + 1);
  Val *out = ARENA_ARRAY(&s->scratch, Val, g->output_count + 1);
  for (size_t i = 0; i < nin; i++)
    in[i] = i < k    ? stage_operand(s, rows[i], at).u.v
            : key[i] ? element_rows(s, st->outer[i - k], axes, n, at)
                     : st->outer[i - k];
  call_enter_values(s, nin, in, at);
  if (!gr_inline(s->stage->g, g, in, NULL, out, &e)) fail_gerr(s, at, &e);
  return out;
}

/* In code, with ranges and tensors as sources: batches the body. False if it is not numeric. */
static bool comp_batched(Session *s, Node *e, Axis *axes, Value *out) {
  uint32_t n = e->comp.fors.count;
  Stage st;
  Val inputs[CKL_MAX_RANK], from[CKL_MAX_RANK];
  for (uint32_t i = 0; i < n; i++)
    from[i] = axes[i].range ? VAL_NONE : stage_operand(s, axes[i].source, e->span).u.v;
  region_open(s, &st, NULL);
  st.batched = true;
  st.rows = from;
  st.row_count = n;
  BatchJob j = {s, e, axes, n, &st, v_unit(), inputs};
  batch_job(&j);
  stage_pop(s);
  if (j.result.tag == V_UNKNOWN) {
    *out = j.result;
    return true;
  }
  if (j.result.tag != V_NODE) return false;
  gr_output(st.g, j.result.u.v);
  Value rows[CKL_MAX_RANK];
  Dim sizes[CKL_MAX_RANK];
  for (uint32_t i = 0; i < n; i++) {
    rows[i] = axes[i].range ? op_iota(s, axes[i].n, DT_I64, e->span) : axes[i].source;
    sizes[i] = axes[i].n;
  }
  *out = (Value){.tag = V_NODE, .aux = s->stage->level};
  out->u.v = region_map(s, &st, n, rows, sizes, false, e->span)[0];
  return true;
}

typedef struct CompJob {
  Session *s;
  Node *e;
  const Axis *axes;
  bool ranges; /* ranges are arguments, too */
  Value v;
} CompJob;

/* Calls the comprehension as code, with the tensors that it iterates over as arguments. */
static void comp_job(void *ud) {
  CompJob *j = ud;
  bool given[CKL_MAX_RANK];
  Value v[CKL_MAX_RANK];
  Name names[CKL_MAX_RANK] = {NULL};
  Span spans[CKL_MAX_RANK];
  Args a = {.v = v, .names = names, .spans = spans, .call = j->e->span};
  for (uint32_t k = 0; k < j->e->comp.fors.count; k++) {
    const Axis *of = &j->axes[k];
    Value lo = of->lo, hi = of->range ? of->source.u.range->hi : lo;
    /* a range of no elements is the same as the empty one: no size is negative */
    bool below = lo.tag == V_INT && hi.tag == V_INT && hi.u.i < lo.u.i;
    given[k] = j->ranges || !of->range || below;
    if (!given[k]) continue;
    spans[a.count] = j->e->comp.fors.items[k]->loop.iter->span;
    v[a.count++] = below ? v_range(j->s, of->lo, of->lo) : of->source;
  }
  Value f = closure_of_body(j->s, desugar_comp(j->s, j->e, given), true);
  j->v = call_run_code(j->s, f.u.fn, &a);
}

/* An end of a range may be a tensor in script alone. */
static bool refused_or_end(ErrCode c) {
  return c == ERR_WANT_INT || call_refused(c);
}

/* In script: runs the comprehension as one compiled call. False if code cannot do it; nothing has
 * run then. If something must be a constant or an int in code but is not, ranges become arguments,
 * and if it still is no constant, code cannot do it. */
static bool comp_compiled(Session *s, Node *e, const Axis *axes, Value *out) {
  CompJob j = {.s = s, .e = e, .axes = axes};
  int why = call_attempt(s, comp_job, &j, refused_or_end);
  if (why == ERR_NOT_CONST || why == ERR_WANT_INT) {
    j.ranges = true;
    why = call_attempt(s, comp_job, &j, call_refused);
  }
  *out = j.v;
  return why < 0;
}

/* Whether the ends are sizes, of the call or of an iteration. */
static bool sized(Session *s, Value lo, Value hi) {
  const Value end[2] = {lo, hi};
  bool all = true;
  for (int i = 0; i < 2; i++)
    all &= end[i].tag == V_INT || end[i].tag == V_DIM || bounds_size(s, end[i]) != DIM_BAD;
  return all;
}

Value eval_comp(Session *s, Node *e) {
  uint32_t n = e->comp.fors.count;
  if (n > CKL_MAX_RANK)
    fail_at(s, ERR_RANK_MAX, e->span, "a tensor has at most %d axes", CKL_MAX_RANK);
  Axis axes[CKL_MAX_RANK];
  CompSource source[CKL_MAX_RANK] = {{{0}, false}};
  bool batch = !filtered(e) && e->comp.value->kind != N_ENTRY, unknown = false;
  for (uint32_t k = 0; k < n && !unknown; k++) {
    Node *f = e->comp.fors.items[k];
    if (k && desugar_mentions_earlier(e, k)) {
      batch = false; /* a range that depends on an outer variable: in order */
      continue;
    }
    Value it = seq_source(s, f->loop.iter);
    if (s->flow != FLOW_NEXT) return v_unit();
    source[k] = (CompSource){it, true};
    if (in_code(s)) seq_refuse(s, it, f->loop.iter->span);
    if (it.tag == V_SEQ && in_code(s) && seq_stays(s, it))
      fail_help(s, ERR_NOT_YET, f->loop.iter->span,
                "go through a range, and index: `for i in 0..n`",
                "not yet: a comprehension of code through a sequence of so many elements, or of a "
                "number that only the run knows");
    unknown =
        it.tag == V_UNKNOWN ||
        (it.tag == V_RANGE && (it.u.range->lo.tag == V_UNKNOWN || it.u.range->hi.tag == V_UNKNOWN));
    if (unknown || !batch) continue;
    if (it.tag == V_RANGE) {
      Value lo = it.u.range->lo, hi = it.u.range->hi;
      if (!sized(s, lo, hi))
        fail_at(s, ERR_NOT_CONST, f->loop.iter->span,
                "the size of a comprehension must be a dim expression");
      Dim d = dim_sub(op_dims_of(s), type_dim_of(s, hi, e->span, "a range"),
                      type_dim_of(s, lo, e->span, "a range"));
      int64_t c;
      if (dim_is_const(op_dims_of(s), d, &c) && c < 0) d = dim_const(op_dims_of(s), 0);
      axes[k] = (Axis){lo, it, d, true};
    } else if (v_is_tensor(it)) {
      Type t = op_type_of(s, it);
      if (t.rank == 0)
        fail_at(s, ERR_ITERATE, f->loop.iter->span,
                "a rank-0 tensor has no elements to go through");
      if (s->stage) it = op_as_tensor(s, it, DT_COUNT, e->span);
      axes[k] = (Axis){v_int(0), it, t.dim[0], false};
    } else
      batch = false;
  }
  if (unknown || (s->abstract && !batch)) return abstract_comp(s, e);
  Value v;
  DrawMark before = random_mark(s);
  bool code = batch && desugar_is_code(s, e), nests = s->frame->nests;
  if (code && (s->stage ? comp_batched(s, e, axes, &v) : comp_compiled(s, e, axes, &v))) return v;
  random_back(s, &before); /* draws that the attempt staged do not count */
  bool seq = false;
  for (uint32_t k = 0; k < n; k++) seq |= source[k].v.tag == V_SEQ;
  s->frame->nests |= !s->stage && !seq && desugar_is_code(s, e);
  v = comp_in_order(s, e, source);
  s->frame->nests = nests;
  return v;
}
