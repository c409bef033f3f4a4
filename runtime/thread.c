/* How ckl starts threads, and how it notices that they did not come along in a fork.
 *
 * In: a function. Out: a thread that runs it. A page that the system wipes in children tells at the
 * cost of a read whether this process is the one that started the threads; where the system has no
 * such page, the number of the process tells.
 */
#define _GNU_SOURCE
#include "runtime/thread.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK = 1 << 20, PAGE = 4096 };

bool thread_start(pthread_t *id, void *(*run)(void *), void *ud) {
  sigset_t all, old;
  pthread_attr_t attr;
  if (pthread_attr_init(&attr)) return false;
  pthread_attr_setstacksize(&attr, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool ok = !pthread_create(id, &attr, run, ud);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attr);
  return ok;
}

static volatile char *wiped_page(void) {
#ifdef MADV_WIPEONFORK
  void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (!madvise(page, PAGE, MADV_WIPEONFORK)) return page;
  munmap(page, PAGE);
#endif
  return NULL;
}

void thread_home_set(ThreadHome *h) {
  if (!h->page) h->page = wiped_page();
  if (h->page) *h->page = 1;
  h->pid = getpid();
}

bool thread_home_is_here(const ThreadHome *h) {
  return h->page ? *h->page != 0 : getpid() == h->pid;
}

void thread_home_free(ThreadHome *h) {
  if (h->page) munmap((void *)h->page, PAGE);
  *h = (ThreadHome){0};
}
