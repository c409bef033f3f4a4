/* Ctrl-C, and reading from standard input so that no Ctrl-C is lost.
 *
 * In: SIGINT. Out: a call of the session that ends early, or a read that fails. Invariant: a read
 * never waits while a SIGINT is pending. So SIGINT is let through only inside pselect, which ends
 * for either a key or the signal; and the read that follows does not wait, since Ctrl-C makes the
 * terminal drop the keys that pselect has seen. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

/* A signal handler has no argument, so it works with these. */
static Cli *volatile interrupted_cli;
static volatile sig_atomic_t interrupts, running;

static void on_interrupt(int signo) {
  interrupts = interrupts + 1;
  Cli *c = interrupted_cli;
  if (c && c->session && interrupts == 1) {
    if (running) ckl_interrupt(c->session);
    return;
  }
  signal(signo, SIG_DFL);
  raise(signo);
}

void cli_catch_interrupt(Cli *c) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = on_interrupt;
  sigemptyset(&a.sa_mask);
  interrupted_cli = c;
  cli_rearm(true);
  sigaction(SIGINT, &a, NULL);
}

void cli_rearm(bool will_run) {
  interrupts = 0;
  running = will_run;
}

int cli_interrupts(void) {
  return interrupts;
}

void cli_hold_interrupts(bool hold) {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &interrupt, NULL);
}

/* Standard input; a terminal is opened anew, because reads that do not wait are a property of an
 * open file, and standard input is shared with other programs. */
static int input(void) {
  static int fd = -1;
  if (fd >= 0) return fd;
  const char *name = isatty(STDIN_FILENO) ? ttyname(STDIN_FILENO) : NULL;
  if (name) fd = open(name, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fd = STDIN_FILENO;
  return fd;
}

ssize_t cli_read_input(char *bytes, size_t n) {
  int fd = input();
  sigset_t waiting;
  sigprocmask(SIG_BLOCK, NULL, &waiting);
  sigdelset(&waiting, SIGINT);
  for (bool ready = false;;) {
    cli_hold_interrupts(false); /* a pending one comes before the keys typed after it */
    cli_hold_interrupts(true);
    if (interrupts) {
      errno = EINTR;
      return -1;
    }
    if (ready) {
      ssize_t k = read(fd, bytes, n);
      if (k >= 0 || (errno != EINTR && errno != EAGAIN)) return k;
    }
    fd_set in;
    FD_ZERO(&in);
    FD_SET(fd, &in);
    ready = pselect(fd + 1, &in, NULL, NULL, NULL, &waiting) > 0;
  }
}
