/* The elementary functions: runtime/fmath.inc expanded to LLVM instructions.
 *
 * In: values of f32 or f64, scalars or vectors. Out: the same instructions that runtime/fmath.c
 * has in C, so the same bits. V, I and B in fmath.inc are values of the width that is being
 * expanded (e->math_n). If the level has FMA the functions are expanded in place; else each is an
 * internal function, since its software FMA is long. */
#include <stdio.h>
#include <string.h>

#include "jit/codegen/emit_elem.h"
#include "jit/codegen/emit_impl.h"

#define BUILD e->b

static LLVMValueRef k_int(Emit *e, int w, uint64_t c) {
  LLVMTypeRef t = LLVMIntTypeInContext(e->ctx, (unsigned)w);
  return emit_splat(e, LLVMConstInt(t, c, false), e->math_n);
}

static LLVMTypeRef float_type(Emit *e, int w) {
  return w == 64 ? LLVMDoubleTypeInContext(e->ctx) : LLVMFloatTypeInContext(e->ctx);
}

static LLVMValueRef k_real(Emit *e, int w, double c) {
  return emit_splat(e, LLVMConstReal(float_type(e, w), c), e->math_n);
}

static LLVMTypeRef type_v(Emit *e, int w) {
  return emit_vec(float_type(e, w), e->math_n);
}
static LLVMTypeRef type_i(Emit *e, int w) {
  return emit_vec(LLVMIntTypeInContext(e->ctx, (unsigned)w), e->math_n);
}

static LLVMValueRef square_root(Emit *e, LLVMValueRef x) {
  return emit_intrinsic(e, "llvm.sqrt", LLVMTypeOf(x), 1, &x);
}

/* In lanes where c is set: *q, *r, *l = huge(x), computed lane by lane behind a branch. `huge`
 * takes the lanes of c as bits of an i16, and x, q, r, l by their places in memory. */
static void rare(Emit *e, int w, LLVMValueRef huge, LLVMValueRef c, LLVMValueRef x, LLVMValueRef *q,
                 LLVMValueRef *r, LLVMValueRef *l) {
  int n = e->math_n;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(e->ctx), v = type_v(e, w), i = type_i(e, w);
  LLVMValueRef set =
      n == 1 ? LLVMBuildZExt(BUILD, c, i16, "") : LLVMBuildBitCast(BUILD, c, i16, "");
  LLVMBasicBlockRef start = LLVMGetInsertBlock(BUILD), work = emit_new_block(e, "huge");
  LLVMBasicBlockRef join = emit_new_block(e, "reduced");
  LLVMValueRef some = LLVMBuildICmp(BUILD, LLVMIntNE, set, LLVMConstNull(i16), "");
  LLVMBuildCondBr(BUILD, some, work, join);
  LLVMPositionBuilderAtEnd(BUILD, work);
  LLVMValueRef at[4] = {emit_alloca(e, v, "x"), emit_alloca(e, i, "q"), emit_alloca(e, v, "r"),
                        emit_alloca(e, v, "l")};
  LLVMValueRef from[4] = {x, *q, *r, *l}, to[4], arg[5] = {set, at[0], at[1], at[2], at[3]};
  for (int j = 0; j < 4; j++) LLVMBuildStore(BUILD, from[j], at[j]);
  emit_call(e, huge, 5, arg);
  for (int j = 1; j < 4; j++) to[j] = LLVMBuildLoad2(BUILD, j == 1 ? i : v, at[j], "");
  LLVMBuildBr(BUILD, join);
  LLVMPositionBuilderAtEnd(BUILD, join);
  LLVMValueRef *out[4] = {NULL, q, r, l};
  for (int j = 1; j < 4; j++) {
    LLVMValueRef phi = LLVMBuildPhi(BUILD, j == 1 ? i : v, "");
    LLVMAddIncoming(phi, (LLVMValueRef[]){from[j], to[j]}, (LLVMBasicBlockRef[]){start, work}, 2);
    *out[j] = phi;
  }
}

/* fmath.inc has variables called e, so the emitter is called `em` there. */
#define WITH(...) (Emit * em, __VA_ARGS__)
#define HERE (em->b)
#define PASS(...) (em, __VA_ARGS__)
#define FM_FN(type, name, args)                                                                    \
  static __attribute__((unused)) type FM_TAG(name)                                                 \
  WITH args
#define FM_CALL(name, args) FM_TAG(name) PASS args
#define V LLVMValueRef
#define I LLVMValueRef
#define B LLVMValueRef
#define K(c) k_real(em, FM_W, (double)(c))
#define KI(c) k_int(em, FM_W, (uint64_t)(c))
#define ADD(a, b) LLVMBuildFAdd(HERE, a, b, "")
#define SUB(a, b) LLVMBuildFSub(HERE, a, b, "")
#define MUL(a, b) LLVMBuildFMul(HERE, a, b, "")
#define DIV(a, b) LLVMBuildFDiv(HERE, a, b, "")
#define FMA(a, b, c) emit_fma(em, a, b, c)
#define SQRT(a) square_root(em, a)
#define LT(a, b) LLVMBuildFCmp(HERE, LLVMRealOLT, a, b, "")
#define LE(a, b) LLVMBuildFCmp(HERE, LLVMRealOLE, a, b, "")
#define GT(a, b) LLVMBuildFCmp(HERE, LLVMRealOGT, a, b, "")
#define EQ(a, b) LLVMBuildFCmp(HERE, LLVMRealOEQ, a, b, "")
#define SEL(c, a, b) LLVMBuildSelect(HERE, c, a, b, "")
#define ISEL(c, a, b) LLVMBuildSelect(HERE, c, a, b, "")
#define BAND(a, b) LLVMBuildAnd(HERE, a, b, "")
#define BOR(a, b) LLVMBuildOr(HERE, a, b, "")
#define BXOR(a, b) LLVMBuildXor(HERE, a, b, "")
#define BNOT(a) LLVMBuildNot(HERE, a, "")
#define BITS(x) LLVMBuildBitCast(HERE, x, type_i(em, FM_W), "")
#define FLOAT(i) LLVMBuildBitCast(HERE, i, type_v(em, FM_W), "")
#define IADD(a, b) LLVMBuildAdd(HERE, a, b, "")
#define ISUB(a, b) LLVMBuildSub(HERE, a, b, "")
#define IMUL(a, b) LLVMBuildMul(HERE, a, b, "")
#define IAND(a, b) LLVMBuildAnd(HERE, a, b, "")
#define IOR(a, b) LLVMBuildOr(HERE, a, b, "")
#define IXOR(a, b) LLVMBuildXor(HERE, a, b, "")
#define ISHL(a, b) LLVMBuildShl(HERE, a, b, "")
#define ISHR(a, b) LLVMBuildLShr(HERE, a, b, "")
#define ISAR(a, b) LLVMBuildAShr(HERE, a, b, "")
#define IEQ(a, b) LLVMBuildICmp(HERE, LLVMIntEQ, a, b, "")
#define IULT(a, b) LLVMBuildICmp(HERE, LLVMIntULT, a, b, "")
#define I2F(i) LLVMBuildSIToFP(HERE, i, type_v(em, FM_W), "")
#define F2I(x) LLVMBuildFPToSI(HERE, x, type_i(em, FM_W), "")

static LLVMValueRef huge_fn(Emit *e, int w);
#define FM_RARE_REDUCE(c, x, q, r, l) rare(em, FM_W, huge_fn(em, FM_W), c, x, &(q), &(r), &(l))

#define FM_W 32
#define FM_TAG(name) name##_32
#include "runtime/fmath.inc"
#undef FM_W
#undef FM_TAG
#define FM_W 64
#define FM_TAG(name) name##_64
#include "runtime/fmath.inc"
#undef FM_W
#undef FM_TAG

/* Emits void huge(i16 lanes, x *, q *, r *, l *), which reduces the lanes that are set. */
static LLVMValueRef huge_fn(Emit *e, int w) {
  LLVMTypeRef p = LLVMPointerTypeInContext(e->ctx, 0), i16 = LLVMInt16TypeInContext(e->ctx);
  LLVMTypeRef par[5] = {i16, p, p, p, p};
  LLVMValueRef fn, i1;
  EmitSaved s;
  char name[32];
  snprintf(name, sizeof name, "huge_%d", w);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), par, 5, false);
  if (emit_fn_begin(e, &s, name, type, &fn)) {
    int n = e->math_n;
    e->math_n = 1;
    LLVMTypeRef v = type_v(e, w), i = type_i(e, w);
    Loop loop;
    emit_loop(e, &loop, emit_i64(e, 0), emit_i64(e, EMIT_LANES), 1);
    LLVMValueRef bit = LLVMBuildTrunc(BUILD, loop.i, i16, "");
    bit = LLVMBuildLShr(BUILD, LLVMGetParam(fn, 0), bit, "");
    i1 = LLVMBuildTrunc(BUILD, bit, LLVMInt1TypeInContext(e->ctx), "");
    LLVMBasicBlockRef work = emit_new_block(e, "lane"), skip = emit_new_block(e, "next");
    LLVMBuildCondBr(BUILD, i1, work, skip);
    LLVMPositionBuilderAtEnd(BUILD, work);
    LLVMValueRef at[4], x, q, r, l;
    for (int j = 0; j < 4; j++) {
      at[j] =
          LLVMBuildGEP2(BUILD, j == 1 ? i : v, LLVMGetParam(fn, (unsigned)j + 1), &loop.i, 1, "");
    }
    x = LLVMBuildLoad2(BUILD, v, at[0], "");
    if (w == 32)
      reduce_huge_32(e, x, &q, &r, &l);
    else
      reduce_huge_64(e, x, &q, &r, &l);
    LLVMBuildStore(BUILD, q, at[1]);
    LLVMBuildStore(BUILD, r, at[2]);
    LLVMBuildStore(BUILD, l, at[3]);
    LLVMBuildBr(BUILD, skip);
    LLVMPositionBuilderAtEnd(BUILD, skip);
    emit_loop_end(e, &loop);
    LLVMBuildRetVoid(BUILD);
    e->math_n = n;
    emit_fn_end(e, &s);
  }
  return fn;
}

/* The functions that elementwise.def declares as part of fmath.inc. */
#define FN_FMATH(NAME, name, args)                                                                 \
  case NAME:                                                                                       \
    return dbl ? name##_64 args : name##_32 args;
#define FN_FMATH_RARE FN_FMATH
#define FN_OWN(NAME, name, args)
#define FN_TRUTH(NAME, name, args)

static LLVMValueRef unary(Emit *e, int f, bool dbl, LLVMValueRef x) {
  switch (f) {
#define UN(NAME, name, text, ...) FN_##text(RU_##NAME, name, (e, x))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

static LLVMValueRef binary(Emit *e, int f, bool dbl, LLVMValueRef x, LLVMValueRef y) {
  switch (f) {
#define BIN(NAME, name, text, ...) FN_##text(RB_##NAME, name, (e, x, y))
#include "runtime/elementwise_rows.def"
  default: return x;
  }
}

/* Emits function number f of n operands, in place or as a call of an internal function. */
static LLVMValueRef apply(Emit *e, int n, int f, LLVMValueRef *x) {
  bool dbl = is_double(x[0]);
  int before = e->math_n;
  LLVMValueRef fn, r;
  LLVMTypeRef t = LLVMTypeOf(x[0]), par[2] = {t, t};
  EmitSaved s;
  char name[40];
  e->math_n = emit_width_of(x[0]);
  if (emit_has(e, HAS_FMA) && n == 1) {
    r = unary(e, f, dbl, x[0]);
  } else {
    snprintf(name, sizeof name, "math_%s_%d_%d", n == 1 ? elem_un[f].name : elem_bin[f].name,
             dbl ? 64 : 32, e->math_n);
    if (emit_fn_begin(e, &s, name, LLVMFunctionType(t, par, (unsigned)n, false), &fn)) {
      LLVMValueRef a = LLVMGetParam(fn, 0);
      LLVMBuildRet(BUILD, n == 1 ? unary(e, f, dbl, a) : binary(e, f, dbl, a, LLVMGetParam(fn, 1)));
      emit_fn_end(e, &s);
    }
    r = emit_call(e, fn, n, x);
  }
  e->math_n = before;
  return r;
}

LLVMValueRef emit_math(Emit *e, RefUn f, LLVMValueRef x) {
  return apply(e, 1, (int)f, &x);
}

LLVMValueRef emit_math2(Emit *e, RefBin f, LLVMValueRef x, LLVMValueRef y) {
  return apply(e, 2, (int)f, (LLVMValueRef[]){x, y});
}

void emit_normal(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *z0, LLVMValueRef *z1) {
  LLVMTypeRef t = LLVMTypeOf(a);
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  int before = e->math_n;
  e->math_n = emit_width_of(a);
  if (LLVMGetIntTypeWidth(t) == 64)
    normal_64(e, a, b, z0, z1);
  else
    normal_32(e, a, b, z0, z1);
  e->math_n = before;
}
