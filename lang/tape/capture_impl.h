/* Inside of captured backwards: types and functions that capture.c and capture_graph.c share. */
#ifndef CKL_LANG_TAPE_CAPTURE_IMPL_H
#define CKL_LANG_TAPE_CAPTURE_IMPL_H

#include "lang/compile/compile.h"
#include "lang/compile/joint_ref.h"
#include "lang/tape/capture.h"
#include "lang/tape/hook.h"
#include "lang/tape/host_compiler.h"
#include "lang/value/sizes.h"

/* Where an input of the graph is taken from. */
typedef struct From {
  uint32_t node; /* place in Capture.nodes; UINT32_MAX: the cotangent */
  uint32_t slot; /* index in the node's inputs, or in the call's saved tensors */
} From;

/* The same value at another node. Each run tests whether it is the same tensor: a param may have
 * been changed in between. */
typedef struct Same {
  From from;
  uint32_t input;
} Same;

/* Where hooks run: a `defer` of the graph with its number. */
typedef struct Point {
  HookKind kind;
  uint32_t node; /* place in Capture.nodes of the node swept last */
  uint32_t at;   /* result of that node, or place in Capture.params */
} Point;

typedef struct Kept {
  int64_t rc;
  Session *s;
  Arena arena;
  const char *key;
  size_t key_len;
  Span at;        /* of the `grad` that was captured */
  uint32_t *part; /* where parts of the key end: the first, then PARTS of each node */
  size_t part_count;
  Graph *g;     /* NULL: the tape has no captured form */
  bool apart;   /* each use of a value is an input of its own */
  bool effects; /* it calls the program */
  Arena temp;   /* used while the graph is made */
  JointRef **joints;
  size_t joint_count, joint_cap;
  From *source;
  size_t source_count, source_cap; /* the origin of each input */
  Same *same;
  size_t same_count, same_cap;
  int *param_out, *target_out; /* output of each; -1 = none arrives, or hooks take it */
  Point *points;
  size_t point_count, point_cap;
  struct Native *native;
  Backend *backend; /* the host's code, else NULL */
} Kept;

/* The parts of a key, to tell what differs when none is found: the request, then PARTS of each
 * node. */
enum { PART_HOOKS, PART_KIND, PART_EDGES, PART_TYPES, PARTS };
typedef struct Parts {
  uint32_t *end;
  size_t count, cap;
} Parts;

/* ---- capture_graph.c */
extern const char capture_point_text[]; /* text of a `defer` that is a Point */
HookKey capture_hook(const Capture *c, HookKind kind, uint32_t node, uint32_t at);
/* Pins sizes that the call has as constants. */
void capture_pin(Sizes *z, const JointRef *j);
/* `apart`: each use of a value is an input of its own. `p` may be NULL. */
void capture_key(Capture *c, Buf *b, Sizes *z, bool apart, Parts *p);
/* The tensor that an input is. */
Tensor *capture_tensor(const Capture *c, From from);
/* Makes k->g, the sources of its inputs and the numbers of its outputs. k->g is NULL, with `e`, if
 * the tape has no captured form. */
void capture_graph(Capture *c, Kept *k, Sizes *z, GErr *e);

#endif
