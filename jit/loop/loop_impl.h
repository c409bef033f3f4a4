/* What the files of the loop form share: the table of ops and single scalar steps. */
#ifndef CKL_JIT_LOOP_LOOP_IMPL_H
#define CKL_JIT_LOOP_LOOP_IMPL_H

#include "jit/loop/loop.h"

/* Limits of a kernel, checked by lp_verify, and so by lp_read. */
enum { LP_MAX_DEPTH = 32, LP_MAX_INS = 65000, LP_MAX_BUFS = 1000, LP_MAX_ARGS = 10000 };

/* The part of an instruction's text between the dtype and the operands. */
typedef enum LForm { LF_PLAIN, LF_IMM, LF_BUF, LF_RED, LF_TILE } LForm;

typedef struct LOpInfo {
  const char *name; /* LP_UN, LP_BIN: "" (the text has the name of the function) */
  int8_t operands;  /* -1: LP_YIELD, 1 or 2 */
  bool opens;       /* opens a block */
  bool value;       /* has a value, printed as %N = */
  bool pure;        /* depends on operands and imm alone, without effects, int / and % apart */
  uint8_t form;
} LOpInfo;

extern const LOpInfo lp_info[LP_COUNT];
extern const char *const lp_red_name[RED_COUNT], *const lp_buf_name[4];

/* One scalar: `f` for f16, bf16 and f32 (exactly a value of the dtype), `d` for f64, else `i`, in
 * the dtype's range. */
typedef union LScalar {
  int64_t i;
  uint64_t u;
  float f;
  double d;
} LScalar;

/* The value of a pure op other than LP_CONST, LP_ARG and LP_RESULT, LP_ROW, LP_COL. `from`: dtype
 * of the operands (of LP_WHERE the second). False when it sets the fail flag; *out is 0 then. */
bool lp_eval(LOp op, int64_t imm, DType dt, DType from, const LScalar *x, LScalar *out);
LScalar lp_scalar(DType dt, int64_t imm);    /* of a constant or a literal: see LP_CONST, LP_ARG */
int64_t lp_scalar_bits(DType dt, LScalar x); /* the imm of an LP_CONST; one NaN for all */
int64_t lp_wrap(DType dt, int64_t x);        /* ints: to the dtype's range; bool: x != 0 */

float lp_round(DType dt, float x); /* f16, bf16: to the dtype; else x */

/* An instruction without buffers; appends one with these operands, and keeps the brackets. */
LIns lp_ins(LOp op, DType dt, int64_t imm);
LVal lp_push(Kernel *k, LIns in, int n, const LVal *operand);
/* Appends a pure op, or the constant that it folds to. */
LVal lp_pure(Kernel *k, LOp op, int64_t imm, DType dt, int n, const LVal *operand);

/* Whether instruction v may set the fail flag, as int / and % by 0 and negative int powers do. A
 * constant right operand decides it. */
bool lp_may_fail(const Kernel *k, LVal v);

#endif
