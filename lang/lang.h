/* The language: session, modules, evaluator.
 *
 * eval.c walks the tree for script and code alike; what differs is what a tensor operation does
 * (ops.c): in script it runs and is recorded on the tape, in code it appends a node to the graph of
 * the innermost Stage. Errors leave by `raise` (never return); see runtime/mem.h.
 */
#ifndef CKL_LANG_LANG_H
#define CKL_LANG_LANG_H

#include "jit/loop/loop.h"
#include "lang/value/value.h"
#include "runtime/door.h"
#include "runtime/stack.h"
#include "runtime/table.h"

/* ---- modules */
typedef struct Global {
  Name name;
  enum { G_FN, G_MODEL, G_TYPE, G_POLICY, G_VALUE, G_MODULE } kind;
  Value v;        /* G_FN: a V_FN; G_MODEL; G_VALUE: the variable (retained) */
  Node *decl;     /* declaration or defining statement */
  Module *module; /* where it was declared (names brought by `use` keep their home) */
  bool is_var, is_const, is_set, used; /* const: rule 6 */
  bool moves;                          /* `check`: a function value assigns it, at any time */
  Span span;
} Global;

struct Module {
  Name name;        /* "nn", or the path of a file */
  const char *path; /* shown to the user; NULL for the embedded library */
  const char *real; /* the file that `path` leads to */
  uint32_t file;
  Node *ast;
  Global *globals;
  size_t global_count, global_cap; /* in the session's arena */
  Table by_name;                   /* places in them */
  Module **uses; /* brought whole are G_MODULE globals; this is the list for cycles */
  bool loading, declared;
};

/* ---- stages: graphs under construction */
typedef struct Unit Unit; /* one outermost code call being compiled: unit.c */
typedef struct Stage Stage;
struct Stage {
  Graph *g;
  Stage *up;
  Unit *unit;
  uint32_t level; /* 1 = the unit's own graph */
  Val *outer;
  Val *inner; /* captures: values of the stage above and their inputs here */
  size_t capture_count, capture_cap, outer_cap;
  struct Quiet {
    uint32_t lo, hi;
  } * quiet; /* nodes lo .. hi - 1 were made under no_grad */
  size_t quiet_count, quiet_cap;
  struct OpenBlock *open; /* innermost checkpoint block that is being staged: policy.h */
  uint32_t counters;      /* inputs that count from 0: a bit each */
  bool apart; /* the forward of a function with a backward of its own: no gradient comes by */
};

/* ---- modes (rule 87): dynamic extent, part of a signature */
typedef struct Modes {
#define FIELD(type, name) type name;
#include "lang/names/clauses.def"
} Modes;

/* A `for` that runs. On the C stack. */
typedef struct OpenLoop {
  struct OpenLoop *up;
  Span at;
  bool staged;
  int64_t iteration, iterations; /* the present one from 0 on; iterations 0: not known */
} OpenLoop;

/* Operands that wait for those to their right: a list of arrays, of which `count` items are there.
 * On the C stack. */
typedef struct Operands {
  struct Operands *up;
  Value *v;
  size_t count;
  bool holds; /* the session keeps some of them for it */
} Operands;
typedef struct Hold {
  const Operands *of;
  Value v;
} Hold;

/* A block that runs: which statement, and the locals at its start. On the C stack. */
typedef struct Running {
  struct Running *up; /* of the same frame */
  Node *block;
  uint32_t index;
  size_t base;
  bool loop; /* the body of a loop */
} Running;

/* ---- frames: one per call, in script and in code */
/* state seen in this call */
typedef struct AliasEntry {
  size_t state;
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
  size_t alias_count, alias_cap; /* of state read in this call (rule 74) */
  Name path;                     /* of self, once it was asked for */
  Running *place;                /* innermost block */
  bool iteration;                /* the next block is a loop's body */
  int block_depth;               /* 0: a `let` of the top level is a global */
  uint32_t floats; /* class dtypes fixed by this signature: float int num, +1 (rule 19) */
  uint8_t cls[3];
  bool test; /* a test block: sees declarations and constants only */
} Frame;

/* ---- random streams (rules 92, 93) */
typedef struct Site {
  uint64_t id, counter;
} Site;

typedef struct Log {
  const char *channel;
  int level;
} Log;
/* channels, by log_names */
enum { LOG_COMPILE, LOG_LOAD, LOG_WRAP, LOG_JIT, LOG_BACKWARD, LOG_WAIT, LOG_COUNT };
extern const char *const log_names[LOG_COUNT];

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
  Module *main; /* the program or the REPL's top level */
  Module *prelude;
  Local *locals;
  size_t local_count, local_cap;
  Frame *frame;
  Span running; /* the last call or operation of script that was begun, outside the library */
  Stage *stage; /* NULL in script */
  Modes modes;
  Device device;     /* of the configuration */
  bool by_reference; /* code: `net.w` is the param itself (operands of grad, update, freeze) */
  bool abstract;     /* `ckl check`: script is walked without running */
  int depth;         /* nesting of calls */
  Value ret;         /* value of a `return` on its way (retained) */
  int flow;          /* Flow: a break, continue or return on its way out of an expression */
  uint64_t seed;
  bool seed_given;
  uint64_t seed_scope;     /* code inside `wrap <seed n>`: n + 1 */
  int seed_scopes;         /* script: blocks of `wrap <seed n>` around */
  struct Element *element; /* innermost one of a comprehension that runs in order: element.c */
  Site *sites;
  size_t site_count, site_cap; /* sorted by hash: random.c */
  uint32_t top_ordinal;        /* statements run at the REPL */
  struct Lru *cache;           /* of compiled calls: call_cache.c */
  uint64_t next_id;            /* params and instances */
  uint64_t tape_seq;
  struct OpGrad **op_grads;  /* op_vjp.c */
  struct Hooks *hooks;       /* hook.c; NULL before the first */
  struct Captures *captures; /* capture.c */
  struct Compiler *compiler; /* host_compiler.c; NULL: none of the host */
  bool busy;                 /* a call of the API runs */
  Stack outside;             /* the stack as that call found it */
  OpenLoop *loops;           /* innermost */
  Operands *operands;        /* innermost: operands.c */
  Hold *holds;
  size_t hold_count, hold_cap; /* retained */
  int64_t steps_left;          /* until the next look at what follows: steps.c */
  int64_t steps_rest;          /* of this call, behind those */
  KStatus kernel;              /* of machine code; its `stop` is what ckl_interrupt sets */
  Obj *dying;                  /* objects to free without recursion */
  bool draining;
  uint8_t logs[LOG_COUNT];
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
  struct NativeOps *native_ops; /* eager_kernels.c */
  struct Jit *jit;              /* opened at the first compiled call */
  struct {
    int64_t values_live, tape_live, stage, compile, nodes, captures, line;
    int64_t backward_captures, backward_hits;
    int64_t ops[2][6]; /* by OpBin (report.h): of forwards and script, of backwards */
    int64_t searched;  /* entries that searches by name or address compared one by one */
    double seconds[32], seconds_all; /* of passes, by PassId (pipeline.h), and their sum */
  } count;
  struct ckl_value *handles; /* given out by the API */
  struct {
    bool json;
    const char *fn;   /* the call that `ckl plan` waits for */
    const char *text; /* what is said of it */
  } report;
  unsigned dumps;       /* passes to dump, a bit each: 1 << PassId */
  const char *text_out; /* last text handed out by the API */
};

/* ---- errors */
Diag *err(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void raise_(Session *s); /* with the trace of frames */
_Noreturn void fail(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
_Noreturn void fail_help(Session *s, ErrCode code, Span at, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
_Noreturn void fail_gerr(Session *s, Span at, const GErr *e);
_Noreturn void fail_file(Session *s, Span at, const Err *e); /* of a file that was not opened */
void warn_once(Session *s, ErrCode code, Span at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* scratch text */
const char *txt(Session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The program's own words there, for help texts; `other` when they are long or none. */
const char *source_text(Session *s, Span at, const char *other);
void poll_interrupt(Session *s, Span at);
/* Of a public call: every statement, call and iteration of a loop, staged ones too, counts one
 * step. Leaves where ckl_config.max_steps are done, someone asked for an end, or the graph that is
 * being staged has more than ckl_config.max_nodes. */
void steps_start(Session *s);
void steps_more(Session *s, Span at);
_Noreturn void stage_full(Session *s, Span at);
static inline void count_step(Session *s, Span at) {
  if (--s->steps_left < 0 || interrupt_asked(&s->kernel.stop)) steps_more(s, at);
  if (s->stage && s->stage->g->node_count > s->config.max_nodes) stage_full(s, at);
}
void now_running(Session *s, Span at); /* for errors that know no place */
/* A name close to `name` among visible ones, or NULL. */
const char *suggest(Session *s, Name name);

/* ---- call.c, part one */
typedef struct Args {
  size_t count; /* positional first, then named */
  Value *v;
  Name *names; /* NULL = by position */
  Span *spans;
  Span call;
} Args;

/* ---- operands.c: what operands have read, though later ones write it (rule 48) */
static inline void operands_open(Session *s, Operands *o, Value *v) {
  *o = (Operands){.up = s->operands, .v = v};
  s->operands = o;
}
void operands_give(Session *s, Operands *o); /* what it holds goes on the pool */
static inline void operands_close(Session *s, Operands *o) {
  s->operands = o->up;
  if (o->holds) operands_give(s, o);
}
void operands_cut(Session *s, Operands *to); /* after an error: those inside of `to` are gone */
void operands_hold(Session *s, Param *p);    /* p is about to be written */
/* v as it is now: of a param in script its value, which later writes do not change. */
Value operand_held(Session *s, Value v);

/* ---- eval.c */
typedef enum Flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN } Flow;
Value eval(Session *s, Node *e);
Value eval_block(Session *s, Node *block, Flow *flow); /* its value; scopes its locals */
Flow eval_stmt(Session *s, Node *stmt, Value *last);
Flow take_flow(Session *s); /* of a break, continue or return that left an expression */
Value made_definite(Session *s, Value v, Span at); /* a weak tensor gets its dtype (rule 14) */
Node *model_method(Session *s, const ModelDecl *m, Name name); /* NULL: it has none */
Name member_name(const Node *m); /* of a parameter or member; NULL: it has none */
/* Makes finding what a large model has under a name quick. */
void model_index(Session *s, Node *model);
/* The first parameter of that name, else parameters + the first member; TABLE_NONE: none. */
ptrdiff_t model_find(Session *s, const Node *model, Name name);
Value global_value(Session *s, Global *g, Span at);
Flow eval_assign(Session *s, Node *st); /* assign.c */
void bind_pattern(Session *s, Node *pat, Value v, bool is_var);
void local_push(Session *s, Name name, Value v, bool is_var, Span at);
void locals_pop(Session *s, size_t to);
Local *local_find(Session *s, Name name);
/* a constant int; in code asks for specialisation */
int64_t want_int(Session *s, Value v, Span at, const char *what);
double want_float(Session *s, Value v, Span at, const char *what);
bool want_bool(Session *s, Value v, Span at, const char *what); /* static bool */
const char *want_str(Session *s, Value v, Span at, const char *what);
static inline bool in_code(const Session *s) {
  return s->stage != NULL && !s->abstract;
}

/* !must: V_UNKNOWN when there is none */
Value name_value(Session *s, Name name, Span at, bool must);
/* Field or method of an instance; false when it has none of that name. */
bool inst_get(Session *s, Inst *i, Name name, Span at, Value *out);
Args eval_args(Session *s, NodeList *l, const Value *receiver, Span receiver_span, Span call);
/* A function literal with what it captures; `vars_too`: variables that change, as they are now. */
Value fn_closure(Session *s, Node *n, bool is_code, bool vars_too);
Value body_closure(Session *s, Node *lambda, bool is_code); /* may read outer vars: wrap bodies */
/* of a block of script: reads and assigns variables, those of the top level too */
Value capsule_closure(Session *s, Node *lambda);

/* ---- element.c: iterations of a comprehension that runs in order, to what they draw. An Element
 * stands for all iterations of one loop; it is entered and left at each, and ended after the last.
 * It is the pool's. */
typedef struct Element Element;
Element *elements_start(Session *s);
void element_enter(Session *s, Element *e);
void element_leave(Session *s, Element *e);
void elements_end(Session *s, Element *e);

/* ---- free_names.c: the names that a function takes from outside. `assigned`: with all that it
 * assigns, its own variables too; always the same for one node. */
typedef struct FreeNames {
  Name *items;
  size_t count;
} FreeNames;
const FreeNames *free_names(Session *s, Node *fn, bool assigned);

/* ---- constructs: wrap.c, comprehension.c, blocks.c, effect.c; naming.c; number.c */
/* iterations of a loop that code unrolls; longer ones are not yet compiled */
enum { UNROLL_MAX = 4096 };
void eval_pair(Session *s, Node *left, Node *right, Value v[2]);
Value eval_comp(Session *s, Node *e);
Value eval_wrap(Session *s, Node *e);
Value eval_checkpoint(Session *s, Node *e);
void eval_assert(Session *s, Node *st);
Value abstract_element(Session *s, Value it, Span at); /* `check`: what a loop over `it` binds */
Value number_node(Session *s, int64_t i);         /* a run-time int of code with a known value */
void name_result(Session *s, Node *pat, Value v); /* gives graph values the names of their `let` */
void name_variable(Session *s, Name name, Value v); /* of an assigned variable */
bool local_binds(Node *fn, Name name); /* whether the function itself binds that name first */
void check_shadow(Session *s, const Word *w); /* rule 3 */

/* ---- module.c */
/* `door`: of the program, or NULL for what the host names itself. */
Module *module_load_file(Session *s, const Door *door, const char *path, Span at);
Module *module_embedded(Session *s, const char *name, Span at);
void module_declare(Session *s, Module *m); /* declarations of its tree, `use`s resolved */
Global *global_find(Session *s, Module *m, Name name); /* file, use, then prelude */
Global *global_own(const Module *m, Name name);        /* file and use */
/* embedded modules: prelude and builtins */
bool visible_anyway(Session *s, const Module *m, Name name, Value *v);
Global *global_set(Session *s, Module *m, Name name, Value v, bool is_var, Span at);
bool name_is_fixed(const char *name); /* rule 4: no declaration may have it */
const struct Builtin *builtin_find(Session *s, Name name);

/* ---- type.c: annotations */
/* Checks v against a type, binding its bracket dims (Local ints of the frame) and classes; gives v
 * or v made definite (weak numbers become tensors of a dtype where the type says so). `what` names
 * the place in messages: "argument `x` of `f`". */
Value type_match(Session *s, Node *type, Value v, Span at, const char *what);
/* Shape and dtype of a tensor type whose dims are all known: declarations of params. */
void type_eval(Session *s, Node *type, Type *out);
/* an int number as a Dim of the stage's table */
Dim dim_of(Session *s, Value v, Span at, const char *what);
Value dim_value(Session *s, Dim d); /* V_INT when constant, else V_DIM */
DimTab *dims_of(Session *s);

/* ---- path.c: what the program calls an instance ("net.blocks.0") and its methods */
/* roots: instances that may hold it */
Name inst_path(Session *s, Inst *i, Inst *const *roots, size_t n);
Name stage_path(Session *s);                   /* of the method that is staged, or NULL */
Name frame_path(Session *s, Frame *f);         /* of f's own instance */
const char *frame_title(Session *s, Frame *f); /* "net.blocks.0.forward", or a function's name */
const char *fn_title(Session *s, const FnObj *f);
/* method of i there */
const char *place_title(Session *s, Inst *i, Inst *const *roots, size_t n, Span at);

/* ---- call.c */
Value call_value(Session *s, Value f, const Args *a);
Value call_simple(Session *s, Value f, size_t n, const Value *v, Span at); /* positional */
Value call_fn(Session *s, FnObj *f, const Args *a);
/* Evaluates the body in a new frame, in the present stage (or script). */
Value inline_call(Session *s, FnObj *f, const Args *a);
/* An outermost code call from script: compiled once per signature, run, recorded (compile.c). */
Value run_code(Session *s, FnObj *f, const Args *a);
/* A block of code in script (checkpoint bodies): body with its free variables as inputs. */
Value construct(Session *s, ModelDecl *m, const Args *a);
bool fn_is_code_legal(Session *s, Node *lambda);

/* ---- ops.c: tensor operations on Values, script or code */
Value op_run(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs, Span at);
/* ops with several results */
void op_run_multi(Session *s, OpCode op, int n, const Value *v, const Attr *attrs, int nattrs,
                  Span at, int nout, Value *out);
Value op_unary(Session *s, OpCode op, Value x, Span at); /* numbers too: gives a number */
Value op_binary(Session *s, AstOp op, Value x, Value y, Span at, Span left, Span right);
/* Throws where dims of operands differ, tests at run time what only sizes can tell. */
void op_check_sizes(Session *s, Dim a, Dim b, Span at, const char *text, const char *help);
_Noreturn void op_mixed_dtypes(Session *s, const char *op, const Type *t, Span at, Span left,
                               Span right);
Value op_broadcast_binary(Session *s, OpCode op, Value x, Value y, Span at, Span left, Span right);
Value op_where(Session *s, Value c, Value x, Value y, Span at);
Value op_cast(Session *s, Value x, DType dt, Span at); /* leafwise on trees */
Value op_iota_on(Session *s, Dim n, DType dt, int dev, Span at);
Value op_iota(Session *s, Dim n, DType dt, Span at); /* 0, 1, .. n - 1 */
Value op_reshape(Session *s, Value x, int rank, const Dim *d, Span at);
Value op_broadcast(Session *s, Value x, int rank, const Dim *d, Span at);
/* The same; a rank-0 host value moves to device `dev` on the way (rule 94). */
Value op_broadcast_on(Session *s, Value x, int rank, const Dim *d, int dev, Span at);
/* all x, with the shape, dtype and device of like */
Value op_fill_like(Session *s, Value like, double x, Span at);
Value op_transpose(Session *s, Value x, const int64_t *perm, Span at);
Value op_reduce(Session *s, OpCode op, Value x, int n, const int64_t *axes, bool keep, Span at);
Value op_matmul(Session *s, Value x, Value y, Span at, Span left, Span right);
Value op_stack(Session *s, size_t n, const Value *items, int axis, Span at);
Value op_concat(Session *s, size_t n, const Value *items, int axis, Span at);
/* x[i] of the leading axis, i in range */
Value op_element(Session *s, Value x, int64_t i, Span at);
/* An index (N_INDEX) whose expressions were evaluated, from left to right. */
typedef struct IndexPart {
  Node *node;         /* an expression, N_SLICE or N_ELLIPSIS */
  Value v;            /* of an expression */
  Value lo, hi, step; /* of a slice; unit = absent */
} IndexPart;
typedef struct Index {
  Node *node;
  size_t count;
  IndexPart *part;
} Index;
Index index_eval(Session *s, Node *index);
Value op_index(Session *s, Value x, const Index *index);
Value op_index_put(Session *s, Value x, const Index *index, AstOp op, Value v, Span at);
/* Which of `count` items of a list or tuple, `of`, the index means. */
size_t index_item(Session *s, const Index *index, size_t count, const char *of);
/* Type of a tensor Value or number (weak: f64/i64 rank 0); dims are of dims_of(s). */
Type type_of(Session *s, Value x);
/* Anything tensor-like as a tensor: numbers take `like` (f32/i64 for DT_COUNT), weak lists
 * stack. */
Value as_tensor(Session *s, Value x, DType like, Span at);
/* The errors of a number that has to become a dt: rule 12. */
void number_meets(Session *s, Value x, DType dt, Span at);
/* A concrete tensor (script); waits for nothing. Borrowed. */
Tensor *tensor_of(Session *s, Value x, Span at);
int64_t const_i(Session *s, Value x, Span at);

/* ---- compile.c */
/* a top-level `let` as a hidden argument (rule 7) */
Value global_in_code(Session *s, Global *g, Span at);
void stage_at(Session *s, Span at); /* provenance of the nodes that s->stage gets next */
Value stage_lift(Session *s, Value v, Span at); /* any tensor or number as a V_NODE of s->stage */
/* the same, cut if it was made under no_grad and the mode is grad */
Value stage_operand(Session *s, Value v, Span at);
/* no_grad in code (rule 78): begins or ends an interval of nodes; what leaves one that began at
 * node `start` is cut, except what an inner `wrap <grad>` made. */
void stage_quiet(Session *s, bool on);
Value leave_quiet(Session *s, Value v, uint32_t start, Span at);
Value state_read(Session *s, Inst *i, Field *f, Span at);
void state_write(Session *s, Inst *i, Field *f, Value v, Span at);
Value param_read(Session *s, Param *p, Span at); /* its value as a tensor, script or code */
void param_write(Session *s, Param *p, Value v, Span at);
/* The new value of a param that operands_hold has seen to; takes over t. */
void param_put(Param *p, Tensor *t);
Value random_key(Session *s, Node *site); /* i64[2] for the next draw at this call */
/* may restart staging */
void need_const(Session *s, Dim d, Span at, const char *why, int64_t *out);

/* ---- last_use.c: whether nothing that can still run reads local number k, but for printing;
 * `asks`: the expression that asks mentions it once itself */
bool local_dead(Session *s, size_t k, bool asks);

/* ---- tape.c and grad */
bool wants_grad(Session *s, Value v); /* a param that is not frozen, or made from one */
typedef struct Take {
  /* what `grad` was given: what no later statement mentions is used up; NULL = nothing is */
  const Node *loss;
  bool last; /* the loss is used up whoever mentions it */
} Take;
Value tape_grad(Session *s, Value loss, Value cotangent, Value wrt, bool record, Take take,
                Span at);

/* ---- tree.c (rules 64 to 66) */
typedef Value (*TreeFn)(Session *s, void *ud, size_t n, Value *leaves, const char *path);
/* Leaf by leaf over trees of one structure; the result has the structure. */
Value tree_map(Session *s, size_t n, Value *trees, TreeFn f, void *ud, Span at);
bool tree_text(Value v, const char *path); /* a text in a tree: it passes, as it is */
bool tree_known(Session *s, Value v);      /* `check`: no leaf is V_UNKNOWN */
/* record of params (values: read), none if frozen */
Value params_tree(Session *s, Inst *i, bool values);

/* ---- format.c, show.c */
void format_value(Session *s, Buf *out, Value v, const Format *f, Span at);
void print_value(Session *s, Buf *out, Value v, bool nested);
void show_value(Session *s, Buf *out, const char *name, Value v); /* what the REPL shows */
void emit_text(Session *s, int stream, const char *text, size_t n);

/* ---- builtins: one table (builtins.def); signature text gives names, defaults and arity */
/* script only; gets its call unevaluated; its first operand is taken as a reference, `net.w` as the
 * param; what it gives depends on every leaf of its trees; its arguments may be nested to any
 * depth; it does, or what it calls may do, more than give a result: prints, writes, draws, fails
 * on purpose; tensors in brackets that it gets stay a list (rule 35) */
enum {
  BI_SCRIPT = 1,
  BI_RAW = 2,
  BI_REF = 4,
  BI_LEAVES = 8,
  BI_DEEP = 16,
  BI_ACTS = 32,
  BI_APART = 64
};
typedef struct Call {
  const struct Builtin *b;
  size_t n; /* parameters of the signature */
  Value *v; /* by parameter; absent ones hold the default */
  bool *given;
  Span *spans;
  size_t rest_n; /* what a `name...` parameter takes */
  Value *rest;
  Name *rest_names;
  Span *rest_spans;
  Node *node; /* the call, or NULL: random sites, raw builtins */
  Span at;
} Call;
typedef OpDomain DTypeClass;
DTypeClass dom_class(OpCode op);
typedef Value (*BuiltinFn)(Session *s, Call *c);
typedef struct Builtin {
  const char *name, *signature, *doc;
  BuiltinFn fn; /* NULL: a constant */
  unsigned flags;
  int op; /* of elementwise builtins and reductions: the OpCode, else -1 */
} Builtin;
/* A signature as read when the session starts. */
typedef struct BuiltinParam {
  Name name; /* interned */
  Value deflt;
  const char *text; /* a default that is a str, else NULL */
  size_t text_n;
  bool optional, rest; /* has a default; takes all that follows */
} BuiltinParam;
typedef struct BuiltinSig {
  BuiltinParam *par;
  size_t count;
  bool open; /* takes any names: `sizes...` */
} BuiltinSig;
typedef struct BuiltinTab BuiltinTab;
void builtins_start(Session *s);
const BuiltinSig *builtin_sig(const Session *s, const Builtin *b);
Value call_builtin(Session *s, const Builtin *b, const Args *a, Node *node);
Value builtin_constant(Session *s, const Builtin *b); /* none, inf, nan, pi */
extern const Builtin builtin_table[];
extern const size_t builtin_count;

/* ---- the rest, by file */
/* call.c */
const char *fn_name(const FnObj *f);
void frame_push(Session *s, Frame *fr, FnObj *f, Span call);
/* The values v as they enter a construct in code that contributes once (rule 74): floats through an
 * alias node each, one for several that are the same. */
void enter_values(Session *s, size_t n, Val *v, Span at);
void frame_pop(Session *s, Frame *fr);
/* The first parameter that an argument of this name is for; p->count: there is none. A call with
 * many arguments has a table of the parameters, which is empty before the first search. */
uint32_t param_named(Session *s, const NodeList *p, Name name, size_t args, Table *t);
void bind_args(Session *s, FnObj *f, const Args *a, Value *out, Span *spans, bool *given);
Value backward_body(Session *s, FnObj *f, const Args *a, Value out, Value g); /* rule 79 */
/* custom_vjp.c */
Value custom_call(Session *s, FnObj *f, const Args *a);
/* desugar.c: questions about trees, and the function nodes that constructs stand for */
Node *wrap_lambda(Session *s, Node *wrap);                    /* fn() { body } */
Node *comp_lambda(Session *s, Node *comp, const bool *given); /* fn(source, ..) = [..] */
Node *model_ctor(Session *s, Node *model); /* a function with the model's parameters */
/* Why the body of a function literal is no code, and where; NULL when it is. */
const char *why_not_code(Session *s, const FnObj *f, Span *at);
/* range k reads a variable of an earlier range */
bool mentions_earlier(const Node *comp, uint32_t k);
bool name_is_none(Session *s, const Node *e);
/* type.c */
void type_bind(Session *s, Node *type, Value v);
bool type_wants_tensor(Session *s, Node *type);
Value match_params(Session *s, Node *type, Value v, Span at, const char *what); /* params[net] */
const char *dims_text(Session *s, Value tuple);
/* ops.c */
Value tree_arith(Session *s, AstOp op, Value a, Value b, Span at, Span left, Span right);
Value dim_node(Session *s, Dim d); /* a size as a run-time number of code */
Value number_unary(Session *s, OpCode op, Value x, Span at);
/* a op b; it throws where that does not fit, or divides by zero */
int64_t int_op(Session *s, AstOp op, int64_t a, int64_t b, Span at);
/* number.c: i64 of rank 0 in code; the call fails where the result does not fit */
Value number_run_time(Session *s, AstOp op, Value x, Value y, Span at);
Value number_magnitude(Session *s, Value x, Span at);
Value number_within(Session *s, Value x, DType dt, Span at); /* x, which dt holds */
bool values_equal(Session *s, Value a, Value b, Span at);    /* rule 38 */
/* state.c */
Value detach(Session *s, Value v); /* the value without its place on the tape */
Value field_value(Session *s, Inst *i, Field *f);
/* random.c */
uint64_t site_id(Node *call);
Value random_key_for(Session *s, uint64_t site);
Value random_key_member(Session *s, uint64_t site); /* script: whatever comprehension runs */
void random_reset(Session *s, uint64_t seed);
/* effect.c */
void effect_assert(Session *s, Value cond, const Value *left, const Value *right, Span at);
/* module.c */
void module_declare_items(Session *s, Module *m, Node *ast, bool repl);
const char *use_chain(Session *s, const Module *from);
/* model.c */
Value buffers_tree(Session *s, Inst *i);
/* seq.c */
void comp_seq(Session *s, Value seq, Span at, void *ud, uint32_t k,
              void (*iteration)(void *ud, uint32_t k, Value v));
Value seq_map(Session *s, Value seq, Value f, Span at);
/* counter.c */
int64_t session_counter(const Session *s, const char *name);
/* session.c */
/* A line "channel: .." on stream 2, if the channel is on. */
void log_line(Session *s, int channel, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *pool_text(Session *s, char *text, size_t n); /* n + 1 bytes, freed with the pool */

#endif
