/* Texts: sequences of code points, stored as valid UTF-8. */
#ifndef CKL_LANG_VALUE_TEXTS_H
#define CKL_LANG_VALUE_TEXTS_H

#include "lang/lang.h"

/* Code points of n bytes of UTF-8. */
size_t text_chars(const char *s, size_t n);
/* The code points number lo, lo + step, .. below hi, as a text; 0 <= lo <= hi <= chars. Constant
 * time for one of a text of ASCII; else what comes before is passed. */
Value text_part(Session *s, const StrObj *t, int64_t lo, int64_t hi, int64_t step);
/* Of a text the list of its code points, each a text; of any other value the value. */
Value text_elements(Session *s, Value v);
Value text_joined(Session *s, const StrObj *a, const StrObj *b);
/* By code point, which is the order of bytes: below, at or above 0. */
int text_order(const StrObj *a, const StrObj *b);
/* Where `part` stands first in t, from a place in it on; NULL: nowhere. Linear time. */
const char *text_find(const char *from, const StrObj *t, const StrObj *part);
/* Where code point number `chars` begins; 0 <= chars <= t->chars. */
const char *text_at(const StrObj *t, int64_t chars);
bool text_has(const StrObj *t, const StrObj *part);
/* Unicode's White_Space. */
bool text_is_blank(uint32_t cp);
/* Leaves the blanks at both ends of [*lo, *hi) out. */
void text_trim(const char **lo, const char **hi);

#endif
