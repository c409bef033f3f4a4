/* The columns of the table graph/ops.def, per operation. */
#ifndef CKL_GRAPH_OP_H
#define CKL_GRAPH_OP_H

#include "runtime/domain.h"

typedef enum OpClass {
  ELEMENTWISE,
  REDUCE,
  MOVE,
  CONTRACT,
  FACTOR,
  GENERATE,
  CONTROL,
  EFFECT
} OpClass;
enum {
  T_NONE = 0,
  T_COMM = 1,
  T_EFFECT = 2,
  T_REGION = 4,
  T_VIEW = 8,
  T_RANDOM = 16,
  T_FAIL = 32,
  T_PULL = 64
};
typedef enum Remat { REMAT_FREE, REMAT_CHEAP, REMAT_EXPENSIVE, REMAT_NEVER } Remat;
typedef enum Needs { NEEDS_NONE, NEEDS_IN, NEEDS_OUT, NEEDS_BOTH } Needs;

enum { OP_RESULTS = 4 }; /* the most results of an operation whose row says how many it has */

typedef struct OpInfo {
  const char *text, *doc;
  int arity, results;
  OpClass cls;
  unsigned traits;
  OpDomain domain;
  Remat remat;
  Needs needs;
  int cost;
} OpInfo;
extern const OpInfo op_info[]; /* by OpCode: OP_COUNT of them */
int op_find(const char *text); /* -1 */

#endif
