/* From loop form to machine code of the host, by LLVM. Inside ckl-codegen only.
 *
 * A kernel becomes one function `k` (KernelFn) in an ELF object without any other global symbol and
 * without calls of anything outside. Every operation is the one rounded operation that loop.h
 * names; nothing is fused or reordered.
 *
 * How values are held. Code is emitted at a width: 1 (scalar), or EMIT_LANES inside an LP_VEC or an
 * LP_RED whose iterations became lanes. In scalar code every value is uniform. In lanes a value is
 *   uniform   the same for all lanes: a scalar
 *   linear    base + lane * step, both scalars: i64 only
 *   vector    <16 x T>
 * T of bool is i1; f16 and bf16 are float, already rounded; ints have their own width.
 */
#ifndef CKL_JIT_CODEGEN_EMIT_H
#define CKL_JIT_CODEGEN_EMIT_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "jit/engine/target.h"
#include "jit/loop/loop.h"

enum { EMIT_OBJECT, EMIT_IR, EMIT_ASM }; /* what emit_kernel makes */
enum { EMIT_LANES = 16 };

/* Makes machine code (an ELF object) or text of a verified kernel. `what` is EMIT_OBJECT, EMIT_IR
 * or EMIT_ASM. *out is malloc'ed and has *n bytes. False with a message in `err`. */
bool emit_kernel(const Kernel *k, const EngTarget *target, unsigned what, char **out, size_t *n,
                 char *err, size_t err_n);
/* PTX text for a GPU that is `cpu`, "sm_80" or "sm_90", by the same conventions (emit_gpu.c). */
bool emit_ptx(const Kernel *k, const char *cpu, char **out, size_t *n, char *err, size_t err_n);
/* Makes an object for the emulator of emu.h, by the same conventions. */
bool emit_emulated(const Kernel *k, const EngTarget *target, char **out, size_t *n, char *err,
                   size_t err_n);
/* Initialises LLVM for the host; once per process. */
void emit_init(void);

typedef enum OneKind { ONE_UNIFORM, ONE_LINEAR, ONE_VECTOR } OneKind;
typedef struct One {
  OneKind kind;
  LLVMValueRef v;    /* the scalar, the base, the vector */
  LLVMValueRef step; /* LINEAR */
} One;

typedef struct Emit {
  const Kernel *k;
  const EngTarget *target;
  LLVMContextRef ctx;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  LLVMValueRef fn;           /* the function under construction, for new blocks */
  LLVMBasicBlockRef entry;   /* where allocas go */
  LLVMBasicBlockRef leave;   /* jump here to return early */
  LLVMValueRef *buf;         /* per buffer: its pointer */
  LLVMValueRef *arg;         /* per argument: its i64, loaded at entry */
  LLVMValueRef status, fail; /* KStatus *; alloca of i32, stored to it at the end */
  LLVMValueRef *bytes;       /* per buffer, in a checked kernel; else NULL */
  LLVMBasicBlockRef outside; /* jump here if an address is outside; allocas of the report */
  LLVMValueRef fault_at, fault_site;
  LVal now;           /* the instruction under construction */
  One *val;           /* per instruction */
  int width;          /* 1 or EMIT_LANES */
  LLVMValueRef lane0; /* of the latest loop over lanes: a multiple of EMIT_LANES */
  LLVMValueRef mask;  /* <16 x i1>: the active lanes, at least one; NULL = all */
  struct Red *red;    /* innermost LP_RED: see emit.c */
  bool gpu;           /* code of one GPU thread: width 1, and all blocks are loops */
  bool emulate;       /* that GPU is an emulator: code of the host */
  LLVMValueRef emu;   /* its EmuThread * */
  bool team;          /* EMIT_LANES threads compute the next LP_RED together */
  int math_n;         /* the width at which functions of fmath.inc are being expanded */
  char *err;
  size_t err_n;
  bool failed;
} Emit;

/* ---- emit.c */

/* Emits instructions first .. end-1 (whole blocks) at the present width and mask. */
void emit_range(Emit *e, LVal first, LVal end);
void emit_fail(Emit *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Values of instructions. */
static inline One emit_get(Emit *e, LVal v) {
  return e->val[v];
}
static inline One emit_operand(Emit *e, LVal v, int i) {
  return e->val[lp_operand(e->k, v, i)];
}
static inline void emit_set(Emit *e, LVal v, One x) {
  e->val[v] = x;
}
/* The operand as a scalar; only for uniform values (sizes, bases of tiles). */
static inline LLVMValueRef emit_scalar(Emit *e, LVal v) {
  return e->val[v].v;
}

LLVMValueRef emit_alloca(Emit *e, LLVMTypeRef t, const char *name); /* at entry, 64-byte aligned */
LLVMBasicBlockRef emit_new_block(Emit *e, const char *name);
/* Whether the target has these instructions, HAS_*. */
static inline bool emit_has(const Emit *e, unsigned what) {
  return (e->target->has & what) == what;
}

/* Makes a module of e->k by `make`, and machine code or text of it in *out, *n: see emit_kernel. */
typedef void EmitMake(Emit *e);
bool emit_module(Emit *e, const char *triple, const char *cpu, EmitMake *make, unsigned what,
                 char **out, size_t *n);
LLVMValueRef emit_function(Emit *e, const char *name, LLVMTypeRef type, bool internal);

/* Internal functions. emit_fn_begin returns true if `name` (at most 40 bytes) does not exist yet;
 * the caller then emits its body up to emit_fn_end. *fn is the function in both cases. The body
 * cannot use values of the kernel. */
typedef struct EmitSaved {
  LLVMBasicBlockRef at, entry;
  LLVMValueRef fn;
} EmitSaved;
bool emit_fn_begin(Emit *e, EmitSaved *s, const char *name, LLVMTypeRef type, LLVMValueRef *fn);
void emit_fn_end(Emit *e, EmitSaved *s);
LLVMValueRef emit_call(Emit *e, LLVMValueRef fn, int n, LLVMValueRef *arg);

/* for (i = from; i < to; i += step), signed: emits the head; the body follows; emit_loop_end
 * closes it. If from < to are constants, values of the last iteration can be used afterwards. */
typedef struct Loop {
  LLVMBasicBlockRef before, body, end;
  LLVMValueRef i, to;
  int64_t step;
} Loop;
void emit_loop(Emit *e, Loop *l, LLVMValueRef from, LLVMValueRef to, int64_t step);
void emit_loop_end(Emit *e, Loop *l);

/* Runs `body(e, ud, i)` for i in 0 .. n-1 in lanes: unmasked whole vectors, then one masked
 * rest. The present width is 1. `i` is the number of lane 0 (i64). */
typedef void EmitBody(Emit *e, void *ud, LLVMValueRef i);
void emit_lanes(Emit *e, LLVMValueRef n, EmitBody *body, void *ud);

/* ---- emit_value.c: types and operations at the present width */

LLVMTypeRef emit_type(Emit *e, DType dt);     /* of a scalar in registers: i1, i8 .., double */
LLVMTypeRef emit_mem_type(Emit *e, DType dt); /* of an element in memory: i16 for halves, .. */
LLVMTypeRef emit_vec(LLVMTypeRef t, int n);   /* <n x t>, or t when n is 1 */
LLVMValueRef emit_i64(Emit *e, int64_t x);
LLVMValueRef emit_i32(Emit *e, int32_t x);
LLVMValueRef emit_splat(Emit *e, LLVMValueRef x, int n);
LLVMValueRef emit_vector(Emit *e, One x); /* as <16 x T>; in scalar code as the scalar */
static inline One one_uniform(LLVMValueRef v) {
  return (One){ONE_UNIFORM, v, NULL};
}
static inline One one_vector(LLVMValueRef v) {
  return (One){ONE_VECTOR, v, NULL};
}
static inline One one_linear(LLVMValueRef v, LLVMValueRef step) {
  return (One){ONE_LINEAR, v, step};
}

/* A scalar constant; of ints and bool x is whole. */
LLVMValueRef emit_const(Emit *e, DType dt, double x);
/* Loads and stores of elements, at the present width, under the present mask. */
One emit_load(Emit *e, int buf, One index);
void emit_store(Emit *e, int buf, One index, One x);
/* Loads or stores <n x T> at an element's place, without mask; `n` 1: a scalar. T as emit_type. */
LLVMValueRef emit_load_n(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, int n);
void emit_store_n(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, LLVMValueRef x, int n);
/* Masked forms: only lanes of `mask` (<n x i1>) are loaded or stored; other lanes read as 0. */
LLVMValueRef emit_load_masked(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index,
                              LLVMValueRef mask, int n);
void emit_store_masked(Emit *e, DType dt, LLVMValueRef base, LLVMValueRef index, LLVMValueRef x,
                       LLVMValueRef mask, int n);

/* LLVM values of any one width (scalars, or vectors of equal length) in and out. */
LLVMValueRef emit_fma(Emit *e, LLVMValueRef x, LLVMValueRef y, LLVMValueRef z); /* of floats */
LLVMValueRef emit_cast(Emit *e, DType from, DType to, LLVMValueRef x);
LLVMValueRef emit_round(Emit *e, DType dt, LLVMValueRef x); /* to f16, bf16 and back; else x */
LLVMValueRef emit_intrinsic(Emit *e, const char *name, LLVMTypeRef over, int n, LLVMValueRef *arg);
int emit_width_of(LLVMValueRef x); /* elements of its type; 1 for a scalar */
LLVMTypeRef emit_like(LLVMValueRef x, LLVMTypeRef scalar); /* `scalar` as wide as x */
/* Maps floats to ints in the order of max (or of min), and back: a NaN is past every number, -0 is
 * below +0. */
LLVMValueRef emit_key(Emit *e, bool max, LLVMValueRef x);
LLVMValueRef emit_unkey(Emit *e, LLVMValueRef u);
/* Straight-line i64 arithmetic and the like on Ones: keeps uniform and linear. */
One emit_one(Emit *e, LVal v); /* any scalar-code instruction */
/* Sets the fail flag if `bad` (i1 or <16 x i1>) is true in a lane of the mask. */
void emit_flag(Emit *e, LLVMValueRef bad);

/* ---- emit_math.c */
void emit_normal(Emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef *z0, LLVMValueRef *z1);

/* ---- emit_random.c */
One emit_random(Emit *e, LVal v); /* LP_UNIFORM .. LP_PHILOX */

/* ---- emit_gpu.c */
LLVMValueRef emit_gpu_thread(Emit *e); /* number of the thread in its block, i64 */
/* x of the thread whose number differs by bit `by` (1 .. 8), among threads 0 .. 15. */
LLVMValueRef emit_gpu_exchange(Emit *e, LLVMValueRef x, int by);

/* ---- emit_check.c: only where e->bytes. Begin: once the arguments, at `args`, are loaded. */
void emit_check_begin(Emit *e, LLVMValueRef args);
void emit_check_end(Emit *e);
/* Leaves the kernel unless n elements from the pointer `at` on, or those at n pointers, are in the
 * buffer. If `mask` is not NULL, only its lanes count. */
void emit_within(Emit *e, int buf, LLVMValueRef at, int n, LLVMValueRef mask);

/* ---- emit_transpose.c: emits an LP_FOR at width 1 if it transposes; else returns false. */
bool emit_transposed(Emit *e, LVal v);

/* ---- emit_tile.c: LP_TILE and its block, at width 1. */
void emit_tile(Emit *e, LVal v);

#endif
