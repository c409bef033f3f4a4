/* Plans for a chain of stages whose values are kept or computed again, piece by piece. The input is
 * numbers, no graph.
 *
 * A chain runs forward, then backward from its last stage to its first. The backward of a stage
 * needs its *tape*, which a run of the stage leaves. A plan keeps the tape of a stage when it first
 * runs (depth 0), or keeps only what crosses some boundary before it, and runs the stages from
 * there to the next such boundary again (depth 1), which may be cut into pieces in the same way
 * (depth 2 ..): a stage of depth d runs d + 1 times. */
#ifndef CKL_AUTOGRAD_ROTOR_H
#define CKL_AUTOGRAD_ROTOR_H

#include "runtime/mem.h"

/* Bytes, and a time in any unit. */
typedef struct RotorStage {
  int64_t time;  /* of running it again */
  int64_t tape;  /* that it leaves at depth 0 */
  int64_t again; /* that it leaves at other depths */
  int64_t cross; /* what later stages need of it and of stages before: at its end */
  int64_t front; /* most bytes beside those while it runs */
  int64_t back;  /* most bytes beside tapes while its backward runs, if it ran at depth 0 last */
  int64_t alone; /* most bytes while it runs again and its backward runs, at other depths */
} RotorStage;

typedef struct RotorPoint {
  int64_t need; /* the most bytes at once */
  int64_t time; /* of all that runs again */
  uint32_t cut; /* the boundary that is kept first; 0: the tape of the first stage is kept */
} RotorPoint;

/* Stages lo .. hi - 1 run again together, from what crosses boundary lo. */
typedef struct RotorPiece {
  uint32_t lo, hi;
  uint32_t depth;  /* 1: within no other piece */
  uint32_t parent; /* number of the piece around it + 1, 0 = none */
} RotorPiece;

typedef struct RotorPlan {
  uint8_t *depth;   /* per stage: how often it runs again */
  uint8_t *kept;    /* per boundary 1 .. n - 1: the depth at which it is kept, or ROTOR_NOT */
  uint32_t *inside; /* per stage: number of the innermost piece + 1, 0 = none */
  RotorPiece *pieces;
  size_t piece_count, piece_cap;
} RotorPlan;

enum { ROTOR_DEPTH = 3, ROTOR_NOT = 255, ROTOR_STAGES = 256 };

typedef struct Rotor Rotor;
/* Fills the table for n stages, 1 .. ROTOR_STAGES, and pieces of `depth` at most, 0 .. ROTOR_DEPTH;
 * n^2 log n steps. `limit`: no piece runs again that takes more time; plans may take more. */
Rotor *rotor_make(Arena *a, const RotorStage *stages, uint32_t n, int depth, int64_t limit);
/* The plans that no other one beats, by rising need and falling time. Returns their number. */
size_t rotor_points(const Rotor *r, const RotorPoint **points);
/* The fastest plan that needs at most `need` bytes, which is not below that of the first point. */
RotorPlan rotor_plan(Arena *a, const Rotor *r, int64_t need);

#endif
