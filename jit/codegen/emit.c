/* Kernels to LLVM functions: loops, lanes, reductions, variables, and the function around them.
 *
 * In: a verified kernel. Out: an object, or text. An LP_VEC in scalar code becomes a loop of
 * vectors of 16 lanes and one masked rest; so does an LP_RED, whose 16 accumulators of rule 105
 * are then one vector. An LP_RED inside an LP_VEC is a loop with 16 accumulators per lane in
 * memory. All other loops are loops. Variables and accumulators are allocas, which a pass puts
 * into registers.
 *
 * Invariant: at each place of vector code at least one lane of the mask is set. */
#include "jit/codegen/emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/codegen/emit_elem.h"
#include "jit/loop/loop_impl.h"

#define B e->b

enum { BLOCK = 4096, LEVELS = 64 };

void emit_fail(Emit *e, const char *fmt, ...) {
  va_list ap;
  if (e->failed) return;
  e->failed = true;
  va_start(ap, fmt);
  vsnprintf(e->err, e->err_n, fmt, ap);
  va_end(ap);
}

/* ---- blocks and loops */

LLVMBasicBlockRef emit_new_block(Emit *e, const char *name) {
  return LLVMAppendBasicBlockInContext(e->ctx, e->fn, name);
}

LLVMValueRef emit_alloca(Emit *e, LLVMTypeRef t, const char *name) {
  LLVMBasicBlockRef at = LLVMGetInsertBlock(B);
  LLVMValueRef first = LLVMGetFirstInstruction(e->entry);
  if (first)
    LLVMPositionBuilderBefore(B, first);
  else
    LLVMPositionBuilderAtEnd(B, e->entry);
  LLVMValueRef p = LLVMBuildAlloca(B, t, name);
  LLVMSetAlignment(p, 64);
  LLVMPositionBuilderAtEnd(B, at);
  return p;
}

void emit_loop(Emit *e, Loop *l, LLVMValueRef from, LLVMValueRef to, int64_t step) {
  l->before = LLVMGetInsertBlock(B);
  l->body = emit_new_block(e, "loop");
  l->end = emit_new_block(e, "loop.end");
  l->to = to;
  l->step = step;
  LLVMValueRef some = LLVMBuildICmp(B, LLVMIntSLT, from, to, "");
  if (LLVMIsAConstantInt(some) && !LLVMIsNull(some))
    LLVMBuildBr(B, l->body);
  else
    LLVMBuildCondBr(B, some, l->body, l->end);
  LLVMPositionBuilderAtEnd(B, l->body);
  l->i = LLVMBuildPhi(B, LLVMTypeOf(from), "i");
  LLVMAddIncoming(l->i, &from, &l->before, 1);
}

void emit_loop_end(Emit *e, Loop *l) {
  LLVMValueRef next = LLVMBuildAdd(B, l->i, emit_i64(e, l->step), "");
  LLVMBasicBlockRef from = LLVMGetInsertBlock(B);
  LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntSLT, next, l->to, ""), l->body, l->end);
  LLVMAddIncoming(l->i, &next, &from, 1);
  LLVMPositionBuilderAtEnd(B, l->end);
}

/* Leaves the function early when the host asks. */
static void poll(Emit *e) {
  if (e->gpu) return;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMValueRef at = emit_i64(e, 1);
  LLVMValueRef stop = LLVMBuildLoad2(B, i32, LLVMBuildGEP2(B, i32, e->status, &at, 1, ""), "");
  LLVMSetVolatile(stop, true);
  LLVMBasicBlockRef on = emit_new_block(e, "on");
  LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntNE, stop, emit_i32(e, 0), ""), e->leave, on);
  LLVMPositionBuilderAtEnd(B, on);
}

/* n if it is a constant, or 0 if that is negative (no iterations); else -1. */
static int64_t known(LLVMValueRef n) {
  if (!LLVMIsAConstantInt(n)) return -1;
  int64_t c = LLVMConstIntGetSExtValue(n);
  return c < 0 ? 0 : c;
}

/* A mask of the first `rest` lanes. */
static LLVMValueRef first_lanes(Emit *e, LLVMValueRef rest) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMValueRef lane[EMIT_LANES];
  for (int i = 0; i < EMIT_LANES; i++) lane[i] = emit_i32(e, i);
  LLVMValueRef n = emit_splat(e, LLVMBuildTrunc(B, rest, i32, ""), EMIT_LANES);
  return LLVMBuildICmp(B, LLVMIntULT, LLVMConstVector(lane, EMIT_LANES), n, "");
}

void emit_lanes(Emit *e, LLVMValueRef n, EmitBody *body, void *ud) {
  int64_t c = known(n);
  if (c < 0) {
    LLVMValueRef arg[2] = {n, emit_i64(e, 0)};
    n = emit_intrinsic(e, "llvm.smax", LLVMTypeOf(n), 2, arg);
  }
  LLVMValueRef whole =
      c < 0 ? LLVMBuildAnd(B, n, emit_i64(e, -EMIT_LANES), "") : emit_i64(e, c & -EMIT_LANES);
  e->width = EMIT_LANES;
  if (c >= EMIT_LANES && c < 2 * EMIT_LANES) {
    body(e, ud, emit_i64(e, 0));
  } else if (c < 0 || c >= EMIT_LANES) {
    Loop l;
    emit_loop(e, &l, emit_i64(e, 0), whole, EMIT_LANES);
    e->lane0 = l.i;
    body(e, ud, l.i);
    emit_loop_end(e, &l);
  }
  if (c < 0 || c % EMIT_LANES) {
    LLVMBasicBlockRef some = emit_new_block(e, "rest"), end = emit_new_block(e, "rest.end");
    if (c < 0)
      LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntSLT, whole, n, ""), some, end);
    else
      LLVMBuildBr(B, some);
    LLVMPositionBuilderAtEnd(B, some);
    LLVMValueRef rest = c < 0 ? LLVMBuildSub(B, n, whole, "") : emit_i64(e, c % EMIT_LANES);
    e->mask = first_lanes(e, rest);
    body(e, ud, whole);
    e->mask = NULL;
    LLVMBuildBr(B, end);
    LLVMPositionBuilderAtEnd(B, end);
  }
  e->width = 1;
}

/* ---- reductions */

/* The state of one LP_YIELD. `blocks`: it is reduced block by block; `tree`: a tree combines the
 * results of the blocks (a chain has no tree). If iterations are lanes, accumulators are vectors
 * and results scalars; else both are as wide as the surrounding code. The max and min of floats
 * are found among their keys (emit_key), so an iteration waits for the one before it by a single
 * instruction of one cycle. */
typedef struct Acc {
  LVal v;
  LRed kind;
  DType dt, in; /* dt: of an accumulator; in: of the yielded value */
  bool tree, blocks, keyed;
  LLVMTypeRef t, result; /* of an accumulator, of a result */
  LLVMValueRef at;       /* alloca: t, or [16 x t] for a tree in serial code */
  LLVMValueRef won;      /* FIRST: iterations of the best, i64 as wide as t; -1 at the start */
  LLVMValueRef level;    /* blocks: [LEVELS x result]; a chain: the sum so far */
  LLVMValueRef out;      /* alloca of a result */
} Acc;

typedef struct Red {
  LVal v;
  bool lanes;
  bool serial;            /* one thread makes all iterations, and has 16 accumulators for a tree */
  LLVMValueRef base;      /* of the block */
  LLVMValueRef iteration; /* serial: the iteration; lanes: the iteration of lane 0 */
  Acc *acc;
  int count;
} Red;

static bool is_max(LRed kind) {
  return kind == RED_MAX || kind == RED_ANY || kind == RED_FIRST_MAX;
}
static bool is_min(LRed kind) {
  return kind == RED_MIN || kind == RED_ALL || kind == RED_FIRST_MIN;
}
static bool is_first(LRed kind) {
  return kind == RED_FIRST_MAX || kind == RED_FIRST_MIN;
}

/* The initial value of an accumulator. */
static LLVMValueRef identity(Emit *e, const Acc *a, LLVMTypeRef t) {
  static const int64_t low[] = {0, 0, INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN};
  static const int64_t high[] = {1, UINT8_MAX, INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
  LLVMValueRef x;
  if (a->keyed && !is_first(a->kind)) {
    x = emit_const(e, a->in, is_max(a->kind) ? -__builtin_inf() : __builtin_inf());
    x = emit_key(e, is_max(a->kind), x);
  } else if (dt_float(a->dt)) {
    x = emit_const(e, a->dt, a->kind == RED_PROD ? 1 : a->kind == RED_SUM ? -0.0 : 0);
  } else { /* a key never equals its start: those of NaNs alone are extreme, at the other end */
    int64_t c = is_max(a->kind) ? low[a->dt] : is_min(a->kind) ? high[a->dt] : a->kind == RED_PROD;
    x = LLVMConstInt(emit_type(e, a->dt), (uint64_t)c, true);
  }
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? emit_splat(e, x, EMIT_LANES) : x;
}

/* Combines two partial results, x the earlier one; f16 and bf16 are not rounded in between. */
static LLVMValueRef combine(Emit *e, LRed kind, DType dt, LLVMValueRef x, LLVMValueRef y) {
  switch (kind) {
  case RED_PROD: return dt_float(dt) ? LLVMBuildFMul(B, x, y, "") : LLVMBuildMul(B, x, y, "");
  case RED_MAX: return emit_bin(e, RB_MAX, dt, x, y);
  case RED_MIN: return emit_bin(e, RB_MIN, dt, x, y);
  case RED_ANY: return LLVMBuildOr(B, x, y, "");
  case RED_ALL: return LLVMBuildAnd(B, x, y, "");
  default: return dt_float(dt) ? LLVMBuildFAdd(B, x, y, "") : LLVMBuildAdd(B, x, y, "");
  }
}

/* Whether v beats the best. */
static LLVMValueRef beats(Emit *e, LRed kind, DType dt, LLVMValueRef v, LLVMValueRef best) {
  return emit_bin(e, kind == RED_FIRST_MAX ? RB_GT : RB_LT, dt, v, best);
}

static LLVMValueRef half_of(Emit *e, LLVMValueRef x, int from, int n) {
  LLVMValueRef lane[EMIT_LANES];
  if (n == 1) return LLVMBuildExtractElement(B, x, emit_i32(e, from), "");
  for (int i = 0; i < n; i++) lane[i] = emit_i32(e, from + i);
  return LLVMBuildShuffleVector(B, x, x, LLVMConstVector(lane, (unsigned)n), "");
}

/* Combines lane j with lane j + 8, then j + 4, j + 2, j + 1. */
static LLVMValueRef halve(Emit *e, LRed kind, DType dt, LLVMValueRef x) {
  for (int n = EMIT_LANES / 2; n > 0; n /= 2) {
    x = combine(e, kind, dt, half_of(e, x, 0, n), half_of(e, x, n, n));
  }
  return x;
}

/* The lowest iteration among the best lanes; a lane without elements has -1 as its iteration. */
static LLVMValueRef first_of(Emit *e, LRed kind, DType dt, LLVMValueRef x, LLVMValueRef won) {
  for (int n = EMIT_LANES / 2; n > 0; n /= 2) {
    LLVMValueRef a = x, b, p = won, q, none = emit_i64(e, -1);
    if (e->gpu) {
      b = emit_gpu_exchange(e, x, n);
      q = emit_gpu_exchange(e, won, n);
    } else {
      a = half_of(e, x, 0, n);
      b = half_of(e, x, n, n);
      p = half_of(e, won, 0, n);
      q = half_of(e, won, n, n);
      none = emit_splat(e, none, n);
    }
    LLVMValueRef earlier = LLVMBuildICmp(B, LLVMIntULT, q, p, ""); /* unsigned: -1 is the last */
    LLVMValueRef worse = beats(e, kind, dt, a, b), better = beats(e, kind, dt, b, a);
    LLVMValueRef take = LLVMBuildAnd(B, earlier, LLVMBuildNot(B, worse, ""), "");
    take = LLVMBuildOr(B, take, better, "");
    take = LLVMBuildAnd(B, take, LLVMBuildICmp(B, LLVMIntNE, q, none, ""), "");
    take = LLVMBuildOr(B, take, LLVMBuildICmp(B, LLVMIntEQ, p, none, ""), "");
    x = LLVMBuildSelect(B, take, b, a, "");
    won = LLVMBuildSelect(B, take, q, p, "");
  }
  return won;
}

/* Combines the lanes of a reduction if each lane is a thread; all threads get the result. */
static LLVMValueRef halve_threads(Emit *e, LRed kind, DType dt, LLVMValueRef x) {
  for (int n = EMIT_LANES / 2; n > 0; n /= 2) {
    x = combine(e, kind, dt, x, emit_gpu_exchange(e, x, n));
  }
  return x;
}

static LLVMValueRef element(Emit *e, LLVMTypeRef t, LLVMValueRef array, LLVMValueRef i) {
  return LLVMBuildGEP2(B, t, array, &i, 1, "");
}

/* Adds the value of one iteration, or of 16 lanes, to the accumulator. */
static void yield(Emit *e, LVal v) {
  Red *red = e->red;
  Acc *a = red->acc;
  while (a->v != v) a++;
  LLVMValueRef x = emit_vector(e, emit_operand(e, v, 0)), at = a->at, now;
  LLVMValueRef mask = red->lanes ? e->mask : NULL;
  if (red->serial && a->tree) {
    at = element(e, a->t, at, LLVMBuildAnd(B, red->iteration, emit_i64(e, EMIT_LANES - 1), ""));
  }
  LLVMValueRef old = LLVMBuildLoad2(B, a->t, at, "");
  if (a->keyed && is_first(a->kind)) { /* -0 becomes +0: they are equal */
    x = LLVMBuildFAdd(B, x, LLVMConstNull(LLVMTypeOf(x)), "");
  }
  if (a->keyed) x = emit_key(e, is_max(a->kind), x);
  if (is_first(a->kind)) {
    LLVMTypeRef i64 = emit_like(x, LLVMInt64TypeInContext(e->ctx));
    LLVMValueRef won = LLVMBuildLoad2(B, i64, a->won, "");
    One iteration =
        red->lanes ? one_linear(red->iteration, emit_i64(e, 1)) : one_uniform(red->iteration);
    LLVMValueRef take = beats(e, a->kind, a->dt, x, old);
    if (!a->keyed) { /* the first int wins even if it equals the start */
      LLVMValueRef fresh = LLVMBuildICmp(B, LLVMIntEQ, won, LLVMConstAllOnes(i64), "");
      take = LLVMBuildOr(B, take, fresh, "");
    }
    if (mask) take = LLVMBuildAnd(B, take, mask, "");
    LLVMBuildStore(B, LLVMBuildSelect(B, take, emit_vector(e, iteration), won, ""), a->won);
    LLVMBuildStore(B, LLVMBuildSelect(B, take, x, old, ""), at);
    return;
  }
  if (a->kind == RED_FMA || a->kind == RED_CHAIN) {
    LLVMValueRef y = emit_vector(e, emit_operand(e, v, 1));
    now = dt_float(a->dt) ? emit_fma(e, x, y, old)
                          : LLVMBuildAdd(B, LLVMBuildMul(B, x, y, ""), old, "");
  } else {
    now = combine(e, a->kind, a->dt, old, x);
  }
  LLVMBuildStore(B, mask ? LLVMBuildSelect(B, mask, now, old, "") : now, at);
}

/* Initialises the accumulators that are reduced block by block, or the others. */
static void begin(Emit *e, Red *red, bool blocks) {
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (a->blocks != blocks) continue;
    LLVMValueRef start = identity(e, a, a->t);
    int n = a->tree && red->serial ? EMIT_LANES : 1;
    for (int i = 0; i < n; i++) LLVMBuildStore(B, start, element(e, a->t, a->at, emit_i64(e, i)));
    if (!is_first(a->kind)) continue;
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
    if (LLVMGetTypeKind(a->t) == LLVMVectorTypeKind) i64 = LLVMVectorType(i64, EMIT_LANES);
    LLVMBuildStore(B, LLVMConstAllOnes(i64), a->won);
  }
}

/* Combines the accumulators into the result. */
static LLVMValueRef gather(Emit *e, Red *red, Acc *a) {
  LLVMValueRef x[EMIT_LANES];
  if (red->serial && a->tree) {
    for (int i = 0; i < EMIT_LANES; i++) {
      x[i] = LLVMBuildLoad2(B, a->t, element(e, a->t, a->at, emit_i64(e, i)), "");
    }
    for (int h = EMIT_LANES / 2; h > 0; h /= 2)
      for (int i = 0; i < h; i++) x[i] = combine(e, a->kind, a->dt, x[i], x[i + h]);
    return x[0];
  }
  LLVMValueRef v = LLVMBuildLoad2(B, a->t, a->at, "");
  if (is_first(a->kind)) {
    LLVMTypeRef i64 = emit_like(v, LLVMInt64TypeInContext(e->ctx));
    LLVMValueRef won = LLVMBuildLoad2(B, i64, a->won, "");
    if (!red->serial) won = first_of(e, a->kind, a->dt, v, won);
    LLVMValueRef arg[2] = {won, LLVMConstNull(LLVMTypeOf(won))};
    return emit_intrinsic(e, "llvm.smax", LLVMTypeOf(won), 2, arg);
  }
  if (red->serial) return v;
  return red->lanes ? halve(e, a->kind, a->dt, v) : halve_threads(e, a->kind, a->dt, v);
}

/* Merges the results of block number `block` into the levels, as a binary counter carries.
 * `depth`: alloca of the number of levels. */
static void push(Emit *e, Red *red, LLVMValueRef block, LLVMValueRef depth) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->blocks) continue;
    LLVMValueRef v = gather(e, red, a);
    if (a->kind == RED_CHAIN) {
      LLVMValueRef sum = LLVMBuildLoad2(B, a->result, a->level, "");
      LLVMValueRef none = LLVMBuildICmp(B, LLVMIntEQ, block, emit_i64(e, 0), "");
      v = LLVMBuildSelect(B, none, v, combine(e, a->kind, a->dt, sum, v), "");
      LLVMBuildStore(B, v, a->level);
    } else {
      LLVMBuildStore(B, v, a->out);
    }
  }
  LLVMBasicBlockRef before = LLVMGetInsertBlock(B), head = emit_new_block(e, "carry");
  LLVMBasicBlockRef body = emit_new_block(e, "merge"), end = emit_new_block(e, "carry.end");
  LLVMValueRef d = LLVMBuildLoad2(B, i64, depth, "");
  LLVMBuildBr(B, head);
  LLVMPositionBuilderAtEnd(B, head);
  LLVMValueRef count = LLVMBuildPhi(B, i64, ""), top = LLVMBuildPhi(B, i64, "");
  LLVMValueRef odd = LLVMBuildAnd(B, count, emit_i64(e, 1), "");
  LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntNE, odd, emit_i64(e, 0), ""), body, end);
  LLVMPositionBuilderAtEnd(B, body);
  LLVMValueRef under = LLVMBuildSub(B, top, emit_i64(e, 1), "");
  LLVMValueRef rest = LLVMBuildLShr(B, count, emit_i64(e, 1), "");
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->tree) continue;
    LLVMValueRef x = LLVMBuildLoad2(B, a->result, element(e, a->result, a->level, under), "");
    LLVMValueRef y = LLVMBuildLoad2(B, a->result, a->out, "");
    LLVMBuildStore(B, combine(e, a->kind, a->dt, x, y), a->out);
  }
  LLVMBasicBlockRef from[2] = {before, LLVMGetInsertBlock(B)};
  LLVMBuildBr(B, head);
  LLVMAddIncoming(count, (LLVMValueRef[]){block, rest}, from, 2);
  LLVMAddIncoming(top, (LLVMValueRef[]){d, under}, from, 2);
  LLVMPositionBuilderAtEnd(B, end);
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->tree) continue;
    LLVMValueRef y = LLVMBuildLoad2(B, a->result, a->out, "");
    LLVMBuildStore(B, y, element(e, a->result, a->level, top));
  }
  LLVMBuildStore(B, LLVMBuildAdd(B, top, emit_i64(e, 1), ""), depth);
}

/* Combines the levels that are left, from the right, into `out`. */
static void fold(Emit *e, Red *red, LLVMValueRef depth) {
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMBasicBlockRef some = emit_new_block(e, "fold"), end = emit_new_block(e, "fold.end");
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->blocks) continue;
    bool sum = a->kind == RED_SUM; /* of nothing, +0 */
    LLVMBuildStore(B, sum ? LLVMConstNull(a->result) : identity(e, a, a->result), a->out);
  }
  LLVMValueRef d = LLVMBuildLoad2(B, i64, depth, "");
  LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntNE, d, emit_i64(e, 0), ""), some, end);
  LLVMPositionBuilderAtEnd(B, some);
  LLVMValueRef top = LLVMBuildSub(B, d, emit_i64(e, 1), "");
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->blocks) continue;
    LLVMValueRef at = a->tree ? element(e, a->result, a->level, top) : a->level;
    LLVMBuildStore(B, LLVMBuildLoad2(B, a->result, at, ""), a->out);
  }
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), top, 1);
  LLVMValueRef under = LLVMBuildSub(B, LLVMBuildSub(B, top, emit_i64(e, 1), ""), l.i, "");
  for (int j = 0; j < red->count; j++) {
    Acc *a = &red->acc[j];
    if (!a->tree) continue;
    LLVMValueRef x = LLVMBuildLoad2(B, a->result, element(e, a->result, a->level, under), "");
    LLVMValueRef y = LLVMBuildLoad2(B, a->result, a->out, "");
    LLVMBuildStore(B, combine(e, a->kind, a->dt, x, y), a->out);
  }
  emit_loop_end(e, &l);
  LLVMBuildBr(B, end);
  LLVMPositionBuilderAtEnd(B, end);
}

static void red_lanes(Emit *e, void *ud, LLVMValueRef i) {
  Red *red = ud;
  red->iteration = LLVMBuildAdd(B, red->base, i, "");
  emit_set(e, red->v, one_linear(red->iteration, emit_i64(e, 1)));
  emit_range(e, red->v + 1, e->k->ins[red->v].match);
}

/* Emits `n` iterations, starting at red->base. */
static void red_iterations(Emit *e, Red *red, LLVMValueRef n) {
  if (red->lanes) {
    emit_lanes(e, n, red_lanes, red);
    return;
  }
  Loop l;
  if (red->serial)
    emit_loop(e, &l, emit_i64(e, 0), n, 1);
  else
    emit_loop(e, &l, emit_gpu_thread(e), n, EMIT_LANES);
  red->iteration = LLVMBuildAdd(B, red->base, l.i, "");
  emit_set(e, red->v, one_uniform(red->iteration));
  emit_range(e, red->v + 1, e->k->ins[red->v].match);
  emit_loop_end(e, &l);
}

/* Counts the yields directly in the reduction at v and fills `acc`, unless NULL. *chain: whether
 * one of them is a chain. */
static int find_yields(Emit *e, LVal v, Acc *acc, bool *chain) {
  const LIns *ins = e->k->ins;
  int n = 0;
  *chain = false;
  for (LVal i = v + 1; i < ins[v].match; i++) {
    if (lp_info[ins[i].op].opens) i = ins[i].match;
    if (ins[i].op != LP_YIELD) continue;
    if (acc) {
      DType dt = lp_dtype(e->k, lp_operand(e->k, i, 0));
      Acc a = {.v = i, .kind = (LRed)ins[i].imm, .dt = dt, .in = dt};
      a.keyed = dt_float(dt) && (is_max(a.kind) || is_min(a.kind));
      if (a.keyed) a.dt = dt == DT_F64 ? DT_I64 : DT_I32;
      acc[n] = a;
    }
    *chain = *chain || ins[i].imm == RED_CHAIN;
    n++;
  }
  return n;
}

static void reduction(Emit *e, LVal v) {
  Red red = {.v = v, .base = emit_i64(e, 0)}, *outer = e->red;
  bool chain, blocks = false;
  int count = find_yields(e, v, NULL, &chain);
  One length = emit_operand(e, v, 0);
  LLVMValueRef n = length.v;
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  if (length.kind != ONE_UNIFORM) {
    emit_fail(e, "iterations of a reduction differ between lanes");
    return;
  }
  red.acc = calloc((size_t)count + 1, sizeof(Acc));
  if (!red.acc) {
    emit_fail(e, "out of memory");
    return;
  }
  red.count = find_yields(e, v, red.acc, &chain);
  red.lanes = e->width == 1 && !chain && !e->gpu;
  red.serial = !red.lanes && !e->team;
  for (int j = 0; j < count; j++) {
    Acc *a = &red.acc[j];
    LLVMTypeRef t = emit_type(e, a->dt);
    a->tree = dt_float(a->dt) && (a->kind == RED_SUM || a->kind == RED_PROD || a->kind == RED_FMA);
    a->blocks = a->tree || (a->kind == RED_CHAIN && dt_float(a->dt));
    blocks = blocks || a->blocks;
    a->t = emit_vec(t, red.lanes ? EMIT_LANES : e->width);
    a->result = is_first(a->kind) ? emit_vec(i64, e->width) : emit_vec(t, e->width);
    bool many = a->tree && red.serial;
    a->at = emit_alloca(e, many ? LLVMArrayType2(a->t, EMIT_LANES) : a->t, "acc");
    a->out = emit_alloca(e, a->result, "result");
    if (is_first(a->kind)) {
      a->won = emit_alloca(e, emit_vec(i64, red.lanes ? EMIT_LANES : e->width), "won");
    }
  }
  int64_t c = known(n);
  bool one_block = !blocks || (c > 0 && c <= BLOCK);
  e->red = &red;
  e->team = false;
  begin(e, &red, false);
  if (one_block) {
    begin(e, &red, true);
    red_iterations(e, &red, n);
  } else {
    for (int j = 0; j < count; j++) {
      Acc *a = &red.acc[j];
      if (!a->blocks) continue;
      bool many = a->tree;
      a->level = emit_alloca(e, many ? LLVMArrayType2(a->result, LEVELS) : a->result, "level");
      if (!many) LLVMBuildStore(B, LLVMConstNull(a->result), a->level);
    }
    LLVMValueRef depth = emit_alloca(e, i64, "depth");
    LLVMBuildStore(B, emit_i64(e, 0), depth);
    Loop l;
    emit_loop(e, &l, emit_i64(e, 0), n, BLOCK);
    if (e->width == 1) poll(e);
    LLVMValueRef arg[2] = {LLVMBuildSub(B, n, l.i, ""), emit_i64(e, BLOCK)};
    red.base = l.i;
    begin(e, &red, true);
    red_iterations(e, &red, emit_intrinsic(e, "llvm.smin", i64, 2, arg));
    push(e, &red, LLVMBuildLShr(B, l.i, emit_i64(e, 12), ""), depth);
    emit_loop_end(e, &l);
    fold(e, &red, depth);
  }
  for (int j = 0; j < count; j++) {
    Acc *a = &red.acc[j];
    LLVMValueRef x =
        !one_block && a->blocks ? LLVMBuildLoad2(B, a->result, a->out, "") : gather(e, &red, a);
    if (a->keyed && !is_first(a->kind)) x = emit_unkey(e, x);
    if (!is_first(a->kind)) x = emit_round(e, a->in, x);
    emit_set(e, a->v, e->width == 1 ? one_uniform(x) : one_vector(x));
  }
  e->red = outer;
  free(red.acc);
}

/* ---- other blocks */

/* Whether there is a loop inside the block at v. */
static bool has_loop(const Kernel *k, LVal v) {
  for (LVal i = v + 1; i < k->ins[v].match; i++)
    if (lp_info[k->ins[i].op].opens && k->ins[i].op != LP_IF) return true;
  return false;
}

/* Emits an LP_FOR, or an LP_PAR or LP_VEC that becomes a plain loop. */
static void iterations(Emit *e, LVal v) {
  Loop l;
  One n = emit_operand(e, v, 0);
  if (e->k->ins[v].op == LP_FOR && !e->gpu && emit_transposed(e, v)) return;
  if (n.kind != ONE_UNIFORM) {
    emit_fail(e, "iterations of a loop differ between lanes");
    return;
  }
  emit_loop(e, &l, emit_i64(e, 0), n.v, 1);
  if (e->k->ins[v].op == LP_FOR && has_loop(e->k, v)) poll(e);
  emit_set(e, v, one_uniform(l.i));
  emit_range(e, v + 1, e->k->ins[v].match);
  emit_loop_end(e, &l);
}

static void vec_lanes(Emit *e, void *ud, LLVMValueRef i) {
  LVal v = *(LVal *)ud;
  emit_set(e, v, one_linear(i, emit_i64(e, 1)));
  emit_range(e, v + 1, e->k->ins[v].match);
}

static void vec(Emit *e, LVal v) {
  if (e->width > 1)
    iterations(e, v);
  else
    emit_lanes(e, emit_operand(e, v, 0).v, vec_lanes, &v);
}

static void branch(Emit *e, LVal v) {
  One c = emit_operand(e, v, 0);
  LLVMBasicBlockRef then = emit_new_block(e, "then"), end = emit_new_block(e, "end");
  LLVMValueRef mask = e->mask;
  if (c.kind == ONE_UNIFORM) {
    LLVMBuildCondBr(B, c.v, then, end);
  } else {
    LLVMValueRef m = mask ? LLVMBuildAnd(B, mask, c.v, "") : c.v, some;
    LLVMTypeRef i16 = LLVMIntTypeInContext(e->ctx, EMIT_LANES);
    some = LLVMBuildICmp(B, LLVMIntNE, LLVMBuildBitCast(B, m, i16, ""), LLVMConstNull(i16), "");
    LLVMBuildCondBr(B, some, then, end);
    e->mask = m;
  }
  LLVMPositionBuilderAtEnd(B, then);
  emit_range(e, v + 1, e->k->ins[v].match);
  LLVMBuildBr(B, end);
  LLVMPositionBuilderAtEnd(B, end);
  e->mask = mask;
}

/* ---- straight-line code */

static LLVMTypeRef var_type(One var) {
  return LLVMGetAllocatedType(var.v);
}

static void straight(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  One x = {0};
  LLVMValueRef old, now;
  if (in->operand_count > 0) x = emit_operand(e, v, 0);
  switch (in->op) {
  case LP_ROW:
  case LP_COL: break; /* the tile has set them */
  case LP_YIELD: yield(e, v); break;
  case LP_STORE: emit_store(e, in->buf, x, emit_operand(e, v, 1)); break;
  case LP_CHECK: emit_flag(e, LLVMBuildNot(B, x.v, "")); break;
  case LP_VAR:
    old = emit_alloca(e, emit_vec(emit_type(e, (DType)in->dtype), e->width), "var");
    LLVMBuildStore(B, emit_vector(e, x), old);
    emit_set(e, v, one_uniform(old));
    break;
  case LP_GET:
    now = LLVMBuildLoad2(B, var_type(x), x.v, "");
    emit_set(e, v, emit_width_of(now) > 1 ? one_vector(now) : one_uniform(now));
    break;
  case LP_SET:
    now = emit_vector(e, emit_operand(e, v, 1));
    if (e->mask) {
      old = LLVMBuildLoad2(B, var_type(x), x.v, "");
      now = LLVMBuildSelect(B, e->mask, now, old, "");
    }
    LLVMBuildStore(B, now, x.v);
    break;
  case LP_RESULT: emit_set(e, v, x); break;
  default: emit_set(e, v, emit_one(e, v)); break;
  }
}

void emit_range(Emit *e, LVal first, LVal end) {
  const LIns *ins = e->k->ins;
  for (LVal v = first; v < end && !e->failed; v++) {
    e->now = v;
    switch (ins[v].op) {
    case LP_PAR:
    case LP_FOR: iterations(e, v); break;
    case LP_VEC: vec(e, v); break;
    case LP_RED: reduction(e, v); break;
    case LP_IF: branch(e, v); break;
    case LP_TILE: emit_tile(e, v); break;
    default: straight(e, v); continue;
    }
    v = ins[v].match;
  }
}

/* ---- functions */

static void attribute(Emit *e, LLVMValueRef fn, const char *name, const char *value) {
  LLVMAttributeRef a = LLVMCreateStringAttribute(e->ctx, name, (unsigned)strlen(name), value,
                                                 (unsigned)strlen(value));
  LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, a);
}

static void enum_attribute(Emit *e, LLVMValueRef fn, unsigned at, const char *name) {
  unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
  LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(e->ctx, kind, 0));
}

LLVMValueRef emit_function(Emit *e, const char *name, LLVMTypeRef type, bool internal) {
  LLVMValueRef fn = LLVMAddFunction(e->mod, name, type);
  bool wide = e->target->vector > 32;
  if (internal) LLVMSetLinkage(fn, LLVMInternalLinkage);
  enum_attribute(e, fn, LLVMAttributeFunctionIndex, "nounwind");
  if (e->gpu && !e->emulate) return fn;
  attribute(e, fn, "frame-pointer", "all");
  attribute(e, fn, "no-builtins", "");
  attribute(e, fn, "target-cpu", e->target->name);
  attribute(e, fn, "prefer-vector-width", wide ? "512" : "256");
  attribute(e, fn, "min-legal-vector-width", wide ? "512" : "0");
  return fn;
}

bool emit_fn_begin(Emit *e, EmitSaved *s, const char *name, LLVMTypeRef type, LLVMValueRef *fn) {
  *fn = LLVMGetNamedFunction(e->mod, name);
  if (*fn) return false;
  *fn = emit_function(e, name, type, true);
  enum_attribute(e, *fn, LLVMAttributeFunctionIndex, "noinline");
  s->at = LLVMGetInsertBlock(B);
  s->entry = e->entry;
  s->fn = e->fn;
  e->fn = *fn;
  e->entry = emit_new_block(e, "entry");
  LLVMBasicBlockRef start = emit_new_block(e, "start");
  LLVMPositionBuilderAtEnd(B, e->entry);
  LLVMBuildBr(B, start);
  LLVMPositionBuilderAtEnd(B, start);
  return true;
}

void emit_fn_end(Emit *e, EmitSaved *s) {
  e->fn = s->fn;
  e->entry = s->entry;
  LLVMPositionBuilderAtEnd(B, s->at);
}

LLVMValueRef emit_call(Emit *e, LLVMValueRef fn, int n, LLVMValueRef *arg) {
  return LLVMBuildCall2(B, LLVMGlobalGetValueType(fn), fn, arg, (unsigned)n, "");
}

/* Emits the function `iterations(buffers.., arg, lo, hi, status)`, which is inlined into the entry.
 * It is a function since attributes of parameters can say which buffers do not overlap. */
static LLVMValueRef emit_iterations(Emit *e) {
  const Kernel *k = e->k;
  unsigned n = (unsigned)k->buf_count;
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0), i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMTypeRef *par = malloc((n + 4) * sizeof *par);
  if (!par) {
    emit_fail(e, "out of memory");
    return NULL;
  }
  for (unsigned i = 0; i < n + 4; i++) par[i] = i == n + 1 || i == n + 2 ? i64 : ptr;
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), par, n + 4, false);
  free(par);
  e->fn = emit_function(e, "iterations", type, true);
  enum_attribute(e, e->fn, LLVMAttributeFunctionIndex, "alwaysinline");
  for (unsigned i = 0; i < n; i++) {
    e->buf[i] = LLVMGetParam(e->fn, i);
    bool own = k->bufs[i].kind == LB_OUT || k->bufs[i].kind == LB_LOCAL;
    if (own) enum_attribute(e, e->fn, i + 1, "noalias");
  }
  e->status = LLVMGetParam(e->fn, n + 3);
  enum_attribute(e, e->fn, n + 4, "noalias");
  LLVMValueRef lo = LLVMGetParam(e->fn, n + 1), hi = LLVMGetParam(e->fn, n + 2);
  e->entry = emit_new_block(e, "entry");
  LLVMBasicBlockRef start = emit_new_block(e, "start");
  e->leave = emit_new_block(e, "leave");
  LLVMPositionBuilderAtEnd(B, e->entry);
  e->fail = LLVMBuildAlloca(B, i32, "fail");
  for (uint32_t i = 0; i < k->arg_count; i++) {
    LLVMValueRef at = emit_i64(e, (int64_t)i);
    e->arg[i] =
        LLVMBuildLoad2(B, i64, LLVMBuildGEP2(B, i64, LLVMGetParam(e->fn, n), &at, 1, ""), "");
  }
  LLVMBuildBr(B, start);
  LLVMPositionBuilderAtEnd(B, start);
  LLVMBuildStore(B, emit_i32(e, 0), e->fail);
  if (e->bytes) emit_check_begin(e, LLVMGetParam(e->fn, n));
  LVal top = 0;
  while (k->ins[top].op != LP_PAR) top++;
  e->width = 1;
  emit_range(e, 0, top);
  Loop l;
  emit_loop(e, &l, lo, hi, 1);
  emit_set(e, top, one_uniform(l.i));
  emit_range(e, top + 1, k->ins[top].match);
  emit_loop_end(e, &l);
  LLVMBuildBr(B, e->leave);
  if (e->bytes) emit_check_end(e);
  LLVMPositionBuilderAtEnd(B, e->leave);
  LLVMBasicBlockRef tell = emit_new_block(e, "tell"), end = emit_new_block(e, "return");
  LLVMValueRef failed = LLVMBuildLoad2(B, i32, e->fail, "");
  LLVMBuildCondBr(B, LLVMBuildICmp(B, LLVMIntNE, failed, emit_i32(e, 0), ""), tell, end);
  LLVMPositionBuilderAtEnd(B, tell);
  LLVMSetVolatile(LLVMBuildStore(B, emit_i32(e, 1), e->status), true);
  LLVMBuildBr(B, end);
  LLVMPositionBuilderAtEnd(B, end);
  LLVMBuildRetVoid(B);
  return e->fn;
}

/* Emits `k`, which loads the pointers of the buffers, places the local ones and calls `body`, the
 * function of emit_iterations. */
static void emit_entry(Emit *e, LLVMValueRef body) {
  const Kernel *k = e->k;
  unsigned n = (unsigned)k->buf_count;
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0), i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx), par[6] = {ptr, ptr, i64, i64, ptr, ptr};
  e->fn =
      emit_function(e, "k", LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), par, 6, false), false);
  e->entry = emit_new_block(e, "entry");
  LLVMPositionBuilderAtEnd(B, e->entry);
  LLVMValueRef *arg = malloc((n + 4) * sizeof *arg), at = emit_i64(e, 0);
  if (!arg) {
    emit_fail(e, "out of memory");
    return;
  }
  for (unsigned i = 0; i < n; i++) {
    const LBuf *b = &k->bufs[i];
    LLVMValueRef index = emit_i64(e, (int64_t)i);
    if (b->kind != LB_LOCAL) {
      LLVMValueRef from = LLVMBuildGEP2(B, ptr, LLVMGetParam(e->fn, 0), &index, 1, "");
      arg[i] = LLVMBuildLoad2(B, ptr, from, "");
      continue;
    }
    arg[i] = LLVMBuildGEP2(B, i8, LLVMGetParam(e->fn, 4), &at, 1, "");
    LLVMValueRef bytes = emit_i64(e, b->each * (int64_t)dt_size((DType)b->dtype));
    if (b->arg >= 0) {
      index = emit_i64(e, b->arg);
      LLVMValueRef from = LLVMBuildGEP2(B, i64, LLVMGetParam(e->fn, 1), &index, 1, "");
      LLVMValueRef max[2] = {LLVMBuildLoad2(B, i64, from, ""), emit_i64(e, 0)};
      bytes = LLVMBuildMul(B, bytes, emit_intrinsic(e, "llvm.smax", i64, 2, max), "");
    }
    bytes = LLVMBuildAnd(B, LLVMBuildAdd(B, bytes, emit_i64(e, 63), ""), emit_i64(e, -64), "");
    at = LLVMBuildAdd(B, at, bytes, "");
  }
  arg[n] = LLVMGetParam(e->fn, 1);
  arg[n + 1] = LLVMGetParam(e->fn, 2);
  arg[n + 2] = LLVMGetParam(e->fn, 3);
  arg[n + 3] = LLVMGetParam(e->fn, 5);
  emit_call(e, body, (int)n + 4, arg);
  free(arg);
  LLVMBuildRetVoid(B);
}

/* ---- LLVM */

void emit_init(void) {
#define MACHINE(id, name, triple, elf, llvm)                                                       \
  LLVMInitialize##llvm##TargetInfo();                                                              \
  LLVMInitialize##llvm##Target();                                                                  \
  LLVMInitialize##llvm##TargetMC();                                                                \
  LLVMInitialize##llvm##AsmPrinter();
#include "jit/engine/target.def"
}

static LLVMTargetMachineRef machine(Emit *e, const char *triple, const char *cpu) {
  LLVMTargetRef target;
  char *text = NULL;
  if (LLVMGetTargetFromTriple(triple, &target, &text)) {
    emit_fail(e, "%s", text);
    LLVMDisposeMessage(text);
    return NULL;
  }
  return LLVMCreateTargetMachine(target, triple, cpu, "", LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                 e->gpu && !e->emulate ? LLVMCodeModelDefault : LLVMCodeModelSmall);
}

/* Verifies and optimises the module and turns it into the requested object or text. */
static void finish(Emit *e, LLVMTargetMachineRef tm, unsigned what, char **out, size_t *n) {
  static const char passes[] =
      "always-inline,function(sroa,early-cse<memssa>,loop-mssa(licm),instsimplify,simplifycfg)";
  char *text = NULL;
  if (LLVMVerifyModule(e->mod, LLVMReturnStatusAction, &text)) {
    emit_fail(e, "bad code: %s", text);
    LLVMDisposeMessage(text);
    return;
  }
  LLVMDisposeMessage(text);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(e->mod, passes, tm, options);
  LLVMDisposePassBuilderOptions(options);
  if (error) {
    text = LLVMGetErrorMessage(error);
    emit_fail(e, "%s", text);
    LLVMDisposeErrorMessage(text);
    return;
  }
  if (what == EMIT_IR) {
    text = LLVMPrintModuleToString(e->mod);
    *out = strdup(text);
    *n = strlen(text);
    LLVMDisposeMessage(text);
  } else {
    LLVMMemoryBufferRef made;
    LLVMCodeGenFileType type = what == EMIT_ASM ? LLVMAssemblyFile : LLVMObjectFile;
    text = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(tm, e->mod, type, &text, &made)) {
      emit_fail(e, "%s", text);
      LLVMDisposeMessage(text);
      return;
    }
    *n = LLVMGetBufferSize(made);
    *out = malloc(*n + 1);
    if (*out) memcpy(*out, LLVMGetBufferStart(made), *n);
    LLVMDisposeMemoryBuffer(made);
  }
  if (!*out) emit_fail(e, "out of memory");
}

/* Keeps LLVM's message about something that it cannot do; the default is to end the process. */
static void diagnose(LLVMDiagnosticInfoRef info, void *ud) {
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
  char *text = LLVMGetDiagInfoDescription(info);
  emit_fail(ud, "%s", text);
  LLVMDisposeMessage(text);
}

bool emit_module(Emit *em, const char *triple, const char *cpu, EmitMake *make, unsigned what,
                 char **out, size_t *n) {
  Emit e = *em;
  const Kernel *k = e.k;
  *out = NULL;
  *n = 0;
  e.val = calloc(k->count + 1, sizeof *e.val);
  e.buf = calloc(k->buf_count + 1, sizeof *e.buf);
  e.arg = calloc(k->arg_count + 1, sizeof *e.arg);
  bool checked = k->checked && !e.gpu;
  if (checked) e.bytes = calloc(k->buf_count + 1, sizeof *e.bytes);
  if (!e.val || !e.buf || !e.arg || (checked && !e.bytes)) emit_fail(&e, "out of memory");
  e.ctx = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(e.ctx, diagnose, &e);
  e.mod = LLVMModuleCreateWithNameInContext("kernel", e.ctx);
  e.b = LLVMCreateBuilderInContext(e.ctx);
  LLVMTargetMachineRef tm = machine(&e, triple, cpu);
  if (tm) {
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetTarget(e.mod, triple);
    LLVMSetModuleDataLayout(e.mod, layout);
    LLVMDisposeTargetData(layout);
    if (!e.failed) make(&e);
    if (!e.failed) finish(&e, tm, what, out, n);
    LLVMDisposeTargetMachine(tm);
  }
  LLVMDisposeBuilder(e.b);
  LLVMDisposeModule(e.mod);
  LLVMContextDispose(e.ctx);
  free(e.val);
  free(e.buf);
  free(e.arg);
  free(e.bytes);
  if (e.failed) {
    free(*out);
    *out = NULL;
  }
  return !e.failed;
}

static void host(Emit *e) {
  LLVMValueRef body = emit_iterations(e);
  if (!e->failed) emit_entry(e, body);
}

bool emit_kernel(const Kernel *k, const EngTarget *target, unsigned what, char **out, size_t *n,
                 char *err, size_t err_n) {
  Emit e = {.k = k, .target = target, .err = err, .err_n = err_n};
  return emit_module(&e, target->machine->triple, target->name, host, what, out, n);
}
