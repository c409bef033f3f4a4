/* Pages in Markdown: pieces that all have, and the page of the library. */
#ifndef CKL_LANG_NAMES_LIBRARY_H
#define CKL_LANG_NAMES_LIBRARY_H

#include "lang/lang.h"

/* A cell of a table: on one line. */
void page_cell(Buf *b, const char *text);
/* A paragraph or, behind "- ", an item, in lines of 100 columns; a code span stays on one line. */
void page_fill(Buf *b, const char *mark, const char *text);

/* Appends docs/library.md. */
void library_page(Session *s, Buf *b);

#endif
