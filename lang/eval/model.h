/* Models: what their declarations say, and trees of what instances hold. */
#ifndef CKL_LANG_EVAL_MODEL_H
#define CKL_LANG_EVAL_MODEL_H

#include "lang/lang.h"

Node *model_method(Session *s, const ModelDecl *m, Name name); /* NULL: it has none */
Name model_member_name(const Node *m); /* of a parameter or member; NULL: it has none */
/* Makes finding what a large model has under a name quick. */
void model_index(Session *s, Node *model);
/* The first parameter of that name, else parameters + the first member; TABLE_NONE: none. */
ptrdiff_t model_find(Session *s, const Node *model, Name name);

/* record of params (values: read), none if frozen */
Value model_params_tree(Session *s, Inst *i, bool values);
Value model_buffers_tree(Session *s, Inst *i);

#endif
