/* The text form: what is printed reads back to an equal graph, and bad text is refused with its
 * line. */
#include "graph-gen.h"
#include "graph/pass.h"

static Mem mem;
static Arena arena;
static Names *names;

static const char *printed(const Graph *g) {
  Buf b;
  buf_init_arena(&b, &arena);
  gr_print(&b, g);
  return b.s;
}

static void t_random(void) {
  long nodes = 0;
  for (uint64_t seed = 1; seed <= 400; seed++) {
    arena_free(&arena);
    arena_init(&arena, &mem);
    names = names_new(&arena);
    Gen x;
    GErr e;
    gen_open(&x, &arena, names, seed, seed % 2, seed % 5 == 0);
    x.effects = x.writes = true;
    gen_graph(&x, 1 + (int)(seed % 60));
    nodes += (long)x.g->node_count;
    if (!check_msg(gr_verify(x.g, &e), "seed %d: %s", (int)seed, e.text)) return;
    const char *text = printed(x.g);
    Graph *h = gr_read(&arena, names, text, strlen(text), &e);
    if (!check_msg(h != NULL, "seed %d: %s\n%s", (int)seed, e.text, text)) return;
    check_str(printed(h), text);
    check(gr_equal(x.g, h));
    check_hex(gr_hash(x.g), ==, gr_hash(h));
    Graph *c = gr_clone(&arena, x.g);
    check_str(printed(c), text);
    check(gr_verify(c, &e));
  }
  tap_note("%ld nodes", nodes);
}

static const char everything[] =
    "# a comment\n"
    "graph \"step\" {\n"
    "  sym B @ 1:4-5\n"
    "  sym B\n"
    "  sym \"a b\" @ 9:0-3\n"
    "  sym ?\n"
    "  sym d\n"
    "  sym h\n"
    "  fact d, h\n"
    "  %0 = input {index=0 dtype=8 device=2 dims=[B, B'2, ?2 + ?3]} : f32[B, B'2, ?2 + ?3] on sim "
    "@ 9:2-9 "
    "name=\"x\"\n"
    "  %1 = input {index=1 dtype=8 device=0 dims=[h*(d//h), d//h]} : f32[d, d//h] ~1\n"
    "  %2 = reshape %1 {dims=[d*(d//h)]} : f32[d*(d//h)] ~1\n"
    "  %3 = token : token\n"
    "  %4 = print %3 %2 {text=\"{}\\n\"} : token @ 1:10-20 path=\"net.a\" region=3 origin=4 "
    "tag=offload\n"
    "  %5 = const {value=-0.0 dtype=9 device=0} : f64 @ backward recomputed anomaly\n"
    "  %6 = const {value=nan dtype=9 device=0} : f64\n"
    "  %7 = const {value=-inf dtype=9 device=0} : f64\n"
    "  %8 = const {value=5e-324 dtype=9 device=0} : f64\n"
    "  %9 = const {value=-9223372036854775808 dtype=5 device=0} : i64\n"
    "  %10 = wrap %5 %6 {text=\"no_grad\"} : f64, f64\n"
    "    region \"body\" {\n"
    "      %0 = input {index=0 dtype=9 device=0 dims=[]} : f64\n"
    "      %1 = input {index=1 dtype=9 device=0 dims=[]} : f64\n"
    "      %2 = add %0 %1 : f64\n"
    "      return %2 %0\n"
    "    }\n"
    "  %11 = sum %2 {axes=(0)} : f32\n"
    "  check ge B, B'2 \"too \\\"few\\\"\" @ 1:3-4\n"
    "  check divides d, 4\n"
    "  check fits B + d, i8\n"
    "  return %10.1 %4 %11\n"
    "}\n";

static void t_everything(void) {
  GErr e;
  Graph *g = gr_read(&arena, names, everything, strlen(everything), &e);
  if (!check_msg(g != NULL, "%s", e.text)) return;
  const char *text = printed(g);
  check_has(text, "sym \"a b\" @ 9:0-3");
  check_has(text, "f32[B, B'2, ?2 + ?3] on sim @ 9:2-9 name=\"x\"");
  check_has(text, "check ge B, B'2 \"too \\\"few\\\"\" @ 1:3-4");
  check_has(text, "path=\"net.a\" region=3 origin=4 tag=offload");
  check_has(text, "value=-0.0");
  check_has(text, "{dims=[d*(d//h)]} : f32[d*(d//h)] ~1");
  Graph *h = gr_read(&arena, names, text, strlen(text), &e);
  check_msg(h != NULL, "%s", e.text);
  if (h) check_str(printed(h), text);
  /* A word stands without quotes. */
  static const char word[] =
      "graph \"f\" {\n"
      "  sym azAZ_09.b\n"
      "  %0 = input {index=0 dtype=f32 device=cpu dims=[azAZ_09.b]} : f32[azAZ_09.b]\n"
      "  return %0\n"
      "}\n";
  h = gr_read(&arena, names, word, strlen(word), &e);
  if (check(h)) check_str(printed(h), word);
  /* Only what is used is declared, in its place. */
  check_str(dim_symbol_name(g->dims, 4), "d");
}

static void bad(const char *text, const char *why) {
  GErr e;
  Graph *g = gr_read(&arena, names, text, strlen(text), &e);
  if (check_msg(!g, "this was read: %s", text))
    check_has(arena_printf(&arena, "line %u: %s", e.line, e.text), why);
  if (!g) check_int(e.code, ==, ERR_IR_TEXT);
}

/* As many blocks as a text may have, and one more. */
static void t_blocks(void) {
  for (int most = 10000; most <= 10001; most++) {
    GErr e;
    Buf b;
    buf_init_arena(&b, &arena);
    buf_puts(&b, "graph {\n");
    for (int i = 1; i <= most; i++) buf_printf(&b, " block %d \"\"\n", i);
    buf_puts(&b, " return\n}");
    Graph *g = gr_read(&arena, names, b.s, b.n, &e);
    if (most == 10000 && check_msg(g, "%s", e.text)) check_size(g->blocks->count, ==, 10000);
    if (most > 10000 && check(!g)) check_has(e.text, "too many blocks");
  }
}

static void t_bad(void) {
  bad("", "line 1: a graph begins");
  bad("graph {", "the text ends in a graph");
  bad("graph {\n %1 = token : token\n}", "line 2: nodes are numbered");
  bad("graph {\n %0 = tokens : token\n}", "line 2: there is no such op");
  bad("graph {\n\n\n %0 = neg %0 : f32\n}", "line 4: this value is not computed");
  bad("graph {\n %0 = const {value=1.0 dtype=8 device=0} : f64\n"
      "}",
      "line 2: the result is f32, the text says f64");
  bad("graph {\n %0 = const {value=1 dtype=8 device=0} : f32\n"
      "}",
      "lacks a proper attribute `value`");
  bad("graph {\n %0 = const {value=1.0 dtype=99 device=0} : f32\n"
      "}",
      "lacks a proper attribute `dtype`");
  bad("graph {\n %0 = const {value=1.0 value=2.0 dtype=8} : f32\n}", "given twice");
  bad("graph {\n %0 = const {value=1x dtype=8} : f32\n}", "no attribute value");
  bad("graph {\n %0 = token\n}", "another number of results");
  bad("graph {\n %0 = input {index=1 dtype=8 device=0 dims=[]} : f32\n return\n"
      "}",
      "not numbered in order");
  bad("graph {\n %0 = input {index=0 dtype=8 device=0 dims=[N]} : f32[N]\n"
      "}",
      "a symbol is not declared");
  bad("graph {\n %0 = input {index=0 dtype=8 device=0 dims=[2//0]} : f32[2]\n"
      "}",
      "this is not a dim");
  bad("graph {\n %0 = input {index=0 dtype=8 device=0 dims=[-1]} : f32[-1]\n return\n}", "");
  bad("graph {\n return\n %0 = token : token\n}", "`return` comes last");
  bad("graph {\n return %0\n}", "not computed before");
  bad("graph {\n}\nmore", "line 3: something follows");
  bad("graph \"a {\n}", "the string does not end");
  bad("graph \"\\q\" {\n}", "this escape is not known");
  bad("graph \"\\x00\" {\n}", "zero byte");
  GErr e; /* what is behind the end of the text is not read */
  check(!gr_read(&arena, names, "graph \"\\x41\" {\n}", 10, &e));
  check_has(e.text, "this escape is not known");
  bad("graph {\n sym\n}", "a name is expected");
  bad("graph {\n sym t\n %0 = const {value=1 dtype=5 device=0} : i64\n"
      " %1 = loop %0 {carry=0 counter=<t>}\n region {\n"
      " %0 = input {index=0 dtype=5 device=0 dims=[]} : i64\n return\n }\n return\n}",
      "lacks a proper attribute `counter`");
  bad("graph {\n check lt 1, 2\n}", "no such check");
  bad("graph {\n %0 = token : token @ 1:5-2\n}", "this span ends before");
  bad("graph {\n %0 = token : token @ tag=often\n}", "no such tag");
  bad("graph {\n %0 = token : token\n region {\n }\n}", "`token` has no regions");
  bad("graph {\n %0 = token : token\n %1 = token : token\n %2 = print %0 {text=\"\"} : token\n"
      " %3 = print %0 {text=\"\"} : token\n}",
      "token was used before");
  bad("graph {\n sym N\n sym M\n %0 = input {index=0 dtype=8 device=0 dims=[N]} : f32[N]\n"
      " %1 = input {index=1 dtype=8 device=0 dims=[M]} : f32[M]\n %2 = add %0 %1 : f32[N]\n"
      " return %2\n}",
      "a condition on its sizes is not checked");
  bad("graph {\n %0 = input {index=0 dtype=8 device=0 dims=[4]} : f32[4] ~1\n"
      " %1 = reshape %0 {dims=[2, 2]} : f32[2, 2] ~2\n return %1\n}",
      "another alias class");
}

static void t_nested(void) {
  /* Deep regions end in an error, not in a crash. */
  Buf b;
  buf_init_arena(&b, &arena);
  buf_puts(&b, "graph {\n");
  for (int i = 0; i < 100; i++) buf_puts(&b, "%0 = wrap {text=\"\"}\nregion {\n");
  bad(b.s, "nested too deeply");
}

static void t_plain(void) {
  GErr e;
  const char *a = "graph \"f\" {\n sym N @ 1:2-3\n %0 = input {index=0 dtype=8 device=0 dims=[N]} "
                  ": f32[N] @ 1:5-6\n"
                  " return %0\n}\n";
  const char *b = "graph \"g\" {\n sym X\n sym M\n %0 = input {index=0 dtype=8 device=0 dims=[M]} "
                  ": f32[M]\n return %0\n}\n";
  const char *c = "graph \"g\" {\n sym M\n %0 = input {index=0 dtype=8 device=0 dims=[2*M]} : "
                  "f32[2*M]\n return %0\n}\n";
  Graph *x = gr_read(&arena, names, a, strlen(a), &e),
        *y = gr_read(&arena, names, b, strlen(b), &e);
  Graph *z = gr_read(&arena, names, c, strlen(c), &e);
  if (!check(x && y && z)) return;
  check(gr_equal(x, y) && gr_hash(x) == gr_hash(y));
  check(!gr_equal(x, z) && gr_hash(x) != gr_hash(z));
}

static void all(void *ud) {
  (void)ud;
  TEST(t_random(), "random graphs of all ops read back equal and print the same");
  TEST(t_everything(), "every construct of the grammar is kept");
  TEST(t_blocks(), "10,000 blocks are read");
  TEST(t_bad(), "bad text is refused with its line and a reason");
  TEST(t_nested(), "regions nested too deeply are refused");
  TEST(t_plain(), "equality and hash see structure, not names and places");
}

int main(void) {
  mem_init(&mem, NULL, NULL);
  arena_init(&arena, &mem);
  names = names_new(&arena);
  check_int(mem_protect(&mem, all, NULL), ==, MEM_OK);
  arena_free(&arena);
  mem_close(&mem);
  return tap_done();
}
