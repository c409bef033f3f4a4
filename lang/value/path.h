/* The names of instances ("net.blocks.0") and their methods in messages. */
#ifndef CKL_LANG_VALUE_PATH_H
#define CKL_LANG_VALUE_PATH_H

#include "lang/lang.h"

Name path_stage(Session *s);           /* of the instance whose method is staged, or NULL */
Name path_frame(Session *s, Frame *f); /* of the instance of f */
const char *path_frame_title(Session *s,
                             Frame *f); /* "net.blocks.0.forward", or a function's name */
const char *path_fn_title(Session *s, const FnObj *f);
/* "net.blocks.0.forward": the method of i whose text is around `at`, or the path of i alone.
 * `roots`: instances that may hold i. */
const char *path_place_title(Session *s, Inst *i, Inst *const *roots, size_t n, Span at);

#endif
