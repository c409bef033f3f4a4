/* Random streams: sites, counters, keys (rules 92, 93).
 *
 * A site is a call in the source text: its id is a hash of module, item and ordinal, made when the
 * module is declared (module.c). Each execution takes the site's next counter; the key of a draw is
 * (seed folded with the site, counter), so the numbers depend on nothing else. For elements of
 * comprehensions, element.c derives further keys.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/opcode.h"
#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/op_run.h"
#include "lang/eval/ops.h"
#include "lang/eval/shapes.h"
#include "lang/eval/want.h"
#include "lang/value/fail.h"
#include "lang/value/random.h"
#include "runtime/rng.h"

static Site *site_of(Session *s, uint64_t id) {
  size_t mask = s->site_cap ? s->site_cap - 1 : 0;
  if (s->site_cap)
    for (size_t i = id & mask;; i = (i + 1) & mask) {
      if (s->sites[i].id == id) return &s->sites[i];
      if (!s->sites[i].id) break;
    }
  if (2 * (s->site_count + 1) > s->site_cap) { /* grow: an open-addressed table at most half full */
    size_t cap = s->site_cap ? s->site_cap * 2 : 64;
    Site *n = mem_need(&s->mem, NULL, 0, cap * sizeof *n);
    memset(n, 0, cap * sizeof *n);
    for (size_t i = 0; i < s->site_cap; i++)
      if (s->sites[i].id)
        for (size_t k = s->sites[i].id & (cap - 1);; k = (k + 1) & (cap - 1))
          if (!n[k].id) {
            n[k] = s->sites[i];
            break;
          }
    mem_free(&s->mem, s->sites, s->site_cap * sizeof *n);
    s->sites = n;
    s->site_cap = cap;
    mask = cap - 1;
  }
  size_t i = id & mask;
  while (s->sites[i].id) i = (i + 1) & mask;
  s->sites[i].id = id;
  s->site_count++;
  return &s->sites[i];
}

uint64_t *random_counter(Session *s, uint64_t site) {
  return &site_of(s, site ? site : 1)->counter;
}

static void site_words(Session *s, bool fixed, uint64_t seed, uint64_t site, uint32_t nth,
                       int64_t out[2]) {
  if (!site) site = 1;
  out[0] = (int64_t)rng_fold(rng_key(fixed ? seed : s->seed), site);
  out[1] = fixed ? nth : (int64_t)(site_of(s, site)->counter + nth);
}

void random_words(Session *s, bool fixed, uint64_t seed, uint64_t site, uint32_t nth,
                  int64_t out[2]) {
  site_words(s, fixed, seed, site, nth, out);
  element_words(s->element, out);
}

void random_advance(Session *s, uint64_t site) {
  Draw d = {.site = site ? site : 1};
  uint64_t *counter = random_counter(s, d.site);
  element_note(s, NULL, d, *counter);
  ++*counter;
}

void random_reset(Session *s, uint64_t seed) {
  s->seed = seed;
  s->seed_given = true;
  if (s->site_cap) memset(s->sites, 0, s->site_cap * sizeof *s->sites);
  s->site_count = 0;
  element_forget(s);
}

uint64_t random_site(Node *call) {
  return call && call->info ? *(uint64_t *)call->info : 1;
}

static Value words_value(Session *s, bool own, uint64_t site) {
  int64_t two = 2;
  Value k = v_tensor(s, tn_new(&s->mem, DEV_CPU, DT_I64, 1, &two));
  (own ? site_words : random_words)(s, false, 0, site, 0, tn_data(k.u.t->t));
  return k;
}

/* The number of times the draw was staged in this unit so far. */
static DrawCount *count_of(Unit *u, Draw d) {
  for (size_t i = 0; i < u->draw_count; i++)
    if (draw_same(u->draws[i].d, d)) return &u->draws[i];
  DrawCount c = {.d = d};
  VEC_PUSH(u->arena, u->draws, u->draw_count, u->draw_cap, c);
  return &u->draws[u->draw_count - 1];
}

uint64_t *random_staged(Unit *u, Draw d) {
  return &count_of(u, d)->now;
}

void random_seed_staged(Session *s, uint64_t seed) {
  Unit *u = s->stage->unit;
  for (size_t i = 0; u && i < u->draw_count; i++) {
    DrawCount *c = &u->draws[i];
    if (!c->d.fixed || c->d.seed != seed) continue;
    element_note(s, u, c->d, c->now);
    c->now = 0;
    c->more = v_unit();
  }
}

DrawMark random_mark(Session *s) {
  const Unit *u = s->stage ? s->stage->unit : NULL;
  DrawMark m = {NULL, u ? u->draw_count : 0};
  m.draws = ARENA_ARRAY(&s->scratch, DrawCount, m.count + 1);
  if (m.count) memcpy(m.draws, u->draws, m.count * sizeof *m.draws);
  return m;
}

void random_back(Session *s, const DrawMark *m) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  for (size_t i = 0; u && i < u->draw_count; i++)
    u->draws[i] = i < m->count ? m->draws[i] : (DrawCount){.d = u->draws[i].d};
}

/* The graph input with the key of execution number nth of a draw. */
static Val input_of(Unit *u, Draw d, uint32_t nth) {
  for (size_t i = 0; i < u->random_count; i++) {
    const RandomUse *r = &u->randoms[i];
    if (draw_same((Draw){r->site, r->seed, r->fixed}, d) && r->nth == nth)
      return u->g->inputs[r->input];
  }
  RandomUse r = {.site = d.site,
                 .seed = d.seed,
                 .fixed = d.fixed,
                 .nth = nth,
                 .input = (uint32_t)u->g->input_count};
  Type t = {.kind = TK_TENSOR, .dtype = DT_I64, .rank = 1};
  t.dim[0] = dim_const(u->g->dims, 2);
  Val v = gr_input(u->g, &t);
  int64_t source = -1 - (int64_t)u->random_count;
  VEC_PUSH(u->arena, u->source, u->source_count, u->source_cap, source);
  VEC_PUSH(u->arena, u->randoms, u->random_count, u->random_cap, r);
  return v;
}

/* The key of an execution that comes `more` later: the counter is the key's second word. */
static Value later_key(Session *s, Value key, Value more) {
  if (more.tag == V_UNIT) return key;
  Unit *u = s->stage->unit;
  Stage *now = s->stage, *st = now;
  while (st->level > more.aux) st = st->up;
  s->stage = st; /* where elements of a comprehension have one key in common, to fold in theirs */
  Span at = {0};
  Value both[2] = {v_int(0), more}, of[2] = {key, op_stack(s, 2, both, 0, at)};
  Value v = op_run(s, OP_ADD, 2, of, NULL, 0, at);
  s->stage = now;
  KeyNode k = {st->g, v.u.v};
  VEC_PUSH(u->arena, u->keys, u->key_count, u->key_cap, k);
  return v;
}

Value random_key_for(Session *s, uint64_t site) {
  Unit *u = s->stage ? s->stage->unit : NULL;
  if (!u || u->check) {
    if (s->stage) /* only types matter */
      return op_iota(s, dim_const(op_dims_of(s), 2), DT_I64, (Span){0});
    Value k = words_value(s, false, site);
    random_advance(s, site);
    return k;
  }
  Draw d = {.site = site};
  d.fixed = s->seed_scope != 0;
  if (d.fixed) d.seed = s->seed_scope - 1;
  DrawCount *c = count_of(u, d);
  element_note(s, u, d, c->now);
  Value v = {.tag = V_NODE, .aux = 1};
  v.u.v = input_of(u, d, (uint32_t)c->now++);
  return element_key(s, later_key(s, v, c->more));
}

Value random_key_member(Session *s, uint64_t site) {
  if (s->stage) return random_key_for(s, site);
  Value k = words_value(s, true, site);
  ++*random_counter(s, site);
  return k;
}

Value random_key(Session *s, Node *site) {
  return random_key_for(s, random_site(site));
}

/* ---- the state as text: the seed, then `site:counter` for each site that has drawn, sorted by
 * site; numbers are hexadecimal */

static const char state_word[] = "random";

static int by_site(const void *a, const void *b) {
  const Site *x = a, *y = b;
  return x->id < y->id ? -1 : x->id > y->id;
}

BUILTIN_FN(bi_random_state) {
  Site *sites = ARENA_ARRAY(&s->scratch, Site, s->site_count + 1);
  size_t n = 0;
  for (size_t i = 0; i < s->site_cap; i++)
    if (s->sites[i].id && s->sites[i].counter) sites[n++] = s->sites[i];
  qsort(sites, n, sizeof *sites, by_site);
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "%s %llx", state_word, (unsigned long long)s->seed);
  for (size_t i = 0; i < n; i++)
    buf_printf(&b, " %llx:%llx", (unsigned long long)sites[i].id,
               (unsigned long long)sites[i].counter);
  (void)c;
  return v_str(s, b.s, b.n);
}

/* Reads a number and moves *p behind it. False: there is none. */
static bool read_hex(const char **p, uint64_t *out) {
  char *end;
  if (!strchr("0123456789abcdef", **p) || !**p) return false;
  *out = strtoull(*p, &end, 16);
  bool ok = end - *p <= 16;
  *p = end;
  return ok;
}

/* Reads a state; with `set` it becomes that of the session. False: the text is no state. */
static bool read_state(Session *s, const char *p, bool set) {
  uint64_t seed, id, counter;
  size_t k = sizeof state_word - 1;
  if (strncmp(p, state_word, k) || p[k] != ' ') return false;
  p += k + 1;
  if (!read_hex(&p, &seed)) return false;
  if (set) random_reset(s, seed);
  while (*p == ' ') {
    p++;
    if (!read_hex(&p, &id) || !id || *p++ != ':' || !read_hex(&p, &counter)) return false;
    if (set) site_of(s, id)->counter = counter;
  }
  return !*p;
}

BUILTIN_FN(bi_seed) {
  Value v = c->v[0];
  if (v.tag != V_STR) {
    random_reset(s, (uint64_t)want_int(s, v, c->spans[0], "the seed"));
    return v_unit();
  }
  if (!read_state(s, v.u.str->s, false))
    fail_help(s, ERR_VALUE, c->spans[0], "`seed` takes an int, or what random_state() gave",
              "the text is no state of random numbers");
  read_state(s, v.u.str->s, true);
  return v_unit();
}
