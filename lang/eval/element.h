/* Iterations of a comprehension that runs in order, to what they draw (rule 92). */
#ifndef CKL_LANG_EVAL_ELEMENT_H
#define CKL_LANG_EVAL_ELEMENT_H

#include "lang/lang.h"

/* An Element stands for all iterations of one loop; it is entered and left at each, and ended
 * after the last. It is the pool's. */
typedef struct Element Element;
Element *elements_start(Session *s);
void element_enter(Session *s, Element *e);
void element_leave(Session *s, Element *e);
void elements_end(Session *s, Element *e);

#endif
