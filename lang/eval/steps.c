/* Steps: the limit on how long a program may run.
 *
 * In: a step at a place. Out: nothing, or the error of a call without steps left, or an interrupt
 * that the host asked for. Idea: one counter runs down to the next event (a question to the host,
 * or the last step), so that a step costs one decrement. Invariant: after the last step every
 * further one fails, even if the error was caught before. The bound on graphs is here too, since
 * the same iterations and calls make them large.
 */
#include "lang/compile/stage.h"
#include "lang/eval/steps.h"
#include "lang/lang.h"
#include "lang/value/fail.h"

static void refill(Session *s) {
  int64_t n =
      s->config.progress && s->config.progress_steps > 0 ? s->config.progress_steps : INT64_MAX;
  s->steps_left = n < s->steps_rest ? n : s->steps_rest;
  s->steps_rest -= s->steps_left;
}

void steps_start(Session *s) {
  s->steps_rest = s->config.max_steps > 0 ? s->config.max_steps : INT64_MAX;
  refill(s);
}

void steps_more(Session *s, Span at) {
  fail_if_interrupted(s, at);
  if (s->config.progress && s->steps_rest && s->config.progress(s->config.progress_ud))
    interrupt_set(&s->kernel.stop, true);
  fail_if_interrupted(s, at);
  refill(s);
  if (--s->steps_left >= 0) return; /* else no steps are left */
  s->steps_left = 0;
  fail_help(
      s, ERR_STEPS, at,
      "a statement, a call and an iteration of a loop is a step each; `ckl run --max-steps=N`, "
      "`ckl_config.max_steps` allow more",
      "more than %lld steps, which is all that this program may do",
      (long long)s->config.max_steps);
}

void steps_stage_full(Session *s, Span at) {
  const Graph *g = s->stage->g;
  const OpenLoop *l = s->loops && s->loops->staged ? s->loops : NULL;
  const char *name = g->name ? g->name : "code";
  Diag *d =
      l ? fail_report(
              s, ERR_GRAPH_FULL, l->at,
              "in iteration %lld of %lld of this loop the graph of `%s` has %zu nodes, and %u are "
              "allowed",
              (long long)l->iteration + 1, (long long)l->iterations, name, g->node_count,
              s->config.max_nodes)
        : fail_report(s, ERR_GRAPH_FULL, at, "the graph of `%s` has %zu nodes, and %u are allowed",
                      name, g->node_count, s->config.max_nodes);
  while (l && (l = l->up) && l->staged)
    dg_label(&s->diags, d, l->at, "in iteration %lld of %lld of this one",
             (long long)l->iteration + 1, (long long)l->iterations);
  dg_help(&s->diags, d,
          "each iteration of a compiled loop is nodes of its own: let a proc or the top level go "
          "through it, with the body in a fn, or compute on whole tensors; "
          "`ckl run --max-nodes=N`, `ckl_config.max_nodes` allow more");
  fail_raise(s);
}
