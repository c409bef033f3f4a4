/* Runs the work of C calls under guard: for the files that implement ckl.h. */
#ifndef CKL_LANG_API_JOB_H
#define CKL_LANG_API_JOB_H

#include "lang/value/handle.h"

/* A call that runs part of a program, or makes a value. */
typedef struct Job {
  Session *s;
  const char *path, *text, *name;
  size_t n;
  ckl_value **out;
  Value v, f;
  Value *args;
  bool ran;
  void (*work)(struct Job *j);
  void *more;
} Job;

/* Runs work as a call of its own: diagnostics and steps start anew. */
ckl_status api_perform(Job *j, void (*work)(Job *j));
/* Makes a value; also allowed in functions of the host. */
void api_make_value(Job *j, void (*work)(Job *j));
/* For calls that a busy session allows: functions of the host that they call find it busy. Returns
 * the former s->busy, to put back. */
bool api_keep_busy(Session *s);

/* A call that returns a text. */
typedef struct TextJob {
  Session *s;
  Buf *b;
  const char *a, *c, *d;
  const char *const *list;
  size_t n;
  Value v;
  bool found;
  void (*work)(struct TextJob *t);
} TextJob;

/* Runs work, which writes to t->b; returns the text or NULL. `clear`: as a call of its own, with
 * its own diagnostics. */
const char *api_text(TextJob *t, void (*work)(TextJob *t), bool clear);

/* A new handle of v. When out of memory api_handle returns NULL, api_need_handle throws. */
ckl_value *api_handle(ckl_session *k, Value v);
ckl_value *api_need_handle(Session *s, Value v);

/* The program file j->path becomes the main module of a session that starts anew. */
void api_load_main(Job *j);
/* Runs j->text as at the prompt; the value of a last expression goes to j->out. */
void api_work_eval(Job *j);

/* Makes j the call f(args), with the values of args in v; false when one cannot be used. */
enum { MOST_ARGS = 32 };
bool api_call_given(Job *j, const ckl_value *f, ckl_value *const *args, size_t n,
                    Value v[MOST_ARGS]);

#endif
