/* Annotations: values against types, and sizes as numbers. */
#ifndef CKL_LANG_EVAL_TYPE_H
#define CKL_LANG_EVAL_TYPE_H

#include "lang/lang.h"

/* What a message calls a value: "argument `x` of `f`", or a part of what `of` is: "element 2 of x".
 * It becomes text if the value does not fit. */
typedef struct Subject {
  enum {
    SUBJECT_WHOLE,
    SUBJECT_ELEMENT,
    SUBJECT_ITEM,
    SUBJECT_FIELD,
    SUBJECT_KEY,
    SUBJECT_AT
  } kind;
  const struct Subject *of;
  const char *text[5]; /* WHOLE: one after the other; FIELD: its name */
  Value key;           /* KEY, AT; of ELEMENT and ITEM the number */
} Subject;
/* Checks v against a type, and binds the dims in its brackets (as locals of the frame) and classes.
 * Returns v, or v made definite: weak numbers become tensors if the type demands it. */
Value type_match(Session *s, Node *type, Value v, Span at, const Subject *what);
/* Shape and dtype of a tensor type whose dims are all known: declarations of params. */
void type_eval(Session *s, Node *type, Type *out);
void type_bind(Session *s, Node *type, Value v);
/* Whether values of the type are several, or a text: no tensor, number, bool. *open: what they are
 * made of is not the same for all of them. */
bool type_is_structured(Session *s, Node *type, bool *open);
/* The type of a part of values of `type`: of field `field` of a record; of the value of `key` of a
 * dict, which is matched; of element number `key` of a list. NULL: any. *part is then the part of
 * what `of` names. */
Node *type_of_part(Session *s, Node *type, Name field, Value key, Span at, const Subject *of,
                   Subject *part);
/* The value of that type that a buffer has at first: zeros, nothing. */
Value type_empty(Session *s, Node *type, Span at);
/* Whether a number becomes a tensor there, and its dtype; DT_COUNT: the type does not say. */
bool type_wants_tensor(Session *s, Node *type, DType *dtype);
/* an int number as a Dim of the stage's table */
Dim type_dim_of(Session *s, Value v, Span at, const char *what);
Value type_dim_value(Session *s, Dim d); /* V_INT when constant, else V_DIM */

#endif
