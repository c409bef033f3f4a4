/* LP_TILE: a block of a contraction in registers.
 *
 * In: the tile's operands, all uniform. Out: its chains, handed to the block of the tile (the
 * epilogue) element by element, with the row uniform and the columns as lanes.
 *
 * The plan is the inner kernel of Goto and van de Geijn ("Anatomy of high-performance matrix
 * multiplication", TOMS 2008): mr x nr accumulators stay in registers while k ascends; one
 * element of A is broadcast over the columns of a row of B. The kernel is emitted several times:
 * once for a full tile, and for tiles at an edge, in which missing rows repeat the last one and
 * missing columns are masked.
 *
 * Invariant: one fma per element and k, in ascending k. Prefetches apart, nothing is read outside
 * of rows x depth of A, depth x cols of B and rows x cols of the start. */
#include "jit/codegen/emit.h"
#include "runtime/elementwise.h"

enum {
  UNROLL = 4,
  AHEAD = 12,  /* rows of B between a use and its prefetch */
  TALL = 12,   /* tiles of at least this many rows get extra code for fewer rows */
  DIRECT = 200 /* instructions of all copies of a block that is emitted straight from registers */
};

typedef struct Tile {
  Emit *e;
  LVal v;
  DType dt;
  int mr, nr;
  int vl, nv; /* lanes of a vector; vectors of a row */
  LLVMTypeRef scalar, vec;
  LLVMValueRef op[TILE_OPERANDS], a, b, start; /* pointers to the first element of each */
  LLVMValueRef room;                           /* the tile in memory, rows `pitch` elements apart */
  int pitch;
  LLVMValueRef row; /* while the epilogue is emitted */
} Tile;

static bool is_const(LLVMValueRef x) {
  return LLVMIsAConstantInt(x) != NULL;
}
static int64_t const_of(LLVMValueRef x) {
  return LLVMConstIntGetSExtValue(x);
}

static LLVMValueRef mul(Tile *t, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildMul(t->e->b, x, y, "");
}
static LLVMValueRef add(Tile *t, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildAdd(t->e->b, x, y, "");
}
static LLVMValueRef at(Tile *t, LLVMValueRef p, LLVMValueRef index) {
  return LLVMBuildGEP2(t->e->b, t->scalar, p, &index, 1, "");
}

/* Loads n elements from a pointer into the buffer. */
static LLVMValueRef load(Tile *t, int buf, LLVMTypeRef type, int n, LLVMValueRef p) {
  if (t->e->bytes) emit_within(t->e, buf, p, n, NULL);
  LLVMValueRef x = LLVMBuildLoad2(t->e->b, type, p, "");
  LLVMSetAlignment(x, (unsigned)dt_size(t->dt));
  return x;
}

static LLVMValueRef load_row(Tile *t, int buf, LLVMValueRef p, LLVMValueRef mask) {
  if (!mask || t->vl == 1) return load(t, buf, t->vec, t->vl, p);
  if (t->e->bytes) emit_within(t->e, buf, p, t->vl, mask);
  return emit_load_masked(t->e, t->dt, p, emit_i64(t->e, 0), mask, t->vl);
}

static void prefetch(Tile *t, LLVMValueRef p, int level) {
  Emit *e = t->e;
  unsigned id = LLVMLookupIntrinsicID("llvm.prefetch", 13);
  LLVMTypeRef over = LLVMTypeOf(p);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->mod, id, &over, 1);
  LLVMValueRef arg[4] = {p, emit_i32(e, 0), emit_i32(e, level), emit_i32(e, 1)};
  LLVMBuildCall2(e->b, LLVMGlobalGetValueType(f), f, arg, 4, "");
}

/* Addresses of the rows of A: pointers to every GROUP-th row and offsets from there, so that few
 * registers are needed. In a tile with fewer rows groups begin earlier, and missing rows repeat
 * others. */
enum { GROUP = 4, GROUPS = 64 / GROUP };
typedef struct Rows {
  int groups;
  LLVMValueRef first[GROUPS]; /* row that a group begins with */
  LLVMValueRef within[GROUP]; /* row number in its group */
  LLVMValueRef offset[GROUP]; /* elements from the group's first row */
  LLVMValueRef p[GROUPS];     /* pointer to the present k of the group's first row */
} Rows;

static LLVMValueRef row_of(Tile *t, const Rows *r, int i) {
  return add(t, r->first[i / GROUP], r->within[i % GROUP]);
}

/* Emits the work of one k: the rows of A times the row of B at `pb`. */
static void step(Tile *t, const Rows *r, LLVMValueRef pb, const LLVMValueRef *mask,
                 LLVMValueRef *acc) {
  const LIns *in = &t->e->k->ins[t->v];
  LLVMValueRef b[16];
  for (int j = 0; j < t->nv; j++) {
    LLVMValueRef p = j ? at(t, pb, emit_i64(t->e, j * t->vl)) : pb;
    b[j] = load_row(t, in->buf_b, p, mask ? mask[j] : NULL);
  }
  for (int i = 0; i < t->mr; i++) {
    LLVMValueRef p = at(t, r->p[i / GROUP], r->offset[i % GROUP]);
    LLVMValueRef x = load(t, in->buf, t->scalar, 1, p);
    if (t->vl > 1) x = emit_splat(t->e, x, t->vl);
    for (int j = 0; j < t->nv; j++) {
      LLVMValueRef *c = &acc[i * t->nv + j];
      *c = emit_fma(t->e, x, b[j], *c);
    }
  }
}

/* for (k = from; k < to; k += by) with pointers and accumulators carried along. */
static void k_loop(Tile *t, LLVMValueRef from, LLVMValueRef to, int by, Rows *r, LLVMValueRef *pb,
                   const LLVMValueRef *mask, LLVMValueRef ahead, LLVMValueRef *acc) {
  Emit *e = t->e;
  LLVMBuilderRef b = e->b;
  int n = t->mr * t->nv;
  LLVMValueRef start[256], phi[256];
  LLVMBasicBlockRef before = LLVMGetInsertBlock(b), body = emit_new_block(e, "k");
  LLVMBasicBlockRef end = emit_new_block(e, "k.end");
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, from, to, ""), body, end);
  LLVMPositionBuilderAtEnd(b, body);
  LLVMValueRef k = LLVMBuildPhi(b, LLVMTypeOf(from), "k");
  LLVMValueRef ppb = LLVMBuildPhi(b, LLVMTypeOf(*pb), "b"), pa[GROUPS], ppa[GROUPS];
  for (int i = 0; i < r->groups; i++) {
    pa[i] = r->p[i];
    ppa[i] = r->p[i] = LLVMBuildPhi(b, LLVMTypeOf(*pb), "a");
  }
  for (int i = 0; i < n; i++) {
    start[i] = acc[i];
    phi[i] = acc[i] = LLVMBuildPhi(b, t->vec, "");
  }
  LLVMValueRef qb = ppb;
  for (int u = 0; u < by; u++) {
    if (ahead && by > 1 && (u * t->nr * (int)dt_size(t->dt)) % 64 == 0)
      prefetch(t, at(t, qb, ahead), 2);
    step(t, r, qb, mask, acc);
    for (int i = 0; i < r->groups; i++) r->p[i] = at(t, r->p[i], t->op[TILE_A_STEP]);
    qb = at(t, qb, t->op[TILE_B_STEP]);
  }
  LLVMValueRef next = add(t, k, emit_i64(e, by));
  LLVMBasicBlockRef last = LLVMGetInsertBlock(b);
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLT, next, to, ""), body, end);
  LLVMBasicBlockRef in[2] = {before, last};
  LLVMAddIncoming(k, (LLVMValueRef[2]){from, next}, in, 2);
  for (int i = 0; i < r->groups; i++) {
    LLVMAddIncoming(ppa[i], (LLVMValueRef[2]){pa[i], r->p[i]}, in, 2);
  }
  LLVMAddIncoming(ppb, (LLVMValueRef[2]){*pb, qb}, in, 2);
  for (int i = 0; i < n; i++) LLVMAddIncoming(phi[i], (LLVMValueRef[2]){start[i], acc[i]}, in, 2);
  LLVMPositionBuilderAtEnd(b, end);
  LLVMValueRef out;
  for (int i = 0; i < r->groups; i++) {
    out = LLVMBuildPhi(b, LLVMTypeOf(*pb), "");
    LLVMAddIncoming(out, (LLVMValueRef[2]){pa[i], r->p[i]}, in, 2);
    r->p[i] = out;
  }
  out = LLVMBuildPhi(b, LLVMTypeOf(*pb), "");
  LLVMAddIncoming(out, (LLVMValueRef[2]){*pb, qb}, in, 2);
  *pb = out;
  for (int i = 0; i < n; i++) {
    out = LLVMBuildPhi(b, t->vec, "");
    LLVMAddIncoming(out, (LLVMValueRef[2]){start[i], acc[i]}, in, 2);
    acc[i] = out;
  }
}

/* Keeps x in a register, so that code generation does not compute it again at each use. */
static LLVMValueRef keep(Tile *t, LLVMValueRef x) {
  return is_const(x) ? x : LLVMBuildFreeze(t->e->b, x, "");
}

static void find_rows(Tile *t, bool edge, Rows *r) {
  Emit *e = t->e;
  LLVMTypeRef i64 = LLVMTypeOf(emit_i64(e, 0));
  LLVMValueRef rows = t->op[TILE_ROWS], zero = emit_i64(e, 0);
  r->groups = (t->mr + GROUP - 1) / GROUP;
  for (int i = 0; i < GROUP; i++) {
    LLVMValueRef last = LLVMBuildSub(e->b, rows, emit_i64(e, 1), "");
    r->within[i] = emit_i64(e, i);
    if (edge && i > 0) {
      r->within[i] = emit_intrinsic(e, "llvm.smin", i64, 2, (LLVMValueRef[]){r->within[i], last});
    }
    r->offset[i] = keep(t, mul(t, r->within[i], t->op[TILE_A_ROW]));
  }
  for (int g = 0; g < r->groups; g++) {
    int size = t->mr - g * GROUP < GROUP ? t->mr - g * GROUP : GROUP;
    r->first[g] = emit_i64(e, g * GROUP);
    if (edge) {
      LLVMValueRef most = LLVMBuildSub(e->b, rows, emit_i64(e, size), "");
      most = emit_intrinsic(e, "llvm.smax", i64, 2, (LLVMValueRef[]){most, zero});
      r->first[g] = emit_intrinsic(e, "llvm.smin", i64, 2, (LLVMValueRef[]){r->first[g], most});
    }
    r->p[g] = at(t, t->a, mul(t, r->first[g], t->op[TILE_A_ROW]));
    if (edge || !is_const(t->op[TILE_A_ROW])) r->p[g] = LLVMBuildFreeze(e->b, r->p[g], "");
  }
}

/* Computes all chains of the tile into acc[mr * nv]; their rows are in `r`. */
static void chains(Tile *t, bool edge, LLVMValueRef *acc, Rows *r) {
  Emit *e = t->e;
  LLVMBuilderRef b = e->b;
  LLVMValueRef mask[16], zero = LLVMConstNull(t->vec);
  e->now = t->v;
  find_rows(t, edge, r);
  bool all = is_const(t->op[TILE_COLS]) && const_of(t->op[TILE_COLS]) == t->nr;
  const LLVMValueRef *masks = edge && !all ? mask : NULL;
  if (masks && t->vl > 1) {
    LLVMValueRef lane[16];
    for (int j = 0; j < t->vl; j++) lane[j] = emit_i32(e, j);
    LLVMValueRef lanes = LLVMConstVector(lane, (unsigned)t->vl);
    LLVMValueRef cols = LLVMBuildTrunc(b, t->op[TILE_COLS], LLVMTypeOf(lane[0]), "");
    for (int j = 0; j < t->nv; j++) {
      LLVMValueRef rest = LLVMBuildSub(b, cols, emit_i32(e, j * t->vl), "");
      mask[j] = LLVMBuildICmp(b, LLVMIntSLT, lanes, emit_splat(e, rest, t->vl), "");
    }
  }
  for (int i = 0; i < t->mr; i++)
    for (int j = 0; j < t->nv; j++) {
      LLVMValueRef *c = &acc[i * t->nv + j];
      *c = zero;
      if (!t->start) continue;
      LLVMValueRef from = mul(t, row_of(t, r, i), t->op[TILE_START_ROW]);
      LLVMValueRef p = at(t, at(t, t->start, from), emit_i64(e, j * t->vl));
      *c = load_row(t, e->k->ins[t->v].buf_start, p, masks ? masks[j] : NULL);
    }
  LLVMValueRef depth = t->op[TILE_DEPTH], pb = t->b, zero_k = emit_i64(e, 0);
  int unroll = edge || !emit_has(e, HAS_FMA) || e->bytes ? 1 : UNROLL;
  if (unroll > 1) {
    LLVMValueRef whole = LLVMBuildAnd(b, depth, emit_i64(e, -unroll), "");
    /* Behind a packed panel mostly the next one follows: fetch that. Else the rows of B are apart,
     * which the hardware does not foresee: fetch AHEAD rows ahead. */
    LLVMValueRef b_step = t->op[TILE_B_STEP], rows_on = depth;
    if (!is_const(b_step) || const_of(b_step) != t->nr) rows_on = emit_i64(e, AHEAD);
    LLVMValueRef ahead = edge ? NULL : mul(t, rows_on, b_step);
    k_loop(t, zero_k, whole, unroll, r, &pb, masks, ahead, acc);
    zero_k = whole;
  }
  if (!is_const(depth) || unroll == 1 || const_of(depth) % unroll) {
    k_loop(t, zero_k, depth, 1, r, &pb, masks, NULL, acc);
  }
}

/* ---- the epilogue */

/* Emits the block of the tile for one row and the columns from `col` on; x holds their chains. */
static void block(Tile *t, LLVMValueRef row, LLVMValueRef col, LLVMValueRef x) {
  Emit *e = t->e;
  bool lanes = e->width > 1;
  uint32_t end = e->k->ins[t->v].match;
  emit_set(e, t->v, lanes ? one_vector(x) : one_uniform(x));
  for (LVal v = t->v + 1; v < end; v++) {
    LOp op = (LOp)e->k->ins[v].op;
    if ((op != LP_ROW && op != LP_COL) || lp_operand(e->k, v, 0) != t->v) continue;
    if (op == LP_ROW)
      emit_set(e, v, one_uniform(row));
    else
      emit_set(e, v, lanes ? one_linear(col, emit_i64(e, 1)) : one_uniform(col));
  }
  emit_range(e, t->v + 1, end);
}

static void from_room(Emit *e, void *ud, LLVMValueRef i) {
  Tile *t = ud;
  LLVMValueRef index = add(t, mul(t, t->row, emit_i64(e, t->pitch)), i);
  block(t, t->row, i, emit_load_n(e, t->dt, t->room, index, EMIT_LANES));
}

/* Emits the block for all elements of a tile that is in memory. */
static void epilogue(Tile *t) {
  Emit *e = t->e;
  Loop rows, cols;
  emit_loop(e, &rows, emit_i64(e, 0), t->op[TILE_ROWS], 1);
  t->row = rows.i;
  if (t->nr >= EMIT_LANES) {
    emit_lanes(e, t->op[TILE_COLS], from_room, t);
  } else {
    emit_loop(e, &cols, emit_i64(e, 0), t->op[TILE_COLS], 1);
    LLVMValueRef index = add(t, mul(t, rows.i, emit_i64(e, t->pitch)), cols.i);
    block(t, rows.i, cols.i, emit_load_n(e, t->dt, t->room, index, 1));
    emit_loop_end(e, &cols);
  }
  emit_loop_end(e, &rows);
}

static void spill(Tile *t, const LLVMValueRef *acc, const Rows *r) {
  for (int i = 0; i < t->mr; i++)
    for (int j = 0; j < t->nv; j++) {
      LLVMValueRef to = mul(t, row_of(t, r, i), emit_i64(t->e, t->pitch));
      emit_store_n(t->e, t->dt, t->room, add(t, to, emit_i64(t->e, j * t->vl)), acc[i * t->nv + j],
                   t->vl);
    }
}

/* Whether the block is short enough to be emitted once per vector. */
static bool is_light(const Tile *t) {
  const Kernel *k = t->e->k;
  int cost = 0;
  if (t->vl != EMIT_LANES) return false;
  for (LVal v = t->v + 1; v < k->ins[t->v].match; v++) {
    switch ((LOp)k->ins[v].op) {
    case LP_CONST:
    case LP_ARG:
    case LP_ROW:
    case LP_COL: break;
    case LP_LOAD:
    case LP_STORE:
    case LP_CAST:
    case LP_WHERE:
    case LP_FMA: cost++; break;
    case LP_BIN:
      if (!dt_float((DType)k->ins[v].dtype) && k->ins[v].dtype != DT_BOOL) break;
      if (k->ins[v].imm == RB_POW || k->ins[v].imm == RB_MOD) return false;
      if (k->ins[v].imm == RB_FLOORDIV) return false;
      cost++;
      break;
    case LP_UN:
      if (k->ins[v].imm != RU_NEG && k->ins[v].imm != RU_ABS && k->ins[v].imm != RU_RELU) {
        return false;
      }
      cost++;
      break;
    default: return false;
    }
  }
  return cost * t->mr * t->nv <= DIRECT;
}

void emit_tile(Emit *e, LVal v) {
  const LIns *in = &e->k->ins[v];
  LLVMBuilderRef b = e->b;
  Tile t = {.e = e, .v = v, .dt = (DType)in->dtype, .mr = in->mr, .nr = in->nr};
  t.vl = t.nr < EMIT_LANES ? t.nr : EMIT_LANES;
  t.nv = t.nr / t.vl;
  t.pitch = t.nr;
  t.scalar = emit_type(e, t.dt);
  t.vec = emit_vec(t.scalar, t.vl);
  if (t.mr > 64 || t.mr * t.nv > 256 || t.nv > 16 || t.nv * t.vl != t.nr) {
    emit_fail(e, "a tile of %d x %d", t.mr, t.nr);
    return;
  }
  for (int i = 0; i < TILE_OPERANDS; i++) t.op[i] = emit_scalar(e, lp_operand(e->k, v, i));
  t.a = at(&t, e->buf[in->buf], t.op[TILE_A]);
  t.b = at(&t, e->buf[in->buf_b], t.op[TILE_B]);
  if (in->buf_start != LP_NO_BUF) t.start = at(&t, e->buf[in->buf_start], t.op[TILE_START]);
  t.room = emit_alloca(e, LLVMArrayType2(t.scalar, (unsigned)(t.mr * t.pitch)), "tile");

  int width = e->width;
  bool light = is_light(&t);
  LLVMValueRef acc[256];
  Rows r = {0};
  LLVMBasicBlockRef some = emit_new_block(e, "tile"), full = emit_new_block(e, "tile.full");
  LLVMBasicBlockRef edge = emit_new_block(e, "tile.edge");
  LLVMBasicBlockRef memory = emit_new_block(e, "tile.memory");
  LLVMBasicBlockRef end = emit_new_block(e, "tile.end");
  LLVMValueRef zero = emit_i64(e, 0);
  LLVMBuildCondBr(b,
                  LLVMBuildAnd(b, LLVMBuildICmp(b, LLVMIntSGT, t.op[TILE_ROWS], zero, ""),
                               LLVMBuildICmp(b, LLVMIntSGT, t.op[TILE_COLS], zero, ""), ""),
                  some, end);
  LLVMPositionBuilderAtEnd(b, some);
  LLVMValueRef all_rows = LLVMBuildICmp(b, LLVMIntEQ, t.op[TILE_ROWS], emit_i64(e, t.mr), "");
  LLVMValueRef all_cols = LLVMBuildICmp(b, LLVMIntEQ, t.op[TILE_COLS], emit_i64(e, t.nr), "");
  LLVMBuildCondBr(b, LLVMBuildAnd(b, all_rows, all_cols, ""), full, edge);

  LLVMPositionBuilderAtEnd(b, full);
  chains(&t, false, acc, &r);
  if (light) {
    e->width = EMIT_LANES;
    for (int i = 0; i < t.mr; i++)
      for (int j = 0; j < t.nv; j++) {
        block(&t, emit_i64(e, i), emit_i64(e, j * t.vl), acc[i * t.nv + j]);
      }
    e->width = width;
    LLVMBuildBr(b, end);
  } else {
    spill(&t, acc, &r);
    LLVMBuildBr(b, memory);
  }
  LLVMPositionBuilderAtEnd(b, edge);
  /* Half of the columns take half of the time. If all columns are there, fewer rows save time. */
  bool all = is_const(t.op[TILE_COLS]) && const_of(t.op[TILE_COLS]) == t.nr;
  Tile part = t;
  if (!all && t.nv > 1)
    part.nv = t.nv / 2;
  else if (all && t.mr >= TALL && !is_const(t.op[TILE_ROWS]))
    part.mr = t.mr - 2 * GROUP;
  while (part.mr < t.mr || part.nv < t.nv) {
    LLVMValueRef size = t.op[all ? TILE_ROWS : TILE_COLS];
    LLVMValueRef most = emit_i64(e, all ? part.mr : part.nv * t.vl);
    LLVMBasicBlockRef less = emit_new_block(e, "tile.part");
    LLVMBasicBlockRef more = emit_new_block(e, "tile.edge");
    LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntSLE, size, most, ""), less, more);
    LLVMPositionBuilderAtEnd(b, less);
    chains(&part, true, acc, &r);
    spill(&part, acc, &r);
    LLVMBuildBr(b, memory);
    LLVMPositionBuilderAtEnd(b, more);
    if (!all) break;
    part.mr += GROUP;
  }
  chains(&t, true, acc, &r);
  spill(&t, acc, &r);
  LLVMBuildBr(b, memory);
  LLVMPositionBuilderAtEnd(b, memory);
  epilogue(&t);
  LLVMBuildBr(b, end);
  LLVMPositionBuilderAtEnd(b, end);
}
