/* Moves loop-invariant code before its loop.
 *
 * In: a kernel. Out: the same computation with every pure instruction, load of an input and check
 * in the outermost block where its operands are known. Pulling writes each value inside the
 * innermost loop that needs it. After this pass a row's mean takes one division, and a scalar one
 * load.
 *
 * Invariant: nothing leaves an LP_IF but index arithmetic. A loop may have no iterations: an int
 * division that may fail stays; a load is safe, since its index depends on loops around its new
 * place alone, and sizes were checked; a check may then fail too early, which costs a run of the
 * reference evaluator. */
#include "jit/lower/lower_impl.h"
#include "jit/loop/loop_impl.h"

typedef struct Hoist {
  const Kernel *k;
  uint32_t *block; /* per instruction: 0 = top, else 1 + opener of the block it will be in */
  uint32_t *next;  /* list of what goes before an opener */
  uint32_t *first, *last;
} Hoist;

static bool index_step(const Kernel *k, const LIns *in) {
  if (in->op == LP_CONST || in->op == LP_ARG) return true;
  (void)k;
  return in->op == LP_BIN && in->dtype == DT_I64 &&
         (in->imm == RB_ADD || in->imm == RB_SUB || in->imm == RB_MUL);
}

static bool movable(const Kernel *k, LVal v) {
  const LIns *in = &k->ins[v];
  if (in->op == LP_LOAD) return k->bufs[in->buf].kind == LB_IN;
  if (in->op == LP_CHECK) return true;
  if (in->op == LP_RESULT || in->op == LP_ROW || in->op == LP_COL) return false;
  return lp_info[in->op].pure && !lp_may_fail(k, v);
}

static uint32_t level(const Kernel *k, uint32_t block) {
  return block ? k->ins[block - 1].depth + 1u : 0;
}

static uint32_t copy(Hoist *h, Kernel *to, LVal *map, LVal v) {
  stack_check();
  const Kernel *k = h->k;
  for (uint32_t i = h->first[v]; i; i = h->next[i - 1]) copy(h, to, map, i - 1);
  LIns in = k->ins[v];
  LVal operand[LP_MAX_OPERANDS];
  for (int i = 0; i < in.operand_count; i++) operand[i] = map[lp_operand(k, v, i)];
  map[v] = lp_op(to, (LOp)in.op, (DType)in.dtype, in.operand_count, operand, in.imm);
  LIns *made = &to->ins[map[v]];
  made->buf = in.buf;
  made->buf_b = in.buf_b;
  made->buf_start = in.buf_start;
  made->mr = in.mr;
  made->nr = in.nr;
  return map[v];
}

Kernel *low_hoist(Arena *a, const Kernel *k) {
  Hoist h = {.k = k};
  h.block = ARENA_ARRAY(a, uint32_t, k->count + 1);
  h.next = ARENA_ARRAY(a, uint32_t, k->count + 1);
  h.first = ARENA_ARRAY(a, uint32_t, k->count + 1);
  h.last = ARENA_ARRAY(a, uint32_t, k->count + 1);
  LVal *map = ARENA_ARRAY(a, LVal, k->count + 1);
  bool *moved = ARENA_ARRAY(a, bool, k->count + 1);
  uint32_t now = 0;
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    if (in->op == LP_END) {
      now = h.block[in->match];
      h.block[v] = now;
      continue;
    }
    uint32_t need = 0, at = now, before = 0;
    for (int i = 0; i < in->operand_count; i++) {
      LVal x = lp_operand(k, v, i);
      uint32_t d = lp_info[k->ins[x].op].opens ? k->ins[x].depth + 1u : level(k, h.block[x]);
      if (d > need) need = d;
    }
    if (movable(k, v)) {
      while (at && level(k, at) > need) {
        LOp out_of = (LOp)k->ins[at - 1].op;
        if (out_of == LP_IF && !index_step(k, in)) break;
        if (out_of == LP_PAR && in->op == LP_CHECK) break;
        before = at;
        at = h.block[at - 1];
      }
    }
    h.block[v] = at;
    if (before) {
      LVal o = before - 1;
      moved[v] = true;
      if (h.last[o])
        h.next[h.last[o] - 1] = v + 1;
      else
        h.first[o] = v + 1;
      h.last[o] = v + 1;
    }
    if (lp_info[in->op].opens) now = v + 1;
  }
  Kernel *to = lp_new(a);
  for (size_t i = 0; i < k->buf_count; i++)
    VEC_PUSH(a, to->bufs, to->buf_count, to->buf_cap, k->bufs[i]);
  for (LVal v = 0; v < k->count; v++) {
    if (!moved[v]) copy(&h, to, map, v);
  }
  to->arg_count = k->arg_count;
  return to;
}
