/* Properties of trees, and the function nodes that replace constructs. */
#ifndef CKL_LANG_NAMES_DESUGAR_H
#define CKL_LANG_NAMES_DESUGAR_H

#include "lang/lang.h"

Node *desugar_wrap(Session *s, Node *wrap);                    /* fn() { body } */
Node *desugar_comp(Session *s, Node *comp, const bool *given); /* fn(source, ..) = [..] */
/* Whether fn is such a function. */
bool desugar_is_comp(const FnObj *fn);
Node *desugar_model(Session *s, Node *model); /* a function with the model's parameters */
/* Why the body of a function literal is no code, and where; NULL: it is code. */
const char *desugar_why_not_code(Session *s, const FnObj *f, Span *at);
bool desugar_is_code(Session *s, Node *lambda);
/* Whether range k of a comprehension reads a variable of an earlier range. */
bool desugar_mentions_earlier(const Node *comp, uint32_t k);
bool desugar_name_is_none(Session *s, const Node *e);
/* Whether the function itself binds that name first. */
bool desugar_local_binds(Node *fn, Name name);
/* Whether the function calls `grad` by that name, in itself or in a function inside. */
bool desugar_takes_grad(Session *s, Node *fn);

#endif
