/* Random draws in a comprehension that runs in order: its iterations (rule 92). */
#ifndef CKL_LANG_EVAL_ELEMENT_H
#define CKL_LANG_EVAL_ELEMENT_H

#include "lang/lang.h"

/* An Element stands for all iterations of one loop. It is entered and left at each iteration, and
 * ended after the last. The pool owns it. */
typedef struct Element Element;
Element *elements_start(Session *s);
void element_enter(Session *s, Element *e);
void element_leave(Session *s, Element *e);
void elements_end(Session *s, Element *e);

#endif
