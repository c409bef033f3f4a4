/* Memory: one hook, accounts per device, arenas, and the one way out of a failure.
 *
 * A session owns one Mem. Every byte goes through the host's `realloc`-like hook, so a test can
 * fail the nth allocation and an embedding program can bring its own. Failures and program errors
 * leave by `mem_throw` to the innermost `mem_protect`, as in Lua. This releases the objects on the
 * pool (reference-counted, `mem_pool_*`) and the memory of arenas above the mark.
 */
#ifndef CKL_RUNTIME_MEM_H
#define CKL_RUNTIME_MEM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/interrupt.h"

enum {
  MEM_OK = 0,
  MEM_ERR_PROGRAM = 1,
  MEM_ERR_NOMEM = 2,
  MEM_ERR_INTERRUPT = 3,
  MEM_ERR_BUG = 4,
  MEM_ERR_STACK = 8 /* the C stack is full (runtime/stack.h) */
};

/* The devices that have accounts. `sim` is host memory with an account of its own. `spill` holds
 * values of the host that wait to be fetched (rule 82); it counts for no limit, and nothing
 * computes there. */
typedef enum Device { DEV_CPU, DEV_CUDA, DEV_SIM, DEV_SPILL, DEV_COUNT } Device;

/* realloc(ud, NULL, 0, n) allocates, (ud, p, n, 0) frees and returns NULL, else resizes.
 * NULL for n > 0 means out of memory; the old block stays valid. */
typedef void *(*MemHook)(void *ud, void *ptr, size_t old_size, size_t new_size);

typedef struct MemJump MemJump;
typedef struct ArenaChunk ArenaChunk;
typedef struct Spill Spill;
struct Door;

/* A reference-counted object on the autorelease pool. */
typedef struct MemPoolItem {
  void *obj;
  void (*release)(void *obj);
} MemPoolItem;

/* A freed block of tensor data that waits to be used again. */
typedef struct MemKept {
  void *data;
  size_t bytes;
} MemKept;
enum { MEM_KEPT = 512 }; /* a model of a hundred params under Adam frees three times as many */
enum { MEM_FILING = 16 << 10 }; /* bytes of a limit that are reserved for diagnostics */
enum { MEM_CHUNKS = 8 << 20 };  /* bytes of freed chunks of arenas that are kept at most */

typedef struct Mem {
  MemHook hook;
  void *ud;
  size_t live, peak;                                 /* bytes of every kind, now and at most */
  size_t data_live[DEV_COUNT], data_peak[DEV_COUNT]; /* tensor storage alone, per device */
  size_t limit; /* most bytes of every kind, kept ones too; 0 = none */
  /* Called when an allocation would pass the limit: frees tensor storage that its owner only keeps
   * for later. May be NULL. */
  void (*reclaim)(void *ud);
  void *reclaim_ud;
  size_t refused, refused_data, refused_rest; /* bytes that the limit refused last; in use then */
  bool filing;       /* allocations may use the part of the limit reserved for diagnostics */
  size_t kept_bytes; /* freed tensor data that is kept; no other number here counts it */
  int kept_count;
  MemKept kept[MEM_KEPT]; /* the one freed last is last */
  ArenaChunk *chunks;     /* freed by arenas, the one freed last first; not counted here either */
  size_t chunk_bytes;
  MemJump *jump; /* innermost protected call */
  bool check;    /* invariants are tested between passes and steps: CKL_CHECK is set, and not 0 */
  char bug[240]; /* the broken invariant: the text of mem_bug */
  Spill *spill;  /* the file with the data of device spill (spill.h); NULL: they are in memory */
  const Interrupt *stop;   /* long waits and reads poll it; NULL: nobody asks them to stop */
  const struct Door *door; /* the files that its program may open (runtime/door.h); NULL: all */
  MemPoolItem *pool;
  size_t pool_count, pool_cap;
} Mem;

/* Sets `m` up; `hook` NULL means the C library's realloc. */
void mem_init(Mem *m, MemHook hook, void *ud);
/* Frees the pool's own array and kept blocks; every object must have been drained before. */
void mem_close(Mem *m);

/* Resizing without a jump: NULL means out of memory, the old block stays. Sizes are exact bytes;
 * the caller remembers them, as Lua does. */
void *mem_try(Mem *m, void *ptr, size_t old_size, size_t new_size);
/* Resizes like mem_try, but throws MEM_ERR_NOMEM. */
void *mem_need(Mem *m, void *ptr, size_t old_size, size_t new_size);
void mem_free(Mem *m, void *ptr, size_t size);

/* Tensor data: 64-byte aligned, counted in the device's account. NULL when out of memory. Freed
 * blocks above a certain size are kept and used again for the same number of bytes, so that a loop
 * that makes the same tensors in each iteration asks the system for no pages. They count as free.
 * Live and kept blocks together never exceed the peak, and kept ones go back to the hook when
 * anything runs out of memory. */
void *mem_data_try(Mem *m, Device dev, size_t bytes);
void mem_data_free(Mem *m, Device dev, void *ptr, size_t bytes);
/* Bytes that may be allocated below the limit, if kept blocks are freed; PTRDIFF_MAX: no limit. */
size_t mem_room(const Mem *m);
/* Bytes in use as the limit counts them: those of tensors, and all others including the reserve for
 * diagnostics. */
size_t mem_tensors(const Mem *m);
size_t mem_rest(const Mem *m);
/* Counts bytes that did not come from the hook (mapped code). False if the limit has no room. */
bool mem_charge(Mem *m, size_t bytes);
void mem_discharge(Mem *m, size_t bytes);
/* Frees kept blocks; false if there are none. */
bool mem_trim(Mem *m);
void mem_peaks_reset(Mem *m); /* the peaks become the bytes that are alive now */

/* Runs f(ud); returns MEM_OK, or the code given to mem_throw. If f was left by a throw, the pool is
 * drained to its height at entry; if f returned, the pool stays as it is. */
int mem_protect(Mem *m, void (*f)(void *ud), void *ud);
_Noreturn void mem_throw(Mem *m, int code);

/* The pool: takes over one reference to `obj`; `release` gives it back. Throws on out of memory
 * after releasing `obj`, so the caller never owns it in any case. */
void mem_pool_add(Mem *m, void *obj, void (*release)(void *obj));
/* Room for n more: the next n mem_pool_add cannot fail. */
bool mem_pool_try(Mem *m, size_t n);
void mem_pool_reserve(Mem *m, size_t n); /* throws */
static inline size_t mem_pool_mark(const Mem *m) {
  return m->pool_count;
}
void mem_pool_release(Mem *m, size_t mark);
/* Releases what was added since the mark. */
static inline void mem_pool_drain(Mem *m, size_t mark) {
  if (m->pool_count > mark) mem_pool_release(m, mark);
}
/* Takes item `at` of the pool back from it: the caller releases it. */
void mem_pool_take(Mem *m, size_t at);
/* Gives back the room of an empty pool. */
void mem_pool_trim(Mem *m);

/* Arena: bump allocation in chunks of growing size, freed as a whole. Allocation throws when out of
 * memory (never returns NULL); blocks are 16-byte aligned and zeroed. Large chunks of a freed arena
 * are kept for the next one, like tensor data, since their pages exist. With -DCKL_ARENA_MALLOC
 * each allocation is its own block, so that ASan sees overruns. */
struct ArenaChunk {
  ArenaChunk *prev;
  size_t size; /* bytes of data that fit */
  size_t used;
  size_t pad; /* keeps the data 16-byte aligned */
  char data[];
};
typedef struct Arena {
  Mem *mem;
  ArenaChunk *chunk;
  size_t used; /* bytes handed out, for accounts */
} Arena;

void arena_init(Arena *a, Mem *m);
void *arena_alloc(Arena *a, size_t bytes);
void *arena_try(Arena *a, size_t bytes);            /* the same, but NULL when out of memory */
void *arena_array(Arena *a, size_t each, size_t n); /* `n` of `each` bytes, product checked */
/* Grows the block p of `old` bytes to `bytes` (in place when it is the last one). */
void *arena_grow(Arena *a, void *p, size_t old, size_t bytes);
char *arena_strdup(Arena *a, const char *s, size_t n); /* NUL-terminated copy */
char *arena_printf(Arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_free(Arena *a); /* everything; the arena can be used again */
/* Frees what was allocated since the mark; marks nest. */
typedef struct ArenaMark {
  ArenaChunk *chunk, *prev;
  size_t filled, used;
} ArenaMark;
static inline ArenaMark arena_mark(const Arena *a) {
  ArenaChunk *c = a->chunk;
  return (ArenaMark){c, c ? c->prev : NULL, c ? c->used : 0, a->used};
}
void arena_rewind_to(Arena *a, ArenaMark m);
static inline void arena_rewind(Arena *a, ArenaMark m) {
  if (a->used != m.used) arena_rewind_to(a, m);
}

#define ARENA_NEW(a, T) ((T *)arena_alloc((a), sizeof(T)))
#define ARENA_ARRAY(a, T, n) ((T *)arena_array((a), sizeof(T), (size_t)(n)))

/* A growing array in an arena: VEC_PUSH(&arena, v.items, v.count, v.cap, x). */
#define VEC_PUSH(arena, items, count, cap, x)                                                      \
  do {                                                                                             \
    if ((count) == (cap)) {                                                                        \
      size_t vec_new_ = (cap) ? (size_t)(cap)*2 : 8;                                               \
      (items) = arena_grow((arena), (items), sizeof(*(items)) * (size_t)(cap),                     \
                           sizeof(*(items)) * vec_new_);                                           \
      (cap) = vec_new_;                                                                            \
    }                                                                                              \
    (items)[(count)++] = (x);                                                                      \
  } while (0)

/* A broken invariant is an error of the session (MEM_ERR_BUG) with a text that says which, never an
 * abort. */
_Noreturn void mem_bug(Mem *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define CK_ASSERT(m, cond)                                                                         \
  do {                                                                                             \
    if (!(cond)) mem_bug((m), "%s, in %s", #cond, __func__);                                       \
  } while (0)

#endif
