/* Arithmetic that takes more than an instruction: fused multiply-add where there is none, whole
 * numbers near a float, remainders of floats, quotients and powers of ints.
 *
 * In: values of one width. Out: the bits of runtime/fmath.c (the software FMA) and ref_elem.c.
 * Long code is an internal function; if it has branches, lanes call it one by one.
 *
 * Invariant: no quotient traps, whatever values inactive lanes hold. */
#include "jit/codegen/emit_impl.h"

#include <stdio.h>

#define B e->b

/* ---- fused multiply-add without the instruction (runtime/fmath.c has the same in C) */

/* Computes the exact product in f64 and rounds the sum to odd. */
static LLVMValueRef fma32_soft(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z) {
  LLVMTypeRef f64 = emit_like(x, LLVMDoubleTypeInContext(e->ctx));
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
#define C(c) ints(e, x, i64, c)
  LLVMValueRef p =
      LLVMBuildFMul(B, LLVMBuildFPExt(B, x, f64, ""), LLVMBuildFPExt(B, y, f64, ""), "");
  LLVMValueRef c = LLVMBuildFPExt(B, z, f64, ""), s = LLVMBuildFAdd(B, p, c, "");
  LLVMValueRef back = LLVMBuildFSub(B, s, p, "");
  LLVMValueRef rest = LLVMBuildFSub(B, p, LLVMBuildFSub(B, s, back, ""), "");
  rest = LLVMBuildFAdd(B, rest, LLVMBuildFSub(B, c, back, ""), "");
  LLVMValueRef u = bits(e, s), top = C(0x7ff0000000000000);
  LLVMValueRef finite = icmp(e, LLVMIntNE, LLVMBuildAnd(B, u, top, ""), top);
  LLVMValueRef inexact = fcmp(e, LLVMRealUNE, rest, real(e, rest, 0));
  LLVMValueRef even = icmp(e, LLVMIntEQ, LLVMBuildAnd(B, u, C(1), ""), C(0));
  LLVMValueRef up = fcmp(e, LLVMRealOGT, rest, real(e, rest, 0));
  LLVMValueRef grow = LLVMBuildXor(B, up, icmp(e, LLVMIntSLT, u, C(0)), "");
  LLVMValueRef odd = LLVMBuildAdd(B, u, sel(e, grow, C(1), C(UINT64_MAX)), "");
  LLVMValueRef act = LLVMBuildAnd(B, LLVMBuildAnd(B, finite, inexact, ""), even, "");
  return LLVMBuildFPTrunc(B, unbits(e, sel(e, act, odd, u)), LLVMTypeOf(x), "");
#undef C
}

/* Uses integers throughout, in i256: product and addend are aligned at about bit 190 with a sticky
 * bit, added, and rounded once. Scalars only. The steps are those of fm_fma64_soft with a wider
 * word, so that nothing is lost before the rounding. */
static LLVMValueRef fma64_soft(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), wide = LLVMIntTypeInContext(e->ctx, 256);
  LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->ctx);
#define C(c) LLVMConstInt(i64, c, false)
#define W(c) LLVMConstInt(wide, c, false)
  LLVMValueRef in[3] = {x, y, z}, u[3], m[3], ex[3], special[3];
  LLVMValueRef top = C(0x7ff0000000000000);
  for (int i = 0; i < 3; i++) {
    u[i] = LLVMBuildBitCast(B, in[i], i64, "");
    special[i] = icmp(e, LLVMIntEQ, LLVMBuildAnd(B, u[i], top, ""), top);
    LLVMValueRef field = LLVMBuildAnd(B, LLVMBuildLShr(B, u[i], C(52), ""), C(0x7ff), "");
    LLVMValueRef normal = icmp(e, LLVMIntNE, field, C(0));
    m[i] = LLVMBuildAnd(B, u[i], C(0xfffffffffffff), "");
    m[i] = LLVMBuildOr(B, m[i], sel(e, normal, C(0x10000000000000), C(0)), "");
    ex[i] = LLVMBuildSub(B, sel(e, normal, field, C(1)), C(1075), "");
  }
  LLVMValueRef zero =
      LLVMBuildOr(B, icmp(e, LLVMIntEQ, m[0], C(0)), icmp(e, LLVMIntEQ, m[1], C(0)), "");
  LLVMValueRef product = LLVMBuildFMul(B, x, y, "");
  LLVMValueRef plain = LLVMBuildFAdd(B, product, z, "");
  LLVMValueRef infinite = LLVMBuildOr(B, special[0], special[1], "");
  /* x and y are finite and z is not: the product may overflow and must not be added to z */
  plain = sel(e, LLVMBuildAnd(B, LLVMBuildNot(B, infinite, ""), special[2], ""),
              LLVMBuildFAdd(B, z, z, ""), plain);
  LLVMValueRef is_plain = LLVMBuildOr(B, LLVMBuildOr(B, infinite, special[2], ""), zero, "");
  LLVMBasicBlockRef start = LLVMGetInsertBlock(B), hard = emit_new_block(e, "hard");
  LLVMBasicBlockRef done = emit_new_block(e, "done");
  LLVMBuildCondBr(B, is_plain, done, hard);
  LLVMPositionBuilderAtEnd(B, hard);
  /* p = product * 2^ep, c = addend * 2^ez. If the exponents differ by at most 120, both numbers are
   * brought to the smaller exponent. Else the greater number is shifted up by 120, and the smaller
   * one becomes a sticky bit below it. */
  LLVMTypeRef i128 = LLVMIntTypeInContext(e->ctx, 128);
  LLVMValueRef p =
      LLVMBuildMul(B, LLVMBuildZExt(B, m[0], i128, ""), LLVMBuildZExt(B, m[1], i128, ""), "");
  LLVMValueRef c = LLVMBuildZExt(B, m[2], wide, "");
  p = LLVMBuildZExt(B, p, wide, "");
  LLVMValueRef ep = LLVMBuildAdd(B, ex[0], ex[1], "");
  LLVMValueRef ez = sel(e, icmp(e, LLVMIntEQ, m[2], C(0)), ep, ex[2]);
  LLVMValueRef d = LLVMBuildSub(B, ep, ez, "");
  LLVMValueRef product_up = icmp(e, LLVMIntSGE, d, C(0));
  LLVMValueRef dist = sel(e, product_up, d, LLVMBuildNeg(B, d, ""));
  LLVMValueRef high = sel(e, product_up, p, c), low = sel(e, product_up, c, p);
  LLVMValueRef e_high = sel(e, product_up, ep, ez);
  LLVMValueRef far = icmp(e, LLVMIntUGT, dist, C(120));
  LLVMValueRef up = sel(e, far, C(120), dist), down = LLVMBuildSub(B, dist, up, "");
  LLVMValueRef most = C(200);
  down = sel(e, icmp(e, LLVMIntUGT, down, most), most, down);
  high = LLVMBuildShl(B, high, LLVMBuildZExt(B, up, wide, ""), "");
  LLVMValueRef wd = LLVMBuildZExt(B, down, wide, ""), cut = LLVMBuildLShr(B, low, wd, "");
  LLVMValueRef lost = icmp(e, LLVMIntNE, LLVMBuildShl(B, cut, wd, ""), low);
  low = LLVMBuildOr(B, cut, LLVMBuildZExt(B, lost, wide, ""), "");
  LLVMValueRef exponent = LLVMBuildSub(B, e_high, up, "");
  /* the signed sum: 106 + 120 bits and a sign fit */
  LLVMValueRef neg_p = icmp(e, LLVMIntSLT, LLVMBuildXor(B, u[0], u[1], ""), C(0));
  LLVMValueRef neg_z = icmp(e, LLVMIntSLT, u[2], C(0));
  LLVMValueRef neg_high = sel(e, product_up, neg_p, neg_z),
               neg_low = sel(e, product_up, neg_z, neg_p);
  LLVMValueRef differ = LLVMBuildXor(B, neg_high, neg_low, "");
  LLVMValueRef sum = LLVMBuildAdd(B, high, sel(e, differ, LLVMBuildNeg(B, low, ""), low), "");
  LLVMValueRef below = icmp(e, LLVMIntSLT, sum, W(0));
  sum = sel(e, below, LLVMBuildNeg(B, sum, ""), sum);
  LLVMValueRef neg = LLVMBuildXor(B, neg_high, below, "");
  LLVMValueRef none = icmp(e, LLVMIntEQ, sum, W(0));
  /* An exact sum of 0 is -0 only if both are -0. p is not 0, so p and c cancel: the sum is +0. */
  LLVMValueRef args[2] = {sum, LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 0, false)};
  LLVMValueRef lead = emit_intrinsic(e, "llvm.ctlz", wide, 2, args);
  lead = LLVMBuildTrunc(B, lead, i64, "");
  lead = sel(e, none, C(0), LLVMBuildSub(B, lead, C(1), ""));
  /* the value is sum * 2^exponent, its top bit is number 254 - lead */
  LLVMValueRef top_at = LLVMBuildSub(B, C(254), lead, "");
  LLVMValueRef field = LLVMBuildAdd(B, LLVMBuildAdd(B, exponent, top_at, ""), C(1023), "");
  LLVMValueRef subnormal = icmp(e, LLVMIntSLT, field, C(1));
  LLVMValueRef extra = sel(e, subnormal, LLVMBuildSub(B, C(1), field, ""), C(0));
  field = sel(e, subnormal, C(1), field);
  /* shift left to bit 254, then down by 202 + extra, rounding */
  LLVMValueRef norm = LLVMBuildShl(B, sum, LLVMBuildZExt(B, lead, wide, ""), "");
  LLVMValueRef by = LLVMBuildAdd(B, C(202), extra, "");
  LLVMValueRef too_low = icmp(e, LLVMIntUGT, by, C(255));
  by = sel(e, too_low, C(255), by);
  LLVMValueRef wby = LLVMBuildZExt(B, by, wide, "");
  LLVMValueRef kept = LLVMBuildLShr(B, norm, wby, "");
  LLVMValueRef rest = LLVMBuildSub(B, norm, LLVMBuildShl(B, kept, wby, ""), "");
  LLVMValueRef half = LLVMBuildShl(B, W(1), LLVMBuildSub(B, wby, W(1), ""), "");
  LLVMValueRef tie = LLVMBuildAnd(B, icmp(e, LLVMIntEQ, rest, half),
                                  icmp(e, LLVMIntEQ, LLVMBuildAnd(B, kept, W(1), ""), W(1)), "");
  LLVMValueRef round = LLVMBuildOr(B, icmp(e, LLVMIntUGT, rest, half), tie, "");
  LLVMValueRef k = LLVMBuildTrunc(B, kept, i64, "");
  k = LLVMBuildAdd(B, k, LLVMBuildZExt(B, round, i64, ""), "");
  k = sel(e, too_low, C(0), k); /* less than half of the smallest number */
  LLVMValueRef r =
      LLVMBuildAdd(B, LLVMBuildShl(B, LLVMBuildSub(B, field, C(1), ""), C(52), ""), k, "");
  r = sel(e, icmp(e, LLVMIntSGE, field, C(2047)), top, r);
  r = LLVMBuildOr(B, r, sel(e, neg, C(0x8000000000000000), C(0)), "");
  r = sel(e, none, C(0), r);
  LLVMValueRef value = LLVMBuildBitCast(B, r, f64, "");
  LLVMBasicBlockRef from = LLVMGetInsertBlock(B);
  LLVMBuildBr(B, done);
  LLVMPositionBuilderAtEnd(B, done);
  LLVMValueRef phi = LLVMBuildPhi(B, f64, "");
  LLVMAddIncoming(phi, (LLVMValueRef[]){plain, value}, (LLVMBasicBlockRef[]){start, from}, 2);
  return phi;
#undef C
#undef W
}

/* Applies a scalar function of n doubles or floats lane by lane. */
static LLVMValueRef lane_by_lane(Emit *e, LLVMValueRef fn, int n, LLVMValueRef *x) {
  int w = emit_width_of(x[0]);
  if (w == 1) return emit_call(e, fn, n, x);
  LLVMTypeRef vec = LLVMTypeOf(x[0]), t = LLVMGetElementType(vec);
  LLVMValueRef place_of[4], one[3];
  for (int i = 0; i <= n; i++) place_of[i] = emit_alloca(e, vec, "lanes");
  for (int i = 0; i < n; i++) LLVMBuildStore(B, x[i], place_of[i]);
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), emit_i64(e, w), 1);
  for (int i = 0; i < n; i++)
    one[i] = LLVMBuildLoad2(B, t, LLVMBuildGEP2(B, t, place_of[i], &l.i, 1, ""), "");
  LLVMBuildStore(B, emit_call(e, fn, n, one), LLVMBuildGEP2(B, t, place_of[n], &l.i, 1, ""));
  emit_loop_end(e, &l);
  return LLVMBuildLoad2(B, vec, place_of[n], "");
}

static LLVMTypeRef fn_type(LLVMTypeRef t, int n) {
  LLVMTypeRef par[3] = {t, t, t};
  return LLVMFunctionType(t, par, (unsigned)n, false);
}

LLVMValueRef emit_fma(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z) {
  LLVMValueRef arg[3] = {x, y, z}, fn;
  if (emit_has(e, HAS_FMA)) return emit_intrinsic(e, "llvm.fma", LLVMTypeOf(x), 3, arg);
  EmitSaved s;
  char name[32];
  bool dbl = is_double(x);
  snprintf(name, sizeof name, "fma_%d_%d", dbl ? 64 : 32, emit_width_of(x));
  if (emit_fn_begin(e, &s, name, fn_type(LLVMTypeOf(x), 3), &fn)) {
    LLVMValueRef p[3] = {LLVMGetParam(fn, 0), LLVMGetParam(fn, 1), LLVMGetParam(fn, 2)}, r, one;
    if (!dbl) {
      r = fma32_soft(e, p[0], p[1], p[2]);
    } else if (emit_width_of(x) == 1) {
      r = fma64_soft(e, p[0], p[1], p[2]);
    } else {
      EmitSaved inner;
      LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->ctx);
      if (emit_fn_begin(e, &inner, "fma_64_1", fn_type(f64, 3), &one)) {
        r = fma64_soft(e, LLVMGetParam(one, 0), LLVMGetParam(one, 1), LLVMGetParam(one, 2));
        LLVMBuildRet(B, r);
        emit_fn_end(e, &inner);
      }
      r = lane_by_lane(e, one, 3, p);
    }
    LLVMBuildRet(B, r);
    emit_fn_end(e, &s);
  }
  return emit_call(e, fn, 3, arg);
}

/* ---- floats */

/* Rounds to whole numbers: `way` -1 floor, 0 to nearest even, 1 ceil. */
LLVMValueRef emit_whole(Emit *e, int way, LLVMValueRef x) {
  if (emit_has(e, HAS_ROUND)) {
    return intrinsic1(e, way < 0 ? "llvm.floor" : way ? "llvm.ceil" : "llvm.roundeven", x);
  }
  LLVMValueRef magic = real(e, x, is_double(x) ? 0x1p52 : 0x1p23),
               a = intrinsic1(e, "llvm.fabs", x);
  LLVMValueRef r = LLVMBuildFSub(B, LLVMBuildFAdd(B, a, magic, ""), magic, "");
  r = copysign_of(e, r, x);
  if (way) {
    LLVMValueRef off = fcmp(e, way < 0 ? LLVMRealOGT : LLVMRealOLT, r, x);
    LLVMValueRef moved = LLVMBuildFAdd(B, r, real(e, x, way), "");
    r = copysign_of(e, sel(e, off, moved, r), x);
  }
  return sel(e, fcmp(e, LLVMRealOLT, a, magic), r, x);
}

/* The exact remainder of |x| by |y|, for finite x and finite y other than 0. Long division, each
 * step by as many bits as a 64-bit word has room for. `mant`: bits of the fraction. Scalars. */
static LLVMValueRef fmod_abs(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  bool dbl = is_double(x);
  int mant = dbl ? 52 : 23;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
#define C(c) LLVMConstInt(i64, (uint64_t)(c), false)
  LLVMValueRef in[2] = {x, y}, m[2], ex[2];
  for (int i = 0; i < 2; i++) {
    LLVMValueRef u = LLVMBuildZExt(B, bits(e, intrinsic1(e, "llvm.fabs", in[i])), i64, "");
    LLVMValueRef field = LLVMBuildLShr(B, u, C(mant), "");
    LLVMValueRef normal = icmp(e, LLVMIntNE, field, C(0));
    LLVMValueRef frac = LLVMBuildAnd(B, u, C(((uint64_t)1 << mant) - 1), "");
    m[i] = LLVMBuildOr(B, frac, sel(e, normal, C((uint64_t)1 << mant), C(0)), "");
    ex[i] = sel(e, normal, field, C(1));
  }
  /* r = m[0] 2^left, in units of y's last place */
  LLVMValueRef left = LLVMBuildSub(B, ex[0], ex[1], "");
  LLVMValueRef below = icmp(e, LLVMIntSLT, left, C(0));
  LLVMBasicBlockRef start = LLVMGetInsertBlock(B), head = emit_new_block(e, "mod");
  LLVMBasicBlockRef body = emit_new_block(e, "mod.step"), done = emit_new_block(e, "mod.end");
  LLVMValueRef first = LLVMBuildURem(B, m[0], m[1], "");
  LLVMBuildCondBr(B, below, done, head);
  LLVMPositionBuilderAtEnd(B, head);
  LLVMValueRef r = LLVMBuildPhi(B, i64, ""), n = LLVMBuildPhi(B, i64, "");
  LLVMBuildCondBr(B, icmp(e, LLVMIntSGT, n, C(0)), body, done);
  LLVMPositionBuilderAtEnd(B, body);
  int room = 63 - mant;
  LLVMValueRef by = sel(e, icmp(e, LLVMIntSLT, n, C(room)), n, C(room));
  LLVMValueRef next = LLVMBuildURem(B, LLVMBuildShl(B, r, by, ""), m[1], "");
  LLVMValueRef fewer = LLVMBuildSub(B, n, by, "");
  LLVMAddIncoming(r, (LLVMValueRef[]){first, next}, (LLVMBasicBlockRef[]){start, body}, 2);
  LLVMAddIncoming(n, (LLVMValueRef[]){left, fewer}, (LLVMBasicBlockRef[]){start, body}, 2);
  LLVMBuildBr(B, head);
  LLVMPositionBuilderAtEnd(B, done);
  LLVMValueRef q = LLVMBuildPhi(B, i64, "");
  LLVMAddIncoming(q, (LLVMValueRef[]){m[0], r}, (LLVMBasicBlockRef[]){start, head}, 2);
  /* q 2^(ex[1] - 1) in units of the smallest number: normalise */
  LLVMValueRef arg[2] = {q, LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 0, false)};
  LLVMValueRef lead =
      LLVMBuildSub(B, emit_intrinsic(e, "llvm.ctlz", i64, 2, arg), C(63 - mant), "");
  LLVMValueRef most = LLVMBuildSub(B, ex[1], C(1), "");
  LLVMValueRef shift = sel(e, icmp(e, LLVMIntSLT, lead, most), lead, most);
  LLVMValueRef put = LLVMBuildShl(B, q, shift, "");
  LLVMValueRef field = LLVMBuildShl(B, LLVMBuildSub(B, most, shift, ""), C(mant), "");
  LLVMValueRef u = LLVMBuildAdd(B, put, field, "");
  u = sel(e, below, LLVMBuildZExt(B, bits(e, intrinsic1(e, "llvm.fabs", x)), i64, ""), u);
  u = sel(e, icmp(e, LLVMIntEQ, q, C(0)), C(0), u);
  if (!dbl) u = LLVMBuildTrunc(B, u, LLVMInt32TypeInContext(e->ctx), "");
  return unbits(e, u);
#undef C
}

/* As fmod_abs, for lanes whose quotient is below 2^52 (f32: 2^23); *quick tells which. Rounded and
 * cut, the quotient is right or 1 too large, so the fused remainder is right or too small by |y|.
 * In both cases it is exact: a multiple of y's last place that is no larger than |y|. */
static LLVMValueRef fmod_near(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef *quick) {
  LLVMValueRef ax = intrinsic1(e, "llvm.fabs", x), ay = intrinsic1(e, "llvm.fabs", y);
  LLVMValueRef q = intrinsic1(e, "llvm.trunc", LLVMBuildFDiv(B, ax, ay, ""));
  *quick = fcmp(e, LLVMRealOLT, q, real(e, x, is_double(x) ? 0x1p52 : 0x1p23));
  LLVMValueRef r = emit_fma(e, LLVMBuildFNeg(B, q, ""), ay, ax);
  return sel(e, fcmp(e, LLVMRealOLT, r, real(e, x, 0)), LLVMBuildFAdd(B, r, ay, ""), r);
}

/* x % y (`mod`) or x // y of floats, computed from fmod as in ref_elem.c. If `quick` is NULL the
 * operands are scalars; else fmod_near is used, and *quick tells which lanes are right. */
static LLVMValueRef modulo(Emit *e, bool mod, LLVMValueRef x, LLVMValueRef y, LLVMValueRef *quick) {
  LLVMValueRef zero = real(e, x, 0), inf = real(e, x, __builtin_inf());
  LLVMValueRef ax = intrinsic1(e, "llvm.fabs", x), ay = intrinsic1(e, "llvm.fabs", y);
  LLVMValueRef ok =
      LLVMBuildAnd(B, fcmp(e, LLVMRealOLT, ax, inf), fcmp(e, LLVMRealOGT, ay, zero), "");
  LLVMValueRef finite = LLVMBuildAnd(B, ok, fcmp(e, LLVMRealOLT, ay, inf), "");
  LLVMValueRef tame[2] = {sel(e, finite, x, zero), sel(e, finite, y, real(e, x, 1))};
  LLVMValueRef m = quick ? fmod_near(e, tame[0], tame[1], quick) : fmod_abs(e, tame[0], tame[1]);
  m = sel(e, finite, m, ax); /* y is infinite */
  m = sel(e, ok, copysign_of(e, m, x), real(e, x, __builtin_nan("")));
  LLVMValueRef none = fcmp(e, LLVMRealOEQ, m, zero);
  LLVMValueRef differ =
      LLVMBuildXor(B, fcmp(e, LLVMRealOLT, m, zero), fcmp(e, LLVMRealOLT, y, zero), "");
  if (mod) {
    LLVMValueRef r = sel(e, differ, LLVMBuildFAdd(B, m, y, ""), m);
    return sel(e, none, copysign_of(e, zero, y), r);
  }
  LLVMValueRef over = LLVMBuildFDiv(B, x, y, "");
  LLVMValueRef q = LLVMBuildFDiv(B, LLVMBuildFSub(B, x, m, ""), y, "");
  LLVMValueRef less = LLVMBuildAnd(B, differ, LLVMBuildNot(B, none, ""), "");
  q = sel(e, less, LLVMBuildFSub(B, q, real(e, x, 1), ""), q);
  LLVMValueRef f = emit_whole(e, -1, q);
  LLVMValueRef up = fcmp(e, LLVMRealOGT, LLVMBuildFSub(B, q, f, ""), real(e, x, 0.5));
  f = sel(e, up, LLVMBuildFAdd(B, f, real(e, x, 1), ""), f);
  f = sel(e, fcmp(e, LLVMRealOEQ, q, zero), copysign_of(e, zero, over), f);
  return sel(e, fcmp(e, LLVMRealOEQ, y, zero), over, f);
}

LLVMValueRef emit_modulo(Emit *e, bool mod, LLVMValueRef x, LLVMValueRef y) {
  LLVMTypeRef t = is_double(x) ? LLVMDoubleTypeInContext(e->ctx) : LLVMFloatTypeInContext(e->ctx);
  LLVMValueRef fn, arg[2] = {x, y};
  EmitSaved s;
  char name[32];
  snprintf(name, sizeof name, "%s_%d", mod ? "mod" : "floordiv", is_double(x) ? 64 : 32);
  if (emit_fn_begin(e, &s, name, fn_type(t, 2), &fn)) {
    LLVMBuildRet(B, modulo(e, mod, LLVMGetParam(fn, 0), LLVMGetParam(fn, 1), NULL));
    emit_fn_end(e, &s);
  }
  int w = emit_width_of(x);
  if (w == 1 || !emit_has(e, HAS_FMA | HAS_ROUND)) return lane_by_lane(e, fn, 2, arg);
  LLVMValueRef quick, near = modulo(e, mod, x, y, &quick);
  LLVMTypeRef lanes = LLVMIntTypeInContext(e->ctx, (unsigned)w);
  LLVMValueRef all =
      icmp(e, LLVMIntEQ, LLVMBuildBitCast(B, quick, lanes, ""), LLVMConstAllOnes(lanes));
  LLVMBasicBlockRef start = LLVMGetInsertBlock(B), work = emit_new_block(e, "far");
  LLVMBasicBlockRef join = emit_new_block(e, "near");
  LLVMBuildCondBr(B, all, join, work);
  LLVMPositionBuilderAtEnd(B, work);
  LLVMValueRef far = lane_by_lane(e, fn, 2, arg);
  work = LLVMGetInsertBlock(B);
  LLVMBuildBr(B, join);
  LLVMPositionBuilderAtEnd(B, join);
  LLVMValueRef r = LLVMBuildPhi(B, LLVMTypeOf(x), "");
  LLVMAddIncoming(r, (LLVMValueRef[]){near, far}, (LLVMBasicBlockRef[]){start, work}, 2);
  return r;
}

/* ---- ints */

/* The quotient of ints, cut towards zero; y is neither 0 nor -1. There is no vector division of
 * ints, so narrow vectors go by way of f64, which is exact for 32 bits. */
static LLVMValueRef quotient(Emit *e, bool sign, LLVMValueRef x, LLVMValueRef y) {
  LLVMTypeRef t = LLVMTypeOf(x), f64 = emit_like(x, LLVMDoubleTypeInContext(e->ctx));
  if (emit_width_of(x) == 1 || LLVMGetIntTypeWidth(LLVMGetElementType(t)) == 64) {
    return sign ? LLVMBuildSDiv(B, x, y, "") : LLVMBuildUDiv(B, x, y, "");
  }
  LLVMTypeRef i32 = emit_like(x, LLVMInt32TypeInContext(e->ctx));
  LLVMValueRef a = sign ? LLVMBuildSExt(B, x, i32, "") : LLVMBuildZExt(B, x, i32, "");
  LLVMValueRef b = sign ? LLVMBuildSExt(B, y, i32, "") : LLVMBuildZExt(B, y, i32, "");
  LLVMValueRef q =
      LLVMBuildFDiv(B, LLVMBuildSIToFP(B, a, f64, ""), LLVMBuildSIToFP(B, b, f64, ""), "");
  return LLVMBuildTrunc(B, LLVMBuildFPToSI(B, q, i32, ""), t, "");
}

LLVMValueRef emit_int_div(Emit *e, bool mod, DType dt, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef zero = same_int(e, x, 0), one = same_int(e, x, 1);
  LLVMValueRef by0 = icmp(e, LLVMIntEQ, y, zero), skip = by0, minus = NULL;
  bool sign = dt != DT_U8;
  emit_flag(e, by0);
  if (sign) {
    minus = icmp(e, LLVMIntEQ, y, same_int(e, x, -1));
    skip = LLVMBuildOr(B, skip, minus, "");
  }
  LLVMValueRef d = sel(e, skip, one, y), q = quotient(e, sign, x, d);
  LLVMValueRef r = LLVMBuildSub(B, x, LLVMBuildMul(B, q, d, ""), "");
  if (sign) {
    LLVMValueRef differ = icmp(e, LLVMIntSLT, LLVMBuildXor(B, x, d, ""), zero);
    LLVMValueRef fix = LLVMBuildAnd(B, differ, icmp(e, LLVMIntNE, r, zero), "");
    q = sel(e, fix, LLVMBuildSub(B, q, one, ""), q);
    r = sel(e, fix, LLVMBuildAdd(B, r, d, ""), r);
    q = sel(e, minus, LLVMBuildNeg(B, x, ""), q);
  }
  return sel(e, by0, zero, mod ? r : q);
}

/* Squares while any lane has bits of the exponent left. */
LLVMValueRef emit_int_pow(Emit *e, DType dt, LLVMValueRef x, LLVMValueRef y) {
  LLVMTypeRef t = LLVMTypeOf(x);
  LLVMValueRef zero = same_int(e, x, 0), one = same_int(e, x, 1);
  LLVMValueRef bad = dt == DT_U8 ? NULL : icmp(e, LLVMIntSLT, y, zero);
  if (bad) {
    emit_flag(e, bad);
    y = sel(e, bad, zero, y);
  }
  LLVMBasicBlockRef start = LLVMGetInsertBlock(B), head = emit_new_block(e, "pow");
  LLVMBasicBlockRef body = emit_new_block(e, "pow.step"), done = emit_new_block(e, "pow.end");
  LLVMBuildBr(B, head);
  LLVMPositionBuilderAtEnd(B, head);
  LLVMValueRef p = LLVMBuildPhi(B, t, ""), b = LLVMBuildPhi(B, t, ""), k = LLVMBuildPhi(B, t, "");
  LLVMBuildCondBr(B, any(e, icmp(e, LLVMIntNE, k, zero)), body, done);
  LLVMPositionBuilderAtEnd(B, body);
  LLVMValueRef set = icmp(e, LLVMIntNE, LLVMBuildAnd(B, k, one, ""), zero);
  LLVMValueRef p2 = sel(e, set, LLVMBuildMul(B, p, b, ""), p), b2 = LLVMBuildMul(B, b, b, "");
  LLVMValueRef k2 = LLVMBuildLShr(B, k, one, "");
  LLVMBuildBr(B, head);
  LLVMBasicBlockRef from[2] = {start, body};
  LLVMAddIncoming(p, (LLVMValueRef[]){one, p2}, from, 2);
  LLVMAddIncoming(b, (LLVMValueRef[]){x, b2}, from, 2);
  LLVMAddIncoming(k, (LLVMValueRef[]){y, k2}, from, 2);
  LLVMPositionBuilderAtEnd(B, done);
  return bad ? sel(e, bad, zero, p) : p;
}

/* x / y of each lane, for 0 <= x and 0 < y. If all numbers are below 2^52 it is computed in f64
 * (the quotient, rounded to a whole number, is at most one too large); else by a division per
 * lane. */
LLVMValueRef emit_index_quotient(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  LLVMTypeRef vec = LLVMTypeOf(x), par[2] = {vec, vec};
  LLVMValueRef fn, arg[2] = {x, y};
  EmitSaved s;
  if (emit_fn_begin(e, &s, "quotients", LLVMFunctionType(vec, par, 2, false), &fn)) {
    x = LLVMGetParam(fn, 0);
    y = LLVMGetParam(fn, 1);
    LLVMValueRef limit = same_int(e, x, (int64_t)1 << 52), high = LLVMBuildOr(B, x, y, "");
    LLVMBasicBlockRef slow = emit_new_block(e, "slow"), fast = emit_new_block(e, "fast");
    LLVMBuildCondBr(B, any(e, icmp(e, LLVMIntUGE, high, limit)), slow, fast);
    LLVMPositionBuilderAtEnd(B, slow);
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMValueRef px = emit_alloca(e, vec, "x"), py = emit_alloca(e, vec, "y");
    LLVMBuildStore(B, x, px);
    LLVMBuildStore(B, y, py);
    Loop l;
    emit_loop(e, &l, emit_i64(e, 0), emit_i64(e, EMIT_LANES), 1);
    LLVMValueRef at = LLVMBuildGEP2(B, i64, px, &l.i, 1, "");
    LLVMValueRef d = LLVMBuildLoad2(B, i64, LLVMBuildGEP2(B, i64, py, &l.i, 1, ""), "");
    LLVMBuildStore(B, LLVMBuildUDiv(B, LLVMBuildLoad2(B, i64, at, ""), d, ""), at);
    emit_loop_end(e, &l);
    LLVMBuildRet(B, LLVMBuildLoad2(B, vec, px, ""));
    LLVMPositionBuilderAtEnd(B, fast);
    LLVMTypeRef f64 = emit_like(x, LLVMDoubleTypeInContext(e->ctx));
    LLVMValueRef ones = same_int(e, x, 0x4330000000000000), v[2] = {x, y};
    for (int i = 0; i < 2; i++) { /* the bits of an int below 2^52, in a double of exponent 2^52 */
      v[i] = LLVMBuildBitCast(B, LLVMBuildOr(B, v[i], ones, ""), f64, "");
      v[i] = LLVMBuildFSub(B, v[i], real(e, v[i], 0x1p52), "");
    }
    LLVMValueRef q = LLVMBuildFAdd(B, LLVMBuildFDiv(B, v[0], v[1], ""), real(e, v[0], 0x1p52), "");
    q = LLVMBuildXor(B, LLVMBuildBitCast(B, q, vec, ""), ones, "");
    LLVMValueRef over = icmp(e, LLVMIntUGT, LLVMBuildMul(B, q, y, ""), x);
    LLVMBuildRet(B, LLVMBuildAdd(B, q, LLVMBuildSExt(B, over, vec, ""), ""));
    emit_fn_end(e, &s);
  }
  return emit_call(e, fn, 2, arg);
}
