/* Single operations of script: they are counted, and run as machine code if that pays. */
#ifndef CKL_LANG_COMPILE_EAGER_KERNELS_H
#define CKL_LANG_COMPILE_EAGER_KERNELS_H

#include "graph/run.h"
#include "graph/structure.h"
#include "lang/lang.h"

/* Runs one operation, as gr_run_op does. */
bool native_op(Session *s, RunCtx *c, OpCode op, const Attr *attrs, int nattrs, Tensor *const *in,
               int nin, Tensor **out, int nout, GErr *e);
void report_op_count(Session *s, OpCode op); /* report.c */

#endif
