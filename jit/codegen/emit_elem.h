/* Code of the elementwise functions, for LLVM values of any one width (scalars, or vectors of equal
 * length). */
#ifndef CKL_JIT_CODEGEN_EMIT_ELEM_H
#define CKL_JIT_CODEGEN_EMIT_ELEM_H

#include "jit/codegen/emit.h"
#include "runtime/elementwise.h"

/* ---- emit_value.c */
LLVMValueRef emit_un(Emit *e, RefUn f, DType dt, LLVMValueRef x);
LLVMValueRef emit_bin(Emit *e, RefBin f, DType dt, LLVMValueRef x, LLVMValueRef y);

/* ---- emit_math.c */
LLVMValueRef emit_math(Emit *e, RefUn f, LLVMValueRef x); /* the functions of runtime/fmath.inc */
LLVMValueRef emit_math2(Emit *e, RefBin f, LLVMValueRef x, LLVMValueRef y); /* of two arguments */

#endif
