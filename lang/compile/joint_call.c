/* The two halves of a call with a gradient.
 *
 * In: what was differentiated, and for which results and inputs. Out: a forward that saves and a
 * backward, simplified. Where blocks leave something to choose, the choice is made first, and what
 * was planned for it is what runs.
 */
#include "lang/compile/compile.h"
#include "lang/compile/report.h"
#include "lang/compile/tiering.h"
#include "lang/tape/tape.h"

/* The joint graph, whose blocks leave something to choose or to tell. */
static Joint *joint_of_blocks(Session *s, JointRef *j, GErr *e, Prov *where, Span at) {
  JointWant want = {j->cot, j->wants, NULL};
  const JointWhole *w = ad_joint_whole(&j->arena, j->f, &want, e, where);
  if (w && j->capsule) { /* with carries for the inputs that have a gradient */
    want.carries = j->carries = w->gives_grad;
    w = ad_joint_whole(&j->arena, j->f, &want, e, where);
  }
  if (!w) return NULL;
  j->choice = (Choice){.g = w->g, .split = w->split};
  if (j->env && plan_wanted(s, j->f)) {
    j->choice = plan_choose_joint(s, &j->arena, w, j->env, j->dense, at);
  } else if (j->env && plan_thrift_wanted(s, w->g, j->env)) {
    JointWhole *t = ARENA_NEW(&j->arena, JointWhole);
    *t = *w;
    j->choice = plan_thrift(s, &j->arena, w->g, w->split, NULL, j->env);
    t->g = (Graph *)(uintptr_t)j->choice.g;
    w = t;
  }
  if (!j->choice.made) return ad_joint_split(&j->arena, w, j->choice.choice, e, where);
  Joint *made = ARENA_NEW(&j->arena, Joint);
  *made = *j->choice.made->runs.joint;
  j->made = j->choice.made;
  j->made->rc++;
  return made;
}

void joint_make(Session *s, JointRef *j, Span at) {
  if (j->joint) return;
  GErr e = {.code = ERR_BUG, .operand = -1};
  Prov where = {0};
  PassTime time = pass_start(s);
  Joint *made = j->f->blocks || j->env ? joint_of_blocks(s, j, &e, &where, at)
                                       : ad_joint(&j->arena, j->f, j->cot, j->wants, &e, &where);
  if (!made) fail_gerr(s, where.span.file ? where.span : at, &e);
  pass_end(s, PASS_JOINT, time);
  if (j->made) {
    made->forward = (Graph *)(uintptr_t)j->made->runs.first;
    made->backward = (Graph *)(uintptr_t)j->made->runs.second;
    native_planned(s, &j->forward, &j->made->first);
    native_planned(s, &j->backward, &j->made->second);
  } else {
    made->forward = simplified(s, &j->arena, made->forward, NULL);
    made->backward = simplified(s, &j->arena, made->backward, NULL);
  }
  pass_dump(s, PASS_JOINT, made->forward);
  pass_dump(s, PASS_JOINT, made->backward);
  if (j->choice.candidates) {
    native_must(s, &j->forward);
    native_must(s, &j->backward);
  }
  j->joint = made;
}
