/* pty PROGRAM [ARG...] -- STEP...: runs a program on a terminal of its own and plays a
 * conversation. Steps take turns: a text to wait for ("+0.5" waits that many seconds instead, "*9"
 * types lines and drops them by Ctrl-C 9 times), then a text to type (\r \t, and \N with N an octal
 * code). What the program shows is copied to standard
 * output. Status 0: every text came and the program ended with 0; else 1. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static char shown[1 << 20]; /* everything so far */
static size_t length, seen; /* seen: what earlier waits have used up */
static int master;

/* Takes in what the program writes for up to `ms`. False at the end of it. */
static bool take(int ms) {
  struct pollfd p = {master, POLLIN, 0};
  if (poll(&p, 1, ms) <= 0) return true;
  ssize_t n = read(master, shown + length, sizeof shown - 1 - length);
  if (n <= 0) return false;
  fwrite(shown + length, 1, (size_t)n, stdout);
  fflush(stdout);
  length += (size_t)n;
  shown[length] = 0;
  return true;
}

static bool wait_for(const char *text) {
  for (int round = 0; round < 300; round++) {
    char *at = strstr(shown + seen, text);
    if (at) {
      seen = (size_t)(at - shown) + strlen(text);
      return true;
    }
    if (!take(100)) break;
  }
  printf("\npty: `%s` did not come\n", text);
  return false;
}

static void type(const char *text) {
  for (const char *p = text; *p; p++) {
    char c = *p;
    if (c == '\\' && p[1] == 'r') {
      c = '\r';
      p++;
    } else if (c == '\\' && p[1] == 't') {
      c = '\t';
      p++;
    } else if (c == '\\' && p[1] >= '0' && p[1] <= '7') {
      c = 0;
      while (p[1] >= '0' && p[1] <= '7') c = (char)(c * 8 + (*++p - '0'));
    }
    if (write(master, &c, 1) != 1) return;
  }
}

static bool open_terminal(void) {
  master = posix_openpt(O_RDWR | O_NOCTTY);
  return master >= 0 && !grantpt(master) && !unlockpt(master);
}

/* Whether both ends of a pseudo-terminal open: not where /dev/pts is missing (a plain chroot). */
static bool probe(void) {
  const char *name = open_terminal() ? ptsname(master) : NULL;
  int fd = name ? open(name, O_RDWR | O_NOCTTY) : -1;
  if (fd >= 0) close(fd);
  return fd >= 0;
}

/* Types a key and Ctrl-C, `count` times; each must bring a prompt. The time between the two goes
 * through 0 to 40 us, so that the terminal drops the key while the program is about to read it. */
static bool drop(int count) {
  for (int i = 0; i < count; i++) {
    struct timespec from, t;
    type("x");
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &t);
    while ((t.tv_sec - from.tv_sec) * 1000000000 + t.tv_nsec - from.tv_nsec < i % 80 * 500);
    type("\\3");
    if (!wait_for("> ")) return false;
    if (length > sizeof shown / 2) length = seen = 0;
  }
  return true;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--probe")) return probe() ? 0 : 1;
  int from = 1;
  while (from < argc && strcmp(argv[from], "--")) from++;
  if (from < 2 || from >= argc) return 2;
  argv[from] = NULL;
  if (!open_terminal()) {
    perror("pty");
    return 2;
  }
  const char *name = ptsname(master);
  pid_t child = fork();
  if (!child) {
    setsid();
    int fd = open(name, O_RDWR);
    if (fd < 0) _exit(127);
    ioctl(fd, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++) dup2(fd, i);
    close(master);
    execv(argv[1], argv + 1);
    _exit(127);
  }
  bool ok = true;
  for (int i = from + 1; i < argc && ok; i++) {
    bool typing = (i - from) % 2 == 0;
    if (typing) {
      type(argv[i]);
    } else if (argv[i][0] == '*') {
      ok = drop(atoi(argv[i] + 1));
    } else if (argv[i][0] == '+') {
      struct timespec end;
      clock_gettime(CLOCK_MONOTONIC, &end);
      for (int left = (int)(1000 * atof(argv[i] + 1)); left > 0; left -= 50) {
        struct timespec t = {0, 50000000};
        take(0);
        nanosleep(&t, NULL);
      }
    } else {
      ok = wait_for(argv[i]);
    }
  }
  int status = 0;
  for (int round = 0; round < 100 && take(100); round++) continue;
  if (waitpid(child, &status, WNOHANG) == 0) {
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    if (waitpid(child, &status, WNOHANG) == 0) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      printf("\npty: the program did not end\n");
      return 1;
    }
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status)) {
    printf("\npty: the program ended with %d\n", status);
    ok = false;
  }
  return ok ? 0 : 1;
}
