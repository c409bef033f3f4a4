/* Recording an operation of script on the tape. */
#ifndef CKL_LANG_TAPE_RECORD_OP_H
#define CKL_LANG_TAPE_RECORD_OP_H

#include "graph/structure.h"
#include "lang/lang.h"

/* Records an operation on v (n operands) whose results are out (nout). */
void tape_record(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                 int nout, Value *out, Span at);

#endif
