/* Whether a kernel can write a result where an operand lies.
 *
 * In: a clean kernel, a buffer that it reads and one that it writes. Out: whether each element of
 * the first is read only right before the same element of the second is written: by the same
 * iterations, in one block, by one index. */
#include "jit/loop/loop_impl.h"

typedef struct Visit {
  LVal open[64]; /* blocks around an instruction */
  int depth;
  LVal at; /* the one index; LV_NONE: none yet */
  LVal inside[64];
  int levels; /* blocks around the accesses */
  bool stored;
} Visit;

/* Notes an access. False if it differs from the first. */
static bool access(Visit *w, LVal index) {
  if (w->at == LV_NONE) {
    w->at = index;
    w->levels = w->depth;
    for (int i = 0; i < w->depth; i++) w->inside[i] = w->open[i];
    return true;
  }
  bool same = index == w->at && w->depth == w->levels;
  for (int i = 0; i < w->levels && same; i++) same = w->open[i] == w->inside[i];
  return same;
}

/* Whether the index differs from iteration to iteration of all loops around it. Each element of a
 * result is stored once, so the index of a store that depends on a loop tells its iterations
 * apart. `needed`: room, zeros, one per instruction. */
static bool depends(const Kernel *k, const Visit *w, bool *needed) {
  needed[w->at] = true;
  for (LVal v = w->at + 1; v-- > 0;)
    for (int i = 0; needed[v] && i < k->ins[v].operand_count; i++)
      needed[lp_operand(k, v, i)] = true;
  for (int d = 0; d < w->levels; d++) {
    LVal v = w->inside[d];
    bool row = false, column = false;
    switch ((LOp)k->ins[v].op) {
    case LP_IF: break;
    case LP_PAR:
    case LP_VEC:
    case LP_FOR: {
      const LIns *count = &k->ins[lp_operand(k, v, 0)];
      if (!needed[v] && !(count->op == LP_CONST && count->imm == 1)) return false;
      break;
    }
    case LP_TILE:
      for (LVal i = v; i <= w->at; i++) {
        row |= k->ins[i].op == LP_ROW && needed[i] && lp_operand(k, i, 0) == v;
        column |= k->ins[i].op == LP_COL && needed[i] && lp_operand(k, i, 0) == v;
      }
      if (!row || !column) return false;
      break;
    default: return false;
    }
  }
  return true;
}

bool lp_can_replace(const Kernel *k, int from, int to) {
  const LBuf *x = &k->bufs[from], *y = &k->bufs[to];
  if (x->kind != LB_IN || y->kind != LB_OUT || x->dtype != y->dtype) return false;
  Visit w = {.at = LV_NONE};
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    bool tile = in->op == LP_TILE;
    if (tile && (in->buf == from || in->buf_b == from || in->buf_start == from)) return false;
    if (in->op == LP_LOAD && in->buf == from && (w.stored || !access(&w, lp_operand(k, v, 0))))
      return false;
    if (in->op == LP_STORE && in->buf == to) {
      if (w.at == LV_NONE || !access(&w, lp_operand(k, v, 0))) return false;
      w.stored = true;
    }
    if (in->op <= LP_TILE) w.open[w.depth++] = v;
    if (in->op == LP_END) w.depth--;
  }
  if (!w.stored) return false;
  ArenaMark mark = arena_mark(k->arena);
  bool ok = depends(k, &w, ARENA_ARRAY(k->arena, bool, k->count + 1));
  arena_rewind(k->arena, mark);
  return ok;
}
