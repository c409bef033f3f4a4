/* Loop form: one fused kernel as parallel loops, reductions, tiles and straight-line scalar code.
 *
 * It stands between the graph and any target. A Kernel is an array of instructions; an
 * instruction's number names its value. Loops are brackets (LP_PAR .. LP_END). There are no types
 * to infer: every value has a dtype. Addresses are i64 values in elements, made by the same
 * instructions as data, so that a target sees whether each address is the same for all lanes, has
 * unit stride, or neither.
 *
 * This header fixes the result of a kernel to the bit (rules 103 to 107). The schedule (vectors,
 * lanes, blocks of threads) is the target's choice. The canonical text of a kernel (lp_print) has
 * no names, spans or sizes other than constants of the program: literals and sizes are arguments.
 * The text with the target level is the key under which machine code is kept.
 *
 * Values of f16 and bf16 are computed in f32 and rounded to their dtype by each instruction. Ints
 * wrap. i64 values that count or address never pass 2^62.
 */
#ifndef CKL_JIT_LOOP_LOOP_H
#define CKL_JIT_LOOP_LOOP_H

#include "jit/loop/kernel_status.h"
#include "runtime/err.h"
#include "runtime/str.h"
#include "runtime/tensor.h"

typedef uint32_t LVal; /* number of the instruction that makes it */
#define LV_NONE UINT32_MAX

typedef enum LOp {
  /* ---- structure; each of the first six opens a block that LP_END closes */
  LP_PAR,  /* n: iterations 0 .. n-1 in any order, by any thread; value: its number. A kernel has
              exactly one at the top, after straight-line code; its n is LP_ARG or LP_CONST. It may
              be nested. */
  LP_VEC,  /* n: iterations independent of each other and cheap: a target makes lanes of them */
  LP_FOR,  /* n: iterations in order */
  LP_RED,  /* n: a reduction over the iterations by rule 105, of the values of LP_YIELD. Several
              LP_YIELD in one LP_RED: several reductions in one pass, read by LP_RESULT */
  LP_IF,   /* bool (may differ between the lanes of an outer LP_VEC): the block runs where true */
  LP_TILE, /* a block of a contraction, see LTile: the block is the epilogue, run for each element
              of the tile; value: the element's chain (f32 or f64) */
  LP_END,
  LP_YIELD,  /* imm: LRed kind; value x, or x, y for RED_FMA and RED_CHAIN. Only directly in an
                LP_RED */
  LP_RESULT, /* operand: an LP_YIELD of a closed LP_RED; value: the reduction's result */
  LP_ROW,    /* operand: the LP_TILE around; the element's row in the tile, 0 .. rows-1 */
  LP_COL,    /* likewise; the element's column, 0 .. cols-1 */
  /* ---- constants and arguments */
  LP_CONST, /* imm: i64 or bool value, or the bits of an f64 that the dtype represents */
  LP_ARG,   /* imm: number of the argument; an i64 size or stride, or a literal: for float dtypes
               the bits of an f64, rounded once to the dtype; else an i64 that is wrapped (bool: is
               it not 0) */
  /* ---- memory. buf: number of the buffer */
  LP_LOAD,  /* index */
  LP_STORE, /* index, value */
  /* ---- variables: a mutable scalar, alive in the block that made it. Not across iterations of
   * LP_PAR or LP_VEC but private to each */
  LP_VAR, /* start; value: the variable */
  LP_GET, /* variable */
  LP_SET, /* variable, value */
  /* ---- scalar code; imm: RefUn, RefBin; the bits of ref_elem.h hold */
  LP_UN,    /* x; imm RefUn. isnan, isinf: dtype bool */
  LP_BIN,   /* x, y of one dtype; imm RefBin. Comparisons: dtype bool. Int / and % by 0, and
               negative int exponents, set the fail flag and give 0 */
  LP_WHERE, /* bool, x, y */
  LP_CAST,  /* x; by rule 15; from dtype to dtype */
  LP_FMA,   /* x, y, z: x * y + z rounded once */
  LP_IDIV,  /* i64 x >= 0, y > 0: quotient. Else any value, but no trap; the values of inactive
               lanes (an index below 0 under a guard) do not affect active lanes */
  LP_IREM,  /* remainder, likewise */
  LP_CTZ,   /* i64 x > 0: trailing zeros, likewise */
  LP_CHECK, /* bool: sets the fail flag if false (an index out of range). Code goes on after it, so
               an access has to be guarded by itself: lowering clamps the index */
  /* ---- random numbers (runtime/rng.h): key words as i64, element number i64 */
  LP_UNIFORM, /* key, counter, element */
  LP_NORMAL,
  LP_RANDINT, /* key, counter, element, limit; i64 */
  LP_FOLD,    /* key, i: rng_fold; i64 */
  LP_PHILOX,  /* counter words 0..3, key words 0..1 (each i64, low 32 bits); imm: which word of the
                 result */
  LP_COUNT
} LOp;

/* Reductions. SUM .. ALL are those of ref.h in the order of rule 105: element number i (the
 * iteration) goes to lane i % 16 of its block of 4,096, lanes are combined by halving, blocks by
 * the tree. FMA: the same with lane = fma(x, y, lane). CHAIN: one fma chain over the iterations of
 * each block of 4,096, each from +0, block results added left to right. FIRST_MAX and FIRST_MIN:
 * the iteration (i64) of the first largest / smallest, a NaN counting as such; 0 where there are
 * none. Sums and chains of f16 and bf16 are f32 until the end; an empty sum is +0, an empty max or
 * min the end of the dtype. */
typedef enum LRed {
  RED_SUM,
  RED_PROD,
  RED_MAX,
  RED_MIN,
  RED_ANY,
  RED_ALL,
  RED_FMA,
  RED_CHAIN,
  RED_FIRST_MAX,
  RED_FIRST_MIN,
  RED_COUNT
} LRed;

/* Structure of blocks (lp_verify):
 *   top      straight-line code without stores and variables, which reads LB_IN alone; one LP_PAR,
 *            which ends the kernel
 *   PAR      not inside VEC, RED, TILE ("lanes"); likewise VEC and TILE
 *   RED      not inside RED or TILE; in a VEC it is a serial loop of each lane
 *   FOR      not inside TILE; IF anywhere under PAR, in lanes it may be divergent
 *   counts   of FOR and RED inside lanes are the same for all lanes: constants, arguments, values
 *            from outside, and pure functions of these
 *   a value  is used in the block of its instruction and blocks inside; an iteration inside its
 *            loop. An iteration of FOR, or of a RED inside VEC, is the same for all lanes.
 *   LP_SET   reaches its LP_VAR through FOR and IF alone; LP_GET from anywhere in scope
 *   TILE     dtype f32 or f64, that of its buffers; mr 1..32, nr 1..128 */

/* Operands of LP_TILE, in order. Element (i, j), i < rows, j < cols, of the tile is a chain over k
 * < depth, in ascending order, acc = fma(A[a + i*a_row + k*a_step], B[b + k*b_step + j], acc). It
 * starts from +0, or, if `buf_start` is a buffer, from its element start + i*start_row + j. `mr` x
 * `nr` is the shape in registers; the tile has `rows` <= mr and `cols` <= nr. Beyond them no
 * element is stored, and A and B are not read. */
typedef enum LTile {
  TILE_DEPTH,
  TILE_ROWS,
  TILE_COLS,
  TILE_A,
  TILE_A_ROW,
  TILE_A_STEP,
  TILE_B,
  TILE_B_STEP,
  TILE_START,
  TILE_START_ROW,
  TILE_OPERANDS
} LTile;

enum { LP_MAX_OPERANDS = TILE_OPERANDS, LP_NO_BUF = 0xffff };

typedef struct LIns {
  uint8_t op, dtype; /* dtype of the value; stores, ends: that of what they store, or DT_I64 */
  uint16_t buf;      /* LOAD STORE; TILE: A */
  uint16_t buf_b, buf_start; /* TILE */
  uint8_t mr, nr;            /* TILE */
  uint8_t operand_count;
  uint8_t depth;     /* blocks around it */
  uint32_t operand0; /* in Kernel.operands */
  uint32_t match;    /* of a block's opener: its LP_END, and vice versa */
  int64_t imm;
} LIns;

typedef enum LBufKind { LB_IN, LB_OUT, LB_INOUT, LB_LOCAL } LBufKind;
typedef struct LBuf {
  uint8_t kind, dtype;
  /* LB_LOCAL: scratch private to an iteration of the outermost LP_PAR, 64-byte aligned: its
   * elements are the value of argument `arg` (i64) times `each`, or `each` alone where arg < 0.
   * Contents are undefined at the start of an iteration. LB_OUT is not read, and does not overlap
   * another buffer. LB_INOUT is both, and one iteration reads only what no other iteration
   * writes. */
  int32_t arg;
  int64_t each;
} LBuf;

typedef struct Kernel {
  Arena *arena;
  LIns *ins;
  size_t count, cap;
  LVal *operands;
  size_t operand_count, operand_cap;
  LBuf *bufs;
  size_t buf_count, buf_cap;
  uint32_t arg_count;
  /* The kernel's machine code tests each address before the access. The arguments are followed by
   * the bytes of each buffer then (for local buffers any number). */
  bool checked;
  /* while it is built */
  uint32_t open[64];
  int open_count;
} Kernel;

static inline LVal lp_operand(const Kernel *k, LVal v, int i) {
  return k->operands[k->ins[v].operand0 + (uint32_t)i];
}

/* ---- building; all throw when out of memory */
Kernel *lp_new(Arena *a);
int lp_buf(Kernel *k, LBufKind kind, DType dt);           /* number of the new buffer */
int lp_local(Kernel *k, DType dt, int arg, int64_t each); /* LB_LOCAL */
LVal lp_i(Kernel *k, int64_t x);                          /* an i64 constant */
LVal lp_const(Kernel *k, DType dt, double x);             /* a constant; floats rounded to dt */
LVal lp_size(Kernel *k, int arg);                         /* i64 argument */
LVal lp_num(Kernel *k, DType dt, int arg);                /* a literal */
LVal lp_par(Kernel *k, LVal n);
LVal lp_vec(Kernel *k, LVal n);
LVal lp_for(Kernel *k, LVal n);
LVal lp_red(Kernel *k, LVal n);
LVal lp_yield(Kernel *k, LRed kind, LVal x, LVal y); /* y: LV_NONE where not FMA, CHAIN */
LVal lp_result(Kernel *k, LVal yield);               /* after lp_end of its LP_RED */
void lp_if(Kernel *k, LVal cond);
LVal lp_tile(Kernel *k, DType dt, int mr, int nr, int buf_a, int buf_b, int buf_start,
             const LVal operand[TILE_OPERANDS]);
LVal lp_row(Kernel *k, LVal tile);
LVal lp_col(Kernel *k, LVal tile);
void lp_end(Kernel *k);
LVal lp_load(Kernel *k, int buf, LVal index);
void lp_store(Kernel *k, int buf, LVal index, LVal v);
LVal lp_var(Kernel *k, LVal start);
LVal lp_get(Kernel *k, LVal var);
void lp_set(Kernel *k, LVal var, LVal v);
/* Functions of one and two numbers are appended by lp_un and lp_bin: loop_elem.h. */
LVal lp_where(Kernel *k, LVal c, LVal x, LVal y);
LVal lp_cast(Kernel *k, LVal x, DType to);
LVal lp_fma(Kernel *k, LVal x, LVal y, LVal z);
LVal lp_idiv(Kernel *k, LVal x, LVal y);
LVal lp_irem(Kernel *k, LVal x, LVal y);
LVal lp_op(Kernel *k, LOp op, DType dt, int n, const LVal *operand, int64_t imm); /* any other */
static inline DType lp_dtype(const Kernel *k, LVal v) {
  return (DType)k->ins[v].dtype;
}

/* ---- whole kernels */
/* The canonical form; run before printing. Drops instructions that nothing needs (a check and an
 * int division that may fail are needed), shares equal pure instructions where the earlier one is
 * in scope (loads excepted), folds constants, removes conditions and loops whose count is known to
 * be 0 or 1, and puts constants and arguments first. Numbers of arguments and buffers stay. */
Kernel *lp_clean(Arena *a, const Kernel *k);
Kernel *lp_copy(Arena *a, const Kernel *k); /* copies a finished kernel, without spare room */
void lp_print(Buf *out, const Kernel *k);
/* Reads and verifies a kernel. NULL with `e` on bad text, which may be any bytes. */
Kernel *lp_read(Arena *a, const char *text, size_t n, Err *e);
bool lp_verify(const Kernel *k, Err *e); /* every invariant in this header */
/* Whether buffer `to`, a result, may be the memory of `from`, an operand of as many elements: each
 * element of `from` is read by the iteration that writes the element of `to`, and before. The
 * result's buffer must become LB_INOUT then, since it overlaps another. `k` is clean (lp_clean). */
bool lp_can_replace(const Kernel *k, int from, int to);
bool lp_fails(const Kernel *k); /* whether a run may set the fail flag */
/* Bytes of all LB_LOCAL buffers of one thread, each rounded up to 64, in order. */
int64_t lp_local_bytes(const Kernel *k, const int64_t *args);
/* Iterations of the outermost LP_PAR. */
int64_t lp_iterations(const Kernel *k, const int64_t *args);

/* ---- the walk */
/* Runs iterations lo .. hi-1 by walking the instructions, one scalar at a time. This defines the
 * meaning of the form. It tests lowering without a code generator, and targets. `buf` has all
 * buffers; entries of LB_LOCAL are ignored. False when out of memory, or when an address is outside
 * of a local buffer. */
bool lp_run(Mem *m, const Kernel *k, void *const *buf, const int64_t *arg, int64_t lo, int64_t hi,
            KStatus *st);
/* Has the contract of lp_run, and tests each access against the number of elements of its buffer
 * (local ones apart): false with `e` before the first access outside. For tests of code that makes
 * kernels. (tests/unit/loop-gen.h makes random kernels and data, for tests of targets.) */
bool lp_run_within(Mem *m, const Kernel *k, void *const *buf, const int64_t *elements,
                   const int64_t *arg, int64_t lo, int64_t hi, KStatus *st, Err *e);
/* The same in working memory of the caller, lp_run_room bytes aligned like those of mem_try: it is
 * not out of memory. */
size_t lp_run_room(const Kernel *k, const int64_t *arg);
bool lp_run_in(void *room, const Kernel *k, void *const *buf, const int64_t *elements,
               const int64_t *arg, int64_t lo, int64_t hi, KStatus *st, Err *e);

#endif
