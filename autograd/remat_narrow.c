/* Values that are saved narrower than they are: `save h as bf16`, `as f16`, `as u8`.
 *
 * In: values with such a tag. Out: the nodes that make the narrow form and those that read it
 * again; and what has to hold so that no plan changes a bit. A gradient reads the rounded value,
 * and what it computes again from it differs from what the forward had. So three things follow for
 * every value that hangs on a narrow one of its block (it is *shifted*):
 *   it is saved or computed again as its clauses say, whatever a planner, a budget or the backward
 *   of something else would do;
 *   where it decides (a bool or an int made of floats, a factorization that may fail), it is saved
 *   as it is, so that the backward takes the ways of the forward;
 *   a hook reads the value of the forward.
 *
 * u8 (the last axis is a row, a single number is one): scale = max|x| / 127 in f32, the code is
 * x / scale, rounded to nearest even, + 128. A row of zeros has scale 0 and reads as zeros.
 */
#include <math.h>

#include "autograd/remat_impl.h"
#include "graph/build.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"

DType rm_narrow(const Graph *g, Val v) {
  const TagInfo *tag = &tag_info[g->provs[g->nodes[v.node].prov].tag];
  const Type *t = gr_type(g, v);
  if (tag->narrow == DT_BOOL || !rm_home(g, v.node) || rm_is_free(g, v.node)) return DT_BOOL;
  bool wider = t->kind == TK_TENSOR && dt_float((DType)t->dtype) &&
               dt_size((DType)t->dtype) > dt_size((DType)tag->narrow);
  return wider ? (DType)tag->narrow : DT_BOOL;
}

int rm_saved_as(const Graph *g, Val v, Type as[2]) {
  DType narrow = rm_narrow(g, v);
  as[0] = as[1] = *gr_type(g, v);
  if (narrow != DT_BOOL) as[0].dtype = (uint8_t)narrow;
  as[1].dtype = DT_F32;
  as[1].rank -= as[1].rank > 0;
  return narrow == DT_U8 ? 2 : 1;
}

bool rm_narrows(const Graph *g) {
  stack_check();
  for (uint32_t n = 0; n < g->node_count; n++)
    if (tag_narrows((Tag)g->provs[g->nodes[n].prov].tag)) return true;
  for (size_t k = 0; k < g->region_count; k++)
    if (rm_narrows(g->regions[k])) return true;
  return false;
}

void rm_narrow_alone(const Graph *g, uint8_t *choice) {
  Arena tmp;
  arena_init(&tmp, g->arena->mem);
  bool *kept = ARENA_ARRAY(&tmp, bool, g->type_count + 1), *shifted = rm_shifted(&tmp, g, kept);
  rm_written(g, choice);
  for (size_t k = 0; k < g->type_count; k++)
    if (!shifted[k]) choice[k] = CHOICE_SAVE;
  arena_free(&tmp);
}

/* ---- what is shifted */

/* Whether a node, or one in its regions, makes a decision of floats. */
static bool decides(const Graph *g, uint32_t n) {
  stack_check();
  const GNode *node = &g->nodes[n];
  bool floats = false, others = false;
  for (uint32_t k = 0; k < node->operand_count; k++)
    floats |= dt_float((DType)gr_type(g, gr_operand(g, n, (int)k))->dtype);
  for (uint32_t k = 0; k < node->result_count; k++) {
    const Type *t = &g->types[node->result0 + k];
    others |= t->kind == TK_TENSOR && !dt_float((DType)t->dtype);
  }
  if (floats && (others || (op_info[node->op].cls == FACTOR && op_info[node->op].traits & T_FAIL)))
    return true;
  for (uint32_t k = 0; k < node->region_count; k++) {
    const Graph *in = g->regions[node->region0 + k];
    for (uint32_t i = 0; i < in->node_count; i++)
      if (decides(in, i)) return true;
  }
  return false;
}

bool *rm_shifted(Arena *a, const Graph *g, bool *kept) {
  bool *is = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (uint32_t n = 0; n < g->node_count; n++) {
    const GNode *node = &g->nodes[n];
    uint32_t home = rm_home(g, n);
    bool from = false;
    if (!home) continue;
    for (uint32_t k = 0; k < node->operand_count && !from; k++) {
      Val u = gr_operand(g, n, (int)k);
      from = is[rm_slot(g, u)] && rm_top(g, rm_home(g, u.node)) == rm_top(g, home);
    }
    bool keep = from && decides(g, n);
    for (uint32_t k = 0; k < node->result_count; k++) {
      size_t s = node->result0 + k;
      if (keep) kept[s] = true;
      is[s] = (from && !keep) || rm_narrow(g, (Val){n, k}) != DT_BOOL;
    }
  }
  return is;
}

/* ---- the narrow form */

/* A number of each row, for each element of x. */
static Val of_rows(B *b, Val rows, Val x) {
  int rank = gr_type(b->g, x)->rank;
  return rank ? b_keep(b, rows, x, 1, (int64_t[]){rank - 1}) : rows;
}

static RmNarrow codes(B *b, Val wide) {
  Graph *g = b->g;
  Val x = b_cast(b, wide, DT_F32), size = b_un(b, OP_ABS, x), most = size;
  if (b->failed) return (RmNarrow){VAL_NONE, VAL_NONE};
  int rank = gr_type(g, x)->rank;
  Attr axes = attr_ints(AT_AXES, 1, (int64_t[]){rank - 1});
  if (rank) most = b_op(b, OP_REDUCE_MAX, 1, &size, 1, &axes);
  Val scale = b_bin(b, OP_DIV, most, b_const(b, most, 127));
  Val zero = b_const(b, scale, 0), one = b_const(b, scale, 1);
  Val by = b_where(b, b_bin(b, OP_GT, scale, zero), scale, one);
  Val code = b_un(b, OP_ROUND, b_bin(b, OP_DIV, x, of_rows(b, by, x)));
  code = b_cast(b, b_bin(b, OP_ADD, code, b_const(b, code, 128)), DT_U8);
  Val in[2] = {code, b_bin(b, OP_LT, size, b_const(b, size, INFINITY))};
  Attr attr[2] = {
      attr_text(AT_TEXT, names_of(g->names, "a value that is saved as u8 is NaN or infinite")),
      attr_i(AT_KIND, 1)};
  return (RmNarrow){b_op(b, OP_FITS, 2, in, 2, attr), scale};
}

RmNarrow rm_make_narrow(Graph *g, Val wide, DType as) {
  B b = {.g = g};
  RmNarrow n = {VAL_NONE, VAL_NONE};
  if (as == DT_U8)
    n = codes(&b, wide);
  else
    n.value = b_cast(&b, wide, as);
  CK_ASSERT(g->arena->mem, !b.failed);
  return n;
}

Val rm_make_wide(Graph *g, RmNarrow n, DType as) {
  B b = {.g = g};
  Val x = n.value;
  if (!val_none(n.scale)) {
    x = b_cast(&b, x, DT_F32);
    x = b_bin(&b, OP_SUB, x, b_const(&b, x, 128));
    x = b_bin(&b, OP_MUL, x, of_rows(&b, n.scale, x));
  }
  x = b_cast(&b, x, as);
  CK_ASSERT(g->arena->mem, !b.failed);
  return x;
}
