/* Mapping a graph over a new leading axis.
 *
 * In: a graph, which of its inputs get an axis of size n in front, n. Out: a graph whose result
 * [i, ..] is the given graph's result for the i-th elements, bit for bit. A value that depends on
 * no batched input stays as it is (one computation serves all i), apart from random draws: each i
 * has its own, under the key fold_in(key of the node, i). A batched key is used as it is, and so is
 * a key that the program made (a `stop` node, see b_shape.c). The `batch` column of the op table
 * names the rule of each op, mostly by class: reductions shift their axes, elementwise ops stretch
 * operands without the axis (stride 0). Ops that cannot work on several elements at once become a
 * `map` node.
 *
 * Invariant: a batched value has type [n, dims..] where the given graph's value has [dims..]. */
#include <string.h>

#include "graph/build.h"
#include "graph/ir.h"
#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/pass.h"

typedef struct Batch {
  const Graph *src;
  Graph *g;
  Arena *a;
  B b;
  Dim n;
  Val *map;      /* per result of src */
  bool *batched; /* likewise */
  GErr *e;
  /* the present node */
  uint32_t node;
  const GNode *at;
  Val *in;   /* its operands, mapped */
  bool *inb; /* whether each of them has the axis */
  bool any;
} Batch;

static bool refuse(Batch *b, const char *why) {
  return gerr_set(b->e, ERR_NOT_YET, -1, "`%s` cannot be mapped over an axis%s%s",
                  op_info[b->at->op].text, *why ? ": " : "", why);
}

static const Type *given_type(const Batch *b, int operand) {
  return gr_type(b->src, gr_operand(b->src, b->node, operand));
}

/* Broadcasts v to [n, dims..]. */
static Val stretch(Batch *b, Val v) {
  if (val_none(v)) return v;
  Type t = *gr_type(b->g, v);
  Dim dims[CKL_MAX_RANK];
  if (t.rank == CKL_MAX_RANK) {
    b->b.failed = true;
    gerr_set(&b->b.err, ERR_NOT_YET, -1, "a mapped value would have more than %d axes",
             CKL_MAX_RANK);
    return VAL_NONE;
  }
  dims[0] = b->n;
  for (int j = 0; j < t.rank; j++) dims[j + 1] = t.dim[j];
  return b_broadcast(&b->b, v, t.rank + 1, dims);
}

static Val with_axis(Batch *b, int operand) {
  return b->inb[operand] ? b->in[operand] : stretch(b, b->in[operand]);
}

static void stretch_all(Batch *b) {
  for (uint32_t i = 0; i < b->at->operand_count; i++)
    if (!b->inb[i] && gr_type(b->g, b->in[i])->kind == TK_TENSOR) {
      b->in[i] = stretch(b, b->in[i]);
      b->inb[i] = true;
    }
}

/* ---- attributes of the node, copied and changed */

enum { MOST_ATTRS = AT_COUNT };
typedef struct Attrs {
  int n;
  Attr v[MOST_ATTRS];
  int64_t list[4][CKL_MAX_RANK + 1];
  int lists;
} Attrs;

static void attrs_of(const Batch *b, Attrs *out) {
  out->n = out->lists = 0;
  for (int k = 0; k < b->at->attr_count && k < MOST_ATTRS; k++)
    out->v[out->n++] = b->src->attrs[b->at->attr0 + (uint32_t)k];
}

static Attr *find(Attrs *s, AttrKey k) {
  for (int j = 0; j < s->n; j++)
    if (s->v[j].key == k) return &s->v[j];
  return NULL;
}

/* Puts `first` in front of list attribute k, and adds `shift` to the others. */
static void lead(Attrs *s, AttrKey k, int64_t first, int64_t shift) {
  Attr *at = find(s, k);
  if (!at || at->count > CKL_MAX_RANK) return;
  int64_t *list = s->list[s->lists++];
  list[0] = first;
  for (uint32_t j = 0; j < at->count; j++) list[j + 1] = at->u.ints[j] + shift;
  at->u.ints = list;
  at->count++;
}

static void shift_axes(Attrs *s) {
  Attr *axis = find(s, AT_AXIS), *axes = find(s, AT_AXES);
  if (axis) axis->u.i++;
  if (axes) {
    lead(s, AT_AXES, 0, 1);
    axes->u.ints++; /* drop the added first element */
    axes->count--;
  }
}

/* ---- making the new node */

static bool results(Batch *b, Val first, bool batched) {
  if (b->b.failed) *b->e = b->b.err;
  if (b->b.failed || val_none(first)) return false;
  for (uint32_t k = 0; k < b->at->result_count; k++) {
    b->map[b->at->result0 + k] = (Val){first.node, first.res + k};
    b->batched[b->at->result0 + k] = batched;
  }
  return true;
}

static bool emit_op(Batch *b, const Attrs *s, bool batched) {
  if (b->b.failed) return results(b, VAL_NONE, batched);
  Val v =
      gr_op(b->g, (OpCode)b->at->op, b->in, (int)b->at->operand_count, s->v, s->n, NULL, 0, b->e);
  return results(b, v, batched);
}

/* Copies the node as it is. */
static bool copy(Batch *b) {
  Attrs s;
  Graph **regions = ARENA_ARRAY(b->a, Graph *, b->at->region_count + 1);
  attrs_of(b, &s);
  for (uint32_t k = 0; k < b->at->region_count; k++)
    regions[k] = gr_clone(b->a, b->src->regions[b->at->region0 + k]);
  Val v = gr_op(b->g, (OpCode)b->at->op, b->in, (int)b->at->operand_count, s.v, s.n, regions,
                b->at->region_count, b->e);
  return results(b, v, false);
}

static Val iota(Batch *b, Device dev) {
  int64_t n = b->n;
  Attr attrs[3] = {attr_i(AT_DTYPE, DT_I64), attr_dims(AT_DIMS, 1, &n), attr_i(AT_DEVICE, dev)};
  return b_op(&b->b, OP_IOTA, 0, NULL, 3, attrs);
}

typedef enum Key { NO_KEY, FOLDED, FIXED } Key; /* how element i uses operand 0 */

/* Makes a `map` node that runs the op once per element. FOLDED: operand 0 is a key without the
 * axis, and element i uses fold_in(key, i). FIXED: it is a key of the program, used as it is. */
static bool one_by_one(Batch *b, Key key) {
  const GNode *at = b->at;
  Graph *r = gr_new(b->a, b->src->dims, b->src->names, b->src->name);
  r->blocks = b->src->blocks;
  Val *args = ARENA_ARRAY(b->a, Val, at->operand_count + 2);
  Val *inner = ARENA_ARRAY(b->a, Val, at->operand_count + 2);
  int count = 0, mapped = 0;
  Attrs s;
  Val iteration = VAL_NONE;
  r->at = b->g->at;
  if (key == FOLDED) {
    args[count++] = iota(b, (Device)gr_type(b->g, b->in[0])->dev);
    if (b->b.failed) return results(b, VAL_NONE, true);
    Type t = *gr_type(b->g, args[0]);
    t.rank = 0;
    iteration = gr_input(r, &t);
    mapped++;
  }
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < at->operand_count; i++)
      if (b->inb[i] == (pass == 0)) {
        args[count++] = b->in[i];
        inner[i] = gr_input(r, given_type(b, (int)i));
        mapped += pass == 0;
      }
  if (key != NO_KEY) {
    Val v[2] = {inner[0], iteration};
    bool fold = key == FOLDED;
    inner[0] = gr_op(r, fold ? OP_FOLD_IN : OP_STOP, v, fold ? 2 : 1, NULL, 0, NULL, 0, b->e);
    if (val_none(inner[0])) return false;
  }
  attrs_of(b, &s);
  Val v = gr_op(r, (OpCode)at->op, inner, (int)at->operand_count, s.v, s.n, NULL, 0, b->e);
  if (val_none(v)) return false;
  for (uint32_t k = 0; k < at->result_count; k++) gr_output(r, (Val){v.node, v.res + k});
  Attr many = attr_i(AT_MAPPED, mapped);
  Val out = gr_op(b->g, OP_MAP, args, count, &many, 1, &r, 1, b->e);
  return results(b, out, true);
}

/* A host function is called for each row; its tokens stay inside. */
static bool batch_call(Batch *b) {
  const GNode *at = b->at;
  int n = (int)at->operand_count, count = 0, mapped = 0;
  if (!b->any) return copy(b);
  Graph *r = gr_new(b->a, b->src->dims, b->src->names, b->src->name);
  r->blocks = b->src->blocks;
  r->at = b->g->at;
  Val *args = ARENA_ARRAY(b->a, Val, n), *inner = ARENA_ARRAY(b->a, Val, n);
  inner[0] = VAL_NONE;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 1; i < n; i++)
      if (b->inb[i] == (pass == 0)) {
        args[count++] = b->in[i];
        inner[i] = gr_input(r, given_type(b, i));
        mapped += pass == 0;
      }
  inner[0] = gr_op(r, OP_TOKEN, NULL, 0, NULL, 0, NULL, 0, b->e);
  if (val_none(inner[0])) return false;
  Attrs s;
  attrs_of(b, &s);
  Val v = gr_op(r, OP_CALL, inner, n, s.v, s.n, NULL, 0, b->e);
  if (val_none(v)) return false;
  for (uint32_t k = 1; k < at->result_count; k++) gr_output(r, (Val){v.node, k});
  Attr many = attr_i(AT_MAPPED, mapped);
  Val out = gr_op(b->g, OP_MAP, args, count, &many, 1, &r, 1, b->e);
  if (val_none(out)) return false;
  b->map[at->result0] = b->in[0];
  b->batched[at->result0] = false;
  for (uint32_t k = 1; k < at->result_count; k++) {
    b->map[at->result0 + k] = (Val){out.node, k - 1};
    b->batched[at->result0 + k] = true;
  }
  return true;
}

/* ---- rules */

static bool batch_none(Batch *b) {
  return copy(b);
}

static bool batch_each(Batch *b) {
  return b->any ? one_by_one(b, NO_KEY) : copy(b);
}

/* Under the key of a site each element draws its own numbers; under a key of the program, which is
 * behind a `stop` (b_shape.c), all elements draw the same. */
static bool batch_random(Batch *b) {
  bool fixed = b->src->nodes[gr_operand(b->src, b->node, 0).node].op == OP_STOP;
  if (fixed && !b->any) return copy(b);
  return one_by_one(b, fixed ? FIXED : b->inb[0] ? NO_KEY : FOLDED);
}

static bool batch_unsupported(Batch *b) {
  bool effect = op_info[b->at->op].traits & T_EFFECT;
  return b->any || effect ? refuse(b, "") : copy(b);
}

static bool batch_elementwise(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  stretch_all(b);
  return emit_op(b, &s, true);
}

static bool batch_axis(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  shift_axes(&s);
  return emit_op(b, &s, true);
}

static bool batch_reduce(Batch *b) {
  return batch_axis(b);
}

static bool batch_flip(Batch *b) {
  return batch_axis(b);
}

static bool batch_concat(Batch *b) {
  stretch_all(b);
  return batch_axis(b);
}

static bool batch_gather(Batch *b) {
  return batch_concat(b);
}

static bool batch_reshape(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  lead(&s, AT_DIMS, b->n, 0);
  return emit_op(b, &s, true);
}

static bool batch_transpose(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  lead(&s, AT_PERM, 0, 1);
  return emit_op(b, &s, true);
}

static bool batch_broadcast(Batch *b) {
  /* insert axes of size 1 behind n, so that the other axes are still aligned right */
  Attrs s;
  Type t = *gr_type(b->g, b->in[0]);
  attrs_of(b, &s);
  Attr *to = find(&s, AT_DIMS);
  int rank = to ? (int)to->count + 1 : t.rank, fill = rank - t.rank;
  Dim dims[CKL_MAX_RANK + 1];
  if (rank > CKL_MAX_RANK) return refuse(b, "the result would have too many axes");
  dims[0] = b->n;
  for (int j = 1; j < rank; j++) dims[j] = j <= fill ? dim_const(b->g->dims, 1) : t.dim[j - fill];
  if (fill > 0) b->in[0] = b_reshape(&b->b, b->in[0], rank, dims);
  lead(&s, AT_DIMS, b->n, 0);
  return emit_op(b, &s, true);
}

static bool batch_slice(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  lead(&s, AT_STARTS, dim_const(b->g->dims, 0), 0);
  lead(&s, AT_LENS, b->n, 0);
  lead(&s, AT_STEPS, 1, 0);
  return emit_op(b, &s, true);
}

static bool batch_pad(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  lead(&s, AT_LOW, dim_const(b->g->dims, 0), 0);
  lead(&s, AT_HIGH, dim_const(b->g->dims, 0), 0);
  lead(&s, AT_INNER, 0, 0);
  return emit_op(b, &s, true);
}

/* Moves axis `from` of x to position `to`. */
static Val move_axis(Batch *b, Val x, int from, int to) {
  int64_t perm[CKL_MAX_RANK];
  if (val_none(x) || from == to) return x;
  int rank = gr_type(b->g, x)->rank, k = 0;
  for (int j = 0; j < rank; j++) {
    if (j == to) {
      perm[j] = from;
      continue;
    }
    if (k == from) k++;
    perm[j] = k++;
  }
  return b_transpose(&b->b, x, perm);
}

/* take (first = 1), put and put_add (first = 2), whose index operands begin at `first`. If the
 * indices have the axis, it becomes one more indexed axis, whose index is the element number. */
static bool indexed(Batch *b, int first) {
  Attrs s;
  int count = (int)b->at->operand_count, n = 0;
  bool index_batched = false;
  attrs_of(b, &s);
  Attr *axis = find(&s, AT_AXIS);
  for (int i = first; i < count; i++) index_batched |= b->inb[i];
  if (!index_batched) {
    for (int i = 0; i < first; i++) b->in[i] = with_axis(b, i);
    shift_axes(&s);
    return emit_op(b, &s, true);
  }
  int at = axis ? (int)axis->u.i : 0;
  Attr *distinct = find(&s, AT_DISTINCT);
  bool twice = !(distinct && distinct->u.i) && given_type(b, first)->rank > 0;
  if (!axis) s.v[s.n++] = attr_i(AT_AXIS, 0);
  for (int i = first; i < count; i++) b->in[i] = with_axis(b, i), b->inb[i] = true;
  if (first == 1 && !b->inb[0]) { /* x is shared: the new axis belongs to the indices alone */
    if (distinct) distinct->u.i = 0;
    Val v = b->b.failed ? VAL_NONE : gr_op(b->g, OP_TAKE, b->in, count, s.v, s.n, NULL, 0, b->e);
    if (val_none(v) && !b->b.failed) return false;
    return results(b, move_axis(b, v, at, 0), true);
  }
  Val *args = ARENA_ARRAY(b->a, Val, count + 1);
  for (int i = 0; i < first; i++) args[n++] = move_axis(b, with_axis(b, i), 0, at);
  if (b->b.failed) return results(b, VAL_NONE, true);
  Type t = *gr_type(b->g, b->in[first]);
  Dim tall[CKL_MAX_RANK];
  for (int j = 0; j < t.rank; j++) tall[j] = j == 0 ? b->n : dim_const(b->g->dims, 1);
  Val row = b_reshape(&b->b, iota(b, (Device)t.dev), t.rank, tall);
  args[n++] = b_broadcast(&b->b, row, t.rank, t.dim);
  for (int i = first; i < count; i++) args[n++] = b->in[i];
  if (!twice && !distinct) s.v[s.n++] = attr_i(AT_DISTINCT, 1); /* an element of each iteration */
  if (b->b.failed) return results(b, VAL_NONE, true);
  Val v = gr_op(b->g, (OpCode)b->at->op, args, n, s.v, s.n, NULL, 0, b->e);
  if (val_none(v)) return false;
  return results(b, move_axis(b, v, at, 0), true);
}

static bool batch_take(Batch *b) {
  return b->at->operand_count > 1 ? indexed(b, 1) : refuse(b, "there is no index");
}

static bool batch_put(Batch *b) {
  if (b->at->operand_count > 2) return indexed(b, 2);
  return refuse(b, "there is no index");
}

static bool batch_dot(Batch *b) {
  Attrs s;
  const Type *y = given_type(b, 1);
  attrs_of(b, &s);
  if (b->inb[0] && !b->inb[1] && y->rank == 2) {
    /* the rows of all elements with one matrix: the elements of a product do not depend on other
     * rows */
    Type t = *gr_type(b->g, b->in[0]);
    Dim rows[2] = {dim_mul(b->g->dims, t.dim[0], t.dim[1]), t.dim[2]};
    Dim out[3] = {t.dim[0], t.dim[1], y->dim[1]};
    b->in[0] = b_reshape(&b->b, b->in[0], 2, rows);
    if (!emit_op(b, &s, true)) return false;
    return results(b, b_reshape(&b->b, b->map[b->at->result0], 3, out), true);
  }
  stretch_all(b);
  return emit_op(b, &s, true);
}

static bool batch_matrices(Batch *b) {
  return batch_elementwise(b);
}

static bool batch_inner(Batch *b) {
  return batch_elementwise(b);
}

static bool batch_conv(Batch *b) {
  Attrs s;
  bool foldable = b->at->op != OP_CONV2D_WEIGHT && b->inb[0] && !b->inb[1];
  if (!foldable) return one_by_one(b, NO_KEY);
  /* the images of all elements in one batch, with one set of weights */
  Type t = *gr_type(b->g, b->in[0]);
  Type y = *gr_type(b->src, (Val){b->node, 0});
  Dim all = dim_mul(b->g->dims, t.dim[0], t.dim[1]);
  Dim in[4] = {all, t.dim[2], t.dim[3], t.dim[4]};
  Dim out[5] = {t.dim[0], y.dim[0], y.dim[1], y.dim[2], y.dim[3]};
  int64_t dims[4] = {all, y.dim[1], y.dim[2], y.dim[3]};
  attrs_of(b, &s);
  Attr *given = find(&s, AT_DIMS);
  if (given) given->u.ints = dims;
  b->in[0] = b_reshape(&b->b, b->in[0], 4, in);
  if (!emit_op(b, &s, true)) return false;
  return results(b, b_reshape(&b->b, b->map[b->at->result0], 5, out), true);
}

/* ---- structured ops: their regions are mapped */

static Graph *region(Batch *b, uint32_t k, const bool *batched) {
  return gr_batch(b->a, b->src->regions[b->at->region0 + k], batched, b->n, b->e);
}

static bool emit_regions(Batch *b, Graph *const *regions) {
  Attrs s;
  attrs_of(b, &s);
  if (b->b.failed) return results(b, VAL_NONE, true);
  Val v = gr_op(b->g, (OpCode)b->at->op, b->in, (int)b->at->operand_count, s.v, s.n, regions,
                b->at->region_count, b->e);
  return results(b, v, true);
}

static bool *all_true(Batch *b, size_t n) {
  bool *t = ARENA_ARRAY(b->a, bool, n + 1);
  for (size_t j = 0; j < n; j++) t[j] = true;
  return t;
}

/* Every operand gets the axis, so that a gradient has it too. */
static bool batch_custom(Batch *b) {
  Graph *regions[2];
  stretch_all(b);
  for (uint32_t k = 0; k < 2; k++) {
    size_t inputs = b->src->regions[b->at->region0 + k]->input_count;
    regions[k] = region(b, k, all_true(b, inputs));
    if (!regions[k]) return false;
  }
  return emit_regions(b, regions);
}

static bool batch_body(Batch *b) {
  Graph *r = region(b, 0, b->inb);
  return r && emit_regions(b, &r);
}

/* The carry has the axis from the first turn on, and the rows of a stash that has it have it. A
 * loop whose number of turns depends on the element is not seen here (elements_part). */
static bool batch_loop(Batch *b) {
  int64_t carry = gr_attr_i(b->src, b->node, AT_CARRY, 0);
  for (int64_t i = 1; i <= carry && i < b->at->operand_count; i++) {
    b->in[i] = with_axis(b, (int)i);
    b->inb[i] = true;
  }
  Graph *r = region(b, 0, b->inb);
  return r && emit_regions(b, &r);
}

static bool batch_stash(Batch *b) {
  Attrs s;
  stretch_all(b);
  attrs_of(b, &s);
  return emit_op(b, &s, true);
}

static bool batch_unstash(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  if (find(&s, AT_DIMS)->count == CKL_MAX_RANK) return refuse(b, "a row would have too many axes");
  lead(&s, AT_DIMS, b->n, 0);
  return emit_op(b, &s, true);
}

/* The axis of the rows stays the first one of a tensor. */
static bool batch_stash_rows(Batch *b) {
  Attrs s;
  if (b->inb[0]) b->in[0] = move_axis(b, b->in[0], 0, 1);
  attrs_of(b, &s);
  return emit_op(b, &s, true);
}

static bool batch_unstash_rows(Batch *b) {
  if (!batch_unstash(b)) return false;
  Val *v = &b->map[b->at->result0];
  *v = move_axis(b, *v, 1, 0);
  if (b->b.failed) *b->e = b->b.err;
  return !b->b.failed;
}

static bool batch_branch(Batch *b) {
  Graph *sides[2];
  if (b->inb[0]) return refuse(b, "the branch taken depends on the element");
  for (uint32_t k = 0; k < 2; k++) {
    sides[k] = region(b, k, b->inb + 1);
    if (!sides[k]) return false;
  }
  return emit_regions(b, sides);
}

/* The new axis stands behind the axis that the map iterates over. */
static bool batch_map(Batch *b) {
  int64_t mapped = gr_attr_i(b->src, b->node, AT_MAPPED, 0);
  for (int64_t i = 0; i < mapped && i < b->at->operand_count; i++)
    if (b->inb[i]) b->in[i] = move_axis(b, b->in[i], 0, 1);
  Graph *r = region(b, 0, b->inb);
  if (!r || !emit_regions(b, &r)) return false;
  for (uint32_t k = 0; k < b->at->result_count; k++) {
    Val *v = &b->map[b->at->result0 + k];
    *v = move_axis(b, *v, 1, 0);
  }
  if (b->b.failed) *b->e = b->b.err;
  return !b->b.failed;
}

/* `assert` tests all of its bools, so those of all elements. */
static bool batch_assert(Batch *b) {
  Attrs s;
  attrs_of(b, &s);
  return emit_op(b, &s, false);
}

/* ---- the pass */

static bool (*const rules[OP_COUNT])(Batch *) = {
#define OP(NAME, text, arity, count, class, traits, domain, shape, batch, ...) batch_##batch,
#include "graph/ops_rows.def"
#undef OP
};

/* Whether the node draws numbers or has an effect, so that it runs for every element even if the
 * inputs are equal. */
static bool varies(const Graph *g, uint32_t n) {
  stack_check();
  const GNode *node = &g->nodes[n];
  if (op_info[node->op].traits & (T_RANDOM | T_EFFECT)) return true;
  for (uint32_t k = 0; k < node->region_count; k++) {
    const Graph *r = g->regions[node->region0 + k];
    for (uint32_t j = 0; j < r->node_count; j++)
      if (varies(r, j)) return true;
  }
  return false;
}

/* ---- graphs with a `branch` or `loop` whose condition differs between elements
 *
 * The elements run one after the other, as a `map` of the whole graph: each takes one side, and a
 * gradient that is absent in one element (autograd/branch.c) is absent for it alone. */

static bool elements_part(Arena *a, const Graph *g, const bool *batched) {
  stack_check();
  bool *at = ARENA_ARRAY(a, bool, g->type_count + 1), part = false;
  for (uint32_t n = 0, arg = 0; n < g->node_count && !part; n++) {
    const GNode *node = &g->nodes[n];
    bool any = node->op == OP_INPUT ? batched[arg++] : varies(g, n);
    bool *in = node->region_count ? ARENA_ARRAY(a, bool, node->operand_count + 1) : NULL;
    for (uint32_t i = 0; i < node->operand_count; i++) {
      Val v = gr_operand(g, n, (int)i);
      bool has = at[g->nodes[v.node].result0 + v.res];
      any |= has;
      if (in) in[i] = has;
    }
    part = node->op == OP_BRANCH && in[0];
    if (node->op == OP_LOOP && any) part = in[0] || gr_attr(g, n, AT_WHILE);
    for (uint32_t k = 0; any && k < node->region_count && !part; k++) {
      const Graph *r = g->regions[node->region0 + k];
      bool *inner = ARENA_ARRAY(a, bool, r->input_count + 1);
      bool plain = node->op == OP_BRANCH || node->op == OP_WRAP || node->op == OP_MAP;
      uint32_t first = node->op == OP_BRANCH;
      for (size_t i = 0; i < r->input_count; i++) inner[i] = !plain || in[first + i];
      if (node->op == OP_LOOP) inner[0] = in[0]; /* the turn */
      part = elements_part(a, r, inner);
    }
    for (uint32_t k = 0; k < node->result_count; k++) at[node->result0 + k] = any;
  }
  return part;
}

/* Type t with the new axis. */
static bool stretched(Type *t, Dim n, GErr *e) {
  if (t->rank == CKL_MAX_RANK)
    return gerr_set(e, ERR_NOT_YET, -1, "a mapped value would have more than %d axes",
                    CKL_MAX_RANK);
  memmove(t->dim + 1, t->dim, sizeof *t->dim * t->rank);
  t->dim[0] = n;
  t->rank++;
  return true;
}

static Graph *one_map(Arena *a, const Graph *src, const bool *batched, Dim n, GErr *e) {
  size_t count = src->input_count;
  Graph *g = gr_new(a, src->dims, src->names, src->name);
  Graph *r = gr_new(a, src->dims, src->names, src->name);
  g->blocks = r->blocks = src->blocks;
  Val *given = ARENA_ARRAY(a, Val, count + 1), *args = ARENA_ARRAY(a, Val, count + 1);
  Val *in = ARENA_ARRAY(a, Val, count + 1);
  Val *out = ARENA_ARRAY(a, Val, src->output_count + 1);
  int mapped = 0, k = 0;
  for (size_t i = 0; i < count; i++) {
    Type t = *gr_type(src, src->inputs[i]);
    t.alias = 0;
    if (batched[i] && !stretched(&t, n, e)) return NULL;
    given[i] = gr_input(g, &t);
    mapped += batched[i];
  }
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < count; i++) {
      if (batched[i] != (pass == 0)) continue;
      Type t = *gr_type(src, src->inputs[i]);
      t.alias = 0;
      args[k++] = given[i];
      in[i] = gr_input(r, &t);
    }
  if (!gr_inline(r, src, in, NULL, out, e)) return NULL;
  for (size_t i = 0; i < src->output_count; i++) gr_output(r, out[i]);
  g->at = r->at = src->node_count ? src->provs[src->nodes[src->node_count - 1].prov] : src->at;
  if (tag_narrows((Tag)g->at.tag)) g->at.tag = TAG_MUST_SAVE; /* that is one of its values */
  Attr many = attr_i(AT_MAPPED, mapped);
  Val v = gr_op(g, OP_MAP, args, k, &many, 1, &r, 1, e);
  if (val_none(v)) return NULL;
  for (uint32_t i = 0; i < src->output_count; i++) gr_output(g, (Val){v.node, i});
  return gr_checked(g, "batch");
}

static bool batch_node(Batch *b, uint32_t n) {
  const Graph *src = b->src;
  b->node = n;
  b->at = &src->nodes[n];
  b->any = false;
  b->g->at = src->provs[b->at->prov];
  for (uint32_t i = 0; i < b->at->operand_count; i++) {
    Val v = gr_operand(src, n, (int)i);
    uint32_t slot = src->nodes[v.node].result0 + v.res;
    b->in[i] = b->map[slot];
    b->inb[i] = b->batched[slot];
    b->any |= b->inb[i];
  }
  if (!b->any && !varies(src, n)) return copy(b);
  return rules[b->at->op](b);
}

Graph *gr_batch(Arena *a, const Graph *g, const bool *batched, Dim n, GErr *e) {
  if (elements_part(a, g, batched)) return one_map(a, g, batched, n, e);
  uint32_t widest = 0;
  Batch b = {.src = g, .a = a, .n = n, .e = e};
  b.g = gr_new(a, g->dims, g->names, g->name);
  b.g->blocks = g->blocks;
  b.b.g = b.g;
  b.map = ARENA_ARRAY(a, Val, g->type_count + 1);
  b.batched = ARENA_ARRAY(a, bool, g->type_count + 1);
  for (size_t j = 0; j < g->node_count; j++)
    if (g->nodes[j].operand_count > widest) widest = g->nodes[j].operand_count;
  b.in = ARENA_ARRAY(a, Val, widest + 1);
  b.inb = ARENA_ARRAY(a, bool, widest + 1);
  for (uint32_t j = 0, arg = 0; j < g->node_count; j++) {
    const GNode *node = &g->nodes[j];
    if (node->op != OP_INPUT) {
      if (!batch_node(&b, j)) return NULL;
      continue;
    }
    Type t = g->types[node->result0];
    bool axis = batched[arg++] && t.kind == TK_TENSOR;
    if (axis && !stretched(&t, n, e)) return NULL;
    b.g->at = g->provs[node->prov];
    b.map[node->result0] = gr_input(b.g, &t);
    b.batched[node->result0] = axis;
  }
  for (size_t j = 0; j < g->output_count; j++) {
    Val v = g->outputs[j];
    uint32_t slot = g->nodes[v.node].result0 + v.res;
    bool stays = b.batched[slot] || gr_type(g, v)->kind == TK_TOKEN;
    b.g->at = g->provs[gr_node(g, v)->prov];
    Val out = stays ? b.map[slot] : stretch(&b, b.map[slot]);
    if (b.b.failed) {
      *e = b.b.err;
      return NULL;
    }
    gr_output(b.g, out);
  }
  for (size_t j = 0; j < g->check_count; j++) {
    const SizeCheck *c = &g->checks[j];
    b.g->at = g->provs[c->prov];
    gr_check(b.g, c->kind, c->a, c->b, c->text);
  }
  return gr_checked(b.g, "batch");
}
