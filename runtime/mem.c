/* Memory of a session: the hook with its accounts, protected calls, the pool, arenas.
 *
 * In: a realloc-like hook. Out: blocks whose bytes are all counted in the Mem they came from.
 * Idea: callers remember sizes, so a block has no header and the accounts are exact. A function
 * that fails throws to the innermost protected call, which releases the objects on the pool.
 * Invariant: `live` is the sum of the sizes of all blocks of the hook that were not freed, without
 * those that are kept for later tensors and arenas. */
#define _DEFAULT_SOURCE /* madvise */
#include "runtime/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#include "runtime/spill.h"
#include "runtime/str.h"

/* The usual hook makes blocks below KEEP_FROM quickly. A larger one costs its page faults each
 * time: filling 64 MB took 130 ms with them and 3 ms without (measured in a virtual machine). */
enum { DATA_ALIGN = 64, KEEP_FROM = 256 << 10, LARGE_FROM = 8 << 20 };

/* ---- the hook and its accounts */

static void *libc_hook(void *ud, void *ptr, size_t old_size, size_t new_size) {
  (void)ud;
  (void)old_size;
  if (!new_size) {
    free(ptr);
    return NULL;
  }
  return realloc(ptr, new_size);
}

void mem_init(Mem *m, MemHook hook, void *ud) {
  memset(m, 0, sizeof *m);
  m->hook = hook ? hook : libc_hook;
  m->ud = ud;
  const char *check = getenv("CKL_CHECK");
  m->check = check && *check && strcmp(check, "0");
}

void mem_close(Mem *m) {
  mem_trim(m);
  spill_close(m);
  mem_free(m, m->pool, m->pool_cap * sizeof *m->pool);
  m->pool = NULL;
  m->pool_cap = 0;
}

/* ---- the limit */

static size_t all_data(const size_t of[DEV_COUNT]) {
  size_t sum = 0;
  for (int i = 0; i < DEV_COUNT; i++) sum += of[i];
  return sum;
}

size_t mem_tensors(const Mem *m) {
  return all_data(m->data_live) - (m->spill ? m->data_live[DEV_SPILL] : 0);
}

size_t mem_rest(const Mem *m) {
  size_t tensors = mem_tensors(m);
  return (m->live > tensors ? m->live - tensors : 0) + (m->filing ? 0 : MEM_FILING);
}

size_t mem_room(const Mem *m) {
  size_t used = m->live + (m->filing ? 0 : MEM_FILING);
  if (!m->limit) return PTRDIFF_MAX;
  return used < m->limit ? m->limit - used : 0;
}

/* Whether the limit has room for `bytes`. Blocks kept for reuse count, too; they are freed if
 * another allocation needs the room. */
static bool within_limit(Mem *m, size_t bytes) {
  if (!m->limit) return true;
  size_t kept = m->kept_bytes + (size_t)m->kept_count * DATA_ALIGN + m->chunk_bytes;
  size_t room = mem_room(m);
  if (bytes <= room && kept <= room - bytes) return true;
  if (bytes > room && m->reclaim) m->reclaim(m->reclaim_ud);
  mem_trim(m);
  if (bytes <= mem_room(m)) return true;
  m->refused = bytes;
  m->refused_data = mem_tensors(m);
  m->refused_rest = mem_rest(m);
  return false;
}

bool mem_charge(Mem *m, size_t bytes) {
  if (!within_limit(m, bytes)) return false;
  m->live += bytes;
  if (m->live > m->peak) m->peak = m->live;
  return true;
}

void mem_discharge(Mem *m, size_t bytes) {
  m->live -= bytes;
}

void *mem_try(Mem *m, void *ptr, size_t old_size, size_t new_size) {
  if (!new_size) {
    mem_free(m, ptr, old_size);
    return NULL;
  }
  if (!ptr) old_size = 0;
  /* no object may be larger than a pointer difference can express */
  if (new_size > PTRDIFF_MAX || m->live - old_size > SIZE_MAX - new_size) return NULL;
  /* a hook that moves a block holds both copies for a moment, which does not count */
  if (new_size > old_size && !within_limit(m, new_size - old_size)) return NULL;
  void *p = m->hook(m->ud, ptr, old_size, new_size);
  if (!p && mem_trim(m)) p = m->hook(m->ud, ptr, old_size, new_size);
  if (!p) return NULL;
  m->live = m->live - old_size + new_size;
  if (m->live > m->peak) m->peak = m->live;
  return p;
}

void *mem_need(Mem *m, void *ptr, size_t old_size, size_t new_size) {
  void *p = mem_try(m, ptr, old_size, new_size);
  if (!p && new_size) mem_throw(m, MEM_ERR_NOMEM);
  return p;
}

void mem_free(Mem *m, void *ptr, size_t size) {
  if (!ptr) return;
  m->hook(m->ud, ptr, size, 0);
  m->live -= size;
}

/* Requests large pages for large blocks of the C library: the first touch then takes a quarter of
 * the time (280 MB: 20 ms against 78, medians of 30). Only for whole large pages inside the block,
 * so that the process takes no more memory than was requested. */
static void *in_large_pages(const Mem *m, void *block, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const uintptr_t page = 2 << 20, lo = ((uintptr_t)block + page - 1) & ~(page - 1),
                  hi = ((uintptr_t)block + bytes) & ~(page - 1);
  if (block && m->hook == libc_hook && bytes >= LARGE_FROM && lo < hi)
    (void)madvise((void *)lo, hi - lo, MADV_HUGEPAGE);
#endif
  (void)m, (void)bytes;
  return block;
}

/* ---- tensor data */

/* The byte before the data holds the distance from the start of the block (1 to 64), since the hook
 * may return blocks of any alignment. */
static void give_back(Mem *m, void *ptr, size_t bytes) {
  unsigned char *data = ptr;
  m->hook(m->ud, data - data[-1], bytes + DATA_ALIGN, 0);
}

static void drop_kept(Mem *m, int i) {
  MemKept k = m->kept[i];
  m->kept_count--;
  memmove(&m->kept[i], &m->kept[i + 1], (size_t)(m->kept_count - i) * sizeof k);
  m->kept_bytes -= k.bytes;
  ASAN_UNPOISON_MEMORY_REGION(k.data, k.bytes);
}

static void drop_chunks(Mem *m);

bool mem_trim(Mem *m) {
  if (!m->kept_count && !m->chunks) return false;
  drop_chunks(m);
  while (m->kept_count) {
    MemKept k = m->kept[m->kept_count - 1];
    drop_kept(m, m->kept_count - 1);
    give_back(m, k.data, k.bytes);
  }
  return true;
}

void mem_peaks_reset(Mem *m) {
  m->peak = m->live;
  memcpy(m->data_peak, m->data_live, sizeof m->data_peak);
}

/* Keeps a freed block. Live and kept blocks together stay below the peak, so a program never holds
 * more than it has needed. The blocks freed longest ago make room. */
static bool keep(Mem *m, void *data, size_t bytes) {
  size_t room = all_data(m->data_peak) - all_data(m->data_live);
  if (bytes < KEEP_FROM || bytes > room) return false;
  while (m->kept_count == MEM_KEPT || m->kept_bytes > room - bytes) {
    MemKept k = m->kept[0];
    drop_kept(m, 0);
    give_back(m, k.data, k.bytes);
  }
  m->kept[m->kept_count++] = (MemKept){data, bytes};
  m->kept_bytes += bytes;
  ASAN_POISON_MEMORY_REGION(data, bytes);
  return true;
}

static void *take_kept(Mem *m, size_t bytes) {
  for (int i = bytes < KEEP_FROM ? 0 : m->kept_count; i > 0; i--) {
    MemKept k = m->kept[i - 1];
    if (k.bytes != bytes) continue;
    drop_kept(m, i - 1);
    m->live += bytes + DATA_ALIGN;
    if (m->live > m->peak) m->peak = m->live;
    return k.data;
  }
  return NULL;
}

/* Frees kept blocks before a new block is made, if all together would exceed the peak. */
static void make_room(Mem *m, size_t bytes) {
  size_t live = all_data(m->data_live), peak = all_data(m->data_peak);
  while (m->kept_count && (bytes > peak - live || m->kept_bytes > peak - live - bytes)) {
    MemKept k = m->kept[0];
    drop_kept(m, 0);
    give_back(m, k.data, k.bytes);
  }
}

void *mem_data_try(Mem *m, Device dev, size_t bytes) {
  if (dev == DEV_CUDA || bytes > PTRDIFF_MAX - DATA_ALIGN) return NULL;
  bool in_file = dev == DEV_SPILL && m->spill;
  unsigned char *data = in_file ? spill_try(m, bytes) : take_kept(m, bytes);
  if (in_file && !data) return NULL;
  if (!data) {
    make_room(m, bytes);
    size_t all = bytes + DATA_ALIGN;
    unsigned char *raw = in_large_pages(m, mem_try(m, NULL, 0, all), all);
    if (!raw) return NULL;
    size_t skip = DATA_ALIGN - ((uintptr_t)raw & (DATA_ALIGN - 1));
    raw[skip - 1] = (unsigned char)skip;
    data = raw + skip;
  }
  m->data_live[dev] += bytes;
  if (m->data_live[dev] > m->data_peak[dev]) m->data_peak[dev] = m->data_live[dev];
  return data;
}

void mem_data_free(Mem *m, Device dev, void *ptr, size_t bytes) {
  if (!ptr) return;
  m->data_live[dev] -= bytes;
  if (dev == DEV_SPILL && m->spill) {
    spill_free(m, ptr);
    return;
  }
  m->live -= bytes + DATA_ALIGN;
  if (!keep(m, ptr, bytes)) give_back(m, ptr, bytes);
}

/* ---- protected calls */

struct MemJump {
  MemJump *prev;
  size_t pool_mark;
  volatile int code;
  jmp_buf env;
};

int mem_protect(Mem *m, void (*f)(void *ud), void *ud) {
  MemJump jump;
  jump.prev = m->jump;
  jump.pool_mark = m->pool_count;
  jump.code = MEM_OK;
  m->jump = &jump;
  if (setjmp(jump.env) == 0) f(ud);
  m->jump = jump.prev;
  if (jump.code != MEM_OK) mem_pool_drain(m, jump.pool_mark);
  return jump.code;
}

void mem_throw(Mem *m, int code) {
  MemJump *jump = m->jump;
  if (!jump) abort(); /* outside of every mem_protect: no call can catch the throw */
  jump->code = code == MEM_OK ? MEM_ERR_BUG : code;
  longjmp(jump->env, 1);
}

void mem_bug(Mem *m, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(m->bug, sizeof m->bug, fmt, ap);
  va_end(ap);
  mem_throw(m, MEM_ERR_BUG);
}

/* ---- the pool */

bool mem_pool_try(Mem *m, size_t n) {
  size_t cap = m->pool_cap ? m->pool_cap : 64, each = sizeof *m->pool;
  while (cap - m->pool_count < n) cap *= 2;
  if (cap == m->pool_cap) return true;
  MemPoolItem *grown = mem_try(m, m->pool, m->pool_cap * each, cap * each);
  if (!grown) return false;
  m->pool = grown;
  m->pool_cap = cap;
  return true;
}

void mem_pool_reserve(Mem *m, size_t n) {
  if (!mem_pool_try(m, n)) mem_throw(m, MEM_ERR_NOMEM);
}

void mem_pool_add(Mem *m, void *obj, void (*release)(void *obj)) {
  if (!mem_pool_try(m, 1)) {
    release(obj);
    mem_throw(m, MEM_ERR_NOMEM);
  }
  m->pool[m->pool_count++] = (MemPoolItem){obj, release};
}

void mem_pool_take(Mem *m, size_t at) {
  m->pool_count--;
  memmove(&m->pool[at], &m->pool[at + 1], (m->pool_count - at) * sizeof *m->pool);
}

void mem_pool_trim(Mem *m) {
  if (m->pool_count) return;
  mem_free(m, m->pool, m->pool_cap * sizeof *m->pool);
  m->pool = NULL;
  m->pool_cap = 0;
}

void mem_pool_release(Mem *m, size_t mark) {
  while (m->pool_count > mark) {
    MemPoolItem item = m->pool[--m->pool_count];
    item.release(item.obj);
  }
}

/* ---- arenas */

enum { ARENA_ALIGN = 16, CHUNK_MIN = 1024, CHUNK_KEEP = 64 << 10, CHUNK_MAX = 1 << 20 };

_Static_assert(sizeof(ArenaChunk) % ARENA_ALIGN == 0, "the data of a chunk is aligned");

void arena_init(Arena *a, Mem *m) {
  *a = (Arena){.mem = m};
}

#ifdef CKL_ARENA_MALLOC
enum { KEEPS_CHUNKS = 0 };
#else
enum { KEEPS_CHUNKS = 1 };
#endif

/* Keeps a chunk of one of the usual sizes for the next arena, if there is room. */
static bool keep_chunk(Mem *m, ArenaChunk *c) {
  size_t bytes = sizeof *c + c->size;
  bool usual = c->size >= CHUNK_KEEP && c->size <= CHUNK_MAX && !(c->size & (c->size - 1));
  if (!KEEPS_CHUNKS || !usual || bytes > MEM_CHUNKS - m->chunk_bytes) return false;
  c->prev = m->chunks;
  m->chunks = c;
  m->chunk_bytes += bytes;
  m->live -= bytes;
  ASAN_POISON_MEMORY_REGION(c->data, c->size);
  return true;
}

static ArenaChunk *unlink_chunk(Mem *m, ArenaChunk **link) {
  ArenaChunk *c = *link;
  *link = c->prev;
  m->chunk_bytes -= sizeof *c + c->size;
  ASAN_UNPOISON_MEMORY_REGION(c->data, c->size);
  return c;
}

static ArenaChunk *take_chunk(Mem *m, size_t size) {
  for (ArenaChunk **link = &m->chunks; size >= CHUNK_KEEP && *link; link = &(*link)->prev) {
    if ((*link)->size != size) continue;
    ArenaChunk *c = unlink_chunk(m, link);
    m->live += sizeof *c + size;
    if (m->live > m->peak) m->peak = m->live;
    return c;
  }
  return NULL;
}

static void drop_chunks(Mem *m) {
  while (m->chunks) {
    ArenaChunk *c = unlink_chunk(m, &m->chunks);
    m->hook(m->ud, c, sizeof *c + c->size, 0);
  }
}

static ArenaChunk *chunk_try(Arena *a, size_t size) {
  if (size > PTRDIFF_MAX - sizeof(ArenaChunk)) return NULL;
  ArenaChunk *c = take_chunk(a->mem, size);
  if (!c) c = mem_try(a->mem, NULL, 0, sizeof *c + size);
  if (c) *c = (ArenaChunk){.size = size};
  return c;
}

static void chunk_free(Arena *a, ArenaChunk *c) {
  if (!keep_chunk(a->mem, c)) mem_free(a->mem, c, sizeof *c + c->size);
}

#ifdef CKL_ARENA_MALLOC

/* A block that is not zeroed; NULL: there is no memory. Each is a chunk of its exact size. */
static void *take_block(Arena *a, size_t bytes) {
  ArenaChunk *c = chunk_try(a, bytes);
  if (!c) return NULL;
  c->prev = a->chunk;
  a->chunk = c;
  a->used += bytes;
  return c->data;
}

static bool grow_in_place(Arena *a, void *p, size_t old, size_t bytes) {
  (void)a, (void)p, (void)old, (void)bytes;
  return false;
}

#else

static size_t round_up(size_t n) {
  return (n + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
}

/* A block that is not zeroed; NULL: there is no memory. */
static void *take_block(Arena *a, size_t bytes) {
  if (bytes > PTRDIFF_MAX) return NULL;
  size_t n = round_up(bytes ? bytes : 1);
  ArenaChunk *c = a->chunk;
  if (!c || c->size - c->used < n) {
    size_t next = CHUNK_MIN; /* a power of two, which another arena can use */
    while (c && next <= c->size && next < CHUNK_MAX) next *= 2;
    ArenaChunk *made = chunk_try(a, n > next ? n : next);
    if (!made) return NULL;
    if (c && n > next) { /* the chunk of a large block goes behind the chunk in use */
      made->prev = c->prev;
      c->prev = made;
    } else {
      made->prev = c;
      a->chunk = made;
    }
    c = made;
  }
  void *p = c->data + c->used;
  c->used += n;
  a->used += n;
  return p;
}

static bool grow_in_place(Arena *a, void *p, size_t old, size_t bytes) {
  ArenaChunk *c = a->chunk;
  if (!c || !p || bytes > PTRDIFF_MAX) return false;
  size_t held = round_up(old ? old : 1), wanted = round_up(bytes ? bytes : 1);
  if ((uintptr_t)p < (uintptr_t)c->data || (uintptr_t)p + held != (uintptr_t)c->data + c->used ||
      c->used - held > c->size - wanted || wanted > c->size)
    return false;
  c->used = c->used - held + wanted;
  a->used = a->used - held + wanted;
  if (bytes > old) memset((char *)p + old, 0, wanted - old);
  return true;
}

#endif

void *arena_try(Arena *a, size_t bytes) {
  void *p = take_block(a, bytes);
  return p ? memset(p, 0, bytes) : NULL;
}

void *arena_alloc(Arena *a, size_t bytes) {
  void *p = arena_try(a, bytes);
  if (!p) mem_throw(a->mem, MEM_ERR_NOMEM);
  return p;
}

void *arena_array(Arena *a, size_t each, size_t n) {
  if (each && n > PTRDIFF_MAX / each) mem_throw(a->mem, MEM_ERR_NOMEM);
  return arena_alloc(a, each * n);
}

void *arena_grow(Arena *a, void *p, size_t old, size_t bytes) {
  if (bytes <= old && p) return p;
  if (grow_in_place(a, p, old, bytes)) return p;
  char *made = take_block(a, bytes);
  if (!made) mem_throw(a->mem, MEM_ERR_NOMEM);
  if (!p) old = 0;
  if (old) memcpy(made, p, old);
  memset(made + old, 0, bytes - old);
  return made;
}

char *arena_strdup(Arena *a, const char *s, size_t n) {
  if (n >= PTRDIFF_MAX) mem_throw(a->mem, MEM_ERR_NOMEM);
  char *copy = arena_alloc(a, n + 1);
  if (n) memcpy(copy, s, n);
  return copy;
}

char *arena_printf(Arena *a, const char *fmt, ...) {
  Buf b = {0};
  buf_init_arena(&b, a);
  va_list ap;
  va_start(ap, fmt);
  buf_vprintf(&b, fmt, ap);
  va_end(ap);
  return b.cap ? b.s : arena_strdup(a, "", 0);
}

void arena_free(Arena *a) {
  ArenaChunk *c = a->chunk;
  a->chunk = NULL;
  a->used = 0;
  while (c) {
    ArenaChunk *prev = c->prev;
    chunk_free(a, c);
    c = prev;
  }
}

static void drop_chunk(Arena *a, ArenaChunk **link) {
  ArenaChunk *c = *link;
  *link = c->prev;
  chunk_free(a, c);
}

void arena_rewind_to(Arena *a, ArenaMark m) {
  while (a->chunk != m.chunk) drop_chunk(a, &a->chunk);
  if (m.chunk) {
    while (m.chunk->prev != m.prev) drop_chunk(a, &m.chunk->prev); /* large, made since */
    m.chunk->used = m.filled;
  }
  a->used = m.used;
}
