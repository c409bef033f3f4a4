/* Threads that ckl starts, and the process that has them. */
#ifndef CKL_RUNTIME_THREAD_H
#define CKL_RUNTIME_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

/* Starts a thread with a stack of 1 MiB that blocks all signals, so that threads of the host get
 * them. False if the system has none to give. */
bool thread_start(pthread_t *id, void *(*run)(void *), void *ud);

/* The process in which threads were started: a child after fork does not have them. */
typedef struct ThreadHome {
  volatile char *page; /* which a fork wipes: 1 in the process that has the threads */
  pid_t pid;           /* that process, if the system has no such page */
} ThreadHome;
void thread_home_set(ThreadHome *h); /* this process */
bool thread_home_is_here(const ThreadHome *h);
void thread_home_free(ThreadHome *h);

#endif
