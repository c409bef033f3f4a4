/* Building kernels in loop form: the elementwise functions. A new row of runtime/elementwise.def
 * recompiles every file that includes this one. */
#ifndef CKL_JIT_LOOP_LOOP_ELEM_H
#define CKL_JIT_LOOP_LOOP_ELEM_H

#include "jit/loop/loop.h"
#include "runtime/elementwise.h"

/* Integer constants fold; so do x + 0, x * 1 and x * 0 if the operands are i64. */
LVal lp_un(Kernel *k, RefUn f, LVal x);
LVal lp_bin(Kernel *k, RefBin f, LVal x, LVal y);

#endif
