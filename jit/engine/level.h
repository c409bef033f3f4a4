/* The levels of x86-64 that machine code is made for. */
#ifndef CKL_JIT_ENGINE_LEVEL_H
#define CKL_JIT_ENGINE_LEVEL_H

#include <stdbool.h>

typedef enum EngLevel { ENG_X86_64, ENG_X86_64_V3, ENG_X86_64_V4, ENG_LEVEL_COUNT } EngLevel;
extern const char *const eng_level_name[ENG_LEVEL_COUNT]; /* "x86-64", "x86-64-v3", "x86-64-v4" */
EngLevel eng_host_level(void);                            /* the best this CPU can run */
bool eng_level_find(const char *name, EngLevel *out);

#endif
