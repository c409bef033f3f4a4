/* Equal layers are lowered once, and what they take over is what lowering by themselves gives. */
#include "graph-gen.h"
#include "graph/pass.h"
#include "jit/lower/reuse.h"
#include "jit/plan/plan.h"

static Mem mem;
static Arena arena;
static size_t launches, taken; /* all, and those with a kernel of another */

static const RegTile tile = {14, 32};

static bool same_bufs(const Launch *a, const Launch *b, uint32_t panel) {
  for (size_t i = 0; i < a->k->buf_count; i++) {
    const BufUse *x = &a->bufs[i], *y = &b->bufs[i];
    bool either = x->either;
    if (x->kind != y->kind || either != y->either) return false;
    if (x->kind == USE_VALUE && !val_eq(x->v, y->v)) return false;
    if (either && x->copied != y->copied) return false;
    if ((either || x->kind == USE_PANEL) && x->panel + panel != y->panel) return false;
  }
  return true;
}

static bool same_args(const Launch *a, const Launch *b) {
  for (size_t i = 0; i < a->k->arg_count; i++) {
    const ArgUse *x = &a->args[i], *y = &b->args[i];
    if (x->kind != y->kind) return false;
    if (x->kind == ARG_DIM ? x->dim != y->dim : x->bits != y->bits) return false;
  }
  return a->flops == b->flops;
}

static bool same_kernel(const Kernel *a, const Kernel *b) {
  Buf x, y;
  buf_init_arena(&x, &arena);
  buf_init_arena(&y, &arena);
  lp_print(&x, a);
  lp_print(&y, b);
  return x.n == y.n && !memcmp(x.s, y.s, x.n);
}

/* Lowers the groups of g with a memory, and each by itself. */
static void both(const Graph *given, bool apart, Shelf *shelf) {
  const uint32_t *origin;
  const Graph *g = gr_flatten(&arena, given, &origin);
  uint8_t *placed = ARENA_ARRAY(&arena, uint8_t, g->type_count + 1);
  for (size_t i = 0; i < g->input_count; i++) placed[plan_index(g, g->inputs[i])] = 1;
  Arena temp;
  arena_init(&temp, &mem);
  Lower l = {.arena = &temp, .g = g, .tile = tile, .placed = placed};
  Groups groups = {0};
  fuse(&arena, &arena, g, NULL, apart, &groups);
  Alike *s = reuse_new(&l, shelf);
  Lowered out = {0};
  for (size_t i = 0; i < groups.count; i++) {
    const Group *x = &groups.items[i];
    Lowered alone = {0};
    GErr e, e2;
    size_t first = out.count, panel = out.panel_count;
    bool ok = low_group(&l, x, &alone, &e);
    if (!check(reuse_lower(s, &l, x, &arena, &out, &e2) == ok)) break;
    if (ok && check_size(out.count - first, ==, alone.count) &&
        check_size(out.panel_count - panel, ==, alone.panel_count)) {
      for (size_t k = 0; k < alone.count; k++) {
        const Launch *a = &alone.launches[k], *b = &out.launches[first + k];
        check(same_kernel(a->k, b->k) && same_args(a, b) && same_bufs(a, b, (uint32_t)panel));
        check(out.launches[b->like].k == b->k);
        launches++;
        taken += b->like < first;
      }
      for (size_t k = 0; k < alone.panel_count; k++) {
        const Panel *a = &alone.panels[k], *b = &out.panels[panel + k];
        check(a->dtype == b->dtype && a->count == b->count);
      }
    }
    for (uint32_t k = 0; k < x->out_count; k++) placed[plan_index(g, x->outs[k])] = 1;
  }
  arena_free(&temp);
}

/* h = tanh(h @ w + b) - sum of it, so many times, with relu in layer `odd`. */
static const Graph *layers(int n, int odd) {
  Buf b;
  GErr e;
  buf_init_arena(&b, &arena);
  buf_printf(&b, "graph \"layers\" {\n");
  buf_printf(&b, "  %%0 = input {index=0 dtype=f32 device=cpu dims=[8, 16]} : f32[8, 16]\n");
  for (int i = 0; i < n; i++) {
    buf_printf(&b, "  %%%d = input {index=%d dtype=f32 device=cpu dims=[16, 16]} : f32[16, 16]\n",
               2 * i + 1, 2 * i + 1);
    buf_printf(&b, "  %%%d = input {index=%d dtype=f32 device=cpu dims=[16]} : f32[16]\n",
               2 * i + 2, 2 * i + 2);
  }
  for (int i = 0, at = 2 * n + 1, h = 0; i < n; i++, at += 8) {
    buf_printf(&b, "  %%%d = dot %%%d %%%d : f32[8, 16]\n", at, h, 2 * i + 1);
    buf_printf(&b, "  %%%d = broadcast %%%d {dims=[8, 16]} : f32[8, 16]\n", at + 1, 2 * i + 2);
    buf_printf(&b, "  %%%d = add %%%d %%%d : f32[8, 16]\n", at + 2, at, at + 1);
    buf_printf(&b, "  %%%d = %s %%%d : f32[8, 16]\n", at + 3, i == odd ? "relu" : "tanh", at + 2);
    buf_printf(&b, "  %%%d = sum %%%d {axes=(1)} : f32[8]\n", at + 4, at + 3);
    buf_printf(&b, "  %%%d = reshape %%%d {dims=[8, 1]} : f32[8, 1]\n", at + 5, at + 4);
    buf_printf(&b, "  %%%d = broadcast %%%d {dims=[8, 16]} : f32[8, 16]\n", at + 6, at + 5);
    buf_printf(&b, "  %%%d = sub %%%d %%%d : f32[8, 16]\n", at + 7, at + 3, at + 6);
    h = at + 7;
  }
  buf_printf(&b, "  return %%%d\n}\n", 10 * n);
  const Graph *g = gr_read(&arena, names_new(&arena), b.s, b.n, &e);
  if (!g) tap_fail(TAP_HERE, "%s\n%s", e.text, b.s);
  return g;
}

static void equal_layers(void *ud) {
  (void)ud;
  for (int apart = 0; apart < 2; apart++) {
    const Graph *g = layers(6, 7), *other = layers(6, 3);
    if (!g || !other) return;
    launches = taken = 0;
    both(g, apart, NULL);
    check_size(launches - taken, ==, launches / 6 + 1); /* the first layer reads an input */
    size_t all = taken;
    both(other, apart, NULL);
    check_size(taken - all, <, all);
    check_size(taken - all, >, 0);
  }
}

static void random_graphs(void *ud) {
  (void)ud;
  launches = taken = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    Gen x;
    gen_open(&x, &arena, names_new(&arena), seed, seed % 2, seed % 5 == 0);
    x.effects = seed % 3 == 0;
    gen_graph(&x, 60);
    both(x.g, seed % 4 == 0, NULL);
  }
  tap_note("%d of %d launches were taken over", (int)taken, (int)launches);
  check_size(taken, >, 20);
}

/* The shelf of a graph serves it again, and what is left of it without dead nodes, but no graph
 * with sizes of its own. */
static void shelves(void *ud) {
  (void)ud;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    Shelf *shelf = reuse_shelf(&arena);
    Gen x, other;
    gen_open(&x, &arena, names_new(&arena), seed, seed % 2, seed % 5 == 0);
    gen_open(&other, &arena, names_new(&arena), seed, !(seed % 2), seed % 5 == 0);
    gen_graph(&x, 60);
    gen_graph(&other, 60);
    both(x.g, seed % 4 == 0, shelf);
    both(x.g, seed % 4 == 0, shelf);
    both(gr_dce(&arena, x.g), seed % 4 == 0, shelf);
    both(other.g, seed % 4 == 0, shelf);
  }
  const Graph *g = layers(6, 7);
  Shelf *shelf = reuse_shelf(&arena);
  both(g, false, shelf);
  size_t used = arena.used, again;
  both(g, false, shelf);
  again = arena.used - used;
  used = arena.used;
  both(g, false, NULL);
  check_size(again, ==, arena.used - used); /* nothing was added to the shelf */
}

static void in_arena(void (*f)(void *)) {
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, f, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_pool_drain(&mem, 0);
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  TEST(in_arena(equal_layers), "of equal layers one is lowered");
  TEST(in_arena(random_graphs), "groups of random graphs take over what they would be given");
  TEST(in_arena(shelves), "a shelf gives groups what they would be given");
  mem_close(&mem);
  return tap_done();
}
