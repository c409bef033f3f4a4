/* A memory hook that counts, fails the nth allocation, and checks that sizes are told truly. */
#ifndef TESTS_UNIT_FAILING_H
#define TESTS_UNIT_FAILING_H

#include <stdlib.h>
#include <string.h>

#include "runtime/mem.h"

typedef struct Failing {
  int64_t count;  /* allocations and growths so far */
  int64_t nth;    /* which of them fails; 0: none */
  int64_t blocks; /* alive */
  size_t bytes;   /* alive */
  bool wrong;     /* an old size was not the true one */
  int64_t stops;  /* which of them interrupts; 0: none */
  Interrupt *interrupt;
} Failing;

/* The true size stands before each block, far enough to keep 16-byte alignment. */
static void *failing_hook(void *ud, void *ptr, size_t old_size, size_t new_size) {
  Failing *f = ud;
  size_t *old = ptr ? (size_t *)((char *)ptr - 16) : NULL;
  if ((ptr ? *old : 0) != old_size) f->wrong = true;
  if (new_size && ++f->count == f->nth) return NULL;
  if (new_size && f->count == f->stops) *f->interrupt = true;
  size_t *made = new_size ? malloc(new_size + 16) : NULL;
  if (new_size && !made) return NULL;
  if (made) {
    *made = new_size;
    memset((char *)made + 16, 0xa5, new_size);
    f->blocks++;
    f->bytes += new_size;
  }
  if (ptr) {
    if (made) memcpy((char *)made + 16, ptr, old_size < new_size ? old_size : new_size);
    f->blocks--;
    f->bytes -= *old;
    free(old);
  }
  return made ? (char *)made + 16 : NULL;
}

static inline void failing_init(Failing *f, Mem *m, int64_t nth) {
  memset(f, 0, sizeof *f);
  f->nth = nth;
  mem_init(m, failing_hook, f);
}

/* Nothing is alive, the accounts agree, and every size was right. What is kept goes back first. */
static inline bool failing_clean(const Failing *f, Mem *m) {
  mem_trim(m);
  size_t data = m->data_live[DEV_CPU] + m->data_live[DEV_CUDA] + m->data_live[DEV_SIM];
  return !f->blocks && !f->bytes && !f->wrong && !m->live && !data;
}

#endif
