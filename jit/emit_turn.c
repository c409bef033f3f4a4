/* Loops that transpose, in registers.
 *
 * In: an LP_FOR around an LP_VEC that loads along the lanes and stores along the loop:
 *   for i { vec k { to[.. + i + k * s] = from[.. + k] } }
 * Out: blocks of 16 x 16: 16 loads, a network of shuffles, 16 stores, instead of a scattered store of each
 * vector (Eklundh, "A fast computer method for matrix transposing", 1972). What is left at the edges goes
 * as it is written.
 *
 * Invariant: every element is copied as it is; the two buffers do not overlap, so order is free. */
#include "jit/emit.h"

typedef struct Turn {
  LVal loop, vec, load, store;
  LLVMValueRef i0; /* first turn of the block */
} Turn;

/* How v depends on `var`: 0 not at all; 1 by a uniform factor, *factor where known, else 0; 2 otherwise. */
static int depends(const Kernel *k, LVal v, LVal var, int64_t *factor) {
  const LIns *in = &k->ins[v];
  int64_t f[2] = {0, 0};
  int how[2] = {0, 0};
  *factor = 1;
  if (v == var) return 1;
  *factor = 0;
  if (v < var) return 0;
  for (int i = 0; i < in->operand_count && i < 2; i++) how[i] = depends(k, lp_operand(k, v, i), var, &f[i]);
  if (!how[0] && !how[1]) return in->operand_count > 2 ? 2 : 0;
  if (in->op != LP_BIN || how[0] == 2 || how[1] == 2) return 2;
  if (in->imm == RB_ADD || in->imm == RB_SUB) {
    *factor = in->imm == RB_ADD ? f[0] + f[1] : f[0] - f[1];
    if (how[0] && how[1]) return 2;
    return 1;
  }
  if (in->imm == RB_MUL && !(how[0] && how[1])) {
    const LIns *by = &k->ins[lp_operand(k, v, how[0] ? 1 : 0)];
    *factor = by->op == LP_CONST ? by->imm * (f[0] + f[1]) : 0;
    return 1;
  }
  return 2;
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

/* Whether the loop at v is one, and its parts. */
static bool find(const Kernel *k, LVal v, Turn *t) {
  const LIns *ins = k->ins;
  int64_t along, across;
  *t = (Turn){.loop = v, .vec = LV_NONE, .load = LV_NONE, .store = LV_NONE};
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

/* The instructions of the loop up to `end` for turn i; those of the LP_VEC apart, its turn is set. */
static void body(Emit *e, const Turn *t, LLVMValueRef i, LVal end) {
  emit_set(e, t->loop, one_uniform(i));
  emit_range(e, t->loop + 1, t->vec);
  emit_range(e, t->vec + 1, end);
}

/* 16 turns of the loop and the lanes from k on. */
static void block(Emit *e, void *ud, LLVMValueRef k) {
  Turn *t = ud;
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
  for (int l = 0; l < EMIT_LANES; l++) {
    LLVMValueRef at = LLVMBuildMul(e->b, to.step, emit_i64(e, l), "");
    emit_store_n(e, dt, e->buf[e->k->ins[t->store].buf], LLVMBuildAdd(e->b, to.v, at, ""), row[l],
                 EMIT_LANES);
  }
}

bool emit_turned(Emit *e, LVal v) {
  Turn t;
  if (e->width > 1 || !find(e->k, v, &t)) return false;
  LLVMValueRef n = emit_scalar(e, lp_operand(e->k, v, 0)), lanes = emit_i64(e, -EMIT_LANES);
  LLVMValueRef most[2] = {n, emit_i64(e, 0)};
  LLVMValueRef whole = LLVMBuildAnd(e->b, emit_intrinsic(e, "llvm.smax", LLVMTypeOf(n), 2, most), lanes, "");
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), whole, EMIT_LANES);
  t.i0 = l.i;
  emit_lanes(e, emit_scalar(e, lp_operand(e->k, t.vec, 0)), block, &t);
  emit_loop_end(e, &l);
  emit_loop(e, &l, whole, n, 1);
  emit_set(e, v, one_uniform(l.i));
  emit_range(e, v + 1, e->k->ins[v].match);
  emit_loop_end(e, &l);
  return true;
}
