/* The engine: from the text of a kernel to code in memory, and running it on threads.
 *
 * In: kernels in loop form. Out: functions, and launches of them. */
#include "jit/engine.h"

#include <string.h>

const char *const eng_level_name[ENG_LEVEL_COUNT] = {"x86-64", "x86-64-v3", "x86-64-v4"};

EngLevel eng_host_level(void) {
  /* the levels of the x86-64 psABI; __builtin_cpu_supports also asks whether the system saves the
   * registers */
  if (__builtin_cpu_supports("x86-64-v4")) return ENG_X86_64_V4;
  if (__builtin_cpu_supports("x86-64-v3")) return ENG_X86_64_V3;
  return ENG_X86_64;
}

bool eng_level_find(const char *name, EngLevel *out) {
  for (int i = 0; i < ENG_LEVEL_COUNT; i++) {
    if (strcmp(name, eng_level_name[i])) continue;
    *out = (EngLevel)i;
    return true;
  }
  return false;
}
