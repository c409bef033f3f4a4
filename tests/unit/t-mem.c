/* Memory: accounts, protected calls, the pool, arenas; failures injected by a hook. */
#include "runtime/mem.h"

#include "tests/tap.h"
#include "tests/unit/failing.h"

/* ---- accounts */

static void t_accounts(void) {
  Mem m;
  mem_init(&m, NULL, NULL);
  char *p = mem_try(&m, NULL, 0, 100);
  need(p);
  check_size(m.live, ==, 100);
  p = mem_try(&m, p, 100, 300);
  need(p);
  char *q = mem_need(&m, NULL, 0, 50);
  check_size(m.live, ==, 350);
  mem_free(&m, q, 50);
  p = mem_try(&m, p, 300, 10);
  check_size(m.live, ==, 10);
  check_size(m.peak, ==, 350);
  check(!mem_try(&m, p, 10, 0));
  check_size(m.live, ==, 0);
  mem_free(&m, NULL, 77);
  check_size(m.live, ==, 0);
  check(!mem_try(&m, NULL, 0, SIZE_MAX));
  check(!mem_try(&m, NULL, 0, (size_t)PTRDIFF_MAX + 1));
  mem_close(&m);
}

static void t_failed_resize(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 2);
  char *p = mem_try(&m, NULL, 0, 8);
  need(p);
  memcpy(p, "unharmed", 8);
  check(!mem_try(&m, p, 8, 80));
  check_mem(p, "unharmed", 8);
  check_size(m.live, ==, 8);
  mem_free(&m, p, 8);
  check(failing_clean(&f, &m));
}

static void t_data(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  void *p[4];
  size_t size[4] = {0, 1, 64, 100000};
  for (int i = 0; i < 4; i++) {
    p[i] = mem_data_try(&m, i & 1 ? DEV_SIM : DEV_CPU, size[i]);
    need(p[i]);
    check_uint((uintptr_t)p[i] % 64, ==, 0);
    memset(p[i], 0xab, size[i]);
  }
  check_size(m.data_live[DEV_CPU], ==, 64);
  check_size(m.data_live[DEV_SIM], ==, 100001);
  for (int i = 0; i < 4; i++) mem_data_free(&m, i & 1 ? DEV_SIM : DEV_CPU, p[i], size[i]);
  check_size(m.data_live[DEV_CPU] + m.data_live[DEV_SIM], ==, 0);
  check_size(m.data_peak[DEV_SIM], ==, 100001);
  check(!mem_data_try(&m, DEV_CPU, SIZE_MAX - 3));
  check(!mem_data_try(&m, DEV_CUDA, 16));
  mem_data_free(&m, DEV_CPU, NULL, 5);
  check(failing_clean(&f, &m));
}

static void t_kept(void) {
  enum { BIG = 300000, BIGGER = 400000 };
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  void *a = mem_data_try(&m, DEV_CPU, BIG), *b = mem_data_try(&m, DEV_CPU, BIGGER);
  need(a && b);
  size_t live = m.live;
  mem_data_free(&m, DEV_CPU, a, BIG);
  check_size(m.data_live[DEV_CPU], ==, BIGGER);
  check_size(m.live, ==, BIGGER + 64);
  check_size(m.kept_bytes, ==, BIG);
  check_int(f.blocks, ==, 2);
  check_ptr(mem_data_try(&m, DEV_SIM, BIG), ==, a); /* the same block, as if it were new */
  check_size(m.data_live[DEV_SIM], ==, BIG);
  check_size(m.live, ==, live);
  mem_data_free(&m, DEV_SIM, a, BIG);
  void *c = mem_data_try(&m, DEV_CPU, BIG + 1); /* no other size: the kept one goes, for the peak */
  check_size(m.kept_bytes, ==, 0);
  check_int(f.blocks, ==, 2);
  mem_data_free(&m, DEV_CPU, c, BIG + 1);
  check_size(m.kept_bytes, ==, BIG + 1);
  f.nth = f.count + 1;
  /* the hook refuses: what is kept goes back and it is asked again */
  void *d = mem_try(&m, NULL, 0, 100);
  check(d);
  check_size(m.kept_bytes, ==, 0);
  mem_free(&m, d, 100);
  mem_data_free(&m, DEV_CPU, b, BIGGER);
  check(mem_trim(&m));
  check(!mem_trim(&m));
  check(failing_clean(&f, &m));
  mem_close(&m);
}

/* Any order of making and freeing: what the hook gave is never more than the tensors at their
 * peak. */
static void t_kept_bound(void) {
  enum { MOST = 200, SIZES = 5 };
  Failing f;
  Mem m;
  void *p[MOST] = {0};
  size_t size[MOST] = {0};
  uint32_t state = 1;
  failing_init(&f, &m, 0);
  for (int i = 0; i < 20000; i++) {
    state = state * 1664525u + 1013904223u;
    int k = (int)(state >> 8) % MOST;
    if (p[k]) {
      mem_data_free(&m, DEV_CPU, p[k], size[k]);
      p[k] = NULL;
    } else if ((int)(state >> 24) < (i / 2000 % 2 ? 60 : 200)) {
      size[k] = 200000 + 50000 * (size_t)((state >> 16) % SIZES);
      p[k] = mem_data_try(&m, DEV_CPU, size[k]);
      need(p[k]);
      *(char *)p[k] = 1;
    }
    if (f.bytes > m.data_peak[DEV_CPU] + 64 * (size_t)f.blocks) {
      check_size(f.bytes, <=, m.data_peak[DEV_CPU]);
      break;
    }
    if (m.live + m.kept_bytes + 64 * (size_t)m.kept_count != f.bytes) {
      check_size(m.live + m.kept_bytes, ==, f.bytes);
      break;
    }
  }
  for (int k = 0; k < MOST; k++) mem_data_free(&m, DEV_CPU, p[k], size[k]);
  mem_close(&m);
  check(failing_clean(&f, &m));
}

/* ---- protected calls and the pool */

typedef struct Calls {
  Mem *m;
  int depth, code, inner, after;
} Calls;

static int released;

static void release_it(void *obj) {
  released += *(int *)obj;
}

static int ones[100];

static void nested(void *ud) {
  Calls *c = ud;
  mem_pool_add(c->m, &ones[0], release_it);
  if (!c->depth) mem_throw(c->m, c->code);
  Calls in = *c;
  in.depth--;
  c->inner = mem_protect(c->m, nested, &in);
  c->after = released;
  if (c->code == MEM_ERR_PROGRAM) mem_throw(c->m, MEM_ERR_INTERRUPT);
}

static void t_protect(void) {
  Mem m;
  mem_init(&m, NULL, NULL);
  for (int i = 0; i < 100; i++) ones[i] = 1;
  released = 0;
  Calls c = {.m = &m, .depth = 1, .code = MEM_ERR_BUG};
  check_int(mem_protect(&m, nested, &c), ==, MEM_OK);
  check_int(c.inner, ==, MEM_ERR_BUG);
  check_int(c.after, ==, 1); /* the inner object went, the outer one is kept */
  check_size(mem_pool_mark(&m), ==, 1);
  mem_pool_drain(&m, 0);
  check_int(released, ==, 2);
  released = 0;
  c = (Calls){.m = &m, .depth = 1, .code = MEM_ERR_PROGRAM};
  check_int(mem_protect(&m, nested, &c), ==, MEM_ERR_INTERRUPT);
  check_int(c.inner, ==, MEM_ERR_PROGRAM);
  check_int(released, ==, 2);
  check_ptr(m.jump, ==, NULL);
  mem_close(&m);
  check_size(m.live, ==, 0);
}

static void fill_pool(void *ud) {
  Mem *m = ud;
  for (int i = 0; i < 100; i++) mem_pool_add(m, &ones[i], release_it);
}

static void t_pool_fails(void) {
  for (int nth = 1; nth <= 2; nth++) {
    Failing f;
    Mem m;
    failing_init(&f, &m, nth);
    released = 0;
    check_int(mem_protect(&m, fill_pool, &m), ==, MEM_ERR_NOMEM);
    check_int(released, ==, nth == 1 ? 1 : 65); /* the one being added too */
    check_int(mem_protect(&m, fill_pool, &m), ==, MEM_OK);
    mem_pool_drain(&m, 0);
    mem_close(&m);
    check(failing_clean(&f, &m));
  }
}

static int order[3], order_n;

static void note(void *obj) {
  order[order_n++] = *(int *)obj;
}

static void add_three(void *ud) {
  static int v[3] = {1, 2, 3};
  for (int i = 0; i < 3; i++) mem_pool_add(ud, &v[i], note);
}

static void t_pool_order(void) {
  Mem m;
  mem_init(&m, NULL, NULL);
  order_n = 0;
  mem_protect(&m, add_three, &m);
  mem_pool_drain(&m, 0);
  check_int(order[0] * 100 + order[1] * 10 + order[2], ==, 321);
  mem_close(&m);
}

static void overflow(void *ud) {
  mem_need(ud, NULL, 0, SIZE_MAX / 2);
}

static void broken(void *ud) {
  CK_ASSERT((Mem *)ud, 1 + 1 == 3);
}

static void t_throws(void) {
  Mem m;
  mem_init(&m, NULL, NULL);
  check_int(mem_protect(&m, overflow, &m), ==, MEM_ERR_NOMEM);
  check_int(mem_protect(&m, broken, &m), ==, MEM_ERR_BUG);
  mem_close(&m);
}

/* ---- arenas */

typedef struct Arenas {
  Arena a;
  bool ok;
} Arenas;

static void use_arena(void *ud) {
  Arenas *u = ud;
  Arena *a = &u->a;
  unsigned char *block[200];
  size_t size[200];
  u->ok = true;
  for (int i = 0; i < 200; i++) {
    size[i] = i == 150 ? 3000000 : (size_t)(i * 37 % 501);
    block[i] = arena_alloc(a, size[i]);
    if ((uintptr_t)block[i] % 16) u->ok = false;
    for (size_t k = 0; k < size[i]; k++)
      if (block[i][k]) u->ok = false;
    memset(block[i], i, size[i]);
  }
  for (int i = 0; i < 200; i++)
    for (size_t k = 0; k < size[i]; k++)
      if (block[i][k] != (unsigned char)i) u->ok = false;
  int *v = NULL;
  size_t n = 0, cap = 0;
  for (int i = 0; i < 5000; i++) {
    VEC_PUSH(a, v, n, cap, i);
    if (i % 100 == 0) arena_alloc(a, 1);
  }
  for (int i = 0; i < 5000; i++)
    if (v[i] != i) u->ok = false;
  char *s = arena_strdup(a, "abcdef", 3);
  if (strcmp(s, "abc")) u->ok = false;
  s = arena_printf(a, "%d %s", 7, "x");
  if (strcmp(s, "7 x")) u->ok = false;
  if (strcmp(arena_printf(a, "%s", ""), "")) u->ok = false;
  char *g = arena_alloc(a, 3);
  memcpy(g, "xyz", 3);
  g = arena_grow(a, g, 3, 100);
  if (memcmp(g, "xyz\0", 4) || g[99]) u->ok = false;
  g = arena_grow(a, g, 100, 5000000);
  if (memcmp(g, "xyz\0", 4) || g[4999999]) u->ok = false;
  if (arena_grow(a, g, 5000000, 4) != g) u->ok = false;
}

static void t_arena(void) {
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  Arenas u;
  arena_init(&u.a, &m);
  for (int round = 0; round < 2; round++) {
    check_int(mem_protect(&m, use_arena, &u), ==, MEM_OK);
    check(u.ok);
    check_size(u.a.used, >, 3000000);
    arena_free(&u.a);
    check_size(m.live, ==, 0);
  }
  mem_trim(&m);
  check(failing_clean(&f, &m));
}

/* Large chunks wait for the next arena, up to a bound, and go when memory runs out. */
static void fill_arena(void *ud) {
  Arena *a = ud;
  for (int i = 0; i < 600; i++) memset(arena_alloc(a, 16384), 0xff, 16384);
}

static void t_chunks(void) {
  Failing f;
  Mem m;
  Arena a, b;
  failing_init(&f, &m, 0);
  arena_init(&a, &m);
  arena_init(&b, &m);
  check_int(mem_protect(&m, fill_arena, &a), ==, MEM_OK);
  size_t live = m.live;
  int64_t count = f.count;
  arena_free(&a);
  check_size(m.live, ==, 0);
  check_size(m.chunk_bytes, <=, MEM_CHUNKS);
  check_size(m.chunk_bytes, ==, f.bytes);
#ifndef CKL_ARENA_MALLOC
  check_size(m.chunk_bytes, >, MEM_CHUNKS - (2 << 20));
#endif
  check_int(mem_protect(&m, fill_arena, &b), ==, MEM_OK);
  check_size(m.live, ==, live);
  check_size(m.peak, ==, live);
#ifndef CKL_ARENA_MALLOC
  check_int(f.count - count, <, count / 2);
#endif
  check_int(*(char *)arena_alloc(&b, 70000), ==, 0);
  arena_free(&b);
  f.nth = f.count + 1;
  void *p = mem_try(&m, NULL, 0, 100); /* the hook refuses once */
#ifndef CKL_ARENA_MALLOC
  check(p);
#endif
  check_size(m.chunk_bytes, ==, 0);
  mem_free(&m, p, 100);
  check(failing_clean(&f, &m));
  mem_close(&m);
}

static void t_arena_fails(void) {
  int nth = 1;
  for (;; nth++) {
    Failing f;
    Mem m;
    Arenas u;
    failing_init(&f, &m, nth);
    arena_init(&u.a, &m);
    int code = mem_protect(&m, use_arena, &u);
    arena_free(&u.a);
    mem_close(&m);
    check(failing_clean(&f, &m));
    if (code == MEM_OK) break;
    check_int(code, ==, MEM_ERR_NOMEM);
    if (nth > 10000) break;
  }
  check_int(nth, >, 5);
  check_int(nth, <, 10000);
}

static void too_many(void *ud) {
  ARENA_ARRAY((Arena *)ud, int64_t, SIZE_MAX / 4);
}

static void negative(void *ud) {
  volatile int n = -1;
  ARENA_ARRAY((Arena *)ud, int64_t, n);
}

static void t_arena_overflow(void) {
  Mem m;
  Arena a;
  mem_init(&m, NULL, NULL);
  arena_init(&a, &m);
  check_int(mem_protect(&m, too_many, &a), ==, MEM_ERR_NOMEM);
  check_int(mem_protect(&m, negative, &a), ==, MEM_ERR_NOMEM);
  check(!arena_try(&a, SIZE_MAX));
  check(!arena_try(&a, (size_t)PTRDIFF_MAX));
  arena_free(&a);
  mem_close(&m);
  check_size(m.live, ==, 0);
}

/* ---- the limit */

/* The hook itself never holds more than the limit, whatever asks. */
static void t_limit(void) {
  enum { LIMIT = 4 << 20 };
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  m.limit = LIMIT;
  uint32_t x = 1;
  char *p[64] = {NULL};
  size_t n[64] = {0};
  bool data[64] = {false};
  int refused = 0;
  for (int i = 0; i < 20000; i++) {
    x = x * 1664525 + 1013904223;
    int k = x >> 26;
    size_t bytes = (x >> 8) % (i % 7 ? 40000 : 700000) + 1;
    if (p[k] && data[k])
      mem_data_free(&m, DEV_CPU, p[k], n[k]);
    else if (p[k])
      mem_free(&m, p[k], n[k]);
    data[k] = x & 1 << 5;
    p[k] =
        data[k] ? mem_data_try(&m, x & 64 ? DEV_SIM : DEV_CPU, bytes) : mem_try(&m, NULL, 0, bytes);
    if (p[k] && data[k] && x & 64) {
      mem_data_free(&m, DEV_SIM, p[k], bytes);
      p[k] = NULL;
    }
    n[k] = bytes;
    refused += !p[k] && !(data[k] && x & 64);
    if (f.bytes > LIMIT - MEM_FILING) check_size(f.bytes, <=, LIMIT - MEM_FILING);
  }
  check(refused > 100);
  for (int k = 0; k < 64; k++)
    if (p[k] && data[k])
      mem_data_free(&m, DEV_CPU, p[k], n[k]);
    else
      mem_free(&m, p[k], p[k] ? n[k] : 0);
  size_t room = mem_room(&m);
  check_size(room, ==, LIMIT - MEM_FILING);
  check(!mem_try(&m, NULL, 0, room + 1));
  check_size(m.refused, ==, room + 1);
  check_size(m.refused_rest, ==, MEM_FILING);
  char *all = mem_try(&m, NULL, 0, room);
  need(all);
  check(!mem_charge(&m, 1) && !mem_data_try(&m, DEV_CPU, 1));
  m.filing = true; /* for what is said about it */
  check(mem_charge(&m, MEM_FILING) && !mem_charge(&m, 1));
  mem_discharge(&m, MEM_FILING);
  mem_free(&m, all, room);
  check(failing_clean(&f, &m));
}

int main(void) {
  TEST(t_accounts(), "live and peak bytes are exact");
  TEST(t_failed_resize(), "a block survives a resize that fails");
  TEST(t_data(), "tensor data is aligned and counted per device");
  TEST(t_kept(), "freed tensor data is used again for the same size, and counts as free");
  TEST(t_kept_bound(), "with what is kept a program holds no more than at its peak");
  TEST(t_protect(), "a throw reaches the innermost protected call and drains its pool");
  TEST(t_pool_fails(), "an object that finds no room on the pool is released");
  TEST(t_pool_order(), "the pool is drained last in, first out");
  TEST(t_limit(), "no more than the limit is ever held, by tensors and all else together");
  TEST(t_throws(), "too much memory and broken invariants are codes, not aborts");
  TEST(t_arena(), "arena blocks are apart, zeroed and aligned, and grow");
  TEST(t_chunks(), "large chunks of a freed arena are used again, and go when memory runs out");
  TEST(t_arena_fails(), "an arena survives each of its allocations failing");
  TEST(t_arena_overflow(), "sizes that overflow are out of memory");
  return tap_done();
}
