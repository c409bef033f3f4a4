/* Single operations of script: they run as machine code where that pays, and are counted. */
#ifndef CKL_LANG_COMPILE_EAGER_KERNELS_H
#define CKL_LANG_COMPILE_EAGER_KERNELS_H

#include "graph/opcode.h"
#include "graph/run.h"
#include "lang/lang.h"

/* As gr_run_op. */
bool native_op(Session *s, RunCtx *c, OpCode op, const Attr *attrs, int nattrs, Tensor *const *in,
               int nin, Tensor **out, int nout, GErr *e);
void report_op_count(Session *s, OpCode op); /* report.c */

#endif
