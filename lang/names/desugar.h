/* Questions about trees, and the function nodes that constructs stand for. */
#ifndef CKL_LANG_NAMES_DESUGAR_H
#define CKL_LANG_NAMES_DESUGAR_H

#include "lang/lang.h"

Node *wrap_lambda(Session *s, Node *wrap);                    /* fn() { body } */
Node *comp_lambda(Session *s, Node *comp, const bool *given); /* fn(source, ..) = [..] */
Node *model_ctor(Session *s, Node *model); /* a function with the model's parameters */
/* Why the body of a function literal is no code, and where; NULL when it is. */
const char *why_not_code(Session *s, const FnObj *f, Span *at);
bool fn_is_code_legal(Session *s, Node *lambda);
/* range k reads a variable of an earlier range */
bool mentions_earlier(const Node *comp, uint32_t k);
bool name_is_none(Session *s, const Node *e);
bool local_binds(Node *fn, Name name); /* whether the function itself binds that name first */

#endif
