/* Graphs of a session as machine code: when to compile, and what to do if that is impossible. */
#ifndef CKL_LANG_COMPILE_TIERING_H
#define CKL_LANG_COMPILE_TIERING_H

#include "graph/run.h"
#include "jit/plan/jit.h"
#include "lang/compile/pipeline.h"

/* How graphs run, ckl_config.cpu. */
typedef enum CpuMode {
  CPU_TIERED,    /* machine code of the best level, once it pays */
  CPU_REFERENCE, /* the reference evaluator alone */
  CPU_LOOPS,     /* kernels walked in loop form, at every call */
  CPU_EMULATOR,  /* kernels for a GPU in its emulator, at every call */
  CPU_LEVEL      /* machine code of one level, at every call */
} CpuMode;
/* NULL and "" are CPU_TIERED. False when it is no name, or a level this machine does not run. */
bool cpu_find(const char *name, CpuMode *mode, EngLevel *level);
const char *cpu_name(size_t i); /* the names, NULL past the end */

/* The code of a graph, or why there is none. The owner of the graph frees it. NULL at first. */
typedef struct Native Native;
void native_free(Mem *m, Native *n);
/* Runs g, as gr_run does. `name` is the graph's name in messages. */
bool native_run(Session *s, Native **n, const Graph *g, const char *name, RunCtx *c,
                Tensor *const *in, Tensor **out, GErr *e, Prov *at);
void native_turn(void *session, Span at); /* RunCtx.turn of a session's runs */
void native_ops_free(Session *s);         /* graphs of single operations */
/* Prints a stage, PASS_FUSE .. PASS_PTX_90, of a graph that is not to be run. */
void native_print(Session *s, Buf *out, const Graph *g, PassId stage, Span at);
/* The plan of g without its code, for jit_peak. The caller frees it. `shelf`: see jit_plan. */
JitFn *native_plan(Session *s, const Graph *g, const int64_t *env, Shelf *shelf);
/* A lower bound of JitPeak.arena of that plan, found in less time; 0: not known. */
int64_t native_least(Session *s, Arena *temp, const Graph *g, const int64_t *env);
/* Makes the code of a planned function now. False if there is no room for it. If it fails for
 * another reason, the first run says why. Throws when interrupted. */
bool native_code(Session *s, JitFn *f, const char *name, Span at);
/* Bytes of tensors that may be made until the session's limit; memory kept for later runs counts as
 * free. INT64_MAX: no limit. */
int64_t native_room(Session *s);
/* Makes its first run machine code, whatever that costs, if there is a code generator. */
void native_must(Session *s, Native **n);
/* Like native_must, with the plan *f, which is taken over. NULL: it is planned when it runs. */
void native_planned(Session *s, Native **n, JitFn **f);
/* Its plan, with or without code; NULL: there is none yet. */
JitFn *native_known(const Native *n);
/* The threads of the session, for kernels of the reference evaluator; NULL: its engine is not open,
 * or opens none. `open`: opens it. */
Pool *native_pool(Session *s, bool open);
/* The counts of the session's engine; zeros before it is opened. */
void native_counts(const Session *s, JitCount *jit, EngCount *eng);
/* Between the beginning and the end of a call of the API: threads do not sleep while they wait. */
void native_awake(Session *s, bool on);
/* Prints the time by line of the program, the longest first; "" without ckl_config.profile. */
void native_profile(Session *s, Buf *out);
double native_clock(void);     /* seconds since some time */
void native_close(Session *s); /* the engine, at the end of the session */

#endif
