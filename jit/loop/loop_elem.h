/* Building kernels in loop form: the elementwise functions. A new row of runtime/elementwise.def
 * compiles again what includes this file. */
#ifndef CKL_JIT_LOOP_LOOP_ELEM_H
#define CKL_JIT_LOOP_LOOP_ELEM_H

#include "jit/loop/loop.h"
#include "runtime/elementwise.h"

/* Integer constants fold, x + 0, x * 1, x * 0 too, where the operands are i64. */
LVal lp_un(Kernel *k, RefUn f, LVal x);
LVal lp_bin(Kernel *k, RefBin f, LVal x, LVal y);

#endif
