/* The formatter: the one style, comments, line breaks; formatting keeps the tree and is
 * idempotent. */
#include <stdlib.h>
#include <string.h>

#include "parser/parse.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

typedef struct World {
  Failing failing;
  Mem mem;
  Arena arena;
  Names *names;
  Sources src;
  Diags diags;
} World;

static void open_world(World *w) {
  failing_init(&w->failing, &w->mem, 0);
  arena_init(&w->arena, &w->mem);
  w->names = names_new(&w->arena);
  src_init(&w->src, &w->arena);
  dg_init(&w->diags, &w->arena, &w->mem);
}

static void close_world(World *w) {
  arena_free(&w->arena);
  check(failing_clean(&w->failing, &w->mem));
  mem_close(&w->mem);
}

static Node *parse(World *w, const char *text, size_t n) {
  ParseContext c = {&w->arena, w->names, &w->src, &w->diags};
  return parse_file(&c, src_add(&w->src, "t", text, n));
}

/* Formats `text`, checks that this is `expect`, that the tree is kept, and that again changes
 * nothing. */
static void t_fmt(const char *text, size_t n, const char *expect) {
  World w;
  open_world(&w);
  Node *a = parse(&w, text, n);
  Buf one, two;
  buf_init_arena(&one, &w.arena);
  buf_init_arena(&two, &w.arena);
  fmt_file(&one, a, &w.src);
  check_str(one.s, expect);
  Node *b = parse(&w, one.s, one.n);
  fmt_file(&two, b, &w.src);
  check_size(w.diags.count, ==, 0);
  check(ast_equal(a, b));
  check_uint(a->file.comment_count, ==, b->file.comment_count);
  check_str(two.s, one.s);
  close_world(&w);
}

typedef struct Row {
  const char *text, *expect;
} Row;

static const Row rows[] = {
    {"\n"
     "\n"
     "# top\n"
     "\n"
     "\n"
     "use   data(a,b)",
     "# top\n"
     "\n"
     "use data (a, b)\n"},
    {"let x=1+2*3;let y = -  x", "let x = 1 + 2 * 3; let y = -x\n"},
    {"let long_name = some_function(argument_number_one, argument_number_two, key = "
     "another_value, last = 3)",
     "let long_name = some_function(\n"
     "  argument_number_one,\n"
     "  argument_number_two,\n"
     "  key = another_value,\n"
     "  last = 3,\n"
     ")\n"},
    {"let sum = aaaaaaaaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb * "
     "ccccccccccccccccccccc + ddddddddddddddddddd",
     "let sum = aaaaaaaaaaaaaaaaaaaaaaaaaaaa +\n"
     "    bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb * ccccccccccccccccccccc +\n"
     "    ddddddddddddddddddd\n"},
    {"if aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa and bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb or "
     "ccccccccccccccccccccc and dddddddddddd {\n"
     "  x\n"
     "}",
     "if aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa and bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb or\n"
     "    ccccccccccccccccccccc and dddddddddddd {\n"
     "  x\n"
     "}\n"},
    {"let m = [\n"
     "  [1,2,3],\n"
     "  [4,5,6]\n"
     "]",
     "let m = [\n"
     "  [1, 2, 3],\n"
     "  [4, 5, 6],\n"
     "]\n"},
    {"fn f[B,T](x:f32[B,T],aaaaaaaaaaaaaaaaaaaaaaa: f32[B, T], bbbbbbbbbbbbbbbbbbbbbb "
     "= 1.0, cccccccc = true) -> f32[B] { x }",
     "fn f[B, T](\n"
     "  x: f32[B, T],\n"
     "  aaaaaaaaaaaaaaaaaaaaaaa: f32[B, T],\n"
     "  bbbbbbbbbbbbbbbbbbbbbb = 1.0,\n"
     "  cccccccc = true,\n"
     ") -> f32[B] { x }\n"},
    {"fn g(x)=x", "fn g(x) = x\n"},
    {"fn h(x) =\n"
     "  x",
     "fn h(x) =\n"
     "  x\n"},
    {"fn kkkkkkkkkkkkkkkkkk(x) = some_function_with_a_long_name(argument_number_one, "
     "argument_number_two) + other(x)",
     "fn kkkkkkkkkkkkkkkkkk(x) =\n"
     "  some_function_with_a_long_name(argument_number_one, argument_number_two) + "
     "other(x)\n"},
    {"model M(a:int){\n"
     "  param w:f32[a]   # trailing\n"
     "\n"
     "\n"
     "  buffer b : f32=0\n"
     "  fn forward(x)={x}\n"
     "}",
     "model M(a: int) {\n"
     "  param w: f32[a]   # trailing\n"
     "\n"
     "  buffer b: f32 = 0\n"
     "  fn forward(x) = { x }\n"
     "}\n"},
    {"model M{}", "model M { }\n"},
    {"{\n"
     "\n"
     "  a\n"
     "\n"
     "  # c\n"
     "\n"
     "\n"
     "  b\n"
     "  # end\n"
     "\n"
     "}",
     "{\n"
     "  a\n"
     "\n"
     "  # c\n"
     "\n"
     "  b\n"
     "  # end\n"
     "}\n"},
    {"{ # why\n"
     " a }",
     "{  # why\n"
     "  a\n"
     "}\n"},
    {"on(net,fn(g){\n"
     "  g\n"
     "})",
     "on(net, fn(g) {\n"
     "  g\n"
     "})\n"},
    {"on(net,fn(g){ g },1)", "on(net, fn(g) { g }, 1)\n"},
    {"on(net,fn(g){\n"
     " g },1)",
     "on(\n"
     "  net,\n"
     "  fn(g) {\n"
     "    g\n"
     "  },\n"
     "  1,\n"
     ")\n"},
    {"mean([\n"
     " f(x) for x in y])",
     "mean([f(x) for x in y])\n"},
    {"let c = "
     "x.aaaaaaaaaaaaaaaaaaaaaaaaaaa(1).bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb(2).cccccccccc"
     "ccccccccccccc(3).ddddddddd()",
     "let c = x.aaaaaaaaaaaaaaaaaaaaaaaaaaa(1)\n"
     "  .bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb(2)\n"
     "  .ccccccccccccccccccccccc(3)\n"
     "  .ddddddddd()\n"},
    {"let c = f(x)\n"
     "  .g().h()",
     "let c = f(x)\n"
     "  .g()\n"
     "  .h()\n"},
    {"let s=r\"\\d {x}\"+\"{ d[ \"a\" ] :>3}\"", "let s = r\"\\d {x}\" + \"{d[\"a\"]:>3}\"\n"},
    {"if a {\nlet s = \"\"\"\n      a  {x+1}\n\n        b\n        \n      \"\"\"\n}",
     "if a {\n"
     "  let s = \"\"\"\n"
     "    a  {x + 1}\n"
     "\n"
     "      b\n"
     "      \n"
     "    \"\"\"\n"
     "}\n"},
    {"f(r\"\"\"\n\\a\n\"\"\",1)", "f(r\"\"\"\n"
                                  "  \\a\n"
                                  "  \"\"\", 1)\n"},
    {"f(\n\"\"\"\na\n\"\"\".g(),\n1)", "f(\n"
                                       "  \"\"\"\n"
                                       "  a\n"
                                       "  \"\"\".g(),\n"
                                       "  1,\n"
                                       ")\n"},
    {"{ f(g(\"\"\"\n  a\n  \"\"\"), \"\"\"\nb\n\"\"\") }", "{\n"
                                                           "  f(g(\"\"\"\n"
                                                           "    a\n"
                                                           "    \"\"\"), \"\"\"\n"
                                                           "    b\n"
                                                           "    \"\"\")\n"
                                                           "}\n"},
    {"let s = \"a{ x :.3f}b{ {y} }\\u{e9}{{\"", "let s = \"a{x:.3f}b{ { y }}\\u{e9}{{\"\n"},
    {"let big = [elementelementelementelement(i, j) + elementelementelement for i in "
     "0..1000, j in 0..10000000]",
     "let big = [\n"
     "  elementelementelementelement(i, j) + elementelementelement\n"
     "  for i in 0..1000,\n"
     "  j in 0..10000000\n"
     "]\n"},
    {"let u = not(a)and((b))", "let u = not (a) and (b)\n"},
    {"(a+b)*-(c**-d)**2", "(a + b) * -(c ** -d) ** 2\n"},
    {"a-(b-c)-d", "a - (b - c) - d\n"},
    {"(a<b)==c", "(a < b) == c\n"},
    {"(fn(x)=x)(3)+1", "(fn(x) = x)(3) + 1\n"},
    {"-(-x)", "-(-x)\n"},
    {"(1).e5", "(1).e5\n"},
    {"not (a and b)", "not (a and b)\n"},
    {"let v = (a = 1 , b = 2)", "let v = (a = 1, b = 2)\n"},
    {"checkpoint<save  a  b.c  as  bf16 , >{x}", "checkpoint <save a b.c as bf16> { x }\n"},
    {"checkpoint<save none>for i in 0..n{f(i)}", "checkpoint <save none> for i in 0..n { f(i) }\n"},
    {"wrap<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, "
     "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb, ccccccccccccccccccccc>{ x }",
     "wrap <\n"
     "  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,\n"
     "  bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,\n"
     "  ccccccccccccccccccccc\n"
     "> { x }\n"},
    {"while  a{break}", "while a { break }\n"},
    {"let z = if aaaaaaaaaaaaaaaaaaaaaaaaaaaaa { bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb "
     "} else { cccccccccccccccccccccccccc }",
     "let z = if aaaaaaaaaaaaaaaaaaaaaaaaaaaaa { bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb "
     "} else {\n"
     "  cccccccccccccccccccccccccc\n"
     "}\n"},
    {"if a { b } else if c { d }\n"
     "else_ = 3",
     "if a { b } else if c { d }\n"
     "else_ = 3\n"},
    {"x[i,1:2 ,: , ...,::3]+=1", "x[i, 1:2, :, ..., ::3] += 1\n"},
    {"f(\n"
     "  # why\n"
     "  a, # first\n"
     "  b\n"
     "  # last\n"
     ")",
     "f(\n"
     "  # why\n"
     "  a,  # first\n"
     "  b,\n"
     "  # last\n"
     ")\n"},
    {"f(a, # first\n"
     "  b)",
     "f(\n"
     "  a,  # first\n"
     "  b,\n"
     ")\n"},
    {"f(\n"
     " # nothing\n"
     ")",
     "f(\n"
     "  # nothing\n"
     ")\n"},
    {"let q = a +   # because\n"
     "  b",
     "let q = a + # because\n"
     "    b\n"},
    {"let q = # why\n"
     "  b",
     "let q =\n"
     "  # why\n"
     "  b\n"},
    {"a  # one\n"
     "   # two",
     "a  # one\n"
     "# two\n"},
    {"a;b # c", "a; b  # c\n"},
    {"a; bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb; "
     "ccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
     "a\n"
     "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
     "ccccccccccccccccccccccccccccccccccccccccccccccccccccccc\n"},
    {"policy lean(n){every (n),save matmul,budget=2GiB}",
     "policy lean(n) { every (n), save matmul, budget = 2GiB }\n"},
    {"policy lean {\n"
     " save matmul\n"
     "}",
     "policy lean {\n"
     "  save matmul\n"
     "}\n"},
    {"type T=(a:f32,b:[i64],c:fn(x:int)->any,d:(f32,),e:(),g:a.b[2*n,...S,...])",
     "type T = (a: f32, b: [i64], c: fn(x: int) -> any, d: (f32,), e: (), g: a.b[2 * "
     "n, ...S, ...])\n"},
    {"let t: f32[2*n]=(1,)", "let t: f32[2 * n] = (1,)\n"},
    {"let (a,(b,_),{c,d})=e", "let (a, (b, _), {c, d}) = e\n"},
    {"fn f(x)=x backward(g){g}", "fn f(x) = x backward(g) { g }\n"},
    {"fn f(x) { x } backward(g)=2*g", "fn f(x) { x } backward(g) = 2 * g\n"},
    {"test \"t\" {assert a}", "test \"t\" { assert a }\n"},
    {"use \"x.ckl\"as y", "use \"x.ckl\" as y\n"},
    {"use a.b", "use a.b\n"},
    {"return", "return\n"},
    {"return 1", "return 1\n"},
    {"wrap <f \"a b\" (c+d) e.f 1.5GiB>{ }", "wrap <f \"a b\" (c + d) e.f 1.5GiB> { }\n"},
    {"let x = 1_000 + 0xFF + 1.50e-3 + 1.5GiB", "let x = 1_000 + 0xFF + 1.50e-3 + 1.5GiB\n"},
    {"", ""},
    {"# only", "# only\n"},
};

static void t_rows(void) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    t_fmt(rows[i].text, strlen(rows[i].text), rows[i].expect);
}

/* The four programs of the language page are in the style. */
static void t_example(const char *name) {
  const char *srcdir = getenv("srcdir");
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/parse/%s", srcdir ? srcdir : ".", name);
  FILE *in = fopen(path, "rb");
  check_msg(in != NULL, "cannot open %s", path);
  if (!in) return;
  static char text[1 << 16];
  size_t n = fread(text, 1, sizeof text - 1, in);
  fclose(in);
  text[n] = 0;
  check_size(n, >, 100);
  t_fmt(text, n, text);
}

static void t_differ(const char *a, const char *b) {
  World w;
  open_world(&w);
  Node *x = parse(&w, a, strlen(a)), *y = parse(&w, b, strlen(b));
  check_size(w.diags.count, ==, 0);
  check_msg(!ast_equal(x, y), "`%s` equals `%s`", a, b);
  check_msg(ast_equal(x, parse(&w, a, strlen(a))), "`%s` does not equal itself", a);
  close_world(&w);
}

static void t_equality(void) {
  static const char *const pairs[][2] = {{"a", "b"},
                                         {"1", "2"},
                                         {"1", "1.0"},
                                         {"1.5", "2.5"},
                                         {"1MB", "1000000"},
                                         {"\"a\"", "\"b\""},
                                         {"\"{a}\"", "\"a\""},
                                         {"\"{a:d}\"", "\"{a}\""},
                                         {"\"{a:d}\"", "\"{a:x}\""},
                                         {"a + b", "a - b"},
                                         {"-a", "not a"},
                                         {"f(a)", "f(a = a)"},
                                         {"f(a)", "f(a, b)"},
                                         {"a.b", "a.c"},
                                         {"a.0", "a.1"},
                                         {"a[1]", "a[:1]"},
                                         {"a[1:]", "a[:1]"},
                                         {"(a,)", "[a]"},
                                         {"()", "[]"},
                                         {"true", "false"},
                                         {"let a = b", "var a = b"},
                                         {"let a = b", "let a: f32 = b"},
                                         {"let _ = b", "let a = b"},
                                         {"a = b", "a += b"},
                                         {"return", "return a"},
                                         {"break", "continue"},
                                         {"for a in b { }", "checkpoint for a in b { }"},
                                         {"use a", "use b"},
                                         {"use a", "use a as b"},
                                         {"use a", "use a (b)"},
                                         {"use a", "use \"a\""},
                                         {"type A = b", "type A = [b]"},
                                         {"type A = b", "type A = b[]"},
                                         {"type A = b[c]", "type A = b[...c]"},
                                         {"type A = (a, b)", "type A = (a: a, b: b)"},
                                         {"type A = fn() -> a", "type A = fn() -> b"},
                                         {"fn f() = a", "proc f() = a"},
                                         {"fn f() = {a}", "fn f() {a}"},
                                         {"fn f() = a", "fn f[B]() = a"},
                                         {"fn f(x) = a", "fn f(x = 1) = a"},
                                         {"fn f() = a", "fn f() -> b = a"},
                                         {"fn f() = a", "fn f() = a backward() = a"},
                                         {"fn f() = a", "fn() = a"},
                                         {"policy p { a }", "policy p { a b }"},
                                         {"policy p { a b }", "policy p { a = b }"},
                                         {"policy p { a }", "policy p() { a }"},
                                         {"wrap <a> { }", "wrap <b> { }"},
                                         {"checkpoint { }", "checkpoint <a> { }"},
                                         {"checkpoint <a b as c> { }", "checkpoint <a b> { }"},
                                         {"model A { param a: f32 }", "model A { buffer a: f32 }"},
                                         {"model A { }", "model A() { }"},
                                         {"test \"a\" { }", "test \"b\" { }"},
                                         {"if a { b }", "if a { b } else { c }"},
                                         {"[a for a in b]", "[a for a in c]"}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) t_differ(pairs[i][0], pairs[i][1]);
}

static void fmt_job(void *ud) {
  World *w = ud;
  static const char text[] =
      "# c\nfn f[B](x: f32[B], k = 1) -> f32 { \"a { {x} :.2f}\" } backward(g) { g }\n"
      "let (a, b) = [x.0 for x in 0..3]  # d\nf(\n# e\na)\n";
  w->names = names_new(&w->arena);
  src_init(&w->src, &w->arena);
  dg_init(&w->diags, &w->arena, &w->mem);
  Node *file = parse(w, text, strlen(text));
  Buf out;
  buf_init(&out, &w->mem);
  buf_init_arena(&out, &w->arena);
  fmt_file(&out, file, &w->src);
}

static void t_memory(void) {
  int64_t n = 1;
  for (int code = MEM_ERR_NOMEM; code != MEM_OK; n++) {
    World w;
    failing_init(&w.failing, &w.mem, n);
    arena_init(&w.arena, &w.mem);
    code = mem_protect(&w.mem, fmt_job, &w);
    check_msg(code == MEM_OK || code == MEM_ERR_NOMEM, "allocation %d fails: code %d", (int)n,
              code);
    close_world(&w);
    need(n < 10000);
  }
}

int main(void) {
  TEST(t_rows(), "each construct has one form");
  TEST(t_example("digits.ckl"), "digits.ckl is in the style");
  TEST(t_example("gpt.ckl"), "gpt.ckl is in the style");
  TEST(t_example("ode.ckl"), "ode.ckl is in the style");
  TEST(t_example("tuned.ckl"), "tuned.ckl is in the style");
  TEST(t_equality(), "trees that differ are not equal");
  TEST(t_memory(), "formatting survives each failing allocation");
  return tap_done();
}
