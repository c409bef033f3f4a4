/* Values as text, without their tensors: what `save` writes of a buffer whose structure may
 * change. */
#ifndef CKL_LANG_VALUE_PACKED_H
#define CKL_LANG_VALUE_PACKED_H

#include "lang/lang.h"

/* Appends the structure of v, with its numbers and texts; of a tensor only that it is one. */
void packed_put(Session *s, Buf *b, Value v);
/* The tensor at a path below the value that is read. */
typedef Value (*PackedTensor)(Session *s, void *ud, const char *path);
/* Reads what packed_put has written into *v. False: the text is no such thing. */
bool packed_get(Session *s, const char *text, PackedTensor tensor, void *ud, const char *path,
                Value *v);

#endif
