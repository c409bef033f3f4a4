/* Targets of machine code: target.def as data. */
#ifndef CKL_JIT_ENGINE_TARGET_H
#define CKL_JIT_ENGINE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

typedef enum EngMachineId {
#define MACHINE(id, name, triple, elf, llvm) MACHINE_##id,
#include "jit/engine/target.def"
  MACHINE_COUNT
} EngMachineId;

typedef struct EngMachine {
  const char *name, *triple;
  uint16_t elf; /* e_machine of its objects */
} EngMachine;
extern const EngMachine eng_machines[MACHINE_COUNT];

/* Instructions that some levels have. Other levels compute the same by longer code. */
enum {
  HAS_FMA = 1,            /* a fused product and sum of f32 and f64 */
  HAS_F16 = 2,            /* f32 from f16 and back */
  HAS_ROUND = 4,          /* whole numbers: down, up, to nearest even */
  HAS_MASKED = 8,         /* masked loads and stores of consecutive lanes of 4 and 8 bytes */
  HAS_MASKED_NARROW = 16, /* likewise of 1 and 2 bytes */
  HAS_SCATTERED = 32,     /* masked gathers and scatters of lanes of 4 and 8 bytes */
  HAS_I64_TO_F64 = 64,    /* vectors of f64 from i64 */
  HAS_ALL = 127
};

typedef enum EngLevel {
#define TARGET(id, name, machine, has, vector, rows, columns, runs) ENG_##id,
#include "jit/engine/target.def"
  ENG_LEVEL_COUNT
} EngLevel;

typedef struct EngTarget {
  const char *name; /* for LLVM, CKL_CPU and the installed kernels */
  const EngMachine *machine;
  unsigned has;                /* HAS_* */
  int vector;                  /* bytes of a vector that code prefers */
  int tile_rows, tile_columns; /* of f32 in registers; f64 has half the columns */
} EngTarget;
extern const EngTarget eng_targets[ENG_LEVEL_COUNT];

EngLevel eng_host_level(void); /* the best this CPU can run */
bool eng_level_find(const char *name, EngLevel *out);

#endif
