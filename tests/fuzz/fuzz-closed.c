/* fuzz-closed SECONDS [SEED [PROGRAMS]]: what a closed-in program can do to its host.
 *
 * Programs (programs.h) with lines of ill will among theirs, and such as are grown from the grammar
 * (grow.h) over a few names that are there, are run in a session without files,
 * with a limit of steps and one of memory; most of them statement by statement, as at the prompt,
 * so that a statement that fails does not keep the rest from running. For every program: no file is
 * opened, the session's allocations never pass the limit, no more steps are asked about than there
 * are, it ends when it is interrupted (by steps, or after a random time), breaks no invariant of
 * ckl (bug-1), the session can be used afterwards, and closing it gives every byte back. Prints the
 * offending program and dies on a find.
 *
 * At the end it says how the programs ended, how many ran, as a whole or most of their statements,
 * and how many names and words of the language stood in statements that ran to their end. With
 * FUZZ_NAMES set it lists the others, and what was said how often. */
#define _DEFAULT_SOURCE /* syscall */
#include "ckl.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/fuzz/programs.h"
/* needs what stands above */
#include "tests/fuzz/grow.h"

enum {
  STEPS = 20000,
  ASK_EACH = 500,
  LIMIT = 24 << 20,
  LIMITS_EACH = 3,   /* limits that one program may meet before it is left */
  PATIENCE = 400000, /* microseconds of processor time until a statement is interrupted */
  NO_PATIENCE = 60,  /* and seconds until that counts as a find */
  PROGRAMS_EACH = 20 /* of one session */
};

static ckl_session *session;
static const char *volatile doing = "start";
static volatile sig_atomic_t inside, alarms;
static size_t limit;
static unsigned stop_after; /* questions about steps until the host interrupts; 0: never */

_Noreturn static void find(const char *what) {
  inside = 0;
  printf("--- program\n%.*s\n--- end\nfuzz-closed: %s (%s)\n", (int)text_n, text, what, doing);
  fflush(stdout);
  abort();
}

/* ---- the host */

/* Stands before the C library's, so that no layer below can open anything unseen. */
int openat(int dir, const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  if (inside) {
    printf("%s\n", path);
    find("a file is opened");
  }
  return (int)syscall(SYS_openat, dir, path, flags, mode);
}

int open(const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
  va_end(ap);
  return openat(AT_FDCWD, path, flags, mode);
}

static size_t held;

static void *hook(void *ud, void *p, size_t old, size_t size) {
  (void)ud;
  if (held - old + size > limit && size > old) find("more memory than the limit");
  held = held - old + size;
  if (size) return realloc(p, size);
  free(p);
  return NULL;
}

static unsigned asked;

static int progress(void *ud) {
  (void)ud;
  if (++asked > STEPS / ASK_EACH) find("more steps than the limit");
  if (asked != stop_after) return 0;
  if (stop_after % 2) return 1;
  ckl_interrupt(session);
  return 0;
}

static unsigned long written;

static void write_text(void *ud, int stream, const char *s, size_t n) {
  (void)ud, (void)stream;
  for (size_t i = 0; i < n; i++) written += s[i] == '\n';
}

static bool may_open(void *ud, const char *path, bool to_write, const char **instead) {
  (void)ud, (void)path, (void)to_write, (void)instead;
  find("the host is asked for a file that it has closed");
}

static void patience(int seconds, uint32_t microseconds) {
  struct itimerval t = {.it_value = {.tv_sec = seconds, .tv_usec = microseconds}};
  setitimer(ITIMER_PROF, &t, NULL);
}

static void on_alarm(int sig) {
  (void)sig;
  if (alarms++) find("no end in sight, and nobody can interrupt it");
  ckl_interrupt(session);
  patience(NO_PATIENCE, 0);
}

/* ---- ill will */

static const char *const lines[] = {
    "save(list(ones([2])), \"fuzz.tmp\")\n",
    "let stolen = read_bytes(\"/etc/passwd\")\n",
    "use data (read_csv, read_bytes)\n",
    "let zero = read_bytes(\"/dev/zero\")\n",
    "let t0 = read_csv(here(\"../x.csv\"))\n",
    "print(error_of(fn() { read_text(\"/etc/passwd\") }), error_of(fn() { read_lines(\"-\") }))\n",
    "let mapped = read_bytes(\"/etc/passwd\", mapped = true)\n",
    "write_text(\"a\", \"fuzz.tmp\")\nappend_text(\"a\", \"fuzz.tmp\")\n",
    "write_bytes(u8([$ % 256]), \"fuzz.tmp\")\nwrite_csv(ones([$]), \"fuzz.tmp\")\n",
    "make_folder(\"fuzz.tmp\")\nremove_file(\"fuzz.tmp\")\n",
    "print(error_of(fn() { rename_file(\"fuzz.tmp\", \"fuzz2.tmp\") }), exists(\"/etc\"))\n",
    "print(error_of(fn() { list_files(\"/\") }), file_size(\"/etc/passwd\"))\n",
    "print(error_of(fn() { read_table(\"/etc/passwd\") }), error_of(fn() { "
    "read_json(\"/dev/zero\") }))\n",
    "print(error_of(fn() { read_npy(\"x.npy\") }), error_of(fn() { read_npz(\"x.npz\") }))\n",
    "print(error_of(fn() { read_image(\"x.png\") }), error_of(fn() { read_wav(\"x.wav\") }))\n",
    "write_npy(ones([$]), \"x.npy\")\nwrite_npz([\"a\": ones([$])], \"x.npz\")\n",
    "write_image(ones([$, $]), \"x.png\")\nwrite_wav(ones([$]), \"x.wav\")\n",
    "let js = from_json(to_json(list($, [\"a\": uniform([$, $])], (b = \"{$}\"))))\nprint(js)\n",
    "var nested = \"1\"\nfor i in 0..$ { nested = \"[{nested}]\" }\nprint(from_json(nested))\n",
    "write_json([\"a\": $], \"-\")\nwrite_csv([\"a\": iota($), \"b\": ones([$])], \"-\")\n",
    "write_text(\"{$}\", \"-\")\nwrite_csv(ones([$, 2]), \"-\")\n",
    "use \"/etc/passwd\" as stolen\n",
    "use \"../../../../etc/hostname\" as up\n",
    "let w = load(list(ones([2])), \"/proc/self/mem\")\n",
    "while true { }\n",
    "for i in 0..1000000000000 { }\n",
    "for i in 0..100000 { for j in 0..100000 { let q = i * j } }\n",
    "proc deep(n: int) = 1 + deep(n + 1)\nprint(deep(0))\n",
    "proc wide(n: int) = if n == 0 { 1 } else { wide(n - 1) + wide(n - 1) }\nprint(wide(60))\n",
    "fn fd(x: f32, n: int) -> f32 = if n == 0 { x } else { fd(x, n - 1) * fd(x, n - 1) }\n"
    "print(fd(1.0, 40))\n",
    "fn loops(x: f32) -> f32 {\n  var y = x\n"
    "  for i in 0..4000 { for j in 0..4000 { y = y * x } }\n  y\n}\nprint(loops(1.0))\n",
    "var grows = \"0123456789\"\nwhile true { grows = \"{grows}{grows}\" }\n",
    "var many = list(1)\nwhile true { many = concat(many, many) }\n",
    "var nest = list(1)\nfor i in 0..15000 { nest = list(nest) }\nprint(nest)\n"
    "print(nest == nest)\n",
    "let big = uniform([100000, 100000])\n",
    "let huge = zeros([9223372036854775807])\nprint(sum(huge))\n",
    "let far = zeros([1000000, 1000000])\nprint(sum(far))\n",
    "var tape = track(ones([1000]))\nfor i in 0..100000 { tape = tape * 1.0001 }\n",
    "print(grad(sum(checkpoint <offload all> { tanh(track(ones([700, 700]))) }), 1))\n",
    "let product = ones([1500, 1500]) @ ones([1500, 1500])\nprint(product[0, 0])\n",
    "print([i for i in 0..100000000])\n",
    "for k in 0..2000 { print(k, \"{ones([k])}\") }\n",
    "print(error_of(fn() { read_csv(\"/etc/passwd\") }))\n",
    "print(error_of(fn() { save((a = ones([$]), b = none), here(\"fuzz.tmp\")) }))\n",
    "print(error_of(fn() { load((a = ones([$])), \"/dev/zero\") }))\n",
    "let t1 = track(uniform([$]))\n"
    "print(grad(checkpoint <save none> { sum(tanh(t1) ** $) }, t1))\n",
    "let t2 = track(ones([$, 3]))\n"
    "print(grad(sum(checkpoint <reentrant> { sin(t2) @ ones([3, $]) }), t2))\n",
    "let t3 = track(ones([64]))\nvar h3 = t3\n"
    "checkpoint <binomial $> for i in 0..$ { h3 = tanh(h3 * 1.01) }\nprint(grad(sum(h3), t3))\n",
    "let t4 = track(ones([64]))\nvar h4 = t4\n"
    "checkpoint <every $> for i in 0..$ { h4 = sin(h4) }\nprint(grad(sum(h4), t4))\n",
    "let t5 = track(ones([$]))\n"
    "print(grad(checkpoint <budget = $> { sum(exp(cumsum(t5))) }, t5))\n",
    "let t6 = track(ones([$]))\nprint(grad(checkpoint <offload all> { sum(exp(t6)) }, t6))\n",
    "let t7 = track(ones([3]))\non_grad(t7, fn(g) { grad(sum(t7 * t7), t7) * $ })\n"
    "after_grad(t7, fn(g) { print(g) })\nfor i in 0..$ { grad(sum(t7 ** 3), t7) }\n",
    "let t8 = track(ones([2]))\nproc again(g) { grad(sum(defer(again)(t8) * t8), t8) }\n"
    "print(again(t8))\n",
    "let t9 = track(f32([1, 2]))\nafter_backward(fn() { for i in 0..$ { print(i) } })\n"
    "print(grad(sum(t9), t9, record = true), grad(sum(t9 * t9), t9, last = true))\n",
    "model Deep(n: int) {\n  param w: f32[n, n] = normal([n, n])\n  buffer b: f32[n]\n"
    "  fn forward(x: f32[n]) -> f32[n] {\n    b += x\n    checkpoint { tanh(w @ x) + b }\n  }\n}\n"
    "let deep_net = Deep($)\nlet deep_x = ones([$])\n"
    "for i in 0..$ { update(deep_net, params(deep_net)) }\n"
    "print(grad(sum(deep_net(deep_x)), deep_net), deep_net, paths(deep_net))\n",
    "use nn (Linear, LSTM)\nlet li = Linear($, $)\nlet opt_1 = adam(li, lr = 0.1)\n"
    "for i in 0..$ { opt_1.step(grad(sum(li(ones([2, size(li.w, axis = 0)]))), li)) }\n",
    "let h1 = hessian(fn(x) = sum(x ** 3), ones([$]))\nprint(shape(h1))\n",
    "print(jvp(fn(x) = cumsum(x), ones([$]), ones([$])))\nprint(vjp(sin, ones([$]), ones([$])))\n",
    "print(vmap(fn(r) = [sum(r * k) for k in 0..$], ones([$, 4])))\n",
    "print([normal([$]) for i in 0..$])\nprint(randint($, [$]), uniform([$, $], lo = $))\n",
    "var s1 = \"\"\nfor i in 0..$ { s1 = \"{s1}{i:$}{1.5:>$.$}\" }\nprint(len(s1))\n",
    "print(\"{ones([$]):$.$f} {$:,} {$:x} {$.0:e} {$:MiB}\")\n",
    "var r1 = (a = 1, b = (c = 2, d = list(1)))\n"
    "for i in 0..$ { r1.b.d = push(r1.b.d, r1.a); r1.a += $ }\n"
    "print(r1 == r1, fold(fn(a, b) = a + sum(b), 0, r1))\n",
    "var r2 = (a = 1)\nfor i in 0..$ { r2 = (a = r2) }\nprint(r2)\n",
    "let x1 = reshape(iota($), [-1, 1])\nprint(x1[:$])\nprint(x1[$, ...])\n"
    "print(x1[i64([$, 0])])\n",
    "var x2 = zeros([$, 4])\nx2[$] = $\nx2[i64([0, $])] += 1\nx2[x2 > 0] = -1\nprint(sum(x2))\n",
    "print(einsum(\"i j, j k -> k i\", ones([$, $]), ones([$, $])))\n",
    "print(conv2d(ones([$, 2, $, $]), ones([$, 2, 3, 3]), stride = $))\n",
    "print(max_pool2d(ones([1, 1, $, $]), $), pad(ones([$]), ($, $)), one_hot(iota($), $))\n",
    "print(top_k(uniform([$]), $), gather(iota($), i64([$])), cumsum(ones([$, $]), axis = 1))\n",
    "print($ ** $, $ // $, $ % $, $ * $, i8($), u8(-$), i32([$, $]) // $, f16($.0))\n",
    "proc ping(n: int) { if n > 0 { pong(n - 1) } else { 0 } }\nproc pong(n: int) = ping(n)\n"
    "print(ping($))\n",
    "let fs = [fn(x: f32) -> f32 = x * $ for i in 0..$]\n",
    "let o1 = fn(f, n) = if n == 0 { 0 } else { f(f, n - 1) }\nprint(o1(o1, $))\n",
    "for i in 0..$ { let e1 = error_of(fn() { ones([$]) + ones([i]) }) }\n",
    "print(error_of(fn() { var k = 0\n  while true { k += 1 } }))\n",
    "print(error_of(fn() { zeros([$, $]) + 1.0 }))\n",
    "wrap <anomaly> { print(log(zeros([$]))) }\n"
    "wrap <bf16> { print(ones([$, 3]) @ ones([3, $])) }\n",
    "wrap <device sim> { print(grad(sum(track(ones([$])) ** 2), 1)) }\n"
    "print(to(ones([$]), \"sim\"))\n",
    "use data (split)\n"
    "for (i, b) in enumerate(shuffle(iota($)).batches($)).take($) { print(i, b) }\n",
    "for w in windows(iota($), $) { print(w) }\n"
    "for (a, b) in zip(iota($), ones([$])) { print(a) }\n",
    "let ck = copy(list(ones([$]), (x = $)))\n"
    "print(ravel(ck), map(fn(a) = a + 1, ck), count(ck))\n",
    "print(plan(fn(x: f32[$]) = grad(sum(sin(x) * x), x), ones([$])).peak)\n",
    "print(random_state())\nseed(random_state())\nseed($)\nprint(key($), fold_in(key($), $))\n",
    "fn unrolled(x: f32[$]) -> f32 {\n  var y = x\n  for i in 0..$ { y = y + x[-1] * i }\n"
    "  sum(y)\n}\n"
    "print(grad(unrolled(track(ones([$]))), 1), unrolled(ones([$])))\n",
    "use nn (BatchNorm)\nlet bn_1 = BatchNorm($)\nprint(buffers(bn_1), summary(bn_1))\n"
    "checkpoint_layers(bn_1, where = fn(path, layer) = true)\n"
    "print(wrap <train> { bn_1(ones([2, $])) })\n",
    "print(batch_norm(ones([2, $]), gain = ones([$]), bias = ones([$])))\n"
    "print(attention(ones([$, 2]), ones([$, 2]), ones([$, $]), causal = true))\n",
    "print(unique(i64([$, $])), to_dtype(ones([$]), dtype_of(f64([$]))))\n"
    "print(log_softmax(ones([$, $])))\n",
    "fn own(x: f32[...S]) -> f32[...S] { x * $ } backward(g) { g * $ }\n"
    "let t10 = track(ones([$]))\nprint(grad(sum(own(own(t10))), t10))\n",
};

/* A line with a number in the place of each $: small ones mostly, so that it may well run. */
static size_t fill(const char *l, char *to, size_t room) {
  static const char *const large[] = {"100",
                                      "1000",
                                      "4096",
                                      "20000",
                                      "1000000",
                                      "2147483648",
                                      "4611686018427387904",
                                      "9223372036854775807"};
  size_t n = 0;
  for (; *l && n + 24 < room; l++) {
    if (*l != '$')
      to[n++] = *l;
    else if (rnd(8))
      n += (size_t)sprintf(to + n, "%u", rnd(9));
    else
      n += (size_t)sprintf(to + n, "%s", large[rnd(sizeof large / sizeof *large)]);
  }
  return n;
}

static void make_hostile(void) {
  if (rnd(4)) {
    make_of(rnd(8) ? running_count : file_count, rnd(5));
  } else {
    text_n = 0;
  }
  uint32_t more = text_n ? rnd(3) : 2 + rnd(4);
  for (; more > 0; more--) {
    char l[1024];
    size_t n = fill(lines[rnd(sizeof lines / sizeof *lines)], l, sizeof l), at = text_n;
    if (rnd(3) == 0) at = line_start(rnd((uint32_t)text_n + 1));
    while (rnd(8) && at && at < text_n && !name_char(text[at])) at = line_start(at - 1);
    splice(at, 0, l, n);
  }
  if (rnd(2) && text_n) mutate();
}

/* ---- grown programs */

static char (*names)[64]; /* what the language has */
static uint32_t name_count;

static const char prelude[] =
    "let x = f32([1, 2, 3])\nvar y = 2\nlet m = f32([[1, 2], [3, 4]])\nlet p = track(x)\n"
    "let t = (a = 1, b = f32([1, 2]))\nvar xs = list(1, x, \"s\")\nlet b = x > 1\n"
    "fn f(a) = a * 2\nproc g(a = 1, b = 2) { y = a; b }\n"
    "model Net { param w: f32[3] = ones([3])\n  buffer n: int = 0\n"
    "  fn forward(a) { n += 1; a * w } }\n"
    "let net = Net()\npolicy lean { save expensive }\n";

static const char *const in_scope[] = {"x", "y", "m", "p", "t",   "xs",  "b",    "f",
                                       "g", "x", "y", "m", "Net", "net", "lean", "_",
                                       "p", "x", "a", "b", "y",   "f",   "none", "self"};
static const char *const fresh[] = {"x", "y", "a", "b", "c", "f", "g", "net", "Net", "xs", "_"};
static const char *const fields[] = {"a",    "b",       "w",    "n",   "forward",  "axis", "keep",
                                     "sum",  "exp",     "tanh", "f",   "reshape",  "step", "push",
                                     "take", "batches", "max",  "len", "transpose"};
static const char *const types[] = {"f32", "f32", "f64", "int",   "float", "any", "bool",
                                    "i64", "str", "u8",  "dtype", "Net",   "key", "params"};
static const char *const clause_words[] = {
#define MODE(word, ...) #word,
#define CHOICE(mode, word, ...) #word,
#define POLICY(word, ...) #word,
#define OPCLASS(NAME, word, ...) word,
#include "lang/names/clauses.def"
};

/* The names of one program. */
static void choose_names(void) {
  static const char *named[3 * COUNT(in_scope)]; /* a third are functions of the library */
  uint32_t n = 0;
  while (n < COUNT(named)) {
    named[n] = n % 3 || !name_count ? in_scope[rnd(COUNT(in_scope))] : names[rnd(name_count)];
    n++;
  }
  grow_names[GROW_VALUE] = (GrowNames){named, n};
  grow_names[GROW_NEW] = (GrowNames){fresh, COUNT(fresh)};
  grow_names[GROW_FIELD] = (GrowNames){fields, COUNT(fields)};
  grow_names[GROW_TYPE] = (GrowNames){types, COUNT(types)};
  grow_names[GROW_CLAUSE] = (GrowNames){clause_words, COUNT(clause_words)};
}

/* ---- running */

static unsigned long ends[CKL_EUSAGE + 1];
static unsigned long statements, whole_statements, ran; /* programs: whole, or most of them */
static bool *seen;

/* What the prelude offers, the words of the language and those in <>, for the count at the end. */
static void note_names(void) {
  static const char *const more[] = {"captured", "plain",  "sim",    "batches", "shuffle", "zip",
                                     "take",     "remove", "record", "last",    "key"};
  size_t extra = sizeof more / sizeof *more;
  while (ckl_complete(session, "", name_count)) name_count++;
  names = calloc(name_count + extra, sizeof *names);
  seen = calloc(name_count + extra, sizeof *seen);
  if (!names || !seen) exit(1);
  for (size_t i = 0; i < name_count; i++)
    snprintf(names[i], sizeof *names, "%s", ckl_complete(session, "", i));
  for (size_t i = 0; i < extra; i++, name_count++)
    snprintf(names[name_count], sizeof *names, "%s", more[i]);
}

static void note_run(const char *program) {
  for (const char *p = program, *end = p + strlen(p); p < end;) {
    size_t k = word_at(p, end);
    for (size_t i = 0; i < name_count; i++)
      if (strlen(names[i]) == k && !memcmp(names[i], p, k)) seen[i] = true;
    p += k;
  }
}

static struct Said {
  char code[32];
  unsigned long n;
} said[500];

static void note_code(const char *code) {
  size_t i = 0;
  while (i < 499 && said[i].n && strcmp(said[i].code, code)) i++;
  snprintf(said[i].code, sizeof said[i].code, "%s", code);
  said[i].n++;
}

static ckl_status run(const char *program, const char *what) {
  doing = what;
  asked = 0;
  alarms = 0;
  stop_after = rnd(16) ? 0 : 1 + rnd(8);
  patience(0, rnd(16) ? PATIENCE : 1 + rnd(50000));
  inside = 1;
  ckl_status st = ckl_eval(session, program, "closed", NULL);
  inside = 0;
  patience(0, 0);
  size_t n = ckl_diag_count(session);
  for (size_t i = 0; i < n; i++) {
    const char *code = ckl_diag_code(session, i), *t = ckl_diag_text(session, i, 0);
    if (!code || (!t && st != CKL_ENOMEM)) find("a diagnostic without text");
    if (!strcmp(code, "bug-1")) {
      printf("%s\n", t ? t : "");
      find("an invariant is broken");
    }
    note_code(code);
  }
  if (st == CKL_EINTERNAL || st == CKL_EUSAGE) find("an internal error");
  if (st != CKL_OK && !n) find("it is wrong, and nobody says why");
  return st;
}

/* What the last statement that failed came to; that it could not be read counts least. */
static ckl_status run_statements(void) {
  static char part[MAX_TEXT + 1];
  ckl_status worst = CKL_OK;
  unsigned long whole = whole_statements, all = statements;
  int limits = 0;
  for (size_t at = 0, end; at < text_n && limits < LIMITS_EACH; at = end) {
    /* a statement goes to the next line that begins with what can begin one */
    end = at + line_length(at);
    while (end < text_n && !name_char(text[end])) end += line_length(end);
    memcpy(part, text + at, end - at);
    part[end - at] = 0;
    ckl_status st = run(part, "a statement");
    statements++;
    if (st == CKL_OK) {
      whole_statements++;
      note_run(part);
    } else if (st == CKL_ENOMEM || st == CKL_EINTERRUPT ||
               !strcmp(ckl_diag_code(session, 0), "run-5")) {
      limits++;
    }
    if (worst == CKL_OK || st > CKL_EPROGRAM) worst = st;
  }
  ran += 2 * (whole_statements - whole) > statements - all;
  return worst;
}

/* Statements that are grown one after the other, and know each other's names. */
static ckl_status run_grown(void) {
  ckl_status worst = run(prelude, "what is there");
  unsigned long whole = 0, all = 4 + rnd(8);
  choose_names();
  for (unsigned long k = 0; k < all; k++) {
    grow(1);
    text[text_n] = 0;
    ckl_status st = run(text, "a grown statement");
    if (st == CKL_OK) {
      whole++;
      note_run(text);
    }
    if (worst == CKL_OK || st > CKL_EPROGRAM) worst = st;
  }
  statements += all;
  whole_statements += whole;
  ran += 2 * whole > all;
  return worst;
}

static void open_session(void) {
  static const char *const ways[] = {"reference", "loops"};
  limit = rnd(2) ? LIMIT : LIMIT / 3;
  ckl_config c = {.size = sizeof c,
                  .alloc = hook,
                  .write = write_text,
                  .files = "",
                  .may_open = may_open,
                  .max_steps = STEPS,
                  .progress = progress,
                  .progress_steps = ASK_EACH,
                  .memory_limit = (int64_t)limit,
                  .cpu = ways[rnd(2)],
                  .threads = 1,
                  .codegen = "",
                  .kernels = "",
                  .cache = ""};
  held = 0;
  session = ckl_open(&c);
  if (!session) find("no session");
}

static void close_session(void) {
  ckl_close(session);
  session = NULL;
  if (held) find("bytes are left");
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 5;
  state = argc > 2 ? strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull + 1 : 1;
  unsigned long most = argc > 3 ? strtoul(argv[3], NULL, 10) : 0, runs = 0;
  if (!read_programs()) return 1;
  signal(SIGPROF, on_alarm);
  clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
  open_session();
  note_names();
  while (most ? runs < most : clock() < end) {
    ckl_status st;
    bool grown = !rnd(4);
    if (!grown) make_hostile();
    text[text_n] = 0;
    if (grown) {
      st = run_grown();
    } else if (rnd(8)) {
      st = run_statements();
    } else {
      st = run(text, "as a whole");
      ran += st != CKL_EPROGRAM;
      if (st == CKL_OK) note_run(text);
    }
    ends[st]++;
    ckl_status after = run("1 + 1", "the session afterwards");
    if (after != CKL_OK && after != CKL_ENOMEM && after != CKL_EINTERRUPT)
      find("the session cannot be used");
    if (ckl_reset(session) != CKL_OK) find("the session cannot be reset");
    if (++runs % PROGRAMS_EACH) continue;
    close_session();
    open_session();
  }
  close_session();
  size_t reached = 0;
  for (size_t i = 0; i < name_count; i++) reached += seen[i];
  printf("%lu programs: %lu fine, %lu wrong, %lu failed, %lu out of memory, %lu interrupted\n",
         runs, ends[CKL_OK], ends[CKL_EPROGRAM], ends[CKL_ERUN], ends[CKL_ENOMEM],
         ends[CKL_EINTERRUPT]);
  printf("%lu of them ran; %lu of %lu statements ran to their end, with %zu of %u names; "
         "%lu lines were printed\n",
         ran, whole_statements, statements, reached, name_count, written);
  if (getenv("FUZZ_NAMES")) {
    for (size_t i = 0; i < name_count; i++)
      if (!seen[i]) printf("not reached: %s\n", names[i]);
    for (size_t i = 0; said[i].n; i++) printf("said %lu times: %s\n", said[i].n, said[i].code);
  }
  free(names);
  free(seen);
  return 0;
}
