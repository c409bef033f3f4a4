/* Random numbers: Philox 4x32-10 and the distributions of runtime/rng.h.
 *
 * In: key, counter and element numbers, each the same for all lanes or one per lane. Out: the
 * numbers of runtime/rng.c. Words are computed in i64 with the upper half zero, since a round needs
 * the product of two words. */
#include "jit/codegen/emit.h"

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

static void one_round(Emit *e, LLVMValueRef c[6]) {
  LLVMValueRef p = LLVMBuildMul(B, like(e, c[0], 0xd2511f53), low(e, c[0]), "");
  LLVMValueRef q = LLVMBuildMul(B, like(e, c[2], 0xcd9e8d57), low(e, c[2]), "");
  c[0] = xor3(e, high(e, q), c[1], c[4]);
  c[1] = low(e, q);
  c[2] = xor3(e, high(e, p), c[3], c[5]);
  c[3] = low(e, p);
  c[4] = low(e, LLVMBuildAdd(B, c[4], like(e, c[4], 0x9e3779b9), ""));
  c[5] = low(e, LLVMBuildAdd(B, c[5], like(e, c[5], 0xbb67ae85), ""));
}

/* Replaces the counter in c[4] by its block under the key; all are words of one width. The rounds
 * are a loop, since ten rounds written out take long to compile. */
static void philox(Emit *e, LLVMValueRef c[4], LLVMValueRef k0, LLVMValueRef k1) {
  LLVMValueRef x[6] = {c[0], c[1], c[2], c[3], k0, k1}, phi[6];
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), emit_i64(e, 10), 1);
  for (int j = 0; j < 6; j++) {
    phi[j] = LLVMBuildPhi(B, LLVMTypeOf(x[j]), "");
    LLVMAddIncoming(phi[j], &x[j], &l.before, 1);
    x[j] = phi[j];
  }
  one_round(e, x);
  LLVMBasicBlockRef last = LLVMGetInsertBlock(B);
  for (int j = 0; j < 6; j++) LLVMAddIncoming(phi[j], &x[j], &last, 1);
  emit_loop_end(e, &l);
  for (int j = 0; j < 4; j++) c[j] = x[j];
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
  LLVMValueRef mid =
      LLVMBuildAdd(B, LLVMBuildMul(B, wh, ml, ""), high(e, LLVMBuildMul(B, wl, ml, "")), "");
  LLVMValueRef mid2 = LLVMBuildAdd(B, LLVMBuildMul(B, wl, mh, ""), low(e, mid), "");
  LLVMValueRef r = LLVMBuildAdd(B, LLVMBuildMul(B, wh, mh, ""), high(e, mid), "");
  return LLVMBuildAdd(B, r, high(e, mid2), "");
}

/* Converts whole numbers below 2^53 to f64. Few levels have the instruction for 64 bits, so the
 * halves become the low bits of doubles with the exponents 2^84 and 2^52; all steps are exact. */
static LLVMValueRef to_double(Emit *e, LLVMValueRef x) {
  LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->ctx), t = emit_like(x, f64);
  if (emit_has(e, HAS_I64_TO_F64)) return LLVMBuildSIToFP(B, x, t, "");
  LLVMValueRef hi = LLVMBuildOr(B, high(e, x), like(e, x, 0x4530000000000000), "");
  LLVMValueRef lo = LLVMBuildOr(B, low(e, x), like(e, x, 0x4330000000000000), "");
  hi = LLVMBuildFSub(B, LLVMBuildBitCast(B, hi, t, ""), real(e, x, f64, 0x1.00000001p84), "");
  return LLVMBuildFAdd(B, hi, LLVMBuildBitCast(B, lo, t, ""), "");
}

/* Converts words (i32, or i64 for f64) to uniform numbers. */
static LLVMValueRef uniform(Emit *e, DType dt, LLVMValueRef w) {
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->ctx), f64 = LLVMDoubleTypeInContext(e->ctx);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  if (dt == DT_F64) {
    LLVMValueRef x = to_double(e, LLVMBuildLShr(B, w, like(e, w, 11), ""));
    return LLVMBuildFMul(B, x, real(e, w, f64, 0x1p-53), "");
  }
  /* f16 and bf16 have 11 and 8 of the 24 bits */
  int drop = dt == DT_F16 ? 21 : dt == DT_BF16 ? 24 : 8;
  LLVMValueRef by = emit_splat(e, LLVMConstInt(i32, (unsigned)drop, false), emit_width_of(w));
  LLVMValueRef x = LLVMBuildSIToFP(B, LLVMBuildLShr(B, w, by, ""), emit_like(w, f32), "");
  return LLVMBuildFMul(B, x,
                       real(e, w, f32,
                            drop == 8    ? 0x1p-24
                            : drop == 21 ? 0x1p-11
                                         : 0x1p-8),
                       "");
}

/* Selects the word of element i from its block: an i32, or two words as an i64 (`wide`). */
static LLVMValueRef word_of(Emit *e, bool wide, LLVMValueRef i, LLVMValueRef w[4]) {
  LLVMValueRef odd = bit_is(e, i, 1);
  if (wide) return word64(e, sel(e, odd, w[2], w[0]), sel(e, odd, w[3], w[1]));
  LLVMValueRef x = sel(e, bit_is(e, i, 2), sel(e, odd, w[3], w[2]), sel(e, odd, w[1], w[0]));
  return LLVMBuildTrunc(B, x, emit_like(x, LLVMInt32TypeInContext(e->ctx)), "");
}

static LLVMValueRef normal_of(Emit *e, bool wide, LLVMValueRef i, LLVMValueRef w[4]) {
  LLVMValueRef a, b, z0, z1;
  if (wide) {
    a = word64(e, w[0], w[1]);
    b = word64(e, w[2], w[3]);
  } else {
    LLVMTypeRef i32 = emit_like(i, LLVMInt32TypeInContext(e->ctx));
    LLVMValueRef upper = bit_is(e, i, 2);
    a = LLVMBuildTrunc(B, sel(e, upper, w[2], w[0]), i32, "");
    b = LLVMBuildTrunc(B, sel(e, upper, w[3], w[1]), i32, "");
  }
  emit_normal(e, a, b, &z0, &z1);
  return sel(e, bit_is(e, i, 1), z1, z0);
}

/* Words, or normal deviates before rounding, of elements i. A block serves 2 elements if `wide`,
 * else 4. */
static LLVMValueRef numbers(Emit *e, bool normal, bool wide, LLVMValueRef key, LLVMValueRef counter,
                            LLVMValueRef i) {
  LLVMValueRef w[4];
  block(e, key, counter, LLVMBuildLShr(B, i, like(e, i, wide ? 1 : 2), ""), w);
  return normal ? normal_of(e, wide, i, w) : word_of(e, wide, i, w);
}

/* Interleaves two vectors of n: x0 y0 x1 y1 .. */
static LLVMValueRef zip(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef lane[2 * EMIT_LANES];
  int n = emit_width_of(x);
  for (int j = 0; j < 2 * n; j++) lane[j] = emit_i32(e, j / 2 + j % 2 * n);
  return LLVMBuildShuffleVector(B, x, y, LLVMConstVector(lane, 2 * (unsigned)n), "");
}

/* The numbers of 16 elements that start at the first of a block: each block is computed once. */
static LLVMValueRef whole_blocks(Emit *e, bool normal, bool wide, LLVMValueRef key,
                                 LLVMValueRef counter, LLVMValueRef first) {
  int n = wide ? EMIT_LANES / 2 : EMIT_LANES / 4;
  LLVMTypeRef i32 = LLVMVectorType(LLVMInt32TypeInContext(e->ctx), (unsigned)n);
  LLVMValueRef lane[EMIT_LANES], w[4], z0, z1;
  for (int j = 0; j < n; j++) lane[j] = emit_i64(e, j);
  LLVMValueRef at = LLVMBuildLShr(B, first, emit_i64(e, wide ? 1 : 2), "");
  at = LLVMBuildAdd(B, emit_splat(e, at, n), LLVMConstVector(lane, (unsigned)n), "");
  block(e, emit_splat(e, key, n), emit_splat(e, counter, n), at, w);
  if (wide) {
    LLVMValueRef a = word64(e, w[0], w[1]), b = word64(e, w[2], w[3]);
    if (!normal) return zip(e, a, b);
    emit_normal(e, a, b, &z0, &z1);
    return zip(e, z0, z1);
  }
  for (int j = 0; j < 4; j++) w[j] = LLVMBuildTrunc(B, w[j], i32, "");
  LLVMValueRef even = zip(e, w[0], w[2]), odd = zip(e, w[1], w[3]);
  if (!normal) return zip(e, even, odd);
  emit_normal(e, even, odd, &z0, &z1); /* words 0 and 1, then 2 and 3, of each block */
  return zip(e, z0, z1);
}

/* Calls whole_blocks as an internal function of key, counter and first element. */
static LLVMValueRef sixteen(Emit *e, bool normal, bool wide, LLVMValueRef key, LLVMValueRef counter,
                            LLVMValueRef first) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), par[3] = {i64, i64, i64}, t = i64;
  LLVMValueRef fn, arg[3] = {key, counter, first};
  EmitSaved s;
  if (normal)
    t = wide ? LLVMDoubleTypeInContext(e->ctx) : LLVMFloatTypeInContext(e->ctx);
  else if (!wide)
    t = LLVMInt32TypeInContext(e->ctx);
  const char *name = normal ? wide ? "normal_64" : "normal_32" : wide ? "words_64" : "words_32";
  if (emit_fn_begin(e, &s, name, LLVMFunctionType(LLVMVectorType(t, EMIT_LANES), par, 3, false),
                    &fn)) {
    for (int j = 0; j < 3; j++) arg[j] = LLVMGetParam(fn, (unsigned)j);
    LLVMBasicBlockRef fast = emit_new_block(e, "whole"), slow = emit_new_block(e, "parts");
    LLVMValueRef off = LLVMBuildAnd(B, arg[2], emit_i64(e, wide ? 1 : 3), "");
    LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntEQ, off, emit_i64(e, 0), ""), fast, slow);
    LLVMPositionBuilderAtEnd(B, fast);
    LLVMBuildRet(B, whole_blocks(e, normal, wide, arg[0], arg[1], arg[2]));
    LLVMPositionBuilderAtEnd(B, slow);
    LLVMValueRef i = emit_vector(e, one_linear(arg[2], emit_i64(e, 1)));
    for (int j = 0; j < 2; j++) arg[j] = emit_splat(e, arg[j], EMIT_LANES);
    LLVMBuildRet(B, numbers(e, normal, wide, arg[0], arg[1], i));
    emit_fn_end(e, &s);
    arg[0] = key;
    arg[1] = counter;
    arg[2] = first;
  }
  return emit_call(e, fn, 3, arg);
}

One emit_random(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  DType dt = (DType)in->dtype;
  One x[6] = {{0}};
  bool same = true;
  for (int i = 0; i < in->operand_count; i++) {
    x[i] = emit_operand(e, v, i);
    same = same && x[i].kind == ONE_UNIFORM;
  }
  bool normal = in->op == LP_NORMAL, wide = in->op == LP_RANDINT || dt == DT_F64;
  bool run = x[0].kind == ONE_UNIFORM && x[1].kind == ONE_UNIFORM && x[2].kind == ONE_LINEAR &&
             LLVMIsAConstantInt(x[2].step) && LLVMConstIntGetSExtValue(x[2].step) == 1;
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
    r = run ? sixteen(e, normal, wide, x[0].v, x[1].v, x[2].v)
            : numbers(e, normal, wide, a[0], a[1], a[2]);
    if (in->op == LP_RANDINT) {
      LLVMValueRef arg[2] = {a[3], like(e, a[3], 1)};
      r = below(e, r, emit_intrinsic(e, "llvm.smax", LLVMTypeOf(a[3]), 2, arg));
    } else {
      r = normal ? emit_round(e, dt, r) : uniform(e, dt, r);
    }
  }
  return same ? one_uniform(r) : one_vector(r);
}
