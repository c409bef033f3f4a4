/* Kernels to PTX: the same loops scheduled for a GPU.
 *
 * In: a verified kernel. Out: PTX text with one entry
 *
 *   k(buffers.., arg, lo, scratch, status)
 *
 * Buffers that are not local are pointers to global memory, in order; `arg` points to the
 * arguments; block number c runs iteration lo + c of the outermost LP_PAR; `scratch` has
 * lp_local_bytes for each block of the grid (used where local buffers do not fit into shared
 * memory); `status` is a KStatus. A block has THREADS threads. For the emulator (emu.h) the same
 * code becomes an object of the host, a KernelFn whose `local` is an EmuThread.
 *
 * How a block runs an iteration. Straight-line code, LP_FOR, LP_IF and inner LP_PAR are run by all
 * threads alike. The iterations of an LP_VEC are dealt out among them. The 16 lanes of an LP_RED
 * (rule 105) are 16 threads, whose accumulators are combined by shuffles; a chain is computed by
 * one thread; the others read results from shared memory. The elements of an LP_TILE are dealt out,
 * and slices of A and B pass through shared memory. The bodies of these blocks are code of one
 * thread (emit_range with `gpu`): scalars, and loops where the host has lanes. So values, functions
 * and random numbers are emitted by emit_value.c and the like at width 1, with the host's bits.
 *
 * Invariants: every iteration is run by exactly one thread, every store outside lanes by thread 0.
 * A barrier separates any two memory accesses by different threads if one is a store; no barrier is
 * in lanes, so all threads reach it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Target.h>

#include "jit/codegen/emit_impl.h"
#include "jit/engine/emu.h"
#include "jit/loop/loop_impl.h"

#define B e->b

enum {
  THREADS = EMU_THREADS,
  SLICE = 16,              /* depth of the slices of a tile in shared memory */
  SHARED_LOCAL = 16 << 10, /* bytes of local buffers in shared memory */
  GLOBAL = 1,
  SHARED = 3, /* address spaces */
  KERNEL = 71 /* calling convention of an entry */
};

typedef struct Gpu {
  Emit *e;
  LLVMValueRef shared; /* [N x i8]: results of reductions, slices, local buffers */
  int64_t stage;       /* where slices begin */
  bool synced;         /* nothing has touched memory since the last barrier */
} Gpu;

static void block_range(Gpu *g, LVal first, LVal end);

/* ---- threads */

static LLVMValueRef special(Emit *e, const char *name) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->mod, id, NULL, 0);
  LLVMValueRef x = LLVMBuildCall2(B, LLVMGlobalGetValueType(f), f, NULL, 0, "");
  return LLVMBuildZExt(B, x, LLVMInt64TypeInContext(e->ctx), "");
}

static LLVMValueRef element(Emit *e, LLVMTypeRef t, LLVMValueRef p, LLVMValueRef i) {
  return LLVMBuildGEP2(B, t, p, &i, 1, "");
}

/* Loads the member of an EmuThread at this offset. */
static LLVMValueRef emulated(Emit *e, LLVMTypeRef t, size_t at) {
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx);
  return LLVMBuildLoad2(B, t, element(e, i8, e->emu, emit_i64(e, (int64_t)at)), "");
}

static LLVMValueRef emulated_call(Emit *e, LLVMTypeRef result, size_t at, int n,
                                  LLVMValueRef *arg) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0), i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeRef par[3] = {ptr, i64, i64};
  LLVMTypeRef type = LLVMFunctionType(result, par, (unsigned)n, false);
  return LLVMBuildCall2(B, type, emulated(e, ptr, at), arg, (unsigned)n, "");
}

LLVMValueRef emit_gpu_thread(Emit *e) {
  if (e->emu) return emulated(e, LLVMInt64TypeInContext(e->ctx), offsetof(EmuThread, number));
  return special(e, "llvm.nvvm.read.ptx.sreg.tid.x");
}

static LLVMValueRef block_number(Emit *e) {
  if (e->emu) return emulated(e, LLVMInt64TypeInContext(e->ctx), offsetof(EmuThread, block));
  return special(e, "llvm.nvvm.read.ptx.sreg.ctaid.x");
}

static LLVMValueRef exchange32(Emit *e, LLVMValueRef x, int by) {
  if (e->emu) {
    LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
    LLVMValueRef to[3] = {e->emu, LLVMBuildZExt(B, x, i64, ""), emit_i64(e, by)};
    x = emulated_call(e, i64, offsetof(EmuThread, exchange), 3, to);
    return LLVMBuildTrunc(B, x, LLVMInt32TypeInContext(e->ctx), "");
  }
  LLVMValueRef arg[4] = {emit_i32(e, 0xffff), x, emit_i32(e, by), emit_i32(e, 31)};
  return emit_intrinsic(e, "llvm.nvvm.shfl.sync.bfly.i32", NULL, 4, arg);
}

LLVMValueRef emit_gpu_exchange(Emit *e, LLVMValueRef x, int by) {
  LLVMTypeRef t = LLVMTypeOf(x), i32 = LLVMInt32TypeInContext(e->ctx);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeKind kind = LLVMGetTypeKind(t);
  if (kind == LLVMFloatTypeKind || kind == LLVMDoubleTypeKind) {
    return unbits(e, emit_gpu_exchange(e, bits(e, x), by));
  }
  if (LLVMGetIntTypeWidth(t) < 64) {
    return LLVMBuildTrunc(B, exchange32(e, LLVMBuildZExt(B, x, i32, ""), by), t, "");
  }
  LLVMValueRef lo = exchange32(e, LLVMBuildTrunc(B, x, i32, ""), by);
  LLVMValueRef hi = LLVMBuildTrunc(B, LLVMBuildLShr(B, x, emit_i64(e, 32), ""), i32, "");
  hi = LLVMBuildZExt(B, exchange32(e, hi, by), i64, "");
  hi = LLVMBuildShl(B, hi, emit_i64(e, 32), "");
  return LLVMBuildOr(B, LLVMBuildZExt(B, lo, i64, ""), hi, "");
}

static void barrier(Gpu *g) {
  Emit *e = g->e;
  if (g->synced) return;
  if (e->emu) {
    LLVMTypeRef none = LLVMVoidTypeInContext(e->ctx);
    emulated_call(e, none, offsetof(EmuThread, barrier), 1, &e->emu);
  } else {
    emit_intrinsic(e, "llvm.nvvm.barrier0", NULL, 0, NULL);
  }
  g->synced = true;
}

/* Begins code that only threads below n run. It ends at the returned block. */
static LLVMBasicBlockRef only_below(Emit *e, int n) {
  LLVMBasicBlockRef some = emit_new_block(e, "some"), end = emit_new_block(e, "all");
  LLVMValueRef mine = icmp(e, LLVMIntSLT, emit_gpu_thread(e), emit_i64(e, n));
  LLVMBuildCondBr(B, mine, some, end);
  LLVMPositionBuilderAtEnd(B, some);
  return end;
}

static void all_again(Emit *e, LLVMBasicBlockRef end) {
  LLVMBuildBr(B, end);
  LLVMPositionBuilderAtEnd(B, end);
}

/* The address of byte `at` of shared memory. */
static LLVMValueRef shared_at(Gpu *g, LLVMValueRef at) {
  Emit *e = g->e;
  return LLVMBuildGEP2(B, LLVMInt8TypeInContext(e->ctx), g->shared, &at, 1, "");
}

/* ---- blocks */

static void vec(Gpu *g, LVal v) {
  Emit *e = g->e;
  Loop l;
  LLVMValueRef n = emit_operand(e, v, 0).v;
  barrier(g);
  emit_loop(e, &l, emit_gpu_thread(e), n, THREADS);
  emit_set(e, v, one_uniform(l.i));
  emit_range(e, v + 1, e->k->ins[v].match);
  emit_loop_end(e, &l);
  g->synced = false;
  barrier(g);
}

/* Counts the yields directly in v and calls `use` (unless NULL) with the place of each in shared
 * memory. */
static int each_yield(Gpu *g, LVal v, void use(Emit *, LVal, LLVMValueRef)) {
  const LIns *ins = g->e->k->ins;
  int n = 0;
  for (LVal i = v + 1; i < ins[v].match; i++) {
    if (lp_info[ins[i].op].opens) i = ins[i].match;
    if (ins[i].op != LP_YIELD) continue;
    if (use) use(g->e, i, shared_at(g, emit_i64(g->e, 8 * n)));
    n++;
  }
  return n;
}

/* The type of a result in registers. Shared memory holds it as it is, and truth values as bytes. */
static LLVMTypeRef result_type(Emit *e, LVal yield) {
  bool first = e->k->ins[yield].imm == RED_FIRST_MAX || e->k->ins[yield].imm == RED_FIRST_MIN;
  return emit_type(e, first ? DT_I64 : lp_dtype(e->k, lp_operand(e->k, yield, 0)));
}

static void tell(Emit *e, LVal yield, LLVMValueRef at) {
  LLVMValueRef x = e->val[yield].v;
  if (LLVMTypeOf(x) == LLVMInt1TypeInContext(e->ctx)) {
    x = LLVMBuildZExt(B, x, LLVMInt8TypeInContext(e->ctx), "");
  }
  LLVMBuildStore(B, x, at);
}

static void hear(Emit *e, LVal yield, LLVMValueRef at) {
  LLVMTypeRef t = result_type(e, yield), i1 = LLVMInt1TypeInContext(e->ctx);
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx);
  LLVMValueRef x = LLVMBuildLoad2(B, t == i1 ? i8 : t, at, "");
  emit_set(e, yield, one_uniform(t == i1 ? LLVMBuildTrunc(B, x, i1, "") : x));
}

static void reduction(Gpu *g, LVal v) {
  Emit *e = g->e;
  const LIns *ins = e->k->ins;
  bool chain = false;
  for (LVal i = v + 1; i < ins[v].match; i++) {
    if (lp_info[ins[i].op].opens) i = ins[i].match;
    chain = chain || (ins[i].op == LP_YIELD && ins[i].imm == RED_CHAIN);
  }
  barrier(g);
  LLVMBasicBlockRef end = only_below(e, chain ? 1 : EMIT_LANES);
  e->team = !chain;
  emit_range(e, v, ins[v].match + 1);
  e->team = false;
  if (e->failed) return;
  if (!chain) { /* thread 0 stores the results */
    LLVMBasicBlockRef one = emit_new_block(e, "one");
    LLVMValueRef first = icmp(e, LLVMIntEQ, emit_gpu_thread(e), emit_i64(e, 0));
    LLVMBuildCondBr(B, first, one, end);
    LLVMPositionBuilderAtEnd(B, one);
  }
  each_yield(g, v, tell);
  all_again(e, end);
  g->synced = false;
  barrier(g);
  each_yield(g, v, hear);
  g->synced = false;
}

/* Emits a store in code that all threads run: thread 0 alone stores. */
static void store(Gpu *g, LVal v) {
  Emit *e = g->e;
  barrier(g);
  LLVMBasicBlockRef end = only_below(e, 1);
  emit_range(e, v, v + 1);
  all_again(e, end);
  g->synced = false;
  barrier(g);
}

static void iterations(Gpu *g, LVal v) {
  Emit *e = g->e;
  Loop l;
  emit_loop(e, &l, emit_i64(e, 0), emit_operand(e, v, 0).v, 1);
  emit_set(e, v, one_uniform(l.i));
  g->synced = false;
  block_range(g, v + 1, e->k->ins[v].match);
  emit_loop_end(e, &l);
  g->synced = false;
}

static void branch(Gpu *g, LVal v) {
  Emit *e = g->e;
  LLVMBasicBlockRef then = emit_new_block(e, "then"), end = emit_new_block(e, "end");
  LLVMBuildCondBr(B, emit_operand(e, v, 0).v, then, end);
  LLVMPositionBuilderAtEnd(B, then);
  g->synced = false;
  block_range(g, v + 1, e->k->ins[v].match);
  all_again(e, end);
  g->synced = false;
}

/* ---- tiles */

/* Copies one element of a slice from global to shared memory, if `there` is true. */
static void bring(Gpu *g, DType dt, LLVMValueRef there, LLVMValueRef from, LLVMValueRef from_at,
                  LLVMValueRef to, LLVMValueRef to_at) {
  Emit *e = g->e;
  LLVMTypeRef t = emit_type(e, dt);
  LLVMBasicBlockRef some = emit_new_block(e, "bring"), end = emit_new_block(e, "brought");
  LLVMBuildCondBr(B, there, some, end);
  LLVMPositionBuilderAtEnd(B, some);
  LLVMBuildStore(B, emit_load_n(e, dt, from, from_at, 1), element(e, t, to, to_at));
  all_again(e, end);
}

static LLVMValueRef both(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildAnd(B, x, y, "");
}
static LLVMValueRef add(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildAdd(B, x, y, "");
}
static LLVMValueRef mul(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  return LLVMBuildMul(B, x, y, "");
}
static LLVMValueRef quotient(Emit *e, LLVMValueRef x, int by) {
  return LLVMBuildUDiv(B, x, emit_i64(e, by), "");
}
static LLVMValueRef rest(Emit *e, LLVMValueRef x, int by) {
  return LLVMBuildURem(B, x, emit_i64(e, by), "");
}
static LLVMValueRef below(Emit *e, LLVMValueRef x, LLVMValueRef y) {
  return icmp(e, LLVMIntSLT, x, y);
}

/* Element number tid + q * THREADS of the tile, in rows of nr. */
typedef struct Place {
  LLVMValueRef row, col, there;
} Place;

static Place place_of(Emit *e, LVal v, LLVMValueRef q, const LLVMValueRef *op) {
  int nr = e->k->ins[v].nr;
  LLVMValueRef at = add(e, emit_gpu_thread(e), mul(e, q, emit_i64(e, THREADS)));
  Place p = {quotient(e, at, nr), rest(e, at, nr), NULL};
  p.there = both(e, below(e, p.row, op[TILE_ROWS]), below(e, p.col, op[TILE_COLS]));
  return p;
}

static void tile(Gpu *g, LVal v) {
  Emit *e = g->e;
  const LIns *in = &e->k->ins[v];
  DType dt = (DType)in->dtype;
  int mr = in->mr, nr = in->nr, each = (mr * nr + THREADS - 1) / THREADS;
  LLVMTypeRef t = emit_type(e, dt);
  LLVMValueRef op[TILE_OPERANDS], acc[16];
  for (int i = 0; i < TILE_OPERANDS; i++) op[i] = emit_operand(e, v, i).v;
  LLVMValueRef sa = shared_at(g, emit_i64(e, g->stage));
  LLVMValueRef sb = element(e, t, sa, emit_i64(e, mr * SLICE));
  Loop outer, l;
  for (int q = 0; q < each; q++) {
    acc[q] = emit_alloca(e, t, "acc");
    LLVMBuildStore(B, LLVMConstNull(t), acc[q]);
    if (in->buf_start == LP_NO_BUF) continue;
    Place p = place_of(e, v, emit_i64(e, q), op);
    LLVMValueRef at = add(e, op[TILE_START], mul(e, p.row, op[TILE_START_ROW]));
    bring(g, dt, p.there, e->buf[in->buf_start], add(e, at, p.col), acc[q], emit_i64(e, 0));
  }
  emit_loop(e, &outer, emit_i64(e, 0), op[TILE_DEPTH], SLICE);
  g->synced = false;
  barrier(g);
  emit_loop(e, &l, emit_gpu_thread(e), emit_i64(e, mr * SLICE), THREADS);
  LLVMValueRef i = quotient(e, l.i, SLICE), k = add(e, outer.i, rest(e, l.i, SLICE));
  LLVMValueRef from = add(e, mul(e, i, op[TILE_A_ROW]), mul(e, k, op[TILE_A_STEP]));
  bring(g, dt, both(e, below(e, i, op[TILE_ROWS]), below(e, k, op[TILE_DEPTH])), e->buf[in->buf],
        add(e, op[TILE_A], from), sa, l.i);
  emit_loop_end(e, &l);
  emit_loop(e, &l, emit_gpu_thread(e), emit_i64(e, nr * SLICE), THREADS);
  LLVMValueRef j = rest(e, l.i, nr);
  k = add(e, outer.i, quotient(e, l.i, nr));
  from = add(e, mul(e, k, op[TILE_B_STEP]), j);
  bring(g, dt, both(e, below(e, j, op[TILE_COLS]), below(e, k, op[TILE_DEPTH])), e->buf[in->buf_b],
        add(e, op[TILE_B], from), sb, l.i);
  emit_loop_end(e, &l);
  g->synced = false;
  barrier(g);
  LLVMValueRef depth[2] = {LLVMBuildSub(B, op[TILE_DEPTH], outer.i, ""), emit_i64(e, SLICE)};
  emit_loop(e, &l, emit_i64(e, 0), emit_intrinsic(e, "llvm.smin", LLVMTypeOf(depth[0]), 2, depth),
            1);
  for (int q = 0; q < each; q++) { /* elements beyond the tile read anything within the slices */
    Place p = place_of(e, v, emit_i64(e, q), op);
    LLVMValueRef row = mr * nr % THREADS ? rest(e, p.row, mr) : p.row;
    LLVMValueRef x = element(e, t, sa, add(e, mul(e, row, emit_i64(e, SLICE)), l.i));
    LLVMValueRef y = element(e, t, sb, add(e, mul(e, l.i, emit_i64(e, nr)), p.col));
    x = LLVMBuildLoad2(B, t, x, "");
    y = LLVMBuildLoad2(B, t, y, "");
    LLVMBuildStore(B, emit_fma(e, x, y, LLVMBuildLoad2(B, t, acc[q], "")), acc[q]);
  }
  emit_loop_end(e, &l);
  emit_loop_end(e, &outer);
  g->synced = false;
  barrier(g); /* the epilogue may store to memory that the tile has read */
  LLVMValueRef all = emit_alloca(e, LLVMArrayType2(t, (uint64_t)each), "tile");
  for (int q = 0; q < each; q++) {
    LLVMValueRef x = LLVMBuildLoad2(B, t, acc[q], "");
    LLVMBuildStore(B, x, element(e, t, all, emit_i64(e, q)));
  }
  emit_loop(e, &l, emit_i64(e, 0), emit_i64(e, each), 1);
  Place p = place_of(e, v, l.i, op);
  LLVMBasicBlockRef some = emit_new_block(e, "epilogue"), end = emit_new_block(e, "next");
  LLVMBuildCondBr(B, p.there, some, end);
  LLVMPositionBuilderAtEnd(B, some);
  emit_set(e, v, one_uniform(LLVMBuildLoad2(B, t, element(e, t, all, l.i), "")));
  for (LVal u = v + 1; u < in->match; u++) {
    if (e->k->ins[u].op != LP_ROW && e->k->ins[u].op != LP_COL) continue;
    emit_set(e, u, one_uniform(e->k->ins[u].op == LP_ROW ? p.row : p.col));
  }
  emit_range(e, v + 1, in->match);
  all_again(e, end);
  emit_loop_end(e, &l);
  g->synced = false;
  barrier(g);
}

/* ---- the walk */

static void block_range(Gpu *g, LVal first, LVal end) {
  Emit *e = g->e;
  const LIns *ins = e->k->ins;
  for (LVal v = first; v < end && !e->failed; v++) {
    switch (ins[v].op) {
    case LP_PAR:
    case LP_FOR: iterations(g, v); break;
    case LP_VEC: vec(g, v); break;
    case LP_RED: reduction(g, v); break;
    case LP_IF: branch(g, v); break;
    case LP_TILE: tile(g, v); break;
    case LP_STORE: store(g, v); continue;
    case LP_LOAD: g->synced = false; /* fall through */
    default: emit_range(e, v, v + 1); continue;
    }
    v = ins[v].match;
  }
}

/* Lays out shared memory and places the local buffers: in shared memory as far as it has room, else
 * at byte at[i] of the block's scratch. */
static void plan_shared(Gpu *g, int64_t *at) {
  Emit *e = g->e;
  const Kernel *k = e->k;
  int64_t slots = 0, stage = 0, local = 0;
  for (LVal v = 0; v < k->count; v++) {
    const LIns *in = &k->ins[v];
    int64_t n = in->op == LP_RED ? 8 * each_yield(g, v, NULL) : 0;
    int64_t m =
        in->op == LP_TILE ? (int64_t)dt_size((DType)in->dtype) * SLICE * (in->mr + in->nr) : 0;
    slots = slots > n ? slots : n;
    stage = stage > m ? stage : m;
  }
  g->stage = (slots + 63) / 64 * 64;
  int64_t size = (g->stage + stage + 63) / 64 * 64;
  for (size_t i = 0; i < k->buf_count; i++) {
    const LBuf *b = &k->bufs[i];
    int64_t most = SHARED_LOCAL / (int64_t)dt_size((DType)b->dtype);
    at[i] = -1;
    if (b->kind != LB_LOCAL || b->arg >= 0 || b->each > most) continue;
    int64_t bytes = b->each > 0 ? b->each * (int64_t)dt_size((DType)b->dtype) : 0;
    bytes = (bytes + 63) / 64 * 64;
    if (local + bytes > SHARED_LOCAL) continue;
    at[i] = size + local;
    local += bytes;
  }
  size += local;
  if (size > EMU_SHARED) emit_fail(e, "too much shared memory");
  if (e->emu) {
    g->shared = emulated(e, LLVMPointerTypeInContext(e->ctx, 0), offsetof(EmuThread, shared));
    return;
  }
  LLVMTypeRef t = LLVMArrayType2(LLVMInt8TypeInContext(e->ctx), (uint64_t)(size ? size : 1));
  g->shared = LLVMAddGlobalInAddressSpace(e->mod, t, "shared", SHARED);
  LLVMSetLinkage(g->shared, LLVMInternalLinkage);
  LLVMSetInitializer(g->shared, LLVMGetUndef(t));
  LLVMSetAlignment(g->shared, 64);
}

/* Computes the scratch of this block and the pointers of its local buffers (loop.h,
 * lp_local_bytes). */
static void place_locals(Gpu *g, const int64_t *at, LLVMValueRef scratch) {
  Emit *e = g->e;
  const Kernel *k = e->k;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->ctx), i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMValueRef total = emit_i64(e, 0);
  for (size_t i = 0; i < k->buf_count; i++) {
    const LBuf *b = &k->bufs[i];
    if (b->kind != LB_LOCAL) continue;
    LLVMValueRef bytes = emit_i64(e, b->each * (int64_t)dt_size((DType)b->dtype));
    if (b->arg >= 0) bytes = mul(e, bytes, e->arg[b->arg]);
    LLVMValueRef max[2] = {bytes, emit_i64(e, 0)};
    bytes = emit_intrinsic(e, "llvm.smax", i64, 2, max);
    e->buf[i] = total;
    total = add(e, total, both(e, add(e, bytes, emit_i64(e, 63)), emit_i64(e, -64)));
  }
  scratch = element(e, i8, scratch, mul(e, block_number(e), total));
  for (size_t i = 0; i < k->buf_count; i++) {
    if (k->bufs[i].kind != LB_LOCAL) continue;
    e->buf[i] = at[i] >= 0 ? shared_at(g, emit_i64(e, at[i])) : element(e, i8, scratch, e->buf[i]);
  }
}

/* Requires launches with THREADS threads in a block. */
static void annotate(Emit *e) {
  LLVMMetadataRef m[3] = {LLVMValueAsMetadata(e->fn), LLVMMDStringInContext2(e->ctx, "reqntidx", 8),
                          LLVMValueAsMetadata(emit_i32(e, THREADS))};
  LLVMValueRef node = LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, m, 3));
  LLVMAddNamedMetadataOperand(e->mod, "nvvm.annotations", node);
}

/* Parameters of the entry, which differ between PTX and the emulator. */
typedef struct Entry {
  LLVMValueRef arg, lo, scratch, status;
} Entry;

static void start_function(Emit *e, LLVMTypeRef *par, unsigned n) {
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), par, n, false);
  e->fn = emit_function(e, "k", type, false);
  e->entry = emit_new_block(e, "entry");
  LLVMBasicBlockRef start = emit_new_block(e, "start");
  LLVMPositionBuilderAtEnd(B, e->entry);
  LLVMBuildBr(B, start);
  LLVMPositionBuilderAtEnd(B, start);
}

static void entry_ptx(Emit *e, Entry *x) {
  const Kernel *k = e->k;
  unsigned n = 0, j = 0;
  LLVMTypeRef par[504], global = LLVMPointerTypeInContext(e->ctx, GLOBAL);
  for (size_t i = 0; i < k->buf_count; i++) {
    if (k->bufs[i].kind == LB_LOCAL) continue;
    if (n == 500) {
      emit_fail(e, "too many buffers for an entry of PTX");
      return;
    }
    par[n++] = global;
  }
  par[n] = par[n + 2] = par[n + 3] = global;
  par[n + 1] = LLVMInt64TypeInContext(e->ctx);
  start_function(e, par, n + 4);
  LLVMSetFunctionCallConv(e->fn, KERNEL);
  annotate(e);
  for (size_t i = 0; i < k->buf_count; i++)
    if (k->bufs[i].kind != LB_LOCAL) e->buf[i] = LLVMGetParam(e->fn, j++);
  *x = (Entry){LLVMGetParam(e->fn, n), LLVMGetParam(e->fn, n + 1), LLVMGetParam(e->fn, n + 2),
               LLVMGetParam(e->fn, n + 3)};
}

static void entry_emulated(Emit *e, Entry *x) {
  const Kernel *k = e->k;
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0), i64 = LLVMInt64TypeInContext(e->ctx);
  LLVMTypeRef par[6] = {ptr, ptr, i64, i64, ptr, ptr};
  start_function(e, par, 6);
  e->emu = LLVMGetParam(e->fn, 4);
  for (size_t i = 0; i < k->buf_count; i++) {
    LLVMValueRef at = element(e, ptr, LLVMGetParam(e->fn, 0), emit_i64(e, (int64_t)i));
    if (k->bufs[i].kind != LB_LOCAL) e->buf[i] = LLVMBuildLoad2(B, ptr, at, "");
  }
  *x = (Entry){LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2),
               emulated(e, ptr, offsetof(EmuThread, scratch)), LLVMGetParam(e->fn, 5)};
}

static void kernel(Emit *e, const Entry *x) {
  const Kernel *k = e->k;
  Gpu g = {.e = e};
  LLVMTypeRef i64 = LLVMInt64TypeInContext(e->ctx), i32 = LLVMInt32TypeInContext(e->ctx);
  int64_t *at = malloc((k->buf_count + 1) * sizeof *at);
  if (!at) emit_fail(e, "out of memory");
  if (e->failed) return;
  e->fail = emit_alloca(e, i32, "fail");
  LLVMBuildStore(B, emit_i32(e, 0), e->fail);
  for (uint32_t i = 0; i < k->arg_count; i++) {
    e->arg[i] = LLVMBuildLoad2(B, i64, element(e, i64, x->arg, emit_i64(e, (int64_t)i)), "");
  }
  plan_shared(&g, at);
  place_locals(&g, at, x->scratch);
  free(at);
  LVal top = 0;
  while (k->ins[top].op != LP_PAR) top++;
  e->width = 1;
  block_range(&g, 0, top);
  emit_set(e, top, one_uniform(add(e, x->lo, block_number(e))));
  block_range(&g, top + 1, k->ins[top].match);
  if (e->failed) return;
  LLVMBasicBlockRef say = emit_new_block(e, "tell"), end = emit_new_block(e, "return");
  LLVMValueRef failed = LLVMBuildLoad2(B, i32, e->fail, "");
  LLVMBuildCondBr(B, icmp(e, LLVMIntNE, failed, emit_i32(e, 0)), say, end);
  LLVMPositionBuilderAtEnd(B, say);
  LLVMBuildStore(B, emit_i32(e, 1), x->status);
  all_again(e, end);
  LLVMBuildRetVoid(B);
}

static void make_ptx(Emit *e) {
  Entry x = {0};
  entry_ptx(e, &x);
  kernel(e, &x);
}

static void make_emulated(Emit *e) {
  Entry x = {0};
  entry_emulated(e, &x);
  kernel(e, &x);
}

bool emit_emulated(const Kernel *k, const EngTarget *target, char **out, size_t *n, char *err,
                   size_t err_n) {
  Emit e = {.k = k, .target = target, .gpu = true, .emulate = true, .err = err, .err_n = err_n};
  return emit_module(&e, target->machine->triple, target->name, make_emulated, EMIT_OBJECT, out, n);
}

bool emit_ptx(const Kernel *k, const char *cpu, char **out, size_t *n, char *err, size_t err_n) {
  const EngTarget gpu = {.name = cpu, .has = HAS_ALL};
  Emit e = {.k = k, .target = &gpu, .gpu = true, .err = err, .err_n = err_n};
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  return emit_module(&e, "nvptx64-nvidia-cuda", cpu, make_ptx, EMIT_ASM, out, n);
}
