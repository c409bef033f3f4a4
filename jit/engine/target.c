/* Architectures and levels of CPUs, and the best level that this machine runs. */
#include "jit/engine/target.h"

#include <elf.h>
#include <string.h>

const EngMachine eng_machines[MACHINE_COUNT] = {
#define MACHINE(id, name, triple, elf, llvm) {name, triple, elf},
#include "jit/engine/target.def"
};

const EngTarget eng_targets[ENG_LEVEL_COUNT] = {
#define TARGET(id, name, machine, has, vector, rows, columns, runs)                                \
  {name, &eng_machines[MACHINE_##machine], has, vector, rows, columns},
#include "jit/engine/target.def"
};

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of ecx. */
enum { SSE3 = 1, CX16 = 1 << 13, MOVBE = 1 << 22, F16C = 1 << 29 }; /* of leaf 1 */
enum { LAHF = 1, LZCNT = 1 << 5 };                                  /* of leaf 0x80000001 */

static bool cpuid_has(unsigned leaf, unsigned want) {
  unsigned a, b, c, d;
  return __get_cpuid(leaf, &a, &b, &c, &d) && (c & want) == want;
}

/* CPU also asks whether the system saves the registers. Not every compiler knows the levels of the
 * psABI by name, or all their parts: CPUID reads the parts that it may not know. */
enum { HOST = MACHINE_X86_64 };
#define CPU(name) __builtin_cpu_supports(name)
#define CPUID(leaf, want) cpuid_has(leaf, want)
#else
enum { HOST = MACHINE_COUNT };
#define CPU(name) false
#define CPUID(leaf, want) false
#endif

static EngLevel find_level(void) {
  int best = 0;
  bool all = true;
#define TARGET(id, name, machine, has, vector, rows, columns, runs)                                \
  if ((int)MACHINE_##machine == (int)HOST && (all = all && (runs))) best = ENG_##id;
#include "jit/engine/target.def"
  return (EngLevel)best;
}

/* Asked for once: a virtual machine takes many microseconds to answer cpuid. */
EngLevel eng_host_level(void) {
  static _Atomic int known; /* + 1 */
  if (!known) known = (int)find_level() + 1;
  return (EngLevel)(known - 1);
}

bool eng_level_find(const char *name, EngLevel *out) {
  for (int i = 0; i < ENG_LEVEL_COUNT; i++) {
    if (strcmp(name, eng_targets[i].name)) continue;
    *out = (EngLevel)i;
    return true;
  }
  return false;
}
