/* Values of the language, in script and in code.
 *
 * One Value type serves both: a tensor in script is a TVal (with its place on the tape), in code it
 * is a V_NODE, a value of the graph that is being staged. Numbers, strings, lists, records,
 * functions and instances are the same in both. So one evaluator serves both.
 *
 * Ownership: a function that returns a Value returns it "on the pool": it lives until the pool is
 * drained (end of the statement). To keep it longer, call value_retain.
 */
#ifndef CKL_LANG_VALUE_VALUE_H
#define CKL_LANG_VALUE_VALUE_H

#include "graph/ir.h"
#include "parser/ast.h"

typedef struct Session Session;
typedef struct Module Module;
typedef struct TapeNode TapeNode;

typedef enum ValueTag {
  V_UNIT,    /* () */
  V_NONE,    /* none */
  V_BOOL,    /* u.i */
  V_INT,     /* weak number, u.i */
  V_FLOAT,   /* weak number, u.f */
  V_DIM,     /* weak int of code that is a polynomial of sizes, u.d */
  V_NODE,    /* tensor or (weak) run-time number of code, u.v in the stage of level `aux` */
  V_DTYPE,   /* f32, i64 .. as a function, u.i */
  V_MODULE,  /* u.module; lives as long as the session */
  V_BUILTIN, /* u.builtin */
  V_MODEL,   /* a model declaration, u.model */
  V_UNKNOWN, /* `ckl check` only: nothing is known about it */
  /* counted objects, u.o */
  V_STR,
  V_TENSOR,
  V_PARAM,
  V_LIST,
  V_TUPLE,
  V_ROWS, /* a list of code whose number of elements data decides: eval/rows.c */
  V_RECORD,
  V_DICT, /* value/dict.h */
  V_FN,
  V_INST,
  V_RANGE,
  V_SEQ,
  V_HANDLE,
  V_POLICY
} ValueTag;

typedef struct Obj {
  int64_t rc;
  Session *s;
  uint8_t tag;     /* ValueTag */
  bool params;     /* there are params among its parts */
  uint16_t height; /* levels of values below it, at most UINT16_MAX: see value_bound */
  uint32_t parts;  /* values below it, one for each path to each, at most UINT32_MAX */
} Obj;

typedef struct Value {
  uint8_t tag;
  bool weak;    /* V_NODE: a number */
  uint32_t aux; /* V_NODE: level of its stage */
  union {
    int64_t i;
    double f;
    Dim d;
    Val v;
    Module *module;
    const struct Builtin *builtin;
    struct ModelDecl *model;
    Obj *o;
    struct StrObj *str;
    struct TVal *t;
    struct Param *p;
    struct List *list; /* V_LIST, V_TUPLE, V_ROWS */
    struct Record *rec;
    struct Dict *dict;
    struct FnObj *fn;
    struct Inst *inst;
    struct Range *range;
    struct Seq *seq;
    struct Handle *handle;
  } u;
} Value;

typedef struct StrObj {
  Obj o;
  size_t n, chars, cap;    /* bytes, code points, bytes that there is room for */
  size_t at_char, at_byte; /* a code point and where it begins: the last one that was looked for */
  char s[];
} StrObj;

/* A tensor of script. It is output `out` of `node` on the tape; `node` is NULL if it is not
 * recorded. */
typedef struct TVal {
  Obj o;
  Tensor *t;
  TapeNode *node;
  uint32_t out;
} TVal;

/* An object with identity: a model's param or a `track`ed value (rule 59). */
typedef struct Param {
  Obj o;
  Tensor *t; /* present value */
  bool frozen;
  bool tracked;  /* made by track(x) */
  Value overlay; /* stands for it inside `wrap <with_params ..>`; unit = none (borrowed) */
  Name name;     /* last part of the path, or NULL */
  uint64_t id;   /* ascending in the order of creation, never reused */
  uint64_t version;
  uint32_t slot; /* sweep.c: its index in the innermost sweep, from 1 */
  bool hooked;   /* has, or had, a hook (hook.c) */
} Param;

/* also V_TUPLE */
typedef struct List {
  Obj o;
  bool weak; /* a list of numbers only: a weak tensor (rule 14) */
  size_t count, cap;
  Value *items;
} List;
typedef struct Record {
  Obj o;
  size_t count;
  Name *names;
  Value *items;
} Record;
/* lo..hi, weak ints of script or code */
typedef struct Range {
  Obj o;
  Value lo, hi;
} Range;

/* A local variable, or a captured one. */
typedef struct Local {
  Name name;
  Value v;
  bool is_var;
  Span span;
} Local;

typedef struct FnObj {
  Obj o;
  Node *decl;              /* N_FN or N_LAMBDA */
  Module *module;          /* where its names are looked up */
  struct Inst *self;       /* bound method, or NULL (retained) */
  struct ModelDecl *model; /* the model whose member it is, or NULL */
  bool is_code, deferred;  /* fn, else proc; made by defer(f): callback.c */
  bool as_script;          /* a literal that code refused: script runs it itself (rule 51) */
  size_t capture_count;
  Local *captures; /* by value (rule 8) */
} FnObj;

/* A model declaration of a module. */
typedef struct ModelDecl {
  Name name;
  Node *decl; /* N_MODEL */
  Module *module;
  bool old; /* replaced at the REPL */
} ModelDecl;

typedef enum FieldKind { FIELD_ARG, FIELD_LET, FIELD_PARAM, FIELD_BUFFER } FieldKind;
typedef struct Field {
  Name name;
  FieldKind kind;
  Value v;    /* FIELD_PARAM: a V_PARAM */
  Node *type; /* of a buffer of several values, or of a text; NULL: a tensor, number, params[..] */
  bool open;  /* its structure may change: there are lists, dicts, texts in it */
} Field;

typedef struct Inst {
  Obj o;
  ModelDecl *model;
  uint64_t id;
  bool hooked;       /* has, or had, a hook (hook.c) */
  size_t count, cap; /* fewer than cap while it is being made */
  Field *fields;
  Value policy; /* of checkpoint_layers: a policy, a fn, true = a plain block; unit = none */
} Inst;

/* A script-only lazy sequence (rule 95): seq.c. */
typedef struct Seq Seq;
/* Lets the program remove hooks (hook.c): it names them by `id` and owns nothing. */
typedef struct Handle {
  Obj o;
  uint64_t id;
} Handle;

static inline Value v_unit(void) {
  return (Value){.tag = V_UNIT};
}
static inline Value v_none(void) {
  return (Value){.tag = V_NONE};
}
static inline Value v_bool(bool b) {
  return (Value){.tag = V_BOOL, .u.i = b};
}
static inline Value v_int(int64_t i) {
  return (Value){.tag = V_INT, .u.i = i};
}
static inline Value v_float(double f) {
  return (Value){.tag = V_FLOAT, .u.f = f};
}
static inline bool v_counted(Value v) {
  return v.tag >= V_STR;
}
static inline bool v_is_number(Value v) {
  return v.tag == V_INT || v.tag == V_FLOAT || v.tag == V_DIM || (v.tag == V_NODE && v.weak);
}
/* What script reads of a tensor or param: of a param inside `with_params` the leaf that stands for
 * it. NULL: v is neither. Borrowed. */
static inline Tensor *v_tensor_of(Value v) {
  if (v.tag == V_PARAM && v.u.p->overlay.tag != V_UNIT) v = v.u.p->overlay;
  return v.tag == V_TENSOR ? v.u.t->t : v.tag == V_PARAM ? v.u.p->t : NULL;
}
/* A tensor of script or code: TVal, Param, or a V_NODE that is not a number. */
static inline bool v_is_tensor(Value v) {
  return v.tag == V_TENSOR || v.tag == V_PARAM || (v.tag == V_NODE && !v.weak);
}

Value v_scalar(const Tensor *t); /* the number, or bool, that its one element is (rule 13) */
/* A list made of numbers only, which stands for a weak tensor (rule 14). */
static inline bool v_is_weak_list(Value v) {
  return v.tag == V_LIST && v.u.list->weak;
}

static inline void value_retain(Value v) {
  if (v_counted(v)) v.u.o->rc++;
}
void obj_release(Obj *o);
static inline void value_release(Value v) {
  if (v_counted(v)) obj_release(v.u.o);
}
/* Counts v as a part of o, in its height and parts. Buffers of an instance are not counted: a value
 * is bounded when it is written to one. */
void obj_holds(Obj *o, Value v);
/* To be called before a walk over all of v. It is an error if v is nested deeper than any walk
 * goes, or if its parts are that many only because shared parts are counted once for each path. */
void value_bound(Session *s, Value v, Span at);
bool value_bounded(Session *s, Value v); /* whether value_bound would return */
/* Whether v has too many parts to be shown inside of another value. */
bool value_is_vast(Value v);
/* *slot = v, retaining v and releasing what was there. */
static inline void value_set(Value *slot, Value v) {
  Value old = *slot;
  value_retain(v);
  *slot = v;
  value_release(old);
}
/* Puts one more reference on the pool and returns v. */
Value value_pool(Session *s, Value v);
/* The pool takes over n references; NULL entries are skipped. Out of memory leaks none of them. */
void value_pool_tensors(Session *s, Tensor *const *t, size_t n);

const char *value_pool_text(Session *s, char *text,
                            size_t n); /* n + 1 bytes, freed with the pool */

/* Makers: the result is on the pool. They throw when out of memory. */
Value value_new(Session *s, ValueTag tag, size_t bytes); /* an object, all else of it zero */
Value v_str(Session *s, const char *text, size_t n);
/* The same, with room for that many bytes. */
Value v_str_room(Session *s, const char *text, size_t n, size_t room);
Value v_printf(Session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Takes over the reference to t. NULL means that memory ran out: throws. */
Value v_tensor(Session *s, Tensor *t);
Value v_param(Session *s, Tensor *t, Name name, bool tracked);        /* takes t over */
Value v_list(Session *s, ValueTag tag, size_t n, const Value *items); /* V_LIST or V_TUPLE */
Value v_record(Session *s, size_t n, const Name *names, const Value *items);
/* The parts of a tuple, list, record or dict, of which there may be 0; NULL: v is no such value.
 * Borrowed. */
const Value *value_items(Value v, size_t *n);
/* The same, copied to scratch memory. A walk changes the copies and passes them to value_like. */
Value *value_parts(Session *s, Value v, size_t *n);
/* A tuple, list, record or dict like v, with the same number of other parts. */
Value value_like(Session *s, Value v, const Value *parts);
/* Whether both are of one kind, with as many parts under the same names, or keys, in one order. */
bool value_alike(Value a, Value b);
/* The part of b that goes with part i of a, by place, or by key; NULL: b has none. */
const Value *value_counterpart(Value a, size_t i, Value b);
/* What part i of v is called: a name, a number, or a key. In scratch memory. */
const char *value_part_name(Session *s, Value v, size_t i);
/* The path of that part, where v has this path: "net.w", "net.0", "net[3]". */
const char *value_part_path(Session *s, const char *path, Value v, size_t i);
Value v_range(Session *s, Value lo, Value hi);
Value v_fn(Session *s, Node *decl, Module *m, Inst *self, ModelDecl *model, bool is_code,
           size_t ncaptures, const Local *captures);
/* A function like f with this `self`, and with these captures, as many as f has. */
Value v_fn_like(Session *s, const FnObj *f, Inst *self, const Local *captures);
Value v_inst(Session *s, ModelDecl *m, size_t nfields);

const Value *value_record_get(const Record *r, Name name); /* NULL when absent */
Field *model_field(Inst *i, Name name);                    /* NULL when absent */

/* "f32[3, 4]", "int", "(f32, list of 3)", "Mlp": for messages and ckl_show. */
const char *value_type_text(Session *s, Value v);
/* Structural and bitwise equality (rule 38, same()). Tensors of script only. */
bool value_same(Value a, Value b);

#endif
