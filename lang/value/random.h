/* Random streams: the sites of a program, and the keys of their draws (rules 92, 93). */
#ifndef CKL_LANG_VALUE_RANDOM_H
#define CKL_LANG_VALUE_RANDOM_H

#include "lang/lang.h"

Value random_key(Session *s, Node *site); /* i64[2] for the next draw at this call */
uint64_t random_site(Node *call);
Value random_key_for(Session *s, uint64_t site);
Value random_key_member(Session *s, uint64_t site); /* script: ignores running comprehensions */
void random_reset(Session *s, uint64_t seed);

#endif
