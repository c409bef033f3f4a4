/* Random numbers: Philox 4x32-10 and the distributions of runtime/rng.h.
 *
 * In: key, counter and element numbers, each the same for all lanes or one per lane. Out: the numbers
 * of runtime/rng.c. Words are computed in i64 with the upper half zero, since what a round needs is the
 * product of two words. */
#include "jit/emit.h"

#define B e->b

static LLVMValueRef like(Emit *e, LLVMValueRef x, uint64_t c) {
  return emit_splat(e, emit_i64(e, (int64_t)c), emit_width_of(x));
}

static LLVMValueRef low(Emit *e, LLVMValueRef x) {
  return LLVMBuildAnd(B, x, like(e, x, 0xffffffff), "");
}

static LLVMValueRef high(Emit *e, LLVMValueRef x) {
  return LLVMBuildLShr(B, x, like(e, x, 32), "");
}

static LLVMValueRef xor3(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z) {
  return LLVMBuildXor(B, LLVMBuildXor(B, x, y, ""), z, "");
}

/* c[4] becomes the block of counter c under the key; all of one width, as words. */
static void philox(Emit *e, LLVMValueRef c[4], LLVMValueRef k0, LLVMValueRef k1) {
  for (int round = 0; round < 10; round++) {
    LLVMValueRef p = LLVMBuildMul(B, like(e, c[0], 0xd2511f53), c[0], "");
    LLVMValueRef q = LLVMBuildMul(B, like(e, c[2], 0xcd9e8d57), c[2], "");
    c[0] = xor3(e, high(e, q), c[1], k0);
    c[1] = low(e, q);
    c[2] = xor3(e, high(e, p), c[3], k1);
    c[3] = low(e, p);
    k0 = low(e, LLVMBuildAdd(B, k0, like(e, k0, 0x9e3779b9), ""));
    k1 = low(e, LLVMBuildAdd(B, k1, like(e, k1, 0xbb67ae85), ""));
  }
}

/* The words of block `index`: see rng.h. */
static void block(Emit *e, LLVMValueRef key, LLVMValueRef counter, LLVMValueRef index,
                  LLVMValueRef w[4]) {
  w[0] = low(e, index);
  w[1] = high(e, index);
  w[2] = low(e, counter);
  w[3] = high(e, counter);
  philox(e, w, low(e, key), high(e, key));
}

static LLVMValueRef word64(Emit *e, LLVMValueRef lo, LLVMValueRef hi) {
  return LLVMBuildOr(B, lo, LLVMBuildShl(B, hi, like(e, hi, 32), ""), "");
}

static LLVMValueRef bit_is(Emit *e, LLVMValueRef x, int bit) {
  LLVMValueRef b = LLVMBuildAnd(B, x, like(e, x, (uint64_t)bit), "");
  return LLVMBuildICmp(B, LLVMIntNE, b, like(e, x, 0), "");
}

static LLVMValueRef sel(Emit *e, LLVMValueRef c, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildSelect(B, c, x, y, "");
}

static LLVMValueRef real(Emit *e, LLVMValueRef x, LLVMTypeRef t, double c) {
  return emit_splat(e, LLVMConstReal(t, c), emit_width_of(x));
}

/* floor(w * limit / 2^64) */
static LLVMValueRef below(Emit *e, LLVMValueRef w, LLVMValueRef limit) {
  LLVMValueRef wl = low(e, w), wh = high(e, w), ml = low(e, limit), mh = high(e, limit);
  LLVMValueRef mid = LLVMBuildAdd(B, LLVMBuildMul(B, wh, ml, ""), high(e, LLVMBuildMul(B, wl, ml, "")), "");
  LLVMValueRef mid2 = LLVMBuildAdd(B, LLVMBuildMul(B, wl, mh, ""), low(e, mid), "");
  LLVMValueRef r = LLVMBuildAdd(B, LLVMBuildMul(B, wh, mh, ""), high(e, mid), "");
  return LLVMBuildAdd(B, r, high(e, mid2), "");
}

static LLVMValueRef uniform(Emit *e, DType dt, LLVMValueRef i, LLVMValueRef w[4]) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->ctx), f64 = LLVMDoubleTypeInContext(e->ctx);
  if (dt == DT_F64) {
    LLVMValueRef odd = bit_is(e, i, 1);
    LLVMValueRef x = word64(e, sel(e, odd, w[2], w[0]), sel(e, odd, w[3], w[1]));
    x = LLVMBuildLShr(B, x, like(e, x, 11), "");
    /* below 2^53: in two parts that are exact, as few levels turn 64 bits to f64 */
    LLVMValueRef r = LLVMBuildSIToFP(B, x, emit_like(x, f64), "");
    return LLVMBuildFMul(B, r, real(e, x, f64, 0x1p-53), "");
  }
  LLVMValueRef odd = bit_is(e, i, 1);
  LLVMValueRef x = sel(e, bit_is(e, i, 2), sel(e, odd, w[3], w[2]), sel(e, odd, w[1], w[0]));
  x = LLVMBuildTrunc(B, LLVMBuildLShr(B, x, like(e, x, 8), ""),
                     emit_like(x, LLVMInt32TypeInContext(e->ctx)), "");
  int cut = dt == DT_F16 ? 13 : dt == DT_BF16 ? 16 : 0; /* halves have 11 and 8 of the 24 bits */
  if (cut) {
    LLVMValueRef keep = LLVMConstInt(LLVMInt32TypeInContext(e->ctx), 0xffffffff << cut, false);
    x = LLVMBuildAnd(B, x, emit_splat(e, keep, emit_width_of(x)), "");
  }
  LLVMValueRef r = LLVMBuildSIToFP(B, x, emit_like(x, f32), "");
  return LLVMBuildFMul(B, r, real(e, x, f32, 0x1p-24), "");
}

static LLVMValueRef normal(Emit *e, DType dt, LLVMValueRef i, LLVMValueRef w[4]) {
  LLVMValueRef a, b, z0, z1, odd = bit_is(e, i, 1);
  if (dt == DT_F64) {
    a = word64(e, w[0], w[1]);
    b = word64(e, w[2], w[3]);
  } else {
    LLVMTypeRef i32 = emit_like(i, LLVMInt32TypeInContext(e->ctx));
    LLVMValueRef upper = bit_is(e, i, 2);
    a = LLVMBuildTrunc(B, sel(e, upper, w[2], w[0]), i32, "");
    b = LLVMBuildTrunc(B, sel(e, upper, w[3], w[1]), i32, "");
  }
  emit_normal(e, a, b, &z0, &z1);
  return emit_round(e, dt, sel(e, odd, z1, z0));
}

One emit_random(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  DType dt = (DType)in->dtype;
  One x[6];
  bool same = true;
  for (int i = 0; i < in->operand_count; i++) {
    x[i] = emit_operand(e, v, i);
    same = same && x[i].kind == ONE_UNIFORM;
  }
  LLVMValueRef a[6], w[4], r;
  for (int i = 0; i < in->operand_count; i++) a[i] = same ? x[i].v : emit_vector(e, x[i]);
  if (in->op == LP_FOLD) {
    block(e, a[0], like(e, a[0], UINT64_MAX), a[1], w);
    r = word64(e, w[0], w[1]);
  } else if (in->op == LP_PHILOX) {
    for (int i = 0; i < 4; i++) w[i] = low(e, a[i]);
    philox(e, w, low(e, a[4]), low(e, a[5]));
    r = w[in->imm & 3];
  } else {
    bool quad = in->op != LP_RANDINT && dt != DT_F64; /* elements of a block: 4, else 2 */
    block(e, a[0], a[1], LLVMBuildLShr(B, a[2], like(e, a[2], quad ? 2 : 1), ""), w);
    if (in->op == LP_RANDINT) {
      LLVMValueRef odd = bit_is(e, a[2], 1), one = like(e, a[3], 1), arg[2] = {a[3], one};
      LLVMValueRef limit = emit_intrinsic(e, "llvm.smax", LLVMTypeOf(one), 2, arg);
      r = below(e, word64(e, sel(e, odd, w[2], w[0]), sel(e, odd, w[3], w[1])), limit);
    } else {
      r = in->op == LP_UNIFORM ? uniform(e, dt, a[2], w) : normal(e, dt, a[2], w);
    }
  }
  return same ? one_uniform(r) : one_vector(r);
}
