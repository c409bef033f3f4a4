/* Inside of compiled calls: leaves, units, compiled functions. For compile.c, state.c,
 * check.c. */
#ifndef CKL_LANG_COMPILE_COMPILE_H
#define CKL_LANG_COMPILE_COMPILE_H

#include "lang/compile/pipeline.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/eval/element.h"
#include "lang/lang.h"
#include "lang/names/module.h"

enum {
  MEM_ERR_RESTART = 5, /* unit_need_const: staging starts over with one more pin */
  MEM_ERR_UNKNOWN = 6  /* check: an operation has an operand of which nothing is known */
};

/* The parts of a call's arguments. A leaf is a graph input; the rest is text of the signature. */
typedef enum LeafKind { LEAF_TENSOR, LEAF_PARAM, LEAF_FLOAT, LEAF_INT } LeafKind;
typedef struct Leaf {
  LeafKind kind;
  Value v;      /* TENSOR, PARAM; FLOAT, INT: the number */
  Node *type;   /* annotation whose bracket dims are symbols, or NULL */
  Node *fn;     /* the function that has these brackets */
  Name label;   /* how the program writes it, "k" or "pair.0"; NULL in a Flat that is not `named` */
  bool reached; /* in a block of script: the loss of a `grad` in it depends on the leaf */
} Leaf;

typedef struct Flat {
  Session *s;
  Arena *arena;
  Buf sig;
  Leaf *leaves;
  size_t count, cap;
  Inst **insts;
  size_t inst_count, inst_cap;
  Table leaf_of, inst_of; /* by object, if there are many; see FEW */
  size_t leaves_in, insts_in;
  bool named;
  Name label; /* label of the value that is flattened now */
} Flat;

/* The leaf of a tensor or param, or the number of an instance; SIZE_MAX: none was flattened yet. */
size_t flat_leaf(Flat *f, Value v);
size_t flat_inst(Flat *f, const Inst *inst);
Flat flat_fork(const Flat *f); /* a copy of f to append to; f stays as it is */

/* The version of a param by which `grad` is, to which later ones add (rule 60): what the unit is
 * given, or a turn. `up`: that of the stages around it. */
struct Base {
  Value v;
  bool turn;         /* of a loop: what stood before it is by the base around it */
  const Frame *home; /* the call in which, and around which, its uses pass no alias */
  const struct Base *up;
};

/* A param, or a buffer field of an instance, while a unit is staged. */
typedef struct State {
  const void *key;   /* Param *, or Inst * */
  Name field;        /* of an instance; NULL for a param */
  size_t index;      /* of the leaf, or of the instance in flat.insts */
  Value cur;         /* staged */
  Value entry;       /* the same at entry */
  Value first;       /* for `ckl ir`: its value before the first write */
  struct Base *base; /* of a param */
  struct Merged {    /* of a param: versions that choices and loops give */
    const Graph *g;
    Val v;
  } * merged;
  size_t merged_count, merged_cap;
  bool written;
  bool stood_for; /* by the leaf of a tree: `with_params` */
} State;

/* A layer path in the graph, and the number of its instance in flat.insts. */
typedef struct LayerPath {
  Name path;
  size_t inst;
} LayerPath;
typedef struct Pin {
  size_t leaf;
  int axis;
  int64_t value;
} Pin;
typedef struct SymBind {
  Sym sym;
  Dim dim;
  size_t leaf;
  int axis; /* -1: an int */
  Name name;
} SymBind;
typedef struct RandomUse {
  uint64_t site, seed;
  uint32_t input, nth;
  bool fixed;
} RandomUse;
/* A site of random draws; `fixed`: in a `wrap <seed n>` of code, with that seed. */
typedef struct Draw {
  uint64_t site, seed;
  bool fixed;
} Draw;
typedef struct DrawCount {
  Draw d;
  uint64_t now;
  Value
      more; /* executions besides these, on sides that data chose: a number of the graph, or unit */
} DrawCount;
typedef struct KeyNode {
  const Graph *g;
  Val v;
} KeyNode;

struct Unit {
  Session *s;
  Arena *arena;
  Graph *g;
  Stage root;
  Flat flat;
  Value *staged; /* of leaf i */
  size_t staged_count, staged_cap;
  int64_t *source; /* of graph input i: leaf, or -1 - random */
  size_t source_count, source_cap;
  State *states;
  size_t state_count, state_cap;
  SymBind *binds;
  size_t bind_count, bind_cap;
  Pin *pins;
  size_t pin_count, pin_cap;
  RandomUse *randoms;
  size_t random_count, random_cap;
  DrawCount *draws; /* executions that were staged */
  size_t draw_count, draw_cap;
  KeyNode *keys; /* of elements: element.c */
  size_t key_count, key_cap;
  Global **hidden;
  size_t hidden_count, hidden_cap;
  Val token;           /* present effect token */
  struct Hosts *hosts; /* callback.h; NULL: none */
  bool restart, check;
  bool shows;    /* of `check`: writes are reported */
  bool modal;    /* the code asked whether it trains: another call may take another branch */
  bool quiet;    /* a part of it is under no_grad */
  struct Apart { /* what is v under no_grad is `cut` outside (stage.c) */
    const Graph *g;
    Val v, cut;
  } * apart;
  size_t apart_count, apart_cap;
  bool outside;      /* a `grad` in a block of script goes on outside of it: see block_grad */
  bool regrad;       /* a `wrap <grad>` stands inside no_grad: the call is tracked all the same */
  uint32_t steps;    /* of `check`: calls and iterations walked so far */
  Span eval_dropout; /* a dropout that did nothing, outside wrap <train> */
  Pin wanted;        /* the pin that unit_need_const asked for */
  LayerPath *paths;
  size_t path_count, path_cap;
  size_t met; /* instances of flat.insts whose state is known */
  struct HiddenValue {
    Global *g;
    Value v;
  } * hidden_values;
  size_t hidden_value_count, hidden_value_cap;
};
typedef struct HiddenValue HiddenValue;

typedef struct Compiled Compiled; /* a call that was staged: compile_impl.h */

/* ---- compile.c */
/* A report about the call fn(a), which does not run, as a record: `fn` is a function of code, or an
 * instance with a `forward`. */
Value report_call(Session *s, Value fn, Span at, const Args *a);

/* ---- signature.c */
void flat_init(Flat *f, Session *s, Arena *a);
void flat_call(Flat *f, FnObj *fn, const Args *a);
const Tensor *leaf_tensor_of(const Leaf *l);
int64_t leaf_size(const Leaf *l, int axis); /* axis -1: the int itself */
Value leaf_value(const Leaf *l);            /* of a tensor or param: its overlay, if it has one */
/* Whether axis k of a tensor of `rank` is a free dim by the leaf's annotation; *name is the dim's
 * or, for number *nth of a pack, the pack's. */
bool leaf_free_axis(const Leaf *l, int rank, int axis, Name *name, int *nth);
Name flat_name_numbered(Session *s, Name name, size_t i); /* "name.i" */
void call_cache_free(Session *s);
void compiled_retain(Compiled *c); /* call_cache.c; NULL is fine in both */
void compiled_release(Compiled *c);
void log_compile(Session *s, const FnObj *f, const char *signature);
void session_dump_graph(Session *s, const Graph *g);
/* g as dumps show it: each body of `wrap <opaque "n">` is one node. On the scratch arena, or g
 * itself. */
const Graph *opaque_shown(Session *s, const Graph *g);
Name opaque_plain(Session *s, Name path); /* the path without opaque names, or NULL */
/* ---- random.c */
/* Key words of a draw, and the counter of a site after a call. */
void random_words(Session *s, bool fixed, uint64_t seed, uint64_t site, uint32_t nth,
                  int64_t out[2]);
void random_advance(Session *s, uint64_t site);
uint64_t *random_counter(Session *s, uint64_t site);
uint64_t *random_staged(Unit *u, Draw d);
void random_seed_staged(Session *s, uint64_t seed); /* code enters `wrap <seed n>` */
/* For code that is staged more than once: notes the present counts, and goes back to them. */
typedef struct DrawMark {
  DrawCount *draws;
  size_t count;
} DrawMark;
DrawMark random_mark(Session *s);
void random_back(Session *s, const DrawMark *m);
static inline bool draw_same(Draw a, Draw b) {
  return a.site == b.site && a.fixed == b.fixed && a.seed == b.seed;
}
/* ---- element.c */
void element_note(Session *s, Unit *u, Draw d, uint64_t now); /* before a counter advances */
void element_forget(Session *s);                              /* all counters start anew */
void element_words(const Element *e, int64_t words[2]);       /* folds in the elements that run */
Value element_key(Session *s, Value key); /* folds in the elements that are staged */
/* Whether v, of a stage's graph, is the key of a site: rows of a map do not share such a key. */
bool element_is_key(const Stage *st, Val v);
/* A key for each element along the axes, the outermost first. */
Val element_rows(Session *s, Val key, size_t axes, const Dim *n, Span at);
/* ---- effect.c: print and assert of code */
bool effect_run(void *ud, const Graph *g, uint32_t node, Tensor **in, int n, Tensor **out, GErr *e);

/* Files the failure of a compiled call of `what`, at `at`, or at the call if `at` is in the
 * library. Places inside `staged`, the call that was compiled, are replaced by `call`. `inner` is
 * the method in which it happened, or NULL. */
Diag *fail_run(Session *s, const GErr *e, Span at, const char *what, Span call, Span staged,
               const char *inner);
/* Whether an error says what code cannot do while script may. */
bool call_refused(ErrCode c);
/* Runs job, which compiles and calls code where code is a choice. -1: it has; else the error that
 * `refused` knows, before anything of the code has run: then diagnostics are as they were, and
 * script does it. Any other error is thrown on. */
int call_attempt(Session *s, void (*job)(void *ud), void *ud, bool (*refused)(ErrCode c));
/* mem_protect that also restores the evaluator's state */
int api_guard(Session *s, void (*f)(void *ud), void *ud);
/* NULL when the unit does not know it */
State *state_unit(Session *s, const void *key, Name field);
/* The type of a tensor or param of script as an argument of the call that is staged, with symbols
 * for its free dims; NULL if it is no argument. */
const Type *unit_type(Unit *u, Value v);
/* t with the sizes of the call in place of their names. If arguments differ in a size (an error
 * later), the size of the `first` argument, or of the last. */
Type unit_sized(Unit *u, Type t, bool first);
/* Whether an int that f captures is a constant: 0 and 1 in a block of script, whose tensors have
 * constant sizes, too (rule 27), so that one of 1 stretches there as it does outside (rule 29). */
bool flat_fixed(const FnObj *f, Value v);
void flat_value(Flat *f, Value v, Node *type, Node *fn);
/* a stage for a region of the present one's graph */
void region_open(Session *s, Stage *st, Name name);
/* Inlines the closed region st with its first k inputs mapped: input i takes the rows of rows[i],
 * all along one new leading axis of size n[0] (`zip`), or each along its own axis of size n[i], the
 * first outermost. Returns the outputs. */
Val *region_map(Session *s, const Stage *st, size_t k, const Value *rows, const Dim *n, bool zip,
                Span at);
void stage_push(Session *s, Stage *st, Graph *g);
void stage_pop(Session *s);

#endif
