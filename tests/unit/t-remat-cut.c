/* Choosing what to keep: cuts and the ladder against every plan there is, on small graphs. */
#include <math.h>

#include "autograd/remat.h"
#include "graph/build.h"
#include "graph/opcode.h"
#include "graph/pass.h"
#include "failing.h"
#include "graphs.h"

static uint64_t state = 88172645463325252u;
static unsigned rnd(unsigned n) {
  return (unsigned)(tap_random(&state) >> 33) % n;
}

enum { MOST_FREE = 11, PLANS = 1 << MOST_FREE, RUNGS = 64, MOST_NODES = 80 };

/* A block of `nodes` nodes of several costs and sizes, and its gradient. */
static Graph *draw_of(Env *v, int nodes) {
  static const OpCode unary[] = {OP_EXP, OP_TANH, OP_SIN, OP_GELU, OP_SQRT, OP_NEG, OP_RELU};
  Graph *g = new_graph(v);
  B b = {.g = g};
  int width[MOST_NODES + 1] = {8 << rnd(4)}, count = 1;
  Val x[MOST_NODES + 1] = {input(v, g, DT_F32, 2, 32, width[0])}, dx[2], w[MOST_NODES];
  for (int k = 0; k < nodes; k++) width[k + 1] = 8 + (int)rnd(100);
  for (int k = 0; k < nodes; k++) w[k] = VAL_NONE;
  g->at.region =
      gr_block(g, (Block){.budget = -1, .text = names_of(v->names, "auto"), .automatic = true});
  g->at.tag = TAG_PREFER_RECOMPUTE;
  for (int k = 0; k < nodes; k++) {
    int i = count - 1 - (int)rnd(count > 3 ? 3 : (unsigned)count), c = (int)rnd((unsigned)count);
    unsigned dice = rnd(10);
    if (dice < 5) {
      x[count] = b_un(&b, unary[rnd(7)], x[i]);
      width[count] = width[i];
    } else if (dice < 7 && width[i] == width[c]) {
      x[count] = b_bin(&b, OP_MUL, x[i], x[c]);
      width[count] = width[i];
    } else {
      w[k] = input(v, g, DT_F32, 2, width[i], width[count]);
      x[count] = b_op(&b, OP_DOT, 2, (Val[]){x[i], w[k]}, 0, NULL);
    }
    count++;
  }
  g->at = (Prov){.origin = -1};
  Val loss = b_sum(&b, x[count - 1], 2, (int64_t[]){0, 1}), one = gr_const_f(g, DT_F32, DEV_CPU, 1);
  Val wrt[2] = {x[0], x[0]};
  for (int k = 0; k < nodes; k++)
    if (!val_none(w[k])) wrt[1] = w[k];
  if (!built(&b) || !vjp(g, 1, &loss, &one, 2, wrt, dx)) return NULL;
  gr_output(g, loss);
  for (int k = 0; k < 2; k++)
    if (!val_none(dx[k])) gr_output(g, dx[k]);
  return g->output_count > 1 ? gr_dce(&v->arena, g) : NULL;
}

static Graph *draw(Env *v) {
  return draw_of(v, 4 + (int)rnd(9));
}

static const int64_t none[1] = {0};

/* The whole time, copies included, and the bytes kept. */
static RmPrice full(Env *v, const Graph *g, const uint8_t *choice) {
  RmPrice p = rm_price(&v->arena, g, none, choice);
  p.time = rm_time(gr_dce(&v->arena, rm_apply(&v->arena, g, choice, NULL)), none);
  return p;
}

static void t_exhaustive(void) {
  double worst = 1;
  int graphs = 0, plans = 0, rungs_all = 0;
  for (int round = 0; round < 300; round++) {
    Env v;
    env_open(&v);
    Graph *g = draw(&v);
    if (g) {
      uint8_t *choice = ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1), *rung[RUNGS];
      size_t slot[64], count = 0;
      rm_written(g, choice);
      for (size_t k = 0; k < g->type_count; k++)
        if (choice[k] == CHOICE_RECOMPUTE && count < 64) slot[count++] = k;
      size_t rungs = rm_ladder(&v.arena, g, none, RUNGS, rung);
      check((int)rungs >= 1);
      RmPrice mine[RUNGS], *all = ARENA_ARRAY(&v.arena, RmPrice, PLANS);
      for (size_t k = 0; k < rungs; k++) mine[k] = full(&v, g, rung[k]);
      for (unsigned bits = 0; count <= MOST_FREE && bits < 1u << count; bits++) {
        for (size_t k = 0; k < count; k++)
          choice[slot[k]] = bits >> k & 1 ? CHOICE_SAVE : CHOICE_RECOMPUTE;
        all[bits] = full(&v, g, choice);
      }
      for (unsigned i = 0; count <= MOST_FREE && i < 1u << count; i++) {
        int64_t best = INT64_MAX, got = INT64_MAX;
        for (unsigned k = 0; k < 1u << count; k++)
          if (all[k].bytes <= all[i].bytes && all[k].time < best) best = all[k].time;
        for (size_t k = 0; k < rungs; k++)
          if (mine[k].bytes <= all[i].bytes && mine[k].time < got) got = mine[k].time;
        double ratio = got == INT64_MAX ? 99 : (double)got / (double)best;
        if (ratio > worst) worst = ratio;
        if (!check_msg(ratio <= 1.1, "round %d: %lld bytes take %lld, the best %lld", round,
                       (long long)all[i].bytes, (long long)got, (long long)best))
          break;
      }
      graphs += count <= MOST_FREE;
      rungs_all += (int)rungs;
      plans += count <= MOST_FREE ? 1 << count : 0;
    }
    env_close(&v);
  }
  tap_note("%d graphs, %d plans, %d rungs; at most %.3f of the best time", graphs, plans, rungs_all,
           worst);
  check_int(graphs, >, 200);
}

/* The cost of a choice when a byte costs `price`. */
static double cost_of(Env *v, const Graph *g, const uint8_t *choice, double price) {
  RmPrice p = rm_price(&v->arena, g, none, choice);
  return (double)p.time + price * (double)p.bytes;
}

static void t_least(void) {
  int cuts = 0, mixed = 0;
  for (int round = 0; round < 150; round++) {
    Env v;
    env_open(&v);
    Graph *g = draw(&v);
    size_t slot[64], count = 0;
    uint8_t *choice = g ? ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1) : NULL;
    if (g) rm_written(g, choice);
    for (size_t k = 0; g && k < g->type_count; k++)
      if (choice[k] == CHOICE_RECOMPUTE && count < 64) slot[count++] = k;
    for (int e = -3; g && e <= 9 && count <= 9; e += 2) {
      double price = exp2(e), least = INFINITY;
      for (unsigned bits = 0; bits < 1u << count; bits++) {
        for (size_t k = 0; k < count; k++)
          choice[slot[k]] = bits >> k & 1 ? CHOICE_SAVE : CHOICE_RECOMPUTE;
        least = fmin(least, cost_of(&v, g, choice, price));
      }
      rm_cut(&v.arena, g, none, price, choice);
      size_t saved = 0;
      for (size_t k = 0; k < count; k++) saved += choice[slot[k]] == CHOICE_SAVE;
      mixed += saved > 0 && saved < count;
      double got = cost_of(&v, g, choice, price);
      check_msg(got <= least * (1 + 1e-6), "round %d, price 2^%d: %g, the least %g", round, e, got,
                least);
      cuts++;
    }
    env_close(&v);
  }
  tap_note("%d cuts, %d of them keep a part", cuts, mixed);
  check_int(mixed, >, 100);
}

/* Of blocks too large to try every plan, the ladder has what the cuts find. */
static void t_large(void) {
  double worst = 1;
  int cuts = 0;
  for (int round = 0; round < 20; round++) {
    Env v;
    env_open(&v);
    Graph *g = draw_of(&v, 40 + (int)rnd(40));
    uint8_t *choice = g ? ARENA_ARRAY(&v.arena, uint8_t, g->type_count + 1) : NULL, *rung[RUNGS];
    size_t rungs = g ? rm_ladder(&v.arena, g, none, RUNGS, rung) : 0;
    for (int e = -6; g && e <= 12; e++) {
      double price = exp2(e), got = INFINITY;
      rm_cut(&v.arena, g, none, price, choice);
      double least = cost_of(&v, g, choice, price);
      for (size_t k = 0; k < rungs; k++) got = fmin(got, cost_of(&v, g, rung[k], price));
      worst = fmax(worst, got / least);
      check_msg(got <= least * 1.02, "round %d, price 2^%d: %g, the cut %g", round, e, got, least);
      cuts++;
    }
    env_close(&v);
  }
  tap_note("%d cuts; at most %.4f of their cost", cuts, worst);
  check_int(cuts, >, 200);
}

typedef struct Ask {
  Arena *a;
  const Graph *g;
  size_t rungs;
} Ask;

static void ask(void *ud) {
  Ask *q = ud;
  uint8_t *rung[RUNGS];
  q->rungs = rm_ladder(q->a, q->g, none, RUNGS, rung);
}

/* Without memory there is an error, and no shorter ladder. */
static void t_no_memory(void) {
  Env v;
  Graph *g = NULL;
  Failing f;
  Mem mem;
  Arena a;
  int failed = 0;
  env_open(&v);
  while (!g) g = draw_of(&v, 60);
  Ask q = {&v.arena, g, 0};
  ask(&q);
  size_t want = q.rungs;
  for (int64_t nth = 1;; nth++) {
    failing_init(&f, &mem, nth);
    arena_init(&a, &mem);
    q = (Ask){&a, g, 0};
    int code = mem_protect(&mem, ask, &q);
    bool fails = f.count >= nth;
    check_int(code, ==, fails ? MEM_ERR_NOMEM : MEM_OK);
    if (code == MEM_OK) check_int((int)q.rungs, ==, (int)want);
    failed += fails;
    arena_free(&a);
    check(failing_clean(&f, &mem));
    mem_close(&mem);
    if (!fails) break;
  }
  tap_note("%d allocations", failed);
  check_int(failed, >, 2);
  env_close(&v);
}

int main(void) {
  TEST(t_least(), "for every price of a byte the cut is the least choice");
  TEST(t_exhaustive(), "for every bound on bytes the ladder is within 10 % of the best plan");
  TEST(t_large(), "of large blocks the ladder has what the cuts find");
  TEST(t_no_memory(), "without memory there is an error");
  return tap_done();
}
