/* Levels of x86-64: their names, and the best one that this machine runs. */
#include "jit/engine/level.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

const char *const eng_level_name[ENG_LEVEL_COUNT] = {"x86-64", "x86-64-v3", "x86-64-v4"};

#if defined(__x86_64__)
/* The levels of the x86-64 psABI. What the compiler can ask for by name it also asks the system
 * for, which has to save the registers; not every compiler knows the levels, or all their parts. */
static bool is_v3(void) {
  enum { SSE3 = 1, CX16 = 1 << 13, MOVBE = 1 << 22, F16C = 1 << 29 }; /* of leaf 1 */
  enum { LAHF = 1, LZCNT = 1 << 5 };                                  /* of leaf 0x80000001 */
  const unsigned want = SSE3 | CX16 | MOVBE | F16C, want_more = LAHF | LZCNT;
  unsigned a, b, c, d;
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) && (c & want) == want &&
         __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & want_more) == want_more;
}

static bool is_v4(void) {
  return is_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

static EngLevel find_level(void) {
#if defined(__x86_64__)
  if (is_v4()) return ENG_X86_64_V4;
  if (is_v3()) return ENG_X86_64_V3;
#endif
  return ENG_X86_64;
}

/* Asked for once: a virtual machine takes many microseconds to answer cpuid. */
EngLevel eng_host_level(void) {
  static _Atomic int known; /* + 1 */
  if (!known) known = (int)find_level() + 1;
  return (EngLevel)(known - 1);
}

bool eng_level_find(const char *name, EngLevel *out) {
  for (int i = 0; i < ENG_LEVEL_COUNT; i++) {
    if (strcmp(name, eng_level_name[i])) continue;
    *out = (EngLevel)i;
    return true;
  }
  return false;
}
