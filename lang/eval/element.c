/* Random draws of the elements of a comprehension (rule 92).
 *
 * In: iterations of a comprehension that runs in order, in script or while it is staged; keys that
 * are captured by a region that is mapped over rows. Out: keys. One law holds however the
 * comprehension runs: element i draws from fold_in(key of site and counter, i), and nested
 * comprehensions fold further. Each element counts its executions from the counter at the entry,
 * and afterwards the counter is the largest of these counts. So the numbers do not depend on
 * whether a comprehension is batched.
 *
 * For comprehensions that run in order, a session has a list of Elements, the innermost first, each
 * with the counters that its loop has used. While a unit is staged, these are counts of the unit,
 * and keys are nodes. Each Element folds in the stage of its own loop, so that a region between two
 * loops can transform the key in between.
 */
#include "graph/build.h"
#include "graph/pass.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/element.h"
#include "lang/eval/number.h"
#include "lang/eval/op_run.h"
#include "lang/value/fail.h"
#include "runtime/rng.h"

typedef struct Met {
  Draw d;
  uint64_t entry, most;
} Met;

struct Element {
  Element *up;
  Session *s;
  Unit *unit;     /* the unit that is being staged; NULL: the loop runs */
  uint32_t level; /* of its stage */
  int scope;      /* Session.seed_scopes when it started: whose counters it uses */
  int64_t index;
  Met *met;
  size_t count, cap;
};

static void element_free(void *p) {
  Element *e = p;
  Session *s = e->s;
  if (e->met) mem_free(&s->mem, e->met, e->cap * sizeof *e->met);
  mem_free(&s->mem, e, sizeof *e);
}

Element *elements_start(Session *s) {
  Element *e = mem_need(&s->mem, NULL, 0, sizeof *e);
  Unit *u = s->stage ? s->stage->unit : NULL;
  *e = (Element){.s = s,
                 .up = s->element,
                 .unit = u && !u->check ? u : NULL,
                 .level = s->stage ? s->stage->level : 0,
                 .scope = s->seed_scopes};
  mem_pool_add(&s->mem, e, element_free);
  return e;
}

void element_note(Session *s, Unit *u, Draw d, uint64_t now) {
  for (Element *e = s->element; e && e->unit == u; e = e->up) {
    bool known = !u && e->scope != s->seed_scopes;
    for (size_t i = 0; i < e->count && !known; i++) known = draw_same(e->met[i].d, d);
    if (known) continue;
    if (e->count == e->cap) {
      size_t cap = e->cap ? 2 * e->cap : 4;
      e->met = mem_need(&s->mem, e->met, e->cap * sizeof *e->met, cap * sizeof *e->met);
      e->cap = cap;
    }
    e->met[e->count++] = (Met){d, now, now};
  }
}

void element_forget(Session *s) {
  for (Element *e = s->element; e && !e->unit; e = e->up)
    if (e->scope == s->seed_scopes) e->count = 0;
}

static uint64_t *counter_of(const Element *e, Draw d) {
  return e->unit ? random_staged(e->unit, d) : random_counter(e->s, d.site);
}

void element_enter(Session *s, Element *e) {
  s->element = e;
}

void element_leave(Session *s, Element *e) {
  for (size_t i = 0; i < e->count; i++) {
    Met *m = &e->met[i];
    uint64_t *now = counter_of(e, m->d);
    if (*now > m->most) m->most = *now;
    *now = m->entry;
  }
  e->index++;
  s->element = e->up;
}

void elements_end(Session *s, Element *e) {
  (void)s;
  for (size_t i = 0; i < e->count; i++) *counter_of(e, e->met[i].d) = e->met[i].most;
}

/* Folds the present indices into a key as run_FOLD_IN does, from the outermost Element to e. */
void element_words(const Element *e, int64_t words[2]) {
  if (!e) return;
  element_words(e->up, words);
  if (e->unit) return;
  uint64_t key = rng_fold((uint64_t)words[0], (uint64_t)words[1]);
  words[0] = (int64_t)rng_fold(key, (uint64_t)e->index);
  words[1] = 0;
}

static Value fold_staged(Session *s, const Element *e, Unit *u, Value v) {
  if (!e || e->unit != u) return v;
  v = fold_staged(s, e->up, u, v);
  Stage *now = s->stage, *st = now;
  while (st->level > e->level) st = st->up;
  s->stage = st;
  Value in[2] = {v, number_node(s, e->index)};
  v = op_run(s, OP_FOLD_IN, 2, in, NULL, 0, (Span){0});
  s->stage = now;
  KeyNode k = {st->g, v.u.v};
  VEC_PUSH(u->arena, u->keys, u->key_count, u->key_cap, k);
  return v;
}

Value element_key(Session *s, Value v) {
  return fold_staged(s, s->element, s->stage->unit, v);
}

bool element_is_key(const Stage *st, Val v) {
  const Unit *u = st->unit;
  for (size_t i = 0; u && i < u->key_count; i++)
    if (u->keys[i].g == st->g && val_eq(u->keys[i].v, v)) return true;
  for (size_t i = 0; st->level > 1 && i < st->capture_count; i++)
    if (val_eq(st->inner[i], v)) return element_is_key(st->up, st->outer[i]);
  for (size_t i = 0; u && st->level == 1 && i < u->random_count; i++)
    if (val_eq(u->g->inputs[u->randoms[i].input], v)) return true;
  return false;
}

/* A graph i64[2] -> i64[n, 2]: row i is fold_in(key, i). */
static Graph *fold_rows(Session *s, const Type *key, Dim n, GErr *e) {
  Graph *now = s->stage->g;
  Graph *g = gr_new(now->arena, now->dims, now->names, NULL);
  Graph *r = gr_new(now->arena, now->dims, now->names, NULL);
  g->at = r->at = now->at;
  Type iteration = {.kind = TK_TENSOR, .dtype = DT_I64, .dev = key->dev};
  Val in[2], args[2];
  in[1] = gr_input(r, &iteration);
  in[0] = gr_input(r, key);
  Val v = gr_op(r, OP_FOLD_IN, in, 2, NULL, 0, NULL, 0, e);
  if (val_none(v)) return NULL;
  gr_output(r, v);
  args[1] = gr_input(g, key);
  int64_t dim = n;
  Attr iota[3] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, 1, &dim),
                  attr_i(AT_DEVICE, key->dev)};
  args[0] = gr_op(g, OP_IOTA, NULL, 0, iota, 3, NULL, 0, e);
  Attr mapped = attr_i(AT_MAPPED, 1);
  v = val_none(args[0]) ? VAL_NONE : gr_op(g, OP_MAP, args, 2, &mapped, 1, &r, 1, e);
  if (val_none(v)) return NULL;
  gr_output(g, v);
  return g;
}

Val element_rows(Session *s, Val key, size_t axes, const Dim *n, Span at) {
  GErr e = {.code = ERR_BUG};
  const Type one = *gr_type(s->stage->g, key);
  bool row = true;
  stage_at(s, at);
  for (size_t a = 0; a < axes; a++) {
    Graph *g = fold_rows(s, &one, n[a], &e);
    for (size_t b = a; g && b-- > 0;) g = gr_batch(s->stage->g->arena, g, &row, n[b], &e);
    if (!g || !gr_inline(s->stage->g, g, &key, NULL, &key, &e)) fail_gerr(s, at, &e);
  }
  return key;
}
