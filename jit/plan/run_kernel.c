/* Runs one launch of a bound function.
 *
 * In: the addresses of buffers, which f->root has. Out: what the kernel computes. Without machine
 * code it is walked, a few iterations at a time, so that it can be stopped. */
#include <stdio.h>
#include <time.h>

#include "jit/plan/run_impl.h"

double jit_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void step_note(JitFn *f, const Bound *b, const Step *s, double seconds) {
  struct StepTime *t = &f->times[s - f->plan->steps];
  t->seconds += seconds;
  t->runs++;
  if (s->kind != STEP_KERNEL) return;
  t->bytes += b->launches[s->launch].bytes;
  t->work += b->launches[s->launch].work;
}

/* Each access is checked. */
static bool walk(JitFn *f, const Kernel *k, const BoundLaunch *l, KStatus *st,
                 const Interrupt *interrupt, bool last, GErr *e) {
  Err why = {0};
  bool ok = true;
  for (int64_t lo = 0; lo < l->iterations && !st->failed && ok;) {
    int64_t hi = l->iterations - lo > 64 ? lo + 64 : l->iterations;
    if (last)
      ok = lp_run_in(f->room, k, f->bufs, l->elements, l->args, lo, hi, st, &why);
    else if (interrupt_asked(interrupt))
      ok = gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
    else if (!lp_run_within(f->j->mem, k, f->bufs, l->elements, l->args, lo, hi, st, &why)) {
      ok = why.nomem ? gerr_set(e, ERR_NOMEM, -1, "out of memory")
                     : gerr_set(e, ERR_BUG, -1, "a kernel reads or writes %s", why.text);
    }
    lo = hi;
  }
  return ok;
}

/* The place in the program of the operation of a step, for the message of an error. */
static void place_of(const JitFn *f, const Step *s, Prov *at) {
  const Plan *p = f->plan;
  *at = p->g->provs[p->g->nodes[p->groups.items[s->group].root].prov];
}

/* Reports an address of checked machine code outside of its buffer. */
static bool left_buffer(JitFn *f, const Step *s, const BoundLaunch *l, const KStatus *st, GErr *e) {
  const Kernel *k = f->plan->low.launches[s->launch].k;
  const LBuf *b = &k->bufs[st->outside_buf];
  int64_t at = st->outside_at / (int64_t)dt_size((DType)b->dtype);
  char name[20], line[120], size[40] = "local";
  if (b->kind != LB_LOCAL)
    snprintf(size, sizeof size, "of %lld elements", (long long)l->elements[st->outside_buf]);
  eng_words(f->j->engine, k, (LVal)(st->outside - 1), name, line);
  return gerr_set(e, ERR_BUG, -1, "kernel %s would leave b%d (%s) at element %lld: `%s`", name,
                  (int)st->outside_buf, size, (long long)at, line);
}

bool launch_run(JitFn *f, const Bound *b, const Step *s, KStatus *st, const Interrupt *interrupt,
                bool last, GErr *e, Prov *at) {
  const BoundLaunch *l = &b->launches[s->launch];
  const Kernel *k = f->plan->low.launches[s->launch].k;
  for (size_t i = 0; i < k->buf_count; i++)
    f->bufs[i] = (char *)f->root[l->bufs[i].root] + l->bufs[i].offset;
  f->j->count.kernels++;
  double start = f->times ? jit_now() : 0;
  if (!f->j->engine) {
    bool ok = walk(f, k, l, st, interrupt, last, e);
    if (!ok && e->code == ERR_BUG) place_of(f, s, at);
    if (!ok) return false;
  } else if (!eng_run(f->j->engine, f->code[s->launch], f->bufs, l->args, l->iterations, l->effort,
                      l->local_bytes, st, interrupt) &&
             !last) {
    return gerr_set(e, ERR_INTERRUPT, -1, "interrupted");
  }
  if (f->times && !st->failed) step_note(f, b, s, jit_now() - start);
  if (!st->outside) return true;
  place_of(f, s, at);
  return left_buffer(f, s, l, st, e);
}
