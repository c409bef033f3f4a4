/* Loops that transpose, in registers.
 *
 * In: an LP_FOR around an LP_VEC that loads along the lanes and stores along the loop:
 *   for i { vec k { to[.. + i + k * s] = from[.. + k] } }
 * Out: blocks of 16 x 16: 16 loads, a network of shuffles, 16 stores, instead of a scattered
 * store of each vector (Eklundh, "A fast computer method for matrix transposing", 1972). The rest
 * at the edges runs as the loop is written.
 *
 * Invariant: every element is copied as it is; the two buffers do not overlap, so order is free. */
#include "jit/codegen/emit.h"
#include "runtime/elementwise.h"

typedef struct Transpose {
  LVal loop, vec, load, store;
  LLVMValueRef i0; /* first iteration of the block */
} Transpose;

enum { LONGEST = 250 }; /* instructions of the longest loop that is examined */

/* How v depends on `var`: 0 not at all; 1 by a uniform factor, with *factor its value, or 0 if that
 * is not known; 2 otherwise. Both are in the loop that is examined. */
static int depends(const Kernel *k, LVal v, LVal var, int64_t *factor) {
  uint8_t how[LONGEST + 1];
  int64_t by[LONGEST + 1];
  how[0] = 1;
  by[0] = 1;
  for (LVal i = 1; i <= v - var; i++) {
    const LIns *in = &k->ins[var + i];
    int h[2] = {0, 0};
    int64_t f[2] = {0, 0};
    for (int j = 0; j < in->operand_count; j++) {
      LVal x = lp_operand(k, var + i, j);
      if (x < var) continue;
      h[j & 1] = how[x - var] > h[j & 1] || j > 1 ? how[x - var] : h[j & 1];
      f[j & 1] = by[x - var];
    }
    how[i] = !h[0] && !h[1] ? 0 : 2;
    by[i] = 0;
    if (!how[i] || in->op != LP_BIN || h[0] == 2 || h[1] == 2 || (h[0] && h[1])) continue;
    int only = h[1] ? 1 : 0;
    const LIns *other = &k->ins[lp_operand(k, var + i, 1 - only)];
    if (in->imm == RB_ADD || in->imm == RB_SUB) {
      how[i] = 1;
      by[i] = in->imm == RB_SUB && only ? -f[1] : f[only];
    } else if (in->imm == RB_MUL) {
      how[i] = 1;
      if (other->op == LP_CONST) __builtin_mul_overflow(other->imm, f[only], &by[i]);
    }
  }
  *factor = by[v - var];
  return how[v - var];
}

static bool address(const LIns *in) {
  switch ((LOp)in->op) {
  case LP_CONST:
  case LP_ARG:
  case LP_IDIV:
  case LP_IREM: return in->dtype == DT_I64;
  case LP_BIN:
    return in->dtype == DT_I64 && (in->imm == RB_ADD || in->imm == RB_SUB || in->imm == RB_MUL ||
                                   in->imm == RB_MIN || in->imm == RB_MAX);
  default: return false;
  }
}

/* Whether the loop at v is a transposing loop; fills in its parts. */
static bool find(const Kernel *k, LVal v, Transpose *t) {
  const LIns *ins = k->ins;
  int64_t along, across;
  if (ins[v].match - v > LONGEST) return false;
  *t = (Transpose){.loop = v, .vec = LV_NONE, .load = LV_NONE, .store = LV_NONE};
  for (LVal i = v + 1; i < ins[v].match; i++) {
    if (ins[i].op == LP_VEC && t->vec == LV_NONE) {
      t->vec = i;
    } else if (ins[i].op == LP_LOAD && t->vec != LV_NONE && t->load == LV_NONE) {
      t->load = i;
    } else if (ins[i].op == LP_STORE && t->load != LV_NONE && t->store == LV_NONE) {
      t->store = i;
    } else if (!(ins[i].op == LP_END && ins[i].match == t->vec && i + 1 == ins[v].match) &&
               !(address(&ins[i]) && t->store == LV_NONE)) {
      return false;
    }
  }
  if (t->store == LV_NONE || lp_operand(k, t->vec, 0) > v) return false;
  const LBuf *to = &k->bufs[ins[t->store].buf];
  if (lp_operand(k, t->store, 1) != t->load || ins[t->store].buf == ins[t->load].buf) return false;
  if (to->kind != LB_OUT && to->kind != LB_LOCAL) return false;
  if (ins[t->load].dtype != DT_F32 && ins[t->load].dtype != DT_F64) return false;
  LVal from = lp_operand(k, t->load, 0), index = lp_operand(k, t->store, 0);
  if (from < t->vec || index < t->vec) return false;
  return depends(k, from, t->vec, &along) == 1 && along == 1 &&
         depends(k, index, t->vec, &across) == 1 && across != 1 && across != -1 &&
         depends(k, index, v, &along) == 1 && along == 1;
}

static LLVMValueRef shuffle(Emit *e, LLVMValueRef a, LLVMValueRef b, const int lane[EMIT_LANES]) {
  LLVMValueRef index[EMIT_LANES];
  for (int l = 0; l < EMIT_LANES; l++) index[l] = emit_i32(e, lane[l]);
  return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(index, EMIT_LANES), "");
}

static void network(Emit *e, LLVMValueRef row[EMIT_LANES]) {
  for (int s = EMIT_LANES / 2; s > 0; s /= 2)
    for (int r = 0; r < EMIT_LANES; r++) {
      int low[EMIT_LANES], high[EMIT_LANES];
      if (r & s) continue;
      for (int l = 0; l < EMIT_LANES; l++) {
        low[l] = l & s ? EMIT_LANES + (l ^ s) : l;
        high[l] = l & s ? EMIT_LANES + l : l ^ s;
      }
      LLVMValueRef a = row[r], b = row[r | s];
      row[r] = shuffle(e, a, b, low);
      row[r | s] = shuffle(e, a, b, high);
    }
}

/* Emits the instructions of the loop up to `end` for iteration i. The LP_VEC itself is left out:
 * the caller has set its iteration. */
static void body(Emit *e, const Transpose *t, LLVMValueRef i, LVal end) {
  emit_set(e, t->loop, one_uniform(i));
  emit_range(e, t->loop + 1, t->vec);
  emit_range(e, t->vec + 1, end);
}

/* Emits a block: 16 iterations of the loop and the lanes that start at k. */
static void block(Emit *e, void *ud, LLVMValueRef k) {
  Transpose *t = ud;
  emit_set(e, t->vec, one_linear(k, emit_i64(e, 1)));
  if (e->mask) {
    Loop l;
    emit_loop(e, &l, emit_i64(e, 0), emit_i64(e, EMIT_LANES), 1);
    body(e, t, LLVMBuildAdd(e->b, t->i0, l.i, ""), e->k->ins[t->vec].match);
    emit_loop_end(e, &l);
    return;
  }
  LLVMValueRef row[EMIT_LANES];
  for (int i = 0; i < EMIT_LANES; i++) {
    body(e, t, LLVMBuildAdd(e->b, t->i0, emit_i64(e, i), ""), t->load + 1);
    row[i] = emit_vector(e, emit_get(e, t->load));
  }
  network(e, row);
  body(e, t, t->i0, t->store);
  One to = emit_operand(e, t->store, 0);
  DType dt = (DType)e->k->ins[t->load].dtype;
  if (to.kind != ONE_LINEAR) {
    emit_fail(e, "a transposing store at places that are not even");
    return;
  }
  int buf = e->k->ins[t->store].buf;
  e->now = t->store;
  for (int l = 0; l < EMIT_LANES; l++) {
    LLVMValueRef at = LLVMBuildMul(e->b, to.step, emit_i64(e, l), "");
    at = LLVMBuildAdd(e->b, to.v, at, "");
    if (e->bytes) {
      LLVMValueRef p = LLVMBuildGEP2(e->b, emit_mem_type(e, dt), e->buf[buf], &at, 1, "");
      emit_within(e, buf, p, EMIT_LANES, NULL);
    }
    emit_store_n(e, dt, e->buf[buf], at, row[l], EMIT_LANES);
  }
}

/* The number of iterations to run in blocks: n rounded down to whole blocks if no two iterations
 * and lanes share a place, i.e. if the step from lane to lane is at least n; else 0. */
static LLVMValueRef whole_blocks(Emit *e, Transpose *t, LLVMValueRef n, LLVMValueRef lanes) {
  LLVMBuilderRef b = e->b;
  LLVMValueRef size = emit_i64(e, EMIT_LANES), zero = emit_i64(e, 0);
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), some = emit_new_block(e, "transpose");
  LLVMBasicBlockRef end = emit_new_block(e, "transpose.end");
  LLVMValueRef enough = LLVMBuildAnd(b, LLVMBuildICmp(b, LLVMIntSGE, n, size, ""),
                                     LLVMBuildICmp(b, LLVMIntSGE, lanes, size, ""), "");
  LLVMBuildCondBr(b, enough, some, end);
  LLVMPositionBuilderAtEnd(b, some);
  e->width = EMIT_LANES;
  emit_set(e, t->vec, one_linear(zero, emit_i64(e, 1)));
  body(e, t, zero, t->load);
  emit_range(e, t->load + 1, t->store);
  e->width = 1;
  One to = emit_operand(e, t->store, 0);
  if (to.kind != ONE_LINEAR) {
    emit_fail(e, "a transposing store at places that are not even");
    return zero;
  }
  LLVMValueRef apart = LLVMBuildICmp(b, LLVMIntSGE, to.step, n, "");
  LLVMValueRef blocks = LLVMBuildAnd(b, n, emit_i64(e, -EMIT_LANES), "");
  blocks = LLVMBuildSelect(b, apart, blocks, zero, "");
  LLVMBasicBlockRef from[2] = {before, LLVMGetInsertBlock(b)};
  LLVMBuildBr(b, end);
  LLVMPositionBuilderAtEnd(b, end);
  LLVMValueRef whole = LLVMBuildPhi(b, LLVMTypeOf(n), "");
  LLVMAddIncoming(whole, (LLVMValueRef[2]){zero, blocks}, from, 2);
  return whole;
}

bool emit_transposed(Emit *e, LVal v) {
  Transpose t;
  if (e->width > 1 || !find(e->k, v, &t)) return false;
  LLVMValueRef n = emit_scalar(e, lp_operand(e->k, v, 0));
  LLVMValueRef lanes = emit_scalar(e, lp_operand(e->k, t.vec, 0));
  LLVMValueRef whole = whole_blocks(e, &t, n, lanes);
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), whole, EMIT_LANES);
  t.i0 = l.i;
  emit_lanes(e, lanes, block, &t);
  emit_loop_end(e, &l);
  emit_loop(e, &l, whole, n, 1);
  emit_set(e, v, one_uniform(l.i));
  emit_range(e, v + 1, e->k->ins[v].match);
  emit_loop_end(e, &l);
  return true;
}
