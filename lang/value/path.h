/* What the program calls an instance ("net.blocks.0") and its methods. */
#ifndef CKL_LANG_VALUE_PATH_H
#define CKL_LANG_VALUE_PATH_H

#include "lang/lang.h"

Name stage_path(Session *s);                   /* of the method that is staged, or NULL */
Name frame_path(Session *s, Frame *f);         /* of f's own instance */
const char *frame_title(Session *s, Frame *f); /* "net.blocks.0.forward", or a function's name */
const char *fn_title(Session *s, const FnObj *f);
/* method of i there */
const char *place_title(Session *s, Inst *i, Inst *const *roots, size_t n, Span at);

#endif
