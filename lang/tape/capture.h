/* The backward of a tape as one graph, kept by structure (compiled autograd). */
#ifndef CKL_LANG_TAPE_CAPTURE_H
#define CKL_LANG_TAPE_CAPTURE_H

#include "lang/tape/tape.h"

typedef struct CaptureTarget {
  TapeNode *node;
  uint32_t out;
  Tensor *grad;
} CaptureTarget;

/* Input and results of a sweep. Gradients are new references on the pool; NULL = none arrives. */
typedef struct Capture {
  Session *s;
  Span at;          /* of the `grad` */
  TapeNode **nodes; /* latest first; mark 2: leads to a wanted value */
  bool *dies;       /* per node: the sweep alone holds it, so its tensors are the run's */
  size_t count;
  TapeNode *root; /* the loss is its result number `out` */
  uint32_t out;
  Tensor *cotangent;
  Param **params;
  Tensor **param_grad;
  Value **slot;  /* of each param: where hooks of after_grad put its gradient, */
  bool *dropped; /* unless they dropped it */
  size_t param_count;
  CaptureTarget *targets;
  size_t target_count;
  const TapeNode *failed; /* on an error: its node */
} Capture;

/* CAPTURED_NOT: this tape has no captured form; nothing was done. CAPTURED_FAILED: `e` is the error
 * of the run, and c->failed is set. */
typedef enum Captured { CAPTURED_NOT, CAPTURED_RAN, CAPTURED_FAILED } Captured;
Captured tape_capture(Capture *c, GErr *e, Span *at);
void captures_free(Session *s);

#endif
