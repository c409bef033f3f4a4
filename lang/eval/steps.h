/* Steps: the limit on how long a program may run. */
#ifndef CKL_LANG_EVAL_STEPS_H
#define CKL_LANG_EVAL_STEPS_H

#include "lang/compile/stage.h"
#include "lang/lang.h"

/* The most iterations of a loop that code unrolls. */
enum {
  UNROLL_MAX = 4096,
  UNROLL_SHORT = 64, /* if it can stay a loop */
  BREAKS_MAX = 512,  /* with `break` */
  RETURNS_MAX = 64   /* with `return`: gradients grow with the third power */
};

/* Steps are counted in a call of the API: one for each statement, call and iteration of a loop,
 * also while they are staged. It is an error after ckl_config.max_steps steps, when an interrupt is
 * asked for, or when the graph that is being staged has more than ckl_config.max_nodes nodes. */
void steps_start(Session *s);
void steps_more(Session *s, Span at);
_Noreturn void steps_stage_full(Session *s, Span at);
static inline void count_step(Session *s, Span at) {
  if (--s->steps_left < 0 || interrupt_asked(&s->kernel.stop)) steps_more(s, at);
  if (s->stage && s->stage->g->node_count > s->config.max_nodes) steps_stage_full(s, at);
}

#endif
