/* Compiled functions: staging, the cache of signatures, running, randomness of a call.
 *
 * In: a code function and arguments of script. Out: its result, recorded on the tape as one node.
 * A call is flattened: every tensor, param, buffer leaf and float reachable from the arguments, the
 * captures and `self` is a leaf and a graph input; everything else (structure, dtypes, ranks, model
 * ints, strings, bools) is text of the signature. Bracket dims and int arguments are symbols, so
 * one compilation serves all sizes; where code needs a size as a constant (need_const) staging
 * starts over with that symbol pinned, and the pin becomes part of the signature (rules 26, 27,
 * 50). State written by the call becomes extra outputs, stored only after everything ran (rule 54).
 * Invariant: the graph refers to leaves by number only, so instances of one type share it.
 */
#include "lang/compile/compile.h"

#include <string.h>
#include <xxhash.h>

#include "autograd/remat.h"
#include "lang/tape/hook.h"
#include "lang/tape/callback.h"
#include "lang/compile/tiering.h"
#include "lang/compile/report.h"
#include "lang/checkpoint/policy.h"
#include "lang/value/sizes.h"
#include "lang/tape/tape.h"
#include "runtime/lru.h"

/* ---- leaves in a unit */

static bool pinned(const Unit *u, size_t leaf, int axis) {
  for (size_t i = 0; i < u->pin_count; i++)
    if (u->pins[i].leaf == leaf && u->pins[i].axis == axis) return true;
  return false;
}

/* `name`: dims of one name are one symbol; else `label` is shown, a number or axis that has no
 * name. */
static Dim bind_symbol(Unit *u, size_t leaf, int axis, Name name, Name label, Span at,
                       int64_t value) {
  if (name)
    for (size_t i = 0; i < u->bind_count; i++)
      if (u->binds[i].name == name) {
        SymBind again = u->binds[i]; /* sizes are compared when a call is bound */
        again.leaf = leaf;
        again.axis = axis;
        again.name = NULL;
        VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, again);
        return again.dim;
      }
  if (pinned(u, leaf, axis)) return dim_const(u->g->dims, value);
  SymBind b = {.leaf = leaf, .axis = axis, .name = name};
  b.dim = dim_symbol(u->g->dims, name ? name : label, at, &b.sym);
  VEC_PUSH(u->arena, u->binds, u->bind_count, u->bind_cap, b);
  return b.dim;
}

static Val unit_input(Unit *u, const Type *t, int64_t source) {
  Val v = gr_input(u->g, t);
  VEC_PUSH(u->arena, u->source, u->source_count, u->source_cap, source);
  return v;
}

Value unit_leaf(Unit *u, size_t i) {
  Leaf *l = &u->flat.leaves[i];
  if (l->kind == LEAF_INT) {
    Dim d = bind_symbol(u, i, -1, NULL, l->label, (Span){0}, l->v.u.i);
    int64_t n;
    if (dim_is_const(u->g->dims, d, &n)) return v_int(n);
    return (Value){.tag = V_DIM, .u.d = d};
  }
  Type t = {.kind = TK_TENSOR, .dtype = DT_F64};
  if (l->kind != LEAF_FLOAT) {
    const Tensor *c = leaf_tensor_of(l);
    t.dtype = (uint8_t)c->dtype;
    t.dev = (uint8_t)c->store->dev;
    t.rank = (uint8_t)c->rank;
    for (int k = 0; k < c->rank; k++) {
      Name name, label = NULL;
      int nth;
      if (!leaf_free_axis(l, c->rank, k, &name, &nth)) {
        t.dim[k] = dim_const(u->g->dims, c->dim[k]);
        continue;
      }
      if (name && nth >= 0) name = name_numbered(u->s, name, (size_t)nth);
      if (!name && l->label) label = name_numbered(u->s, l->label, (size_t)k);
      t.dim[k] = bind_symbol(u, i, k, name, label, l->type->span, c->dim[k]);
    }
  }
  Value v = {.tag = V_NODE, .aux = 1, .weak = l->kind == LEAF_FLOAT};
  v.u.v = unit_input(u, &t, (int64_t)i);
  return v;
}

/* Inputs for the leaves that were found since the last time. */
static void unit_leaves(Unit *u) {
  while (u->staged_count < u->flat.count) {
    Value v = unit_leaf(u, u->staged_count);
    VEC_PUSH(u->arena, u->staged, u->staged_count, u->staged_cap, v);
  }
}

const Type *unit_type(Unit *u, Value v) {
  size_t i = flat_leaf(&u->flat, v);
  return i < u->staged_count ? gr_type(u->g, u->staged[i].u.v) : NULL;
}

Type unit_sized(Unit *u, Type t, bool first) {
  DimTab *dims = u->g->dims;
  size_t n = dim_symbol_count(dims);
  int64_t *env = ARENA_ARRAY(u->arena, int64_t, n + 1), d;
  bool *set = ARENA_ARRAY(u->arena, bool, n + 1);
  for (size_t i = 0; i < u->bind_count && !u->check; i++) {
    const SymBind *b = &u->binds[i];
    if (!first || !set[b->sym]) env[b->sym] = leaf_size(&u->flat.leaves[b->leaf], b->axis);
    set[b->sym] = true;
  }
  for (int k = 0; k < t.rank; k++)
    if (dim_eval(dims, t.dim[k], env, set, &d)) t.dim[k] = dim_const(dims, d);
  return t;
}

/* Numbers are leaves by position: a cursor walks them in the order of flatten. */
typedef struct Cursor {
  Unit *u;
  size_t next;
} Cursor;

static Value rebuild_at(Session *s, Cursor *c, Value v);

static void seen_inst(Session *s, Cursor *c, Inst *inst) {
  Unit *u = c->u;
  if (flat_inst(&u->flat, inst) < u->met) return;
  size_t index = u->met++;
  for (size_t i = 0; i < inst->count; i++) {
    Field *d = &inst->fields[i];
    if (d->kind != FIELD_BUFFER && d->v.tag == V_INT) continue;
    Value v = rebuild_at(s, c, d->v);
    if (d->kind == FIELD_BUFFER || d->kind == FIELD_LET || d->kind == FIELD_ARG) {
      State st = {.key = inst, .field = d->name, .index = index, .cur = v};
      VEC_PUSH(u->arena, u->states, u->state_count, u->state_cap, st);
    }
  }
}

static Value rebuild_at(Session *s, Cursor *c, Value v) {
  stack_check();
  Unit *u = c->u;
  switch ((ValueTag)v.tag) {
  case V_TENSOR:
  case V_PARAM: {
    size_t i = flat_leaf(&u->flat, v);
    if (i == c->next) {
      c->next++;
      if (v.tag == V_PARAM) {
        State st = {.key = v.u.p, .index = i, .cur = u->staged[i]};
        VEC_PUSH(u->arena, st.versions, st.version_count, st.version_cap, u->staged[i].u.v);
        VEC_PUSH(u->arena, u->states, u->state_count, u->state_cap, st);
      }
    }
    return v.tag == V_PARAM ? v : u->staged[i];
  }
  case V_FLOAT:
  case V_INT: return u->staged[c->next++];
  case V_LIST:
  case V_TUPLE: {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    for (size_t i = 0; i < v.u.list->count; i++) items[i] = rebuild_at(s, c, v.u.list->items[i]);
    Value r = list_value(s, (ValueTag)v.tag, v.u.list->count, items);
    r.u.list->weak = v.tag == V_LIST && v.u.list->weak;
    return r;
  }
  case V_RECORD: {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.rec->count + 1);
    for (size_t i = 0; i < v.u.rec->count; i++) items[i] = rebuild_at(s, c, v.u.rec->items[i]);
    return record_value(s, v.u.rec->count, v.u.rec->names, items);
  }
  case V_RANGE: {
    Value lo = rebuild_at(s, c, v.u.range->lo), hi = rebuild_at(s, c, v.u.range->hi);
    return range_value(s, lo, hi);
  }
  case V_FN: {
    FnObj *f = v.u.fn;
    if (f->self) seen_inst(s, c, f->self);
    Local *cap = ARENA_ARRAY(&s->scratch, Local, f->capture_count + 1);
    for (size_t i = 0; i < f->capture_count; i++) {
      cap[i] = f->captures[i];
      cap[i].v = rebuild_at(s, c, f->captures[i].v);
    }
    return fn_like(s, f, f->self, cap);
  }
  case V_INST: seen_inst(s, c, v.u.inst); return v;
  default: return v;
  }
}

/* ---- stages */

void stage_push(Session *s, Stage *st, Graph *g) {
  *st = (Stage){.g = g,
                .up = s->stage,
                .unit = s->stage ? s->stage->unit : NULL,
                .level = s->stage ? s->stage->level + 1 : 1,
                .open = s->stage ? s->stage->open : NULL};
  s->stage = st;
  if (s->modes.no_grad) stage_quiet(s, true);
}

void stage_pop(Session *s) {
  s->stage = s->stage->up;
}

void stage_at(Session *s, Span at) {
  Prov *p = &s->stage->g->at;
  p->span = at;
  p->path = stage_path(s);
  if (s->modes.opaque)
    p->path = names_of(s->names, txt(s, "%s%s", p->path ? p->path : "", s->modes.opaque));
  p->anomaly = s->modes.anomaly;
}

static Val capture_val(Stage *st, Val outer) {
  for (size_t i = 0; i < st->capture_count; i++)
    if (val_eq(st->outer[i], outer)) return st->inner[i];
  Val in = gr_input(st->g, gr_type(st->up->g, outer));
  Arena *a = st->g->arena;
  size_t n = st->capture_count, cap = st->capture_cap;
  VEC_PUSH(a, st->outer, n, st->capture_cap, outer);
  VEC_PUSH(a, st->inner, st->capture_count, cap, in);
  return in;
}

static Val lift_to(Stage *st, Value v) {
  if (v.aux >= st->level) return v.u.v;
  return capture_val(st, lift_to(st->up, v));
}

Value stage_lift(Session *s, Value v, Span at) {
  if (v.tag == V_PARAM) v = param_read(s, v.u.p, at);
  if (v.tag == V_TENSOR) {
    size_t i = s->stage->unit ? flat_leaf(&s->stage->unit->flat, v) : SIZE_MAX;
    if (i == SIZE_MAX)
      fail(s, ERR_BUG, at, "a tensor of script reached code without being an argument");
    v = s->stage->unit->staged[i];
  }
  if (v.tag != V_NODE) v = as_tensor(s, v, DT_COUNT, at);
  Value r = {.tag = V_NODE, .weak = v.weak, .aux = s->stage->level};
  r.u.v = lift_to(s->stage, v);
  return r;
}

/* ---- no_grad in code */

void stage_quiet(Session *s, bool on) {
  Stage *st = s->stage;
  uint32_t now = (uint32_t)st->g->node_count;
  struct Quiet *last = st->quiet_count ? &st->quiet[st->quiet_count - 1] : NULL,
               q = {now, UINT32_MAX};
  bool open = last && last->hi == UINT32_MAX;
  if (on && st->unit) st->unit->quiet = true;
  if (on && !open) VEC_PUSH(st->g->arena, st->quiet, st->quiet_count, st->quiet_cap, q);
  if (!on && open) last->hi = now;
}

typedef enum Made { MADE_BEFORE, MADE_QUIET, MADE_LOUD } Made;

/* Whether v was made under no_grad; BEFORE: not since node `start` of its stage, or it is a
 * leaf. */
static Made made(const Stage *st, Val v, uint32_t start) {
  for (;;) {
    const GNode *n = gr_node(st->g, v);
    if (n->op == OP_ALIAS) {
      v = gr_operand(st->g, v.node, 0);
    } else if (n->op == OP_INPUT && st->up) {
      size_t i = 0;
      while (i < st->capture_count && !val_eq(st->inner[i], v)) i++;
      if (i == st->capture_count) return MADE_BEFORE;
      v = st->outer[i];
      st = st->up;
      start = UINT32_MAX;
    } else if (n->op == OP_INPUT || n->op == OP_STOP) {
      return MADE_BEFORE;
    } else {
      break;
    }
  }
  for (size_t i = st->quiet_count; i-- > 0 && st->quiet[i].hi > v.node;)
    if (v.node >= st->quiet[i].lo) return MADE_QUIET;
  return v.node < start ? MADE_BEFORE : MADE_LOUD;
}

static bool can_track(Session *s, Value v) {
  return v.tag == V_NODE && !v.weak && dt_float((DType)type_of(s, v).dtype);
}

Value stage_operand(Session *s, Value v, Span at) {
  v = stage_lift(s, v, at);
  if (s->modes.no_grad || s->abstract || !s->stage->unit || !s->stage->unit->quiet) return v;
  if (!can_track(s, v) || made(s->stage, v.u.v, 0) != MADE_QUIET) return v;
  GErr e = {.code = ERR_BUG};
  stage_at(s, at);
  v.u.v = gr_op(s->stage->g, OP_STOP, &v.u.v, 1, NULL, 0, NULL, 0, &e);
  return v;
}

/* With start = UINT32_MAX what came from before stays as it is; else it is cut too. */
Value leave_quiet(Session *s, Value v, uint32_t start, Span at) {
  stack_check();
  if (can_track(s, v)) {
    Value x = stage_lift(s, v, at);
    Made m = made(s->stage, x.u.v, start);
    return m == MADE_LOUD || (m == MADE_BEFORE && start == UINT32_MAX)
               ? v
               : op_run(s, OP_STOP, 1, &x, NULL, 0, at);
  }
  bool list = v.tag == V_TUPLE || (v.tag == V_LIST && !v.u.list->weak);
  if (!list && v.tag != V_RECORD) return v;
  size_t n = list ? v.u.list->count : v.u.rec->count;
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++)
    items[i] = leave_quiet(s, list ? v.u.list->items[i] : v.u.rec->items[i], start, at);
  return list ? list_value(s, (ValueTag)v.tag, n, items)
              : record_value(s, n, v.u.rec->names, items);
}

typedef struct FindSym {
  Unit *u;
  bool found;
} FindSym;

static void find_symbol(void *ud, Sym sym) {
  FindSym *f = ud;
  if (f->found) return;
  for (size_t i = 0; i < f->u->bind_count; i++)
    if (f->u->binds[i].sym == sym) {
      f->u->wanted.leaf = f->u->binds[i].leaf;
      f->u->wanted.axis = f->u->binds[i].axis;
      f->found = true;
      return;
    }
}

void need_const(Session *s, Dim d, Span at, const char *why, int64_t *out) {
  if (dim_is_const(dims_of(s), d, out)) return;
  Unit *u = s->stage ? s->stage->unit : NULL;
  FindSym f = {u, false};
  if (u) dim_symbols(u->g->dims, d, find_symbol, &f);
  if (!f.found) fail(s, ERR_NOT_CONST, at, "%s must be a constant", why);
  u->restart = true;
  mem_throw(&s->mem, MEM_ERR_RESTART);
}

Value global_in_code(Session *s, Global *g, Span at) {
  (void)at;
  Unit *u = s->stage->unit;
  Value v = g->v;
  if (v.tag == V_INT || v.tag == V_BOOL || v.tag == V_STR || v.tag == V_NONE ||
      (v.tag == V_FLOAT && g->is_const)) {
    /* constants of the file are constants; other ints and texts are part of the signature */
    if (g->is_const || u->check) return v;
  }
  if (u->check) return v;
  size_t k;
  for (k = 0; k < u->hidden_count; k++)
    if (u->hidden[k] == g) break;
  if (k == u->hidden_count) VEC_PUSH(u->arena, u->hidden, u->hidden_count, u->hidden_cap, g);
  if (v.tag == V_INT || v.tag == V_BOOL || v.tag == V_STR || v.tag == V_NONE || v.tag == V_FN ||
      v.tag == V_MODULE || v.tag == V_BUILTIN) {
    if (v.tag != V_FN || (!v.u.fn->capture_count && !v.u.fn->self)) return v;
  }
  for (size_t i = 0; i < u->hidden_value_count; i++)
    if (u->hidden_values[i].g == g) return u->hidden_values[i].v;
  Stage *now = s->stage; /* leaves belong to the unit's own graph */
  s->stage = &u->root;
  Cursor c = {u, u->flat.count};
  u->flat.label = g->name;
  flatten(&u->flat, v, NULL, NULL);
  unit_leaves(u);
  Value r = rebuild_at(s, &c, v);
  s->stage = now;
  HiddenValue hv = {g, r};
  VEC_PUSH(u->arena, u->hidden_values, u->hidden_value_count, u->hidden_value_cap, hv);
  return r;
}

/* ---- compiled functions */

typedef struct PlainPlan { /* where blocks are planned by sizes */
  struct PlainPlan *next;
  int64_t *sizes;
  Choice choice;
  const Graph *g;
  Planned *made; /* that g belongs to, or NULL */
  Native *native;
} PlainPlan;

typedef struct JointEntry {
  struct JointEntry *next;
  char *mask;
  JointRef *j;
} JointEntry;

typedef struct Write {
  bool is_param;
  size_t index; /* leaf, or instance */
  Name field;
  Value tmpl; /* V_NODE: u.v.node is the output's number */
} Write;

typedef struct Compiled Compiled;
struct Compiled {
  LruEntry kept; /* first: an entry of the cache is the Compiled */
  int64_t rc;
  Session *s;
  Node *decl;
  const char *sig;
  size_t sig_len;
  Arena arena;
  Graph *g;     /* as written: what a joint graph is made of */
  const Graph *whole; /* with the choice of its blocks open */
  const Graph *plain; /* simplified, as written: what runs when no gradient is wanted */
  PlainPlan *plans;
  bool *sizing; /* per symbol: a size depends on it; NULL until it is asked for */
  int64_t *thrift_sizes; /* for which `thrift` is the answer of plan_thrift_wanted; NULL: none */
  bool thrift;
  uint64_t told[4]; size_t told_count; /* sizes whose plan was shown */
  size_t leaf_count;
  bool *reached; /* per leaf: see Leaf */
  Span call; /* that was staged: places in it stand for those of a later call */
  int64_t *source;
  SymBind *binds;
  size_t bind_count;
  Pin *pins;
  size_t pin_count;
  RandomUse *randoms;
  size_t random_count;
  Global **hidden;
  size_t hidden_count;
  const char *hidden_sig;
  size_t hidden_len;
  Value result;
  size_t result_outputs;
  Write *writes;
  size_t write_count;
  JointEntry *joints; /* none where it is not in the cache any more */
  bool cached;
  Native *native; /* of `plain` */
  Hosts *hosts;   /* NULL: none */
  Span eval_dropout;
  bool regrad, takes_grad;
  LayerPath *paths;
  size_t path_count;
};

/* Compiled calls that were not used lately go where their graphs as staged take more than this in
 * all; small ones are 4 KB, so some thousand stay, which with all else is 50 MB. A few stay however
 * large they are: a step of training is several MB, and is not to be staged anew in each turn. */
static const size_t most_bytes = 16 << 20;
enum { FEW_CALLS = 256 };

/* Replaces V_NODEs by numbers of outputs, which are appended to the graph. */
static Value template_of(Session *s, Unit *u, Value v, Span at) {
  stack_check();
  switch ((ValueTag)v.tag) {
  case V_NODE: {
    Value l = stage_lift(s, v, at);
    size_t k;
    for (k = 0; k < u->g->output_count; k++)
      if (val_eq(u->g->outputs[k], l.u.v)) break;
    if (k == u->g->output_count) gr_output(u->g, l.u.v);
    Value t = {.tag = V_NODE, .weak = v.weak};
    t.u.v.node = (uint32_t)k;
    return t;
  }
  case V_LIST:
  case V_TUPLE: {
    if (v.tag == V_LIST && v.u.list->weak) v = as_tensor(s, v, DT_COUNT, at);
    if (v.tag == V_NODE) return template_of(s, u, v, at);
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.list->count + 1);
    for (size_t i = 0; i < v.u.list->count; i++)
      items[i] = template_of(s, u, v.u.list->items[i], at);
    return list_value(s, (ValueTag)v.tag, v.u.list->count, items);
  }
  case V_RECORD: {
    Value *items = ARENA_ARRAY(&s->scratch, Value, v.u.rec->count + 1);
    for (size_t i = 0; i < v.u.rec->count; i++) items[i] = template_of(s, u, v.u.rec->items[i], at);
    return record_value(s, v.u.rec->count, v.u.rec->names, items);
  }
  case V_PARAM: return template_of(s, u, param_read(s, v.u.p, at), at);
  case V_FN:
    if (v.u.fn->capture_count)
      fail(s, ERR_FN_RESULT, at,
           "a compiled function cannot give a function that captures values of the call");
    return v;
  default: return v;
  }
}

typedef struct StageJob {
  Session *s;
  FnObj *f;
  const Args *a;
  Compiled *c;
  Unit *u;
} StageJob;

/* Whether the code takes gradients itself: then hardly anybody takes one of its result, and saving
 * for that would keep everything alive that the call has computed. What hosts computed is not
 * computed again. */
static bool takes_grad(const Graph *g) {
  bool any = false;
  for (size_t i = 0; i < g->node_count; i++) {
    if (g->nodes[i].op == OP_CALL || g->nodes[i].op == OP_DEFER) return false;
    any |= g->provs[g->nodes[i].prov].backward;
  }
  return any;
}

static void stage_job(void *ud) {
  StageJob *job = ud;
  Session *s = job->s;
  Unit *u = job->u;
  Compiled *c = job->c;
  const Args *a = job->a;
  u->g = gr_new(&c->arena, dim_tab_new(&c->arena), s->names, job->f->decl->fn->name.name);
  u->root = (Stage){.g = u->g, .unit = u, .level = 1};
  s->stage = &u->root;
  stage_at(s, a->call);
  if (s->modes.no_grad) stage_quiet(s, true);
  s->count.stage++;
  flat_init(&u->flat, s, &c->arena);
  u->flat.named = true;
  flatten_call(&u->flat, job->f, a);
  unit_leaves(u);
  Cursor cur = {u, 0};
  Args staged = *a;
  staged.v = ARENA_ARRAY(&c->arena, Value, a->count + 1);
  Value f = rebuild_at(s, &cur, (Value){.tag = V_FN, .u.fn = job->f});
  for (size_t i = 0; i < a->count; i++) staged.v[i] = rebuild_at(s, &cur, a->v[i]);
  Value r = call_fn(s, f.u.fn, &staged);
  Span at = a->call;
  c->regrad = u->regrad;
  c->paths = u->paths;
  c->path_count = u->path_count;
  if (u->regrad && s->modes.no_grad) r = leave_quiet(s, r, 0, at);
  c->result = template_of(s, u, r, at);
  value_retain(c->result);
  c->result_outputs = u->g->output_count;
  size_t cap = 0;
  for (size_t i = 0; i < u->state_count; i++) {
    State *st = &u->states[i];
    if (!st->written) continue;
    Write w = {.is_param = !st->field, .index = st->index, .field = st->field};
    /* a written value may be a result too: it needs an output of its own, so that gradients stay
     * apart */
    w.tmpl = template_of(s, u, st->cur, at);
    value_retain(w.tmpl);
    VEC_PUSH(&c->arena, c->writes, c->write_count, cap, w);
  }
  /* What is differentiated keeps every use of a value: merging them would change the order in which
   * gradients are summed (rule 74). What runs is simplified. */
  const Graph *g = u->g;
  if (u->hosts) {
    const bool *later = host_later(s, u->hosts, u->g);
    g = gr_drop_hooks(&c->arena, u->g, later);
  }
  c->g = gr_dce(&c->arena, g);
  const Graph *after[PASS_COUNT];
  pipeline_call(s, &c->arena, c->g, true, after);
  c->whole = after[PASS_HOOKS];
  c->plain = after[PASS_SIMPLIFY];
  c->takes_grad = takes_grad(c->g);
  c->hosts = u->hosts;
  if (c->hosts) c->hosts->rc++;
  c->source = u->source;
  c->binds = u->binds;
  c->bind_count = u->bind_count;
  c->pins = u->pins;
  c->pin_count = u->pin_count;
  c->randoms = u->randoms;
  c->random_count = u->random_count;
  c->hidden = u->hidden;
  c->hidden_count = u->hidden_count;
  c->leaf_count = u->flat.count;
  c->reached = ARENA_ARRAY(&c->arena, bool, c->leaf_count + 1);
  for (size_t i = 0; i < c->leaf_count; i++) c->reached[i] = u->flat.leaves[i].reached;
  c->eval_dropout = u->eval_dropout;
  c->call = a->call;
}

void compiled_retain(Compiled *c) {
  if (c) c->rc++;
}

/* Gives back one reference: of the pool, of the cache, of a joint graph. */
void compiled_release(Compiled *c) {
  if (!c || --c->rc > 0) return;
  Session *s = c->s;
  value_release(c->result);
  for (size_t i = 0; i < c->write_count; i++) value_release(c->writes[i].tmpl);
  for (PlainPlan *p = c->plans; p; p = p->next) {
    native_free(&s->mem, p->native);
    planned_unref(p->made);
  }
  native_free(&s->mem, c->native);
  hosts_release(c->hosts);
  src_drop(&s->sources, c->decl->span.file);
  arena_free(&c->arena);
  mem_free(&s->mem, c, sizeof *c);
}

static void let_go_oldest(Session *s) {
  Compiled *c = (Compiled *)s->cache->oldest;
  lru_take(s->cache, &c->kept);
  c->cached = false;
  for (JointEntry *e = c->joints; e; e = e->next) joint_release(e->j); /* which hold c */
  c->joints = NULL;
  compiled_release(c);
}

void cache_free(Session *s) {
  if (!s->cache) return;
  while (s->cache->oldest) let_go_oldest(s);
  lru_close(s->cache);
  mem_free(&s->mem, s->cache, sizeof *s->cache);
  s->cache = NULL;
}

static void flatten_hidden(Flat *f, Value v) {
  if (v.tag == V_INT)
    buf_printf(&f->sig, "%lld ", (long long)v.u.i);
  else
    flatten(f, v, NULL, NULL);
}

static uint64_t call_key(const FnObj *f, const Flat *flat) {
  return XXH3_64bits_withSeed(flat->sig.s, flat->sig.n, (uint64_t)(uintptr_t)f->decl);
}

static Compiled *compile(Session *s, FnObj *f, const Args *a, const Flat *flat) {
  Compiled *c = mem_need(&s->mem, NULL, 0, sizeof *c);
  *c = (Compiled){.decl = f->decl, .s = s, .rc = 1};
  src_hold(&s->sources, c->decl->span.file);
  arena_init(&c->arena, &s->mem);
  c->result = v_unit();
  mem_pool_add(&s->mem, c, (void (*)(void *))compiled_release);
  Pin pins[16];
  size_t pin_count = 0;
  for (;;) {
    Unit u = {.s = s, .arena = &c->arena, .token = VAL_NONE};
    for (size_t i = 0; i < pin_count; i++)
      VEC_PUSH(&c->arena, u.pins, u.pin_count, u.pin_cap, pins[i]);
    StageJob job = {s, f, a, c, &u};
    Modes modes = s->modes;
    PassTime time = pass_start(s);
    int code = guard(s, stage_job, &job);
    pass_end(s, PASS_STAGE, time);
    s->stage = NULL;
    s->modes = modes;
    if (code == MEM_OK) break;
    value_release(c->result);
    c->result = v_unit();
    for (size_t i = 0; i < c->write_count; i++) value_release(c->writes[i].tmpl);
    c->write_count = 0;
    c->writes = NULL;
    if (code == MEM_ERR_RESTART && u.restart && pin_count < 16) {
      pins[pin_count] = u.wanted;
      const Leaf *l = &flat->leaves[u.wanted.leaf];
      pins[pin_count++].value = leaf_size(l, l->kind == LEAF_INT ? -1 : u.wanted.axis);
      arena_free(&c->arena);
      continue;
    }
    if (code == MEM_ERR_RESTART)
      fail(s, ERR_NOT_CONST, a->call, "too many sizes of this call must be constants");
    mem_throw(&s->mem, code);
  }
  c->sig = arena_strdup(&c->arena, flat->sig.s, flat->sig.n);
  c->sig_len = flat->sig.n;
  Flat h;
  flat_init(&h, s, &c->arena);
  for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&h, c->hidden[i]->v);
  c->hidden_sig = h.sig.s ? h.sig.s : "";
  c->hidden_len = h.sig.n;
  if (!s->cache) {
    s->cache = mem_need(&s->mem, NULL, 0, sizeof *s->cache);
    *s->cache = (Lru){.by_key.mem = &s->mem};
  }
  Lru *kept = s->cache;
  lru_add(kept, &c->kept, call_key(f, flat), c->arena.used);
  c->cached = true;
  c->rc++;
  while (kept->bytes > most_bytes && kept->count > FEW_CALLS) let_go_oldest(s);
  s->count.compile++;
  log_compile(s, f, c->sig);
  return c;
}

static Compiled *lookup(Session *s, FnObj *f, Flat *flat) {
  LruEntry *e = s->cache ? lru_first(s->cache, call_key(f, flat)) : NULL;
  size_t leaves = flat->count, insts = flat->inst_count;
  for (; e; e = e->alike) {
    Compiled *c = (Compiled *)e;
    if (c->decl != f->decl || c->sig_len != flat->sig.n || memcmp(c->sig, flat->sig.s, flat->sig.n))
      continue;
    bool ok = true;
    for (size_t i = 0; i < c->pin_count && ok; i++)
      ok = c->pins[i].leaf < flat->count &&
           leaf_size(&flat->leaves[c->pins[i].leaf], c->pins[i].axis) == c->pins[i].value;
    if (!ok) continue;
    /* values of the file that the code reads: appended to the leaves, compared by their
     * signature */
    Flat h = flat_fork(flat);
    for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&h, c->hidden[i]->v);
    /* the same text that compile() made over these values alone */
    Flat alone;
    flat_init(&alone, s, &s->scratch);
    for (size_t i = 0; i < c->hidden_count; i++) flatten_hidden(&alone, c->hidden[i]->v);
    if (alone.sig.n != c->hidden_len ||
        memcmp(alone.sig.s ? alone.sig.s : "", c->hidden_sig, c->hidden_len) ||
        h.count != c->leaf_count) {
      flat->count = leaves;
      flat->inst_count = insts;
      continue;
    }
    h.sig = flat->sig;
    *flat = h;
    lru_use(s->cache, e);
    c->rc++; /* while it runs others may come, and it may go */
    mem_pool_add(&s->mem, c, (void (*)(void *))compiled_release);
    return c;
  }
  return NULL;
}

static Value instantiate(Session *s, const Compiled *c, Value t, Value *outs, const int64_t *env,
                         Span at) {
  stack_check();
  switch ((ValueTag)t.tag) {
  case V_NODE: {
    Value v = outs[t.u.v.node];
    if (!t.weak) return v;
    const Tensor *x = v.u.t->t; /* a number again (rule 13) */
    return dt_float(x->dtype)    ? v_float(tn_get_f64(x, 0))
           : x->dtype == DT_BOOL ? v_bool(tn_get_i64(x, 0) != 0)
                                 : v_int(tn_get_i64(x, 0));
  }
  case V_DIM: {
    int64_t n;
    if (!dim_eval(c->g->dims, t.u.d, env, NULL, &n))
      fail(s, ERR_OVERFLOW, at, "a size does not fit 64 bits, or is divided by zero");
    return v_int(n);
  }
  case V_LIST:
  case V_TUPLE: {
    Value *items = ARENA_ARRAY(&s->scratch, Value, t.u.list->count + 1);
    for (size_t i = 0; i < t.u.list->count; i++)
      items[i] = instantiate(s, c, t.u.list->items[i], outs, env, at);
    return list_value(s, (ValueTag)t.tag, t.u.list->count, items);
  }
  case V_RECORD: {
    Value *items = ARENA_ARRAY(&s->scratch, Value, t.u.rec->count + 1);
    for (size_t i = 0; i < t.u.rec->count; i++)
      items[i] = instantiate(s, c, t.u.rec->items[i], outs, env, at);
    return record_value(s, t.u.rec->count, t.u.rec->names, items);
  }
  default: return value_pool(s, t);
  }
}

/* What plans depend on: env, with 0 for numbers that are no part of a size, as a count of steps. */
static int64_t *sizes_in(Session *s, Compiled *c, const int64_t *env) {
  size_t n = dim_symbol_count(c->g->dims);
  if (!c->sizing) {
    bool *used = ARENA_ARRAY(&c->arena, bool, n + 1);
    sizes_used(c->g, used);
    c->sizing = used;
  }
  int64_t *key = ARENA_ARRAY(&s->scratch, int64_t, n + 1);
  for (size_t i = 0; i < n; i++) key[i] = c->sizing[i] ? env[i] : 0;
  return key;
}

/* Whether the gradient that the function itself takes is to be planned by sizes. The last answer is
 * kept. */
static bool wants_thrift(Session *s, Compiled *c, const int64_t *env) {
  if (!c->takes_grad) return false;
  size_t n = dim_symbol_count(c->g->dims), sizes = n * sizeof *env;
  const int64_t *key = sizes_in(s, c, env);
  if (c->thrift_sizes && !memcmp(c->thrift_sizes, key, sizes)) return c->thrift;
  if (!c->thrift_sizes) c->thrift_sizes = ARENA_ARRAY(&c->arena, int64_t, n + 1);
  memcpy(c->thrift_sizes, key, sizes);
  return c->thrift = plan_thrift_wanted(s, c->whole, env);
}

/* Per input: the results hang on it, so a gradient may read it, of any order. Others are read to
 * write state: the moments of an optimizer. */
static const bool *read_for_results(Session *s, Arena *keep, const Compiled *c) {
  bool *reads = ARENA_ARRAY(keep, bool, c->g->input_count + 1);
  Graph g = *c->g;
  g.output_count = c->result_outputs;
  const Graph *d = gr_dce(&s->scratch, &g);
  bool *used = ARENA_ARRAY(&s->scratch, bool, d->node_count + 1);
  for (size_t i = 0; i < d->output_count; i++) used[d->outputs[i].node] = true;
  for (uint32_t i = 0; i < d->node_count; i++)
    for (uint32_t k = 0; k < d->nodes[i].operand_count; k++)
      used[gr_operand(d, i, (int)k).node] = true;
  for (size_t i = 0; i < d->input_count; i++) reads[i] = used[d->inputs[i].node];
  return reads;
}

/* Forward and backward halves for one set of tracked leaves; they are made when they are needed.
 * `env`: sizes, where blocks are planned by them; else NULL. */
static JointRef *joint_for(Session *s, Compiled *c, const bool *wants, const int64_t *env,
                           const int64_t *dense) {
  size_t n = c->g->input_count, sizes = env ? dim_symbol_count(c->g->dims) * sizeof *env : 0;
  const int64_t *key = env ? sizes_in(s, c, env) : NULL;
  char *mask = ARENA_ARRAY(&s->scratch, char, n + sizes + 1);
  for (size_t i = 0; i < n; i++) mask[i] = wants[i] ? '1' : '0';
  if (sizes) memcpy(mask + n, key, sizes);
  for (JointEntry *e = c->joints; e; e = e->next) {
    JointRef *found = e->j->usual ? e->j->usual : e->j;
    if (!memcmp(e->mask, mask, n + sizes) && (!env || plan_fits(s, &found->choice, dense, n)))
      return found;
  }
  JointRef *j = joint_new(s);
  j->call = c->call;
  j->eval_dropout = c->eval_dropout;
  compiled_retain(j->code = c);
  j->f = gr_clone(&j->arena, c->g);
  j->hosts = c->hosts && c->hosts->inside ? c->hosts : NULL;
  if (j->hosts) j->hosts->rc++;
  j->asked = !c->takes_grad;
  j->capsule = is_capsule_node(c->decl);
  j->wants = ARENA_ARRAY(&j->arena, bool, n + 1);
  memcpy(j->wants, wants, n * sizeof *wants);
  if (c->write_count) j->reads = read_for_results(s, &j->arena, c);
  if (env) j->env = ARENA_ARRAY(&j->arena, int64_t, sizes / sizeof *env + 1);
  if (sizes) memcpy(j->env, env, sizes);
  j->cot = ARENA_ARRAY(&j->arena, bool, c->g->output_count + 1);
  for (uint32_t k = 0; k < j->f->node_count; k++)
    j->calls |= j->f->nodes[k].op == OP_DEFER || j->f->nodes[k].op == OP_CALL;
  ad_reached(&s->scratch, c->g, wants, j->cot);
  memset(j->cot + c->result_outputs, 0, (c->g->output_count - c->result_outputs) * sizeof *j->cot);
  if (!c->cached) return j; /* the pool's: an entry would hold j, and j holds c */
  JointEntry *entry = ARENA_NEW(&c->arena, JointEntry);
  entry->mask = arena_strdup(&c->arena, mask, n + sizes);
  entry->j = j;
  j->rc++;
  entry->next = c->joints;
  c->joints = entry;
  return j;
}

/* The plan of one graph with forward and backward, for these sizes. */
static PlainPlan *plain_for(Session *s, Compiled *c, const int64_t *env, const int64_t *dense,
                            Span at) {
  size_t sizes = dim_symbol_count(c->g->dims) * sizeof *env;
  const int64_t *key = sizes_in(s, c, env);
  for (PlainPlan *p = c->plans; p; p = p->next)
    if (!memcmp(p->sizes, key, sizes) && plan_fits(s, &p->choice, dense, c->g->input_count))
      return p; /* else another, or a refusal */
  Choice choice = plan_wanted(s, c->g)
                      ? plan_choose(s, &c->arena, c->whole, env, dense, at)
                      : plan_thrift(s, &c->arena, c->whole, UINT32_MAX, c->plain, env);
  PlainPlan *p = ARENA_NEW(&c->arena, PlainPlan);
  p->sizes = ARENA_ARRAY(&c->arena, int64_t, sizes / sizeof *env + 1);
  if (sizes) memcpy(p->sizes, key, sizes);
  p->choice = choice;
  p->next = c->plans;
  if (choice.made) {
    p->made = choice.made;
    p->made->rc++;
    p->g = p->made->runs.first;
  } else {
    const Graph *g = choice.g ? choice.g : c->whole;
    p->g = simplified(s, &c->arena, g, choice.choice);
  }
  c->plans = p;
  if (p->made) native_planned(s, &p->native, &p->made->first);
  else native_must(s, &p->native);
  return p;
}

/* A call that is ready to run. */
typedef struct Ready {
  Compiled *c;
  Flat flat;
  int64_t *env;
  Tensor **in;
  Value *leaf;
  JointRef *j;      /* it goes on the tape */
  bool saves;       /* by the forward half of j, which saves for its backward */
  const Graph *g;   /* what runs */
  Native **native;
  Choice choice;
  bool outside;     /* a block of script that cannot run as a call: see block_grad */
} Ready;

/* A dim of a signature by its symbol: "N", or "S.0" of a pack. */
static const char *dim_words(Session *s, const char *name) {
  const char *dot = strchr(name, '.');
  if (!dot) return txt(s, "the dim `%s`", name);
  return txt(s, "axis %s of `...%.*s`", dot + 1, (int)(dot - name), name);
}

static void get_ready(Session *s, FnObj *f, const Args *a, Ready *r) {
  *r = (Ready){0};
  Flat flat;
  flat_init(&flat, s, &s->scratch);
  flatten_call(&flat, f, a);
  Compiled *c = lookup(s, f, &flat);
  if (!c) {
    compile(s, f, a, &flat);
    c = lookup(s, f, &flat);
    if (!c) fail(s, ERR_BUG, a->call, "a compiled call was not found again");
  }
  size_t nsym = dim_symbol_count(c->g->dims);
  int64_t *env = ARENA_ARRAY(&s->scratch, int64_t, nsym + 1);
  bool *set = ARENA_ARRAY(&s->scratch, bool, nsym + 1);
  for (size_t i = 0; i < c->bind_count; i++) {
    SymBind *b = &c->binds[i];
    int64_t n = leaf_size(&flat.leaves[b->leaf], b->axis);
    if (set[b->sym] && env[b->sym] != n)
      fail(s, ERR_DIM_CONFLICT, a->call,
           "%s is %lld at one place in the arguments of `%s` and %lld at another",
           dim_words(s, dim_symbol_name(c->g->dims, b->sym)), (long long)env[b->sym], fn_name(f),
           (long long)n);
    env[b->sym] = n;
    set[b->sym] = true;
  }
  size_t nin = c->g->input_count;
  bool planned = plan_wanted(s, c->g) || wants_thrift(s, c, env);
  int64_t *dense = ARENA_ARRAY(&s->scratch, int64_t, nin + 1);
  Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, nin + 1);
  Value *leaf = ARENA_ARRAY(&s->scratch, Value, nin + 1);
  bool *wants = ARENA_ARRAY(&s->scratch, bool, nin + 1), track = false;
  for (size_t i = 0; i < nin; i++) {
    int64_t src = c->source[i];
    if (src < 0) {
      RandomUse *u = &c->randoms[-1 - src];
      int64_t two = 2;
      Value k = tensor_value(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &two));
      int64_t *p = tn_data(k.u.t->t);
      random_words(s, u->fixed, u->seed, u->site, u->nth, p);
      in[i] = k.u.t->t;
      leaf[i] = k;
      continue;
    }
    Leaf *l = &flat.leaves[src];
    leaf[i] = l->kind == LEAF_FLOAT
                  ? tensor_value(s, tn_scalar_f64(&s->mem, DEV_CPU, DT_F64, l->v.u.f))
                  : value_pool(s, leaf_value(l));
    in[i] = leaf[i].tag == V_PARAM ? leaf[i].u.p->t : leaf[i].u.t->t;
    Tensor *held = c->hosts && leaf[i].tag == V_PARAM ? tn_ref(in[i]) : NULL;
    pool_tensors(s, &held, 1); /* a function of the program may write the param meanwhile */
    if (!tn_is_contiguous(in[i])) dense[i] = (int64_t)dt_size(in[i]->dtype) * tn_count(in[i]);
    wants[i] = l->kind != LEAF_FLOAT && (!s->modes.no_grad || c->regrad) && wants_grad(s, leaf[i]);
    track |= wants[i];
    r->outside |= wants[i] && c->reached[src] &&
                  (leaf[i].tag == V_TENSOR || host_registers(c->hosts, (size_t)src));
  }
  if (r->outside) return;
  JointRef *j = NULL;
  if (track) {
    bool differentiable = false;
    for (size_t k = 0; k < c->result_outputs; k++)
      differentiable |= dt_float((DType)gr_type(c->g, c->g->outputs[k])->dtype);
    if (differentiable) j = joint_for(s, c, wants, planned ? env : NULL, dense);
  }
  *r = (Ready){.c = c, .flat = flat, .env = env, .in = in, .leaf = leaf, .j = j};
  r->saves = j && j->asked;
  if (r->saves) {
    j->dense = dense;
    joint_make(s, j, a->call);
    j->dense = NULL;
    r->g = j->joint->forward;
    r->native = &j->forward;
    r->choice = j->choice;
  } else if (planned) {
    PlainPlan *p = plain_for(s, c, env, dense, a->call);
    r->g = p->g;
    r->native = &p->native;
    r->choice = p->choice;
  } else {
    r->g = c->plain;
    r->native = &c->native;
    r->choice = (Choice){.g = c->whole->blocks ? c->whole : NULL, .split = UINT32_MAX};
  }
}

/* How the call is told of. */
static CallPlan call_plan(Session *s, FnObj *f, Ready *r) {
  CallPlan p = {.s = s,
                .name = fn_name(f),
                .model = f->model ? f->model->name : NULL,
                .flat = &r->flat,
                .env = r->env,
                .runs = {r->g, NULL, NULL},
                .choice = r->choice,
                .source = r->c->source,
                .input_count = r->c->g->input_count};
  if (!r->choice.g || !r->choice.g->blocks) p.choice.g = NULL;
  if (r->saves) p.runs = (Runs){r->g, r->j->joint->backward, r->j->joint};
  return p;
}

static void tell_plan(Session *s, FnObj *f, Ready *r) {
  if (!s->config.show_plan && !s->plan.fn) return;
  Compiled *c = r->c;
  uint64_t hash = 1 + r->saves;
  const int64_t *sizes = sizes_in(s, c, r->env);
  for (size_t i = 0; i < dim_symbol_count(c->g->dims); i++)
    hash = (hash ^ (uint64_t)sizes[i]) * UINT64_C(0x9e3779b97f4a7c15);
  size_t most = sizeof c->told / sizeof *c->told;
  for (size_t i = 0; i < c->told_count; i++)
    if (c->told[i] == hash) return;
  if (c->told_count < most) c->told[c->told_count++] = hash;
  CallPlan p = call_plan(s, f, r);
  plan_tell(&p);
}

Value plan_call(Session *s, FnObj *f, const Args *a) {
  Ready r;
  get_ready(s, f, a, &r);
  CallPlan p = call_plan(s, f, &r);
  return plan_value(&p);
}

/* What a block of script only passes on is no result of the call: it stays the value that it was.
 * Not so what a param was before the block wrote to it. */
static void pass_through(const Ready *r, Value *outs) {
  const Graph *g = r->c->g;
  for (size_t k = 0; k < r->c->result_outputs; k++)
    for (size_t i = 0; i < g->input_count; i++)
      if (val_eq(g->outputs[k], g->inputs[i]) &&
          (r->leaf[i].tag != V_PARAM || r->leaf[i].u.p->t == r->in[i]))
        outs[k] = r->leaf[i];
}

Value run_code(Session *s, FnObj *f, const Args *a) {
  Ready r;
  now_running(s, a->call);
  count_step(s, a->call);
  get_ready(s, f, a, &r);
  if (r.outside) return block_as_script(s, f, a);
  tell_plan(s, f, &r);
  Compiled *c = r.c;
  Flat flat = r.flat;
  JointRef *j = r.j;
  Tensor **in = r.in;
  Value *leaf = r.leaf;
  const int64_t *env = r.env;
  bool saves = r.saves;
  const Graph *g = r.g;
  size_t nin = c->g->input_count, nout = c->g->output_count, nsym = dim_symbol_count(c->g->dims);
  size_t total = g->output_count;
  Tensor **out = ARENA_ARRAY(&s->scratch, Tensor *, total + 1);
  RunCtx ctx = {
      .mem = &s->mem, .interrupt = &s->kernel.stop, .env = env, .effect = effect_run, .ud = s};
  Value *refs = c->hosts ? host_refs(s, c->hosts, &flat) : NULL;
  if (c->hosts) {
    ctx.effect = host_effect;
    ctx.ud = host_run(s, c->hosts, refs, (Span){0});
  }
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {0};
  Native **native = r.native;
  if (!native_run(s, native, g, fn_name(f), &ctx, in, out, &e, &at)) {
    const char *inner = NULL;
    for (size_t i = 0; i < c->path_count && at.path; i++)
      if (c->paths[i].path == opaque_plain(s, at.path))
        inner = place_title(s, flat.insts[c->paths[i].inst], flat.insts, flat.inst_count, at.span);
    run_error(s, &e, at.span, fn_title(s, f), a->call, c->call, inner);
    raise_(s);
  }
  s->count.nodes += (int64_t)ctx.nodes_run;
  pool_tensors(s, out, total);
  Value *outs = ARENA_ARRAY(&s->scratch, Value, nout + 1);
  for (size_t i = 0; i < nout; i++) outs[i] = tensor_value(s, tn_ref(out[i]));
  /* the call succeeded: random counters advance, state is written, the tape grows */
  for (size_t i = 0; i < c->random_count; i++)
    if (!c->randoms[i].fixed) random_advance(s, c->randoms[i].site);
  if (j)
    tape_record_call(s, j, nin, leaf, in, c->result_outputs, outs, saves ? out + nout : NULL, env,
                     nsym, a->call);
  for (size_t k = 0; j && j->hosts && k < c->result_outputs; k++) {
    TapeNode *n = outs[k].u.t->node;
    if (!n) continue;
    tape_refs(s, n, c->hosts->need_count, refs);
    break;
  }
  for (size_t i = 0; i < c->write_count && s->operands; i++)
    if (c->writes[i].is_param) operands_hold(s, flat.leaves[c->writes[i].index].v.u.p);
  for (size_t i = 0; i < c->write_count; i++) {
    Write *w = &c->writes[i];
    Value v = instantiate(s, c, w->tmpl, outs, env, a->call);
    if (w->is_param) {
      param_put(flat.leaves[w->index].v.u.p, tn_ref(v.u.t->t));
    } else {
      value_set(&inst_field(flat.insts[w->index], w->field)->v, detach(s, v));
    }
  }
  if (c->hosts) host_register(s, c->hosts, refs, &flat, outs);
  if (is_capsule(f)) pass_through(&r, outs);
  return instantiate(s, c, c->result, outs, env, a->call);
}
