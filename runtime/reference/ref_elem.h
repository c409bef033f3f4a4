/* The reference evaluator's kernels of the elementwise functions, as in ref.h. A new row of
 * runtime/elementwise.def recompiles every file that includes this one. */
#ifndef CKL_RUNTIME_REFERENCE_REF_ELEM_H
#define CKL_RUNTIME_REFERENCE_REF_ELEM_H

#include "runtime/elementwise.h"
#include "runtime/reference/ref.h"

Tensor *ref_unary(Ref *r, RefUn f, const Tensor *x);
Tensor *ref_binary(Ref *r, RefBin f, const Tensor *x, const Tensor *y); /* equal shapes */

#endif
