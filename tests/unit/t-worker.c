/* Code generator processes that die, hang and lie. */
#include "jit/engine/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/tap.h"
#include "tests/unit/failing.h"
#include "tests/unit/fake-codegen.h"

enum { ITEMS = 60 };

typedef struct Box {
  WorkItem item[ITEMS];
  char text[ITEMS][80];
  int answers[ITEMS];
  CodegenKind kind[ITEMS];
  char error[ITEMS][200];
  size_t size[ITEMS];
  bool wrong;
} Box;

static void done(void *ud, WorkItem *x, CodegenKind kind, const char *bytes, size_t n) {
  Box *b = ud;
  ptrdiff_t i = x - b->item;
  if (i < 0 || i >= ITEMS) {
    b->wrong = true;
    return;
  }
  b->answers[i]++;
  b->kind[i] = kind;
  b->size[i] = n;
  if (kind == CODEGEN_ERROR) snprintf(b->error[i], sizeof b->error[i], "%.*s", (int)n, bytes);
  if (kind == CODEGEN_OBJECT && !strncmp(b->text[i], "big ", 4))
    for (size_t k = 0; k < n; k++) b->wrong |= bytes[k] != (char)k;
}

typedef struct Open {
  Mem *m;
  const char *path;
  int most, patience;
  Box *box;
  Workers *w;
} Open;

static void open_it(void *ud) {
  Open *o = ud;
  o->w = work_open(o->m, o->path, o->most, o->patience, done, o->box);
}

static Workers *opened(Mem *m, const char *path, int most, int patience, Box *box) {
  Open o = {m, path, most, patience, box, NULL};
  memset(box, 0, sizeof *box);
  mem_protect(m, open_it, &o);
  return o.w;
}

static void send(Workers *w, Box *b, int i, const char *text) {
  snprintf(b->text[i], sizeof b->text[i], "%s", text);
  b->item[i] = (WorkItem){.text = b->text[i], .text_n = strlen(b->text[i])};
  work_send(w, &b->item[i]);
}

static void finish(Workers *w, Box *b, int n) {
  for (int rounds = 0; work_poll(w, 1000) && rounds < 10000; rounds++) continue;
  for (int i = 0; i < n; i++) check_int(b->answers[i], ==, 1);
  check(!b->wrong);
}

static int open_files(void) {
  DIR *d = opendir("/proc/self/fd");
  int n = 0;
  while (d && readdir(d)) n++;
  if (d) closedir(d);
  return n;
}

static bool children_left(void) {
  return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

/* Runs one scenario with checks of what is left behind. */
static void with(int most, int patience, void (*scenario)(Workers *w, Box *b)) {
  static Box box;
  Failing f;
  Mem m;
  int files = open_files();
  failing_init(&f, &m, 0);
  Workers *w = opened(&m, fake_path(), most, patience, &box);
  need(w);
  scenario(w, &box);
  work_close(w);
  check(failing_clean(&f, &m));
  check_int(open_files(), ==, files);
  check(!children_left());
}

static void many(Workers *w, Box *b) {
  for (int i = 0; i < ITEMS; i++) send(w, b, i, i % 3 ? "kernel" : "slow 2");
  finish(w, b, ITEMS);
  for (int i = 0; i < ITEMS; i++) check_int(b->kind[i], ==, CODEGEN_OBJECT);
  check_int(work_processes(w), >=, 1);
  check_int(work_processes(w), <=, 4);
}

static void one_by_one(Workers *w, Box *b) {
  for (int i = 0; i < 5; i++) {
    send(w, b, i, "kernel");
    finish(w, b, i + 1);
  }
  check_int(work_processes(w), ==, 1);
}

static void errors(Workers *w, Box *b) {
  send(w, b, 0, "error no such thing");
  send(w, b, 1, "kernel");
  send(w, b, 2, "big 3000000");
  send(w, b, 3, "error ");
  finish(w, b, 4);
  check_int(b->kind[0], ==, CODEGEN_ERROR);
  check_str(b->error[0], "no such thing");
  check_int(b->kind[1], ==, CODEGEN_OBJECT);
  check_size(b->size[2], ==, 3000000);
  check_int(work_processes(w), <=, 2);
}

static void one_kills(Workers *w, Box *b, const char *how, const char *text) {
  for (int i = 0; i < 20; i++) send(w, b, i, i == 7 ? how : i % 2 ? "kernel" : "slow 1");
  finish(w, b, 20);
  for (int i = 0; i < 20; i++)
    check_msg(b->kind[i] == (i == 7 ? CODEGEN_ERROR : CODEGEN_OBJECT), "item %d: %s", i,
              b->error[i]);
  check_has(b->error[7], text);
  check_int(work_processes(w), >=, 2);
}

static void killed(Workers *w, Box *b) {
  one_kills(w, b, "kill 9", "signal 9 (KILL)");
}
static void aborted(Workers *w, Box *b) {
  one_kills(w, b, "kill 6", "signal 6 (ABRT)");
}
static void exited(Workers *w, Box *b) {
  one_kills(w, b, "exit 3", "status 3");
}
static void nonsense(Workers *w, Box *b) {
  one_kills(w, b, "garbage", "nonsense");
}
static void other_id(Workers *w, Box *b) {
  one_kills(w, b, "other", "nonsense");
}
static void cut_short(Workers *w, Box *b) {
  one_kills(w, b, "short", "in the middle");
}

/* Others that are in work then end well; what waits is not tried any more, however much comes. */
static void too_long(Workers *w, Box *b) {
  send(w, b, 0, "hang");
  for (int i = 1; i < 4; i++) send(w, b, i, "slow 50");
  finish(w, b, 4);
  check_str(b->error[0], "the code generator took too long");
  for (int i = 1; i < 4; i++)
    check_msg(b->kind[i] == CODEGEN_OBJECT || strstr(b->error[i], "for another kernel"),
              "item %d: %s", i, b->error[i]);
  int64_t processes = work_processes(w);
  for (int i = 4; i < 20; i++) send(w, b, i, i % 2 ? "kernel" : "hang");
  for (int i = 4; i < 20; i++) check_has(b->error[i], "too long for another kernel");
  finish(w, b, 20);
  check_int(work_processes(w), ==, processes);
}

static void all_hang(Workers *w, Box *b) {
  for (int i = 0; i < 20; i++) send(w, b, i, "hang");
  finish(w, b, 20);
  for (int i = 0; i < 20; i++) check_has(b->error[i], "too long");
  check_int(work_processes(w), <=, 3);
}

/* Whether a process runs: what has ended may wait for somebody to ask. */
static bool running(long pid) {
  char path[80], state = 'Z';
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *in = fopen(path, "r");
  if (in && fscanf(in, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
  if (in) fclose(in);
  return state != 'Z' && state != 'X';
}

static void with_child(Workers *w, Box *b) {
  char text[80] = "child /tmp/t-worker.XXXXXX";
  long pid = 0;
  close(mkstemp(text + 6));
  send(w, b, 0, text);
  finish(w, b, 1);
  check_has(b->error[0], "too long");
  FILE *in = fopen(text + 6, "r");
  need(in);
  check(fscanf(in, "%ld", &pid) == 1);
  fclose(in);
  unlink(text + 6);
  for (int i = 0; i < 1000 && running(pid); i++) nanosleep(&(struct timespec){0, 5000000}, NULL);
  check(pid > 0 && !running(pid));
}

static void no_space(Workers *w, Box *b) {
  send(w, b, 0, "space");
  finish(w, b, 1);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  check_str(b->error[0], "no space");
#endif
}

static void all_kill(Workers *w, Box *b) {
  for (int i = 0; i < 10; i++) send(w, b, i, "kill 11");
  finish(w, b, 10);
  for (int i = 0; i < 10; i++) check_has(b->error[i], "signal 11 (SEGV)");
  check_int(work_processes(w), ==, 20);
}

static void bad_luck(Workers *w, Box *b) {
  char text[80] = "once /tmp/t-worker.XXXXXX";
  int fd = mkstemp(text + 5);
  close(fd);
  send(w, b, 0, "kernel");
  send(w, b, 1, text);
  finish(w, b, 2);
  check_int(b->kind[1], ==, CODEGEN_OBJECT);
}

static void noise(Workers *w, Box *b) {
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < ITEMS; i++) {
      char text[40];
      snprintf(text, sizeof text, "noise %d", round * ITEMS + i);
      b->answers[i] = 0;
      send(w, b, i, i % 4 ? text : "kernel");
    }
    finish(w, b, ITEMS);
    /* noise may look like an answer, and what follows it is then blamed on the next kernel */
    int good = 0;
    for (int i = 0; i < ITEMS; i += 4) good += b->kind[i] == CODEGEN_OBJECT;
    check_int(good, >, ITEMS / 8);
  }
}

/* Somebody kills the processes from outside, while they work and while they wait. */
static void from_outside(Workers *w, Box *b) {
  send(w, b, 0, "kernel");
  finish(w, b, 1);
  for (int round = 1; round < 5; round++) {
    char command[80];
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) { /* our children */
      long pid = atol(x->d_name), parent = 0;
      snprintf(command, sizeof command, "/proc/%ld/stat", pid);
      FILE *in = pid > 0 ? fopen(command, "r") : NULL;
      if (!in) continue;
      if (fscanf(in, "%*d (%*[^)]) %*c %ld", &parent) == 1 && parent == (long)getpid())
        kill((pid_t)pid, SIGKILL);
      fclose(in);
    }
    if (d) closedir(d);
    send(w, b, round, "kernel");
    finish(w, b, round + 1);
    check_int(b->kind[round], ==, CODEGEN_OBJECT);
  }
}

static void left_alone(Workers *w, Box *b) {
  for (int i = 0; i < 6; i++) send(w, b, i, "slow 900");
  for (int i = 0; i < 6; i++) check_int(b->answers[i], ==, 0);
}

static void t_no_program(void) {
  static Box box;
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  const char *paths[] = {"/no/such/program", "/etc/passwd", "/"};
  for (size_t i = 0; i < 3; i++) {
    Workers *w = opened(&m, paths[i], 2, 0, &box);
    need(w);
    for (int k = 0; k < 5; k++) send(w, &box, k, "kernel");
    finish(w, &box, 5);
    for (int k = 0; k < 5; k++) check_has(box.error[k], "cannot start");
    check_has(box.error[0], paths[i]);
    work_close(w);
  }
  Workers *w = opened(&m, "/bin/true", 2, 0, &box); /* ends at once */
  for (int k = 0; k < 5; k++) send(w, &box, k, "kernel");
  finish(w, &box, 5);
  for (int k = 0; k < 5; k++) check_has(box.error[k], "status 0");
  work_close(w);
  check(failing_clean(&f, &m));
  check(!children_left());
}

static void t_fork(void) {
  static Box box;
  Failing f;
  Mem m;
  failing_init(&f, &m, 0);
  Workers *w = opened(&m, fake_path(), 2, 0, &box);
  send(w, &box, 0, "slow 300");
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(20);
    bool ok = !work_poll(w, 0);
    send(w, &box, 1, "kernel");
    while (work_poll(w, 1000)) continue;
    ok &= box.answers[1] == 1 && box.kind[1] == CODEGEN_OBJECT && !box.answers[0];
    work_close(w);
    _exit(ok && failing_clean(&f, &m) ? 0 : 1);
  }
  int status = 1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  check_int(status, ==, 0);
  finish(w, &box, 1);
  check_int(box.kind[0], ==, CODEGEN_OBJECT);
  work_close(w);
  check(failing_clean(&f, &m));
}

static void t_nomem(void) {
  static Box box;
  for (int nth = 1; nth < 6; nth++) {
    Failing f;
    Mem m;
    failing_init(&f, &m, nth);
    Workers *w = opened(&m, fake_path(), 2, 0, &box);
    if (w) {
      send(w, &box, 0, "big 10000");
      send(w, &box, 1, "kernel");
      finish(w, &box, 2);
      for (int i = 0; i < 2; i++)
        check(box.kind[i] == CODEGEN_OBJECT || strstr(box.error[i], "out of memory"));
    }
    work_close(w);
    check(failing_clean(&f, &m));
  }
}

int main(int argc, char **argv) {
  (void)argv;
  fake_main(argc);
  TEST(with(4, 0, many), "many kernels go through a few processes");
  TEST(with(4, 0, one_by_one), "one process does when one kernel comes at a time");
  TEST(with(2, 0, errors), "errors and large answers arrive");
  TEST(with(3, 0, killed), "a kernel whose process is killed twice has failed, no other");
  TEST(with(3, 0, aborted), "an abort is an error of one kernel");
  TEST(with(3, 0, exited), "an exit is an error of one kernel");
  TEST(with(3, 0, nonsense), "nonsense is an error of one kernel");
  TEST(with(3, 0, other_id), "an answer to something else is an error of one kernel");
  TEST(with(3, 0, cut_short), "an answer that is cut short is an error of one kernel");
  TEST(with(2, 400, too_long), "after a process that hangs no kernel is sent any more");
  TEST(with(3, 400, all_hang), "kernels that all hang cost the time of one");
  TEST(with(1, 400, with_child), "what a process has started ends with it");
  TEST(with(1, 0, no_space), "a process cannot take all memory");
  TEST(with(2, 0, noise), "bytes at random harm nothing else");
  TEST(with(2, 0, all_kill), "kernels that all kill fail one by one");
  TEST(with(2, 0, bad_luck), "a kernel whose process died once is tried again");
  TEST(with(1, 0, from_outside), "a process killed from outside is replaced");
  TEST(with(3, 0, left_alone), "closing does not wait for work in progress");
  TEST(t_no_program(), "a program that cannot be started is an error");
  TEST(t_fork(), "a forked child has processes of its own");
  TEST(t_nomem(), "out of memory is an error of one kernel");
  return tap_done();
}
