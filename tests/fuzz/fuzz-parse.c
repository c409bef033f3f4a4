/* fuzz-parse SECONDS [SEED]: lexer, grammar, recovery and formatter.
 *
 * Texts are made by mutating a corpus of whole programs and by growing programs from the grammar.
 * For every text: parsing files at most PARSE_MAX_ERRORS errors and returns a tree of bounded
 * height whose spans lie in the text; parse_repl_complete ends. For every text without errors: the
 * formatted text parses without errors to an equal tree with as many comments, and formatting again
 * changes nothing. Time per byte is bounded. Prints the offending text and exits with 1 on a
 * find. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parser/parse.h"

enum { MAX_TEXT = 1 << 14 };

static uint64_t state;

static uint32_t rnd(uint32_t n) { /* below n; xorshift* of Vigna */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 33) % (n ? n : 1);
}

static char text[MAX_TEXT + 64];
static size_t text_n;

#include "tests/fuzz/grow.h"

_Noreturn static void find(const char *what, const char *more) {
  printf("fuzz-parse: %s\n%s\n", what, more);
  fflush(stdout);
  abort();
}

/* A sanitizer aborts (run-fuzz asks for it): show the text. */
static void on_abort(int sig) {
  (void)sig;
  printf("--- text\n%.*s\n--- end\n", (int)text_n, text);
  fflush(stdout);
}

/* ---- the corpus: small programs that together use every construct */

static const char *const corpus[] = {
    "use data (read_csv, split)\nuse nn as n\nuse \"gpt.ckl\" as gpt\nuse a.b.c\n",
    "type Fit = (loss: f64, at_end: f64[2])\ntype P = (f32, [i64], fn(a: int, f32[...S]) -> any)\n",
    "policy lean(n) { every (n + 1), save matmul, prefer recompute pointwise, offload attn.att }\n"
    "policy half { save matmul a.b as bf16, save as as u8 }\n",
    "## doc\n## more\nmodel M(nin: int, act = relu) {\n"
    "  param w: f32[nin, 2 * nin] = normal(std = 0.02)\n"
    "  buffer m: params[net]\n  let l = [Linear(nin, 3) for i in 0..4]\n  assert nin > 0  # pos\n\n"
    "  fn forward[B, T](x: f32[B, T]) -> f32[B] { self.w @ x }\n}\n",
    "fn f(x: float[...S], lim = 1.0) -> float[...S] { round(x) } backward(g) { g }\n",
    "fn g[B](x: f32[B, _], h: fn(f32) -> f32) -> (f32, f32) =\n  (h(x.0.1), -x ** 2 + 1e-3)\n",
    "proc p(data, n = 20) -> f32 {\n  wrap <no_grad, device cpu, timed \"a b\", seed 3> {\n"
    "    mean([f(net(x), y)"
    " for (x, y) in windows(data, 256, batch = 8).take(n)])\n  }\n}\n",
    "var x = tok[ids] + pos[:T, ..., 1::2, a:b:c]\nx[i] += 1; x.f.g @= y\n"
    "x = checkpoint <lean 2, budget = 1.5GiB> "
    "{ b(x) }\n",
    "checkpoint <binomial 60> for (i, (j, _)) in xs {\n"
    "  while not done and i < 3 or a == b { break; continue }\n"
    "  if a { return } else if b { return (1, 2) } else { x }\n}\n",
    "let {loss, _} = misfit(p, seen[0], 0x1f, 1_000, 8MB)\nlet t: [f32[2]] = (a,)\nlet u = ()\n"
    "let l = []\n",
    "print(\"a {x:>+08,.3f} {{b}} {f(y)[0]} \\n"
    " \\u{e9} {peak():.1MiB}\", key = true)  # trailing\n",
    "t .= a.f(1).g(2)\nt.u .= h(3)\n",
    "let s = r\"\\d{2}\" + \"{\"a\" + f(\"b{r\"\\c\"}\"):>3}{d[\"k\"]}\"\n",
    "print(\"\"\"\n    a \"b\" {x:.1f}\n\n      \\\"\"\" {{ {\"q\"}\n    \"\"\", 1)\n",
    "if a {\n  let t = r\"\"\"\n  \\d{\n\t\n   \"\n  \"\"\"\n}\nt = \"\"\"\n \"\"\".trim()\n",
    "let r = (a = 1, b = fn(q: int) -> int { q }, c = fn() = 3)\nlet z = wrap <f (a + b)> { c }\n",
    "let (x, y) = read(\"s\")\n  .windows(256)\n  .shuffle()\n  .first()\n",
    "on(net, fn(path: str, g) {\n  if g { print(\"n\") }\n  g\n})\n",
    "test \"a title\" {\n  # comment\n  assert gradcheck(fn(q) = q.loss, p0, tol = 1e-6)\n}\n",
    "a; b\n\n\n# one\n\n# two\nf(\n  1,  # first\n  2\n  # last\n)\n"
    "let type = model.param(test, as = use)\n",
    "let a = x // y % z @ w ** -v ** 2 - -1 * (not b) + (fn(x) = x)(3)\n{ let a = 1; a }\n",
    "let m = [\n  [1, 2],\n  [3, 4],\n]\nx = a +\n  # why\n  b\nif if a { b } else { c } { d }\n",
};

static const char *const pieces[] = {"fn ",
                                     "let ",
                                     "var ",
                                     "if ",
                                     "else ",
                                     "for ",
                                     "in ",
                                     "while ",
                                     "break",
                                     "continue",
                                     "return ",
                                     "checkpoint ",
                                     "wrap ",
                                     "assert ",
                                     " and ",
                                     " or ",
                                     "not ",
                                     "true",
                                     "false",
                                     "self",
                                     "backward",
                                     "proc ",
                                     "model ",
                                     "param ",
                                     "buffer ",
                                     "policy ",
                                     "type ",
                                     "test ",
                                     "use ",
                                     "as ",
                                     "(",
                                     ")",
                                     "[",
                                     "]",
                                     "{",
                                     "}",
                                     "<",
                                     ">",
                                     "\"",
                                     "\"\"\"\n",
                                     "\n  \"\"\"",
                                     "r\"",
                                     "{\"",
                                     "\"}",
                                     "\\",
                                     "{x}",
                                     "..",
                                     "...",
                                     "->",
                                     "=",
                                     "==",
                                     "+=",
                                     "-",
                                     "**",
                                     "//",
                                     "@",
                                     ",",
                                     ":",
                                     ";",
                                     ".",
                                     "\n",
                                     "#",
                                     "## d\n",
                                     "# c\n",
                                     "1",
                                     "1.5",
                                     "1e9",
                                     "0xff",
                                     "8MB",
                                     "1.",
                                     "x",
                                     "y.0",
                                     "x.in",
                                     "\"s\"",
                                     "\"{x:.3f}\"",
                                     "{{",
                                     "\t",
                                     "\r\n",
                                     "\xc3\xa9",
                                     "\xff",
                                     "&&",
                                     "?",
                                     "'",
                                     "!",
                                     "=>",
                                     "elif ",
                                     "def ",
                                     "_",
                                     " ",
                                     "f(",
                                     "<save none> ",
                                     "(a = 1)",
                                     "-> f32 ",
                                     "[B, T]",
                                     "= e",
                                     "{ }",
                                     "checkpoint <a> {",
                                     "wrap <f x> {",
                                     "0..n",
                                     "not ",
                                     "x[",
                                     ":.2f}"};
static void splice(size_t at, size_t gone, const char *s, size_t n) {
  if (text_n - gone + n > MAX_TEXT) return;
  memmove(text + at + n, text + at + gone, text_n - at - gone);
  memcpy(text + at, s, n);
  text_n = text_n - gone + n;
}

static void mutate(void) {
  text_n = 0;
  for (uint32_t k = 1 + rnd(4); k > 0; k--) adds(corpus[rnd(COUNT(corpus))]);
  for (uint32_t k = rnd(8); k > 0; k--) {
    size_t at = rnd((uint32_t)text_n + 1), len = rnd(1 + rnd(30));
    if (len > text_n - at) len = text_n - at;
    char copy[64];
    switch (rnd(6)) {
    case 0: splice(at, len, "", 0); break;
    case 1:
    case 2: {
      const char *s = pieces[rnd(COUNT(pieces))];
      splice(at, rnd(3) ? 0 : len, s, strlen(s));
      break;
    }
    case 3: { /* move a part */
      memcpy(copy, text + at, len);
      splice(at, len, "", 0);
      splice(rnd((uint32_t)text_n + 1), 0, copy, len);
      break;
    }
    case 4: { /* repeat a part */
      memcpy(copy, text + at, len);
      for (uint32_t r = rnd(rnd(20) ? 4 : 400); r > 0; r--) splice(at, 0, copy, len);
      break;
    }
    default:
      if (at < text_n) text[at] = (char)(rnd(20) ? 32 + rnd(95) : rnd(256));
    }
  }
}

/* Words of rules are names, too, wherever they stand. */
static const char *const names[] = {
    "x",    "y",   "net", "alpha_beta", "_",     "type", "model",
    "test", "use", "as",  "policy",     "param", "e5",   "a_rather_long_name_here"};

/* ---- checks */

static void check_span(void *ud, Node *n) {
  const Node *parent = ud, *value = n->kind == N_ARG ? n->arg.value : n;
  if (value->kind == N_PLACE) return; /* what `x .= ` was, whose place is that of x */
  if (n->span.lo < parent->span.lo || n->span.hi > parent->span.hi || n->span.lo > n->span.hi)
    find("a child's span is not inside its parent's", ast_kind_name((NodeKind)n->kind));
  if (n->height >= parent->height) find("a child is as high as its parent", "");
  ast_children(n, check_span, n);
}

typedef struct World {
  Mem mem;
  Arena arena;
  Names *names;
  Sources src;
  Diags diags;
} World;

static Node *parse(World *w, const char *s, size_t n) {
  ParseContext c = {&w->arena, w->names, &w->src, &w->diags};
  return parse_file(&c, src_add(&w->src, "fuzz", s, n));
}

static long formatted;

static void check(void *ud) {
  World *w = ud;
  clock_t start = clock();
  Node *a = parse(w, text, text_n);
  parse_repl_complete(text, text_n);
  if (w->diags.errors > PARSE_MAX_ERRORS) find("too many errors", "");
  if (a->height > AST_MAX_HEIGHT) find("the tree is too high", "");
  ast_children(a, check_span, a);
  Buf out;
  buf_init_arena(&out, &w->arena);
  for (size_t i = 0; i < w->diags.count; i++) dg_render(&out, &w->src, w->diags.items[i], false);
  if (w->diags.errors == 0) {
    Buf one, two, dump;
    buf_init_arena(&one, &w->arena);
    buf_init_arena(&two, &w->arena);
    buf_init_arena(&dump, &w->arena);
    fmt_file(&one, a, &w->src);
    Node *b = parse(w, one.s, one.n);
    if (w->diags.errors) {
      dg_render(&one, &w->src, w->diags.items[0], false);
      find("the formatted text does not parse", one.s);
    }
    ast_dump(&dump, a);
    buf_puts(&dump, "\n");
    ast_dump(&dump, b);
    buf_puts(&dump, "\n");
    buf_puts(&dump, one.s);
    if (!ast_equal(a, b)) find("the formatted text has another tree", dump.s);
    if (a->file.comment_count != b->file.comment_count) find("a comment was lost", one.s);
    fmt_file(&two, b, &w->src);
    if (strcmp(one.s, two.s) != 0) {
      buf_puts(&one, "\n--- again\n");
      buf_puts(&one, two.s);
      find("formatting again changes the text", one.s);
    }
    formatted++;
  }
  double took = (double)(clock() - start) / CLOCKS_PER_SEC;
  if (took > 2.0) find("this took more than two seconds", "");
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 1;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  printf("fuzz-parse: seed %llu\n", (unsigned long long)state);
  signal(SIGABRT, on_abort);
  state = state * 2654435761u + 88172645463325252ull;
  for (int k = 0; k < GROW_KINDS; k++) grow_names[k] = (GrowNames){names, COUNT(names)};
  long n = 0;
  struct timespec from, now;
  timespec_get(&from, TIME_UTC);
  do {
    if (rnd(2))
      mutate();
    else
      grow(1 + rnd(4));
    text[text_n] = 0;
    World w;
    mem_init(&w.mem, NULL, NULL);
    arena_init(&w.arena, &w.mem);
    w.names = names_new(&w.arena);
    src_init(&w.src, &w.arena);
    dg_init(&w.diags, &w.arena, &w.mem);
    if (mem_protect(&w.mem, check, &w) != MEM_OK) find("parsing threw", "");
    arena_free(&w.arena);
    if (w.mem.live) find("memory leaked", "");
    mem_close(&w.mem);
    n++;
    timespec_get(&now, TIME_UTC);
  } while ((double)(now.tv_sec - from.tv_sec) + 1e-9 * (double)(now.tv_nsec - from.tv_nsec) <
           seconds);
  printf("fuzz-parse: %ld texts, %ld formatted\n", n, formatted);
  return 0;
}
