/* Work of C calls under guard: for the files that implement ckl.h. */
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

/* Runs work as a call of its own: with its diagnostics, from the first step. */
ckl_status api_perform(Job *j, void (*work)(Job *j));
/* Makes a value, in functions of the host too. */
void api_make_value(Job *j, void (*work)(Job *j));
/* For calls that a busy session allows: what they call of the host finds it busy. Gives what to put
 * back. */
bool api_keep_busy(Session *s);

/* A call that gives a text. */
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

/* Runs work, which writes to t->b; the text or NULL. `clear`: a call of its own, with its
 * diagnostics. */
const char *api_text(TextJob *t, void (*work)(TextJob *t), bool clear);

/* A new handle of v: NULL when out of memory, or a throw of it. */
ckl_value *api_handle(ckl_session *k, Value v);
ckl_value *api_need_handle(Session *s, Value v);

/* The program file j->path becomes the main module of a session that starts anew. */
void api_load_main(Job *j);
/* Runs j->text at the prompt's level; the value of a last expression goes to j->out. */
void api_work_eval(Job *j);

/* Makes j the call f(args), whose values go to v; false where one is of no use. */
enum { MOST_ARGS = 32 };
bool api_call_given(Job *j, const ckl_value *f, ckl_value *const *args, size_t n,
                    Value v[MOST_ARGS]);

#endif
