/* The session of a program, the modes of `wrap` and the frame of a call, which all rooms share.
 * Each room declares its functions in its own headers.
 *
 * eval.c walks the tree for script and code alike; what differs is what a tensor operation does
 * (ops.c): in script it runs and is recorded on the tape, in code it appends a node to the graph of
 * the innermost Stage. Errors leave by `fail_raise` (value/fail.h), which never returns.
 */
#ifndef CKL_LANG_LANG_H
#define CKL_LANG_LANG_H

#include "jit/loop/kernel_status.h"
#include "lang/value/value.h"
#include "runtime/door.h"
#include "runtime/stack.h"
#include "runtime/table.h"

typedef struct Unit Unit;   /* one outermost code call being compiled: compile/unit.c */
typedef struct Stage Stage; /* a graph under construction: compile/stage.h */

/* ---- modes (rule 87): dynamic extent, part of a signature */
typedef struct Modes {
#define FIELD(type, name) type name;
#include "lang/names/clauses.def"
} Modes;

/* A `for` loop that is running. On the C stack. */
typedef struct OpenLoop {
  struct OpenLoop *up;
  Span at;
  bool staged;
  struct Frame *frame;           /* in which it stands */
  Value broken, continued;       /* in code: see Frame.returned */
  int64_t iteration, iterations; /* the present one, from 0; their number, 0 = unknown */
  bool forced;                   /* unrolled, because it cannot stay a loop */
} OpenLoop;

/* Operands that wait until those to their right are evaluated: a list of arrays, with `count` items
 * evaluated so far. On the C stack. */
typedef struct Operands {
  struct Operands *up;
  Value *v;
  size_t count;
  bool holds; /* Session.holds has some of them */
} Operands;
typedef struct Hold {
  const Operands *of;
  Value v;
} Hold;

/* A block that is running: its present statement, and the number of locals at its start. On the C
 * stack. */
typedef struct Running {
  struct Running *up; /* of the same frame */
  Node *block;
  uint32_t index;
  size_t base;
  bool loop; /* the body of a loop */
} Running;

/* ---- frames: one per call, in script and in code */
/* The alias node of a value in this call (rule 74), which entered it as an argument or is that of a
 * param or buffer; `version` is the value outside. */
typedef struct AliasEntry {
  Val version;
  Value v;
} AliasEntry;
typedef struct Frame {
  struct Frame *up;
  Module *module;
  FnObj *fn; /* NULL at the top level */
  Inst *self;
  ModelDecl *model;
  size_t base;      /* first local */
  Span call;        /* where it was called */
  const char *what; /* "forward" for traces */
  bool code;        /* body of a fn */
  Stage *stage;     /* the stage in which it was entered */
  AliasEntry *aliases;
  size_t alias_count, alias_cap;
  Name path;       /* of self, once path_frame found it */
  Running *place;  /* innermost block */
  bool iteration;  /* the next block is a loop's body */
  Node *source;    /* what a loop or comprehension of code goes through, while it is computed */
  int block_depth; /* 0: a `let` of the top level is a global */
  size_t fixed;    /* 1 + the first local of a comprehension's body, which assigns no older one */
  bool nests;      /* gradients can be differentiated, as in code: a comprehension runs as script */
  /* dtypes of the classes float, int, num in this call, + 1; 0: not fixed yet (rule 19) */
  uint8_t cls[3];
  bool test; /* a test block: sees declarations and constants only */
  /* In code: whether a `return` that depends on data was taken, a bool of the graph, and what it
   * gave; unit: there was none (eval/sides.c). */
  Value returned, ret_value;
} Frame;

/* ---- random streams (rules 92, 93) */
typedef struct Site {
  uint64_t id, counter;
} Site;

typedef struct Log {
  const char *channel;
  int level;
} Log;
/* Channels; log_names (value/log.h) has their names. */
enum { LOG_COMPILE, LOG_LOAD, LOG_WRAP, LOG_JIT, LOG_BACKWARD, LOG_WAIT, LOG_COUNT };

struct Session {
  Mem mem;
  Door door;     /* which files the program reaches; mem.door leads here */
  Arena perm;    /* names, sources, trees, modules: until reset */
  Arena scratch; /* of the present statement */
  Arena notes;   /* of diagnostics, until the next call of the API */
  ArenaMark notes_start;
  Names *names;
  struct BuiltinTab *builtins;
  Sources sources;
  Diags diags;
  DimTab *dims; /* of constants: attributes of script's ops */
  Module **modules;
  size_t module_count, module_cap;
  Module *main;    /* the program or the REPL's top level */
  Module *prelude; /* functions of the host */
  Table shelf;     /* the file of each name of the library that needs no `use` */
  Local *locals;
  size_t local_count, local_cap;
  Frame *frame;
  Span running; /* the last call or operation of script that was begun, outside the library */
  Stage *stage; /* NULL in script */
  Modes modes;
  Device device;      /* of the configuration */
  bool by_reference;  /* code: `net.w` is the param itself (operands of grad, update, freeze) */
  bool made_up;       /* `check`: in a `with_params` of an instance whose params it does not know */
  int64_t unrolled;   /* iterations of loops of code so far that have no such loop inside */
  bool abstract;      /* `ckl check`: script is walked without running */
  int depth;          /* nesting of calls */
  Value ret;          /* value of a `return` on its way (retained) */
  const Value *place; /* in `x .= f(a)`: what x was (N_PLACE); borrowed */
  const Node *tail;   /* the expression whose end is the end of its statement */
  int flow;           /* Flow: a break, continue or return on its way out of an expression */
  uint64_t seed;
  bool seed_given;
  uint64_t seed_scope;     /* code inside `wrap <seed n>`: n + 1 */
  int seed_scopes;         /* script: blocks of `wrap <seed n>` around */
  struct Element *element; /* of the innermost comprehension that runs in order: element.c */
  Site *sites;
  size_t site_count, site_cap; /* sorted by hash: random.c */
  struct Lru *cache;           /* of compiled calls: call_cache.c */
  uint64_t next_id;            /* params and instances */
  uint64_t tape_seq;
  struct OpGrad **op_grads;  /* op_vjp.c */
  struct Hooks *hooks;       /* hook.c; NULL before the first */
  struct Captures *captures; /* capture.c */
  struct Compiler *compiler; /* host_compiler.c; NULL: the host has none */
  struct HostFns *host_fns;  /* host_function.c; NULL: the host has none */
  bool busy;                 /* a call of the API runs */
  Stack outside;             /* the stack at the start of that call */
  OpenLoop *loops;           /* innermost */
  Operands *operands;        /* innermost: operands.c */
  Hold *holds;
  size_t hold_count, hold_cap; /* retained */
  int64_t steps_left;          /* until steps_more is called next: steps.c */
  int64_t steps_rest;          /* of this call, after steps_left */
  KStatus kernel;              /* of machine code; ckl_interrupt sets its `stop` */
  Obj *dying;                  /* objects to free without recursion */
  bool draining;
  uint8_t logs[LOG_COUNT];
  struct {
    struct Bar *first;
    int lines; /* bars that are on the terminal now */
    double drawn;
  } bars; /* value/bars.c */
  uint32_t warned_count;
  size_t warned_cap;
  uint64_t *warned; /* warn-once keys */
  struct {
    void (*write)(void *ud, int stream, const char *text, size_t n);
    void *ud;
    bool terminal;
    const char *const *args;
    size_t arg_count;
    const char *const *lib;
    size_t lib_count;
    uint32_t max_nodes;
    int unroll;    /* a `for` of code with more turns stays one, if it can; -1: as rule 41 says */
    bool in_place; /* values that one place alone holds are changed where they are: owned.h */
    int plan;      /* number of the plan that each gradient gets, for tests; -1: the best */
    int64_t max_steps, progress_steps;
    int (*progress)(void *ud);
    void *progress_ud;
    bool has_seed;
    uint64_t seed;
    int cpu, level, threads; /* CpuMode, EngLevel (tiering.h); 0 threads = all there are */
    const char *codegen, *kernels, *cache; /* paths; NULL = none */
    bool perf_map, profile, trace, show_plan, json;
    size_t stack; /* most bytes of C stack for a call; 0 = what there is */
  } config;
  struct LineTimes *line_times; /* eval/line_times.c; NULL before the first */
  struct NativeOps *native_ops; /* eager_kernels.c */
  struct Regexes *regexes;      /* b_regex.c; NULL before the first */
  struct SaveLater *saving;     /* a save that goes on beside the program, or NULL: b_save.c */
  Span saving_at;               /* of its path */
  struct Jit *jit;              /* opened at the first compiled call */
  struct {
    int64_t values_live, tape_live, stage, compile, runs, nodes, captures, line;
    int64_t backward_captures, backward_hits;
    int64_t ops[2][6]; /* [0] forwards and script, [1] backwards; by OpBin (report.h) */
    int64_t searched;  /* entries compared by linear searches for a name or address */
    double seconds[32], seconds_all; /* of passes, by PassId (pipeline.h), and their sum */
  } count;
  struct ckl_value *handles; /* given out by the API */
  struct {
    bool json, curve, measure, peak, draw; /* see ckl_plan_options */
    const char *why;                       /* likewise */
    const char *svg;                       /* the drawing, if asked for */
    const char *fn;                        /* the call that `ckl plan` waits for */
    const char *text;                      /* the report on it */
  } report;
  unsigned dumps;       /* passes to dump, one bit each: 1 << PassId */
  const char *text_out; /* last text handed out by the API */
};

static inline bool in_code(const Session *s) {
  return s->stage != NULL && !s->abstract;
}

#endif
