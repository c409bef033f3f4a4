/* Sources, spans and diagnostics: each error with its place, its reason and a remedy.
 *
 * Codes come from errors.def: ERR(SHAPE_INNER, "shape-3", "title", "explanation", "example
 * program"). A diagnostic is filed in the session's list; the command line prints it. dg_throw
 * files and leaves.
 */
#ifndef CKL_RUNTIME_DIAG_H
#define CKL_RUNTIME_DIAG_H

#include "runtime/table.h"
#include "runtime/str.h"

/* Half-open byte range of one source; file 0 is "nowhere". */
typedef struct Span {
  uint32_t file, lo, hi;
} Span;

typedef struct Source Source;
struct Source {
  const char *path; /* as shown to the user */
  const char *text; /* NUL-terminated */
  size_t length;
  uint32_t *line_start; /* byte offset of each line */
  uint32_t line_count;
  uint32_t file;
  Arena *arena;          /* has its text and everything made of it */
  Arena own;             /* that arena, if the source is a passing one */
  size_t held;           /* number of holders */
  Source *before, *next; /* in Sources.passing */
  Source *looser;        /* the next in Sources.loose */
  bool loose;            /* it is in that list */
};

/* The table of all sources of a session. Sources of files stay. A statement typed at the prompt is
 * a passing source: it is freed, with its tree, once nothing refers to it. A number is used once,
 * so a place in a freed source is "nowhere" and never a place in another source. */
typedef struct Sources {
  Arena *arena;   /* of the sources that stay */
  Table by_file;  /* addresses by number */
  uint32_t count; /* the next number; 0 is the empty "nowhere" */
  Source *nowhere;
  Source *passing; /* all passing sources */
  Source *loose;   /* those that may have no holder */
} Sources;

void src_init(Sources *s, Arena *a);
/* Copies both. Returns the file's number; 0 ("nowhere") when the text passes 4 GiB. */
uint32_t src_add(Sources *s, const char *path, const char *text, size_t n);
/* Adds a passing source: it stays until src_sweep finds that nobody holds it. */
uint32_t src_add_passing(Sources *s, const char *path, const char *text, size_t n);
const Source *src_get(const Sources *s, uint32_t file); /* of a freed source: nowhere */
Arena *src_arena(const Sources *s, uint32_t file);      /* for data that live as long as its tree */
void src_hold(Sources *s, uint32_t file);
void src_drop(Sources *s, uint32_t file); /* frees nothing yet */
void src_sweep(Sources *s);               /* frees passing sources without holders */
void src_close(Sources *s);               /* frees all passing sources; call before the arena's */
uint32_t src_line(const Source *f, uint32_t offset); /* of a byte offset, from 0 */
/* Line and column (both from 1; columns count characters, not bytes) of a byte offset; an offset
 * past the end counts as the end. 0 and 0 for nowhere. */
void src_place(const Sources *s, uint32_t file, uint32_t offset, uint32_t *line, uint32_t *col);

typedef enum ErrCode {
#define ERR(name, ...) ERR_##name,
#include "runtime/errors_rows.def"
#undef ERR
  ERR_COUNT
} ErrCode;

typedef struct ErrInfo {
  const char *name, *code, *title, *explain, *example;
} ErrInfo;
extern const ErrInfo err_info[ERR_COUNT];
int err_find(const char *code); /* index, or -1 */

typedef enum Severity { SEV_ERROR, SEV_WARNING, SEV_NOTE } Severity;

typedef struct DiagLabel {
  Span span;
  const char *text;
} DiagLabel;

typedef struct Diag {
  ErrCode code;
  Severity severity;
  Span span;           /* the caret range */
  const char *message; /* one line, no newline at the end */
  const char *label;   /* short text under the caret, or NULL */
  DiagLabel labels[4]; /* secondary places */
  int label_count;
  const char *help; /* suggests something that type-checks, or NULL */
  struct {
    Span span;
    const char *what;
  } trace[16];     /* innermost call first */
  int trace_count; /* calls beyond 16 are counted here only */
} Diag;

enum { DG_MOST = 100 }; /* errors kept, and warnings kept; further ones are only counted */

/* Diagnostics of one session since the last dg_clear, in order of filing. */
typedef struct Diags {
  Arena *arena;
  Mem *mem;
  Diag **items;
  size_t count, cap;
  size_t errors;   /* how many of them are errors */
  size_t warnings; /* how many are warnings */
  size_t dropped;  /* filed, but not kept */
  Diag spare;      /* stands for the dropped ones */
  Diag nomem;      /* reports that memory ran out */
  bool nomem_filed;
  char nomem_text[128];
} Diags;

/* `a` should be an arena of its own: dg_clear only forgets the diagnostics; their memory is freed
 * with the arena (then call dg_init again). */
void dg_init(Diags *d, Arena *a, Mem *m);
void dg_clear(Diags *d);
/* Forgets what was filed after the first `count` diagnostics. */
void dg_rewind(Diags *d, size_t count);

/* These work without memory: dg_error and dg_warn then file and return the one NOMEM diagnostic,
 * which always exists; labels and help without room are left out. Only dg_throw throws. */
Diag *dg_error(Diags *d, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
Diag *dg_warn(Diags *d, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
Diag *dg_verror(Diags *d, ErrCode code, Span at, const char *fmt, va_list ap);
void dg_label(Diags *d, Diag *g, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void dg_help(Diags *d, Diag *g, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void dg_trace(Diag *g, Span at, const char *what); /* `what` must outlive the diagnostic */
/* Leaves with the filed errors: mem_throw(MEM_ERR_PROGRAM), or MEM_ERR_NOMEM if one of them is
 * NOMEM. */
_Noreturn void dg_throw(Diags *d);

/* Renders as text:
 *   error[shape-3]: the inner dims of `@` differ: 4 and 3            file.ckl:3:5
 *      3 | x @ x
 *        | ^ - ^
 *      = help: ...
 * Carets respect tabs and wide characters; a span over several lines shows the first and the last.
 * Labels in other lines get the line with its number; labels in other files a block of their own.
 * Long lines are cut to about 100 columns around the caret; control characters are not passed on.
 * Throws when out of memory, as every Buf does. */
void dg_render(Buf *out, const Sources *src, const Diag *g, bool color);
void dg_render_json(Buf *out, const Sources *src, const Diag *g); /* one JSON object, one line */

#endif
