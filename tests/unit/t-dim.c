/* Dims: normal forms, facts, values, text. */
#include <stdlib.h>

#include "graph/dim.h"
#include "graph/ir.h"
#include "tests/tap.h"

static Mem mem;
static Arena arena;
static DimTab *tab;
static Names *names;

static void fresh(void) {
  arena_free(&arena);
  arena_init(&arena, &mem);
  tab = dim_tab_new(&arena);
  names = names_new(&arena);
}

static Dim sym(const char *name) {
  return dim_symbol(tab, names_of(names, name), (Span){0, 0, 0}, NULL);
}

static Dim num(int64_t n) {
  return dim_const(tab, n);
}

static const char *show(const DimTab *t, Dim d) {
  Buf b;
  buf_init_arena(&b, &arena);
  dim_print(&b, t, d);
  return b.s;
}

static Dim parse(DimTab *t, const char *s) {
  Dim d;
  return dim_parse(t, names, s, strlen(s), &d) ? d : DIM_BAD;
}

/* Both texts are the same dim. */
static void same(const char *a, const char *b) {
  Dim x = parse(tab, a), y = parse(tab, b);
  check_msg(x == y && x != DIM_BAD, "%s is %s, %s is %s", a, show(tab, x), b, show(tab, y));
}

static void differ(const char *a, const char *b, DimOrder want) {
  Dim x = parse(tab, a), y = parse(tab, b);
  check_msg(dim_compare(tab, x, y) == want, "%s and %s: %d", a, b, (int)dim_compare(tab, x, y));
}

static void t_normal(void) {
  fresh();
  sym("n"), sym("m"), sym("h");
  same("n + m", "m + n");
  same("2*n - n", "n");
  same("(n + m)*(n - m)", "n*n - m*m");
  same("n - n", "0");
  same("3*(n + 1) - 3", "3*n");
  same("n//1", "n");
  same("max(n, 0)", "n");
  same("max(0 - n, 0)", "0");
  same("max(n - m, 0) + m", "max(m - n, 0) + n");
  same("max(n + m, m)", "n + m");
  same("max(2*n - 3, 0) - max(3 - 2*n, 0)", "2*n - 3");
  same("max(n - 2, m)", "m + max(n - m - 2, 0)");
  same("n % 1", "0");
  same("(4*n + 6)//4", "n + 1");
  same("(4*n + m + 6)//4", "n + 1 + (m + 2)//4");
  same("(4*n + 6) % 4", "2");
  same("(2*n + 4)//6", "(n + 2)//3");
  same("(2*n + 4) % 6", "2*((n + 2) % 3)");
  same("(n//2)//3", "n//6");
  same("(n//2 + 5)//3", "(n + 10)//6");
  same("(n % 4)//4", "0");
  same("(n % 12) % 4", "n % 4");
  same("(n % 3) % 4", "n % 3");
  same("(n*m)//m", "n");
  same("(n*m) % m", "0");
  same("(2*n*m + 2*m)//(2*m)", "n + 1");
  same("n//-2", "(-n)//2");
  same("-(n % 2)", "(-n) % -2");
  same("7//2", "3");
  same("-7//2", "-4");
  same("-7 % 2", "1");
  same("7 % -2", "-1");
  same("n*m*h", "h*n*m");
}

static void t_compare(void) {
  fresh();
  sym("n"), sym("m");
  differ("n + 1", "n", DIM_DIFFERENT);
  differ("n", "m", DIM_MAYBE);
  differ("n//2 + 1", "n//2 + 1", DIM_EQUAL);
  differ("n//2", "n//2 - 3", DIM_DIFFERENT);
  differ("2*(n//2)", "n", DIM_MAYBE);
  differ("5", "6", DIM_DIFFERENT);
  /* no size solves it */
  differ("2*n", "7", DIM_DIFFERENT);
  differ("2*n", "8", DIM_MAYBE);
  differ("2*n", "0", DIM_MAYBE);
  differ("4*n + 6*m", "9", DIM_DIFFERENT);
  differ("4*n + 6*m", "10", DIM_MAYBE);
  differ("6*n*m + 4", "3*(h//2)", DIM_DIFFERENT);
  differ("3*n", "2*m", DIM_MAYBE);
  differ("3*n", "6*m + 1", DIM_DIFFERENT);
  /* or only a negative one */
  differ("n + 3", "2", DIM_DIFFERENT);
  differ("2", "n + 3", DIM_DIFFERENT);
  differ("n + 3", "3", DIM_MAYBE);
  differ("n + 3", "4", DIM_MAYBE);
  differ("n*m + h + 1", "0", DIM_DIFFERENT);
  differ("n", "n + m", DIM_MAYBE);
  differ("n", "n + m + 1", DIM_DIFFERENT);
  differ("n - m", "1", DIM_MAYBE);
}

static void t_facts(void) {
  fresh();
  sym("d"), sym("h"), sym("n");
  Dim before = parse(tab, "h*(d//h)");
  check(before != parse(tab, "d"));
  dim_assume_divides(tab, parse(tab, "d"), parse(tab, "h"));
  same("h*(d//h)", "d");
  same("3*h*(d//h)*n", "3*d*n");
  same("d % h", "0");
  check_int(dim_compare(tab, before, parse(tab, "d")), ==, DIM_EQUAL);
  check_uint(dim_renew(tab, before), ==, parse(tab, "d"));
  dim_assume_divides(tab, parse(tab, "n"), num(4));
  same("4*(n//4)", "n");
  same("8*(n//4) - n", "n");
  same("6*(n//4)", "n + 2*(n//4)");
  same("n % 4", "0");
  dim_assume_divides(tab, parse(tab, "d + 2"), parse(tab, "h + n"));
  same("(h + n)*((d + 2)//(h + n))", "d + 2");
  Dim a, b;
  check(dim_fact(tab, 2, &a, &b) && !dim_fact(tab, 3, &a, &b));
}

static void t_limits(void) {
  fresh();
  sym("n");
  check(parse(tab, "9223372036854775807 + 1") == DIM_BAD);
  check(parse(tab, "9223372036854775807*n + n") == DIM_BAD);
  check(parse(tab, "n//0") == DIM_BAD);
  check(parse(tab, "n % 0") == DIM_BAD);
  check(parse(tab, "max(n, ") == DIM_BAD && parse(tab, "max(n)") == DIM_BAD);
  check(parse(tab, "(0 - 9223372036854775807 - 1)//-1") == DIM_BAD);
  check(parse(tab, "-9223372036854775808") == num(INT64_MIN));
  Dim (*const binary[])(DimTab *, Dim, Dim) = {dim_add, dim_sub, dim_mul, dim_floordiv,
                                               dim_mod, dim_max, dim_min};
  Dim good[] = {num(0), num(1), num(7), parse(tab, "n"), parse(tab, "2*n + 3")};
  for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
      check(binary[i](tab, DIM_BAD, good[k]) == DIM_BAD);
      check(binary[i](tab, good[k], DIM_BAD) == DIM_BAD);
    }
  Dim zero[3] = {num(INT64_MAX), num(INT64_MAX), num(0)};
  check(dim_product(tab, 3, zero) == num(0));
  check(dim_product(tab, 2, zero) == DIM_BAD);
  /* Growth ends in DIM_BAD, not in a hang. */
  Dim d = parse(tab, "n");
  for (int i = 0; i < 200 && d != DIM_BAD; i++) {
    d = dim_floordiv(tab, dim_add(tab, dim_mul(tab, d, d), num(i)), dim_add(tab, d, num(2)));
  }
  check(d == DIM_BAD);
  char deep[4000];
  memset(deep, '(', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  check(parse(tab, deep) == DIM_BAD);
  check(parse(tab, "") == DIM_BAD);
  check(parse(tab, "n +") == DIM_BAD);
  check(parse(tab, "n n") == DIM_BAD);
  check(parse(tab, "?1") == DIM_BAD);
}

static void t_symbols(void) {
  fresh();
  Sym s, u;
  Dim n = dim_symbol(tab, names_of(names, "n"), (Span){1, 2, 3}, &s);
  Dim other = dim_symbol(tab, names_of(names, "n"), (Span){1, 5, 6}, &u);
  Dim none = dim_symbol(tab, NULL, (Span){0, 0, 0}, NULL);
  check(n != other);
  check_str(show(tab, dim_add(tab, n, other)), "n + n'2");
  check_str(show(tab, none), "?2");
  check(parse(tab, "n'2") == other && parse(tab, "?2") == none);
  check_str(dim_symbol_name(tab, u), "n");
  check_uint(dim_symbol_span(tab, u).lo, ==, 5);
  check(dim_is_symbol(tab, n, &s) && s == 0);
  check(!dim_is_symbol(tab, dim_add(tab, n, num(1)), &s));
  check(parse(tab, "AZ + az") != DIM_BAD); /* all letters */
  int64_t size = -1;
  Dim line = dim_sub(tab, dim_mul(tab, n, num(3)), num(2)); /* 3n - 2 */
  check(dim_solve(tab, n, 7, &size) && size == 7);
  check(dim_solve(tab, line, 10, &size) && size == 4);
  check(!dim_solve(tab, line, 11, &size)); /* no integer */
  check(!dim_solve(tab, line, -8, &size)); /* a size below 0 */
  check(dim_solve(tab, dim_sub(tab, num(9), n), 5, &size) && size == 4);
  check(!dim_solve(tab, num(4), 4, &size) && !dim_solve(tab, DIM_BAD, 4, &size));
  check(!dim_solve(tab, dim_add(tab, n, other), 4, &size));
  check(!dim_solve(tab, dim_mul(tab, n, n), 4, &size));
  check(!dim_solve(tab, dim_floordiv(tab, n, num(2)), 4, &size));
  check(!dim_solve(tab, dim_sub(tab, n, num(3)), INT64_MAX, &size));
  Dim to[3] = {num(4), DIM_BAD, dim_add(tab, n, num(1))};
  Dim d = dim_mul(tab, dim_add(tab, n, other), none);
  check_str(show(tab, dim_import(tab, tab, d, to, 3)), "n*n'2 + 4*n + n'2 + 4");
  DimTab *t2 = dim_tab_new(&arena);
  Dim x = dim_symbol(t2, names_of(names, "x"), (Span){0, 0, 0}, NULL);
  Dim to2[3] = {x, x, dim_const(t2, 2)};
  check_str(show(t2, dim_import(t2, tab, d, to2, 3)), "4*x");
  check(dim_import(t2, tab, d, to2, 2) == DIM_BAD);
}

static void t_nonneg(void) {
  fresh();
  sym("n"), sym("m");
  check(dim_nonneg(tab, parse(tab, "n*m + 3*(n//2) + n % 3")));
  check(!dim_nonneg(tab, parse(tab, "n - 1")));
  check(!dim_nonneg(tab, parse(tab, "(n - 1)//2")));
  check(dim_nonneg(tab, parse(tab, "(n - 5) % 3")));
  check(!dim_nonneg(tab, num(-1)) && dim_nonneg(tab, num(0)));
}

static uint64_t state = 88172645463325252u;
static unsigned rnd(unsigned n) {
  return (unsigned)(tap_random(&state) >> 33) % n;
}

/* A random dim and its value, computed beside it. */
static Dim grow(int depth, const Dim *s, const int64_t *env, __int128 *val, bool *ok) {
  if (depth == 0 || rnd(5) == 0) {
    if (rnd(3)) {
      unsigned i = rnd(3);
      *val = env[i];
      return s[i];
    }
    int64_t k = (int64_t)rnd(21) - 6;
    *val = k;
    return num(k);
  }
  __int128 a, b;
  Dim x = grow(depth - 1, s, env, &a, ok), y = grow(depth - 1, s, env, &b, ok);
  unsigned op = rnd(7);
  if (op >= 5) {
    *val = (op == 5) == (a > b) ? a : b;
    return op == 5 ? dim_max(tab, x, y) : dim_min(tab, x, y);
  }
  if (op >= 3 && b == 0) *ok = false;
  if (!*ok) return DIM_BAD;
  __int128 q = op >= 3 ? a / b : 0, r = op >= 3 ? a % b : 0;
  if (r != 0 && (r < 0) != (b < 0)) q--, r += b;
  *val = op == 0 ? a + b : op == 1 ? a - b : op == 2 ? a * b : op == 3 ? q : r;
  return op == 0   ? dim_add(tab, x, y)
         : op == 1 ? dim_sub(tab, x, y)
         : op == 2 ? dim_mul(tab, x, y)
         : op == 3 ? dim_floordiv(tab, x, y)
                   : dim_mod(tab, x, y);
}

static void t_random(void) {
  int64_t env[3] = {0};
  long valued = 0, bad = 0, told = 0, apart = 0;
  for (int round = 0; round < 40000; round++) {
    if (round % 200 == 0) fresh();
    Dim s[3];
    if (round % 200 == 0) sym("a"), sym("b"), sym("c");
    s[0] = parse(tab, "a"), s[1] = parse(tab, "b"), s[2] = parse(tab, "c");
    for (int i = 0; i < 3; i++) env[i] = 1 + (int64_t)rnd(9);
    if (round % 400 == 200) dim_assume_divides(tab, s[0], s[1]);
    if (round % 400 >= 200) env[0] = env[1] * (1 + (int64_t)rnd(4));
    __int128 want;
    bool ok = true;
    int64_t got;
    Dim d = grow(4, s, env, &want, &ok);
    if (d == DIM_BAD) {
      bad++;
      continue;
    }
    if (!ok || want > INT64_MAX / 4 || want < INT64_MIN / 4) continue;
    /* a part may divide by 0 that the tree cancelled */
    if (!dim_eval(tab, d, env, NULL, &got)) continue;
    valued++;
    if (!check_msg(got == (int64_t)want, "%s is %lld, not %lld (a %lld b %lld c %lld)",
                   show(tab, d), (long long)want, (long long)got, (long long)env[0],
                   (long long)env[1], (long long)env[2])) {
      return;
    }
    /* What a size can be, it does not differ from. */
    Dim e = grow(3, s, env, &want, &ok);
    int64_t other = 0;
    DimOrder o = dim_compare(tab, d, num(got));
    if (!check_msg(o != DIM_DIFFERENT, "%s may be %lld", show(tab, d), (long long)got)) return;
    if (ok && e != DIM_BAD && want == (int64_t)want && dim_eval(tab, e, env, NULL, &other)) {
      e = dim_add(tab, e, num(got - other));
      o = dim_compare(tab, d, e);
      told += o == DIM_MAYBE;
      if (!check_msg(o != DIM_DIFFERENT, "%s may be %s", show(tab, d), show(tab, e))) return;
      o = dim_compare(tab, e, dim_add(tab, d, num(1 + (int64_t)rnd(3))));
      apart += o == DIM_DIFFERENT;
      if (!check(o != DIM_EQUAL)) return;
    }
    /* The text reads back, also in another table. */
    const char *text = show(tab, d);
    if (!check_msg(parse(tab, text) == dim_renew(tab, d), "%s reads as %s", text,
                   show(tab, parse(tab, text)))) {
      return;
    }
    if (round % 50 == 0) {
      DimTab *t2 = dim_tab_new(&arena);
      Dim n;
      const char *order[3] = {"a", "b", "c"};
      for (int i = 0; i < 3; i++) dim_symbol(t2, names_of(names, order[i]), (Span){0, 0, 0}, NULL);
      check(dim_parse(t2, names, text, strlen(text), &n));
      if (round % 400 < 200) check_str(show(t2, n), text);
    }
  }
  tap_note("%ld values compared, %ld dims over a limit; of others %ld may be the same, %ld differ",
           valued, bad, told, apart);
  check_int(valued, >, 20000);
}

/* Symbols of one name are numbered, however many there are and whoever holds their text. */
static void t_many(void) {
  fresh();
  static const char *const name[3] = {"a", "b", "a.b"};
  char copies[120][4];
  for (int i = 0; i < 120; i++) {
    char text[16];
    const char *now = name[i % 3];
    snprintf(copies[i], sizeof copies[0], "%s", now);
    Dim d = dim_symbol(tab, i % 2 ? names_of(names, now) : copies[i], (Span){0, 0, 0}, NULL);
    if (i < 3)
      snprintf(text, sizeof text, "%s", now);
    else
      snprintf(text, sizeof text, "%s'%d", now, i / 3 + 1);
    if (!check_str(show(tab, d), text)) return;
  }
}

static void t_eval(void) {
  fresh();
  sym("n");
  sym("m");
  int64_t env[2] = {INT64_MAX, 0}, out;
  bool bound[2] = {true, false};
  check(!dim_eval(tab, parse(tab, "2*n"), env, NULL, &out));
  check(!dim_eval(tab, parse(tab, "n//m"), env, NULL, &out));
  check(!dim_eval(tab, parse(tab, "n + m"), env, bound, &out));
  check(dim_eval(tab, parse(tab, "n"), env, bound, &out) && out == INT64_MAX);
  check(!dim_eval(tab, DIM_BAD, env, NULL, &out));
}

static void t_counter(void) {
  fresh();
  sym("n");
  Sym s;
  Dim t = dim_counter(tab, "t", (Span){0, 0, 0}, &s), d = dim_add(tab, parse(tab, "2*n"), t);
  int64_t env[2] = {5, 0}, out;
  check(dim_is_counter(tab, s) && !dim_is_counter(tab, 0) && !dim_is_counter(tab, 2));
  check(gr_sized_by_turn(tab, d) && gr_sized_by_turn(tab, parse(tab, "n//(t + 1)")));
  check(!gr_sized_by_turn(tab, parse(tab, "n + 3")) && !gr_sized_by_turn(tab, dim_sub(tab, t, t)));
  check(dim_nonneg(tab, t));
  check(!dim_eval(tab, d, env, NULL, &out)); /* outside of its loop */
  check(dim_eval(tab, parse(tab, "n"), env, NULL, &out));
  env[1] = 1;
  check(dim_eval(tab, d, env, NULL, &out) && out == 10);
  env[1] = 4;
  check(dim_eval(tab, d, env, NULL, &out) && out == 13);
  check(dim_eval(tab, parse(tab, "n % (t + 1)"), env, NULL, &out) && out == 1);
  check_str(show(tab, d), "2*n + t");
}

static void run(void *ud) {
  (void)ud;
  TEST(t_many(), "symbols of one name are numbered, also where they are many");
  TEST(t_normal(), "equal polynomials are one dim");
  TEST(t_compare(), "dims are equal, different, or not known to be");
  TEST(t_facts(), "b * (a // b) is a where b divides a");
  TEST(t_limits(), "overflow, division by zero and endless growth give DIM_BAD");
  TEST(t_symbols(), "symbols are told apart, found, replaced and moved between tables");
  TEST(t_nonneg(), "what cannot be negative is known");
  TEST(t_eval(), "values that do not exist are refused");
  TEST(t_counter(), "a counter has a value in its loop alone");
  TEST(t_random(), "random dims have the value of their expression and read back");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  check_int(mem_protect(&mem, run, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
