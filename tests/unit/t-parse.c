/* The parser: what each construct becomes, what is said about each slip, where limits are. */
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
  Node *file;
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
  return w->file = parse_file(&c, src_add(&w->src, "t", text, n));
}

/* ---- trees */

typedef struct Row {
  const char *text, *expect;
} Row;

static const Row trees[] = {
    {"1 + 2 * 3", "(do (binary + 1 (binary * 2 3)))"},
    {"a or b and not c == d", "(do (binary or a (binary and b (unary not (binary == c d)))))"},
    {"not a < b", "(do (unary not (binary < a b)))"},
    {"-x ** 2", "(do (unary - (binary ** x 2)))"},
    {"2 ** -1 ** x", "(do (binary ** 2 (unary - (binary ** 1 x))))"},
    {"a - b - c", "(do (binary - (binary - a b) c))"},
    {"a ** b ** c", "(do (binary ** a (binary ** b c)))"},
    {"0..n + 1", "(do (binary .. 0 (binary + n 1)))"},
    {"-1..-n", "(do (binary .. (unary - 1) (unary - n)))"},
    {"a @ b // c % d / e", "(do (binary / (binary % (binary // (binary @ a b) c) d) e))"},
    {"a <= b", "(do (binary <= a b))"},
    {"1_000 + 0xff + 1.5 + 1e-3 + 8MB + 1.5GiB + 0.1GiB + 12B",
     "(do (binary + (binary + (binary + (binary + (binary + (binary + (binary + 1000 "
     "255) 1.5) 0.001) 8000000) 1610612736) 107374182) 12))"},
    {"x.in + x.test.for + t.0.1",
     "(do (binary + (binary + (dot x in) (dot (dot x test) for)) (item (item t 0) 1)))"},
    {"t.0(1)", "(do (call (item t 0) (arg 1)))"},
    {"x.f(a, k = 3, model = 4,)", "(do (call (dot x f) (arg a) (arg k = 3) (arg model = 4)))"},
    {"f()()", "(do (call (call f)))"},
    {"x[1, ..., :, 1:, :2, 1:2, ::3, 1:2:3, i + 1]",
     "(do (index x 1 ... (slice - - -) (slice 1 - -) (slice - 2 -) (slice 1 2 -) "
     "(slice - - 3) (slice 1 2 3) (binary + i 1)))"},
    {"(a) + ((b))", "(do (binary + a b))"},
    {"()", "(do ())"},
    {"(a,)", "(do (tuple a))"},
    {"(a, b,)", "(do (tuple a b))"},
    {"(x = 1, y = 2,)", "(do (record (arg x = 1) (arg y = 2)))"},
    {"[]", "(do (list))"},
    {"[a, b,]", "(do (list a b))"},
    {"[s <= t for t in 0..T, (s, _) in xs]",
     "(do (comp (binary <= s t) (in t (binary .. 0 T)) (in (pat-tuple s _) xs)))"},
    {"[:]", "(do (dict))"},
    {"[\"a\": 1, k: [2],]", "(do (dict (entry (string \"a\") 1) (entry k (list 2))))"},
    {"[k: v + 1 for (k, v) in d if k in s]",
     "(do (comp (entry k (binary + v 1)) (in (pat-tuple k v) d (binary in k s))))"},
    {"let d: [(str, int): [f32[n]]] = d",
     "(let d : (type-dict (type-tuple str int) (type-list (type-name f32 n))) d)"},
    {"{ a; b }", "(do (block (do a) (do b)))"},
    {"{ }", "(do (block))"},
    {"if a { b } else if c { d } else { e }",
     "(do (if a (block (do b)) (if c (block (do d)) (block (do e)))))"},
    {"(if a { b } else { c }) + 1", "(do (binary + (if a (block (do b)) (block (do c))) 1))"},
    {"if {a} { b }", "(do (if (block (do a)) (block (do b))))"},
    {"fn(x) = x + 1", "(do (lambda (param x) = (binary + x 1)))"},
    {"fn(x: f32, k = 3) -> f32 { x }",
     "(do (lambda (param x : f32) (param k = 3) -> f32 (block (do x))))"},
    {"f(fn() = 1, 2)", "(do (call f (arg (lambda = 1)) (arg 2)))"},
    {"wrap <train, bf16, seed 3, timed \"x\", with_params net tree, f (a + b), backward "
     "plain> { x }",
     "(do (wrap (clause train) (clause bf16) (clause seed 3) (clause timed (string "
     "\"x\")) (clause with_params net tree) (clause f (binary + a b)) (clause backward "
     "plain) (block (do x))))"},
    {"wrap <f g.h(x, k = 1)(2) (3), f (a, b) (c = 1)> { x }",
     "(do (wrap (clause f (call (call (dot g h) (arg x) (arg k = 1)) (arg 2)) 3) "
     "(clause f (tuple a b) (record (arg c = 1))) (block (do x))))"},
    {"checkpoint { x }", "(do (checkpoint (block (do x))))"},
    {"checkpoint <save matmul attn.att, recompute all, budget = 1.5GiB, lean 2> { x } "
     "+ 1",
     "(do (binary + (checkpoint (clause save matmul attn.att) (clause recompute all) "
     "(clause budget = 1610612736) (clause lean 2) (block (do x))) 1))"},
    {"\"a\\n\\t\\\\\\\"\\u{e9}{{}}\"", "(do (string \"a\\n\\t\\\\\\\"é{}\"))"},
    {"\"{x:>+08,.2KiB}{z:%}{i:d}{{{i}}}\"",
     "(do (string (hole x :>+08,.2K) (hole z :%) (hole i :d) \"{\" (hole i) \"}\"))"},
    {"\"\"", "(do (string))"},
    {"let x = 3", "(let x 3)"},
    {"var (a, (b, _), {c, d}): (f32, any) = e",
     "(var (pat-tuple a (pat-tuple b _) (pat-record c d)) : (type-tuple f32 any) e)"},
    {"let (x) = e", "(let x e)"},
    {"let type: [f32[B, 2 * d, ...S, ...]] = e",
     "(let type : (type-list (type-name f32 B (binary * 2 d) ...S ...)) e)"},
    {"let f: fn(int, path: str) -> (a: f32, b: ()) = e",
     "(let f : (type-fn int (type-field path str) -> (type-record (type-field a f32) "
     "(type-field b (type-tuple)))) e)"},
    {"let t: (f32,) = e", "(let t : (type-tuple f32) e)"},
    {"let t: (f32) = e", "(let t : f32 e)"},
    {"let t: data.Table = e", "(let t : data.Table e)"},
    {"let m: params[net] = e", "(let m : (type-name params net) e)"},
    {"x = 3", "(assign = x 3)"},
    {"(a, _, b[0]) = c",
     "(do (block (let (pat-tuple  0 _  1) c) (assign = a  0) (assign = (index b 0)  1)))"},
    {"x[i].f += 3", "(assign + (dot (index x i) f) 3)"},
    {"x -= 1; x *= 2; x /= 3; x @= y", "(assign - x 1)\n"
                                       "(assign * x 2)\n"
                                       "(assign / x 3)\n"
                                       "(assign @ x y)"},
    {"for i in 0..n { break; continue }", "(for i (binary .. 0 n) (block (break) (continue)))"},
    {"checkpoint <binomial 60> for (a, b) in xs { }",
     "(for checkpoint (clause binomial 60) (pat-tuple a b) xs (block))"},
    {"checkpoint while a { }", "(while checkpoint a (block))"},
    {"while not done { return }", "(while (unary not done) (block (return)))"},
    {"return", "(return)"},
    {"assert a == b", "(assert (binary == a b))"},
    {"use data.sub", "(use data.sub)"},
    {"use nn (Linear, Conv2d)", "(use nn (Linear Conv2d))"},
    {"use nn as n", "(use nn as n)"},
    {"use \"gpt.ckl\" as gpt", "(use \"gpt.ckl\" as gpt)"},
    {"use \"gpt.ckl\" (Gpt,)", "(use \"gpt.ckl\" (Gpt))"},
    {"type Fit = (loss: f64, at_end: f64[2])",
     "(type Fit (type-record (type-field loss f64) (type-field at_end (type-name f64 "
     "2))))"},
    {"policy lean { save matmul, recompute pointwise }",
     "(policy lean (clause save matmul) (clause recompute pointwise))"},
    {"policy half { save matmul a.b as bf16, save as as u8 }",
     "(policy half (clause save as bf16 matmul a.b) (clause save as u8 as))"},
    {"policy lean(n, k = 2) {\n"
     "  every (n),\n"
     "  save matmul\n"
     "}",
     "(policy lean (param n) (param k = 2) (clause every n) (clause save matmul))"},
    {"test \"a title\" { assert true }", "(test (string \"a title\") (block (assert true)))"},
    {"model M { }", "(model M)"},
    {"model M(n: int) {\n"
     "  param w: f32[n]\n"
     "  buffer m: f32 = 0; let l: M = M(3)\n"
     "  assert n > 0\n"
     "  fn forward(x) = x\n"
     "  proc p() { }\n"
     "}",
     "(model M (param n : int) (param-field w (type-name f32 n)) (buffer m f32 0) "
     "(let l : M (call M (arg 3))) (assert (binary > n 0)) (fn forward (param x) = x) "
     "(fn proc p (block)))"},
    {"fn f[B, T](x: f32[B, T], k = 1) -> f32[B] { x } backward(g) { g }",
     "(fn f [B T] (param x : (type-name f32 B T)) (param k = 1) -> (type-name f32 B) "
     "(block (do x)) backward (param g) (block (do g)))"},
    {"fn f(x) = x backward (g) = 2 * g",
     "(fn f (param x) = x backward (param g) = (binary * 2 g))"},
    {"fn f(x) {\n"
     "  fn g(y) = y\n"
     "  g(x)\n"
     "}",
     "(fn f (param x) (block (fn g (param y) = y) (do (call g (arg x)))))"},
    {"let (train, test) = split(model, as = use)",
     "(let (pat-tuple train test) (call split (arg model) (arg as = use)))"},
    {"type and policy", "(do (binary and type policy))"},
    {"policy.act(param)", "(do (call (dot policy act) (arg param)))"},
    {"for type in model { }", "(for type model (block))"},
    {"x\n"
     "  .f()\n"
     "  # why\n"
     "  .g()",
     "(do (call (dot (call (dot x f)) g)))"},
    {"f(\n"
     "  a\n"
     "  ,\n"
     "  b\n"
     ")",
     "(do (call f (arg a) (arg b)))"},
    {"a +\n"
     "  b",
     "(do (binary + a b))"},
    {"x; y;", "(do x)\n"
              "(do y)"},
    {"if a { b }\n"
     "-c",
     "(do (if a (block (do b))))\n"
     "(do (unary - c))"},
    {"## One.\n"
     "## Two.\n"
     "fn f() = 1",
     "(fn f = 1)"},
    {"## Not this.\n"
     "\n"
     "# nor this\n"
     "fn f() = 1",
     "(fn f = 1)"},
    {"g.blocks.0.attn.qkv.w == none",
     "(do (binary == (dot (dot (dot (item (dot g blocks) 0) attn) qkv) w) none))"},
    {"\"x {if a { b } else { c }}\"",
     "(do (string \"x \" (hole (if a (block (do b)) (block (do c))))))"},
    {"\"{d[\"a\"]}{\"{\"b\"}\":>3}\"",
     "(do (string (hole (index d (string \"a\"))) (hole (string (hole (string \"b\"))) :>3)))"},
    {"r\"\\d{2}\" + r\"\"", "(do (binary + (string \"\\\\d{2}\") (string)))"},
    {"f(\"\"\"\r\n\ta {x}\r\n\n\t  \"b\"\\n{{\n\t\"\"\")",
     "(do (call f (arg (string \"a \" (hole x) \"\\n\\n  \\\"b\\\"\\n{\"))))"},
    {"r\"\"\"\n  \\n{x}\n   \n  \"\"\"", "(do (string \"\\\\n{x}\\n \"))"},
    {"\"\"\"\n\"\"\"", "(do (string))"},
    {"x[{ a }]", "(do (index x (block (do a))))"},
    {"3.f()", "(do (call (dot 3 f)))"},
    {"0..1.5", "(do (binary .. 0 1.5))"},
    {"a. b", "(do (dot a b))"},
    {"wrap <f> { a }.g", "(do (dot (wrap (clause f) (block (do a))) g))"},
    {"let x: f32[_, 3] = y", "(let x : (type-name f32 _ 3) y)"},
    {"let {x} = y", "(let (pat-record x) y)"},
};

static void t_tree(const Row *row) {
  World w;
  open_world(&w);
  Node *file = parse(&w, row->text, strlen(row->text));
  Buf out;
  buf_init_arena(&out, &w.arena);
  for (uint32_t i = 0; i < file->file.items.count; i++) {
    if (i) buf_putc(&out, '\n');
    ast_dump(&out, file->file.items.items[i]);
  }
  check_size(w.diags.count, ==, 0);
  check_str(out.s, row->expect);
  close_world(&w);
}

/* ---- errors: place, code, message, help */

static const Row errors[] = {
    {"if x = 3 { y }", "1:6 syntax-11 `=` assigns; here a condition stands\n"
                       "  help: to compare write `==`\n"},
    {"if x\n"
     "  y",
     "1:5 syntax-9 the body `{ .. }` of the `if` is missing\n"},
    {"if x { y }\n"
     "else { z }",
     "2:1 syntax-10 `else` stands on the line of the `}`\n"
     "  help: write `} else {`\n"},
    {"fn f(x)\n"
     "{ x }",
     "2:1 syntax-9 the `{` of a body stands on the line of its header\n"},
    {"let f = fn(x) => x", "1:15 syntax-12 `=>` is written `=`\n"},
    {"let y = x ? a : b", "1:11 syntax-2 `?` does not belong here\n"
                          "  help: a choice is written `if c { a } else { b }`\n"},
    {"if a { b } elif c { d } else { e }", "1:12 syntax-12 `elif` is written `else if`\n"},
    {"def f(x):\n"
     "  return x",
     "1:1 syntax-12 a function is declared with `fn`\n"
     "  help: fn f(x) = e, or fn f(x) { .. }\n"},
    {"class Foo { }", "1:1 syntax-12 a class is a `model`\n"
                      "  help: model M(n: int) { param w: f32[n]  fn forward(x) = .. }\n"},
    {"import numpy",
     "1:1 syntax-12 declarations are brought by `use`\n"
     "  help: functions of tensors need none; use nn (Linear), or use \"file.ckl\" as m\n"},
    {"let f = lambda x: x", "1:9 syntax-12 a function is written `fn(x) = e`\n"},
    {"let a = True && None || !x", "1:9 syntax-12 `True` is written `true`\n"
                                   "1:14 syntax-12 `&&` is written `and`\n"
                                   "1:17 syntax-12 `None` is written `none`\n"
                                   "1:22 syntax-12 `||` is written `or`\n"
                                   "1:25 syntax-12 `!` is written `not`\n"},
    {"// comment here it's\n"
     "let x = 1 // comment words",
     "1:1 syntax-19 comments begin with `#`; `//` is division that rounds down\n"
     "2:11 syntax-19 comments begin with `#`; `//` is division that rounds down\n"},
    {"let y = a if c else b", "1:11 syntax-17 a choice is written `if c { a } else { b }`\n"},
    {"f(x) { y }", "1:6 syntax-18 a block is no argument of a call\n"
                   "  help: write `f(x, fn() { .. })`, or `wrap <f x> { .. }`\n"},
    {"assert a < b < c", "1:14 syntax-13 comparisons do not chain\n"
                         "  help: write `a < b and b < c`\n"},
    {"let z = checkpoint <matmul { x }",
     "1:28 syntax-7 the `<` of this policy is not closed\n"
     "  help: write `>` before the block, as in `checkpoint <save none> { .. }`\n"},
    {"let s = \"abc\n"
     "let t = 3",
     "1:9 syntax-4 this string has no end on its line\n"
     "  help: a string ends with `\"` on the line it begins; a newline in it is `\\n`, or the "
     "text stands between lines of `\"\"\"`\n"},
    {"let s = \"a\\qb {x:.2q} {y\"",
     "1:11 syntax-5 no escape is written `\\q`\n"
     "  help: escapes are \\n \\t \\\\ \\\" and \\u{..}; a backslash alone is `\\\\`\n"
     "1:18 syntax-6 `.2q` is not a format\n"
     "  help: a format is [<>^][+][0][width][,][.digits] and one of d x e f g % KiB "
     "MiB GiB, as in {x:8.3f}; width is at most 999, digits 99\n"
     "1:23 syntax-4 this hole of the string is not closed\n"
     "  help: a hole ends with `}`; a brace as text is `{{`\n"},
    {"let a = 1. + 0x + 2x + 8mb + 0b1",
     "1:9 syntax-3 `1.` is not a number\n"
     "  help: a digit follows the dot, as in 1.0; a range is 0..n\n"
     "1:14 syntax-3 `0x` is not a number\n"
     "  help: a hexadecimal number is `0x` and digits 0-9 a-f, as in 0xff\n"
     "1:19 syntax-3 `2x` is not a number\n"
     "  help: a name does not begin with a digit; a product is written `2 * x`\n"
     "1:24 syntax-3 `8mb` is not a number\n"
     "  help: units of size are B KB MB GB TB KiB MiB GiB TiB, as in 8MB\n"
     "1:30 syntax-3 `0b1` is not a number\n"
     "  help: numbers are decimal, or hexadecimal as in 0xff\n"},
    {"let a = (1 + 2]", "1:15 syntax-7 `]` does not close the `(` that is open here\n"},
    {"let a = f(1, 2\n"
     "let b = 3",
     "1:10 syntax-7 this `(` is not closed\n"},
    {"fn f(x) {\n"
     "  let y = (x + \n"
     "}\n"
     "fn g(x) { x }",
     "3:1 syntax-7 `}` does not close the `(` that is open here\n"},
    {"fn f(x) {\n"
     "  if x { y\n"
     "\n"
     "fn g(x) { x }",
     "2:8 syntax-7 this `{` is never closed\n"},
    {"let a = 'abc'", "1:9 syntax-4 strings stand between double quotes\n"
                      "  help: write \"text\"\n"},
    {"x++", "1:2 syntax-12 there is no `++`\n"
            "  help: write `x += 1`\n"},
    {"let x\n"
     "var y",
     "1:6 syntax-1 a `let` or `var` has a value\n"
     "  help: let x = e\n"
     "2:6 syntax-1 a `let` or `var` has a value\n"
     "  help: let x = e\n"},
    {"fn f(int x) { x }", "1:10 syntax-1 the type of a parameter follows its name\n"
                          "  help: x: int\n"},
    {"let in = 3", "1:5 syntax-1 `in` is a word of the language and cannot be a name\n"
                   "  help: choose another name; after a dot every word is a name\n"},
    {"wrap no_grad { x }", "1:6 syntax-1 the words of a `wrap` stand in `< >`\n"
                           "  help: wrap <no_grad> { .. }\n"},
    {"wrap <no_grad, 1+2> { x }",
     "1:16 syntax-1 this does not fit in a policy\n"
     "  help: a policy holds words, numbers and calls, as in <save matmul, budget = 2GiB>; "
     "other expressions stand in parentheses\n"},
    {"{x: 1}", "1:3 syntax-12 a dict is written in brackets: `[x: 1]`\n"
               "  help: a record is `(x = 1, y = 2)`\n"},
    {"for i = 0 { }", "1:7 syntax-11 a `for` runs over a range, a tensor, a list or a sequence\n"
                      "  help: for i in 0..n { .. }\n"},
    {"let x == 3", "1:7 syntax-11 here `=` gives the value\n"
                   "  help: write `let x = e`\n"},
    {"print \"hello\"", "1:1 syntax-12 a call has parentheses\n"
                        "  help: print(x)\n"},
    {"f(a b)", "1:5 syntax-1 a `,` or an operator is missing before `b`\n"},
    {"let (a, b = 3", "1:11 syntax-1 expected `)` or `,`, found `=`\n"},
    {"a.b.0.c = 3\n"
     "f(x) = 3\n"
     "(a, b) += c",
     "2:1 syntax-14 only a name, a field or an index can be assigned\n"
     "  help: a function is declared with `fn f(x) = e`\n"
     "3:1 syntax-14 only a name, a field or an index can be assigned\n"
     "  help: several places are assigned by `=`: `(a, b) = (a + 1, b + 1)`\n"},
    {"fn f(x) { model M { } \n"
     " param x: f32 }\n"
     "param y: f32",
     "1:11 syntax-15 a `model` is declared at the top level of a file\n"
     "  help: move it out of the block\n"
     "2:2 syntax-15 a param or buffer belongs to a `model`\n"
     "  help: `param` and `buffer` are members: model M(..) { param w: f32[3] }\n"
     "3:1 syntax-15 a param or buffer belongs to a `model`\n"
     "  help: `param` and `buffer` are members: model M(..) { param w: f32[3] }\n"},
    {"model M { x = 3\n"
     " for i in 0..3 { }\n"
     " var z = 3\n"
     " let (a, b) = c\n"
     "}",
     "1:11 syntax-15 this is no member of a model\n"
     "  help: members are param, buffer, let, assert, fn and proc; what runs stands "
     "in a fn\n"
     "2:2 syntax-15 this is no member of a model\n"
     "  help: members are param, buffer, let, assert, fn and proc; what runs stands "
     "in a fn\n"
     "3:2 syntax-15 a model has no `var`\n"
     "  help: a value that changes is a `buffer`; one that does not is a `let`\n"
     "4:2 syntax-15 a field has one plain name\n"
     "  help: write one `let` per field\n"},
    {"let a = [1, 2", "1:9 syntax-7 this `[` is never closed\n"},
    {"print(\"{a + \")",
     "1:8 syntax-4 this hole of the string is not closed\n"
     "  help: a hole ends with `}`; a `\"` in it begins another string; a brace as text is `{{`\n"},
    {"f(\"\"\"\n  a {1}",
     "1:3 syntax-4 this text has no end\n"
     "  help: a text of several lines ends with `\"\"\"` on a line of its own\n"
     "1:2 syntax-7 this `(` is never closed\n"},
    {"r\"\"\"\n  a\n b\n\n  \"\"\"\n\"b",
     "3:1 syntax-4 this line is indented less than the end of its text\n"
     "  help: the indentation of the closing `\"\"\"` is cut off from each line\n"
     "6:1 syntax-4 this string has no end on its line\n"
     "  help: a string ends with `\"` on the line it begins; a newline in it is `\\n`, or the "
     "text stands between lines of `\"\"\"`\n"},
    {"print(\"{}\")",
     "1:8 syntax-4 this hole of the string is empty\n"
     "  help: a hole holds the value: \"{x}\"; a brace as text is doubled: `{{` and `}}`\n"},
    {"let y = x.f(fn(a) {\n"
     "  let b = a +\n"
     "  b * \n"
     "})\n"
     "let z = 2 2",
     "4:1 syntax-1 expected an expression, found `}`\n"
     "5:11 syntax-1 the number `2` follows an expression without an operator between "
     "them\n"
     "  help: a product is written `2 * x`; statements on one line are separated by "
     "`;`\n"},
    {")", "1:1 syntax-7 this `)` closes nothing\n"},
    {"let x = }", "1:9 syntax-7 this `}` closes nothing\n"},
    {"type T = (a: f32, f32)", "1:10 syntax-20 some items of this type have names, some have none\n"
                               "  help: a tuple is (A, B), a record is (x: A, y: B)\n"},
    {"x = 3 +", "1:8 syntax-1 expected an expression, found the end of the file\n"},
    {"if x: \n"
     "  y",
     "1:5 syntax-9 the body of the `if` stands in braces, not after `:`\n"
     "  help: write `{ .. }` instead of `:`\n"},
    {"let x = .5", "1:9 syntax-3 a digit stands before the dot\n"
                   "  help: write 0.5\n"},
    {"if (a) b", "1:8 syntax-9 the body `{ .. }` of the `if` is missing\n"
                 "  help: a body always stands in braces\n"},
    {"use \"a{b}c\"", "1:5 syntax-4 this text is fixed: it can have no holes\n"},
    {"let f: fn(int) = 3", "1:16 syntax-1 expected `->`, found `=`\n"},
    {"(x, y) -> x", "1:8 syntax-12 a function is written `fn(x) = e`\n"},
    {"for x in y z { }", "1:12 syntax-9 the body `{ .. }` of the `for` is missing\n"
                         "  help: a body always stands in braces\n"},
    {"xs[1:2:3:4]", "1:9 syntax-1 expected an operator, `]` or `,`, found `:`\n"},
    {"a..b..c", "1:5 syntax-13 ranges do not chain\n"
                "  help: a slice with a step is `x[a:b:c]`, of a range `step_by(a..b, c)`\n"},
    {"let x = “hi”", "1:9 syntax-2 `“` does not belong here\n"
                     "  help: strings stand between straight quotes: \"text\"\n"},
    {"let é = 3", "1:5 syntax-2 `é` does not belong here\n"
                  "  help: names are made of a-z A-Z 0-9 _; other letters stand in strings and "
                  "comments\n"},
    {"return return", "1:8 syntax-1 expected an expression, found the word `return`\n"},
    {"fn f(x) = x\n"
     "backward(g) { g }",
     "2:1 syntax-10 `backward` stands on the line where the body of its function ends\n"},
    {"fn (x", "1:4 syntax-7 this `(` is never closed\n"},
    {"@jit\n"
     "fn f(x) = x",
     "1:1 syntax-12 there are no decorators\n"
     "  help: a block with a mode is wrap <no_grad> { .. }\n"},
    {"f(*args)", "1:3 syntax-1 the number of arguments is fixed\n"
                 "  help: pass a list or a tuple\n"},
    {"else { 3 }", "1:1 syntax-10 this `else` belongs to no `if`\n"
                   "  help: write `if c { a } else { b }`, with `else` on the line of the `}`\n"},
    {"let x = 99999999999999999999",
     "1:9 syntax-3 this number does not fit in 64 bits: the largest int is "
     "9223372036854775807\n"},
    {"let x = if a { b }\n"
     "elif c { d }",
     "2:1 syntax-12 `elif` is written `else if`, on the line of the `}`\n"
     "  help: if a { .. } else if b { .. }\n"},
    {"if x { y }\n"
     "else if z { z }\n"
     "let a = 3",
     "2:1 syntax-10 `else` stands on the line of the `}`\n"
     "  help: write `} else {`\n"},
    {"let x", "1:6 syntax-1 a `let` or `var` has a value\n"
              "  help: let x = e\n"},
    {"fn f(x) {\n"
     "  if x\n"
     "    y\n"
     "  }\n"
     "  z\n"
     "}\n"
     "let a =\n"
     "let b = )",
     "2:7 syntax-9 the body `{ .. }` of the `if` is missing\n"
     "8:1 syntax-1 expected an expression, found the word `let`\n"
     "8:9 syntax-7 this `)` closes nothing\n"},
    {"x ==", "1:5 syntax-1 expected an expression, found the end of the file\n"},
    {"x--", "1:2 syntax-12 there is no `--`\n"
            "  help: write `x -= 1`\n"},
    {"x = [\n"
     "  1\n"
     "  2\n"
     "]",
     "3:3 syntax-1 a `,` or an operator is missing before the number `2`\n"},
    {"let a = {x, y}", "1:11 syntax-1 a set is written `set(list(a, b))`\n"},
    {"f(a \"b\")", "1:5 syntax-1 a `,` or an operator is missing before a string\n"},
    {"if a { b } else c", "1:17 syntax-9 the body `{ .. }` of the `else` is missing\n"
                          "  help: a body always stands in braces\n"},
    {"while x\n"
     "  y",
     "1:8 syntax-9 the body `{ .. }` of the `while` is missing\n"},
    {"for x in xs\n"
     "  y",
     "1:12 syntax-9 the body `{ .. }` of the `for` is missing\n"},
    {"test \"a\"", "1:9 syntax-9 the body `{ .. }` of the `test` is missing\n"},
    {"wrap <a>\n"
     "  x",
     "2:3 syntax-9 the body `{ .. }` of the `wrap` is missing\n"
     "  help: a body always stands in braces\n"},
    {"model M(n: int)", "1:16 syntax-9 the body `{ .. }` of the `model` is missing\n"},
    {"fn f(x)\n"
     "  x",
     "1:8 syntax-9 the body `{ .. }` of the function is missing\n"},
    {"x is none", "1:3 syntax-12 `is` is written `==`\n"
                  "  help: x == none; same(a, b) compares identity\n"},
    {"unless x { y }", "1:1 syntax-12 `unless c` is written `if not c`\n"},
    {"try { x }", "1:1 syntax-12 there are no exceptions to catch\n"
                  "  help: `error_of(f)` runs f and gives its error, or none\n"},
    {"const x = 3", "1:1 syntax-12 a value that does not change is a `let`\n"
                    "  help: let x = e\n"},
    {"x = y = 3", "1:7 syntax-11 `=` cannot stand inside an expression\n"
                  "  help: to compare write `==`; to assign use a statement of its own\n"},
    {"f(a.b = 3)", "1:7 syntax-11 the name of an argument has no dot\n"},
    {"x not y", "1:7 syntax-1 expected `in`, found `y`\n"},
    {"x in y in z", "1:8 syntax-13 comparisons do not chain\n"
                    "  help: write `a < b and b < c`\n"},
    {"let x: f32[3 = y\n"
     "let z = 4",
     "1:14 syntax-11 `=` cannot stand inside an expression\n"
     "  help: to compare write `==`; to assign use a statement of its own\n"},
    {"let a = b\n"
     "  + c\n"
     "let d = * e",
     "2:3 syntax-1 a line does not begin with an operator\n"
     "  help: put it at the end of the line before; inside parentheses a line may "
     "break anywhere\n"
     "3:9 syntax-1 expected an expression, found `*`\n"},
    {"\"{x\" + y", "1:2 syntax-4 this hole of the string is not closed\n"
                   "  help: a hole ends with `}`; a brace as text is `{{`\n"},
    {"\"a } b\"", "1:4 syntax-4 this `}` closes no hole of the string\n"
                  "  help: a brace in a string is doubled: `}}`\n"},
    {"\"{x # c}\"", "1:2 syntax-4 this hole of the string is not closed\n"
                    "  help: a hole holds no comment\n"},
    {"let a = 0.5f", "1:9 syntax-3 `0.5f` is not a number\n"
                     "  help: numbers have no suffix; a cast is written `f32(1.5)`\n"},
    {"let a = 1__0", "1:9 syntax-3 `1__0` is not a number\n"
                     "  help: `_` stands between two digits, as in 1_000\n"},
    {"let a = 1e", "1:9 syntax-3 `1e` is not a number\n"
                   "  help: digits follow the `e`, as in 1e-3\n"},
    {"let s = \"\\u{d800}\\u{}\"",
     "1:10 syntax-5 this is not a character\n"
     "  help: a character by number is `\\u{..}` with 1 to 6 hexadecimal digits, as in "
     "\\u{e9}\n"
     "1:18 syntax-5 this is not a character\n"
     "  help: a character by number is `\\u{..}` with 1 to 6 hexadecimal digits, as in "
     "\\u{e9}\n"},
    {"use 3", "1:5 syntax-1 the number `3` follows an expression without an operator between "
              "them\n"
              "  help: a call has parentheses: f(x); statements on one line are separated by "
              "`;`\n"},
    {"policy p { }", "1:12 syntax-1 expected a name, found `}`\n"},
    {"type = x\n"
     "let type",
     "2:9 syntax-1 a `let` or `var` has a value\n"
     "  help: let x = e\n"},
    {"fn f(x, x: ) = 3", "1:12 syntax-1 expected a type, found `)`\n"},
    {"x === y", "1:3 syntax-12 `===` is written `==`\n"},
    {"a <> b", "1:3 syntax-12 `<>` is written `!=`\n"},
    {"x +=", "1:5 syntax-1 expected an expression, found the end of the file\n"},
    {"m[1:2", "1:2 syntax-7 this `[` is never closed\n"},
    {"switch x { }", "1:1 syntax-12 there is no `switch`\n"
                     "  help: if a { .. } else if b { .. } else { .. }\n"},
    {"for i in 0..n do { }", "1:15 syntax-12 there is no `do`\n"
                             "  help: for i in 0..n { .. }\n"},
    {"return 1 2", "1:10 syntax-1 the number `2` follows an expression without an operator between "
                   "them\n"
                   "  help: a product is written `2 * x`; statements on one line are separated by "
                   "`;`\n"},
    {"let x = \"a\" \"b\"",
     "1:13 syntax-1 a string follows an expression without an operator between them\n"
     "  help: a product is written `2 * x`; statements on one line are separated by "
     "`;`\n"},
    {"a ^ b", "1:3 syntax-2 `^` does not belong here\n"
              "  help: a power is written `x ** 2`\n"},
    {"x & y", "1:3 syntax-2 `&` does not belong here\n"
              "  help: logic is written `and`, `or`, also for bool tensors\n"},
    {"f(x)[", "1:5 syntax-7 this `[` is never closed\n"},
    {"print(“a”)", "1:7 syntax-2 `“` does not belong here\n"
                   "  help: strings stand between straight quotes: \"text\"\n"},
    {"lambda: 3", "1:1 syntax-12 a function is written `fn(x) = e`\n"},
    {"new Foo()", "1:1 syntax-12 an instance is made by a call\n"
                  "  help: Mlp(64, 10)\n"},
    {"proc f(x) { proc g() { } }",
     "1:13 syntax-15 a `proc` is declared at the top level of a file\n"
     "  help: a `fn` can be declared inside a block\n"},
    {"while x { let = 3 }\n"
     "let y = ]\n"
     "let z = 3 }",
     "1:15 syntax-1 expected a name or pattern, found `=`\n"
     "2:9 syntax-7 this `]` closes nothing\n"
     "3:11 syntax-7 this `}` closes nothing\n"},
    {"a = (1, b = 2)", "1:11 syntax-20 some items have names, some have none\n"
                       "  help: a tuple is (a, b), a record is (x = a, y = b)\n"},
    {"fn f[3](x) = x", "1:6 syntax-1 expected a name, found the number `3`\n"},
    {"x.", "1:3 syntax-1 a name or a number follows the dot\n"
           "  help: x.f, t.0\n"},
    {"x.(3)", "1:2 syntax-12 operators and functions work element by element\n"
              "  help: write them without a dot: x * y, exp(x)\n"},
    {"x .+ 1", "1:3 syntax-12 operators and functions work element by element\n"
               "  help: write them without a dot: x * y, exp(x)\n"},
    {"f(1:2)", "1:4 syntax-12 a range is written `a..b`, without its end\n"
               "  help: 1:10 elsewhere is 1..11\n"},
    {"checkpoint x", "1:12 syntax-9 the body `{ .. }` of the `checkpoint` is missing\n"
                     "  help: a body always stands in braces\n"},
    {"checkpoint <save", "1:12 syntax-7 this `<` is never closed\n"},
    {"t.0x3", "1:3 syntax-3 `0x3` is not a number\n"
              "  help: an item of a tuple is a plain number, as in t.0\n"},
    {"let a = b\n"
     "  + c",
     "2:3 syntax-1 a line does not begin with an operator\n"
     "  help: put it at the end of the line before; inside parentheses a line may "
     "break anywhere\n"},
    {"let x: f32[3 = y", "1:14 syntax-11 `=` cannot stand inside an expression\n"
                         "  help: to compare write `==`; to assign use a statement of its own\n"},
    {"x\n"
     "  == y",
     "2:3 syntax-1 a line does not begin with an operator\n"
     "  help: put it at the end of the line before; inside parentheses a line may "
     "break anywhere\n"},
    {"let x = a ?? b", "1:11 syntax-2 `?` does not belong here\n"
                       "  help: a choice is written `if c { a } else { b }`\n"},
    {"x = $y", "1:5 syntax-2 `$` does not belong here\n"
               "  help: a value in a string is written \"{x}\"\n"},
    {"\"a",
     "1:1 syntax-4 this string has no end on its line\n"
     "  help: a string ends with `\"` on the line it begins; a newline in it is `\\n`, or the "
     "text stands between lines of `\"\"\"`\n"},
};

static void t_error(const Row *row) {
  World w;
  open_world(&w);
  parse(&w, row->text, strlen(row->text));
  Buf out;
  buf_init_arena(&out, &w.arena);
  for (size_t i = 0; i < w.diags.count; i++) {
    const Diag *g = w.diags.items[i];
    uint32_t line, col;
    src_place(&w.src, g->span.file, g->span.lo, &line, &col);
    buf_printf(&out, "%u:%u %s %s\n", line, col, err_info[g->code].code, g->message);
    if (g->help) buf_printf(&out, "  help: %s\n", g->help);
  }
  check_str(out.s, row->expect);
  close_world(&w);
}

static void t_rows(const Row *rows, size_t n, void (*test)(const Row *)) {
  for (size_t i = 0; i < n; i++) {
    long before = tap_bad;
    test(&rows[i]);
    if (tap_bad > before) tap_note("in: %s", rows[i].text);
  }
}

/* ---- recovery */

static size_t errors_in(const char *text, size_t n, uint32_t *height, const char **code) {
  World w;
  open_world(&w);
  Node *file = parse(&w, text, n);
  size_t e = w.diags.errors;
  *height = file->height;
  if (code) *code = w.diags.count ? err_info[w.diags.items[0]->code].code : "";
  close_world(&w);
  return e;
}

static void t_rest_is_read(void) {
  World w;
  open_world(&w);
  static const char text[] =
      "let a = 1\nlet = 2\nfn f(x) {\n  let y = 2 2\n  y + 1\n}\nlet b = 3 3\nf(b)\n";
  Node *file = parse(&w, text, strlen(text));
  check_size(w.diags.errors, ==, 3);
  need(file->file.items.count == 5);
  const Node *const *item = (const Node *const *)file->file.items.items;
  check_int(item[0]->kind, ==, N_LET);
  check_int(item[1]->kind, ==, N_BAD);
  check_int(item[2]->kind, ==, N_FN);
  check_int(item[3]->kind, ==, N_BAD);
  check_int(item[4]->kind, ==, N_EXPR_STMT);
  need(item[2]->kind == N_FN && item[2]->fn->body->list.count == 2);
  check_int(item[2]->fn->body->list.items[0]->kind, ==, N_BAD);
  check_int(item[2]->fn->body->list.items[1]->kind, ==, N_EXPR_STMT);
  close_world(&w);
}

static void t_cap(void) {
  char text[10 * 100 + 1] = "";
  for (int i = 0; i < 100; i++) strcat(text, "let = 1\n");
  uint32_t h;
  check_size(errors_in(text, strlen(text), &h, NULL), ==, PARSE_MAX_ERRORS);
}

/* ---- limits */

/* `before`, then `unit` n times, then `after`. */
static void t_deep(const char *before, const char *unit, int n, const char *after, bool fine) {
  size_t len = strlen(unit), total = strlen(before) + len * (size_t)n + strlen(after);
  char *text = malloc(total + 1), *p = text;
  if (!text) abort();
  p += sprintf(p, "%s", before);
  for (int i = 0; i < n; i++, p += len) memcpy(p, unit, len);
  strcpy(p, after);
  uint32_t h;
  const char *code;
  size_t e = errors_in(text, total, &h, &code);
  check_msg(fine ? e == 0 : e == 1, "%s.. %d times: %zu errors", unit, n, e);
  check_msg(fine || !strcmp(code, "syntax-8"), "%s%s.. %d times: %s", before, unit, n, code);
  check_uint(h, <=, AST_MAX_HEIGHT);
  parse_repl_complete(text, total);
  free(text);
}

static void t_limits(void) {
  t_deep("let x = ", "(", 257, "a", false);
  t_deep("", "{", 257, "", false);
  t_deep("let x = a", "", 1, "", true);
  static const char *const chains[][3] = {
      {"let x = a", " + a", ""},     {"let x = a", " ** a", ""},
      {"let x = a", ".f", ""},       {"let x = a", "()", ""},
      {"let x = a", "[0]", ""},      {"let x = ", "-", "a"},
      {"let x = ", "not ", "a"},     {"if a { b }", " else if a { b }", ""},
      {"let x = ", "fn(x) = ", "x"}, {"let x: ", "fn() -> ", "f32 = 3"},
      {"a", " and b or c", ""},      {"x", "\n.f(y)", ""},
      {"let x: a", "", " = 3"},
  };
  for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
    t_deep(chains[i][0], chains[i][1], 256, chains[i][2], true);
    if (*chains[i][1]) t_deep(chains[i][0], chains[i][1], 50000, chains[i][2], false);
  }
  static const char *const nests[] = {"(",           "[",
                                      "f(",          "x[",
                                      "{",           "if a { ",
                                      "fn f(x) { ",  "checkpoint { ",
                                      "fn(x) { ",    "for i in x { ",
                                      "wrap <f> { ", "let x = { ",
                                      "(a = ",       "checkpoint <f ("};
  for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) t_deep("", nests[i], 50000, "", false);
  t_deep("\"{", "(", 50000, "}\"", false);
  t_deep("let x: ", "(", 50000, "", false);
  t_deep("let ", "(", 50000, "", false);
}

static void t_nesting_allowed(void) {
  char text[2048] = "let x = ";
  for (int i = 0; i < 255; i++) strcat(text, "(");
  strcat(text, "a");
  for (int i = 0; i < 255; i++) strcat(text, ")");
  uint32_t h;
  check_size(errors_in(text, strlen(text), &h, NULL), ==, 0);
}

static void t_long(const char *before, const char *unit, const char *after, bool fine) {
  t_deep(before, unit, 100000, after, fine);
}

static void t_linear(void) {
  t_long("", "let x = 1\n", "", true);
  t_long("", "\n", "x", true);
  t_long("", "# c\n", "", true);
  t_long("f(", "a,", ")", true);
  t_long("\"", "{x}", "\"", true);
  t_long("model M {\n", "param x: f32\n", "}", true);
  t_long("wrap <", "a b, ", "c> { }", true);
}

/* ---- bytes */

static void t_bytes(const char *text, size_t n, const char *code) {
  uint32_t h;
  const char *got;
  size_t e = errors_in(text, n, &h, &got);
  check_size(e, ==, *code ? 1 : 0);
  check_str(got, code);
}

static void t_encodings(void) {
  t_bytes("x\0y", 3, "syntax-16");
  t_bytes("# \xff", 3, "syntax-16");
  t_bytes("# \xc0\x80", 4, "syntax-16");
  t_bytes("# \xed\xa0\x80", 5, "syntax-16");
  t_bytes("# \xe2\x82", 4, "syntax-16");
  t_bytes("# \xf5\x80\x80\x80", 6, "syntax-16");
  t_bytes("# \xe2\x82\xac \xf0\x9f\x98\x80", 10, "");
  t_bytes("\xef\xbb\xbfx = 1", 8, "");
  t_bytes("x = 1\r\ny = 2\r\n", 14, "");
  t_bytes("x\t=\t1", 5, "");
  t_bytes("x \x01", 3, "syntax-2");
  t_bytes("", 0, "");
  t_bytes("\n\n", 2, "");
}

/* ---- details */

static void t_docs(void) {
  World w;
  open_world(&w);
  static const char text[] =
      "## One.\n##   Two.\nfn f() = 1\n## not me\n\nfn g() = 1\nmodel M {\n  ## w\n  param w: f32\n"
      "  ## h\n  fn h() = 1\n}\nlet x = 1  ## behind\nfn k() = 1\n";
  Node *file = parse(&w, text, strlen(text));
  need(file->file.items.count == 5 && w.diags.count == 0);
  check_str(file->file.items.items[0]->fn->doc, "One.\n  Two.");
  check_str(file->file.items.items[1]->fn->doc, NULL);
  Node *m = file->file.items.items[2];
  check_str(m->model.members.items[0]->field.doc, "w");
  check_str(m->model.members.items[1]->fn->doc, "h");
  check_str(file->file.items.items[4]->fn->doc, NULL);
  check_uint(file->file.comment_count, ==, 6);
  close_world(&w);
}

static void t_spans(void) {
  World w;
  open_world(&w);
  static const char text[] = "let x = (a + b) * c.d(1)\nx;\nx";
  Node *file = parse(&w, text, strlen(text));
  need(file->file.items.count == 3);
  const Node *e = file->file.items.items[0]->let.init;
  check_uint(e->span.lo, ==, 8);
  check_uint(e->span.hi, ==, 24);
  check_uint(e->binary.left->span.hi, ==, 15);
  check(e->binary.left->parens);
  check_uint(e->binary.op_span.lo, ==, 16);
  check_uint(e->binary.right->call.callee->dot.name.span.lo, ==, 20);
  check(!file->file.items.items[0]->semicolon);
  check(file->file.items.items[1]->semicolon);
  check(!file->file.items.items[2]->semicolon);
  close_world(&w);
}

static void t_complete(void) {
  static const struct {
    const char *text;
    bool complete;
  } rows[] = {{"", true},
              {"  # c", true},
              {"x", true},
              {"x +", false},
              {"f(", false},
              {"f(\n1,\n", false},
              {"f(1)", true},
              {"if a {", false},
              {"if a {\n b\n}", true},
              {"let x =", false},
              {"\"a {x", true},
              {"\"a", true},
              {"r\"a\\\"", true},
              {"\"{d[\"a\"]}", true},
              {"\"\"\"\n a", false},
              {"\"\"\"\n a {f(\"b\")}\n", false},
              {"\"\"\"\n a {f(\"b}\n", true},
              {"\"\"\"\n a\n \"\"\"", true},
              {"x;", true},
              {"checkpoint <a", false},
              {"fn f(x)", true},
              {"fn f(x) =", false},
              {")", true},
              {"x # c +", true},
              {"{ [ }", true},
              {"return", true},
              {"x.", false},
              {"\"{f(", true},
              {"[1, 2", false},
              {"a\n"
               "+",
               false},
              {"\xff", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    check_msg(parse_repl_complete(rows[i].text, strlen(rows[i].text)) == rows[i].complete,
              "`%s` is %s", rows[i].text, rows[i].complete ? "complete" : "not complete");
}

/* What `ckl help syntax-N` shows provokes syntax-N. */
static void t_help(void) {
  int codes = 0;
  for (int i = 0; i < ERR_COUNT; i++) {
    if (strncmp(err_info[i].code, "syntax-", 7) != 0) continue;
    codes++;
    uint32_t h;
    const char *got;
    if (!*err_info[i].example) continue;
    errors_in(err_info[i].example, strlen(err_info[i].example), &h, &got);
    check_str(got, err_info[i].code);
  }
  check_int(codes, ==, 20);
}

static void t_words(void) {
  int reserved = 0, soft = 0;
  while (parse_reserved[reserved]) reserved++;
  while (parse_soft[soft]) soft++;
  check_int(reserved, ==, 21);
  check_int(soft, ==, 9);
}

static void parse_job(void *ud) {
  World *w = ud;
  static const char text[] =
      "## d\nfn f[B](x: f32[B], k = 1) -> f32 { \"a {x:.2f}\" } backward(g) { g }\nlet = 3\n"
      "# c\npolicy p { save a }\nlet (a, b) = [x for x in 0..3]\n";
  w->names = names_new(&w->arena);
  src_init(&w->src, &w->arena);
  dg_init(&w->diags, &w->arena, &w->mem);
  parse(w, text, strlen(text));
}

static void t_memory(void) {
  int64_t n = 1;
  for (int code = MEM_ERR_NOMEM; code != MEM_OK; n++) {
    World w;
    failing_init(&w.failing, &w.mem, n);
    arena_init(&w.arena, &w.mem);
    code = mem_protect(&w.mem, parse_job, &w);
    check_msg(code == MEM_OK || code == MEM_ERR_NOMEM, "allocation %d fails: code %d", (int)n,
              code);
    close_world(&w);
    need(n < 10000);
  }
  tap_note("%d allocations", (int)n - 1);
}

#define ROWS(rows, test) t_rows(rows, sizeof rows / sizeof *rows, test)

int main(void) {
  TEST(ROWS(trees, t_tree), "each construct has its tree");
  TEST(ROWS(errors, t_error), "each slip has its message");
  TEST(t_rest_is_read(), "after an error the next statement is read");
  TEST(t_cap(), "reading stops after 20 errors");
  TEST(t_limits(), "nesting and chains have limits");
  TEST(t_nesting_allowed(), "255 parentheses nest");
  TEST(t_linear(), "long texts are read");
  TEST(t_encodings(), "a program is UTF-8 without NUL");
  TEST(t_docs(), "doc comments belong to the declaration below");
  TEST(t_spans(), "nodes know their places");
  TEST(t_complete(), "the REPL knows when an input is complete");
  TEST(t_help(), "the example of each code provokes it");
  TEST(t_words(), "the lists of words are whole");
  TEST(t_memory(), "parsing survives each failing allocation");
  return tap_done();
}
