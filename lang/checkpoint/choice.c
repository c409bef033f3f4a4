/* Choosing which values of its `checkpoint` blocks a call keeps, if a budget, `auto` or a limit of
 * memory leaves that open (rules 82, 86).
 *
 * In: a graph that holds forward and backward, with tags, and sizes. Out: a choice per value. The
 * candidates are the plan as written, saving all, recomputing all, a ladder of cuts for prices of a
 * byte (autograd/remat.h), and plans that run blocks again in pieces (autograd/pieces.c), each with
 * each of a few schedules for its loops (autograd/schedule.c). What each makes again and about how
 * much it takes is known at little cost; those that another seems to beat are dropped. Near the
 * bound, candidates are planned like any other code, so their peaks are exact. The choice is the
 * fastest whose peak fits. Under a limit its code is made at once; if that leaves too little, the
 * others are tried again, with what is known by then. The candidates do not depend on the budget,
 * so more memory never gives a slower plan. `auto` has all of them planned, and takes the knee of
 * their curve if it fits. Values of blocks that leave nothing open stay as written.
 */
#include "lang/checkpoint/choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/autograd.h"
#include "autograd/remat.h"
#include "graph/cost.h"
#include "graph/op.h"
#include "graph/pass.h"
#include "graph/structure.h"
#include "lang/compile/pipeline.h"
#include "lang/compile/tiering.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"

/* Computing again costs nothing that counts below this part of all work. */
enum { CHEAP_PART = 10 };

typedef struct Candidate {
  RmPlan plan;
  const RmSchedule *loops; /* NULL: they keep all, or as written */
  const Graph *g;          /* of its choice, once it is planned */
  int64_t time;            /* of its recomputation */
  int64_t about;           /* bytes of blocks, by rm_look */
  int64_t need;            /* of the process; -1: not planned yet */
  int64_t need_dense;      /* `need` if all inputs are dense */
  int64_t *block;          /* bytes per block of the table */
  bool known; /* it takes no more; else there are loops whose turns only the run knows */
  /* its plan, with a reference on the pool; NULL: it cannot be made, or another is better */
  Planned *planned;
  bool tried; /* with its code it was too large */
  size_t number;
} Candidate;

typedef struct Chooser {
  Session *s;
  Arena *a; /* of the result */
  const Graph *g;
  const JointWhole *whole; /* NULL: g is one graph */
  const int64_t *env;
  const InputMemory *memory; /* NULL: not known */
  int64_t room;
  size_t tensors, rest;  /* bytes in use when `room` was left */
  bool *open;            /* per block: something is left to decide */
  const int64_t *budget; /* per block: bytes, -1 = none; NULL: as written */
  bool all;              /* every candidate is planned, and keeps its plan */
  Arena *plans, *temp;   /* of candidates; temp: while they are made */
  Shelf *shelf;          /* of their plans; NULL: none */
  uint8_t *result;       /* see reserve_result */
  int64_t *result_dense;
  InputMemory result_memory;
  Candidate *c;
  size_t count, cap;
  Span at;
} Chooser;

static bool open_block(const Session *s, const Graph *g, uint32_t id) {
  if (s->config.plan >= 0) return true;
  for (const Block *b = gr_block_at(g, id); b; b = gr_block_at(g, b->parent))
    if (b->budget >= 0 || b->automatic || s->mem.limit) return true;
  return false;
}

/* The reference evaluator keeps or refuses budgets too, by the plan of compiled code. It checks a
 * limit only when it is reached. */
bool choice_wanted(const Session *s, const Graph *g) {
  if (s->mem.limit && s->config.cpu != CPU_REFERENCE) return true;
  for (size_t i = 0; g->blocks && i < g->blocks->count; i++)
    if (open_block(s, g, (uint32_t)i + 1)) return true;
  return false;
}

/* ---- candidates */
enum { MOST_CUTS = 10, MOST_PIECES = 14, FEW_PIECES = 12, MOST_SCHEDULES = 12 };

static void add(Chooser *h, const uint8_t *written, RmPlan plan) {
  const Graph *g = h->g;
  for (uint32_t i = 0; i < g->node_count; i++) {
    uint32_t region = g->provs[g->nodes[i].prov].region;
    if (region && h->open[region - 1]) continue;
    for (uint32_t k = 0; k < g->nodes[i].result_count; k++)
      plan.choice[g->nodes[i].result0 + k] = written[g->nodes[i].result0 + k];
  }
  for (size_t i = 0; i < h->count; i++)
    if (plan.nest == h->c[i].plan.nest && !memcmp(h->c[i].plan.choice, plan.choice, g->type_count))
      return;
  Candidate c = {.plan = plan, .need = -1, .number = h->count};
  VEC_PUSH(&h->s->scratch, h->c, h->count, h->cap, c);
}

static void add_pieces(Chooser *h, const uint8_t *written, const uint8_t *leaf, bool fine,
                       size_t most) {
  RmPlan plans[MOST_PIECES];
  size_t n = rm_pieces(h->plans, h->temp, h->g, h->env, h->open, leaf, fine, most, plans);
  for (size_t i = 0; i < n; i++) add(h, written, plans[i]);
}

/* The loops about which there is something left to decide. */
static RmOpen *open_loops(const Chooser *h) {
  const Graph *g = h->g;
  RmOpen *open = ARENA_ARRAY(h->temp, RmOpen, g->node_count + 1);
  bool numbered = h->s->config.plan >= 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    uint32_t region = g->provs[g->nodes[i].prov].region;
    bool any = region ? h->open[region - 1] : h->s->mem.limit || numbered;
    open[i] = !any ? LOOP_CLOSED : numbered ? LOOP_BOUNDED : LOOP_OPEN;
    for (const Block *b = gr_block_at(g, region); b && any; b = gr_block_at(g, b->parent))
      if (b->budget >= 0) open[i] = LOOP_BOUNDED;
  }
  return open;
}

/* Adds each plan with each of n schedules of the loops, the first of which is as it is. */
static void add_schedules(Chooser *h, const RmSchedule *s, size_t n) {
  size_t plans = h->count;
  for (size_t i = 0; i < plans; i++)
    for (size_t k = n; k-- > 0;) {
      Candidate c = h->c[i];
      c.time = cost_add(c.time, s[k].time);
      c.about = cost_add(c.about, s[k].bytes);
      c.loops = k ? &s[k] : NULL;
      if (k) c.number = h->count;
      if (k)
        VEC_PUSH(&h->s->scratch, h->c, h->count, h->cap, c);
      else
        h->c[i] = c;
    }
}

static int by_number(const Candidate *a, const Candidate *b) {
  return a->number < b->number ? -1 : a->number > b->number;
}

static int by_time(const void *x, const void *y) {
  const Candidate *a = x, *b = y;
  if (a->time != b->time) return a->time < b->time ? -1 : 1;
  if (a->about != b->about) return a->about < b->about ? -1 : 1;
  return by_number(a, b);
}

/* Lists the plans, by rising time and falling memory: those that none seems to beat. */
static void make_candidates(Chooser *h) {
  const Graph *g = h->g;
  Arena *temp = h->temp;
  uint8_t *written = ARENA_ARRAY(h->plans, uint8_t, g->type_count + 1), *choices[MOST_CUTS];
  rm_written(g, written);
  size_t n = g->blocks ? rm_ladder(h->plans, g, h->env, MOST_CUTS, choices) : 0;
  if (!n) add(h, written, (RmPlan){g, written, NULL});
  for (size_t i = 0; i < n; i++) add(h, written, (RmPlan){g, choices[i], NULL});
  if (n > 1) {
    uint8_t *leaf = ARENA_ARRAY(temp, uint8_t, g->type_count + 1);
    rm_all(g, CHOICE_SAVE, leaf);
    add_pieces(h, written, leaf, false, FEW_PIECES);
    add_pieces(h, written, leaf, true, FEW_PIECES);
    rm_within(temp, g, h->env, rm_time(g, h->env) / CHEAP_PART, leaf);
    add_pieces(h, written, leaf, true, MOST_PIECES);
  }
  RmSchedule *loops = ARENA_ARRAY(h->plans, RmSchedule, MOST_SCHEDULES);
  size_t ways = rm_schedules(h->plans, g, h->env, open_loops(h), MOST_SCHEDULES, loops);
  for (size_t i = 0; i < h->count && h->count + ways > 2; i++) {
    RmPrice p = rm_look(temp, &h->c[i].plan, h->env);
    h->c[i].time = p.time;
    h->c[i].about = p.bytes;
  }
  add_schedules(h, loops, ways);
  qsort(h->c, h->count, sizeof *h->c, by_time);
  size_t kept = 0;
  for (size_t i = 0; i < h->count; i++)
    if (!kept || h->c[i].about < h->c[kept - 1].about) h->c[kept++] = h->c[i];
  h->count = kept;
}

/* ---- the memory of a candidate */
void plan_unref(Planned *p) {
  if (!p || --p->rc > 0) return;
  Mem *m = p->arena.mem;
  jit_free(p->first);
  jit_free(p->second);
  arena_free(&p->arena);
  mem_free(m, p, sizeof *p);
}

int64_t choice_cotangents(const Runs *r, const int64_t *env) {
  const Graph *b = r->second;
  int64_t sum = 0;
  for (size_t i = (size_t)r->joint->saved_count; i < b->input_count; i++)
    sum += cost_bytes(b, gr_type(b, b->inputs[i]), env);
  return sum;
}

static const Graph *candidate_graph(Arena *a, const Candidate *c) {
  const Graph *g = rm_plan_graph(a, &c->plan);
  return c->loops ? rm_scheduled(a, g, c->loops) : g;
}

static bool make_runs(Chooser *h, Candidate *c, Arena *a, Runs *r) {
  GErr e;
  Prov at;
  *r = (Runs){0};
  const Graph *g = c->g = candidate_graph(a, c);
  if (!h->whole) {
    r->first = pass_simplified(h->s, a, g, c->plan.choice);
    return true;
  }
  JointWhole w = *h->whole;
  w.g = (Graph *)(uintptr_t)g;
  r->joint = ad_joint_split(a, &w, c->plan.choice, &e, &at);
  if (!r->joint) return false;
  r->first = pass_simplified(h->s, a, r->joint->forward, NULL);
  r->second = pass_simplified(h->s, a, r->joint->backward, NULL);
  return true;
}

/* Saved values of block `id`, or of all (0); f is planned of p->first. */
static int64_t saved_bytes(const Runs *p, JitFn *f, uint32_t id, const int64_t *env) {
  int64_t sum = 0;
  for (int i = 0; p->joint && i < p->joint->saved_count; i++) {
    size_t out = (size_t)(p->joint->output_count + i);
    Val v = p->first->outputs[out];
    if (p->joint->saved_input[i] >= 0) continue;
    if (id && !gr_block_inside(p->first, p->first->provs[gr_node(p->first, v)->prov].region, id))
      continue;
    sum += cost_room(p->first, gr_type(p->first, v), env) + jit_rows_bytes(f, out, env);
  }
  return sum;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t budget_of(const Chooser *h, size_t block) {
  return h->budget ? h->budget[block] : h->g->blocks->items[block].budget;
}

/* Plans the graphs of c and sets c->need and c->block. */
static void plan_runs(Chooser *h, Candidate *c) {
  Session *s = h->s;
  Planned *p = c->planned;
  const BlockTab *tab = h->g->blocks;
  Arena *temp = &p->arena;
  size_t blocks = tab ? tab->count : 0;
  JitPeak one = {0}, two = {0};
  JitFn *f = p->first = native_plan(s, p->runs.first, h->env, h->shelf), *b = NULL;
  if (p->runs.second) b = p->second = native_plan(s, p->runs.second, h->env, h->shelf);
  jit_peak(f, h->env, &one);
  if (b) jit_peak(b, h->env, &two);
  c->known = one.bound && (!b || two.bound);
  const InputMemory none = {0}, *in = h->memory ? h->memory : &none;
  int64_t copies = 0, now = one.headers, later = one.headers; /* with what is written */
  for (size_t i = 0; b && i < in->count; i++) copies += in->dense[i];
  int64_t fresh = jit_stores(f, h->env, in->alone, &now);
  int64_t then = jit_stores(f, h->env, in->later, &later);
  now += fresh, later += then;
  int64_t rest = one.inner + larger(one.scratch, two.scratch);
  c->need = one.arena + one.outputs + now + rest;
  c->need_dense = one.arena + one.outputs + later + rest;
  if (in->count) c->need += jit_tensors(f, h->env, in->dense, in->alone) - one.outputs - fresh;
  if (b) {
    int64_t back = one.outputs + choice_cotangents(&p->runs, h->env) + two.arena + two.outputs +
                   two.inner + (two.reads ? one.again : 0) + two.headers +
                   larger(one.scratch, two.scratch);
    c->need = larger(c->need, copies + back + now);
    c->need_dense = larger(c->need_dense, back + later);
  }
  if (!s->mem.spill) { /* what is moved away stays in the memory of the process */
    int64_t away = cost_spilled(p->runs.first, h->env);
    c->need = cost_add(c->need, away);
    c->need_dense = cost_add(c->need_dense, away);
  }
  c->block = ARENA_ARRAY(&s->scratch, int64_t, blocks + 1);
  for (uint32_t i = 0; i < blocks; i++) {
    if (budget_of(h, i) < 0 && !h->all) continue;
    int64_t held = saved_bytes(&p->runs, f, i + 1, h->env);
    c->block[i] = jit_block_bytes(f, temp, h->env, i + 1);
    if (b) c->block[i] = held + larger(c->block[i], jit_block_bytes(b, temp, h->env, i + 1));
  }
}

static void drop(void *planned) {
  plan_unref(planned);
}

static Planned *on_pool(Mem *m) {
  Planned *p = mem_need(m, NULL, 0, sizeof *p);
  *p = (Planned){.rc = 1};
  arena_init(&p->arena, m);
  mem_pool_add(m, p, drop);
  return p;
}

/* Makes the graphs of c->planned; plan_runs plans them. */
static bool make_graphs(Chooser *h, Candidate *c) {
  Mem *m = &h->s->mem;
  size_t mark = mem_pool_mark(m);
  Planned *p = on_pool(m);
  if (make_runs(h, c, &p->arena, &p->runs))
    c->planned = p;
  else
    mem_pool_drain(m, mark);
  return c->planned != NULL;
}

/* Releases the plan of c, as another is better; a shell stays on the pool. NULL is fine. */
static void forget(Candidate *c) {
  if (!c || !c->planned) return;
  jit_free(c->planned->first);
  jit_free(c->planned->second);
  c->planned->first = c->planned->second = NULL;
  arena_free(&c->planned->arena);
  c->planned = NULL;
}

/* The bytes that values of blocks may take together in a plan that fits. */
static int64_t most_bytes(const Chooser *h) {
  const BlockTab *tab = h->g->blocks;
  int64_t sum = 0;
  for (size_t i = 0; tab && i < tab->count; i++) {
    int64_t budget = budget_of(h, i);
    if (tab->items[i].parent) continue;
    if (budget < 0 || budget > h->room) return h->room;
    sum += budget;
    if (sum > h->room) return h->room;
  }
  return tab ? sum : h->room;
}

/* Whether the candidate may take no more than `bytes`: rm_look is seldom further off than by a
 * fifth. */
static bool may_take(const Candidate *c, int64_t bytes) {
  return c->about - c->about / 5 <= bytes;
}

/* Whether c is the least by estimates, or no more than that seems to be needed. */
static bool in_reach(const Chooser *h, const Candidate *c, int64_t most) {
  return may_take(c, larger(most, h->c[h->count - 1].about));
}

/* The largest factor by which the candidate exceeds a bound; 1 = it fits. The plan of a loop whose
 * turns only the run knows says too little, so its estimate has to fit, too. */
static double excess(const Chooser *h, const Candidate *c, uint32_t *block) {
  double most = 1;
  *block = 0;
  if (c->need > h->room) most = (double)c->need / (double)(h->room > 0 ? h->room : 1);
  for (uint32_t i = 0; h->g->blocks && i < h->g->blocks->count; i++) {
    int64_t budget = budget_of(h, i);
    if (budget < 0 || c->block[i] <= budget) continue;
    double x = (double)c->block[i] / (budget > 0 ? (double)budget : 0.5);
    if (x > most) {
      most = x;
      *block = i + 1;
    }
  }
  return most <= 1 && !c->known && !in_reach(h, c, most_bytes(h)) ? HUGE_VAL : most;
}

/* Reports that no plan fits. `need`: bytes of the process. */
static _Noreturn void refuse(Chooser *h, const Candidate *c, int64_t need, uint32_t block) {
  Session *s = h->s;
  const Block *b = gr_block_at(h->g, block);
  if (b) {
    Diag *d = fail_report(s, ERR_BUDGET, b->span.file ? b->span : h->at,
                          "no plan of this block takes %lld bytes: the least is %lld",
                          (long long)b->budget, (long long)c->block[block - 1]);
    dg_help(&s->diags, d, "`<budget = %lld>` can be kept", (long long)c->block[block - 1]);
  } else {
    Diag *d = fail_report(
        s, ERR_LIMIT, h->at,
        "this call needs %lld bytes by its smallest plan, and %lld are left of the limit "
        "of %zu: tensors hold %zu, all else %zu",
        (long long)need, (long long)(h->room > 0 ? h->room : 0), s->mem.limit, h->tensors, h->rest);
    dg_help(&s->diags, d, "with `--memory=%lld` it goes on from here",
            (long long)((int64_t)s->mem.limit + need - h->room));
  }
  fail_raise(s);
}

static void take_stock(Chooser *h) {
  h->room = native_room(h->s);
  h->tensors = mem_tensors(&h->s->mem);
  h->rest = mem_rest(&h->s->mem);
}

/* The best candidate so far. */
typedef struct Best {
  Candidate *c;
  double over;    /* its excess, 1 = it fits */
  uint32_t block; /* whose budget it exceeds; 0: the memory left */
} Best;

/* Plans c unless it is known that `best` is better. Whether c fits; then it becomes the best. */
static bool try_plan(Chooser *h, Candidate *c, Best *best) {
  uint32_t at;
  double x = c->need >= 0 ? excess(h, c, &at) : 1;
  if (c->tried || (best->c && x > 1 && x >= best->over)) return false;
  if (!c->planned) {
    if (!make_graphs(h, c)) return false;
    plan_runs(h, c);
  }
  x = excess(h, c, &at);
  bool better = !best->c || x <= 1 || x < best->over;
  if (!h->all && (!better || best->c != c)) forget(better ? best->c : c);
  if (better) *best = (Best){c, x, at};
  return x <= 1;
}

/* Whether c seems to fit: by its plan, where rm_look does not tell. */
static bool seems_to_fit(Chooser *h, Candidate *c, int64_t most, Best *best) {
  if (!in_reach(h, c, most)) return false;
  return (h->room == INT64_MAX && c->about + c->about / 16 <= most) || try_plan(h, c, best);
}

/* Of the candidates not tried, a fast one that fits, or the one with the least excess. NULL: none
 * can be made. The slower a candidate, the less it seems to take, so the search halves them. If
 * a step goes to faster ones, it does so for each larger bound: more memory never gives a slower
 * plan. The fastest is asked first, where it may fit, since its estimate is the least sure. Small
 * graphs are planned in no time, and their estimates are the worst: there each is asked. */
static Best best_candidate(Chooser *h) {
  enum { SMALL = 512 };
  Best best = {0};
  int64_t most = most_bytes(h);
  size_t from = 0, end = h->g->node_count <= SMALL ? 0 : h->count;
  if (end && h->c[0].about / 2 <= most && try_plan(h, &h->c[0], &best)) return best;
  while (from < end) {
    size_t middle = from + (end - from) / 2;
    if (seems_to_fit(h, &h->c[middle], most, &best))
      end = middle;
    else
      from = middle + 1;
  }
  for (size_t i = end; i < h->count; i++)
    if (try_plan(h, &h->c[i], &best)) break;
  return best;
}

/* ---- the curve */
static int64_t runs_time(const Runs *r, const int64_t *env) {
  return rm_time(r->first, env) + (r->second ? rm_time(r->second, env) : 0);
}

typedef struct Timed {
  Candidate *c;
  int64_t time; /* of all that its graphs compute */
} Timed;

static int by_whole_time(const void *x, const void *y) {
  const Timed *a = x, *b = y;
  if (a->time != b->time) return a->time < b->time ? -1 : 1;
  if (a->c->need != b->c->need) return a->c->need < b->c->need ? -1 : 1;
  return by_number(a->c, b->c);
}

/* Plans all candidates. Returns those that none beats in time and memory, by falling time and
 * rising memory; if there are such, only those whose memory is known. */
static Timed *plan_all(Chooser *h, size_t *count) {
  size_t n = 0, kept = 0;
  Timed *all = ARENA_ARRAY(&h->s->scratch, Timed, h->count + 1);
  for (size_t i = 0; i < h->count; i++) {
    Candidate *c = &h->c[i];
    if (!make_graphs(h, c)) continue;
    plan_runs(h, c);
    all[n++] = (Timed){c, runs_time(&c->planned->runs, h->env)};
    if (!h->all) forget(c);
  }
  size_t known = 0;
  for (size_t i = 0; i < n; i++)
    if (all[i].c->known) all[known++] = all[i];
  if (known) n = known;
  qsort(all, n, sizeof *all, by_whole_time);
  for (size_t i = 0; i < n; i++)
    if (!kept || all[i].c->need < all[kept - 1].c->need) all[kept++] = all[i];
  for (size_t i = 0; i < kept / 2; i++) {
    Timed t = all[i];
    all[i] = all[kept - 1 - i];
    all[kept - 1 - i] = t;
  }
  *count = kept;
  return all;
}

/* The knee of a curve: the plan farthest below the chord from its first to its last plan, if both
 * axes go from 0 to 1; if none is below, the fastest. */
static size_t knee_of(const Timed *p, size_t n) {
  size_t knee = n - 1;
  double most = 0;
  for (size_t i = 1; i + 1 < n; i++) {
    double x = (double)(p[i].c->need - p[0].c->need) / (double)(p[n - 1].c->need - p[0].c->need);
    double y = (double)(p[i].time - p[n - 1].time) / (double)(p[0].time - p[n - 1].time);
    if (1 - x - y <= most) continue;
    most = 1 - x - y;
    knee = i;
  }
  return knee;
}

/* What `auto` asks for: the knee, if it fits. */
static Candidate *knee_that_fits(Chooser *h) {
  bool wanted = false;
  const BlockTab *tab = h->g->blocks;
  for (size_t i = 0; tab && i < tab->count; i++) wanted |= tab->items[i].automatic;
  if (!wanted || h->count < 2) return NULL;
  size_t n;
  uint32_t at;
  const Timed *p = plan_all(h, &n);
  Candidate *knee = n ? p[knee_of(p, n)].c : NULL;
  if (!knee || excess(h, knee, &at) > 1 || !make_graphs(h, knee)) return NULL;
  plan_runs(h, knee);
  return knee;
}

static bool make_code(Chooser *h, const Candidate *c) {
  const char *name = h->g->name ? h->g->name : "a function";
  return native_code(h->s, c->planned->first, name, h->at) &&
         (!c->planned->second || native_code(h->s, c->planned->second, name, h->at));
}

/* Makes the code of `best`, which fits; it has to fit with its code, too. The code of a candidate
 * that did not is an estimate for the next one: a candidate that would not fit beside that code is
 * still tried if it needs less. Each is tried once. */
static Candidate *choose_with_code(Chooser *h, Candidate *best) {
  Candidate *nearest = NULL;
  Chooser then = *h;
  int64_t missing = 0, least = 0;
  for (;;) {
    bool code = make_code(h, best);
    take_stock(h);
    int64_t need = best->need + (code ? 0 : (int64_t)h->s->mem.refused);
    if (code && need <= h->room) return best;
    if (!nearest || need - h->room < missing) {
      nearest = best;
      missing = need - h->room;
      least = need;
      then = *h;
    }
    best->tried = true;
    if (!code) forget(best); /* the others have to be planned in the memory left */
    Candidate *last = best;
    Best next = best_candidate(h);
    forget(last);
    if (!next.c || next.block || (next.over > 1 && next.c->need >= nearest->need))
      refuse(&then, nearest, least, 0);
    log_line(h->s, LOG_JIT,
             "a plan of %lld bytes does not fit beside its code: one of %lld is tried",
             (long long)need, (long long)next.c->need);
    best = next.c;
  }
}

/* The plan that CKL_PLAN asks for, whatever it takes. */
static Best numbered(Chooser *h) {
  Best best = {0};
  size_t n = (size_t)h->s->config.plan % h->count;
  for (size_t i = 0; i < h->count && !best.c; i++) {
    Candidate *c = &h->c[(n + i) % h->count];
    if (!make_graphs(h, c)) continue;
    plan_runs(h, c);
    best = (Best){.c = c, .over = 1};
  }
  return best;
}

/* Where the result goes: made before room is counted, as an arena may need a new chunk for it. */
static void reserve_result(Chooser *h) {
  size_t n = h->memory ? h->memory->count : 0;
  h->result = ARENA_ARRAY(h->a, uint8_t, h->g->type_count + 1);
  h->result_dense = ARENA_ARRAY(h->a, int64_t, n + 1);
  h->result_memory = (InputMemory){n, h->result_dense, ARENA_ARRAY(h->a, bool, n + 1),
                                   ARENA_ARRAY(h->a, bool, n + 1)};
}

/* A copy for later calls of what `need` is for. `dense` becomes the bytes that each input gets. */
static InputMemory memory_kept(const Chooser *h, const Graph *g) {
  InputMemory m = h->result_memory;
  if (m.count) memcpy(m.alone, h->memory->alone, m.count * sizeof *m.alone);
  if (m.count) memcpy(m.later, h->memory->later, m.count * sizeof *m.later);
  for (size_t k = 0; m.count && k < g->write_count; k++)
    if (g->writes[k] >= 0)
      h->result_dense[g->writes[k]] = cost_bytes(g, gr_type(g, g->outputs[k]), h->env);
  return m;
}

/* The graph of the choice lives with its plan. */
static Choice choice_of(const Chooser *h, const Candidate *c) {
  memcpy(h->result, c->plan.choice, c->g->type_count);
  return (Choice){.g = c->g,
                  .split = h->whole ? h->whole->split : UINT32_MAX,
                  .choice = h->result,
                  .candidates = (int)h->count,
                  .need = c->need,
                  .need_dense = c->need_dense,
                  .memory = memory_kept(h, c->planned->runs.first),
                  .planned = c->planned};
}

/* Makes the candidates on an arena of their own, which is the result: one of them is kept. */
static Planned *candidates_apart(Chooser *h) {
  Planned *plans = on_pool(&h->s->mem), *temp = on_pool(&h->s->mem);
  h->plans = &plans->arena;
  h->temp = &temp->arena;
  make_candidates(h);
  arena_free(&temp->arena);
  return plans;
}

static Choice choose(Chooser *h) {
  Session *s = h->s;
  h->g = rm_direct(h->a, h->g);
  const BlockTab *tab = h->g->blocks;
  reserve_result(h);
  take_stock(h);
  h->open = ARENA_ARRAY(&s->scratch, bool, (tab ? tab->count : 0) + 1);
  for (uint32_t i = 0; tab && i < tab->count; i++) h->open[i] = open_block(s, h->g, i + 1);
  Planned *plans = candidates_apart(h);
  if (!s->mem.limit) h->shelf = jit_shelf(&plans->arena); /* it takes memory */
  Best best = {.over = 1};
  if (s->config.plan >= 0)
    best = numbered(h);
  else if (!(best.c = knee_that_fits(h)))
    best = best_candidate(h);
  if (!best.c) return (Choice){.g = h->g, .split = UINT32_MAX};
  if (best.over > 1) refuse(h, best.c, best.c->need, best.block);
  bool code = s->mem.limit && s->config.plan < 0;
  Choice c = choice_of(h, code ? choose_with_code(h, best.c) : best.c);
  arena_free(&plans->arena);
  return c;
}

/* The budget that a block gets to allow for plan c: its text in the program stands for all blocks
 * made of it. */
static int64_t budget_for(const Chooser *h, const Candidate *c, uint32_t block) {
  const BlockTab *tab = h->g->blocks;
  int64_t most = c->block[block];
  for (size_t i = 0; i < tab->count; i++) {
    const Block *b = &tab->items[i], *own = &tab->items[block];
    bool same = b->span.file == own->span.file && b->span.lo == own->span.lo;
    if (same) most = larger(most, c->block[i]);
  }
  return most;
}

enum { MOST_MORE = 8 }; /* halves of what a block takes */

size_t choice_curve(const ChoiceOf *of, Curve *out) {
  Session *s = of->s;
  Chooser h = {.s = s, .a = of->a, .whole = of->whole, .env = of->env};
  h.g = rm_direct(of->a, of->g);
  size_t blocks = h.g->blocks ? h.g->blocks->count : 0, n;
  int64_t *budget = ARENA_ARRAY(&s->scratch, int64_t, blocks + 1);
  h.memory = of->memory;
  h.all = true;
  h.room = INT64_MAX;
  h.budget = budget;
  h.open = ARENA_ARRAY(&s->scratch, bool, blocks + 1);
  for (size_t i = 0; i < blocks; i++) h.open[i] = true;
  h.plans = of->a;
  h.temp = &s->scratch;
  make_candidates(&h);
  h.shelf = jit_shelf(&s->scratch);
  const Timed *t = plan_all(&h, &n);
  *out = (Curve){.looked = h.count, .plans = ARENA_ARRAY(of->a, CurvePlan, n + 1)};
  if (n) out->knee = knee_of(t, n);
  for (size_t k = 0; k < n; k++) {
    CurvePlan *p = &out->plans[k];
    reserve_result(&h);
    *p = (CurvePlan){.choice = choice_of(&h, t[k].c), .time = t[k].time};
    p->budget = ARENA_ARRAY(of->a, int64_t, blocks + 1);
    /* The search begins by estimates, which may pass by a plan whose blocks just fit. */
    for (int64_t more = 0; more <= MOST_MORE && !p->by_budget; more++) {
      for (uint32_t i = 0; i < blocks; i++) {
        p->budget[i] = budget_for(&h, t[k].c, i);
        budget[i] = p->budget[i] += p->budget[i] / 2 * more;
      }
      Best best = best_candidate(&h);
      p->by_budget = blocks && best.c == t[k].c && best.over <= 1;
    }
    for (uint32_t i = 0; i < blocks && !p->by_budget; i++) p->budget[i] = budget_for(&h, t[k].c, i);
  }
  return out->count = n;
}

Choice choice_planned(const ChoiceOf *of, const uint8_t *choice) {
  Chooser h = {.s = of->s, .a = of->a, .g = of->g, .whole = of->whole, .env = of->env};
  h.memory = of->memory;
  reserve_result(&h);
  Candidate c = {.plan = {of->g, (uint8_t *)(uintptr_t)choice, NULL}, .g = of->g};
  if (make_graphs(&h, &c)) plan_runs(&h, &c);
  return choice_of(&h, &c);
}

bool choice_fits(Session *s, const Choice *c, const InputMemory *memory) {
  if (!s->mem.limit || s->config.cpu == CPU_REFERENCE) return true;
  bool copies = false;
  for (size_t i = 0; i < memory->count; i++) copies |= memory->dense[i] != 0;
  int64_t need = copies ? c->need : c->need_dense;
  const bool *was = copies ? c->memory.alone : c->memory.later;
  for (size_t i = 0; i < c->memory.count; i++)
    if (was[i] && !memory->alone[i]) need += c->memory.dense[i];
  return need <= native_room(s);
}

Choice choice_for_graph(Session *s, Arena *a, const Graph *g, const int64_t *env,
                        const InputMemory *memory, Span at) {
  Chooser h = {.s = s, .a = a, .g = g, .env = env, .memory = memory, .at = at};
  return choose(&h);
}

Choice choice_for_joint(Session *s, Arena *a, const JointWhole *w, const int64_t *env,
                        const InputMemory *memory, Span at) {
  Chooser h = {.s = s, .a = a, .g = w->g, .whole = w, .env = env, .memory = memory, .at = at};
  return choose(&h);
}

/* ---- code without blocks */

/* Nodes of the forward that a node of a backward needs. */
static bool *needed_by_backward(Arena *temp, const Graph *g) {
  bool *needed = ARENA_ARRAY(temp, bool, g->node_count + 1);
  for (uint32_t i = (uint32_t)g->node_count; i-- > 0;) {
    if (!g->provs[g->nodes[i].prov].backward && !needed[i]) continue;
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++) {
      uint32_t from = gr_operand(g, i, (int)k).node;
      needed[from] = g->nodes[from].op != OP_INPUT;
    }
  }
  return needed;
}

enum { AUTO_REMAT_FROM = 64 << 20 };

bool auto_remat_wanted(Session *s, const Graph *g, const int64_t *env) {
  if (g->blocks && g->blocks->count) return false;
  if (s->config.plan >= 0) return true;
  if (s->config.cpu == CPU_REFERENCE) return false;
  int64_t sum = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    if (!g->provs[g->nodes[i].prov].backward) continue;
    for (uint32_t k = 0; k < g->nodes[i].operand_count; k++) {
      Val v = gr_operand(g, i, (int)k);
      const GNode *n = gr_node(g, v);
      if (n->op == OP_INPUT || g->provs[n->prov].backward || op_info[n->op].remat == REMAT_FREE)
        continue;
      sum += cost_room(g, gr_type(g, v), env);
      if (sum >= AUTO_REMAT_FROM) return true;
    }
  }
  return false;
}

Graph *choice_block(Arena *a, Arena *temp, const Graph *g, bool to_loss) {
  bool *needed = needed_by_backward(temp, g);
  for (uint32_t i = 0; to_loss && i < g->node_count && !g->provs[g->nodes[i].prov].backward; i++)
    for (uint32_t k = 0; k < g->nodes[i].operand_count && g->nodes[i].result_count; k++)
      needed[i] |= needed[gr_operand(g, i, (int)k).node];
  Graph *b = gr_clone(a, g);
  b->blocks = NULL;
  uint32_t id = gr_block(b, (Block){.budget = -1, .text = ""});
  for (uint32_t i = 0; i < b->node_count; i++) {
    Prov p = b->provs[b->nodes[i].prov];
    if (p.region || (!p.backward && !needed[i])) continue;
    p.region = id;
    if (!p.backward) p.tag = TAG_PREFER_RECOMPUTE;
    VEC_PUSH(a, b->provs, b->prov_count, b->prov_cap, p);
    b->nodes[i].prov = (uint32_t)b->prov_count - 1;
  }
  return b;
}

/* Whether c takes two fifths less than d, both planned exactly: recomputation is fused apart from
 * the forward, which may cost more than it saves. d is planned only if a lower bound of its need
 * does not decide. */
static bool pays(Chooser *h, Candidate *c, Candidate *d) {
  plan_runs(h, c);
  int64_t least = native_least(h->s, &d->planned->arena, d->planned->runs.first, h->env);
  if (c->need <= least - 2 * least / 5) return true;
  plan_runs(h, d);
  return c->need <= d->need - 2 * d->need / 5;
}

/* The plan that keeps least, of those that take at most a tenth more time: what is computed again
 * at the least price of a byte, and pieces that run again in the time left. */
static RmPlan thrifty_plan(Arena *a, Arena *temp, const Graph *g, const int64_t *env, int *looked) {
  RmPlan least = {g, ARENA_ARRAY(a, uint8_t, g->type_count + 1), NULL}, pieces;
  int64_t time = rm_time(g, env) / CHEAP_PART;
  *looked = rm_within(temp, g, env, time, least.choice);
  int64_t left = time - rm_price(temp, g, env, least.choice).time;
  return rm_least(a, temp, g, env, least.choice, left, &pieces) ? pieces : least;
}

Choice auto_remat(Session *s, Arena *a, const Graph *g, uint32_t split, const Graph *plain,
                  const int64_t *env) {
  const Graph *b = rm_direct(a, choice_block(a, &s->scratch, g, false));
  int looked;
  Planned *temp = on_pool(&s->mem);
  if (s->config.plan >= 0) {
    Chooser h = {.s = s, .a = a, .g = b, .env = env, .plans = a, .temp = &temp->arena};
    h.open = ARENA_ARRAY(&s->scratch, bool, 1);
    h.open[0] = true;
    make_candidates(&h);
    const Candidate *c = &h.c[(size_t)s->config.plan % h.count];
    const Graph *d = candidate_graph(a, c);
    return (Choice){.g = d, .split = split, .choice = c->plan.choice, .candidates = (int)h.count};
  }
  Candidate less = {.plan = thrifty_plan(a, &temp->arena, b, env, &looked)}, all = {0};
  arena_free(&temp->arena);
  Choice r = {.split = split, .choice = less.plan.choice, .candidates = looked};
  r.g = rm_plan_graph(a, &less.plan);
  if (!plain) return r;
  Chooser h = {.s = s, .a = a, .g = b, .env = env};
  if (!s->mem.limit) h.shelf = jit_shelf(&s->scratch);
  all.planned = on_pool(&s->mem);
  all.planned->runs.first = plain;
  bool pay = make_graphs(&h, &less) && pays(&h, &less, &all);
  if (!pay) {
    r.g = b;
    rm_all(b, CHOICE_SAVE, less.plan.choice);
  }
  r.planned = pay ? less.planned : all.planned;
  forget(pay ? &all : &less);
  return r;
}
