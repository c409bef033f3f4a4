/* Short names for building instructions, shared by emit_value.c and emit_arith.c. Values are
 * scalars or vectors; constants are as wide as the value that they are combined with. */
#ifndef CKL_JIT_CODEGEN_EMIT_IMPL_H
#define CKL_JIT_CODEGEN_EMIT_IMPL_H

#include <string.h>

#include "jit/codegen/emit.h"

/* The constant c of an integer type, as wide as x. */
static inline LLVMValueRef ints(Emit *e, LLVMValueRef x, LLVMTypeRef t, uint64_t c) {
  return emit_splat(e, LLVMConstInt(t, c, false), emit_width_of(x));
}

/* The constant c of x's own element type, as wide as x. */
static inline LLVMValueRef same_int(Emit *e, LLVMValueRef x, int64_t c) {
  LLVMTypeRef t = LLVMTypeOf(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return emit_splat(e, LLVMConstInt(t, (uint64_t)c, true), emit_width_of(x));
}

static inline bool is_double(LLVMValueRef x) {
  LLVMTypeRef t = LLVMTypeOf(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  return LLVMGetTypeKind(t) == LLVMDoubleTypeKind;
}

/* A constant of x's type (float or double); c is exact in it. */
static inline LLVMValueRef real(Emit *e, LLVMValueRef x, double c) {
  LLVMTypeRef t = is_double(x) ? LLVMDoubleTypeInContext(e->ctx) : LLVMFloatTypeInContext(e->ctx);
  return emit_splat(e, LLVMConstReal(t, c), emit_width_of(x));
}

static inline LLVMValueRef intrinsic1(Emit *e, const char *name, LLVMValueRef x) {
  return emit_intrinsic(e, name, LLVMTypeOf(x), 1, &x);
}

static inline LLVMValueRef sel(Emit *e, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildSelect(e->b, c, x, y, "");
}

static inline LLVMValueRef fcmp(Emit *e, LLVMRealPredicate p, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildFCmp(e->b, p, x, y, "");
}

static inline LLVMValueRef icmp(Emit *e, LLVMIntPredicate p, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildICmp(e->b, p, x, y, "");
}

static inline LLVMTypeRef int_type(Emit *e, LLVMValueRef x) {
  return emit_like(x,
                   is_double(x) ? LLVMInt64TypeInContext(e->ctx) : LLVMInt32TypeInContext(e->ctx));
}

static inline LLVMTypeRef real_type(Emit *e, LLVMValueRef x) { /* of an i32 or i64 pattern */
  LLVMTypeRef t = LLVMTypeOf(x);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  bool wide = LLVMGetIntTypeWidth(t) == 64;
  return emit_like(x, wide ? LLVMDoubleTypeInContext(e->ctx) : LLVMFloatTypeInContext(e->ctx));
}

static inline LLVMValueRef bits(Emit *e, LLVMValueRef x) {
  return LLVMBuildBitCast(e->b, x, int_type(e, x), "");
}

static inline LLVMValueRef unbits(Emit *e, LLVMValueRef u) {
  return LLVMBuildBitCast(e->b, u, real_type(e, u), "");
}

static inline LLVMValueRef copysign_of(Emit *e, LLVMValueRef x, LLVMValueRef sign) {
  LLVMValueRef arg[2] = {x, sign};
  return emit_intrinsic(e, "llvm.copysign", LLVMTypeOf(x), 2, arg);
}

/* Whether any lane of a truth vector is set, as i1. */
static inline LLVMValueRef any(Emit *e, LLVMValueRef c) {
  if (emit_width_of(c) == 1) return c;
  LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)emit_width_of(c));
  return icmp(e, LLVMIntNE, LLVMBuildBitCast(e->b, c, t, ""), LLVMConstNull(t));
}

/* emit_arith.c. */
LLVMValueRef emit_whole(Emit *e, int way, LLVMValueRef x); /* -1 floor, 0 to nearest even, 1 ceil */
LLVMValueRef emit_modulo(Emit *e, bool mod, LLVMValueRef x, LLVMValueRef y); /* floats: %, or // */
LLVMValueRef emit_int_div(Emit *e, bool mod, DType dt, LLVMValueRef x, LLVMValueRef y);
LLVMValueRef emit_int_pow(Emit *e, DType dt, LLVMValueRef x, LLVMValueRef y);
/* x / y of vectors of i64 for 0 <= x, 0 < y. */
LLVMValueRef emit_index_quotient(Emit *e, LLVMValueRef x, LLVMValueRef y);

#endif
