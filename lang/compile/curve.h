/* The plans that a call could have, and why it has the one that it has: what `ckl plan` prints when
 * it is asked for. */
#ifndef CKL_LANG_COMPILE_CURVE_H
#define CKL_LANG_COMPILE_CURVE_H

#include "lang/compile/report.h"

typedef struct CurveGraph {
  ChoiceOf of;
  bool added; /* the code has no block: the graph has one of all that a gradient needs */
} CurveGraph;
/* The graph whose plans a call could have. False: it takes no gradient. */
bool curve_graph(const CallReport *c, CurveGraph *out);
/* The call with another choice, which has a plan. */
CallReport curve_call(const CallReport *c, const Choice *choice);

/* Each prints what session.report asks for. */
void curve_print(const CallReport *c, Buf *out);
/* fate.c: the values that make the peak; what becomes of the values of a name. */
void fate_print_peak(const CallReport *c, Buf *out);
void fate_print_why(const CallReport *c, Buf *out);

#endif
