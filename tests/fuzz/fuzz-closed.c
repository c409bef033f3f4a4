/* fuzz-closed SECONDS [SEED [PROGRAMS]]: what a closed-in program can do to its host.
 *
 * Programs (programs.h) with lines of ill will among theirs are run in a session without files,
 * with a limit of steps and one of memory. For every program: no file is opened, the session's
 * allocations never pass the limit, no more steps are asked about than there are, it ends when it
 * is interrupted, breaks no invariant of ckl (bug-1), the session can be used afterwards, and
 * closing it gives every byte back. Prints the offending program and dies on a find. */
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

enum {
  STEPS = 20000,
  ASK_EACH = 500,
  LIMIT = 24 << 20,
  PATIENCE = 5,       /* seconds of processor time until a program is interrupted */
  NO_PATIENCE = 60,   /* and until that counts as a find */
  PROGRAMS_EACH = 20  /* of one session */
};

static ckl_session *session;
static const char *volatile doing = "start";
static volatile sig_atomic_t inside, alarms;

_Noreturn static void find(const char *what) {
  inside = 0;
  printf("fuzz-closed: %s (%s)\n--- program\n%.*s\n--- end\n", what, doing, (int)text_n, text);
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
  if (held - old + size > LIMIT && size > old) find("more memory than the limit");
  held = held - old + size;
  if (size) return realloc(p, size);
  free(p);
  return NULL;
}

static unsigned asked;

static int progress(void *ud) {
  (void)ud;
  if (++asked > STEPS / ASK_EACH) find("more steps than the limit");
  return 0;
}

static bool may_open(void *ud, const char *path, bool to_write, const char **instead) {
  (void)ud, (void)path, (void)to_write, (void)instead;
  find("the host is asked for a file that it has closed");
}

static void patience(int seconds) {
  struct itimerval t = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &t, NULL);
}

static void on_alarm(int sig) {
  (void)sig;
  if (alarms++) find("no end in sight, and nobody can interrupt it");
  ckl_interrupt(session);
  patience(NO_PATIENCE);
}

/* ---- ill will */

static const char *const lines[] = {
    "save(list(ones([2])), \"fuzz.tmp\")\n",
    "let stolen = read_bytes(\"/etc/passwd\")\n",
    "use data (read_csv, read_bytes)\n",
    "let zero = read_bytes(\"/dev/zero\")\n",
    "let t0 = read_csv(here(\"../x.csv\"))\n",
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
};

static void make_hostile(void) {
  if (rnd(3)) {
    make();
  } else {
    text_n = 0;
  }
  for (uint32_t i = 1 + rnd(3); i > 0; i--) {
    const char *l = lines[rnd(sizeof lines / sizeof *lines)];
    size_t at = line_start(rnd((uint32_t)text_n + 1));
    splice(rnd(4) ? at : 0, 0, l, strlen(l));
  }
  if (rnd(2)) mutate();
}

/* ---- running */

static unsigned long ends[CKL_EUSAGE + 1];

static ckl_status run(const char *program, const char *what) {
  doing = what;
  asked = 0;
  alarms = 0;
  patience(PATIENCE);
  inside = 1;
  ckl_status st = ckl_eval(session, program, "closed", NULL);
  inside = 0;
  patience(0);
  size_t n = ckl_diag_count(session);
  for (size_t i = 0; i < n; i++) {
    const char *code = ckl_diag_code(session, i), *t = ckl_diag_text(session, i, 0);
    if (!code || (!t && st != CKL_ENOMEM)) find("a diagnostic without text");
    if (!strcmp(code, "bug-1")) {
      printf("%s\n", t ? t : "");
      find("an invariant is broken");
    }
  }
  if (st == CKL_EINTERNAL || st == CKL_EUSAGE) find("an internal error");
  if (st != CKL_OK && !n) find("it is wrong, and nobody says why");
  return st;
}

static void open_session(void) {
  static const char *const ways[] = {"reference", "loops"};
  ckl_config c = {.size = sizeof c, .alloc = hook, .files = "", .may_open = may_open,
                  .max_steps = STEPS, .progress = progress, .progress_steps = ASK_EACH,
                  .memory_limit = LIMIT, .cpu = ways[rnd(2)], .threads = 1, .codegen = "",
                  .kernels = "", .cache = ""};
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
  while (most ? runs < most : clock() < end) {
    make_hostile();
    text[text_n] = 0;
    ends[run(text, "its statements")]++;
    ckl_status after = run("1 + 1", "the session afterwards");
    if (after != CKL_OK && after != CKL_ENOMEM) find("the session cannot be used");
    if (ckl_reset(session) != CKL_OK) find("the session cannot be reset");
    if (++runs % PROGRAMS_EACH) continue;
    close_session();
    open_session();
  }
  close_session();
  printf("%lu programs: %lu fine, %lu wrong, %lu failed, %lu out of memory, %lu interrupted\n",
         runs, ends[CKL_OK], ends[CKL_EPROGRAM], ends[CKL_ERUN], ends[CKL_ENOMEM],
         ends[CKL_EINTERRUPT]);
  return 0;
}
