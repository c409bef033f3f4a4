/* What CKL_CHECK tests finds faults: each law of passes and plans is broken by hand, and named. */
#include "graph-gen.h"
#include "graph/pass.h"
#include "jit/plan/plan.h"

static Mem mem;
static Arena arena, temp; /* temp: what plan_make and plan_check rewind */

typedef struct Try {
  const Plan *p;
  Graph *g;
  MemItem *items;
  size_t n;
  int64_t bytes;
} Try;

static void try_plan(void *ud) {
  plan_check(((Try *)ud)->p, &temp);
}

static void try_graph(void *ud) {
  gr_checked(((Try *)ud)->g, "a pass");
}

static void try_places(void *ud) {
  Try *t = ud;
  plan_check_places(&mem, &arena, t->items, t->n, t->bytes);
}

/* Whether a law is broken; `want` (may be NULL) stands in what is said. */
static bool broken(void (*f)(void *ud), Try t, const char *want) {
  mem.bug[0] = 0;
  int code = mem_protect(&mem, f, &t);
  if (code == MEM_OK) return false;
  check_int(code, ==, MEM_ERR_BUG);
  if (want) check_has(mem.bug, want);
  return true;
}

/* Each end of each lifetime of random plans, moved by one step. */
static void lifetimes(void *ud) {
  (void)ud;
  size_t slots = 0, results = 0, drops = 0, drops_found = 0, helds = 0, swaps = 0;
  size_t copies = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    arena_free(&temp);
    arena_init(&temp, &mem);
    Gen x;
    gen_open(&x, &arena, names_new(&arena), seed, seed % 2, seed % 5 == 0);
    x.effects = seed % 3 == 0;
    gen_graph(&x, 40);
    Plan *p = plan_make(&arena, &temp, x.g, NULL, &eng_targets[ENG_X86_64_V4], seed % 4 == 0, NULL);
    Try t = {.p = p};
    if (!check_msg(!broken(try_plan, t, NULL), "seed %d: %s", (int)seed, mem.bug)) return;
    for (size_t i = 0; i < p->slot_count; i++) {
      Slot *k = &p->slots[i], was = *k;
      if (k->first == UINT32_MAX) continue;
      k->first++;
      check_msg(broken(try_plan, t, "is not alive"), "seed %d slot %d first", (int)seed, (int)i);
      *k = was;
      if (k->last) k->last--, check(broken(try_plan, t, "is not alive"));
      *k = was;
      slots++;
    }
    for (size_t i = 0; i < p->result_count; i++, results++) {
      p->makes[i].step++;
      check(broken(try_plan, t, "before it is made"));
      p->makes[i].step--;
    }
    for (size_t i = 0; i < p->drop_count; i++) {
      if (!p->drops[i].step) continue;
      drops++;
      p->drops[i].step--; /* some are kept for the message of an error */
      drops_found += broken(try_plan, t, "is an input that is gone");
      p->drops[i].step++;
    }
    for (size_t i = 0; i < p->held_count; i++) {
      uint32_t was = p->helds[i].last;
      if (!was) continue;
      p->helds[i].last = was == UINT32_MAX ? (uint32_t)p->step_count : was - 1;
      check(broken(try_plan, t, "was released"));
      p->helds[i].last = was;
      helds++;
    }
    for (size_t i = 0; i < p->transfer_count; i++) {
      Transfer *k = &p->transfers[i], was = *k;
      if (k->leaves ? k->limit == p->tail : !k->limit) continue;
      k->limit += k->leaves ? 1 : -1;
      const char *what =
          k->leaves ? "is written while it is copied" : "is read before it is written";
      check(broken(try_plan, t, what));
      *k = was;
      copies++;
    }
    for (size_t i = 1; i < p->step_count; i++) {
      Step was = p->steps[i];
      p->steps[i] = p->steps[i - 1];
      p->steps[i - 1] = was;
      swaps += broken(try_plan, t, NULL);
      p->steps[i - 1] = p->steps[i];
      p->steps[i] = was;
    }
  }
  tap_note("%d slots, %d results, %d of %d inputs, %d held, %d steps, %d copies", (int)slots,
           (int)results, (int)drops_found, (int)drops, (int)helds, (int)swaps, (int)copies);
  check(slots > 100 && results > 20 && drops_found > 10 && helds > 20 && swaps > 100);
}

/* p becomes p - x, q becomes transpose(p) * q: p is read after its new value is there. */
static void stores(void *ud) {
  (void)ud;
  static const char text[] =
      "graph \"g\" {\n"
      "  %0 = input {index=0 dtype=f32 device=cpu dims=[8, 8]} : f32[8, 8] ~1\n"
      "  %1 = input {index=1 dtype=f32 device=cpu dims=[8, 8]} : f32[8, 8]\n"
      "  %2 = input {index=2 dtype=f32 device=cpu dims=[8, 8]} : f32[8, 8]\n"
      "  %3 = sub %0 %2 : f32[8, 8]\n"
      "  %4 = transpose %0 {perm=(1, 0)} : f32[8, 8] ~1\n"
      "  %5 = mul %4 %1 : f32[8, 8]\n"
      "  return %3 %5\n"
      "}\n";
  static const int writes[] = {0, 1};
  GErr e = {0};
  Graph *g = gr_read(&arena, names_new(&arena), text, sizeof text - 1, &e);
  need(g != NULL);
  g->writes = writes;
  g->write_count = 2;
  Plan *p = plan_make(&arena, &temp, g, NULL, &eng_targets[ENG_X86_64_V4], true, NULL);
  Try t = {.p = p};
  check(!broken(try_plan, t, NULL));
  need(p->store_count == 2 && p->result_count == 0 && p->step_count == 2);
  check_int(p->tail, ==, 0);
  for (int i = 0; i < 2; i++) check_int(p->stores[i].at, ==, 2);
  Store *of_p = &p->stores[p->stores[0].input ? 1 : 0];
  of_p->at = 1;
  check(broken(try_plan, t, "is an input that has been written"));
  of_p->at = 2;
  p->tail = 3;
  check(broken(try_plan, t, "is stored before its time"));
  p->tail = 0;
  Slot *slot = &p->slots[p->place[plan_index(g, of_p->v)].index];
  slot->last = 0;
  check(broken(try_plan, t, "is not alive"));
}

/* A value leaves, and its place is written by tanh; it comes back, and is read in the end. */
static void transfers(void *ud) {
  (void)ud;
  static const char text[] = "graph \"g\" {\n"
                             "  %0 = input {index=0 dtype=f32 device=cpu dims=[8, 8]} : f32[8, 8]\n"
                             "  %1 = exp %0 : f32[8, 8]\n"
                             "  %2 = place %1 {device=spill} : f32[8, 8] on spill\n"
                             "  %3 = exp %0 : f32[8, 8]\n"
                             "  %4 = tanh %1 : f32[8, 8]\n"
                             "  %5 = mul %4 %3 : f32[8, 8]\n"
                             "  %6 = place %2 {device=cpu} : f32[8, 8]\n"
                             "  %7 = mul %5 %6 : f32[8, 8]\n"
                             "  %8 = sum %7 {axes=(1)} : f32[8]\n"
                             "  return %8\n"
                             "}\n";
  GErr e = {0};
  Graph *g = gr_read(&arena, names_new(&arena), text, sizeof text - 1, &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  Plan *p = plan_make(&arena, &temp, g, NULL, &eng_targets[ENG_X86_64_V4], true, NULL);
  Try t = {.p = p};
  check(!broken(try_plan, t, NULL));
  need(p->transfer_count == 2 && p->transfers[0].leaves && !p->transfers[1].leaves);
  Transfer *away = &p->transfers[0], *back = &p->transfers[1];
  check_int(away->limit, >, away->step + 1);
  check_int(away->limit, <, back->step);
  check_int(back->limit, ==, away->step + 1);
  away->limit++;
  check(broken(try_plan, t, "is written while it is copied"));
  away->limit--;
  back->limit--;
  check(broken(try_plan, t, "is read before it is written"));
  back->limit++;
  back->step--;
  check(broken(try_plan, t, "is no copy"));
}

static void places(void *ud) {
  (void)ud;
  MemItem x[] = {{.bytes = 128, .first = 0, .last = 2, .offset = 0},
                 {.bytes = 64, .first = 2, .last = 4, .offset = 128},
                 {.bytes = 128, .first = 3, .last = 4, .offset = 0}};
  Try t = {.items = x, .n = 3, .bytes = 192};
  check(!broken(try_places, t, NULL));
  x[2].first = 2;
  check(broken(try_places, t, "byte 0 holds two values in step 2"));
  x[2].first = 3;
  x[1].offset = 64;
  check(broken(try_places, t, "byte 64 holds two values in step 2"));
  x[1].offset = 128;
  t.bytes = 128;
  check(broken(try_places, t, "of an arena of 128"));
  x[1].offset = -64;
  check(broken(try_places, t, "bytes -64"));
}

static void passes(void *ud) {
  (void)ud;
  Gen x;
  gen_open(&x, &arena, names_new(&arena), 7, false, false);
  gen_graph(&x, 20);
  Try t = {.g = gr_clone(&arena, x.g)};
  mem.check = true;
  check(!broken(try_graph, t, NULL));
  uint32_t last = (uint32_t)t.g->node_count - 1;
  while (!t.g->nodes[last].operand_count) last--;
  t.g->operands[t.g->nodes[last].operand0].node = last;
  check(broken(try_graph, t, "after `a pass` of"));
  mem.check = false;
  check(!broken(try_graph, t, NULL));
}

static void in_arena(void (*f)(void *)) {
  arena_init(&arena, &mem);
  arena_init(&temp, &mem);
  check_int(mem_protect(&mem, f, NULL), ==, MEM_OK);
  arena_free(&arena);
  arena_free(&temp);
  mem_pool_drain(&mem, 0);
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  TEST(in_arena(lifetimes), "a plan that frees early, makes late or runs out of order is found");
  TEST(in_arena(stores), "a value that is stored too early, or is gone by then, is found");
  TEST(in_arena(transfers), "a copy beside steps that write what it reads, or too soon, is found");
  TEST(in_arena(places), "places that overlap or leave the arena are found");
  TEST(in_arena(passes), "a broken graph is found after the pass that made it");
  mem_close(&mem);
  return tap_done();
}
