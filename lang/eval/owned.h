/* Values that the place that is assigned alone holds, changed where they are. */
#ifndef CKL_LANG_EVAL_OWNED_H
#define CKL_LANG_EVAL_OWNED_H

#include "lang/builtin/builtin.h"
#include "lang/eval/index.h"

/* Whether values change in place: in script, unless CKL_IN_PLACE=0. */
static inline bool owned_on(const Session *s) {
  return s->config.in_place && !s->stage && !s->abstract;
}
/* Drains the pool to the mark, but for the n values. From then on the count of an object says who
 * holds it: variables, elements, captures, running loops and calls, the tape, the host. Script. */
void owned_settle(Session *s, size_t mark, size_t n, const Value *keep);
/* Whether v is an object that its place alone holds, in a session that changes such in place. */
bool owned_alone(const Session *s, Value v);
/* Parts of v, as its holder counts them: taken before a change, for owned_item. */
uint32_t owned_parts(Value v);
/* `of` has one part less, which had `parts`. */
void owned_lose(Obj *of, uint32_t parts);
/* *slot of the owned list or record `of` becomes v; `before`: owned_parts of what stood there. */
void owned_item(Obj *of, Value *slot, Value v, uint32_t before);
/* What is known of a list or dict after calls of builtins that may change it where it is. */
typedef struct Sure {
  Value v;              /* before them */
  size_t before, count; /* items of a list, before and after */
  size_t most;          /* as many as there can be at once; of a dict, as many more */
  size_t fresh;         /* last items, or entries, that were added */
  size_t gone_n, gone_cap;
  Value *gone;      /* keys of a dict that were removed */
  bool sure, mixed; /* no call fails; what one adds another loses, replaces, or it is in between */
} Sure;
Sure owned_sure_of(Value v);
/* One more call, of b with these arguments but the first. */
void owned_sure(Session *s, Sure *m, const Builtin *b, const Args *a);
/* Makes room for n more items of an owned list, or entries of a dict. */
void owned_room(Session *s, Value v, size_t n);
/* Appends n values to an owned list, each in amortised constant time. Throws before anything is
 * changed. */
void owned_push(Session *s, List *l, size_t n, const Value *v);
/* Adds to an owned list the elements of `more`, a list; to a dict the entries of a dict. */
void owned_grow(Session *s, Value of, Value more);
/* Inserts v before item i of an owned list. Throws before anything is changed. */
void owned_insert(Session *s, List *l, size_t i, Value v);
/* Removes item i of an owned list. */
void owned_remove(List *l, size_t i);
/* An owned text with `more` at its end, in amortised constant time: the same object, or one with
 * more room. */
Value owned_text(Session *s, Value text, const StrObj *more);
/* x[index] op= v in the tensor x, which its place alone holds. False: nothing was done; the way by
 * a copy (op_index_put) is for all cases, and files the errors. */
bool owned_elements(Session *s, Value x, const Index *index, AstOp op, Value v, Span at);
/* The same for a param, whose value nothing but it holds. */
bool owned_param(Session *s, Param *p, const Index *index, AstOp op, Value v, Span at);

#endif
