/* Steps: how long a program may go on. */
#ifndef CKL_LANG_EVAL_STEPS_H
#define CKL_LANG_EVAL_STEPS_H

#include "lang/compile/stage.h"
#include "lang/lang.h"

/* iterations of a loop that code unrolls; longer ones are not yet compiled */
enum { UNROLL_MAX = 4096 };

/* Of a public call: every statement, call and iteration of a loop, staged ones too, counts one
 * step. Leaves where ckl_config.max_steps are done, someone asked for an end, or the graph that is
 * being staged has more than ckl_config.max_nodes. */
void steps_start(Session *s);
void steps_more(Session *s, Span at);
_Noreturn void steps_stage_full(Session *s, Span at);
static inline void count_step(Session *s, Span at) {
  if (--s->steps_left < 0 || interrupt_asked(&s->kernel.stop)) steps_more(s, at);
  if (s->stage && s->stage->g->node_count > s->config.max_nodes) steps_stage_full(s, at);
}

#endif
