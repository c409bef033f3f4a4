/* Operations on LLVM values: the scalar code of the loop form.
 *
 * In: values of one width (scalars, or vectors of 16). Out: instructions that compute, for each
 * lane, the bits of ref_elem.c (loop_scalar.c is the same in C). The result of an operation on
 * uniform or linear Ones stays uniform or linear if it can, since a linear address is one vector
 * access.
 *
 * Invariant: no operation here fuses, reorders or flushes; nothing calls outside. */
#include "jit/codegen/emit_elem.h"
#include "jit/codegen/emit_impl.h"
#include "jit/loop/loop_impl.h"
#include "runtime/half.h"

#define B e->b

/* ---- types and constants */

LLVMTypeRef emit_type(Emit *e, DType dt) {
  switch (dt) {
  case DT_BOOL: return LLVMInt1TypeInContext(e->ctx);
  case DT_U8:
  case DT_I8: return LLVMInt8TypeInContext(e->ctx);
  case DT_I16: return LLVMInt16TypeInContext(e->ctx);
  case DT_I32: return LLVMInt32TypeInContext(e->ctx);
  case DT_I64: return LLVMInt64TypeInContext(e->ctx);
  case DT_F64: return LLVMDoubleTypeInContext(e->ctx);
  default: return LLVMFloatTypeInContext(e->ctx);
  }
}

LLVMTypeRef emit_mem_type(Emit *e, DType dt) {
  if (dt == DT_BOOL) return LLVMInt8TypeInContext(e->ctx);
  if (dt == DT_F16 || dt == DT_BF16) return LLVMInt16TypeInContext(e->ctx);
  return emit_type(e, dt);
}

LLVMTypeRef emit_vec(LLVMTypeRef t, int n) {
  return n == 1 ? t : LLVMVectorType(t, (unsigned)n);
}

LLVMValueRef emit_i64(Emit *e, int64_t x) {
  return LLVMConstInt(LLVMInt64TypeInContext(e->ctx), (uint64_t)x, true);
}

LLVMValueRef emit_i32(Emit *e, int32_t x) {
  return LLVMConstInt(LLVMInt32TypeInContext(e->ctx), (uint64_t)(int64_t)x, true);
}

int emit_width_of(LLVMValueRef x) {
  LLVMTypeRef t = LLVMTypeOf(x);
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(t) : 1;
}

LLVMTypeRef emit_like(LLVMValueRef x, LLVMTypeRef scalar) {
  return emit_vec(scalar, emit_width_of(x));
}

LLVMValueRef emit_splat(Emit *e, LLVMValueRef x, int n) {
  if (n == 1) return x;
  LLVMTypeRef t = LLVMVectorType(LLVMTypeOf(x), (unsigned)n);
  if (LLVMIsConstant(x)) {
    LLVMValueRef lane[64];
    for (int i = 0; i < n; i++) lane[i] = x;
    return LLVMConstVector(lane, (unsigned)n);
  }
  LLVMTypeRef index = LLVMVectorType(LLVMInt32TypeInContext(e->ctx), (unsigned)n);
  LLVMValueRef one = LLVMBuildInsertElement(B, LLVMGetUndef(t), x, emit_i32(e, 0), "");
  return LLVMBuildShuffleVector(B, one, LLVMGetUndef(t), LLVMConstNull(index), "");
}

static LLVMValueRef lane_numbers(LLVMTypeRef t) {
  LLVMValueRef lane[EMIT_LANES];
  for (int i = 0; i < EMIT_LANES; i++) lane[i] = LLVMConstInt(t, (uint64_t)i, false);
  return LLVMConstVector(lane, EMIT_LANES);
}

LLVMValueRef emit_vector(Emit *e, One x) {
  if (e->width == 1 || x.kind == ONE_VECTOR) return x.v;
  LLVMValueRef base = emit_splat(e, x.v, EMIT_LANES);
  if (x.kind == ONE_UNIFORM) return base;
  LLVMValueRef step = emit_splat(e, x.step, EMIT_LANES);
  LLVMValueRef off = LLVMBuildMul(B, step, lane_numbers(LLVMTypeOf(x.v)), "");
  return LLVMBuildAdd(B, base, off, "");
}

LLVMValueRef emit_const(Emit *e, DType dt, double x) {
  LLVMTypeRef t = emit_type(e, dt);
  if (dt_float(dt)) return LLVMConstReal(t, x);
  return LLVMConstInt(t, (uint64_t)(int64_t)x, true);
}

/* ---- small parts */

LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef over, int n, LLVMValueRef *arg) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->mod, id, &over, over ? 1 : 0);
  return LLVMBuildCall2(B, LLVMGlobalGetValueType(f), f, arg, (unsigned)n, "");
}

void emit_flag(Emit *e, LLVMValueRef bad) {
  LLVMValueRef mask = e->mask;
  if (mask && emit_width_of(bad) > 1) bad = LLVMBuildAnd(B, bad, mask, "");
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMValueRef old = LLVMBuildLoad2(B, i32, e->fail, "");
  LLVMValueRef now = LLVMBuildZExt(B, any(e, bad), i32, "");
  LLVMBuildStore(B, LLVMBuildOr(B, old, now, ""), e->fail);
}

/* ---- f16 and bf16 */

/* Converts a float to the pattern of an f16, as i32 (half.h, hf_f16_from_f32). */
static LLVMValueRef f16_from_f32(Emit *e, LLVMValueRef x) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
#define C(c) ints(e, x, i32, c)
  LLVMValueRef u = bits(e, x);
  LLVMValueRef sign = LLVMBuildAnd(B, LLVMBuildLShr(B, u, C(16), ""), C(0x8000), "");
  LLVMValueRef a = LLVMBuildAnd(B, u, C(0x7fffffff), "");
  LLVMValueRef small = LLVMBuildFAdd(B, unbits(e, a), real(e, x, 0.5), "");
  small = LLVMBuildSub(B, bits(e, small), C(0x3f000000), "");
  LLVMValueRef odd = LLVMBuildAnd(B, LLVMBuildLShr(B, a, C(13), ""), C(1), "");
  LLVMValueRef n = LLVMBuildAdd(B, LLVMBuildSub(B, a, C(0x38000000 - 0x0fff), ""), odd, "");
  n = LLVMBuildLShr(B, n, C(13), "");
  n = sel(e, icmp(e, LLVMIntULT, a, C(0x38800000)), small, n);
  n = sel(e, icmp(e, LLVMIntUGE, a, C(0x47800000)), C(0x7c00), n);
  n = sel(e, icmp(e, LLVMIntUGT, a, C(0x7f800000)), C(0x7e00), n);
  return LLVMBuildOr(B, n, sign, "");
#undef C
}

/* Converts the pattern of an f16, as i32, to float. */
static LLVMValueRef f32_from_f16(Emit *e, LLVMValueRef h) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
#define C(c) ints(e, h, i32, c)
  LLVMValueRef sign = LLVMBuildShl(B, LLVMBuildAnd(B, h, C(0x8000), ""), C(16), "");
  LLVMValueRef a = LLVMBuildAnd(B, h, C(0x7fff), ""), shifted = LLVMBuildShl(B, a, C(13), "");
  LLVMValueRef normal = LLVMBuildAdd(B, shifted, C(0x38000000), "");
  LLVMValueRef special = LLVMBuildOr(B, shifted, C(0x7f800000), "");
  LLVMValueRef f = LLVMBuildSIToFP(B, a, real_type(e, a), "");
  LLVMValueRef small = bits(e, LLVMBuildFMul(B, f, real(e, f, 0x1p-24), ""));
  LLVMValueRef r = sel(e, icmp(e, LLVMIntULT, a, C(0x0400)), small, normal);
  r = sel(e, icmp(e, LLVMIntUGE, a, C(0x7c00)), special, r);
  return unbits(e, LLVMBuildOr(B, r, sign, ""));
#undef C
}

/* Rounds a double once to f16 or bf16, held as a float. `drop`: bits of the fraction that are
 * dropped; for the constants see half.h. */
static LLVMValueRef half_from_f64(Emit *e, DType dt, LLVMValueRef x) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), i32 = LLVMInt32TypeInContext(e->ctx);
  bool bf = dt == DT_BF16;
#define C(c) ints(e, x, i64, c)
  int drop = bf ? 45 : 42;
  LLVMValueRef u = bits(e, x), a = LLVMBuildAnd(B, u, C(0x7fffffffffffffff), "");
  LLVMValueRef sign = LLVMBuildAnd(B, LLVMBuildLShr(B, u, C(48), ""), C(0x8000), "");
  LLVMValueRef small = LLVMBuildFAdd(B, unbits(e, a), real(e, x, bf ? 0x1p-81 : 0x1p28), "");
  small = LLVMBuildSub(B, bits(e, small), C(bf ? 0x3ae0000000000000 : 0x41b0000000000000), "");
  LLVMValueRef odd = LLVMBuildAnd(B, LLVMBuildLShr(B, a, C((uint64_t)drop), ""), C(1), "");
  LLVMValueRef n = LLVMBuildSub(B, a, C(bf ? 0x3800000000000000 : 0x3f00000000000000), "");
  n = LLVMBuildAdd(B, n, C(((uint64_t)1 << (drop - 1)) - 1), "");
  n = LLVMBuildLShr(B, LLVMBuildAdd(B, n, odd, ""), C((uint64_t)drop), "");
  n = sel(e, icmp(e, LLVMIntULT, a, C(bf ? 0x3810000000000000 : 0x3f10000000000000)), small, n);
  n = sel(e, icmp(e, LLVMIntUGE, a, C(bf ? 0x47f0000000000000 : 0x40f0000000000000)),
          C(bf ? 0x7f80 : 0x7c00), n);
  n = sel(e, icmp(e, LLVMIntUGT, a, C(0x7ff0000000000000)), C(bf ? 0x7fc0 : 0x7e00), n);
#undef C
  n = LLVMBuildTrunc(B, LLVMBuildOr(B, n, sign, ""), emit_like(x, i32), "");
  if (bf) return unbits(e, LLVMBuildShl(B, n, ints(e, x, i32, 16), ""));
  return f32_from_f16(e, n);
}

static LLVMTypeRef half_type(Emit *e, LLVMValueRef x) {
  return emit_like(x, LLVMHalfTypeInContext(e->ctx));
}

LLVMValueRef emit_round(Emit *e, DType dt, LLVMValueRef x) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
#define C(c) ints(e, x, i32, c)
  if (dt == DT_BF16) {
    LLVMValueRef u = bits(e, x);
    LLVMValueRef odd = LLVMBuildAnd(B, LLVMBuildLShr(B, u, C(16), ""), C(1), "");
    LLVMValueRef r = LLVMBuildAdd(B, LLVMBuildAdd(B, u, C(0x7fff), ""), odd, "");
    r = sel(e, fcmp(e, LLVMRealUNO, x, x), LLVMBuildOr(B, u, C(0x00400000), ""), r);
    return unbits(e, LLVMBuildAnd(B, r, C(0xffff0000), ""));
  }
#undef C
  if (dt != DT_F16) return x;
  if (!emit_has(e, HAS_F16)) return f32_from_f16(e, f16_from_f32(e, x));
  return LLVMBuildFPExt(B, LLVMBuildFPTrunc(B, x, half_type(e, x), ""), LLVMTypeOf(x), "");
}

/* ---- memory */

static LLVMValueRef from_mem(Emit *e, DType dt, LLVMValueRef x) {
  LLVMTypeRef i32 = emit_like(x, LLVMInt32TypeInContext(e->ctx));
  if (dt == DT_BOOL) return icmp(e, LLVMIntNE, x, LLVMConstNull(LLVMTypeOf(x)));
  if (dt == DT_BF16) {
    LLVMValueRef u = LLVMBuildZExt(B, x, i32, "");
    return unbits(e, LLVMBuildShl(B, u, same_int(e, u, 16), ""));
  }
  if (dt == DT_F16) {
    if (!emit_has(e, HAS_F16)) return f32_from_f16(e, LLVMBuildZExt(B, x, i32, ""));
    LLVMValueRef h = LLVMBuildBitCast(B, x, half_type(e, x), "");
    return LLVMBuildFPExt(B, h, emit_like(x, LLVMFloatTypeInContext(e->ctx)), "");
  }
  return x;
}

static LLVMValueRef to_mem(Emit *e, DType dt, LLVMValueRef x) {
  LLVMTypeRef t = emit_like(x, emit_mem_type(e, dt));
  if (dt == DT_BOOL) return LLVMBuildZExt(B, x, t, "");
  if (dt == DT_BF16) {
    LLVMValueRef u = bits(e, x);
    return LLVMBuildTrunc(B, LLVMBuildLShr(B, u, same_int(e, u, 16), ""), t, "");
  }
  if (dt == DT_F16) {
    if (!emit_has(e, HAS_F16)) return LLVMBuildTrunc(B, f16_from_f32(e, x), t, "");
    return LLVMBuildBitCast(B, LLVMBuildFPTrunc(B, x, half_type(e, x), ""), t, "");
  }
  return x;
}

/* Addresses of elements; `index` may be a vector. */
static LLVMValueRef place(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index) {
  return LLVMBuildGEP2(B, emit_mem_type(e, dt), base, &index, 1, "");
}

LLVMValueRef emit_load_n(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, int n) {
  LLVMTypeRef t = emit_vec(emit_mem_type(e, dt), n);
  LLVMValueRef x = LLVMBuildLoad2(B, t, place(e, dt, base, index), "");
  LLVMSetAlignment(x, (unsigned)dt_size(dt));
  return from_mem(e, dt, x);
}

void emit_store_n(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, LLVMValueRef x, int n) {
  (void)n;
  LLVMValueRef s = LLVMBuildStore(B, to_mem(e, dt, x), place(e, dt, base, index));
  LLVMSetAlignment(s, (unsigned)dt_size(dt));
}

/* llvm.masked.load and the like take two overloaded types: the vector and the pointers. */
static LLVMValueRef masked(Emit *e, const char *name, LLVMTypeRef vec, LLVMTypeRef ptr, int n,
                           LLVMValueRef *arg) {
  LLVMTypeRef over[2] = {vec, ptr};
  LLVMValueRef f =
      LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), over, 2);
  return LLVMBuildCall2(B, LLVMGlobalGetValueType(f), f, arg, (unsigned)n, "");
}

/* Whether the level has masked instructions for elements of this dtype. If not, LLVM would emit a
 * branch for each lane; a loop over the lanes that are set is shorter. */
static bool has_masked(const Emit *e, DType dt, bool scattered) {
  bool narrow = dt_size(dt) < 4;
  if (scattered) return !narrow && emit_has(e, HAS_SCATTERED);
  return emit_has(e, narrow ? HAS_MASKED_NARROW : HAS_MASKED);
}

/* A loop over the lanes that are set; i is the lane's number. The body follows, and next_lane ends
 * the loop. */
typedef struct LaneLoop {
  LLVMBasicBlockRef body, end;
  LLVMValueRef bits, i;
} LaneLoop;

static void each_lane(Emit *e, LaneLoop *l, LLVMValueRef mask) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeRef narrow = LLVMIntTypeInContext(e->ctx, (unsigned)emit_width_of(mask));
  LLVMValueRef set = LLVMBuildZExt(B, LLVMBuildBitCast(B, mask, narrow, ""), i64, "");
  LLVMBasicBlockRef before = LLVMGetInsertBlock(B);
  l->body = emit_new_block(e, "lane");
  l->end = emit_new_block(e, "lane.end");
  LLVMBuildCondBr(B, icmp(e, LLVMIntNE, set, emit_i64(e, 0)), l->body, l->end);
  LLVMPositionBuilderAtEnd(B, l->body);
  l->bits = LLVMBuildPhi(B, i64, "");
  LLVMAddIncoming(l->bits, &set, &before, 1);
  LLVMValueRef arg[2] = {l->bits, LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 1, false)};
  l->i = emit_intrinsic(e, "llvm.cttz", i64, 2, arg);
}

static void next_lane(Emit *e, LaneLoop *l) {
  LLVMValueRef less = LLVMBuildSub(B, l->bits, emit_i64(e, 1), "");
  LLVMValueRef rest = LLVMBuildAnd(B, l->bits, less, "");
  LLVMBasicBlockRef from = LLVMGetInsertBlock(B);
  LLVMAddIncoming(l->bits, &rest, &from, 1);
  LLVMBuildCondBr(B, icmp(e, LLVMIntNE, rest, emit_i64(e, 0)), l->body, l->end);
  LLVMPositionBuilderAtEnd(B, l->end);
}

/* Lane i of a vector in memory. */
static LLVMValueRef lane_at(Emit *e, LLVMTypeRef t, LLVMValueRef vec, LLVMValueRef i) {
  return LLVMBuildGEP2(B, t, vec, &i, 1, "");
}

/* Stores a vector to memory, to be read lane by lane. */
static LLVMValueRef in_memory(Emit *e, LLVMValueRef x) {
  LLVMValueRef p = emit_alloca(e, LLVMTypeOf(x), "lanes");
  LLVMBuildStore(B, x, p);
  return p;
}

/* Index of lane i: base + i, or lane i of a vector in memory. */
static LLVMValueRef index_at(Emit *e, LLVMValueRef base, LLVMValueRef vec, LLVMValueRef i) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  if (!vec) return LLVMBuildAdd(B, base, i, "");
  return LLVMBuildLoad2(B, i64, lane_at(e, i64, vec, i), "");
}

/* Loads the lanes of `mask`. `index`: the index of lane 0, or a vector of indices. */
static LLVMValueRef load_lanes(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index,
                               LLVMValueRef mask) {
  LaneLoop l;
  LLVMTypeRef t = emit_mem_type(e, dt), vec = emit_like(mask, t);
  LLVMValueRef places = emit_width_of(index) > 1 ? in_memory(e, index) : NULL;
  LLVMValueRef to = in_memory(e, LLVMConstNull(vec));
  each_lane(e, &l, mask);
  LLVMValueRef x = LLVMBuildLoad2(B, t, place(e, dt, base, index_at(e, index, places, l.i)), "");
  LLVMBuildStore(B, x, lane_at(e, t, to, l.i));
  next_lane(e, &l);
  return LLVMBuildLoad2(B, vec, to, "");
}

static void store_lanes(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, LLVMValueRef x,
                        LLVMValueRef mask) {
  LaneLoop l;
  LLVMTypeRef t = emit_mem_type(e, dt);
  LLVMValueRef places = emit_width_of(index) > 1 ? in_memory(e, index) : NULL;
  LLVMValueRef from = in_memory(e, x);
  each_lane(e, &l, mask);
  LLVMValueRef one = LLVMBuildLoad2(B, t, lane_at(e, t, from, l.i), "");
  LLVMBuildStore(B, one, place(e, dt, base, index_at(e, index, places, l.i)));
  next_lane(e, &l);
}

LLVMValueRef emit_load_masked(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index,
                              LLVMValueRef mask, int n) {
  if (!has_masked(e, dt, false)) return from_mem(e, dt, load_lanes(e, dt, base, index, mask));
  LLVMTypeRef t = emit_vec(emit_mem_type(e, dt), n);
  LLVMValueRef p = place(e, dt, base, index);
  LLVMValueRef arg[4] = {p, emit_i32(e, (int)dt_size(dt)), mask, LLVMConstNull(t)};
  return from_mem(e, dt, masked(e, "llvm.masked.load", t, LLVMTypeOf(p), 4, arg));
}

void emit_store_masked(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, LLVMValueRef x,
                       LLVMValueRef mask, int n) {
  LLVMTypeRef t = emit_vec(emit_mem_type(e, dt), n);
  x = to_mem(e, dt, x);
  if (!has_masked(e, dt, false)) {
    store_lanes(e, dt, base, index, x, mask);
    return;
  }
  LLVMValueRef p = place(e, dt, base, index);
  LLVMValueRef arg[4] = {x, p, emit_i32(e, (int)dt_size(dt)), mask};
  masked(e, "llvm.masked.store", t, LLVMTypeOf(p), 4, arg);
}

static LLVMValueRef all_lanes(Emit *e) {
  return LLVMConstAllOnes(LLVMVectorType(LLVMInt1TypeInContext(e->ctx), EMIT_LANES));
}

static LLVMValueRef backwards(Emit *e, LLVMValueRef x) {
  LLVMValueRef lane[EMIT_LANES];
  for (int i = 0; i < EMIT_LANES; i++) lane[i] = emit_i32(e, EMIT_LANES - 1 - i);
  return LLVMBuildShuffleVector(B, x, x, LLVMConstVector(lane, EMIT_LANES), "");
}

/* The step of a linear value if it is a constant; else 0. */
static int64_t known_step(One x) {
  return x.kind == ONE_LINEAR && LLVMIsAConstantInt(x.step) ? LLVMConstIntGetSExtValue(x.step) : 0;
}

/* In a checked kernel, tests n addresses. `index`: that of the first of n consecutive elements, or
 * a vector of n indices. */
static void within(Emit *e, int buf, LLVMValueRef index, int n, LLVMValueRef mask) {
  DType dt = (DType)e->k->bufs[buf].dtype;
  if (e->bytes) emit_within(e, buf, place(e, dt, e->buf[buf], index), n, mask);
}

One emit_load(Emit *e, int buf, One index) {
  DType dt = (DType)e->k->bufs[buf].dtype;
  LLVMValueRef base = e->buf[buf], mask = e->mask;
  if (index.kind == ONE_UNIFORM) {
    within(e, buf, index.v, 1, NULL);
    return one_uniform(emit_load_n(e, dt, base, index.v, 1));
  }
  int64_t step = known_step(index);
  if (step == 1 || step == -1) {
    LLVMValueRef at = index.v, x;
    if (step < 0) at = LLVMBuildSub(B, at, emit_i64(e, EMIT_LANES - 1), "");
    if (mask && step < 0) mask = backwards(e, mask);
    within(e, buf, at, EMIT_LANES, mask);
    x = mask ? emit_load_masked(e, dt, base, at, mask, EMIT_LANES)
             : emit_load_n(e, dt, base, at, EMIT_LANES);
    return one_vector(step < 0 ? backwards(e, x) : x);
  }
  LLVMTypeRef t = LLVMVectorType(emit_mem_type(e, dt), EMIT_LANES);
  LLVMValueRef places = emit_vector(e, index);
  within(e, buf, places, EMIT_LANES, mask);
  if (mask && !has_masked(e, dt, true)) {
    return one_vector(from_mem(e, dt, load_lanes(e, dt, base, places, mask)));
  }
  LLVMValueRef p = place(e, dt, base, places);
  LLVMValueRef arg[4] = {p, emit_i32(e, (int)dt_size(dt)), mask ? mask : all_lanes(e),
                         LLVMConstNull(t)};
  return one_vector(from_mem(e, dt, masked(e, "llvm.masked.gather", t, LLVMTypeOf(p), 4, arg)));
}

void emit_store(Emit *e, int buf, One index, One x) {
  DType dt = (DType)e->k->bufs[buf].dtype;
  LLVMValueRef base = e->buf[buf], mask = e->mask;
  if (e->width == 1 || (index.kind == ONE_UNIFORM && x.kind == ONE_UNIFORM)) {
    within(e, buf, index.v, 1, NULL);
    emit_store_n(e, dt, base, index.v, x.v, 1);
    return;
  }
  LLVMValueRef v = emit_vector(e, x);
  int64_t step = known_step(index);
  if (step == 1 || step == -1) {
    LLVMValueRef at = index.v;
    if (step < 0) {
      at = LLVMBuildSub(B, at, emit_i64(e, EMIT_LANES - 1), "");
      v = backwards(e, v);
      if (mask) mask = backwards(e, mask);
    }
    within(e, buf, at, EMIT_LANES, mask);
    if (mask)
      emit_store_masked(e, dt, base, at, v, mask, EMIT_LANES);
    else
      emit_store_n(e, dt, base, at, v, EMIT_LANES);
    return;
  }
  LLVMTypeRef t = LLVMVectorType(emit_mem_type(e, dt), EMIT_LANES);
  LLVMValueRef places = emit_vector(e, index);
  within(e, buf, places, EMIT_LANES, mask);
  v = to_mem(e, dt, v);
  if (mask && !has_masked(e, dt, true)) {
    store_lanes(e, dt, base, places, v, mask);
    return;
  }
  LLVMValueRef p = place(e, dt, base, places);
  LLVMValueRef arg[4] = {v, p, emit_i32(e, (int)dt_size(dt)), mask ? mask : all_lanes(e)};
  masked(e, "llvm.masked.scatter", t, LLVMTypeOf(p), 4, arg);
}

/* ---- one operand */

static LLVMValueRef un_int(Emit *e, RefUn f, DType dt, LLVMValueRef x) {
  LLVMValueRef zero = same_int(e, x, 0), one = same_int(e, x, 1);
  bool sign = dt != DT_U8;
  switch (f) {
  case RU_NEG: return LLVMBuildNeg(B, x, "");
  case RU_ABS: return sign ? sel(e, icmp(e, LLVMIntSLT, x, zero), LLVMBuildNeg(B, x, ""), x) : x;
  case RU_SIGN: {
    LLVMValueRef r = sel(e, icmp(e, LLVMIntEQ, x, zero), zero, one);
    return sign ? sel(e, icmp(e, LLVMIntSLT, x, zero), same_int(e, x, -1), r) : r;
  }
  case RU_RELU: return sign ? sel(e, icmp(e, LLVMIntSGT, x, zero), x, zero) : x;
  case RU_NOT: return LLVMBuildNot(B, x, "");
  default: return x; /* floor, ceil, round */
  }
}

LLVMValueRef emit_un(Emit *e, RefUn f, DType dt, LLVMValueRef x) {
  if (!dt_float(dt)) return un_int(e, f, dt, x);
  LLVMValueRef zero = real(e, x, 0), r;
  switch (f) {
  case RU_ISNAN: return fcmp(e, LLVMRealUNO, x, x);
  case RU_ISINF:
    return fcmp(e, LLVMRealOEQ, intrinsic1(e, "llvm.fabs", x), real(e, x, __builtin_inf()));
  case RU_NEG: return LLVMBuildFNeg(B, x, "");
  case RU_ABS: return intrinsic1(e, "llvm.fabs", x);
  case RU_SIGN:
    r = sel(e, fcmp(e, LLVMRealOEQ, x, zero), zero, x);
    r = sel(e, fcmp(e, LLVMRealOLT, x, zero), real(e, x, -1), r);
    return sel(e, fcmp(e, LLVMRealOGT, x, zero), real(e, x, 1), r);
  case RU_RELU: /* x if it is greater than 0 or a NaN */
    return sel(e, fcmp(e, LLVMRealUGT, x, zero), x, zero);
  case RU_FLOOR: return emit_whole(e, -1, x);
  case RU_CEIL: return emit_whole(e, 1, x);
  case RU_ROUND: return emit_whole(e, 0, x);
  case RU_SQRT: return emit_round(e, dt, intrinsic1(e, "llvm.sqrt", x));
  default: return emit_round(e, dt, emit_math(e, f, x));
  }
}

/* ---- two operands */

static LLVMValueRef extreme(Emit *e, bool max, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef m = sel(e, fcmp(e, max ? LLVMRealOGT : LLVMRealOLT, x, y), x, y);
  LLVMValueRef u = bits(e, x), v = bits(e, y);
  LLVMValueRef both = unbits(e, max ? LLVMBuildAnd(B, u, v, "") : LLVMBuildOr(B, u, v, ""));
  m = sel(e, fcmp(e, LLVMRealOEQ, x, y), both, m);
  return sel(e, fcmp(e, LLVMRealUNO, x, x), x, m);
}

LLVMValueRef emit_unkey(Emit *e, LLVMValueRef u) {
  bool dbl = is_double(LLVMConstNull(real_type(e, u)));
  LLVMValueRef sign = LLVMBuildAShr(B, u, same_int(e, u, dbl ? 63 : 31), "");
  LLVMValueRef flip = LLVMBuildAnd(B, sign, same_int(e, u, dbl ? INT64_MAX : INT32_MAX), "");
  return unbits(e, LLVMBuildXor(B, u, flip, ""));
}

LLVMValueRef emit_key(Emit *e, bool max, LLVMValueRef x) {
  LLVMValueRef u = bits(e, emit_unkey(e, bits(e, x))); /* the mapping is its own inverse */
  int64_t end = is_double(x) ? max ? INT64_MAX : INT64_MIN : max ? INT32_MAX : INT32_MIN;
  return sel(e, fcmp(e, LLVMRealUNO, x, x), same_int(e, u, end), u);
}

static LLVMValueRef bin_int(Emit *e, RefBin f, DType dt, LLVMValueRef x, LLVMValueRef y) {
  bool sign = dt != DT_U8 && dt != DT_BOOL;
  switch (f) {
  case RB_ADD: return LLVMBuildAdd(B, x, y, "");
  case RB_SUB: return LLVMBuildSub(B, x, y, "");
  case RB_MUL: return LLVMBuildMul(B, x, y, "");
  case RB_FLOORDIV: return emit_int_div(e, false, dt, x, y);
  case RB_MOD: return emit_int_div(e, true, dt, x, y);
  case RB_POW: return emit_int_pow(e, dt, x, y);
  case RB_MAX: return sel(e, icmp(e, sign ? LLVMIntSGT : LLVMIntUGT, x, y), x, y);
  case RB_MIN: return sel(e, icmp(e, sign ? LLVMIntSLT : LLVMIntULT, x, y), x, y);
  case RB_EQ: return icmp(e, LLVMIntEQ, x, y);
  case RB_NE: return icmp(e, LLVMIntNE, x, y);
  case RB_LT: return icmp(e, sign ? LLVMIntSLT : LLVMIntULT, x, y);
  case RB_LE: return icmp(e, sign ? LLVMIntSLE : LLVMIntULE, x, y);
  case RB_GT: return icmp(e, sign ? LLVMIntSGT : LLVMIntUGT, x, y);
  case RB_GE: return icmp(e, sign ? LLVMIntSGE : LLVMIntUGE, x, y);
  case RB_AND: return LLVMBuildAnd(B, x, y, "");
  default: return LLVMBuildOr(B, x, y, "");
  }
}

LLVMValueRef emit_bin(Emit *e, RefBin f, DType dt, LLVMValueRef x, LLVMValueRef y) {
  if (!dt_float(dt)) return bin_int(e, f, dt, x, y);
  switch (f) {
  case RB_ADD: return emit_round(e, dt, LLVMBuildFAdd(B, x, y, ""));
  case RB_SUB: return emit_round(e, dt, LLVMBuildFSub(B, x, y, ""));
  case RB_MUL: return emit_round(e, dt, LLVMBuildFMul(B, x, y, ""));
  case RB_DIV: return emit_round(e, dt, LLVMBuildFDiv(B, x, y, ""));
  case RB_FLOORDIV: return emit_round(e, dt, emit_modulo(e, false, x, y));
  case RB_MOD: return emit_round(e, dt, emit_modulo(e, true, x, y));
  case RB_MAX: return extreme(e, true, x, y);
  case RB_MIN: return extreme(e, false, x, y);
  case RB_EQ: return fcmp(e, LLVMRealOEQ, x, y);
  case RB_NE: return fcmp(e, LLVMRealUNE, x, y);
  case RB_LT: return fcmp(e, LLVMRealOLT, x, y);
  case RB_LE: return fcmp(e, LLVMRealOLE, x, y);
  case RB_GT: return fcmp(e, LLVMRealOGT, x, y);
  case RB_GE: return fcmp(e, LLVMRealOGE, x, y);
  default: return emit_round(e, dt, emit_math2(e, f, x, y));
  }
}

/* ---- casts, rule 15 */

static LLVMValueRef to_int(Emit *e, DType to, LLVMValueRef x) {
  LLVMTypeRef over[2] = {emit_like(x, emit_type(e, to)), LLVMTypeOf(x)};
  const char *name = to == DT_U8 ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
  LLVMValueRef f =
      LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), over, 2);
  return LLVMBuildCall2(B, LLVMGlobalGetValueType(f), f, &x, 1, "");
}

/* Converts an i64 to a double that rounds to f16 and bf16 like the i64 (half.h, hf_sticky_f64). */
static LLVMValueRef sticky(Emit *e, LLVMValueRef x) {
  LLVMTypeRef f64 = emit_like(x, LLVMDoubleTypeInContext(e->ctx));
  LLVMValueRef low = LLVMBuildAnd(B, x, same_int(e, x, 0xffff), "");
  LLVMValueRef lost =
      LLVMBuildZExt(B, icmp(e, LLVMIntNE, low, same_int(e, x, 0)), LLVMTypeOf(x), "");
  LLVMValueRef cut = LLVMBuildAnd(B, x, same_int(e, x, ~(int64_t)0xffff), "");
  cut = LLVMBuildOr(B, cut, LLVMBuildShl(B, lost, same_int(e, x, 15), ""), "");
  int64_t limit = (int64_t)1 << 53;
  LLVMValueRef exact = LLVMBuildAnd(B, icmp(e, LLVMIntSGT, x, same_int(e, x, -limit)),
                                    icmp(e, LLVMIntSLT, x, same_int(e, x, limit)), "");
  return LLVMBuildSIToFP(B, sel(e, exact, x, cut), f64, "");
}

LLVMValueRef emit_cast(Emit *e, DType from, DType to, LLVMValueRef x) {
  LLVMTypeRef t = emit_like(x, emit_type(e, to));
  LLVMTypeRef f64 = emit_like(x, LLVMDoubleTypeInContext(e->ctx));
  bool half = to == DT_F16 || to == DT_BF16;
  if (from == to) return x;
  if (dt_float(from)) {
    if (to == DT_BOOL) return fcmp(e, LLVMRealUNE, x, real(e, x, 0));
    if (!dt_float(to)) return to_int(e, to, x);
    if (from == DT_F64) return half ? half_from_f64(e, to, x) : LLVMBuildFPTrunc(B, x, t, "");
    return to == DT_F64 ? LLVMBuildFPExt(B, x, f64, "") : emit_round(e, to, x);
  }
  bool sign = from != DT_BOOL && from != DT_U8;
  if (to == DT_BOOL) return icmp(e, LLVMIntNE, x, same_int(e, x, 0));
  if (half && from == DT_I64) return half_from_f64(e, to, sticky(e, x));
  if (half && from == DT_I32) return half_from_f64(e, to, LLVMBuildSIToFP(B, x, f64, ""));
  if (dt_float(to)) { /* up to 16 bits are exact in a float */
    x = sign ? LLVMBuildSIToFP(B, x, t, "") : LLVMBuildUIToFP(B, x, t, "");
    return emit_round(e, to, x);
  }
  if (dt_size(to) < dt_size(from)) return LLVMBuildTrunc(B, x, t, "");
  if (from != DT_BOOL && dt_size(to) == dt_size(from)) return x;
  return sign ? LLVMBuildSExt(B, x, t, "") : LLVMBuildZExt(B, x, t, "");
}

/* ---- quotients of indices */

/* Whether the instructions of an index, up to `deep` levels, show a multiple of EMIT_LANES. */
static bool whole_lanes(const Emit *e, LLVMValueRef x, int deep) {
  if (x == e->lane0) return true;
  if (LLVMIsAConstantInt(x)) return LLVMConstIntGetZExtValue(x) % EMIT_LANES == 0;
  if (deep == 0 || !LLVMIsAInstruction(x)) return false;
  LLVMOpcode op = LLVMGetInstructionOpcode(x);
  if (op != LLVMAdd && op != LLVMSub && op != LLVMMul && op != LLVMAnd) return false;
  bool first = whole_lanes(e, LLVMGetOperand(x, 0), deep - 1);
  if (first == (op == LLVMMul || op == LLVMAnd)) return first;
  return whole_lanes(e, LLVMGetOperand(x, 1), deep - 1);
}

/* Divides uniform numbers. The result is frozen, so that LLVM's strength reduction does not repeat
 * the division inside of loops. */
static LLVMValueRef divide_uniform(Emit *e, bool rem, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef z = rem ? LLVMBuildURem(B, x, y, "") : LLVMBuildUDiv(B, x, y, "");
  return LLVMIsConstant(z) ? z : LLVMBuildFreeze(B, z, "");
}

/* Whether the instructions of an index, up to `deep` levels, show that it is 0 or more: it is made
 * of iterations and constants by operations that keep the sign. */
static bool never_negative(const Kernel *k, LVal v, int deep) {
  const LIns *in = &k->ins[v];
  switch ((LOp)in->op) {
  case LP_PAR:
  case LP_VEC:
  case LP_FOR:
  case LP_RED:
  case LP_ROW:
  case LP_COL: return true;
  case LP_CONST: return in->imm >= 0;
  case LP_IDIV:
  case LP_IREM: return deep > 0 && never_negative(k, lp_operand(k, v, 0), deep - 1);
  case LP_BIN: {
    if (deep == 0) return false;
    bool first = never_negative(k, lp_operand(k, v, 0), deep - 1);
    if (first == (in->imm == RB_MAX)) return first;
    if (in->imm != RB_ADD && in->imm != RB_MUL && in->imm != RB_MIN && in->imm != RB_MAX) {
      return false;
    }
    return never_negative(k, lp_operand(k, v, 1), deep - 1);
  }
  default: return false;
  }
}

/* LP_IDIV, LP_IREM. A linear x of step 1 over a uniform y takes one scalar division, and as many
 * wraps as 16 lanes can cause; no wraps if both are multiples of 16. Under a guard lane 0 may be
 * inactive and below 0 while active lanes are not. The scalar division is then of 0, so lanes from
 * 0 on start with the quotient 0 and themselves as the remainder. */
static One divide(Emit *e, LVal v, One x, One y) {
  bool rem = e->k->ins[v].op == LP_IREM;
  if (y.kind == ONE_UNIFORM) {
    LLVMValueRef one = emit_i64(e, 1), arg[2] = {y.v, one};
    if (!LLVMIsConstant(y.v))
      y.v = emit_intrinsic(e, "llvm.smax", LLVMTypeOf(y.v), 2, arg);
    else if (LLVMConstIntGetSExtValue(y.v) < 1)
      y.v = one;
    if (x.kind == ONE_UNIFORM) {
      return one_uniform(divide_uniform(e, rem, x.v, y.v));
    }
    if (known_step(x) == 1 && whole_lanes(e, y.v, 0) && whole_lanes(e, x.v, 8)) {
      LLVMValueRef z = divide_uniform(e, rem, x.v, y.v);
      return rem ? one_linear(z, one) : one_uniform(z);
    }
    if (known_step(x) == 1) {
      LLVMValueRef from = x.v, least[2] = {x.v, emit_i64(e, 0)};
      if (!never_negative(e->k, lp_operand(e->k, v, 0), 8)) {
        from = emit_intrinsic(e, "llvm.smax", LLVMTypeOf(x.v), 2, least);
      }
      LLVMValueRef q0 = divide_uniform(e, false, from, y.v);
      LLVMValueRef r0 = LLVMBuildSub(B, x.v, LLVMBuildMul(B, q0, y.v, ""), "");
      LLVMValueRef first = emit_vector(e, one_linear(r0, one)), d = emit_splat(e, y.v, EMIT_LANES);
      LLVMTypeRef vec = LLVMTypeOf(first);
      LLVMValueRef zero = LLVMConstNull(vec);
      LLVMBasicBlockRef start = LLVMGetInsertBlock(B), head = emit_new_block(e, "wrap");
      LLVMBasicBlockRef body = emit_new_block(e, "wrap.step"), done = emit_new_block(e, "wrap.end");
      LLVMBuildBr(B, head);
      LLVMPositionBuilderAtEnd(B, head);
      LLVMValueRef r = LLVMBuildPhi(B, vec, ""), q = LLVMBuildPhi(B, vec, "");
      LLVMValueRef over = icmp(e, LLVMIntSGE, r, d);
      LLVMBuildCondBr(B, any(e, over), body, done);
      LLVMPositionBuilderAtEnd(B, body);
      LLVMValueRef r2 = LLVMBuildSub(B, r, sel(e, over, d, zero), "");
      LLVMValueRef q2 = LLVMBuildAdd(B, q, LLVMBuildZExt(B, over, vec, ""), "");
      LLVMBuildBr(B, head);
      LLVMBasicBlockRef in[2] = {start, body};
      LLVMAddIncoming(r, (LLVMValueRef[]){first, r2}, in, 2);
      LLVMAddIncoming(q, (LLVMValueRef[]){zero, q2}, in, 2);
      LLVMPositionBuilderAtEnd(B, done);
      if (rem) return one_vector(r);
      return one_vector(LLVMBuildAdd(B, q, emit_splat(e, q0, EMIT_LANES), ""));
    }
  }
  LLVMValueRef a = emit_vector(e, x), b = emit_vector(e, y), arg[2] = {b, same_int(e, b, 1)};
  b = emit_intrinsic(e, "llvm.umax", LLVMTypeOf(b), 2, arg);
  LLVMValueRef q = emit_index_quotient(e, a, b);
  return one_vector(rem ? LLVMBuildSub(B, a, LLVMBuildMul(B, q, b, ""), "") : q);
}

/* ---- instructions */

/* i64 + - * with at least one linear operand and a linear result; else the result has the kind
 * VECTOR and v is NULL. */
static One linear(Emit *e, RefBin f, One x, One y) {
  One none = one_vector(NULL);
  if (x.kind == ONE_VECTOR || y.kind == ONE_VECTOR) return none;
  LLVMValueRef zero = emit_i64(e, 0);
  LLVMValueRef xs = x.kind == ONE_LINEAR ? x.step : zero, ys = y.kind == ONE_LINEAR ? y.step : zero;
  if (f == RB_ADD) return one_linear(LLVMBuildAdd(B, x.v, y.v, ""), LLVMBuildAdd(B, xs, ys, ""));
  if (f == RB_SUB) return one_linear(LLVMBuildSub(B, x.v, y.v, ""), LLVMBuildSub(B, xs, ys, ""));
  if (f != RB_MUL || (x.kind == ONE_LINEAR && y.kind == ONE_LINEAR)) return none;
  LLVMValueRef by = x.kind == ONE_LINEAR ? y.v : x.v, step = x.kind == ONE_LINEAR ? xs : ys;
  return one_linear(LLVMBuildMul(B, x.v, y.v, ""), LLVMBuildMul(B, step, by, ""));
}

/* Turns a linear value whose step is the constant 0 into a uniform one. */
static One tidy(One x) {
  if (x.kind == ONE_LINEAR && LLVMIsConstant(x.step) && LLVMIsNull(x.step)) return one_uniform(x.v);
  return x;
}

static One bin(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  One x = emit_operand(e, v, 0), y = emit_operand(e, v, 1);
  DType dt = lp_dtype(e->k, lp_operand(e->k, v, 0));
  RefBin f = (RefBin)in->imm;
  if (x.kind == ONE_UNIFORM && y.kind == ONE_UNIFORM)
    return one_uniform(emit_bin(e, f, dt, x.v, y.v));
  if (dt == DT_I64) {
    One r = linear(e, f, x, y);
    if (r.v) return tidy(r);
  }
  return one_vector(emit_bin(e, f, dt, emit_vector(e, x), emit_vector(e, y)));
}

static One where(Emit *e, LVal v) {
  One c = emit_operand(e, v, 0), x = emit_operand(e, v, 1), y = emit_operand(e, v, 2);
  if (c.kind == ONE_UNIFORM && x.kind != ONE_VECTOR && y.kind != ONE_VECTOR) {
    LLVMValueRef base = sel(e, c.v, x.v, y.v);
    if (x.kind == ONE_UNIFORM && y.kind == ONE_UNIFORM) return one_uniform(base);
    LLVMValueRef xs = x.kind == ONE_LINEAR ? x.step : emit_i64(e, 0);
    LLVMValueRef ys = y.kind == ONE_LINEAR ? y.step : emit_i64(e, 0);
    return one_linear(base, xs == ys ? xs : sel(e, c.v, xs, ys));
  }
  LLVMValueRef cond = c.kind == ONE_UNIFORM ? c.v : emit_vector(e, c);
  return one_vector(sel(e, cond, emit_vector(e, x), emit_vector(e, y)));
}

/* The value of a literal: an i64 argument holds the bits of an f64, or the number itself. */
static LLVMValueRef literal(Emit *e, DType dt, LLVMValueRef arg) {
  if (!dt_float(dt)) return emit_cast(e, DT_I64, dt, arg);
  LLVMValueRef x = LLVMBuildBitCast(B, arg, LLVMDoubleTypeInContext(e->ctx), "");
  return emit_cast(e, DT_F64, dt, x);
}

static One constant(Emit *e, DType dt, int64_t imm) {
  LLVMTypeRef t = emit_type(e, dt);
  if (!dt_float(dt)) return one_uniform(LLVMConstInt(t, (uint64_t)imm, true));
  LScalar x = lp_scalar(dt, imm);
  return one_uniform(LLVMConstReal(t, dt == DT_F64 ? x.d : (double)x.f));
}

One emit_one(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  DType dt = (DType)in->dtype;
  One x[3];
  bool same = true; /* all operands uniform */
  if (in->op == LP_BIN) return bin(e, v);
  if (in->op == LP_WHERE) return where(e, v);
  for (int i = 0; i < in->operand_count && i < 3; i++) {
    x[i] = emit_operand(e, v, i);
    same = same && x[i].kind == ONE_UNIFORM;
  }
  LLVMValueRef a[3], r;
  switch (in->op) {
  case LP_CONST: return constant(e, dt, in->imm);
  case LP_ARG: return one_uniform(literal(e, dt, e->arg[in->imm]));
  case LP_LOAD: return emit_load(e, in->buf, x[0]);
  case LP_IDIV:
  case LP_IREM: return divide(e, v, x[0], x[1]);
  case LP_UNIFORM:
  case LP_NORMAL:
  case LP_RANDINT:
  case LP_FOLD:
  case LP_PHILOX: return emit_random(e, v);
  default: break;
  }
  DType from = lp_dtype(e->k, lp_operand(e->k, v, 0));
  if (in->op == LP_UN && in->imm == RU_NEG && x[0].kind == ONE_LINEAR) {
    return one_linear(LLVMBuildNeg(B, x[0].v, ""), LLVMBuildNeg(B, x[0].step, ""));
  }
  if (in->op == LP_CAST && from == dt) return x[0];
  for (int i = 0; i < in->operand_count && i < 3; i++) a[i] = same ? x[i].v : emit_vector(e, x[i]);
  switch (in->op) {
  case LP_UN: r = emit_un(e, (RefUn)in->imm, from, a[0]); break;
  case LP_CAST: r = emit_cast(e, from, dt, a[0]); break;
  case LP_FMA:
    if (dt_float(dt))
      r = emit_round(e, dt, emit_fma(e, a[0], a[1], a[2]));
    else
      r = LLVMBuildAdd(B, LLVMBuildMul(B, a[0], a[1], ""), a[2], "");
    break;
  case LP_CTZ: {
    LLVMValueRef arg[2] = {a[0], LLVMConstInt(LLVMInt1TypeInContext(e->ctx), 0, false)};
    r = emit_intrinsic(e, "llvm.cttz", LLVMTypeOf(a[0]), 2, arg);
    break;
  }
  default: emit_fail(e, "no code for %s", lp_info[in->op].name); return x[0];
  }
  return same ? one_uniform(r) : one_vector(r);
}
