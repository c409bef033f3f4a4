/* Code generator processes.
 *
 * In: items with loop text. Out: calls of `done`. Idea: each process has a stream socket and a
 * short queue of items that were sent to it; it answers in order, so the first of them is the one
 * it works on, and the one to blame when it dies. All sockets are non-blocking on our side and are
 * served by one poll. Invariant: an item is in exactly one queue (waiting, or of one process)
 * until `done` is called for it.
 */
#define _GNU_SOURCE
#include "jit/engine/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/file.h"

extern char **environ;

enum {
  MOST_PROCESSES = 16,
  AHEAD = 2,        /* items sent to one process: one in work, one that waits there */
  PATIENCE = 60000, /* milliseconds for one kernel */
  FAREWELL = 1000,  /* and for a process to end by itself */
  MOST_KILLED = 2,
};
typedef struct Queue {
  WorkItem *first, *last;
  int count;
} Queue;

typedef struct Process {
  pid_t pid; /* 0: not started */
  int fd;
  Queue sent;
  size_t sent_bytes; /* of the last item's frame; its whole length if nothing is left to send */
  int64_t since;     /* when the process began to work on its first item */
  CodegenFrame head; /* of the arriving answer */
  size_t got;        /* bytes of head and body together */
  char *body;
} Process;

struct Workers {
  Mem *mem;
  char *path;
  WorkDone *done;
  void *ud;
  pid_t owner;
  int most, patience;
  uint64_t next_id;
  int64_t started;
  bool given_up; /* one hung: nothing is sent any more */
  Queue waiting;
  Process process[MOST_PROCESSES];
};

static void push(Queue *q, WorkItem *x) {
  x->next = NULL;
  if (q->last)
    q->last->next = x;
  else
    q->first = x;
  q->last = x;
  q->count++;
}

static void push_front(Queue *q, WorkItem *x) {
  x->next = q->first;
  q->first = x;
  if (!q->last) q->last = x;
  q->count++;
}

static WorkItem *pop(Queue *q) {
  WorkItem *x = q->first;
  if (!x) return NULL;
  q->first = x->next;
  if (!q->first) q->last = NULL;
  q->count--;
  return x;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void answer_error(Workers *w, WorkItem *x, const char *text) {
  w->done(w->ud, x, CODEGEN_ERROR, text, strlen(text));
}

/* ---- processes */

/* The child closes every descriptor from 3 on. */
static int close_others(posix_spawn_file_actions_t *files) {
#ifdef HAVE_POSIX_SPAWN_FILE_ACTIONS_ADDCLOSEFROM_NP
  return posix_spawn_file_actions_addclosefrom_np(files, 3);
#else
  DIR *open_ones = opendir("/proc/self/fd");
  int error = 0;
  for (struct dirent *d; open_ones && !error && (d = readdir(open_ones));) {
    int fd = atoi(d->d_name);
    if (fd >= 3 && fd != dirfd(open_ones)) error = posix_spawn_file_actions_addclose(files, fd);
  }
  if (open_ones) closedir(open_ones);
  return error;
#endif
}

static const char *signal_name(int signo) {
#ifdef HAVE_SIGABBREV_NP
  const char *name = sigabbrev_np(signo);
#else
  const char *name = strsignal(signo);
#endif
  return name ? name : "?";
}

/* The child has the socket as its standard input and nothing else of ours. It is in a process
 * group of its own, so that Ctrl-C on the terminal is the session's alone. 0, or an errno. */
static int spawn(const char *path, int fd, pid_t *pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attr;
  sigset_t none, all;
  char *argv[] = {(char *)path, NULL};
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_init(&files);
  if (error) return error;
  error = posix_spawnattr_init(&attr);
  if (!error) {
    error = posix_spawn_file_actions_adddup2(&files, fd, 0);
    if (!error) error = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    if (!error) error = close_others(&files);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                        POSIX_SPAWN_SETPGROUP);
    if (!error) error = posix_spawn(pid, path, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
  }
  posix_spawn_file_actions_destroy(&files);
  return error;
}

/* Limits the memory of the process and its children; a lower limit stays. With a sanitizer there is
 * none, since it reserves more than any such limit. */
static void limit_space(pid_t pid) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlim_t most = (rlim_t)4 << 30; /* the kernels of examples/gpt.ckl take 0.15 GiB */
  struct rlimit now;
  if (prlimit(pid, RLIMIT_AS, NULL, &now)) return;
  if (now.rlim_cur > most) now.rlim_cur = most;
  if (now.rlim_max > most) now.rlim_max = most;
  prlimit(pid, RLIMIT_AS, &now, NULL);
#else
  (void)pid;
#endif
}

static int start(Workers *w, Process *p) {
  int pair[2];
  pid_t pid;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return errno;
  int error = fcntl(pair[0], F_SETFL, O_NONBLOCK) ? errno : spawn(w->path, pair[1], &pid);
  close(pair[1]);
  if (error) {
    close(pair[0]);
    return error;
  }
  limit_space(pid);
  *p = (Process){.pid = pid, .fd = pair[0]};
  w->started++;
  return 0;
}

/* Waits for the end of a process and kills it after `milliseconds`, with its children. Returns its
 * wait status, or -1 if another caller has taken it. */
static int reap(pid_t pid, int milliseconds) {
  int status = -1;
  int64_t end = now_ms() + milliseconds;
  for (bool forced = false;;) {
    siginfo_t info = {.si_pid = 0};
    if (!forced && now_ms() >= end) {
      kill(-pid, SIGKILL);
      forced = true;
    }
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | (forced ? 0 : WNOHANG))) {
      if (errno != EINTR) return -1;
    } else if (info.si_pid == pid) { /* it still holds its number, and so that of its group */
      kill(-pid, SIGKILL);
      while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
      return status;
    }
    if (!forced) nanosleep(&(struct timespec){0, 300000}, NULL);
  }
}

/* Ends a process. The caller has taken its items before. */
static int stop(Workers *w, Process *p, int milliseconds) {
  close(p->fd);
  if (p->body) mem_free(w->mem, p->body, p->head.length);
  int status = getpid() == w->owner ? reap(p->pid, milliseconds) : -1;
  *p = (Process){.fd = -1};
  return status;
}

static void describe(char *text, size_t n, int status) {
  if (status >= 0 && WIFSIGNALED(status))
    snprintf(text, n, "the code generator was ended by signal %d (%s)", WTERMSIG(status),
             signal_name(WTERMSIG(status)));
  else if (status >= 0 && WIFEXITED(status))
    snprintf(text, n, "the code generator ended with status %d in the middle", WEXITSTATUS(status));
  else
    snprintf(text, n, "the code generator ended in the middle");
}

/* Handles a process that went wrong. The item that it worked on (if any) is tried once more, unless
 * `final`; its other items go back to the front of the queue. If `why` is NULL, the text of the
 * error comes from the exit status. */
static void fail(Workers *w, Process *p, const char *why, bool final) {
  char text[200];
  Queue sent = p->sent;
  int status = stop(w, p, why ? 0 : FAREWELL);
  describe(text, sizeof text, status);
  WorkItem *guilty = pop(&sent), *rest[AHEAD];
  int n = 0;
  while (n < AHEAD && sent.first) rest[n++] = pop(&sent);
  while (n > 0) push_front(&w->waiting, rest[--n]);
  if (!guilty) return;
  if (++guilty->killed < MOST_KILLED && !final)
    push_front(&w->waiting, guilty);
  else
    answer_error(w, guilty, why ? why : text);
}

/* ---- sending */

static CodegenFrame frame_of(const WorkItem *x) {
  return (CodegenFrame){.magic = CODEGEN_MAGIC,
                        .kind = CODEGEN_COMPILE,
                        .id = x->id,
                        .level = x->level,
                        .flags = x->flags,
                        .length = x->text_n};
}

static bool unsent(const Process *p) {
  return p->sent.last && p->sent_bytes < sizeof(CodegenFrame) + p->sent.last->text_n;
}

/* Sends more data of its items to a process; false if the process is gone. */
static bool send_some(Process *p) {
  while (unsent(p)) {
    const WorkItem *x = p->sent.last;
    CodegenFrame f = frame_of(x);
    size_t at = p->sent_bytes;
    bool head = at < sizeof f;
    const char *from = head ? (const char *)&f + at : x->text + (at - sizeof f);
    ssize_t put = send(p->fd, from, (head ? sizeof f : sizeof f + x->text_n) - at,
                       MSG_NOSIGNAL | (head && x->text_n ? MSG_MORE : 0));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
    p->sent_bytes += (size_t)put;
  }
  return true;
}

/* Returns, of the processes that can take another item, the one with the fewest. Starts a process
 * if all are busy. NULL if none can take an item, or (with *error not 0) none could be started. */
static Process *choose(Workers *w, int *error) {
  Process *best = NULL, *empty = NULL;
  for (int i = w->most - 1; i >= 0; i--) {
    Process *p = &w->process[i];
    if (!p->pid)
      empty = p;
    else if (p->sent.count < AHEAD && !unsent(p) && (!best || p->sent.count <= best->sent.count))
      best = p;
  }
  if (best && !best->sent.count) return best;
  if (!empty) return best;
  *error = start(w, empty);
  if (!*error) return empty;
  if (best) *error = 0;
  return best;
}

static bool any_running(const Workers *w) {
  for (int i = 0; i < w->most; i++)
    if (w->process[i].sent.count) return true;
  return false;
}

/* Assigns waiting items to processes. */
static void hand_out(Workers *w) {
  while (w->given_up && w->waiting.first) {
    answer_error(w, pop(&w->waiting), "the code generator took too long for another kernel");
  }
  while (w->waiting.first) {
    int error = 0;
    Process *p = choose(w, &error);
    if (!p && (!error || any_running(w))) return;
    WorkItem *x = pop(&w->waiting);
    if (!p) {
      char text[PATH_MAX + 100];
      snprintf(text, sizeof text, "cannot start %s: %s", w->path, file_why(error));
      answer_error(w, x, text);
      continue;
    }
    if (!p->sent.count) p->since = now_ms();
    push(&p->sent, x);
    p->sent_bytes = 0;
    if (!send_some(p)) fail(w, p, NULL, false);
  }
}

/* ---- receiving */

static bool head_fits(const Process *p) {
  const CodegenFrame *h = &p->head;
  return h->magic == CODEGEN_MAGIC && h->kind >= CODEGEN_OBJECT && h->kind <= CODEGEN_TEXT &&
         h->length <= CODEGEN_MOST && p->sent.first && h->id == p->sent.first->id &&
         (p->sent.count > 1 || !unsent(p));
}

/* Reads answers. Afterwards the slot may have another process, or none. */
static void receive(Workers *w, Process *p) {
  for (;;) {
    bool head = p->got < sizeof p->head;
    size_t want = head ? sizeof p->head - p->got : sizeof p->head + p->head.length - p->got;
    if (want) {
      char *to = head ? (char *)&p->head + p->got : p->body + (p->got - sizeof p->head);
      ssize_t n = recv(p->fd, to, want, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) {
        fail(w, p, NULL, false);
        return;
      }
      p->got += (size_t)n;
      if ((size_t)n < want) continue;
    }
    if (head) {
      if (!head_fits(p)) {
        fail(w, p, "the code generator answered nonsense", false);
        return;
      }
      if (p->head.length && !(p->body = mem_try(w->mem, NULL, 0, p->head.length))) {
        p->sent.first->nomem = true;
        fail(w, p, "out of memory for code", true);
        return;
      }
      if (p->head.length) continue;
    }
    CodegenKind kind = (CodegenKind)p->head.kind;
    char *body = p->body;
    size_t n = p->head.length;
    WorkItem *x = pop(&p->sent);
    p->body = NULL;
    p->got = 0;
    p->since = now_ms();
    w->done(w->ud, x, kind, body ? body : "", n);
    if (body) mem_free(w->mem, body, n);
  }
}

/* ---- all of it */

bool work_poll(Workers *w, int milliseconds) {
  if (getpid() != w->owner) return false; /* a forked child: these are its parent's processes */
  struct pollfd fds[MOST_PROCESSES];
  Process *of[MOST_PROCESSES];
  nfds_t n = 0;
  hand_out(w);
  int64_t now = now_ms();
  for (int i = 0; i < w->most; i++) {
    Process *p = &w->process[i];
    if (!p->pid || !p->sent.count) continue;
    int64_t left = p->since + w->patience - now;
    if (left < milliseconds) milliseconds = left < 0 ? 0 : (int)left;
    of[n] = p;
    fds[n++] = (struct pollfd){p->fd, (short)(POLLIN | (unsent(p) ? POLLOUT : 0)), 0};
  }
  if (!n) return w->waiting.first != NULL;
  int ready = poll(fds, n, milliseconds);
  now = now_ms();
  for (nfds_t i = 0; i < n; i++) {
    Process *p = of[i];
    if (ready > 0 && (fds[i].revents & POLLOUT) && !send_some(p)) {
      fail(w, p, NULL, false);
      continue;
    }
    if (ready > 0 && (fds[i].revents & (POLLIN | POLLHUP | POLLERR))) receive(w, p);
    if (p->pid && p->sent.count && now - p->since >= w->patience) {
      w->given_up = true;
      fail(w, p, "the code generator took too long", true);
    }
  }
  hand_out(w);
  return w->waiting.first || any_running(w);
}

void work_send(Workers *w, WorkItem *x) {
  x->id = ++w->next_id;
  x->killed = 0;
  x->nomem = false;
  if (getpid() !=
      w->owner) { /* after fork: the parent's processes are not ours, new ones will be */
    for (int i = 0; i < w->most; i++)
      if (w->process[i].pid) stop(w, &w->process[i], 0);
    w->waiting = (Queue){0};
    w->owner = getpid();
  }
  push(&w->waiting, x);
  hand_out(w);
}

int64_t work_processes(const Workers *w) {
  return w->started;
}

Workers *work_open(Mem *m, const char *path, int most, int patience, WorkDone *done, void *ud) {
  size_t n = strlen(path) + 1;
  Workers *w = mem_need(m, NULL, 0, sizeof *w);
  *w = (Workers){.mem = m, .done = done, .ud = ud, .owner = getpid()};
  w->path = mem_try(m, NULL, 0, n);
  if (!w->path) {
    mem_free(m, w, sizeof *w);
    mem_throw(m, MEM_ERR_NOMEM);
  }
  memcpy(w->path, path, n);
  w->most = most < 1 ? 1 : most > MOST_PROCESSES ? MOST_PROCESSES : most;
  w->patience = patience > 0 ? patience : PATIENCE;
  return w;
}

/* An idle process ends by itself when its input ends; a busy one is killed. */
void work_close(Workers *w) {
  if (!w) return;
  for (int i = 0; i < w->most; i++)
    if (w->process[i].pid && !w->process[i].sent.count) shutdown(w->process[i].fd, SHUT_WR);
  for (int i = 0; i < w->most; i++)
    if (w->process[i].pid) stop(w, &w->process[i], w->process[i].sent.count ? 0 : FAREWELL);
  mem_free(w->mem, w->path, strlen(w->path) + 1);
  mem_free(w->mem, w, sizeof *w);
}
