/* Calls with a gradient: the results and inputs of the gradient, and its two halves.
 *
 * In: a graph, and the results and inputs for which it is differentiated. Out: a forward that saves
 * and a backward, simplified, made when the first of them is to run. If blocks leave something to
 * choose, the choice is made first, and its plans are those that run. If only some results get a
 * gradient, the same is made for these. If a call has saved nothing, the forward runs again for the
 * values that it saves.
 */
#include "lang/compile/joint_ref.h"

#include <string.h>

#include "graph/pass.h"
#include "graph/structure.h"
#include "lang/compile/compile.h"
#include "lang/compile/tiering.h"
#include "lang/tape/callback.h"
#include "lang/value/fail.h"

/* ---- making and giving back */

static const bool *copy_flags(Arena *a, const bool *from, size_t n) {
  if (!from) return NULL;
  bool *to = ARENA_ARRAY(a, bool, n + 1);
  memcpy(to, from, n * sizeof *to);
  return to;
}

static const int64_t *copy_sizes(Arena *a, const int64_t *from, size_t n) {
  if (!from) return NULL;
  int64_t *to = ARENA_ARRAY(a, int64_t, n + 1);
  if (n) memcpy(to, from, n * sizeof *to);
  return to;
}

JointRef *joint_new(Session *s, const JointSpec *spec) {
  JointRef *j = mem_need(&s->mem, NULL, 0, sizeof *j);
  *j = (JointRef){.rc = 1, .s = s};
  arena_init(&j->arena, &s->mem);
  mem_pool_add(&s->mem, j, (void (*)(void *))joint_release);
  Arena *a = &j->arena;
  compiled_retain(j->spec.code = spec->code);
  j->spec.hosts = spec->hosts;
  if (spec->hosts) spec->hosts->rc++;
  j->spec.kind = spec->kind;
  j->spec.call = spec->call;
  j->spec.eval_dropout = spec->eval_dropout;
  const Graph *f = j->spec.f = gr_clone(a, spec->f);
  j->spec.cot = copy_flags(a, spec->cot, f->output_count);
  j->spec.wants = copy_flags(a, spec->wants, f->input_count);
  j->spec.reads = copy_flags(a, spec->reads, f->input_count);
  if (spec->written) {
    int *written = ARENA_ARRAY(a, int, f->input_count + 1);
    memcpy(written, spec->written, f->input_count * sizeof *written);
    j->spec.written = written;
  }
  j->spec.env = copy_sizes(a, spec->env, dim_symbol_count(f->dims));
  j->has_callbacks = gr_calls_host(f);
  j->spec.deferred = spec->deferred;
  j->state = spec->deferred ? JOINT_DEFERRED : JOINT_EAGER;
  return j;
}

static void joint_free(JointRef *j) {
  Session *s = j->s;
  native_free(&s->mem, j->forward);
  native_free(&s->mem, j->backward);
  native_free(&s->mem, j->resave_code);
  plan_unref(j->planned);
  hosts_release(j->spec.hosts);
  compiled_release(j->spec.code);
  arena_free(&j->arena);
  mem_free(&s->mem, j, sizeof *j);
}

JointRef *joint_retain(JointRef *j) {
  (j->parent ? j->parent : j)->rc++;
  return j;
}

void joint_release(JointRef *j) {
  if (!j) return;
  if (j->parent) j = j->parent;
  if (--j->rc > 0) return;
  while (j->variants) {
    JointRef *k = j->variants;
    j->variants = k->sibling;
    joint_free(k);
  }
  joint_free(j);
}

/* ---- variants */

static bool same_results(const JointRef *j, const bool *has) {
  return !memcmp(j->spec.cot, has, j->spec.f->output_count * sizeof *has);
}

JointRef *joint_of_results(JointRef *j, const bool *has) {
  JointRef *parent = j->parent ? j->parent : j;
  if (same_results(parent, has)) {
    parent->current = NULL;
    return parent;
  }
  JointRef *k = parent->variants;
  while (k && !same_results(k, has)) k = k->sibling;
  if (!k) {
    JointSpec spec = parent->spec;
    spec.cot = has;
    spec.deferred = false; /* a gradient is taken now */
    k = joint_new(parent->s, &spec);
    k->parent = parent;
    k->sibling = parent->variants;
    parent->variants = k;
    parent->rc++; /* the pool's reference to k counts for all */
  }
  return parent->current = k;
}

/* ---- the two halves */

/* Makes the joint graph of a graph whose blocks leave something to choose or to report. */
static Joint *joint_of_blocks(Session *s, JointRef *j, const InputMemory *memory, GErr *e,
                              Prov *where, Span at) {
  Arena *a = &j->arena;
  const int64_t *env = j->spec.env;
  JointWant want = {j->spec.cot, j->spec.wants, NULL, j->spec.written};
  const JointWhole *w = ad_joint_whole(a, j->spec.f, &want, e, where);
  if (w && j->spec.kind == JOINT_BLOCK) { /* with carries for the inputs that have a gradient */
    want.carries = j->carries = w->gives_grad;
    w = ad_joint_whole(a, j->spec.f, &want, e, where);
  }
  if (!w) return NULL;
  j->choice = (Choice){.g = w->g, .split = w->split};
  if (env && choice_wanted(s, j->spec.f)) {
    j->choice = choice_for_joint(s, a, w, env, memory, at);
  } else if (env && auto_remat_wanted(s, w->g, env)) {
    JointWhole *t = ARENA_NEW(a, JointWhole);
    *t = *w;
    j->choice = auto_remat(s, a, w->g, w->split, NULL, env);
    t->g = (Graph *)(uintptr_t)j->choice.g;
    w = t;
  }
  if (!j->choice.planned) return ad_joint_split(a, w, j->choice.choice, e, where);
  Joint *made = ARENA_NEW(a, Joint);
  *made = *j->choice.planned->runs.joint;
  j->planned = j->choice.planned;
  j->planned->rc++;
  return made;
}

static void joint_made(JointRef *j, Joint *made) {
  j->joint = made;
  j->state = JOINT_MADE;
}

/* Whether f takes gradients itself. */
static bool has_gradients(const Graph *f) {
  for (size_t i = 0; i < f->prov_count; i++)
    if (f->provs[i].backward) return true;
  return false;
}

/* `must`: else the halves of a function that takes gradients may be missing, as a further gradient
 * is unlikely; the error is that of the gradient. */
static bool make(Session *s, JointRef *j, bool must, const InputMemory *memory, Span at) {
  if (j->state == JOINT_MADE) return true;
  const JointSpec *spec = &j->spec;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {0};
  PassTime time = pass_start(s);
  plan_unref(j->planned); /* of an earlier try that failed */
  j->planned = NULL;
  Joint *made = spec->f->blocks || spec->env
                    ? joint_of_blocks(s, j, memory, &e, &where, at)
                    : ad_joint(&j->arena, spec->f, spec->cot, spec->wants, &e, &where);
  if (!made && !must && e.code == ERR_NOT_YET && has_gradients(spec->f)) {
    j->state = JOINT_DEFERRED;
    pass_end(s, PASS_JOINT, time);
    return false;
  }
  if (!made) fail_gerr(s, where.span.file ? where.span : at, &e);
  pass_end(s, PASS_JOINT, time);
  if (j->planned) {
    made->forward = (Graph *)(uintptr_t)j->planned->runs.first;
    made->backward = (Graph *)(uintptr_t)j->planned->runs.second;
    native_planned(s, &j->forward, &j->planned->first);
    native_planned(s, &j->backward, &j->planned->second);
  } else {
    made->forward = pass_simplified(s, &j->arena, made->forward, NULL);
    made->backward = pass_simplified(s, &j->arena, made->backward, NULL);
  }
  pass_dump(s, PASS_JOINT, made->forward);
  pass_dump(s, PASS_JOINT, made->backward);
  if (j->choice.candidates) {
    native_must(s, &j->forward);
    native_must(s, &j->backward);
  }
  joint_made(j, made);
  return true;
}

void joint_make(Session *s, JointRef *j, const InputMemory *memory, Span at) {
  make(s, j, true, memory, at);
}

bool joint_make_early(Session *s, JointRef *j, const InputMemory *memory, Span at) {
  return make(s, j, false, memory, at);
}

bool joint_make_once(JointRef *j, GErr *e, Prov *at) {
  Joint *made = ad_joint(&j->arena, j->spec.f, j->spec.cot, j->spec.wants, e, at);
  if (made) joint_made(j, made);
  return made != NULL;
}

const JointWhole *joint_whole(const JointRef *j, Arena *a) {
  GErr e;
  Prov where;
  JointWant want = {j->spec.cot, j->spec.wants, j->carries, j->spec.written};
  return ad_joint_whole(a, j->spec.f, &want, &e, &where);
}

/* ---- for calls that saved nothing */

/* The forward half with only the saved values as outputs: results exist, and writes are done. */
static const Graph *resave_graph(Session *s, JointRef *j) {
  if (j->resave) return j->resave;
  if (j->choice.candidates) native_must(s, &j->resave_code);
  Graph g = *j->joint->forward;
  g.outputs += j->joint->output_count;
  g.output_count = (size_t)j->joint->saved_count;
  g.write_count = 0;
  return j->resave = pass_simplified(s, &j->arena, &g, NULL);
}

/* Skips an effect: the forward has had its effects already. */
static bool no_effect(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out,
                      GErr *e) {
  (void)ud, (void)in, (void)n, (void)e;
  for (int i = 0; i < g->nodes[node].result_count; i++) out[i] = NULL;
  return true;
}

Tensor **joint_resave(Session *s, JointRef *j, const int64_t *env, Tensor *const *inputs, Span at) {
  joint_make(s, j, NULL, at);
  const Graph *g = resave_graph(s, j);
  Tensor **got = ARENA_ARRAY(&s->scratch, Tensor *, j->joint->saved_count + 1);
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {.span = at};
  RunCtx c = {.mem = &s->mem,
              .interrupt = &s->kernel.stop,
              .pool = native_pool(s, false),
              .env = env,
              .effect = no_effect};
  if (!native_run(s, &j->resave_code, g, "a forward", &c, inputs, got, &e, &where))
    fail_gerr(s, at, &e);
  return got;
}
