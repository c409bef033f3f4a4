/* Compiled functions: preparing a call, and running it.
 *
 * In: a code function and arguments of script. Out: its result, recorded on the tape as one node. A
 * call is flattened: every tensor, param, buffer leaf and float reachable from the arguments, the
 * captures and `self` is a leaf and a graph input (unit.c); everything else (structure, dtypes,
 * ranks, model ints, strings, bools) is text of the signature, by which the staged call
 * (call_staging.c) is found again (call_cache.c). So one compilation serves all sizes. State
 * written by the call becomes extra outputs, stored only when nothing can fail any more (rule 54);
 * a run writes those that it may to the memory of what they replace.
 * Invariant: the graph refers to leaves by number only, so instances of one type share it.
 */
#include "lang/compile/compile_impl.h"

#include <string.h>

#include "autograd/remat.h"
#include "autograd/vjp.h"
#include "graph/pass.h"
#include "lang/checkpoint/policy.h"
#include "lang/compile/joint_ref.h"
#include "lang/compile/stage.h"
#include "lang/compile/tiering.h"
#include "lang/eval/call.h"
#include "lang/eval/operands.h"
#include "lang/eval/state.h"
#include "lang/eval/steps.h"
#include "lang/names/desugar.h"
#include "lang/tape/gradient.h"
#include "lang/value/fail.h"
#include "lang/value/path.h"
#include "lang/value/sizes.h"

static Value instantiate(Session *s, const Compiled *c, Value t, Value *outs, const int64_t *env,
                         Span at) {
  stack_check();
  switch ((ValueTag)t.tag) {
  case V_NODE: {
    Value v = outs[t.u.v.node];
    if (!t.weak) return v;
    return v_scalar(v.u.t->t); /* a number again */
  }
  case V_DIM: {
    int64_t n;
    if (!dim_eval(c->g->dims, t.u.d, env, NULL, &n))
      fail_at(s, ERR_OVERFLOW, at, "a size or number does not fit 64 bits, or is divided by zero");
    return v_int(n);
  }
  case V_LIST:
  case V_TUPLE:
  case V_RECORD:
  case V_DICT: {
    size_t n;
    Value *items = value_parts(s, t, &n);
    for (size_t i = 0; i < n; i++) items[i] = instantiate(s, c, items[i], outs, env, at);
    return value_like(s, t, items);
  }
  default: return value_pool(s, t);
  }
}

/* The key of choices: env, with 0 for numbers that are no part of a size, such as a count of
 * steps. */
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

/* Whether to make a choice, by sizes, for the gradient that the function itself takes. The last
 * answer is kept. */
static bool wants_auto_remat(Session *s, Compiled *c, const int64_t *env) {
  if (!c->takes_grad) return false;
  size_t n = dim_symbol_count(c->g->dims), sizes = n * sizeof *env;
  const int64_t *key = sizes_in(s, c, env);
  if (c->auto_remat_sizes && !memcmp(c->auto_remat_sizes, key, sizes)) return c->auto_remat;
  if (!c->auto_remat_sizes) c->auto_remat_sizes = ARENA_ARRAY(&c->arena, int64_t, n + 1);
  memcpy(c->auto_remat_sizes, key, sizes);
  return c->auto_remat = auto_remat_wanted(s, c->whole, env);
}

/* Per input: whether the results depend on it, so that a gradient of any order may read it. Others
 * are read only to write state, such as the moments of an optimizer. */
static const bool *read_for_results(Session *s, const Compiled *c) {
  bool *reads = ARENA_ARRAY(&s->scratch, bool, c->g->input_count + 1);
  Graph g = *c->g;
  g.output_count = c->result_outputs;
  g.write_count = 0;
  const Graph *d = gr_dce(&s->scratch, &g);
  bool *used = ARENA_ARRAY(&s->scratch, bool, d->node_count + 1);
  for (size_t i = 0; i < d->output_count; i++) used[d->outputs[i].node] = true;
  for (uint32_t i = 0; i < d->node_count; i++)
    for (uint32_t k = 0; k < d->nodes[i].operand_count; k++)
      used[gr_operand(d, i, (int)k).node] = true;
  for (size_t i = 0; i < d->input_count; i++) reads[i] = used[d->inputs[i].node];
  return reads;
}

/* Per input: the output that is written to it; NULL: params are not written. */
static int *outputs_written(Session *s, const Compiled *c) {
  int *written = NULL;
  for (size_t i = 0; i < c->write_count; i++) {
    const Write *w = &c->writes[i];
    if (!w->is_param || w->tmpl.tag != V_NODE) continue;
    if (!written) {
      written = ARENA_ARRAY(&s->scratch, int, c->g->input_count + 1);
      for (size_t k = 0; k < c->g->input_count; k++) written[k] = -1;
    }
    for (size_t k = 0; k < c->g->input_count; k++)
      if (c->source[k] == (int64_t)w->index) written[k] = (int)w->tmpl.u.v.node;
  }
  return written;
}

/* The tape node of the call will hold the inputs that a gradient of its results reads. */
static void hold_for_tape(const Compiled *c, const JointRef *j, const InputMemory *memory) {
  for (size_t i = 0; i < memory->count && c->g->write_count; i++)
    if (tape_keeps_input(j, c->result_outputs, i)) memory->alone[i] = memory->later[i] = false;
}

/* Forward and backward halves for one set of tracked leaves; they are made when they are needed.
 * `env`: sizes, if blocks are planned by them; else NULL. */
static JointRef *joint_for(Session *s, Compiled *c, const bool *wants, const int64_t *env,
                           const InputMemory *memory) {
  size_t n = c->g->input_count, sizes = env ? dim_symbol_count(c->g->dims) * sizeof *env : 0;
  const int64_t *key = env ? sizes_in(s, c, env) : NULL;
  char *mask = ARENA_ARRAY(&s->scratch, char, n + sizes + 1);
  for (size_t i = 0; i < n; i++) mask[i] = wants[i] ? '1' : '0';
  if (sizes) memcpy(mask + n, key, sizes);
  for (JointEntry *e = c->joints; e; e = e->next) {
    JointRef *found = e->j->current ? e->j->current : e->j;
    if (memcmp(e->mask, mask, n + sizes)) continue;
    hold_for_tape(c, found, memory);
    if ((!env || choice_fits(s, &found->choice, memory))) return found;
  }
  bool *cot = ARENA_ARRAY(&s->scratch, bool, c->g->output_count + 1);
  ad_reached(&s->scratch, c->g, wants, cot);
  memset(cot + c->result_outputs, 0, (c->g->output_count - c->result_outputs) * sizeof *cot);
  JointRef *j =
      joint_new(s, &(JointSpec){.kind = capsule_is_node(c->decl) ? JOINT_BLOCK : JOINT_CALL,
                                .deferred = c->takes_grad,
                                .f = c->g,
                                .code = c,
                                .hosts = c->hosts && c->hosts->inside ? c->hosts : NULL,
                                .cot = cot,
                                .wants = wants,
                                .written = outputs_written(s, c),
                                .reads = c->write_count ? read_for_results(s, c) : NULL,
                                .env = env,
                                .call = c->call,
                                .eval_dropout = c->eval_dropout});
  hold_for_tape(c, j, memory);
  if (env) call_chosen(s, c);
  if (!c->cached) return j; /* j is on the pool: an entry would hold j, and j holds c */
  JointEntry *entry = ARENA_NEW(&c->arena, JointEntry);
  entry->mask = arena_strdup(&c->arena, mask, n + sizes);
  entry->j = joint_retain(j);
  entry->next = c->joints;
  c->joints = entry;
  return j;
}

/* The choice for a graph that has forward and backward in one, for these sizes. */
static PlainChoice *plain_choice(Session *s, Compiled *c, const int64_t *env,
                                 const InputMemory *memory, Span at) {
  size_t sizes = dim_symbol_count(c->g->dims) * sizeof *env;
  const int64_t *key = sizes_in(s, c, env);
  for (PlainChoice *p = c->choices; p; p = p->next)
    if (!memcmp(p->sizes, key, sizes) && choice_fits(s, &p->choice, memory))
      return p; /* else another choice is made, or the call refused */
  Choice choice = choice_wanted(s, c->g)
                      ? choice_for_graph(s, &c->arena, c->whole, env, memory, at)
                      : auto_remat(s, &c->arena, c->whole, UINT32_MAX, c->plain, env);
  PlainChoice *p = ARENA_NEW(&c->arena, PlainChoice);
  p->sizes = ARENA_ARRAY(&c->arena, int64_t, sizes / sizeof *env + 1);
  if (sizes) memcpy(p->sizes, key, sizes);
  p->choice = choice;
  p->next = c->choices;
  if (choice.planned) {
    p->planned = choice.planned;
    p->planned->rc++;
    p->g = p->planned->runs.first;
  } else {
    const Graph *g = choice.g ? choice.g : c->whole;
    p->g = pass_simplified(s, &c->arena, g, choice.choice);
  }
  c->choices = p;
  if (p->planned)
    native_planned(s, &p->native, &p->planned->first);
  else
    native_must(s, &p->native);
  call_chosen(s, c);
  return p;
}

/* A call that is ready to run. */
typedef struct PreparedCall {
  Compiled *c;
  Flat flat;
  int64_t *env;
  Tensor **in;
  Value *leaf;
  InputMemory memory;
  JointRef *j;    /* it goes on the tape */
  bool saves;     /* it runs the forward half of j, which saves for the backward */
  const Graph *g; /* the graph that runs */
  Native **native;
  Choice choice;
  bool outside; /* a block of script that cannot run as a call: see block_grad */
} PreparedCall;

/* ---- who holds what is written (rule 54) */

/* Marks the tensors that a buffer alone holds, down from its value v. */
static void mark_alone(Flat *f, bool *alone, Value v) {
  stack_check();
  if (!v_counted(v) || v.u.o->rc != 1) return;
  size_t n;
  const Value *items = value_items(v, &n);
  if (v.tag == V_TENSOR) {
    size_t k = flat_leaf(f, v);
    if (k != SIZE_MAX) alone[k] = true;
  }
  for (size_t i = 0; i < n; i++) mark_alone(f, alone, items[i]);
}

/* Per leaf: whether one place in the program holds it, a param or a buffer. Its tensor counts who
 * else holds its memory. Comes before the call itself holds leaves. */
static bool *leaves_alone(Session *s, const Compiled *c, Flat *f) {
  bool *alone = ARENA_ARRAY(&s->scratch, bool, f->count + 1);
  if (!c->g->write_count) return alone;
  for (size_t i = 0; i < f->count; i++)
    alone[i] = f->leaves[i].kind == LEAF_PARAM && !f->leaves[i].v.u.p->overlay.tag;
  for (size_t i = 0; i < c->write_count; i++)
    if (!c->writes[i].is_param)
      mark_alone(f, alone, model_field(f->insts[c->writes[i].index], c->writes[i].field)->v);
  return alone;
}

/* A dim of a signature by its symbol: "N", or "S.0" of a pack. */
static const char *dim_words(Session *s, const char *name) {
  const char *dot = strchr(name, '.');
  if (!dot) return fail_text(s, "the dim `%s`", name);
  return fail_text(s, "axis %s of `...%.*s`", dot + 1, (int)(dot - name), name);
}

static void prepare_call(Session *s, FnObj *f, const Args *a, PreparedCall *r) {
  *r = (PreparedCall){0};
  Flat flat;
  flat_init(&flat, s, &s->scratch);
  flat_call(&flat, f, a);
  Compiled *c = call_lookup(s, f, &flat);
  if (!c) {
    call_compile(s, f, a, &flat);
    c = call_lookup(s, f, &flat);
    if (!c) fail_at(s, ERR_BUG, a->call, "a compiled call was not found again");
  }
  size_t nsym = dim_symbol_count(c->g->dims);
  int64_t *env = ARENA_ARRAY(&s->scratch, int64_t, nsym + 1);
  bool *set = ARENA_ARRAY(&s->scratch, bool, nsym + 1);
  for (size_t i = 0; i < c->bind_count; i++) {
    SymBind *b = &c->binds[i];
    int64_t n = leaf_size(&flat.leaves[b->leaf], b->axis);
    if (set[b->sym] && env[b->sym] != n)
      fail_at(s, ERR_DIM_CONFLICT, a->call,
              "%s is %lld at one place in the arguments of `%s` and %lld at another",
              dim_words(s, dim_symbol_name(c->g->dims, b->sym)), (long long)env[b->sym],
              call_fn_name(f), (long long)n);
    env[b->sym] = n;
    set[b->sym] = true;
  }
  size_t nin = c->g->input_count;
  const bool *of_leaf = leaves_alone(s, c, &flat);
  bool *alone = ARENA_ARRAY(&s->scratch, bool, nin + 1);
  bool *later = ARENA_ARRAY(&s->scratch, bool, nin + 1);
  bool chosen = choice_wanted(s, c->g) || wants_auto_remat(s, c, env);
  int64_t *dense = ARENA_ARRAY(&s->scratch, int64_t, nin + 1);
  Tensor **in = ARENA_ARRAY(&s->scratch, Tensor *, nin + 1);
  Value *leaf = ARENA_ARRAY(&s->scratch, Value, nin + 1);
  bool *wants = ARENA_ARRAY(&s->scratch, bool, nin + 1), track = false;
  for (size_t i = 0; i < nin; i++) {
    int64_t src = c->source[i];
    if (src < 0) {
      RandomUse *u = &c->randoms[-1 - src];
      int64_t two = 2;
      Value k = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &two));
      int64_t *p = tn_data(k.u.t->t);
      random_words(s, u->fixed, u->seed, u->site, u->nth, p);
      in[i] = k.u.t->t;
      leaf[i] = k;
      continue;
    }
    Leaf *l = &flat.leaves[src];
    leaf[i] = l->kind == LEAF_FLOAT ? v_tensor(s, tn_scalar_f64(&s->mem, DEV_CPU, DT_F64, l->v.u.f))
                                    : value_pool(s, leaf_value(l));
    in[i] = leaf[i].tag == V_PARAM ? leaf[i].u.p->t : leaf[i].u.t->t;
    Tensor *held = c->hosts && leaf[i].tag == V_PARAM ? tn_ref(in[i]) : NULL;
    value_pool_tensors(s, &held, 1); /* a function of the program may write the param meanwhile */
    if (!tn_is_contiguous(in[i])) dense[i] = tn_bytes(in[i]);
    later[i] = of_leaf[src] && in[i]->rc == 1 && in[i]->store->rc == 1;
    alone[i] = later[i] && !in[i]->store->foreign_free &&
               in[i]->store->bytes == (uint64_t)tn_bytes(in[i]) && tn_is_contiguous(in[i]);
    wants[i] =
        l->kind != LEAF_FLOAT && (!s->modes.no_grad || c->regrad) && tape_wants_grad(s, leaf[i]);
    track |= wants[i];
    r->outside |= wants[i] && c->reached[src] &&
                  (leaf[i].tag == V_TENSOR || host_registers(c->hosts, (size_t)src));
  }
  r->c = c;
  if (r->outside) return;
  JointRef *j = NULL;
  InputMemory memory = {nin, dense, alone, later};
  if (track) {
    bool differentiable = false;
    for (size_t k = 0; k < c->result_outputs; k++)
      differentiable |= dt_float((DType)gr_type(c->g, c->g->outputs[k])->dtype);
    if (differentiable) j = joint_for(s, c, wants, chosen ? env : NULL, &memory);
  }
  *r = (PreparedCall){
      .c = c, .flat = flat, .env = env, .in = in, .leaf = leaf, .memory = memory, .j = j};
  r->saves = j && joint_saves(j) && joint_make_early(s, j, &memory, a->call);
  if (r->saves) {
    r->g = j->joint->forward;
    r->native = &j->forward;
    r->choice = j->choice;
  } else if (chosen) {
    PlainChoice *p = plain_choice(s, c, env, &memory, a->call);
    r->g = p->g;
    r->native = &p->native;
    r->choice = p->choice;
  } else {
    r->g = c->plain;
    r->native = &c->native;
    r->choice = (Choice){.g = c->whole->blocks ? c->whole : NULL, .split = UINT32_MAX};
  }
}

/* The input of a report about the call. */
static CallReport report_of(Session *s, FnObj *f, PreparedCall *r) {
  CallReport p = {.s = s,
                  .name = call_fn_name(f),
                  .model = f->model ? f->model->name : NULL,
                  .flat = &r->flat,
                  .env = r->env,
                  .runs = {r->g, NULL, NULL},
                  .first = native_known(*r->native),
                  .choice = r->choice,
                  .source = r->c->source,
                  .memory = &r->memory,
                  .input_count = r->c->g->input_count,
                  .whole = r->c->whole,
                  .joint = r->j,
                  .in = r->in,
                  .at = f->decl->span};
  if (!r->choice.g || !r->choice.g->blocks) p.choice.g = NULL;
  if (!r->saves) return p;
  p.runs = (Runs){r->g, r->j->joint->backward, r->j->joint};
  p.second = native_known(r->j->backward);
  return p;
}

static void report_once(Session *s, FnObj *f, PreparedCall *r) {
  if (!s->config.show_plan && !s->report.fn) return;
  Compiled *c = r->c;
  uint64_t hash = 1 + r->saves;
  const int64_t *sizes = sizes_in(s, c, r->env);
  for (size_t i = 0; i < dim_symbol_count(c->g->dims); i++)
    hash = (hash ^ (uint64_t)sizes[i]) * UINT64_C(0x9e3779b97f4a7c15);
  size_t most = sizeof c->reported / sizeof *c->reported;
  for (size_t i = 0; i < c->reported_count; i++)
    if (c->reported[i] == hash) return;
  if (c->reported_count < most) c->reported[c->reported_count++] = hash;
  CallReport p = report_of(s, f, r);
  report_first_call(&p);
}

/* v if it is a function of code, or the `forward` of v if it is an instance. */
static FnObj *code_of(Session *s, Value v, Span at) {
  if (v.tag == V_INST) {
    Name forward = names_of(s->names, "forward");
    const ModelDecl *m = v.u.inst->model;
    const NodeList *l = &m->decl->model.members;
    for (uint32_t i = 0; i < l->count; i++)
      if (l->items[i]->kind == N_FN && l->items[i]->fn->name.name == forward)
        v = v_fn(s, l->items[i], m->module, v.u.inst, v.u.inst->model, !l->items[i]->fn->is_proc, 0,
                 NULL);
  }
  if (v.tag == V_FN && v.u.fn->is_code) return v.u.fn;
  fail_at(s, ERR_CODE_VALUE, at, "`plan` tells of compiled functions; this is %s",
          v.tag == V_FN ? "a proc, which runs as script" : value_type_text(s, v));
}

Value report_call(Session *s, Value fn, Span at, const Args *a) {
  FnObj *f = code_of(s, fn, at);
  PreparedCall r;
  prepare_call(s, f, a, &r);
  CallReport p = report_of(s, f, &r);
  return report_value(&p);
}

/* Whether input i is the value that its place has after the call, too. */
static bool input_stays(const PreparedCall *r, size_t i) {
  if (r->leaf[i].tag != V_PARAM) return true;
  if (r->leaf[i].u.p->t != r->in[i]) return false; /* a function of the program wrote it */
  for (size_t k = 0; k < r->c->write_count; k++)
    if (r->c->writes[k].is_param && r->c->source[i] == (int64_t)r->c->writes[k].index) return false;
  return true;
}

/* A value that a block of script only passes on is no result of the call: it stays the same value.
 * The former value of a param that the block wrote to is a result. */
static void pass_through(const PreparedCall *r, Value *outs, Tensor *const *out) {
  const Graph *g = r->c->g;
  for (size_t k = 0; k < r->c->passed_count; k++) {
    const PassedOn *p = &r->c->passed[k];
    if (tn_get_i64(out[p->flag], 0) && input_stays(r, p->input))
      outs[p->result] = r->leaf[p->input];
  }
  for (size_t k = 0; k < r->c->result_outputs; k++)
    for (size_t i = 0; i < g->input_count; i++)
      if (val_eq(g->outputs[k], g->inputs[i]) && input_stays(r, i)) outs[k] = r->leaf[i];
}

static void advance_counters(Session *s, const Compiled *c, Tensor *const *out) {
  for (size_t i = 0; i < c->random_count; i++) {
    const RandomUse *r = &c->randoms[i];
    bool by_data = false;
    for (size_t k = 0; k < c->drawn_count && !by_data; k++) by_data = c->drawn[k].site == r->site;
    if (!r->fixed && !by_data) random_advance(s, r->site);
  }
  for (size_t k = 0; k < c->drawn_count; k++) {
    const DrawnCount *d = &c->drawn[k];
    for (int64_t n = (int64_t)d->now + tn_get_i64(out[d->output], 0); n > 0; n--)
      random_advance(s, d->site);
  }
}

bool call_refused(ErrCode c) {
  switch (c) {
  case ERR_NOT_YET:
  case ERR_SCRIPT_ONLY:
  case ERR_MASK_CODE:
  case ERR_STATIC_STR:
  case ERR_BRANCH:
  case ERR_CARRY:
  case ERR_SLICE_DYNAMIC:
  case ERR_NOT_CONST:
  case ERR_VALUE:
  case ERR_CODE_VAR:
  case ERR_CODE_VALUE:
  case ERR_FN_RESULT:
  case ERR_GRAPH_FULL: return true;
  default: return false;
  }
}

int call_attempt(Session *s, void (*job)(void *ud), void *ud, bool (*refused)(ErrCode c)) {
  size_t before = s->diags.count;
  uint32_t warned = s->warned_count;
  int64_t runs = s->count.runs;
  int code = api_guard(s, job, ud), why = -1;
  if (code == MEM_OK) return -1;
  for (size_t i = before; i < s->diags.count; i++)
    if (refused(s->diags.items[i]->code)) why = s->diags.items[i]->code;
  if (code != MEM_ERR_PROGRAM || why < 0 || s->count.runs != runs) mem_throw(&s->mem, code);
  dg_rewind(&s->diags, before);
  s->warned_count = warned;
  return why;
}

static bool saves_narrow(const Graph *g) {
  bool any = false;
  for (uint32_t i = 1; g->blocks && i <= g->blocks->count; i++) any |= gr_block_at(g, i)->narrows;
  return any;
}

/* What a call does when its results are there, up to the writes of state. */
typedef struct Finish {
  Session *s;
  FnObj *f;
  const PreparedCall *r;
  Value *refs; /* of hosts */
  Span at;
  bool done;
  Value *outs, *states, result; /* states: one per write */
} Finish;

/* All that may fail: after it the call succeeds. Random counters advance, the tape grows. */
static void finish(void *ud, Tensor **out) {
  Finish *w = ud;
  Session *s = w->s;
  const PreparedCall *r = w->r;
  Compiled *c = r->c;
  JointRef *j = r->j;
  size_t nin = c->g->input_count, nout = c->g->output_count, nsym = dim_symbol_count(c->g->dims);
  value_pool_tensors(s, out, r->g->output_count);
  w->done = true;
  Value *outs = w->outs = ARENA_ARRAY(&s->scratch, Value, nout + 1);
  for (size_t i = 0; i < nout; i++) outs[i] = v_tensor(s, tn_ref(out[i]));
  if (j)
    tape_record_call(s, j, nin, r->leaf, r->in, c->result_outputs, outs,
                     r->saves ? out + nout : NULL, r->env, nsym, w->at);
  for (size_t k = 0; j && j->spec.hosts && k < c->result_outputs; k++) {
    TapeNode *n = outs[k].u.t->node;
    if (!n) continue;
    tape_refs(s, n, c->hosts->need_count, w->refs);
    break;
  }
  w->states = ARENA_ARRAY(&s->scratch, Value, c->write_count + 1);
  for (size_t i = 0; i < c->write_count; i++) {
    Value v = instantiate(s, c, c->writes[i].tmpl, outs, r->env, w->at);
    w->states[i] = c->writes[i].is_param ? v : state_detach(s, v);
  }
  if (capsule_is_fn(w->f)) pass_through(r, outs, out);
  w->result = instantiate(s, c, c->result, outs, r->env, w->at);
  advance_counters(s, c, out);
}

Value call_run_code(Session *s, FnObj *f, const Args *a) {
  PreparedCall r;
  fail_running_at(s, a->call);
  count_step(s, a->call);
  prepare_call(s, f, a, &r);
  if (r.outside && desugar_is_comp(f))
    fail_at(s, ERR_SCRIPT_ONLY, a->call, "a `grad` in it goes on through values of script");
  if (r.outside && saves_narrow(r.c->g))
    fail_help(
        s, ERR_NOT_YET, a->call, "a function of code that holds the block and its `grad`",
        "not yet: a narrow save in a block of script whose `grad` goes on through values that "
        "were made outside");
  if (r.outside) return block_as_script(s, f, a);
  report_once(s, f, &r);
  Compiled *c = r.c;
  Flat *flat = &r.flat;
  for (size_t i = 0; i < c->write_count && s->operands; i++)
    if (c->writes[i].is_param) operands_hold(s, flat->leaves[c->writes[i].index].v.u.p);
  Tensor **out = ARENA_ARRAY(&s->scratch, Tensor *, r.g->output_count + 1);
  Finish w = {.s = s, .f = f, .r = &r, .at = a->call};
  RunCtx ctx = {.mem = &s->mem,
                .interrupt = &s->kernel.stop,
                .pool = native_pool(s, false),
                .env = r.env,
                .effect = effect_run,
                .ud = s,
                .alone = r.memory.alone,
                .commit = finish,
                .commit_ud = &w};
  if (c->hosts) {
    w.refs = host_refs(s, c->hosts, flat);
    ctx.effect = host_effect;
    ctx.ud = host_run(s, c->hosts, w.refs, (Span){0});
  }
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov at = {0};
  s->count.runs++;
  if (!native_run(s, r.native, r.g, call_fn_name(f), &ctx, r.in, out, &e, &at)) {
    const char *inner = NULL;
    for (size_t i = 0; i < c->path_count && at.path; i++)
      if (c->paths[i].path == opaque_plain(s, at.path))
        inner = path_place_title(s, flat->insts[c->paths[i].inst], flat->insts, flat->inst_count,
                                 at.span);
    fail_run(s, &e, at.span, path_fn_title(s, f), a->call, c->call, inner);
    fail_raise(s);
  }
  s->count.nodes += (int64_t)ctx.nodes_run;
  if (!w.done) finish(&w, out);
  for (size_t i = 0; i < c->write_count; i++) {
    const Write *x = &c->writes[i];
    if (x->is_param)
      param_put(flat->leaves[x->index].v.u.p, tn_ref(w.states[i].u.t->t));
    else
      value_set(&model_field(flat->insts[x->index], x->field)->v, w.states[i]);
  }
  if (c->hosts) host_register(s, c->hosts, w.refs, flat, w.outs);
  return w.result;
}
