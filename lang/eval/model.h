/* Models: their declarations, and trees of the params and buffers of instances. */
#ifndef CKL_LANG_EVAL_MODEL_H
#define CKL_LANG_EVAL_MODEL_H

#include "lang/lang.h"

Node *model_method(Session *s, const ModelDecl *m, Name name); /* NULL: there is none */
Name model_member_name(const Node *m); /* of a parameter or member; NULL: it has no name */
/* Builds the table of names of a large model, for model_find. */
void model_index(Session *s, Node *model);
/* The number of the first parameter of that name; else of the first member, counted after all
 * parameters; TABLE_NONE: there is none. */
ptrdiff_t model_find(Session *s, const Node *model, Name name);

/* A record of the params, or with `values` of their values; `none` for a frozen param. */
Value model_params_tree(Session *s, Inst *i, bool values);
Value model_buffers_tree(Session *s, Inst *i);

#endif
