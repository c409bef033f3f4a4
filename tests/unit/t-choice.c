/* Choices under budgets, for random graphs of square matrices: a budget is kept or refused with the
 * least that can be kept, more memory never gives a slower plan, and plans give the bits of the
 * graph. `t-choice COUNT FROM` looks at as many graphs, from seed FROM on. */
#include <string.h>

#include "autograd/remat.h"
#include "graph/opcode.h"
#include "graphs.h"
#include "lang/checkpoint/choice.h"
#include "lang/compile/compile.h"
#include "lang/value/handle.h"

enum { SIDE = 12, WEIGHTS = 4, POOL = 160 };
enum { SMALL = 512 }; /* nodes of graphs of which each plan is tried */

static uint64_t state;

static unsigned draw(unsigned n) {
  return (unsigned)(tap_random(&state) >> 33) % n;
}

static const int64_t none[1] = {0};

/* ---- graphs */

/* One of the latest values, or one from long ago. */
static Val some(const Val *pool, int count) {
  int back = draw(8) ? 1 + (int)draw(4) : 1 + (int)draw((unsigned)count);
  return pool[count - (back > count ? count : back)];
}

static Val grown(B *b, const Val *w, const Val *pool, int count) {
  static const OpCode ones[] = {OP_TANH, OP_SIN, OP_SIGMOID, OP_GELU, OP_COS, OP_NEG};
  static const OpCode twos[] = {OP_MUL, OP_ADD, OP_SUB};
  Val x = some(pool, count);
  switch (draw(6)) {
  case 0: return b_op(b, OP_DOT, 2, (Val[]){x, w[draw(WEIGHTS)]}, 0, NULL);
  case 1:
  case 2: return b_bin(b, twos[draw(3)], x, some(pool, count));
  case 3: { /* what a norm does to each row */
    Dim side = dim_const(b->g->dims, SIDE), one = dim_const(b->g->dims, 1);
    Val sums = b_reshape(b, b_sum(b, x, 1, (int64_t[]){1}), 2, (Dim[]){side, one});
    Val scale =
        b_broadcast(b, gr_const_f(b->g, DT_F32, DEV_CPU, 1.0 / SIDE), 2, (Dim[]){side, one});
    Val mean = b_bin(b, OP_MUL, sums, scale);
    return b_bin(b, OP_SUB, x, b_broadcast(b, mean, 2, (Dim[]){side, side}));
  }
  default: return b_un(b, ones[draw(6)], x);
  }
}

/* A loss of random operations in one block, or in some, perhaps nested, and its gradients. */
static Graph *random_graph(Env *v, uint64_t seed) {
  state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  Graph *g = new_graph(v);
  B b = {.g = g};
  Val w[WEIGHTS], dw[WEIGHTS], pool[POOL];
  pool[0] = input(v, g, DT_F32, 2, SIDE, SIDE);
  for (int k = 0; k < WEIGHTS; k++) w[k] = input(v, g, DT_F32, 2, SIDE, SIDE);
  int count = 1, most = 10 + (int)draw(POOL - 10), depth = 1;
  bool one = draw(3) != 0;
  Block block = {.budget = 0, .text = names_of(v->names, "b")};
  uint32_t stack[3] = {0, gr_block(g, block), 0};
  while (count < most) {
    unsigned dice = one ? 9 : draw(10);
    if (dice == 0 && depth < 2) {
      block.parent = stack[depth];
      block.budget = depth ? -1 : 0;
      stack[++depth] = gr_block(g, block);
    }
    if (dice == 1 && depth) depth--;
    g->at.region = stack[depth];
    g->at.tag = depth ? TAG_PREFER_RECOMPUTE : TAG_NONE;
    if (depth && draw(12) == 0) g->at.tag = (uint8_t)(1 + draw(4));
    pool[count] = grown(&b, w, pool, count);
    count++;
  }
  Val y = pool[count - 1];
  for (int k = 1; k < 4; k++) y = b_bin(&b, OP_ADD, y, some(pool, count));
  g->at = (Prov){.origin = -1};
  Val loss = b_sum(&b, y, 2, (int64_t[]){0, 1}), start = gr_const_f(g, DT_F32, DEV_CPU, 1);
  if (!built(&b) || !vjp(g, 1, &loss, &start, WEIGHTS, w, dw)) return NULL;
  gr_output(g, loss);
  for (int k = 0; k < WEIGHTS; k++)
    if (!val_none(dw[k])) gr_output(g, dw[k]);
  return g;
}

static bool same_bits(Env *v, const Graph *g, const Graph *d) {
  Tensor *in[WEIGHTS + 1], *want[WEIGHTS + 1], *got[WEIGHTS + 1];
  uint64_t numbers = 5;
  for (size_t k = 0; k < g->input_count; k++) in[k] = drawn(v, g, k, uniform, &numbers);
  bool same = run(v, g, in, want) && run(v, d, in, got);
  for (size_t k = 0; k < g->output_count; k++) same &= tn_same(want[k], got[k]);
  drop(in, g->input_count);
  drop(want, g->output_count);
  drop(got, g->output_count);
  return same;
}

/* ---- choices */

typedef struct Ask {
  Session *s;
  Arena kept; /* of the choice */
  Env *v;
  Graph *g;
  int64_t budget;
  int64_t bytes, time; /* of the plan: of the block that takes most; of all that it computes */
  bool same;
} Ask;

static void ask(void *ud) {
  Ask *a = ud;
  Session *s = a->s;
  for (size_t k = 0; k < a->g->blocks->count; k++)
    if (a->g->blocks->items[k].budget >= 0) a->g->blocks->items[k].budget = a->budget;
  size_t mark = mem_pool_mark(&s->mem);
  Choice c = choice_for_graph(s, &a->kept, a->g, none, NULL, (Span){0});
  const Graph *first = c.planned->runs.first;
  a->time = rm_time(first, none);
  a->bytes = 0;
  for (uint32_t k = 1; k <= a->g->blocks->count; k++) {
    int64_t bytes = jit_block_bytes(c.planned->first, &s->scratch, none, k);
    if (a->g->blocks->items[k - 1].budget >= 0 && bytes > a->bytes) a->bytes = bytes;
  }
  a->same = same_bits(a->v, a->g, first);
  mem_pool_drain(&s->mem, mark);
}

/* Whether there is a plan. */
static bool planned(Ask *a, int64_t budget) {
  a->budget = budget;
  arena_init(&a->kept, &a->s->mem);
  size_t mark = mem_pool_mark(&a->s->mem);
  int code = api_guard(a->s, ask, a);
  mem_pool_drain(&a->s->mem, mark);
  arena_free(&a->kept);
  arena_free(&a->s->scratch);
  arena_init(&a->s->scratch, &a->s->mem);
  if (code != MEM_OK) check_int(code, ==, MEM_ERR_PROGRAM);
  return code == MEM_OK;
}

/* The least budget of a block, as the refusal says. */
static int64_t least_said(Session *s) {
  const char *text = s->diags.items[s->diags.count - 1]->message, *at = strstr(text, "least is ");
  int64_t least = check_msg(at != NULL, "%s", text) ? atoll(at + strlen("least is ")) : 0;
  dg_rewind(&s->diags, 0);
  return least;
}

/* Returns how many different plans there are. */
static int look(Session *s, Env *v, Graph *g, int seed) {
  enum { BUDGETS = 6 };
  Ask a = {.s = s, .v = v, .g = g};
  if (!check_msg(planned(&a, INT64_C(1) << 50), "seed %d: nothing fits", seed)) return 0;
  int64_t all = a.bytes, fastest = a.time, least = 0, last = INT64_MAX;
  int plans = 0;
  for (int k = 0; k < 4 && !planned(&a, least); k++) { /* one block after the other */
    int64_t said = least_said(s);
    check_msg(!least || said > least, "seed %d: the least is refused", seed);
    least = said;
  }
  for (int k = 0; k < BUDGETS; k++) {
    int64_t budget = least + (all > least ? all - least : 0) / (BUDGETS - 1) * k;
    if (k == BUDGETS - 1 && all > budget) budget = all;
    if (!check_msg(planned(&a, budget), "seed %d: %lld is refused, the least is %lld", seed,
                   (long long)budget, (long long)least))
      return plans;
    check_msg(a.same, "seed %d: other bits with %lld", seed, (long long)budget);
    check_msg(a.bytes <= budget, "seed %d: %lld bytes in a budget of %lld", seed,
              (long long)a.bytes, (long long)budget);
    /* The order of plans is that of their times before operations that are equal become one. */
    check_msg(a.time / 50 * 49 <= last, "seed %d: slower with %lld: %lld after %lld", seed,
              (long long)budget, (long long)a.time, (long long)last);
    plans += a.time < last;
    last = a.time;
  }
  if (g->node_count <= SMALL)
    check_msg(planned(&a, all), "seed %d: what the fastest plan takes is refused", seed);
  check_msg(fastest / 50 * 49 <= last, "seed %d: slower without a bound", seed);
  return plans;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 120, from = argc > 2 ? atoi(argv[2]) : 1;
  ckl_config config = {.size = sizeof config, .cpu = "loops"};
  ckl_session *k = ckl_open(&config);
  if (!k) return 1;
  int plans = 0, several = 0;
  for (int seed = from; seed < from + count; seed++) {
    Env v;
    env_open(&v);
    Graph *g = random_graph(&v, (uint64_t)seed);
    int n = g ? look(&k->s, &v, g, seed) : 0;
    plans += n;
    several += n > 2;
    env_close(&v);
  }
  tap_note("%d graphs, %d plans; %d graphs with three or more", count, plans, several);
  TEST(check(several > count / 2),
       "budgets of random graphs are kept, and more memory is never slower");
  ckl_close(k);
  return tap_done();
}
